import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bmdp
from bmdp.cli import progress
from bmdp.cli import solve as verb
from bmdp.exact import FiniteBMDP, textbook
from commands import assert_is_user_error, run

METHODS = ["optimal", "lp", "allocation", "bvi"]


def solve(*arguments):
    return run("solve", *arguments)


def solve_branches(*arguments):
    return solve("--textbook", "branches", *arguments)


def strict_json(result):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout, parse_constant=refuse)


def cells(result):
    """Rows of a printed table, head included."""
    lines = [line.replace("┃", "│") for line in result.stdout.splitlines()]
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]


def assert_is_bad_usage(result, *words):
    assert result.exit_code == 2
    assert result.stdout == ""
    told = re.sub(r"\x1b\[[0-9;]*m", "", result.stderr)  # typer colours where CI asks for it
    for word in words:
        assert word in told


@pytest.fixture
def model_file(tmp_path):
    path = tmp_path / "model.npz"
    textbook.branches().model.save(path)
    return path


# What it finds


@pytest.mark.parametrize(
    ("method", "reward"), [("optimal", 5), ("lp", 5), ("allocation", 5), ("bvi", 2.75)]
)
def test_each_method_gives_its_reward_at_half_the_budget(method, reward):
    (row,) = strict_json(solve_branches("--budget", 0.5, "--method", method, "--json"))["rows"]
    assert row["budget"] == 0.5
    assert row["reward"] == pytest.approx(reward, abs=1e-7)
    assert row["cost"] == pytest.approx(0.5, abs=1e-7)
    assert row["status"] == "TIGHT"


def test_the_default_method_is_optimal_and_a_file_is_as_good_as_a_name(model_file):
    assert solve(model_file).stdout == solve_branches("--method", "optimal").stdout


@pytest.mark.parametrize("method", METHODS)
def test_budgets_below_and_above_the_frontier_are_told_by_their_status(method):
    rows = strict_json(solve_branches("--budget", -1, "--budget", 2, "--method", method, "--json"))[
        "rows"
    ]
    assert [row["status"] for row in rows] == ["INFEASIBLE", "SLACK"]
    assert [row["cost"] for row in rows] == pytest.approx([0, 1], abs=1e-7)
    assert [row["reward"] for row in rows] == pytest.approx([0, 5.5], abs=1e-7)


def test_ranges_and_numbers_are_answered_in_the_order_asked():
    result = solve_branches("--budget", 2, "--budget", "0:0.5:0.1", "--json")
    budgets = [row["budget"] for row in strict_json(result)["rows"]]
    assert budgets == [2, 0, 0.1, 0.2, 0.3, 0.4, 0.5]


@pytest.mark.parametrize(
    ("method", "budgets", "rewards"),
    [
        ("optimal", [0, 0.5, 1], [0, 5, 5.5]),
        ("allocation", [0, 0.5, 1], [0, 5, 5.5]),
        ("bvi", [0, 0.25, 0.5, 0.75, 1], [0.0, 1.375, 2.75, 4.125, 5.5]),
        ("lp", [0, 0.25, 0.5, 0.75, 1], [0, 2.5, 5, 5.25, 5.5]),
    ],
)
def test_without_budgets_vertices_or_five_from_end_to_end_are_answered(method, budgets, rewards):
    result = solve_branches("--method", method, "--json")
    rows = strict_json(result)["rows"]
    assert [row["budget"] for row in rows] == pytest.approx(budgets)
    assert [row["reward"] for row in rows] == pytest.approx(rewards)
    said = ["bvi: converged after 3 iterations, last residual 0", "can stay below the optimum"]
    assert all((words in result.stderr) == (method == "bvi") for words in said)


@pytest.mark.parametrize("method", METHODS)
def test_where_all_policies_cost_the_same_one_budget_is_answered(method):
    result = solve_branches("--start", 3, "--method", method, "--json")
    (row,) = strict_json(result)["rows"]
    assert row | {"multiplier": 0} == {
        "budget": 0,
        "reward": 0,
        "cost": 0,
        "status": "SLACK",
        "multiplier": 0,
    }


def test_bvi_takes_a_model_without_costs(tmp_path):
    path = tmp_path / "free.npz"
    FiniteBMDP(
        transition=np.ones((1, 2, 1)), reward=[[0.0, 1.0]], cost=[[0.0, 0.0]], gamma=0.5
    ).save(path)
    (row,) = strict_json(solve(path, "--method", "bvi", "--json"))["rows"]
    assert row["budget"] == 0
    assert row["reward"] == pytest.approx(2)


