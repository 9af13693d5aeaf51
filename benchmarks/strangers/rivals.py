"""Baselines that learn from the same log: a coin, two prices, and the paper's network.

`coin` and `fqi` are fitted Q-iteration with scikit-learn's extra trees (Ernst et al., 2005), once
for each of two prices of cost, and a coin at reset between the two policies, by what each is
estimated to cost and to earn at the starts of episodes. For `coin` the prices are extreme, for
`fqi` they lie around std(reward) / std(cost).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor

import bmdp
from bmdp import TransitionBatch
from bmdp.arrays import FloatArray
from bmdp.frontier import BudgetStatus
from bmdp.learn import Iterations
from bmdp.models import EncoderNet
from bmdp.policies import Portfolio
from bmdp.policies.policy import BudgetedPolicy, Decision, Decisions, OneStepPolicy
from bmdp.randomness import named_generator
from strangers.tasks import Stranger

EXTREME, AROUND = (1_000.0, 0.0), (3.0, 0.3)  # prices, in std(reward) / std(cost)
MOST_ROWS = 10_000  # that trees are grown on, to bound its time
MOST_ITERATIONS = 50
N_TREES, LEAF = 25, 5


@dataclass(frozen=True, eq=False)
class TreesQ:
    """Trees of (Q_r, Q_c), over the numbers of a state and the action as one-hot."""

    trees: Any
    n_actions: int

    def __call__(self, states: NDArray[Any]) -> FloatArray:
        """Returns values `[N, A, 2]` of states `[N, ...]`."""
        flat = states.reshape(len(states), -1)
        rows = _inputs(np.repeat(flat, self.n_actions, axis=0), self._every(len(flat)), self)
        return np.asarray(self.trees.predict(rows)).reshape(len(flat), self.n_actions, 2)

    def _every(self, n: int) -> NDArray[Any]:
        return np.tile(np.arange(self.n_actions), n)


def _inputs(states: NDArray[Any], actions: NDArray[Any], q: TreesQ) -> NDArray[Any]:
    return np.concatenate((states, np.eye(q.n_actions)[actions]), axis=1)


@dataclass(frozen=True, eq=False)
class TreesPolicy(OneStepPolicy):
    """Plays the action of the most Q_r - price * Q_c, whatever the budget."""

    q: TreesQ
    price: float

    budget_range = (0.0, 1.0)
    n_draws = 0

    def choose(self, states: NDArray[Any], budgets: FloatArray, uniforms: FloatArray) -> Decisions:
        """Decides by the trees."""
        values = self.q(states)
        action = (values[:, :, 0] - self.price * values[:, :, 1]).argmax(axis=1)
        return Decision(action, budgets, np.full(len(budgets), BudgetStatus.SLACK, np.int8))


def trees_fqi(batch: TransitionBatch, *, gamma: float, price: float, seed: int) -> TreesPolicy:
    """Returns the policy of one price: as many iterations as the longest episode, 50 at most."""
    rng = named_generator(seed, "rows")
    some = batch.take(np.sort(rng.permutation(len(batch))[:MOST_ROWS]))
    longest = MOST_ITERATIONS if batch.step is None else int(batch.step.max()) + 1
    paid = np.stack((some.reward, some.cost), axis=1)
    targets, q = paid, TreesQ(None, batch.n_actions)
    rows = _inputs(some.state, some.action, q)
    for iteration in range(min(MOST_ITERATIONS, longest)):
        trees = ExtraTreesRegressor(
            N_TREES, min_samples_leaf=LEAF, random_state=1_000 * (seed % 1_000) + iteration
        )
        q = TreesQ(trees.fit(rows, targets), batch.n_actions)
        values = q(some.next_state)
        best = (values[:, :, 0] - price * values[:, :, 1]).argmax(axis=1)
        follows = np.where(some.terminal[:, None], 0.0, values[np.arange(len(some)), best])
        targets = paid + gamma * follows
    return TreesPolicy(q, price)


def two_prices(
    batch: TransitionBatch, task: Stranger, seed: int, shares: tuple[float, float]
) -> Portfolio:
    """Returns a coin at reset between the policies of two prices."""
    unit = float(batch.reward.std() / batch.cost.std()) if batch.cost.std() > 0 else 1.0
    starts = batch.state[batch.starts()]
    policies, points = [], []
    for share in shares:
        policy = trees_fqi(batch, gamma=task.gamma, price=share * unit, seed=seed)
        values = policy.q(starts)
        played = policy.decide(
            starts, np.zeros(len(starts)), named_generator(seed, "starts")
        ).action
        policies.append(policy)
        points.append(values[np.arange(len(starts)), played].mean(axis=0))
    rewards, costs = np.array(points).T
    return Portfolio(tuple(policies), np.arange(2), np.zeros(2), np.maximum(costs, 0.0), rewards)


def coin(batch: TransitionBatch, task: Stranger, seed: int) -> BudgetedPolicy:
    """Returns a coin between the safest and the best-paid policy."""
    return two_prices(batch, task, seed, EXTREME)


def fqi(batch: TransitionBatch, task: Stranger, seed: int) -> BudgetedPolicy:
    """Returns a coin between the policies of two finite prices."""
    return two_prices(batch, task, seed, AROUND)


BFTQ_ROWS = 5_000
BFTQ_BUDGETS = 21


def bftq(batch: TransitionBatch, task: Stranger, seed: int) -> BudgetedPolicy:
    """Returns BFTQ's policy with the paper's network for corridors.

    It has the task's discount and the costs of its true frontier as range of budgets; where that is
    not known, those of the log's episodes. Budgets of rows are drawn, since the log has none. To
    bound its time it takes 5,000 rows, 21 budgets, and 12 iterations as in the paper.
    """
    truth = task.truth()
    high = truth.cost_range[1] if truth.is_known else float(np.quantile(_costs(batch, task), 0.9))
    learner: Any = bmdp.preset("paper-corridors").learner
    assert isinstance(learner.model, EncoderNet)
    config = replace(
        learner,
        gamma=task.gamma,
        budget_range=(0.0, max(high, 1e-6)),
        n_budgets=BFTQ_BUDGETS,
        model=replace(learner.model, labels="uniform"),
        schedule=Iterations(12, settled=0.0, stop_loss=1e-3),
    )
    rows = np.sort(named_generator(seed, "rows").permutation(len(batch))[:BFTQ_ROWS])
    policy: BudgetedPolicy = bmdp.BFTQ(config).fit(batch.take(rows), seed=seed)
    return policy


def _costs(batch: TransitionBatch, task: Stranger) -> FloatArray:
    """Discounted costs of the episodes of a log."""
    assert batch.step is not None
    assert batch.episode is not None
    _, episode = np.unique(batch.episode, return_inverse=True)
    return np.bincount(episode, batch.cost * task.gamma**batch.step).astype(np.float64)


Rival = Callable[[TransitionBatch, Stranger, int], BudgetedPolicy]
RIVALS: dict[str, Rival] = {"coin": coin, "fqi": fqi, "bftq": bftq}
"""By the names of methods."""
