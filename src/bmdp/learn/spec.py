"""Settings of a training run: written down, changed one by one, and compared with a log."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from gymnasium.envs.registration import EnvSpec

from bmdp import settings
from bmdp.arrays import FloatArray
from bmdp.checks import require_choice, require_count, require_from_0, require_share
from bmdp.data import TransitionBatch
from bmdp.envs import ENV_IDS, Corridors, SlotFilling, TwoWay
from bmdp.envs.slots import find_spec
from bmdp.errors import ConfigError, DataError
from bmdp.kinds import checked
from bmdp.learn.fit import Backward, Iterations, Schedule
from bmdp.learn.learners import (
    LEARNERS,
    BFTQConfig,
    FTQConfig,
    LagrangianConfig,
    Learner,
    of_kind,
)
from bmdp.models.regressor import REGRESSORS, Regressor
from bmdp.settings import Told

_KINDS = {cls.__name__: cls for cls in LEARNERS}
_TASKS = {"corridors": Corridors, "slot-filling": SlotFilling, "two-way": TwoWay}

settings.offer(Learner, _KINDS)
settings.offer(Schedule, {cls.__name__: cls for cls in (Iterations, Backward)})
settings.offer(Regressor, REGRESSORS)


@checked
@dataclass(frozen=True)
class EnvConfig:
    """Which environment, and its settings.

    >>> spec = EnvConfig("corridors", {"height": 3}).spec()
    >>> spec.id, spec.kwargs
    ('bmdp/Corridors-v0', {'height': 3})
    """

    id: str  # or a short name
    settings: dict[str, Any] = field(default_factory=dict)  # that it takes

    def spec(self) -> EnvSpec:
        """As Gymnasium has it."""
        spec = find_spec(self.id)
        return replace(spec, kwargs={**spec.kwargs, **self.settings})


@checked
@dataclass(frozen=True)
class Exploration:
    """Settings of exploration: rounds, episodes and random actions.

    Args:
        rounds: number of rounds.
        episodes: of a round.
        decay: of epsilon, for an episode or for a step, as `decay_by` says.
        floor: least epsilon.
        hold: steps for which a random action is held, at most.
        move: probability, at every step, that the dial is moved to a random budget.
        optimism: deviations over models by which what is unknown looks good, while the models of
            all rounds but the last are fitted; so what leads to the unknown looks good, too.
        count_bonus: rewards of all rounds but the last rise by so many largest rewards over the
            root of n, the number of rows of the same action in the same cell of states.
        decay_by: "episode", or "step": the steps before an episode are its number times the mean
            length of the episodes of all rounds before. The first round is random in any case.
        budgets: held while exploring: "uniform" in the range at the start, then as policies hand
            them on; or the "top" of the range at every step, so that costs matter as little as they
            can.

    Paper: the settings of Algorithm 4.

    >>> how = Exploration(rounds=4, episodes=250)
    >>> how.rounds * how.episodes, how.optimism
    (1000, 0.0)
    """

    rounds: int = 10
    episodes: int = 500
    decay: float = 0.001
    floor: float = 0.0
    hold: int = 1
    move: float = 0.0
    optimism: float = 0.0
    count_bonus: float = 0.0
    decay_by: Literal["episode", "step"] = "episode"
    budgets: Literal["uniform", "top"] = "uniform"

    def __post_init__(self) -> None:
        for name in ("rounds", "episodes", "hold"):
            require_count(name, getattr(self, name), 1)
        require_share("move", self.move)
        for name in ("decay", "optimism", "count_bonus"):
            require_from_0(name, getattr(self, name))
            if not np.isfinite(getattr(self, name)):
                raise ConfigError(f"{name} must be finite; got {getattr(self, name)}.")
        require_share("floor", self.floor)
        require_choice("decay_by", self.decay_by, ("episode", "step"))
        require_choice("budgets", self.budgets, ("uniform", "top"))


@checked
@dataclass(frozen=True)
class TrainingSpec:
    """All settings of a training run, except for its seed and its log.

    Args:
        env: where it explores; None for a log.
        learner: what is learned, and how.
        exploration: how data are collected; None for a log.
        held_out: share of the episodes of each round that are not learned from; they say what the
            policy will earn and pay.

    Paper: what Algorithm 4 is given.

    >>> how = Exploration(optimism=0.5)
    >>> spec = TrainingSpec(EnvConfig("corridors"), BFTQConfig(gamma=1.0), how)
    >>> spec.learner.caution, spec.exploring_learner.caution
    (0.0, -0.5)
    """

    env: EnvConfig | None
    learner: BFTQConfig | FTQConfig | LagrangianConfig
    exploration: Exploration | None
    held_out: float = 0.0

    def __post_init__(self) -> None:
        """Checks that the learner can explore in this way."""
        if not isinstance(self.learner, LEARNERS):
            raise ConfigError(
                f"TrainingSpec.learner must be settings of a learner; got {self.learner!r}."
            )
        if not 0 <= self.held_out < 1:
            raise ConfigError(f"held_out must be from 0 to below 1; got {self.held_out}.")
        if (self.env is None) != (self.exploration is None):
            raise ConfigError("TrainingSpec needs both env and exploration, or neither for a log.")
        if self.exploration is None:
            return
        if self.held_out > 0 and self.exploration.episodes < 2:
            raise ConfigError("held_out needs rounds of at least 2 episodes; got 1.")
        if self.exploration.optimism > 0 and self.learner.ensemble == 1:
            raise ConfigError("exploration.optimism needs learner.ensemble above 1; got 1.")

    @property
    def exploring_learner(self) -> Learner:
        """The learner of all rounds but the last, whose policies explore."""
        if self.exploration is None or self.exploration.optimism == 0:
            return self.learner
        return replace(self.learner, caution=-self.exploration.optimism)


def to_json(spec: TrainingSpec) -> dict[str, Any]:
    """Returns settings as what JSON can say.

    Raises:
        ConfigError: naming a setting that JSON cannot say.

    >>> from bmdp.learn.presets import preset
    >>> to_json(preset("corridors"))["learner"]["model"]["kind"]
    'KernelModel'
    """
    model = type(spec.learner.model)
    if REGRESSORS.get(model.__name__) is not model:
        raise ConfigError(
            f"learner.model must be marked with @register_regressor to be written down; got a "
            f"{model.__name__}."
        )
    return dict(settings.plain(spec))


def from_json(value: Any) -> TrainingSpec:
    """Returns the settings that `to_json` wrote. What is not there has its default.

    Raises:
        ConfigError: if a setting is unknown, missing, or not of its type.
    """
    spec: TrainingSpec = settings.read(TrainingSpec, value)
    return spec


def with_setting(spec: TrainingSpec, text: str) -> TrainingSpec:
    """Returns settings with one of them changed.

    Args:
        spec: the settings.
        text: such as `learner.gamma=0.9`. The value is JSON, or else a word. The settings of the
            environment may be named as `env.observe_time` or `env.settings.observe_time`; a model
            by its name, `learner.model=FrontierNet`; and so a learner, `learner=LagrangianConfig`,
            which keeps what was set before of those settings that both have.

    Raises:
        ConfigError: if there is no such setting, with the nearest one, or the value is not of its
            type.

    >>> from bmdp.learn.presets import preset
    >>> with_setting(preset("corridors"), "learner.gamma=0.9").learner.gamma
    0.9
    """
    keys, value = settings.parse(text)
    if spec.env is None and keys[0] in ("env", "exploration"):
        raise ConfigError(f"{keys[0]} has no settings: the run learns from a log.")
    if spec.env is not None and keys[0] == "env" and keys[1:]:
        return replace(spec, env=_with_env_setting(spec.env, keys[1:], value))
    if keys == ["learner"] and isinstance(value, str) and value in _KINDS:
        return replace(spec, learner=of_kind(spec.learner, _KINDS[value]))
    return settings.change(spec, keys, value)


def with_env_setting(env: EnvConfig, text: str) -> EnvConfig:
    """Returns an environment with one of its settings changed, by a text such as `env.height=5`.

    Raises:
        ConfigError: if the text names something else, or an environment of ours has no such
            setting, with the nearest one.

    >>> with_env_setting(EnvConfig("corridors"), "env.height=5").settings
    {'height': 5}
    """
    keys, value = settings.parse(text)
    if keys[0] != "env" or not keys[1:]:
        raise ConfigError(f"--set is for the environment here, env.a=b; got {text!r}.")
    return _with_env_setting(env, keys[1:], value)


def _with_env_setting(env: EnvConfig, keys: list[str], value: Any) -> EnvConfig:
    if keys in (["id"], ["settings"]):
        return settings.change(env, keys, value, "env")
    name, *inside = keys[1:] if keys[0] == "settings" else keys
    if inside:
        raise ConfigError(f"env.{'.'.join(keys)} is no setting: there is nothing inside of one.")
    short = {env_id: name for name, env_id in ENV_IDS.items()}.get(env.id, env.id)
    known = inspect.signature(_TASKS[short]).parameters if short in _TASKS else (name,)
    if name not in known:
        raise settings.unknown(env.id, name, {other: repr(other) for other in known})
    return replace(env, settings={**env.settings, name: value})


def told_settings(spec: TrainingSpec) -> list[Told]:
    """Returns all that `with_setting` can change, and the settings of an environment of ours.

    >>> env = EnvConfig("corridors")
    >>> spec = TrainingSpec(env, BFTQConfig(gamma=1.0), Exploration())
    >>> next(one.value for one in told_settings(spec) if one.path == "exploration.rounds")
    '10'
    """
    found = [one for one in settings.told(spec) if not one.path.startswith("env")]
    return [*(told_env_settings(spec.env) if spec.env is not None else ()), *found]


def told_env_settings(env: EnvConfig) -> list[Told]:
    """Returns the settings of an environment of ours; of another one, those that were given."""
    short = {env_id: name for name, env_id in ENV_IDS.items()}.get(env.id, env.id)
    found = {name: (value, "") for name, value in env.settings.items()}
    lines: dict[str, str] = {}
    if short in _TASKS:
        lines = settings.told_arguments(_TASKS[short])
        for name, one in inspect.signature(_TASKS[short]).parameters.items():
            found[name] = env.settings.get(name, one.default), str(one.annotation)
    return [
        Told(f"env.{name}", kind, str(value), lines.get(name, ""))
        for name, (value, kind) in found.items()
    ]


def data_notes(batch: TransitionBatch, learner: Learner) -> tuple[str, ...]:
    """Returns warnings in plain words: of the log by itself, and of the budgets.

    Raises:
        DataError: if these settings cannot learn from this log at all.
    """
    notes = list(batch.summary().notes)
    if learner.gamma == 1 and not batch.terminal.any():
        notes.append(
            "gamma is 1 and no row is terminal: values grow with every iteration, and never settle"
        )
    _require_columns(batch, learner)
    notes.extend(_budget_notes(batch, learner))
    return tuple(notes)


def _require_columns(batch: TransitionBatch, learner: Learner) -> None:
    n_episodes = len(batch) if batch.episode is None else len(np.unique(batch.episode))
    if n_episodes < learner.ensemble:
        raise DataError(
            f"episode must name at least {learner.ensemble} episodes for learner.ensemble, which "
            f"gives each of so many models its own; got {n_episodes}. Use learner.ensemble=1."
        )
    labels = getattr(learner.model, "labels", "")
    if labels in ("stored", "products") and batch.budget is None:
        raise DataError(
            f"budget must be given for learner.model.labels '{labels}'; the log has none. Use "
            "learner.model.labels=uniform."
        )
    if isinstance(learner.schedule, Backward) and batch.step is None:
        raise DataError("step must be given for learner.schedule Backward; the log has none.")


def _budget_notes(batch: TransitionBatch, learner: Learner) -> list[str]:
    """Whether the budgets have to do with what episodes cost."""
    gamma = learner.gamma if learner.cost_gamma is None else learner.cost_gamma
    paid = _episode_costs(batch, gamma)
    if paid is None or not batch.cost.any():
        return []
    low, high = learner.budget_range
    cheapest, dearest = float(paid.min()), float(paid.max())
    seen = f"episodes of the log cost {cheapest:g} to {dearest:g}"
    asked = f"budget_range, {low:g} to {high:g},"
    if high < cheapest:
        return [f"{asked} is below what any episode cost: {seen}"]
    if low >= dearest:
        return [f"{asked} is above what any episode cost: {seen}, so every budget buys the same"]
    if high - low > 20 * (dearest - low):
        return [f"{asked} is much wider than the costs: {seen}"]
    return []


def _episode_costs(batch: TransitionBatch, gamma: float) -> FloatArray | None:
    """The discounted cost of each episode, or None if episodes or steps are unknown."""
    if batch.episode is None or batch.step is None:
        return None
    _, which = np.unique(batch.episode, return_inverse=True)
    paid = batch.cost * gamma ** batch.step.astype(np.float64)
    costs: FloatArray = np.bincount(which, weights=paid).astype(np.float64)
    return costs
