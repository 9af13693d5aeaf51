"""Values on disk: policies in two files, and files and folders that are whole or not there at all.

    folder/
      policy.json           format, version, checksum; kinds and settings of all parts
      weights.safetensors   all arrays, named by their place in policy.json

Whatever can be stored is a frozen dataclass marked `storable`, whose fields are arrays, other such
values or tuples of them, or what JSON can say; or an object with a `stored()` method (a torch
module) whose class is registered by `restores`. Nothing in a file is executed when it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from bmdp.errors import BmdpError, StoreError

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows, where nothing keeps two processes apart)
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")
Header = dict[str, Any]

FORMAT = 2
SCHEMA, SPEC = 2, "spec.json"
_PAUSE = 0.05  # seconds between two looks at a lock
POLICY, WEIGHTS = "policy.json", "weights.safetensors"
_ARRAY, _KIND, _MODULE = "array", "kind", "module"

_KINDS: dict[str, type[Any]] = {}
_RESTORERS: dict[str, Callable[..., Any]] = {}


def storable(cls: type[T]) -> type[T]:
    """Marks a dataclass as one that can be stored under its name."""
    _KINDS[cls.__name__] = cls
    return cls


def restores(kind: str) -> Callable[[T], T]:
    """Marks a function that makes an object of a kind, given its parts by name."""

    def mark(function: T) -> T:
        _RESTORERS[kind] = function  # type: ignore[assignment]
        return function

    return mark


def save_value(value: Any, folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Writes a value to a folder, whole or not at all.

    Raises:
        StoreError: if a part of it cannot be stored, or the folder exists and may not be
            overwritten, or cannot be written.
    """
    target = Path(folder)
    arrays: dict[str, NDArray[Any]] = {}
    content = _plain(value, "", arrays)
    if target.exists() and not overwrite:
        raise StoreError(f"{target} exists already: choose another folder, or pass overwrite=True.")
    replace_folder(target, lambda new: _write(new, content, arrays))


