"""Limits that are not discounted, and chances: learned dials against exact answers.

Some logs here hold every transition as often as it is likely. Tables that are learned from them
are exact, so what comes of them must be what linear programs say, to rounding.
"""

import json

import chances
import gymnasium
import numpy as np
import pytest

import bmdp
import commands
from bmdp import ConfigError, DataError, FiniteBMDP, TransitionBatch
from bmdp.data import StoredLog
from bmdp.envs import FiniteEnv, FiniteVectorEnv
from bmdp.envs.slots import find_spec
from bmdp.exact import optimal_frontier, solve_cmdp, with_cost_so_far
from bmdp.exact.textbook import payments
from bmdp.learn import (
    BFTQ,
    FTQ,
    Backward,
    BFTQConfig,
    FTQConfig,
    Iterations,
    LagrangianConfig,
    LagrangianFTQ,
    collect,
)
from bmdp.models import TableModel
from bmdp.policies import EpisodeLimitPolicy, UniformPolicy
from bmdp.randomness import EpisodeStreams

GAMMA, HORIZON, LIMIT = 0.6, 4, 1.0
PRICES = (20.0, 5.0, 2.0, 1.2, 0.8, 0.5, 0.3, 0.1, 0.0)
SHARES = np.array([[[3, 1, 0], [1, 2, 1]], [[0, 4, 0], [2, 0, 2]], [[1, 1, 2], [0, 1, 3]]]) / 4


def model(cost_gamma=1.0, gamma=GAMMA):
    """Two actions in three states; chances are quarters."""
    reward, cost = [[0.1, 1.0], [0.2, 0.9], [0.0, 1.3]], [[0.0, 1.0], [0.5, 0.5], [0.0, 1.0]]
    how = {"gamma": gamma, "cost_gamma": cost_gamma, "horizon": HORIZON}
    return FiniteBMDP(transition=SHARES, reward=reward, cost=cost, **how)


def exact_log(problem, *, clock=False):
    """Every state and action at every step, with every next state as often as it is likely."""
    n_states, n_actions = problem.shape
    chances_of = problem.transition.toarray().reshape(n_states, n_actions, n_states)
    s, a, then = np.nonzero(chances_of)
    times = np.rint(4 * chances_of[s, a, then]).astype(int)
    rows = np.repeat(np.arange(len(s)), times)
    s, a, then = (np.tile(column[rows], HORIZON) for column in (s, a, then))
    step = np.repeat(np.arange(HORIZON), len(rows))
    shown = (lambda states, at: np.column_stack((states, at))) if clock else (lambda x, at: x)
    return TransitionBatch(
        state=shown(s, step),
        action=a,
        reward=problem.reward[s, a],
        cost=problem.cost[s, a],
        next_state=shown(then, step + 1),
        terminal=step == HORIZON - 1,
        episode=np.arange(len(s)),
        step=step,
    )


def plans(dial, problem, start, *, clock=False):
    """Exact costs and rewards `[M, 2]` of the policies of a dial, by its actions at each step."""
    n_states, rows = problem.n_states, np.arange(problem.n_states)
    moves = problem.transition.toarray().reshape(*problem.shape, n_states)
    found = []
    for number in range(len(dial.prices)):
        likely, total = start.copy(), np.zeros(2)
        for t in range(problem.horizon):
            states = np.column_stack((rows, np.full(n_states, t))) if clock else rows[:, None]
            action = dial.at_step(t).points(states.astype(float)).actions[:, number]
            paid = problem.cost[rows, action], problem.reward[rows, action]
            total += [
                g**t * likely @ values
                for g, values in zip((problem.cost_gamma, problem.gamma), paid, strict=True)
            ]
            likely = likely @ moves[rows, action]
        found.append(total)
    return np.array(found)


def best_at(frontier, price):
    """The most that reward less priced cost can be."""
    return (frontier.rewards - price * frontier.costs).max()


UNIFORM = np.full(3, 1 / 3)


# Two discounts


