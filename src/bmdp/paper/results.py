"""The folder of an experiment as values, and its section of a report.

A folder can be read at any time, while an experiment is running and after it was killed. What is
not there yet, or cannot be read, is left out, and `Results.notes` say so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.errors import BmdpError, StoreError
from bmdp.evaluation import Evaluation, Interval, mean_interval
from bmdp.frontier import BudgetStatus, Frontier, Mixture, upper_frontier
from bmdp.learn.runs import RECORDS, read_records
from bmdp.paper import CATALOG, experiment
from bmdp.paper.runner import read_piece
from bmdp.paper.scenes import check_scene
from bmdp.report.figures import Hull
from bmdp.report.page_checks import require_sections
from bmdp.report.section import Column, Data, Section, Table
from bmdp.report.series import CONFIDENCE, Curve, Over
from bmdp.storage import SPEC, read_header

T = TypeVar("T")

_ANY = "bmdp.paper.pictures"  # tells of any experiment, with what this module reads
_KIND, _OLDEST = "experiment", 1  # schema: pieces have not changed since
_FINISHED = "finished"
_OTHERS = ("report", "tensorboard")  # folders that are no parts
_SEED = re.compile(r"seed-(\d+)")
_UNREADABLE = (BmdpError, KeyError, TypeError, ValueError, IndexError, AttributeError)


@dataclass(frozen=True, eq=False)
class PartResults:
    """What one part has found.

    Args:
        part: its name; the main part is "".
        seed: None for a common part.
        pieces: by name.
        records: of a training run, in their order.
        seconds: that it took; None if it is not finished.
        machine: that finished it.
    """

    part: str
    seed: int | None
    pieces: Mapping[str, Data]
    records: tuple[Data, ...]
    seconds: float | None
    machine: Data


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
        notes: what is missing or cannot be read, a sentence each; reading a piece may add one.
    """

    folder: Path
    experiment: str
    preset: str
    seeds: tuple[int, ...]
    spec: Data
    parts: tuple[PartResults, ...]
    notes: list[str]

    @property
    def settings(self) -> Data:
        """Those of the preset, as they were kept."""
        found: Data = self.spec.get("settings") or {}
        return found

    @property
    def seconds(self) -> float:
        """Time that all finished parts took, added up."""
        return sum(one.seconds for one in self.parts if one.seconds is not None)

    def each(self, name: str, read: Callable[[Data], T], part: str = "") -> dict[int, T]:
        """Returns the pieces of a name that a part has, by seed, as `read` makes values of them."""
        found = {}
        for one in self.parts:
            if one.part == part and one.seed is not None and name in one.pieces:
                value = self._value(one, name, read)
                if value is not None:
                    found[one.seed] = value
        return found

    def common(self, name: str, read: Callable[[Data], T]) -> T | None:
        """Returns a piece of a common part, if there is one that can be read."""
        there = [one for one in self.parts if one.seed is None and name in one.pieces]
        return self._value(there[0], name, read) if there else None

    def records(self, part: str = "") -> dict[int, tuple[Data, ...]]:
        """Returns the records of a part that has any, by seed."""
        of_part = (one for one in self.parts if one.part == part and one.records)
        return {one.seed: one.records for one in of_part if one.seed is not None}

    def _value(self, one: PartResults, name: str, read: Callable[[Data], T]) -> T | None:
        try:
            return read(one.pieces[name])
        except _UNREADABLE as error:
            told = f"there is no {error}" if isinstance(error, KeyError) else str(error)
            where, told = _named(one.part, [one.seed]), " ".join(told.split()).rstrip(".")
            note = f"{where}: {name}.json is damaged: {told}. It is left out."
            if note not in self.notes:
                self.notes.append(note)
            return None


def is_experiment(folder: Path) -> bool:
    """Returns whether a folder is that of an experiment."""
    try:
        return read_piece(folder / SPEC).get("kind") == _KIND
    except StoreError:
        return False


def read_results(folder: Path) -> Results:
    """Returns what an experiment has found so far.

    Raises:
        StoreError: if the folder is not an experiment's, or its `spec.json` is damaged.
    """
    spec = read_header(folder, _KIND, lambda header: header.get("kind") == _KIND, oldest=_OLDEST)
    listed, name = spec.get("seeds"), spec.get("experiment")
    asked = tuple(listed) if isinstance(listed, list) else ()
    if not asked or any(type(seed) is not int for seed in asked) or not isinstance(name, str):
        raise StoreError(f"{folder / SPEC} is damaged: it must have 'experiment' and 'seeds'.")
    notes: list[str] = []
    found = tuple(_read_part(*place, notes) for place in _places(folder, asked))
    parts, once = [""], ()
    if name in CATALOG:
        parts, once = experiment(name).PARTS, experiment(name).COMMON
    notes += _unfinished(found, asked, parts, once)
    return Results(folder, name, str(spec.get("preset", "")), asked, spec, found, notes)


