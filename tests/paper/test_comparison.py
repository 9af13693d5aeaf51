import json
from dataclasses import replace

import numpy as np
import pytest

import bmdp
import folders
from bmdp import ConfigError
from bmdp.envs import ScriptedPolicy, TrueFrontier, corridors, slot_filling
from bmdp.envs.two_way import known_curve
from bmdp.evaluation import evaluate
from bmdp.frontier import upper_frontier
from bmdp.learn import EnvConfig, Iterations
from bmdp.paper import comparison as experiment
from bmdp.paper import measuring, rivals
from bmdp.paper.comparison import (
    TASKS,
    Measuring,
    lesson_of,
    method_of,
    method_piece,
    method_row,
    methods_figure,
    move_errors,
    moves,
    spec_of,
    task_truth,
)
from bmdp.paper.measuring import other_seed
from bmdp.paper.pricing import found_prices
from bmdp.paper.rivals import METHODS, WITH_NETWORKS, scripted_env
from bmdp.paper.runner import Work
from pieces import check_evaluation, piece, pieces, place, work

SMOKE = experiment.SETTINGS["smoke"]
TINY = replace(
    SMOKE,
    tasks=("slot-filling",),
    methods=tuple(m for m in METHODS if m not in WITH_NETWORKS),
    measuring=Measuring(40, 30, resolution=5, n_budgets=3),
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


def test_methods_that_learn_the_same_prices_learn_them_once(lesson, monkeypatch):
    mixture = METHODS["ftq-mixture"].learn(lesson)
    monkeypatch.setattr(rivals, "LagrangianFTQ", None)
    carried = METHODS["multiplier"].learn(lesson)
    assert carried.policy.dial is mixture.policy.policies[0]
    assert (carried.seconds, carried.n_models) == (mixture.seconds, mixture.n_models)
    with pytest.raises(TypeError):
        METHODS["coin"].learn(replace(lesson, fits={}))


def test_all_ways_to_play_prices_have_those_that_were_found_and_the_coin_their_ends(lesson):
    found, _ = lesson.prices
    finite = found_prices(lesson.batch, 1.0, seed=lesson.seed, device="cpu")
    assert found == (np.inf, *finite)
    ways = {name: METHODS[name].learn(lesson) for name in ("ftq-mixture", "coin", "multiplier")}
    assert ways["ftq-mixture"].policy.policies[0].prices.tolist() == list(found)
    assert ways["multiplier"].policy.dial.prices.tolist() == list(found)
    assert ways["coin"].policy.policies[0].prices.tolist() == [found[0], 0.0]
    assert [way.n_more for way in ways.values()] == [0, 0, 0]


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

    monkeypatch.setattr(measuring, "calibrate", refuse)
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


def test_every_task_and_preset_has_settings_that_exist():
    for settings in experiment.SETTINGS.values():
        for task in settings.tasks:
            assert spec_of(TASKS[task], settings.changes).exploration.rounds > 0
        assert set(settings.methods) <= set(METHODS)
    assert spec_of(TASKS["routes-4"]).env.settings == {"observe_time": True, "routes": 4}
    assert set(experiment.SETTINGS["paper"].methods) == set(METHODS)
    assert not set(experiment.SETTINGS["quick"].methods) & set(WITH_NETWORKS)


def test_the_road_is_compared_with_the_replanning_driver():
    piece = task_truth("two-way", Measuring(10, 0))
    assert piece["costs"] == known_curve("replanning").frontier.costs.tolist()
    env = spec_of(TASKS["two-way"]).env
    assert env.settings["features"] == "full"
    assert scripted_env(env).settings["features"] == "kinematics"


def test_true_frontiers_are_those_of_the_tasks(folder, monkeypatch):
    known = slot_filling.true_frontier().frontier
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


def test_where_all_is_over_nothing_is_moved():
    env, risky = EnvConfig("slot-filling"), ScriptedPolicy("slot-filling/key-pad")
    found = moves(risky, env, at_step=9, n_episodes=20, seed=0)
    assert [(m["going"], m["cost"], m["ideal"]) for m in found] == [(0.0, None, None)] * 3
    assert move_errors([found]) is None


def test_methods_have_their_scores_and_worst_overshoots():
    found = [folders.method("BFTQ", 0, 9.0), folders.method("BFTQ", 1, 10.0)]
    truth = upper_frontier([0.0, 1.0], [10.0, 20.0])
    rows = [
        method_row([method_of(piece) for piece in some], truth)
        for some in (found, [folders.method("coin", 0, 5.0)])
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
