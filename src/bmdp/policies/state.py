"""Trackers as plain data: what `tracker.state()` returns, and the checks of what `resume` is given.

A state is a dictionary of what JSON can say. Common to all of them are `format`, `policy` (the name
of its class), `step`, `has_decided` (whether an observation is due), `streams`, `budgets` and
`ended`; each tracker adds parts of its own. Keys of streams are words of 16 hexadecimal digits, as
some readers of JSON have no whole numbers of 64 bits. Numbers that are not finite are the words
"inf", "-inf" and "nan".

A state comes from outside, so nothing of it is used before it was checked, and nothing in it is
executed.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.checks import nearest
from bmdp.errors import PolicyError
from bmdp.randomness import EpisodeStreams

STATE_FORMAT = 1
"""Of the states that this version writes, and the only one that it reads."""

LARGEST = 2**62
"""Above any step and any number of an episode."""

_WORDS = {"inf": np.inf, "-inf": -np.inf, "nan": np.nan}
_KEY = re.compile(r"[0-9a-f]{16}")


def plain_numbers(values: NDArray[Any]) -> Any:
    """Returns an array as lists of numbers; those that are not finite are words.

    >>> plain_numbers(np.array([0.1, np.inf]))
    [0.1, 'inf']
    """
    is_finite = np.isfinite(values)
    if is_finite.all():
        return values.tolist()
    told = values.astype(object)
    told[~is_finite] = [str(value) for value in values[~is_finite].tolist()]
    return told.tolist()


def plain_streams(streams: EpisodeStreams) -> dict[str, Any]:
    """Returns streams as their key and the numbers of their episodes.

    >>> plain_streams(EpisodeStreams((1, 2**63), np.array([7])))
    {'key': ['0000000000000001', '8000000000000000'], 'episodes': [7]}
    """
    key = [f"{part:016x}" for part in streams.key]
    return {"key": key, "episodes": streams.episodes.tolist()}


class StateReader:
    """Parts of a state by name, each checked. What nobody asked for is unknown: see `finish`.

    Args:
        state: what is said to be a state.
        kind: name of the class of the policy that is to go on from it.

    Raises:
        PolicyError: if it is no dictionary, of another format, or of another kind of policy.

    >>> kept = StateReader({"format": 1, "policy": "Mine", "left": [1, -2]}, "Mine")
    >>> kept.whole_numbers("left", (2,), 0, 9)
    Traceback (most recent call last):
    bmdp.errors.PolicyError: state["left"] must be whole numbers from 0 to 9; got -2.
    """

    def __init__(self, state: Any, kind: str) -> None:
        """Checks the format and the kind."""
        self._state, self._asked = mapping("state", state), set[str]()
        found = self.item("format")
        if type(found) is not int or found != STATE_FORMAT:
            raise refusal('state["format"]', f"{STATE_FORMAT}, which this version reads", found)
        found = self.item("policy")
        if not isinstance(found, str) or found != kind:
            raise refusal('state["policy"]', f"{kind!r}, the policy that is to go on", found)

    def item(self, name: str) -> Any:
        """Returns a part as it is; the caller checks it."""
        self._asked.add(name)
        if name not in self._state:
            raise PolicyError(f'state["{name}"] is missing: it is not what tracker.state() said.')
        return self._state[name]

    def truth(self, name: str) -> bool:
        """Returns a part that is true or false."""
        return bool(_array(f'state["{name}"]', self.item(name), (), "true or false", _truth))

    def truths(self, name: str, shape: tuple[int, ...]) -> BoolArray:
        """Returns an array of true and false."""
        found = _array(f'state["{name}"]', self.item(name), shape, "true or false", _truth)
        return found.astype(np.bool_)

    def whole_number(self, name: str, least: int, most: int) -> int:
        """Returns a whole number of a range."""
        return int(whole_numbers(f'state["{name}"]', self.item(name), (), least, most))

    def whole_numbers(
        self, name: str, shape: tuple[int, ...], least: int, most: int, dtype: Any = np.int64
    ) -> IntArray:
        """Returns an array of whole numbers of a range."""
        found = whole_numbers(f'state["{name}"]', self.item(name), shape, least, most)
        return found.astype(dtype)

    def numbers(self, name: str, shape: tuple[int, ...], words: tuple[str, ...] = ()) -> FloatArray:
        """Returns an array of finite numbers, or of some that are not and stand as words."""
        rule = " or ".join(("finite numbers", *words))
        known = {word: _WORDS[word] for word in words}
        return _array(f'state["{name}"]', self.item(name), shape, rule, lambda x: _number(x, known))

    def streams(self) -> EpisodeStreams:
        """Returns the streams of random numbers."""
        kept = mapping('state["streams"]', self.item("streams"))
        if set(kept) != {"key", "episodes"}:
            rule = "a key and numbers of episodes"
            raise refusal('state["streams"]', rule, sorted(map(str, kept)))
        key, episodes = kept["key"], kept["episodes"]
        if not (
            isinstance(key, list)
            and len(key) == 2
            and all(isinstance(part, str) and _KEY.fullmatch(part) for part in key)
        ):
            rule = "two words of 16 hexadecimal digits"
            raise refusal('state["streams"]["key"]', rule, key)
        where = 'state["streams"]["episodes"]'
        shape = (len(sequence(where, episodes)),)
        numbers = whole_numbers(where, episodes, shape, 0, LARGEST)
        return EpisodeStreams((int(key[0], 16), int(key[1], 16)), numbers)

    def finish(self) -> None:
        """Checks that there is nothing else in the state."""
        unknown = [name for name in self._state if name not in self._asked]
        if unknown:
            near = nearest(unknown[0], self._asked) if isinstance(unknown[0], str) else ""
            raise PolicyError(f"state has an unknown part {_told(unknown[0])}.{near}")


def mapping(where: str, value: Any) -> Mapping[Any, Any]:
    """Checks that something is a dictionary."""
    if not isinstance(value, dict):
        raise refusal(where, "a dictionary, as tracker.state() returns it", value)
    return value


def sequence(where: str, value: Any) -> list[Any]:
    """Checks that something is a list."""
    if not isinstance(value, list):
        raise refusal(where, "a list", value)
    return value


def whole_numbers(
    where: str, value: Any, shape: tuple[int, ...], least: int, most: int
) -> IntArray:
    """Checks whole numbers of a range, in lists of a shape."""
    kind = "a whole number" if shape == () else "whole numbers"
    rule = f"{kind} from {least} on" if most == LARGEST else f"{kind} from {least} to {most}"

    def whole(item: Any) -> int | None:
        return item if type(item) is int and least <= item <= most else None

    return _array(where, value, shape, rule, whole, np.int64)


def refusal(where: str, rule: str, given: Any) -> PolicyError:
    """Returns the error of a part that is not what it must be."""
    return PolicyError(f"{where} must be {rule}; got {_told(given)}.")


def state_of(tracker: Any) -> dict[str, Any]:
    """Returns the state of a tracker that another one follows.

    Raises:
        PolicyError: if it cannot say it.
    """
    if not hasattr(tracker, "state"):
        raise PolicyError(
            f"{type(tracker).__name__} has no state(): its episodes cannot be carried elsewhere."
        )
    state: dict[str, Any] = tracker.state()
    return state


def resumed(policy: Any, state: Any, where: str) -> Any:
    """Returns the tracker of a policy that another one follows, from a part of its state.

    Raises:
        PolicyError: saying which part it is.
    """
    if not hasattr(policy, "resume"):
        raise PolicyError(f"{type(policy).__name__} has no resume(state): it cannot go on.")
    try:
        return policy.resume(state)
    except PolicyError as error:
        raise PolicyError(f"{where}: {error}") from None


def _array(
    where: str, value: Any, shape: tuple[int, ...], rule: str, read: Any, dtype: Any = np.float64
) -> NDArray[Any]:
    """Items in lists of a shape, each read by a function that says None of a wrong one."""
    items = [value]
    for length in shape:
        for item in items:
            if not isinstance(item, list) or len(item) != length:
                raise refusal(where, f"{rule}, in lists of shape {list(shape)}", item)
        items = [inner for item in items for inner in item]
    found = [read(item) for item in items]
    for item, one in zip(items, found, strict=True):
        if one is None:
            raise refusal(where, rule, item)
    return np.array(found, dtype).reshape(shape)


def _truth(item: Any) -> bool | None:
    return item if type(item) is bool else None


def _number(item: Any, words: Mapping[str, float]) -> float | None:
    if type(item) is str:
        return words.get(item)
    if type(item) not in (int, float):
        return None
    try:
        number = float(item)
    except OverflowError:
        return None
    return number if np.isfinite(number) else None


def _told(given: Any) -> str:
    """A value in a few words, on one line."""
    try:
        return " ".join(reprlib.repr(given).split())
    except Exception:  # of a number of more digits than Python writes, or of a strange class
        return f"a value of type {type(given).__name__}"
