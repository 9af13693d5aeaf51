"""Episodes that are not learned from: which they are, and what they say at the end of a run."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

import bmdp
from bmdp import BFTQ, ConfigError, DataError, TransitionBatch, explore
from bmdp.learn import Exploration, FTQConfig, collect, held_out, resume, train, train_from_data
from bmdp.learn.spec import DataSpec
from bmdp.learn.explore import round_seed
from bmdp.learn.evaluation import SMOOTH
from bmdp.learn.evaluation import HeldOut, split_episodes
from bmdp.learn.runs import RunFolder
from bmdp.learn.spec import from_json, to_json, with_setting
from bmdp.models import FrontierNet, KernelModel, LinearModel, Regression
from bmdp.policies import RandomBudgetedPolicy
from training import LEARNER, SPEC, Killed, content, kill_after, told

QUICK = replace(LEARNER, model=LinearModel(), n_budgets=3)
HOLDING = replace(SPEC, learner=QUICK, held_out=0.3)


@pytest.fixture(scope="module")
def log():
    random_policy = RandomBudgetedPolicy(5, 0.0, 1.0)
    budgets = np.linspace(0, 1, 40)
    return collect(random_policy, SPEC.env.spec(), range(40), budgets=budgets, seed=0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(HOLDING, folder, seed=0)
    return folder


def without(batch, *names):
    columns = {k: v for k, v in batch.to_arrays().items() if k not in names}
    return TransitionBatch.from_arrays(columns, n_actions=batch.n_actions)


def same(one, other):
    """Whether a policy has the same values as another."""
    states = np.random.default_rng(0).random((20, 3))
    both = zip(one.q_function(states), other.q_function(states), strict=True)
    return all((a == b).all() for a, b in both)


# Which ones


@pytest.mark.parametrize(("share", "n"), [(0.5, 20), (0.1, 4), (0.001, 1), (0.999, 39)])
def test_a_share_of_the_episodes_is_held_out_but_neither_none_nor_all(log, share, n):
    learned, others = split_episodes(log, share, seed=0, number=0)
    both = set(learned.episode.tolist()), set(others.episode.tolist())
    assert (len(both[0]), len(both[1])) == (40 - n, n)
    assert both[0] | both[1] == set(range(40))
    assert len(learned) + len(others) == len(log)
    assert (np.diff(learned.episode) >= 0).all()


def test_nothing_is_held_out_unless_asked_for(log):
    assert split_episodes(log, 0.0, seed=0, number=0) == (log, None)
    assert split_episodes(without(log, "episode"), 0.0, seed=0, number=0).held_out is None


def test_they_are_drawn_by_seed_and_round(log):
    def drawn(seed, number):
        return np.unique(split_episodes(log, 0.5, seed=seed, number=number).held_out.episode)

    assert (drawn(0, 1) == drawn(0, 1)).all()
    assert (drawn(0, 1) != drawn(0, 2)).any()
    assert (drawn(0, 1) != drawn(1, 1)).any()


def test_episodes_that_cannot_be_told_apart_or_split_are_refused(log):
    for batch, message in (
        (without(log, "episode"), "held_out needs a batch with episodes"),
        (log.take(log.episode == 0), "at least 2 episodes"),
        (log.take(log.step > 0), "where episodes begin; no row has step 0"),
    ):
        with pytest.raises(DataError, match=message):
            split_episodes(batch, 0.5, seed=0, number=0)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_the_share_is_below_one(share):
    for spec in (SPEC, DataSpec(LEARNER)):
        with pytest.raises(ConfigError, match="held_out must be from 0 to below 1"):
            replace(spec, held_out=share)
    with pytest.raises(ConfigError, match="rounds of at least 2 episodes"):
        replace(SPEC, held_out=0.5, exploration=Exploration(2, 1))


def test_the_share_is_a_setting():
    spec = with_setting(SPEC, "held_out=0.25")
    assert spec.held_out == 0.25
    assert from_json(to_json(spec)) == spec
    data = with_setting(DataSpec(LEARNER), "held_out=0.25")
    assert from_json(to_json(data), DataSpec) == data
    assert from_json({k: v for k, v in to_json(SPEC).items() if k != "held_out"}) == SPEC


# Learning without them


def test_what_is_held_out_is_kept_but_not_learned_from(whole):
    batches = [RunFolder(whole).batch(number) for number in range(2)]
    assert [len(np.unique(batch.episode)) for batch in batches] == [20, 20]
    parts = [split_episodes(batch, 0.3, seed=0, number=i) for i, batch in enumerate(batches)]
    learned = TransitionBatch.concatenate(part.learned for part in parts)
    expected = BFTQ(QUICK).fit(learned, seed=round_seed(0, 1))
    assert same(bmdp.load_policy(whole), expected)
    every = BFTQ(QUICK).fit(TransitionBatch.concatenate(batches), seed=round_seed(0, 1))
    assert not same(bmdp.load_policy(whole), every)


def test_the_prediction_is_that_of_the_episodes_held_out(whole):
    record = RunFolder(whole).prediction()
    assert record == RunFolder(whole).records()[-1]
    assert (record["kind"], record["round"], record["n_episodes"]) == ("prediction", 1, 12)
    assert record["budgets"] == pytest.approx([i / 10 for i in range(11)])
    batches = [RunFolder(whole).batch(number) for number in range(2)]
    parts = [split_episodes(batch, 0.3, seed=0, number=i) for i, batch in enumerate(batches)]
    rest = HeldOut.of(parts, QUICK, 0, "cpu")
    assert told([record]) == told([rest.prediction(bmdp.load_policy(whole), 1)])
    assert record["n_transitions"] == sum(len(part.held_out) for part in parts)


def test_exploring_without_a_folder_predicts_the_same(whole):
    result = explore(HOLDING, seed=0)
    assert told(result.records) == told(RunFolder(whole).records())
    assert len(np.unique(result.batch.episode)) == 40


def test_without_held_out_episodes_there_is_no_prediction(tmp_path):
    train(replace(HOLDING, held_out=0.0), tmp_path / "run", seed=0)
    assert RunFolder(tmp_path / "run").prediction() is None


def test_a_log_is_learned_from_without_them(tmp_path, log):
    policy = train_from_data(log, QUICK, tmp_path / "run", seed=2, held_out=0.4)
    parts = split_episodes(log, 0.4, seed=2, number=0)
    assert same(policy, BFTQ(QUICK).fit(parts.learned, seed=2))
    assert len(RunFolder(tmp_path / "run").batch(0)) == len(log)
    record = RunFolder(tmp_path / "run").prediction()
    again = HeldOut(parts.held_out, QUICK, 2, "cpu").prediction(policy, 0)
    assert told([record]) == told([again])
    assert record["n_episodes"] == 16


@pytest.mark.parametrize("stages", ["none", "shared"])
def test_a_prediction_is_that_of_fitted_evaluation(tmp_path, log, stages):
    learner = replace(QUICK, valuation="self", stages=stages)
    policy = train_from_data(log, learner, tmp_path / "run", seed=2, held_out=0.4)
    parts = split_episodes(log, 0.4, seed=2, number=0)
    assert type(policy) is type(BFTQ(learner).fit(parts.learned, seed=2))
    record = RunFolder(tmp_path / "run").prediction()
    found = bmdp.fitted_evaluation(
        policy,
        parts.held_out,
        gamma=1.0,
        budgets=record["budgets"],
        model=learner.model,
        seed=0,
        n_budgets=learner.n_budgets,
        stages="shared",
    )
    assert record["cost"] == pytest.approx(found.cost.tolist(), rel=1e-5)
    assert record["reward"] == pytest.approx(found.reward.tolist(), rel=1e-5)


def test_a_log_that_cannot_be_split_leaves_no_folder(tmp_path, log):
    with pytest.raises(DataError, match="held_out needs a batch with episodes"):
        train_from_data(without(log, "episode"), QUICK, tmp_path / "run", seed=2, held_out=0.4)
    few = log.take(log.episode < 2)
    with pytest.raises(DataError, match="must name at least 2 episodes"):
        train_from_data(few, QUICK, tmp_path / "run", seed=2, held_out=0.4)
    assert not list(tmp_path.iterdir())


# After a kill


@pytest.mark.parametrize("n_records", range(1, 8))
def test_a_run_that_is_killed_predicts_the_same_once(whole, tmp_path, n_records):
    with pytest.raises(Killed):
        train(HOLDING, tmp_path / "run", seed=0, on_record=kill_after(n_records))
    resume(tmp_path / "run")
    assert content(tmp_path / "run" / "policy") == content(whole / "policy")
    assert told(RunFolder(tmp_path / "run").records()) == told(RunFolder(whole).records())


def test_a_run_that_is_killed_before_its_mark_predicts_the_same_once(whole, tmp_path):
    train(HOLDING, tmp_path / "run", seed=0)
    os.unlink(tmp_path / "run" / "done")
    resume(tmp_path / "run")
    assert told(RunFolder(tmp_path / "run").records()) == told(RunFolder(whole).records())


@pytest.mark.parametrize("n_records", [1, 2, 3])
def test_learning_from_a_log_that_is_killed_predicts_the_same_once(tmp_path, log, n_records):
    train_from_data(log, QUICK, tmp_path / "whole", seed=2, held_out=0.4)
    with pytest.raises(Killed):
        train_from_data(
            log, QUICK, tmp_path / "run", seed=2, held_out=0.4, on_record=kill_after(n_records)
        )
    resume(tmp_path / "run")
    records = [RunFolder(tmp_path / name).records() for name in ("run", "whole")]
    assert told(records[0]) == told(records[1])
    assert [record["kind"] for record in records[0]] == ["iteration", "iteration", "prediction"]


def test_a_prediction_is_plain_json(whole):
    lines = (whole / "records.jsonl").read_text().splitlines()
    found = json.loads(lines[-1], parse_constant=lambda name: pytest.fail(name))
    assert np.isfinite(found["reward"]).all()
    assert np.isfinite(found["cost"]).all()


# How it is evaluated


@pytest.fixture
def settings_of(monkeypatch, log):
    """The settings by which what a learner learned is evaluated."""

    def settings(learner, batch=log):
        seen = {}

        def watched(policy, batch, **settings):
            seen.update(settings)
            return bmdp.fitted_evaluation(policy, batch, **settings)

        monkeypatch.setattr(held_out, "fitted_evaluation", watched)
        parts = split_episodes(batch, 0.5, seed=0, number=0)
        policy = BFTQ(learner).fit(parts.learned, seed=0)
        HeldOut(parts.held_out, learner, 0, "cpu").prediction(policy, 0)
        return seen

    return settings


SMALL = KernelModel(5)


@pytest.mark.parametrize(
    ("changes", "stages"),
    [
        ({"stages": "none"}, "shared"),
        ({"stages": "shared", "model": SMALL}, "shared"),
    ],
)
def test_it_is_evaluated_step_by_step_where_episodes_end(settings_of, changes, stages):
    learner = replace(QUICK, valuation="self", cost_gamma=0.5, **changes)
    taken = settings_of(learner)
    assert taken["stages"] == stages
    assert (taken["gamma"], taken["cost_gamma"]) == (1.0, 0.5)
    assert taken["n_budgets"] == learner.n_budgets
    assert taken["model"] == learner.model


def test_it_is_iterated_where_episodes_are_cut_or_long_or_have_no_steps(settings_of, log):
    plain = replace(QUICK, valuation="self", gamma=0.5)
    cut = log.to_arrays() | {"terminal": np.zeros(len(log), bool)}
    late = log.to_arrays() | {"step": np.where(log.step == 0, 0, log.step + 60)}
    for columns in (cut, late):
        batch = TransitionBatch.from_arrays(columns, n_actions=5)
        assert settings_of(plain, batch)["stages"] == "none"
    assert settings_of(plain, without(log, "step"))["stages"] == "none"


def test_a_network_is_evaluated_by_a_kernel(settings_of):
    network = replace(LEARNER, model=FrontierNet((8,)), regression=Regression(steps=3))
    assert settings_of(network)["model"] == SMOOTH


def test_a_policy_without_a_dial_is_predicted_too(log):
    network = FrontierNet((8,), "free")
    learner = FTQConfig(gamma=1.0, model=network, regression=Regression(steps=3), iterations=2)
    parts = split_episodes(log, 0.5, seed=0, number=0)
    policy = bmdp.FTQ(learner).fit(parts.learned, seed=0)
    record = HeldOut(parts.held_out, learner, 0, "cpu").prediction(policy, 0)
    assert np.ptp(record["cost"]) == 0
