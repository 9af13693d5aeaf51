"""Transitions in npz files of numpy, under the names of the fields. No extra is needed."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.data.columns import Table
from bmdp.data.stores import FORMAT, AnyPath, existing_file, is_own, written_whole
from bmdp.errors import StoreError

_NOTES = ("format", "n_actions")


def npz_table(path: AnyPath) -> Table:
    """Returns the arrays of a file. It may hold `n_actions` too.

    Raises:
        StoreError: if there is no such file, or it is not one of npz, or holds pickles.
    """
    source = existing_file(path)
    names, notes = _loaded(source, _NOTES)
    own = is_own(str(notes["format"]) if "format" in notes else None, source)
    n_actions = notes["n_actions"].tolist() if "n_actions" in notes else None

    def load(chosen: Sequence[str]) -> list[NDArray[Any]]:
        held = _loaded(source, chosen)[1]
        return [held[name] for name in chosen]

    columns = tuple(name for name in names if name not in _NOTES)
    return Table(source.name, columns, load, n_actions, is_complete=own)


def write_npz(
    columns: Mapping[str, NDArray[Any]], n_actions: int, path: AnyPath, *, overwrite: bool
) -> None:
    """Writes columns, each under its name, without pickle.

    Raises:
        StoreError: if the file exists and may not be overwritten, or cannot be written.
    """
    notes = {"format": np.array(FORMAT), "n_actions": np.array(n_actions)}
    arrays: dict[str, Any] = {**columns, **notes}
    with written_whole(path, overwrite=overwrite) as aside, aside.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _loaded(source: Path, chosen: Sequence[str]) -> tuple[tuple[str, ...], dict[str, NDArray[Any]]]:
    """Returns the names of all arrays, and those of the chosen ones that are there."""
    try:
        with source.open("rb") as opened:
            file = np.load(opened, allow_pickle=False)
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("it holds a single array")
            with file:
                names = tuple(file.files)
                return names, {name: file[name] for name in chosen if name in names}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise StoreError(f"{source} is not an npz file of arrays: {error}.") from error
