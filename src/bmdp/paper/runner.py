"""Stand-in for the runner: where a part is done, and the JSON files that it keeps."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bmdp.errors import StoreError
from bmdp.storage import write_text

Piece = dict[str, Any]
"""What JSON can say, by name."""


@dataclass(frozen=True)
class Work:
    """One part of an experiment for one seed."""

    folder: Path
    seed: int
    device: str
    part: str = ""

    def piece(self, name: str, make: Callable[[], Piece]) -> Piece:
        """Returns a piece that is there, or makes and keeps it."""
        path = self.folder / f"{name}.json"
        if path.exists():
            return read_piece(path)
        found = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(found, allow_nan=False) + "\n")
        return found


def read_piece(path: Path) -> Piece:
    """Returns a piece of a folder.

    Raises:
        StoreError: if it is not one.
    """
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} is not JSON: {error}. Delete it and run again.") from error
    if not isinstance(found, dict):
        raise StoreError(f"{path} is no piece of an experiment. Delete it and run again.")
    return found