@pytest.mark.parametrize("cost_gamma", [1.0, 0.3])
@pytest.mark.parametrize("clock", [False, True], ids=["models of steps", "a clock"])
def test_each_price_is_the_best_from_the_start_by_linear_programs(clock, cost_gamma):
    problem = model(cost_gamma)
    schedule = Iterations(HORIZON + 1, settled=0.0) if clock else Backward("shared")
    how = {"model": TableModel(), "ensemble": 1, "schedule": schedule}
    config = LagrangianConfig(gamma=GAMMA, cost_gamma=cost_gamma, prices=PRICES, **how)
    policy = LagrangianFTQ(config).fit(exact_log(problem, clock=clock), seed=0)
    found = plans(policy.dial, problem, UNIFORM, clock=clock)
    frontier = optimal_frontier(problem, start=UNIFORM)
    for (cost, reward), price in zip(found, PRICES, strict=True):
        assert reward - price * cost == pytest.approx(best_at(frontier, price), abs=1e-5)
    middle = float(found[4, 0])  # the linear program by itself says the same
    assert solve_cmdp(problem, start=UNIFORM, budget=middle).reward == pytest.approx(
        found[4, 1], abs=1e-5
    )


def test_promises_of_a_dial_are_discounted_by_two_discounts():
    problem = model()
    how = {"model": TableModel(), "ensemble": 1, "schedule": Backward("shared")}
    config = LagrangianConfig(gamma=GAMMA, cost_gamma=1.0, prices=PRICES, **how)
    dial = LagrangianFTQ(config).fit(exact_log(problem), seed=0).dial
    points = dial.at_step(0).points(np.arange(3.0)[:, None])
    promised = np.column_stack((points.costs.mean(axis=0), points.rewards.mean(axis=0)))
    assert promised == pytest.approx(plans(dial, problem, UNIFORM), abs=1e-5)


def test_one_price_is_the_best_from_the_start():
    problem, price = model(), 0.8
    how = {"model": TableModel(), "ensemble": 1, "schedule": Backward("shared")}
    config = FTQConfig(gamma=GAMMA, cost_gamma=1.0, price=price, **how)
    policy = FTQ(config).fit(exact_log(problem), seed=0)
    dial = bmdp.policies.PriceDial(policy.q_function, [price], growth=policy.growth)
    ((cost, reward),) = plans(dial, problem, UNIFORM)
    best = best_at(optimal_frontier(problem, start=UNIFORM), price)
    assert reward - price * cost == pytest.approx(best, abs=1e-5)


def test_budgets_of_bftq_are_about_undiscounted_costs():
    problem = payments(HORIZON, gamma=0.9, cost_gamma=1.0)  # one next state: T has the optimum
    grid = tuple(np.arange(HORIZON + 1.0))
    how = {"model": TableModel(), "ensemble": 1, "schedule": Backward("shared")}
    config = BFTQConfig(gamma=0.9, cost_gamma=1.0, budgets=grid, budget_range=(0, HORIZON), **how)
    frontier = BFTQ(config).fit(exact_log(problem.model), seed=0).frontier([0.0])
    assert frontier.costs == pytest.approx(problem.frontier.costs, abs=1e-5)
    assert frontier.rewards == pytest.approx(problem.frontier.rewards, abs=1e-5)


@pytest.mark.parametrize(
    ("changes", "drop", "words"),
    [
        ({}, ("step",), "need the step"),
        ({"schedule": Iterations()}, (), "need the step"),
        ({"gamma": 0.0}, (), "must be above 0 where they differ"),
    ],
)
def test_prices_without_a_step_are_refused(changes, drop, words):
    columns = {k: v for k, v in exact_log(model()).to_arrays().items() if k not in drop}
    how = {"gamma": GAMMA, "cost_gamma": 1.0, "prices": PRICES, "model": TableModel()}
    config = LagrangianConfig(**how | changes)
    with pytest.raises((ConfigError, DataError), match=words):
        LagrangianFTQ(config).fit(TransitionBatch(**columns), seed=0)


# bmdp.fit, from logs and environments


