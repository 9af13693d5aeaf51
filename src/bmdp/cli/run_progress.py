"""How far an experiment is, on stderr: live in a terminal, a few lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text

from bmdp.cli.progress import clock

if TYPE_CHECKING:
    from bmdp.experiments.running.store import Task
    from bmdp.experiments.running.watching import Sight

_PAUSE = 60.0  # seconds between two lines on how far all is


class RunProgress:
    """Shows what is seen of tasks."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """With nothing to show yet."""
        self._console = Console(stderr=True, soft_wrap=True)
        self._now, self._last = now, now()
        self._live: Live | None = None

    @contextmanager
    def shown(self) -> Iterator[RunProgress]:
        """Shows lines that change while it lasts, if stderr is a terminal."""
        if not self._console.is_terminal:
            yield self
            return
        with Live(Text("starting"), console=self._console, transient=True) as live:
            self._live = live
            yield self

    def show(self, sights: Sequence[Sight], left: float | None) -> None:
        """Shows how far tasks are, and how long it will take."""
        if self._live is not None:
            at_work = [line_of(s) for s in sights if s.state in ("working", "training")]
            self._live.update(Text("\n".join([*at_work, summary(sights, left)])))
        elif self._now() - self._last >= _PAUSE:
            self._last = self._now()
            self._print(summary(sights, left))

    def tell(self, task: Task, sights: Sequence[Sight]) -> None:
        """Says that a task has ended."""
        (sight,) = (sight for sight in sights if sight.task == task)
        done = f"done in {sight.seconds:.1f} s" if sight.state == "finished" else "failed"
        n_done = sum(sight.state == "finished" for sight in sights)
        self._print(f"{task.name}: {done} ({n_done} of {len(sights)})")

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)


def line_of(sight: Sight) -> str:
    """How far one task is."""
    name = f"{sight.task.name:<24}"
    run = sight.run
    if run is None:
        return f"{name} at work for {clock(sight.seconds)}"
    where = [f"round {run.record['round'] + 1}/{run.n_rounds}"]
    if run.record["kind"] == "iteration":
        where.append(f"iteration {run.record['iteration'] + 1}/{run.n_iterations}")
    return "  ".join([name, *where, run.name or f"{sight.share:.0%}"])


def summary(sights: Sequence[Sight], left: float | None) -> str:
    """How far all is."""
    n_done = sum(sight.state == "finished" for sight in sights)
    share = sum(sight.share for sight in sights) / len(sights)
    told = f"{n_done} of {len(sights)} done, {share:.0%}"
    return told if left is None else f"{told}, about {clock(left)} left"
