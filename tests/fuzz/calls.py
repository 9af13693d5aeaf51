"""Wrong values for every argument of every public call, and for every setting of a run.

The promise: a call with a wrong value ends in a `BmdpError` whose message is one line, or takes the
value, within five seconds. Nothing else comes out of it: no error from inside, and no warning.

A call is valid in `CALLS`; then one of its arguments is replaced by each of `WRONG`. The table has
all public calls, which a test holds. Settings are also given on the command line, by `--set`.
"""

import contextlib
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import inspect
import io
import itertools
import json
import os
import re
import shutil
import signal
import warnings
from functools import cache
from importlib import import_module
from pathlib import Path
from unittest import mock

import gymnasium
import numpy as np
import torch

import batches
import bmdp
import commands
import ferries
from bmdp import data, deployment, envs, evaluation, exact, frontier, learn, models, policies
from bmdp.deployment.service import Carried, DecideBody, FrontierBody, ObserveBody, StartBody
from bmdp.errors import BmdpError
from bmdp.exact import textbook
from bmdp.learn.spec import with_setting

SECONDS = 5.0
"""Of the processor, for a case."""

COMPILING = 120.0
"""The same, for the first case of a call: a loop may be compiled in it."""

MOST_LETTERS = 1_000
"""Of an error: those that name all that there is are long."""

FRONT_DOORS = (
    *("bmdp", "bmdp.data", "bmdp.envs", "bmdp.exact", "bmdp.frontier", "bmdp.policies"),
    *("bmdp.learn", "bmdp.models", "bmdp.evaluation", "bmdp.deployment"),
)

WRONG = {
    "None": lambda: None,
    "empty text": lambda: "",
    "a letter": lambda: "a",
    "a number in text": lambda: "0.5",
    "text of two lines": lambda: "one\ntwo",
    "a zero byte in text": lambda: "a\0b",
    "no bytes": lambda: b"",
    "True": lambda: True,
    "-1": lambda: -1,
    "0": lambda: 0,
    "1.5": lambda: 1.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: float("-inf"),
    "1e308": lambda: 1e308,
    "-1e308": lambda: -1e308,
    "2**63": lambda: 2**63,
    "10**400": lambda: 10**400,
    "a complex number": lambda: 1 + 2j,
    "a decimal": lambda: decimal.Decimal("0.1"),
    "a fraction": lambda: fractions.Fraction(1, 3),
    "an object": object,
    "a class": lambda: int,
    "an empty list": list,
    "an empty mapping": dict,
    "a mapping": lambda: {"a": [1.0]},
    "a set": lambda: {1, 2},
    "a ragged list": lambda: [[1.0], [2.0, 3.0]],
    "a list of words": lambda: ["a", "b"],
    "a list of None": lambda: [None, None],
    "a list of 1e308": lambda: [1e308, -1e308],
    "a deep list": lambda: [[[[[0.5]]]]],
    "an empty array": lambda: np.zeros(0),
    "an array without columns": lambda: np.zeros((2, 0)),
    "an array of three axes": lambda: np.ones((2, 3, 4)),
    "an array with nan": lambda: np.array([0.5, np.nan]),
    "an array of 1e308": lambda: np.full((2, 2), 1e308),
    "an array of objects": lambda: np.array([object(), None]),
    "an array of words": lambda: np.array(["a", "b"]),
    "an array of dates": lambda: np.array(["2024-01-01", "2024-01-02"], "datetime64[D]"),
    "a masked array": lambda: np.ma.masked_array([0.5, 1.0, 2.0], [False, True, False]),
    "a structured array": lambda: np.zeros(2, [("a", float), ("b", int)]),
    "a tensor": lambda: torch.ones(2, requires_grad=True),
    "a generator": lambda: (i for i in range(3)),
    "a range": lambda: range(3),
    "a function": lambda: len,
    "a function of nothing": lambda: lambda: None,
    "a date": lambda: datetime.datetime(2024, 1, 1),
    "a path": lambda: Path("nowhere"),
    "an error": lambda: ValueError("no"),
    "a random generator": lambda: np.random.default_rng(0),
}
"""Values that hardly any argument takes; each case has a new one."""

FUNCTIONS = ("a class", "a function", "a function of nothing")
"""Wrong values that can be called. Where a function is asked for, their own errors are theirs."""

PARTS = {
    *("options", "options_at", "points", "q_values", "mixtures", "first_mixtures", "best"),
    *("choose", "decide_from", "distributions", "at_step", "epsilon", "clipped", "scaled"),
    *("cells", "cell_values", "at", "look", "rows", "embedded", "raised", "stack", "empty"),
    *("generator", "groups", "known", "known_cells", "episodes", "probabilities", "from_cheapest"),
    *("spec", "most", "encoded", "learned", "to", "of"),
}
"""Methods that the library calls itself, of its own protocols, with arrays that it has checked."""

TASKS = {"Corridors", "SlotFilling", "TwoWay"}
"""Played by the library, as environments of gymnasium."""

BASES = {"Averager", "QModel", "Regressor", "BudgetedPolicy", "OneStepPolicy", "Policy", "Tracker"}
"""What one's own regressors and policies are made of: they are not called as they are."""


def rng():
    return np.random.default_rng(0)


@cache
def log():
    """Twenty-four episodes of two steps; a policy that waits or acts."""
    return batches.chain(24)


@cache
def long_log():
    return batches.bandit(110)


@cache
def table(**changes):
    settings = {"gamma": 0.9, "model": models.TableModel(), "ensemble": 1, **changes}
    return settings | {"schedule": learn.Iterations(2)}


@cache
def model():
    return textbook.ladder(3).model


@cache
def values():
    q_r, q_c = np.zeros((2, 4, 2, 2))
    q_r[:, 1], q_c[:, 1] = 10.0, 1.0
    return policies.TabularQ(q_r, q_c)


@cache
def hull():
    return policies.HullPolicy(values(), [0.0, 1.0])


@cache
def waiting():
    return policies.UniformPolicy(2, 0.0, 1.0)


@cache
def coin():
    return policies.Portfolio.coin(hull(), hull(), cheap_cost=0.1, dear_cost=1.0)


@cache
def dial():
    return policies.PriceDial(values(), np.array([20.0, 0.0]))


@cache
def certificate():
    ends = {name: np.array([0.1, 1.0]) for name in ("cost_mean", "cost_high")}
    paid = {name: np.array([0.0, 1.0]) for name in ("reward_mean", "reward_low")}
    how = {"confidence": 0.9, "n_episodes": 10, "seed": 0, "env": ferries.ENV, "settings": "{}"}
    how |= {"gamma": 0.9, "cost_range": (0.0, 1.0), "binary_costs": True}
    return how | ends | paid


