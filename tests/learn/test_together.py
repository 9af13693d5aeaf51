"""Seeds that are trained together, against the same seeds one by one."""

import json
from dataclasses import replace

import numpy as np
import pytest

from batches import bandit, chain
from bmdp import BFTQ, BFTQConfig, ConfigError, DataError, FTQConfig, TransitionBatch, preset
from bmdp.learn import explore, explore_together, fit_together
from bmdp.models import EncoderNet, FrontierNet, KernelModel, Regression
from devices import needs_gpu
from scripts import script
from training import SPEC, told, with_learner

NETWORKS = {"encoder": EncoderNet((16, 8), (4,)), "frontier": FrontierNet((16,), "monotone")}
REGRESSIONS = {
    "plain": Regression(steps=25, learning_rate=0.01),
    "restart": Regression(steps=25, start="restart"),
    "forgetful": Regression(steps=25, optimiser="adamw", weight_decay=0.01, keep_moments=False),
    "cosine": Regression(
        steps=25, start="restart", keep_moments=False, schedule="cosine", clip=0.1
    ),
}
SEEDS = (7, 3, 5)


def config(**changes):
    settings = {
        "gamma": 1.0,
        "n_budgets": 5,
        "model": NETWORKS["encoder"],
        "regression": REGRESSIONS["plain"],
        "iterations": 3,
    }
    return BFTQConfig(**(settings | changes))


def batches(sizes=(60, 90, 40)):
    """Data of different sizes and scales, one for each seed."""
    found = []
    for i, n in enumerate(sizes):
        columns = chain(n, seed=i).to_arrays()
        columns |= {name: columns[name] * (1 + i) for name in ("state", "next_state", "reward")}
        found.append(TransitionBatch.from_arrays(columns, n_actions=2))
    return found


def assert_same_policies(together, alone, data, tolerance=1e-4):
    assert len(together) == len(alone) == len(data)
    for one, other, batch in zip(together, alone, data, strict=True):
        values = zip(one.q_function(batch.state), other.q_function(batch.state), strict=True)
        for found, expected in values:
            np.testing.assert_allclose(found, expected, atol=tolerance)


def both_ways(settings, data, device="cpu"):
    """Policies and records of seeds that are fitted together, and of the same alone."""
    records, alone_records = [], []
    together = fit_together(settings, data, seeds=SEEDS, device=device, on_record=records.append)
    alone = []
    for batch, seed in zip(data, SEEDS, strict=True):

        def note(record, seed=seed):
            alone_records.append({"seed": seed, **record})

        alone.append(BFTQ(settings).fit(batch, seed=seed, device=device, on_record=note))
    return (together, alone), (records, alone_records)


def assert_same_records(records, expected):
    in_order = sorted(records, key=lambda record: SEEDS.index(record["seed"]))
    assert [list(record) for record in in_order] == [list(record) for record in expected]
    for found, wanted in zip(told(in_order), told(expected), strict=True):
        assert found == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("model", NETWORKS.values(), ids=NETWORKS.keys())
@pytest.mark.parametrize("valuation", ["self", "crossed"])
def test_each_seed_learns_and_records_what_it_does_alone(model, valuation):
    data = batches()
    policies, records = both_ways(config(model=model, valuation=valuation), data)
    assert_same_policies(*policies, data)
    assert_same_records(*records)
    assert [record["seed"] for record in records[0]] == [*SEEDS] * 3


@pytest.mark.parametrize("regression", REGRESSIONS.values(), ids=REGRESSIONS.keys())
def test_every_regression_is_that_of_a_seed_alone(regression):
    data = batches()
    policies, _ = both_ways(config(regression=regression, folds=3), data)
    assert_same_policies(*policies, data)


def test_data_of_one_seed_mean_nothing_to_the_others():
    data, other = batches(), batches()
    other[1] = chain(200, seed=9)
    alone = config(valuation="self")  # two models turn rounding into other choices
    one, two = (fit_together(alone, d, seeds=SEEDS, device="cpu") for d in (data, other))
    assert_same_policies(one[::2], two[::2], data[::2])
    state = data[1].state
    assert np.abs(one[1].q_function(state)[0] - two[1].q_function(state)[0]).max() > 1e-2


def test_each_seed_stops_when_its_own_targets_no_longer_change():
    data = batches()
    policies, records = both_ways(config(iterations=9, stop_delta=0.3), data)
    assert_same_policies(*policies, data)
    assert_same_records(*records)
    lengths = {sum(record["seed"] == seed for record in records[0]) for seed in SEEDS}
    assert len(lengths) > 1
    assert max(lengths) < 9


def test_one_seed_is_enough():
    data = batches()[:1]
    (found,) = fit_together(config(), data, seeds=[3], device="cpu")
    assert_same_policies([found], [BFTQ(config()).fit(data[0], seed=3, device="cpu")], data)


@needs_gpu
@pytest.mark.parametrize("model", NETWORKS.values(), ids=NETWORKS.keys())
def test_on_a_gpu_each_seed_learns_what_it_does_alone(model):
    data = batches()
    policies, records = both_ways(config(model=model), data, "cuda")
    assert_same_policies(*policies, data)
    assert_same_records(*records)


