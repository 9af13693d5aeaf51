import json
from dataclasses import replace

import numpy as np
import pytest

import bmdp
import folders
from bmdp import ConfigError
from bmdp.envs import ScriptedPolicy, TrueFrontier, corridors, slot_filling
from bmdp.evaluation import evaluate
from bmdp.frontier import Frontier
from bmdp.learn import EnvConfig, Iterations
from bmdp.paper import comparison as experiment
from bmdp.paper import rivals
from bmdp.paper.comparison import (
    TASKS,
    Measuring,
    lesson_of,
    measured_of,
    method_piece,
    method_row,
    methods_figure,
    move_errors,
    moves,
    spec_of,
    task_truth,
)
from bmdp.paper.measuring import other_seed
from bmdp.paper.rivals import METHODS, WITH_NETWORKS
from bmdp.paper.runner import Work
from pieces import check_evaluation, piece, pieces, place, work
from problems import by_hand

SMOKE = experiment.SETTINGS["smoke"]
TINY = replace(
    SMOKE,
    tasks=("slot-filling",),
    methods=tuple(m for m in METHODS if m not in WITH_NETWORKS),
    measuring=Measuring(40, 30, resolution=5, bins=2, n_budgets=3),
)
SEED = other_seed(3, "comparison/test")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """All methods but networks, on one task."""
    where = tmp_path_factory.mktemp("comparison")
    experiment.run(TINY, Work(where / "truth", 0, "cpu", "truth"))
    for name in experiment.PARTS:
        experiment.run(TINY, work(where, name))
    return where


@pytest.fixture(scope="session")
def lesson(folder):
    return lesson_of("slot-filling", TINY.changes, work(folder, "slot-filling"))


def method(folder, name):
    return piece(place(folder, "slot-filling"), f"method-{name}")


def test_every_method_is_measured_moved_and_calibrated(folder):
    for name in TINY.methods:
        found = method(folder, name)
        assert found["method"] == METHODS[name].title
        assert (found["task"], found["seed"]) == ("slot-filling", 3)
        assert found["evaluation"]["budgets"] == [0.0, 0.5, 1.0]
        assert found["evaluation"]["n_episodes"] == 40
        assert [move["from"] for move in found["moved"]] == [0.0, 0.5, 1.0]
        after = found["calibrated"]
        assert after["certificate"]["smallest_budget"] == min(after["certificate"]["cost_high"])
        below = np.array([0.0, 0.5, 1.0]) < after["certificate"]["smallest_budget"]
        assert after["evaluation"]["infeasible_share"] == below.tolist()
        assert after["evaluation"]["n_episodes"] == 40
        assert min(found["seconds"].values()) >= 0


def test_the_numbers_of_models_are_those_of_steps_prices_and_folds(folder):
    n_models = {name: method(folder, name)["n_models"] for name in TINY.methods}
    assert n_models["bftq"] == n_models["coin"] == n_models["multiplier"] == 10 * 2
    assert n_models["scripted"] == 0
    assert method(folder, "scripted")["n_more"] == 2 * 1000
    assert method(folder, "coin")["n_more"] == 0


def test_bftq_is_the_policy_of_the_run(folder):
    policy = bmdp.load_policy(place(folder, "slot-filling"))
    found = method(folder, "bftq")["evaluation"]
    env = spec_of(TASKS["slot-filling"]).env
    check_evaluation(found, policy, env, [0.0, 0.5, 1.0], 40, SEED)


def test_the_scripted_coin_is_the_risky_rule_at_the_top_budget(folder):
    risky = ScriptedPolicy("slot-filling/key-pad")
    found = evaluate(risky, "slot-filling", budgets=[1.0], n_episodes=40, seed=SEED)
    scripted = method(folder, "scripted")["evaluation"]
    assert scripted["cost_mean"][-1] == found.cost_mean[0]
    assert scripted["reward_mean"][-1] == found.reward_mean[0]
    assert scripted["env_settings"]["features"] == "paper"


