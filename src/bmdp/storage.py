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
import reprlib
import shutil
import socket
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.lib.format import MAGIC_PREFIX
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from bmdp.errors import StoreError

try:
    import fcntl
except ImportError:  # pragma: no cover (Windows)
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")
AnyPath = str | os.PathLike[str]
Header = dict[str, Any]

FORMAT = 2
SCHEMA, SPEC = 2, "spec.json"
POLICY, WEIGHTS = "policy.json", "weights.safetensors"
_ASIDE = ".new"  # end of the name of a folder in which something is being written
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


def save_value(value: Any, folder: AnyPath, *, overwrite: bool = False) -> None:
    """Writes a value to a folder, whole or not at all.

    Raises:
        StoreError: if a part of it cannot be stored, or the folder exists and may not be
            overwritten, or cannot be written.
    """
    arrays: dict[str, NDArray[Any]] = {}
    content = _plain(value, "", arrays)
    sweep(folder)
    with written(folder, overwrite=overwrite) as new:
        new.mkdir()
        _write(new, content, arrays)


def load_value(folder: AnyPath) -> Any:
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
    if type(number) is not int or not isinstance(header.get("content"), dict):
        raise StoreError(f"{source / POLICY} does not describe a policy of this library.")
    if number != FORMAT:
        hint = " Upgrade bmdp to read it." if number > FORMAT else ""
        raise StoreError(
            f"{source} is of format {number}, written by bmdp {one_line(header.get('bmdp'))[:40]}; "
            f"this version reads format {FORMAT}.{hint}"
        )
    if header.get("checksum") != _checksum(header["content"], source / WEIGHTS):
        raise StoreError(f"{source} is damaged: its files are not those that were written.")
    try:
        arrays = load_file(source / WEIGHTS)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{source / WEIGHTS} cannot be read: {one_line(error)}.") from error
    return _made(header["content"], arrays)


def kinds_of(folder: AnyPath) -> set[str]:
    """Returns the kinds that a stored value is made of, which must be registered to load it."""
    return _named(folder, _KIND)


def checksum_of(folder: AnyPath) -> str:
    """Returns the checksum of a stored value, of all its settings and arrays.

    Raises:
        StoreError: if the folder is missing, or holds none.
    """
    return str(_read_json(Path(folder) / POLICY).get("checksum"))


def modules_of(folder: AnyPath) -> set[str]:
    """Returns the modules that register those kinds, but for the library's own."""
    return _named(folder, _MODULE)


def _named(folder: AnyPath, key: str) -> set[str]:
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


@contextmanager
def written(path: AnyPath, *, overwrite: bool = True) -> Iterator[Path]:
    """Gives a path to write a file or a folder to, which then takes its place, on the disk.

    Nobody sees it before it is whole. If it cannot be written, what was there before stays.

    Args:
        path: its place.
        overwrite: whether it may replace something; an empty folder is nothing.

    Raises:
        StoreError: if there is something that it may not replace, or it cannot be written.

    >>> with tempfile.TemporaryDirectory() as place:
    ...     for text in ("first", "second"):
    ...         with written(Path(place, "notes")) as new:
    ...             _ = new.write_text(text)
    ...     [(file.name, file.read_text()) for file in Path(place).iterdir()]
    [('notes', 'second')]
    """
    target = Path(path)
    try:
        if not overwrite and target.exists() and not _is_empty_folder(target):
            raise StoreError(
                f"{target} exists already: choose another name, or pass overwrite=True."
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(
                _ASIDE, f".{target.name}.", target.parent, ignore_cleanup_errors=True
            ) as aside,
            _held(Path(aside)),
        ):
            new, mode = Path(aside, "new"), _usual_mode(Path(aside))
            yield new
            for part in (*new.rglob("*"), new):
                if part.is_file() and stat.S_IMODE(part.stat().st_mode) != mode:
                    part.chmod(mode)  # some libraries make files that nobody else may read
                to_disk(part)
            _put(new, target, overwrite)
            to_disk(target.parent)
    except StoreError:
        raise
    except (OSError, SafetensorError) as error:  # the latter of a disk that is full
        raise StoreError(f"{target} cannot be written: {error}.") from error


def _usual_mode(folder: Path) -> int:
    """Who may read and write a new file, as the user has it (umask)."""
    probe = folder / "probe"
    probe.touch()
    return stat.S_IMODE(probe.stat().st_mode)


