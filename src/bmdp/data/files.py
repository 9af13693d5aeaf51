"""Logs by the names of their files."""

from __future__ import annotations

import os
from collections.abc import Iterable

from bmdp.data.batch import TransitionBatch
from bmdp.data.columns import Columns, Discretise
from bmdp.data.stores import AnyPath, as_path
from bmdp.errors import DataError

_READERS = {
    ".parquet": TransitionBatch.from_parquet,
    ".h5": TransitionBatch.from_hdf5,
    ".hdf5": TransitionBatch.from_hdf5,
    ".npz": TransitionBatch.from_npz,
}


def load_batch(
    path: AnyPath, columns: Columns | None = None, discretise: Discretise | None = None
) -> TransitionBatch:
    """Returns the transitions of a file: Parquet, HDF5 or npz, going by its suffix.

    Args:
        path: of the file.
        columns: what its columns are called, where that is not to be guessed.
        discretise: gives actions `[N, K]` whole numbers `[N]`, if they are none yet.

    Raises:
        StoreError: if there is no such file, or it is not what its suffix says.
        DataError: if the suffix is unknown, or the file does not hold transitions.

    >>> import tempfile
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     log.to_npz(f"{place}/log.npz")
    ...     load_batch(f"{place}/log.npz").cost.tolist()
    [0.0, 1.0]
    """
    suffix = as_path(path).suffix.lower()
    if suffix not in _READERS:
        known = ", ".join(_READERS)
        raise DataError(f"path must end in one of {known}; got {str(path)!r}.")
    return _READERS[suffix](path, columns=columns, discretise=discretise)


def load_batches(
    paths: Iterable[AnyPath], columns: Columns | None = None, discretise: Discretise | None = None
) -> TransitionBatch:
    """Returns the transitions of several files, one after the other, as `load_batch` reads them.

    Columns that are not in all files are dropped, and episodes of different files stay different.

    Args:
        paths: of the files.
        columns: as for `load_batch`.
        discretise: as for `load_batch`.

    Raises:
        StoreError: if there is no such file, or it is not what its suffix says.
        DataError: if a suffix is unknown, or a file does not hold transitions of the same size.

    >>> import tempfile
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True], episode=[0, 1])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     log.to_npz(f"{place}/log.npz")
    ...     load_batches([f"{place}/log.npz"] * 2).episode.tolist()
    [0, 1, 2, 3]
    """
    if isinstance(paths, str | os.PathLike) or not isinstance(paths, Iterable):
        raise DataError(f"paths must be a list of files; got {paths!r}.")
    return TransitionBatch.concatenate(load_batch(path, columns, discretise) for path in paths)
