"""What is done about errors of Q-values before a frontier is built."""

import numpy as np
import pytest
import torch

from bmdp import ConfigError
from bmdp.policies.greedy import GreedyRule


@pytest.mark.parametrize("cap", [0.0, 3.0])
def test_tensors_are_treated_as_arrays_are(cap):
    rng = np.random.default_rng(1)
    q_r, q_c = rng.normal(size=(2, 50, 3, 7))
    rule = GreedyRule(0.0, cap)
    found = rule.points(torch.tensor(q_r), torch.tensor(q_c))
    for tensor, array in zip(found, rule.points(q_r, q_c), strict=True):
        np.testing.assert_array_equal(tensor.numpy(), array)


def test_a_rule_for_larger_rewards_does_the_same():
    rng = np.random.default_rng(2)
    q_r, q_c = rng.random((2, 30, 2, 5))
    rule = GreedyRule(0.0, 2.0)
    costs, rewards = rule.points(q_r, q_c)
    more_costs, more_rewards = rule.scaled(4.0).points(4 * q_r, q_c)
    np.testing.assert_array_equal(more_costs, costs)
    kept = q_c.reshape(30, -1) >= costs.min(axis=1, keepdims=True)  # others are put below the first
    np.testing.assert_allclose(more_rewards[kept], 4 * rewards[kept])


def test_wrong_rules_are_refused():
    with pytest.raises(ConfigError, match="slope_cap must be from 0 on"):
        GreedyRule(slope_cap=-0.1)
