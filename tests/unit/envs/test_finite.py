import numpy as np
import pytest
from scipy import sparse

from bmdp import ConfigError, DataError, EnvError, ModelError
from bmdp.envs.finite import FiniteEnv, FiniteTask, FiniteVectorEnv, draw, lotteries
from bmdp.envs.tasks import Task
from bmdp.exact import (
    FiniteBMDP,
    allocate_budgets,
    budgeted_value_iteration,
    cost_range,
    evaluate_policy,
)
from bmdp.exact.textbook import branches, crossing, decision, forever, garnet, ladder, payments
from oracles.simulation import is_mean_of

KNOWN = {
    "decision": decision,
    "branches": branches,
    "ladder": ladder,
    "forever": lambda: forever(0.8),
    "crossing": crossing,
    "payments": lambda: payments(cost_gamma=0.9),
}


def played_returns(env, policy, *, budget, seed):
    """Discounted (rewards, costs) of the first episode of each slot, cut when gamma^t < 1e-6."""
    states, _ = env.reset(seed=seed)
    tracker = policy.start(states, budget, np.random.default_rng(seed))
    returns, over = np.zeros((2, env.num_envs)), np.zeros(env.num_envs, bool)
    gamma, step = env.task.gamma, 0
    while not over.all() and gamma**step > 1e-6:
        action = tracker.decide(states).action
        states, rewards, ended, _, info = env.step(action)
        returns += np.where(over, 0, gamma**step * np.stack((rewards, info["cost"])))
        over = over | ended
        tracker.observe(info["cost"], states, over)
        step += 1
    return returns


def random_model(seed=0, n_states=6, **changes):
    """A garnet whose last state is terminal."""
    model = garnet(n_states, 3, 4, gamma=0.8, rng=np.random.default_rng(seed))
    fields = {
        "transition": model.transition,
        "reward": model.reward,
        "cost": model.cost,
        "gamma": 0.8,
        "terminal": np.arange(n_states) == n_states - 1,
    }
    return FiniteBMDP(**fields | changes)


@pytest.mark.parametrize("place", [0, 7, 20])
@pytest.mark.parametrize("name", KNOWN)
def test_the_policy_of_value_iteration_earns_and_pays_its_exact_values(name, place):
    known = KNOWN[name]()
    grid = np.linspace(*cost_range(known.model), 21)
    policy = budgeted_value_iteration(known.model, grid, tol=1e-10).policy()
    v_r, v_c = evaluate_policy(known.model, policy, grid)
    env = FiniteVectorEnv(known.model, 3_000, start=known.start)
    rewards, costs = played_returns(env, policy, budget=grid[place], seed=place)
    assert is_mean_of(rewards, v_r[known.start, place], slack=1e-4)
    assert is_mean_of(costs, v_c[known.start, place], slack=1e-4)


@pytest.mark.parametrize("share", [0.0, 0.37, 1.0])
@pytest.mark.parametrize("name", KNOWN)
def test_the_allocation_policy_earns_and_pays_what_the_optimal_frontier_says(name, share):
    known = KNOWN[name]()
    low, high = known.frontier.costs[[0, -1]]
    budget = low + share * (high - low)
    env = FiniteVectorEnv(known.model, 3_000, start=known.start)
    policy = allocate_budgets(known.model).policy()
    rewards, costs = played_returns(env, policy, budget=budget, seed=1)
    assert is_mean_of(rewards, known.frontier.reward_at(budget), slack=1e-4)
    assert is_mean_of(costs, budget, slack=1e-4)


def test_from_a_distribution_of_starts_a_policy_earns_the_mean_of_its_values():
    model, start = random_model(), np.array([0.1, 0.2, 0.3, 0.0, 0.4, 0.0])
    grid = np.linspace(*cost_range(model), 21)
    policy = budgeted_value_iteration(model, grid, tol=1e-10).policy()
    v_r, v_c = evaluate_policy(model, policy, grid)
    env = FiniteVectorEnv(model, 10_000, start=start)
    rewards, costs = played_returns(env, policy, budget=grid[9], seed=2)
    assert is_mean_of(rewards, start @ v_r[:, 9], slack=1e-4)
    assert is_mean_of(costs, start @ v_c[:, 9], slack=1e-4)


