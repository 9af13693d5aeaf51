"""Folders that are there whole or not at all: written beside their place, and then renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bmdp.errors import StoreError


def replace_folder(target: Path, write: Callable[[Path], Any]) -> None:
    """Writes a folder and puts it in its place, where an earlier one may be.

    If it cannot be written or put there, the earlier one stays.

    Args:
        target: its place.
        write: fills a folder that is new and empty.

    Raises:
        StoreError: if it cannot be written.

    >>> with tempfile.TemporaryDirectory() as place:
    ...     for text in ("first", "second"):
    ...         replace_folder(Path(place, "notes"), lambda new: (new / text).touch())
    ...     sorted(path.name for path in Path(place).rglob("*"))
    ['notes', 'second']
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            new, old = aside / "new", aside / "old"
            new.mkdir()
            write(new)
            if target.exists():
                os.rename(target, old)
            try:
                os.rename(new, target)
            except OSError:
                if old.exists():
                    os.rename(old, target)
                raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error}.") from error
