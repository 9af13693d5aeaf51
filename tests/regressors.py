"""All regressors, small, and small problems that they are fitted to."""

import numpy as np
import pytest
import torch
from nearest_neighbours import NearestNeighbours

from bmdp import TransitionBatch
from bmdp.models import (
    EncoderNet,
    ForestModel,
    FrontierNet,
    KernelModel,
    LinearModel,
    Problem,
    Regression,
    RowSet,
    Sizes,
    TableModel,
)

FEW = Regression(steps=20, learning_rate=0.01)
AVERAGERS = {
    "kernel": KernelModel(20, (0.5, 2.0), (1e-3, 1.0)),
    "table": TableModel(),
    "linear": LinearModel(),
    "quadratic": LinearModel("quadratic"),
    "forest": ForestModel(5, 3),
}
FREE = {
    **AVERAGERS,
    "free": FrontierNet((8, 6), "free", regression=FEW),
    "own": NearestNeighbours(3),
}
"""Those whose heads may be prices."""

ALL = {
    **FREE,
    "monotone": FrontierNet((8, 6), regression=FEW),
    "text": EncoderNet((8, 6), (4,), n_labels=2, regression=FEW),
    "code": EncoderNet((8, 6), (4,), "code", n_labels=2, regression=FEW),
}

each = pytest.mark.parametrize("model", ALL.values(), ids=ALL.keys())
each_free = pytest.mark.parametrize("model", FREE.values(), ids=FREE.keys())
each_averager = pytest.mark.parametrize("model", AVERAGERS.values(), ids=AVERAGERS.keys())

GRID = (0.0, 0.25, 0.5, 0.75, 1.0)


def problem_of(  # noqa: PLR0913
    states, actions=None, *, members=None, n_actions=1, heads=GRID, n_steps=1, seed=0
):
    """A problem whose outcomes are the states themselves; one model has all rows, if not given."""
    states = np.asarray(states, np.float64)
    n = len(states)
    actions = np.zeros(n, np.int64) if actions is None else np.asarray(actions)
    members = np.ones((1, n), bool) if members is None else members
    sizes = Sizes(len(members), n_steps, n_actions, states.shape[1], tuple(map(float, heads)))
    outcomes = np.column_stack((np.zeros((n, 3)), states))
    return Problem(states, actions, members, outcomes, sizes, seed)


def small_problem(n=240, n_members=2, n_steps=2, seed=0):
    """Whole numbers, four and two of them, and three actions; each model has all pairs."""
    rng = np.random.default_rng(seed)
    states = np.column_stack((rng.integers(4, size=n), 10 + rng.integers(2, size=n)))
    actions = rng.integers(3, size=n)
    members = rng.integers(n_members, size=n) == np.arange(n_members)[:, None]
    return problem_of(states, actions, members=members, n_actions=3, n_steps=n_steps)


def every_row(problem):
    return RowSet("all", np.arange(len(problem.states)))


def prepared(model, problem, device="cpu"):
    q = model.empty(problem.sizes).to(device)
    q.prepare(problem)
    return q


def random_targets(q, problem, seed=0):
    """Labels as a learner asks for them, and targets of noise."""
    labels = q.labels(seed, torch.device("cpu"))
    shape = (len(problem.states), labels.shape[-1], 2)
    drawn = np.random.default_rng(seed).normal(size=shape)
    return labels, torch.tensor(drawn, dtype=torch.float32)


def fit_once(q, problem, targets=None, *, step=0, seed=0, rows=None):
    """Fits a step to targets `[N, L, 2]`, noise if not given, on all rows if none are."""
    rows = every_row(problem) if rows is None else rows
    labels, noise = random_targets(q, problem, seed)
    targets = noise if targets is None else torch.as_tensor(targets).float()
    device = next(iter(q.state_dict().values())).device
    own = targets[rows.positions].to(device)
    return q.fit(step, rows, labels.to(device), own, f"iteration-{seed}")


def fitted(model, problem, targets=None, **how):
    q = prepared(model, problem)
    fit_once(q, problem, targets, **how)
    return q


def values(q, states, step=0):
    """Values `[E, n, 2, A, H]` as an array."""
    rows = torch.as_tensor(np.asarray(states, np.float64))
    return q(rows.to(next(iter(q.state_dict().values())).device), step).cpu().numpy()


def dice(n_episodes=40, n_steps=4, seed=0, n_actions=3):
    """A log of a walk over 6 x 6 places, whose rewards and costs are by chance, as are moves."""
    rng = np.random.default_rng(seed)
    paid = rng.random((2, 6, 6, 3))
    place, rows = rng.integers(6, size=(n_episodes, 2)), []
    for step in range(n_steps):
        action = rng.integers(3, size=n_episodes)
        moves = rng.integers(-1, 2, size=(n_episodes, 2)) + np.c_[action - 1, 1 - action]
        after = (place + moves).clip(0, 5)
        mean = paid[:, place[:, 0], place[:, 1], action] * (1 + action)
        noise = rng.random((2, n_episodes))
        rows.append((place, action, *(mean * (0.5 + noise)), after, np.full(n_episodes, step)))
        place = after
    state, action, reward, cost, following, step = (
        np.concatenate(column) for column in zip(*rows, strict=True)
    )
    return TransitionBatch(
        state=state.astype(float),
        action=action,
        reward=reward,
        cost=cost,
        next_state=following.astype(float),
        terminal=step == n_steps - 1,
        episode=np.tile(np.arange(n_episodes), n_steps),
        step=step,
        n_actions=n_actions,
    )


def places(n=30):
    """States of the walk."""
    return np.stack(np.divmod(np.random.default_rng(1).permutation(36)[:n], 6), axis=1) * 1.0
