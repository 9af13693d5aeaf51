"""Settings of runs: as JSON, changed one by one, and refused by name."""

import json
import math
from dataclasses import dataclass, replace

import pytest

from bmdp import ConfigError
from bmdp.learn import (
    Backward,
    BFTQConfig,
    EnvConfig,
    Exploration,
    FTQConfig,
    Iterations,
    LagrangianConfig,
    TrainingSpec,
    preset,
)
from bmdp.learn.presets import PRESETS
from bmdp.learn.spec import from_json, to_json, with_env_setting, with_setting
from bmdp.models import (
    EncoderNet,
    ForestModel,
    FrontierNet,
    KernelModel,
    LinearModel,
    Regression,
    TableModel,
)
from bmdp.settings import plain
from training import SPEC


def there_and_back(spec):
    return from_json(json.loads(json.dumps(to_json(spec), allow_nan=False)))


def of_log(learner, held_out=0.0):
    """Settings of a run that learns from a log."""
    return TrainingSpec(None, learner, None, held_out)


# As JSON


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_comes_back_as_it_was(name):
    assert there_and_back(preset(name)) == preset(name)


@pytest.mark.parametrize(
    "model",
    [
        EncoderNet((8, 9), (3,), "code", labels="stored", n_labels=2),
        FrontierNet((5,), "free", regression=Regression(steps=7, batch_size=3, start="restart")),
        KernelModel(7, (0.5,), (0.1, 1.0)),
        LinearModel("quadratic", 0.5),
        ForestModel(7, 3),
        TableModel(),
    ],
)
def test_every_model_comes_back_as_it_was(model):
    spec = of_log(BFTQConfig(gamma=0.5, model=model, budget_range=(-1, 3)))
    back = there_and_back(spec)
    assert back == spec
    assert isinstance(back.learner.budget_range, tuple)


@pytest.mark.parametrize(
    "schedule", [None, Iterations(), Iterations(7, 0.5, 0.25), Backward(), Backward("shared")]
)
def test_every_schedule_comes_back_as_it_was(schedule):
    spec = of_log(BFTQConfig(gamma=0.5, schedule=schedule, costs_from_zero=True))
    assert there_and_back(spec) == spec


def test_numbers_that_json_does_not_have_come_back():
    spec = of_log(BFTQConfig(gamma=0.5, schedule=Iterations(stop_loss=math.inf)))
    assert there_and_back(spec) == spec


def test_prices_come_back_as_they_were():
    learner = LagrangianConfig(gamma=0.5, model=KernelModel(7), prices=(math.inf, 2, 0))
    for changes in ({}, {"plays": "carried"}, {"prices": ()}):
        spec = of_log(replace(learner, **changes), held_out=0.25)
        assert there_and_back(spec) == spec


def test_settings_of_an_environment_have_their_lists_back_as_tuples():
    spec = with_setting(SPEC, 'env.settings={"noise_std": [0.1, 0.2]}')
    assert spec.env == EnvConfig("corridors", {"noise_std": (0.1, 0.2)})
    assert there_and_back(spec) == spec


def test_what_is_not_there_has_its_default():
    learner = {"kind": "FTQConfig", "gamma": 1}
    assert from_json({"env": None, "learner": learner, "exploration": None}) == of_log(
        FTQConfig(gamma=1.0)
    )


def test_settings_that_were_written_before_there_were_others_are_read():
    old = to_json(preset("two-way"))
    for name in ("optimism", "count_bonus", "move"):
        del old["exploration"][name]
    for part, name in ((old["learner"], "caution"), (old, "held_out")):
        del part[name]
    assert from_json(old) == preset("two-way")


def test_what_json_cannot_say_is_refused_by_name():
    @dataclass(frozen=True)
    class Mine:
        """A model that nothing has registered."""

        def empty(self, sizes):
            raise NotImplementedError

    with pytest.raises(ConfigError, match=r"learner\.model .*@register_regressor.* Mine"):
        to_json(of_log(BFTQConfig(gamma=1.0, model=Mine())))
    spec = replace(SPEC, env=EnvConfig("corridors", {"noise": {1}}))
    with pytest.raises(ConfigError, match=r"env\.settings\.noise .*JSON.* set"):
        to_json(spec)


def test_kinds_are_written_wherever_learners_schedules_and_models_stand():
    learner = LagrangianConfig(gamma=1.0, model=LinearModel(), schedule=Backward())
    found = plain((learner, SPEC.exploration))
    assert found[0]["kind"] == "LagrangianConfig"
    assert found[0]["model"]["kind"] == "LinearModel"
    assert found[0]["schedule"] == {"kind": "Backward", "last_step": "own"}
    assert "kind" not in found[1]


