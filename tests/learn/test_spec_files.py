import json
import math
from dataclasses import dataclass, replace

import pytest

from bmdp import ConfigError
from bmdp.learn import BFTQConfig, EnvConfig, FTQConfig, LagrangianConfig, preset
from bmdp.learn.spec import DataSpec
from bmdp.learn.presets import PRESETS
from bmdp.learn.spec import from_json, plain, to_json, with_setting
from bmdp.models import EncoderNet, FrontierNet, KernelModel, LinearModel, TableModel
from training import SPEC


def there_and_back(spec, *kind):
    return from_json(json.loads(json.dumps(to_json(spec), allow_nan=False)), *kind)


# As JSON


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_comes_back_as_it_was(name):
    assert there_and_back(preset(name)) == preset(name)


@pytest.mark.parametrize(
    "model",
    [
        EncoderNet((8, 9), (3,), "code"),
        FrontierNet((5,), "free"),
        LinearModel("quadratic", 4, 0.5),
        TableModel(),
    ],
)
def test_every_model_comes_back_as_it_was(model):
    spec = DataSpec(BFTQConfig(gamma=0.5, model=model, budget_range=(-1, 3)))
    back = there_and_back(spec, DataSpec)
    assert back == spec
    assert isinstance(back.learner.budget_range, tuple)


def test_numbers_that_json_does_not_have_come_back():
    spec = DataSpec(BFTQConfig(gamma=0.5, cost_floor=float("-inf")))
    assert there_and_back(spec, DataSpec) == spec


def test_prices_come_back_as_they_were():
    learner = LagrangianConfig(gamma=0.5, model=KernelModel(7), prices=(math.inf, 2, 0))
    for changes in ({}, {"plays": "carried"}, {"prices": ()}):
        spec = DataSpec(replace(learner, **changes), held_out=0.25)
        assert there_and_back(spec, DataSpec) == spec


def test_settings_of_an_environment_have_their_lists_back_as_tuples():
    spec = with_setting(SPEC, 'env.settings={"noise_std": [0.1, 0.2]}')
    assert spec.env == EnvConfig("corridors", {"noise_std": (0.1, 0.2)})
    assert there_and_back(spec) == spec


def test_what_is_not_there_has_its_default():
    spec = from_json({"learner": {"kind": "FTQConfig", "gamma": 1}}, DataSpec)
    assert spec == DataSpec(FTQConfig(gamma=1.0))


def test_settings_that_were_written_before_there_were_others_are_read():
    old = to_json(preset("two-way"))
    for name in ("bonus", "weight", "cell", "move"):
        del old["exploration"][name]
    for part, name in ((old["learner"], "caution"), (old, "held_out")):
        del part[name]
    assert from_json(old) == preset("two-way")


def test_what_json_cannot_say_is_refused_by_name():
    class Mine:
        covers_grid = False

    with pytest.raises(ConfigError, match=r"learner\.model must be something that JSON can say"):
        to_json(DataSpec(BFTQConfig(gamma=1.0, model=Mine())))


def test_settings_of_any_class_become_plain():
    @dataclass(frozen=True)
    class Mine:
        spec: DataSpec
        prices: tuple[float, ...]

    mine = Mine(DataSpec(BFTQConfig(gamma=1.0)), (0.0, math.inf))
    assert plain(mine) == {"spec": to_json(mine.spec), "prices": [0.0, "inf"]}
    assert plain(LagrangianConfig(gamma=1.0))["kind"] == "LagrangianConfig"
    with pytest.raises(ConfigError, match=r"prices\[1\] must be something that JSON can say"):
        plain(replace(mine, prices=(0.0, {1})))
    with pytest.raises(ConfigError, match="must be something that JSON can say; got Mine"):
        to_json(DataSpec(BFTQConfig(gamma=1.0, model=mine)))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "settings must be settings of DataSpec by name; got 3"),
        ({}, "DataSpec is not complete"),
        ({"learner": {"kind": "BFTQConfig"}}, r"learner: BFTQConfig is not complete.*gamma"),
        ({"learner": {"gamma": 1}}, "one of BFTQConfig, FTQConfig, LagrangianConfig, or settings"),
        (
            {"learner": {"kind": "os.system"}},
            "must be one of BFTQConfig, FTQConfig, LagrangianConfig; got",
        ),
        ({"lerner": 1}, "DataSpec has no setting 'lerner'. Did you mean 'learner'?"),
    ],
)
def test_what_is_no_specification_is_refused(value, message):
    with pytest.raises(ConfigError, match=message):
        from_json(value, DataSpec)


