from dataclasses import replace

import numpy as np
import pytest

import bmdp
from bmdp import StoreError, TransitionBatch
from bmdp.envs import corridors
from bmdp.learn.runs import RunFolder
from bmdp.learn.spec import plain
from bmdp.paper import corridors_exploration as experiment
from bmdp.paper import measuring
from bmdp.paper.runner import Work
from bmdp.policies import RandomBudgetedPolicy
from bmdp.policies.exploring import ExploringPolicy
from pieces import (
    check_evaluation,
    check_executions,
    check_hull,
    check_killed,
    check_plain,
    done,
    piece,
    pieces,
    place,
    work,
)

SMOKE = experiment.SETTINGS["smoke"]
TESTING, ENV = SMOKE.testing, SMOKE.sensitive.env


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return done(experiment, tmp_path_factory.mktemp("corridors"))


@pytest.fixture(scope="session")
def policy(folder):
    return bmdp.load_policy(place(folder, ""))


def test_the_evaluation_is_that_of_the_policy_of_the_run(folder, policy):
    found = piece(place(folder, ""), "evaluation")
    check_evaluation(found, policy, ENV, TESTING.budgets, TESTING.n_episodes, 3)


def test_the_main_part_is_a_training_run_of_the_preset(folder, policy):
    explored = bmdp.explore(SMOKE.sensitive, seed=3, device="cpu").policy
    states = np.random.default_rng(0).uniform((0, 0), (7, 6), (50, 2))
    for step in (0, 8):
        ours, theirs = policy.at_step(step), explored.at_step(step)
        assert np.array_equal(ours.q_function(states), theirs.q_function(states))


def test_executions_have_all_that_a_dial_needs(folder, policy):
    check_executions(piece(place(folder, ""), "executions"), policy, ENV, TESTING, 3)


def test_what_was_measured_at_the_budgets_of_the_dial_is_not_measured_again(
    folder, policy, monkeypatch
):
    measured = measuring.evaluation_piece(policy, ENV, TESTING.dial, TESTING.n_episodes, 3)
    monkeypatch.setattr(measuring, "evaluation_piece", None)
    found = measuring.executions_piece(policy, ENV, TESTING, 3, measured)
    assert found == piece(place(folder, ""), "executions")


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


def test_what_is_shown_changes_with_the_budget(folder):
    shown = piece(place(folder, ""), "executions")["episodes"]
    assert shown[0] != shown[-1]


def test_the_hull_is_that_of_the_start(folder, policy):
    hull = piece(place(folder, ""), "hull")
    check_hull(hull, policy, [3.5, 0.5], 5)
    shown = piece(place(folder, ""), "executions")["frontier"]
    assert shown["labels"] == [
        f"{hull['action_names'][hull['action'][i]]}, handing on {hull['handed_on'][i]:g}"
        for i in hull["frontier"]["index"]
    ]


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
            assert 0 <= way["budget"] <= 1


def test_without_regard_to_costs_a_budgeted_policy_is_learned_from_the_same_episodes(folder):
    part = place(folder, "risk-neutral")
    run = RunFolder(part / "exploring")
    batch = TransitionBatch.concatenate([run.batch(0), run.batch(1)])
    assert type(run.final_policy()).__name__ == "PricedPolicy"
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


KILLS = {"": (4, 17, 24, 26, 58, 62), "risk-neutral": (10, 28, 34, 67, 68, 80)}


@pytest.mark.parametrize(
    ("part", "n_writes"), [(p, n) for p, kills in KILLS.items() for n in kills]
)
def test_a_part_that_was_killed_leaves_the_same(folder, part, n_writes, tmp_path, monkeypatch):
    check_killed(experiment, part, folder, tmp_path, monkeypatch, n_writes)


@pytest.mark.parametrize("part", ["", "risk-neutral"])
def test_a_part_that_is_done_is_not_done_again(folder, part):
    before = {path: path.stat().st_mtime_ns for path in place(folder, part).rglob("*.json")}
    experiment.run(SMOKE, work(folder, part))
    assert before == {path: path.stat().st_mtime_ns for path in place(folder, part).rglob("*.json")}


def test_a_run_of_other_settings_is_refused(folder):
    other = replace(SMOKE, sensitive=replace(SMOKE.sensitive, held_out=0.5))
    for settings, seed in ((other, 3), (SMOKE, 4)):
        with pytest.raises(StoreError, match="holds a run of other settings"):
            experiment.run(settings, Work(place(folder, ""), seed, "cpu", ""))


def test_a_part_may_begin_in_an_empty_folder(folder, tmp_path):
    experiment.run(SMOKE, Work(tmp_path, 3, "cpu", ""))
    assert pieces(tmp_path) == pieces(place(folder, ""))


# Presets


@pytest.mark.parametrize("size", ["smoke", "quick", "paper", "best"])
def test_presets_are_plain_json(size):
    found = check_plain(experiment.SETTINGS[size])
    assert found["sensitive"]["learner"]["kind"] == "BFTQConfig"
    assert found["neutral"]["learner"]["kind"] == "FTQConfig"


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
    assert best.neutral.exploration.optimism == best.neutral.exploration.count_bonus == 0


@pytest.mark.parametrize("size", ["quick", "paper", "best"])
def test_dials_have_21_budgets(size):
    assert experiment.SETTINGS[size].testing.dial == pytest.approx(np.linspace(0, 1, 21))