def spec(name, problem):
    """A problem as an environment, whose two discounts are alike."""
    if name not in gymnasium.registry:
        entries = {"entry_point": FiniteEnv, "vector_entry_point": FiniteVectorEnv}
        gymnasium.register(name, **entries, kwargs={"model": problem, "start": UNIFORM})
    return find_spec(name)


@pytest.fixture(scope="module")
def env():
    return spec("Quarters-v0", model(GAMMA))


@pytest.fixture(scope="module")
def log(env):
    n = 3_000
    return collect(UniformPolicy(2, 0.0, 1.0), env, range(n), budgets=np.zeros(n), seed=1)


@pytest.fixture(scope="module")
def summed(log, tmp_path_factory):
    out = tmp_path_factory.mktemp("summed") / "run"
    return bmdp.fit(log, gamma=GAMMA, cost_gamma=1.0, minutes=0.2, out=out), out


@pytest.fixture(scope="module")
def limited(log, tmp_path_factory):
    out = tmp_path_factory.mktemp("limited") / "run"
    return bmdp.fit(log, gamma=GAMMA, episode_limit=LIMIT, minutes=0.2, out=out), out


def frontier_of(kind):
    problem = model() if kind == "sum" else with_cost_so_far(model(), LIMIT)
    start = np.zeros(problem.n_states)
    start[:3] = UNIFORM
    return optimal_frontier(problem, start=start)


def assert_is_optimal(found, frontier, slack):
    """Costs are those asked for, and rewards the best for them: 4 standard errors, and slack."""
    error = (found.dial_cost_high - found.dial_cost_low) / 2 * 4 / 1.96
    asked = np.maximum(found.budgets, frontier.costs[0])
    assert (np.abs(found.dial_cost_mean - asked) < error + slack).all()
    half = (found.discounted_reward_high - found.discounted_reward_mean) * 4 / 1.96
    best = frontier.reward_at(np.maximum(asked, found.dial_cost_mean))
    assert (np.abs(found.discounted_reward_mean - best) < half + 0.02 * frontier.rewards[-1]).all()


def test_a_fit_with_an_undiscounted_limit_reaches_the_linear_program(summed, env):
    asked = [0.5, 1.0, 2.0, 3.0]
    found = bmdp.evaluate(
        summed[0].policy, env, budgets=asked, n_episodes=5_000, seed=3, cost_gamma=1.0
    )
    assert_is_optimal(found, frontier_of("sum"), slack=0.03)
    assert (found.dial_cost_mean == found.cost_mean).all()
    assert (found.dial_cost_mean > 1.2 * found.discounted_cost_mean).all()
    assert found.gamma == GAMMA


def test_a_fit_with_a_chance_limit_reaches_the_linear_program(limited, env):
    asked = [0.05, 0.1, 0.2, 0.5, 0.8]
    found = bmdp.evaluate(limited[0].policy, env, budgets=asked, n_episodes=5_000, seed=3)
    assert_is_optimal(found, frontier_of("chance"), slack=0.01)
    assert found.episode_limit == LIMIT
    assert "chance that an episode costs more than 1" in limited[0].summary


def test_the_share_over_a_limit_is_that_of_the_episodes(limited, env):
    budget, n = 0.3, 500
    found = bmdp.evaluate(limited[0].policy, env, budgets=[budget], n_episodes=n, seed=5)
    streams = EpisodeStreams.named(5, "evaluate/0", range(n))
    played = collect(limited[0].policy, env, range(n), budgets=np.full(n, budget), seed=5)
    sums = np.bincount(played.episode, played.cost)
    assert len(streams) == n
    assert found.dial_cost_mean[0] == pytest.approx(
        (sums > LIMIT).mean(), abs=4 * (0.25 / n) ** 0.5
    )
    assert found.cost_mean[0] > found.dial_cost_mean[0]


def test_a_policy_with_a_limit_is_saved_with_its_run_and_played_from_it(limited, env):
    fitted, out = limited
    again = bmdp.load_policy(out)
    assert isinstance(again, EpisodeLimitPolicy)
    how = {"budgets": [0.2], "n_episodes": 200, "seed": 0}
    one, two = (bmdp.evaluate(p, env, **how) for p in (fitted.policy, again))
    assert one.dial_cost_mean.tolist() == two.dial_cost_mean.tolist()
    asked = json.loads((out / "spec.json").read_text())["asked"]
    assert (asked["episode_limit"], asked["cost_gamma"]) == (LIMIT, None)