def experiment_section(folder: Path, anchor: str) -> Section:
    """Returns what a report says of the experiment of a folder.

    One that is not of the catalog is told of without its code: whatever there is to draw.

    Args:
        folder: of the experiment.
        anchor: its address in the page; names of files begin with it.

    Raises:
        StoreError: if the folder is not an experiment's.
    """
    results = read_results(folder)
    is_ours = results.experiment in CATALOG
    module = experiment(results.experiment) if is_ours else import_module(_ANY)
    section: Section = module.analyse(results, anchor)
    size = f" ({results.preset})" if results.preset and is_ours else ""
    return replace(
        section,
        title=section.title + size,
        facts=_facts(results, section.facts),
        tables=[*section.tables, _settings_table(results, f"{anchor}-settings")],
        notes=tuple(results.notes),
    )


# Values of pieces


@dataclass(frozen=True, eq=False)
class Truth:
    """The true frontier of a task, and how far its rewards may be off."""

    frontier: Frontier
    reward_error: float


class Outcomes(NamedTuple):
    """What one seed pays and earns at `M` settings: budgets, prices, or policies by number."""

    settings: FloatArray  # [M]
    cost: Interval  # [M]
    reward: Interval  # [M]


@dataclass(frozen=True, eq=False)
class Executions:
    """What a policy does at each of `B` budgets; `piece` is the whole of it, for a dial."""

    env: str
    budgets: FloatArray  # [B]
    cost: FloatArray  # [B], realised
    reward: FloatArray  # [B], realised
    layout: Data
    episodes: Sequence[Sequence[Data]]  # [B][E]
    piece: Data


@dataclass(frozen=True, eq=False)
class Rounds:
    """Exploration round by round; `piece` is the whole of it, for a film."""

    rounds: Sequence[Data]  # each with `round`, `n_episodes`, `reward`, `cost`, `episodes`
    layout: Data
    piece: Data


def columns(piece: Data, *names: str) -> list[FloatArray]:
    """Returns lists of numbers of the same length; null is NaN.

    Raises:
        KeyError: if one is missing.
        ValueError: if they are something else.
    """
    found: list[FloatArray] = [np.asarray(piece[name], np.float64) for name in names]
    if any(column.ndim != 1 or column.shape != found[0].shape for column in found):
        raise ValueError(f"{', '.join(names)} must be lists of numbers, of the same length")
    return found


def evaluation_of(piece: Data) -> Evaluation:
    """Returns an evaluation."""
    return Evaluation(**{field.name: piece[field.name] for field in fields(Evaluation)})


def truth_of(piece: Data) -> Truth:
    """Returns a true frontier."""
    return Truth(upper_frontier(*columns(piece, "costs", "rewards")), float(piece["reward_error"]))


def prices_of(piece: Data) -> Outcomes:
    """Returns what policies of prices pay and earn, by rising price."""
    ends = (f"{what}_{end}" for what in ("cost", "reward") for end in Interval._fields)
    prices, *found = columns(piece, "prices", *ends)
    order = np.argsort(prices, kind="stable")
    rising = [column[order] for column in found]
    return Outcomes(prices[order], Interval(*rising[:3]), Interval(*rising[3:]))


def hull_of(piece: Data) -> Hull:
    """Returns the points of a state, and the mixture at a budget."""
    costs, rewards, handed_on = columns(piece, "costs", "rewards", "handed_on")
    vertices, mixture = columns(piece["frontier"], "costs", "rewards"), piece["mixture"]
    return Hull(
        state=tuple(map(float, piece["state"])),
        costs=costs,
        rewards=rewards,
        action=tuple(map(int, piece["action"])),
        handed_on=handed_on,
        action_names=tuple(map(str, piece["action_names"])),
        vertex_costs=vertices[0],
        vertex_rewards=vertices[1],
        budget=float(piece["budget"]),
        mixture=Mixture(**{**mixture, "status": BudgetStatus[mixture["status"]]}),
    )


def executions_of(piece: Data) -> Executions:
    """Returns what a policy does at each budget, all of which a dial can draw."""
    require_sections([Section("dial", "", dials=[piece])])
    env, episodes, layout = piece["env"], piece["episodes"], piece.get("layout") or {}
    check_scene(env, layout, [episode for some in episodes for episode in some])
    (budgets,), paid = columns(piece, "budgets"), columns(piece["realised"], "cost", "reward")
    return Executions(env, budgets, paid[0], paid[1], layout, episodes, piece)


def exploration_of(piece: Data) -> Rounds:
    """Returns the exploration of corridors."""
    rounds, layout = piece["rounds"], piece["layout"]
    [float(one[name]) for one in rounds for name in ("round", "n_episodes", "reward", "cost")]
    check_scene(piece["env"], layout, [episode for one in rounds for episode in one["episodes"]])
    return Rounds(rounds, layout, piece)


def curve_of(label: str, found: Sequence[Outcomes]) -> Curve:
    """Returns the curve of points of all seeds, which are at the same settings.

    Intervals are over seeds; of one seed they are its own.
    """
    costs = np.stack([one.cost.mean for one in found])
    rewards = np.stack([one.reward.mean for one in found])
    settings, cost, reward = found[0]
    if len(found) > 1:
        cost, reward = (mean_interval(one.T, confidence=CONFIDENCE) for one in (costs, rewards))
    over: Over = "seeds" if len(found) > 1 else "episodes"
    return Curve(label, settings, cost, reward, over, len(found), costs, rewards)


