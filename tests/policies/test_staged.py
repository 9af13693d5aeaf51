import numpy as np
import pytest

from bmdp import PolicyError
from bmdp.policies import HullPolicy, RandomBudgetedPolicy, StagedPolicy, TabularQ

GRID = [0.0, 1.0]


def hull(reward):
    """One state, two actions: nothing, or a reward for a cost of 1."""
    q_r, q_c = np.zeros((2, 1, 2, 2))
    q_r[:, 1], q_c[:, 1] = reward, 1.0
    return HullPolicy(TabularQ(q_r, q_c), GRID)


def test_its_frontier_is_that_of_the_step_at_which_a_state_is_met():
    policy = StagedPolicy((hull(5.0), hull(3.0)))
    assert policy.frontier(0).rewards.tolist() == [0.0, 5.0]
    assert policy.frontier(0, step=1).rewards.tolist() == [0.0, 3.0]
    assert policy.frontier(0, step=9).rewards.tolist() == [0.0, 3.0]  # as the last one


def test_it_has_none_where_no_values_are_estimated():
    policy = StagedPolicy((RandomBudgetedPolicy(2, 0.0, 1.0),))
    with pytest.raises(PolicyError, match=r"RandomBudgetedPolicy estimates no values"):
        policy.frontier(0)
