"""Points to test the geometry with."""

import numpy as np
from hypothesis import strategies as st
from numba import config

JIT = not config.DISABLE_JIT


def scaled(n):
    """A number of states, or a few if the kernels run as plain Python."""
    return n if JIT else max(12, n // 2000)


def clouds(n_states, n_points, *, seed, dtype=np.float64, ties=1 / 3):
    """Random costs and rewards `[N, K]` and budgets `[N]`; a share of the states is full of ties.

    Budgets of tied states lie on vertices, between them, and outside.
    """
    rng = np.random.default_rng(seed)
    costs, rewards = rng.normal(size=(2, n_states, n_points))
    betas = rng.normal(size=n_states) * 1.5
    tied = rng.random(n_states) < ties
    costs[tied], rewards[tied] = (np.round(x[tied] * 2) / 2 for x in (costs, rewards))
    betas[tied] = np.round(betas[tied] * 4) / 4
    return costs.astype(dtype), rewards.astype(dtype), betas.astype(dtype)


def arcs(n_states, n_points, *, seed, dtype=np.float64):
    """Points that all lie on the frontier, a quarter of a circle, in random order."""
    angle = np.random.default_rng(seed).random((n_states, n_points)) * np.pi / 2
    return (1 - np.cos(angle)).astype(dtype), np.sin(angle).astype(dtype)


def geometric(n_states, n_points, *, seed, dtype=np.float64, ratio=0.5):
    """Points that all lie on the frontier, with costs and slopes that shrink geometrically."""
    rng = np.random.default_rng(seed)
    steps = np.arange(n_points)
    costs = ratio ** np.broadcast_to(steps, (n_states, n_points))
    order = rng.permuted(np.tile(steps, (n_states, 1)), axis=1)
    costs = np.take_along_axis(costs, order, 1)
    return costs.astype(dtype), np.sqrt(costs).astype(dtype)


magnitudes = st.integers(-12, 12).map(lambda e: 10.0**e)
few_values = st.sampled_from([-2.0, -1.0, -0.5, 0.0, -0.0, 0.25, 0.5, 1.0, 3.0])
ordinary = st.floats(-10, 10, allow_nan=False)
extreme = st.builds(lambda m, f: m * f, magnitudes, st.floats(0.1, 1) | st.floats(-1, -0.1))


@st.composite
def points(draw, values=few_values | ordinary | extreme, max_size=9, dtype=np.float64):
    """A few points of one state and a budget: ties, ordinary values, values from 1e-12 to 1e12."""
    pairs = draw(st.lists(st.tuples(values, values), min_size=1, max_size=max_size))
    costs, rewards = np.array(pairs, dtype).T
    on_a_point = st.sampled_from(costs.tolist())
    return costs, rewards, dtype(draw(on_a_point | values))
