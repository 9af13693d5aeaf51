"""The driver without foresight, and the curves of the two-way road that are shipped."""

import gymnasium
import numpy as np
import pytest

import bmdp
from bmdp import ConfigError, DataError, EpisodeStreams, Frontier, PolicyError
from bmdp.envs.tasks import rows_of
from bmdp.envs.two_way import (
    IDLE,
    KNOWN_CURVES,
    LANE_LEFT,
    ReplanningDriver,
    TwoWay,
    equal_budget_curve,
    known_curve,
    reference_curve,
    replanning_curve,
    replanning_dial,
)
from bmdp.envs.two_way.curves import curve_record, point_record, task_record, thinned
from bmdp.envs.two_way.physics import EXPONENT, SPEED, TARGET_SPEED, RoadState, X, copied
from bmdp.envs.two_way.reference import mean_frontier
from bmdp.envs.two_way.replanning import Picture
from contracts import policy as contract

FULL = TwoWay(features="full")


def starts(task, n, seed=0):
    return task.start(EpisodeStreams.named(seed, "test", range(n)).uniforms(0, task.n_draws))


def drive(driver, state, n_decisions=15):
    """Actions `[T, N]`, what was seen, and the states on the way."""
    n = len(state.time)
    tracker = driver.start(np.zeros((n, 1)), 0.0, np.random.default_rng(0))
    actions, seen, states = [], [], [state]
    for _ in range(n_decisions):
        seen.append(driver.task.observe(state))
        actions.append(tracker.decide(seen[-1]).action)
        outcome = driver.task.step(state, actions[-1], np.empty((n, 0)))
        tracker.observe(outcome.costs, driver.task.observe(outcome.state), outcome.ended)
        state = outcome.state
        states.append(state)
    return np.array(actions), np.array(seen), states


SMALL = TwoWay(vehicles=2, features="full")
CHEAP = (
    contract.a_policy_without_one_step_form_says_which_form_to_use,
    contract.neither_batch_size_nor_company_changes_an_episode,
    contract.decisions_and_observations_take_turns,
    contract.ended_episodes_do_nothing_more,
    contract.the_other_episodes_go_on_as_if_none_had_ended,
    contract.bad_budgets_are_refused,
    contract.a_budget_above_the_range_is_the_top_and_slack,
    contract.as_many_states_as_episodes_are_needed,
    contract.a_state_holds_what_the_tracker_was_at,
    contract.a_state_says_whose_it_is,
)


@pytest.mark.parametrize("check", CHEAP, ids=lambda check: check.__name__)
def test_contract(check):
    driver = ReplanningDriver(5.0, width=1, task=SMALL)
    check(contract.Case(driver, SMALL.observe(starts(SMALL, 5)), n_actions=5, one_step=False))


def test_a_saved_driver_drives_as_before(tmp_path):
    driver = ReplanningDriver(7.5, width=1, task=TwoWay(vehicles=(1, 4), features="full"))
    driver.save(tmp_path / "driver")
    loaded = bmdp.load_policy(tmp_path / "driver")
    assert loaded == driver
    state = starts(driver.task, 2)
    assert (drive(loaded, state)[0] == drive(driver, state)[0]).all()


def test_on_an_empty_road_it_does_the_best_there_is():
    road = TwoWay(vehicles=1, features="full")
    careful, _, _ = drive(ReplanningDriver(1000.0, task=road), starts(road, 1))
    bold, _, _ = drive(ReplanningDriver(0.0, task=road), starts(road, 1))
    assert careful[:, 0].tolist() == [IDLE] * 15
    assert bold[:, 0].tolist() == [LANE_LEFT] + [IDLE] * 14
    curve = replanning_curve(road, n_situations=1, prices=[0.0, 1000.0], width=1)
    factor = (1 - 0.9**15) / 0.1
    assert curve.reward_means == pytest.approx([factor, 0.8 * factor])
    assert curve.cost_means == pytest.approx([factor / 15, 0.0])


@pytest.mark.parametrize(("price", "action"), [(2.8, LANE_LEFT), (3.2, IDLE)])
def test_it_takes_the_oncoming_lane_as_long_as_that_pays(price, action):
    """Which earns 0.2 a decision, and costs 1/15."""
    road = TwoWay(vehicles=1, features="full")
    actions, _, _ = drive(ReplanningDriver(price, width=1, task=road), starts(road, 1))
    assert actions[:, 0].tolist() == [action] + [IDLE] * 14


