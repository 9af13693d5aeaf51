"""Transitions in HDF5 files, as flat arrays under the names of DSRL.

    observations [N, D]   next_observations [N, D]   actions [N] or [N, K]   rewards [N]
    costs [N]             terminals [N]              timeouts [N]

DSRL knows no budgets, probabilities or episode numbers; where they are known they are added as
`budget`, `next_budget`, `probability`, `episode` and `step`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bmdp.data.columns import Table
from bmdp.data.stores import FORMAT, AnyPath, existing_file, extra, is_own, written_whole
from bmdp.errors import StoreError

_NAMES = {
    "state": "observations",
    "next_state": "next_observations",
    "action": "actions",
    "reward": "rewards",
    "cost": "costs",
    "terminal": "terminals",
    "truncated": "timeouts",
}


def hdf5_table(path: AnyPath) -> Table:
    """Returns the arrays of a file, without those in groups.

    Raises:
        StoreError: if there is no such file, or it is not one of HDF5.
    """
    source = existing_file(path)
    with _opened(source) as file:
        names = tuple(name for name, item in file.items() if hasattr(item, "dtype"))
        notes = dict(file.attrs)
    own = is_own(notes.get("format"), source)
    n_actions = notes.get("n_actions") if own else None

    def load(chosen: Sequence[str]) -> list[NDArray[Any]]:
        with _opened(source) as file:
            return [file[name][()] for name in chosen]

    return Table(source.name, names, load, n_actions, is_complete=own)


def write_hdf5(
    columns: Mapping[str, NDArray[Any]], n_actions: int, path: AnyPath, *, overwrite: bool
) -> None:
    """Writes columns under the names of DSRL.

    Raises:
        StoreError: if the file exists and may not be overwritten, or cannot be written.
    """
    h5py = extra("h5py")
    with written_whole(path, overwrite=overwrite) as aside, h5py.File(aside, "w") as file:
        file.attrs["format"], file.attrs["n_actions"] = FORMAT, n_actions
        for name, values in columns.items():
            file.create_dataset(_NAMES.get(name, name), data=values)


@contextmanager
def _opened(source: Path) -> Iterator[Any]:
    h5py = extra("h5py")
    try:
        with h5py.File(source, "r") as file:
            yield file
    except OSError as error:
        raise StoreError(f"{source} is not an HDF5 file: {error}.") from error
