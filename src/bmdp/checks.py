"""Checks of single settings, where they are made: in Python as well as from JSON."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bmdp.arrays import MAGNITUDE
from bmdp.errors import ConfigError, StoreError

MOST = 2**31
"""No count is larger, unless a smaller one is its most."""

_MOST_LETTERS = 120  # of a value in an error


def is_number(value: Any) -> bool:
    """Whether something is a single real number; True and False are none.

    >>> is_number(np.float32(1)), is_number(True), is_number("1")
    (True, False, False)
    """
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def told(value: Any) -> str:
    """Returns a value as errors tell it: on one line, and not a long one.

    >>> told(np.zeros((2, 3))), told(np.float64(0.5)), told(10**400)
    ('float64 of shape [2, 3]', '0.5', 'a whole number of 1329 bits')
    """
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None and not is_number(value):
        return f"{dtype} of shape {list(shape)}"
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a whole number of {value.bit_length()} bits"
    try:
        text = " ".join((str(value) if is_number(value) else repr(value)).split())
    except Exception:  # a class that is not ours may raise any
        text = f"a {type(value).__name__}"
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}..."


def require_count(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Checks that a setting is a whole number of a range; `most` is within it.

    Raises:
        ConfigError: naming the setting, the range, and what was given.

    >>> require_count("workers", 0, 1)
    Traceback (most recent call last):
    bmdp.errors.ConfigError: workers must be a whole number from 1 on; got 0.
    """
    is_whole = is_number(value) and isinstance(value, int | np.integer)
    if not is_whole or not least <= value <= (MOST if most is None else most):
        is_open = most is None and not (is_whole and value > MOST)
        rule = (
            f"from {least} on" if is_open else f"from {least} to {MOST if most is None else most}"
        )
        raise ConfigError(f"{name} must be a whole number {rule}; got {told(value)}.")


def require_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Checks that a setting is one of some words.

    Raises:
        ConfigError: naming the setting, the choices, and what was given.

    >>> require_choice("start", "cold", ("warm", "restart"))
    Traceback (most recent call last):
    bmdp.errors.ConfigError: start must be one of warm, restart; got 'cold'.
    """
    known = tuple(choices)
    if not isinstance(value, str) or value not in known:
        raise ConfigError(f"{name} must be one of {', '.join(known)}; got {told(value)}.")


def require_name(what: str, name: str, known: Iterable[str]) -> None:
    """Checks that something of a name is known.

    Raises:
        ConfigError: if not, with all names and the nearest one.

    >>> require_name("size", "smok", ("smoke", "quick"))
    Traceback (most recent call last):
    bmdp.errors.ConfigError: no size is called 'smok'; there are smoke, quick. Did you mean 'smoke'?
    """
    names = list(known)
    if not isinstance(name, str) or name not in names:
        there, near = ", ".join(names), nearest(name, names)
        raise ConfigError(f"no {what} is called {told(name)}; there are {there}.{near}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a question whether another name was meant; nothing, if none is near.

    >>> nearest("bridg", ("bridge", "ladder"))
    " Did you mean 'bridge'?"
    """
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def reached(path: str | os.PathLike[str]) -> Path:
    """Returns a path of which can be told whether something is there, and what is in it.

    Raises:
        StoreError: if that cannot be told: its name is too long, or a folder may not be entered.

    >>> reached("nothing/here").name
    'here'
    >>> reached("long" * 100)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    bmdp.errors.StoreError: longlong...long cannot be opened: File name too long.
    """
    try:
        os.stat(os.path.join(path, "."))  # which looks into a folder
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # the latter of characters that no name has
        why = getattr(error, "strerror", None) or error
        raise StoreError(f"{path} cannot be opened: {why}.") from error
    return Path(path)


def require_share(name: str, value: Any) -> None:
    """Checks that a setting is from 0 to 1.

    Raises:
        ConfigError: naming the setting, and what was given.

    >>> require_share("gamma", 1.5)
    Traceback (most recent call last):
    bmdp.errors.ConfigError: gamma must be from 0 to 1; got 1.5.
    """
    if not (is_number(value) and 0 <= value <= 1):
        raise ConfigError(f"{name} must be from 0 to 1; got {told(value)}.")


def require_rising(name: str, ends: Any) -> None:
    """Checks that the two ends of a range are finite, and the second is above the first.

    Raises:
        ConfigError: naming the setting, and what was given.

    >>> require_rising("budget_range", (1.0, 1.0))
    Traceback (most recent call last):
    bmdp.errors.ConfigError: budget_range must be two rising numbers; got 1.0 and 1.0.
    """
    given = tuple(ends) if isinstance(ends, Sequence | np.ndarray) else ()
    is_pair = len(given) == 2 and all(map(is_number, given))
    if not (is_pair and -MAGNITUDE <= given[0] < given[1] <= MAGNITUDE):
        got = " and ".join(map(told, given)) if len(given) == 2 else told(ends)
        raise ConfigError(f"{name} must be two rising numbers; got {got}.")


def require_from_0(name: str, value: Any, most: float = np.inf) -> None:
    """Checks that a setting is a number from 0 on; `most` is within the range.

    Raises:
        ConfigError: naming the setting, and what was given.

    >>> require_from_0("slope_cap", -1)
    Traceback (most recent call last):
    bmdp.errors.ConfigError: slope_cap must be from 0 on; got -1.
    """
    if not (is_number(value) and 0 <= value <= most):
        rule = "on" if most == np.inf or not (is_number(value) and value > most) else f"to {most}"
        raise ConfigError(f"{name} must be from 0 {rule}; got {told(value)}.")