def test_until_a_difference_is_seen_it_does_the_same():
    """One road has oncoming cars elsewhere, at other speeds."""
    state = starts(FULL, 6)
    other = copied(state)
    far = other.x - other.x[:, :1] > 300
    assert far.any(axis=1).all()
    other.cars[far, X] += 60
    other.cars[far, SPEED] *= 0.8
    other.cars[far, TARGET_SPEED] *= 0.7
    other.cars[far, EXPONENT] = 3.6
    both = RoadState(*(np.concatenate(pair) for pair in zip(state, other, strict=True)))
    actions, seen, _ = drive(ReplanningDriver(10.0, width=1), both, 8)
    same = (seen[:, :6] == seen[:, 6:]).all(axis=2)  # what is seen at each decision
    so_far = np.cumprod(same, axis=0) == 1
    assert so_far.sum() > 12
    assert not so_far.all()
    assert (actions[:, :6] == actions[:, 6:])[so_far].all()


def test_what_others_want_is_not_seen():
    state = starts(FULL, 6)
    other = copied(state)
    other.cars[:, 1:, TARGET_SPEED] += 5
    other.cars[:, 1:, EXPONENT] = 3.6
    driver = ReplanningDriver(10.0, width=1)
    assert (drive(driver, state, 1)[0] == drive(driver, other, 1)[0]).all()


def test_the_picture_has_what_is_seen_in_its_place_and_nothing_else_within_sight():
    actions, seen, states = drive(ReplanningDriver(5.0, width=1), starts(FULL, 8), 12)
    for n in range(8):
        picture = Picture(FULL, 1)
        for t in range(12):
            if states[t].crashed[n, 0]:
                break
            picture.look(seen[t, n : n + 1], np.array([0]))
            road, truth = picture.road, rows_of(states[t], np.array([n]))
            assert road.x[0, 0] == pytest.approx(truth.x[0, 0], abs=1e-3)
            assert road.speed_index[0] == truth.speed_index[0]
            shown, meant = FULL.observe(road)[0, :22], seen[t, n, :22]
            assert shown == pytest.approx(meant, abs=1e-3)
            picture.go_on(actions[t, n : n + 1])


def test_cars_that_were_never_seen_are_at_their_mean_place_but_beyond_sight():
    picture = Picture(FULL, 1)
    start = starts(FULL, 1)
    picture.look(FULL.observe(start), np.array([0]))
    assert picture.road.x[0, 4:].tolist() == [600.0, 500.0]  # as nothing is seen of them
    picture.road.cars[0, 4:, X] = 100.0, 110.0
    picture.look(FULL.observe(start), np.array([0]))
    assert (picture.road.x[0, 4:] >= 230.0).all()
    assert abs(np.diff(picture.road.x[0, 4:])) >= 10


def test_a_car_wants_the_highest_speed_at_which_it_was_seen():
    picture, road = Picture(FULL, 1), starts(FULL, 1)
    for speed, wanted in ((24.0, 24.0), (20.0, 24.0), (26.0, 26.0)):
        road.cars[0, 1, SPEED] = speed
        picture.look(FULL.observe(road), np.array([0]))
        assert picture.road.cars[0, 1, SPEED] == pytest.approx(speed, abs=1e-4)
        assert picture.road.cars[0, 1, TARGET_SPEED] == pytest.approx(wanted, abs=1e-4)


def test_it_can_take_over_in_the_middle():
    driver, state = ReplanningDriver(1000.0, width=1), starts(FULL, 4)
    for _ in range(5):
        state = FULL.step(state, np.full(4, 4), np.empty((4, 0))).state
    tracker = driver.start(FULL.observe(state), 0.0, np.random.default_rng(0))
    tracker.begin_at(5)
    costs = np.zeros(4)
    for _ in range(10):
        action = tracker.decide(FULL.observe(state)).action
        outcome = FULL.step(state, action, np.empty((4, 0)))
        tracker.observe(outcome.costs, FULL.observe(outcome.state), outcome.ended)
        state, costs = outcome.state, costs + outcome.costs
    assert outcome.state.time.tolist() == [15] * 4
    assert tracker._picture.road.time.tolist() == [15] * 4  # unseen cars have moved since the start
    assert (costs < 1).all()  # no crash