LOG, BAD = {"env": None, "exploration": None}, {"lengths": [1, "x"]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "settings must be settings of TrainingSpec; got 3"),
        ({}, "env must be given for TrainingSpec"),
        ({"learner": {"kind": "BFTQConfig"}, **LOG}, r"learner\.gamma must be given.* BFTQConfig"),
        ({"learner": {"gamma": 1}, **LOG}, "learner .*BFTQConfig, FTQConfig, .*kind; got {'gamma'"),
        ({"learner": {"kind": "os.system"}, **LOG}, r"learner .*BFTQConfig.*; got 'os\.system'"),
        (
            {
                "learner": {
                    "kind": "BFTQConfig",
                    "gamma": 1,
                    "model": {"kind": "KernelModel"} | BAD,
                },
                **LOG,
            },
            r"learner\.model\.lengths\[1\] must be a number; got 'x'",
        ),
        ({"lerner": 1}, "TrainingSpec has no setting 'lerner'. Did you mean 'learner'?"),
    ],
)
def test_what_is_no_specification_is_refused(value, message):
    with pytest.raises(ConfigError, match=message):
        from_json(value)


# Single settings


@pytest.mark.parametrize(
    ("text", "where", "value"),
    [
        ("learner.gamma=0.9", "learner.gamma", 0.9),
        ("learner.gamma=1", "learner.gamma", 1.0),
        ("learner.schedule.n=1e2", "learner.schedule.n", 100),
        ("learner.schedule=Backward", "learner.schedule", Backward()),
        ("learner.schedule=null", "learner.schedule", None),
        ("learner.cost_gamma=null", "learner.cost_gamma", None),
        ("learner.cost_gamma=0.5", "learner.cost_gamma", 0.5),
        ("learner.budget_range=[0, 2]", "learner.budget_range", (0.0, 2.0)),
        ("learner.ensemble=1", "learner.ensemble", 1),
        ("learner.costs_from_zero=true", "learner.costs_from_zero", True),
        ("learner.cost_cap=1.5", "learner.cost_cap", 1.5),
        ("learner.cost_cap=null", "learner.cost_cap", None),
        ("learner.model=FrontierNet", "learner.model", FrontierNet()),
        ('learner.model={"kind": "TableModel"}', "learner.model", TableModel()),
        ("learner.model.hidden=[3, 4]", "learner.model.hidden", (3, 4)),
        (
            "learner.model.regression.keep_moments=false",
            "learner.model.regression.keep_moments",
            False,
        ),
        ("learner.model.labels=stored", "learner.model.labels", "stored"),
        ("learner.model.labels=products", "learner.model.labels", "products"),
        ("learner.caution=-1", "learner.caution", -1.0),
        ("exploration.rounds=3", "exploration.rounds", 3),
        ("exploration.optimism=1", "exploration.optimism", 1.0),
        ("exploration.count_bonus=2", "exploration.count_bonus", 2.0),
        ("exploration.decay_by=step", "exploration.decay_by", "step"),
        ("exploration.budgets=top", "exploration.budgets", "top"),
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
        ("learner.model.regression.zzz=1", r"Regression has no setting 'zzz'. There are steps, .*"),
        ("learner.model=Frontier", "got 'Frontier'. Did you mean 'FrontierNet'?"),
        ("learner.model=7", "learner.model must be one of .*EncoderNet.*; got 7"),
        ("learner.gamma=high", "learner.gamma must be a number; got 'high'"),
        ("learner.gamma=true", "learner.gamma must be a number; got True"),
        ("learner.gamma=1.5", "learner.gamma must be from 0 to 1; got 1.5"),
        ("learner.schedule.n=2.5", "learner.schedule.n must be a whole number; got 2.5"),
        ("learner.schedule=Sideways", "learner.schedule must be one of Iterations, Backward"),
        ("learner.schedule.last_step=own", "'last_step'. Backward has .*learner.schedule=Backward"),
        ("learner.budget_range=1", r"learner.budget_range must be a list such as \[1, 2\]; got 1"),
        ("learner.budget_range=[0, 1, 2]", r"learner.budget_range .* 2 .* 3; got \(0, 1, 2\)"),
        ("learner.budget_range=[0]", r"learner.budget_range\[1\] is missing"),
        ('learner.budget_range=[0, "x"]', r"learner.budget_range\[1\] must be a number; got 'x'"),
        (
            "learner.model.labels=both",
            "learner.model.labels must be 'uniform', 'stored', 'fixed' or 'products'; got 'both'",
        ),
        ("exploration.optimism=-1", "exploration.optimism must be from 0 on; got -1.0"),
        ("learner.model.regression.keep_moments=1", "keep_moments must be true or false; got 1"),
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


@pytest.mark.parametrize("name", ["corridors", "bmdp/Corridors-v0", "Mine-v0"])
def test_a_setting_of_an_environment_is_changed_without_a_learner(name):
    env = EnvConfig(name, {"observe_time": True})
    assert with_env_setting(env, "env.height=5") == EnvConfig(name, env.settings | {"height": 5})
    assert with_env_setting(env, "env.id=two-way").id == "two-way"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("env.heigt=5", "corridors has no setting 'heigt'. Did you mean 'height'?"),
        ("learner.gamma=1", "for the environment here, env.a=b; got 'learner.gamma=1'"),
        ("env=3", "env.a=b; got 'env=3'"),
        ("env.id=3", "env.id must be a word; got 3"),
    ],
)
def test_what_is_no_setting_of_an_environment_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        with_env_setting(EnvConfig("corridors"), text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": "x"}, "gamma .*; got 'x'"),
        ({"gamma": True}, "gamma .*; got True"),
        ({"gamma": 1.0, "budget_range": 3}, "budget_range .*; got 3"),
        ({"gamma": 1.0, "budget_range": (0, "x")}, r"budget_range .*; got \(0, 'x'\)"),
        ({"gamma": 1.0, "budget_range": (0, 1, 2)}, r"budget_range .*; got \(0, 1, 2\)"),
        ({"gamma": 1.0, "slope_cap": None}, "slope_cap .*; got None"),
        ({"gamma": 1.0, "ensemble": 2.0}, r"ensemble .*; got 2\.0"),
    ],
)
def test_a_wrong_value_is_refused_in_python_too(settings, message):
    with pytest.raises(ConfigError, match=message):
        BFTQConfig(**settings)


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
    "schedule": Iterations(3),
    "ensemble": 4,
}


