"""Environments of the benchmark against their tables, their batches and their originals."""

from __future__ import annotations

from contextlib import closing

import gymnasium
import numpy as np
import pytest
from strangers import grids
from strangers.boxes import CartPoleTask, MountainCarTask
from strangers.envs import MADE, env_id, tables_of
from strangers.tasks import TASKS

import bmdp
from bmdp.envs.slots import find_spec, open_slots
from bmdp.exact.multiplier import best_paid_policy, best_policy, cheapest_policy

pytestmark = pytest.mark.slow  # tasks and truths of a benchmark

FINITE = [name for name, task in TASKS.items() if task.has_tables and name != "four-room"]
BATCHED = ["cart-pole", "mountain-car"]


def played(env, actions, numbers, *, episodes, gamma, seed):
    """Discounted rewards and costs of a plain policy, `[S]` or `[H, S]`, in an environment."""
    returns = np.zeros((episodes, 2))
    for episode in range(episodes):
        seen, info = env.reset(seed=seed + episode)
        assert info["cost"] == 0
        step, over = 0, False
        while not over:
            state = numbers[tuple(np.atleast_1d(seen).tolist())]
            action = actions[state] if actions.ndim == 1 else actions[step, state]
            seen, reward, terminated, truncated, info = env.step(int(action))
            returns[episode] += gamma**step * np.array([reward, info["cost"]])
            step, over = step + 1, terminated or truncated
    return returns


