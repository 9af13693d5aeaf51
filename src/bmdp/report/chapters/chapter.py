"""A chapter: all that a report says of one experiment, before it is saved, and the facts of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bmdp.report.drawing import Drawing
from bmdp.report.pieces import Piece
from bmdp.report.reading import Results
from bmdp.report.series import Curve, bands
from bmdp.report.tables import Column, Table

_MINUTE, _HOUR = 60, 3600


@dataclass(frozen=True, eq=False)
class Animation:
    """A GIF file that is not made yet.

    Args:
        name: of its file, without suffix.
        title: what it shows.
        make: makes it.
    """

    name: str
    title: str
    make: Callable[[], bytes]


@dataclass(frozen=True, eq=False)
class Chapter:
    """What is found in one experiment; see `Section` for its words."""

    answer: str
    setting: str
    curves: Sequence[Curve] = ()  # whose bands are told of
    drawings: Sequence[Drawing] = ()
    tables: Sequence[Table] = ()
    dials: Sequence[Piece] = ()
    films: Sequence[Piece] = ()
    animations: Sequence[Animation] = ()
    bands: str = ""  # instead of those of the curves
    more: Mapping[str, str] = field(default_factory=dict)  # further facts


def facts_of(results: Results, chapter: Chapter) -> dict[str, str]:
    """Returns setting, seeds, bands, command, versions, date, machine and time, by name."""
    spec = results.spec
    found = {
        "Preset": results.preset,
        "Setting": chapter.setting,
        "Seeds": ", ".join(map(str, results.seeds)),
        "Bands and boxes": chapter.bands or _bands(chapter.curves),
        **chapter.more,
        "Not complete": " ".join(results.notes),
        "Command": str(spec.get("command", "")),
        "Began": str(spec.get("began", "")),
        "Time": f"{duration(results.seconds)} of work, all parts and seeds added up"
        if results.seconds
        else "",
        "Machine": machines(results),
        "Device": f"{spec.get('device', '')}, threads: {spec.get('threads', '')}",
        "Versions": listed(spec.get("versions")),
        "Animations": ", ".join(f"figures/{a.name}.gif ({a.title})" for a in chapter.animations),
    }
    return {name: text for name, text in found.items() if text}


def settings_table(results: Results, name: str) -> Table:
    """Returns all settings of the preset, in a file alone."""
    rows = list(flattened(results.spec.get("settings", {})))
    return Table(
        name,
        "All settings",
        [
            Column("setting", [row[0] for row in rows], ""),
            Column("value", [r[1] for r in rows], ""),
        ],
    )


def flattened(settings: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields settings inside settings by a name with points in it.

    >>> list(flattened({"a": {"b": 1, "c": [1, 2]}}))
    [('a.b', '1'), ('a.c', '1, 2')]
    """
    if isinstance(settings, Mapping):
        for name, value in settings.items():
            yield from flattened(value, f"{prefix}.{name}" if prefix else str(name))
    elif isinstance(settings, list):
        yield prefix, ", ".join(map(str, settings))
    else:
        yield prefix, str(settings)


def episodes_explored(settings: Piece) -> str:
    """Returns how many episodes were explored by settings of training, in words."""
    how = settings.get("exploration") or {}
    rounds, episodes = how.get("rounds"), how.get("episodes")
    if not isinstance(rounds, int) or not isinstance(episodes, int):
        return ""
    return f"{rounds * episodes:,} episodes in {rounds} rounds"


def episodes_played(settings: Piece) -> str:
    """Returns how much was tested by settings of testing, in words."""
    how = settings.get("testing") or {}
    budgets, episodes = how.get("budgets"), how.get("n_episodes")
    if not isinstance(budgets, list) or not isinstance(episodes, int):
        return ""
    return f"{episodes:,} test episodes at each of {len(budgets)} budgets"


def duration(seconds: float) -> str:
    """Returns a time in words.

    >>> duration(42.0), duration(150.0), duration(9000.0)
    ('42 s', '2.5 min', '2.5 h')
    """
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.1f} min"
    return f"{seconds / _HOUR:.1f} h"


def machines(results: Results) -> str:
    """Returns the machines that parts were finished on, or that on which it began."""
    each = [listed(part.machine) for part in results.parts if part.machine]
    return "; ".join(dict.fromkeys(each)) or listed(results.spec.get("machine"))


def listed(values: Any) -> str:
    """Returns values by name in one line.

    >>> listed({"cores": 2, "memory": 15.6, "gpu": None})
    'cores 2, memory 15.6 GiB'
    """
    if not isinstance(values, Mapping):
        return ""
    units = {"memory": " GiB"}
    there = {name: value for name, value in values.items() if value is not None}
    return ", ".join(f"{name} {value}{units.get(name, '')}" for name, value in there.items())


def _bands(curves: Sequence[Curve]) -> str:
    each = dict.fromkeys(f"{curve.label}: {bands(curve)}" for curve in curves)
    return "; ".join(each)
