"""The paper's experiments, run whole: their findings as small records, and the tables of them.

    python benchmarks/reproduction.py keep FOLDER ...  # of `bmdp run`, into docs/paper/results/
    python benchmarks/reproduction.py page             # figures and tables of docs/paper/results.md
    python benchmarks/reproduction.py page --check     # whether that and README.md have them

A record holds the spec of an experiment and, of every part and seed, what was measured, with six
digits. `keep` adds to a record of the same settings, device and versions, so that seeds can be run
in several folders; any other is written anew. Records of version 0.1.0 are in
docs/paper/results/0.1.0/. `reproduction_tables.py` makes tables and figures of both.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reproduction_dials import OLD, TASKS, Found, Task
from reproduction_tables import figures, overview, tables_of
from tables import ROOT, markdown, write_page

from bmdp.paper.results import PartResults, Results, read_results
from bmdp.report.section import Table

PAGE = ROOT / "docs/paper/results.md"
RECORDS = ROOT / "docs/paper/results"
KEPT = ("evaluation", "prices", "truth", "scripts")
"""Pieces that are kept, by the first word of their names."""


def record_of(results: Results) -> dict[str, Any]:
    """Returns the record of an experiment that was run."""
    spec = {name: results.spec.get(name) for name in ("device", "threads", "settings", "versions")}
    return {
        "experiment": results.experiment,
        "preset": results.preset,
        "seeds": list(results.seeds),
        **spec,
        "parts": [_part_record(part) for part in results.parts],
    }


def _part_record(part: PartResults) -> dict[str, Any]:
    names = sorted(name for name in part.pieces if name.partition("-")[0] in KEPT)
    trained = [float(r["seconds"]) for r in part.records if "seconds" in r]
    return {
        "part": part.part,
        "seed": part.seed,
        "seconds": part.seconds,
        "training_seconds": round(sum(trained), 1) if trained else None,
        "machine": dict(part.machine),
        "pieces": {name: _short(part.pieces[name]) for name in names},
    }


def _short(value: Any) -> Any:
    """The same with six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [_short(one) for one in value]
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    return value


def read_record(path: Path) -> Results:
    """Returns what a record holds, as if its folder were read."""
    record = json.loads(path.read_text())
    parts = tuple(
        PartResults(
            part["part"],
            part["seed"],
            part["pieces"],
            (),
            part["seconds"],
            part["machine"] | {"training_seconds": part["training_seconds"]},
        )
        for part in record["parts"]
    )
    seeds = tuple(record["seeds"])
    return Results(path, record["experiment"], record["preset"], seeds, record, parts, [])


def joined(there: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a record with what was found beside it, or that alone if specs differ.

    A part and seed of both is as it was found, if anything was measured of it.
    """
    own = ("seeds", "parts")
    if any(there.get(name) != found[name] for name in found if name not in own):
        return dict(found)
    either = sorted((*there["parts"], *found["parts"]), key=lambda part: bool(part["pieces"]))
    parts = {(part["part"], part["seed"]): part for part in either}
    order = sorted(parts, key=lambda key: (key[1] is None, key))
    seeds = sorted({*there["seeds"], *found["seeds"]})
    return {**found, "seeds": seeds, "parts": [parts[key] for key in order]}


def keep(folders: Sequence[Path], out: Path) -> None:
    """Writes the records of experiments, or adds to them."""
    out.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        record = record_of(read_results(folder))
        path = out / f"{record['experiment']}-{record['preset']}.json"
        if path.exists():
            record = joined(json.loads(path.read_text()), record)
        text = json.dumps(record, separators=(",", ":")).replace('{"part":', '\n{"part":')
        path.write_text(text + "\n")
        print(f"{path.name}: seeds {', '.join(map(str, record['seeds']))}")


def found_of(task: Task, records: Path) -> Found:
    """Returns the results of a task that there are, of today and of 0.1.0, by preset."""

    def by_preset(folder: Path) -> dict[str, Results]:
        paths = {preset: folder / f"{task.experiment}-{preset}.json" for preset in task.presets}
        return {preset: read_record(path) for preset, path in paths.items() if path.exists()}

    return Found(by_preset(records), by_preset(records / OLD))


def main(arguments: list[str] | None = None) -> None:
    """Keeps records, or writes the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(required=True, dest="command")
    keeping = commands.add_parser("keep", help="write records of experiments")
    keeping.add_argument("folders", type=Path, nargs="+")
    keeping.add_argument("--records", type=Path, default=RECORDS)
    paging = commands.add_parser("page", help="write figures and tables")
    paging.add_argument("--records", type=Path, default=RECORDS)
    paging.add_argument("--page", type=Path, default=PAGE)
    paging.add_argument("--readme", type=Path, default=ROOT / "README.md")
    paging.add_argument("--check", action="store_true", help="write nothing")
    asked = parser.parse_args(arguments)
    if asked.command == "keep":
        keep(asked.folders, asked.records)
        return
    found = {name: found_of(task, asked.records) for name, task in TASKS.items()}
    _write(asked.page, tables_of(found), asked.check)
    _write(asked.readme, {"results: overview": overview(found)}, asked.check)
    if not asked.check:
        for name, of_task in found.items():
            for file, data in figures(TASKS[name], name, of_task).items():
                (asked.records / file).write_bytes(data)


def _write(page: Path, made: Mapping[str, Table], is_check: bool) -> None:
    tables = {name: markdown(table) for name, table in made.items()}
    write_page(page, tables, "python benchmarks/reproduction.py page", is_check=is_check)


if __name__ == "__main__":
    main()
