"""Folders that hold a policy: arrays as safetensors, the rest as JSON, and a manifest.

    folder/
      manifest.json        schema, and the SHA-256 of every other file
      value.json           kind and settings
      arrays.safetensors   if there are arrays
      <part>/              the same for a part, such as the greedy half of an exploring policy

Whatever can be stored is a frozen dataclass marked `storable`, whose fields are arrays, other such
values or tuples of them, or what JSON can say. A folder is written beside its place and then
renamed, so that it is either whole or absent. Nothing in it is executed when it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from bmdp.errors import BmdpError, StoreError
from bmdp.folders import replace_folder

T = TypeVar("T")

SCHEMA = 1
_JSON = (bool, int, float, str, tuple)
_MANIFEST, _VALUE, _ARRAYS = "manifest.json", "value.json", "arrays.safetensors"


@dataclass(frozen=True)
class Stored:
    """A policy, or a part of one, as plain data."""

    kind: str  # name of its class
    settings: dict[str, Any]  # JSON values
    arrays: dict[str, NDArray[Any]]
    parts: dict[str, Stored]


_KINDS: dict[str, type[Any]] = {}
_ELSEWHERE: dict[str, str] = {}  # kinds that are not imported yet, and their modules


def storable(cls: type[T]) -> type[T]:
    """Marks a dataclass as one that can be stored under its name."""
    _KINDS[cls.__name__] = cls
    return cls


def storable_in(module: str, kind: str) -> None:
    """Says where a kind is that can be stored: a module that is imported once it is read."""
    _ELSEWHERE[kind] = module


def to_stored(value: Any) -> Stored:
    """Returns a value as plain data.

    Raises:
        StoreError: if it, or a part of it, cannot be stored.
    """
    kind = type(value).__name__
    if _KINDS.get(kind) is not type(value):
        name = getattr(value, "__name__", kind)
        raise StoreError(f"{name!r} cannot be stored: only {', '.join(sorted(_KINDS))} can.")
    content = {f.name: getattr(value, f.name) for f in fields(value)}
    arrays = {name: v for name, v in content.items() if isinstance(v, np.ndarray)}
    several = {name: v for name, v in content.items() if _is_several(v)}
    settings = {n: v for n, v in content.items() if isinstance(v, _JSON) and n not in several}
    others = content.keys() - arrays.keys() - settings.keys() - several.keys()
    parts = {name: to_stored(content[name]) for name in others}
    for name, values in several.items():
        parts |= {f"{name}.{i}": to_stored(value) for i, value in enumerate(values)}
    return Stored(kind, settings, arrays, parts)


def from_stored(stored: Stored) -> Any:
    """Returns the value that plain data describe.

    Raises:
        StoreError: if its kind is unknown, or does not take these data.
    """
    if stored.kind not in _KINDS and stored.kind in _ELSEWHERE:
        import_module(_ELSEWHERE[stored.kind])
    if stored.kind not in _KINDS:
        known = ", ".join(sorted(_KINDS))
        raise StoreError(f"A stored value of kind {stored.kind!r} is unknown; known are {known}.")
    parts: dict[str, Any] = {}
    for name, part in sorted(stored.parts.items(), key=lambda item: _number(item[0])):
        whole, dot, _ = name.partition(".")
        value = from_stored(part)
        parts[whole] = (*parts.get(whole, ()), value) if dot else value
    try:
        return _KINDS[stored.kind](**stored.settings, **stored.arrays, **parts)
    except (BmdpError, TypeError) as error:
        raise StoreError(f"A stored {stored.kind} does not make sense: {error}") from error


def _is_several(value: Any) -> bool:
    """Whether it is a tuple of values that can be stored."""
    return isinstance(value, tuple) and any(type(v).__name__ in _KINDS for v in value)


def _number(part: str) -> int:
    """The number of a part of several, by which they are put in order."""
    number = part.rpartition(".")[2]
    return int(number) if number.isdigit() else -1


def write_stored(
    stored: Stored, folder: str | os.PathLike[str], *, overwrite: bool = False
) -> None:
    """Writes a folder, whole or not at all.

    Raises:
        StoreError: if it exists and may not be overwritten, or cannot be written.
    """
    target = Path(folder)
    if target.exists() and not overwrite:
        raise StoreError(f"{target} exists already: choose another folder, or pass overwrite=True.")
    replace_folder(target, lambda new: _write_whole(stored, new))


def read_stored(folder: str | os.PathLike[str]) -> Stored:
    """Reads a folder, after checking it against its manifest.

    Raises:
        StoreError: if it is missing, of a newer schema, or not what its manifest says.
    """
    source = Path(folder)
    manifest = _read_json(source / _MANIFEST)
    schema, files = manifest.get("schema"), manifest.get("files")
    if not isinstance(schema, int) or not isinstance(files, dict):
        raise StoreError(f"{source / _MANIFEST} is not a manifest of this library.")
    if schema > SCHEMA:
        raise StoreError(
            f"{source} is of schema {schema}, newer than {SCHEMA}: upgrade bmdp to read it."
        )
    for name, expected in files.items():
        path = source / name
        if not path.is_file() or _sha256(path) != expected:
            raise StoreError(f"{path} is missing, or is not the file that the manifest describes.")
    return _read_part(source, set(files))


def _write_whole(stored: Stored, folder: Path) -> None:
    """Writes all parts, and then the manifest of their files."""
    _write_part(stored, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    hashes = {path.relative_to(folder).as_posix(): _sha256(path) for path in files}
    manifest = {"schema": SCHEMA, "files": hashes}
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1))


def _write_part(stored: Stored, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    value = {"kind": stored.kind, "settings": stored.settings, "parts": sorted(stored.parts)}
    (folder / _VALUE).write_text(json.dumps(value, indent=1))
    if stored.arrays:
        arrays = {name: np.ascontiguousarray(array) for name, array in stored.arrays.items()}
        save_file(arrays, folder / _ARRAYS)
    for name, part in stored.parts.items():
        _write_part(part, folder / name)


def _read_part(folder: Path, files: set[str], prefix: str = "") -> Stored:
    """Reads what the manifest lists, and nothing else."""
    value = _read_json(folder / _VALUE) if prefix + _VALUE in files else {}
    if not {"kind", "settings", "parts"} <= value.keys():
        raise StoreError(f"{folder} holds no {_VALUE} with kind, settings and parts.")
    arrays: dict[str, NDArray[Any]] = {}
    if prefix + _ARRAYS in files:
        try:
            arrays = load_file(folder / _ARRAYS)
        except SafetensorError as error:
            raise StoreError(f"{folder / _ARRAYS} is not a safetensors file: {error}.") from error
    parts = {name: _read_part(folder / name, files, f"{prefix}{name}/") for name in value["parts"]}
    return Stored(value["kind"], value["settings"], arrays, parts)


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


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
