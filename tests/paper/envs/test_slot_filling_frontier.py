import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import norm

from bmdp import ConfigError, FiniteBMDP
from bmdp.envs.slot_filling import SlotFilling
from bmdp.envs.slot_filling import frontier as module
from bmdp.envs.slot_filling.frontier import (
    belief_tree,
    best_policy,
    binned_scores,
    frontier_bounds,
    play,
    spread_scores,
    tree_frontier,
    true_frontier,
)
from bmdp.exact import optimal_frontier
from bmdp.frontier import Frontier
from oracles.simulation import is_mean_of
from scripts import script

FREE, UNPRICED = 1e9, 1e-7  # prices at both ends
BACKWARDS = SlotFilling(slots=2, horizon=4, mean_right=-0.4, mean_wrong=0.3)  # low scores are good
OTHERS = [BACKWARDS, *(SlotFilling(slots=2, horizon=4, error_rate=error) for error in (0.0, 1.0))]


def binned_tree(task, n_bins):
    return belief_tree(task, binned_scores(task, n_bins))


@pytest.mark.parametrize("n_bins", [1, 2, 4, 8])
def test_bins_tell_as_much_as_the_scores_they_hold(n_bins):
    edges, chance, right, *_ = binned_scores(SlotFilling(), n_bins)
    assert chance @ right == pytest.approx(0.4)
    assert (np.diff(right) > 0).all()
    rng = np.random.default_rng(0)
    is_right = rng.random(200_000) >= 0.6
    heard = np.where(is_right, 0.25, -0.25) + 0.6 * rng.normal(size=200_000)
    which = np.searchsorted(edges, heard)
    for k in range(n_bins):
        assert is_mean_of((which == k).astype(float), chance[k])
        assert is_mean_of(is_right[which == k].astype(float), right[k])


def test_halved_bins_keep_their_edges():
    coarse, fine = (binned_scores(SlotFilling(), n).edges for n in (4, 8))
    assert fine[1::2] == pytest.approx(coarse)


def gain_from(chance, right, at):
    """E[max(P(right) - at, 0)]: what tells more has more of it, at any `at`."""
    return chance @ np.maximum(right - at, 0)


@pytest.mark.parametrize("task", [SlotFilling(), *OTHERS])
@pytest.mark.parametrize("n_bins", [1, 2, 5, 16])
def test_scores_tell_more_than_their_bins_and_less_than_when_spread(task, n_bins):
    heard = np.linspace(-6, 6, 200_001)
    right = (1 - task.error_rate) * norm.pdf(heard, task.mean_right, task.std)
    density = right + task.error_rate * norm.pdf(heard, task.mean_wrong, task.std)
    real = density * (heard[1] - heard[0]), right / density
    binned, spread = (make(task, n_bins)[1:3] for make in (binned_scores, spread_scores))
    for chance, known in (binned, spread):
        assert chance.sum() == pytest.approx(1)
        assert chance.min() >= 0
        assert chance @ known == pytest.approx(1 - task.error_rate)
    for at in np.linspace(0, 1, 23):
        between = gain_from(*real, at)
        assert gain_from(*binned, at) <= between + 1e-7
        assert gain_from(*spread, at) >= between - 1e-7


def test_one_slot_and_two_turns_have_a_known_frontier():
    """By voice the value is right with 0.4; by key pad with 0.75, at a cost of 0.25."""
    frontier = tree_frontier(binned_tree(SlotFilling(slots=1, horizon=2), 3))
    assert frontier.costs == pytest.approx([0, 0.25])
    assert frontier.rewards == pytest.approx([40, 75])


def test_with_one_turn_nothing_can_be_had():
    tree = binned_tree(SlotFilling(horizon=1), 2)
    assert (tree.n_beliefs, best_policy(tree, 1.0)[0]) == (0, (0.0, 0.0))


def after(belief, slot, chance):
    """The belief with a new value in one slot, which is right with some probability."""
    both = [b + belief[v ^ (1 << slot)] for v, b in enumerate(belief)]
    return tuple(b * (chance if v >> slot & 1 else 1 - chance) for v, b in enumerate(both))


