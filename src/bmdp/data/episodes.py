"""Episodes in a log: their beginnings, the order of rows, folds, and several logs as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.data.checks import FIELDS, MASKS, require_rows
from bmdp.errors import DataError


def numbered_by_ends(ended: BoolArray, step: IntArray | None = None) -> IntArray:
    """Returns the number of each row's episode, where rows are in order.

    Args:
        ended: `[N]`, whether an episode ends with the row.
        step: `[N]`, of the row in its episode. Where it does not go up, an episode begins too.

    >>> numbered_by_ends(np.array([False, True, False, False])).tolist()
    [0, 0, 1, 1]
    """
    begins = np.zeros(len(ended), np.bool_)
    begins[1:] = ended[:-1]
    if step is not None:
        begins[1:] |= step[1:] <= step[:-1]
    numbers: IntArray = np.cumsum(begins)
    return numbers


def rows_follow(state: FloatArray, next_state: FloatArray, episode: IntArray) -> bool:
    """Whether each next state is the state of the next row, up to rounding, within episodes.

    If not, rows are in no order, and say nothing of episodes.
    """
    inside = episode[1:] == episode[:-1]
    return bool(np.allclose(next_state[:-1][inside], state[1:][inside], rtol=1e-4, atol=1e-6))


def in_order(episode: IntArray, step: IntArray | None) -> IntArray:
    """Returns the rows, episode by episode as they first appear, by step or else as they come.

    >>> in_order(np.array([7, 2, 7, 2]), None).tolist()
    [0, 2, 1, 3]
    """
    _, first, which = np.unique(episode, return_index=True, return_inverse=True)
    within = np.arange(len(episode)) if step is None else step
    rows: IntArray = np.lexsort((within, first[which]))
    return rows


def counted_steps(
    state: FloatArray, next_state: FloatArray, ended: BoolArray, episode: IntArray
) -> IntArray | None:
    """Returns the number of each row in its episode, or None where rows are in no order.

    They are in order if each row of an episode but its last goes on, to the state of its next row.

    >>> state, ended = np.array([[0.0], [5.0], [1.0], [6.0]]), np.array([False, False, True, True])
    >>> counted_steps(state, state + 1, ended, np.array([7, 2, 7, 2])).tolist()
    [0, 0, 1, 1]
    """
    order = in_order(episode, None)
    number = episode[order]
    begins = np.append(True, number[1:] != number[:-1])
    is_inside = np.append(~begins[1:], False)
    if ended[order][is_inside].any() or not rows_follow(state[order], next_state[order], number):
        return None
    places = np.arange(len(order))
    step = np.empty(len(order), np.int64)
    step[order] = places - np.maximum.accumulate(np.where(begins, places, 0))
    return step


def following_states(
    state: FloatArray, terminal: BoolArray, episode: IntArray, step: IntArray | None
) -> FloatArray:
    """Returns the state after each row: that of the next row of its episode.

    Nothing follows a terminal row: its next state is a copy of its state.

    Raises:
        DataError: if a row that is not terminal has no next row, or steps are missing.
    """
    order = in_order(episode, step)
    goes_on = np.zeros(len(order), np.bool_)
    goes_on[:-1] = episode[order[1:]] == episode[order[:-1]]
    rows, after = order[goes_on], order[1:][goes_on[:-1]]
    last = np.ones(len(order), np.bool_)
    last[rows] = False
    require_rows(
        "next_state",
        "be given, or follow from the next row of the episode",
        last & ~terminal,
        fault="the last of an episode that goes on",
        hint=" Drop these rows, or give next_state.",
    )
    if step is not None and (step[after] != step[rows] + 1).any():
        i = int(np.flatnonzero(step[after] != step[rows] + 1)[0])
        raise DataError(
            f"step must go up by 1 within an episode for next_state to follow from it; "
            f"got {step[after[i]]} after {step[rows[i]]} at [{after[i]}]."
        )
    following = np.array(state)
    following[rows] = state[after]
    following[terminal] = state[terminal]
    return following


def with_next_masks(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Returns columns with the actions that are available at next states, where that is known.

    If they are not given they are those of the next row of the episode, if that row goes on from
    the next state. Where they are not known, and after the end, all are available.
    """
    if "next_available" in columns:
        following = columns["next_available"] | columns["terminal"][:, None]
        return columns | {"next_available": following}
    if "available" not in columns or "episode" not in columns:
        return columns
    state, step = columns["state"], columns.get("step")
    order = in_order(columns["episode"], step)
    rows, after = order[:-1], order[1:]
    follows = (columns["episode"][rows] == columns["episode"][after]) & ~columns["terminal"][rows]
    if step is not None:
        follows &= step[after] == step[rows] + 1
    near = np.isclose(columns["next_state"][rows], state[after], rtol=1e-4, atol=1e-6)
    follows &= near.all(axis=1)
    following = np.ones_like(columns["available"])
    following[rows[follows]] = columns["available"][after[follows]]
    return columns | {"next_available": following}


def same_masks(
    parts: Sequence[dict[str, NDArray[Any]]], n_actions: Sequence[int]
) -> list[dict[str, NDArray[Any]]]:
    """Returns parts that all say which actions are available, if one of them does.

    Args:
        parts: columns by name.
        n_actions: of each part. Those that a part does not have are not available in it.
    """
    found = [dict(part) for part in parts]
    for name in MASKS:
        if not any(name in part for part in parts):
            continue
        for part, n_own in zip(found, n_actions, strict=True):
            mask = np.zeros((len(part["state"]), max(n_actions)), np.bool_)
            mask[:, :n_own] = part.get(name, True)
            part[name] = mask
    return found


def first_rows(n_rows: int, episode: IntArray | None, step: IntArray | None) -> IntArray:
    """Returns the rows at which an episode begins; all of them if nothing is known."""
    if step is not None:
        return np.flatnonzero(step == 0)
    if episode is not None:
        return np.sort(np.unique(episode, return_index=True)[1])
    return np.arange(n_rows)


def fold_numbers(episode: IntArray, n_folds: int, rng: np.random.Generator) -> IntArray:
    """Returns the fold of each row, with the rows of an episode in one fold.

    Folds are drawn at random, and differ by one episode at most.
    """
    _, which = np.unique(episode, return_inverse=True)
    n_episodes = int(which.max()) + 1
    folds = np.empty(n_episodes, np.int64)
    folds[rng.permutation(n_episodes)] = np.arange(n_episodes) % n_folds
    return folds[which]


def joined(parts: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Returns the columns that all parts have, one part after the other.

    The episodes of a part are numbered from after the largest number of the part before it.

    Raises:
        DataError: if there is no part, or their states differ in size.
    """
    if not parts:
        raise DataError("batches must hold at least one; got none.")
    sizes = [part["state"].shape[1] for part in parts]
    for i, size in enumerate(sizes):
        if size != sizes[0]:
            raise DataError(
                f"batches must have states of one size; [0] has {sizes[0]} numbers a state, "
                f"[{i}] has {size}."
            )
    shared = [name for name in FIELDS if all(name in part for part in parts)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in shared}
    if "episode" in shared:
        numbers = [parts[0]["episode"]]
        for part in parts[1:]:
            numbers.append(part["episode"] - part["episode"].min() + numbers[-1].max() + 1)
        columns["episode"] = np.concatenate(numbers)
    return columns
