"""Ways to keep a policy to what its log knows, on finite problems with exact answers.

    python benchmarks/support.py --out benchmarks/results/logs/support.json

Tables, twenty prices, value iteration on shares and means of the log; what comes of it is evaluated
exactly. Rules: *none*; *episodes*, actions that five episodes took at the state; *ratio*, discrete
BCQ's, those taken a third as often as the most frequent one; *both*, what the library does: either
is enough; *cql*, conservative Q-learning's fixed point in tables: a value is lowered by
alpha (1 / b(a | s) - 1) standard deviations of the rewards less priced costs, b being the share of
the action in the log.

*Share* is the area under the true frontier of the policies that come of it, over that under the
optimum. *Lie* is the mean by which a policy costs more than it promised, over the range of costs.
Logs of 500 episodes, of 60 steps at most: *random* actions; *habit*, the best-paid policy but for 5
or 30 % of random actions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import records
from strangers.tasks import TASKS

from bmdp import FiniteBMDP, upper_frontier
from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.exact import optimal_frontier

RULES = ("none", "episodes", "ratio", "both", "cql 0.01", "cql 0.1", "cql 1")
CASES = ("frozen-lake-4x4",)
LOGS = {"random": 1.0, "habit 30 %": 0.3, "habit 5 %": 0.05}
LEAST, RATIO, N_PRICES, N_BUDGETS, LONGEST = 5, 1 / 3, 20, 21, 60


class Counts(NamedTuple):
    """A log as tables."""

    following: FloatArray  # [S, A, S], how often
    reward: FloatArray  # [S, A], sum
    cost: FloatArray  # [S, A], sum
    episodes: FloatArray  # [S, A], that took the action there


def dense(model: FiniteBMDP) -> FloatArray:
    """Chances `[S, A, S]`; terminal states go nowhere."""
    chances: FloatArray = model.transition.toarray().reshape(*model.shape, model.n_states)
    chances[model.terminal] = 0.0
    return chances


def played(
    model: FiniteBMDP, start: FloatArray, policy: FloatArray, n: int, rng: np.random.Generator
) -> Counts:
    """Plays episodes of a policy `[S, A]`, and counts."""
    chances = dense(model).cumsum(axis=2)
    following = np.zeros((*model.shape, model.n_states))
    reward, cost, episodes = (np.zeros(model.shape) for _ in range(3))
    for _ in range(n):
        state = int(rng.choice(len(start), p=start))
        met = set()
        for _ in range(LONGEST):
            if model.terminal[state]:
                break
            action = int(rng.choice(model.n_actions, p=policy[state]))
            row = chances[state, action]
            after = min(int(np.searchsorted(row, rng.random() * row[-1])), len(row) - 1)
            following[state, action, after] += 1
            reward[state, action] += model.reward[state, action]
            cost[state, action] += model.cost[state, action]
            met.add((state, action))
            state = after
        for pair in met:
            episodes[pair] += 1
    return Counts(following, reward, cost, episodes)


def solved(chances: FloatArray, paid: FloatArray, gamma: float, policy: IntArray) -> FloatArray:
    """Values `[S, K]` of a policy `[S]`, given what is paid, `[S, A, K]`."""
    rows = np.arange(len(chances))
    system = np.eye(len(chances)) - gamma * chances[rows, policy]
    found: FloatArray = np.linalg.solve(system, paid[rows, policy])
    return found


def allowed(counts: Counts, rule: str) -> BoolArray:
    """Actions that may be played, `[S, A]`."""
    seen = counts.episodes
    most = seen.max(axis=1, keepdims=True)
    by_rule = {
        "episodes": seen >= LEAST,
        "ratio": seen >= RATIO * most,
        "both": seen >= np.minimum(LEAST, RATIO * most),
    }
    known: BoolArray = by_rule.get(rule, seen > 0) & (seen > 0)
    return np.where(known.any(axis=1, keepdims=True), known, seen >= most)


def learned(
    counts: Counts, model: FiniteBMDP, price: float, rule: str
) -> tuple[IntArray, FloatArray]:
    """A policy `[S]`, and the rewards and costs that it promises itself, `[S, 2]`."""
    n = np.maximum(counts.following.sum(axis=2), 1)
    chances = counts.following / n[..., None]
    paid = np.stack((counts.reward / n, counts.cost / n), axis=2)
    worth = paid[..., 0] - price * paid[..., 1]
    penalty = np.zeros(worth.shape)
    if rule.startswith("cql"):
        taken = counts.following.sum(axis=2)
        share = taken / np.maximum(taken.sum(axis=1, keepdims=True), 1)
        unit = np.sqrt(np.average((worth - worth.mean()) ** 2, weights=np.maximum(taken, 1e-9)))
        penalty = float(rule.split()[1]) * unit * (1 / np.maximum(share, 1e-3) - 1)
    barred = np.where(allowed(counts, rule), 0.0, -np.inf)
    value, policy = np.zeros(len(worth)), np.zeros(len(worth), np.int64)
    for _ in range(1_000):
        q = worth - penalty + barred + model.gamma * chances @ value
        policy = q.argmax(axis=1)
        before, value = value, q.max(axis=1)
        if np.allclose(value, before, rtol=1e-6, atol=1e-12):
            break
    return policy, solved(chances, paid, min(model.gamma, 0.999), policy)


def measured(
    model: FiniteBMDP, start: FloatArray, counts: Counts, rule: str
) -> tuple[float, float]:
    """Share of the optimum's area, and the lie, of a rule."""
    truth = optimal_frontier(model, start=start)
    gamma = min(model.gamma, 0.999)
    true_paid = np.stack((model.reward, model.cost), axis=2)
    scale = float(np.ptp(truth.rewards) / np.ptp(truth.costs))
    points, lies = [], []
    for price in scale * np.geomspace(0.02, 50, N_PRICES):
        policy, promise = learned(counts, model, float(price), rule)
        reward, cost = start @ solved(dense(model), true_paid, gamma, policy)
        points.append((cost, reward))
        lies.append(max(0.0, cost - float(start @ promise[:, 1])))
    found = upper_frontier(*np.array(points).T)
    budgets = np.linspace(truth.costs[0], truth.costs[-1], N_BUDGETS)[1:]
    floor = min(0.0, truth.rewards[0])
    got = np.array([found.reward_at(b) if b >= found.costs[0] else floor for b in budgets])
    best = np.array([truth.reward_at(b) for b in budgets])
    share = np.mean((np.maximum(got, floor) - floor) / (best - floor))
    return float(share), float(np.mean(lies) / np.ptp(truth.costs))