@pytest.mark.parametrize("row", range(15))
def test_evenly_spread_numbers_give_next_states_in_their_proportions(row):
    model, n = random_model(), 10_000
    task, (state, action) = FiniteTask(model), divmod(row, 3)
    spread = (np.arange(n) + 0.5)[:, None] / n
    now = task.start(spread)._replace(number=np.full(n, state))
    following = task.step(now, np.full(n, action), spread).state
    counts = np.bincount(following.number, minlength=model.n_states)
    expected = n * model.transition.toarray()[row]
    assert counts == pytest.approx(expected, abs=1.01)
    assert (counts[expected == 0] == 0).all()
    assert (following.time == 1).all()


def test_evenly_spread_numbers_give_starts_in_their_proportions():
    start = np.array([0.25, 0.0, 0.15, 0.0, 0.6, 0.0])
    spread = (np.arange(1_000) + 0.5)[:, None] / 1_000
    drawn = FiniteTask(random_model(), start).start(spread).number
    assert np.bincount(drawn, minlength=6).tolist() == [250, 0, 150, 0, 600, 0]


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 64, 100])
def test_a_draw_is_the_first_entry_whose_cumulated_chance_exceeds_the_number(n):
    rng = np.random.default_rng(n)
    chances = rng.dirichlet(np.ones(n), size=4)
    rows, uniforms = np.repeat(np.arange(4), 200), rng.random(800)
    uniforms[:8] = [0.0, 1 - 2**-53] * 4
    expected = (np.cumsum(chances, axis=1)[rows] <= uniforms[:, None]).sum(axis=1)
    drawn = draw(lotteries(sparse.csr_array(chances)), rows, uniforms)
    assert drawn.tolist() == np.minimum(expected, n - 1).tolist()


def test_the_frequencies_of_next_states_are_those_of_the_model():
    model = random_model(seed=4)
    env = FiniteVectorEnv(model, 20_000, start=2)
    env.reset(seed=0)
    following = env.step(np.ones(20_000, int))[0]
    for state, chance in enumerate(model.transition.toarray()[2 * 3 + 1]):
        assert is_mean_of((following == state).astype(float), chance)


@pytest.mark.parametrize("horizon", [None, 4])
def test_slot_i_of_a_batch_is_the_single_environment_of_seed_s_plus_i(horizon):
    model, start = random_model(horizon=horizon), np.array([0.5, 0.5, 0, 0, 0, 0])
    batch = FiniteVectorEnv(model, 5, start=start)
    singles = [FiniteEnv(model, start=start) for _ in range(5)]
    seen = [env.reset(seed=11 + i)[0] for i, env in enumerate(singles)]
    assert batch.reset(seed=11)[0].tolist() == seen
    over, n_ended = np.zeros(5, bool), 0
    for actions in np.random.default_rng(0).integers(3, size=(40, 5)):
        states, rewards, ended, _, info = batch.step(actions)
        for i, env in enumerate(singles):
            played = (states[i], rewards[i], ended[i], False, {"cost": info["cost"][i]})
            if over[i]:
                assert played == (env.reset()[0], 0.0, False, False, {"cost": 0.0})
            else:
                assert played == env.step(actions[i])
        over, n_ended = ended, n_ended + ended.sum()
    assert n_ended > 5


def test_an_episode_ends_in_a_terminal_state():
    env = FiniteEnv(ladder(3).model, start=1)
    assert env.reset(seed=0) == (1, {"cost": 0.0})
    assert env.step(1) == (2, 0.5, False, False, {"cost": 1.0})
    assert env.step(0) == (3, 0.0, True, False, {"cost": 0.0})
    with pytest.raises(EnvError, match="call reset before step"):
        env.step(0)


