import csv
import json

import pytest

import folders
from commands import assert_is_user_error, run


@pytest.fixture
def folder(tmp_path):
    folders.small(tmp_path / "theory")
    return tmp_path / "theory"


def test_the_place_of_the_page_is_printed(folder):
    result = run("report", folder, columns=200)
    assert result.exit_code == 0
    *_, page, counts = result.stdout.splitlines()
    assert page == f"page: {folder / 'report/index.html'}"
    assert counts == "1 figures and 2 tables beside it"
    assert (folder / "report/index.html").exists()
    assert run("report", folder).exit_code == 0  # its own report is replaced


def test_what_each_budget_buys_is_printed(tmp_path):
    folders.corridors(tmp_path / "corridors")
    result = run("report", tmp_path / "corridors", columns=200)
    title, answer, *table = result.stdout.splitlines()
    assert title.startswith("Exploring corridors")
    assert "of the optimum on average" in answer
    names = [name.strip() for name in table[1].strip("┃").split("┃")]
    assert names == ["asked", "realised cost", "reward", "score"]
    printed = [
        [cell.strip() for cell in line.strip("│").split("│")] for line in table if "│" in line
    ]
    path = tmp_path / "corridors/report/tables/corridors-risk-sensitive.csv"
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row[0]) for row in printed] == [float(row["asked"]) for row in rows]
    for i, name, digits in ((1, "cost", 3), (3, "score", 3)):
        assert [float(p[i]) for p in printed] == [round(float(r[name]), digits) for r in rows]


def test_json_has_the_page_and_notes(folder):
    (folder / "seed-0/finished.json").unlink()
    result = run("report", folder, "--json")
    fields = json.loads(result.stdout)
    assert fields["page"] == str(folder / "report/index.html")
    assert fields["notes"] == ["seed 0 is not finished."]
    assert result.stderr == "note: seed 0 is not finished.\n"


def test_another_place_takes_force_the_second_time(folder, tmp_path):
    out = tmp_path / "there"
    assert run("report", folder, "--out", out).exit_code == 0
    assert_is_user_error(run("report", folder, "--out", out), "exists already", "--force")
    assert run("report", folder, "--out", out, "--force").exit_code == 0


def test_a_folder_that_is_no_experiment_is_told_of_in_a_line(tmp_path):
    assert_is_user_error(run("report", tmp_path), "is no experiment")
    assert_is_user_error(run("report", tmp_path / "nothing"), "is not there")
    (tmp_path / "spec.json").write_text('{"schema": 1, "kind": "exploration"}')
    assert_is_user_error(run("report", tmp_path), "is a training run")
    (tmp_path / "spec.json").write_text("{")
    assert_is_user_error(run("report", tmp_path), "is not JSON")
