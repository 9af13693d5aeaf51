"""The log of a policy in production: its decisions, a line each, as they come.

A line is a JSON object with `episode` (a text), `step` (from 0 on), `budget` (asked; another value
later in an episode means that the dial was moved), `action`, `cost` (paid for it), `ended`
(whether the episode did), and `state`, the numbers at which it was decided. `status` may say that a
budget cannot be kept: INFEASIBLE, or 0. `moved` is true where the dial was moved, maybe to the same
value. `format` is 1, or not there. Lines of episodes that go on at the same time are mixed. A
Parquet file has the same as columns.

A *promise* is what a log is judged by: from a decision on, costs will be at most the budget that
was asked there, on average. An episode is one promise. Where its dial is moved it is two: the first
ends there, *cut*, and the second begins.
"""

from __future__ import annotations

import json
import reprlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bmdp.arrays import MAGNITUDE, BoolArray, FloatArray, IntArray
from bmdp.data.formats import extra
from bmdp.errors import DataError, StoreError
from bmdp.frontier import BudgetStatus
from bmdp.kinds import checked
from bmdp.policies.limited import exceeds
from bmdp.storage import one_line

_BYTES = 1 << 22  # that are read at a time
_ROWS = 50_000  # of Parquet that are read at a time
_MOST_STEPS = 2**53  # whole numbers up to which others can say, too
LINE_FORMAT = 1
"""Of the lines that a service writes; a line that does not say its format is of this one."""

_NEEDED = ("episode", "step", "budget", "cost", "ended")
_KINDS = {
    "episode": "a text",
    "step": "a whole number from 0 on",
    "budget": f"a number from 0 to {MAGNITUDE:g}",
    "cost": f"a number from 0 to {MAGNITUDE:g}",
    "ended": "true or false",
}
_INFEASIBLE = {"INFEASIBLE", "infeasible", int(BudgetStatus.INFEASIBLE)}

Rows = list[dict[str, Any]]


