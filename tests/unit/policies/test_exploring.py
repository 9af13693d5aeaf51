"""The policy of exploration: epsilon that falls, actions that are held, budgets that are moved."""

import numpy as np
import pytest

from bmdp import ConfigError, EpisodeStreams, PolicyError
from bmdp.envs import ScriptedPolicy
from bmdp.policies import ExploringPolicy, HullPolicy, RandomBudgetedPolicy, TabularQ

RANDOM = RandomBudgetedPolicy(5, 0.0, 1.0)
SAFE = ScriptedPolicy("corridors/safe")


def actions_of(policy, n=4000, n_steps=6, first=0):
    """Actions `[n_steps, n]` at a fixed state where the greedy one goes left."""
    states = np.tile([3.5, 0.5], (n, 1))
    streams = EpisodeStreams.named(0, "test", range(first, first + n))
    tracker = policy.start(states, 0.5, streams)
    rows = []
    for _ in range(n_steps):
        rows.append(tracker.decide(states).action)
        tracker.observe(np.zeros(n), states, np.zeros(n, bool))
    return np.array(rows)


def test_epsilon_falls_from_episode_to_episode():
    policy = ExploringPolicy(SAFE, RANDOM, decay=0.01, floor=0.1)
    assert policy.epsilon(np.array([0, 100, 10**6])).tolist() == pytest.approx(
        [1, 0.1 + 0.9 * np.exp(-1), 0.1]
    )
    late = actions_of(policy, first=10**6)
    assert (late == 3).mean() == pytest.approx(0.9 + 0.1 / 5, abs=0.01)
    early = actions_of(ExploringPolicy(SAFE, RANDOM, decay=0.0))
    assert np.bincount(early.ravel(), minlength=5) / early.size == pytest.approx(
        np.full(5, 0.2), abs=0.015
    )


def test_epsilon_falls_from_step_to_step_if_episodes_have_a_length():
    policy = ExploringPolicy(SAFE, RANDOM, decay=0.1, floor=0.1, length=2.5)
    steps = np.arange(6)[:, None] + 2.5 * np.arange(4)
    expected = 0.1 + 0.9 * np.exp(-0.1 * steps)
    found = [policy.epsilon(np.arange(4), step) for step in range(6)]
    np.testing.assert_allclose(found, expected)


def test_the_epsilon_of_a_step_is_the_share_of_its_random_actions():
    policy = ExploringPolicy(SAFE, RANDOM, decay=0.5, length=0.0)
    shares = (actions_of(policy, n=20_000) == 3).mean(axis=1)
    epsilon = np.exp(-0.5 * np.arange(6))
    np.testing.assert_allclose(shares, 1 - epsilon * 0.8, atol=4 * 0.5 / np.sqrt(20_000))


def test_random_actions_may_be_held():
    """Held for 1, 2 or 3 steps: two in a row are the same more often than one time in five."""
    free = actions_of(ExploringPolicy(RANDOM, RANDOM, decay=0.0, hold=1))
    held = actions_of(ExploringPolicy(RANDOM, RANDOM, decay=0.0, hold=3))
    assert (free[1:] == free[:-1]).mean() == pytest.approx(0.2, abs=0.015)
    # At the second step: held with probability 2/3, else drawn anew.
    assert (held[1] == held[0]).mean() == pytest.approx(2 / 3 + 1 / 3 / 5, abs=0.03)
    assert (held[3] == held[0]).mean() == pytest.approx(0.2, abs=0.03)


def budgets_of(policy, n=4000, n_steps=6):
    """Budgets held after each step `[n_steps, n]`, of episodes that begin with 0.5."""
    states = np.tile([3.5, 0.5], (n, 1))
    tracker = policy.start(states, 0.5, EpisodeStreams.named(0, "test", range(1, n + 1)))
    rows = []
    for _ in range(n_steps):
        tracker.decide(states)
        tracker.observe(np.zeros(n), states, np.arange(n) < 10)
        rows.append(tracker.budgets)
    return np.array(rows)


def test_the_dial_may_be_moved_to_random_budgets_at_any_step():
    """The greedy policy hands its budget on as it is; the first 10 episodes end at once."""
    never = budgets_of(ExploringPolicy(SAFE, RANDOM, floor=0.0, decay=1e9))
    assert (never == 0.5).all()
    policy = ExploringPolicy(SAFE, RANDOM, floor=0.0, decay=1e9, move=0.25)
    found = budgets_of(policy)
    changed = np.diff(np.vstack([np.full(4000, 0.5), found]), axis=0) != 0
    assert changed.mean(axis=1) == pytest.approx(np.full(6, 0.25), abs=4 * 0.43 / np.sqrt(4000))
    drawn = found[changed]
    low, high = policy.budget_range
    assert np.histogram(drawn, 5, (low, high))[0] / len(drawn) == pytest.approx(
        np.full(5, 0.2), abs=0.03
    )
    assert not changed[1:, :10].any()
    still = ExploringPolicy(SAFE, RANDOM, floor=0.0, decay=1e9)
    assert (actions_of(policy, first=1) == actions_of(still, first=1)).all()


@pytest.mark.parametrize("decay", [0.0, 1e9], ids=["random", "greedy"])
def test_the_dial_may_be_kept_at_the_top(decay):
    found = budgets_of(ExploringPolicy(SAFE, RANDOM, decay=decay, move=0.5, at_top=True))
    assert (found[0, 10:] == 1.0).all()
    assert (found[:, 10:] == found[0, 10:]).all()
    assert (budgets_of(ExploringPolicy(SAFE, RANDOM, decay=decay, move=0.5)) < 1.0).any()


def test_what_an_episode_does_is_its_own_affair():
    policy = ExploringPolicy(SAFE, RANDOM, decay=0.001, hold=2, move=0.3)
    together, alone = actions_of(policy, n=50), actions_of(policy, n=1, first=30)
    assert (together[:, 30] == alone[:, 0]).all()


def test_the_greedy_policy_may_count_steps():
    q_r = np.zeros((3, 1, 5, 2))
    q_r[[0, 1, 2], 0, [4, 2, 1]] = 1.0
    greedy = HullPolicy(TabularQ(q_r, np.zeros_like(q_r)), [0.0, 1.0])
    policy = ExploringPolicy(greedy, RANDOM, decay=1e9)
    states = np.zeros(3, int)
    tracker = policy.start(states, 0.5, EpisodeStreams.named(0, "test", range(1, 4)))
    seen = []
    for _ in range(5):
        seen.append(tracker.decide(states).action.tolist())
        tracker.observe(0.0, states, False)
    assert seen == [[action] * 3 for action in (4, 2, 1, 1, 1)]


def test_it_has_the_episode_form_only():
    with pytest.raises(PolicyError, match="explores less from episode to episode, so it has the"):
        ExploringPolicy(SAFE, RANDOM).act([3.5, 0.5], 0.5, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decay": -1.0}, "decay must be from 0 on"),
        ({"decay": np.nan}, "decay must be from 0 on"),
        ({"floor": 2.0}, "floor from 0 to 1"),
        ({"hold": 0}, "hold from 1 on"),
        ({"move": 1.5}, "move must be from 0 to 1"),
        ({"length": -1.0}, "length must be from 0 on"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        ExploringPolicy(SAFE, RANDOM, **settings)
