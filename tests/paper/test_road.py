"""The study of the road: what a row is, what its tables say, and that the page has them."""

import json

import numpy as np
import pytest
import road
from measuring import rows_of

from bmdp.envs.two_way import known_curve
from bmdp.learn import BFTQConfig, LagrangianConfig


def row(**changes):
    """What the replanning driver would earn at its own costs, if they were what was asked."""
    best = known_curve("replanning").frontier
    cost = np.maximum(road.BUDGETS, best.costs[0])
    reward = best.reward_at(np.minimum(cost, best.costs[-1]))
    plain = {"cost": cost.tolist(), "reward": reward.tolist(), "seconds": 1.0}
    return {"lesson": "prices-1500", "seed": 100, "method": "some"} | plain | changes


def cells(rows):
    table = road.lesson_table(rows, ["prices-1500"])
    return {column.name: list(column.cells) for column in table.columns}


def test_the_replanning_driver_has_all_of_its_own_reward():
    found = cells([row()])
    assert found["0.1"] == pytest.approx([1], abs=2e-3)  # budgets between vertices lose a little
    assert found["score"] == pytest.approx([1], abs=1e-6)
    assert found["overshoot"] == [0]


def test_shares_are_at_the_same_cost_and_means_over_seeds():
    half = (np.array(row()["reward"]) / 2).tolist()
    found = cells([row(), row(seed=101, reward=half)])
    assert found["seeds"] == [2]
    assert found["0.2"] == pytest.approx([0.75], abs=2e-3)


def test_a_dial_that_cannot_come_down_has_no_share_there():
    dear = [max(cost, 0.15) for cost in row()["cost"]]
    found = cells([row(cost=dear)])
    assert found["0.05"] == found["0.1"] == [None]
    assert found["least cost"] == [0.15]
    assert found["overshoot"] == pytest.approx([0.15 - known_curve("replanning").frontier.costs[0]])


def test_a_lesson_is_explored_as_its_name_says():
    by_budgets, by_prices = (road.spec_of(way, 600, "kinematics") for way in ("budgets", "prices"))
    assert isinstance(by_budgets.learner, BFTQConfig)
    assert isinstance(by_prices.learner, LagrangianConfig)
    assert by_prices.env.settings["features"] == "kinematics"
    how = by_prices.exploration
    assert how.rounds * how.episodes == 600
    assert road.Asked("prices-600-kinematics", 0, 1, "").words == ("prices", 600, "kinematics")
    assert road.Asked("fit", 0, 1, "").words == ("fit", None, "full")


@pytest.mark.slow
def test_a_lesson_keeps_a_row_for_each_method_once(tmp_path):
    asked = road.Asked("prices-60", 0, 5, str(tmp_path))
    road.study(asked)
    rows = rows_of(tmp_path)
    assert len({found["method"] for found in rows}) == len(rows) == 5
    assert all(len(found["cost"]) == len(road.BUDGETS) for found in rows)


def test_the_page_is_up_to_date():
    road.main(["page", "--check"])


def test_every_row_of_the_record_is_of_a_fresh_seed():
    record = json.loads(road.RECORD.read_text())
    assert {found["seed"] for found in record["rows"]} <= set(range(100, 110))
