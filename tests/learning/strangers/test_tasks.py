"""True frontiers of the benchmark's tasks, and scores by them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from strangers import make_truth, planning
from strangers.boxes import BoxTask
from strangers.envs import tables_of
from strangers.grids import TREASURES, FourRoom, room_steps
from strangers.tasks import STORED, TASKS, Truth

from bmdp.arrays import FloatArray
from bmdp.errors import ConfigError

pytestmark = pytest.mark.slow  # tasks and truths of a benchmark

CHEAP = ["frozen-lake-4x4", "deep-sea-treasure", "blackjack", "resource-gathering"]
OTHERS = [n for n, task in TASKS.items() if task.has_tables and n not in CHEAP]


def check_again(name):
    stored, (found, _) = TASKS[name].truth(), make_truth.make(name)
    assert stored.costs == pytest.approx(found.costs, abs=1e-9)
    assert stored.rewards == pytest.approx(found.rewards, abs=1e-7)
    assert (stored.floor, stored.kind) == (pytest.approx(found.floor), found.kind)


@pytest.mark.parametrize("name", CHEAP)
def test_a_stored_truth_is_what_the_tables_give(name):
    check_again(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_any_stored_truth_of_tables_is_what_they_give(name):
    check_again(name)


def test_there_are_nine_tasks_to_develop_with_and_ten_to_test():
    halves = [task.half for task in TASKS.values()]
    assert (halves.count("develop"), halves.count("test")) == (9, 10)


@pytest.mark.parametrize("name", TASKS)
def test_a_truth_is_a_concave_frontier_above_its_floor(name):
    truth = TASKS[name].truth()
    assert json.loads((STORED / f"{name}.json").read_text())["gamma"] == TASKS[name].gamma
    assert truth.floor <= 0
    if not truth.is_known:
        assert len(truth.costs) == 0
        return
    slopes = np.diff(truth.rewards) / np.diff(truth.costs)
    assert len(truth.costs) >= 2
    assert (slopes > 0).all()
    assert (np.diff(slopes) < 0).all()
    assert truth.costs[0] >= 0
    assert truth.rewards[0] >= truth.floor
    assert truth.rewards[-1] - truth.rewards[0] > 0.04 * (truth.rewards[-1] - truth.floor)
    assert truth.error < 0.02 * (truth.rewards[-1] - truth.floor)


def test_treasures_are_reached_by_the_shortest_ways():
    gamma = TASKS["deep-sea-treasure"].gamma
    steps = np.array([row + column for column, (row, _) in enumerate(TREASURES)])
    worth = np.array([value for _, value in TREASURES])
    truth = TASKS["deep-sea-treasure"].truth()
    assert truth.costs == pytest.approx((1 - gamma**steps) / (1 - gamma))
    assert truth.rewards == pytest.approx(worth * gamma ** (steps - 1))


def test_sticking_costs_nothing_at_blackjack_and_the_best_play_is_known():
    truth = TASKS["blackjack"].truth()
    assert truth.costs[0] == 0
    # Sutton and Barto's game against a dealer with an infinite deck.
    assert truth.rewards[-1] == pytest.approx(-0.0466, abs=5e-4)


@pytest.mark.parametrize("price", [0.01, 0.5, 100.0])
def test_values_of_four_rooms_solve_the_equation_of_their_tables(price):
    steps, tables = room_steps(), tables_of("four-room")
    reward, cost = planning.room_values(price, steps)
    value = (reward - price * cost).ravel()
    pays = tables.reward - price * tables.cost
    q = pays + np.where(tables.over, 0.0, tables.gamma * value[tables.next_state])
    assert q.reshape(-1, 4).max(axis=1) == pytest.approx(value, abs=1e-9)


def test_the_frontier_of_four_rooms_is_what_its_policies_reach():
    truth = TASKS["four-room"].truth()
    prices = -np.diff(-truth.rewards) / np.diff(truth.costs)
    for place, price in enumerate(prices[:-1] + np.diff(prices) / 2, 1):
        point = planning.rooms_point(float(price))
        assert point == pytest.approx((truth.costs[place], truth.rewards[place]), abs=1e-6)


@pytest.mark.parametrize("price", [0.01, 0.5, 100.0])
def test_the_best_way_through_four_rooms_earns_its_value_in_the_environment(price):
    steps, tables, env = room_steps(), tables_of("four-room"), FourRoom()
    reward, cost = (values.ravel() for values in planning.room_values(price, steps))
    value = reward - price * cost
    pays = tables.reward - price * tables.cost
    q = pays + np.where(tables.over, 0.0, tables.gamma * value[tables.next_state])
    numbers = {tuple(row): i for i, row in enumerate(tables.observations.tolist())}
    seen, _ = env.reset(seed=0)
    first, found, discount, over = numbers[tuple(seen.tolist())], np.zeros(2), 1.0, False
    while not over:
        action = int(q.reshape(-1, 4)[numbers[tuple(seen.tolist())]].argmax())
        seen, earned, over, _, info = env.step(action)
        found += discount * np.array([earned, info["cost"]])
        discount *= tables.gamma
    assert found == pytest.approx([reward[first], cost[first]])


class Line(BoxTask):
    """A walk from 0: being at x pays x and costs x squared; 1 is a wall."""

    name, gamma, n_draws, action_names = "line", 0.9, 1, ("left", "stay", "right")

    def begin(self, uniforms: FloatArray) -> FloatArray:
        return np.zeros((len(uniforms), 1))

    def follow(self, states, actions):
        after = np.clip(states[:, 0] + 0.25 * (actions - 1), -1.0, 1.0)
        return after[:, None], after, after**2, np.zeros(len(states), np.bool_)


@pytest.mark.parametrize("depth", [1, 3])
def test_plans_on_a_grid_find_the_best_place_for_a_price(depth):
    grid = planning.box_grid(Line(), [np.linspace(-1, 1, 9)], depth)
    prices = [10.0, 1.0, 0.0]  # of the places of the grid, 0, 0.5 and 1 are best
    points, gaps = planning.box_points(grid, prices=prices, n_starts=3, n_steps=100)
    for best, point in zip((0.0, 0.5, 1.0), points, strict=True):
        places = np.minimum(0.25 * np.arange(1, 101), best)
        discount = 0.9 ** np.arange(100)
        assert point == pytest.approx(((discount * places**2).sum(), (discount * places).sum()))
    assert gaps == pytest.approx([0, 0, 0], abs=1e-3)


HALVES = Truth(np.array([0.0, 1.0]), np.array([-1.0, 3.0]), -2.0, "exact", 0.0, "by hand")


def test_a_score_is_counted_from_the_floor():
    asked, reward, cost = np.array([[0.0, 0.5, 0.5, 7.0], [-1, -0.5, -0.5, 3], [0, 0.5, 1, 0.2]])
    assert HALVES.score(asked, reward, cost).tolist() == [1.0, 0.5, 0.3, 1.0]


def test_there_is_no_score_where_nothing_can_be_earned():
    truth = Truth(np.array([0.0, 1.0]), np.array([0.0, 1.0]), 0.0, "exact", 0.0, "by hand")
    scores = truth.score(np.array([0.0, 0.0]), np.array([0.0, 0.25]), np.array([0.0, 0.5]))
    assert scores.tolist() == [pytest.approx(np.nan, nan_ok=True), 0.5]


def test_a_task_without_tables_has_no_model():
    with pytest.raises(ConfigError, match="cart-pole has no tables"):
        TASKS["cart-pole"].model()
