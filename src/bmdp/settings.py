"""Settings to and from JSON: frozen dataclasses, read by their annotations.

pydantic checks numbers, words, choices and tuples, strictly: `true` is no number, and "3" is none.
Where one of several classes may stand, JSON names it by its `kind`, which is looked up among those
that are known: nothing in a file is executed. A class that is not the library's has the kind
`module:Name`, and that module is imported first. JSON has no infinite numbers: they are the words
"inf", "-inf" and "nan".
"""

from __future__ import annotations

import difflib
import inspect
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from bmdp.checks import nearest
from bmdp.errors import ConfigError
from bmdp.later import imported

T = TypeVar("T")
Classes = Mapping[str, type[Any]]

_OFFERED: dict[Any, Classes] = {}
_WORDS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
_REWORDED = {
    "Input should": "must",
    "Tuple should": "must",
    "Field required": "is missing",
    " after validation": "",
    "a valid dictionary": "settings by name",
    "a valid boolean": "true or false",
    "valid integer": "whole number",
    "valid tuple": "list such as [1, 2]",
    "valid string": "word",
    "valid ": "",
}
"""What pydantic says, in words for those who write JSON."""


def offer(annotation: Any, classes: Classes) -> None:
    """Names the classes that a union or a protocol stands for, whose settings then have a kind."""
    _OFFERED[annotation] = classes


def plain(value: Any, where: str = "") -> Any:
    """Returns settings as JSON can say them: those of a dataclass by their names.

    Raises:
        ConfigError: naming a setting that JSON cannot say.

    >>> plain((1, math.inf))
    [1, 'inf']
    """
    if is_dataclass(value) and not isinstance(value, type):
        cls = type(value)
        is_one_of = any(known.get(cls.__name__) is cls for known in _OFFERED.values())
        named = {f.name: plain(getattr(value, f.name), _join(where, f.name)) for f in fields(cls)}
        return ({"kind": _kind(cls)} if is_one_of else {}) | named
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {str(name): plain(item, _join(where, str(name))) for name, item in value.items()}
    raise ConfigError(f"{where} must be something that JSON can say; got {type(value).__name__}.")


def read(annotation: Any, value: Any, where: str = "") -> Any:
    """Returns settings of a class, or of any annotation, from JSON; those not there are defaults.

    Raises:
        ConfigError: naming a setting that is unknown, missing, or not of its type.

    >>> read(tuple[float, ...], [1, "inf"])
    (1.0, inf)
    """
    value, known = _python(value), _classes(annotation)
    if value is None and NoneType in get_args(annotation):
        return None
    if known:
        is_protocol = get_origin(annotation) is None and annotation in _OFFERED
        return _object(known, value, where, is_protocol)
    try:
        return _adapter(annotation).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        rule = first["msg"]
        for said, word in _REWORDED.items():
            rule = rule.replace(said, word)
        path = where + "".join(f"[{part}]" for part in first["loc"])
        raise ConfigError(f"{path or 'settings'} {rule}; got {first['input']!r}.") from None


def parse(text: str) -> tuple[list[str], Any]:
    """Returns the path and the value of `a.b=c`; the value is JSON, or else a word.

    >>> parse("learner.schedule.n=1e2")
    (['learner', 'schedule', 'n'], 100)
    """
    path, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not path:
        raise ConfigError(f"a setting must look like learner.gamma=0.9; got {text!r}.")
    try:
        return path.split("."), _python(json.loads(value, parse_float=_number))
    except ValueError:
        return path.split("."), _python(value)


def change(owner: T, keys: list[str], value: Any, where: str = "", annotation: Any = None) -> T:
    """Returns settings with the one at a path changed; `where` and `annotation` are their place.

    Raises:
        ConfigError: if there is no such setting, with the nearest one, or it is not of its type.
    """
    key, rest, hints = keys[0], keys[1:], _hints(type(owner))
    if key not in hints:
        others = [cls.__name__ for cls in _classes(annotation).values() if key in _hints(cls)]
        hint = f" {' and '.join(others)} has it: say {where}={others[0]} before." if others else ""
        name = type(owner).__name__ if hints else f"{where} is {owner!r}, which"
        raise unknown(name, key, _paths(owner, where), hint)
    here = _join(where, key)
    if rest:
        new = change(getattr(owner, key), rest, value, here, hints[key])
    else:
        new = read(hints[key], value, here)
    changed: T = _checked(lambda: replace(owner, **{key: new}), hints, where)  # type: ignore[type-var]
    return changed


class Told(NamedTuple):
    """A setting, as a user reads of it."""

    path: str  # such as learner.gamma
    type: str
    value: str  # that it has now
    about: str  # a sentence


def told(owner: Any, where: str = "") -> Iterator[Told]:
    """Gives all settings of an owner, and inside of it, with what its docstring says of them.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Walk:
    ...     '''A walk.
    ...
    ...     Args:
    ...         steps: number of them. At least 1.
    ...     '''
    ...     steps: int | None = 3
    >>> [tuple(one) for one in told(Walk())]
    [('steps', 'whole number or null', '3', 'number of them')]
    """
    lines = told_arguments(type(owner))
    for name, hint in _hints(type(owner)).items():
        path, value, known = _join(where, name), getattr(owner, name), _classes(hint)
        shown = type(value).__name__ if known and value is not None else _as_json(value)
        yield Told(path, " or ".join(known) or type_in_words(hint), shown, lines.get(name, ""))
        if known and value is not None:
            yield from told(value, path)