def load_value(folder: str | os.PathLike[str]) -> Any:
    """Returns the value that `save_value` wrote, after checking its checksum.

    Raises:
        StoreError: if the folder is missing, damaged, of another format, or of an unknown kind.
    """
    source = Path(folder)
    if (source / "manifest.json").exists() and not (source / POLICY).exists():
        raise StoreError(
            f"{source} was written by bmdp 0.1.0, in a format that this version does not read: "
            "train it again, or load it with bmdp 0.1.0."
        )
    header = _read_json(source / POLICY)
    number = header.get("format")
    if not isinstance(number, int) or not isinstance(header.get("content"), dict):
        raise StoreError(f"{source / POLICY} does not describe a policy of this library.")
    if number != FORMAT:
        raise StoreError(
            f"{source} is of format {number}, written by bmdp {header.get('bmdp')}; this version "
            f"reads format {FORMAT}."
        )
    if header.get("checksum") != _checksum(header["content"], source / WEIGHTS):
        raise StoreError(f"{source} is damaged: its files are not those that were written.")
    try:
        arrays = load_file(source / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise StoreError(f"{source / WEIGHTS} cannot be read: {error}.") from error
    return _made(header["content"], arrays)


def kinds_of(folder: str | os.PathLike[str]) -> set[str]:
    """Returns the kinds that a stored value is made of, which must be registered to load it."""
    return _named(folder, _KIND)


def modules_of(folder: str | os.PathLike[str]) -> set[str]:
    """Returns the modules that register those kinds, but for the library's own."""
    return _named(folder, _MODULE)


def _named(folder: str | os.PathLike[str], key: str) -> set[str]:
    """All words under a key in what describes a stored value."""
    found: set[str] = set()

    def look(value: Any) -> None:
        if isinstance(value, dict):
            found.update({value[key]} if isinstance(value.get(key), str) else ())
            value = list(value.values())
        if isinstance(value, list):
            for item in value:
                look(item)

    path = Path(folder) / POLICY
    if path.is_file():
        look(_read_json(path).get("content"))
    return found


def is_registered(kind: str) -> bool:
    """Whether a kind can be loaded."""
    return kind in _KINDS or kind in _RESTORERS


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
            try:
                if target.exists():
                    os.rename(target, old)
                os.rename(new, target)
            except BaseException:  # an interrupt, too: `old` is deleted below
                if old.exists() and not target.exists():
                    os.rename(old, target)
                raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise StoreError(f"{target} cannot be written: {error}.") from error


def _plain(value: Any, place: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """A value as JSON has it; arrays are put aside under the name of their place."""
    if isinstance(value, np.ndarray):
        arrays[place] = np.ascontiguousarray(value)
        return {_ARRAY: place}
    if isinstance(value, tuple | list):
        return [_plain(item, f"{place}.{i}", arrays) for i, item in enumerate(value)]
    if isinstance(value, np.integer | np.bool_):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else {"number": str(float(value))}
    kind = type(value).__name__
    if hasattr(value, "stored"):
        kind, content = value.stored()
    elif _KINDS.get(kind) is type(value):
        content = {f.name: getattr(value, f.name) for f in fields(value)}
    else:
        name = getattr(value, "__name__", kind)
        raise StoreError(f"{name!r} cannot be stored: only {', '.join(sorted(_KINDS))} can.")
    where = f"{place}." if place else ""
    plain = {name: _plain(item, f"{where}{name}", arrays) for name, item in content.items()}
    home = type(value).__module__
    module = {} if home.partition(".")[0] == "bmdp" else {_MODULE: home}
    return {_KIND: kind, **module, **plain}


def _made(value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The value that plain data describe."""
    if isinstance(value, list):
        return tuple(_made(item, arrays) for item in value)
    if not isinstance(value, dict):
        return value
    if value.keys() == {_ARRAY}:
        if value[_ARRAY] not in arrays:
            raise StoreError(f"an array is missing: {value[_ARRAY]}.")
        return arrays[value[_ARRAY]]
    if value.keys() == {"number"}:
        return float(value["number"])
    kind = value.get(_KIND)
    if not isinstance(kind, str) or not is_registered(kind):
        module = value.get(_MODULE)
        hint = f" Import {module}, which registers it, before." if module else ""
        raise StoreError(f"a stored value of kind {kind!r} is unknown.{hint}")
    parts = {n: _made(v, arrays) for n, v in value.items() if n not in (_KIND, _MODULE)}
    try:
        if kind in _RESTORERS:
            return _RESTORERS[kind](**parts)
        return _KINDS[kind](**parts)
    except (BmdpError, TypeError, ValueError) as error:
        raise StoreError(f"a stored {kind} does not make sense: {error}") from error


def _write(folder: Path, content: Any, arrays: dict[str, NDArray[Any]]) -> None:
    from bmdp import __version__

    save_file(arrays, folder / WEIGHTS)
    header = {
        "format": FORMAT,
        "bmdp": __version__,
        "checksum": _checksum(content, folder / WEIGHTS),
        "content": content,
    }
    (folder / POLICY).write_text(json.dumps(header, indent=1) + "\n")


def _checksum(content: Any, weights: Path) -> str:
    found = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    if weights.is_file():
        found.update(weights.read_bytes())
    return found.hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise StoreError(f"{path} is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise StoreError(f"{path} must hold a JSON object.")
    return value


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
        to_disk(aside)
        os.replace(aside, path)
        to_disk(path.parent)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}.") from error
    finally:
        aside.unlink(missing_ok=True)


def to_disk(path: Path) -> None:
    """Waits until a file or folder is on the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


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


def read_header(
    path: Path, what: str, is_one: Callable[[Header], bool], *, oldest: int = SCHEMA
) -> Header:
    """Returns what the `spec.json` of a folder says.

    Args:
        path: of the folder.
        what: it must be, in words.
        is_one: whether what it says is of such a folder.
        oldest: schema that is read.

    Raises:
        StoreError: if it is not, or is of a newer schema, or of an older one.
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
    if schema < oldest:
        raise StoreError(f"{path} was begun by bmdp 0.1.0, which this version does not go on with.")
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
