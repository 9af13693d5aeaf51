"""Steps of a fit that are done: each is kept once it is made, so that a killed fit goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bmdp.data import TransitionBatch
from bmdp.errors import BmdpError, StoreError
from bmdp.policies.policy import load_policy
from bmdp.storage import load_value, read_sealed, save_value, sealed, write_text

T = TypeVar("T")
CLOCK = "clock"
_FORMAT = 1  # of numbers that are kept
Numbers = dict[str, Any]
"""Names, with numbers or arrays."""


class Shelf:
    """Keeps what is made, by name, in a folder; without one it keeps nothing.

    Everything is written whole or not at all, so what is there is right. If not, somebody else
    changed it, and a `StoreError` names it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     shelf = Shelf(Path(place))
    ...     shelf.numbers("sizes", lambda: {"n": 3}), shelf.numbers("sizes", lambda: {"n": 4})
    ({'n': 3}, {'n': 3})
    """

    def __init__(self, folder: Path | None, now: Callable[[], float] = time.monotonic) -> None:
        """Keeps in a folder, or nothing, and starts a clock.

        Args:
            folder: that is there; None to keep nothing.
            now: the clock, in seconds.

        Raises:
            StoreError: if the time that the work took before is damaged.
        """
        self.folder, self._now, self._begin = folder, now, now()
        self._before = 0.0
        if folder is not None and (folder / f"{CLOCK}.json").exists():
            self._before = float(self.numbers(CLOCK, dict)["seconds"])

    @property
    def seconds(self) -> float:
        """Seconds that the work has taken, with those before a kill, up to what was kept last."""
        return self._before + self._now() - self._begin

    def batch(self, name: str, make: Callable[[], TransitionBatch]) -> TransitionBatch:
        """Transitions, as an npz file."""
        return self._kept(
            f"{name}.npz", make, lambda made, place: made.to_npz(place), TransitionBatch.from_npz
        )

    def policy(self, name: str, make: Callable[[], Any]) -> Any:
        """A policy, as a folder."""
        return self._kept(name, make, lambda made, place: made.save(place), load_policy)

    def value(self, name: str, make: Callable[[], Any]) -> Any:
        """A value that can be stored, as a folder."""
        return self._kept(name, make, save_value, load_value)

    def numbers(self, name: str, make: Callable[[], Numbers]) -> Numbers:
        """Numbers and arrays by name, as JSON."""
        return self._kept(f"{name}.json", make, _write, _read)

    def _kept(
        self,
        name: str,
        make: Callable[[], T],
        save: Callable[[T, Path], None],
        load: Callable[[Path], T],
    ) -> T:
        if self.folder is None:
            return make()
        place = self.folder / name
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            save(make(), place)
            _write({"seconds": self.seconds}, self.folder / f"{CLOCK}.json")
        try:
            return load(place)  # what was kept, whether it was made now or before a kill
        except (BmdpError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(f"{place} is damaged: delete it, and resume.") from error


def _write(made: Numbers, place: Path) -> None:
    plain = {name: np.asarray(value).tolist() for name, value in made.items()}
    write_text(place, json.dumps(sealed({"numbers": plain}, _FORMAT)))


def _read(place: Path) -> Numbers:
    found = read_sealed(place, _FORMAT)["numbers"]
    return {n: np.array(v) if isinstance(v, list) else v for n, v in found.items()}
