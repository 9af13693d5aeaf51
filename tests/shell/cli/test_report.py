import csv
import json

import pytest

import ferries
import folders
from bmdp.cli.progress import Progress
from commands import assert_is_user_error, run
from pictures import draw_once


@pytest.fixture(autouse=True)
def drawn_once(monkeypatch):
    draw_once(monkeypatch)


@pytest.fixture(autouse=True)
def progress(monkeypatch):
    """Calls of the progress: title, done and total of each."""
    seen = []

    def update(self, done, total, *words, **more):
        seen.append((self.title, done, total))

    monkeypatch.setattr(Progress, "update", update)
    return seen


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    ferries.explored(place / "ferry", rounds=1)
    ferries.from_log(place / "log")
    return place


@pytest.fixture
def experiment(tmp_path):
    folders.theory(tmp_path / "theory")
    (tmp_path / "theory/seed-1/finished.json").unlink()
    return tmp_path / "theory"


def table_of(runs):
    return (runs / "ferry/report/tables/ferry-budgets.csv").read_text()


def test_the_page_of_a_run_is_written_beside_it_and_printed(runs, progress):
    result = run("report", runs / "ferry", "--episodes", 20, columns=200)
    assert result.exit_code == 0
    title, answer, *table, page, counts = result.stdout.splitlines()
    assert title == f"ferry: a policy for {ferries.ENV}"
    assert "20 episodes at each of 11 budgets" in answer
    assert page == f"page: {runs / 'ferry/report/index.html'}"
    assert counts == "5 figures and 4 tables beside it"
    assert f"<title>{title}</title>" in (runs / "ferry/report/index.html").read_text()
    cells = [[c.strip() for c in line.strip("│").split("│")] for line in table if "│" in line]
    rows = list(csv.DictReader(table_of(runs).splitlines()))
    for i, name in enumerate(("asked", "forecast_cost", "cost", "reward")):
        assert [float(row[i]) for row in cells] == pytest.approx(
            [float(row[name]) for row in rows], rel=1e-3
        )
    assert progress[-1] == ("report of ferry", 240, 240)
    again = run("report", runs / "ferry", "--no-play")
    assert again.exit_code == 0  # its own report is replaced
    assert "not played" in again.stderr


def test_several_folders_have_one_page(runs, experiment, tmp_path):
    out = tmp_path / "out"
    both = (runs / "log", experiment)
    assert_is_user_error(run("report", *both), "--out")
    assert run("report", *both, "--out", out).exit_code == 0
    text = (out / "index.html").read_text()
    assert "<title>Report: out</title>" in text
    assert 0 < text.index('<section id="log"') < text.index('<section id="theory"')
    assert_is_user_error(run("report", *both, "--out", out), "exists already", "--force")
    assert run("report", *both, "--out", out, "--force").exit_code == 0


def test_a_folder_of_runs_and_experiments_has_one_page_of_all(tmp_path, experiment):
    folders.theory(tmp_path / "other")
    assert run("report", tmp_path).exit_code == 0
    text = (tmp_path / "report/index.html").read_text()
    assert f"<title>Report: {tmp_path.name}</title>" in text
    assert '<section id="theory"' in text
    assert '<section id="other"' in text
    assert run("report", tmp_path).exit_code == 0  # the report itself is no run


def test_json_has_the_page_answers_and_notes(experiment):
    result = run("report", experiment, "--json")
    fields = json.loads(result.stdout)
    assert fields["page"] == str(experiment / "report/index.html")
    assert list(fields["answers"]) == ["theory"]
    assert fields["notes"] == ["seed 1 is not finished."]
    assert result.stderr.endswith("note: seed 1 is not finished.\n")


def test_a_log_has_forecasts_of_cost_and_reward_printed(runs):
    result = run("report", runs / "log", columns=200)
    assert result.exit_code == 0
    heads = next(line for line in result.stdout.splitlines() if "asked" in line)
    assert [head.strip() for head in heads.strip("┃").split("┃")] == [
        "asked",
        "forecast cost",
        "forecast reward",
    ]


def test_an_environment_can_be_named(runs, tmp_path):
    out = tmp_path / "out"
    run_of = ("report", runs / "ferry/policy", "--out", out)
    assert run(*run_of, "--env", ferries.ENV, "--episodes", 5, "--seed", 3).exit_code == 0
    assert "seed 3" in (out / "index.html").read_text()
    assert_is_user_error(run(*run_of, "--force", "--env", "Nowhere-v0"), "Nowhere-v0")


def test_a_place_that_is_no_report_is_refused_before_anything_is_played(runs, tmp_path, progress):
    (tmp_path / "thesis.tex").write_text("mine")
    assert_is_user_error(run("report", runs / "ferry", "--out", tmp_path), "is no report")
    assert progress == []


def test_a_folder_that_is_none_of_these_is_told_of_in_a_line(tmp_path):
    assert_is_user_error(run("report", tmp_path), "is no run, policy or experiment")
    assert_is_user_error(run("report", tmp_path / "nothing"), "is not there")
    (tmp_path / "file").touch()
    assert_is_user_error(run("report", tmp_path / "file"), "is a file")
    (tmp_path / "spec.json").write_text("{")
    assert_is_user_error(run("report", tmp_path), "is not JSON")