@contextmanager
def _held(aside: Path) -> Iterator[bool]:
    """Marks a folder as in use while this process lives; gives whether it was in use already."""
    if fcntl is None:  # pragma: no cover (Windows)
        yield True
        return
    place, is_used = os.open(aside, os.O_RDONLY), False
    try:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # by a process that lives, or the file system cannot tell
            is_used = True
        yield is_used
    finally:
        os.close(place)


def sweep(path: AnyPath, *, within: bool = False) -> None:
    """Deletes what `written` left of a file or folder in processes that were killed.

    What a living process is writing stays. Where a folder was being replaced and is gone, the one
    that was to be replaced comes back.

    Args:
        path: its place.
        within: whether to look in the folder, too, and in all folders in it.

    >>> with tempfile.TemporaryDirectory() as place:
    ...     Path(place, ".notes.x7.new").mkdir()
    ...     sweep(Path(place, "notes"))
    ...     list(Path(place).iterdir())
    []
    """
    target = Path(path)
    begin = f".{target.name}."
    beside = (one for one in _entries(target.parent) if one.name.startswith(begin))
    for left in (*beside, *(target.rglob(f".*{_ASIDE}") if within else ())):
        if left.name.endswith(_ASIDE) and left.is_dir():
            with _held(left) as is_used:
                if not is_used:
                    _clear_away(left)


def _clear_away(left: Path) -> None:
    """Deletes a folder that a killed process wrote in, but for an old one that has no other."""
    target = left.with_name(left.name[1:].removesuffix(_ASIDE).rpartition(".")[0])
    with suppress(OSError):
        if (left / "old").is_dir() and not target.exists():
            os.rename(left / "old", target)
    shutil.rmtree(left, ignore_errors=True)


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # it is not there, or is not to be read
        return []


def _put(new: Path, target: Path, overwrite: bool) -> None:
    """Moves what is new to its place. A file replaces no folder."""
    if not new.is_dir() or not target.exists():
        os.replace(new, target)
        return
    old = new.with_name("old")
    try:
        if overwrite:
            os.rename(target, old)
        else:
            target.rmdir()  # which is empty
        os.rename(new, target)
    except BaseException:  # an interrupt, too
        if old.exists() and not target.exists():
            os.rename(old, target)
        raise


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def replace_folder(target: Path, write: Callable[[Path], Any]) -> None:
    """Fills a new folder by a function, and puts it in its place, where an earlier one may be."""
    sweep(target)
    with written(target) as new:
        new.mkdir()
        write(new)


def write_text(path: Path, text: str) -> None:
    """Writes a file, whole or not at all."""
    with written(path) as new:
        new.write_text(text)


def to_disk(path: Path) -> None:
    """Waits until a file or folder is on the disk."""
    if os.name == "nt" and path.is_dir():  # which Windows cannot wait for
        return
    file = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(file)
    finally:
        os.close(file)


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
        name = value[_ARRAY]
        if not isinstance(name, str) or name not in arrays:
            raise StoreError(f"an array is missing: {one_line(name)[:100]}.")
        return arrays[name]
    if value.keys() == {"number"}:
        if value["number"] not in ("inf", "-inf", "nan"):
            raise StoreError(f"a number must be inf, -inf or nan; got {_told(value['number'])}.")
        return float(value["number"])
    kind = value.get(_KIND)
    if not isinstance(kind, str) or not is_registered(kind):
        module = value.get(_MODULE)
        hint = f" Import {module}, which registers it, before." if module else ""
        raise StoreError(f"a stored value of kind {_told(kind)} is unknown.{hint}")
    parts = {n: _made(v, arrays) for n, v in value.items() if n not in (_KIND, _MODULE)}
    make = _RESTORERS.get(kind) or _KINDS[kind]
    try:
        require_types(kind, make, parts)
        return make(**parts)
    except Exception as error:  # of its own checks, whatever they raise
        raise StoreError(f"a stored {kind} does not make sense: {one_line(error)}") from error


def require_types(kind: str, make: Callable[..., Any], parts: Mapping[str, Any]) -> None:
    """Checks that parts are of the types that a class, or a function, says they are.

    Raises:
        StoreError: naming the first that is not.
    """
    known = _types_of(make)
    for name, value in parts.items():
        hint, default = known.get(name, (Any, MISSING))
        if not _fits(value, hint) and not (value is None and default is None):
            raise StoreError(f"{kind}.{name} must be {_words(hint)}; got {_told(value)}.")


