"""What all regressors have in common, a user's own among them."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import bmdp
from batches import bandit
from bmdp import BFTQ, BFTQConfig, ConfigError, StoreError
from bmdp.envs import ScriptedPolicy
from bmdp.learn import LagrangianConfig, LagrangianFTQ
from bmdp.learn.fit import Backward, Iterations
from bmdp.models import ForestModel, LearnedQ, LinearModel, QModel, RowSet, register_regressor
from bmdp.models.regressor import Bounded, Part, placed
from bmdp.policies import Portfolio
from devices import each_device, needs_gpu
from regressors import (
    ALL,
    AVERAGERS,
    GRID,
    dice,
    each,
    each_averager,
    every_row,
    fit_once,
    fitted,
    places,
    prepared,
    problem_of,
    random_targets,
    small_problem,
    values,
)

STATES = np.array([[0.0, 10.0], [3.0, 11.0], [1.0, 10.0], [2.0, 11.0]])


# Values


@each
@pytest.mark.parametrize("n", [0, 1, 4])
def test_values_are_of_every_member_state_action_and_head_in_single_precision(model, n):
    found = fitted(model, small_problem())(torch.tensor(STATES[:n]))
    assert found.shape == (2, n, 2, 3, 5)
    assert found.dtype == torch.float32
    assert found.isfinite().all()


@each
def test_values_are_read_from_embedded_states(model):
    q = fitted(model, small_problem(), step=1)
    rows = torch.tensor(STATES)
    assert torch.equal(q.read(q.embed(rows), 1), q(rows, 1))


@each
@pytest.mark.parametrize("members", [slice(2), slice(-1, None)])
def test_values_may_be_read_of_some_members(model, members):
    q = fitted(model, small_problem(n_members=3))
    rows = q.embed(torch.tensor(STATES))
    every, some = q.read(rows, 0), q.read(rows, 0, members)
    torch.testing.assert_close(some, every[members], rtol=1e-6, atol=1e-6)


@each
def test_steps_beyond_the_last_have_its_values(model):
    q = fitted(model, small_problem(), step=1)
    assert (values(q, STATES, 7) == values(q, STATES, 1)).all()


@each
def test_a_grid_of_one_head_will_do(model):
    problem = small_problem(n_steps=1)
    problem = replace(problem, sizes=problem.sizes._replace(heads=(0.0,)))
    q = prepared(model, problem)
    labels = q.labels(0, torch.device("cpu"))
    targets = np.repeat(problem.states[:, :1, None], labels.shape[-1], 1).repeat(2, 2) / 3
    before = q.error(0, every_row(problem), labels, torch.tensor(targets).float())
    assert fit_once(q, problem, targets).last < before
    assert values(q, STATES).shape == (2, 4, 2, 3, 1)


# Fitting


@each_averager
def test_before_anything_is_fitted_an_averager_is_0_everywhere(model):
    problem = small_problem()
    q = prepared(model, problem)
    labels, targets = random_targets(q, problem)
    squares = targets.square().mean(1).sum(1).numpy()
    expected = np.mean([squares[mask].mean() for mask in problem.members])
    assert not values(q, STATES).any()
    assert q.error(0, every_row(problem), labels, targets) == pytest.approx(expected, rel=1e-5)


@each
def test_the_error_is_that_of_the_values_of_the_actions_taken(model):
    """On heads, of which labels are some."""
    problem = small_problem(n_steps=1)
    q = fitted(model, problem)
    rng, n = np.random.default_rng(3), len(problem.states)
    labels = q.labels(1, torch.device("cpu"))
    heads = np.tile(np.arange(5), (n, 1))
    if labels.ndim > 1:
        heads = rng.integers(5, size=labels.shape)
        labels = torch.tensor(np.array(GRID)[heads], dtype=torch.float32)
    targets = rng.normal(size=(*heads.shape, 2))
    losses = []
    for own, found in zip(problem.members, values(q, problem.states), strict=True):
        taken = found[np.arange(n)[:, None], :, problem.actions[:, None], heads]  # [n, L, 2]
        losses.append(np.square(taken - targets)[own].mean(axis=(0, 1)).sum())
    error = q.error(0, every_row(problem), labels, torch.tensor(targets).float())
    assert error == pytest.approx(np.mean(losses), rel=1e-4)


@each
def test_a_fit_tells_its_losses(model):
    problem = small_problem()
    q = prepared(model, problem)
    labels, targets = random_targets(q, problem)
    before = q.error(1, every_row(problem), labels, targets)
    loss = q.fit(1, every_row(problem), labels, targets, "iteration-0")
    assert loss.last < before
    if hasattr(model, "regression"):  # before and at the last step
        assert loss.first == pytest.approx(before, rel=1e-5)
        assert loss.n_steps == model.regression.steps
    else:
        after = q.error(1, every_row(problem), labels, targets)
        assert loss == (pytest.approx(after, rel=1e-5), None, 1)


@each
def test_a_step_is_kept_when_another_is_fitted(model):
    problem = small_problem()
    q = fitted(model, problem, step=1, seed=0)
    before = values(q, STATES, 1)
    fit_once(q, problem, step=0, seed=1)
    assert (values(q, STATES, 1) == before).all()
    assert (values(q, STATES, 0) != before).any()


@each
def test_a_member_is_fitted_to_its_own_rows(model):
    problem = small_problem()
    _, targets = random_targets(prepared(model, problem), problem)
    before = values(fitted(model, problem, targets), STATES)
    targets[torch.tensor(problem.members[1])] += 1
    after = values(fitted(model, problem, targets), STATES)
    assert (before[0] == after[0]).all()
    assert (before[1] != after[1]).any()


@each
def test_rows_that_are_not_of_the_set_do_not_matter(model):
    problem = small_problem()
    half = RowSet("half", np.arange(0, len(problem.states), 2))
    _, targets = random_targets(prepared(model, problem), problem)
    before = values(fitted(model, problem, targets, rows=half), STATES)
    targets[1::2] += 1
    assert (values(fitted(model, problem, targets, rows=half), STATES) == before).all()


@each
def test_two_fits_have_the_same_bits(model):
    problem = small_problem()
    one, other = (fitted(model, problem) for _ in range(2))
    assert one.state_dict().keys() == other.state_dict().keys()
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


# Parts of a model


@each
@pytest.mark.parametrize("members", [[0], [2], [2, 0]])
def test_some_members_have_the_values_that_they_had(model, members):
    q = fitted(model, small_problem(n_members=3))
    chosen = q.select(members)
    assert chosen.sizes.n_members == len(members)
    np.testing.assert_allclose(
        values(chosen, STATES), values(q, STATES)[members], rtol=1e-6, atol=1e-6
    )


@each
def test_what_was_selected_stays_as_it_was_when_its_model_goes_on(model):
    problem = small_problem(n_steps=1)
    q = fitted(model, problem)
    chosen = q.select([1])
    before = values(chosen, STATES)
    fit_once(q, problem, seed=1)
    assert (values(chosen, STATES) == before).all()


@each
def test_an_empty_model_takes_all_that_values_are_made_of(model):
    """So nothing of it is left behind when it is moved or stored."""
    q = fitted(model, small_problem(), step=1)
    fresh = model.empty(q.sizes)
    fresh.load_tensors({name: tensor.clone() for name, tensor in q.state_dict().items()})
    for step in range(2):
        assert (values(fresh, STATES, step) == values(q, STATES, step)).all()
    known = fresh.known(fresh.embed(torch.tensor(STATES)))
    if known is not None:
        assert torch.equal(known, q.known(q.embed(torch.tensor(STATES))))


@each
def test_arrays_that_are_missing_or_unknown_are_refused(model):
    q = fitted(model, small_problem())
    arrays = dict(q.state_dict())
    name, array = arrays.popitem()
    with pytest.raises(StoreError, match=f"arrays do not match: {name}"):
        model.empty(q.sizes).load_tensors(arrays)
    with pytest.raises(StoreError, match="arrays do not match: more"):
        model.empty(q.sizes).load_tensors({**arrays, name: array, "more": array})


@each
def test_a_killed_model_goes_on_bit_by_bit(model):
    problem = small_problem()
    q = fitted(model, problem, step=1, seed=0)
    kept = {1: {name: tensor.clone() for name, tensor in q.step_tensors(1).items()}}
    fit_once(q, problem, step=0, seed=1)
    kept[0] = {name: tensor.clone() for name, tensor in q.step_tensors(0).items()}
    again = prepared(model, problem)
    for step, tensors in kept.items():
        again.set_step(step, tensors)
    for step in range(2):
        assert (values(again, STATES, step) == values(q, STATES, step)).all()
    losses = [fit_once(one, problem, step=0, seed=2) for one in (q, again)]
    assert losses[0] == losses[1]
    assert (values(again, STATES) == values(q, STATES)).all()


# By a learner


def policy_of(model, schedule=None, **settings):
    settings = {"gamma": 0.9, "n_budgets": 5, "ensemble": 2, "budget_range": (0.0, 4.0), **settings}
    config = BFTQConfig(model=model, schedule=schedule or Backward(), **settings)
    return BFTQ(config).fit(dice(), seed=0, device="cpu")


@each
@pytest.mark.parametrize("pooled", [True, False])
def test_a_stored_policy_has_the_same_values_to_the_last_bit(model, pooled, tmp_path):
    policy = policy_of(model, pooled=pooled)
    policy.save(tmp_path / "policy")
    loaded = bmdp.load_policy(tmp_path / "policy")
    assert policy.n_steps == loaded.n_steps == 4
    for step in range(4):
        for one, other in zip(
            policy.q_function(places(), step), loaded.q_function(places(), step), strict=True
        ):
            assert (one == other).all()


@each_device
@each
def test_a_policy_has_the_same_values_on_a_device(model, device):
    policy = policy_of(model, Iterations(2))
    there = policy.q_function.to(device)
    assert {tensor.device.type for tensor in there.model.state_dict().values()} == {device}
    for one, other in zip(policy.q_function(places()), there(places()), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4)


@needs_gpu
@each
def test_a_gpu_fits_as_the_cpu_does(model):  # one model: of several, rounding may choose another
    here, there = (
        BFTQ(BFTQConfig(gamma=0.9, model=model, schedule=Backward(), ensemble=1)).fit(
            dice(), seed=0, device=device
        )
        for device in ("cpu", "cuda")
    )
    for step in range(4):
        for one, other in zip(
            here.q_function(places(), step), there.q_function(places(), step), strict=True
        ):
            np.testing.assert_allclose(other, one, rtol=1e-3, atol=5e-3)


# Sums over chunks


@each_averager
def test_it_does_not_matter_how_rows_are_cut_into_chunks(model, monkeypatch):
    problem = small_problem(n=300)
    whole = values(fitted(model, problem), STATES)
    monkeypatch.setattr(sys.modules["bmdp.models.regressor"], "CHUNK", 7)
    parts = values(fitted(model, problem), STATES)
    np.testing.assert_allclose(parts, whole, rtol=1e-6, atol=1e-6)


SCALE = 2.0**40
HALVES = [slice(0, 100), slice(100, None), slice(None)]


def sums_of(name, problem):
    """Grams and moments of a member over two halves of the rows, and over all of them."""
    q = prepared(AVERAGERS[name], problem)
    _, targets = random_targets(q, problem)
    given, actions = targets.transpose(1, 2), torch.tensor(problem.actions)
    q.choose(0, every_row(problem), given)
    rows = q.own(q.embed(torch.tensor(problem.states)), actions)
    weights = None if problem.weights is None else torch.tensor(problem.weights)
    parts = [
        Part(rows[p], actions[p], None if weights is None else weights[p], torch.arange(0))
        for p in HALVES
    ]
    grams = [q.grams(None, 0, 1, part, SCALE) for part in parts]
    moments = [
        q.moments(None, 0, 1, part, given[p], SCALE) for p, part in zip(HALVES, parts, strict=True)
    ]
    return grams, moments


@pytest.mark.parametrize("weigh", [False, True])
@pytest.mark.parametrize("name", sorted(AVERAGERS))
def test_sums_of_two_halves_are_those_of_the_whole(name, weigh):
    """To the last bit where rows are added up one by one; else but for rounding of each half."""
    problem = small_problem()
    if weigh:
        counts = np.random.default_rng(0).integers(1, 5, size=len(problem.states))
        problem = replace(problem, weights=counts.astype(float))
    for first, second, whole in sums_of(name, problem):
        assert whole.dtype == torch.int64
        assert (first + second - whole).abs().max() <= (0 if name in ("table", "forest") else 2)


@pytest.mark.parametrize("name", sorted(AVERAGERS))
def test_sums_are_added_to_those_so_far(name):
    problem = small_problem()
    q = prepared(AVERAGERS[name], problem)
    _, targets = random_targets(q, problem)
    given, actions = targets.transpose(1, 2), torch.tensor(problem.actions)
    q.choose(0, every_row(problem), given)
    part = Part(q.own(q.embed(torch.tensor(problem.states)), actions), actions, None, actions)
    once = q.moments(None, 0, 0, part, given, SCALE).clone()
    again = q.moments(once.clone(), 0, 0, part, given, SCALE)
    assert torch.equal(again, 2 * once)


@each_averager
def test_the_number_of_threads_changes_no_bit(model, monkeypatch):
    monkeypatch.setattr(sys.modules["bmdp.workers"], "LEAST_WORK", 1)
    problem, before = small_problem(n=300), torch.get_num_threads()
    found = []
    for n_threads in (1, 2, 3):
        torch.set_num_threads(n_threads)
        found.append(values(fitted(model, problem), STATES))
    torch.set_num_threads(before)
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()


@each_averager
def test_values_are_weighted_means_of_targets(model):
    """With weights that depend on states and actions alone: 2 y + 1 has values 2 q + 1."""
    if "kernel" in type(model).__name__.lower():
        model = replace(model, lengths=(1.0,), ridges=(0.1,))  # which are chosen by targets
    problem = small_problem()
    _, targets = random_targets(prepared(model, problem), problem)
    once, twice = (values(fitted(model, problem, t), STATES) for t in (targets, 2 * targets + 1))
    np.testing.assert_allclose(twice, 2 * once + 1, atol=2e-5)


@each_averager
def test_heads_of_equal_targets_have_equal_values(model):
    problem = small_problem()
    targets = np.random.default_rng(0).normal(size=(240, 1, 2)).repeat(5, axis=1)
    found = values(fitted(model, problem, targets.astype(np.float32)), STATES)
    np.testing.assert_allclose(found, found[..., :1].repeat(5, axis=-1), atol=1e-6)


# Names


def test_a_regressor_has_a_name_of_its_own():
    with pytest.raises(ConfigError, match="a regressor called 'ForestModel' is registered already"):
        register_regressor(type("ForestModel", (), {}))
    assert register_regressor(ForestModel) is ForestModel


def test_what_makes_no_models_is_no_regressor():
    with pytest.raises(ConfigError, match="model must be a Regressor; got 'KernelModel'"):
        BFTQConfig(gamma=0.9, model="KernelModel")


@each
def test_a_regressor_makes_models_that_are_torch_modules(model):
    q = model.empty(problem_of(STATES, n_actions=2).sizes)
    assert isinstance(q, QModel)
    assert isinstance(q, torch.nn.Module)
    assert list(ALL.values()).count(model) == 1


# Devices


def test_every_learned_part_of_a_policy_is_placed(monkeypatch):
    """A dial, a mixture of prices, a policy made of both: whatever they are made of."""
    devices = []
    monkeypatch.setattr(LearnedQ, "to", lambda self, device: devices.append(device) or self)
    batch = bandit(60)
    common = {"gamma": 1.0, "model": LinearModel(), "ensemble": 1, "prices": (0.0, 5.0)}
    carried = LagrangianFTQ(LagrangianConfig(**common)).fit(batch, seed=0)
    mixed = LagrangianFTQ(LagrangianConfig(**common, plays="mixture")).fit(batch, seed=0)
    both = Portfolio.coin(carried, mixed, cheap_cost=0.1, dear_cost=0.5)
    for policy, n_parts in ((carried, 1), (mixed, 1), (both, 2)):
        devices.clear()
        other = placed(policy, "cuda")
        assert devices == ["cuda"] * n_parts
        one, two = (p.start(batch.state, 0.3, np.random.default_rng(0)) for p in (policy, other))
        np.testing.assert_array_equal(*(t.decide(batch.state).action for t in (one, two)))
    rule = ScriptedPolicy("slot-filling/voice-again")
    assert placed(rule, "cuda") == rule


# Bounds


@each_averager
def test_a_bounded_model_has_no_value_beyond_the_targets_of_the_action(model):
    problem = small_problem()
    q = Bounded(model.empty(problem.sizes))
    q.prepare(problem)
    _, targets = random_targets(q, problem)
    fit_once(q, problem, targets)
    far = np.concatenate((STATES, [[-90.0, 50.0], [300.0, 10.0], [2.0, -40.0]]))
    inner, found = values(q.inner, far), values(q, far)
    for action in range(3):
        own = targets.numpy()[problem.actions == action]  # [n, H, 2]
        expected = inner[:, :, :, action].clip(own.min(axis=0).T, own.max(axis=0).T)
        np.testing.assert_allclose(found[:, :, :, action], expected)