def test_methods_learn_what_they_are_called_after(lesson):
    names = {n: METHODS[n].learn(lesson).policy for n in ("coin", "multiplier")}
    kinds = {name: type(policy).__name__ for name, policy in names.items()}
    assert kinds == {"coin": "Portfolio", "multiplier": "MultiplierPolicy"}
    assert names["coin"].policies[0].at_step(0).prices.tolist() == [np.inf, 0.0]


def test_methods_that_learn_the_same_prices_learn_them_once(lesson, monkeypatch):
    mixture = METHODS["ftq-mixture"].learn(lesson)
    monkeypatch.setattr(rivals, "LagrangianFTQ", None)
    carried = METHODS["multiplier"].learn(lesson)
    assert carried.policy.dial is mixture.policy.policies[0]
    assert (carried.seconds, carried.n_models) == (mixture.seconds, mixture.n_models)
    with pytest.raises(TypeError):
        METHODS["coin"].learn(replace(lesson, fits={}))


def test_the_paper_has_a_network_for_each_price(lesson, monkeypatch):
    def small(name):
        spec = bmdp.preset(name)
        network = spec.learner.model
        network = replace(network, regression=replace(network.regression, steps=1))
        learner = replace(spec.learner, model=network, schedule=Iterations(1))
        return replace(spec, learner=learner)

    monkeypatch.setattr(rivals, "preset", small)
    short = replace(lesson, n_measuring=5)
    networks, bftq = (METHODS[name].learn(short) for name in ("ftq-paper", "bftq-paper"))
    assert (networks.n_models, networks.n_more, bftq.n_models) == (8, 40, 1)
    members, env = networks.policy.policies, lesson.spec.env.spec()
    assert [member.price for member in members] == [60, 40, 35, 30, 25, 20, 15, 0]
    played = [evaluate(m, env, budgets=[0], n_episodes=5, seed=3) for m in members]
    costs = [found.discounted_cost_mean[0] for found in played]
    assert networks.policy.costs == pytest.approx(costs)


def test_a_method_that_cannot_be_calibrated_says_why(lesson, monkeypatch):
    def refuse(*arguments, **settings):
        raise ConfigError("cost_range must be given.")

    monkeypatch.setattr(experiment, "calibrate", refuse)
    how = Measuring(10, 10, resolution=5, n_budgets=2)
    found = method_piece("scripted", lesson, how)
    assert found["calibrated"] == {"error": "cost_range must be given."}
    assert method_piece("scripted", lesson, replace(how, n_calibrating=0))["calibrated"] is None


def test_what_is_lost_is_made_again_and_nothing_else(folder, monkeypatch):
    where = place(folder, "slot-filling")
    before, records = pieces(where), (where / "records.jsonl").read_text()
    (where / "method-coin.json").unlink()
    learn = METHODS["coin"]
    monkeypatch.setattr(rivals, "METHODS", {})
    for name in METHODS:
        monkeypatch.setitem(METHODS, name, replace(METHODS[name], learn=None))
    monkeypatch.setitem(METHODS, "coin", learn)
    experiment.run(TINY, work(folder, "slot-filling"))
    after = pieces(where)
    assert (where / "records.jsonl").read_text() == records
    one, other = (json.loads(found.pop("method-coin.json")) for found in (before, after))
    assert before == after
    assert one.pop("seconds") != other.pop("seconds")
    assert one == other


def test_tasks_and_methods_that_are_not_asked_for_are_not_done(folder, tmp_path):
    assert sorted(p.name for p in folder.iterdir()) == ["slot-filling", "truth"]
    assert [p.name for p in (folder / "truth").iterdir()] == ["truth-slot-filling.json"]
    assert METHODS["scripted"].tasks == ("corridors", "slot-filling")
    assert "routes-4" in experiment.PARTS


def test_every_task_and_preset_has_settings_that_exist():
    for settings in experiment.SETTINGS.values():
        for task in settings.tasks:
            assert spec_of(TASKS[task], settings.changes).exploration.rounds > 0
        assert set(settings.methods) <= set(METHODS)
    assert spec_of(TASKS["routes-4"]).env.settings == {"observe_time": True, "routes": 4}
    assert set(experiment.SETTINGS["paper"].methods) == set(METHODS)
    assert not set(experiment.SETTINGS["quick"].methods) & set(WITH_NETWORKS)