@cache
def _types_of(make: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Types and defaults of what makes a value, by name; none of a class inside of a function."""
    try:
        hints = get_type_hints(make)
    except NameError:
        return {}
    if not isinstance(make, type):
        return {name: (hint, MISSING) for name, hint in hints.items()}
    return {f.name: (hints[f.name], f.default) for f in fields(make)}


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; those that are not listed here are not looked at."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in inner)
    if origin in (tuple, list) or hint in (tuple, list):
        return isinstance(value, tuple) and _fit(value, inner)
    if origin is np.ndarray:
        return isinstance(value, np.ndarray) and value.dtype.kind in _array_kinds(inner)
    if hint in _PLAIN:
        return _PLAIN[hint][0](value)
    if not isinstance(hint, type):
        return callable(value) if origin is Callable else True
    if getattr(hint, "_is_protocol", False):
        asked = (name for name in dir(hint) if not name.startswith("_"))
        return all(hasattr(type(value), n) or n in getattr(value, "__dict__", {}) for n in asked)
    return isinstance(value, hint)


def _fit(values: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    """Whether items of a list are of their types."""
    if not hints:
        return True
    if len(hints) == 1 or hints[1] is Ellipsis:
        return all(_fits(value, hints[0]) for value in values)
    return len(values) == len(hints) and all(map(_fits, values, hints))


def _array_kinds(inner: tuple[Any, ...]) -> str:
    """Kinds of numbers of an array; whole numbers may stand for others."""
    told = str(inner[-1])
    for word, kinds in {"bool": "b", "floating": "fiu", "float": "fiu", "integer": "iu"}.items():
        if word in told:
            return kinds
    return "fiub"


def _is_whole(value: Any) -> bool:
    return type(value) is int and abs(value) < 2**64


def _is_number(value: Any) -> bool:
    return type(value) is float or _is_whole(value)


_PLAIN: dict[Any, tuple[Callable[[Any], bool], str]] = {
    int: (_is_whole, "a whole number"),
    float: (_is_number, "a number"),
    bool: (lambda value: type(value) is bool, "true or false"),
    str: (lambda value: type(value) is str, "a text"),
    NoneType: (lambda value: value is None, "null"),
}


def _words(hint: Any) -> str:
    """A type in words."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint][1]
    if origin in (Union, UnionType):
        return " or ".join(map(_words, inner))
    if origin is Literal:
        return " or ".join(map(repr, inner))
    if origin is tuple:
        return f"a list of {', '.join(_words(one) for one in inner if one is not Ellipsis)}"
    if origin is np.ndarray:
        return {"b": "an array of truth values", "iu": "an array of whole numbers"}.get(
            _array_kinds(inner), "an array of numbers"
        )
    return f"a {hint.__name__}" if isinstance(hint, type) else "what it was"


def _told(given: Any) -> str:
    """A value in a few words, on one line."""
    return one_line(reprlib.repr(given))


def one_line(said: Any) -> str:
    r"""Returns what an error says, on one line.

    >>> one_line(ValueError("two\n  lines"))
    'two lines'
    """
    return " ".join(str(said).split()) or type(said).__name__


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
    value = read_json(path)
    if not isinstance(value, dict):
        raise StoreError(f"{path} must hold a JSON object.")
    return value


def read_json(path: Path) -> Any:
    """Returns what a JSON file says.

    Raises:
        StoreError: if it cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not JSON: {one_line(error)}.") from error


def sealed(content: Mapping[str, Any], number: int) -> dict[str, Any]:
    """Returns what a JSON file is to say, with its format, the version and a checksum.

    >>> list(sealed({"seconds": 1.5}, 1))
    ['format', 'bmdp', 'checksum', 'seconds']
    """
    from bmdp import __version__

    said = json.loads(json.dumps(content))
    return {"format": number, "bmdp": __version__, "checksum": _json_checksum(said), **said}


def read_sealed(path: Path, number: int) -> dict[str, Any]:
    """Returns what was `sealed` and written to a JSON file.

    Raises:
        StoreError: if it cannot be read, is of a newer format, or is not what was written.
    """
    found = _read_json(path)
    marks = ("format", "bmdp", "checksum")
    said = {name: item for name, item in found.items() if name not in marks}
    mark = found.get("format")
    if type(mark) is int and mark > number:
        raise StoreError(f"{path} is of format {mark}, newer than {number}: upgrade bmdp.")
    if mark != number or found.get("checksum") != _json_checksum(said):
        raise StoreError(f"{path} is damaged: it is not what was written.")
    return said


def _json_checksum(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def npz_arrays(path: Path, chosen: Sequence[str]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Returns the names of all arrays of an npz file, and those of the chosen ones that are there.

    All of the file is checked by its checksums first, that of arrays that are not chosen, too.

    Raises:
        ValueError: if it is no such file, is damaged, or holds pickles.
        OSError: if it cannot be read.
    """
    try:
        with path.open("rb") as opened:
            if opened.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX:
                raise ValueError("it holds a single array")
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
            names = archive.namelist()
        if damaged is not None or len(set(names)) < len(names):
            raise ValueError(f"{damaged or 'a name that is there twice'} is damaged")
        with np.load(path, allow_pickle=False) as file:
            own = tuple(file.files)
            return own, {name: np.array(file[name]) for name in chosen if name in own}
    except OSError:
        raise
    except Exception as error:  # there is much that a reader of archives may raise
        raise ValueError(one_line(error)) from error


def arrays_hash(arrays: dict[str, NDArray[Any]], mark: str = "") -> str:
    """Returns the SHA-256 of named arrays: names, types, shapes and contents."""
    found = hashlib.sha256(mark.encode())
    for name in sorted(arrays):
        array = arrays[name]
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        if array.size:  # without a copy of it
            found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def files_hash(paths: Iterable[AnyPath]) -> str:
    """Returns the SHA-256 of files and of all files in folders, by their order and contents."""
    found = hashlib.sha256()
    for path in map(Path, paths):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                with file.open("rb") as opened:
                    found.update(hashlib.file_digest(opened, "sha256").digest())
    return found.hexdigest()


def create_folder(
    target: Path, header: Header, fill: Callable[[Path], Any] = lambda new: None
) -> Header:
    """Makes a folder with its `spec.json`, whole or not at all. An empty one may be there.

    Args:
        target: its place.
        header: what it is.
        fill: adds more to the new folder.

    Returns:
        The header with its schema.

    Raises:
        StoreError: if something is there, or it cannot be written.
    """
    whole = {"schema": SCHEMA, **header}
    sweep(target)
    with written(target, overwrite=False) as new:
        new.mkdir()
        (new / SPEC).write_text(header_text(whole))
        fill(new)
    return whole


def header_text(header: Header) -> str:
    """Returns the text of a `spec.json`: what a folder is, and a checksum of that."""
    said = json.loads(json.dumps(header))
    return json.dumps({**said, "checksum": _json_checksum(said)}, indent=1) + "\n"


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
        StoreError: if it is not, is damaged, or is of a newer schema, or of an older one.
    """
    source = path / SPEC
    if not source.is_file():
        raise StoreError(f"{path} is no {what}: there is no {SPEC} in it.")
    header = read_json(source)
    schema = header.get("schema") if isinstance(header, dict) else None
    if type(schema) is not int or not is_one(header):
        article = "an" if what[0] in "aeiou" else "a"
        raise StoreError(f"{source} is not of {article} {what}.")
    if schema > SCHEMA:
        raise StoreError(
            f"{path} is of schema {schema}, newer than {SCHEMA}: upgrade bmdp to read it."
        )
    if schema < oldest:
        raise StoreError(f"{path} was begun by bmdp 0.1.0, which this version does not go on with.")
    told = header.pop("checksum", None)
    if told is not None and told != _json_checksum(header):
        raise StoreError(
            f"{source} is not what was written: it is damaged. If it was changed on purpose, take "
            "its checksum out."
        )
    return dict(header)


def discard_folder(
    path: AnyPath, what: str, held: Callable[[Path], AbstractContextManager[None]]
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
    if _is_empty_folder(target):
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
        lock: a file, made if it is not there; one beside it says who holds it.
        owned: what it guards, for messages.
        wait: seconds that another process is given to end.

    Raises:
        StoreError: if another process is at work there.
    """
    from filelock import FileLock, Timeout  # takes a moment to import

    holder = lock.with_name(f"{lock.name}.holder")  # a lock cannot be read on all systems
    try:
        held = FileLock(lock).acquire(timeout=wait)
    except Timeout as error:
        who = (holder.read_text().strip() if holder.is_file() else "") or "another"
        raise StoreError(f"{owned} is in use by process {who}: wait for it, or end it.") from error
    except OSError as error:
        raise StoreError(f"{lock} cannot be written: {error}.") from error
    with held:
        with suppress(OSError):  # of a disk that is full; the lock holds without it
            holder.write_text(f"{os.getpid()} on {socket.gethostname()}\n")
        try:
            yield
        finally:
            holder.unlink(missing_ok=True)
