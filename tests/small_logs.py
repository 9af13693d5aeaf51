"""Small logs of two natures, the same told in another way, and what is done at their states."""

from dataclasses import dataclass, field
from functools import cache

import numpy as np

import ferries
from bmdp import TransitionBatch
from bmdp.learn.candidates import Lesson, learned, placed_prices
from bmdp.learn.natures import completed, nature_of

N_STEPS = 4


@cache
def ferry(n=300):
    """A few states, three steps: two numbers, of which one is a clock."""
    return ferries.log(n)


@cache
def grid(n_episodes=120, seed=0):
    """Places of 3 x 3 in fractions: walks in which the larger of three actions earns and costs."""
    rng = np.random.default_rng(seed)
    place, rows = rng.integers(3, size=(n_episodes, 2)), []
    for step in range(N_STEPS):
        action = rng.integers(3, size=n_episodes)
        after = (place + rng.integers(-1, 2, size=(n_episodes, 2))).clip(0, 2)
        reward = action * (1.0 + place[:, 0]) + rng.random(n_episodes)
        cost = action * (rng.random(n_episodes) < (1 + place[:, 1]) / 4)
        rows.append((place / 4, action, reward, cost, after / 4, np.full(n_episodes, step)))
        place = after
    return _batch(rows, n_episodes)


@cache
def plane(n_episodes=120, seed=0):
    """Two numbers in the unit square: the first says what an action earns, the second its risk."""
    rng = np.random.default_rng(seed)
    place, rows = rng.random((n_episodes, 2)).astype(np.float32).astype(float), []
    for step in range(N_STEPS):
        action = rng.integers(3, size=n_episodes)
        moved = place + rng.normal(0, 0.1, (n_episodes, 2))
        after = np.abs(moved - 2 * np.floor((moved + 1) / 2)).astype(np.float32).astype(float)
        reward = action * (0.5 + 2 * place[:, 0]) + 0.1 * rng.random(n_episodes)
        cost = action * (rng.random(n_episodes) < 0.6 * place[:, 1])
        rows.append((place, action, reward, cost, after, np.full(n_episodes, step)))
        place = after
    return _batch(rows, n_episodes)


def _batch(rows, n_episodes):
    state, action, reward, cost, following, step = (
        np.concatenate(column) for column in zip(*rows, strict=True)
    )
    return TransitionBatch(
        state=state,
        action=action,
        reward=reward,
        cost=cost,
        next_state=following,
        terminal=step == N_STEPS - 1,
        episode=np.tile(np.arange(n_episodes), N_STEPS),
        step=step,
    )


@dataclass(frozen=True, eq=False)
class Telling:
    """A way to tell a log: what becomes of rows, states, actions and units."""

    rows: object = len  # of a batch: their positions; all of them, in order, if a number
    states: object = np.asarray
    actions: tuple = (0, 1, 2)  # new numbers
    reward: float = 1.0
    cost: float = 1.0
    changes: dict = field(default_factory=dict)  # of other columns, by name

    def told(self, batch):
        arrays = batch.to_arrays()
        for name in ("state", "next_state"):
            arrays[name] = self.states(arrays[name])
        arrays["action"] = np.array(self.actions)[arrays["action"]]
        arrays["reward"], arrays["cost"] = arrays["reward"] * self.reward, batch.cost * self.cost
        for name, change in self.changes.items():
            arrays[name] = change(arrays[name])
        rows = self.rows(batch)
        rows = np.arange(rows) if np.isscalar(rows) else rows
        return TransitionBatch(**{name: values[rows] for name, values in arrays.items()})


def changed(batch, drop=(), **columns):
    """The log with other columns, or without some."""
    arrays = {k: v for k, v in batch.to_arrays().items() if k not in drop} | columns
    return TransitionBatch(**arrays, n_actions=batch.n_actions)


def shuffled(batch):
    return np.random.default_rng(3).permutation(len(batch))


def renumbered(episodes):
    return np.random.default_rng(4).permutation(10_000)[episodes] - 77


def with_noise(states):
    """One more number, which says nothing: the same for the same state, and new for another."""
    rng = np.random.default_rng(5)
    return np.column_stack((states, rng.random(len(states))))


def twice(batch):
    return TransitionBatch.concatenate([batch, batch])


MIXED = Telling(rows=shuffled)
EXACT = {
    "order of rows and numbers of episodes": Telling(
        rows=shuffled, changes={"episode": renumbered}
    ),
    "steps counted from 1": Telling(changes={"step": lambda steps: steps + 1}),
    "single precision": Telling(states=lambda s: s.astype(np.float32)),
    "powers of 2": Telling(reward=4.0, cost=0.25),
    "a constant number": Telling(states=lambda s: np.column_stack((s, np.full(len(s), 7.0)))),
}
"""Nothing is rounded."""

ROUNDED = {
    "reward x 0.01, cost x 1000": Telling(reward=0.01, cost=1000.0),
    "reward x 1000, cost x 0.01": Telling(reward=1000.0, cost=0.01),
    "state x 0.01": Telling(states=lambda s: 0.01 * s),
    "state x 1000": Telling(states=lambda s: 1000.0 * s),
    "state + 30": Telling(states=lambda s: s + 30.0),
    "actions renamed": Telling(actions=(2, 0, 1)),
}
ALL_UNITS = Telling(states=lambda s: 50.0 + 0.3 * s, reward=0.01, cost=1000.0)


def lesson_of(batch, gamma=0.9):
    """What candidates learn from, as a fit would have it."""
    whole = completed(batch)
    nature = nature_of(whole, gamma)
    return Lesson(nature.ended(whole), nature, gamma, seed=0, device="cpu")


@cache
def _prices(batch):
    """The same for all ways to tell a log."""
    return placed_prices(lesson_of(batch), 6)


def decisions(recipe, batch, telling):
    """What each price does at the states of a log, `[T, N, M]`, by a log that is told otherwise."""
    lesson = lesson_of(telling.told(batch))
    prices = _prices(batch) * (telling.reward / telling.cost)
    policy = learned(recipe, lesson, prices).policy
    states = telling.states(batch.state[:200])
    found = [policy.at_step(t).points(states).actions for t in range(policy.n_steps)]
    return np.argsort(telling.actions)[np.stack(found)]


def played(policy, states, budgets, actions=(0, 1, 2), seed=0):
    """What a policy does first at states at each of some budgets, `[B, N]`."""
    found = []
    for budget in budgets:
        tracker = policy.start(states, budget, np.random.default_rng(seed))
        found.append(tracker.decide(states).action)
    return np.argsort(actions)[np.stack(found)]