def test_a_run_that_is_resumed_keeps_its_limits(log, tmp_path, monkeypatch):
    from bmdp.learn import auto

    def killed(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(auto, "fit_log", killed)
    with pytest.raises(KeyboardInterrupt):
        bmdp.fit(log, gamma=GAMMA, episode_limit=LIMIT, out=tmp_path / "run")
    seen = {}
    monkeypatch.setattr(auto, "fit_log", lambda batch, terms, *_: seen.update(t=terms, b=batch))
    with pytest.raises(AttributeError):  # nothing was fitted
        bmdp.learn.resume(tmp_path / "run")
    assert (seen["t"].episode_limit, seen["t"].cost_gamma) == (LIMIT, 1.0)
    assert set(np.unique(seen["b"].cost)) == {0.0, 1.0}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sum", "chance"])
def test_a_dial_that_explored_reaches_the_linear_program(kind, env):
    how = {"cost_gamma": 1.0} if kind == "sum" else {"episode_limit": LIMIT}
    fitted = bmdp.fit(env, gamma=GAMMA, minutes=0.5, **how)
    asked, gamma = ([0.5, 1.0, 2.0], 1.0) if kind == "sum" else ([0.1, 0.3, 0.6], None)
    how = {"n_episodes": 20_000, "seed": 3, "cost_gamma": gamma}
    found = bmdp.evaluate(fitted.policy, env, budgets=asked, **how)
    assert_is_optimal(found, frontier_of(kind), slack=0.03)
    low, high = fitted.forecast.cost_low, fitted.forecast.cost_high
    assert (low <= np.maximum(fitted.forecast.budgets, fitted.forecast.cost.min()) + 0.05).all()
    assert (high <= 1.1 * frontier_of(kind).costs[-1]).all()


@pytest.mark.parametrize("is_file", [True, False])
def test_a_large_log_is_put_in_chunks_that_show_costs_so_far(log, is_file, tmp_path, monkeypatch):
    from bmdp.learn import auto

    monkeypatch.setattr(auto, "LARGE", 1_000)
    log.to_parquet(tmp_path / "log.parquet")
    source = tmp_path / "log.parquet" if is_file else log
    out = tmp_path / "run"
    fitted = bmdp.fit(source, gamma=GAMMA, episode_limit=LIMIT, minutes=0.02, out=out)
    kept = StoredLog.open(out / "steps" / "log").first(len(log))
    assert kept.state_size == 3
    assert kept.cost.sum() == (np.bincount(log.episode, log.cost) > LIMIT).sum()
    assert fitted.policy.episode_limit == LIMIT
    assert [path.name for path in (out / "steps").glob("bmdp-*")] == []


def test_a_log_without_steps_is_refused(log):
    columns = {k: v for k, v in log.to_arrays().items() if k not in ("step", "episode")}
    order = np.random.default_rng(0).permutation(len(log))
    mixed = TransitionBatch(**{name: values[order] for name, values in columns.items()})
    with pytest.raises(DataError, match="steps are known: a price means another thing"):
        bmdp.fit(mixed, gamma=0.9, cost_gamma=1.0)
    with pytest.raises(DataError, match="whole episodes in order"):
        bmdp.fit(mixed, gamma=0.9, episode_limit=1.0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cost_gamma": 0.5, "episode_limit": 1.0}, "cost_gamma must be 1, or not given"),
        ({"cost_gamma": 1.5}, "cost_gamma"),
        ({"cost_gamma": 0.0}, "above 0 where they differ"),
        ({"episode_limit": -1.0}, "episode_limit must be a finite number from 0 on; got -1.0"),
        ({"episode_limit": np.nan}, "episode_limit must be a finite number"),
    ],
)
def test_settings_that_make_no_sense_are_refused(log, settings, words):
    with pytest.raises(ConfigError, match=words):
        bmdp.fit(log, gamma=0.9, **settings)


