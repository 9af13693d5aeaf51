"""What all file formats share: extras, files that are there, files that are written whole."""

from __future__ import annotations

import importlib
import os
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from bmdp.errors import MissingDependency, StoreError
from bmdp.storage import written

AnyPath: TypeAlias = str | os.PathLike[str]

FORMAT = "bmdp.TransitionBatch/1"
"""The mark of files that this library wrote. They hold all that is known, under its own names."""


def extra(name: str, *, command: str = "pip install 'bmdp[data]'") -> ModuleType:
    """Returns a module that need not be installed.

    Raises:
        MissingDependency: with the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0]
        raise MissingDependency(
            f"{package} must be installed for this kind of data: {command}"
        ) from error


def is_own(mark: Any, source: AnyPath) -> bool:
    """Whether a file was written by this library, going by its mark.

    Raises:
        StoreError: if it was, by a version that wrote another format.
    """
    if not isinstance(mark, str) or mark.split("/")[0] != FORMAT.split("/")[0]:
        return False
    if mark != FORMAT:
        raise StoreError(f"{source} has format {mark}, not {FORMAT}: upgrade bmdp to read it.")
    return True


def as_path(path: Any) -> Path:
    """Returns what names a file, as a path.

    Raises:
        StoreError: if it names none.
    """
    if not isinstance(path, str | os.PathLike):
        raise StoreError(f"path must be the name of a file; got {type(path).__name__}.")
    return Path(path)


def existing_file(path: AnyPath) -> Path:
    """Returns the path of a file that is there.

    Raises:
        StoreError: if it is not.
    """
    source = as_path(path)
    if not source.is_file():
        why = "is not a file" if source.exists() else "does not exist"
        raise StoreError(f"{source} {why}.")
    return source


def written_whole(path: AnyPath, *, overwrite: bool) -> AbstractContextManager[Path]:
    """Gives a path to write to, beside the file, which then takes its place.

    Raises:
        StoreError: if the file exists and may not be overwritten, or cannot be written.
    """
    return written(as_path(path), overwrite=overwrite)