def as_finite_model(task, scores):
    """The task as a model: all beliefs of all turns, whatever the order of slots, and the end."""
    n_actions, end = 1 + 2 * task.slots, (task.horizon, ())
    places, rules, todo = {end: 0}, [], [(0, (1.0, *[0.0] * (2**task.slots - 1)))]

    def go(state, action, following, chance):
        turn, belief = following
        key = end if turn == task.horizon else (turn, tuple(np.round(belief, 10)))
        if key not in places:
            places[key] = len(places)
            todo.append((key[0], belief))
        rules.append((state, action, places[key], chance))

    places[0, todo[0][1]] = 1
    reward, cost = {}, {}
    while todo:
        turn, belief = todo.pop()
        state = places[turn, tuple(np.round(belief, 10))]
        reward[state] = 100 * belief[-1]
        go(state, 0, end, belief[-1])
        rest = 1 - belief[-1]
        if rest > 0:
            go(state, 0, (turn + 1, (*(b / rest for b in belief[:-1]), 0.0)), rest)
        for slot in range(task.slots):
            for chance, right in zip(scores.chance, scores.right, strict=True):
                go(state, 1 + slot, (turn + 1, after(belief, slot, right)), chance)
            pad = 1 + task.slots + slot
            cost[state, pad] = task.hang_up * (turn + 1 < task.horizon)
            go(state, pad, end, task.hang_up)
            go(state, pad, (turn + 1, after(belief, slot, 1.0)), 1 - task.hang_up)
    rewards, costs = np.zeros((2, len(places), n_actions))
    for state, value in reward.items():
        rewards[state, 0] = value
    for (state, action), value in cost.items():
        costs[state, action] = value
    states, actions, columns, chances = (np.array(column) for column in zip(*rules, strict=True))
    columns = np.append(columns, np.zeros(n_actions, int))
    rows = np.append(states * n_actions + actions, np.arange(n_actions))
    chances = np.append(chances, np.ones(n_actions))
    shape = (len(places) * n_actions, len(places))
    return FiniteBMDP(
        transition=sparse.coo_array((chances, (rows, columns)), shape=shape),
        reward=rewards,
        cost=costs,
        gamma=1.0,
        terminal=np.arange(len(places)) == 0,
    )


@pytest.mark.parametrize("make", [binned_scores, spread_scores])
@pytest.mark.parametrize(
    ("slots", "horizon", "n_bins"), [(1, 2, 3), (1, 5, 3), (2, 3, 3), (2, 4, 2), (3, 5, 1)]
)
def test_the_frontier_is_that_of_the_same_model_solved_in_general(slots, horizon, n_bins, make):
    task = SlotFilling(slots=slots, horizon=horizon)
    found = tree_frontier(belief_tree(task, make(task, n_bins)), tol=1e-9)
    general = optimal_frontier(as_finite_model(task, make(task, n_bins)), start=1)
    costs = np.linspace(*general.costs[[0, -1]], 40)
    assert found.costs[[0, -1]] == pytest.approx(general.costs[[0, -1]], abs=1e-6)
    inside = np.clip(costs, found.costs[0], None)
    assert found.reward_at(inside) == pytest.approx(general.reward_at(inside), abs=1e-5)


@pytest.mark.parametrize("price", [FREE, 70.0, UNPRICED])
@pytest.mark.parametrize("n_bins", [1, 2, 5])
def test_its_policy_earns_and_pays_as_much_in_the_real_task(n_bins, price):
    (cost, reward), policy = best_policy(binned_tree(SlotFilling(), n_bins), price)
    rewards, costs = play(policy, n_episodes=30_000, seed=n_bins)
    assert is_mean_of(rewards, reward)
    assert is_mean_of(costs, cost)


@pytest.mark.parametrize(("slots", "horizon"), [(1, 1), (1, 2), (2, 3), (3, 4)])
def test_short_dialogues_are_played_as_promised(slots, horizon):
    tree = binned_tree(SlotFilling(slots=slots, horizon=horizon), 3)
    (cost, reward), policy = best_policy(tree, 20.0)
    rewards, costs = play(policy, n_episodes=20_000, seed=0)
    assert is_mean_of(rewards, reward)
    assert is_mean_of(costs, cost)


