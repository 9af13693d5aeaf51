"""How often intervals from logged episodes cover what is true, and how wide they are.

    python benchmarks/offline.py --out benchmarks/results/offline.json

*Finite*: random models of 5 states, 3 actions and 3 or 5 steps, the policy of budgeted value
iteration, logs of random actions, exact values as truth. *Corridors*: a policy that was learned
once, logs of other episodes, a third of whose acts are random, and 300,000 played episodes as
truth, by whose own interval the judged one is widened. Both methods of `evaluate_offline`, with the
intervals that it gives ("student") and with two others that the same repeats allow: between
quantiles of the repeats ("percentile"), and these mirrored at the estimate ("basic"). Coverage
should be 0.95; *deviation* is that of estimates from log to log.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import records
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

import bmdp
from bmdp import BFTQConfig, DataError, FiniteBMDP, TransitionBatch
from bmdp.arrays import FloatArray
from bmdp.evaluation.offline import (
    Fits,
    interval_ends,
    logged_episodes,
    repeat_fitted,
    repeat_weighted,
    weighted_episodes,
)
from bmdp.exact import budgeted_value_iteration, evaluate_policy
from bmdp.exact.textbook import garnet
from bmdp.learn import Backward, EnvConfig, Exploration, TrainingSpec, collect, explore
from bmdp.models import KernelModel, Regressor, TableModel
from bmdp.policies import ExploringPolicy, HullPolicy, RandomBudgetedPolicy, TabularQ
from bmdp.policies.policy import SteppedPolicy

CONFIDENCE = 0.95
GRID = np.linspace(0, 1, 11)
EPSILON = 0.33


class Case(NamedTuple):
    """A policy whose values are known, and what to evaluate it by."""

    name: str
    policy: SteppedPolicy
    gamma: float
    budgets: FloatArray  # [B]
    truth: FloatArray  # [B, 2], reward and cost
    doubt: FloatArray  # [B, 2], half width of the interval of the truth, if it was played
    model: Regressor


class Size(NamedTuple):
    """How much is done."""

    logs: int
    episodes: int  # of a log
    repeats: int


def repeats(case: Case, batch: TransitionBatch, method: str, n: int) -> tuple[Any, FloatArray]:
    """What the log says and each repeat, `[1 + R, B, 2]`, and effective episodes `[B]`."""
    log = logged_episodes(batch, needs_steps=True)
    if method == "fitted":
        settings = {"gamma": case.gamma, "budgets": case.budgets, "model": case.model}
        fits = Fits(log, settings | {"n_budgets": len(GRID), "device": "cpu"}, 0)
        found = repeat_fitted(case.policy, fits, n, 1, lambda _: None)
        return found, np.full(len(case.budgets), float(len(log)))
    weighted = weighted_episodes(
        case.policy,
        log,
        discounts=(case.gamma, case.gamma),
        budgets=case.budgets,
        n_paths=8,
        seed=0,
    )
    return repeat_weighted(weighted, log, n, 0, lambda _: None), weighted.effective_episodes()


def measure(case: Case, method: str, size: Size, logs: Iterable[TransitionBatch]) -> dict[str, Any]:
    """Coverage of each kind of interval over logs, widths, and errors of estimates."""
    begin = time.perf_counter()
    widths: list[FloatArray] = []
    told: list[FloatArray] = []
    effective: list[FloatArray] = []
    hits: dict[str, list[FloatArray]] = {"student": [], "percentile": [], "basic": []}
    n_refused = 0
    for batch in logs:
        try:
            found, n = repeats(case, batch, method, size.repeats)
        except DataError:  # no episode that the policy could have played
            n_refused += 1
            continue
        low, high = np.nanquantile(found[1:], [0.025, 0.975], axis=0)
        ends: dict[str, Any] = {
            "student": interval_ends(found, n, CONFIDENCE),
            "percentile": (low, high),
            "basic": (2 * found[0] - high, 2 * found[0] - low),
        }
        for kind, (least, most) in ends.items():
            half = np.minimum((most - least) / 2, 1e9)  # it may be the whole line
            more = np.hypot(half, case.doubt) - half + 1e-6
            hits[kind].append((least - more <= case.truth) & (case.truth <= most + more))
        widths.append(ends["student"][1] - ends["student"][0])
        told.append(found[0])
        effective.append(n)
    deviation = np.std(told, axis=0, ddof=1)
    row = {
        "case": case.name,
        "method": method,
        **size._asdict(),
        "refused": n_refused,
        "budgets": case.budgets.tolist(),
        "coverage": {kind: round(float(np.mean(of)), 4) for kind, of in hits.items()},
        "student": np.mean(hits["student"], axis=0).round(3).T.tolist(),  # of rewards, of costs
        "effective_episodes": np.mean(effective, axis=0).round(1).tolist(),
        "truth": case.truth.T.round(4).tolist(),
        "doubt": case.doubt.T.round(4).tolist(),
        "error": (np.mean(told, axis=0) - case.truth).T.round(4).tolist(),
        "deviation": deviation.T.round(4).tolist(),
        "width": np.median(widths, axis=0).T.round(4).tolist(),
        "seconds": round(time.perf_counter() - begin, 1),
    }
    print({key: row[key] for key in ("case", "method", "coverage", "seconds")}, file=sys.stderr)
    return row


def with_probability(batch: TransitionBatch, probability: FloatArray) -> TransitionBatch:
    """A log that says with which probabilities it acted."""
    columns = batch.to_arrays() | {"probability": probability}
    return TransitionBatch.from_arrays(columns, n_actions=batch.n_actions)


@dataclass(frozen=True)
class Numbered:
    """Tables whose states are rows of one number, as in logs."""

    tables: TabularQ

    @property
    def n_steps(self) -> int:
        """Steps that have tables of their own."""
        return self.tables.n_steps

    def __call__(self, states: NDArray[Any], step: int = 0) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c) of the states `[N, 1]`, each `[N, A, B]`."""
        return self.tables(states[:, 0].astype(np.int64), step)


