"""The beam search against all sequences there are, and against drivers who do not search."""

from itertools import pairwise, product

import numpy as np
import pytest

from bmdp import ConfigError, EpisodeStreams, upper_frontier
from bmdp.envs.scripted import RULES
from bmdp.envs.tasks import rows_of
from bmdp.envs.two_way import TwoWay, reference_curve
from bmdp.envs.two_way.physics import RoadState
from bmdp.envs.two_way.reference import best_drives, mean_frontier


def starts(task, n, seed=0):
    return task.start(EpisodeStreams.named(seed, "test", range(n)).uniforms(0, task.n_draws))


def all_drives(task, start, n_decisions):
    """Costs and rewards of every sequence of actions from one start."""
    sequences = np.array(list(product(range(5), repeat=n_decisions)))
    n = len(sequences)
    state = RoadState(*(np.repeat(column, n, axis=0) for column in start))
    reward, cost, going = np.zeros(n), np.zeros(n), np.ones(n, bool)
    for t in range(n_decisions):
        outcome = task.step(state, sequences[:, t], np.empty((n, 0)))
        reward += going * task.gamma**t * outcome.rewards
        cost += going * task.gamma**t * outcome.costs
        going &= ~outcome.ended
        state = outcome.state
    return cost, reward


@pytest.mark.parametrize("seed", range(4))
def test_the_beam_finds_the_best_of_all_sequences_of_six_decisions(seed):
    task = TwoWay()
    start = starts(task, 1, seed)
    best = upper_frontier(*all_drives(task, start, 6))
    (found,) = best_drives(task, start, width=30, n_decisions=6)
    assert found.frontier.costs == pytest.approx(best.costs)
    assert found.frontier.rewards == pytest.approx(best.rewards)


def test_a_narrow_beam_finds_no_more_and_nothing_that_is_not_there():
    task = TwoWay()
    start = starts(task, 1, 1)
    best = upper_frontier(*all_drives(task, start, 5))
    narrow = best_drives(task, start, width=1, n_decisions=5)[0].frontier
    assert (narrow.rewards <= best.reward_at(narrow.costs) + 1e-9).all()


@pytest.mark.slow
def test_a_wider_beam_is_never_worse_on_average():
    task = TwoWay()
    curves = [
        reference_curve(task, n_situations=20, width=width, seed=3).frontier for width in (1, 4, 8)
    ]
    for worse, better in pairwise(curves):
        costs = np.linspace(max(worse.costs[0], better.costs[0]), 0.6, 20)
        assert (better.reward_at(costs) >= worse.reward_at(costs) - 0.01).all()
        assert better.costs[0] <= worse.costs[0] + 1e-9


@pytest.fixture(scope="module")
def curve():
    task = TwoWay()
    drives = best_drives(task, starts(task, 60, seed=5), width=4)
    return mean_frontier([found.frontier for found in drives])


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.startswith("two-way")])
def test_no_script_is_above_the_curve(rule, curve):
    """In the same situations, for every price on cost."""
    task, n = TwoWay(), 60
    state = starts(task, n, seed=5)
    reward, cost, going = np.zeros(n), np.zeros(n), np.ones(n, bool)
    for t in range(15):
        outcome = task.step(state, RULES[rule](task.observe(state)), np.empty((n, 0)))
        reward += going * 0.9**t * outcome.rewards
        cost += going * 0.9**t * outcome.costs
        going &= ~outcome.ended
        state = outcome.state
    for price in (0, 1, 3, 10, 100):
        assert (curve.rewards - price * curve.costs).max() >= reward.mean() - price * cost.mean()


def test_the_drives_that_were_found_can_be_driven():
    task = TwoWay()
    curve = reference_curve(task, n_situations=3, width=4)
    for s, drives in enumerate(curve.situations):
        for v, actions in enumerate(drives.actions):
            state, reward, cost = rows_of(curve.starts, np.array([s])), 0.0, 0.0
            for t, action in enumerate(actions[actions >= 0]):
                outcome = task.step(state, np.array([action]), np.empty((1, 0)))
                reward += 0.9**t * outcome.rewards[0]
                cost += 0.9**t * outcome.costs[0]
                state = outcome.state
            assert outcome.ended[0]
            assert cost == pytest.approx(drives.frontier.costs[v])
            assert reward == pytest.approx(drives.frontier.rewards[v])


def test_the_mean_of_frontiers_is_their_sum_shared_out():
    first = upper_frontier([0, 1, 2], [0, 4, 5])  # slopes 4 and 1
    second = upper_frontier([1, 2], [1, 3])  # slope 2
    mean = mean_frontier([first, second])
    assert mean.costs.tolist() == [0.5, 1, 1.5, 2]
    assert mean.rewards.tolist() == [0.5, 2.5, 3.5, 4]


def test_with_nobody_on_the_road_everything_can_be_had():
    curve = reference_curve(TwoWay(vehicles=1), n_situations=2, width=2)
    factor = (1 - 0.9**15) / 0.1
    assert curve.smallest_cost == 0
    assert curve.frontier.rewards[0] == pytest.approx(0.8 * factor)  # 30 m/s on its own lane
    assert curve.frontier.rewards[-1] == pytest.approx(factor)
    assert curve.frontier.costs[-1] == pytest.approx(factor / 15)
    assert len(curve.situations) == 2


def test_progress_is_told_and_bad_numbers_are_refused():
    told = []
    note = lambda *now: told.append(now)  # noqa: E731
    reference_curve(TwoWay(vehicles=1), n_situations=60, width=1, progress=note)
    assert told == [(50, 60), (60, 60)]
    with pytest.raises(ConfigError, match="n_situations must be a whole number from 1 on"):
        reference_curve(TwoWay(), n_situations=0)
    with pytest.raises(ConfigError, match="width must be"):
        reference_curve(TwoWay(), n_situations=1, width=0)


def test_those_who_stay_behind_are_kept_so_that_crashes_are_avoided():
    """A beam that keeps the best paid alone finds 0.038 in these situations."""
    assert reference_curve(TwoWay(), n_situations=50, width=2).smallest_cost < 0.01
