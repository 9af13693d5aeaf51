"""From the folder of a run or a policy to a section, with numbers that are easy to check."""

import csv
import json
import re

import numpy as np
import pytest

import bmdp
import ferries
from bmdp.envs import ScriptedPolicy
from bmdp.envs.tasks import TrueFrontier
from bmdp.errors import ConfigError, StoreError
from bmdp.frontier import upper_frontier
from bmdp.learn import LagrangianConfig, train_from_data
from bmdp.models import TableModel
from bmdp.policies import HullPolicy, TabularQ
from bmdp.report.opened import is_run
from bmdp.report.page import page
from bmdp.report.run import run_section
from bmdp.report.section import Plugin
from pictures import draw_once
from training import Killed, kill_after

N = 200


@pytest.fixture(autouse=True)
def drawn_once(monkeypatch):
    draw_once(monkeypatch)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    ferries.explored(place / "ferry")
    ferries.from_log(place / "log")
    ferries.calibrated(place / "calibrated", place / "ferry")
    return place


@pytest.fixture(scope="module")
def ferry(runs):
    return told(runs / "ferry")


@pytest.fixture(scope="module")
def log(runs):
    return told(runs / "log")


def told(folder, **changes):
    """A section, which must be one that a page can have."""
    found = run_section(folder, **({"anchor": "run", "n_episodes": N} | changes))
    page("Title", [found], made="now")
    return found


def rows(section, name):
    table = next(table for table in section.tables if table.name == f"run-{name}")
    return list(csv.DictReader(table.csv().splitlines()))


def test_realised_costs_are_those_of_evaluate(ferry, runs):
    (dial,) = ferry.dials
    found = bmdp.evaluate(
        bmdp.load_policy(runs / "ferry"),
        ferries.ENV,
        budgets=dial["budgets"],
        n_episodes=N,
        seed=0,
    )
    assert dial["budgets"] == pytest.approx(np.linspace(0, 0.6, 11))
    assert dial["realised"]["cost"] == pytest.approx(found.discounted_cost_mean, rel=1e-5)
    assert dial["realised"]["reward_high"] == pytest.approx(found.discounted_reward_high, rel=1e-5)
    assert [float(row["cost"]) for row in rows(ferry, "budgets")] == pytest.approx(
        found.discounted_cost_mean
    )


