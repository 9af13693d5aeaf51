"""The page of a run of `bmdp.fit`, finished or not, by exploring and from a log."""

import csv
import json
import shutil

import numpy as np
import pandas as pd
import pytest

import bmdp
import ferries
from bmdp.errors import StoreError
from bmdp.policies import Portfolio
from bmdp.report.page import page
from bmdp.report.run import run_section
from pictures import draw_once
from training import Killed


@pytest.fixture(autouse=True)
def drawn_once(monkeypatch):
    draw_once(monkeypatch)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    ferries.register()
    place = tmp_path_factory.mktemp("runs")
    bmdp.fit(ferries.ENV, episodes=300, out=place / "ferry", command="bmdp fit there")
    columns = ferries.log().to_arrays()
    columns["action"] = columns["action"] % 2  # nobody ever slept
    log = bmdp.TransitionBatch(**columns, n_actions=3, state_names=("crossing", "tide"))
    bmdp.fit(log, gamma=1.0, out=place / "log")
    return place


@pytest.fixture(scope="module")
def ferry(runs):
    return told(runs / "ferry")


def told(folder, **changes):
    """A section, which must be one that a page can have."""
    found = run_section(folder, **({"anchor": "run", "n_episodes": 50} | changes))
    page("Title", [found], made="now")
    return found


def rows(section, name):
    table = next(table for table in section.tables if table.name == f"run-{name}")
    return list(csv.DictReader(table.csv().splitlines()))


def kept(folder):
    return json.loads((folder / "fitted.json").read_text())


def killed_at(share, folder, source, **how):
    """A run that ends as soon as a share of it is done."""

    def on_progress(done, text):
        if done >= share:
            raise Killed

    with pytest.raises(Killed):
        bmdp.fit(source, out=folder, on_progress=on_progress, **how)
    return folder


def test_candidates_are_a_table(ferry, runs):
    candidates = kept(runs / "ferry")["candidates"]
    found = rows(ferry, "candidates")
    assert [row["name"] for row in found] == [one["name"] for one in candidates]
    assert [row["why"] for row in found] == [one["why"] for one in candidates]
    assert float(found[0]["value"]) == candidates[0]["value"]
    assert ferry.facts["Taken"] == candidates[0]["name"]


def test_the_forecast_is_a_table_with_its_intervals(ferry, runs):
    forecast = kept(runs / "ferry")["forecast"]
    found = rows(ferry, "forecast")
    assert [float(row["asked"]) for row in found] == forecast["budgets"]
    for name in ("cost", "cost_low", "cost_high", "reward", "reward_low", "reward_high"):
        assert [float(row[name]) for row in found] == forecast[name]
    dial = ferry.dials[0]
    at = np.interp(dial["budgets"], forecast["budgets"], forecast["cost"])
    assert dial["forecast"]["cost"] == pytest.approx(at, rel=1e-4)
    assert "episodes that it played" in dial["forecast"]["source"]


def test_the_answer_goes_on_with_what_was_inferred(ferry, runs):
    assert ferry.answer.startswith("Played for 50 episodes at each of 11 budgets")
    assert ferry.answer.endswith(kept(runs / "ferry")["summary"])
    assert ferry.title == f"ferry: a policy for {ferries.ENV}"
    assert ferry.facts["Asked for"] == "episodes 300"
    assert ferry.facts["Command"] == "bmdp fit there"


def test_rounds_of_exploring_are_drawn_and_listed(ferry, runs):
    (picture,) = [picture for picture in ferry.pictures if picture.name == "run-rounds"]
    assert "at random prices" in picture.caption
    found = rows(ferry, "records")
    rounds = [
        bmdp.TransitionBatch.from_npz(path)
        for path in sorted((runs / "ferry/steps/rounds").glob("*.npz"))
    ]
    first = rounds[0]
    assert int(found[0]["episodes"]) == len(np.unique(first.episode))
    assert float(found[0]["cost"]) == pytest.approx(first.cost.sum() / int(found[0]["episodes"]))
    assert [int(row["episodes"]) for row in found] == [len(one.starts()) for one in rounds]
    assert len(rounds) > 3
    assert [b["name"] for b in ferry.dials[0]["baselines"]][-1] == "its exploration"


def test_the_status_of_a_budget_is_the_one_that_is_played(ferry, runs):
    policy = bmdp.load_policy(runs / "ferry")
    dial = ferry.dials[0]
    for budget, status in zip(dial["budgets"], dial["status"], strict=True):
        decided = policy.start(np.zeros((1, 1)), budget, np.random.default_rng(0)).decide([[0]])
        assert bmdp.BudgetStatus[status] == decided.status[0] or budget >= policy.budget_range[1]


