"""Methods side by side, run whole: what was found as one small record, and the tables of it.

    python benchmarks/comparison.py keep FOLDER     # of `bmdp run comparison`, into the record
    python benchmarks/comparison.py page            # tables of docs/paper/comparison.md
    python benchmarks/comparison.py page --check    # whether it has them

The record, benchmarks/results/comparison.json, holds of every task and method what was measured of
each seed, with five digits after the point. `keep` writes anew what the folder has of a seed, and
leaves the rest as it is. Seconds are on docs/paper/performance.md, too, which `tables.py` writes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from record_tables import Record
from tables import ROOT, markdown, write_page

from bmdp.errors import StoreError
from bmdp.evaluation import seed_interval
from bmdp.frontier import Frontier
from bmdp.paper.comparison import MethodRow, SeedOfMethod, method_of, method_row
from bmdp.paper.results import Results, read_results, truth_of
from bmdp.paper.runner import FIRST_SEED
from bmdp.report.section import Column, Table

PAGE = ROOT / "docs/paper/comparison.md"
PAGED_BY = "python benchmarks/comparison.py page"
RECORD = ROOT / "benchmarks/results/comparison.json"
TASKS = {
    "slot-filling": "slot-filling",
    "corridors": "corridors",
    "routes-4": "routes=4",
    "two-way": "two-way",
}
"""Names of tasks in the record, by those of the experiment; in the order of the page."""
METHODS = {
    "bftq": "BFTQ",
    "bftq-paper": "BFTQ, paper",
    "ftq-paper": "FTQ(lambda), paper",
    "ftq-mixture": "FTQ(lambda), mixture",
    "coin": "coin",
    "multiplier": "multiplier",
    "switching": "switching",
    "ridge": "ridge, stages",
    "scripted": "scripted",
}
"""Names of methods in the record, by those of their pieces; in the order of tables."""

T = TypeVar("T")


def found_of(results: Results) -> dict[str, dict[str, Record]]:
    """Returns what an experiment has found of each task and method, by names of the record.

    Raises:
        StoreError: if it has none, or if the true frontier of a task is missing.
    """
    found: dict[str, dict[str, Record]] = {}
    for task, named in TASKS.items():
        pieces = {
            name: list(results.each(f"method-{method}", method_of, task).values())
            for method, name in METHODS.items()
        }
        truth = results.common(f"truth-{task}", truth_of)
        if not any(pieces.values()):
            continue
        if truth is None:
            raise StoreError(f"{results.folder} has no truth/truth-{task}.json: run it again.")
        best = truth.frontier
        found[named] = {name: method_record(some, best) for name, some in pieces.items() if some}
    if not found:
        raise StoreError(
            f"{results.folder} has no method of any task: "
            "give the folder of `bmdp run comparison --out FOLDER`."
        )
    return found


def method_record(found: Sequence[SeedOfMethod], truth: Frontier) -> dict[str, Any]:
    """Returns what is kept of a method on a task, of all seeds."""
    rows = [method_row([one], truth) for one in found]
    moved = [row.moved for row in rows]
    return {
        "seeds": [row.seeds[0] for row in rows],
        "score": _short(row.score for row in rows),
        "worst_overshoot": _short(row.worst_overshoot for row in rows),
        "dial_error": _short(row.dial_error for row in rows),
        "moved_overshoot": _short(None if move is None else move.worst for move in moved),
        "moved_error": _short(None if move is None else move.mean for move in moved),
        "seconds": round(float(np.mean([row.seconds for row in rows])), 5),
        "models": rows[0].n_models,
        "more_episodes": found[0].n_more,
        "calibrated": _calibrated(rows),
    }


def _calibrated(rows: Sequence[MethodRow]) -> dict[str, Any] | None:
    """Of the seeds that have a certified budget, if there are any."""
    kept = {row.seeds[0]: row.calibrated for row in rows if row.calibrated is not None}
    if not kept:
        return None
    return {
        "seeds": list(kept),
        "smallest": _short(after.smallest_budget for after in kept.values()),
        "score": _short(after.score for after in kept.values()),
        "score_before": _short(after.score_before for after in kept.values()),
        "overshoot": _short(after.overshoot for after in kept.values()),
        "overshoot_before": _short(after.overshoot_before for after in kept.values()),
    }


def _short(values: Iterable[float | None]) -> list[float | None]:
    """The same with five digits after the point, and no minus before zero."""
    return [None if value is None else round(float(value), 5) + 0.0 for value in values]


def updated(record: Mapping[str, Record], found: Mapping[str, Record]) -> dict[str, Record]:
    """Returns a record with what was found; what was not stays as it is."""
    tasks = {}
    for task, methods in found.items():
        kept = record.get(task, {})
        rows = {
            name: joined(kept[name], row)
            if name in kept and _are_of_today(kept[name], row)
            else row
            for name, row in methods.items()
        }
        tasks[task] = _in_order(METHODS.values(), {**kept, **rows})
    return _in_order(TASKS.values(), {**record, **tasks})


def joined(old: Record, new: Record) -> dict[str, Any]:
    """Returns a method with the seeds of both records; of a seed that both have, the new one's."""
    replaced, before, after = new["seeds"], old["calibrated"], new["calibrated"]
    if before and set(before["seeds"]).difference(replaced):
        after = _with_seeds(before, after or {name: [] for name in before}, replaced)
    row = _with_seeds(old, new, replaced) | {"calibrated": after}
    n_new, n_all = len(replaced), len(row["seeds"])
    seconds = ((n_all - n_new) * old["seconds"] + n_new * new["seconds"]) / n_all
    return row | {"seconds": round(seconds, 5)}


