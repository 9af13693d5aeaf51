"""Pictures that verbs write: whether they can be is found out before any work is done."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from bmdp.errors import StoreError


def require_place(path: Path, force: bool) -> None:
    """Checks that a picture can be written.

    Raises:
        StoreError: if there is a file of that name, which may not be overwritten, or no folder.
    """
    if os.path.exists(path) and not force:
        raise StoreError(f"{path} exists already. Choose another name, or overwrite with --force.")
    if not os.path.isdir(path.parent):
        raise StoreError(f"{path} cannot be written: there is no folder {path.parent}.")


def write_picture(path: Path, content: bytes, force: bool) -> None:
    """Writes a picture, and says where it is.

    Raises:
        StoreError: if it cannot be written.
    """
    try:
        with path.open("wb" if force else "xb") as file:
            file.write(content)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}.") from error
    typer.echo(f"picture: {path}", err=True)
