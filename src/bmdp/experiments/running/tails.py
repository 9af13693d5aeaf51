"""A training run as it is written: its records as they come, and what share of it is done."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from bmdp.errors import BmdpError
from bmdp.experiments.experiment import read_piece
from bmdp.experiments.running.pace import all_work, most_iterations, work_done
from bmdp.learn.runs import DONE, RECORDS
from bmdp.learn.spec import TrainingSpec, from_json
from bmdp.storage import SPEC

Record = dict[str, Any]


class RunTail:
    """Reads records as they are added to a file, which may be written anew with fewer of them."""

    def __init__(self, run: Path) -> None:
        """Of the folder of a run."""
        self._run = run
        self._inode, self._offset = 0, 0
        self._seen: set[tuple[Any, ...]] = set()
        self._spec: TrainingSpec | None = None
        self._iteration: Record | None = None  # the last one
        self.last: Record | None = None

    def read(self) -> list[Record]:
        """Returns records that were not there before."""
        try:
            with (self._run / RECORDS).open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:
                    self._inode, self._offset, self.last = inode, 0, None
                file.seek(self._offset)
                text = file.read()
        except OSError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [record for line in whole.splitlines() if (record := self._take(line))]

    @property
    def is_at_work(self) -> bool:
        """Whether it has begun and is not done."""
        return self.last is not None and not (self._run / DONE).exists()

    @property
    def shape(self) -> tuple[int, int] | None:
        """Rounds and iterations, at most."""
        self._spec = self._spec or _spec_of(self._run)
        if self._spec is None:
            return None
        how = self._spec.exploration
        n_iterations = most_iterations(self._spec.learner, self._iteration)
        return 1 if how is None else how.rounds, n_iterations

    @property
    def share(self) -> float:
        """What is done of it."""
        if self.shape is None or self.last is None:
            return 0.0
        return work_done(self.last, *self.shape) / all_work(*self.shape)

    def _take(self, line: bytes) -> Record | None:
        """A record, if it is one and new."""
        try:
            record: Record = json.loads(line)
            key = (record["kind"], record["round"], record.get("iteration"))
        except (ValueError, KeyError, TypeError):
            return None
        self.last = record
        if record["kind"] == "iteration":
            self._iteration = record
        is_new = key not in self._seen
        self._seen.add(key)
        return record if is_new else None


def _spec_of(run: Path) -> TrainingSpec | None:
    """What a run learns and how, if that can be read."""
    try:
        return from_json(read_piece(run / SPEC).get("spec"))
    except BmdpError:
        return None
