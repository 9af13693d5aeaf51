"""Exploration: what a round collects, and the specifications that come with the library."""

import numpy as np
import pytest

from bmdp import ConfigError, TrainingSpec, explore, preset
from bmdp.learn import BFTQConfig, EnvConfig, Exploration, FTQConfig, Iterations
from bmdp.learn.presets import PRESETS
from bmdp.models import EncoderNet, FrontierNet, Regression

QUICK = Regression(steps=3)
TWO = Iterations(2, settled=0.0)
LEARNERS = {
    "risk-sensitive": BFTQConfig(
        gamma=1.0, n_budgets=5, model=EncoderNet((8,), (2,), regression=QUICK), schedule=TWO
    ),
    "risk-neutral": FTQConfig(
        gamma=1.0, model=FrontierNet((8,), "free", regression=QUICK), schedule=TWO
    ),
}
EACH_LEARNER = pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS.keys())


def tiny(learner):
    env = EnvConfig("corridors", {"observe_time": True})
    return TrainingSpec(env, learner, Exploration(2, 30, hold=2))


@EACH_LEARNER
def test_rounds_add_episodes_and_learn_anew(learner):
    result = explore(tiny(learner), seed=0, device="cpu")
    batch = result.batch
    assert len(np.unique(batch.episode)) == 60
    assert batch.n_actions == 5
    assert batch.terminal.sum() == 60
    assert (np.diff(batch.episode) >= 0).all()
    kinds = [(record.kind, record.round) for record in result.records]
    each = ("collection", "iteration", "iteration")
    assert kinds == [(kind, number) for number in (0, 1) for kind in each]
    first = batch.budget[batch.starts()]
    assert first.min() < 0.2 < 0.8 < first.max()


@EACH_LEARNER
def test_the_seed_decides_what_is_collected(learner):
    one, again, other = (
        explore(tiny(learner), seed=seed, device="cpu").batch.state for seed in (0, 0, 1)
    )
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_wrong_settings_are_refused():
    with pytest.raises(ConfigError, match="rounds must be a whole number from 1 on"):
        Exploration(rounds=0)
    with pytest.raises(ConfigError, match="move must be from 0 to 1"):
        Exploration(move=1.5)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_whole_specification(name):
    spec = preset(name)
    assert spec.env.spec().id.startswith("bmdp/")
    assert spec.learner.gamma == (0.9 if name.startswith(("two", "paper-driving")) else 1.0)
    assert isinstance(spec.learner, FTQConfig) == name.endswith("ftq")


def test_the_papers_tables_are_the_presets():
    corridors, dialogue = preset("paper-corridors").learner, preset("paper-slot-filling").learner
    assert (corridors.model.hidden, corridors.model.encoder) == ((256, 128, 64), (3,))
    assert corridors.model.regression.steps == 1000
    assert corridors.model.regression.weight_decay == 1e-3
    assert (corridors.schedule.n, corridors.n_budgets) == (12, 101)
    assert dialogue.model.encoder == (50,)
    assert (dialogue.model.regression.steps, dialogue.schedule.n) == (5000, 11)
    assert preset("paper-driving").learner.schedule.n == 15
    assert preset("paper-driving-ftq").learner.model.regression.learning_rate == 0.01


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'paper-corridors'"):
        preset("paper-corridor")