# Single settings


@pytest.mark.parametrize(
    ("text", "where", "value"),
    [
        ("learner.gamma=0.9", "learner.gamma", 0.9),
        ("learner.gamma=1", "learner.gamma", 1.0),
        ("learner.iterations=1e2", "learner.iterations", 100),
        ("learner.cost_gamma=null", "learner.cost_gamma", None),
        ("learner.cost_gamma=0.5", "learner.cost_gamma", 0.5),
        ("learner.budget_range=[0, 2]", "learner.budget_range", (0.0, 2.0)),
        ("learner.valuation=self", "learner.valuation", "self"),
        ("learner.model=FrontierNet", "learner.model", FrontierNet()),
        ('learner.model={"kind": "TableModel"}', "learner.model", TableModel()),
        ("learner.model.hidden=[3, 4]", "learner.model.hidden", (3, 4)),
        ("learner.regression.keep_moments=false", "learner.regression.keep_moments", False),
        ("learner.valuation=pessimistic", "learner.valuation", "pessimistic"),
        ("learner.caution=-1", "learner.caution", -1.0),
        ("exploration.rounds=3", "exploration.rounds", 3),
        ("exploration.bonus=count", "exploration.bonus", "count"),
        ("exploration.weight=1", "exploration.weight", 1.0),
        ("exploration.cell=2", "exploration.cell", 2.0),
        ("env.id=slot-filling", "env.id", "slot-filling"),
    ],
)
def test_a_setting_is_changed(text, where, value):
    found = with_setting(SPEC, text)
    for name in where.split("."):
        found = getattr(found, name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("name", ["env.observe_time", "env.settings.observe_time"])
def test_settings_of_the_environment_are_reached_with_and_without_their_folder(name):
    assert with_setting(SPEC, f"{name}=false").env.settings == {"observe_time": False}


def test_settings_of_a_foreign_environment_are_taken_as_they_are():
    spec = with_setting(with_setting(SPEC, "env.id=Mine-v0"), "env.anything=word")
    assert spec.env.settings == {"observe_time": True, "anything": "word"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learner.gama=0.9", "BFTQConfig has no setting 'gama'. Did you mean 'gamma'?"),
        ("lerner.gamma=0.9", "TrainingSpec has no setting 'lerner'. Did you mean 'learner'?"),
        ("env.observe_tme=true", "has no setting 'observe_tme'. Did you mean 'observe_time'?"),
        ("learner.regression.zzz=1", r"Regression has no setting 'zzz'. There are steps, .*"),
        ("learner.model=Frontier", "got 'Frontier'. Did you mean 'FrontierNet'?"),
        ("learner.model=7", "learner.model must be one of EncoderNet"),
        ("learner.gamma=high", "learner.gamma must be a number; got 'high'"),
        ("learner.gamma=true", "learner.gamma must be a number; got True"),
        ("learner.gamma=1.5", "gamma must be from 0 to 1; got 1.5"),
        ("learner.iterations=2.5", "learner.iterations must be a whole number; got 2.5"),
        ("learner.budget_range=1", r"learner.budget_range must be a list such as \[1, 2\]; got 1"),
        ("learner.budget_range=[0, 1, 2]", "learner.budget_range must be a list of 2"),
        ("learner.valuation=both", "learner.valuation must be one of crossed, pessimi"),
        ("exploration.bonus=novelty", "exploration.bonus must be one of none, count, t"),
        ("exploration.weight=-1", "weight must be finite and from 0 on; got -1.0"),
        ("learner.regression.keep_moments=1", "keep_moments must be true or false; got 1"),
        ("env.id=3", "env.id must be a word; got 3"),
        ("env.settings=3", "env.settings must be settings by name; got 3"),
        ("env.observe_time.x=3", "there is nothing inside of one"),
        ("learner.gamma.x=3", "learner.gamma is 1.0, which has no setting 'x'"),
        ("learner.gamma", "must look like learner.gamma=0.9; got 'learner.gamma'"),
        ("=1", "must look like"),
    ],
)
def test_a_wrong_setting_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        with_setting(SPEC, text)