@pytest.mark.parametrize("task", [SlotFilling(), *OTHERS])
def test_bounds_close_in_as_bins_are_halved(task):
    bounds = [frontier_bounds(task, n) for n in (1, 2, 4)]
    costs = np.linspace(0, 0.45, 30)
    rewards = [[bound.reward_at(costs) for bound in both] for both in bounds]
    for (below, above), (finer_below, finer_above) in pairwise(rewards):
        slack = 2e-3  # of the search over prices
        assert (finer_below >= below - slack).all()
        assert (finer_above <= above + slack).all()
        assert (finer_above >= finer_below - slack).all()


def test_the_error_is_the_largest_distance_between_the_bounds():
    task = SlotFilling(slots=2, horizon=5)
    found = true_frontier(task, n_bins=3)
    below, above = frontier_bounds(task, 3)
    assert found.frontier.rewards.tolist() == below.rewards.tolist()
    assert found.settings == {"n_bins": 3, "task": task}
    costs = np.linspace(0, 1, 1001)
    gap = (above.reward_at(costs) - below.reward_at(costs)).max()
    assert gap <= found.reward_error <= gap + 0.05


@pytest.fixture(scope="module")
def known():
    return true_frontier()


@pytest.fixture(scope="module")
def kept():
    return json.loads(Path(module.__file__).with_name(module.KEPT).read_text())


def test_the_frontier_that_is_kept_is_of_the_papers_settings(known, kept):
    assert kept["task"] == {k: v for k, v in asdict(SlotFilling()).items() if k != "features"}
    assert known.settings == {"n_bins": kept["n_bins"], "task": SlotFilling()}
    assert true_frontier(SlotFilling(features="belief")).reward_error == known.reward_error
    assert true_frontier(SlotFilling(slots=1)).settings["n_bins"] == 4


def test_the_frontier_that_is_kept_is_concave_and_rising(known):
    slopes = np.diff(known.frontier.rewards) / np.diff(known.frontier.costs)
    assert (slopes > 0).all()
    assert (np.diff(slopes) < 0).all()


def test_the_frontier_that_is_kept_is_between_coarser_bounds(known):
    below, above = frontier_bounds(SlotFilling(), 4)
    costs = np.linspace(0, 0.5, 101)
    assert (known.frontier.reward_at(costs) > below.reward_at(costs)).all()
    assert (known.frontier.reward_at(costs) + known.reward_error < above.reward_at(costs)).all()


def test_the_error_that_is_kept_is_the_largest_distance_to_the_bound_that_is_kept(known, kept):
    above = Frontier(np.array(kept["costs_above"]), np.array(kept["rewards_above"]))
    assert known.reward_error == module.largest_gap(known.frontier, above)
    assert known.reward_error < 0.3


def test_the_file_that_is_kept_is_made_by_its_command(kept, tmp_path):
    example = script("examples/environments.py")
    example.main(["--frontier", "--quick", "--out", str(tmp_path)])
    made = json.loads((tmp_path / module.KEPT).read_text())
    assert list(made) == list(kept)
    assert made["task"] == kept["task"]
    assert made["command"] == kept["command"] == example.COMMAND
    assert made["rewards"] == frontier_bounds(SlotFilling(), 2)[0].rewards.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("price", [FREE, 68.0, UNPRICED])
def test_a_fine_policy_earns_in_the_real_task_what_is_kept(known, price):
    """With 8 bins; the frontier that is kept is above by what 8 more bins gain, 0.3 at the most."""
    (cost, reward), policy = best_policy(binned_tree(SlotFilling(), 8), price)
    rewards, costs = play(policy, n_episodes=300_000, seed=0)
    assert is_mean_of(rewards, reward)
    assert is_mean_of(costs, cost)
    assert 0 < known.frontier.reward_at(cost) - reward < 0.3


def test_the_true_frontier_is_above_the_published_curve_and_the_scripts(known):
    for cost, reward in ((0.0, 26.1), (0.023, 18.3), (0.44, 50.5), (0.439, 55.8), (0.578, 42.19)):
        assert known.frontier.reward_at(cost) > reward


def test_there_is_at_least_one_bin():
    for make in (binned_scores, spread_scores):
        with pytest.raises(ConfigError, match="n_bins must be from 1 on; got 0"):
            make(SlotFilling(), 0)
