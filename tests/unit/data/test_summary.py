import numpy as np
import pytest

from logs import corridor_log, full, small


def test_a_summary_counts_and_averages_what_the_batch_holds():
    found = full().summary()
    assert (found.n_transitions, found.n_episodes, found.n_actions, found.state_size) == (
        6,
        2,
        7,
        2,
    )
    assert found.action_counts == (3, 2, 1, 0, 0, 0, 0)
    assert (found.reward_range, found.cost_range) == ((0.0, 5.0), (0.0, 0.5))
    assert found.share_terminal == pytest.approx(1 / 6)
    assert (found.mean_episode_reward, found.mean_episode_cost) == (7.5, 0.375)


def test_means_of_episodes_are_those_of_their_sums():
    log = corridor_log()
    found = log.summary()
    sums = [log.cost[log.episode == e].sum() for e in np.unique(log.episode)]
    assert found.mean_episode_cost == pytest.approx(np.mean(sums))
    assert found.notes == ()


def test_episodes_that_are_unknown_have_no_means():
    found = small().summary()
    assert found.n_episodes is found.mean_episode_reward is found.mean_episode_cost is None
    assert found.notes == ("episodes are unknown: each row is taken as one",)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"cost": np.zeros(6)}, "all costs are 0: every budget is the same"),
        ({"cost": np.ones(6)}, "all costs are 1: only the length of an episode makes a difference"),
        ({"cost": [0, 0, -1, 0, -2, 5]}, "2 costs are below 0: budgets are earned back there"),
        ({"reward": np.full(6, 2.5)}, "all rewards are 2.5"),
        ({"action": [2] * 6}, "only action 2 was ever taken: there is nothing to choose from"),
        (
            {"action": [0, 2, 0, 2, 0, 2]},
            "action 1 was never taken: the log says nothing of what follows",
        ),
        ({"n_actions": 20}, "actions 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, ... were never taken: "),
        (
            {"terminal": np.zeros(6)},
            "no row is terminal: the process is taken to go on for ever",
        ),
        ({"terminal": np.ones(6)}, "every row is terminal: nothing ever follows an action"),
    ],
)
def test_what_to_beware_of_is_said_in_words(changes, note):
    notes = small(**changes).summary().notes
    assert any(found.startswith(note) for found in notes)


def test_a_summary_is_shown_as_a_table():
    assert str(full(n_actions=3).summary()).splitlines() == [
        "transitions        6",
        "episodes           2",
        "numbers a state    2",
        "actions            3, taken 3, 2, 1 times",
        "rewards            from 0 to 5",
        "costs              from 0 to 0.5",
        "terminal           16.7%",
        "reward an episode  7.5",
        "cost an episode    0.375",
    ]


def test_a_table_of_unknown_episodes_says_so():
    text = str(small(n_actions=30).summary())
    assert "episodes         unknown" in text
    assert "0, 0, 0, 0, 0, 0, 0, ... times" in text
    assert "note             episodes are unknown" in text
    assert "an episode  " not in text
