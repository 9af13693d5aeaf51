"""What an experiment is: a question, its parts, and settings of several sizes.

A *part* is work that is done on its own for each seed, in a folder of its own. It keeps what it
finds as *pieces*: JSON files that are there whole or not at all. A part that was killed is begun
again; pieces that are there are not made again, so the result is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bmdp.errors import StoreError
from bmdp.storage import write_text

Piece = dict[str, Any]
"""What JSON can say."""


@dataclass(frozen=True)
class Work:
    """One part of an experiment for one seed: where it is done, and how.

    Args:
        folder: of this part and seed; it need not be there yet.
        seed: of all that is random.
        device: of learners and policies.
    """

    folder: Path
    seed: int
    device: str

    def piece(self, name: str, make: Callable[[], Piece]) -> Piece:
        """Returns a piece that is there, or makes and keeps it.

        Raises:
            StoreError: if it is there but is not JSON, or cannot be written.
        """
        path = self.folder / f"{name}.json"
        if path.exists():
            return read_piece(path)
        found = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(found, allow_nan=False) + "\n")
        return found


@dataclass(frozen=True)
class Experiment:
    """A question that can be run.

    Args:
        name: on the command line.
        title: of its section in a report.
        question: that it answers, in a sentence.
        parts: what is done for each seed, by name; the one named "" is the main part, whose folder
            is that of the seed.
        common: what is done once, whatever the seeds, by name.
        presets: settings by size ("smoke", "quick", "paper", "best"): frozen dataclasses, which
            parts take as their first argument.
    """

    name: str
    title: str
    question: str
    parts: Mapping[str, Callable[[Any, Work], None]]
    presets: Mapping[str, Any]
    common: Mapping[str, Callable[[Any, Work], None]]


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