def test_the_start_can_be_chosen(model_file):
    found = strict_json(solve(model_file, "--start", 1, "--json"))
    assert found["start"] == 1
    assert found["frontier"] == {"costs": [0, 1], "rewards": [0, 10]}


def test_a_textbook_problem_starts_where_it_says(monkeypatch):
    known = textbook.branches()
    problem = textbook.TextbookProblem(known.model, 2, known.frontier)
    monkeypatch.setitem(textbook.PROBLEMS, "branches", lambda: problem)
    assert strict_json(solve_branches("--json"))["start"] == 2
    assert strict_json(solve_branches("--start", 0, "--json"))["start"] == 0


@pytest.mark.parametrize(("arguments", "n_grid"), [((), 101), (("--grid", 5), 5)])
def test_the_grid_of_bvi_spans_the_costs_of_all_states(arguments, n_grid, monkeypatch):
    grids, whole = [], verb.budgeted_value_iteration
    monkeypatch.setattr(
        verb,
        "budgeted_value_iteration",
        lambda model, grid, **k: grids.append(grid.tolist()) or whole(model, grid, **k),
    )
    assert solve("--textbook", "ladder", "--method", "bvi", *arguments).exit_code == 0
    assert grids == [np.linspace(0, 6, n_grid).tolist()]


# How it prints


@pytest.mark.parametrize("method", METHODS)
def test_json_has_all_keys(method):
    found = strict_json(solve_branches("--method", method, "--json"))
    frontier = set() if method == "lp" else {"frontier"}
    described = {"method", "start", "gamma", "horizon", "states", "actions", "converged", "rows"}
    assert set(found) == described | frontier
    about = (found["method"], found["start"], found["gamma"], found["horizon"])
    assert about == (method, 0, 1, None)
    assert (found["states"], found["actions"]) == (4, 2)
    assert found["converged"] is (True if method in ("allocation", "bvi") else None)
    multiplier = {"multiplier"} if method == "lp" else set()
    assert set(found["rows"][0]) == {"budget", "reward", "cost", "status"} | multiplier


def test_an_infinite_multiplier_is_null_in_json_and_inf_in_the_table():
    asked = ("--method", "lp", "--budget", -1, "--budget", 0.25, "--budget", 3)
    rows = strict_json(solve_branches(*asked, "--json"))["rows"]
    assert rows[0]["multiplier"] is None
    assert [row["multiplier"] for row in rows[1:]] == pytest.approx([10, 0])
    assert [row[-1] for row in cells(solve_branches(*asked))] == ["multiplier", "inf", "10", "0"]


def test_the_table_shows_the_numbers_without_colour():
    result = solve_branches("--budget", "-1", "--budget", "0.25", "--budget", "2")
    assert cells(result) == [
        ["budget", "reward", "cost", "status"],
        ["-1", "0", "0", "INFEASIBLE"],
        ["0.25", "2.5", "0.25", "TIGHT"],
        ["2", "5.5", "1", "SLACK"],
    ]
    assert "\x1b" not in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("method", "solver"), [("bvi", "budgeted_value_iteration"), ("allocation", "allocate_budgets")]
)
def test_an_iteration_that_stops_early_is_told(method, solver, monkeypatch):
    whole = getattr(verb, solver)
    monkeypatch.setattr(verb, solver, lambda *a, **k: whole(*a, **k, max_iterations=1))
    result = solve("--textbook", "payments", "--method", method, "--json")
    assert strict_json(result)["converged"] is False
    assert f"{method}: NOT converged" in result.stderr
    assert "residual" in result.stderr


@pytest.mark.parametrize(
    ("method", "words"),
    [("bvi", "iteration 1, res"), ("allocation", "iteration 1, res"), ("lp", "of 5 budgets")],
)
def test_long_work_is_told_of_and_results_stay_clean(method, words, monkeypatch):
    monkeypatch.setattr(progress, "SILENCE", 0.0)
    result = solve_branches("--method", method, "--json")
    told = [line for line in result.stderr.splitlines() if line.startswith("solving: ")]
    assert any(words in line for line in told)
    assert strict_json(result)["method"] == method


# What it refuses


