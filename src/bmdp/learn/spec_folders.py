"""Folders that a `spec.json` makes what they are: made whole, read with care, used by one process.

Training runs (`bmdp.learn.run_folder`) and experiments (`bmdp.experiments.running.store`) are such
folders.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from bmdp.errors import StoreError
from bmdp.learn.whole_files import write_text

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows, where nothing keeps two processes apart)
    fcntl = None  # type: ignore[assignment]

SCHEMA = 1
SPEC = "spec.json"
_PAUSE = 0.05  # seconds between two looks at a lock

Header = dict[str, Any]


def create_folder(target: Path, header: Header) -> None:
    """Makes a folder with its `spec.json`, whole or not at all. An empty one may be there.

    Raises:
        StoreError: if it cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            write_text(aside / SPEC, json.dumps({"schema": SCHEMA, **header}, indent=1) + "\n")
            aside.chmod(0o755)  # of mkdtemp it is 0o700
            aside.rename(target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error}.") from error


def read_header(path: Path, what: str, is_one: Callable[[Header], bool]) -> Header:
    """Returns what the `spec.json` of a folder says.

    Args:
        path: of the folder.
        what: it must be, in words.
        is_one: whether what it says is of such a folder.

    Raises:
        StoreError: if it is not, or is of a newer schema.
    """
    source = path / SPEC
    if not source.is_file():
        raise StoreError(f"{path} is no {what}: there is no {SPEC} in it.")
    try:
        header = json.loads(source.read_text())
    except (OSError, ValueError) as error:
        raise StoreError(f"{source} is not JSON: {error}.") from error
    schema = header.get("schema") if isinstance(header, dict) else None
    if not isinstance(schema, int) or not is_one(header):
        article = "an" if what[0] in "aeiou" else "a"
        raise StoreError(f"{source} is not of {article} {what}.")
    if schema > SCHEMA:
        raise StoreError(
            f"{path} is of schema {schema}, newer than {SCHEMA}: upgrade bmdp to read it."
        )
    return dict(header)


def discard_folder(
    path: str | os.PathLike[str], what: str, held: Callable[[Path], AbstractContextManager[None]]
) -> None:
    """Deletes a folder of a kind, and nothing that is none.

    Args:
        path: of the folder; an empty one is deleted, too.
        what: it must be, in words.
        held: opens such a folder and keeps other processes away from it.

    Raises:
        StoreError: if it holds something else, or a process is at work in it.
    """
    target = Path(path)
    if target.is_dir() and not any(target.iterdir()):
        target.rmdir()
    elif target.exists():
        if not (target / SPEC).is_file():
            raise StoreError(f"{target} is no {what}, and is not overwritten.")
        with held(target):
            shutil.rmtree(target)


@contextmanager
def locked(lock: Path, owned: Path, *, wait: float = 0.0) -> Iterator[None]:
    """Keeps other processes away. The lock of a process that died holds nobody back.

    Args:
        lock: a file, which says who holds it; made if it is not there.
        owned: what it guards, for messages.
        wait: seconds that another process is given to end.

    Raises:
        StoreError: if another process is at work there.
    """
    try:
        file = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise StoreError(f"{lock} cannot be written: {error}.") from error
    try:
        if fcntl is not None:
            _hold(file, owned, time.monotonic() + wait)
        os.truncate(file, 0)
        os.pwrite(file, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(file)  # frees the lock


def _hold(file: int, owned: Path, until: float) -> None:
    """Takes the lock of an open file."""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if time.monotonic() >= until:
                owner = os.pread(file, 300, 0).decode(errors="replace").strip()
                raise StoreError(
                    f"{owned} is in use by process {owner}: wait for it, or end it."
                ) from error
        time.sleep(_PAUSE)
