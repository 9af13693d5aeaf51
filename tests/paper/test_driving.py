from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import bmdp
from bmdp.envs import ScriptedPolicy
from bmdp.envs.episodes import environment_seeds
from bmdp.evaluation import measure_portfolio
from bmdp.paper import driving as experiment
from bmdp.paper.measuring import other_seed
from bmdp.paper.runner import Work
from pieces import (
    check_evaluation,
    piece,
    place,
)

SMOKE = experiment.SETTINGS["smoke"]
TESTING, ENV = SMOKE.testing, SMOKE.budgeted.env
LAMBDAS = [0, 1, 2, 3, 4, 6, 8, 10, 15, 20]  # of the paper


@pytest.fixture(scope="session")
def folder(smoke):
    return smoke("driving")


def roads():
    """An environment with the seeds of the drives that are shown."""
    env = gymnasium.make(ENV.spec(), disable_env_checker=True)
    return env, environment_seeds(3, range(TESTING.n_shown))


def test_drives_are_what_the_environment_has_for_the_same_actions(folder):
    env, seeds = roads()
    for of_budget in piece(place(folder, ""), "executions")["episodes"]:
        for seed, drive in zip(seeds, of_budget, strict=True):
            env.reset(seed=seed)
            roads_seen = [env.unwrapped._episodes.state]
            for action, reward, cost in zip(
                drive["action"], drive["reward"], drive["cost"], strict=True
            ):
                _, earned, ended, _, info = env.step(action)
                assert (reward, cost) == pytest.approx((earned, info["cost"]), abs=1e-4)
                roads_seen.append(env.unwrapped._episodes.state)
            assert ended
            n_frames = 5 * len(drive["action"]) + 1
            assert drive["dt"] == pytest.approx(0.2)
            assert len(drive["budget"]) == len(drive["action"]) + 1
            assert [car["ego"] for car in drive["cars"]] == [True] + [False] * 5
            for number, car in enumerate(drive["cars"]):
                for name in ("x", "y", "heading"):
                    assert len(car[name]) == n_frames
                    expected = [getattr(road, name)[0, number] for road in roads_seen]
                    assert car[name][::5] == pytest.approx(expected, abs=0.0051)
                crashed = [int(road.crashed[0, number]) for road in roads_seen]
                assert car.get("crashed", [0] * n_frames)[::5] == crashed


def test_prices_are_measured_with_the_discount(folder):
    found = piece(place(folder, "ftq"), "prices")
    assert found["prices"] == piece(place(folder, "ftq"), "found")["prices"][::-1]
    assert found["gamma"] == 0.9
    mixture, seed = bmdp.load_policy(place(folder, "ftq") / "policy"), other_seed(3, "prices")
    measured = measure_portfolio(mixture, ENV.spec(), n_episodes=TESTING.n_episodes, seed=seed)
    assert found["cost_mean"] == measured.costs[::-1].tolist()
    assert found["reward_mean"] == measured.rewards[::-1].tolist()
    evaluated = piece(place(folder, "ftq"), "evaluation")
    check_evaluation(evaluated, mixture, ENV, TESTING.budgets, TESTING.n_episodes, 3)


def test_scripts_are_measured(folder):
    found = piece(folder / "scripts", "scripts")
    assert found["names"] == ["idle", "slow", "less-slow", "overtake"]
    for i, name in enumerate(found["names"]):
        expected = bmdp.evaluate(
            ScriptedPolicy(f"two-way/{name}"),
            "two-way",
            budgets=[0.0],
            n_episodes=TESTING.n_episodes,
            seed=0,
        )
        for column in ("cost_mean", "reward_mean", "discounted_cost_mean", "discounted_reward_low"):
            assert found[column][i] == getattr(expected, column)[0]


# Presets


def test_the_papers_preset_is_its_tables():
    paper = experiment.SETTINGS["paper"]
    assert paper.n_seeds == 10
    assert paper.budgeted == bmdp.preset("paper-driving")
    assert paper.priced.exploring == bmdp.preset("paper-driving-ftq")
    assert paper.priced.prices == tuple(LAMBDAS)
    assert paper.testing.n_episodes == 150
    crowded = 0.1 * 11 ** (np.arange(30) / 29) - 0.1
    both = sorted({*np.linspace(0, 1, 21).round(9), *crowded.round(9)})
    assert len(both) == 49
    assert paper.testing.budgets == pytest.approx(both)


def test_the_papers_budgets_are_learned_as_its_authors_configuration_says():
    learner, how = bmdp.preset("paper-driving").learner, bmdp.preset("paper-driving").exploration
    assert (learner.model.labels, learner.model.n_labels) == ("fixed", 10)
    assert (learner.costs_from_zero, learner.cost_cap) == (True, 1.5)
    assert (how.decay, how.floor, how.decay_by) == (1 / 3000, 0.1, "step")


def test_our_best_preset_has_as_many_episodes_as_the_paper_for_budgets_and_prices():
    best = experiment.SETTINGS["best"]
    ours, paper = bmdp.preset("two-way"), experiment.SETTINGS["paper"]
    assert (best.budgeted.env, best.budgeted.learner) == (ours.env, ours.learner)
    assert (best.n_seeds, best.testing.n_episodes) == (10, 2_000)
    settings = best.budgeted, best.priced.exploring, paper.budgeted
    explored = [spec.exploration for spec in settings]
    assert [how.rounds * how.episodes for how in explored] == [1500] * 3
    decays = [how.decay * how.rounds * how.episodes for how in (ours.exploration, *explored[:2])]
    assert decays == pytest.approx(decays[:1] * 3)  # as little is random at last
    assert best.priced.learner.model == best.budgeted.learner.model


def test_scripts_drive_on_the_road_of_the_preset(tmp_path):
    text = {"crash_cost": 0.0, "features": "time-to-collision"}
    env = replace(ENV, settings={**ENV.settings, **text})
    settings = replace(SMOKE, budgeted=replace(SMOKE.budgeted, env=env))
    experiment.run(settings, Work(tmp_path, 0, "cpu", "scripts"))
    found = piece(tmp_path, "scripts")
    idle = found["names"].index("idle")
    assert found["cost_mean"][idle] == 0  # it crashes on its own lane
