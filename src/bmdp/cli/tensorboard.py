"""Records of training runs as event files, which TensorBoard shows."""

from __future__ import annotations

import importlib.util
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from bmdp.errors import MissingDependency

_ABOUT = ("kind", "round", "iteration", "is_last")  # which record it is, and not what it says


class Board:
    """Charts of the training runs of a folder, in FOLDER/tensorboard."""

    def __init__(self, folder: Path) -> None:
        """Writes nothing yet.

        Raises:
            MissingDependency: if TensorBoard is not installed.
        """
        if importlib.util.find_spec("tensorboard") is None:
            raise MissingDependency(
                "TensorBoard must be installed for its files: pip install 'bmdp[tensorboard]'"
            )
        self._folder, self._place = folder, folder / "tensorboard"
        self._writers: dict[str, Any] = {}
        self._n_told: Counter[tuple[str, str]] = Counter()  # by run and kind of record

    def look(self, name: str) -> None:
        """Adds what is new of the run of that name, and of the runs in its folder.

        The first look deletes earlier events: records are there still, and are told again.
        """
        from torch.utils.tensorboard import SummaryWriter

        from bmdp.learn.runs import RECORDS, read_records

        if not self._writers:
            shutil.rmtree(self._place, ignore_errors=True)
        place = self._folder / name
        for path in (place / RECORDS, *sorted(place.glob(f"*/{RECORDS}"))):
            run, seen = path.parent.relative_to(self._folder).as_posix(), Counter[str]()
            for record in read_records(path):
                kind = record["kind"]
                step, seen[kind] = seen[kind], seen[kind] + 1
                if step < self._n_told[run, kind]:
                    continue  # a record that is made again after a kill is the same
                if run not in self._writers:
                    self._writers[run] = SummaryWriter(str(self._place / run))
                self._n_told[run, kind] += 1
                for what, value in record.items():
                    if what not in _ABOUT and isinstance(value, int | float):
                        self._writers[run].add_scalar(f"{kind}/{what}", value, step)
            if run in self._writers:
                self._writers[run].flush()