def rows(quick: bool) -> Iterator[dict[str, Any]]:
    """Measures every rule on every log."""
    for name in CASES:
        model, start = TASKS[name].model()
        best, _ = learned(exact_counts(model), model, 0.0, "none")
        for kind, epsilon in LOGS.items():
            habit = np.full(model.shape, epsilon / model.n_actions)
            habit[np.arange(model.n_states), best] += 1 - epsilon
            for n in (50,) if quick else (500,):
                found = {rule: list[tuple[float, float]]() for rule in RULES}
                for seed in range(1 if quick else 5):
                    counts = played(model, start, habit, n, np.random.default_rng(seed))
                    for rule in RULES:
                        found[rule].append(measured(model, start, counts, rule))
                for rule, values in found.items():
                    share, lie = np.mean(values, axis=0)
                    told = {"task": name, "log": kind, "episodes": n, "rule": rule}
                    yield told | {"share": float(share), "lie": float(lie)}


def exact_counts(model: FiniteBMDP) -> Counts:
    """A log that knows everything."""
    many = np.full(model.shape, 1e6)
    return Counts(1e6 * dense(model), 1e6 * model.reward, 1e6 * model.cost, many)


def main(arguments: list[str] | None = None) -> None:
    """Measures, and writes the table."""
    asked = records.options(__doc__ or "", arguments)
    found = []
    for row in rows(asked.quick):
        found.append(row)
        print(row, file=sys.stderr, flush=True)
    records.write({"rows": found}, asked.out)


if __name__ == "__main__":
    main()
