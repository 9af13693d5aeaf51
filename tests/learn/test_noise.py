"""Noise in an exact dynamic program. Margins were measured over 20 seeds, 0 to 19."""

import json
from functools import cache

import numpy as np
import pytest
import torch

from bmdp.envs.corridors import Corridors
from bmdp.envs.corridors.frontier import corridors_grid, grid_frontier
from bmdp.errors import ConfigError
from bmdp.evaluate import measure_dial
from bmdp.exact import budgeted_value_iteration, evaluate_policy
from bmdp.exact.operators import QTables, backup
from bmdp.exact.textbook import ladder, payments
from bmdp.frontier import frontier_values
from bmdp.learn.noise import (
    Noise,
    NoiseRule,
    NoiseRun,
    learned,
    measured,
    noise_problem,
    run_noise,
    tolerated,
)
from bmdp.learn.targets import mixture_values
from bmdp.policies import HullPolicy, TabularQ
from bmdp.policies.crossed import CrossedPolicy, MeanQ
from bmdp.policies.greedy import GreedyRule
from bmdp.policies.protocol import Options
from evaluate.problems import by_hand
from scripts import script

HARNESS = script("examples/noise_harness.py")
SELF = NoiseRule(**HARNESS.KINDS["self"])
VALUES = NoiseRule(**HARNESS.KINDS["crossed values"])
CROSSED = NoiseRule(**HARNESS.KINDS["crossed"])
AVERAGE = NoiseRule(**HARNESS.KINDS["crossed, average acts"])
KINDS = {"self": SELF, "values": VALUES, "crossed": CROSSED, "average": AVERAGE}
PLAIN_RULES = {**KINDS, "three folds": NoiseRule(folds=3)}
N_SEEDS = 4


@cache
def corridors():
    return HARNESS.corridors_problem(n_budgets=21)


@cache
def bent():
    """A small problem whose frontier bends, with discounts that differ."""
    return HARNESS.garnet_problem(n_states=8, horizon=4)


@cache
def small(name):
    if name == "payments":
        known = payments()
        return noise_problem(name, known.model, np.linspace(0, 2, 21), start=known.start)
    return corridors() if name == "corridors" else bent()


@cache
def seen(name, size, beta_length=0.0):
    """Means over seeds of a rule on corridors: predicted, reward, cost, score, each `[B]`."""
    problem, rows = corridors(), []
    rule = HARNESS.rules(problem, tolerance=0.05)[name]
    for seed in range(N_SEEDS):
        run = run_noise(problem, rule, problem.noise(size, beta_length=beta_length), seed=seed)
        score = measured(problem, run).score
        rows.append((run.predicted_reward, run.reward, run.cost, score))
    return dict(zip(("predicted", "reward", "cost", "score"), np.mean(rows, axis=0), strict=True))


class Coin:
    """Each policy with the same chance."""

    def __init__(self, *policies):
        self.policies = policies

    def options(self, states, budgets):
        every = [policy.options(states, budgets) for policy in self.policies]
        joined = [np.concatenate(t, axis=1) for t in zip(*every, strict=True)]
        return Options(*joined[:2], joined[2] / len(every))


class Staged:
    """The policy that acts by noisy tables, made of the library's policies."""

    def __init__(self, stages, rule, grid):
        self.stages, self.rule, self.grid = stages, rule, grid

    def at_step(self, step):
        functions = [TabularQ(*table) for table in self.stages[step]]
        if self.rule.acting == "average":
            return HullPolicy(MeanQ(*functions), self.grid, self.rule.greedy)
        if self.rule.probability == "other":
            return CrossedPolicy(*functions, self.grid, self.rule.greedy)
        return Coin(*(HullPolicy(f, self.grid, self.rule.greedy) for f in functions))