def test_what_it_cannot_do_is_refused():
    with pytest.raises(ConfigError, match=r'task.features must be "full"'):
        ReplanningDriver(1.0, task=TwoWay())
    with pytest.raises(ConfigError, match="price must be"):
        ReplanningDriver(-1.0)
    with pytest.raises(ConfigError, match="width must be"):
        ReplanningDriver(1.0, width=0)
    few = ReplanningDriver(1.0, task=TwoWay(vehicles=2, features="full"))
    seen = FULL.observe(starts(FULL, 1))
    with pytest.raises(DataError, match="3 cars are seen where the task has 1"):
        few.start(seen, 0.0, np.random.default_rng(0)).decide(seen)
    with pytest.raises(PolicyError, match=r"reads the \d+ numbers.*got shape \[1, 24\]"):
        bmdp.evaluate(ReplanningDriver(1.0), "two-way", budgets=[0.0], n_episodes=1, seed=0)


@pytest.fixture(scope="module")
def reference():
    return reference_curve(TwoWay(), n_situations=40, width=2)


def test_the_same_budget_from_every_start_earns_less_but_for_the_ends(reference):
    best, equal = reference.frontier, equal_budget_curve(reference).frontier
    assert equal.costs[[0, -1]] == pytest.approx(best.costs[[0, -1]])
    assert equal.rewards[[0, -1]] == pytest.approx(best.rewards[[0, -1]])
    costs = np.linspace(best.costs[0], best.costs[-1], 50)
    lost = best.reward_at(costs) - equal.reward_at(np.maximum(costs, equal.costs[0]))
    assert (lost > -1e-9).all()
    assert lost.max() > 0.1


def test_every_situation_pays_the_budget_as_far_as_it_can(reference):
    curve = equal_budget_curve(reference, budgets=np.array([0.0, 0.1]))
    for s, drives in enumerate(reference.situations):
        low, high = drives.frontier.costs[[0, -1]]
        assert curve.costs[:, s].tolist() == [max(low, 0.0), min(max(low, 0.1), high)]
        assert curve.rewards[1, s] == drives.frontier.reward_at(curve.costs[1, s])


def bootstrap(n, curve_of, costs, n_samples=300):
    rng = np.random.default_rng(0)
    rewards = [curve_of(rng.integers(n, size=n)).reward_at(costs) for _ in range(n_samples)]
    return np.std(rewards, axis=0)


def test_errors_of_the_clairvoyant_curve_are_those_of_a_bootstrap(reference):
    costs = np.array([0.08, 0.15, 0.3])
    found = [drives.frontier for drives in reference.situations]
    expected = bootstrap(40, lambda rows: mean_frontier([found[s] for s in rows]), costs)
    assert reference.reward_error_at(costs) == pytest.approx(expected, rel=0.2)


def test_errors_of_a_measured_curve_are_those_of_a_bootstrap(reference):
    curve, costs = equal_budget_curve(reference, np.linspace(0, 0.6, 13)), np.array([0.08, 0.3])
    means = lambda rows: (values[:, rows].mean(axis=1) for values in (curve.costs, curve.rewards))  # noqa: E731
    expected = bootstrap(40, lambda rows: bmdp.upper_frontier(*means(rows)), costs)
    assert curve.reward_error_at(costs) == pytest.approx(expected, rel=0.2)
    assert curve.cost_errors[-1] == pytest.approx(np.std(curve.costs[-1], ddof=1) / 40**0.5)
    assert curve.reward_error_at(np.array([0.0]))[0] == curve.reward_errors[0]


def test_a_thinned_frontier_is_close_to_the_other_from_below():
    x = np.linspace(0, 1, 500)
    full = Frontier(x, np.sqrt(x))
    few = thinned(full, 0.002)
    lost = full.rewards - few.reward_at(x)
    assert len(few) < 30
    assert lost.min() > -1e-12
    assert 0.001 < lost.max() <= 0.002


def test_a_curve_is_recorded_with_its_errors(reference):
    record = curve_record(reference, width=2)
    assert record["n_situations"] == 40
    assert len(record["costs"]) == len(record["rewards"]) == len(record["reward_errors"])
    kept = Frontier(np.array(record["costs"]), np.array(record["rewards"]))
    costs = np.linspace(0.05, 0.5, 20)
    assert kept.reward_at(costs) == pytest.approx(reference.frontier.reward_at(costs), abs=0.0015)
    least = [drives.frontier.costs[0] for drives in reference.situations]
    assert record["smallest_cost_error"] == pytest.approx(np.std(least, ddof=1) / 40**0.5, abs=1e-5)
    points = point_record(equal_budget_curve(reference, np.array([0.1, 0.2])))
    assert points["prices"] == [0.1, 0.2]
    assert len(points["cost_errors"]) == 2


