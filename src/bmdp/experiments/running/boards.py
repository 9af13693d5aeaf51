"""Records of training runs as event files, which TensorBoard shows."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bmdp.errors import MissingDependency

_ABOUT = ("kind", "round", "iteration", "is_last")  # what a record is of, and not what it says


class Board:
    """Writes records as they come: a folder for each run, a chart for each number."""

    def __init__(self, folder: Path) -> None:
        """Of a folder that is written anew: records are kept elsewhere, and told again.

        Raises:
            MissingDependency: if TensorBoard is not installed.
        """
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        self._make = SummaryWriter
        self._folder = folder
        self._writers: dict[str, Any] = {}
        self._n_iterations: dict[str, int] = {}
        shutil.rmtree(folder, ignore_errors=True)

    def add(self, records: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Adds records, each with the name of its run."""
        for run, record in records:
            self._add(run, record)

    def _add(self, run: str, record: dict[str, Any]) -> None:
        """Adds a record: of a round, or of an iteration, which are numbered through."""
        if run not in self._writers:
            self._writers[run] = self._make(str(self._folder / run))
        step = record["round"]
        if record["kind"] == "iteration":
            step = self._n_iterations.get(run, 0)
            self._n_iterations[run] = step + 1
        for name, value in record.items():
            if name not in _ABOUT and isinstance(value, int | float):
                self._writers[run].add_scalar(f"{record['kind']}/{name}", value, step)
        self._writers[run].flush()

    def close(self) -> None:
        """Ends all files."""
        for writer in self._writers.values():
            writer.close()


def require_tensorboard() -> None:
    """Checks that TensorBoard is there.

    Raises:
        MissingDependency: if it is not installed.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise MissingDependency(
            "TensorBoard must be installed for its files: pip install 'bmdp[tensorboard]'"
        )