@cache
def encoder():
    return data.Encoder((data.StateColumn("day", "text", ("Mon", "Tue")),), actions=("go", "wait"))


@cache
def by_days():
    """A policy of what the encoder makes of days."""
    states = encoder().encode([{"day": day} for day in ("Mon", "Tue")] * 12)
    one, chosen = np.ones(len(states)), np.arange(len(states)) // 2 % 2
    batch = data.TransitionBatch(states, chosen, chosen, chosen, states, one)
    settings = learn.BFTQConfig(**table(), budget_range=(0.0, 1.0), n_budgets=3)
    return learn.BFTQ(settings).fit(batch, seed=0)


@cache
def allocation():
    return exact.allocate_budgets(model())


@cache
def iterated():
    return exact.budgeted_value_iteration(model(), [0.0, 0.5, 1.0])


@cache
def measured():
    ferries.register()
    how = {"budgets": [0.0, 0.5], "n_episodes": 4, "seed": 0}
    return evaluation.evaluate(ferry_policy(), ferries.ENV, **how)


@cache
def ferry_policy():
    return policies.UniformPolicy(3, 0.0, 1.0)


@cache
def three():
    """A frontier of three points."""
    return frontier.upper_frontier([0.0, 0.5, 1.0], [0.0, 2.0, 3.0])


@cache
def promise():
    low = {"budgets": [0.1], "cost": [0.1], "cost_low": [0.0], "cost_high": [0.2]}
    return low | {"reward": [5.0], "reward_low": [4.0], "reward_high": [6.0]}


@cache
def learned():
    settings = learn.BFTQConfig(**table(), budget_range=(0.0, 1.0), n_budgets=3)
    return learn.BFTQ(settings).fit(log(), seed=0)


def fields_of(value):
    return {name: getattr(value, name) for name in inspect.signature(type(value)).parameters}


class Two(gymnasium.Env):
    """Pays a vector of two rewards."""

    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)
    reward_space = gymnasium.spaces.Box(-1, 1, (2,))

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 1, np.array([1.0, -0.5]), True, False, {}


class Six(Two):
    """Answers with six values, the third of which is a cost."""

    def step(self, action):
        return 1, 1.0, 0.5, True, False, {}

    def render(self):
        return "six"


def cart():
    return envs.CostFunction(gymnasium.make("CartPole-v1"), lambda *_: 0.5)


def started(env):
    env.reset(seed=0)
    return env


def tracked(policy, states=(0, 1)):
    return policy.start(list(states), 0.5, rng())


def asked(policy, states=(0, 1)):
    tracker = tracked(policy, states)
    tracker.decide(list(states))
    return tracker


def period():
    """A budget for twenty episodes, of which one goes on."""
    made = bmdp.PeriodBudget(total=10.0, episodes=20, budget_range=(0.0, 1.0), most_cost=1.0)
    made.budget()
    return made


def on_disk(folder, name):
    """A file or folder of a kind, made when it is asked for first."""
    path = folder.parent / "kept" / name
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        _MADE[name](path)
    return path


_MADE = {
    "log.npz": lambda path: log().to_npz(path),
    "log.parquet": lambda path: log().to_parquet(path),
    "log.h5": lambda path: log().to_hdf5(path),
    "log.csv": lambda path: log().to_pandas().to_csv(path),
    "log.feather": lambda path: log().to_pandas().to_feather(path),
    "model.npz": lambda path: model().save(path),
    "policy": lambda path: hull().save(path),
    "stored": lambda path: data.StoredLog.write(path, [log()]),
    "run": lambda path: ferries.explored(path),
    "minari": lambda path: dataset(path),
    "lines.jsonl": lambda path: path.write_text(json.dumps(line()) + "\n"),
}


def dataset(path):
    """The log as a dataset of Minari, in a folder of its own."""
    with mock.patch.dict(os.environ, {"MINARI_DATASETS_PATH": str(path)}):
        log().to_minari("fuzz/log-v0")


def line():
    return {"episode": "a", "step": 0, "budget": 0.2, "cost": 0.1, "ended": True}


def quick_spec():
    ferries.register()
    return ferries.spec(rounds=1, episodes=4)


def fit_by(learner, config):
    return lambda _: (learner(config).fit, {"batch": log(), "seed": 0})


def offline(**more):
    how = {"policy": hull_of_log(), "batch": log(), "gamma": 0.9, "budgets": [0.5], "seed": 0}
    return how | more


@cache
def hull_of_log():
    settings = learn.BFTQConfig(**table(), n_budgets=3)
    return learn.BFTQ(settings).fit(log(), seed=0)


def _settings():
    """Constructors of configurations that need a gamma, or nothing."""
    return {
        "bmdp.BFTQConfig": lambda _: (bmdp.BFTQConfig, {"gamma": 0.9}),
        "bmdp.FTQConfig": lambda _: (bmdp.FTQConfig, {"gamma": 0.9}),
        "bmdp.LagrangianConfig": lambda _: (bmdp.LagrangianConfig, {"gamma": 0.9}),
        "bmdp.TrainingSpec": lambda _: (
            bmdp.TrainingSpec,
            {name: getattr(ferries.spec(), name) for name in ("env", "learner", "exploration")},
        ),
        "bmdp.learn.EnvConfig": lambda _: (learn.EnvConfig, {"id": "corridors"}),
        "bmdp.envs.ScriptedPolicy": lambda _: (envs.ScriptedPolicy, {"rule": "corridors/risky"}),
        **{
            f"bmdp.{home}.{name}": lambda _, cls=cls: (cls, {})
            for home, names in {
                "learn": ("Backward", "Exploration", "Iterations"),
                "envs": ("Corridors", "SlotFilling", "TwoWay"),
                "models": (
                    *("ActorModel", "EncoderNet", "ForestModel", "FrontierNet", "KernelModel"),
                    *("LinearModel", "Regression", "TableModel"),
                ),
                "policies": ("HullRule",),
            }.items()
            for name in names
            for cls in [getattr(import_module(f"bmdp.{home}"), name)]
        },
    }