# Promises


def test_a_calibrated_chance_is_kept(limited, env):
    how = {"confidence": 0.95, "n_episodes": 500, "seed": 0}
    policy = bmdp.calibrate(limited[0].policy, env, **how, budgets=[0.0, 0.3, 1.0])
    promise = policy.certificate
    assert (promise.cost_range, promise.binary_costs) == ((0.0, 1.0), True)
    assert "the chance that an episode costs more than 1 is at most the budget" in str(promise)
    budget = float(np.sort(promise.cost_high)[1])
    found = bmdp.evaluate(policy, env, budgets=[budget], n_episodes=5_000, seed=9)
    assert found.dial_cost_high[0] < budget
    with pytest.raises(ConfigError, match="cost_range and binary_costs are not for"):
        bmdp.calibrate(limited[0].policy, env, **how, cost_range=(0.0, 1.0))


def test_a_calibrated_sum_is_of_undiscounted_costs(summed, env):
    how = {"confidence": 0.95, "n_episodes": 300, "seed": 0, "cost_gamma": 1.0}
    with pytest.raises(ConfigError, match="cost_range must be given"):
        bmdp.calibrate(summed[0].policy, env, **how)
    policy = bmdp.calibrate(summed[0].policy, env, **how, cost_range=(0, 4), budgets=[1.0])
    assert policy.certificate.cost_mean[0] == pytest.approx(1.0, abs=0.15)
    assert "(discount 1)" in str(policy.certificate)


def test_certificates_of_a_log_bound_the_truth(summed, limited, env):
    n = 1_500
    other = collect(UniformPolicy(2, 0.0, 1.0), env, range(n), budgets=np.zeros(n), seed=77)
    for (fitted, _), how in ((summed, {"cost_gamma": 1.0}), (limited, {})):
        policy = bmdp.certify(fitted.policy, other, gamma=GAMMA, **how)
        budget = 2 * policy.certificate.smallest_budget
        play = {"budgets": [budget], "n_episodes": 5_000, "seed": 9}
        found = bmdp.evaluate(policy, env, **play, **how)
        assert found.dial_cost_low[0] < budget
        reached = found.dial_cost_mean[0] > 0.4 * budget  # neither bound says nothing
        assert reached
        reward = np.interp(
            budget, *np.sort([policy.certificate.cost_high, policy.certificate.reward_mean])
        )
        assert found.discounted_reward_mean[0] == pytest.approx(reward, rel=0.1)


def test_a_log_says_how_often_a_limit_is_exceeded(limited, env, log):
    found = bmdp.evaluate_offline(
        limited[0].policy,
        log,
        gamma=GAMMA,
        budgets=[0.3],
        seed=0,
        model=TableModel(),
        n_bootstrap=0,
    )
    assert found.cost[0] == pytest.approx(0.3, abs=0.04)


# Commands and pages


def test_commands_take_the_discount_of_costs_from_the_run(summed):
    run = str(summed[1])
    asked = ("--env", "Quarters-v0", "--budgets", "1", "--episodes", 400, "--json")
    found = json.loads(commands.run("evaluate", run, *asked).stdout)
    assert (found["gamma"], found["cost_gamma"]) == (GAMMA, 1.0)
    other = json.loads(commands.run("evaluate", run, *asked, "--cost-gamma", GAMMA).stdout)
    assert other["cost_gamma"] == GAMMA
    assert found["rows"][0]["cost"] > 1.2 * other["rows"][0]["cost"]


