"""Support: what a log never did is not played, and does not enter a target."""

import subprocess
import sys
from collections import defaultdict

import numpy as np
import pytest

import bmdp
from bmdp import TransitionBatch
from bmdp.errors import ConfigError
from bmdp.learn.learners import BFTQConfig, FTQConfig, LagrangianConfig, learner_of
from bmdp.models import ForestModel, KernelModel, LinearModel, TableModel
from bmdp.models.support import Support

MODELS = {
    "forest": ForestModel(trees=5, leaf=5),
    "kernel": KernelModel(30),
    "linear": LinearModel(),
    "table": TableModel(),
}


def one_step(state, action, reward, cost, n_actions=2):
    n = len(action)
    numbers = {"episode": np.arange(n), "step": np.zeros(n, np.int64), "n_actions": n_actions}
    return TransitionBatch(state, action, reward, cost, state, np.ones(n, np.bool_), **numbers)


def careful_log(n=2000, seed=0, is_table=False):
    """The risk pays 1 everywhere, is free at less than 0.3 and costs 1 elsewhere: never seen."""
    rng = np.random.default_rng(seed)
    state = rng.integers(10, size=(n, 1)) / 10 if is_table else rng.random((n, 2))
    action = ((state[:, 0] < 0.25) & (rng.random(n) < 0.5)).astype(np.int64)
    return one_step(state, action, action * 1.0, np.zeros(n))


def share_of_risks(policy, state, budget):
    found = policy.start(state, budget, np.random.default_rng(1)).decide(state)
    return float(((found.action == 1) & (state[:, 0] >= 0.25)).mean())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", [BFTQConfig, FTQConfig, LagrangianConfig])
def test_a_risk_that_was_only_taken_where_it_is_free_is_not_taken_elsewhere(name, kind):
    log = careful_log(is_table=name == "table")
    learners = [
        learner_of(kind(gamma=1.0, model=MODELS[name], ensemble=1, support=support))
        for support in (0, 5)
    ]
    without, with_support = (learner.fit(log, seed=0) for learner in learners)
    rng = np.random.default_rng(7)
    state = rng.random((500, 2)) if name != "table" else rng.integers(10, size=(500, 1)) / 10
    assert share_of_risks(with_support, state, 0.0) <= 0.03
    if name != "table":  # which bars pairs that never occur in any case
        assert share_of_risks(without, state, 0.0) > 0.5


@pytest.mark.parametrize("name", MODELS)
def test_an_action_that_was_never_taken_is_not_played(name):
    rng = np.random.default_rng(0)
    state, action = rng.integers(3, size=(300, 1)), rng.integers(2, size=300)
    log = one_step(state, action, action * 1.0, action * 1.0, n_actions=3)
    for support in (0, 5):
        config = BFTQConfig(gamma=1.0, model=MODELS[name], ensemble=1, support=support)
        policy = learner_of(config).fit(log, seed=0)
        for budget in (0.0, 0.5, 1.0):
            found = policy.decide(state, budget, np.random.default_rng(2))
            assert not (found.action == 2).any()


def test_the_front_door_keeps_to_what_a_careful_log_knows():
    """Asked 0, it paid 0.70 without support, and the forecast said 0 with certainty."""
    log = careful_log()
    state = np.random.default_rng(7).random((2000, 2))
    free = bmdp.fit(log, gamma=1.0, minutes=0.2, support=0)
    assert share_of_risks(free.policy, state, 0.0) > 0.5
    fitted = bmdp.fit(log, gamma=1.0, minutes=0.2)
    assert share_of_risks(fitted.policy, state, 0.0) <= 0.02
    assert not any("no episode of the log took" in note for note in fitted.notes)
    assert any("no episode of the log took" in note for note in free.notes)
    assert free.forecast.cost_high.max() == 0  # no cost was ever seen


def test_episodes_of_a_table_are_counted_as_by_hand():
    rng = np.random.default_rng(0)
    n = 400
    state, action = rng.integers(6, size=(n, 1)).astype(float), rng.integers(3, size=n)
    episode = rng.integers(40, size=n)
    support = Support.of(state, action, episode, 3, least=5, is_table=True)
    seen = defaultdict(set)
    for s, a, e in zip(state[:, 0], action, episode, strict=True):
        seen[s, a].add(e)
    expected = [[len(seen[s, a]) for a in range(3)] for s in range(6)]
    assert support.episodes(np.arange(6.0)[:, None]).tolist() == expected
    assert support.episodes(np.array([[77.0]])).tolist() == [[0, 0, 0]]
    assert support.known(np.array([[77.0]])).all()  # nothing is known there: all are alike
    shares = [[np.mean(action[state[:, 0] == s] == a) for a in range(3)] for s in range(6)]
    found = support.probabilities(np.arange(6.0)[:, None])
    np.testing.assert_allclose(found, shares, atol=1e-6)


