"""States that no log may have are none that a policy decides at."""

from functools import cache

import numpy as np
import pytest

from bmdp import BFTQ, BFTQConfig, DataError, LagrangianConfig, LagrangianFTQ
from bmdp.learn.fit import Backward
from bmdp.models import ForestModel, KernelModel, TableModel
from small_logs import grid

MODELS = {"forest": ForestModel(trees=5), "kernel": KernelModel(), "table": TableModel()}
LEARNERS = {"BFTQ": (BFTQ, BFTQConfig), "prices": (LagrangianFTQ, LagrangianConfig)}

each_learner = pytest.mark.parametrize("learner", LEARNERS)
each_model = pytest.mark.parametrize("model", MODELS)


@cache
def policy(learner, model):
    kind, config = LEARNERS[learner]
    return kind(config(gamma=1.0, model=MODELS[model], schedule=Backward())).fit(grid(60), seed=0)


def start(found, states):
    return found.start(states, found.budget_range[1], np.random.default_rng(0))


@each_learner
@each_model
@pytest.mark.parametrize(
    ("number", "said"),
    [(np.nan, "finite; got nan"), (-np.inf, "finite; got -inf"), (1e60, "at most 1e.50")],
)
def test_a_state_that_is_no_number_is_refused(learner, model, number, said):
    found, states = policy(learner, model), np.array([[0.0, 0.25], [0.5, number]])
    with pytest.raises(DataError, match=rf"states must be {said}.* at \[1, 1\]"):
        start(found, states).decide(states)


@each_learner
@each_model
def test_states_of_episodes_that_have_ended_may_be_anything(learner, model):
    tracker = start(policy(learner, model), [[0.0, 0.25]] * 2)
    tracker.decide([[0.0, 0.25]] * 2)
    after = np.array([[0.25, 0.5], [np.nan, np.inf]])
    tracker.observe(0.0, after, [False, True])
    assert tracker.decide(after).action[1] == 0


@each_learner
@each_model
def test_far_beyond_the_data_a_policy_decides_without_a_warning(learner, model):
    for states in ([[1e49, -1e50]], [[1e49, -1e50]] * 100):  # one row, and a batch
        assert start(policy(learner, model), states).decide(states).action.max() < 3
