"""Files that are there whole or not at all: written aside, brought to the disk, and renamed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from bmdp.errors import StoreError
from bmdp.policies.protocol import Policy


class FitKeeper:
    """Keeps a learner in one file: arrays, number of iterations done, and a checksum of both.

    One file, because two cannot be replaced at the same moment.
    """

    def __init__(self, path: Path) -> None:
        """Of a file that need not be there yet."""
        self.path = path

    def n_done(self) -> int:
        """Number of iterations done, without a look at the arrays."""
        return 0 if not self.path.exists() else self._read(arrays=False)[0]

    def load(self) -> tuple[int, dict[str, NDArray[Any]]] | None:
        """Number of iterations done and the arrays kept, if any."""
        return self._read(arrays=True) if self.path.exists() else None

    def save(self, n_done: int, arrays: dict[str, NDArray[Any]]) -> None:
        """Keeps the arrays after an iteration."""
        whole = {name: np.array(array, order="C") for name, array in arrays.items()}
        marks = {"n_done": str(n_done), "sha256": arrays_hash(whole, str(n_done))}
        write_aside(self.path, lambda aside: save_file(whole, aside, metadata=marks))

    def _read(self, *, arrays: bool) -> tuple[int, dict[str, NDArray[Any]]]:
        try:
            with safe_open(self.path, "np") as file:
                marks = file.metadata() or {}
                found = {name: file.get_tensor(name) for name in file.keys()} if arrays else {}  # noqa: SIM118
            n_done = int(marks["n_done"])
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise self._damaged() from error
        if arrays and arrays_hash(found, marks["n_done"]) != marks.get("sha256"):
            raise self._damaged()
        return n_done, found

    def _damaged(self) -> StoreError:
        return StoreError(
            f"{self.path} is damaged. Delete it and resume: the iterations of its round are then "
            "done again."
        )


def arrays_hash(arrays: dict[str, NDArray[Any]], mark: str = "") -> str:
    """Returns the SHA-256 of named arrays: names, types, shapes and contents."""
    found = hashlib.sha256(mark.encode())
    for name in sorted(arrays):
        array = arrays[name]
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def write_text(path: Path, text: str) -> None:
    """Writes a file, whole or not at all."""
    write_aside(path, lambda aside: aside.write_text(text))


def write_aside(path: Path, write: Callable[[Path], Any]) -> None:
    """Writes a file beside its place, brings it to the disk, and puts it in its place."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        write(aside)
        _to_disk(aside)
        os.replace(aside, path)
        _to_disk(path.parent)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}.") from error
    finally:
        aside.unlink(missing_ok=True)


def save_policy(policy: Policy, folder: Path) -> None:
    """Saves a policy, unless it is there: a folder is there whole or not at all."""
    if folder.exists():
        return
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.new")
    policy.save(aside, overwrite=True)
    for path in (*aside.rglob("*"), aside):
        _to_disk(path)
    os.rename(aside, folder)
    _to_disk(folder.parent)


def _to_disk(path: Path) -> None:
    """Waits until a file or folder is on the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
