"""Which column of a table is which: by the names given, or else by the names in common use.

States are one column of lists, or one column of numbers, or several columns: named one by one, or
numbered, as `state_0, state_1, ...`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import any_array, real_array
from bmdp.checks import nearest
from bmdp.data import checks
from bmdp.data.episodes import counted_steps, following_states, numbered_by_ends, rows_follow
from bmdp.errors import DataError
from bmdp.kinds import checked

Discretise = Callable[[NDArray[Any]], ArrayLike]
"""From actions of K numbers, `[N, K]`, to whole numbers from 0 on, `[N]`."""

_COMMON = {
    "state": ("state", "states", "obs", "observation", "observations", "s"),
    "action": ("action", "actions", "a"),
    "reward": ("reward", "rewards", "r"),
    "cost": ("cost", "costs", "c"),
    "next_state": (
        "next_state",
        "next_states",
        "next_obs",
        "next_observation",
        "next_observations",
        "s2",
    ),
    "terminal": ("terminal", "terminals", "terminated", "done", "dones"),
    "truncated": ("truncated", "timeout", "timeouts"),
    "episode": ("episode", "episode_id"),
    "step": ("step", "t", "timestep"),
    "budget": ("budget", "beta"),
    "next_budget": ("next_budget", "next_beta"),
    "probability": ("probability", "prob", "propensity"),
    "available": ("available", "action_mask", "mask", "available_actions"),
    "next_available": (
        "next_available",
        "next_action_mask",
        "next_mask",
        "next_available_actions",
    ),
}

_WIDE = ("state", "next_state", *checks.MASKS)  # that may be in several columns


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of the columns of a table, for those that do not have a common name.

    States are a column of lists or of numbers, or the prefix of numbered columns (`"x"` or `"x_"`
    of `x_0, x_1, ...`), or a tuple of columns. So are available actions.

    >>> Columns(state=("speed", "distance"), cost="damage").cost
    'damage'
    """

    state: str | tuple[str, ...] | None = None  # what was seen
    action: str | tuple[str, ...] | None = None  # a tuple: numbers, to be made whole ones
    reward: str | None = None  # of a step
    cost: str | None = None  # of a step
    next_state: str | tuple[str, ...] | None = None  # what was seen after it
    terminal: str | None = None  # whether the process ended
    truncated: str | None = None  # whether the log stops, and the process goes on
    episode: str | None = None  # number of the episode
    step: str | None = None  # number of the step in it, from 0
    budget: str | None = None  # held before the decision
    next_budget: str | None = None  # handed on
    probability: str | None = None  # of the action under the policy that was logged
    available: str | tuple[str, ...] | None = None  # whether each action could be taken
    next_available: str | tuple[str, ...] | None = None  # the same at the next state

    @classmethod
    @checked
    def from_names(cls, names: dict[str, Any]) -> Columns:
        """Returns columns by field.

        Raises:
            DataError: if there is no such field.
        """
        unknown = sorted(names.keys() - {f.name for f in fields(cls)})
        if unknown:
            known, near = ", ".join(checks.FIELDS), nearest(unknown[0], checks.FIELDS)
            raise DataError(f"a column must be one of {known}; got {unknown[0]!r}.{near}")
        return cls(**names)

    @classmethod
    @checked
    def from_text(cls, text: str) -> Columns:
        """Returns columns as a command line names them: fields, and columns joined by `+`.

        Raises:
            DataError: if there is no such field, or one is there twice.

        >>> Columns.from_text("cost=damage,state=age+income").state
        ('age', 'income')
        """
        names: dict[str, Any] = {}
        for part in text.split(","):
            field, equals, given = (word.strip() for word in part.partition("="))
            several = tuple(name.strip() for name in given.split("+"))
            if not equals or not field or not all(several):
                raise DataError(
                    f"columns must be like action=hurry,state=age+income; got {part!r}."
                )
            if field in names:
                raise DataError(f"columns must name a field once; got {field!r} twice.")
            names[field] = several[0] if len(several) == 1 else several
        return cls.from_names(names)

    def as_dict(self) -> dict[str, Any]:
        """Returns the names that are given, by field, as JSON has it."""
        named = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            field: list(given) if isinstance(given, tuple) else given
            for field, given in named.items()
            if given is not None
        }

    @classmethod
    @checked
    def from_dict(cls, names: dict[str, Any]) -> Columns:
        """Returns columns of what `as_dict` told.

        Raises:
            DataError: if there is no such field.
        """
        return cls.from_names({f: tuple(n) if isinstance(n, list) else n for f, n in names.items()})