def finite_case(seed: int, n_steps: int) -> tuple[Case, FiniteBMDP]:
    """The policy of budgeted value iteration in a random model."""
    drawn = garnet(5, 3, 2, gamma=0.9, rng=np.random.default_rng(seed))
    model = replace(drawn, horizon=n_steps)
    solved = budgeted_value_iteration(model, GRID).policy()
    assert isinstance(solved.q_function, TabularQ)
    policy = replace(solved, q_function=Numbered(solved.q_function))
    values = evaluate_policy(model, solved, GRID)
    asked, name = [1, 3, 6], f"finite {seed}, {n_steps} steps"
    truth = np.stack([of_states[0, asked] for of_states in values], axis=1)
    return Case(name, policy, 0.9, GRID[asked], truth, 0 * truth, TableModel()), model


def finite_logs(model: FiniteBMDP, size: Size) -> Iterable[TransitionBatch]:
    """Logs of random actions, each of which has probability 1/3 at any budget."""
    spec = EnvSpec(
        "Finite-v0",
        entry_point="bmdp.envs.finite:FiniteEnv",
        vector_entry_point="bmdp.envs.finite:FiniteVectorEnv",
        kwargs={"model": model},
    )
    plays = RandomBudgetedPolicy(3, 0.0, 1.0)
    for seed in range(size.logs):
        budgets = np.full(size.episodes, 0.5)
        batch = collect(plays, spec, range(size.episodes), budgets=budgets, seed=seed)
        yield with_probability(batch, np.full(len(batch), 1 / 3))


CORRIDORS = EnvConfig("corridors", {})


def corridors_case(rounds: int, episodes: int, centres: int, n_truth: int) -> Case:
    """A policy that is learned once, and played."""
    learner = BFTQConfig(
        gamma=1.0,
        n_budgets=11,
        model=KernelModel(60),
        schedule=Backward(),
        ensemble=1,
    )
    how = Exploration(rounds, episodes, decay=0.002, floor=0.2, hold=3)
    policy = explore(TrainingSpec(CORRIDORS, learner, how), seed=0, device="cpu").policy
    asked = np.linspace(0, 1, 5)
    played = bmdp.evaluate(policy, CORRIDORS.spec(), budgets=asked, n_episodes=n_truth, seed=1)
    truth = np.stack([played.discounted_reward_mean, played.discounted_cost_mean], axis=1)
    upper = np.stack([played.discounted_reward_high, played.discounted_cost_high], axis=1)
    assert isinstance(policy, HullPolicy)
    return Case("corridors", policy, 1.0, asked, truth, upper - truth, KernelModel(centres))


def corridors_logs(policy: SteppedPolicy, size: Size) -> Iterable[TransitionBatch]:
    """Logs of the policy at all budgets, a third of whose acts are random."""
    plays = ExploringPolicy(policy, RandomBudgetedPolicy(5, 0.0, 1.0), decay=1.0, floor=EPSILON)
    numbers = range(1000, 1000 + size.episodes)  # late ones, so that epsilon is the floor
    for seed in range(size.logs):
        budgets = np.random.default_rng(seed).random(size.episodes)
        batch = collect(plays, CORRIDORS.spec(), numbers, budgets=budgets, seed=2 + seed)
        greedy = _probability(policy, batch)
        yield with_probability(batch, (1 - EPSILON) * greedy + EPSILON / 5)


def _probability(policy: SteppedPolicy, batch: TransitionBatch) -> FloatArray:
    """Of logged actions, under a policy at the budgets that were logged."""
    assert batch.step is not None
    assert batch.budget is not None
    found = np.empty(len(batch))
    for step in np.unique(batch.step):
        rows = np.flatnonzero(batch.step == step)
        budgets = batch.budget[rows]
        ask: Any = policy.at_step(int(step))
        options = ask.options(batch.state[rows], budgets)
        same = options.action == batch.action[rows, None]
        found[rows] = np.where(same, options.probability, 0.0).sum(axis=1)
    return found


def main(arguments: list[str] | None = None) -> None:
    """Measures and writes."""
    asked = records.options(__doc__, arguments)
    few = Size(2, 300, 3)
    rows = []
    for seed in (0,) if asked.quick else (0, 1, 2):
        for method, n_steps, size in (
            ("fitted", 3, Size(200, 200, 30)),
            ("importance", 3, Size(200, 200, 300)),
            ("importance", 3, Size(200, 1000, 300)),
            ("importance", 5, Size(200, 2000, 300)),
        ):
            chosen = few if asked.quick else size
            case, model = finite_case(seed, n_steps)
            rows.append(measure(case, method, chosen, finite_logs(model, chosen)))
    case = corridors_case(1, 60, 10, 100) if asked.quick else corridors_case(4, 500, 100, 300_000)
    for method, size in (("fitted", Size(12, 2000, 20)), ("importance", Size(40, 2000, 300))):
        chosen = few if asked.quick else size
        rows.append(measure(case, method, chosen, corridors_logs(case.policy, chosen)))
    records.write({"rows": rows}, asked.out)


if __name__ == "__main__":
    main()
