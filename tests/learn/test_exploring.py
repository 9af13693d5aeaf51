"""Exploration: epsilon by episode, actions that are held, and what a round collects."""

import numpy as np
import pytest

from bmdp import ConfigError, EpisodeStreams, TrainingSpec, explore, preset
from bmdp.envs import ScriptedPolicy
from bmdp.learn import BFTQConfig, EnvConfig, Exploration, FTQConfig
from bmdp.policies.exploring import ExploringPolicy
from bmdp.learn.presets import PRESETS
from bmdp.models import EncoderNet, FrontierNet, Regression
from bmdp.policies import RandomBudgetedPolicy

RANDOM = RandomBudgetedPolicy(5, 0.0, 1.0)
SAFE = ScriptedPolicy("corridors/safe")


def actions_of(policy, n=4000, n_steps=6, first=0):
    """Actions `[n_steps, n]` at a fixed state where the greedy one goes left."""
    states = np.tile([3.5, 0.5], (n, 1))
    streams = EpisodeStreams.named(0, "test", range(first, first + n))
    tracker = policy.start(states, 0.5, streams)
    rows = []
    for _ in range(n_steps):
        rows.append(tracker.decide(states).action)
        tracker.observe(np.zeros(n), states, np.zeros(n, bool))
    return np.array(rows)


def test_epsilon_falls_from_episode_to_episode():
    policy = ExploringPolicy(SAFE, RANDOM, decay=0.01, floor=0.1)
    assert policy.epsilon(np.array([0, 100, 10**6])).tolist() == pytest.approx(
        [1, 0.1 + 0.9 * np.exp(-1), 0.1]
    )
    late = actions_of(policy, first=10**6)
    assert (late == 3).mean() == pytest.approx(0.9 + 0.1 / 5, abs=0.01)
    early = actions_of(ExploringPolicy(SAFE, RANDOM, decay=0.0))
    assert np.bincount(early.ravel(), minlength=5) / early.size == pytest.approx(
        np.full(5, 0.2), abs=0.015
    )


def test_random_actions_may_be_held():
    """Held for 1, 2 or 3 steps: two in a row are the same more often than one time in five."""
    free = actions_of(ExploringPolicy(RANDOM, RANDOM, decay=0.0, hold=1))
    held = actions_of(ExploringPolicy(RANDOM, RANDOM, decay=0.0, hold=3))
    assert (free[1:] == free[:-1]).mean() == pytest.approx(0.2, abs=0.015)
    # At the second step: held with probability 2/3, else drawn anew.
    assert (held[1] == held[0]).mean() == pytest.approx(2 / 3 + 1 / 3 / 5, abs=0.03)
    assert (held[3] == held[0]).mean() == pytest.approx(0.2, abs=0.03)


def budgets_of(policy, n=4000, n_steps=6):
    """Budgets held after each step `[n_steps, n]`, of episodes that begin with 0.5."""
    states = np.tile([3.5, 0.5], (n, 1))
    tracker = policy.start(states, 0.5, EpisodeStreams.named(0, "test", range(1, n + 1)))
    rows = []
    for _ in range(n_steps):
        tracker.decide(states)
        tracker.observe(np.zeros(n), states, np.arange(n) < 10)
        rows.append(tracker.budgets)
    return np.array(rows)


def test_the_dial_may_be_moved_to_random_budgets_at_any_step():
    """The greedy policy hands its budget on as it is; the first 10 episodes end at once."""
    never = budgets_of(ExploringPolicy(SAFE, RANDOM, floor=0.0, decay=1e9))
    assert (never == 0.5).all()
    policy = ExploringPolicy(SAFE, RANDOM, floor=0.0, decay=1e9, move=0.25)
    found = budgets_of(policy)
    changed = np.diff(np.vstack([np.full(4000, 0.5), found]), axis=0) != 0
    assert changed.mean(axis=1) == pytest.approx(np.full(6, 0.25), abs=4 * 0.43 / np.sqrt(4000))
    drawn = found[changed]
    low, high = policy.budget_range
    assert np.histogram(drawn, 5, (low, high))[0] / len(drawn) == pytest.approx(
        np.full(5, 0.2), abs=0.03
    )
    assert not changed[1:, :10].any()
    still = ExploringPolicy(SAFE, RANDOM, floor=0.0, decay=1e9)
    assert (actions_of(policy, first=1) == actions_of(still, first=1)).all()


