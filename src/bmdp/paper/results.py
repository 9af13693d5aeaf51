"""The folder of an experiment as values, and its section of a report.

A folder can be read at any time, while an experiment is running and after it was killed. What is
not there yet, or cannot be read, is left out, and `Results.notes` say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.envs.tasks import TrueFrontier
from bmdp.errors import BmdpError, StoreError
from bmdp.evaluation import Evaluation, Interval, mean_interval
from bmdp.frontier import BudgetStatus, Mixture, upper_frontier
from bmdp.learn.runs import RECORDS, read_records
from bmdp.paper import CATALOG, experiment
from bmdp.paper.runner import FINISHED, KIND, read_piece
from bmdp.paper.scenes import check_scene
from bmdp.report.figures import Hull
from bmdp.report.page_checks import require_sections
from bmdp.report.section import Column, Data, Section, Table
from bmdp.report.series import CONFIDENCE, Curve
from bmdp.report.tables import duration, flat, listed
from bmdp.storage import SPEC, read_header

T = TypeVar("T")

_ANY = "bmdp.paper.pictures"  # tells of any experiment, with what this module reads
_OLDEST = 1  # schema: pieces have not changed since
_OTHERS = ("report", "tensorboard")  # folders that are no parts
_UNREADABLE = (BmdpError, KeyError, TypeError, ValueError, IndexError, AttributeError)


@dataclass(frozen=True, eq=False)
class PartResults:
    """Pieces and records of one part."""

    part: str  # the main one is ""
    seed: int | None  # None for a common part
    pieces: Mapping[str, Data]
    records: tuple[Data, ...]  # of a training run, in their order
    seconds: float | None  # that it took; None if it is not finished
    machine: Data  # that finished it


@dataclass(frozen=True, eq=False)
class Results:
    """All that an experiment has found so far."""

    folder: Path
    experiment: str
    preset: str
    seeds: tuple[int, ...]  # that it is to run
    spec: Data  # all of `spec.json`
    parts: tuple[PartResults, ...]
    notes: list[str]  # on what is missing or damaged; reading a piece may add one

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
        return read_piece(folder / SPEC).get("kind") == KIND
    except StoreError:
        return False


def read_results(folder: Path) -> Results:
    """Returns what an experiment has found so far; a StoreError if the folder is not of one."""
    spec = read_header(folder, KIND, lambda header: header.get("kind") == KIND, oldest=_OLDEST)
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
    """Returns the section of an experiment; a StoreError if the folder is not of one.

    One that is not of the catalog is told of without its code: whatever there is to draw. Names of
    files begin with the anchor.
    """
    results = read_results(folder)
    is_ours = results.experiment in CATALOG
    module = experiment(results.experiment) if is_ours else import_module(_ANY)
    section: Section = module.analyse(results, anchor)
    size = f" ({results.preset})" if results.preset and is_ours else ""
    return replace(
        section,
        title=getattr(module, "TITLE", results.experiment) + size,
        question=getattr(module, "QUESTION", ""),
        facts=_facts(results, section.facts),
        tables=[*section.tables, _settings_table(results, f"{anchor}-settings")],
        notes=tuple(results.notes),
    )


@dataclass(frozen=True, eq=False)
class Executions:
    """Episodes of a policy at each of `B` budgets; `piece` is the whole of it, for a dial."""

    env: str
    budgets: FloatArray  # [B]
    cost: FloatArray  # [B], realised
    reward: FloatArray  # [B], realised
    layout: Data
    episodes: Sequence[Sequence[Data]]  # [B][E]
    piece: Data


def columns(piece: Data, *names: str) -> list[FloatArray]:
    """Returns lists of numbers of the same length; null is NaN."""
    found: list[FloatArray] = [np.asarray(piece[name], np.float64) for name in names]
    if any(column.ndim != 1 or column.shape != found[0].shape for column in found):
        raise ValueError(f"{', '.join(names)} must be lists of numbers, of the same length")
    return found


def evaluation_of(piece: Data) -> Evaluation:
    """Returns an evaluation."""
    names = (field.name for field in fields(Evaluation))
    return Evaluation(**{name: piece[name] for name in names if name in piece})


def truth_of(piece: Data) -> TrueFrontier:
    """Returns a true frontier."""
    frontier = upper_frontier(*columns(piece, "costs", "rewards"))
    return TrueFrontier(frontier, float(piece["reward_error"]), dict(piece.get("settings") or {}))


def prices_of(piece: Data) -> Curve:
    """Returns what policies of prices pay and earn, by rising price."""
    ends = (f"{what}_{end}" for what in ("cost", "reward") for end in Interval._fields)
    prices, *found = columns(piece, "prices", *ends)
    order = np.argsort(prices, kind="stable")
    rising = [column[order] for column in found]
    return seed_curve(prices[order], Interval(*rising[:3]), Interval(*rising[3:]))


def seed_curve(settings: FloatArray, cost: Interval, reward: Interval) -> Curve:
    """Returns the curve of one seed, with intervals over its episodes."""
    return Curve("", settings, cost, reward, "episodes", 1, cost.mean[None], reward.mean[None])


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
    """Returns the episodes of a policy at each budget, all of which a dial can draw."""
    require_sections([Section("dial", "", dials=[piece])])
    env, episodes, layout = piece["env"], piece["episodes"], piece.get("layout") or {}
    check_scene(env, layout, [episode for some in episodes for episode in some])
    (budgets,), paid = columns(piece, "budgets"), columns(piece["realised"], "cost", "reward")
    return Executions(env, budgets, paid[0], paid[1], layout, episodes, piece)


def exploration_of(piece: Data) -> Data:
    """Returns the exploration of corridors, all of which a film can draw."""
    rounds, layout = piece["rounds"], piece["layout"]
    [float(one[name]) for one in rounds for name in ("round", "n_episodes", "reward", "cost")]
    check_scene(piece["env"], layout, [episode for one in rounds for episode in one["episodes"]])
    return piece


def are_alike(found: Sequence[Curve]) -> bool:
    """Returns whether curves of seeds are at the same settings, so that they have a mean."""
    return all(np.array_equal(one.settings, found[0].settings) for one in found)


def curve_of(label: str, found: Sequence[Curve]) -> Curve:
    """Returns the curve of all seeds, which are at the same settings.

    Intervals are over seeds; of one seed they are its own.
    """
    if len(found) == 1:
        return replace(found[0], label=label)
    both = [np.stack([getattr(one, name).mean for one in found]) for name in ("cost", "reward")]
    cost, reward = (mean_interval(one.T, confidence=CONFIDENCE) for one in both)
    return Curve(label, found[0].settings, cost, reward, "seeds", len(found), *both)


def _places(folder: Path, seeds: Sequence[int]) -> Iterator[tuple[str, int | None, Path]]:
    """Part, seed and folder of all that is there, but for seeds that were not asked for."""
    inside = sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")
    parts = [path for path in inside if path.name not in _OTHERS and path.name[:5] != "seed-"]
    for part, place in (("", folder), *((path.name, path) for path in parts)):
        there = [seed for seed in sorted(seeds) if (place / f"seed-{seed}").is_dir()]
        yield from ((part, seed, place / f"seed-{seed}") for seed in there)
        if part and not there:
            yield part, None, place


def _read_part(part: str, seed: int | None, path: Path, notes: list[str]) -> PartResults:
    pieces: dict[str, Data] = {}
    for source in sorted(path.glob("[!.]*.json")):
        if source.name != SPEC:
            try:
                pieces[source.stem] = read_piece(source)
            except StoreError as error:
                told = str(error).replace(str(source), source.name).rstrip(".")
                notes.append(f"{_named(part, [seed])}: {told}. It is left out.")
    finished = pieces.pop(FINISHED, {})
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


def _facts(results: Results, section: Mapping[str, str]) -> dict[str, str]:
    """Preset, seeds, command, versions, date, machine and time, with those of the section."""
    spec, own = results.spec, dict(section)
    machines = [listed(part.machine) for part in results.parts if part.machine]
    time = f"{duration(results.seconds)} of work, all parts and seeds added up"
    found = {
        "Preset": results.preset,
        "Setting": own.pop("Setting", ""),
        "Seeds": ", ".join(map(str, results.seeds)),
        **own,
        "Command": str(spec.get("command", "")),
        "Began": str(spec.get("began", "")),
        "Time": time if results.seconds else "",
        "Machine": "; ".join(dict.fromkeys(machines)) or listed(spec.get("machine")),
        "Device": f"{spec.get('device', '')}, threads: {spec.get('threads', '')}",
        "Versions": listed(spec.get("versions")),
    }
    return {name: text for name, text in found.items() if text}


def _settings_table(results: Results, name: str) -> Table:
    """All settings of the preset, in a file alone."""
    every = dict(flat(results.settings))
    columns = {"setting": list(every), "value": list(every.values())}
    return Table(name, "All settings", [Column(head, some, "") for head, some in columns.items()])
