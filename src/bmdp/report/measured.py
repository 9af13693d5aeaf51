"""Measures of a policy: what it expects and does at each budget.

Where there is a simulator the policy is played; where there is only a log, it is asked at states of
the log, and what is known of costs and rewards are forecasts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.envs.episodes import OnPlayed
from bmdp.envs.slots import open_slots
from bmdp.evaluation import evaluate
from bmdp.evaluation.statistics import mean_interval
from bmdp.frontier import BudgetStatus
from bmdp.policies import (
    BudgetedPolicy,
    CalibratedPolicy,
    Portfolio,
    PriceDial,
    RandomBudgetedPolicy,
)
from bmdp.policies.limited import Spent, episode_limit_of, without_limit
from bmdp.report import dial
from bmdp.report.dial import Place, Play, Rows, View
from bmdp.report.figures import Shares
from bmdp.report.opened import Opened, cost_gamma_of
from bmdp.report.series import CONFIDENCE, Curve, bare_curve, budget_curve, foretold_curve

N_FIRST = 50  # episodes that are begun to see first states


@dataclass(frozen=True, eq=False)
class Measured:
    """The dial of a policy, as it was measured."""

    policy: BudgetedPolicy
    budgets: FloatArray
    names: Sequence[str]  # of actions
    has_budgets: bool  # whether numbers on its dial are budgets, and matter
    places: Sequence[tuple[Place, View]]
    forecast: Curve | None
    source: str  # of the forecast
    played: Play | None
    realised: Curve | None
    shares: Shares | None
    told: str  # of the shares
    baselines: Sequence[Curve]
    notes: Sequence[str]

    @property
    def status(self) -> list[str]:
        """Status of each budget by the frontier of a first state."""
        if self.places:
            return [mixture.status.name for mixture in self.places[0][1].mixtures]
        if isinstance(inside := without_limit(self.policy), Portfolio):
            return [BudgetStatus(s).name for s in inside.mixtures(self.budgets).status]
        return self.played.status if self.played else []


def measure(
    opened: Opened,
    policy: BudgetedPolicy,
    n_episodes: int,
    seed: int,
    progress: OnPlayed | None,
) -> Measured:
    """Returns what the policy of a folder expects and does, played if there is a simulator.

    No episodes are played if `n_episodes` at each budget are 0.
    """
    has_budgets = getattr(policy, "has_dial", True) and not isinstance(policy, PriceDial)
    names, rows = _seen(opened, seed)
    is_limited = episode_limit_of(policy) is not None
    whole, policy = policy, without_limit(policy)  # it is asked at states that show costs so far
    budgets = dial.dial_budgets(policy, None if rows is None else rows.states[rows.starts])
    played, baselines, shares, told = None, list[Curve](), None, ""
    if opened.env is not None and n_episodes:
        played, chance = _play(opened, whole, budgets, names, (n_episodes, seed, progress))
        if not is_limited:  # random actions know of no limit
            baselines.append(chance)
        rows = rows if opened.batch is not None or is_limited else played.rows
        shares, told = played.shares, f"Counted over {n_episodes:,} played episodes at each budget."
    elif rows is not None and opened.batch is not None and names:
        shares = dial.asked_shares(policy, rows, budgets, names, seed)
        told = "The policy was asked at states of the data, with the budget as it is on the dial."
    realised = budget_curve("realised", [played.evaluation]) if played else None
    places, forecast, source = list[tuple[Place, View]](), None, ""
    notes = list(_notes(opened, policy, played))
    if has_budgets:
        forecast, source = _forecast(opened, policy, rows, budgets)
        # A portfolio of a fit chooses by cost alone: its rewards are none that it expects.
        is_bare = bool(opened.fitted) and isinstance(policy, Portfolio)
        places = [] if rows is None or is_bare else _places(policy, rows, budgets, names)
        if rows is not None and not places:
            kind = type(policy).__name__
            notes.append(f"What it expects at a state is not shown: a {kind} does not say.")
        if (ends := realised or forecast) is not None and len(budgets) > 1:
            two = [values[[0, -1]] for values in (budgets, ends.cost.mean, ends.reward.mean)]
            baselines.insert(0, bare_curve("a coin between the ends", *two))
    return Measured(
        policy=whole,
        budgets=budgets,
        names=names,
        has_budgets=has_budgets,
        places=places,
        forecast=forecast,
        source=source,
        played=played,
        realised=realised,
        shares=shares,
        told=told,
        baselines=[*baselines, *_logged(opened)],
        notes=notes,
    )


def _notes(opened: Opened, policy: BudgetedPolicy, played: Play | None) -> Iterator[str]:
    if not getattr(policy, "has_dial", True):
        yield "This policy has no dial: it does the same whatever the budget."
    elif isinstance(policy, PriceDial):
        yield "The numbers on this policy's dial are prices of cost, and not budgets."
    if opened.env is None:
        yield (
            "There is no simulator, so nothing was played: costs and rewards are forecasts. "
            "Give --env ENV to play in one."
        )
    elif played is None:
        yield "The policy was not played: costs and rewards are forecasts."
    elif opened.gammas is not None:
        found = played.evaluation
        of_costs = found.gamma if found.cost_gamma is None else found.cost_gamma
        if found.episode_limit is not None:
            of_costs = opened.gammas[1]
        theirs = found.gamma, of_costs
        for name, own, other in zip(("rewards", "costs"), opened.gammas, theirs, strict=True):
            if own != other:
                yield (
                    f"The policy was learned with a discount of {name} of {own:g}, and the "
                    f"environment says {other:g}, which is what realised {name} are discounted by: "
                    "the two are not the same quantity. Put gamma into the metadata of the "
                    "environment."
                )


def _seen(opened: Opened, seed: int) -> tuple[list[str], Rows | None]:
    """Names of actions, or numbers, and states of the data, or those in which episodes begin."""
    batch, rows, names = opened.batch, None, list(opened.action_names)
    n_actions = 0
    if batch is not None:
        n_actions = batch.n_actions
        steps = np.zeros(len(batch), np.int64) if batch.step is None else batch.step
        rows = Rows(batch.state, steps, batch.starts(), batch.state_names, batch.available)
    if opened.env is not None:
        with closing(open_slots(opened.env)) as slots:
            n_actions = int(slots.action_space.start + slots.action_space.n)
            names = [str(name) for name in slots.metadata.get("action_names") or names]
            if rows is None:
                states = slots.reset([seed + i for i in range(N_FIRST)])
                if episode_limit_of(opened.policy) is not None:
                    states = Spent.nothing(N_FIRST).shown(states)
                rows = Rows(states, np.zeros(N_FIRST, np.int64), np.arange(N_FIRST))
    return names if len(names) == n_actions else [f"action {a}" for a in range(n_actions)], rows


def _play(
    opened: Opened,
    policy: BudgetedPolicy,
    budgets: FloatArray,
    names: Sequence[str],
    how: tuple[int, int, OnPlayed | None],
) -> tuple[Play, Curve]:
    """The policy, and random actions, played."""
    assert opened.env is not None
    n_episodes, seed, progress = how
    n_own = len(budgets) * n_episodes

    def after(n_before: int) -> OnPlayed | None:
        n_all = n_own + n_episodes
        return None if progress is None else (lambda done, _: progress(n_before + done, n_all))

    same: dict[str, Any] = {"n_episodes": n_episodes, "seed": seed}
    same["cost_gamma"] = cost_gamma_of(opened.folder, policy, opened.env)
    played = dial.play(policy, opened.env, budgets, names, **same, progress=after(0))
    chance = RandomBudgetedPolicy(len(names), 0.0, 1.0)
    found = evaluate(chance, opened.env, budgets=[0.5], **same, progress=after(n_own))
    return played, budget_curve("random actions", [found])


def _places(
    policy: BudgetedPolicy, rows: Rows, budgets: FloatArray, names: Sequence[str]
) -> list[tuple[Place, View]]:
    places = dial.typical_places(rows)
    if isinstance(dial.first_form(policy), Portfolio):  # it looks at no state
        places = [Place("any first state", places[0].state, 0)]
    views = [dial.view_of(policy, place, budgets, names) for place in places]
    return [(place, view) for place, view in zip(places, views, strict=True) if view is not None]


def _forecast(
    opened: Opened, policy: BudgetedPolicy, rows: Rows | None, budgets: FloatArray
) -> tuple[Curve | None, str]:
    """The forecast of held-out episodes, or else what the policy itself expects at the start."""
    if (said := opened.prediction) is not None:
        whose = "that it played once it was learned"
        if not said.get("is_played"):
            whose = "of the data that were not learned from"
        source = f"from {said.get('n_episodes', 0):,} episodes {whose}"
        return foretold_curve(budgets, said), source
    expected = None
    if isinstance(policy, CalibratedPolicy):
        expected = dial.members_means(policy, budgets)
    elif rows is not None:
        expected = dial.believed(policy, rows.states[rows.starts], budgets)
    if expected is None:
        return None, ""
    source = "what the policy itself expects at first states"
    if isinstance(policy, CalibratedPolicy):
        source = "from the episodes by which it was calibrated"
    return bare_curve("forecast", budgets, *expected), source


def _logged(opened: Opened) -> list[Curve]:
    """Mean discounted cost and reward of the episodes of the data, if they are known."""
    batch = opened.batch
    if batch is None or opened.gammas is None or batch.episode is None or batch.step is None:
        return []
    _, which = np.unique(batch.episode, return_inverse=True)
    returns = [
        np.bincount(which, weights=values * gamma ** batch.step.astype(np.float64))
        for values, gamma in zip((batch.reward, batch.cost), opened.gammas, strict=True)
    ]
    if len(returns[0]) < 2:
        return []
    reward, cost = (mean_interval(values[None], confidence=CONFIDENCE) for values in returns)
    name = "the log's own behaviour" if opened.is_from_log else "its exploration"
    nothing = np.empty((0, 1))
    return [Curve(name, np.zeros(1), cost, reward, "episodes", 1, nothing, nothing)]
