"""Progress of some work, on stderr: bars on a terminal, now and then a line elsewhere.

Verbs hand `Progress.update` to library functions, which call it with what is done and what there is
to do. Work of less than two seconds shows nothing. The time left is estimated by the share that was
done since the work began here: what a run had done before it was resumed took no time now. Where
the seconds of a run before it was resumed are known, they count.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

SILENCE = 2.0
"""Seconds of work of which nothing is shown."""

BEAT = 0.5
"""Seconds between two looks at the clock."""

_TEXTS = ("description", "fields[told]")  # of a bar
_GROWTH, _LONGEST = 0.5, 600.0  # until the next line: half of the time gone, 10 minutes at most


@dataclass
class _Work:
    """One thing that is under way."""

    name: str
    begin: float  # time
    before: float  # share that was done then
    done: float = 0.0
    total: float | None = None
    since: float = 0.0  # time of the last update
    text: str = ""
    bar: TaskID | None = None

    @property
    def share(self) -> float | None:
        return None if not self.total else min(self.done / self.total, 1.0)

    def left(self, now: float) -> float | None:
        """Seconds that the rest will take at the pace so far, once a part of it is done."""
        share = self.share
        if share is None or not self.before < share < 1:
            return None
        pace = (self.since - self.begin) / (share - self.before)
        return max(pace * (1 - share) - (now - self.since), 0.0)


class Progress:
    """Shows how far some work is, while it lasts.

    Args:
        title: of the work, such as "evaluating".
        unit: of what is counted, such as "episodes"; without, only the share is told.
        before: share of the work that was done before, by a run that is resumed.
        gone: seconds that a run that is resumed took before; shares then count from its begin.
        now: the clock.

    >>> with Progress("evaluating", unit="episodes") as progress:
    ...     progress.update(5_000, 20_000)
    ...     progress.line()
    'evaluating: 5,000 of 20,000 episodes, 25 %, 0:00 gone, about 0:00 left'
    """

    def __init__(
        self,
        title: str,
        unit: str = "",
        *,
        before: float = 0.0,
        gone: float = 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.title, self._unit, self._now = title, unit, now
        self._begin, self._due = now(), now() + SILENCE
        self._works = {"": _Work("", self._begin - gone, before)}
        self._last = self._works[""]
        self._console = Console(stderr=True, soft_wrap=True)
        self._bars: Bars | None = None
        self._has_told = False
        self._lock, self._over = threading.RLock(), threading.Event()

    def __enter__(self) -> Self:
        # A thread, as work may take minutes between two updates.
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._over.set()
        with self._lock:
            if self._bars is not None:
                self._bars.stop()
            elif self._has_told and kind is None:
                self.note(f"{self.title}: done in {clock(self._now() - self._begin)}")

    def update(
        self, done: float, total: float | None = None, text: str = "", name: str = ""
    ) -> None:
        """Takes note of how far it is.

        Args:
            done: of the work so far.
            total: all of it; None if nobody knows.
            text: more on what is going on.
            name: of one of several things that are done side by side, each with a bar of its own.
                The first update of a name says what was done before. Lines tell of the work
                without a name, if it has a total, else of the name that was updated last.
        """
        with self._lock:
            work = self._works.get(name)
            if work is None:
                share = done / total if total else 0.0
                work = self._works[name] = _Work(name, self._now(), share)
            work.done, work.total, work.since, work.text = done, total, self._now(), text
            self._last = work
            self._show()

    def note(self, text: str) -> None:
        """Prints a line on stderr, above the bars."""
        self._console.print(text, highlight=False, markup=False)

    def line(self) -> str:
        """Share done, time gone and time left, in a line."""
        work = self._works[""] if self._works[""].total else self._last
        return f"{f'{self.title} {work.name}'.rstrip()}: {self._status(work)}"

    def _status(self, work: _Work) -> str:
        share, now = work.share, self._now()
        told = []
        if self._unit and work.total is not None:
            told.append(f"{work.done:,.0f} of {work.total:,.0f} {self._unit}")
        if share is not None:
            told.append(f"{math.floor(100 * share)} %")
        told.append(f"{clock(now - work.begin)} gone")
        left = work.left(now)
        if left is not None:
            told.append(f"about {clock(left)} left")
        return ", ".join([*told, work.text] if work.text else told)

    def _watch(self) -> None:
        while not self._over.wait(BEAT):
            with self._lock:
                self._show()

    def _show(self) -> None:
        """Shows what is due, if it is not over."""
        gone = self._now() - self._begin
        if self._over.is_set() or gone < SILENCE:
            return
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._draw()
        elif self._now() >= self._due:
            self.note(self.line())
            self._has_told = True
            self._due = self._now() + min(_GROWTH * gone, _LONGEST)

    def _draw(self) -> None:
        """Brings the bars up to date; those of names that are done go away."""
        if self._bars is None:
            texts = [TextColumn(f"{{task.{name}}}", markup=False) for name in _TEXTS]
            columns = (texts[0], BarColumn(bar_width=20), texts[1])
            self._bars = Bars(*columns, console=self._console, transient=True)
            self._bars.start()
        for work in self._works.values():
            if not work.name and work.total is None and len(self._works) > 1:
                continue
            if work.bar is None:
                work.bar = self._bars.add_task(work.name or self.title, total=None, told="")
            self._bars.update(
                work.bar,
                completed=work.done,
                total=work.total,
                visible=not work.name or work.share != 1.0,
                told=self._status(work),
            )


def clock(seconds: float) -> str:
    """A time as minutes and seconds, or hours, minutes and seconds.

    >>> clock(61.2), clock(3661)
    ('1:01', '1:01:01')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