def told_arguments(cls: type[Any]) -> dict[str, str]:
    """The first sentence about each argument in the docstring of a class."""
    found: dict[str, str] = {}
    part = inspect.cleandoc(cls.__doc__ or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
    name = ""
    for line in part.splitlines():
        if line.startswith("    ") and not line.startswith("     "):
            name, _, line = line.strip().partition(": ")
        if name:
            found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return {name: text.partition(". ")[0].rstrip(".") for name, text in found.items()}


def type_in_words(hint: Any) -> str:
    """A type, as a user of JSON knows it.

    >>> type_in_words(tuple[float, ...]), type_in_words(bool | None)
    ('list of number', 'true or false or null')
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(map(str, parts))
    if origin in (Union, UnionType):
        return " or ".join(map(type_in_words, parts))
    if origin is tuple:
        inner = dict.fromkeys(type_in_words(part) for part in parts if part is not Ellipsis)
        return f"list of {', '.join(inner)}"
    words = {int: "whole number", float: "number", bool: "true or false", str: "word"}
    return words.get(hint, "null" if hint is NoneType else "settings by name")


def _as_json(value: Any) -> str:
    return json.dumps(plain(value))


def unknown(owner: str, name: str, known: Mapping[str, str], hint: str = "") -> ConfigError:
    """Returns the error of an unknown setting, with the nearest one as `known` calls it."""
    near = difflib.get_close_matches(name, known, n=1)
    own = ", ".join(other for other, told in known.items() if told == repr(other))
    if not hint and (near or own):
        hint = f" Did you mean {known[near[0]]}?" if near else f" There are {own}."
    return ConfigError(f"{owner} has no setting {name!r}.{hint}")


def _object(known: Classes, value: Any, where: str, is_protocol: bool) -> Any:
    """Settings of one of some classes."""
    only = next(iter(known)) if len(known) == 1 and not is_protocol else None
    content = {"kind": value} if isinstance(value, str) else value
    kind = content.get("kind", only) if isinstance(content, dict) else None
    if not isinstance(kind, str):
        rule = f"settings of {only}" if only else f"one of {', '.join(known)}, by its kind"
        raise ConfigError(f"{where or 'settings'} must be {rule}; got {value!r}.")
    module, _, kind = kind.rpartition(":")
    if module and is_protocol:
        imported(module, where)
    if kind not in known:
        there, near = ", ".join(known), nearest(kind, known)
        raise ConfigError(f"{where} must be one of {there}; got {kind!r}.{near}")
    cls = known[kind]
    hints, made = _hints(cls), {}
    for name, item in content.items():
        if name in hints:
            made[name] = read(hints[name], item, _join(where, name))
        elif name != "kind":
            raise unknown(cls.__name__, name, {other: repr(other) for other in hints})
    for f in fields(cls):
        if f.name not in made and f.default is MISSING and f.default_factory is MISSING:
            raise ConfigError(f"{_join(where, f.name)} must be given for {cls.__name__}.")
    return _checked(lambda: cls(**made), hints, where)


def _checked(make: Callable[[], Any], names: Mapping[str, Any], where: str) -> Any:
    """Makes a value; an error of its own checks begins with the path."""
    try:
        return make()
    except ConfigError as error:
        begins = str(error).partition(" ")[0].partition("[")[0] in names
        between = "." if where and begins else ": " if where else ""
        raise ConfigError(f"{where}{between}{error}") from None


def _classes(annotation: Any) -> Classes:
    """Classes that an annotation names; none if it is one of plain values."""
    if annotation in _OFFERED:
        return _OFFERED[annotation]
    is_union = get_origin(annotation) in (Union, UnionType)
    parts = get_args(annotation) if is_union else (annotation,)
    return {part.__name__: part for part in parts if isinstance(part, type) and is_dataclass(part)}


def _paths(owner: Any, where: str) -> dict[str, str]:
    """Names of all settings of an owner and inside of it, the outer ones first."""
    found = {name: repr(name) for name in _hints(type(owner))}
    queue = [(owner, where)]
    for value, at in queue:
        for name, hint in _hints(type(value)).items():
            path, known = _join(at, name), _classes(hint)
            found.setdefault(name, path)
            queue.append((getattr(value, name), path))
            for kind in known if len(known) > 1 else ():
                found.setdefault(kind.lower(), f"{path}={kind}")
    return found


def _hints(cls: type[Any]) -> dict[str, Any]:
    """Annotations of the fields of a class; none if it is no dataclass."""
    hints = get_type_hints(cls) if is_dataclass(cls) else {}
    return {f.name: hints[f.name] for f in fields(cls)} if hints else {}


@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation, config=ConfigDict(strict=True))


def _kind(cls: type[Any]) -> str:
    home = cls.__module__
    is_own = home.partition(".")[0] == "bmdp" or home in ("__main__", "__mp_main__")
    return cls.__name__ if is_own else f"{home}:{cls.__name__}"


def _python(value: Any) -> Any:
    """A JSON value, with tuples for lists, and with infinite numbers."""
    if isinstance(value, dict):
        return {name: _python(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(_python, value))
    return _WORDS.get(value, value) if isinstance(value, str) else value


def _number(text: str) -> float:
    """A number of JSON; 1e3 is a whole one."""
    value = float(text)
    return int(value) if "." not in text and value.is_integer() else value


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