@checked
class DecisionLog:
    r"""A file of decisions that may still grow.

    Args:
        path: of JSON lines, or of a Parquet file, whose name ends in `.parquet`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     path = Path(place, "log.jsonl")
    ...     _ = path.write_text('{"episode": "a", "step": 0}\n{"episode": "b", "st')
    ...     log = DecisionLog(path)
    ...     [rows for _, rows in log.new()]
    ...     with path.open("a") as file:
    ...         _ = file.write('ep": 0}\n')
    ...     [(line, rows) for line, rows in log.new()]
    [[{'episode': 'a', 'step': 0}]]
    [(2, [{'episode': 'b', 'step': 0}])]
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.is_table = self.path.suffix == ".parquet"
        self._offset, self._line, self._rest = 0, 1, b""
        if not self.path.is_file():
            raise StoreError(f"{self.path} is not there, or no file: give the log of a service.")

    def new(self) -> Iterator[tuple[int, Rows]]:
        """Yields the lines that are new, some at a time, each time with the number of the first.

        A line that has no end yet is waited for.

        Raises:
            DataError: if a line is no JSON object, or the file is shorter than before.
            StoreError: if the file cannot be read.
        """
        if self.is_table:
            yield from self._table()
            return
        try:
            with self.path.open("rb") as file:
                if file.seek(0, 2) < self._offset:
                    raise DataError(
                        f"{self.path} is shorter than it was: a log must only grow while it is "
                        "watched. Begin anew."
                    )
                file.seek(self._offset)
                while new := file.read(_BYTES):
                    self._offset += len(new)
                    *whole, self._rest = (self._rest + new).split(b"\n")
                    if whole:
                        yield self._line, self._parsed(whole)
                        self._line += len(whole)
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{self.path} cannot be read: {error}.") from error

    def last(self) -> tuple[int, Rows]:
        """Returns the last line, if it is whole but for its end; nothing, if it was cut."""
        try:
            rows = self._parsed([self._rest])
        except DataError:
            return self._line, []
        self._line, self._rest = self._line + 1, b""
        return self._line - 1, rows

    def read_and_size(self) -> tuple[int, int]:
        """Returns how many bytes were read, and how many there are."""
        size = self.path.stat().st_size
        return (size if self.is_table else self._offset), size

    def _parsed(self, lines: Sequence[bytes]) -> Rows:
        """Lines as objects; empty lines are none, and are empty objects."""
        try:
            rows = json.loads(b"[" + b",".join(line.strip() or b"{}" for line in lines) + b"]")
        except (ValueError, RecursionError):
            rows = []
        if len(rows) == len(lines) and all(type(row) is dict for row in rows):
            return list(rows)
        found = []
        for number, line in enumerate(lines, self._line):
            try:
                row = json.loads(line.strip() or b"{}")
            except (ValueError, RecursionError) as error:
                said = one_line(error)
                raise DataError(f"{self.path}, line {number}, is no JSON: {said}.") from error
            if not isinstance(row, dict):
                raise DataError(f"{self.path}, line {number}, must be a JSON object.")
            found.append(row)
        return found

    def _table(self) -> Iterator[tuple[int, Rows]]:
        if self._line > 1:
            return
        parquet = extra("pyarrow.parquet")
        try:
            with parquet.ParquetFile(self.path) as file:
                for batch in file.iter_batches(_ROWS):
                    rows = batch.to_pylist()
                    yield self._line, rows
                    self._line += len(rows)
        except DataError:
            raise
        except Exception as error:  # of what reads it
            raise StoreError(
                f"{self.path} cannot be read as Parquet: {one_line(error)[:200]}."
            ) from error


class Kept(NamedTuple):
    """Promises `[m]` in the order of their beginnings."""

    asked: FloatArray  # budgets
    paid: FloatArray  # discounted costs, as far as they are known
    is_cut: BoolArray  # whether more may have been paid, or would have been
    is_feasible: BoolArray  # unless the log says that the budget cannot be kept

    def take(self, rows: BoolArray | IntArray) -> Kept:
        """Returns some of them."""
        return Kept(self.asked[rows], self.paid[rows], self.is_cut[rows], self.is_feasible[rows])


@dataclass(slots=True)
class _Promise:
    """A promise that was begun."""

    episode: str
    first: int  # step
    asked: float
    is_feasible: bool
    step: int = -1  # the last one
    paid: float = 0.0
    total: float = 0.0  # plain sum of the costs of the episode so far
    is_over: bool = False
    is_cut: bool = False


class Promises:
    """Promises of a log, put together from its lines.

    They are handed out in the order of their beginnings, which says nothing of what they will cost:
    in the order of their ends, short episodes would come first. Nobody waits for ever: when
    `patience` others have begun, a promise is cut.

    Args:
        gamma: discount of costs.
        patience: promises that may begin before the end of one is no longer waited for.
        name: of the log, for errors.
        episode_limit: on the plain sum of an episode, if budgets are chances to exceed it; then a
            promise that ends above it has paid 1, and any other 0.

    >>> promises = Promises(gamma=0.5)
    >>> line = {"episode": "a", "step": 0, "budget": 0.3, "cost": 0.0, "ended": False}
    >>> promises.add(1, [line, {**line, "step": 1, "cost": 1.0, "ended": True}])
    >>> promises.done().paid
    array([0.5])
    """

    def __init__(
        self,
        *,
        gamma: float,
        patience: int = 10_000,
        name: str = "the log",
        episode_limit: float | None = None,
    ) -> None:
        self.gamma, self.patience, self.name = gamma, patience, name
        self.episode_limit = episode_limit
        self.n_lines = 0
        self.n_headless = 0  # lines of episodes whose beginning is not here, or that were cut
        self.n_moved = 0  # times that a dial was moved in the middle
        self.first_states: list[Any] = []  # of episodes, in order; taken by who wants them
        self._begun: deque[_Promise] = deque()
        self._open: dict[str, _Promise] = {}

    @property
    def n_open(self) -> int:
        """Number of episodes that have not ended."""
        return len(self._open)

    def add(self, first_line: int, rows: Rows) -> None:
        """Takes note of lines.

        Args:
            first_line: number of the first of them, for errors.
            rows: objects, as `DecisionLog` has them; empty ones are passed over.

        Raises:
            DataError: naming the line that lacks something, or cannot follow the one before.
        """
        columns = _columns(rows, first_line, self.name)
        for number, (row, *values) in enumerate(columns, first_line):
            if row:
                self._add(number, row, *values)

    def _add(  # noqa: PLR0913
        self,
        number: int,
        row: dict[str, Any],
        episode: str,
        step: int,
        budget: float,
        cost: float,
        ended: bool,
    ) -> None:
        promise = self._open.get(episode)
        if promise is None:
            if step:
                self.n_headless += 1
                return
            promise = self._begin(episode, 0, budget, row)
            self.first_states.append(row.get("state"))
        elif step <= promise.step:
            raise DataError(
                f"{self.name}, line {number}: steps of an episode must rise; got {step} after "
                f"{promise.step} of episode {episode!r}. Was /observe sent twice, or do two "
                "episodes have one name?"
            )
        else:
            if budget != promise.asked or row.get("moved") is True:
                promise.is_over = promise.is_cut = True
                self.n_moved += 1
                total, promise = promise.total, self._begin(episode, step, budget, row)
                promise.total = total
            elif step != promise.step + 1:
                promise.is_cut = True  # lines are missing
        if self.episode_limit is None:
            promise.paid += cost if self.gamma == 1 else cost * self.gamma ** (step - promise.first)
        else:
            before, promise.total = promise.total, promise.total + cost
            if exceeds(promise.total, self.episode_limit):
                promise.paid += not exceeds(before, self.episode_limit)
        promise.step = step
        self.n_lines += 1
        if ended:
            promise.is_over = True
            del self._open[episode]

    def done(self) -> Kept:
        """Returns the promises that are over, up to the first that is not, and forgets them."""
        taken = []
        while self._begun and (self._begun[0].is_over or len(self._begun) > self.patience):
            promise = self._begun.popleft()
            if not promise.is_over:
                promise.is_cut = True
                del self._open[promise.episode]
            taken.append(promise)
        return _as_arrays(taken)

    def pending(self) -> Kept:
        """Returns the promises that were begun later, with what is known of them now."""
        return _as_arrays(self._begun)

    def _begin(self, episode: str, step: int, budget: float, row: dict[str, Any]) -> _Promise:
        promise = _Promise(episode, step, budget, row.get("status") not in _INFEASIBLE)
        self._begun.append(promise)
        self._open[episode] = promise
        return promise


def _as_arrays(promises: Sequence[_Promise] | deque[_Promise]) -> Kept:
    return Kept(
        np.array([p.asked for p in promises], np.float64),
        np.array([p.paid for p in promises], np.float64),
        np.array([p.is_cut or not p.is_over for p in promises], np.bool_),
        np.array([p.is_feasible for p in promises], np.bool_),
    )


def _columns(rows: Rows, first_line: int, name: str) -> Iterator[Any]:
    """Rows with what they need, each value of its kind.

    Raises:
        DataError: naming the first line that lacks something.
    """
    for number, row in enumerate(rows, first_line):
        if not row:
            continue
        mark = row.get("format")
        if mark is not None and mark != LINE_FORMAT:
            raise DataError(
                f"{name}, line {number}, is of format {reprlib.repr(mark)}, not {LINE_FORMAT}: "
                "upgrade bmdp to read it."
            )
        status = row.get("status")
        if status is not None and not isinstance(status, str | int | float):
            raise DataError(
                f"{name}, line {number}: status must be a word or a number; "
                f"got {reprlib.repr(status)}."
            )
        if not _is_whole(row):
            wrong = next(key for key in _NEEDED if not _fits(key, row.get(key)))
            told = f"got {reprlib.repr(row[wrong])}" if wrong in row else "it has none"
            raise DataError(f"{name}, line {number}: {wrong} must be {_KINDS[wrong]}; {told}.")
    return zip(rows, *([row.get(key) for row in rows] for key in _NEEDED), strict=True)


def _is_whole(row: dict[str, Any]) -> bool:
    """Whether a row has what it needs; the usual types are looked at first, as this is often."""
    try:
        cost, budget, step = row["cost"], row["budget"], row["step"]
        if type(row["episode"]) is str and type(step) is int and type(row["ended"]) is bool:
            usual = type(cost) is float and type(budget) is float
            if usual and 0.0 <= cost <= MAGNITUDE and 0.0 <= budget <= MAGNITUDE and step >= 0:
                return True
    except KeyError:
        return False
    return all(_fits(key, row[key]) for key in _NEEDED)


def _fits(key: str, value: Any) -> bool:
    """Whether a value is of the kind that its key has."""
    if key == "episode":
        return isinstance(value, str)
    if key == "ended":
        return isinstance(value, bool)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if key == "step":
        return is_number and isinstance(value, int) and 0 <= value < _MOST_STEPS
    return is_number and 0 <= value <= MAGNITUDE
