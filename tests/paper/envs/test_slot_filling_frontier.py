from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

from bmdp import ConfigError, FiniteBMDP
from bmdp.envs.slot_filling import SlotFilling
from bmdp.envs.slot_filling.frontier import (
    belief_tree,
    best_acts,
    play,
    score_bins,
    tree_frontier,
    true_frontier,
)
from bmdp.exact import optimal_frontier
from oracles.simulation import is_mean_of


@pytest.mark.parametrize("n_bins", [1, 2, 4, 8])
def test_bins_are_equally_likely_and_tell_as_much_as_the_scores_they_hold(n_bins):
    task = SlotFilling()
    edges, chance, right = score_bins(task, n_bins)
    assert chance == pytest.approx(np.full(n_bins, 1 / n_bins))
    assert chance @ right == pytest.approx(0.4)
    assert (np.diff(right) > 0).all()
    rng = np.random.default_rng(0)
    is_right = rng.random(200_000) >= 0.6
    heard = np.where(is_right, 0.25, -0.25) + 0.6 * rng.normal(size=200_000)
    which = np.searchsorted(edges, heard)
    for k in range(n_bins):
        assert is_mean_of(is_right[which == k].astype(float), right[k])


def test_halved_bins_keep_their_edges():
    coarse, fine = (score_bins(SlotFilling(), n)[0] for n in (4, 8))
    assert fine[1::2] == pytest.approx(coarse)


def test_one_slot_and_two_turns_have_a_known_frontier():
    """By voice the value is right with 0.4; by key pad with 0.75, at a cost of 0.25."""
    frontier = tree_frontier(belief_tree(SlotFilling(slots=1, horizon=2), 3))
    assert frontier.costs == pytest.approx([0, 0.25])
    assert frontier.rewards == pytest.approx([40, 75])


def test_with_one_turn_nothing_can_be_had():
    tree = belief_tree(SlotFilling(horizon=1), 2)
    assert (tree.n_beliefs, best_acts(tree, 1.0)[0]) == (1, (0.0, 0.0))


def as_finite_model(tree):
    """The tree as a model: all its beliefs, and the end."""
    task, n_bins = tree.task, len(tree.bin_chance)
    sizes = [len(level.beliefs) for level in tree.levels] + [len(tree.last)]
    first = np.concatenate(([0], np.cumsum(sizes)))
    end, n_actions = int(first[-1]), 1 + 2 * task.slots
    reward, cost = np.zeros((2, end + 1, n_actions))
    rows, columns, chances = [], [], []

    def go(state, action, following, chance):
        rows.append(state * n_actions + action)
        columns.append(following)
        chances.append(chance)

    for t, level in enumerate(tree.levels):
        for i, belief in enumerate(level.beliefs):
            state = int(first[t]) + i
            reward[state, 0] = 100 * belief[-1]
            go(state, 0, end, belief[-1])
            go(state, 0, first[t + 1] + level.following[i, 0], 1 - belief[-1])
            for slot in range(task.slots):
                for k in range(n_bins):
                    place = level.following[i, 1 + slot * n_bins + k]
                    go(state, 1 + slot, first[t + 1] + place, tree.bin_chance[k])
                pad = 1 + task.slots + slot
                cost[state, pad] = task.hang_up
                go(state, pad, end, task.hang_up)
                place = level.following[i, 1 + task.slots * n_bins + slot]
                go(state, pad, first[t + 1] + place, 1 - task.hang_up)
    for i, all_right in enumerate(tree.last):
        reward[first[-2] + i, 0] = 100 * all_right
        for action in range(n_actions):
            go(int(first[-2]) + i, action, end, 1.0)
    shape = ((end + 1) * n_actions, end + 1)
    return FiniteBMDP(
        transition=sparse.coo_array((chances, (rows, columns)), shape=shape),
        reward=reward,
        cost=cost,
        gamma=1.0,
        terminal=np.arange(end + 1) == end,
    )


@pytest.mark.parametrize(("slots", "horizon", "n_bins"), [(1, 5, 3), (2, 4, 2), (3, 4, 1)])
def test_the_frontier_is_that_of_the_same_model_solved_in_general(slots, horizon, n_bins):
    tree = belief_tree(SlotFilling(slots=slots, horizon=horizon), n_bins)
    found, general = tree_frontier(tree), optimal_frontier(as_finite_model(tree), start=0)
    costs = np.linspace(*general.costs[[0, -1]], 40)
    assert found.costs[[0, -1]] == pytest.approx(general.costs[[0, -1]], abs=1e-6)
    inside = np.clip(costs, found.costs[0], None)
    assert found.reward_at(inside) == pytest.approx(general.reward_at(inside), abs=1e-5)


@pytest.mark.parametrize("price", [1e9, 70.0, 1e-7])
@pytest.mark.parametrize("n_bins", [1, 2, 3])
def test_its_policy_earns_and_pays_as_much_in_the_real_task(n_bins, price):
    tree = belief_tree(SlotFilling(), n_bins)
    (cost, reward), acts = best_acts(tree, price)
    rewards, costs = play(tree, acts, n_episodes=30_000, seed=n_bins)
    assert is_mean_of(rewards, reward)
    assert is_mean_of(costs, cost)


def test_the_frontier_rises_as_bins_are_halved():
    frontiers = [tree_frontier(belief_tree(SlotFilling(), n)) for n in (1, 2, 4)]
    for coarse, fine in pairwise(frontiers):
        costs = np.linspace(0, coarse.costs[-1], 30)
        assert (fine.reward_at(costs) >= coarse.reward_at(costs) - 1e-9).all()


def test_the_true_frontier_is_above_the_published_curve_and_the_scripts():
    known = true_frontier(n_bins=4)
    assert known.settings["n_bins"] == 4
    assert 0 < known.reward_error < 3
    for cost, reward in ((0.0, 26.1), (0.023, 18.3), (0.44, 50.5), (0.439, 55.8), (0.578, 42.19)):
        assert known.frontier.reward_at(cost) > reward


@pytest.mark.parametrize("n_bins", [0, 1, 3])
def test_the_number_of_bins_is_even(n_bins):
    with pytest.raises(ConfigError, match="n_bins must be even, from 2 on"):
        true_frontier(n_bins=n_bins)


def test_there_is_at_least_one_bin():
    with pytest.raises(ConfigError, match="n_bins must be from 1 on; got 0"):
        belief_tree(SlotFilling(), 0)