@pytest.mark.parametrize("rule", PLAIN_RULES.values(), ids=PLAIN_RULES)
@pytest.mark.parametrize("name", ["corridors", "garnet", "payments"])
def test_without_noise_every_rule_is_the_operator(name, rule):
    problem = small(name)
    solution = budgeted_value_iteration(problem.model, problem.beta_grid)
    clouds = (t[problem.start].reshape(1, -1) for t in (solution.q_c, solution.q_r))
    v_r, v_c = frontier_values(*clouds, problem.beta_grid)
    run = run_noise(problem, rule, problem.noise(0.0), seed=0)
    for told, reward in ((run.predicted_reward, v_r[0]), (run.predicted_cost, v_c[0])):
        np.testing.assert_allclose(told, reward, rtol=0, atol=1e-9)
    np.testing.assert_allclose(run.reward, v_r[0], rtol=0, atol=1e-9)
    np.testing.assert_allclose(run.cost, v_c[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", HARNESS.rules(bent(), tolerance=0.05))
def test_without_noise_a_rule_realises_what_it_predicts(name):
    rule = HARNESS.rules(bent(), tolerance=0.05)[name]
    run = run_noise(bent(), rule, bent().noise(0.0), seed=0)
    np.testing.assert_allclose(run.predicted_reward, run.reward, rtol=0, atol=1e-9)
    np.testing.assert_allclose(run.predicted_cost, run.cost, rtol=0, atol=1e-9)


@pytest.mark.parametrize("cap", [0.0, 3.0])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_realised_is_the_value_of_the_policy_that_is_deployed(kind, cap):
    problem = bent()
    greedy = GreedyRule(cost_floor=0.0, slope_cap=cap * problem.chord_slope)
    settings = {**HARNESS.KINDS, "values": HARNESS.KINDS["crossed values"]}
    settings["average"] = HARNESS.KINDS["crossed, average acts"]
    rule = NoiseRule(**settings[kind], greedy=greedy)
    run = run_noise(problem, rule, problem.noise(0.05), seed=3)
    policy = Staged(run.stages, rule, problem.beta_grid)
    v_r, v_c = evaluate_policy(problem.model, policy, problem.beta_grid)
    np.testing.assert_allclose(run.reward, v_r[problem.start], rtol=0, atol=1e-9)
    np.testing.assert_allclose(run.cost, v_c[problem.start], rtol=0, atol=1e-9)


@pytest.mark.parametrize("rule", [SELF, CROSSED], ids=["self", "crossed"])
def test_values_are_those_that_the_learner_is_fitted_to(rule):
    rng, grid = np.random.default_rng(0), np.linspace(0, 1, 11)
    tables = [QTables(*rng.normal(0.4, 0.3, (2, 30, 3, 11))) for _ in range(rule.folds)]
    _, values = learned(tables, rule, grid)
    for e, (v_r, v_c) in enumerate(values):
        choosing, valuing = (torch.tensor(np.stack(t, axis=1)) for t in (tables[e], tables[e - 1]))
        for b, beta in enumerate(grid):
            budget = torch.tensor([beta], dtype=torch.float64)
            found = mixture_values(choosing, valuing, budget, rule.greedy).values[:, 0]
            np.testing.assert_allclose(v_r[:, b], found[:, 0], rtol=0, atol=1e-12)
            np.testing.assert_allclose(v_c[:, b], found[:, 1], rtol=0, atol=1e-12)


def test_a_table_is_the_noise_free_backup_of_the_values_after_it_and_noise():
    problem, noise = bent(), bent().noise(0.02)
    stages = run_noise(problem, CROSSED, noise, seed=1).stages
    _, after = learned(stages[1], CROSSED, problem.beta_grid)
    errors = stages[0][1].q_r - backup(problem.model, *after[1]).q_r
    assert errors.std() == pytest.approx(noise.reward, rel=0.1)
    others = stages[0][0].q_r - backup(problem.model, *after[0]).q_r
    assert abs(np.corrcoef(errors.ravel(), others.ravel())[0, 1]) < 0.1


def test_the_problem_of_corridors_has_the_frontier_of_its_grid():
    own, _ = grid_frontier(corridors_grid(Corridors(), 3))
    costs = np.linspace(0, 1.12, 20)
    np.testing.assert_allclose(
        corridors().frontier.reward_at(costs), own.reward_at(costs), rtol=2e-4
    )


def test_the_measures_are_those_of_the_dial():
    problem = bent()
    run = run_noise(problem, SELF, problem.noise(0.05), seed=0)
    report = measure_dial(by_hand(problem.beta_grid, run.reward, run.cost), problem.frontier)
    found = measured(problem, run)
    np.testing.assert_allclose(found.score, report.score, atol=1e-12)
    np.testing.assert_allclose(found.overshoot, report.overshoot, atol=1e-12)
    np.testing.assert_allclose(found.dial_error, report.dial_error, atol=1e-12)


# Optimism, and the remedies. Places of budgets 0, 0.3 and 1 on the grid of 21 are 0, 6 and 20.


@pytest.mark.parametrize("place", [6, 20])
def test_predictions_of_itself_are_optimistic_and_crossed_ones_much_less(place):
    optimism = {
        name: (seen(name, 0.02)["predicted"] - seen(name, 0.02)["reward"])[place]
        for name in ("self", "crossed values", "crossed")
    }
    assert optimism["self"] > 40
    assert abs(optimism["crossed values"]) < 0.2 * optimism["self"]
    assert abs(optimism["crossed"]) < 0.2 * optimism["self"]


@pytest.mark.parametrize("kind", HARNESS.KINDS)
def test_at_budget_zero_a_rule_collapses_and_either_remedy_cures_it(kind):
    assert seen(kind, 0.003)["score"][0] < 0.7
    assert seen(kind + " + tolerance", 0.003)["score"][0] > 0.9
    assert seen(kind + " + cap", 0.003)["score"][0] > 0.95


@pytest.mark.parametrize("kind", HARNESS.KINDS)
def test_the_cap_cures_the_collapse_for_less_than_the_tolerance(kind):
    assert seen(kind + " + cap", 0.003)["cost"][0] < 0.007
    assert seen(kind + " + tolerance", 0.003)["cost"][0] > 0.012


def test_the_budget_is_overspent_least_where_the_other_network_sets_the_probability():
    spent = [seen(name, 0.02)["cost"][20] for name in ("self", "crossed values", "crossed")]
    assert spent[0] > spent[1] + 0.01 > spent[2] + 0.015


def test_errors_that_are_alike_over_budgets_make_less_optimism():
    optimism = [
        (found["predicted"] - found["reward"])[6]
        for found in (seen("self", 0.02), seen("self", 0.02, beta_length=0.3))
    ]
    assert optimism[1] < 0.7 * optimism[0]


def test_where_the_frontier_bends_the_cap_overspends_even_without_noise():
    problem = HARNESS.garnet_problem()
    capped = HARNESS.rules(problem, tolerance=0.05)["self + cap"]
    costs = [run_noise(problem, r, problem.noise(0.0), seed=0).cost[0] for r in (SELF, capped)]
    assert costs[0] == pytest.approx(problem.frontier.costs[0], abs=1e-9)
    assert costs[1] > costs[0] + 0.1


# Settings.


def test_noise_that_is_alike_everywhere_is_the_same_at_all_budgets():
    none = QTables(*np.zeros((2, 50, 4, 11)))
    noise = Noise(reward=2.0, cost=1.0, beta_length=np.inf)
    q_r, q_c = noise.added(none, np.linspace(0, 1, 11), np.random.default_rng(0))
    np.testing.assert_allclose(q_r, np.broadcast_to(q_r[..., :1], q_r.shape), atol=1e-6)
    assert q_r.std() == pytest.approx(2.0, rel=0.15)
    assert q_c.std() == pytest.approx(1.0, rel=0.15)


def test_smooth_noise_has_the_size_of_noise_apart_and_neighbours_alike():
    none = QTables(*np.zeros((2, 1000, 4, 11)))
    noise = Noise(reward=2.0, cost=1.0, beta_length=0.3)
    q_r, _ = noise.added(none, np.linspace(5, 7, 11), np.random.default_rng(0))
    np.testing.assert_allclose(q_r.std(axis=(0, 1)), 2.0, rtol=0.05)
    alike = np.corrcoef(q_r[..., 3].ravel(), q_r[..., 6].ravel())[0, 1]
    assert alike == pytest.approx(np.exp(-0.5), abs=0.05)


def test_networks_that_share_the_data_have_more_noise():
    problem = bent()
    noise, more = problem.noise(0.02, splits_data=True), problem.noise(0.02 * np.sqrt(3))
    rule = NoiseRule(folds=3)
    shared, apart = (run_noise(problem, rule, n, seed=0) for n in (noise, more))
    np.testing.assert_allclose(shared.reward, apart.reward, atol=1e-9)


def test_the_same_seed_is_the_same_noise_whatever_the_rule():
    runs = [run_noise(bent(), rule, bent().noise(0.1), seed=2) for rule in (SELF, CROSSED)]
    last = [run.stages[-1][0].q_r for run in runs]
    np.testing.assert_array_equal(*last)
    assert not np.array_equal(runs[1].stages[-1][0].q_r, runs[1].stages[-1][1].q_r)


def test_the_frontier_begins_at_the_best_paid_of_the_nearly_cheapest():
    costs, rewards = np.array([[0.0, 0.04, 0.05, 0.2]]), np.array([[1.0, 3.0, 2.0, 9.0]])
    kept_costs, kept_rewards = tolerated(costs, rewards, 0.1)
    assert kept_costs.tolist() == [[0.04, 0.04, 0.05, 0.2]]
    assert kept_rewards.tolist() == [[2.0, 3.0, 2.0, 9.0]]


@pytest.mark.parametrize(
    "settings", [{"folds": 1}, {"folds": 0}, {"tolerance": -0.1}, {"tolerance": np.nan}]
)
def test_a_rule_that_makes_no_sense_is_refused(settings):
    with pytest.raises(ConfigError):
        NoiseRule(**settings)


def test_negative_noise_is_refused():
    with pytest.raises(ConfigError, match="from 0 on"):
        Noise(reward=-1.0, cost=0.0)


def test_a_problem_without_horizon_is_refused():
    with pytest.raises(ConfigError, match="horizon"):
        noise_problem("ladder", ladder().model, [0.0, 1.0], start=0)


def test_a_score_of_nothing_is_not_a_number():
    known = payments()
    problem = noise_problem("poor", known.model, [0.0, 1.0], start=known.start)
    nothing = np.zeros(2)
    object.__setattr__(problem, "frontier", type(problem.frontier)(nothing[:1], nothing[:1]))
    assert problem.chord_slope == 0
    assert np.isnan(measured(problem, NoiseRun(*[nothing] * 4, stages=[])).score).all()


def test_the_script_prints_its_tables_and_writes_them(tmp_path, capsys):
    out = tmp_path / "new" / "noise.json"
    HARNESS.main(["--quick", "--noise", "0.01", "--out", str(out)])
    record = json.loads(out.read_text())
    for problem in ("corridors", "garnet"):
        found = record[problem]["rules"]
        assert len(found) == 1 + 4 * 3
        assert [row["budget"] for row in found["crossed + cap"]] == pytest.approx([0, 0.3, 1])
        for row in found["exact"]:
            assert row["predicted_reward"] == pytest.approx(row["reward"], abs=1e-9)
            assert 0.9 < row["score"] <= 1 + 1e-9
    printed = capsys.readouterr().out
    assert printed.count("crossed, average acts + cap") == 2
    assert record["settings"]["seeds"] == 1
