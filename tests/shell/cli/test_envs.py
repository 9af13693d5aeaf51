import json

import pytest
from typer.testing import CliRunner

from bmdp.cli.main import VERBS, app, verb


@pytest.mark.parametrize("name", sorted(set(VERBS) - {"train"}))
def test_the_line_of_a_verb_is_the_first_of_its_docstring(name):
    first = verb(name).help.split("\n\n")[0]
    assert VERBS[name] == " ".join(first.split())


def test_help_names_every_verb_and_train_is_fit():
    told = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "160"}).stdout
    assert all(f" {name} " in told and line in told for name, line in VERBS.items())
    assert verb("train").callback is not None
    assert [p.name for p in verb("train").params] == [p.name for p in verb("fit").params]


def test_all_environments_are_listed():
    result = CliRunner().invoke(app, ["envs"], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    for word in ("bmdp/Corridors-v0", "slot-filling", "key pad 2", "0 to 1"):
        assert word in result.stdout


def test_a_narrow_terminal_shows_every_word():
    lines = CliRunner().invoke(app, ["envs"], env={"COLUMNS": "80"}).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 12
    for words in ("…", "..."):
        assert not any(words in line for line in lines)
    assert "actions of corridors: stop, down, right, left, up" in lines
    assert "faster, slower" in lines[-1]


def test_the_list_is_there_as_json():
    rows = json.loads(CliRunner().invoke(app, ["envs", "--json"]).stdout)
    assert [row["name"] for row in rows] == ["corridors", "slot-filling", "two-way"]
    assert [len(row["actions"]) for row in rows] == [5, 7, 5]
    assert [row["horizon"] for row in rows] == [9, 10, 15]
