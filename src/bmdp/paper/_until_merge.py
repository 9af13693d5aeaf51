"""Stand-ins for `share_done`, `last_line` and `machine` of bmdp.learn.runs: delete at the merge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bmdp.errors import StoreError
from bmdp.experiments.running.machine import machine
from bmdp.experiments.running.pace import all_work, most_iterations, work_done
from bmdp.learn.runs import RunFolder, spec_of

__all__ = ["last_line", "machine", "share_done"]


def share_done(folder: Path) -> float:
    try:
        run = RunFolder(folder)
        spec, records = spec_of(run), run.records()
    except StoreError:
        return 0.0
    if not records:
        return 0.0
    last = next((r for r in reversed(records) if r["kind"] == "iteration"), None)
    n_rounds = 1 if spec.exploration is None else spec.exploration.rounds
    n_iterations = most_iterations(spec.learner, last)
    return work_done(records[-1], n_rounds, n_iterations) / all_work(n_rounds, n_iterations)


def last_line(record: dict[str, Any]) -> str:
    text = f"round {record['round'] + 1}"
    return f"{text}, iteration {record['iteration'] + 1}" if "iteration" in record else text
