"""What is done about errors of Q-values before a frontier is built."""

import numpy as np
import pytest
import torch

from bmdp import ConfigError, upper_frontier
from bmdp.frontier import best_mixtures
from bmdp.policies.greedy import GreedyRule, lowered


def cloud(n_states=200, n_points=40, seed=0):
    """Points on a straight frontier from (0, 0) to (1, 1), but for noise in their rewards."""
    rng = np.random.default_rng(seed)
    costs = rng.random((n_states, n_points))
    costs[:, 0], costs[:, 1] = 0.0, 1.0
    noise = rng.normal(scale=0.02, size=costs.shape)
    rewards = np.minimum(costs + noise, 0.99)
    rewards[:, 0], rewards[:, 1] = 0.0, 1.0
    return costs, rewards


def test_a_margin_keeps_both_ends_and_takes_away_what_is_not_above_the_chord_by_it():
    costs, rewards = cloud()
    changed = lowered(costs, rewards, 0.2)
    for row in range(len(costs)):
        assert upper_frontier(costs[row], changed[row]).index.tolist() == [0, 1]
        assert len(upper_frontier(costs[row], rewards[row])) > 3


def test_what_is_above_the_chord_by_more_than_the_margin_stays():
    costs = np.array([[0.0, 0.3, 0.5, 1.0]])
    rewards = np.array([[0.0, 0.35, 0.9, 1.0]])
    changed = lowered(costs, rewards, 0.1)
    assert upper_frontier(costs[0], changed[0]).index.tolist() == [0, 2, 3]
    assert upper_frontier(costs[0], rewards[0]).index.tolist() == [0, 2, 3]
    changed = lowered(costs, rewards, 0.45)
    assert upper_frontier(costs[0], changed[0]).index.tolist() == [0, 3]


def test_with_a_margin_noise_is_not_followed():
    """Where the truth is a straight line, whoever follows noise thinks to earn more than it."""
    costs, rewards = cloud()
    asked = np.full(len(costs), 0.5)
    plain = best_mixtures(costs, rewards, asked).reward.mean()
    wary = best_mixtures(costs, lowered(costs, rewards, 0.08), asked).reward.mean()
    assert plain > 0.52
    assert wary == pytest.approx(0.5, abs=0.003)


@pytest.mark.parametrize("margin", [0.0, 0.05])
@pytest.mark.parametrize("cap", [0.0, 3.0])
def test_tensors_are_treated_as_arrays_are(margin, cap):
    rng = np.random.default_rng(1)
    q_r, q_c = rng.normal(size=(2, 50, 3, 7))
    rule = GreedyRule(0.0, cap, margin)
    found = rule.points(torch.tensor(q_r), torch.tensor(q_c))
    for tensor, array in zip(found, rule.points(q_r, q_c), strict=True):
        np.testing.assert_array_equal(tensor.numpy(), array)


def test_no_states_have_no_points():
    assert lowered(np.empty((0, 4)), np.empty((0, 4)), 0.1).shape == (0, 4)


def test_a_rule_for_larger_rewards_does_the_same():
    rng = np.random.default_rng(2)
    q_r, q_c = rng.random((2, 30, 2, 5))
    rule = GreedyRule(0.0, 2.0, 0.1)
    costs, rewards = rule.points(q_r, q_c)
    more_costs, more_rewards = rule.scaled(4.0).points(4 * q_r, q_c)
    np.testing.assert_array_equal(more_costs, costs)
    kept = q_c.reshape(30, -1) >= costs.min(axis=1, keepdims=True)  # others are put below the first
    np.testing.assert_allclose(more_rewards[kept], 4 * rewards[kept])


@pytest.mark.parametrize("name", ["slope_cap", "margin"])
def test_wrong_rules_are_refused(name):
    with pytest.raises(ConfigError, match=f"{name} must be from 0 on"):
        GreedyRule(**{name: -0.1})