def test_the_forecast_is_that_of_held_out_episodes(ferry, runs):
    lines = (runs / "ferry/records.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    prediction = next(r for r in records if r["kind"] == "prediction")
    forecast = ferry.dials[0]["forecast"]
    assert forecast["cost"] == pytest.approx(prediction["cost"], rel=1e-5)
    assert forecast["reward"] == pytest.approx(prediction["reward"], rel=1e-5)
    assert f"{prediction['n_episodes']} episodes" in forecast["source"]


def test_without_held_out_episodes_the_policy_itself_forecasts(tmp_path):
    found = told(ferries.from_log(tmp_path / "log", held_out=0.0))
    policy = bmdp.load_policy(tmp_path / "log")
    (dial,) = found.dials
    starts = ferries.log()
    states = starts.state[starts.starts()]
    budgets = np.array(dial["budgets"])
    expected = [
        policy.at_step(0).mixtures(states, np.full(len(states), b)).cost.mean() for b in budgets
    ]
    assert dial["forecast"]["cost"] == pytest.approx(expected, rel=1e-2, abs=1e-6)
    assert "the policy itself" in dial["forecast"]["source"]


def test_without_a_simulator_nothing_is_realised(log):
    (dial,) = log.dials
    assert dial["env"] == ""
    assert all(set(values) == {None} for values in dial["realised"].values())
    assert "simulator" in " ".join(log.notes)
    assert log.answer.startswith("Forecast, from 60 episodes")
    assert "ferry.parquet" in log.facts["Learned from"]
    assert [b["name"] for b in dial["baselines"]] == [
        "a coin between the ends",
        "the log's own behaviour",
    ]


def test_the_log_s_own_behaviour_is_its_mean(log):
    own = log.dials[0]["baselines"][1]
    batch = ferries.log()
    assert own["costs"] == pytest.approx([batch.cost.sum() / 300], rel=1e-5)
    assert own["rewards"] == pytest.approx([batch.reward.sum() / 300], rel=1e-5)
    assert own["cost_low"] < own["costs"][0] < own["cost_high"]


def test_a_log_can_be_played_in_an_environment_that_fits(runs):
    found = told(runs / "ferry", env=ferries.ENV, n_episodes=20)
    assert found.dials[0]["env"] == ferries.ENV
    (coin, chance, own) = found.dials[0]["baselines"]
    ends = found.dials[0]["realised"]
    assert coin["costs"] == [ends["cost"][0], ends["cost"][-1]]
    assert chance["name"] == "random actions"
    assert own["name"] == "its exploration"


def test_random_actions_cost_what_chance_does(ferry):
    chance = ferry.dials[0]["baselines"][1]
    assert chance["rewards"][0] == pytest.approx(4.0, abs=0.5)  # of 1, 3 and 0, three times
    assert chance["costs"][0] == pytest.approx(0.2, abs=0.12)


def test_what_is_far_away_is_told_of_and_not_drawn(tmp_path, ferry):
    q = TabularQ(q_r=[[[1.0] * 2]] * 4, q_c=[[[0.0] * 2]] * 4)  # it always waits
    HullPolicy(q, [0.0, 0.01]).save(tmp_path / "careful")
    ferries.register()
    found = told(tmp_path / "careful", env=ferries.ENV, n_episodes=50)
    assert "random actions" in found.pictures[0].caption
    assert [b["is_far"] for b in found.dials[0]["baselines"]] == [False, True]
    assert "Too far" not in ferry.pictures[0].caption


def test_actions_are_counted_by_budget_and_by_step(ferry):
    actions = ferry.dials[0]["actions"]
    assert actions["names"] == ["wait", "leave at once", "sleep"]
    assert actions["by_budget"][0] == [1.0, 0.0, 0.0]
    assert actions["by_budget"][-1][1] == pytest.approx(1.0)
    assert actions["steps"] == [1, 2, 3]
    assert np.array(actions["by_step"]).sum(axis=2) == pytest.approx(1.0)  # all go on to the end
    mean = np.array(actions["by_step"]).mean(axis=1)
    assert mean == pytest.approx(np.array(actions["by_budget"]), abs=1e-3)
    assert "played" in actions["source"]


def test_without_a_simulator_the_policy_is_asked_at_logged_states(log):
    actions = log.dials[0]["actions"]
    assert actions["names"] == ["action 0", "action 1", "action 2"]
    assert actions["by_budget"][0][0] == 1.0
    assert actions["by_budget"][-1][1] > 0.9
    assert "states of the data" in actions["source"]


def test_states_are_named_by_their_numbers_and_the_first_is_the_most_common(ferry, log):
    first, *others = ferry.dials[0]["states"]
    assert first["name"] == "state 0: first state, the most common one"
    assert first["frontier"] == ferry.dials[0]["frontier"]
    assert first["choices"] == ferry.dials[0]["choices"]
    assert {name["name"].split(":")[0] for name in others} == {"state 1", "state 2"}
    first, *_ = [state["name"] for state in log.dials[0]["states"]]
    assert re.match(r"crossing 0, tide [01]: first state, the most common one", first)
    assert 2 <= len(log.dials[0]["states"]) <= 5


def test_a_choice_spends_its_budget(ferry):
    for state in ferry.dials[0]["states"]:
        costs = state["frontier"]["costs"]
        assert len(state["frontier"]["labels"]) == len(costs)
        for budget, choice in zip(ferry.dials[0]["budgets"], state["choices"], strict=True):
            if choice["status"] == "TIGHT":
                p, ends = choice["p_upper"], (costs[choice["lower"]], costs[choice["upper"]])
                assert (1 - p) * ends[0] + p * ends[1] == pytest.approx(budget, abs=1e-4)


def test_the_same_run_gives_the_same_page(runs, monkeypatch):
    monkeypatch.undo()  # pictures are drawn anew
    texts = [
        page("T", [run_section(runs / "log", anchor="run")], made="now", plugins=())
        for _ in range(2)
    ]
    assert texts[0] == texts[1]


def test_pictures_and_tables_are_those_that_there_is_something_for(ferry, log):
    names = [p.name.removeprefix("run-") for p in ferry.pictures]
    assert names == ["trade-off", "asked", "actions", "state", "learning", "rounds"]
    assert [p.name.removeprefix("run-") for p in log.pictures] == names[:-1]
    assert [t.name.removeprefix("run-") for t in ferry.tables] == [
        *("budgets", "data", "settings", "records")
    ]
    settings = {row["setting"]: row["value"] for row in rows(ferry, "settings")}
    assert settings["learner.budget_range"] == ferry.facts["learner.budget_range"] == "0.0, 0.6"
    assert len(rows(ferry, "records")) > 5
    assert {row["quantity"]: row["value"] for row in rows(ferry, "data")}["episodes"] == "400"


def test_facts_say_where_it_comes_from(runs, tmp_path):
    ferries.retold(
        ferries.explored(tmp_path / "ferry", rounds=1),
        command="bmdp train x",
        began="2026-11-17T10:00:00+00:00",
        machine={"cores": 2, "memory": 15.6, "gpu": None},
    )
    facts = told(tmp_path / "ferry", n_episodes=0).facts
    assert facts["Command"] == "bmdp train x"
    assert facts["Began"].startswith("2026-11-17")
    assert facts["Machine"] == "cores 2, memory 15.6 GiB"
    assert facts["Environment"] == ferries.ENV
    assert facts["Learner"] == "BFTQ"
    assert "bmdp" in facts["Versions"]
    assert facts["Seed"] == "0"


def test_nothing_is_played_if_so_asked(runs):
    found = told(runs / "ferry", n_episodes=0)
    assert set(found.dials[0]["realised"]["cost"]) == {None}
    assert "not played" in " ".join(found.notes)
    assert found.dials[0]["actions"]["names"][0] == "wait"


def test_progress_counts_all_episodes(runs):
    seen = []
    told(runs / "ferry", n_episodes=10, progress=lambda *at, **more: seen.append((*at, more)))
    assert seen[-1] == (120, 120, {"text": "drawing"})  # eleven budgets, and random actions
    assert (120, 120, {"text": "finding the optimum"}) in seen
    assert [done for done, *_ in seen] == sorted(done for done, *_ in seen)


def test_the_true_frontier_is_shown_if_it_is_known(runs):
    truth = upper_frontier([0.0, 0.6], [3.0, 9.0])
    found = told(runs / "ferry", n_episodes=5, truth=truth)
    assert found.dials[0]["truth"] == {"costs": [0.0, 0.6], "rewards": [3.0, 9.0]}


def test_the_optimum_is_told_of_where_it_is_known_and_the_policy_is_played(runs, monkeypatch):
    asked = []

    def known(spec):
        asked.append(spec.id)
        return TrueFrontier(upper_frontier([0.0, 0.6], [3.0, 9.0]), 0.1, {}), "by hand"

    monkeypatch.setattr("bmdp.report.run.known_frontier", known)
    assert told(runs / "ferry", n_episodes=5).dials[0]["truth"]["rewards"] == [3.0, 9.0]
    assert asked == [ferries.ENV.rpartition(":")[2]]
    assert "truth" not in told(runs / "ferry", n_episodes=0).dials[0]
    assert len(asked) == 1


def test_a_run_that_was_killed_tells_what_is_there(runs, tmp_path):
    with pytest.raises(Killed):
        ferries.explored(tmp_path / "begun", on_record=kill_after(2))
    found = told(tmp_path / "begun")
    assert found.dials == []
    assert "no policy yet" in found.answer
    assert "not finished" in found.notes[0]
    assert [p.name for p in found.pictures] == ["run-learning"]
    records = len((tmp_path / "begun/records.jsonl").read_text().splitlines())
    n_first = sum(r["round"] == "0" for r in rows(told(runs / "ferry", n_episodes=0), "records"))
    assert records == 2
    with pytest.raises(Killed):
        ferries.explored(tmp_path / "later", on_record=kill_after(n_first + 1))
    found = told(tmp_path / "later", n_episodes=10)
    assert "policy of round-000" in found.notes[0]
    assert len(found.dials) == 1


def test_a_calibrated_policy_tells_its_promise(runs):
    found = told(runs / "calibrated")  # in the environment of its certificate
    assert found.title == f"calibrated: a calibrated policy for {ferries.ENV}"
    held = bmdp.load_policy(runs / "calibrated").certificate
    table = rows(found, "calibration")
    assert [float(row["cost_high"]) for row in table] == held.cost_high.tolist()
    assert "confidence 0.9" in found.facts["Promise"]
    (dial,) = found.dials
    assert dial["forecast"]["cost"][-1] == pytest.approx(held.cost_mean[-1], rel=1e-4)
    assert [state["name"] for state in dial["states"]] == ["any first state"]
    assert "coin" in dial["words"]
    assert dial["status"][0] == "INFEASIBLE"
    assert "below what the policy can promise" in found.answer


def test_prices_are_named_where_they_are_chosen(tmp_path):
    learner = LagrangianConfig(gamma=1.0, budget_range=(0.0, 0.6), model=TableModel())
    train_from_data(ferries.log(), learner, tmp_path / "prices", seed=0)
    found = told(tmp_path / "prices")
    labels = [label for s in found.dials[0]["states"] for label in s["frontier"]["labels"]]
    assert labels
    assert all("price" in label or "cost first" in label for label in labels)
    assert found.dials[0]["forecast"]["cost"][0] == pytest.approx(0.0, abs=0.05)


def test_a_policy_alone_has_states_of_the_environment(tmp_path):
    q = TabularQ(
        q_r=[[[1.0] * 2, [3.0] * 2, [0.0] * 2]] * 4, q_c=[[[0.0] * 2, [0.2] * 2, [0.0] * 2]] * 4
    )
    HullPolicy(q, [0.0, 0.2]).save(tmp_path / "policy")
    ferries.register()
    found = told(tmp_path / "policy", env=ferries.ENV, n_episodes=50)
    assert found.title == f"policy: a policy for {ferries.ENV}"
    assert found.dials[0]["states"][0]["name"].startswith("state 0")
    alone = told(tmp_path / "policy")
    assert "states" not in alone.dials[0]
    assert "frontier" not in alone.dials[0]


def test_a_policy_without_dial_has_none(tmp_path):
    ScriptedPolicy("slot-filling/key-pad").save(tmp_path / "script")
    found = told(tmp_path / "script", env="slot-filling", n_episodes=50)
    assert found.dials == []
    assert "no dial" in found.notes[0]
    assert found.answer.startswith("Played for 50 episodes: reward")


def test_a_plugin_plays_scenes_of_its_environment(runs):
    asked = []

    def scenes(policy, spec, budgets, n_episodes, seed):
        asked.append((spec.id, len(budgets), seed))
        evil = {"budgets": "none", "title": "mine"}
        return {"layout": {"n": n_episodes}, "episodes": [[{}] for _ in budgets]} | evil

    plugins = [Plugin(ferries.ENV, scenes=scenes), Plugin("corridors", scenes=scenes)]
    found = told(runs / "ferry", n_episodes=5, seed=3, plugins=plugins)
    assert asked == [(ferries.ENV, 11, 3)]
    assert found.dials[0]["episodes"] == [[{}]] * 11
    assert found.dials[0]["title"] == "The dial"  # nothing else is taken from a plug-in
    nothing = [Plugin(ferries.ENV, scenes=lambda *_: None)]
    assert "episodes" not in told(runs / "ferry", n_episodes=5, plugins=nothing).dials[0]


def test_another_discount_of_the_environment_is_told(tmp_path):
    ferries.explored(tmp_path / "ferry", rounds=1)
    spec = json.loads((tmp_path / "ferry/spec.json").read_text())["spec"]
    spec["learner"]["gamma"] = 0.9
    ferries.retold(tmp_path / "ferry", spec=spec)
    notes = " ".join(told(tmp_path / "ferry", n_episodes=5).notes)
    assert "0.9" in notes
    assert "environment says 1" in notes


def test_a_run_whose_environment_is_not_here_is_told_without_it(tmp_path):
    ferries.explored(tmp_path / "ferry", rounds=1)
    spec = json.loads((tmp_path / "ferry/spec.json").read_text())["spec"]
    spec["env"]["id"] = "tests/Gone-v0"
    ferries.retold(tmp_path / "ferry", spec=spec)
    found = told(tmp_path / "ferry")
    assert "tests/Gone-v0" in found.notes[0]
    assert set(found.dials[0]["realised"]["cost"]) == {None}
    with pytest.raises(ConfigError, match="tests/Lost-v0"):
        told(tmp_path / "ferry", env="tests/Lost-v0")


def test_settings_of_the_environment_reach_it(runs):
    found = told(runs / "ferry", n_episodes=5, settings=['env.names=["a", "b", "c"]'])
    assert found.dials[0]["actions"]["names"] == ["a", "b", "c"]
    with pytest.raises(ConfigError, match=r"env\.x=1"):
        told(runs / "log", settings=["env.x=1"])


def test_what_is_no_run_is_refused(tmp_path, runs):
    assert not is_run(tmp_path)
    with pytest.raises(StoreError, match="no training run and no policy"):
        told(tmp_path)
    (tmp_path / "spec.json").write_text('{"schema": 2, "kind": "experiment"}')
    assert not is_run(tmp_path)
    (tmp_path / "spec.json").write_text("{")
    assert is_run(tmp_path)
    with pytest.raises(StoreError, match="is not JSON"):
        told(tmp_path)
    assert is_run(runs / "ferry")
    assert is_run(runs / "ferry/policy")
    assert is_run(runs / "calibrated")
