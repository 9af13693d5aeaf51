"""Kinds of arguments, as annotations say them: what a public call refuses before it begins.

`checked` stands over a function, or over a class for all its public methods. It looks at each
argument as far as its annotation goes: that a number is one, a word is one of those that are known,
an array is no ragged list. Ranges, shapes and what arrays hold are checked by the call itself.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, isfunction, signature
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from bmdp.arrays import any_array, is_tensor
from bmdp.checks import is_number, reached, told
from bmdp.errors import BmdpError, BudgetError, ConfigError, DataError, StoreError

T = TypeVar("T")

_BUDGETS = ("beta", "budget", "budgets")  # arguments that have an error of their own
_LOGS = ("TransitionBatch", "StoredLog", "EncodedLog")
_LARGEST = int(sys.float_info.max)


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
        function: T = _checked_function(target)
        return function
    for name, member in list(vars(target).items()):
        is_static = isinstance(member, staticmethod | classmethod)
        inner = member.__func__ if is_static else member
        if isfunction(inner) and (name == "__init__" or not name.startswith("_")):
            made = _checked_function(inner)
            setattr(target, name, type(member)(made) if is_static else made)
    return target


class _Kind(NamedTuple):
    """A kind of argument, as an annotation says it."""

    says: str  # after "must be"
    holds: Callable[[Any], bool]  # of a value
    error: type[BmdpError] = ConfigError
    made: Callable[[Any], Any] = lambda value: value  # what is handed on of a value
    types: frozenset[type] = frozenset()  # whose values are all of this kind, as they are
    arrays: str = ""  # the same, of arrays with axes: codes of their types

    def is_sure(self, value: Any) -> bool:
        """Whether a value needs no closer look, as nearly all in a loop over decisions."""
        if type(value) is np.ndarray:
            return value.ndim > 0 and value.dtype.kind in self.arrays
        return type(value) in self.types

    def taken(self, name: str, value: Any) -> Any:
        """Returns a value of this kind; raises if it is of another one."""
        if not self.holds(value):
            if self.error is DataError and isinstance(value, list | tuple | np.ndarray):
                any_array(name, value)  # which says more of ragged lists, and of masked arrays
            error = BudgetError if name in _BUDGETS and "number" in self.says else self.error
            raise error(f"{name} must be {self.says}; got {told(value)}.")
        return self.made(value)


def _checked_function(function: Any) -> Any:
    parameters = {p.name: p for p in signature(function).parameters.values() if p.kind not in _MANY}
    names = [name for name, p in parameters.items() if p.kind != Parameter.KEYWORD_ONLY]

    @cache
    def kinds() -> tuple[list[_Kind], dict[str, _Kind]]:
        """Kinds of the arguments in their order, and of all by name."""
        hints = get_type_hints(function, localns=_Names(function.__module__))
        by_name = {name: _kind(hints.get(name, Any)) for name in parameters}
        return [by_name[name] for name in names], by_name

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        in_order, by_name = kinds()
        taken = list(args)
        for i, (kind, value) in enumerate(zip(in_order, args, strict=False)):
            if kind is not _ANY and not kind.is_sure(value):
                taken[i] = kind.taken(names[i], value)
        for name, value in named.items():
            kind = by_name.get(name, _ANY)
            if kind is not _ANY and not kind.is_sure(value):
                named[name] = kind.taken(name, value)
        return function(*taken, **named)

    return call


_MANY = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class _Names(dict[str, Any]):
    """Names of a module, with `ArrayLike` as one thing, and what type checkers alone see as any."""

    def __init__(self, module: str) -> None:
        super().__init__({**vars(builtins), **vars(sys.modules[module]), "ArrayLike": _ArrayLike})

    def __missing__(self, name: str) -> Any:
        return _Unseen


class _ArrayLike:
    """Numbers of which numpy makes an array, a single one too."""


class _Unseen:
    """A name that is imported for type checkers alone: not checked."""

    def __class_getitem__(cls, item: Any) -> Any:
        return cls


def _kind(annotation: Any) -> _Kind:
    """A kind of argument, as an annotation says it."""
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
    errors = {k.error for k in kinds}
    error = next((e for e in (DataError, StoreError) if e in errors), ConfigError)
    is_path = _PLAIN[os.PathLike] in kinds  # a text is a path, too
    told_of = [k.says for k in kinds if not (is_path and k is _PLAIN[str])]
    says = " or ".join(dict.fromkeys(told_of))

    def made(value: Any) -> Any:
        if is_path and isinstance(value, str | os.PathLike):
            reached(value)
        return next(k for k in kinds if k.holds(value)).made(value)

    types = frozenset[type]().union(*(k.types for k in kinds))
    arrays = "" if any(k.made is _as_tuple for k in kinds) else "".join(k.arrays for k in kinds)
    return _Kind(says, lambda value: any(k.holds(value) for k in kinds), error, made, types, arrays)


def _one_of(words: tuple[Any, ...]) -> _Kind:
    def is_one(value: Any) -> bool:
        return isinstance(value, str | int) and value in words

    return _Kind(f"one of {', '.join(map(str, words))}", is_one)


def _tuple_of(parts: tuple[Any, ...]) -> _Kind:
    """Lists are as good, and arrays of one axis."""
    if not parts:
        return _Kind("a tuple", _is_list, made=_as_tuple)
    if parts[-1] is Ellipsis:
        return _list_of(parts[:1])
    kinds = [_kind(part) for part in parts]

    def is_right(value: Any) -> bool:
        is_as_long = _is_list(value) and len(value) == len(kinds)
        return is_as_long and all(k.holds(v) for k, v in zip(kinds, value, strict=True))

    return _Kind(f"({', '.join(kind.says for kind in kinds)})", is_right, made=_as_tuple)


def _list_of(parts: tuple[Any, ...]) -> _Kind:
    of = _kind(parts[0]) if parts else _ANY
    says = "a list" if of is _ANY else f"a list, each {of.says}"
    return _Kind(says, lambda value: _is_list(value) and all(map(of.holds, value)), made=_as_tuple)


def _class_of(parts: tuple[Any, ...]) -> _Kind:
    return _Kind("a class", lambda value: isinstance(value, type))


def _of_class(cls: type[Any]) -> _Kind:
    """An instance; of a protocol, what has one of its methods: which it needs, the call knows."""
    name = f"{'an' if cls.__name__[0] in 'AEIOU' else 'a'} {cls.__name__}"
    if not getattr(cls, "_is_protocol", False):
        error = DataError if cls.__name__ in _LOGS else ConfigError
        return _Kind(name, lambda value: isinstance(value, cls), error, types=frozenset([cls]))
    asked = [
        part
        for home in cls.__mro__
        if getattr(home, "_is_protocol", False)
        for part in (*vars(home), *getattr(home, "__annotations__", ()))
        if part == "__call__" or not part.startswith("_")
    ]

    def is_like_one(value: Any) -> bool:
        home = type(value).__module__.partition(".")[0]
        is_plain = isinstance(value, type) or home in ("builtins", "numpy", "torch")
        return any(hasattr(value, part) for part in asked) and not is_plain

    return _Kind(name, is_like_one)


def _is_whole(value: Any) -> bool:
    is_one = is_number(value) and isinstance(value, int | np.integer)
    return is_one and -(2**63) <= value < 2**64


def _is_real(value: Any) -> bool:
    return is_number(value) and (not isinstance(value, int) or abs(value) <= _LARGEST)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 1)


def _array_of(parts: tuple[Any, ...]) -> _Kind:
    """An array with axes, of the type of values; lists are as good, if their lengths are equal."""
    of = get_args(parts[-1])[0]
    name, types = _TYPES.get(get_origin(of) or of, ("", ""))

    def is_one(value: Any) -> bool:
        if is_tensor(value):
            return bool(value.ndim > 0 and not value.requires_grad)
        array = _made(value)
        is_right = array is not None and array.ndim > 0
        return is_right and (not types or array.dtype.kind in types or not array.size)

    return _Kind(f"an array{name}", is_one, DataError, _as_array, arrays=types)


def _as_array(value: Any) -> Any:
    return value if is_tensor(value) else _made(value)


def _as_tuple(value: Any) -> Any:
    return tuple(value.tolist()) if isinstance(value, np.ndarray) else value


def _is_array_like(value: Any) -> bool:
    array = _made(value)
    return array is not None and array.dtype.kind in "fiub"


def _made(value: Any) -> Any:
    """An array of a value, or None if there is none."""
    if type(value) is np.ndarray:
        return value
    try:
        return any_array("values", value)
    except DataError:
        return None


_TYPES = {
    np.floating: (" of real numbers", "fiub"),
    np.float64: (" of real numbers", "fiub"),
    np.integer: (" of whole numbers", "iub"),
    np.bool_: (" of truth values", "b"),
}
_ANY = _Kind("anything", lambda value: True)
_PLAIN: dict[Any, _Kind] = {
    Any: _ANY,
    object: _ANY,
    _Unseen: _ANY,
    _ArrayLike: _Kind("an array of real numbers", _is_array_like, DataError, arrays="fiub"),
    bool: _Kind(
        "True or False", lambda value: isinstance(value, bool | np.bool_), types=frozenset([bool])
    ),
    int: _Kind("a whole number", _is_whole),
    float: _Kind("a number", _is_real, types=frozenset([float])),
    os.PathLike: _Kind(
        "the name of a file or folder", lambda value: isinstance(value, os.PathLike), StoreError
    ),
    str: _Kind("text", lambda value: isinstance(value, str) and "\0" not in value),
    NoneType: _Kind("None", lambda value: value is None, types=frozenset([NoneType])),
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
