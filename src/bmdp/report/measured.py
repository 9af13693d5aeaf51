"""What is known of a training run or a policy: what its folder holds, and what measuring adds.

Where there is a simulator the policy is played; where there is only a log, it is asked at states of
the log, and what is known of costs and rewards are forecasts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec

from bmdp.arrays import FloatArray
from bmdp.data import TransitionBatch
from bmdp.envs.slots import find_spec, open_slots
from bmdp.errors import ConfigError, StoreError
from bmdp.evaluation import evaluate
from bmdp.evaluation.statistics import mean_interval
from bmdp.policies import (
    BudgetedPolicy,
    CalibratedPolicy,
    Portfolio,
    PriceDial,
    RandomBudgetedPolicy,
    load_policy,
)
from bmdp.report import dial
from bmdp.report.dial import Place, Play, Progress, Rows, View
from bmdp.report.figures import Shares
from bmdp.report.section import Data
from bmdp.report.series import CONFIDENCE, Curve, bare_curve, budget_curve
from bmdp.storage import POLICY, SPEC


def is_run(folder: Path) -> bool:
    """Returns whether a folder is that of a training run or of a policy."""
    if (folder / SPEC).is_file():
        try:
            return bool(json.loads((folder / SPEC).read_text()).get("kind") != "experiment")
        except (ValueError, AttributeError):
            return True  # a damaged run: opening it says what is wrong
    return (folder / POLICY).is_file()


@dataclass(frozen=True, eq=False)
class Opened:
    """All that a folder holds, and the environment to play in."""

    folder: Path
    policy: BudgetedPolicy | None
    env: EnvSpec | None
    header: Data = field(default_factory=dict)  # spec.json
    gammas: tuple[float, float] | None = None  # of rewards and costs
    batch: TransitionBatch | None = None
    records: Sequence[Data] = ()
    prediction: Data | None = None
    notes: Sequence[str] = ()

    @property
    def title(self) -> str:
        """The name of the folder, and what is in it."""
        name = self.folder.resolve().name
        if self.header.get("kind") == "data":
            return f"{name}: a policy learned from a log"
        kind = "a calibrated policy" if isinstance(self.policy, CalibratedPolicy) else "a policy"
        return f"{name}: {kind} for {self.env.id}" if self.env else f"{name}: {kind}"

    @property
    def rows(self) -> Rows | None:
        """States of the data."""
        if self.batch is None:
            return None
        steps = self.batch.step
        known = np.zeros(len(self.batch), np.int64) if steps is None else steps
        return Rows(self.batch.state, known, self.batch.starts(), self.batch.state_names)


def open_folder(folder: Path, env: str | EnvSpec | None, settings: Sequence[str]) -> Opened:
    """Returns what a folder holds, with the environment to play in.

    Args:
        folder: of a run or a policy.
        env: to play in; that of the run, if not given.
        settings: of the environment.

    Raises:
        StoreError: if there is no run and no policy, or it is damaged.
        ConfigError: if an environment that was asked for is not there, or does not take its
            settings. One that only the run names is done without, with a note.
    """
    if not is_run(folder):
        raise StoreError(
            f"{folder} is no training run and no policy: it has no {SPEC} or {POLICY}."
        )
    if not (folder / SPEC).is_file():
        own = None
        found = Opened(folder, load_policy(folder), None)
    else:
        found, own = _open_run(folder)
    notes = list(found.notes)
    try:
        spec = _environment(own if env is None else env, settings)
    except ConfigError as error:
        if env is not None or settings:
            raise
        notes.append(f"It was not played: {error}")
        spec = None
    return replace(found, env=spec, notes=notes)


def _open_run(folder: Path) -> tuple[Opened, Any]:
    """A run, and the environment that it names."""
    from bmdp.learn.runs import RunFolder, spec_of

    run = RunFolder(folder)
    spec = spec_of(run)  # imports the modules that a policy needs
    records, notes = run.records(), list[str]()
    places = sorted(folder.glob("round-*"))
    batches = [b for i in range(len(places)) if (b := run.batch(i)) is not None]
    policies = [place for place in (folder, *reversed(places)) if (place / "policy").exists()]
    if not run.is_done:
        last = f" of {policies[0].name}" if policies and policies[0] != folder else ""
        have = f"this is the policy{last}" if policies else "there is no policy yet"
        notes.append(f"The run is not finished: {have}. `bmdp fit --resume {folder}` goes on.")
    learner = spec.learner
    cost_gamma = learner.gamma if learner.cost_gamma is None else learner.cost_gamma
    found = Opened(
        folder,
        load_policy(policies[0] / "policy") if policies else None,
        None,
        run.header,
        (learner.gamma, cost_gamma),
        TransitionBatch.concatenate(batches) if batches else None,
        records,
        run.prediction(),
        notes,
    )
    return found, spec.env


def _environment(env: Any, settings: Sequence[str]) -> EnvSpec | None:
    from bmdp.learn.spec import EnvConfig

    if isinstance(env, EnvSpec):
        return find_spec(env)
    if env is None:
        if settings:
            raise ConfigError(f"settings need an environment: give --env ENV; got {settings[0]!r}.")
        return None
    config = env if isinstance(env, EnvConfig) else EnvConfig(env)
    if settings:
        from bmdp.learn.spec import with_env_setting

        for text in settings:
            config = with_env_setting(config, text)
    return config.spec()


@dataclass(frozen=True, eq=False)
class Measured:
    """What a policy expects and does at each budget."""

    policy: BudgetedPolicy
    budgets: FloatArray
    names: Sequence[str]  # of actions
    has_budgets: bool  # whether numbers on its dial are budgets, and matter
    places: Sequence[tuple[Place, View]] = ()
    forecast: Curve | None = None
    source: str = ""  # of the forecast
    played: Play | None = None
    realised: Curve | None = None
    shares: Shares | None = None
    told: str = ""  # of the shares
    baselines: Sequence[Curve] = ()
    notes: Sequence[str] = ()

    @property
    def status(self) -> list[str]:
        """How each budget lies to what the policy expects at a first state."""
        if self.places:
            return [mixture.status.name for mixture in self.places[0][1].mixtures]
        return self.played.status if self.played else []


def measure(
    opened: Opened,
    policy: BudgetedPolicy,
    n_episodes: int,
    seed: int,
    progress: Progress | None,
) -> Measured:
    """Returns what a policy expects and does, played if there is a simulator.

    Args:
        opened: the folder of the policy.
        policy: that it holds.
        n_episodes: at each budget; 0 to play none.
        seed: of the episodes.
        progress: called with the number of episodes played so far, and of all.
    """
    rows, notes = opened.rows, list[str]()
    has_budgets = getattr(policy, "has_dial", True) and not isinstance(policy, PriceDial)
    named = _action_names(opened)
    if rows is None and opened.env is not None:
        rows = _first_states(opened.env, seed)
    budgets = dial.dial_budgets(policy, None if rows is None else rows.states[rows.starts])
    found = Measured(policy, budgets, named, has_budgets)
    if not getattr(policy, "has_dial", True):
        notes.append("This policy has no dial: it does the same whatever the budget.")
    elif not has_budgets:
        notes.append("The numbers on this policy's dial are prices of cost, and not budgets.")
    if opened.env is not None and n_episodes:
        found = _with_play(found, opened, n_episodes, seed, progress)
        rows = opened.rows or (found.played.rows if found.played else rows)
    elif opened.env is None:
        notes.append(
            "There is no simulator, so nothing was played: costs and rewards are forecasts. "
            "Give --env ENV to play in one."
        )
    else:
        notes.append("The policy was not played: costs and rewards are forecasts.")
    if found.shares is None and rows is not None and opened.batch is not None and named:
        shares = dial.asked_shares(policy, rows, budgets, named, seed)
        told = "The policy was asked at states of the data, with the budget as it is on the dial."
        found = replace(found, shares=shares, told=told)
    if rows is not None and has_budgets:
        found = _with_beliefs(found, rows, notes)
    found = _with_forecast(found, opened, rows)
    return replace(found, baselines=_baselines(found, opened), notes=[*notes, *found.notes])


def _action_names(opened: Opened) -> list[str]:
    """Names by the environment, if it has any; else numbers."""
    n_actions, names = 0 if opened.batch is None else opened.batch.n_actions, list[str]()
    if opened.env is not None:
        slots = open_slots(opened.env)
        slots.close()
        n_actions = int(slots.action_space.start + slots.action_space.n)
        names = [str(name) for name in slots.metadata.get("action_names") or ()]
    return names if len(names) == n_actions else [f"action {a}" for a in range(n_actions)]


def _first_states(spec: EnvSpec, seed: int) -> Rows:
    """Some states in which episodes begin."""
    slots = open_slots(spec)
    states = slots.reset([seed + i for i in range(50)])
    slots.close()
    return Rows(states, np.zeros(len(states), np.int64), np.arange(len(states)))


def _with_play(
    found: Measured,
    opened: Opened,
    n_episodes: int,
    seed: int,
    progress: Progress | None,
) -> Measured:
    """The policy, and random actions, played."""
    assert opened.env is not None
    n_all = (len(found.budgets) + 1) * n_episodes

    def after(n_before: int) -> Progress | None:
        return None if progress is None else (lambda done, _: progress(n_before + done, n_all))

    how: dict[str, Any] = {"n_episodes": n_episodes, "seed": seed}
    played = dial.play(
        found.policy, opened.env, found.budgets, found.names, **how, progress=after(0)
    )
    chance = evaluate(
        RandomBudgetedPolicy(len(found.names), 0.0, 1.0),
        opened.env,
        budgets=[0.5],
        **how,
        progress=after(n_all - n_episodes),
    )
    notes = []
    gamma = played.evaluation.gamma
    if opened.gammas is not None and opened.gammas[1] != gamma:
        notes.append(
            f"The policy was learned with a discount of costs of {opened.gammas[1]:g}, and the "
            f"environment says {gamma:g}, which is what realised costs are discounted by: the two "
            "are not the same quantity. Put gamma into the metadata of the environment."
        )
    return replace(
        found,
        played=played,
        realised=budget_curve("realised", [played.evaluation]),
        shares=played.shares,
        told=f"Counted over {n_episodes:,} played episodes at each budget.",
        baselines=[budget_curve("random actions", [chance])],
        notes=notes,
    )


def _with_beliefs(found: Measured, rows: Rows, notes: list[str]) -> Measured:
    places = dial.typical_places(rows)
    views = [dial.view_of(found.policy, place, found.budgets, found.names) for place in places]
    if isinstance(dial.first_form(found.policy), Portfolio):  # it looks at no state
        places, views = [Place("any first state", places[0].state, 0)], views[:1]
    pairs = [(p, view) for p, view in zip(places, views, strict=True) if view is not None]
    if not pairs:
        kind = type(found.policy).__name__
        notes.append(f"What it expects at a state is not shown: a {kind} does not say.")
    return replace(found, places=pairs)


def _with_forecast(found: Measured, opened: Opened, rows: Rows | None) -> Measured:
    """The forecast of held-out episodes, or else what the policy itself expects at the start."""
    if not found.has_budgets:
        return found
    prediction, budgets = opened.prediction, found.budgets
    if prediction is not None:
        values = [
            np.interp(budgets, prediction["budgets"], prediction[name])
            for name in ("cost", "reward")
        ]
        n = prediction.get("n_episodes", 0)
        source = f"from {n:,} episodes of the data that were not learned from"
    else:
        expected = None
        if rows is not None:
            expected = dial.believed(found.policy, rows.states[rows.starts], budgets)
        if expected is None:
            return found
        values, source = list(expected), "what the policy itself expects at first states"
        if isinstance(found.policy, CalibratedPolicy):
            source = "from the episodes by which it was calibrated"
    return replace(found, forecast=bare_curve("forecast", budgets, *values), source=source)


def _baselines(found: Measured, opened: Opened) -> list[Curve]:
    """A coin between the ends of the dial, random actions, and what the data did."""
    curves = list(found.baselines)
    ends = found.realised or found.forecast
    if ends is not None and found.has_budgets and len(found.budgets) > 1:
        two = [values[[0, -1]] for values in (ends.settings, ends.cost.mean, ends.reward.mean)]
        curves.insert(0, bare_curve("a coin between the ends", *two))
    logged = _logged(opened)
    return curves if logged is None else [*curves, logged]


def _logged(opened: Opened) -> Curve | None:
    """Mean discounted cost and reward of the episodes of the data."""
    batch = opened.batch
    if batch is None or opened.gammas is None or batch.episode is None or batch.step is None:
        return None
    _, which = np.unique(batch.episode, return_inverse=True)
    returns = [
        np.bincount(which, weights=values * gamma ** batch.step.astype(np.float64))
        for values, gamma in zip((batch.reward, batch.cost), opened.gammas, strict=True)
    ]
    if len(returns[0]) < 2:
        return None
    reward, cost = (mean_interval(values[None], confidence=CONFIDENCE) for values in returns)
    name = "the log's own behaviour" if opened.header.get("kind") == "data" else "its exploration"
    nothing = np.empty((0, 1))
    return Curve(name, np.zeros(1), cost, reward, "episodes", 1, nothing, nothing)
