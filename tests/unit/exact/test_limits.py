from itertools import product

import numpy as np
import pytest

from bmdp import FiniteBMDP, ModelError
from bmdp.exact import optimal_frontier, with_cost_so_far
from bmdp.exact.limits import _sums


def model(costs, horizon=3, seed=0, **changes):
    rng = np.random.default_rng(seed)
    transition = rng.dirichlet(np.ones(2), size=(2, 2))
    how = {"reward": rng.random((2, 2)), "cost": costs, "gamma": 0.8, "horizon": horizon}
    return FiniteBMDP(transition=transition, **how | changes)


COSTS = [[0.1, 0.7], [0.3, 0.2]]


def by_paths(problem, plan, limit):
    """Chance to exceed the limit, and reward, of a plan by state and cost so far, path by path."""
    moves = problem.transition.toarray().reshape(2, 2, 2)
    over = earned = 0.0
    for path in product(range(2), repeat=problem.horizon):
        likely, paid, reward = float(path[0] == 0), 0.0, 0.0
        for t, state in enumerate(path):
            action = plan(state, round(paid, 6))
            reward += problem.gamma**t * problem.reward[state, action]
            paid += problem.cost[state, action]
            if t + 1 < len(path):
                likely *= moves[state, action, path[t + 1]]
        over += likely * (paid > limit + 1e-9)
        earned += likely * reward
    return over, earned


@pytest.mark.parametrize("limit", [0.0, 0.4, 0.9, 2.1])
def test_no_plan_by_paths_is_above_the_frontier_and_every_vertex_is_reached(limit):
    problem = model(COSTS)
    frontier = optimal_frontier(with_cost_so_far(problem, limit), start=0)
    rng, best = np.random.default_rng(1), {}
    for _ in range(300):
        table = {}

        def plan(state, paid, table=table):
            return table.setdefault((state, paid), int(rng.integers(2)))

        over, earned = by_paths(problem, plan, limit)
        assert earned <= frontier.reward_at(max(over, frontier.costs[0])) + 1e-9
        for price in (0.0, 1.0, 9.0):
            best[price] = max(best.get(price, -np.inf), earned - price * over)
    for price, found in best.items():
        most = (frontier.rewards - price * frontier.costs).max()
        assert found == pytest.approx(most, abs=0.15)


def test_without_a_way_to_exceed_it_a_limit_costs_nothing():
    found = with_cost_so_far(model(COSTS), 2.1)
    frontier = optimal_frontier(found, start=0)
    assert frontier.costs.tolist() == [0.0]
    plain = optimal_frontier(model(np.zeros((2, 2))), start=0)
    assert frontier.rewards == pytest.approx(plain.rewards)


def test_chances_of_a_fixed_plan_are_those_of_its_paths():
    problem, limit = model(COSTS), 0.9
    large = with_cost_so_far(problem, limit)
    moves = large.transition.toarray().reshape(*large.shape, large.n_states)
    for action in (0, 1):
        likely, over = np.eye(1, large.n_states)[0], 0.0
        for _ in range(problem.horizon):
            over += likely @ large.cost[:, action]
            likely = likely @ moves[:, action]
        assert over == pytest.approx(by_paths(problem, lambda s, c, a=action: a, limit)[0])


def test_sums_are_those_that_can_be_paid():
    assert sorted(_sums(model([[0.0, 0.5], [0.0, 1.0]]), 1.0)) == [0.0, 0.5, 1.0]
    assert len(_sums(model(COSTS, horizon=20), 1.0)) == 11  # tenths


def test_a_model_without_a_horizon_is_refused():
    over = {"horizon": None, "gamma": 0.9}
    with pytest.raises(ModelError, match=r"needs FiniteBMDP.horizon"):
        with_cost_so_far(model(COSTS, **over), 1.0)


def test_costs_on_no_lattice_are_refused():
    costs = np.random.default_rng(2).random((2, 2)) / 100
    with pytest.raises(ModelError, match="few different sums"):
        with_cost_so_far(model(costs, horizon=200), 100.0)


@pytest.mark.parametrize("n", [3, 6, 7, 60])
def test_equal_shares_of_a_limit_come_to_it_and_not_above(n):
    share = with_cost_so_far(model(np.full((2, 2), 1 / n), horizon=n), 1.0)
    assert optimal_frontier(share, start=0).costs.tolist() == [0.0]
    one_more = with_cost_so_far(model(np.full((2, 2), 1 / n), horizon=n + 1), 1.0)
    assert optimal_frontier(one_more, start=0).costs == pytest.approx([1.0])
    assert len(_sums(model(np.full((2, 2), 1 / n), horizon=n + 1), 1.0)) == n + 1
