"""Kinds of arguments, as annotations say them: what a public call refuses before it begins.

`checked` stands over a function, or over a class for all its public methods. It looks at each
argument as far as its annotation goes: that a number is one, a word is one of those that are known,
an array is no ragged list. Ranges, shapes and what arrays hold are checked by the call itself.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, isfunction, signature
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import any_array, is_tensor
from bmdp.checks import is_number, told
from bmdp.errors import BmdpError, ConfigError, DataError

T = TypeVar("T")

_LARGEST, _WHOLE = int(sys.float_info.max), 2**63  # of numbers of 64 bits


def checked(target: T) -> T:
    """Makes a function refuse arguments that are not what its annotations say; or a class.

    Of a class, all public methods of its own do so, and its `__init__`. Annotations are read at the
    first call.

    Raises:
        ConfigError: from the function, for plain values: numbers, words, and tuples of them.
        DataError: from the function, for arrays and objects.

    >>> @checked
    ... def halved(number: float) -> float:
    ...     return number / 2
    >>> halved(3)
    1.5
    >>> halved("3")
    Traceback (most recent call last):
    bmdp.errors.ConfigError: number must be a number; got '3'.
    """
    if not isinstance(target, type):
        return _checked_function(target)
    for name, member in list(vars(target).items()):
        is_static = isinstance(member, staticmethod | classmethod)
        function = member.__func__ if is_static else member
        if isfunction(function) and (name == "__init__" or not name.startswith("_")):
            made = _checked_function(function)
            setattr(target, name, type(member)(made) if is_static else made)
    return target


def require_kind(name: str, value: Any, annotation: Any) -> None:
    """Checks that an argument is what an annotation says.

    Raises:
        ConfigError: if it is not, and plain values are asked for.
        DataError: if it is not, and arrays or objects are.

    >>> require_kind("budget_range", (0.0, "1"), tuple[float, float])
    Traceback (most recent call last):
    bmdp.errors.ConfigError: budget_range must be (a number, a number); got (0.0, '1').
    """
    _kind(annotation).require(name, value)


class _Kind(NamedTuple):
    """What an annotation asks for."""

    says: str  # after "must be"
    holds: Callable[[Any], bool]  # of a value
    error: type[BmdpError] = ConfigError

    def require(self, name: str, value: Any) -> None:
        """Raises if a value is of another kind."""
        if not self.holds(value):
            raise self.error(f"{name} must be {self.says}; got {told(value)}.")


def _checked_function(function: Any) -> Any:
    parameters = {p.name: p for p in signature(function).parameters.values() if p.kind not in _MANY}
    names = [name for name, p in parameters.items() if p.kind != Parameter.KEYWORD_ONLY]

    @cache
    def kinds() -> dict[str, _Kind]:
        """What is asked of each argument, of those of which something is."""
        hints = get_type_hints(function, localns=_Names(function.__module__))
        found = {name: _kind(hint) for name, hint in hints.items() if name in parameters}
        return {name: kind for name, kind in found.items() if kind is not _ANY}

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        asked = kinds()
        for name, value in zip(names, args, strict=False):
            if name in asked:
                asked[name].require(name, value)
        for name, value in named.items():
            if name in asked:
                asked[name].require(name, value)
        return function(*args, **named)

    return call


_MANY = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class _Names(dict[str, Any]):
    """Names of a module, with `ArrayLike` as one thing, and what type checkers alone see as any."""

    def __init__(self, module: str) -> None:
        super().__init__({**vars(builtins), **vars(sys.modules[module]), "ArrayLike": NDArray[Any]})

    def __missing__(self, name: str) -> Any:
        return _Unseen


class _Unseen:
    """What is imported for type checkers alone: not checked."""

    def __class_getitem__(cls, item: Any) -> Any:
        return cls


def _kind(annotation: Any) -> _Kind:
    """What an annotation asks for."""
    if isinstance(annotation, TypeVar):
        annotation = annotation.__bound__ or Any
    origin = get_origin(annotation) or annotation
    if origin in _PLAIN:
        return _PLAIN[origin]
    if origin in _MADE:
        return _MADE[origin](get_args(annotation))
    return _of_class(origin) if isinstance(origin, type) else _ANY


def _either(options: tuple[Any, ...]) -> _Kind:
    kinds = [_kind(option) for option in options]
    if _ANY in kinds:
        return _ANY
    of_arrays = [k.error for k in kinds if k.error is DataError]
    says = " or ".join(dict.fromkeys(k.says for k in kinds))
    return _Kind(says, lambda value: any(k.holds(value) for k in kinds), *of_arrays[:1])


def _one_of(words: tuple[Any, ...]) -> _Kind:
    def is_one(value: Any) -> bool:
        return isinstance(value, str | int) and value in words

    return _Kind(f"one of {', '.join(map(str, words))}", is_one)


def _tuple_of(parts: tuple[Any, ...]) -> _Kind:
    """Lists are as good, and arrays of one axis."""
    if not parts:
        return _Kind("a tuple", _is_list)
    if parts[-1] is Ellipsis:
        return _list_of(parts[:1])
    kinds = [_kind(part) for part in parts]

    def is_right(value: Any) -> bool:
        is_as_long = _is_list(value) and len(value) == len(kinds)
        return is_as_long and all(k.holds(v) for k, v in zip(kinds, value, strict=True))

    return _Kind(f"({', '.join(kind.says for kind in kinds)})", is_right)


def _list_of(parts: tuple[Any, ...]) -> _Kind:
    of = _kind(parts[0]) if parts else _ANY
    says = "a list" if of is _ANY else f"a list, each {of.says}"
    return _Kind(says, lambda value: _is_list(value) and all(map(of.holds, value)))


def _class_of(parts: tuple[Any, ...]) -> _Kind:
    return _Kind("a class", lambda value: isinstance(value, type))


def _of_class(cls: type[Any]) -> _Kind:
    """An instance; of a protocol, what has all that it asks for."""
    name = f"{'an' if cls.__name__[0] in 'AEIOU' else 'a'} {cls.__name__}"
    if not getattr(cls, "_is_protocol", False):
        return _Kind(name, lambda value: isinstance(value, cls))
    asked = [
        part
        for home in cls.__mro__
        if getattr(home, "_is_protocol", False)
        for part in (*vars(home), *getattr(home, "__annotations__", ()))
        if part == "__call__" or not part.startswith("_")
    ]

    def has_all(value: Any) -> bool:
        return not isinstance(value, type) and all(hasattr(value, part) for part in asked)

    return _Kind(name, has_all)


def _is_whole(value: Any) -> bool:
    is_one = is_number(value) and isinstance(value, int | np.integer)
    return is_one and -_WHOLE <= value < _WHOLE


def _is_real(value: Any) -> bool:
    return is_number(value) and (not isinstance(value, int) or abs(value) <= _LARGEST)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 1)


def _array_of(parts: tuple[Any, ...]) -> _Kind:
    """Lists are as good, if they are of equal lengths; of the type of values alone."""
    of = get_args(parts[-1])[0] if parts else Any
    holds = get_origin(of) or of
    name, types = _TYPES.get(holds, ("", ""))

    def is_one(value: Any) -> bool:
        if is_tensor(value):
            return True
        try:
            array = value if type(value) is np.ndarray else any_array("values", value)
        except DataError:
            return False
        is_right = not types or array.dtype.kind in types or not array.size
        return is_right and (array.ndim > 0 or array.dtype.kind != "O")

    return _Kind(
        f"an array{name}, with no row of another length and nothing masked", is_one, DataError
    )


_TYPES = {
    np.floating: (" of numbers", "fiub"),
    np.float64: (" of numbers", "fiub"),
    np.integer: (" of whole numbers", "iub"),
    np.bool_: (" of truth values", "b"),
}
_ANY = _Kind("anything", lambda value: True)
_PLAIN: dict[Any, _Kind] = {
    Any: _ANY,
    object: _ANY,
    _Unseen: _ANY,
    bool: _Kind("True or False", lambda value: isinstance(value, bool | np.bool_)),
    int: _Kind("a whole number", _is_whole),
    float: _Kind("a number", _is_real),
    str: _Kind("text", lambda value: isinstance(value, str)),
    NoneType: _Kind("None", lambda value: value is None),
    Callable: _Kind("a function", callable),
    Mapping: _Kind("a mapping", lambda value: isinstance(value, Mapping)),
    Iterable: _Kind(
        "a list",
        lambda value: isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping),
    ),
}
_MADE: dict[Any, Callable[[tuple[Any, ...]], _Kind]] = {
    Literal: _one_of,
    Union: _either,
    UnionType: _either,
    np.ndarray: _array_of,
    tuple: _tuple_of,
    list: _list_of,
    Sequence: _list_of,
    type: _class_of,
}
