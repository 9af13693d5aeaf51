"""A task of any size whose frontier is known: rows, numbers, actions and steps are settings.

Each day an orchard's machine can work at an effort `e` from 0 to 1, in equal steps, one for each
action. The day's price `u` is drawn anew, uniformly from 0 to 1, and the machine is worn, `w` of
`N_LEVELS` levels, any of them on the first day. Work earns `e (0.5 + u)`, breaks something at a
cost of 1 with probability `0.3 e^2 (w + 1) / N_LEVELS`, and wears the machine by a level with
probability `e / 2`. A day without any work mends it by a level. A state shows wear, price, and
numbers of the episode that say nothing.

The truth is a dynamic program over levels, with the price integrated on a fine grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp import Frontier, TransitionBatch, upper_frontier
from bmdp.arrays import FloatArray, IntArray

N_LEVELS = 5
_GRID = 400  # prices of a day at which the truth is computed
_PRICES = np.append(np.geomspace(100.0, 0.05, 60), 0.0)  # of cost, whose policies span the frontier


@dataclass(frozen=True)
class Orchard:
    """Sizes of the task."""

    n_numbers: int = 8
    n_actions: int = 4
    n_steps: int = 6

    @property
    def efforts(self) -> FloatArray:
        """Effort of each action, `[A]`."""
        return np.linspace(0.0, 1.0, self.n_actions)

    def starts(self, n: int, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
        """Wear and prices of the first day of `n` episodes."""
        return rng.integers(N_LEVELS, size=n), rng.random(n)

    def others(self, n: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Numbers of `n` episodes that say nothing, `[n, D - 2]`."""
        return rng.random((n, self.n_numbers - 2), np.float32)

    def states(
        self, wear: IntArray, price: FloatArray, others: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """What is seen, `[n, D]`."""
        return np.column_stack((wear / (N_LEVELS - 1), price, others)).astype(np.float32)

    def step(
        self, wear: IntArray, price: FloatArray, action: IntArray, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray, IntArray, FloatArray]:
        """Reward, cost, and the wear and price of the next day."""
        effort = self.efforts[action]
        breaks = rng.random(len(wear)) < _risk(effort, wear)
        worn = rng.random(len(wear)) < effort / 2
        after = np.where(effort == 0, wear - 1, wear + worn).clip(0, N_LEVELS - 1)
        return effort * (0.5 + price), breaks.astype(np.float64), after, rng.random(len(wear))

    def log(self, n_rows: int, seed: int, first: int = 0) -> TransitionBatch:
        """Transitions of about so many rows: whole episodes of random actions."""
        rng = np.random.default_rng((seed, first))
        n = max(1, n_rows // self.n_steps)
        wear, price = self.starts(n, rng)
        others = self.others(n, rng)
        state = self.states(wear, price, others)
        columns: dict[str, list[NDArray[Any]]] = {}
        for step in range(self.n_steps):
            action = rng.integers(self.n_actions, size=n)
            reward, cost, wear, price = self.step(wear, price, action, rng)
            after = self.states(wear, price, others)
            rows: dict[str, NDArray[Any]] = {
                "state": state,
                "action": action,
                "reward": reward,
                "cost": cost,
                "next_state": after,
                "terminal": np.full(n, step == self.n_steps - 1),
                "episode": first + np.arange(n),
                "step": np.full(n, step),
            }
            for name, values in rows.items():
                columns.setdefault(name, []).append(values)
            state = after
        # Episode by episode, as a log is written.
        order = np.arange(n * self.n_steps).reshape(self.n_steps, n).T.ravel()
        joined: dict[str, Any] = {n: np.concatenate(c)[order] for n, c in columns.items()}
        return TransitionBatch(**joined, n_actions=self.n_actions)

    def truth(self) -> Frontier:
        """The exact frontier from the first day, for costs and rewards that are not discounted."""
        u = (np.arange(_GRID) + 0.5) / _GRID
        effort, wear = self.efforts, np.arange(N_LEVELS)
        risk = _risk(effort[None, :], wear[:, None])  # [W, A]
        up = np.minimum(wear + 1, N_LEVELS - 1)
        points = []
        for price in _PRICES:
            values = np.zeros((2, N_LEVELS))  # of reward and of cost
            for _ in range(self.n_steps):
                on = values[:, :, None] * (1 - effort / 2) + values[:, up][:, :, None] * effort / 2
                on[:, :, 0] = values[:, np.maximum(wear - 1, 0)]
                q_r = effort * (0.5 + u[:, None, None]) + on[0]  # [U, W, A]
                q_c = np.broadcast_to(risk + on[1], q_r.shape)
                best = np.argmax(q_r - price * q_c, axis=2)[:, :, None]
                values = np.stack(
                    [np.take_along_axis(q, best, axis=2)[:, :, 0].mean(axis=0) for q in (q_r, q_c)]
                )
            points.append(values.mean(axis=1))
        reward, cost = np.array(points).T
        return upper_frontier(cost, reward)

    def play(self, policy: Any, budgets: FloatArray, seed: int) -> tuple[FloatArray, FloatArray]:
        """Rewards and costs of an episode at each of the budgets `[n]`."""
        rng, own = np.random.default_rng((seed, 1)), np.random.default_rng((seed, 2))
        wear, price = self.starts(len(budgets), rng)
        others = self.others(len(budgets), rng)
        state = self.states(wear, price, others)
        tracker = policy.start(state, budgets, own)
        total = np.zeros((2, len(budgets)))
        for step in range(self.n_steps):
            decision = tracker.decide(state)
            reward, cost, wear, price = self.step(wear, price, decision.action, rng)
            total += reward, cost
            state = self.states(wear, price, others)
            tracker.observe(cost, state, np.full(len(wear), step == self.n_steps - 1))
        return total[0], total[1]


def _risk(effort: FloatArray, wear: IntArray) -> FloatArray:
    """Probability that something breaks."""
    risk: FloatArray = 0.3 * effort**2 * (wear + 1) / N_LEVELS
    return risk
