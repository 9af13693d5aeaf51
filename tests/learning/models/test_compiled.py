"""Compiled forms of models are their torch forms to the bit, and any thread may ask a policy."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from bmdp import BFTQ, BFTQConfig, EpisodeStreams, LagrangianConfig, LagrangianFTQ, TransitionBatch
from bmdp.learn import Iterations
from bmdp.models import ForestModel, TableModel
from bmdp.models.regressor import MeanQ
from bmdp.models.table import keys_of

N_THREADS, LENGTH = 8, 6


def log(is_table):
    rng = np.random.default_rng(0)
    seen = rng.random((60, LENGTH + 1, 3))
    seen = np.floor(3 * seen) if is_table else seen
    action = rng.integers(3, size=(60, LENGTH))
    action[seen[:, :-1, 0] < 1 / 3] = 0  # others are not known there
    ended = np.zeros(action.shape, bool)
    ended[:, -1] = True
    cost = (rng.random(action.shape) < 0.1 * action).astype(float)
    rows = (seen[:, :-1], action, 1.0 * action, cost, seen[:, 1:], ended)
    return TransitionBatch(*(part.reshape(-1, *part.shape[2:]) for part in rows))


MODELS = {"table": TableModel(), "forest": ForestModel(trees=7, leaf=3)}


@pytest.fixture(scope="module", params=MODELS)
def learned(request):
    """Policies of a model by name, and states, some of which never occurred."""
    batch = log(request.param == "table")
    how = {"gamma": 0.9, "model": MODELS[request.param], "ensemble": 1, "schedule": Iterations(n=2)}
    policies = {
        "BFTQ": BFTQ(BFTQConfig(**how)).fit(batch, seed=0),
        "prices": LagrangianFTQ(LagrangianConfig(**how)).fit(batch, seed=0),
        "known prices": LagrangianFTQ(LagrangianConfig(**how, support=5)).fit(batch, seed=0),
    }
    return policies, np.concatenate((batch.state, batch.state[:20] + 0.25)).astype(float)


@pytest.mark.parametrize("name", ["BFTQ", "prices", "known prices"])
def test_values_without_torch_are_those_with_it(learned, name):
    policies, states = learned
    q = getattr(policies[name], "dial", policies[name]).q_function
    with_torch = q.at(q.look(states))
    cells = q.cell_values(0)
    for rows in (slice(0, 0), slice(0, 1), slice(3, 200), slice(None)):
        for found, wanted in zip(q(states[rows]), with_torch, strict=True):
            assert found.dtype == wanted.dtype
            assert found.tobytes() == wanted[rows].tobytes()
    if cells is not None:
        for found, wanted in zip(cells, with_torch, strict=True):
            assert found[q.cells(states)].tobytes() == wanted.tobytes()


def test_a_decision_by_what_a_log_knows_needs_no_torch(learned, monkeypatch):
    policies, states = learned
    policy = policies["known prices"]
    budgets = np.linspace(*policy.budget_range, 20)
    tracker = policy.start(states[:20], budgets, np.random.default_rng(0))
    tracker.decide(states[:20])  # after which a table is known
    tracker.observe(0.0, states[:20], False)
    dial = policy.dial
    assert not np.isfinite(dial.q_function(states)[0]).all()  # some actions are not known

    def never(*_):
        raise AssertionError("torch was asked")

    for model in (dial.q_function.model, dial.q_function.support.model):
        monkeypatch.setattr(model, "embed", never)
    tracker.decide(states[:20])


def test_a_mean_of_models_is_that_of_their_values(learned):
    policies, states = learned
    parts = [policies[name].dial.q_function for name in ("prices", "known prices")]
    mean = MeanQ(tuple(parts))
    found, with_torch = mean(states[:9]), mean.at(mean.look(states[:9]))
    for each, wanted in zip(found, with_torch, strict=True):
        assert each.tobytes() == wanted.tobytes()


def test_cells_are_found_as_torch_finds_them():
    rng = np.random.default_rng(0)
    states = np.concatenate(
        (rng.integers(-3, 3, (50, 4)), rng.normal(size=(50, 4)), [[2.0**60, -0.0, 0.1, 1e300]])
    ).astype(float)
    model = TableModel().empty(log_sizes())
    model._set_cells(torch.unique(keys_of(torch.from_numpy(states[::2].copy()))))
    wanted = model.embed(torch.from_numpy(states)).numpy()
    assert model.cell_numbers(states).tolist() == wanted.tolist()
    assert (wanted < len(model.cells)).sum() >= 50


def log_sizes():
    from bmdp.models.regressor import Sizes

    return Sizes(1, 1, n_actions=2, n_numbers=4, heads=(0.0, 1.0))


def test_new_trees_are_read_at_once():
    """A forest that is loaded anew is not read by the nodes of the one before."""
    policies = [
        BFTQ(
            BFTQConfig(
                gamma=0.9,
                model=ForestModel(trees=7, leaf=leaf),
                ensemble=1,
                schedule=Iterations(n=1),
            )
        ).fit(log(False), seed=0)
        for leaf in (3, 9)
    ]
    states = np.random.default_rng(0).random((9, 3))
    first, second = (policy.q_function.model for policy in policies)
    before = first.read_rows(states, 0)
    first.load_tensors({k: v.clone() for k, v in second.state_dict().items()})
    assert (first.read_rows(states, 0) == second.read_rows(states, 0)).all()
    assert (before != second.read_rows(states, 0)).any()


@pytest.mark.parametrize("name", ["BFTQ", "prices", "known prices"])
def test_threads_that_ask_one_policy_are_told_what_one_thread_is(learned, name, tmp_path):
    """The policy is a new one, so that what it keeps is worked out by threads at the same time."""
    import bmdp

    policies, states = learned
    policies[name].save(tmp_path / "policy")

    def episode(policy, k):
        streams = EpisodeStreams.named(0, "threads", [k])
        tracker = policy.start(states[[k]], 0.4, streams)
        told = []
        for i in range(LENGTH):
            decision = tracker.decide(states[[k + i]])
            told.append(tuple(column.item() for column in decision))
            tracker.observe(0.0, states[[k + i + 1]], False)
            tracker = policy.resume(tracker.state())
        return told

    alone = [episode(policies[name], k) for k in range(40)]
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-5)
        for _ in range(3):
            policy = bmdp.load_policy(tmp_path / "policy")
            with ThreadPoolExecutor(N_THREADS) as pool:
                together = list(pool.map(lambda k, policy=policy: episode(policy, k), range(40)))
            assert together == alone
    finally:
        sys.setswitchinterval(before)