def _results():
    """Values that calls return, made by hand."""
    offline_fields = ("reward", "reward_low", "reward_high", "cost", "cost_low", "cost_high")
    return {
        "bmdp.Evaluation": lambda _: (bmdp.Evaluation, fields_of(measured())),
        "bmdp.Forecast": lambda _: (
            bmdp.Forecast,
            promise() | {"n_episodes": 5, "is_played": True},
        ),
        "bmdp.Fitted": lambda _: (bmdp.Fitted, fields_of(fitted())),
        "bmdp.Frontier": lambda _: (bmdp.Frontier, {"costs": [0.0, 1.0], "rewards": [0.0, 2.0]}),
        "bmdp.Mixture": lambda _: (
            bmdp.Mixture,
            {"lower": 0, "upper": 1, "p_upper": 0.5, "cost": 0.5, "reward": 1.0}
            | {"status": bmdp.BudgetStatus.TIGHT},
        ),
        "bmdp.OfflineEvaluation": lambda _: (
            bmdp.OfflineEvaluation,
            {name: np.zeros(1) for name in ("budgets", "effective_episodes", "outside_share")}
            | {name: np.zeros(1) for name in offline_fields}
            | {"method": "fitted", "n_episodes": 4, "n_transitions": 8, "n_bootstrap": 5}
            | {"confidence": 0.9, "seed": 0, "outside_rows": (), "probability_error": 0.0},
        ),
        "bmdp.Prediction": lambda _: (
            bmdp.Prediction,
            {name: np.zeros(1) for name in ("budgets", "reward", "cost")}
            | {"n_episodes": 4, "n_transitions": 8},
        ),
        "bmdp.data.customers": lambda _: (data.customers, {"n_customers": 5, "seed": 0}),
        "bmdp.data.BatchSummary": lambda _: (data.BatchSummary, fields_of(log().summary())),
        "bmdp.data.EncodedLog": lambda _: (data.EncodedLog, {"batch": log()}),
        "bmdp.data.StoredLog": lambda folder: (
            data.StoredLog,
            fields_of(data.StoredLog.open(on_disk(folder, "stored"))),
        ),
        "bmdp.envs.CostEnvReport": lambda _: (envs.CostEnvReport, {"passed": (), "notes": ()}),
        "bmdp.envs.TrueFrontier": lambda _: (
            envs.TrueFrontier,
            {"frontier": three(), "reward_error": 0.1, "settings": {}},
        ),
        "bmdp.exact.AllocationPolicy": lambda _: (
            exact.AllocationPolicy,
            fields_of(allocation().policy()),
        ),
        "bmdp.exact.AllocationSolution": lambda _: (
            exact.AllocationSolution,
            fields_of(allocation()),
        ),
        "bmdp.exact.CMDPSolution": lambda _: (
            exact.CMDPSolution,
            fields_of(exact.solve_cmdp(model(), start=0, budget=0.5)),
        ),
        "bmdp.exact.PlainPolicy": lambda _: (
            exact.PlainPolicy,
            fields_of(exact.cheapest_policy(model())),
        ),
        "bmdp.exact.Solution": lambda _: (exact.Solution, fields_of(iterated())),
        "bmdp.learn.Candidate": lambda _: (
            learn.Candidate,
            {"name": "table", "value": 5.0, "least_cost": 0.0, "most_cost": 0.9, "seconds": 0.1}
            | {"is_taken": True, "why": "the most reward"},
        ),
        "bmdp.learn.ExplorationResult": lambda _: (
            learn.ExplorationResult,
            {"batch": log(), "policy": hull(), "records": ()},
        ),
        "bmdp.models.LearnedQ": lambda _: (
            models.LearnedQ,
            {"model": learned().q_function.model, "shown": np.ones(2, bool)}
            | {"taken": np.ones(2, bool), "reward_unit": 1.0, "cost_unit": 1.0},
        ),
        "bmdp.models.Problem": lambda _: (
            models.Problem,
            {"states": np.zeros((2, 1)), "actions": np.array([0, 1]), "seed": 0}
            | {"members": np.ones((1, 2), bool), "outcomes": np.zeros((2, 4))}
            | {"sizes": models.Sizes(1, 1, 2, 1, (0.0, 1.0))},
        ),
        "bmdp.models.Support": lambda _: (models.Support, support()),
        "bmdp.models.Support.fits": lambda _: (
            models.Support(**support()).fits,
            {"n_numbers": 2, "n_actions": 2},
        ),
        "bmdp.evaluation.DialReport": lambda _: (
            evaluation.DialReport,
            fields_of(evaluation.measure_dial(measured(), three())),
        ),
        "bmdp.evaluation.MoveEvaluation": lambda _: (
            evaluation.MoveEvaluation,
            fields_of(evaluation.evaluate_move(**move())),
        ),
        "bmdp.policies.Certificate": lambda _: (policies.Certificate, certificate()),
        "bmdp.policies.TabularQ": lambda _: (
            policies.TabularQ,
            {"q_r": values().q_r, "q_c": values().q_c},
        ),
    }


@cache
def fitted():
    forecast = bmdp.Forecast(**promise(), n_episodes=5, is_played=True)
    return bmdp.Fitted(hull(), forecast, (), ("a note",), "Learned.")


def move():
    ferries.register()
    how = {"policy": ferry_policy(), "env": ferries.ENV, "first_budget": 0.2, "at_step": 1}
    return how | {"new_budgets": [0.5], "n_episodes": 4, "seed": 0}


@cache
def limited():
    """A policy whose states tell what an episode has cost so far."""
    settings = learn.BFTQConfig(**table(), n_budgets=3)
    return learn.BFTQ(settings).fit(data.cost_so_far(log(), 1.0), seed=0)