@pytest.mark.parametrize("name", KNOWN_CURVES)
def test_shipped_curves_are_of_the_default_road(name):
    found = known_curve(name)
    assert found.settings["task"] == task_record(TwoWay())
    assert found.settings["n_situations"] == 1000
    assert len(found.settings["reward_errors"]) == len(found.frontier)
    assert found.reward_error in found.settings["reward_errors"]
    assert max(found.settings["table"]["reward_errors"]) - 0.02 < found.reward_error < 0.06
    assert found.frontier.costs[0] < 0.01
    assert 0.45 < found.frontier.costs[-1] < 0.6


def test_of_the_shipped_curves_the_clairvoyant_is_the_highest():
    best, equal, replanning = (known_curve(name) for name in KNOWN_CURVES)
    costs = np.linspace(0.01, 0.6, 60)
    top = best.frontier.reward_at(costs)
    assert (equal.frontier.reward_at(costs) < top + 0.002).all()
    assert (replanning.frontier.reward_at(costs) < top + 0.002).all()
    assert (replanning.frontier.reward_at(costs) > 0.9 * top).all()
    ends = [[f.costs[0], f.rewards[0], f.rewards[-1]] for f in (best.frontier, equal.frontier)]
    assert ends[0] == pytest.approx(ends[1], abs=0.002)


def test_a_curve_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=r"no curve is called 'clairvoyance'.*'clairvoyant'"):
        known_curve("clairvoyance")


def test_the_dial_of_drivers_plays_the_measured_prices():
    dial = replanning_dial()
    points = known_curve("replanning").settings["points"]
    assert [driver.price for driver in dial.policies] == points["prices"]
    assert dial.costs.tolist() == points["costs"]
    assert np.isin(dial.curve.costs, known_curve("replanning").frontier.costs).all()
    coin = dial.mixtures([0.0, 0.1, 1.0])
    assert coin.cost == pytest.approx([dial.costs.min(), 0.1, dial.curve.costs[-1]])


@pytest.mark.slow
def test_the_dial_of_drivers_pays_what_is_asked():
    road = gymnasium.make("bmdp/TwoWay-v0", features="full").spec
    found = bmdp.evaluate(replanning_dial(), road, budgets=[0.1], n_episodes=100, seed=0)
    error = found.discounted_cost_high[0] - found.discounted_cost_mean[0]
    assert abs(found.discounted_cost_mean[0] - 0.1) < 2 * error


@pytest.fixture(scope="module")
def measured():
    """In situations that the shipped curves do not have."""
    how = {"n_situations": 100, "seed": 1}
    drivers = replanning_curve(prices=(5.0, 20.0, 1000.0), **how)
    return drivers, reference_curve(TwoWay(), width=4, **how)


@pytest.mark.slow
def test_without_foresight_nobody_is_above_the_clairvoyant_curve(measured):
    drivers, reference = measured
    for k, price in enumerate(drivers.dial):
        costs, rewards = reference.at_price(price)
        gain = (drivers.rewards[k] - rewards) - price * (drivers.costs[k] - costs)
        assert gain.mean() < 2 * gain.std() / 10
    assert drivers.cost_means[-1] < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("k", range(3))
def test_the_shipped_points_of_drivers_are_found_again(k, measured):
    drivers, _ = measured
    points = known_curve("replanning").settings["points"]
    place = points["prices"].index(drivers.dial[k])
    for name in ("costs", "rewards"):
        values = getattr(drivers, name)[k]
        error = np.hypot(values.std() / 10, points[f"{name[:-1]}_errors"][place])
        assert abs(values.mean() - points[name][place]) < 4 * error


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clairvoyant", "equal-budget"])
def test_the_shipped_curves_are_found_again(name, measured):
    _, reference = measured
    curve = reference if name == "clairvoyant" else equal_budget_curve(reference)
    costs = np.array([0.1, 0.2, 0.4])
    away = np.abs(curve.frontier.reward_at(costs) - known_curve(name).frontier.reward_at(costs))
    assert (away < 4 * curve.reward_error_at(costs)).all()