def test_an_episode_ends_at_the_horizon():
    env = FiniteEnv(payments(3, cost_gamma=0.9).model)
    env.reset(seed=0)
    assert [env.step(1)[2] for _ in range(3)] == [False, False, True]


def test_without_an_end_an_episode_goes_on():
    env = FiniteVectorEnv(forever().model, 3)
    env.reset(seed=0)
    assert not any(env.step(np.ones(3, int))[2].any() for _ in range(300))


def test_a_terminal_state_stays_as_it_is_and_pays_nothing():
    task = FiniteTask(random_model())
    now = task.start(np.zeros((2, 1)))._replace(number=np.array([5, 0]))
    outcome = task.step(now, np.array([2, 2]), np.array([[0.3], [0.3]]))
    assert outcome.state.number[0] == 5
    assert (outcome.rewards[0], outcome.costs[0], outcome.ended[0]) == (0, 0, True)
    assert outcome.rewards[1] == task.model.reward[0, 2]


def test_the_environment_says_what_the_model_is():
    model = payments(4, cost_gamma=0.9).model
    env, batch = FiniteEnv(model), FiniteVectorEnv(model, 2)
    task: Task = env.task
    assert (task.gamma, task.horizon, task.n_draws) == (0.9, 4, 1)
    assert env.metadata["budget_range"] == (0.0, pytest.approx(1 + 0.9 + 0.81 + 0.729))
    assert env.metadata["action_names"] == batch.metadata["action_names"] == ("0", "1")
    assert (env.observation_space.n, env.action_space.n) == (1, 2)
    observed = batch.reset(seed=0)[0]
    assert observed.dtype == np.int64
    assert observed in batch.observation_space


def test_the_budget_range_begins_at_a_negative_cost():
    model = decision(costs=(-0.5, 0.25), rewards=(0.0, 1.0)).model
    assert FiniteTask(model).budget_range == (-0.5, 0.25)


def test_the_budget_range_begins_at_zero_where_every_state_costs_more():
    model = FiniteBMDP(
        transition=np.ones((1, 2, 1)), reward=[[0.0, 1.0]], cost=[[0.5, 0.75]], gamma=1, horizon=2
    )
    assert FiniteTask(model).budget_range == (0.0, 1.5)


def test_what_is_seen_can_be_changed_without_changing_the_episode():
    batch = FiniteVectorEnv(ladder(3).model, 2)
    batch.reset(seed=0)[0][:] = 3
    assert batch.step(np.ones(2, int))[0].tolist() == [1, 1]


def test_an_episode_is_rendered_as_states_and_actions():
    env = FiniteEnv(ladder(4).model, render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == "0"
    env.step(1)
    env.step(0)
    assert env.render() == "0 -[1]-> 1 -[0]-> 4"
    assert FiniteEnv(ladder(4).model).render() is None


def test_a_model_with_two_discounts_is_refused():
    with pytest.raises(ConfigError, match=r"got gamma 0\.9 and cost_gamma 0\.5"):
        FiniteTask(payments().model)


@pytest.mark.parametrize("start", [5, [0.5, 0, 0, 0, 0, 0.5]])
def test_a_terminal_start_is_refused(start):
    with pytest.raises(ConfigError, match="state 5 is, and has probability"):
        FiniteEnv(random_model(), start)


@pytest.mark.parametrize("start", [6, -1, 0.5, [0.5, 0.4, 0, 0, 0, 0], [1.0]])
def test_a_start_that_is_neither_a_state_nor_a_distribution_is_refused(start):
    with pytest.raises(ModelError, match="start must be"):
        FiniteVectorEnv(random_model(), 2, start=start)


def test_other_settings_and_actions_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="num_envs must be a whole number from 1 on"):
        FiniteVectorEnv(random_model(), 0)
    with pytest.raises(ConfigError, match="render_mode must be one of"):
        FiniteEnv(random_model(), render_mode="rgb_array")
    env = FiniteEnv(random_model())
    env.reset(seed=0)
    with pytest.raises(DataError, match="actions must be from 0 to 2; got 3"):
        env.step(3)