# Folders


def _places(folder: Path, seeds: Sequence[int]) -> Iterator[tuple[str, int | None, Path]]:
    """Part, seed and folder of all that is there, but for seeds that were not asked for."""
    children = sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")
    yield from (("", *place) for place in _seed_folders(children, seeds))
    for child in children:
        if child.name in _OTHERS or _SEED.fullmatch(child.name):
            continue
        inner = _seed_folders((path for path in child.iterdir() if path.is_dir()), seeds)
        yield from ((child.name, *place) for place in inner)
        if not inner:
            yield child.name, None, child


def _seed_folders(paths: Iterable[Path], seeds: Sequence[int]) -> list[tuple[int, Path]]:
    matches = ((_SEED.fullmatch(path.name), path) for path in paths)
    numbered = ((int(match[1]), path) for match, path in matches if match)
    return sorted((seed, path) for seed, path in numbered if seed in seeds)


def _read_part(part: str, seed: int | None, path: Path, notes: list[str]) -> PartResults:
    pieces: dict[str, Data] = {}
    for source in sorted(path.glob("[!.]*.json")):
        if source.name != SPEC:
            try:
                pieces[source.stem] = read_piece(source)
            except StoreError as error:
                told = str(error).replace(str(source), source.name).rstrip(".")
                notes.append(f"{_named(part, [seed])}: {told}. It is left out.")
    finished = pieces.pop(_FINISHED, {})
    seconds, machine = finished.get("seconds"), finished.get("machine")
    return PartResults(
        part=part,
        seed=seed,
        pieces=pieces,
        records=tuple(read_records(path / RECORDS)),
        seconds=float(seconds) if isinstance(seconds, int | float) else None,
        machine=machine if isinstance(machine, Mapping) else {},
    )


def _unfinished(
    found: Sequence[PartResults], seeds: Sequence[int], parts: Sequence[str], once: Sequence[str]
) -> Iterator[str]:
    """Tells which parts are not finished, in a sentence for each part."""
    done = {(one.part, one.seed) for one in found if one.seconds is not None}
    yield from (f"{part} is not finished." for part in once if (part, None) not in done)
    for part in parts:
        missing = [seed for seed in seeds if (part, seed) not in done]
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            yield f"{_named(part, missing)} {verb} not finished."


def _named(part: str, seeds: Sequence[int | None]) -> str:
    if list(seeds) == [None]:
        return part
    which = ("seed " if len(seeds) == 1 else "seeds ") + ", ".join(map(str, seeds))
    return f"{part}, {which}" if part else which


# Facts


def _facts(results: Results, section: Mapping[str, str]) -> dict[str, str]:
    """Preset, seeds, command, versions, date, machine and time, with those of the section."""
    spec, own = results.spec, dict(section)
    machines = [_listed(part.machine) for part in results.parts if part.machine]
    time = f"{_duration(results.seconds)} of work, all parts and seeds added up"
    found = {
        "Preset": results.preset,
        "Setting": own.pop("Setting", ""),
        "Seeds": ", ".join(map(str, results.seeds)),
        **own,
        "Command": str(spec.get("command", "")),
        "Began": str(spec.get("began", "")),
        "Time": time if results.seconds else "",
        "Machine": "; ".join(dict.fromkeys(machines)) or _listed(spec.get("machine")),
        "Device": f"{spec.get('device', '')}, threads: {spec.get('threads', '')}",
        "Versions": _listed(spec.get("versions")),
    }
    return {name: text for name, text in found.items() if text}


def _settings_table(results: Results, name: str) -> Table:
    """All settings of the preset, in a file alone."""
    rows = list(_flattened(results.settings))
    names, values = ([row[i] for row in rows] for i in (0, 1))
    return Table(name, "All settings", [Column("setting", names, ""), Column("value", values, "")])


def _flattened(settings: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Settings inside settings, by a name with points in it.

    >>> list(_flattened({"a": {"b": 1, "c": [1, 2]}}))
    [('a.b', '1'), ('a.c', '1, 2')]
    """
    if isinstance(settings, Mapping):
        for name, value in settings.items():
            yield from _flattened(value, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix, ", ".join(map(str, settings)) if isinstance(settings, list) else str(settings)


def _duration(seconds: float) -> str:
    """A time in words.

    >>> _duration(42.0), _duration(150.0), _duration(9000.0)
    ('42 s', '2.5 min', '2.5 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _listed(values: Any) -> str:
    """Values by name in one line.

    >>> _listed({"cores": 2, "memory": 15.6, "gpu": None})
    'cores 2, memory 15.6 GiB'
    """
    there = {n: v for n, v in values.items() if v is not None} if values else {}
    return ", ".join(f"{n} {v}{' GiB' if n == 'memory' else ''}" for n, v in there.items())