@needs_gpu
@pytest.mark.parametrize("model", NETWORKS.values(), ids=NETWORKS.keys())
def test_a_gpu_and_the_cpu_fit_the_same(model):
    """To rewards and costs alone: what vertices are chosen next may depend on rounding."""
    data, settings = batches((700, 900, 40)), config(model=model, iterations=1)
    found = [fit_together(settings, data, seeds=SEEDS, device=on) for on in ("cuda", "cpu")]
    assert_same_policies(*found, data, tolerance=1e-3)


def test_the_first_round_is_that_of_each_seed_alone():
    spec = replace(SPEC, exploration=replace(SPEC.exploration, rounds=1))
    together = explore_together(spec, seeds=SEEDS, device="cpu")
    alone = [explore(spec, seed=seed, device="cpu") for seed in SEEDS]
    for one, other in zip(together, alone, strict=True):
        for name, column in other.batch.to_arrays().items():
            np.testing.assert_array_equal(one.batch.to_arrays()[name], column)
    data = [one.batch for one in alone]
    assert_same_policies([t.policy for t in together], [a.policy for a in alone], data)


def test_rounds_go_on_from_what_each_seed_has_played():
    records = []
    results = explore_together(SPEC, seeds=(7, 3), device="cpu", on_record=records.append)
    for seed, result in zip((7, 3), results, strict=True):
        assert result.records == tuple(r for r in records if r["seed"] == seed)
        rounds = [(r["kind"], r["round"]) for r in result.records]
        of_round = [("collection", 0), ("iteration", 0), ("iteration", 0)]
        assert rounds == of_round + [(kind, 1) for kind, _ in of_round]
        assert len(np.unique(result.batch.episode)) == 40
        alone = explore(SPEC, seed=seed, device="cpu")
        np.testing.assert_array_equal(result.batch.action, alone.batch.action)
        assert_same_policies([result.policy], [alone.policy], [alone.batch])


def test_a_bonus_is_in_the_scale_of_each_seed():
    how = replace(SPEC.exploration, bonus="count", weight=1.0)
    spec = replace(SPEC, exploration=how)
    (result, _) = explore_together(spec, seeds=(7, 3), device="cpu")
    alone = explore(spec, seed=7, device="cpu")
    np.testing.assert_array_equal(result.batch.action, alone.batch.action)
    assert_same_policies([result.policy], [alone.policy], [alone.batch])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": KernelModel()}, "model must be an EncoderNet or a FrontierNet; got KernelModel"),
        ({"stages": "own"}, "stages must be 'none' where seeds are fitted together; got 'own'"),
        ({"regression": Regression(batch_size=8)}, "batch_size must be None .*; got 8"),
        ({"regression": Regression(stop_loss=0.1)}, "stop_loss must be None .*; got 0.1"),
        ({"regression": Regression(held_out=0.2)}, "held_out must be 0.0 .*; got 0.2"),
    ],
)
def test_settings_that_do_not_keep_seeds_apart_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        fit_together(config(**settings), batches(), seeds=SEEDS)
    with pytest.raises(ConfigError, match=message):
        explore_together(with_learner(**settings), seeds=SEEDS)


@pytest.mark.parametrize("seeds", [[], [1, 2, 1]])
def test_seeds_are_different(seeds):
    with pytest.raises(ConfigError, match="seeds must be at least one, and all different"):
        fit_together(config(), batches()[: len(seeds)], seeds=seeds)
    with pytest.raises(ConfigError, match="seeds must be at least one, and all different"):
        explore_together(SPEC, seeds=seeds)


def test_data_and_seeds_must_fit_each_other():
    with pytest.raises(ConfigError, match="got 3 batches and 2 seeds"):
        fit_together(config(), batches(), seeds=[1, 2])
    data = [bandit(8), TransitionBatch.from_arrays(bandit(8).to_arrays(), n_actions=3)]
    with pytest.raises(DataError, match=r"one number of actions; got .* \(2, 2\), \(2, 3\)"):
        fit_together(config(), data, seeds=[1, 2])


def test_episodes_cannot_be_held_out():
    with pytest.raises(ConfigError, match="held_out must be 0 where seeds explore together"):
        explore_together(replace(SPEC, held_out=0.3), seeds=[1])


def test_fitted_q_iteration_is_refused():
    spec = replace(preset("paper-corridors-ftq"), learner=FTQConfig(gamma=1.0))
    with pytest.raises(ConfigError, match="by BFTQ alone; got FTQConfig"):
        explore_together(spec, seeds=[1])


def test_the_benchmark_measures_stacks_of_both_networks(tmp_path):
    out = tmp_path / "together.json"
    script("benchmarks/together.py").main(["--quick", "--device=cpu", "--out", str(out)])
    rows = json.loads(out.read_text())["step"]
    names = [(row["network"], row["networks"]) for row in rows]
    assert names == [(name, n) for name in ("EncoderNet", "FrontierNet") for n in (1, 6, 20)]
    assert all(row["ratio"] == 1 for row in rows if row["networks"] == 1)