@pytest.mark.parametrize("method", METHODS)
def test_a_budget_that_is_no_number_is_refused(method):
    result = solve_branches("--budget", "nan", "--method", method)
    assert_is_user_error(result, "--budget must be finite", "nan")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("start", [-1, 4])
def test_a_start_out_of_range_is_refused(start, method):
    result = solve_branches("--start", start, "--method", method)
    assert_is_user_error(result, f"start must be a state from 0 to 3; got {start}.")


def test_a_file_that_is_no_model_is_named(tmp_path, model_file):
    path = tmp_path / "nothing.npz"
    assert_is_user_error(solve(path), str(path), "does not exist")
    np.savez(path, weights=np.ones(3))
    assert_is_user_error(solve(path), str(path), "FiniteBMDP.save")
    whole = model_file.read_bytes()
    model_file.write_bytes(whole[: len(whole) // 2])
    assert_is_user_error(solve(model_file), str(model_file), "not a whole model file")
    assert_is_user_error(solve("--textbook", "branchs"), "Did you mean 'branches'?")


def test_bad_usage(model_file):
    assert_is_bad_usage(solve_branches(model_file), "--textbook")
    assert_is_bad_usage(solve(), "--textbook")
    for option in (("--method", "guess"), ("--grid", 1), ("--start", "x")):
        assert_is_bad_usage(solve_branches(*option), option[0])


def test_an_unexpected_error_keeps_its_traceback(monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(verb, "optimal_frontier", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        solve_branches()


# What it draws


@pytest.mark.parametrize(
    ("name", "magic"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml"), ("a.pdf", b"%PDF")]
)
def test_a_picture_is_drawn_in_the_form_of_its_ending(name, magic, tmp_path):
    path = tmp_path / name
    result = solve_branches("--plot", path, "--json")
    assert strict_json(result)["rows"]
    assert path.read_bytes().startswith(magic)
    assert f"picture: {path}" in result.stderr


def test_a_picture_of_lp_is_drawn_without_a_frontier(tmp_path, monkeypatch):
    from bmdp.report import figures

    asked, curve_figure = [], figures.curve_figure
    monkeypatch.setattr(
        figures, "curve_figure", lambda *both: asked.append(both) or curve_figure(*both)
    )
    path = tmp_path / "a.png"
    assert solve_branches("--method", "lp", "--budget", 0.5, "--plot", path).exit_code == 0
    ((frontier, outcomes),) = asked
    assert frontier is None
    assert list(outcomes) == [0.5]
    assert path.exists()


def test_a_picture_is_not_overwritten_unless_forced(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(b"mine")
    with monkeypatch.context() as patch:
        patch.setattr(verb, "optimal_frontier", lambda *_, **__: pytest.fail("solved first"))
        assert_is_user_error(solve_branches("--plot", path), str(path), "exists already")
    assert path.read_bytes() == b"mine"
    assert solve_branches("--plot", path, "--force").exit_code == 0
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "words"),
    [("a.jpg", ".png or .svg or .pdf"), ("png", ".png or .svg"), ("no/a.png", "no folder")],
)
def test_a_picture_that_cannot_be_drawn_is_refused_before_solving(name, words, tmp_path):
    assert_is_user_error(solve_branches("--plot", tmp_path / name), words, name[-4:])


def test_a_picture_that_cannot_be_written_is_told_after_the_results(tmp_path):
    path = tmp_path / "a.png"
    path.mkdir()
    result = solve_branches("--plot", path, "--force", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["rows"]
    assert result.stderr.startswith(f"error: {path} cannot be written")


# The command itself


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_lists_the_verbs(arguments):
    result = run(*arguments)
    assert "solve" in result.output
    assert "completion" not in result.output


def test_the_installed_command_says_its_version():
    command = Path(sys.executable).with_name("bmdp")
    done = subprocess.run([command, "--version"], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"bmdp {bmdp.__version__}\n", "")


def test_help_loads_neither_torch_nor_matplotlib():
    code = (
        "import sys, bmdp.cli.main as cli\n"
        "sys.argv = ['bmdp', 'solve', '--help']\n"
        "try:\n    cli.main()\nexcept SystemExit:\n    pass\n"
        "print(*{m.split('.')[0] for m in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"TERM": "dumb"},
    )
    loaded = done.stderr.split()
    assert "--textbook" in done.stdout
    assert "bmdp" in loaded
    assert not {"torch", "matplotlib"} & set(loaded)
