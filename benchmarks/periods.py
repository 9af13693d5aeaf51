"""Budgets of a period: a controller against a fixed dial and the best in hindsight.

Customers of three kinds come over a period, each with two offers. An offer that is taken may end in
a loss, which costs 1. The policy is exact for the customers that were known when it was made. In
each scenario many periods are played, and a total is to be kept by the losses of a whole period.

    python benchmarks/periods.py --out FOLDER
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linprog

import bmdp
from bmdp.arrays import FloatArray, IntArray
from bmdp.exact import allocate_budgets, optimal_frontier
from bmdp.storage import write_text

KINDS = 3
TICKS, PERIODS = 100, 100
LOSS = np.array([[0.0, 0.01, 0.04], [0.0, 0.03, 0.10], [0.0, 0.08, 0.25]])  # by kind and offer
PAYS = np.array([[0.0, 1.0, 1.8], [0.0, 1.2, 2.2], [0.0, 1.4, 2.4]])
LOST, OVER = 2 * KINDS, 2 * KINDS + 1


def customers(worse: float = 1.0) -> bmdp.FiniteBMDP:
    """Returns a model of two offers to a customer; state k is the first one to kind k.

    Args:
        worse: times as many losses as are known.
    """
    loss = np.minimum(LOSS * worse, 1.0)
    transition = np.zeros((OVER + 1, 3, OVER + 1))
    for kind in range(KINDS):
        for state, after in ((kind, KINDS + kind), (KINDS + kind, OVER)):
            transition[state, :, after] += 1 - loss[kind]
            transition[state, :, LOST] += loss[kind]
    transition[LOST:, :, OVER] = 1
    reward, cost = np.zeros((2, OVER + 1, 3))
    reward[: 2 * KINDS] = np.tile(PAYS, (2, 1)) * (1 - np.tile(loss, (2, 1)))
    cost[LOST] = 1
    return bmdp.FiniteBMDP(
        transition=transition,
        reward=reward,
        cost=cost,
        gamma=1.0,
        terminal=np.arange(OVER + 1) == OVER,
    )


@dataclass(frozen=True)
class Scenario:
    """Who comes, and when."""

    number: float = 1.0  # of customers, times the plan
    shares: tuple[float, ...] = (0.5, 0.3, 0.2)  # of kinds
    worse: float = 1.0
    burst: float = 0.0  # share of all customers that come in a twentieth of the period
    planned: int = 10_000  # customers
    total: float = 300.0  # losses that may be

    def arrivals(self, rng: np.random.Generator) -> list[IntArray]:
        """Returns the kinds of customers that come at each tick."""
        mean = np.full(TICKS, (1 - self.burst) * self.number * self.planned / TICKS)
        mean[60:65] += self.burst * self.number * self.planned / 5
        return [rng.choice(KINDS, size=n, p=self.shares) for n in rng.poisson(mean)]


SCENARIOS = {
    "as planned": Scenario(),
    "30 % more customers": Scenario(number=1.3),
    "30 % fewer customers": Scenario(number=0.7),
    "riskier customers": Scenario(shares=(0.3, 0.3, 0.4), worse=1.3),
    "a burst of a third": Scenario(burst=1 / 3),
}

Asks = Callable[[int, int, float], FloatArray]
"""From period, customers and time to their budgets."""


@dataclass(frozen=True, eq=False)
class Played:
    """Periods that were played."""

    spent: FloatArray  # [periods, TICKS], so far
    reward: FloatArray  # [periods]


def play(
    scenario: Scenario,
    policy: Any,
    controllers: list[bmdp.PeriodBudget] | float,
    *,
    seed: int,
    n: int,
) -> Played:
    """Returns n periods; those who come are the same for all controllers.

    Args:
        scenario: who comes.
        policy: that makes offers.
        controllers: one for each period, or the budget of a fixed dial.
        seed: of all periods.
        n: periods.
    """
    world = customers(scenario.worse)
    arrivals = [scenario.arrivals(np.random.default_rng([seed, i])) for i in range(n)]
    rng = np.random.default_rng([seed, n])
    spent, reward = np.zeros((n, TICKS)), np.zeros(n)
    for tick in range(TICKS):
        kinds = [arrivals[i][tick] for i in range(n)]
        owner = np.repeat(np.arange(n), [len(k) for k in kinds])
        if isinstance(controllers, list):
            asked = [
                c.budgets(len(k), time=tick / TICKS) if len(k) else np.empty(0)
                for c, k in zip(controllers, kinds, strict=True)
            ]
            budgets = np.concatenate(asked)
        else:
            budgets = np.full(len(owner), controllers)
        earned, paid = episodes(world, policy, np.concatenate(kinds), budgets, rng)
        reward += np.bincount(owner, earned, n)
        spent[:, tick] = np.bincount(owner, paid, n)
        if isinstance(controllers, list):
            for i, controller in enumerate(controllers):
                controller.observe(paid[owner == i])
    return Played(spent.cumsum(axis=1), reward)


def episodes(
    world: bmdp.FiniteBMDP, policy: Any, starts: IntArray, budgets: FloatArray, rng: Any
) -> tuple[FloatArray, FloatArray]:
    """Returns rewards and costs of episodes that begin at the same time, `[N]` each."""
    states, ended = starts.copy(), np.zeros(len(starts), bool)
    tracker = policy.start(states, budgets, rng)
    reward, cost = np.zeros((2, len(starts)))
    chances = world.transition.toarray().reshape(OVER + 1, 3, OVER + 1).cumsum(axis=2)
    while not ended.all():
        action = tracker.decide(states).action
        now = world.cost[states, action] * ~ended
        reward += world.reward[states, action] * ~ended
        cost += now
        following = (rng.random(len(states))[:, None] > chances[states, action]).sum(axis=1)
        states = np.where(ended, OVER, np.minimum(following, OVER))
        over = ended | (states == OVER)
        tracker.observe(now, states, over & ~ended)
        ended = over
    return reward, cost


def best_in_hindsight(scenario: Scenario, *, seed: int, n: int) -> FloatArray:
    """Returns the most reward of each period for one who knows who comes: a linear program."""
    world = customers(scenario.worse)
    frontiers = [optimal_frontier(world, start=kind) for kind in range(KINDS)]
    costs = np.concatenate([f.costs for f in frontiers])
    rewards = np.concatenate([f.rewards for f in frontiers])
    kind = np.repeat(np.arange(KINDS), [len(f.costs) for f in frontiers])
    found = []
    for i in range(n):
        came = np.concatenate(scenario.arrivals(np.random.default_rng([seed, i])))
        number = np.bincount(came, minlength=KINDS)
        each = (kind == np.arange(KINDS)[:, None]).astype(float)
        solved = linprog(-rewards, A_ub=costs[None], b_ub=[scenario.total], A_eq=each, b_eq=number)
        found.append(-solved.fun)
    return np.array(found)


def measured(scenario: Scenario, policy: Any, *, seed: int, n: int) -> dict[str, Any]:
    """Returns how often the total was kept, what was spent, and the share of the best reward."""
    controllers = [
        bmdp.PeriodBudget(
            total=scenario.total,
            episodes=scenario.planned,
            budget_range=policy.budget_range,
            most_cost=1.0,
        )
        for _ in range(n)
    ]
    best = best_in_hindsight(scenario, seed=seed, n=n)
    ways = {
        "controller": play(scenario, policy, controllers, seed=seed, n=n),
        "fixed dial": play(scenario, policy, scenario.total / scenario.planned, seed=seed, n=n),
    }
    return {
        name: {
            "kept": int((way.spent[:, -1] <= scenario.total).sum()),
            "spent": float(way.spent[:, -1].mean() / scenario.total),
            "most_spent": float(way.spent[:, -1].max() / scenario.total),
            "reward": float((way.reward / best).mean()),
            "courses": way.spent,
        }
        for name, way in ways.items()
    }


def dial() -> Any:
    """Returns the policy: exact for the customers that are known."""
    return allocate_budgets(customers()).policy()


def main() -> None:
    """Plays all scenarios, and writes the table and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--periods", type=int, default=PERIODS)
    given = parser.parse_args()
    from bmdp.report.deployed import period_figure
    from bmdp.report.drawing import png_of

    policy, rows = dial(), {}
    given.out.mkdir(parents=True, exist_ok=True)
    for name, scenario in SCENARIOS.items():
        found = measured(scenario, policy, seed=0, n=given.periods)
        courses = {way: row.pop("courses") for way, row in found.items()}
        if name == "riskier customers":
            figure = period_figure(np.arange(1, TICKS + 1) / TICKS, courses, scenario.total)
            (given.out / "periods.png").write_bytes(png_of(figure))
        rows[name] = found
        for way, row in found.items():
            told = f"kept {row['kept']} of {given.periods}, spent {row['spent']:.1%} (at most "
            print(f"{name}, {way}: {told}{row['most_spent']:.1%}), reward {row['reward']:.1%}")
    text = json.dumps({"periods": given.periods, "rows": rows}, indent=1)
    write_text(given.out / "periods.json", text + "\n")


if __name__ == "__main__":
    main()
