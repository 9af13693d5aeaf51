import numpy as np
import pytest

from bmdp import ConfigError, ConvergenceError
from bmdp.envs.corridors import Corridors, true_frontier
from bmdp.envs.corridors.frontier import (
    best_values,
    corridors_grid,
    cost_range,
    grid_frontier,
    play,
)
from oracles.simulation import is_mean_of


def test_without_noise_the_grid_is_exact():
    """All places that can be reached from the start are nodes then."""
    frontier, _ = grid_frontier(corridors_grid(Corridors(noise_std=0.0), 3))
    assert frontier.costs[[0, -1]] == pytest.approx([0, 1.125])
    assert frontier.rewards[[0, -1]] == pytest.approx([215, 350])


def test_without_noise_routes_are_the_vertices_of_the_frontier():
    frontier, _ = grid_frontier(corridors_grid(Corridors(routes=4, noise_std=0.0), 3))
    assert frontier.costs == pytest.approx(np.arange(4) / 3, abs=1e-6)
    assert frontier.rewards == pytest.approx(300 * np.sqrt(np.arange(1, 5) / 4), abs=1e-6)


def test_transitions_of_the_grid_are_probabilities():
    grid = corridors_grid(Corridors(), 3)
    for move in grid.moves[1:]:
        assert move.min() >= 0
        assert move.sum(axis=1) == pytest.approx(np.ones(move.shape[0]))


def test_the_value_of_the_grid_approaches_what_its_policy_earns_in_the_real_task():
    gaps = []
    for resolution in (5, 9):
        grid = corridors_grid(Corridors(), resolution)
        (_, promised), scores = best_values(grid, 1e-7)
        rewards, _ = play(grid, scores, n_episodes=20_000, seed=0)
        gaps.append(abs(rewards.mean() - promised) / rewards.mean())
    assert gaps[1] < 0.4 * gaps[0]
    assert gaps[1] < 0.03


def test_the_true_frontier_is_above_the_scripts_and_the_published_agent():
    known = true_frontier(resolution=9, n_episodes=20_000, max_disagreement=0.03)
    frontier = known.frontier
    for cost, reward in ((0.0, 134.9), (1.117, 282.0), (1.081, 183.8), (0.002, 11.1)):
        assert frontier.reward_at(max(cost, frontier.costs[0])) > reward
    assert known.reward_error < 0.05 * frontier.rewards[-1]
    assert known.settings["resolution"] == 9


def test_progress_counts_vertices():
    told = []
    task = Corridors(height=3, noise_std=0.0)
    found = true_frontier(task, resolution=5, n_episodes=10, progress=lambda *now: told.append(now))
    n = len(found.settings["grid"].costs)
    assert told == [(k + 1, n) for k in range(n)]


def test_a_grid_that_is_too_coarse_is_refused():
    with pytest.raises(ConvergenceError, match=r"resolution 3 promises .* Raise the resolution"):
        true_frontier(resolution=3, n_episodes=5_000)


@pytest.mark.slow
def test_the_default_grid_agrees_with_the_real_task_within_three_in_a_thousand():
    known = true_frontier(n_episodes=1_000_000)
    assert known.frontier.costs[[0, -1]] == pytest.approx([0, 1.1226], abs=0.001)
    assert known.frontier.rewards[[0, -1]] == pytest.approx([140.2, 288.1], rel=0.003)


def test_what_is_best_on_the_grid_does_as_well_under_other_random_numbers():
    grid = corridors_grid(Corridors(noise="position", noise_std=(0.1, 0.1)), 5)
    _, scores = best_values(grid, 1e9)
    first, second = (play(grid, scores, n_episodes=5_000, seed=s)[0] for s in (0, 1))
    assert is_mean_of(first, second.mean(), n_deviations=7)


@pytest.mark.parametrize("resolution", [1, 2, 4])
def test_the_resolution_is_odd(resolution):
    with pytest.raises(ConfigError, match="resolution must be odd, from 3 on"):
        corridors_grid(Corridors(), resolution)


def test_what_can_be_paid_from_a_step_on_is_between_the_ends_of_its_frontier():
    """By the frontier at the start, by one step to go, and where nothing is left to do."""
    task = Corridors()
    grid = corridors_grid(task, 5)
    frontier, _ = grid_frontier(grid)
    start = np.array([[3.5, 0.5]])
    np.testing.assert_allclose(cost_range(grid, start, 0)[0], frontier.costs[[0, -1]], atol=1e-9)
    places = np.array([[5.5, 3.5], [1.5, 2.5], [4.5, 0.5]])
    least, _ = cost_range(grid, places, task.horizon - 1).T
    assert least.tolist() == pytest.approx([0.125, 0.0, 0.0], abs=0.03)
    assert (cost_range(grid, places, task.horizon) == 0).all()
    ends = [cost_range(grid, places, step) for step in range(task.horizon)]
    assert all((one[:, 0] <= one[:, 1] + 1e-9).all() for one in ends)