# A learner of another kind


def set_all(spec, *texts):
    for text in texts:
        spec = with_setting(spec, text)
    return spec


KEPT = {
    "gamma": 0.5,
    "cost_gamma": 0.25,
    "budget_range": (0.0, 2.0),
    "model": TableModel(),
    "iterations": 3,
    "folds": 4,
    "stages": "shared",
}


@pytest.mark.parametrize("cls", [BFTQConfig, LagrangianConfig])
def test_a_learner_of_another_kind_keeps_what_was_set_of_what_both_have(cls):
    spec = DataSpec(BFTQConfig(**KEPT, n_budgets=5), held_out=0.25)
    found = set_all(spec, "learner=LagrangianConfig", f"learner={cls.__name__}")
    assert found == DataSpec(cls(**KEPT), held_out=0.25)
    one_price = set_all(spec, "learner=FTQConfig").learner
    shared = {name: KEPT[name] for name in ("gamma", "budget_range", "model", "iterations")}
    assert one_price == FTQConfig(**shared)


def test_a_learner_of_the_same_kind_stays_as_it_is():
    spec = DataSpec(BFTQConfig(**KEPT, n_budgets=5))
    assert set_all(spec, "learner=BFTQConfig") == spec


def test_a_model_that_was_not_chosen_is_that_of_the_kind():
    priced = set_all(DataSpec(BFTQConfig(gamma=1.0)), "learner=LagrangianConfig")
    assert priced.learner == LagrangianConfig(gamma=1.0)
    assert set_all(priced, "learner=BFTQConfig").learner.model == EncoderNet()


def test_settings_of_its_own_are_reached_after_the_change():
    spec = set_all(
        DataSpec(BFTQConfig(gamma=1.0)),
        "learner=LagrangianConfig",
        "learner.model=KernelModel",
        "learner.plays=carried",
        'learner.prices=[0, 10, "inf"]',
    )
    assert spec.learner == LagrangianConfig(
        gamma=1.0,
        model=KernelModel(),
        plays="carried",
        prices=(math.inf, 10.0, 0.0),
    )


def test_a_learner_that_explores_is_changed_too_but_not_to_one_of_prices():
    assert set_all(SPEC, "learner=FTQConfig").learner.regression == SPEC.learner.regression
    message = r"of BFTQConfig, FTQConfig; got 'LagrangianConfig'\. Exploring does not learn prices"
    with pytest.raises(ConfigError, match=message):
        with_setting(SPEC, "learner=LagrangianConfig")
    settings = to_json(SPEC) | {"learner": {"kind": "LagrangianConfig", "gamma": 1}}
    with pytest.raises(ConfigError, match=message):
        from_json(settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learner=Lagrangian", "got 'Lagrangian'. Did you mean 'LagrangianConfig'?"),
        ("learner=FTQConfg", "got 'FTQConfg'. Did you mean 'FTQConfig'?"),
        ("learner=KernelModel", "BFTQConfig, FTQConfig, LagrangianConfig; got 'KernelModel'"),
        ("learner=7", "must be one of BFTQConfig, FTQConfig, LagrangianConfig, or settings with"),
        ("learner.plays=carried", "LagrangianConfig has it: say learner=LagrangianConfig before"),
        ("learner.plys=carried", "BFTQConfig has no setting 'plys'"),
    ],
)
def test_a_wrong_kind_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        with_setting(DataSpec(BFTQConfig(gamma=1.0)), text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learner.plays=dice", "learner.plays must be one of mixture, carried"),
        ("learner.labels=stored", "has no setting 'labels'. BFTQConfig has it"),
        ("learner.prices=[1, -1]", "prices must be different numbers from 0 on"),
        ("held_out=1", "held_out must be from 0 to below 1"),
    ],
)
def test_a_wrong_setting_of_prices_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        with_setting(DataSpec(LagrangianConfig(gamma=1.0)), text)