def _policies():
    """Each kind of policy: how it is made, and one state that it takes."""
    made = {
        "bmdp.data.EncodedPolicy": (
            data.EncodedPolicy,
            {"policy": by_days(), "encoder": encoder()},
            {"day": "Tue"},
        ),
        "bmdp.envs.ScriptedPolicy": (envs.ScriptedPolicy, {"rule": "corridors/risky"}, [3.5, 0.5]),
        "bmdp.exact.AllocationPolicy": (
            exact.AllocationPolicy,
            fields_of(allocation().policy()),
            0,
        ),
        "bmdp.policies.CalibratedPolicy": (
            policies.CalibratedPolicy,
            {"portfolio": coin(), "certificate": policies.Certificate(**certificate())},
            0,
        ),
        "bmdp.policies.EpisodeLimitPolicy": (
            policies.EpisodeLimitPolicy,
            {"policy": limited(), "episode_limit": 1.0},
            [0.0, 0.5],
        ),
        "bmdp.policies.ExploringPolicy": (
            policies.ExploringPolicy,
            {"greedy": hull(), "explorer": waiting()},
            0,
        ),
        "bmdp.policies.HullPolicy": (
            policies.HullPolicy,
            {"q_function": values(), "beta_grid": [0.0, 1.0]},
            0,
        ),
        "bmdp.policies.MultiplierPolicy": (policies.MultiplierPolicy, {"dial": dial()}, 0),
        "bmdp.policies.Portfolio": (policies.Portfolio, fields_of(coin()), 0),
        "bmdp.policies.PriceDial": (
            policies.PriceDial,
            {"q_function": values(), "prices": np.array([20.0, 0.0])},
            0,
        ),
        "bmdp.policies.PricedPolicy": (
            policies.PricedPolicy,
            {"q_function": policies.TabularQ(*np.zeros((2, 4, 2, 1))), "price": 1.0},
            0,
        ),
        "bmdp.policies.RandomBudgetedPolicy": (
            policies.RandomBudgetedPolicy,
            {"n_actions": 2, "low": 0.0, "high": 1.0},
            0,
        ),
        "bmdp.policies.UniformPolicy": (
            policies.UniformPolicy,
            {"n_actions": 2, "low": 0.0, "high": 1.0},
            0,
        ),
    }
    calls = {}
    for name, (cls, how, state) in made.items():
        calls[name] = lambda _, cls=cls, how=how: (cls, how)
        for method, arguments in {
            "act": {"state": state, "budget": 0.5, "rng": rng},
            "decide": {"states": [state, state], "budgets": 0.5, "rng": rng},
            "start": {"states": [state, state], "budgets": 0.5, "rng": rng},
            "save": {"folder": "policy"},
            "export_onnx": {"path": "policy.onnx"},
            "frontier": {"state": state},
            "frontiers": {"step": 0},
            "plan": {"state": 0, "step": 0},
            "action_name": {"action": 0},
        }.items():
            if hasattr(cls, method):
                calls[f"{name}.{method}"] = _of(cls(**how), method, arguments)
        calls |= _tracker_calls(name, cls(**how), state)
    return calls


def _of(owner, method, arguments):
    """A call of a method; arguments that are functions make a value for each call."""

    def made(_):
        return getattr(owner, method), {
            name: value() if callable(value) else value for name, value in arguments.items()
        }

    return made


_AFTER = {"bmdp.exact.AllocationPolicy": 3}
"""States that may follow the first one, where it cannot follow itself."""


def _tracker_calls(name, policy, state):
    """Of the tracker that a policy starts."""
    both = [state, state]
    after = {"costs": [0.1, 0.1], "next_states": [_AFTER.get(name, state)] * 2, "ended": [0, 1]}
    return {
        f"{name}.resume": lambda _: (policy.resume, {"state": tracked(policy, both).state()}),
        f"{name}.start().decide": lambda _: (tracked(policy, both).decide, {"states": both}),
        f"{name}.start().observe": lambda _: (asked(policy, both).observe, after),
        f"{name}.start().set_budget": lambda _: (
            tracked(policy, both).set_budget,
            {"budgets": 0.4},
        ),
    }


def _batch_calls():
    columns = {name: getattr(log(), name) for name in data.batch.REQUIRED}
    named = ("npz", "parquet", "hdf5", "csv", "feather")
    ends = {"hdf5": "h5"}
    return {
        "bmdp.TransitionBatch": lambda _: (bmdp.TransitionBatch, columns),
        "bmdp.TransitionBatch.concatenate": lambda _: (
            bmdp.TransitionBatch.concatenate,
            {"batches": [log(), log()]},
        ),
        "bmdp.TransitionBatch.folds": lambda _: (log().folds, {"n_folds": 2, "rng": rng()}),
        "bmdp.TransitionBatch.from_arrays": lambda _: (
            bmdp.TransitionBatch.from_arrays,
            {"arrays": dict(columns), "n_actions": 2},
        ),
        "bmdp.TransitionBatch.from_arrow": lambda folder: (
            bmdp.TransitionBatch.from_arrow,
            {"table": arrow(folder)},
        ),
        "bmdp.TransitionBatch.from_pandas": lambda _: (
            bmdp.TransitionBatch.from_pandas,
            {"frame": log().to_pandas()},
        ),
        "bmdp.TransitionBatch.from_minari": lambda folder: (
            bmdp.TransitionBatch.from_minari,
            {"dataset": on_disk(folder, "minari") / "fuzz" / "log-v0"},
        ),
        "bmdp.TransitionBatch.to_minari": lambda _: (
            log().to_minari,
            {"dataset_id": "fuzz/log-v0"},
        ),
        "bmdp.TransitionBatch.take": lambda _: (log().take, {"rows": [0, 1]}),
        **{
            f"bmdp.TransitionBatch.from_{kind}": lambda folder, kind=kind: (
                getattr(bmdp.TransitionBatch, f"from_{kind}"),
                {"path": on_disk(folder, f"log.{ends.get(kind, kind)}")},
            )
            for kind in named
        },
        **{
            f"bmdp.TransitionBatch.to_{kind}": lambda folder, kind=kind: (
                getattr(log(), f"to_{kind}"),
                {"path": folder / f"new.{ends.get(kind, kind)}"},
            )
            for kind in named[:3]
        },
        **{
            f"bmdp.TransitionBatch.{name}": lambda _, name=name: (getattr(log(), name), {})
            for name in ("starts", "summary", "to_arrays", "to_pandas")
        },
        "bmdp.Columns": lambda _: (bmdp.Columns, {}),
        "bmdp.Columns.as_dict": lambda _: (bmdp.Columns().as_dict, {}),
        "bmdp.Columns.from_dict": lambda _: (bmdp.Columns.from_dict, {"names": {"cost": "c"}}),
        "bmdp.Columns.from_names": lambda _: (bmdp.Columns.from_names, {"names": {"cost": "c"}}),
        "bmdp.Columns.from_text": lambda _: (bmdp.Columns.from_text, {"text": "cost=c"}),
        "bmdp.data.ActionBins": lambda _: (data.ActionBins, bins()),
        "bmdp.data.ActionBins.numbers": lambda _: (
            data.ActionBins(**bins()).numbers,
            {"values": [0.1]},
        ),
        "bmdp.data.Encoder": lambda _: (data.Encoder, {"columns": encoder().columns}),
        "bmdp.data.Encoder.action_name": lambda _: (encoder().action_name, {"action": 0}),
        "bmdp.data.Encoder.action_numbers": lambda _: (
            encoder().action_numbers,
            {"values": ["go"]},
        ),
        "bmdp.data.Encoder.encode": lambda _: (encoder().encode, {"states": [{"day": "Mon"}]}),
        "bmdp.data.StateColumn": lambda _: (data.StateColumn, {"name": "day", "holds": "numbers"}),
        "bmdp.data.StoredLog.chunk": lambda folder: (stored(folder).chunk, {"number": 0}),
        "bmdp.data.StoredLog.first": lambda folder: (stored(folder).first, {"n_rows": 4}),
        "bmdp.data.StoredLog.last": lambda folder: (stored(folder).last, {"n_rows": 4}),
        "bmdp.data.StoredLog.sizes": lambda folder: (stored(folder).sizes, {}),
        "bmdp.data.StoredLog.open": lambda folder: (
            data.StoredLog.open,
            {"folder": on_disk(folder, "stored")},
        ),
        "bmdp.data.StoredLog.write": lambda folder: (
            data.StoredLog.write,
            {"folder": folder / "stored", "batches": [log()]},
        ),
        "bmdp.data.cost_so_far": lambda _: (data.cost_so_far, {"batch": log(), "limit": 1.0}),
        "bmdp.data.weighed": lambda _: (
            data.weighed,
            {"batch": log(), "gamma": 0.9, "cost_gamma": 1.0},
        ),
        "bmdp.data.load_batch": lambda folder: (
            data.load_batch,
            {"path": on_disk(folder, "log.npz")},
        ),
        "bmdp.data.load_batches": lambda folder: (
            data.load_batches,
            {"paths": [on_disk(folder, "log.npz")]},
        ),
        "bmdp.data.load_log": lambda folder: (
            data.load_log,
            {"source": on_disk(folder, "log.npz")},
        ),
        "bmdp.data.log_size": lambda folder: (
            data.log_size,
            {"source": on_disk(folder, "log.parquet")},
        ),
        "bmdp.data.store_log": lambda folder: (
            data.store_log,
            {"source": on_disk(folder, "log.parquet"), "folder": folder / "stored"},
        ),
    }


