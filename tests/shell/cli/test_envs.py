import json

from typer.testing import CliRunner

from bmdp.cli.main import app


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