@dataclass(frozen=True)
class LogTable:
    """Named columns, loaded when they are asked for."""

    source: str  # as errors call it
    names: tuple[str, ...]
    load: Callable[[Sequence[str]], list[NDArray[Any]]]
    n_actions: Any = None  # as found: the batch checks it
    state_names: tuple[str, ...] | None = None  # of the numbers of a state, if they are known
    is_complete: bool = False  # what it does not say is not to be inferred
    categories: frozenset[str] = frozenset()  # columns that are said to be of categories
    checksum: str | None = None  # of the batch that was written, if this library wrote it


def fields_of(
    table: LogTable, columns: Columns | None = None, discretise: Discretise | None = None
) -> dict[str, Any]:
    """Returns the fields of a batch that a table has.

    Unless the table is complete, what it does not say is inferred: episodes by counting ends, if
    rows are in order, next states from the next row of the same episode, and steps by counting the
    rows of an episode, if they are in order.

    Raises:
        DataError: if a column is missing, or next states cannot be inferred.
    """
    where = chosen_columns(table, columns)
    found: dict[str, Any] = {field: _loaded(field, table, where[field]) for field in where}
    if discretise is not None:
        found["action"] = _discretised(any_array("action", found["action"]), discretise)
    if "episode" in found:
        found["episode"] = _numbered_names(any_array("episode", found["episode"]))
    if not table.is_complete:
        found = _completed(found)
    return found | {
        "state_names": table.state_names or _state_names(where["state"], found["state"])
    }


def chosen_columns(table: LogTable, columns: Columns | None) -> dict[str, tuple[str, ...]]:
    """Returns the columns of each field that a table has.

    Raises:
        DataError: if a column is missing.
    """
    if not isinstance(columns, Columns | None):
        raise DataError(f"columns must be of type Columns; got {type(columns).__name__}.")
    where = _chosen(table, columns or Columns())
    needed = [f for f in checks.REQUIRED if table.is_complete or f != "next_state"]
    for field in needed:
        if field not in where:
            raise DataError(
                f"{field} must be a column of {table.source}, such as {' or '.join(_COMMON[field])}"
                f"; found are {', '.join(table.names)}. If one of these is it, name it by "
                f"columns=bmdp.Columns({field}=...), or --columns {field}=..."
                f"{checks.what_to_give(field)}"
            )
    return where


def _discretised(actions: NDArray[Any], discretise: Discretise) -> ArrayLike:
    """Actions of numbers as whole numbers."""
    if not callable(discretise):
        raise DataError(f"discretise must be a function; got {type(discretise).__name__}.")
    return discretise(actions.reshape(len(actions), -1) if actions.ndim else actions)


def _completed(found: dict[str, Any]) -> dict[str, Any]:
    """Adds episodes, next states and steps that are not known, where they follow from the rest."""
    state = checks.states("state", found["state"])
    terminal = checks.flags("terminal", found["terminal"])
    shapes = {any_array(name, values).shape[:1] for name, values in found.items()}
    if shapes != {(len(state),)} or not len(state):
        return {"next_state": state} | found  # the batch says what is wrong
    ended = terminal | checks.flags("truncated", found.get("truncated", np.zeros(len(terminal))))
    step = checks.whole_numbers("step", found["step"]) if "step" in found else None
    if "episode" in found:
        episode = checks.whole_numbers("episode", found["episode"])
    else:
        episode = numbered_by_ends(ended, step)
    if "next_state" not in found:
        after = following_states(state, terminal, episode, step)
        found = found | {"next_state": after, "episode": episode}
    after = checks.states("next_state", found["next_state"])
    if after.shape != state.shape:
        return found
    if "episode" not in found and rows_follow(state, after, episode):
        found = found | {"episode": episode}
    if "episode" in found and step is None:
        counted = counted_steps(state, after, ended, episode)
        return found if counted is None else found | {"step": counted}
    return found