def test_one_episode_that_repeats_an_action_is_one_episode():
    state, action = np.zeros((20, 1)), np.ones(20, np.int64)
    support = Support.of(state, action, np.zeros(20, np.int64), 2, least=5, is_table=True)
    assert support.episodes(np.zeros((1, 1))).tolist() == [[0.0, 1.0]]
    assert support.known(np.zeros((1, 1))).tolist() == [[False, True]]  # it is what the log does


def test_probabilities_of_trees_are_those_of_the_logger():
    """A logistic logger of two numbers: the mean error of 20,000 rows is below 0.05."""
    rng = np.random.default_rng(0)
    state = rng.normal(size=(20_000, 2))
    chance = 1 / (1 + np.exp(-2 * state[:, 0]))
    action = (rng.random(len(state)) < chance).astype(np.int64)
    support = Support.of(state, action, np.arange(len(state)), 2, least=5, is_table=False)
    fresh = rng.normal(size=(2000, 2))
    truth = 1 / (1 + np.exp(-2 * fresh[:, 0]))
    found = support.probabilities(fresh)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-5)
    assert np.abs(found[:, 1] - truth).mean() < 0.06
    assert abs((found[:, 1] - truth).mean()) < 0.01


def test_values_of_unsupported_pairs_enter_no_target():
    """State 1 pays 1 by action 0; one lucky episode had 100 by action 1."""
    n = 50
    state = np.repeat([[0.0], [1.0]], n, axis=0)
    action = np.zeros(2 * n, np.int64)
    action[-1] = 1
    reward = np.where(state[:, 0] == 1, np.where(action == 1, 100.0, 1.0), 0.0)
    log = TransitionBatch(
        state,
        action,
        reward,
        np.zeros(2 * n),
        np.repeat([[1.0], [2.0]], n, axis=0),
        np.repeat([False, True], n),
        episode=np.tile(np.arange(n), 2),
        step=np.repeat([0, 1], n),
    )
    worth = {}
    for support in (0, 2):
        config = FTQConfig(gamma=1.0, model=TableModel(), ensemble=1, support=support)
        policy = learner_of(config).fit(log, seed=0)
        q_r, _ = policy.q_function(np.array([[0.0]]), 0)
        worth[support] = float(q_r[0, 0, 0])
    assert worth == {0: pytest.approx(100.0), 2: pytest.approx(1.0)}


def test_support_is_stored_with_the_policy(tmp_path):
    log = careful_log(500)
    config = LagrangianConfig(gamma=1.0, model=MODELS["forest"], ensemble=1, support=5)
    policy = learner_of(config).fit(log, seed=0)
    policy.save(tmp_path / "policy")
    again = bmdp.load_policy(tmp_path / "policy")
    state = np.random.default_rng(7).random((200, 2))
    both = [p.start(state, 0.5, np.random.default_rng(1)).decide(state) for p in (policy, again)]
    assert both[0].action.tolist() == both[1].action.tolist()
    assert share_of_risks(again, state, 0.0) <= 0.03


def test_support_does_not_change_with_units_or_the_order_of_rows():
    log = careful_log(1000)
    ask = np.random.default_rng(3).random((300, 2))
    found = []
    for factor, order in ((1.0, np.arange(1000)), (1000.0, np.arange(1000)[::-1])):
        state = log.state[order] * factor
        args = state, log.action[order], np.arange(1000)[order], 2
        found.append(Support.of(*args, least=5, is_table=False).known(ask * factor))
    assert (found[0] == found[1]).mean() > 0.97  # trees are drawn by the order of rows


@pytest.mark.parametrize("bad", [-1, "many", float("nan")])
def test_support_must_be_from_0_on(bad):
    with pytest.raises(ConfigError, match=r"support must be (from 0 on|a number)"):
        BFTQConfig(gamma=1.0, support=bad)
    with pytest.raises(ConfigError, match=r"support must be (from 0 on|a number)"):
        bmdp.fit(careful_log(50), gamma=1.0, support=bad)


def test_support_is_for_logs():
    with pytest.raises(ConfigError, match="support is for a log"):
        bmdp.fit("corridors", support=3)


def test_a_policy_from_a_log_is_loaded_by_a_process_that_has_imported_nothing_else(tmp_path):
    policy = bmdp.fit(careful_log(100), gamma=1.0, minutes=0.02).policy
    policy.save(tmp_path / "policy")
    script = (
        "import bmdp, numpy as np, sys; policy = bmdp.load_policy(sys.argv[1]); "
        "print(policy.start([[0.9, 0.5]], 0.0, np.random.default_rng(0)).decide([[0.9, 0.5]])[0])"
    )
    here = policy.start([[0.9, 0.5]], 0.0, np.random.default_rng(0)).decide([[0.9, 0.5]])[0]
    told = [sys.executable, "-c", script, str(tmp_path / "policy")]
    assert subprocess.run(told, capture_output=True, text=True, check=True).stdout == f"{here}\n"