def test_a_log_has_forecasts_with_intervals_and_its_notes(runs):
    found = told(runs / "log")
    assert found.title == "log: a policy learned from a log"
    assert found.answer.startswith("Forecast, from 75 episodes of the data")
    assert "would be exceeded by more than chance (95 % intervals)" in found.answer
    assert "action 2 was never taken: the log says nothing of what follows" in found.notes
    assert set(kept(runs / "log")["notes"]) <= set(found.notes)
    assert [b["name"] for b in found.dials[0]["baselines"]][-1] == "the log's own behaviour"
    assert not [picture for picture in found.pictures if picture.name == "run-rounds"]
    assert found.dials[0]["forecast"]["cost_low"][-1] < found.dials[0]["forecast"]["cost"][-1]
    trade_off, asked = (p.caption for p in found.pictures[:2])
    assert "Boxes: 95 %" in trade_off
    assert "Bars: 95 %" in asked
    assert "Boxes" not in asked


def test_actions_that_have_names_in_the_log_have_them_on_the_page(tmp_path):
    log = ferries.log()
    frame = pd.DataFrame(log.state, columns=log.state_names)
    frame["action"] = np.array(["wait", "hurry", "sleep"])[log.action]
    frame["reward"], frame["cost"] = log.reward, log.cost
    frame["episode"], frame["terminal"] = log.episode, log.terminal
    columns = bmdp.Columns(state=log.state_names)
    bmdp.fit(frame, gamma=1.0, columns=columns, out=tmp_path / "run")
    found = told(tmp_path / "run").dials[0]
    assert found["actions"]["names"] == ["hurry", "sleep", "wait"]
    labels = {label.split(",")[0] for label in found["frontier"]["labels"]}
    assert labels <= {"hurry", "sleep", "wait"}
    assert "hurry" in labels


def test_a_portfolio_that_chooses_by_cost_alone_shows_no_rewards_that_it_expects(tmp_path, runs):
    shutil.copytree(runs / "log", tmp_path / "log")
    shutil.rmtree(tmp_path / "log/policy")
    held = bmdp.load_policy(tmp_path / "log/steps/candidates/table, BFTQ/policy")
    members = {"which": [0, 0], "budgets": [0.0, held.budget_range[1]], "costs": [0.1, 0.4]}
    Portfolio((held,), **members, rewards=[0.0, 0.3]).save(tmp_path / "log/policy")
    found = told(tmp_path / "log")
    (dial,) = found.dials
    assert "frontier" not in dial
    assert (dial["status"][0], dial["status"][-1]) == ("INFEASIBLE", "SLACK")
    assert "What it expects at a state is not shown: a Portfolio does not say." in found.notes


def test_exploring_that_goes_on_still_has_a_page(tmp_path):
    ferries.register()
    found = told(killed_at(0.2, tmp_path / "run", ferries.ENV, episodes=300))
    n_rounds = len(list((tmp_path / "run/steps/rounds").glob("*.npz")))
    n_episodes = sum(int(row["episodes"]) for row in rows(found, "records"))
    assert found.answer == (
        f"There is no policy yet. Explored so far: {n_episodes} episodes, in rounds: {n_rounds}."
    )
    (note,) = found.notes
    assert note.startswith("The run is not finished: there is no policy yet.")
    assert f"`bmdp fit --resume {tmp_path / 'run'}` goes on" in note
    assert [picture.name for picture in found.pictures] == ["run-rounds"]
    assert not found.dials


def test_a_log_that_is_learned_from_still_has_a_page(tmp_path):
    found = told(killed_at(0.8, tmp_path / "run", ferries.log(), gamma=1.0))
    assert found.answer == "There is no policy yet."
    assert "no policy yet; candidates that have learned: " in found.notes[0]
    assert ", BFTQ" in found.notes[0]
    assert rows(found, "data")


@pytest.mark.parametrize("left", ["fitted.json", "done"])
def test_a_page_does_without_what_is_not_there(tmp_path, runs, left):
    shutil.copytree(runs / "log", tmp_path / "log")
    (tmp_path / "log" / left).unlink()
    found = told(tmp_path / "log")
    assert found.dials
    assert any(note.startswith("The run is not finished") for note in found.notes) == (
        left == "done"
    )


@pytest.mark.parametrize(("name", "text"), [("fitted.json", "{"), ("fitted.json", "[]")])
def test_damage_is_told(tmp_path, runs, name, text):
    shutil.copytree(runs / "log", tmp_path / "log")
    (tmp_path / "log" / name).write_text(text)
    with pytest.raises(StoreError, match="is damaged"):
        told(tmp_path / "log")


def test_an_environment_that_is_not_here_is_done_without(tmp_path, runs):
    shutil.copytree(runs / "ferry", tmp_path / "ferry")
    header = json.loads((tmp_path / "ferry/spec.json").read_text())
    source = {"env": "Gone-v0", "settings": {}}
    del header["checksum"]
    (tmp_path / "ferry/spec.json").write_text(json.dumps(header | {"source": source}))
    found = told(tmp_path / "ferry")
    assert any(note.startswith("It was not played: no environment") for note in found.notes)
    assert found.dials
