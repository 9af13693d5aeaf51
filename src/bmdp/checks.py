"""Checks of single settings, where they are made: in Python as well as from JSON."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

import numpy as np

from bmdp.errors import ConfigError


def require_count(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Checks that a setting is a whole number of a range; `most` is within it.

    Raises:
        ConfigError: naming the setting, the range, and what was given.

    >>> require_count("workers", 0, 1)
    Traceback (most recent call last):
    bmdp.errors.ConfigError: workers must be a whole number from 1 on; got 0.
    """
    is_whole = _is_number(value) and isinstance(value, int | np.integer)
    if not is_whole or value < least or (most is not None and value > most):
        rule = f"from {least} on" if most is None else f"from {least} to {most}"
        raise ConfigError(f"{name} must be a whole number {rule}; got {value!r}.")


def require_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Checks that a setting is one of some words.

    Raises:
        ConfigError: naming the setting, the choices, and what was given.

    >>> require_choice("start", "cold", ("warm", "restart"))
    Traceback (most recent call last):
    bmdp.errors.ConfigError: start must be one of warm, restart; got 'cold'.
    """
    known = tuple(choices)
    if value not in known:
        raise ConfigError(f"{name} must be one of {', '.join(known)}; got {value!r}.")


def require_name(what: str, name: str, known: Iterable[str]) -> None:
    """Checks that something of a name is known.

    Raises:
        ConfigError: if not, with all names and the nearest one.

    >>> require_name("size", "smok", ("smoke", "quick"))
    Traceback (most recent call last):
    bmdp.errors.ConfigError: no size is called 'smok'; there are smoke, quick. Did you mean 'smoke'?
    """
    names = list(known)
    if name not in names:
        there, near = ", ".join(names), nearest(name, names)
        raise ConfigError(f"no {what} is called {name!r}; there are {there}.{near}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a question whether another name was meant; nothing, if none is near.

    >>> nearest("bridg", ("bridge", "ladder"))
    " Did you mean 'bridge'?"
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def require_share(name: str, value: Any) -> None:
    """Checks that a setting is from 0 to 1.

    Raises:
        ConfigError: naming the setting, and what was given.

    >>> require_share("gamma", 1.5)
    Traceback (most recent call last):
    bmdp.errors.ConfigError: gamma must be from 0 to 1; got 1.5.
    """
    if not (_is_number(value) and 0 <= value <= 1):
        raise ConfigError(f"{name} must be from 0 to 1; got {_told(value)}.")


def require_rising(name: str, ends: Any) -> None:
    """Checks that the two ends of a range are finite, and the second is above the first.

    Raises:
        ConfigError: naming the setting, and what was given.

    >>> require_rising("budget_range", (1.0, 1.0))
    Traceback (most recent call last):
    bmdp.errors.ConfigError: budget_range must be two rising numbers; got 1.0 and 1.0.
    """
    given = tuple(ends) if isinstance(ends, Iterable) else (ends,)
    if not (
        len(given) == 2 and all(map(_is_number, given)) and -np.inf < given[0] < given[1] < np.inf
    ):
        told = " and ".join(map(_told, given))
        raise ConfigError(f"{name} must be two rising numbers; got {told}.")


def require_from_0(name: str, value: Any) -> None:
    """Checks that a setting is a number from 0 on.

    Raises:
        ConfigError: naming the setting, and what was given.

    >>> require_from_0("slope_cap", -1)
    Traceback (most recent call last):
    bmdp.errors.ConfigError: slope_cap must be from 0 on; got -1.
    """
    if not (_is_number(value) and value >= 0):
        raise ConfigError(f"{name} must be from 0 on; got {_told(value)}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _told(value: Any) -> str:
    return str(value) if _is_number(value) else repr(value)