def _chosen(table: LogTable, columns: Columns) -> dict[str, tuple[str, ...]]:
    """Returns the columns of each field, those that were named first."""
    named = {f.name: getattr(columns, f.name) for f in fields(columns)}
    where = {f: _named(f, given, table) for f, given in named.items() if given is not None}
    taken = {name for names in where.values() for name in names}
    for field in checks.FIELDS:
        if field not in where:
            match = _guessed(field, [n for n in table.names if n not in taken])
            taken.update(match)
            where |= {field: match} if match else {}
    return where


def _named(field: str, given: str | tuple[str, ...], table: LogTable) -> tuple[str, ...]:
    several = given if isinstance(given, tuple) else (given,)
    if not all(isinstance(name, str) for name in several):
        raise DataError(f"{field} must be named by a word, or a tuple of words; got {given!r}.")
    if len(set(several)) < len(several):
        raise DataError(f"{field} must be in different columns; got {', '.join(several)}.")
    if several and set(several) <= set(table.names):
        return several
    if isinstance(given, str) and field in _WIDE:
        numbered = _numbered(given, table.names, starts=(0, 1))
        if numbered:
            return numbered
    wrong = next((name for name in several if name not in table.names), "")
    raise DataError(
        f"{field} must be in columns of {table.source}; {given!r} is not among "
        f"{', '.join(table.names)}.{nearest(wrong, table.names)}"
    )


def _guessed(field: str, names: Sequence[str]) -> tuple[str, ...]:
    for name in _COMMON[field]:
        if name in names:
            return (name,)
        numbered = _numbered(name, names, starts=(0,)) if field in _WIDE else ()
        if numbered:
            return numbered
    return ()


def _numbered(prefix: str, names: Sequence[str], starts: tuple[int, ...]) -> tuple[str, ...]:
    """Returns the columns that are a prefix and a number, by number; none if the first is another.

    Raises:
        DataError: if numbers are missing, or twice there.
    """
    pattern = re.compile(re.escape(prefix) + r"_?(\d+)")
    found = sorted((int(m[1]), name) for name in names if (m := pattern.fullmatch(name)))
    if not found or found[0][0] not in starts:
        return ()
    if [number - found[0][0] for number, _ in found] != list(range(len(found))):
        listed = ", ".join(name for _, name in found)
        raise DataError(f"columns of {prefix!r} must be numbered without gaps; got {listed}.")
    return tuple(name for _, name in found)


def _state_names(names: tuple[str, ...], state: Any) -> tuple[str, ...] | None:
    """Names of the numbers of a state, where its columns say more than a number."""
    if len(names) == 1 and getattr(state, "ndim", 0) != 1:  # a column of lists
        return None
    pattern = re.compile(rf"({'|'.join(_COMMON['state'])})_?\d*")
    return None if all(map(pattern.fullmatch, names)) else names


def _loaded(field: str, table: LogTable, names: tuple[str, ...]) -> NDArray[Any]:
    arrays = table.load(names)
    for name, array in zip(names, arrays, strict=True):
        kind = getattr(array, "dtype", np.dtype(float))
        if "state" in field and kind.kind in "OSUTMm":
            raise DataError(
                f"{name} must be an array of real numbers; got type {kind}. "
                "bmdp.fit and bmdp.data.load_log turn text and dates into numbers."
            )
    if len(names) == 1:
        return arrays[0]
    parts = [real_array(name, array) for name, array in zip(names, arrays, strict=True)]
    bad = [f"{n} has {list(p.shape)}" for n, p in zip(names, parts, strict=True) if p.ndim != 1]
    if bad or len({len(part) for part in parts}) > 1:
        raise DataError(
            f"{field} must be of columns [N] of numbers; {bad[0] if bad else 'lengths differ'}."
        )
    return np.stack(parts, axis=1)


def _numbered_names(episode: NDArray[Any]) -> NDArray[Any]:
    """Returns episodes that have names by number, in the order in which they appear."""
    if episode.dtype.kind not in "OUST" or episode.ndim != 1:
        return episode
    names = episode.astype(object)
    checks.require_rows("episode", "be there", np.array([not isinstance(n, str) for n in names]))
    _, first, which = np.unique(names.astype(str), return_index=True, return_inverse=True)
    numbers: NDArray[Any] = np.argsort(np.argsort(first))[which]
    return numbers
