"""Small problems whose optimal frontier is known in closed form, and random ones.

Each function returns a `TextbookProblem`: a model, a start, and the frontier from that start. They
are what every solver is tested on, and they are fit to be drawn and understood.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from bmdp.arrays import FloatArray, IntArray
from bmdp.checks import require_name
from bmdp.exact.model import FiniteBMDP
from bmdp.exact.operators import QTables
from bmdp.frontier import Frontier, upper_frontier


@dataclass(frozen=True)
class TextbookProblem:
    """A model, where to start, and the best that can be had from there."""

    model: FiniteBMDP
    start: int
    frontier: Frontier


def decision(
    costs: Sequence[float] = (0.0, 0.2, 0.5, 1.0), rewards: Sequence[float] = (0.0, 4.0, 5.0, 8.0)
) -> TextbookProblem:
    """One decision, then the end: the frontier is that of the points themselves.

    >>> decision().frontier.costs.tolist()
    [0.0, 0.2, 1.0]
    """
    n_actions = len(costs)
    transition = np.zeros((2, n_actions, 2))
    transition[:, :, 1] = 1
    model = FiniteBMDP(
        transition=transition,
        reward=np.array([rewards, [0.0] * n_actions]),
        cost=np.array([costs, [0.0] * n_actions]),
        gamma=1.0,
        terminal=np.array([False, True]),
    )
    return TextbookProblem(model, 0, upper_frontier(costs, rewards))


def branches(payoffs: Sequence[float] = (10.0, 1.0)) -> TextbookProblem:
    """Chance leads to one of n branches, where a risk of cost 1 may be taken for its payoff.

    The best policy takes risks where they pay most: k of n branches cost k/n on average. The
    paper's operator has to hand the same budget to all branches, because it does so before chance
    moves: with beta it gets beta times the mean payoff. With payoffs (10, 1) and beta 1/2 that is
    2.75 against 5.

    >>> branches().frontier.reward_at(0.5)
    5.0
    """
    n = len(payoffs)
    transition = np.zeros((n + 2, 2, n + 2))
    transition[0, :, 1 : n + 1] = 1 / n
    transition[1:, :, n + 1] = 1
    reward, cost = np.zeros((2, n + 2, 2))
    reward[1 : n + 1, 1] = payoffs
    cost[1 : n + 1, 1] = 1
    model = FiniteBMDP(
        transition=transition,
        reward=reward,
        cost=cost,
        gamma=1.0,
        terminal=np.arange(n + 2) == n + 1,
    )
    best_first = np.sort(payoffs)[::-1]
    rewards = np.concatenate(([0.0], np.cumsum(best_first))) / n
    return TextbookProblem(model, 0, upper_frontier(np.arange(n + 1) / n, rewards))


def ladder(n_rungs: int = 6) -> TextbookProblem:
    """Each rung costs 1; rung k pays 1/k; one may stop at any. The frontier is strictly concave.

    >>> ladder(3).frontier.rewards.round(3).tolist()
    [0.0, 1.0, 1.5, 1.833]
    """
    n_states = n_rungs + 1
    transition = np.zeros((n_states, 2, n_states))
    transition[:, 0, n_rungs] = 1
    transition[np.arange(n_rungs), 1, np.arange(n_rungs) + 1] = 1
    transition[n_rungs, 1, n_rungs] = 1
    pays = 1 / np.arange(1, n_rungs + 1)
    reward, cost = np.zeros((2, n_states, 2))
    reward[:n_rungs, 1], cost[:n_rungs, 1] = pays, 1
    model = FiniteBMDP(
        transition=transition,
        reward=reward,
        cost=cost,
        gamma=1.0,
        terminal=np.arange(n_states) == n_rungs,
    )
    rewards = np.concatenate(([0.0], np.cumsum(pays)))
    return TextbookProblem(model, 0, Frontier(np.arange(n_states, dtype=float), rewards))


def forever(gamma: float = 0.9, pay: float = 2.0) -> TextbookProblem:
    """One state without end: at each step, pay 1 to earn `pay`, or do nothing. A straight frontier.

    >>> forever().frontier.costs.round(9).tolist()
    [0.0, 10.0]
    """
    model = FiniteBMDP(
        transition=np.ones((1, 2, 1)),
        reward=np.array([[0.0, pay]]),
        cost=np.array([[0.0, 1.0]]),
        gamma=gamma,
    )
    top = 1 / (1 - gamma)
    return TextbookProblem(model, 0, Frontier(np.array([0.0, top]), np.array([0.0, pay * top])))


def crossing(p_crash: float = 0.25, detour: int = 3, gamma: float = 0.9) -> TextbookProblem:
    """Cross now, and crash with some probability at cost 1, or take a detour of several steps.

    Arriving pays 1, at the last step of the way; a crash ends the way.

    >>> crossing().frontier.rewards.round(4).tolist()
    [0.729, 0.75]
    """
    n_states = detour + 2  # start, detour, end
    end = n_states - 1
    transition = np.zeros((n_states, 2, n_states))
    transition[np.arange(end), 0, np.arange(1, n_states)] = 1
    transition[np.arange(1, end), 1, np.arange(2, n_states)] = 1
    transition[0, 1, end] = 1
    reward, cost = np.zeros((2, n_states, 2))
    reward[end - 1] = 1
    reward[0, 1], cost[0, 1] = 1 - p_crash, p_crash
    model = FiniteBMDP(
        transition=transition,
        reward=reward,
        cost=cost,
        gamma=gamma,
        terminal=np.arange(n_states) == end,
    )
    frontier = upper_frontier([0.0, p_crash], [gamma**detour, 1 - p_crash])
    return TextbookProblem(model, 0, frontier)


def payments(horizon: int = 4, gamma: float = 0.9, cost_gamma: float = 0.5) -> TextbookProblem:
    """At each of a few steps, pay 1 to earn 1, with rewards and costs discounted differently.

    A payment at step t costs cost_gamma^t and earns gamma^t, so late payments are the better deals
    if costs are discounted more.

    >>> payments(2).frontier.costs.tolist(), payments(2).frontier.rewards.tolist()
    ([0.0, 0.5, 1.5], [0.0, 0.9, 1.9])
    """
    model = FiniteBMDP(
        transition=np.ones((1, 2, 1)),
        reward=np.array([[0.0, 1.0]]),
        cost=np.array([[0.0, 1.0]]),
        gamma=gamma,
        horizon=horizon,
        cost_gamma=cost_gamma,
    )
    steps = np.arange(horizon)
    order = np.argsort(-((gamma / cost_gamma) ** steps), kind="stable")
    costs, rewards = (
        np.concatenate(([0.0], np.cumsum(g ** steps[order]))) for g in (cost_gamma, gamma)
    )
    return TextbookProblem(model, 0, upper_frontier(costs, rewards))


def steep(epsilon: float = 0.01, gamma: float = 0.9) -> TextbookProblem:
    """A step, then a choice: nothing, or 1/gamma for a cost of epsilon.

    Paper: the counter-example in the proof of Theorem 2. T expands the distance of its two
        Q-functions, given by `steep_pair`, by 1/epsilon.

    >>> steep(0.5).frontier.rewards.tolist(), steep(0.5).frontier.costs.tolist()
    ([0.0, 1.0], [0.0, 0.45])
    """
    transition = np.zeros((3, 2, 3))
    transition[[0, 1, 2], :, [1, 2, 2]] = 1
    model = FiniteBMDP(
        transition=transition,
        reward=np.array([[0.0, 0.0], [0.0, 1 / gamma], [0.0, 0.0]]),
        cost=np.array([[0.0, 0.0], [0.0, epsilon], [0.0, 0.0]]),
        gamma=gamma,
        terminal=np.array([False, False, True]),
    )
    return TextbookProblem(model, 0, Frontier(np.array([0.0, gamma * epsilon]), np.array([0, 1.0])))


def steep_pair(model: FiniteBMDP, n_budgets: int, epsilon: float) -> tuple[QTables, QTables]:
    """Two Q-functions at distance epsilon, whose images under T are 1 apart at budget epsilon.

    Paper: Q^1 and Q^2 of the proof of Theorem 2.
    """
    gain = np.array([0.0] + [1 / model.gamma] * (model.n_actions - 1))
    cost = np.array([0.0] + [epsilon] * (model.n_actions - 1))
    return _same_everywhere(model, n_budgets, gain, cost), _same_everywhere(
        model, n_budgets, gain, cost + epsilon
    )


def kinked_pair(model: FiniteBMDP, n_budgets: int, delta: float) -> tuple[QTables, QTables]:
    """Two Q-functions at distance 2 delta, flat in cost, whose images under T are gamma apart.

    One loses delta by paying 1, the other gains delta: with budget 1 the one stays at cost 0 and
    the other pays. Both are delta-Lipschitz in the sense of Remark 2, which they contradict.
    """
    ones = np.ones(model.n_actions)
    cost = np.array([0.0] + [1.0] * (model.n_actions - 1))
    return _same_everywhere(model, n_budgets, ones - delta * cost, cost), _same_everywhere(
        model, n_budgets, ones + delta * cost, cost
    )


def _same_everywhere(
    model: FiniteBMDP, n_budgets: int, rewards: FloatArray, costs: FloatArray
) -> QTables:
    """The Q-function with the same points `[A]` at all states and for all next budgets."""
    shape = (*model.shape, n_budgets)
    return QTables(*(np.broadcast_to(t[None, :, None], shape).copy() for t in (rewards, costs)))


PROBLEMS: dict[str, Callable[[], TextbookProblem]] = {
    function.__name__: function
    for function in (decision, branches, ladder, forever, crossing, payments, steep)
}


def problem(name: str) -> TextbookProblem:
    """Returns a textbook problem with its default settings.

    Raises:
        ConfigError: if there is none of that name, with the nearest name.
    """
    require_name("textbook problem", name, PROBLEMS)
    return PROBLEMS[name]()


def garnet(
    n_states: int,
    n_actions: int,
    n_successors: int,
    *,
    gamma: float,
    rng: np.random.Generator,
) -> FiniteBMDP:
    """Returns a random model: each (state, action) has a few random successors.

    Probabilities are uniform on the simplex; rewards and costs are uniform from 0 to 1, and half of
    the costs are 0. With one successor the model is deterministic.
    """
    n_rows = n_states * n_actions
    next_states = np.argsort(rng.random((n_rows, n_states)), axis=1)[:, :n_successors]
    return sparse_garnet(next_states, (n_states, n_actions), gamma=gamma, rng=rng)


def sparse_garnet(
    next_states: IntArray, shape: tuple[int, int], *, gamma: float, rng: np.random.Generator
) -> FiniteBMDP:
    """Returns a random model with the given successors `[S*A, n]`, as `garnet` does."""
    n_rows, n_successors = next_states.shape
    probabilities = rng.dirichlet(np.ones(n_successors), n_rows)
    row_start = np.arange(n_rows + 1) * n_successors
    cost = rng.random(shape) * (rng.random(shape) < 0.5)
    return FiniteBMDP(
        transition=sparse.csr_array(
            (probabilities.ravel(), next_states.ravel(), row_start), shape=(n_rows, shape[0])
        ),
        reward=rng.random(shape),
        cost=cost,
        gamma=gamma,
    )
