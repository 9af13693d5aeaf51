"""Logs of the benchmark's tasks, measured policies, rivals and tables."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from strangers import rivals, run, table
from strangers.data import UniformPolicy, random_log
from strangers.envs import tables_of
from strangers.measure import _shared, default_budgets, measure
from strangers.tasks import TASKS

import bmdp
from bmdp.exact.multiplier import best_paid_policy, best_policy, cheapest_policy
from bmdp.frontier import BudgetStatus
from bmdp.policies import Portfolio
from bmdp.policies.policy import Decision, OneStepPolicy


@dataclass(frozen=True, eq=False)
class Fixed(OneStepPolicy):
    """Plays one action at each state that is shown as a number."""

    actions: np.ndarray

    budget_range, n_draws = (0.0, 1.0), 0

    def choose(self, states, budgets, uniforms):
        status = np.full(len(budgets), BudgetStatus.SLACK, np.int8)
        return Decision(self.actions[states.astype(int).reshape(-1)], budgets, status)


def best_coin(name, price):
    """A coin between vertices of an endless task, whose costs and rewards are exact."""
    model, start = tables_of(name).model()
    found = [cheapest_policy(model), best_policy(model, price), best_paid_policy(model)]
    costs, rewards = (
        [float(start @ v) for v in values]
        for values in zip(*((policy.v_c, policy.v_r) for policy in found), strict=True)
    )
    members = tuple(Fixed(policy.action) for policy in found)
    return Portfolio(members, np.arange(3), np.zeros(3), np.array(costs), np.array(rewards))


def test_the_best_policies_score_1_and_their_dial_is_right():
    coin = best_coin("frozen-lake-4x4", 0.5)
    found = measure(coin, TASKS["frozen-lake-4x4"], episodes=20_000, seed=3)
    assert found.mean_score == pytest.approx(1, abs=0.02)
    assert (abs(found.overshoot) < 4 * found.cost_error + 1e-9).all()
    assert (found.dial_error < 4 * found.cost_error + 1e-9).all()
    assert np.isnan(found.score[0])  # nothing can be earned at cost 0


def test_the_random_policy_scores_0_where_its_reward_is_the_floor():
    found = measure(UniformPolicy(6), TASKS["taxi"], [1.0], episodes=2_000, seed=0)
    assert found.score[0] == pytest.approx(0, abs=0.01)
    assert found.overshoot[0] == pytest.approx(found.cost[0] - 1.0)
    assert found.relative_overshoot[0] == found.overshoot[0]


def test_more_episodes_are_played_until_costs_are_known_well_enough():
    coin, task = best_coin("frozen-lake-8x8", 2.0), TASKS["frozen-lake-8x8"]
    found = measure(coin, task, seed=0, seconds=600)  # more than it takes
    goal = np.maximum(0.01, 0.05 * found.asked) / 5
    assert (found.cost_error < 1.2 * goal).all()
    assert found.asked == pytest.approx(default_budgets(coin, task))
    assert found.n_episodes.min() >= 500


def test_two_rounds_of_episodes_are_joined_to_one_mean():
    coin, task = best_coin("queue", 5.0), TASKS["queue"]
    long, short = (measure(coin, task, [1.0], episodes=n, seed=0) for n in (8_000, 2_000))
    joined = measure(coin, task, [0.05], seed=0)
    assert joined.n_episodes[0] >= 500
    assert long.cost_error[0] == pytest.approx(short.cost_error[0] / 2, rel=0.2)
    assert abs(long.cost[0] - short.cost[0]) < 4 * short.cost_error[0]


def test_a_budget_below_the_policys_range_is_played_at_the_least_it_takes():
    class Late(UniformPolicy):
        budget_range = (0.5, 1.0)

    found = measure(Late(5), TASKS["stock"], [0.1, 0.5], episodes=50, seed=0)
    assert found.asked.tolist() == [0.1, 0.5]
    assert found.overshoot == pytest.approx(found.cost - [0.1, 0.5])


def test_time_is_shared_by_those_who_want_most():
    assert _shared(np.array([1.0, 10.0, 100.0]), 31.0).tolist() == [1.0, 10.0, 20.0]


def test_a_log_has_whole_episodes_of_uniform_actions():
    log = random_log(TASKS["stock"], 200, seed=1)
    assert len(log) == 200 * 30
    assert log.terminal.sum() == 200
    assert not log.truncated.any()
    assert (log.step[log.terminal] == 29).all()
    shares = np.bincount(log.action, minlength=5) / len(log)
    assert shares == pytest.approx(0.2, abs=0.03)
    again = random_log(TASKS["stock"], 200, seed=1)
    assert (again.state == log.state).all()
    assert (random_log(TASKS["stock"], 200, seed=2).cost != log.cost).any()


def test_an_endless_task_is_cut_off_and_not_ended():
    log = random_log(TASKS["queue"], 5, seed=0)
    assert len(log) == 5 * 300
    assert (log.truncated.sum(), log.terminal.sum()) == (5, 0)


@pytest.mark.parametrize("name", ["blackjack", "treatment", "cart-pole"])
def test_logs_have_the_numbers_that_the_environment_shows(name):
    log = random_log(TASKS[name], 10, seed=0)
    assert log.state_size == {"blackjack": 3, "treatment": 3, "cart-pole": 4}[name]


def test_of_two_prices_the_higher_is_said_to_cost_less(monkeypatch):
    monkeypatch.setattr(rivals, "MOST_ITERATIONS", 8)
    monkeypatch.setattr(rivals, "N_TREES", 5)
    task = TASKS["stock"]
    log = random_log(task, 60, seed=0)
    coin = rivals.coin(log, task, 0)
    assert coin.costs[0] < coin.costs[1]
    assert coin.rewards[0] < coin.rewards[1]
    found = measure(coin, task, [0.0, 4.0], episodes=30, seed=0)
    assert found.cost[0] < found.cost[1]


@pytest.mark.slow
def test_every_rival_learns_from_a_log_and_plays():
    task = TASKS["frozen-lake-4x4"]
    log = random_log(task, 100, seed=0)
    for rival in rivals.RIVALS.values():
        found = measure(rival(log, task, 0), task, episodes=20, seed=0)
        assert np.isfinite(found.cost).all()


def test_a_run_that_is_there_is_not_run_again(tmp_path, monkeypatch, capsys):
    ran = []

    def apart(job, out, limit):
        ran.append(job)
        run.write(job, {"failed": "not really"}, out)
        return "failed"

    monkeypatch.setattr(run, "run_apart", apart)
    command = ["run.py", "--tasks", "stock,taxi,blackjack", "--methods", "coin", "--seeds", "0:2"]
    monkeypatch.setattr(sys, "argv", [*command, "--out", str(tmp_path)])
    run.main()
    assert [(job.task, job.seed) for job in ran] == [
        *(("stock", 0), ("taxi", 0), ("stock", 1), ("taxi", 1))  # blackjack is of the other half
    ]
    run.main()
    assert len(ran) == 4
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--again"])
    run.main()
    assert len(ran) == 8
    held = json.loads((tmp_path / ran[0].file).read_text())
    assert (held["task"], held["half"], held["failed"]) == ("stock", "develop", "not really")


@pytest.mark.parametrize("source", ["random", "explore"])
def test_what_the_front_door_found_is_kept(source, monkeypatch):
    given = []

    def fit(source, **how):
        given.append((source, how))
        policy, forecast = UniformPolicy(5), {"cost": np.array([0.5])}
        tried = [{"name": "tables", "score": 0.9, "taken": True}]
        told = {"candidates": tried, "notes": ("a",), "forecast": forecast}
        others = [SimpleNamespace(policy=policy)] * 2
        return SimpleNamespace(policy=policy, candidates=others, as_dict=lambda: told)

    monkeypatch.setattr(bmdp, "fit", fit, raising=False)
    _, told = run.learned(run.Job("stock", source, 3, 7, "fit"))
    assert told["candidates"] == [{"name": "tables", "score": 0.9, "taken": True}]
    assert (told["notes"], told["forecast"]) == (["a"], {"cost": [0.5]})
    if source == "random":
        assert given[0][1] == {"gamma": 0.99, "seed": 7}
        assert told["rows"] == len(given[0][0]) == 90
    else:
        assert given == [(TASKS["stock"].fast_id, {"episodes": 3, "seed": 7})]
    assert len(told.pop("others")) == 1
    json.dumps(told)


@pytest.mark.slow
def test_a_job_in_a_process_of_its_own_writes_its_record(tmp_path):
    job = run.Job("frozen-lake-4x4", "random", 50, 0, "coin")
    assert run.run_apart(job, tmp_path, 200) == "done"
    held = json.loads((tmp_path / job.file).read_text())
    assert held["rows"] > 50
    assert len(held["at_budgets"]["cost"]) == 7
    assert held["peak_mb"] > 10
    assert run.run_apart(job, Path(tmp_path), 0.01) == "not done in time"


def record(task, seed, **numbers):
    given = {"mean_score": 0.5, "worst_overshoot": 0.0, "mean_dial_error": 0.1, "seconds": 1.0}
    lead = {"task": task, "source": "random", "size": 5, "method": "fit", "half": "develop"}
    return {**lead, "seed": seed, **given, **numbers}


def test_tables_have_means_over_seeds_and_the_worst_overshoot():
    found = [
        record("stock", 0, worst_overshoot=0.25),
        record("stock", 1, mean_score=1.0),
        record("stock", 2, failed="why"),
        record("taxi", 0, mean_score=None),
    ]
    lines = table.tables(found).splitlines()
    assert lines[3].startswith("| stock | random | 5 | fit | 0.750 | 0.250 |")
    assert lines[3].endswith("| 2 | 1 |")
    assert lines[2].startswith("| taxi | random | 5 | fit | - | 0.000 |")
    assert lines[-2].startswith("| mean | random | 5 | fit | 0.750 | 0.125 |")
    assert lines[-1].startswith("| worst | random | 5 | fit | 0.750 | 0.250 |")
