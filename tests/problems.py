"""Finite problems to play, policies that ignore the dial, and evaluations made by hand."""

import multiprocessing
import os
from dataclasses import dataclass

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from bmdp.envs.finite import FiniteEnv, FiniteVectorEnv
from bmdp.evaluation import Evaluation
from bmdp.policies import HullPolicy, TabularQ
from bmdp.storage import storable


def finite_spec(problem, *, batched=True, **changes):
    """A textbook problem as the specification of an environment."""
    return EnvSpec(
        "Textbook-v0",
        entry_point=FiniteEnv,
        vector_entry_point=FiniteVectorEnv if batched else None,
        kwargs={"model": problem.model, "start": problem.start},
        **changes,
    )


@storable
@dataclass(frozen=True, eq=False)
class FloatTable:
    """Tables of a finite model whose states are seen as one float, `[N, 1]`, as a log has them."""

    q_r: np.ndarray  # [S, A, B], or [T, S, A, B]
    q_c: np.ndarray

    @property
    def n_steps(self):
        return TabularQ(self.q_r, self.q_c).n_steps

    def __call__(self, states, step=0):
        numbers = np.asarray(states).reshape(len(states), -1)[:, 0].astype(int)
        return TabularQ(self.q_r, self.q_c)(numbers, step)


def always(action, n_states, high=1.0):
    """A policy that plays one action at all states, whatever the budget."""
    q_r = np.zeros((n_states, 2, 2))
    q_r[:, action] = 1.0
    return HullPolicy(TabularQ(q_r, np.zeros_like(q_r)), np.array([0.0, high]))


def by_hand(budgets, rewards, costs, *, half=0.0, discount=1.0, **changes):
    """An evaluation with given discounted means; plain means are larger by 1 / discount."""
    ends = {"mean": 0.0, "low": -half, "high": half}
    values = {
        f"{prefix}{name}_{end}": np.asarray(means) / scale + shift
        for prefix, scale in (("", discount), ("discounted_", 1.0))
        for name, means in (("reward", rewards), ("cost", costs))
        for end, shift in ends.items()
    }
    none = np.zeros(len(budgets))
    settings = {"n_episodes": 1_000, "confidence": 0.95, "seed": 0, "env": "by-hand"}
    return Evaluation(
        budgets=np.asarray(budgets),
        **values,
        cost_quantiles=np.zeros((len(budgets), 3)),
        cost_cvar=none,
        episode_length_mean=none,
        infeasible_share=none,
        gamma=discount,
        **settings | changes,
    )


class Walk(gymnasium.Env):
    """Goes on for a number of steps that the seed draws, at cost 1 and reward 2 a step.

    Says nothing of gamma or horizon, and has no batched form.
    """

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, longest=5, cost=1.0, has_cost=True):
        self.longest, self.cost, self.has_cost = longest, cost, has_cost

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, self.longest + 1))
        return np.zeros(1), {}

    def step(self, action):
        self.left -= 1
        info = {"cost": self.cost} if self.has_cost else {}
        return np.zeros(1), 2.0, self.left == 0, False, info


def walk_spec(**settings):
    return EnvSpec("Walk-v0", entry_point=Walk, kwargs=settings)


class Deadly(Walk):
    """Ends the process it is made in, if that is a worker."""

    def __init__(self):
        super().__init__()
        if multiprocessing.parent_process() is not None:
            os._exit(3)