def test_what_an_episode_does_is_its_own_affair():
    policy = ExploringPolicy(SAFE, RANDOM, decay=0.001, hold=2, move=0.3)
    together, alone = actions_of(policy, n=50), actions_of(policy, n=1, first=30)
    assert (together[:, 30] == alone[:, 0]).all()


def test_bad_settings_are_refused():
    for settings in ({"decay": -1.0}, {"floor": 2.0}, {"hold": 0}):
        with pytest.raises(ConfigError, match="decay must be from 0 on"):
            ExploringPolicy(SAFE, RANDOM, **settings)
    with pytest.raises(ConfigError, match="rounds must be a whole number from 1 on"):
        Exploration(rounds=0)
    for settings in (ExploringPolicy, lambda *_, **move: Exploration(**move)):
        with pytest.raises(ConfigError, match="move must be from 0 to 1"):
            settings(SAFE, RANDOM, move=1.5)


def tiny(learner):
    return TrainingSpec(
        EnvConfig("corridors", {"observe_time": True}), learner, Exploration(2, 30, hold=2)
    )


QUICK = Regression(steps=3)


@pytest.mark.parametrize(
    "learner",
    [
        BFTQConfig(
            gamma=1.0, n_budgets=5, model=EncoderNet((8,), (2,)), regression=QUICK, iterations=2
        ),
        FTQConfig(gamma=1.0, model=FrontierNet((8,), "free"), regression=QUICK, iterations=2),
    ],
    ids=["risk-sensitive", "risk-neutral"],
)
def test_rounds_add_episodes_and_learn_anew(learner):
    result = explore(tiny(learner), seed=0, device="cpu")
    batch = result.batch
    assert len(np.unique(batch.episode)) == 60
    assert batch.n_actions == 5
    assert batch.terminal.sum() == 60
    assert (np.diff(batch.episode) >= 0).all()
    kinds = [(r["kind"], r["round"]) for r in result.records]
    assert kinds == [
        ("collection", 0), ("iteration", 0), ("iteration", 0),
        ("collection", 1), ("iteration", 1), ("iteration", 1),
    ]  # fmt: skip
    again = explore(tiny(learner), seed=0, device="cpu")
    assert (again.batch.state == batch.state).all()
    other = explore(tiny(learner), seed=1, device="cpu")
    assert len(other.batch) != len(batch) or (other.batch.state != batch.state).any()
    first = batch.budget[batch.starts()]
    assert first.min() < 0.2 < 0.8 < first.max()


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_whole_specification(name):
    spec = preset(name)
    assert spec.env.spec().id.startswith("bmdp/")
    assert spec.learner.gamma == (0.9 if name.startswith(("two", "paper-driving")) else 1.0)
    assert isinstance(spec.learner, FTQConfig) == name.endswith("ftq")


def test_the_papers_tables_are_the_presets():
    corridors, dialogue = preset("paper-corridors").learner, preset("paper-slot-filling").learner
    assert corridors.model == EncoderNet((256, 128, 64), (3,), "code", "raw")
    assert corridors.regression.steps == 1000
    assert corridors.regression.weight_decay == 1e-3
    assert (corridors.iterations, corridors.n_budgets) == (12, 101)
    assert dialogue.model.encoder == (50,)
    assert (dialogue.regression.steps, dialogue.iterations) == (5000, 11)
    assert preset("paper-driving").learner.iterations == 15
    assert preset("paper-driving-ftq").learner.regression.learning_rate == 0.01


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'paper-corridors'"):
        preset("paper-corridor")
