import numpy as np
import pytest

from bmdp import DataError, TransitionBatch
from bmdp.data import cost_so_far, weighed


def episodes(seed=0):
    """Twelve episodes of different lengths, rows in no order."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, size=12)
    episode = np.repeat(rng.permutation(100)[:12], lengths)
    step = np.concatenate([np.arange(n) for n in lengths])
    state, cost = rng.random((len(step), 2)), rng.choice([0.0, 0.1, 0.5, 1.0], size=len(step))
    columns = {
        "state": state,
        "action": rng.integers(3, size=len(step)),
        "reward": rng.random(len(step)),
        "cost": cost,
        "next_state": state + 1,
        "terminal": np.append(step[1:] == 0, True),
        "episode": episode,
        "step": step,
    }
    order = rng.permutation(len(step))
    return TransitionBatch(**{name: values[order] for name, values in columns.items()})


@pytest.mark.parametrize("limit", [0.0, 0.6, 1.0, 100.0])
def test_costs_so_far_are_those_of_a_plain_loop(limit):
    batch = episodes()
    found = cost_so_far(batch, limit)
    for number in np.unique(batch.episode):
        rows = np.flatnonzero(batch.episode == number)
        total, is_over = 0.0, False
        for row in rows[np.argsort(batch.step[rows])]:
            assert found.state[row, 2:] == pytest.approx([min(total, limit), float(is_over)])
            total += batch.cost[row]
            crosses = not is_over and total > limit + 1e-9
            is_over |= crosses
            assert found.cost[row] == crosses
            assert found.next_state[row, 2:] == pytest.approx([min(total, limit), float(is_over)])
    assert (found.state[:, :2] == batch.state).all()
    assert (found.reward == batch.reward).all()


@pytest.mark.parametrize("missing", ["episode", "step"])
def test_a_log_that_does_not_know_its_episodes_is_refused(missing):
    columns = {name: v for name, v in episodes().to_arrays().items() if name != missing}
    with pytest.raises(DataError, match="episode_limit needs whole episodes in order"):
        cost_so_far(TransitionBatch(**columns), 1.0)


def test_a_log_with_a_row_missing_is_refused():
    batch = episodes()
    with pytest.raises(DataError, match="rows are missing, or there twice"):
        cost_so_far(batch.take(np.flatnonzero(batch.step != 1)), 1.0)
    with pytest.raises(DataError, match="rows are missing, or there twice"):
        cost_so_far(batch.take(np.flatnonzero(batch.step != 0)), 1.0)


def test_names_of_states_are_kept():
    columns = dict(episodes().to_arrays())
    found = cost_so_far(TransitionBatch(**columns, state_names=("speed", "gap")), 1.0)
    assert found.state_names == ("speed", "gap", "cost so far", "limit exceeded")


def test_weighed_rewards_and_the_discount_of_costs_make_the_same_returns():
    batch = episodes()
    found = weighed(batch, 0.7, 0.9)
    plain = np.bincount(batch.episode, 0.7**batch.step * batch.reward)
    assert np.bincount(found.episode, 0.9**found.step * found.reward) == pytest.approx(plain)
    columns = {name: v for name, v in batch.to_arrays().items() if name != "step"}
    with pytest.raises(DataError, match="column step"):
        weighed(TransitionBatch(**columns), 0.7, 0.9)
