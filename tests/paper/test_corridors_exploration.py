from dataclasses import replace

import numpy as np
import pytest

import bmdp
from bmdp import TransitionBatch
from bmdp.envs import corridors
from bmdp.learn.runs import RunFolder
from bmdp.paper import corridors_exploration as experiment
from bmdp.policies import RandomBudgetedPolicy
from bmdp.policies.exploring import ExploringPolicy
from bmdp.settings import plain
from pieces import (
    check_evaluation,
    piece,
    place,
)

SMOKE = experiment.SETTINGS["smoke"]
TESTING, ENV = SMOKE.testing, SMOKE.sensitive.env


@pytest.fixture(scope="session")
def folder(smoke):
    return smoke("corridors-exploration")


def test_the_main_part_is_a_training_run_of_the_preset(folder):
    policy = bmdp.load_policy(place(folder, ""))
    explored = bmdp.explore(SMOKE.sensitive, seed=3, device="cpu").policy
    states = np.random.default_rng(0).uniform((0, 0), (7, 6), (50, 2))
    for step in (0, 8):
        ours, theirs = policy.at_step(step), explored.at_step(step)
        assert np.array_equal(ours.q_function(states), theirs.q_function(states))


def test_ways_begin_at_the_start_and_earn_and_pay_what_their_cells_say(folder):
    found = piece(place(folder, ""), "executions")
    layout = found["layout"]
    assert (layout["columns"], layout["rows"], len(layout["cells"])) == (7, 6, 42)
    cells = {(cell["x"], cell["y"]): cell for cell in layout["cells"]}
    kinds = [cells[xy]["kind"] for xy in ((3, 0), (2, 0), (0, 5), (6, 5), (4, 0), (2, 3))]
    assert kinds == ["start", "free", "safe", "risky", "risky", "wall"]
    for budget, of_budget in zip(found["budgets"], found["episodes"], strict=True):
        for way in of_budget:
            n_steps = len(way["action"])
            assert {name: len(values) for name, values in way.items()} == {
                **dict.fromkeys(("x", "y", "budget"), n_steps + 1),
                **dict.fromkeys(("action", "reward", "cost"), n_steps),
            }
            assert [way["x"][0], way["y"][0]] == layout["start"] == [3.5, 0.5]
            assert way["budget"][0] == budget
            ended_by_stop = layout["actions"][way["action"][-1]] == "stop"
            assert n_steps == 9 or ended_by_stop
            for x, y, reward, cost in zip(
                way["x"][1:], way["y"][1:], way["reward"], way["cost"], strict=True
            ):
                cell = cells[min(int(x), 6), min(int(y), 5)]
                assert (reward, cost) == (cell["reward"], cell["cost"])


@pytest.mark.parametrize(
    ("part", "run", "spec"),
    [("", "", SMOKE.sensitive), ("risk-neutral", "exploring", SMOKE.neutral)],
)
def test_the_exploration_is_that_of_the_records(folder, part, run, spec):
    found = piece(place(folder, part), "exploration")
    assert set(found) == {"env", "rounds", "layout"}
    records = RunFolder(place(folder, part) / run).records()
    collected = [record for record in records if record["kind"] == "collection"]
    random = RandomBudgetedPolicy(5, 0.0, 1.0)
    how = spec.exploration
    falling = ExploringPolicy(random, random, how.decay, how.floor).epsilon(np.arange(50, 100))
    assert [of_round["epsilon"] for of_round in found["rounds"]] == [
        1.0,  # the first round has nothing to be greedy by
        pytest.approx(falling.mean(), abs=1e-4),
    ]
    for number, (of_round, record) in enumerate(zip(found["rounds"], collected, strict=True)):
        assert (of_round["round"], of_round["n_episodes"]) == (number, 50)
        assert of_round["reward"] == pytest.approx(record["reward"], abs=1e-3)
        assert of_round["cost"] == pytest.approx(record["cost"], abs=1e-4)
        assert len(of_round["episodes"]) == 30
        for way in of_round["episodes"]:
            assert set(way) == {"x", "y", "budget", "cost"}
            assert (way["x"][0], way["y"][0]) == (3.5, 0.5)
            assert 2 <= len(way["x"]) == len(way["y"]) <= 10
            assert 0 <= way["budget"] <= 1 if part == "" else way["budget"] == 1.125


def test_without_regard_to_costs_a_budgeted_policy_is_learned_from_the_same_episodes(folder):
    part = place(folder, "risk-neutral")
    run = RunFolder(part / "exploring")
    batch = TransitionBatch.concatenate([run.batch(0), run.batch(1)])
    assert (batch.budget == batch.next_budget).all()
    assert set(batch.budget) == {1.125}  # nine steps in cells that cost an eighth
    learned = bmdp.BFTQ(SMOKE.learner).fit(batch, seed=3, device="cpu")
    found = piece(part, "evaluation")
    check_evaluation(found, learned, ENV, TESTING.budgets, TESTING.n_episodes, 3)


def test_the_truth_is_the_true_frontier(folder):
    found, how = piece(folder / "truth", "truth"), SMOKE.truth
    expected = corridors.true_frontier(
        resolution=how.resolution,
        n_episodes=how.n_episodes,
        max_disagreement=how.max_disagreement,
    )
    assert found["costs"] == expected.frontier.costs.tolist()
    assert found["rewards"] == expected.frontier.rewards.tolist()
    assert found["reward_error"] == expected.reward_error
    assert found["settings"] == plain(how)


# Presets


def test_the_papers_preset_is_its_tables():
    paper = experiment.SETTINGS["paper"]
    assert paper.n_seeds == 4
    assert paper.sensitive == bmdp.preset("paper-corridors")
    assert paper.neutral == bmdp.preset("paper-corridors-ftq")
    network = bmdp.preset("paper-corridors").learner.model
    assert paper.learner.model == replace(network, labels="uniform", n_labels=10)
    assert network.regression.steps == 1000
    assert paper.neutral.learner.model.regression.steps == 5000
    assert paper.testing.n_episodes == 1000
    assert paper.testing.budgets == pytest.approx(np.linspace(0, 1, 10))


def test_our_best_preset_has_as_many_episodes_as_the_papers():
    best, paper = experiment.SETTINGS["best"], experiment.SETTINGS["paper"]
    assert best.sensitive == bmdp.preset("corridors")
    assert (best.n_seeds, best.testing.n_episodes) == (10, 10_000)
    for name in ("sensitive", "neutral"):
        explored = [getattr(settings, name).exploration for settings in (best, paper)]
        assert explored[0].rounds == explored[1].rounds == 10
        assert explored[0].episodes == explored[1].episodes == 500


@pytest.mark.parametrize("name", ["smoke", "quick", "best"])
def test_our_two_ways_to_explore_differ_in_budgets_alone(name):
    ours = experiment.SETTINGS[name]
    how = replace(ours.sensitive.exploration, budgets="top")
    learner = replace(ours.sensitive.learner, budget_range=(0.0, 1.125))
    assert ours.neutral == replace(ours.sensitive, learner=learner, exploration=how)
    assert ours.learner == ours.sensitive.learner
