"""`bmdp.fit` where some actions are not available: the clinic raises if one is played.

Treating at every visit earns 3. Operating wherever that can be done earns 2 more a visit, for a
cost of 1: the best is 3 + 2 b at budgets b from 0 to 1.5.
"""

import numpy as np
import pytest

import bmdp
import masks
from bmdp.envs.slots import find_spec
from bmdp.learn import EnvConfig, Exploration, TrainingSpec, practice
from bmdp.learn.candidates import Lesson, Recipe, learned
from bmdp.learn.collect import collect
from bmdp.learn.evidence import Player
from bmdp.learn.natures import nature_of
from bmdp.learn.practice import Practice, practised
from bmdp.learn.shelf import Shelf
from bmdp.models import ForestModel, TableModel
from bmdp.policies import UniformPolicy
from masks import BATCHED, SINGLE

masks.register()
BUDGETS = np.array([0.0, 0.5, 1.0, 1.5])


def log(n=1_500):
    return collect(
        UniformPolicy(3, 0.0, 1.0), find_spec(BATCHED), range(n), budgets=np.zeros(n), seed=0
    )


def assert_best(policy, env=SINGLE, atol=0.12):
    found = bmdp.evaluate(policy, env, budgets=BUDGETS, n_episodes=2_000, seed=7)
    np.testing.assert_allclose(found.cost_mean, BUDGETS, atol=atol)
    np.testing.assert_allclose(found.reward_mean, 3 + 2 * found.cost_mean, atol=0.05)


@pytest.mark.parametrize("env", [SINGLE, BATCHED])
def test_it_explores_and_learns_by_playing(env):
    fitted = bmdp.fit(env, episodes=1_500, minutes=0.5)
    assert_best(fitted.policy, env)
    assert fitted.forecast.reward[-1] == pytest.approx(6.0, abs=0.4)
    assert fitted.forecast.cost[-1] == pytest.approx(1.5, abs=0.2)


def test_it_learns_from_a_log():
    fitted = bmdp.fit(log(), gamma=1.0)
    assert_best(fitted.policy)
    assert fitted.forecast.reward[-1] == pytest.approx(6.0, abs=0.4)
    assert fitted.forecast.cost[-1] == pytest.approx(1.5, abs=0.2)


def test_a_policy_is_calibrated():
    config = bmdp.LagrangianConfig(gamma=1.0, model=TableModel())
    dial = bmdp.LagrangianFTQ(config).fit(log(), seed=0).dial
    policy = bmdp.calibrate(dial, SINGLE, confidence=0.9, n_episodes=500, seed=0)
    found = bmdp.evaluate(policy, BATCHED, budgets=[1.0], n_episodes=2_000, seed=1)
    assert 0.5 < found.cost_mean[0] <= 1.0
    np.testing.assert_allclose(found.reward_mean, 3 + 2 * found.cost_mean, atol=0.05)


def test_the_paper_s_exploration_keeps_to_masks():
    learner = bmdp.BFTQConfig(gamma=1.0, budget_range=(0.0, 1.5), n_budgets=7, model=TableModel())
    spec = TrainingSpec(EnvConfig(SINGLE), learner, Exploration(rounds=2, episodes=400))
    policy = bmdp.explore(spec, seed=0).policy
    found = bmdp.evaluate(policy, SINGLE, budgets=[0.0, 1.5], n_episodes=1_000, seed=7)
    assert found.cost_mean[0] == 0
    np.testing.assert_allclose(found.reward_mean, 3 + 2 * found.cost_mean, atol=0.3)


def course_of(lesson, dial):
    how = Practice(Player(find_spec(BATCHED), 1.0, 0), 60, 60_000, 60.0, 1e-5)
    course = practice._Course(dial, lesson, how, 2_000)
    course.imitate(dial)
    return course


def small_lesson():
    batch = log(500)
    lesson = Lesson(batch, nature_of(batch, 1.0), 1.0, 0, "cpu")
    return lesson, learned(Recipe("table", TableModel()), lesson, np.array([4.0, 0.0]))


def test_what_an_actor_learns_from_is_as_likely_as_when_it_was_played(monkeypatch):
    course, ratios = course_of(*small_lesson()), []
    real = practice.clipped_gain
    monkeypatch.setattr(
        practice, "clipped_gain", lambda ratio, gain: (ratios.append(ratio), real(ratio, gain))[1]
    )
    course.play(0.0)
    np.testing.assert_allclose(ratios[0].detach(), 1.0, atol=1e-4)


def test_an_actor_imitates_what_a_dial_does_among_available_actions():
    lesson, dial = small_lesson()
    course = course_of(lesson, dial)
    states, there = lesson.starts()
    for step in range(3):
        known = there if step < 2 else there & [False, True, True]
        at = np.full_like(states, step)
        theirs, ours = (p.at_step(step).points(at, known) for p in (dial.policy, course.dial()))
        np.testing.assert_array_equal(ours.actions, theirs.actions)
        np.testing.assert_allclose(ours.rewards.mean(0), theirs.rewards.mean(0), atol=0.2)
        np.testing.assert_allclose(ours.costs.mean(0), theirs.costs.mean(0), atol=0.1)


@pytest.mark.slow
def test_practice_keeps_to_masks_and_gets_better():
    """It begins with a dial of a few episodes, and learns when to operate."""
    spec, batch = find_spec(BATCHED), log(60)
    lesson = Lesson(batch, nature_of(batch, 1.0), 1.0, 0, "cpu")
    dial = learned(Recipe("forest", ForestModel(trees=5)), lesson, np.array([4.0, 1.0, 0.0]))
    how = Practice(Player(spec, 1.0, 0), first=60, n_episodes=60_000, seconds=60.0, pace=1e-5)
    found, n_played = practised(dial, lesson, how, Shelf(None))
    assert n_played > 10_000
    last = len(found.policy.prices) - 1
    played = bmdp.evaluate(found.policy, BATCHED, budgets=[0, last], n_episodes=1_000, seed=3)
    np.testing.assert_allclose(played.reward_mean, [3.0, 6.0], atol=0.2)
    np.testing.assert_allclose(played.cost_mean, [0.0, 1.5], atol=0.1)
    starts, there = lesson.starts()
    points = found.policy.at_step(0).points(starts, there)
    assert points.rewards[:, -1].mean() == pytest.approx(6.0, abs=0.5)