def test_true_frontiers_are_those_of_the_tasks(folder, monkeypatch):
    known = slot_filling.true_frontier(n_bins=2).frontier
    assert piece(folder / "truth", "truth-slot-filling")["rewards"] == known.rewards.tolist()
    asked = []

    def told(task, **how):
        asked.append((task.routes, how["resolution"], how["max_disagreement"]))
        return TrueFrontier(known, 0.5, {})

    monkeypatch.setattr(corridors, "true_frontier", told)
    fine, coarse = Measuring(1, 1), Measuring(1, 1, resolution=5)
    found = [task_truth(task, how) for how in (fine, coarse) for task in ("corridors", "routes-4")]
    assert asked == [(None, 33, 0.003), (4, 17, 1.0), (None, 5, 1.0), (4, 5, 1.0)]
    assert found[1]["settings"] == {"resolution": 17, "routes": 4}
    assert found[0]["reward_error"] == 0.5


def test_an_honest_dial_pays_the_new_budget_where_it_can():
    env = EnvConfig("corridors", {"observe_time": True})
    safe = ScriptedPolicy("corridors/safe")
    found = moves(safe, env, at_step=1, n_episodes=30, seed=0, resolution=5)
    assert [move["from"] for move in found] == [0.0, 0.5, 1.0]
    for move in found:
        assert move["going"] == 1.0
        assert move["cost"] == [0.0] * 6  # whatever the dial says
        assert move["ideal"][0] == pytest.approx(0, abs=1e-3)
        assert (np.diff(move["ideal"]) >= 0).all()
        assert (np.array(move["ideal"]) <= np.array(move["budgets"]) + 1e-3).all()
        assert move["ideal"][1] > 0.1  # risks can still be taken from there
    worst, mean = move_errors([found])
    assert worst == pytest.approx(0, abs=1e-3)
    assert mean == pytest.approx(np.mean([move["ideal"] for move in found]))


def test_an_honest_dial_pays_nothing_where_there_are_no_risks_left():
    env, safe = EnvConfig("corridors"), ScriptedPolicy("corridors/safe")
    found = moves(safe, env, at_step=4, n_episodes=5, seed=0, resolution=5)
    assert [move["ideal"] for move in found] == [[0.0] * 6] * 3


def test_where_all_is_over_nothing_is_moved():
    env, risky = EnvConfig("slot-filling"), ScriptedPolicy("slot-filling/key-pad")
    found = moves(risky, env, at_step=9, n_episodes=20, seed=0)
    assert [(m["going"], m["cost"], m["ideal"]) for m in found] == [(0.0, None, None)] * 3
    assert move_errors([found]) is None


def test_errors_of_moves_are_from_the_ideal_or_above_the_budget():
    known = {"cost": [0.3, 0.1], "ideal": [0.2, 0.4], "budgets": [0.0, 1.0]}
    unknown = {"cost": [0.2, 0.1], "ideal": None, "budgets": [0.0, 1.0]}
    assert move_errors([[known]]) == pytest.approx((0.1, 0.2))
    assert move_errors([[known], [unknown]]) == pytest.approx((0.2, (0.1 + 0.3 + 0.2 + 0.0) / 4))


def hand_made(rewards, costs, seed=0, calibrated=None, budgets=(0.0, 0.5, 1.0)):
    """A piece whose evaluation is exact."""

    def plain(rewards, costs):
        found = vars(by_hand(budgets, rewards, costs))
        return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in found.items()}

    after = calibrated
    if calibrated is not None and "error" not in calibrated:
        after = {
            "certificate": {"smallest_budget": calibrated["from"]},
            "evaluation": plain(calibrated["rewards"], calibrated["costs"]),
        }
    return {
        "method": "some",
        "seed": seed,
        "n_models": 2,
        "evaluation": plain(rewards, costs),
        "moved": [],
        "calibrated": after,
        "seconds": {"train": 10.0 + seed, "test": 0.0},
    }