def support():
    """Arguments of a `Support`."""
    states, seen = np.array([[0.0], [1.0]]), np.array([0, 1])
    given = models.Support.of(states, seen, seen, 2, least=1.0, is_table=True)
    return {"model": given.model, "counts": given.counts, "least": 1.0}


def bins():
    return {"names": ("dose",), "edges": ((0.5,),), "cells": (0, 1), "values": ((0.2,), (0.7,))}


def arrow(folder):
    return import_module("pyarrow.parquet").read_table(on_disk(folder, "log.parquet"))


def stored(folder):
    return data.StoredLog.open(on_disk(folder, "stored"))


def _exact_calls():
    points = {"costs": [[0.0, 1.0]], "rewards": [[0.0, 10.0]], "betas": [0.5]}
    two = ([[0.0, 1.0]], [[0.0, 10.0]])
    shared = {"model": model()}
    interval = {"samples": [0.1, 0.5, 0.9], "confidence": 0.9}
    return {
        "bmdp.FiniteBMDP": lambda _: (
            bmdp.FiniteBMDP,
            {"transition": np.eye(2)[:, None], "reward": np.ones((2, 1)), "cost": np.ones((2, 1))}
            | {"gamma": 0.9},
        ),
        "bmdp.FiniteBMDP.expected_next": lambda _: (
            model().expected_next,
            {"values": np.ones(model().n_states)},
        ),
        "bmdp.FiniteBMDP.load": lambda folder: (
            bmdp.FiniteBMDP.load,
            {"path": on_disk(folder, "model.npz")},
        ),
        "bmdp.FiniteBMDP.save": lambda folder: (model().save, {"path": folder / "model.npz"}),
        "bmdp.FiniteBMDP.start_distribution": lambda _: (model().start_distribution, {"start": 0}),
        "bmdp.Frontier.reward_at": lambda _: (three().reward_at, {"cost": 0.5}),
        "bmdp.upper_frontier": lambda _: (
            bmdp.upper_frontier,
            {"costs": [0.0, 1.0], "rewards": [0.0, 2.0]},
        ),
        "bmdp.hull_mixture": lambda _: (bmdp.hull_mixture, {"frontier": three(), "beta": 0.25}),
        "bmdp.frontier.best_mixtures": lambda _: (frontier.best_mixtures, points),
        "bmdp.frontier.mixtures_at": lambda _: (frontier.mixtures_at, points),
        "bmdp.frontier.frontier_values": lambda _: (frontier.frontier_values, points),
        "bmdp.frontier.crossed_share": lambda _: (
            frontier.crossed_share,
            {"lower": np.array([0.0]), "upper": np.array([1.0]), "betas": 0.25},
        ),
        "bmdp.frontier.crossed_values": lambda _: (
            frontier.crossed_values,
            {"chosen_by": two, "valued_by": two, "betas": [0.5]},
        ),
        "bmdp.exact.AllocationSolution.frontier": lambda _: (allocation().frontier, {"state": 0}),
        "bmdp.exact.AllocationSolution.policy": lambda _: (allocation().policy, {}),
        "bmdp.exact.AllocationSolution.raise_for_convergence": lambda _: (
            allocation().raise_for_convergence,
            {},
        ),
        "bmdp.exact.Solution.frontier": lambda _: (iterated().frontier, {"state": 0}),
        "bmdp.exact.Solution.policy": lambda _: (iterated().policy, {}),
        "bmdp.exact.Solution.raise_for_convergence": lambda _: (
            iterated().raise_for_convergence,
            {},
        ),
        "bmdp.exact.best_policy": lambda _: (exact.best_policy, shared | {"price": 1.0}),
        "bmdp.exact.budgeted_value_iteration": lambda _: (
            exact.budgeted_value_iteration,
            shared | {"beta_grid": [0.0, 1.0]},
        ),
        "bmdp.exact.evaluate_policy": lambda _: (
            exact.evaluate_policy,
            shared | {"policy": iterated().policy(), "beta_grid": [0.0, 1.0]},
        ),
        "bmdp.exact.optimal_frontier": lambda _: (exact.optimal_frontier, shared | {"start": 0}),
        "bmdp.exact.solve_cmdp": lambda _: (
            exact.solve_cmdp,
            shared | {"start": 0, "budget": 0.5},
        ),
        "bmdp.exact.with_cost_so_far": lambda _: (
            exact.with_cost_so_far,
            {"model": textbook.payments(2).model, "limit": 1.0},
        ),
        **{
            f"bmdp.exact.{name}": lambda _, name=name: (getattr(exact, name), shared)
            for name in ("allocate_budgets", "best_paid_policy", "cheapest_policy", "cost_range")
        },
        "bmdp.EpisodeStreams": lambda _: (bmdp.EpisodeStreams, {"key": (1, 2), "episodes": [0, 1]}),
        "bmdp.EpisodeStreams.child": lambda _: (streams().child, {"name": "a"}),
        "bmdp.EpisodeStreams.from_generator": lambda _: (
            bmdp.EpisodeStreams.from_generator,
            {"rng": rng(), "n_episodes": 2},
        ),
        "bmdp.EpisodeStreams.named": lambda _: (
            bmdp.EpisodeStreams.named,
            {"seed": 0, "name": "a", "episodes": [0, 1]},
        ),
        "bmdp.EpisodeStreams.take": lambda _: (streams().take, {"rows": np.array([0])}),
        "bmdp.EpisodeStreams.uniforms": lambda _: (streams().uniforms, {"step": 0, "n_draws": 2}),
        **{
            f"bmdp.evaluation.{name}": lambda _, name=name: (
                getattr(evaluation, name),
                interval | {"lowest": 0.0, "highest": 1.0},
            )
            for name in ("bernstein_interval", "bounded_interval")
        },
        "bmdp.evaluation.mean_interval": lambda _: (evaluation.mean_interval, interval),
        "bmdp.evaluation.seed_interval": lambda _: (
            evaluation.seed_interval,
            {"per_seed": [[0.1], [0.2], [0.3]], "confidence": 0.9},
        ),
        "bmdp.evaluation.share_interval": lambda _: (
            evaluation.share_interval,
            {"n_hits": [1, 2], "n_trials": 5, "confidence": 0.9},
        ),
        "bmdp.evaluation.simultaneous_confidence": lambda _: (
            evaluation.simultaneous_confidence,
            {"confidence": 0.9, "n_together": 3},
        ),
        "bmdp.evaluation.widened": lambda _: (
            evaluation.widened,
            {"interval": evaluation.mean_interval(**interval), "n_samples": 3, "confidence": 0.9}
            | {"n_together": 2},
        ),
        "bmdp.evaluation.quantiles": lambda _: (
            evaluation.quantiles,
            {"samples": [0.1, 0.5], "levels": [0.5]},
        ),
        "bmdp.evaluation.worst_mean": lambda _: (
            evaluation.worst_mean,
            {"samples": [0.1, 0.5], "share": 0.5},
        ),
        "bmdp.evaluation.dial_measures": lambda _: (
            evaluation.dial_measures,
            {"budgets": [0.5], "costs": [0.4], "rewards": [1.0], "frontier": three()},
        ),
        "bmdp.evaluation.measure_dial": lambda _: (
            evaluation.measure_dial,
            {"evaluation": measured(), "frontier": three()},
        ),
        "bmdp.evaluation.measure_dials": lambda _: (
            evaluation.measure_dials,
            {"evaluations": [measured(), measured()], "frontier": three()},
        ),
        "bmdp.policies.Portfolio.coin": lambda _: (
            policies.Portfolio.coin,
            {"cheap": waiting(), "dear": hull(), "cheap_cost": 0.1, "dear_cost": 1.0},
        ),
        "bmdp.discounted_budget": lambda _: (
            bmdp.discounted_budget,
            {"limit": 2.0, "gamma": 0.9, "n_steps": 10},
        ),
        "bmdp.load_policy": lambda folder: (
            bmdp.load_policy,
            {"folder": on_disk(folder, "policy")},
        ),
    }


