"""Tables in Markdown of a folder that `run.py` wrote.

    python benchmarks/strangers/table.py FOLDER --half develop

A row is a task, a source, a size and a method: means over seeds of score, dial error, seconds and
megabytes, and the worst overshoot of any seed, absolute and relative to the budget. *Excess* is the
worst overshoot in units of what is allowed, the larger of 0.01 and 5 % of the budget. Then each
method over all tasks: the mean and the worst of the tasks.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # the folder of this file has names of its own

import numpy as np

from strangers.tasks import TASKS

Record = dict[str, Any]
COLUMNS = ("score", "over", "relative", "excess", "dial error", "seconds", "MB", "seeds", "failed")
LEAD = ("task", "source", "episodes", "method")


def records(folder: Path, halves: Iterable[str]) -> list[Record]:
    """Returns all records of a folder, of some halves."""
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return [record for record in found if record["half"] in halves]


def cell(group: list[Record]) -> dict[str, float]:
    """Returns the numbers of one row; NaN where none is known."""
    done = [record for record in group if "failed" not in record]

    def numbers(name: str) -> list[float]:
        return [float(record[name]) for record in done if record.get(name) is not None]

    def mean(name: str) -> float:
        return float(np.mean(numbers(name))) if numbers(name) else float("nan")

    def worst(name: str) -> float:
        return max(numbers(name), default=float("nan"))

    return {
        "score": mean("mean_score"),
        "over": worst("worst_overshoot"),
        "relative": worst("worst_relative_overshoot"),
        "excess": worst("worst_excess"),
        "dial error": mean("mean_dial_error"),
        "seconds": mean("seconds"),
        "MB": mean("peak_mb"),
        "seeds": len(done),
        "failed": len(group) - len(done),
    }


def overall(cells: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Returns the mean and the worst over tasks, of those that have a number."""
    both: dict[str, dict[str, float]] = {"mean": {}, "worst": {}}
    for name in COLUMNS:
        values = np.array([c[name] for c in cells])
        values = values[~np.isnan(values)]
        worst = np.min if name in ("score", "seeds") else np.max
        both["mean"][name] = float(values.mean()) if len(values) else float("nan")
        both["worst"][name] = float(worst(values)) if len(values) else float("nan")
    return both


def line(lead: Iterable[object], values: dict[str, float]) -> str:
    """Returns a row of a table."""

    def text(name: str) -> str:
        value = values[name]
        if np.isnan(value):
            return "-"
        whole = name in ("seconds", "MB", "seeds", "failed")
        return f"{value:.0f}" if whole else f"{value:.3f}"

    return "| " + " | ".join([*map(str, lead), *map(text, COLUMNS)]) + " |"


def tables(found: list[Record]) -> str:
    """Returns both tables."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in found:
        key = (record["task"], record["source"], record["size"], record["method"])
        groups.setdefault(key, []).append(record)
    order = list(TASKS)
    cells = {
        key: cell(groups[key])
        for key in sorted(groups, key=lambda k: (order.index(k[0]), *map(str, k[1:])))
    }
    lines = _head(LEAD) + [line(key, values) for key, values in cells.items()]
    lines += ["", *_head(("over tasks", *LEAD[1:]))]
    for kind in dict.fromkeys(key[1:] for key in cells):
        both = overall([values for key, values in cells.items() if key[1:] == kind])
        lines += [line((name, *kind), values) for name, values in both.items()]
    return "\n".join(lines)


def _head(lead: Iterable[str]) -> list[str]:
    names = [*lead, *COLUMNS]
    return ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]


def main() -> None:
    """Prints the tables of a folder."""
    parser = argparse.ArgumentParser(description="Tables of a folder that run.py wrote.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--half", choices=("develop", "test", "both"), default="develop")
    asked = parser.parse_args()
    for half in ("develop", "test") if asked.half == "both" else (asked.half,):
        found = records(asked.folder, [half])
        if found:
            print(f"## {half}\n\n{tables(found)}\n")


if __name__ == "__main__":
    main()
