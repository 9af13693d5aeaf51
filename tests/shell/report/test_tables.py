import csv

import numpy as np
import pytest

from bmdp.evaluation import measure_dials
from bmdp.evaluation.statistics import Interval
from bmdp.frontier import upper_frontier
from bmdp.report.section import NOTHING, Column, Table
from bmdp.report.series import Curve, bare_curve, budget_curve
from bmdp.report.tables import (
    budget_table,
    dial_report,
    dial_table,
    price_table,
    summary_table,
)
from dials import evaluation

FRONTIER = upper_frontier([0.0, 1.0], [10.0, 20.0])
COSTS, REWARDS = [[0.0, 0.5, 1.0], [0.2, 0.6, 0.8]], [[9.0, 14.0, 19.0], [9.0, 16.0, 17.0]]


def evaluations():
    pairs = zip(COSTS, REWARDS, strict=True)
    return [evaluation(c, r) for c, r in pairs]


def student_half(values):
    return 12.7062047 * np.std(values, ddof=1) / np.sqrt(2)


def published(settings, costs, rewards):
    """A curve that somebody published."""
    cost, reward = (Interval(*[np.array(values)] * 3) for values in (costs, rewards))
    none = np.empty((0, len(settings)))
    return Curve("published", np.array(settings), cost, reward, "published", 4, none, none)


def rows_of(table):
    return list(csv.DictReader(table.csv().splitlines()))


def column(table, name):
    return [float(row[name]) if row[name] else None for row in rows_of(table)]


@pytest.fixture
def table():
    found = evaluations()
    report = dial_report(found, FRONTIER)
    return budget_table("t", "T", budget_curve("ours", found), report)


def test_means_and_intervals_are_those_of_the_seeds(table):
    assert column(table, "asked") == [0, 0.5, 1]
    assert column(table, "cost") == pytest.approx([0.1, 0.55, 0.9])
    assert column(table, "reward") == pytest.approx([9, 15, 18])
    assert column(table, "cost_half_width")[1] == pytest.approx(student_half([0.5, 0.6]))
    assert column(table, "cost_low")[0] == pytest.approx(0.1 - student_half([0.0, 0.2]))
    assert column(table, "cost_sd") == pytest.approx([0.2 / 2**0.5, 0.1 / 2**0.5, 0.2 / 2**0.5])
    assert column(table, "reward_sd") == pytest.approx([0, 2 / 2**0.5, 2 / 2**0.5])


def test_score_overshoot_and_dial_error_are_as_defined(table):
    """By hand: the frontier earns 10 + 10 cost; each seed is measured by itself."""
    score = [
        (9 / 10 + 9 / 12) / 2,  # seed 1 pays 0.2 at budget 0, for which 12 could be had
        (14 / 15 + 16 / 16) / 2,
        (19 / 20 + 17 / 20) / 2,
    ]
    assert column(table, "score") == pytest.approx(score)
    assert column(table, "overshoot") == pytest.approx([0.1, 0.05, -0.1])
    assert column(table, "dial_error") == pytest.approx([0.1, 0.05, 0.1])


def test_the_page_rounds_and_the_file_does_not(table):
    assert table.heads[:5] == ["asked", "cost", "±", "reward", "±"]
    assert table.rows[1][:2] == ["0.5", "0.550"]
    text = repr(float(np.mean([9 / 10, 9 / 12])))
    assert rows_of(table)[0]["score"] == text


def test_one_seed_has_no_deviation_between_seeds():
    curve = budget_curve("ours", evaluations()[:1])
    table = budget_table("t", "T", curve, dial_report(evaluations()[:1], FRONTIER))
    assert "cost_sd" not in rows_of(table)[0]
    assert column(table, "cost_half_width") == pytest.approx([0.01] * 3)
    assert "episodes of one seed" in table.note


def test_without_a_true_frontier_nothing_is_measured_against_it():
    table = budget_table("t", "T", budget_curve("ours", evaluations()))
    assert "score" not in rows_of(table)[0]


def test_published_means_stand_beside_the_same_budgets():
    theirs = published([0.0002, 0.3, 1.0], [0.01, 0.2, 0.9], [1.5, 2.5, 3.5])
    table = budget_table("t", "T", budget_curve("", evaluations()), None, theirs)
    assert column(table, "published_cost") == [0.01, None, 0.9]
    assert column(table, "published_reward") == [1.5, None, 3.5]
    assert table.rows[1][-1] == NOTHING
    assert "Carrara et al. 2019" in table.note


def test_budgets_that_nobody_published_have_no_such_columns():
    curve = budget_curve("", [evaluation([0.1], [1.0], budgets=[0.123])])
    table = budget_table("t", "T", curve, None, published([0.5], [0.1], [1.0]))
    assert "published_cost" not in rows_of(table)[0]


def test_prices_have_their_published_means():
    curve = bare_curve("", [0.0, 15.0, 17.0], [0.5, 0.4, 0.3], [15.0, 12.0, 5.0])
    table = price_table("t", "T", curve, published([0.0, 15.0], [0.44, 0.38], [1.0, 2.0]))
    assert column(table, "lambda") == [0, 15, 17]
    assert column(table, "published_cost") == [0.44, 0.38, None]


def test_the_table_of_a_dial_has_forecasts_costs_and_status():
    asked = np.array([0.0, 0.5, 1.0])
    forecast = bare_curve("forecast", asked, [0.1, 0.4, 0.8], [8.0, 15.0, 18.0])
    realised = budget_curve("realised", evaluations()[:1])
    table = dial_table("t", asked, ["INFEASIBLE", "TIGHT", "SLACK"], realised, forecast)
    assert column(table, "forecast_cost") == [0.1, 0.4, 0.8]
    assert column(table, "cost") == COSTS[0]
    assert column(table, "cost_low") == pytest.approx([-0.01, 0.49, 0.99])
    assert [row["status"].split()[0] for row in rows_of(table)] == ["too", "spent", "more"]
    bare = dial_table("t", asked, [], None, forecast)
    assert list(rows_of(bare)[0]) == ["asked", "forecast_cost", "forecast_reward"]


def test_the_summary_has_the_means_of_the_reports():
    report = dial_report(evaluations(), FRONTIER)
    again = measure_dials(evaluations(), FRONTIER)
    table = summary_table("t", {"ours": report})
    (row,) = rows_of(table)
    assert row["policy"] == "ours"
    assert float(row["mean_score"]) == again.mean_score
    assert float(row["worst_overshoot"]) == pytest.approx(0.2)
    assert float(row["mean_dial_error"]) == pytest.approx((0.1 + 0.05 + 0.1) / 3)


def test_what_is_not_a_number_is_an_empty_cell_and_a_dash():
    table = Table(
        "t", "T", [Column("a", [float("nan"), None, 1.0]), Column("b", ["x", "", "y"], "")]
    )
    assert table.csv() == "a,b\n,x\n,\n1.0,y\n"
    assert table.rows == [[NOTHING], [NOTHING], ["1.000"]]
    assert table.heads == ["a"]


def test_a_table_that_is_in_its_file_alone_is_not_shown():
    assert Table("t", "T", [Column("a", [1.0], "")]).heads == []