@pytest.mark.parametrize("cls", [BFTQConfig, FTQConfig, LagrangianConfig])
def test_a_learner_of_another_kind_keeps_what_was_set_of_what_both_have(cls):
    spec = of_log(BFTQConfig(**KEPT, n_budgets=5), held_out=0.25)
    found = set_all(spec, "learner=LagrangianConfig", f"learner={cls.__name__}")
    assert found == of_log(cls(**KEPT), held_out=0.25)


def test_a_learner_of_the_same_kind_stays_as_it_is():
    spec = of_log(BFTQConfig(**KEPT, n_budgets=5))
    assert set_all(spec, "learner=BFTQConfig") == spec


def test_settings_of_its_own_are_reached_after_the_change():
    spec = set_all(
        of_log(BFTQConfig(gamma=1.0)),
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


@pytest.mark.parametrize("kind", ["FTQConfig", "LagrangianConfig"])
def test_a_learner_that_explores_is_changed_too(kind):
    linear = with_setting(SPEC, "learner.model=LinearModel")
    assert set_all(linear, f"learner={kind}").learner.schedule == SPEC.learner.schedule


def test_a_network_that_takes_a_budget_cannot_be_kept_for_prices():
    with pytest.raises(ConfigError, match="must not take its heads for budgets"):
        with_setting(SPEC, "learner=FTQConfig")


@pytest.mark.parametrize(
    ("env", "exploration"), [(None, Exploration()), (EnvConfig("corridors"), None)]
)
def test_a_run_explores_or_learns_from_a_log_and_nothing_between(env, exploration):
    with pytest.raises(ConfigError, match="needs both env and exploration, or neither for a log"):
        TrainingSpec(env, BFTQConfig(gamma=1.0), exploration)


@pytest.mark.parametrize("text", ["env.id=corridors", "exploration.rounds=3"])
def test_a_log_has_no_settings_of_exploring(text):
    with pytest.raises(ConfigError, match="the run learns from a log"):
        with_setting(of_log(BFTQConfig(gamma=1.0)), text)


def test_a_schedule_that_is_chosen_by_itself_has_no_settings_yet():
    with pytest.raises(ConfigError, match=r"None.* 'n'\. .*learner\.schedule=Iterations before"):
        with_setting(of_log(BFTQConfig(gamma=1.0)), "learner.schedule.n=3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learner=Lagrangian", "got 'Lagrangian'. Did you mean 'LagrangianConfig'?"),
        ("learner=FTQConfg", "got 'FTQConfg'. Did you mean 'FTQConfig'?"),
        ("learner=KernelModel", "BFTQConfig, FTQConfig, LagrangianConfig; got 'KernelModel'"),
        ("learner=7", "must be one of BFTQConfig, FTQConfig, LagrangianConfig, .*; got 7"),
        ("learner.plays=carried", "LagrangianConfig has it: say learner=LagrangianConfig before"),
        ("learner.plys=carried", "BFTQConfig has no setting 'plys'"),
    ],
)
def test_a_wrong_kind_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        with_setting(of_log(BFTQConfig(gamma=1.0)), text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learner.plays=dice", "learner.plays must be 'carried' or 'mixture'; got 'dice'"),
        ("learner.n_budgets=5", "has no setting 'n_budgets'. BFTQConfig has it"),
        ("learner.prices=[1, -1]", "prices must be different numbers from 0 on"),
        ("held_out=1", "held_out must be from 0 to below 1"),
    ],
)
def test_a_wrong_setting_of_prices_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        with_setting(of_log(LagrangianConfig(gamma=1.0)), text)
