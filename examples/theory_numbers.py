"""What the pictures of the theory show, in numbers: a ferry, and two branches.

A ferry crosses three times a day. Before each crossing the weather is calm or rough, with equal
chances. It may wait, leave soon or leave at once, which earns more the sooner it leaves, and risks
an accident of cost 1. `theory_pictures.py` draws what is computed here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np

import bmdp
from bmdp.arrays import FloatArray
from bmdp.exact import FiniteBMDP, Solution, budgeted_value_iteration, solve_cmdp
from bmdp.exact.textbook import branches
from bmdp.frontier import Frontier, Mixture
from bmdp.paper.theory import GAMMA, carried_policy, drawn_pairs, expansions, rising_expansions
from bmdp.policies import HullPolicy, TabularQ

ACTIONS = ("wait", "leave soon", "leave at once")
EARNS = (1.0, 2.0, 3.0)
RISKS = {"calm": (0.0, 0.05, 0.2), "rough": (0.0, 0.1, 0.4)}
N_CROSSINGS = 3
START = 0  # before the first crossing, calm
BUDGETS = np.arange(9) / 10
"""That can be handed on: 0 to 0.8."""


def ferry() -> FiniteBMDP:
    """Returns the ferry as a model: state 2 k + w is crossing k in weather w, the last the end."""
    end = 2 * N_CROSSINGS
    transition = np.zeros((end + 1, len(ACTIONS), end + 1))
    for now in range(0, end - 2, 2):
        transition[now : now + 2, :, now + 2 : now + 4] = 0.5
    transition[end - 2 :, :, end] = 1
    risks = np.tile(list(RISKS.values()), (N_CROSSINGS, 1))
    return FiniteBMDP(
        transition=transition,
        reward=np.tile(EARNS, (end + 1, 1)),
        cost=np.vstack((risks, np.zeros(len(ACTIONS)))),
        gamma=1.0,
        terminal=np.arange(end + 1) == end,
    )


def solved_ferry(beta_grid: FloatArray = BUDGETS) -> Solution:
    """Returns the ferry, solved by the paper's operator."""
    return budgeted_value_iteration(ferry(), beta_grid)


def greedy(solution: Solution) -> HullPolicy:
    """Returns the greedy policy of a solution."""
    return HullPolicy(TabularQ(solution.q_r, solution.q_c), solution.beta_grid)


class Points(NamedTuple):
    """What a state offers, and what a budget buys of it."""

    costs: FloatArray  # [A, B]
    rewards: FloatArray  # [A, B]
    frontier: Frontier
    mixture: Mixture


def points(budget: float) -> Points:
    """Returns the augmented actions of the first state as points, and the mixture of a budget."""
    solution = solved_ferry()
    costs, rewards = solution.q_c[START], solution.q_r[START]
    frontier = bmdp.upper_frontier(costs.ravel(), rewards.ravel())
    return Points(costs, rewards, frontier, bmdp.hull_mixture(frontier, budget))


class Dial(NamedTuple):
    """What the greedy policy does at the first state as its budget rises."""

    budgets: FloatArray  # [L]
    chances: FloatArray  # [L, A]
    now: FloatArray  # [L], cost of the first crossing
    later: FloatArray  # [L], cost of those that follow


def dial(budgets: FloatArray) -> Dial:
    """Returns the dial of the first state, at budgets `[L]`."""
    solution = solved_ferry()
    options = greedy(solution).options_at(np.array([START]), budgets)
    is_played = options.action[0, :, :, None] == np.arange(len(ACTIONS))
    chances = (options.probability[0, :, :, None] * is_played).sum(axis=1)
    now = chances @ ferry().cost[START]
    _, cost = bmdp.frontier.frontier_values(
        solution.q_c[[START]].reshape(1, -1), solution.q_r[[START]].reshape(1, -1), budgets
    )
    return Dial(budgets, chances, now, cost[0] - now)


class Move(NamedTuple):
    """A budget that is held before a crossing, what is done with it, and how often."""

    crossing: int
    held: float
    action: int
    handed_on: float
    chance: float


class Travel(NamedTuple):
    """How a budget travels through a day."""

    moves: list[Move]
    paid: FloatArray  # [N_CROSSINGS + 1], before each crossing and at the end, in the mean
    held: FloatArray  # [N_CROSSINGS + 1]