def _with_seeds(old: Record, new: Record, replaced: Sequence[int]) -> dict[str, Any]:
    """The new record, with the values that the old one has of seeds that were not replaced."""
    kept = [i for i, seed in enumerate(old["seeds"]) if seed not in replaced]
    longer = {
        name: [old[name][i] for i in kept] + values
        for name, values in new.items()
        if isinstance(values, list)
    }
    return {**new, **longer}


def _in_order(names: Iterable[str], given: Mapping[str, T]) -> dict[str, T]:
    """The same, with those of the names first."""
    return {name: given[name] for name in [*names, *given] if name in given}


def tables_of(record: Mapping[str, Record]) -> dict[str, Table]:
    """Returns all tables of the page, by the names of their places."""
    return {
        f"{task}: methods": methods_table(record[name])
        for task, name in TASKS.items()
        if name in record
    }


def methods_table(methods: Mapping[str, Record]) -> Table:
    """Returns a row for each method on a task: means over seeds, and the worst of them."""
    rows = methods.values()
    after = [row["calibrated"] for row in rows]
    return Table(
        "methods",
        "",
        [
            Column("method", [_with_version(name, row) for name, row in methods.items()], "s"),
            Column("seeds", [len(row["seeds"]) for row in rows], "d"),
            Column("score", [_score(row["score"]) for row in rows], "s"),
            Column("between seeds", [_deviation(row["score"]) for row in rows]),
            Column("worst overshoot", [max(row["worst_overshoot"]) for row in rows]),
            Column("dial error", [_mean(row["dial_error"]) for row in rows]),
            Column("moved", [_moved(row) for row in rows], "s"),
            Column("seconds", [row["seconds"] for row in rows], ".0f"),
            Column("models", [row["models"] for row in rows], "d"),
            Column("calibrated: from", [_mean(one["smallest"]) if one else None for one in after]),
            Column("score", [_change(one, "score", _mean) for one in after], "s"),
            Column("worst overshoot", [_change(one, "overshoot", max) for one in after], "s"),
        ],
    )


def _with_version(name: str, row: Record) -> str:
    """The name of a method; rows of seeds below the first of today are those of version 0.1.0."""
    return name if _are_of_today(row) else f"{name} (0.1.0)"


def _are_of_today(*rows: Record) -> bool:
    return all(min(row["seeds"]) >= FIRST_SEED for row in rows)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _score(scores: Sequence[float]) -> str:
    """Mean, and half of Student's 95 % interval if there are several seeds."""
    if len(scores) < 2:
        return f"{_mean(scores):.3f}"
    interval = seed_interval(np.array(scores)[:, None], confidence=0.95)
    half = (interval.high[0] - interval.low[0]) / 2
    return f"{interval.mean[0]:.3f} +- {half:.3f}"


def _deviation(scores: Sequence[float]) -> float | None:
    """Standard deviation between seeds."""
    return float(np.std(scores, ddof=1)) if len(scores) > 1 else None


def _moved(row: Record) -> str | None:
    """Worst overshoot and mean error of the seeds that have any."""
    worst, errors = (
        [value for value in row[name] if value is not None]
        for name in ("moved_overshoot", "moved_error")
    )
    return f"{max(worst):.3f}, {_mean(errors):.4f}" if errors else None


def _change(
    after: Record | None, name: str, of_seeds: Callable[[Sequence[float]], float]
) -> str | None:
    """What calibration makes of a figure, if there is any."""
    if after is None:
        return None
    return f"{of_seeds(after[f'{name}_before']):.3f} to {of_seeds(after[name]):.3f}"


def keep(folder: Path, path: Path) -> None:
    """Writes what an experiment has found into a record, and prints what that is."""
    results = read_results(folder)
    found = found_of(results)
    record = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(updated(record, found), indent=1) + "\n")
    for note in results.notes:
        print(note, file=sys.stderr)
    for task, methods in found.items():
        told = (f"{name} ({len(row['seeds'])})" for name, row in methods.items())
        print(f"{task}, methods and numbers of seeds: {', '.join(told)}")


def main(arguments: list[str] | None = None) -> None:
    """Keeps what was found, or writes the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(required=True, dest="command")
    keeping = commands.add_parser("keep", help="write the record of an experiment")
    keeping.add_argument("folder", type=Path)
    paging = commands.add_parser("page", help="write tables")
    paging.add_argument("--page", type=Path, default=PAGE)
    paging.add_argument("--check", action="store_true", help="write nothing")
    for command in (keeping, paging):
        command.add_argument("--record", type=Path, default=RECORD)
    asked = parser.parse_args(arguments)
    if asked.command == "page":
        found = tables_of(json.loads(asked.record.read_text()))
        tables = {name: markdown(table) for name, table in found.items()}
        write_page(asked.page, tables, PAGED_BY, is_check=asked.check)
        return
    try:
        keep(asked.folder, asked.record)
    except StoreError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
