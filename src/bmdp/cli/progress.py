"""How far a training run is, on stderr: live in a terminal, a few lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from bmdp.experiments.running.pace import all_work, most_iterations, work_done

if TYPE_CHECKING:
    from bmdp.learn.explore import RunRecord
    from bmdp.learn.learners import Learner

_SILENCE = 30.0  # seconds of iterations after which there is a line, whichever they are


class TrainingProgress:
    """Shows records as they come."""

    def __init__(self, n_rounds: int, learner: Learner) -> None:
        """Of a run of so many rounds."""
        self._learner, self.n_rounds = learner, n_rounds
        self.n_iterations = most_iterations(learner, None)
        self._console = Console(stderr=True, soft_wrap=True)
        self._begin = time.monotonic()
        self._first: float | None = None  # share done before the first record
        self._seconds = 0.0  # since the last line
        self._bar: tuple[Progress, TaskID] | None = None

    @contextmanager
    def shown(self) -> Iterator[TrainingProgress]:
        """Shows a bar while it lasts, if stderr is a terminal."""
        if not self._console.is_terminal:
            yield self
            return
        columns = (BarColumn(bar_width=20), TextColumn("{task.description}"))
        with Progress(*columns, console=self._console, transient=True) as progress:
            self._bar = progress, progress.add_task("starting", total=self._work)
            yield self

    def __call__(self, record: RunRecord) -> None:
        """Takes a record."""
        row = {"kind": record.kind, **record.as_dict()}
        if record.kind == "iteration":
            self.n_iterations = most_iterations(self._learner, row)
        if self._bar is None:
            self._print(record, row)
            return
        progress, bar = self._bar
        done = work_done(row, self.n_rounds, self.n_iterations)
        text = f"round {record.round + 1}/{self.n_rounds}  {_told(record, self.n_iterations)}"
        text = f"{text}  {self._left(done / self._work)}"
        progress.update(bar, completed=done, total=self._work, description=text)

    @property
    def _work(self) -> float:
        """All of it, as far as is known."""
        return all_work(self.n_rounds, self.n_iterations)

    def _print(self, record: RunRecord, row: dict[str, Any]) -> None:
        """A line for each collection and for the iterations of a round, or of some time."""
        name = f"round {record.round + 1}/{self.n_rounds}"
        self._seconds += row["seconds"]
        if row.get("is_last", True) or self._seconds >= _SILENCE:
            told = f"{name}: {_told(record, self.n_iterations)}, {self._seconds:.1f} s"
            self._console.print(told, highlight=False)
            self._seconds = 0.0

    def _left(self, share: float) -> str:
        """How long it will take, going by how long it took."""
        if self._first is None:
            self._first = share
            self._begin = time.monotonic()
            return ""
        if share <= self._first:
            return ""
        seconds = (time.monotonic() - self._begin) / (share - self._first)
        return f"{clock(seconds * (1 - share))} left"


def clock(seconds: float) -> str:
    """A time as minutes and seconds, or hours, minutes and seconds.

    >>> clock(61.2), clock(3661)
    ('1:01', '1:01:01')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _told(record: RunRecord, n_iterations: int) -> str:
    """A record in a few words."""
    from bmdp.learn.explore import CollectionRecord, RoundRecord  # torch takes long to import

    if isinstance(record, CollectionRecord):
        return (
            f"{record.transitions:,} transitions, reward {record.reward:.3g} "
            f"and cost {record.cost:.3g} an episode"
        )
    if isinstance(record, RoundRecord):
        loss = record.of.delta if record.of.last_loss is None else record.of.last_loss
        return f"iteration {record.of.iteration + 1}/{n_iterations}, loss {loss:.3g}"
    return f"prediction from {record.n_episodes:,} held-out episodes"


@contextmanager
def episode_bar(name: str) -> Iterator[Any]:
    """Gives what shows how many episodes were played, or None where stderr is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)