def prices_of(name):
    truth = TASKS[name].truth()
    chords = np.diff(truth.rewards) / np.diff(truth.costs)
    return float(chords[len(chords) // 2]) if len(chords) else 1.0


def check_vertices(name, episodes):
    task = TASKS[name]
    model, start = task.model()
    shown = tables_of(name).observations
    numbers = {tuple(np.atleast_1d(row).tolist()): i for i, row in enumerate(shown)}
    middle = best_policy(model, prices_of(name))
    for policy in (cheapest_policy(model), middle, best_paid_policy(model)):
        env = gymnasium.make(task.env_id, disable_env_checker=True)
        how = {"episodes": episodes, "gamma": task.gamma, "seed": 1_000}
        with closing(env):
            returns = played(env, policy.action, numbers, **how)
        expected = np.array([start @ policy.v_r, start @ policy.v_c])
        error = returns.std(axis=0, ddof=1) / np.sqrt(episodes)
        # An event of size 1 that never happened may have a chance of 3 / n (95 % confidence).
        allowed = 4 * error + 3 / episodes
        assert (abs(returns.mean(axis=0) - expected) <= allowed).all()


@pytest.mark.parametrize("name", FINITE)
def test_vertices_are_earned_and_paid_in_the_environment_itself(name):
    check_vertices(name, 60)


@pytest.mark.slow
@pytest.mark.parametrize("name", FINITE)
def test_vertices_are_earned_and_paid_in_many_episodes(name):
    check_vertices(name, 60_000 if name == "blackjack" else 3_000)


@pytest.mark.parametrize("name", [n for n in TASKS if TASKS[n].has_tables])
def test_steps_of_the_environment_are_outcomes_of_the_tables_with_their_means(name):
    tables, rng = tables_of(name), np.random.default_rng(0)
    numbers = {tuple(np.atleast_1d(row).tolist()): i for i, row in enumerate(tables.observations)}
    shown = tables.observations.reshape(tables.n_states, -1).astype(np.float64)
    # An end is told by itself: what is seen then may differ.
    told = np.where(tables.over[:, None], 0.0, shown[tables.next_state])
    facts = np.column_stack((tables.reward, tables.cost, tables.over, told, told**2))
    rests = []
    with closing(gymnasium.make(TASKS[name].env_id, disable_env_checker=True)) as env:
        while len(rests) < 3_000:
            seen, _ = env.reset(seed=len(rests))
            over = False
            while not over:
                action = int(rng.integers(tables.n_actions))
                row = numbers[tuple(np.atleast_1d(seen).tolist())] * tables.n_actions + action
                those = slice(tables.row_start[row], tables.row_start[row + 1])
                seen, reward, terminated, truncated, info = env.step(action)
                after = np.zeros(shown.shape[1]) if terminated else np.ravel(seen)
                fact = np.concatenate(((reward, info["cost"], terminated), after, after**2))
                assert (abs(facts[those] - fact) < 1e-9).all(axis=1).any()
                rests.append(fact - tables.probability[those] @ facts[those])
                over = terminated or truncated
    error = np.std(rests, axis=0) / np.sqrt(len(rests))
    assert (
        abs(np.mean(rests, axis=0)) <= 4 * error + 3 / len(rests) * abs(facts).max(axis=0)
    ).all()


@pytest.mark.parametrize("name", [n for n in TASKS if TASKS[n].has_tables])
def test_batches_by_tables_do_what_the_tables_say(name):
    tables = tables_of(name)
    outcomes = np.diff(tables.row_start)
    sums = np.add.reduceat(tables.probability, tables.row_start[:-1][outcomes > 0])
    assert sums == pytest.approx(1)
    with (
        closing(open_slots(find_spec(TASKS[name].fast_id))) as slots,
        closing(gymnasium.make(TASKS[name].env_id, disable_env_checker=True)) as single,
    ):
        assert slots.facts.gamma == single.metadata["gamma"] == TASKS[name].gamma
        assert slots.state_space == single.observation_space
        assert slots.action_space == single.action_space
        states = slots.reset(range(20))
        assert states.dtype == np.asarray(single.reset(seed=0)[0]).dtype
        found = slots.step(np.zeros(20, np.int64), np.ones(20, np.bool_))
    known = {tuple(np.atleast_1d(row).tolist()) for row in tables.observations}
    assert all(tuple(np.atleast_1d(row).tolist()) in known for row in (*states, *found.states))


@pytest.mark.parametrize("task", [CartPoleTask(), MountainCarTask()], ids=BATCHED)
def test_batched_equations_are_those_of_gymnasium(task):
    rng = np.random.default_rng(0)
    env = gymnasium.make(TASKS[task.name].env_id, disable_env_checker=True)
    for seed in range(5):
        seen, _ = env.reset(seed=seed)
        state = np.array([env.unwrapped.state], np.float64)
        over = False
        while not over:
            action = int(rng.integers(len(task.action_names)))
            state, reward, cost, ended = task.follow(state, np.array([action]))
            seen, earned, terminated, truncated, info = env.step(action)
            assert state[0].astype(np.float32) == pytest.approx(seen, abs=1e-6)
            assert (reward[0], cost[0]) == pytest.approx((earned, info["cost"]), abs=1e-9)
            assert ended[0] == terminated
            over = terminated or truncated


@pytest.mark.parametrize("task", [CartPoleTask(), MountainCarTask()], ids=BATCHED)
def test_first_states_are_spread_as_those_of_gymnasium(task):
    env = gymnasium.make(TASKS[task.name].env_id, disable_env_checker=True)
    theirs = np.array([env.reset(seed=seed)[0] for seed in range(400)])
    ours = task.begin(np.random.default_rng(0).random((400, task.n_draws)))
    for quantile in (0, 0.25, 0.5, 0.75, 1):
        found = np.quantile(ours, quantile, axis=0)
        assert np.quantile(theirs, quantile, axis=0) == pytest.approx(found, abs=0.02)


@pytest.mark.parametrize("name", TASKS)
def test_an_environment_tells_its_discount_and_a_cost_at_every_step(name):
    try:
        env = gymnasium.make(TASKS[name].env_id, disable_env_checker=True)
    except bmdp.MissingDependency as missing:
        pytest.skip(str(missing))
    with closing(env):
        assert env.metadata["gamma"] == TASKS[name].gamma
        seen, info = env.reset(seed=0)
        assert info["cost"] == 0
        assert env.observation_space.contains(seen)
        seen, reward, *_, info = env.step(0)
        assert env.observation_space.contains(seen)
        assert np.isfinite([reward, info["cost"]]).all()


def test_an_id_alone_finds_the_environment():
    with closing(open_slots(find_spec(env_id("stock", fast=True)))) as slots:
        assert slots.facts.gamma == TASKS["stock"].gamma
        assert slots.reset([0, 1]).tolist() == [[10, 0], [10, 0]]


ORIGINALS = {
    "deep-sea-treasure": ("deep-sea-treasure-v0", lambda r: (r[0], -r[1])),
    "resource-gathering": ("resource-gathering-v0", lambda r: (r[1] + r[2], -r[0])),
    "four-room": ("four-room-v0", None),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ORIGINALS)
def test_grids_are_those_of_mo_gymnasium(name):
    mo_gymnasium = pytest.importorskip("mo_gymnasium")
    original, split = ORIGINALS[name]
    rng = np.random.default_rng(0)
    theirs = mo_gymnasium.make(original, disable_env_checker=True)
    follow = MADE[name].env.follow
    for _ in range(30):
        seen, _ = theirs.reset(seed=int(rng.integers(2**31)))
        over = False
        while not over:
            action, before = int(rng.integers(4)), tuple(seen.tolist())
            seen, vector, terminated, truncated, _ = theirs.step(action)
            if split is None:
                at_goal = tuple(seen[:2].tolist()) == grids.GOAL and terminated
                paid = (float(vector.sum()), 0.0 if at_goal else float(vector[2]))
            else:
                paid = tuple(map(float, split(vector)))
            mine = [outcome[1:] for outcome in follow(before, action)]
            assert (tuple(seen.tolist()), *map(pytest.approx, paid), terminated) in mine
            over = terminated or truncated
