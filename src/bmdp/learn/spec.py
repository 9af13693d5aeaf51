"""What a training run is made of, as settings, and settings as JSON.

Classes are named by a `kind`, which is looked up among those that are registered: nothing in a file
is executed. Values are checked against the annotations of their fields, so that a wrong one is
refused where it is read, and not an hour later.
"""

from __future__ import annotations

import difflib
import inspect
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from gymnasium.envs.registration import EnvSpec

from bmdp.checks import nearest, require_count, require_from_0, require_share
from bmdp.envs import ENV_IDS, Corridors, SlotFilling, TwoWay
from bmdp.envs.slots import find_spec
from bmdp.errors import ConfigError
from bmdp.learn.fit import Backward, Iterations
from bmdp.learn.learners import (
    LEARNERS,
    BFTQConfig,
    FTQConfig,
    LagrangianConfig,
    Learner,
    of_kind,
)
from bmdp.models.networks import Regression
from bmdp.models.regressor import REGRESSORS, Regressor

NOT_EXPLORED = (
    "Exploring does not learn prices; learn them from the episodes of a run instead: bmdp train "
    "--data RUN/round-*/batch.npz --gamma GAMMA --set learner=LagrangianConfig --out OTHER."
)
"""What to do in place of exploring with a LagrangianConfig."""

_SCHEDULES = (Iterations, Backward)
_TASKS = {"corridors": Corridors, "slot-filling": SlotFilling, "two-way": TwoWay}
_WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}  # that JSON has no numbers for


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


@dataclass(frozen=True)
class Exploration:
    """How data are collected.

    Args:
        rounds: number of rounds.
        episodes: of a round.
        decay: of epsilon, for an episode.
        floor: least epsilon.
        hold: steps for which a random action is held, at most.
        move: probability, at every step, that the dial is moved to a random budget.
        optimism: deviations over models by which what is unknown looks good, while the models of
            all rounds but the last are fitted; so what leads to the unknown looks good, too.
        count_bonus: rewards of all rounds but the last rise by so many largest rewards over the
            root of n, the number of rows of the same action in the same cell of states.

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

    def __post_init__(self) -> None:
        """Checks the settings."""
        for name in ("rounds", "episodes", "hold"):
            require_count(name, getattr(self, name), 1)
        require_share("move", self.move)
        for name in ("decay", "optimism", "count_bonus"):
            require_from_0(name, getattr(self, name))
            if not np.isfinite(getattr(self, name)):
                raise ConfigError(f"{name} must be finite; got {getattr(self, name)}.")
        require_share("floor", self.floor)


@dataclass(frozen=True)
class TrainingSpec:
    """All that a training run is made of, but for its seed and, if it learns from one, the log.

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
        if isinstance(self.learner, LagrangianConfig):
            raise ConfigError(
                "TrainingSpec.learner must be a BFTQConfig or an FTQConfig to explore; got a "
                f"LagrangianConfig. {NOT_EXPLORED}"
            )
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


def plain(value: Any) -> Any:
    """Returns settings of any kind as what JSON can say: those of a dataclass by their names.

    Raises:
        ConfigError: naming a setting that JSON cannot say.

    >>> plain((EnvConfig("corridors"), math.inf))
    [{'id': 'corridors', 'settings': {}}, 'inf']
    """
    return _plain(value, "", of_any_class=True)


def to_json(spec: TrainingSpec) -> dict[str, Any]:
    """Returns settings as what JSON can say.

    Raises:
        ConfigError: naming a setting that JSON cannot say.

    >>> from bmdp.learn.presets import preset
    >>> to_json(preset("corridors"))["learner"]["model"]["kind"]
    'KernelModel'
    """
    return dict(_plain(spec, ""))


def from_json(value: Any) -> TrainingSpec:
    """Returns the settings that `to_json` wrote. What is not there has its default.

    Raises:
        ConfigError: if a setting is unknown, missing, or not of its type.
    """
    made: TrainingSpec = _made(TrainingSpec, value, "")
    return made


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
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"a setting must look like learner.gamma=0.9; got {text!r}.")
    try:
        parsed = json.loads(value)
    except ValueError:
        parsed = value
    changed: TrainingSpec = _changed(spec, path.strip().split("."), parsed, "")
    return changed