def streams():
    return bmdp.EpisodeStreams.named(0, "a", [0, 1])


def _played():
    """What plays, learns or serves."""
    ferries.register()
    play = {"env": ferries.ENV, "n_episodes": 4, "seed": 0}
    one = {"policy": ferry_policy(), **play, "budgets": [0.5]}
    coin = policies.Portfolio.coin(ferry_policy(), ferry_policy(), cheap_cost=0.1, dear_cost=0.5)
    service = deployment.Service(waiting())
    return {
        "bmdp.evaluate": lambda _: (bmdp.evaluate, one),
        "bmdp.evaluation.evaluate_move": lambda _: (evaluation.evaluate_move, move()),
        "bmdp.calibrate": lambda _: (
            bmdp.calibrate,
            {"policies": ferry_policy(), **play, "confidence": 0.9, "budgets": [0.0, 1.0]},
        ),
        "bmdp.evaluation.measure_portfolio": lambda _: (
            evaluation.measure_portfolio,
            {"portfolio": coin, **play},
        ),
        "bmdp.evaluation.play_members": lambda _: (
            evaluation.play_members,
            {"portfolio": coin, **play},
        ),
        "bmdp.certify": lambda _: (
            bmdp.certify,
            {"policy": hull_of_log(), "batch": long_log(), "gamma": 0.9},
        ),
        "bmdp.evaluate_offline": lambda _: (
            bmdp.evaluate_offline,
            offline(n_bootstrap=3, model=models.TableModel(), schedule=learn.Iterations(2)),
        ),
        "bmdp.fitted_evaluation": lambda _: (
            bmdp.fitted_evaluation,
            offline(model=models.TableModel(), schedule=learn.Iterations(2)),
        ),
        "bmdp.explore": lambda _: (bmdp.explore, {"spec": quick_spec(), "seed": 0}),
        "bmdp.fit": lambda _: (
            bmdp.fit,
            {"source": ferries.log(20), "gamma": 1.0, "minutes": 1e-3, "budget_range": (0.0, 0.6)},
        ),
        "bmdp.BFTQ": lambda _: (bmdp.BFTQ, {"config": bmdp.BFTQConfig(**table())}),
        "bmdp.FTQ": lambda _: (bmdp.FTQ, {"config": bmdp.FTQConfig(**table())}),
        "bmdp.LagrangianFTQ": lambda _: (
            bmdp.LagrangianFTQ,
            {"config": bmdp.LagrangianConfig(**table())},
        ),
        "bmdp.BFTQ.fit": fit_by(bmdp.BFTQ, bmdp.BFTQConfig(**table(), n_budgets=3)),
        "bmdp.FTQ.fit": fit_by(bmdp.FTQ, bmdp.FTQConfig(**table())),
        "bmdp.LagrangianFTQ.fit": fit_by(
            bmdp.LagrangianFTQ, bmdp.LagrangianConfig(**table(), prices=(0.0, 5.0))
        ),
        "bmdp.Fitted.as_dict": lambda _: (fitted().as_dict, {}),
        "bmdp.Fitted.from_dict": lambda _: (
            bmdp.Fitted.from_dict,
            {"found": fitted().as_dict(), "policy": hull()},
        ),
        "bmdp.Fitted.leaderboard": lambda _: (fitted().leaderboard, {}),
        "bmdp.Fitted.table": lambda _: (fitted().table, {}),
        "bmdp.preset": lambda _: (bmdp.preset, {"name": "paper-corridors"}),
        "bmdp.learn.collect": lambda _: (
            learn.collect,
            {"policy": ferry_policy(), "spec": gymnasium.spec(ferries.ENV), "episodes": range(2)}
            | {"budgets": np.array([0.2, 0.8]), "seed": 0},
        ),
        "bmdp.learn.resume": lambda folder: (learn.resume, {"folder": on_disk(folder, "run")}),
        "bmdp.learn.train": lambda folder: (
            learn.train,
            {"spec": quick_spec(), "folder": folder / "run", "seed": 0},
        ),
        "bmdp.learn.train_from_data": lambda folder: (
            learn.train_from_data,
            {"batch": log(), "learner": bmdp.BFTQConfig(**table(), n_budgets=3), "seed": 0}
            | {"folder": folder / "run"},
        ),
        "bmdp.models.register_regressor": lambda _: (
            models.register_regressor,
            {"cls": models.TableModel},
        ),
        "bmdp.envs.check_cost_env": lambda _: (
            envs.check_cost_env,
            {"make": ferries.Ferry, "n_steps": 5, "episode_limit": 10},
        ),
        "bmdp.envs.known_frontier": lambda _: (
            envs.known_frontier,
            {"spec": gymnasium.spec("bmdp/TwoWay-v0")},
        ),
        "bmdp.envs.FiniteEnv": lambda _: (envs.FiniteEnv, {"model": model()}),
        "bmdp.envs.FiniteVectorEnv": lambda _: (envs.FiniteVectorEnv, {"model": model()}),
        "bmdp.envs.CostFunction": lambda _: (
            envs.CostFunction,
            {"env": gymnasium.make("CartPole-v1"), "cost": lambda *_: 0.5},
        ),
        "bmdp.envs.SixTupleAdapter": lambda _: (envs.SixTupleAdapter, {"env": Six()}),
        "bmdp.envs.VectorRewardAdapter": lambda _: (envs.VectorRewardAdapter, {"env": Two()}),
        **{
            f"bmdp.envs.{name}.{method}": lambda _, make=make, method=method, how=how: (
                getattr(started(make()), method),
                dict(how),
            )
            for name, make, action in (
                ("FiniteEnv", lambda: envs.FiniteEnv(model()), 0),
                ("FiniteVectorEnv", lambda: envs.FiniteVectorEnv(model(), 2), np.array([0, 1])),
                ("CostFunction", cart, 0),
                ("SixTupleAdapter", lambda: envs.SixTupleAdapter(Six()), 0),
                ("VectorRewardAdapter", lambda: envs.VectorRewardAdapter(Two()), 0),
            )
            for method, how in (
                ("step", {"actions" if "Vector" in name and "Env" in name else "action": action}),
                ("reset", {"seed": 0}),
                ("close", {}),
            )
        },
        "bmdp.envs.FiniteEnv.render": lambda _: (
            started(envs.FiniteEnv(model(), render_mode="ansi")).render,
            {},
        ),
        "bmdp.envs.SixTupleAdapter.render": lambda _: (envs.SixTupleAdapter(Six()).render, {}),
        "bmdp.PeriodBudget": lambda _: (
            bmdp.PeriodBudget,
            {"total": 10.0, "episodes": 20, "budget_range": (0.0, 1.0), "most_cost": 1.0},
        ),
        "bmdp.PeriodBudget.budget": lambda _: (period().budget, {}),
        "bmdp.PeriodBudget.budgets": lambda _: (period().budgets, {"n": 2}),
        "bmdp.PeriodBudget.observe": lambda _: (period().observe, {"costs": [0.1]}),
        "bmdp.PeriodBudget.resume": lambda _: (
            bmdp.PeriodBudget.resume,
            {"state": period().state()},
        ),
        "bmdp.PeriodBudget.state": lambda _: (period().state, {}),
        "bmdp.deployment.DecisionLog": lambda folder: (
            deployment.DecisionLog,
            {"path": on_disk(folder, "lines.jsonl")},
        ),
        **{
            f"bmdp.deployment.DecisionLog.{name}": lambda folder, name=name: (
                getattr(deployment.DecisionLog(on_disk(folder, "lines.jsonl")), name),
                {},
            )
            for name in ("last", "new", "read_and_size")
        },
        "bmdp.deployment.Drift": lambda _: (deployment.Drift, {"training": np.eye(60)[:, :2]}),
        "bmdp.deployment.Drift.add": lambda _: (
            deployment.Drift(np.eye(60)[:, :2]).add,
            {"states": [[0.0, 1.0]]},
        ),
        "bmdp.deployment.Drift.compared": lambda _: (
            deployment.Drift(np.eye(60)[:, :2]).compared,
            {"states": np.eye(50)[:, :2]},
        ),
        "bmdp.deployment.Drift.report": lambda _: (deployment.Drift(np.eye(60)).report, {}),
        "bmdp.deployment.Service": lambda _: (deployment.Service, {"policy": waiting()}),
        "bmdp.deployment.Service.open": lambda folder: (
            deployment.Service.open,
            {"folder": on_disk(folder, "policy")},
        ),
        **{
            f"bmdp.deployment.Service.{name}": lambda _, name=name, body=body: (
                getattr(service, name),
                {"body": body()},
            )
            for name, body in {
                "start": lambda: StartBody(states=[0], budgets=0.5, seed=0),
                "decide": lambda: DecideBody(tracker=carried(service), states=[0]),
                "observe": lambda: ObserveBody(
                    tracker=carried(service, decides=True), costs=0.1, next_states=[1], ended=False
                ),
                "frontier": lambda: FrontierBody(state=0),
            }.items()
        },
        "bmdp.deployment.Service.health": lambda _: (service.health, {}),
        "bmdp.deployment.application": lambda _: (deployment.application, {"service": service}),
        "bmdp.deployment.Watch": lambda _: (deployment.Watch, {"budget_range": (0.0, 1.0)}),
        "bmdp.deployment.Watch.add": lambda _: (
            deployment.Watch((0.0, 1.0)).add,
            {"first_line": 1, "rows": [line()]},
        ),
        "bmdp.deployment.Watch.report": lambda _: (deployment.Watch((0.0, 1.0)).report, {}),
        "bmdp.deployment.known_of": lambda folder: (
            deployment.known_of,
            {"folder": on_disk(folder, "policy")},
        ),
        "bmdp.deployment.watch_log": lambda folder: (
            deployment.watch_log,
            {"log": on_disk(folder, "lines.jsonl"), "budget_range": (0.0, 1.0)},
        ),
    }


