"""Settings as plain JSON, and single ones of them by name.

Classes are named by a `kind`, which is looked up in a table: nothing in a file is executed. Values
are checked against the annotations of their fields, so that a wrong one is refused where it is
read, and not an hour later.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, overload

import numpy as np

from bmdp.checks import nearest
from bmdp.envs import ENV_IDS, Corridors, SlotFilling, TwoWay
from bmdp.errors import ConfigError
from bmdp.learn.config import NOT_EXPLORED, DataSpec, EnvConfig, Exploration, TrainingSpec
from bmdp.learn.fit_config import BFTQConfig, FTQConfig, LagrangianConfig, of_kind
from bmdp.models import (
    EncoderNet,
    FrontierNet,
    KernelModel,
    LinearModel,
    Model,
    Regression,
    TableModel,
)

_MODELS = (EncoderNet, FrontierNet, KernelModel, LinearModel, TableModel)
_LEARNERS = (BFTQConfig, FTQConfig, LagrangianConfig)
_KINDS: dict[str, type[Any]] = {cls.__name__: cls for cls in (*_MODELS, *_LEARNERS)}
_TASKS = {"corridors": Corridors, "slot-filling": SlotFilling, "two-way": TwoWay}
_WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}  # that JSON has no numbers for


_UNTAGGED = (TrainingSpec, DataSpec, EnvConfig, Exploration, Regression)
Spec = TypeVar("Spec", TrainingSpec, DataSpec)


def plain(value: Any) -> Any:
    """Returns settings of any kind as what JSON can say: those of a dataclass by their names.

    Raises:
        ConfigError: naming a setting that JSON cannot say.

    >>> plain((EnvConfig("corridors"), math.inf))
    [{'id': 'corridors', 'settings': {}}, 'inf']
    """
    return _plain(value, "", of_any_class=True)


def to_json(spec: TrainingSpec | DataSpec) -> dict[str, Any]:
    """Returns settings as what JSON can say.

    Raises:
        ConfigError: naming a setting that JSON cannot say.

    >>> from bmdp.learn.presets import preset
    >>> to_json(preset("corridors"))["learner"]["model"]["kind"]
    'KernelModel'
    """
    return dict(_plain(spec, ""))


@overload
def from_json(value: Any) -> TrainingSpec: ...
@overload
def from_json(value: Any, kind: type[Spec]) -> Spec: ...
def from_json(value: Any, kind: type[Any] = TrainingSpec) -> Any:
    """Returns the settings that `to_json` wrote. What is not there has its default.

    Raises:
        ConfigError: if a setting is unknown, missing, or not of its type.
    """
    return _made(kind, value, "")


def with_setting(spec: Spec, text: str) -> Spec:
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
    changed: Spec = _changed(spec, path.strip().split("."), parsed, "")
    return changed


def _plain(value: Any, where: str, *, of_any_class: bool = False) -> Any:
    """A value as JSON has it; dataclasses that are not known here are refused, or not."""
    inner = partial(_plain, of_any_class=of_any_class)
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value).__name__
        tag = {"kind": kind} if _KINDS.get(kind) is type(value) else {}
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
    if hint is Model:
        return _of_kind(_MODELS, value, where)
    if origin in (Union, UnionType):
        if NoneType in args:
            (inner,) = (arg for arg in args if arg is not NoneType)
            return None if value is None else _made(inner, value, where)
        return _of_kind(args, value, where)
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
    rule = f"{where} must be one of {', '.join(known)}; got {kind!r}."
    if kind == LagrangianConfig.__name__ and BFTQConfig.__name__ in known:
        raise ConfigError(f"{rule} {NOT_EXPLORED}")
    raise ConfigError(f"{rule}{nearest(kind, known)}")


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
    if isinstance(owner, EnvConfig) and key not in ("id", "settings"):
        return _changed(owner, ["settings", *keys], value, where)
    if not is_dataclass(owner) or isinstance(owner, type):
        raise ConfigError(f"{where} is {owner!r}, which has no setting {key!r}.")
    hints = _hints(type(owner))
    _require_known(key, hints, type(owner).__name__)
    if isinstance(owner, EnvConfig) and key == "settings" and rest:
        new: Any = _env_settings(owner, rest, value)
    elif rest:
        new = _changed(getattr(owner, key), rest, value, here)
    else:
        new = _replaced(getattr(owner, key), hints[key], value, here)
    return replace(owner, **{key: new})


def _replaced(old: Any, hint: Any, value: Any, where: str) -> Any:
    """What a setting becomes; a learner, of which a kind is named, keeps what both have."""
    if isinstance(old, _LEARNERS) and isinstance(value, str):
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


def _by_name(classes: Iterable[type[Any]]) -> dict[str, type[Any]]:
    return {cls.__name__: cls for cls in classes}


def _hints(cls: type[Any]) -> dict[str, Any]:
    """Annotations of the fields of a class."""
    hints = get_type_hints(cls)
    return {f.name: hints[f.name] for f in fields(cls)}


def _frozen(value: Any) -> Any:
    """Lists as tuples, all the way down."""
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _require_known(name: str, known: Iterable[str], owner: str) -> None:
    names = list(known)
    if name in names:
        return
    near = nearest(name, names) or f" There are {', '.join(names)}."
    others = [cls.__name__ for cls in _LEARNERS if name in _hints(cls)]
    if others and owner in _by_name(_LEARNERS):
        near = f" {' and '.join(others)} has it: say learner={others[0]} before."
    raise ConfigError(f"{owner} has no setting {name!r}.{near}")


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _wrong(where: str, rule: str, value: Any) -> ConfigError:
    return ConfigError(f"{where} must {rule}; got {value!r}.")