def _plain(value: Any, where: str, *, of_any_class: bool = False) -> Any:
    """A value as JSON has it; dataclasses that are not known here are refused, or not."""
    inner = partial(_plain, of_any_class=of_any_class)
    if is_dataclass(value) and not isinstance(value, type):
        tag = {"kind": _name(type(value))} if isinstance(value, _tagged()) else {}
        named = ((f.name, getattr(value, f.name)) for f in fields(value))
        if tag or of_any_class or isinstance(value, _UNTAGGED):
            return tag | {name: inner(v, _join(where, name)) for name, v in named}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [inner(v, f"{where}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, dict):
        return {str(name): inner(v, _join(where, str(name))) for name, v in value.items()}
    raise ConfigError(f"{where} must be something that JSON can say; got {type(value).__name__}.")


def _made(hint: Any, value: Any, where: str) -> Any:
    """A value of the type that an annotation says."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Regressor:
        return _of_kind(REGRESSORS.values(), _imported(value), where)
    if origin in (Union, UnionType):
        if NoneType in args and value is None:
            return None
        others = [arg for arg in args if arg is not NoneType]
        if len(others) == 1:
            return _made(others[0], value, where)
        return _of_kind(others, value, where)
    if origin is Literal:
        if value not in args:
            raise ConfigError(f"{where} must be one of {', '.join(args)}; got {value!r}.")
        return value
    if origin is tuple:
        return _tuple(args, value, where)
    if origin is dict:
        if not isinstance(value, dict):
            raise _wrong(where, "be settings by name", value)
        return {name: _frozen(v) for name, v in value.items()}
    make = _object if is_dataclass(hint) else _scalar
    return make(hint, value, where)


def _scalar(hint: Any, value: Any, where: str) -> Any:
    """A number, a word or a truth value."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float:
        if is_number:
            return float(value)
        if isinstance(value, str) and value in _WORDS:
            return _WORDS[value]
        raise _wrong(where, "be a number", value)
    if hint is int:
        if is_number and math.isfinite(value) and value == int(value):
            return int(value)
        raise _wrong(where, "be a whole number", value)
    if not isinstance(value, hint):
        raise _wrong(where, "be true or false" if hint is bool else "be a word", value)
    return value


def _tuple(args: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    """A tuple of some length, or of any."""
    if not isinstance(value, list | tuple):
        raise _wrong(where, "be a list such as [1, 2]", value)
    hints = (args[0],) * len(value) if args[-1] is ... else args
    if len(hints) != len(value):
        raise _wrong(where, f"be a list of {len(hints)}", value)
    return tuple(
        _made(hint, v, f"{where}[{i}]")
        for i, (hint, v) in enumerate(zip(hints, value, strict=True))
    )


def _of_kind(classes: Iterable[type[Any]], value: Any, where: str) -> Any:
    """A value of one of some classes, which it names."""
    known = _by_name(classes)
    content = {"kind": value} if isinstance(value, str) else value
    if not isinstance(content, dict) or not isinstance(content.get("kind"), str):
        raise _wrong(where, f"be one of {', '.join(known)}, or settings with a kind", value)
    rest = {name: v for name, v in content.items() if name != "kind"}
    return _object(_class_of(known, content["kind"], where), rest, where)


def _class_of(known: dict[str, type[Any]], kind: str, where: str) -> type[Any]:
    """The class of a name."""
    if kind in known:
        return known[kind]
    names = ", ".join(known)
    raise ConfigError(f"{where} must be one of {names}; got {kind!r}.{nearest(kind, known)}")


def _object(cls: type[Any], value: Any, where: str) -> Any:
    """A value of a class, given its fields."""
    if not isinstance(value, dict):
        raise _wrong(where or "settings", f"be settings of {cls.__name__} by name", value)
    hints = _hints(cls)
    for name in value:
        _require_known(name, hints, cls.__name__)
    made = {name: _made(hints[name], v, _join(where, name)) for name, v in value.items()}
    try:
        return cls(**made)
    except TypeError as error:  # a field without default is missing
        raise ConfigError(
            f"{where or 'settings'}: {cls.__name__} is not complete: {error}."
        ) from error


def _changed(owner: Any, keys: list[str], value: Any, where: str) -> Any:
    """A value with something in it changed."""
    key, rest = keys[0], keys[1:]
    here = _join(where, key)
    if owner is None and where in ("env", "exploration"):
        raise ConfigError(f"{where} has no setting {key!r}: the run learns from a log.")
    if owner is None and where == "learner.schedule":
        raise ConfigError(f"{where} has no setting {key!r} yet: say {where}=Iterations before.")
    if isinstance(owner, EnvConfig) and key not in ("id", "settings"):
        return _changed(owner, ["settings", *keys], value, where)
    if not is_dataclass(owner) or isinstance(owner, type):
        raise ConfigError(f"{where} is {owner!r}, which has no setting {key!r}.")
    hints = _hints(type(owner))
    _require_known(key, hints, type(owner).__name__, _names_within(owner, where))
    if isinstance(owner, EnvConfig) and key == "settings" and rest:
        new: Any = _env_settings(owner, rest, value)
    elif rest:
        new = _changed(getattr(owner, key), rest, value, here)
    else:
        new = _replaced(getattr(owner, key), hints[key], value, here)
    return replace(owner, **{key: new})


def _replaced(old: Any, hint: Any, value: Any, where: str) -> Any:
    """What a setting becomes; a learner, of which a kind is named, keeps what both have."""
    if isinstance(old, LEARNERS) and isinstance(value, str):
        return of_kind(old, _class_of(_by_name(get_args(hint)), value, where))
    return _made(hint, value, where)


def _env_settings(env: EnvConfig, keys: list[str], value: Any) -> dict[str, Any]:
    """Settings of an environment, one of them changed; of our own we know which there are."""
    names = {env_id: name for name, env_id in ENV_IDS.items()}
    task = _TASKS.get(names.get(env.id, env.id))
    if len(keys) > 1:
        raise ConfigError(f"env.{'.'.join(keys)} is no setting: there is nothing inside of one.")
    if task is not None:
        _require_known(keys[0], inspect.signature(task).parameters, env.id)
    return {**env.settings, keys[0]: _frozen(value)}


def _tagged() -> tuple[type[Any], ...]:
    """Classes of which there are several to choose from."""
    return (*LEARNERS, *_SCHEDULES, *REGRESSORS.values())


_UNTAGGED = (TrainingSpec, EnvConfig, Exploration, Regression)


def _name(cls: type[Any]) -> str:
    """The kind of a class; of one that is not the library's, with the module that registers it."""
    home = cls.__module__
    is_own = home.partition(".")[0] == "bmdp" or home in ("__main__", "__mp_main__")
    return cls.__name__ if is_own else f"{home}:{cls.__name__}"


def _imported(value: Any) -> Any:
    """A model named `module:Name` by its name, once its module has registered it."""
    content = {"kind": value} if isinstance(value, str) else value
    if not isinstance(content, dict) or ":" not in str(content.get("kind")):
        return value
    module, _, name = content["kind"].partition(":")
    try:
        import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"the regressor {content['kind']!r} needs the module {module}: {error}. Put its folder "
            "on PYTHONPATH."
        ) from error
    return {**content, "kind": name}


def _by_name(classes: Iterable[type[Any]]) -> dict[str, type[Any]]:
    return {cls.__name__: cls for cls in classes}


def _hints(cls: type[Any]) -> dict[str, Any]:
    """Annotations of the fields of a class."""
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}


def _frozen(value: Any) -> Any:
    """Lists as tuples, all the way down."""
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _require_known(
    name: str, known: Iterable[str], owner: str, within: Mapping[str, str] | None = None
) -> None:
    """Checks that there is a setting; `within` has full names of those that are further inside."""
    names, inner = list(known), within or {}
    if name in names:
        return
    others = [cls.__name__ for cls in LEARNERS if name in _hints(cls)]
    far = difflib.get_close_matches(name, inner, n=1)
    if name in inner:
        near = f" Did you mean {inner[name]}?"
    elif others and owner in _by_name(LEARNERS):
        near = f" {' and '.join(others)} has it: say learner={others[0]} before."
    else:
        near = nearest(name, names) or (f" Did you mean {inner[far[0]]}?" if far else "")
    raise ConfigError(
        f"{owner} has no setting {name!r}.{near or ' There are ' + ', '.join(names) + '.'}"
    )


def _names_within(owner: Any, where: str) -> dict[str, str]:
    """Full names of all settings inside of an owner by their last part, the outer ones first."""
    found: dict[str, str] = {}
    level = [(owner, where)]
    while level:
        inner = [
            (getattr(value, f.name), _join(at, f.name))
            for value, at in level
            for f in fields(value)
        ]
        for _, at in inner:
            found.setdefault(at.rpartition(".")[2], at)
        level = [(value, at) for value, at in inner if is_dataclass(value)]
    if "schedule" in found:
        for cls in _SCHEDULES:
            found.setdefault(cls.__name__.lower(), f"{found['schedule']}={cls.__name__}")
    return found


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _wrong(where: str, rule: str, value: Any) -> ConfigError:
    return ConfigError(f"{where} must {rule}; got {value!r}.")