def carried(service, decides=False):
    """What a service hands out for an episode."""
    said = service.start(StartBody(states=[0], budgets=0.5, seed=0))
    if decides:
        tracker = Carried(**dict(said)["tracker"])
        said = service.decide(DecideBody(tracker=tracker, states=[0]))
    return Carried(**dict(said)["tracker"])


@cache
def calls():
    """All valid calls by name: each of a folder, the function and its arguments by name."""
    made = _settings() | _results() | _policies() | _batch_calls() | _exact_calls() | _played()
    return made


def public_calls():
    """Names of all public calls, each by the first front door that has it."""
    found, seen = [], set()
    for door in FRONT_DOORS:
        for name in import_module(door).__all__:
            value = getattr(import_module(door), name)
            if id(value) in seen or name in BASES:
                continue
            seen.add(id(value))
            if inspect.isclass(value) and not issubclass(value, Exception | enum.Enum | tuple):
                found += [f"{door}.{name}", *_methods(f"{door}.{name}", value)]
            elif inspect.isroutine(value):
                found.append(f"{door}.{name}")
    return found


def _methods(name, cls):
    """Public methods that are not gymnasium's or torch's, but for those of `PARTS`."""
    return [
        f"{name}.{method}"
        for method, value in inspect.getmembers(cls, callable)
        if not method.startswith("_")
        and method not in PARTS
        and cls.__name__ not in TASKS
        and inspect.isroutine(value)
        and inspect.unwrap(getattr(value, "__func__", value)).__module__.startswith("bmdp")
    ]


