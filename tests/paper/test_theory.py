from dataclasses import replace

import numpy as np
import pytest

import folders
from bmdp.exact import solve_cmdp
from bmdp.exact.textbook import garnet
from bmdp.paper import theory as experiment
from bmdp.paper.runner import Work
from bmdp.paper.theory import (
    branches_figure,
    gap_figure,
    other_ways,
    pairs_figure,
    solve,
)
from pieces import piece, place

SMOKE = experiment.SETTINGS["smoke"]
SUCCESSORS = {"random": 3, "deterministic": 1}


@pytest.fixture(scope="session")
def folder(smoke):
    return smoke("theory")


@pytest.fixture(scope="session")
def gaps(folder):
    return piece(place(folder, ""), "gaps")


@pytest.fixture(scope="session")
def branches(folder):
    return piece(folder / "counter-examples", "branches")


def model_of(kind, row):
    rng = np.random.default_rng(row["seed"])
    return garnet(20, 3, SUCCESSORS[kind], gamma=0.9, rng=rng)


def programs(model, budgets):
    return [solve_cmdp(model, start=0, budget=b).reward for b in budgets]


@pytest.mark.parametrize("kind", SUCCESSORS)
def test_the_optimum_is_that_of_the_linear_program(gaps, kind):
    for row in gaps["kind"][kind]:
        model = model_of(kind, row)
        wanted = programs(model, row["asked"])
        for way in ("linear_program", "allocation", "carried"):
            assert row[way] == pytest.approx(wanted, abs=1e-6)
        assert row["best"] == pytest.approx(programs(model, row["cost"]), abs=1e-6)
        assert row["allocation_error"] < 1e-6


@pytest.mark.parametrize("kind", SUCCESSORS)
def test_shares_are_of_what_the_optimum_gains_over_the_safest_policy(gaps, kind):
    for row in gaps["kind"][kind]:
        model = model_of(kind, row)
        cheapest = solve_cmdp(model, start=0, budget=0.0)  # INFEASIBLE: the least cost there is
        safest = solve_cmdp(model, start=0, budget=cheapest.cost + 1e-9).reward
        for reward, best, share in zip(row["reward"], row["best"], row["share"], strict=True):
            assert share == pytest.approx((reward - safest) / (best - safest), abs=1e-4)
            assert reward <= best + 1e-6
        for way in ("allocation_share", "carried_share"):
            assert row[way] == pytest.approx([1.0] * 3, abs=1e-4)


def test_costs_that_differ_by_rounding_are_equal():
    solved = solve(8, 1)  # its optimum costs nothing, its allocation 2e-17
    found = other_ways(solved)
    assert found["allocation"] == pytest.approx(found["linear_program"])
    assert found["allocation_share"] == [None] * 3


def test_the_operator_loses_where_chance_moves_and_only_there(gaps):
    lost = {
        kind: 1 - np.mean([row["share"] for row in rows]) for kind, rows in gaps["kind"].items()
    }
    assert 0.01 < lost["random"] < 0.4
    assert lost["deterministic"] < 0.01
    assert all(row["converged"] for rows in gaps["kind"].values() for row in rows)


def test_every_seed_has_models_of_its_own(gaps, tmp_path):
    experiment.run(replace(SMOKE, models=1, budgets=5), Work(tmp_path, 7, "cpu", ""))
    (row,) = piece(tmp_path, "gaps")["kind"]["random"]
    first, second = gaps["kind"]["random"]  # two models of seed 3
    assert (first["seed"], second["seed"], row["seed"]) == (6, 7, 7)
    assert row["linear_program"] == second["linear_program"] != first["linear_program"]


def test_two_branches_have_their_values_in_closed_form(branches):
    rewards = branches["rewards"]
    for way in ("linear_program", "allocation", "carried"):
        assert rewards[way] == pytest.approx(5.0)
    assert rewards["operator"] == pytest.approx(2.75)


def test_the_frontiers_of_two_branches_are_those_of_theory(branches):
    budgets = np.linspace(0, 1, 21)
    best = np.where(budgets < 0.5, 10 * budgets, 5 + (budgets - 0.5))
    wanted = dict.fromkeys(("linear_program", "allocation", "carried"), best)
    wanted["operator"] = 5.5 * budgets
    for way, rewards in wanted.items():
        drawn = branches["frontiers"][way]
        assert np.interp(budgets, drawn["costs"], drawn["rewards"]) == pytest.approx(rewards)


def test_the_operator_expands_without_bound(folder):
    found = piece(folder / "counter-examples", "expansion")
    sizes = np.array([row["size"] for row in found["rows"]])
    assert np.array([row["steep"] for row in found["rows"]]) * sizes == pytest.approx(1)
    assert np.array([row["kinked"] for row in found["rows"]]) * sizes == pytest.approx(0.45)
    for row in found["rising"]:
        assert 1 < row["largest"] <= row["bound"] == 1 + row["L"]


def test_the_pairs_are_those_of_the_paper_and_of_the_remark(folder):
    steep, kinked = piece(folder / "counter-examples", "pairs")["pairs"]
    top = pytest.approx([0.0, 1 / 0.9])
    assert (steep["first"]["costs"], steep["first"]["rewards"]) == ([0.0, 0.2], top)
    assert (steep["second"]["costs"], steep["second"]["rewards"]) == ([0.2, 0.4], top)
    assert steep["first"]["chosen"] == pytest.approx({"cost": 0.2, "reward": 1 / 0.9})
    assert steep["second"]["chosen"] == pytest.approx({"cost": 0.2, "reward": 0.0})
    assert (steep["distance"], steep["image_distance"]) == pytest.approx((0.2, 1.0))
    assert kinked["first"]["chosen"] == pytest.approx({"cost": 0.0, "reward": 1.0})
    assert kinked["second"]["chosen"] == pytest.approx({"cost": 1.0, "reward": 1.2})
    assert (kinked["distance"], kinked["image_distance"]) == pytest.approx((0.4, 0.9))


# Figures


def test_shares_are_drawn_in_order_for_each_kind_of_model():
    figure = gap_figure({"random": np.array([0.9, 0.5, np.nan, 0.7])})
    (line,) = figure.axes[0].get_lines()
    assert line.get_label() == "random"
    assert line.get_xdata().tolist() == [0.5, 0.7, 0.9]
    assert line.get_ydata() == pytest.approx([0, 0.5, 1])


def test_pairs_are_drawn_with_what_is_chosen_of_each():
    figure = pairs_figure([folders.PAIR, folders.PAIR | {"name": "kinked"}])
    assert [axes.get_title() for axes in figure.axes] == [
        "steep: 0.2 apart, images 1",
        "kinked: 0.2 apart, images 1",
    ]
    lines = figure.axes[0].get_lines()
    drawn = [line.get_xydata().tolist() for line in lines if line.get_label() in ("Q1", "Q2")]
    assert drawn == [[[0, 0], [0.2, 1]], [[0.2, 0], [0.4, 1]]]
    chosen = [line.get_xydata().tolist() for line in lines if line.get_markerfacecolor() == "none"]
    assert chosen == [[[0.2, 1]], [[0.2, 0]]]


def test_each_way_is_drawn_on_two_branches():
    figure = branches_figure(folders.BRANCHES)
    lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
    assert lines["linear program"].get_ydata().tolist() == [0, 5, 5.5]
    assert lines["the paper's operator T"].get_ydata().tolist() == [0, 5.5]
    assert "price carried along" not in lines  # it is not there