TRUTH = Frontier(np.array([0.0, 1.0]), np.array([10.0, 20.0]))


def row_of(pieces):
    return method_row([measured_of(piece) for piece in pieces], TRUTH)


def test_rows_have_means_intervals_and_the_worst_of_seeds():
    first = hand_made([10, 15, 20], [0.0, 0.5, 1.0])  # the optimum
    second = hand_made([5, 6, 10], [0.0, 0.7, 0.9], seed=1)  # scores 0.5, 6/17, 0.5
    row = row_of([first, second])
    scores = [1.0, (0.5 + 6 / 17 + 0.5) / 3]
    assert row.scores == pytest.approx(scores)
    assert (row.score, row.score_deviation) == pytest.approx(
        (np.mean(scores), np.std(scores) * 2**0.5)
    )
    half = 12.7062 * np.std(scores, ddof=1) / 2**0.5  # Student's, of one degree of freedom
    assert (row.score_low, row.score_high) == pytest.approx(
        (row.score - half, row.score + half), 1e-4
    )
    assert row.worst_overshoot == pytest.approx(0.2)
    assert row.dial_error == pytest.approx((0 + (0.2 + 0.1) / 3) / 2)
    assert (row.seeds, row.seconds, row.n_models) == ((0, 1), 10.5, 2)
    assert (row.moved, row.calibrated) == (None, None)


def test_a_single_seed_has_no_interval():
    row = row_of([hand_made([10, 15, 20], [0.0, 0.5, 1.0])])
    assert (row.score_low, row.score_high, row.score_deviation) == (None, None, None)
    assert (row.score, row.worst_overshoot, row.dial_error) == (1.0, 0.0, 0.0)


def test_calibrated_policies_count_from_the_smallest_certified_budget_on():
    kept = {"from": 0.2, "rewards": [0, 9, 20], "costs": [0.9, 0.4, 1.0]}
    unfit = {"from": 1.5, "rewards": [0, 0, 0], "costs": [0, 0, 0]}
    before = ([0, 8, 10], [0.3, 0.6, 1.1])
    found = [hand_made(*before, seed=i, calibrated=c) for i, c in enumerate((kept, unfit))]
    found.append(hand_made(*before, seed=2, calibrated={"error": "no range"}))
    found.append(hand_made(*before, seed=3, calibrated=kept | {"from": 0.4, "costs": [0, 0.55, 1]}))
    row = row_of(found)
    after = row.calibrated
    assert after.smallest_budget == pytest.approx((0.2 + 0.4) / 2)
    assert after.score == pytest.approx(((9 / 15 + 1) / 2 + (9 / 15.5 + 1) / 2) / 2)
    assert after.score_before == pytest.approx((8 / 16 + 10 / 20) / 2)
    assert (after.overshoot_before, after.overshoot) == pytest.approx((0.1, 0.05))


def test_every_method_has_a_row(folder):
    rows = [row_of([method(folder, name)]) for name in TINY.methods]
    assert [row.method for row in rows] == [METHODS[name].title for name in TINY.methods]
    assert all(row.seeds == (3,) for row in rows)


def test_methods_have_their_scores_and_worst_overshoots():
    rows = [
        row_of([folders.method("BFTQ", seed, 9.0 + seed) for seed in (0, 1)]),
        row_of([folders.method("coin", 0, 5.0)]),
    ]
    left, right = methods_figure(rows).axes
    seeds = [line.get_xdata() for line in left.get_lines() if line.get_marker() == "o"]
    by_hand = [np.mean([r / 10, r / 15, r / 20]) for r in (9.0, 10.0, 5.0)]
    assert np.concatenate(seeds) == pytest.approx(by_hand)
    spans = [np.ptp(line.get_xdata()) for line in left.get_lines() if line.get_alpha() == 0.6]
    assert spans == pytest.approx([2 * folders.student_half(by_hand[:2])])
    worst = [line.get_xdata()[0] for line in right.get_lines() if line.get_marker() == "s"]
    assert worst == pytest.approx([0, 0])
    assert [label.get_text() for label in left.get_yticklabels()] == ["BFTQ", "coin"]
