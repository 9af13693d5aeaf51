"""Promises of calibrated policies put to the test, on a problem whose costs are known exactly.

One decision: the more an action pays, the more often a cost of 1 follows at the next step. A policy
with a dial is calibrated again and again, each time from new episodes. Its members' costs are known
exactly, so it is known whether a certificate is kept at every budget it is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from scipy.stats import binom

from bmdp.arrays import FloatArray
from bmdp.envs.finite import FiniteEnv, FiniteVectorEnv
from bmdp.evaluation import calibrate
from bmdp.exact import FiniteBMDP, budgeted_value_iteration, evaluate_policy
from bmdp.experiments.experiment import Piece
from bmdp.policies import CalibratedPolicy, HullPolicy, Portfolio

GAMMA = 0.9
KINDS = ("binary", "bounded", "means")
"""Bounds of Clopper and Pearson, since costs are 0 or 0.9; bounds that hold for any costs in that
range; and, for comparison, means instead of bounds, which promise too much."""

_CHANCES, _PAYS = (0.02, 0.2, 0.5), (0.0, 5.0, 8.0)  # of a cost, and for an action
_N_INNER, _N_SHOWN = 4, 20
_SLIP = 1e-12  # of exact costs
_SURE = 0.99  # that a right calibrator has no more broken promises than are allowed


@dataclass(frozen=True, eq=False)
class Known:
    """A problem, a policy with a dial, and what that costs exactly at its inner budgets."""

    model: FiniteBMDP
    policy: HullPolicy
    inner: FloatArray  # [K], budgets
    costs: FloatArray  # [K]

    @property
    def env(self) -> EnvSpec:
        """The problem as an environment."""
        kinds: dict[str, Any] = {"entry_point": FiniteEnv, "vector_entry_point": FiniteVectorEnv}
        return EnvSpec("Hazard-v0", **kinds, kwargs={"model": self.model, "start": 0})


def hazard() -> Known:
    """Returns the problem; an episode costs 0 or 0.9, discounted.

    >>> hazard().costs.round(3).tolist()
    [0.018, 0.15, 0.3, 0.45]
    """
    n = len(_CHANCES)
    transition = np.zeros((3, n, 3))
    transition[0, :, 1], transition[0, :, 2] = _CHANCES, 1 - np.array(_CHANCES)
    transition[1:, :, 2] = 1
    reward, cost = np.zeros((2, 3, n))
    reward[0], cost[1] = _PAYS, 1
    model = FiniteBMDP(
        transition=transition, reward=reward, cost=cost, gamma=GAMMA, terminal=[False, False, True]
    )
    inner = np.linspace(0, GAMMA * _CHANCES[-1], _N_INNER)
    policy = budgeted_value_iteration(model, inner, tol=1e-9, max_iterations=100).policy()
    assert isinstance(policy, HullPolicy)
    return Known(model, policy, inner, evaluate_policy(model, policy, inner)[1][0])


def certificates(
    n_calibrations: int, *, confidence: float, n_episodes: int, seed: int, known: Known
) -> Piece:
    """Calibrates many times, and tells which promises are kept.

    Args:
        n_calibrations: of each kind; those of another seed are other ones.
        confidence: of each.
        n_episodes: of each member.
        seed: of everything.
        known: the problem.

    Returns:
        `confidence`, `n_episodes`, `exact` costs of members, and `kinds`: for each of `KINDS`
        `rows`, one a calibration, as `promise` has them, with its number `calibration`; `shown`,
        of the first few `mean` and `high` of the members; and its numbers of `calibrations` and of
        promises that are `broken`, and how many of them are `allowed`.
    """
    rows: dict[str, list[Piece]] = {kind: [] for kind in KINDS}
    shown: dict[str, list[Piece]] = {kind: [] for kind in KINDS}
    for number in range(seed * n_calibrations, (seed + 1) * n_calibrations):
        for kind, portfolio, means in _calibrated(known, number, confidence, n_episodes):
            rows[kind].append({"calibration": number, **promise(portfolio, known.costs)})
            shown[kind].append({"mean": means.tolist(), "high": portfolio.costs.tolist()})
    kinds = {
        kind: {
            "rows": found,
            "shown": shown[kind][:_N_SHOWN],
            "calibrations": len(found),
            "broken": n_broken(found),
            "allowed": allowed_broken(len(found), confidence),
        }
        for kind, found in rows.items()
    }
    return {
        "confidence": confidence,
        "n_episodes": n_episodes,
        "exact": known.costs.tolist(),
        "kinds": kinds,
    }


def _calibrated(
    known: Known, number: int, confidence: float, n_episodes: int
) -> list[tuple[str, Portfolio, FloatArray]]:
    """A calibrated portfolio of each kind, and the mean costs of its members."""

    def one(binary: bool) -> CalibratedPolicy:
        return calibrate(
            known.policy,
            known.env,
            budgets=known.inner,
            confidence=confidence,
            n_episodes=n_episodes,
            seed=number,
            cost_range=(0.0, GAMMA),
            binary_costs=binary,
        )

    found = {kind: one(kind == "binary") for kind in KINDS[:2]}
    means = found["binary"].certificate.cost_mean
    portfolios = {kind: policy.portfolio for kind, policy in found.items()}
    portfolios["means"] = replace(portfolios["binary"], costs=means)
    return [(kind, portfolio, means) for kind, portfolio in portfolios.items()]


def promise(portfolio: Portfolio, exact: FloatArray) -> Piece:
    """Returns how a portfolio keeps its promise at the budget where it is nearest to break it.

    Between two vertices of its frontier both what it says to cost and what it does cost change
    evenly with the budget, so the nearest is a vertex, and it keeps its promise at all budgets if
    it does so at vertices.

    Args:
        portfolio: with a member for each exact cost; its costs are what it goes by.
        exact: what members cost, `[K]`.

    Returns:
        `smallest` budget that it is about; the budget `asked` from there on for which the exact
        cost is furthest above that, which it is certified not to be, the `exact` cost there, and
        whether the promise is `kept` at all budgets.
    """
    curve = portfolio.curve
    excess = exact[curve.index] - curve.costs
    worst = int(excess.argmax())
    asked = float(curve.costs[worst])
    return {
        "smallest": float(curve.costs[0]),
        "asked": asked,
        "exact": float(exact[curve.index][worst]),
        "kept": bool(excess[worst] <= _SLIP),
    }


def n_broken(rows: Sequence[Piece]) -> int:
    """Returns how many promises are not kept."""
    return sum(not row["kept"] for row in rows)


def allowed_broken(n_calibrations: int, confidence: float) -> int:
    """Returns how many promises of a right calibrator are broken at most, with 99 % certainty.

    >>> allowed_broken(400, 0.95)
    31
    """
    return int(binom.ppf(_SURE, n_calibrations, 1 - confidence))
