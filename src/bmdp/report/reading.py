"""The folder of an experiment as a value: what it was to do, what it has found, what is missing.

A folder can be read at any time, while an experiment is running and after it was killed. What is
not there yet, or is damaged, is left out, and `Results.notes` say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bmdp.errors import BmdpError, StoreError
from bmdp.experiments.experiment import read_piece
from bmdp.experiments.running.spec import KIND
from bmdp.experiments.running.store import FINISHED, TENSORBOARD
from bmdp.learn.runs import RECORDS, read_records
from bmdp.report.pieces import READERS, Piece
from bmdp.report.studies import CHECKS
from bmdp.storage import POLICY, SPEC, read_header

REPORT = "report"
_OLDEST = 1  # schema: pieces have not changed since
_SEED = re.compile(r"seed-(\d+)")

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class PartResults:
    """What one part has found.

    Args:
        part: its name; the main part is "".
        seed: None for a common part.
        pieces: by name; values of `bmdp.report.pieces` where there are such.
        records: of a training run, in their order.
        seconds: that it took, if it is finished.
        machine: that finished it.
    """

    part: str
    seed: int | None
    pieces: Mapping[str, Any]
    records: tuple[Piece, ...]
    seconds: float | None
    machine: Piece

    @property
    def is_finished(self) -> bool:
        """Whether all of it is done."""
        return self.seconds is not None


@dataclass(frozen=True, eq=False)
class Results:
    """What an experiment has found so far.

    Args:
        folder: of the experiment.
        experiment: its name.
        preset: its size.
        seeds: that it is to run.
        spec: all of `spec.json`.
        parts: what there is, of any part and seed.
        notes: what is missing or damaged, a sentence each.
    """

    folder: Path
    experiment: str
    preset: str
    seeds: tuple[int, ...]
    spec: Piece
    parts: tuple[PartResults, ...]
    notes: tuple[str, ...]

    def found(self, kind: type[T], name: str, part: str = "") -> dict[int, T]:
        """Returns the pieces of a name that a part has, by seed."""
        of_part = (one for one in self.parts if one.part == part and name in one.pieces)
        found = {one.seed: one.pieces[name] for one in of_part if one.seed is not None}
        return {seed: piece for seed, piece in found.items() if isinstance(piece, kind)}

    def common(self, kind: type[T], name: str) -> T | None:
        """Returns a piece of a common part, if there is one."""
        pieces = (one.pieces.get(name) for one in self.parts if one.seed is None)
        return next((piece for piece in pieces if isinstance(piece, kind)), None)

    def records(self, part: str = "") -> dict[int, tuple[Piece, ...]]:
        """Returns the records of a part that has any, by seed."""
        of_part = (one for one in self.parts if one.part == part and one.records)
        return {one.seed: one.records for one in of_part if one.seed is not None}

    @property
    def seconds(self) -> float:
        """Time that all finished parts took, added up."""
        return sum(one.seconds for one in self.parts if one.seconds is not None)


def experiment_folders(folder: Path) -> list[Path]:
    """Returns the folders of experiments that a folder is or holds, by name.

    Raises:
        StoreError: if there is none; it says what the folder is instead, where that can be told.
    """
    if not folder.is_dir():
        there = "is a file" if folder.exists() else "is not there"
        raise StoreError(f"{folder} {there}: give the folder of an experiment (`bmdp run --out`).")
    if (folder / SPEC).exists():
        _spec_of(folder)
        return [folder]
    children = sorted(path for path in folder.iterdir() if path.is_dir())
    found = [path for path in children if _kind(path) == KIND]
    if found:
        return found
    if (folder / POLICY).exists():
        raise StoreError(f"{folder} is a policy, not an experiment: `bmdp evaluate` measures it.")
    raise StoreError(
        f"{folder} is no experiment and holds none: there is no {SPEC} of one in it. "
        "`bmdp run EXPERIMENT --out FOLDER` makes one."
    )


def read_results(folder: Path, parts: Sequence[str] = ("",), common: Sequence[str] = ()) -> Results:
    """Returns what an experiment has found so far.

    Args:
        folder: of the experiment.
        parts: that each seed is to have.
        common: parts that there are to be once.

    Raises:
        StoreError: if the folder is not an experiment's, or its `spec.json` is damaged.
    """
    spec = _spec_of(folder)
    seeds = tuple(spec["seeds"])
    found: list[PartResults] = []
    notes: list[str] = []
    for part, seed, path in _places(folder, seeds):
        result, damage = _read_part(part, seed, path)
        found.append(result)
        notes += damage
    notes += _unfinished(found, seeds, parts, common)
    return Results(
        folder=folder,
        experiment=str(spec["experiment"]),
        preset=str(spec.get("preset", "")),
        seeds=seeds,
        spec=spec,
        parts=tuple(found),
        notes=tuple(notes),
    )


def value_of(name: str, piece: Piece) -> Any:
    """Returns a piece as the value that pieces of its name are, or as it is if it is right.

    Raises:
        StoreError: if it is not one.
    """
    kind = name.partition("-")[0]
    try:
        if kind in CHECKS:
            CHECKS[kind](piece)
        return READERS[kind](piece) if kind in READERS else piece
    except (BmdpError, KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise StoreError(f"{name}.json is damaged: {' '.join(str(error).split())}") from error


def _spec_of(folder: Path) -> Piece:
    """`spec.json` of an experiment."""
    if _kind(folder) in ("exploration", "data"):
        raise StoreError(
            f"{folder} is a training run, not an experiment: `bmdp evaluate {folder}` measures it."
        )
    spec = read_header(folder, KIND, lambda header: header.get("kind") == KIND, oldest=_OLDEST)
    seeds = spec.get("seeds")
    is_list = isinstance(seeds, list) and all(type(seed) is int for seed in seeds)
    if not is_list or not isinstance(spec.get("experiment"), str):
        raise StoreError(f"{folder / SPEC} is damaged: it must have 'experiment' and 'seeds'.")
    return spec


def _kind(folder: Path) -> Any:
    """What `spec.json` says that a folder is, if it says anything."""
    try:
        return read_piece(folder / SPEC).get("kind")
    except StoreError:
        return None


def _places(folder: Path, seeds: Sequence[int]) -> Iterator[tuple[str, int | None, Path]]:
    """Part, seed and folder of all that is there, but for seeds that were not asked for."""
    children = [path for path in folder.iterdir() if path.is_dir() and path.name[0] != "."]
    yield from (("", *place) for place in _seed_folders(children, seeds))
    for child in sorted(children):
        if child.name in (REPORT, TENSORBOARD) or _SEED.fullmatch(child.name):
            continue
        inner = [path for path in child.iterdir() if path.is_dir()]
        with_seeds = [(child.name, *place) for place in _seed_folders(inner, seeds)]
        if with_seeds:
            yield from with_seeds
        else:
            yield child.name, None, child


def _seed_folders(paths: Iterable[Path], seeds: Sequence[int]) -> list[tuple[int, Path]]:
    matches = ((_SEED.fullmatch(path.name), path) for path in paths)
    numbered = ((int(match[1]), path) for match, path in matches if match)
    return sorted((seed, path) for seed, path in numbered if seed in seeds)


def _read_part(part: str, seed: int | None, path: Path) -> tuple[PartResults, list[str]]:
    """What a folder holds, and what of it is damaged."""
    pieces: dict[str, Any] = {}
    notes: list[str] = []
    for source in sorted(path.glob("*.json")):
        if source.name == SPEC or source.name.startswith("."):
            continue
        try:
            pieces[source.stem] = value_of(source.stem, read_piece(source))
        except StoreError as error:
            # A piece tells of its name, a file of its path.
            told = str(error).replace(str(source), source.name)
            notes.append(f"{_name(part, [seed])}: {told.rstrip('.')}. It is left out.")
    finished = pieces.pop(Path(FINISHED).stem, None)
    seconds = finished.get("seconds") if isinstance(finished, Mapping) else None
    machine = finished.get("machine") if isinstance(finished, Mapping) else None
    result = PartResults(
        part=part,
        seed=seed,
        pieces=pieces,
        records=tuple(read_records(path / RECORDS)),
        seconds=float(seconds) if isinstance(seconds, int | float) else None,
        machine=machine if isinstance(machine, Mapping) else {},
    )
    return result, notes


def _unfinished(
    found: Sequence[PartResults],
    seeds: Sequence[int],
    parts: Sequence[str],
    common: Sequence[str],
) -> Iterator[str]:
    """Tells which parts are not finished, in a sentence for each part."""
    done = {(one.part, one.seed) for one in found if one.is_finished}
    yield from (
        f"{_name(part, [None])} is not finished." for part in common if (part, None) not in done
    )
    for part in parts:
        missing = [seed for seed in seeds if (part, seed) not in done]
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            yield f"{_name(part, missing)} {verb} not finished."


def _name(part: str, seeds: Sequence[int | None]) -> str:
    """What a part and its seeds are called in a sentence."""
    if list(seeds) == [None]:
        return part
    which = ("seed " if len(seeds) == 1 else "seeds ") + ", ".join(map(str, seeds))
    return f"{part}, {which}" if part else which