def test_a_run_is_measured_by_its_own_discount_where_the_environment_says_another(log, tmp_path):
    play = ("--env", spec("PlainQuarters-v0", model(gamma=1.0)).id, "--episodes")
    run = tmp_path / "run"
    bmdp.fit(log, gamma=GAMMA, minutes=0.05, out=run)
    asked = ("evaluate", run, *play, 2_000, "--budgets", "0.5")
    found = json.loads(commands.run(*asked, "--json").stdout)
    assert (found["gamma"], found["cost_gamma"]) == (1.0, GAMMA)
    [row] = found["rows"]
    assert row["cost"] == pytest.approx(0.5, abs=0.06)
    assert "predicted_cost" in row
    assert "predicted_reward" not in row
    told = "Rewards are discounted by 1, as the environment says, and those of the run by 0.6"
    assert told in commands.run(*asked, columns=200).stdout
    commands.run("calibrate", run, *play, 2_000, "--cost-range", "0:4", "--out", tmp_path / "safe")
    assert bmdp.load_policy(tmp_path / "safe").certificate.cost_gamma == GAMMA
    page = commands.run("report", run, *play, 5, "--out", tmp_path / "page")
    assert page.exit_code == 0, page.stderr
    assert "a discount of rewards of 0.6" in (tmp_path / "page" / "index.html").read_text()


def test_the_command_tells_the_share_over_a_limit(limited):
    asked = ("--env", "Quarters-v0", "--budgets", "0.3", "--episodes", 300)
    shown = commands.run("evaluate", limited[1], *asked, columns=120).stdout
    assert "over limit" in shown
    assert "share of episodes that cost more than 1" in shown


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("limited", "the chance that an episode costs more than 1"),
        pytest.param(
            "summed",
            "expected cost from now on, not discounted; rewards are discounted by 0.6",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_page_says_what_a_budget_is(kind, words, request, tmp_path):
    run, out = request.getfixturevalue(kind)[1], tmp_path / "page"
    play = ("--env", "Quarters-v0", "--episodes", 5, "--out", out)
    result = commands.run("report", run, *play, columns=120)
    assert result.exit_code == 0, result.stderr
    assert words in (out / "index.html").read_text()


def test_a_fit_by_command_takes_both(log, tmp_path):
    log.to_parquet(tmp_path / "log.parquet")
    how = ("--data", tmp_path / "log.parquet", "--gamma", 0.9, "--minutes", 0.01)
    limit = ("--episode-limit", LIMIT, "--out", tmp_path / "run")
    found = commands.run("fit", *how, *limit)
    assert found.exit_code == 0, found.stderr
    assert bmdp.load_policy(tmp_path / "run").episode_limit == LIMIT
    wrong = commands.run("fit", *how, *limit[:2], "--cost-gamma", 0.5, "--out", tmp_path / "no")
    assert wrong.exit_code == 1
    assert "cost_gamma must be 1" in wrong.stderr


# The tables of docs/choosing-a-budget.md


def test_the_tables_of_the_page_are_those_of_the_record():
    record = json.loads(chances.RECORD.read_text())
    page = (chances.RECORD.parents[3] / "docs" / "choosing-a-budget.md").read_text()
    for kind in ("sum", "chance"):
        assert chances.table(record, kind) in page
        for row in record[kind]:
            assert abs(row["reward"] - row["exact_reward"]) < 0.02 + 4 * row["reward_error"]
            assert abs(row["cost"] - row["asked"]) < 0.02 * row["asked"] + 4 * row["cost_error"]


def test_a_deployed_chance_is_watched_by_the_share_over_its_limit(limited, env, tmp_path):
    n, budget, path = 1_500, 0.3, tmp_path / "log.jsonl"
    played = collect(limited[0].policy, env, range(n), budgets=np.full(n, budget), seed=9)
    names = ("episode", "step", "state", "action", "cost", "ended")
    rows = zip(
        played.episode, played.step, played.state, played.action, played.cost, played.terminal,
        strict=True,
    )  # fmt: skip
    lines = []
    for row in rows:
        episode, *others = (np.asarray(value).tolist() for value in row)
        lines.append(dict(zip(names, (str(episode), *others), strict=True)) | {"budget": budget})
        lines[-1]["state"] = np.ravel(lines[-1]["state"]).tolist()
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = json.loads(commands.run("watch", path, "--policy", limited[1], "--json").stdout)
    share = (np.bincount(played.episode, played.cost) > LIMIT).mean()
    assert told["rows"][0]["paid"] == pytest.approx(share)
    assert (told["broken"], told["gamma"], told["most_cost"]) == (False, 1.0, 1.0)
    assert told["drift"] == []