def travel(budget: float) -> Travel:
    """Returns all that can become of a budget, and means of what is paid and held."""
    policy, cost = greedy(solved_ferry()), ferry().cost
    moves: defaultdict[tuple[int, float, int, float], float] = defaultdict(float)
    now, paid, held = {(0, budget): 1.0}, [0.0], [budget]
    for crossing in range(N_CROSSINGS):
        following: defaultdict[tuple[int, float], float] = defaultdict(float)
        paid.append(paid[-1])
        for (weather, holds), chance in now.items():
            state = 2 * crossing + weather
            options = policy.options(np.array([state]), np.array([holds]))
            for action, next_budget, share in zip(*(t[0].tolist() for t in options), strict=True):
                if share == 0:
                    continue
                moves[crossing, holds, action, next_budget] += chance * share
                paid[-1] += chance * share * cost[state, action]
                for next_weather in range(len(RISKS)):
                    following[next_weather, next_budget] += chance * share / len(RISKS)
        now = dict(following)
        held.append(sum(chance * holds for (_, holds), chance in now.items()))
    every = [Move(*move, chance) for move, chance in moves.items()]
    return Travel(every, np.array(paid), np.array(held))


class Branches(NamedTuple):
    """Ways to spend a budget on two branches, one of which pays ten times as much."""

    budget: float
    payoffs: tuple[float, float]
    price: float  # the one that is carried at that budget
    risks: dict[str, FloatArray]  # chance of the risk at each branch, by way
    frontiers: dict[str, tuple[FloatArray, FloatArray]]  # costs and rewards, by way


def two_branches(budget: float = 0.5) -> Branches:
    """Returns what the operator, the linear program and a carried price do and earn."""
    payoffs = (10.0, 1.0)
    problem = branches(payoffs)
    model, optimum = problem.model, problem.frontier
    grid, ends = np.linspace(0, 1, 11), np.array([1, 2])
    operator = budgeted_value_iteration(model, grid)
    policy = greedy(operator)
    first = policy.options(np.array([0]), np.array([budget]))
    taken = np.zeros(2)
    for handed_on, chance in zip(first.next_budget[0], first.probability[0], strict=True):
        then = policy.options(ends, np.full(2, handed_on))
        taken += chance * (then.probability * (then.action == 1)).sum(axis=1)
    carried: Any = carried_policy(model, optimum)
    known = carried.frontier(0)
    number = int(known.index[bmdp.hull_mixture(known, budget).lower])
    programs = [solve_cmdp(model, start=0, budget=b) for b in (*grid, budget)]
    return Branches(
        budget,
        payoffs,
        float(carried.dial.prices[number]),
        {
            "operator": taken,
            "linear_program": programs[-1].policy[ends, 1],
            "carried": carried.dial.points(ends).costs[:, number],
        },
        {
            "operator": (grid, np.asarray(operator.frontier(0).reward_at(grid))),
            "linear_program": (
                np.array([program.cost for program in programs[:-1]]),
                np.array([program.reward for program in programs[:-1]]),
            ),
            "carried": (known.costs, known.rewards),
        },
    )


class Stretch(NamedTuple):
    """By how much the operator stretches the distance of two Q-functions."""

    pair: dict[str, Any]  # the paper's, as points
    slopes: FloatArray  # steepest rise of reward with cost, of pairs that were drawn at random
    largest: FloatArray  # stretch that was seen
    pair_slopes: FloatArray  # of the paper's pair, at several sizes
    pair_stretch: FloatArray


def stretch(*, n_rounds: int = 10, size: float = 0.1) -> Stretch:
    """Returns the paper's pair, and stretches by the slope of frontiers, with gamma 0.9."""
    rising = rising_expansions(n_rounds)
    steep = expansions(sizes=(0.3, 0.1, 0.03, 0.01))
    return Stretch(
        drawn_pairs(size)[0],
        np.array([row["L"] for row in rising]),
        GAMMA * np.array([row["largest"] for row in rising]),
        np.array([1 / (GAMMA * row["size"]) for row in steep]),
        np.array([row["steep"] for row in steep]),
    )