TEXTS = (
    *("", "a", "null", "true", "0", "-1", "1.5", "nan", "inf", "-inf", "1e400", "-1e308", "1e308"),
    *("9" * 30, "9" * 400, '"0.5"', "[]", "[1]", "[1,2,3]", '["a","b"]', "[null,null]", "{}"),
    *('{"kind":"a"}', '{"kind":3}', '{"a":1}', "[[1,2],[3]]", "[1e308,-1e308]", "[nan,1]"),
    *("[0.5", "0x10", "1_000", "é", "a=b", "a.b", "__class__", "os:system", "None", "1+2j"),
)
"""Values as a command line has them."""

FIRST = (
    (),
    ("learner=FTQConfig",),
    ("learner=LagrangianConfig",),
    ("learner.schedule=Iterations",),
    ("learner.schedule=Backward",),
    *((f"learner.model={name}",) for name in sorted(models.regressor.REGRESSORS)),
)
"""Settings that bring others with them."""


@cache
def settings():
    """Settings to change before, and the path of a setting: each setting of each class once."""
    found, seen = [], set()
    for first in FIRST:
        queue = [("", functools.reduce(with_setting, first, bmdp.preset("corridors")))]
        for where, owner in queue:
            for field in dataclasses.fields(owner):
                path, value = f"{where}{field.name}", getattr(owner, field.name)
                if (type(owner), field.name) not in seen:
                    seen.add((type(owner), field.name))
                    found.append((first, path))
                if dataclasses.is_dataclass(value):
                    queue.append((f"{path}.", value))
    return found


def cases(seed, folder):
    """All arguments and settings with all wrong values, in random order; then all over again.

    Calls take turns, so that a short run needs few of them.
    """
    folder, some = folder.resolve(), np.random.default_rng(seed)
    while True:
        going = [_cases_of(name, some, folder) for name in calls()]
        going += [_cases_of(setting, some, folder) for setting in settings()]
        while going:
            some.shuffle(going)
            for one in list(going):
                try:
                    yield next(one)
                except StopIteration:
                    going.remove(one)


def _cases_of(call, some, folder):
    """All cases of a call by its name, or of a setting, in random order."""
    if isinstance(call, str):
        how, pairs = ended, itertools.product([call], arguments(call, folder), WRONG)
    else:
        how, pairs = set_ended, ((*call, text) for text in TEXTS)
    every = list(pairs)
    for i in some.permutation(len(every)):
        yield how(*every[i], folder)


def set_ended(first, path, text, folder):
    """How `bmdp fit` ended with a setting. Another one after it is always refused."""
    case = [*first, f"{path}={text}", "learner.nonsense=1"]
    words = [word for setting in case for word in ("--set", setting)]
    here = _empty(folder)
    try:
        with _alone(here, "fit"):
            found = commands.run("fit", "corridors", "--out", here / "run", *words)
        commands.assert_is_user_error(found)
    except BaseException as error:
        told = f"bmdp fit corridors {' '.join(words)}: {type(error).__name__}: {error}"
        raise AssertionError(told) from error
    return "setting taken" if "nonsense" in found.stderr else "setting refused"


def arguments(name, folder):
    """Names of the arguments of a call."""
    function, _ = calls()[name](_empty(folder))
    parameters = inspect.signature(function).parameters.values()
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.kind not in several]


def ended(name, argument, wrong, folder):
    """How a call with a wrong value ended: refused, or taken. Anything else is an error."""
    here, case = _empty(folder), f"{name}({argument}={wrong})"
    function, given = calls()[name](here)
    try:
        with _alone(here, name):
            function(**(given | {argument: WRONG[wrong]()}))
    except BmdpError as error:
        said = str(error)
        assert said.strip(), f"{case}: an error that says nothing"
        assert "\n" not in said, f"{case}: several lines: {said!r}"
        assert len(said) < MOST_LETTERS, f"{case}: a long line: {said[:200]!r}"
        return "refused"
    except BaseException as error:
        is_own = isinstance(error, TypeError | ValueError) and wrong in FUNCTIONS
        if is_own and _takes_functions(function, argument):
            return "failed by itself"
        raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error
    return "taken"


def _takes_functions(function, argument):
    annotation = str(inspect.signature(function).parameters[argument].annotation)
    return re.search(
        r"\b(Callable|On[A-Z]\w+|CostOf|QFunction|Discretise|Sums|Deadline)\b", annotation
    )


_known = set()  # calls that were made in this process


@contextlib.contextmanager
def _alone(folder, name):
    """In an empty folder, without output, with warnings as errors, within a time."""
    before, seconds = Path.cwd(), SECONDS if name in _known else COMPILING
    _known.add(name)
    signal.signal(signal.SIGPROF, _late)
    os.chdir(folder)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            mock.patch.dict(os.environ, {"MINARI_DATASETS_PATH": str(folder / "minari")}),
        ):
            warnings.simplefilter("error")
            signal.setitimer(signal.ITIMER_PROF, seconds)
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.chdir(before)


def _late(number, frame):
    raise TimeoutError("it takes too long")


def _empty(folder):
    here = folder / "case"
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir(parents=True)
    return here
