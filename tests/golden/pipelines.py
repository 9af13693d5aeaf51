"""What the library computes, from the input to the figures, as numbers by name.

Every pipeline returns a flat dictionary of floats and lists of floats. `write.py` writes them down,
`test_golden.py` compares. Settings of the library are spelled in the functions of the first part
alone, so that a version with other names for them changes these.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from scipy import sparse

import bmdp
from batches import exhaustive_batch
from bmdp.envs import FiniteEnv, FiniteVectorEnv, ScriptedPolicy
from bmdp.exact import (
    allocate_budgets,
    budgeted_value_iteration,
    cost_range,
    evaluate_policy,
    optimal_frontier,
    solve_cmdp,
    textbook,
)
from bmdp.frontier import best_mixtures
from bmdp.learn import (
    BFTQ,
    Backward,
    EnvConfig,
    Exploration,
    Iterations,
    LagrangianFTQ,
    TrainingSpec,
    collect,
    explore,
)
from bmdp.models import ForestModel, KernelModel, LinearModel, TableModel
from bmdp.policies import RandomBudgetedPolicy

Values = dict[str, float | list[float]]

# How settings are spelled


PAPER = ("paper-corridors", "paper-slot-filling", "paper-driving")
OURS = ("corridors", "slot-filling", "two-way")
N_PAPER_EPISODES = 60
SEEDS = range(10)
BUDGETS = (0.1, 0.5, 1.0)
N_TESTS = 400
PRICES = (float("inf"), 300.0, 100.0, 30.0, 10.0, 0.0)


def paper_spec(name: str) -> TrainingSpec:
    """A preset of the paper, with its networks, at a size that takes a second or two.

    Rounding should decide as little as can be: all actions are random (decay 0), and regressions
    and iterations do not stop early, as one step more or less would show. On the road, each row has
    one uniform label, and costs have no cap.
    """
    spec = bmdp.preset(name)
    network = spec.learner.model
    if name == "paper-driving":
        network = replace(network, labels="uniform", n_labels=1)
        spec = replace(spec, learner=replace(spec.learner, cost_cap=None))
    model = replace(network, regression=replace(network.regression, steps=60, stop_loss=None))
    learner = replace(spec.learner, model=model, schedule=Iterations(3, settled=0.0))
    how = replace(spec.exploration, rounds=2, episodes=N_PAPER_EPISODES, decay=0.0)
    return replace(spec, learner=learner, exploration=how)


def our_spec(name: str) -> TrainingSpec:
    """One of our presets at a size that takes less than a second.

    Few dialogues are long, so that there are folds for two models of their last step only.
    """
    spec = bmdp.preset(name)
    if name == "two-way":
        model = ForestModel(trees=5, leaf=10, regrown=True)
    else:
        length = {"corridors": 0.6, "slot-filling": 2.0}[name]
        model = KernelModel(centres=40, lengths=(length,), ridges=(1e-1,))
    learner = replace(spec.learner, budgets=(), n_budgets=6, model=model)
    if name == "slot-filling":
        learner = replace(learner, ensemble=2)
    how = replace(spec.exploration, rounds=2, episodes=60, decay=0.02)
    return replace(spec, learner=learner, exploration=how)


def table_learner(model: bmdp.FiniteBMDP, iterations: int, top: float) -> bmdp.BFTQConfig:
    """Budgeted fitted Q-iteration that is budgeted value iteration on exhaustive data."""
    return bmdp.BFTQConfig(
        gamma=model.gamma,
        budget_range=(0.0, top),
        n_budgets=11,
        model=TableModel(),
        schedule=Iterations(iterations, settled=0.0),
        ensemble=1,
        slope_cap=0.0,
        costs_from_zero=False,
    )


def table_prices(gamma: float, plays: str) -> bmdp.LagrangianConfig:
    """Prices on tables: nothing is random."""
    return bmdp.LagrangianConfig(
        gamma=gamma,
        budget_range=(0.0, 2.0),
        model=TableModel(),
        schedule=Iterations(12, settled=0.0),
        ensemble=1,
        prices=(float("inf"), 4.0, 2.0, 1.0, 0.5, 0.0),
        plays=plays,
    )


def kernel_prices(plays: str) -> bmdp.LagrangianConfig:
    """Prices on bumps, for episodes of corridors."""
    return bmdp.LagrangianConfig(
        gamma=1.0,
        model=KernelModel(centres=40, lengths=(0.6,), ridges=(1e-2,)),
        schedule=Backward(last_step="shared"),
        ensemble=2,
        pooled=False,
        prices=PRICES,
        plays=plays,
    )


def log_spec() -> TrainingSpec:
    """One round of random episodes of corridors; what is learned from them is thrown away."""
    once = Iterations(1)
    learner = bmdp.BFTQConfig(gamma=1.0, n_budgets=2, model=LinearModel(), schedule=once)
    how = Exploration(rounds=1, episodes=300, decay=0.0, hold=5)
    return TrainingSpec(EnvConfig("corridors"), learner, how)


def killed_specs() -> dict[str, TrainingSpec]:
    """Runs of a moment that are killed: with one model for all steps, and with one for each."""
    how = Exploration(rounds=2, episodes=30, decay=0.05)
    env = EnvConfig("corridors", {"height": 3, "observe_time": True})
    thrice = Iterations(3, settled=0.0)
    unstaged = bmdp.BFTQConfig(gamma=1.0, n_budgets=4, model=LinearModel(), schedule=thrice)
    model, backward = KernelModel(15, (0.6,), (1e-2,)), Backward(last_step="shared")
    staged = bmdp.BFTQConfig(gamma=1.0, n_budgets=4, model=model, schedule=backward)
    return {
        "unstaged": TrainingSpec(env, unstaged, how),
        "staged": TrainingSpec(env, staged, how),
    }


# Problems


def random_model(seed: int, *, is_sparse: bool, horizon: int | None = None) -> bmdp.FiniteBMDP:
    """Six states, of which the last is the end, three actions; 3 or all states can follow."""
    rng = np.random.default_rng(seed)
    n_states, n_actions = 6, 3
    chances = rng.dirichlet(np.ones(n_states), (n_states, n_actions))
    if is_sparse:
        chances *= rng.random(chances.shape).argsort(axis=2) < 3
        chances /= chances.sum(axis=2, keepdims=True)
    rows = sparse.csr_array(chances.reshape(n_states * n_actions, n_states))
    return bmdp.FiniteBMDP(
        transition=rows if is_sparse else chances,
        reward=rng.random((n_states, n_actions)),
        cost=rng.random((n_states, n_actions)) * (rng.random((n_states, n_actions)) < 0.6),
        gamma=0.9,
        terminal=np.arange(n_states) == n_states - 1,
        horizon=horizon,
    )


def fraction_model(seed: int, *, is_random: bool) -> bmdp.FiniteBMDP:
    """Five states, of which the last is the end, three actions, probabilities in quarters or 1."""
    rng = np.random.default_rng(seed)
    transition = np.zeros((5, 3, 5))
    for state, action in np.ndindex(5, 3):
        n_drawn = 4 if is_random else 1
        np.add.at(transition[state, action], rng.integers(5, size=n_drawn), 1 / n_drawn)
    return bmdp.FiniteBMDP(
        transition=transition,
        reward=rng.integers(0, 9, (5, 3)) / 8,
        cost=rng.integers(5, size=(5, 3)) / 8,
        gamma=0.9,
        terminal=np.arange(5) == 4,
    )


def finite_spec(model: bmdp.FiniteBMDP, start: int = 0) -> EnvSpec:
    """A finite model as an environment."""
    return EnvSpec(
        "Golden-v0",
        entry_point=FiniteEnv,
        vector_entry_point=FiniteVectorEnv,
        kwargs={"model": model, "start": start},
    )


def of_record(record: Any, name: str) -> float:
    """A figure of the record of an iteration."""
    return float(getattr(record.of, name))


def promises(frontier: bmdp.Frontier, n: int = 5) -> tuple[list[float], list[float]]:
    """Costs and rewards at budgets from the cheapest vertex to the best-paid one."""
    costs = np.linspace(frontier.costs[0], frontier.costs[-1], n)
    costs[-1] = frontier.costs[-1]
    return costs.tolist(), frontier.reward_at(costs).tolist()


def told(values: Values, name: str, frontier: bmdp.Frontier, n: int = 5) -> None:
    """Adds the promises of a frontier to values."""
    values[f"{name}/costs"], values[f"{name}/rewards"] = promises(frontier, n)


# 1. Exact solvers


def exact() -> Values:
    """Solvers of known models: textbook problems, and random ones."""
    problems = {
        name: (textbook.problem(name).model, textbook.problem(name).start)
        for name in textbook.PROBLEMS
    }
    problems["random-dense"] = random_model(0, is_sparse=False), 0
    problems["random-sparse"] = random_model(1, is_sparse=True), 1
    problems["random-horizon"] = random_model(2, is_sparse=True, horizon=5), 2
    found: Values = {}
    for name, (model, start) in problems.items():
        found |= {f"{name}/{key}": value for key, value in _solved(model, start).items()}
    return found


def _solved(model: bmdp.FiniteBMDP, start: int) -> Values:
    low, high = cost_range(model)
    grid = np.linspace(min(low, 0.0), max(high, 0.1), 9)
    solution = budgeted_value_iteration(model, grid, tol=0.0, max_iterations=25)
    v_r, v_c = evaluate_policy(model, solution.policy(), grid)
    best = optimal_frontier(model, start=start)
    allocated = allocate_budgets(model).frontier(start)
    costs = np.linspace(best.costs[0], best.costs[-1], 7)
    found: Values = {
        "iteration/sum_r": float(solution.q_r.sum()),
        "iteration/sum_c": float(solution.q_c.sum()),
        "iteration/q_r": solution.q_r[start].ravel().tolist(),
        "iteration/q_c": solution.q_c[start].ravel().tolist(),
        "iteration/residuals": solution.residuals.tolist(),
        "policy/v_r": v_r.ravel().tolist(),
        "policy/v_c": v_c.ravel().tolist(),
        "optimum/costs": best.costs.tolist(),
        "optimum/rewards": best.rewards.tolist(),
        "allocation/rewards": allocated.reward_at(np.maximum(costs, allocated.costs[0])).tolist(),
        "allocation/ends": [float(allocated.costs[0]), float(allocated.costs[-1])],
    }
    told(found, "iteration", solution.frontier(start))
    for budget in (0.9 * best.costs[0] - 0.1, *costs[1::3], best.costs[-1] + 1):
        one = solve_cmdp(model, start=start, budget=float(budget))
        figures = one.reward, one.cost, one.multiplier, float(one.status)
        for key, value in zip(("reward", "cost", "multiplier", "status"), figures, strict=True):
            found.setdefault(f"program/{key}", []).append(float(value))
    return found


# 2. Geometry


def frontier() -> Values:
    """Mixtures of points: of one state, and of many at once."""
    found: Values = {}
    for name, (costs, rewards, betas) in _clouds().items():
        many = best_mixtures(costs, rewards, betas)
        found |= {f"{name}/many/{k}": np.asarray(v).tolist() for k, v in many._asdict().items()}
        for x, y, beta in zip(costs, rewards, betas, strict=True):
            vertices = bmdp.upper_frontier(x, y)
            one = bmdp.hull_mixture(vertices, float(beta))
            figures = {
                "lower": vertices.index[one.lower],
                "upper": vertices.index[one.upper],
                "p_upper": one.p_upper,
                "cost": one.cost,
                "reward": one.reward,
                "status": int(one.status),
                "n_vertices": len(vertices),
            }
            for key, value in figures.items():
                found.setdefault(f"{name}/one/{key}", []).append(np.asarray(value).tolist())
    return found


def _clouds() -> dict[str, tuple[Any, Any, Any]]:
    """Points `[N, K]` and budgets `[N]`, by name."""
    rng = np.random.default_rng(7)
    plain = (*rng.normal(size=(2, 40, 15)), 1.5 * rng.normal(size=40))
    tied = (*np.round(2 * rng.normal(size=(2, 60, 12))) / 2, np.round(4 * rng.normal(size=60)) / 4)
    single = (*rng.normal(size=(2, 9, 1)), rng.normal(size=9))
    same = tuple(np.repeat(column, 3, axis=1) for column in rng.normal(size=(2, 6, 1)))
    costs, rewards = np.round(rng.random((2, 1, 10)), 1)
    vertices = np.sort(bmdp.upper_frontier(costs[0], rewards[0]).costs)
    asked = np.concatenate((vertices, (vertices[1:] + vertices[:-1]) / 2, [-1.0, 0.0, 7.0]))
    at_vertices = (np.repeat(costs, len(asked), 0), np.repeat(rewards, len(asked), 0), asked)
    angle = rng.random((20, 30)) * np.pi / 2
    arcs = (1 - np.cos(angle), np.sin(angle), rng.random(20) * 1.2 - 0.1)
    return {
        "plain": plain,
        "tied": tied,
        "single point": single,
        "single point, its own cost": (*single[:2], single[0][:, 0]),
        "equal points": (*same, rng.normal(size=6)),
        "budgets at vertices": at_vertices,
        "below": (*plain[:2], np.full(40, -10.0)),
        "above": (*plain[:2], np.full(40, 10.0)),
        "arcs": arcs,
        "float32": tuple(np.asarray(column, np.float32) for column in tied),
    }


# 3. Tables


def tabular() -> Values:
    """Fitted Q-iteration with tables on exhaustive data, beside budgeted value iteration."""
    found: Values = {}
    for kind, is_random in (("deterministic", False), ("stochastic", True)):
        model, iterations = fraction_model(4, is_random=is_random), 6
        config = table_learner(model, iterations, 2.0)
        policy = BFTQ(config).fit(
            exhaustive_batch(model, parts=4, n_copies=1), seed=0, device="cpu"
        )
        grid = np.linspace(0.0, 2.0, 11)
        truth = budgeted_value_iteration(model, grid, tol=0.0, max_iterations=iterations)
        for state in range(model.n_states - 1):
            told(found, f"{kind}/{state}/learned", policy.frontier([float(state)]), 7)
            told(found, f"{kind}/{state}/exact", truth.frontier(state), 7)
    return found


# 4. The paper's presets


def paper(name: str) -> Values:
    """A preset of the paper: its data, and what its policy promises or does.

    "targets" are losses of the models before a regression on what is fitted next. "one" is learned
    from the first round by one iteration: a regression on what was seen. What a run with a dial
    leaves is not compared: gradient descent amplifies rounding, and 1e-7 in targets moves it by up
    to half. Of FTQ, "last" has the actions of the policy that the run leaves.
    """
    spec = paper_spec(name)
    result = explore(spec, seed=0, device="cpu")
    batch = result.batch
    first = batch.take(batch.episode < N_PAPER_EPISODES)
    found: Values = {
        "round-0/transitions": float(len(first)),
        "round-0/reward": math.fsum(first.reward.tolist()),
        "round-0/cost": math.fsum(first.cost.tolist()),
        "all/transitions": float(len(batch)),
        "all/reward": math.fsum(batch.reward.tolist()),
        "all/cost": math.fsum(batch.cost.tolist()),
    }
    steps = [record for record in result.records if record.kind == "iteration"]
    for key in ("delta", "first_loss"):  # of the first two iterations of each round
        found[f"targets/{key}"] = [of_record(steps[i], key) for i in (0, 1, 3, 4)]
    learner = bmdp.FTQ if name.endswith("-ftq") else BFTQ
    once = replace(spec.learner, schedule=Iterations(1))
    one = learner(once).fit(first, seed=0, device="cpu")
    if name.endswith("-ftq"):
        states = first.state[np.linspace(0, len(first) - 1, 20).astype(int)]
        for kind, policy in (("one", one), ("last", result.policy)):
            chosen = policy.decide(states, np.full(20, 0.5), np.random.default_rng(0))
            found[f"{kind}/actions"] = np.asarray(chosen.action).tolist()
    else:
        for row in (0, len(first) // 3, 2 * len(first) // 3):  # the first is where all start
            told(found, f"one/{row}", one.frontier(first.state[row]))
    return found


# 5. Our presets


def ours(name: str) -> Values:
    """One of our presets: what its policies realise and what they promised, for each seed."""
    spec = our_spec(name)
    found: dict[str, list[float]] = {}
    for seed in SEEDS:
        result = explore(spec, seed=seed, device="cpu")
        for key, value in _played(result.policy, spec.env.spec(), seed).items():
            found.setdefault(key, []).append(value)
        for key in ("start_reward_low", "start_cost_low", "start_reward_high", "start_cost_high"):
            found.setdefault(key, []).append(of_record(result.records[-1], key))
    return dict(found)


def _played(policy: Any, env: EnvSpec, seed: int) -> dict[str, float]:
    """Mean discounted reward and cost of an episode, by budget."""
    seen = bmdp.evaluate(policy, env, budgets=BUDGETS, n_episodes=N_TESTS, seed=seed)
    return {
        f"{what} at {budget}": float(getattr(seen, f"discounted_{what}_mean")[i])
        for what in ("reward", "cost")
        for i, budget in enumerate(BUDGETS)
    }


# 6. Prices


def table_price_play() -> Values:
    """Prices on tables, from a log of a finite model."""
    model = random_model(3, is_sparse=True)
    env = finite_spec(model)
    log = collect(
        RandomBudgetedPolicy(3, 0.0, 2.0), env, range(200), budgets=np.linspace(0, 2, 200), seed=5
    )
    found: Values = {"log/transitions": float(len(log)), "log/cost": math.fsum(log.cost.tolist())}
    mixture = LagrangianFTQ(table_prices(0.9, "mixture")).fit(log, seed=0, device="cpu")
    found |= {"costs": mixture.costs.tolist(), "rewards": mixture.rewards.tolist()}
    carried = LagrangianFTQ(table_prices(0.9, "carried")).fit(log, seed=0, device="cpu")
    for kind, policy in (("mixture", mixture), ("carried", carried)):
        found |= {f"{kind}/{k}": v for k, v in _played(policy, env, 1).items()}
    return found


def kernel_price_play() -> Values:
    """Prices on bumps, from one log of corridors; lists have a number for each of some seeds."""
    spec = log_spec()
    log = explore(spec, seed=0, device="cpu").batch
    found = {
        "log/sums": [float(len(log)), *(math.fsum(x.tolist()) for x in (log.reward, log.cost))]
    }
    for seed in SEEDS:
        mixture = LagrangianFTQ(kernel_prices("mixture")).fit(log, seed=seed, device="cpu")
        carried = LagrangianFTQ(kernel_prices("carried")).fit(log, seed=seed, device="cpu")
        figures = _played(carried, spec.env.spec(), seed)
        figures = {f"carried/{key}": value for key, value in figures.items()}
        for number, price in enumerate(PRICES):
            figures[f"cost of price {price:g}"] = float(mixture.costs[number])
            figures[f"reward of price {price:g}"] = float(mixture.rewards[number])
        for key, value in figures.items():
            found.setdefault(key, []).append(value)
    return dict(found)


# 7. Certificates


def certificate() -> Values:
    """Certificates of scripted policies, and of a table."""
    rules = [ScriptedPolicy(f"slot-filling/{rule}") for rule in ("voice-again", "key-pad")]
    calibrated = {"scripts": bmdp.calibrate(rules, "slot-filling", **_promise(seed=3))}
    calibrated["scripts, rewards"] = bmdp.calibrate(
        rules, "slot-filling", reward_range=(-20.0, 100.0), **_promise(seed=4)
    )
    for name, top in (("branches", 1.0), ("ladder", 6.0)):
        problem = textbook.problem(name)
        grid = np.linspace(0.0, top, 7)
        policy = budgeted_value_iteration(problem.model, grid).policy()
        calibrated[name] = bmdp.calibrate(
            policy,
            finite_spec(problem.model, problem.start),
            cost_range=(0.0, top),
            binary_costs=name == "branches",
            budgets=np.linspace(0.0, top, 5),
            **_promise(seed=5),
        )
    found: Values = {}
    for name, policy in calibrated.items():
        promise = policy.certificate
        for key in ("cost_mean", "cost_high", "reward_mean", "reward_low"):
            found[f"{name}/{key}"] = np.asarray(getattr(promise, key)).tolist()
        found[f"{name}/smallest_budget"] = promise.smallest_budget
        mixtures = policy.portfolio.mixtures(np.linspace(0.0, 0.5, 5))
        found[f"{name}/chances"] = np.asarray(mixtures.p_upper).tolist()
    return found


def _promise(seed: int) -> dict[str, Any]:
    return {"confidence": 0.95, "n_episodes": 300, "seed": seed}


PIPELINES: dict[str, Callable[[], Values]] = {
    "exact": exact,
    "frontier": frontier,
    "tabular": tabular,
    **{
        name + variant: partial(paper, name + variant) for name in PAPER for variant in ("", "-ftq")
    },
    **{name: partial(ours, name) for name in OURS},
    "prices-table": table_price_play,
    "prices-kernel": kernel_price_play,
    "certificate": certificate,
}
