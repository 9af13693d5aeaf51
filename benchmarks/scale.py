"""Growth of time and memory: rows, numbers of a state, actions, heads, steps, threads, workers.

    python benchmarks/scale.py --out benchmarks/results/growth.json
    python benchmarks/scale.py --only front-door --out benchmarks/results/door.json
    python benchmarks/growth.py benchmarks/results/growth.json docs/images/growth.png

A *case* is a log of the orchard (`orchard.py`) on disk, and a forest of all prices that is learned
from all of its rows: structure from a sample of 100,000 rows at most, means from all. Each case is
measured in a process of its own, whose peak memory it has. Making the log is not counted.

*Parts*: growing trees on the sample; reading chunks, with finding leaves in the first pass;
values of next states; choosing among them; adding up. *Limit*: bytes that are kept of the rows and
must be read once an iteration, over the speed of memory, measured in the same process. *Inner
loop*: adding targets to leaves; its limit is that of reading leaves and targets once.

The *front door* is `bmdp.fit` by default on files of Parquet, with a forecast and the dial.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import growth
import numpy as np
import records
import torch
from limits import reading
from orchard import Orchard
from workers import all_threads

import bmdp
from bmdp import TransitionBatch
from bmdp.data import StoredLog
from bmdp.learn import passes
from bmdp.learn.candidates import AllRows, Lesson, Recipe, learned
from bmdp.learn.cluster_sums import RaySums
from bmdp.learn.contest import SAMPLE, LogView
from bmdp.learn.fit import Fit
from bmdp.learn.natures import nature_of
from bmdp.learn.rows import valued
from bmdp.models import ForestModel, KernelModel
from bmdp.models.forest import ForestQ

MB = 1 << 20
PIECE = 120_000  # rows of the orchard that are made at a time
N_PLAYED = 40_000  # episodes at each budget


@dataclass(frozen=True)
class Case:
    """Sizes of a log and of what is learned from it."""

    rows: int = 100_000
    numbers: int = 8
    actions: int = 4
    heads: int = 20
    steps: int = 6
    threads: int = 2
    workers: int = 0  # of Ray; 0 for none
    model: str = "forest"

    @property
    def task(self) -> Orchard:
        """The orchard of these sizes."""
        return Orchard(self.numbers, self.actions, self.steps)

    def pieces(self) -> Iterator[TransitionBatch]:
        """Transitions, some at a time."""
        whole = max(1, PIECE // self.steps) * self.steps
        for first in range(0, self.rows, whole):
            yield self.task.log(min(whole, self.rows - first), 100, first)


SERIES: dict[str, tuple[str, list[Case]]] = {
    "rows": ("rows", [Case(rows=n) for n in (10**4, 10**5, 10**6, 10**7)]),
    "numbers of a state": (
        "numbers",
        [Case(rows=50_000, numbers=n) for n in (2, 8, 32, 128, 512, 1_000)],
    ),
    "actions": ("actions", [Case(rows=100_000, actions=n) for n in (2, 5, 10, 30, 100)]),
    "heads": ("heads", [Case(heads=n) for n in (5, 20, 50, 100, 200)]),
    "threads": ("threads", [Case(rows=10**6, threads=n) for n in (1, 2)]),
    "Ray workers, a million rows": (
        "workers",
        [Case(rows=10**6, threads=1, workers=n) for n in (1, 2)],
    ),
    "Ray workers, 4 million rows": (
        "workers",
        [Case(rows=4 * 10**6, threads=1, workers=n) for n in (1, 2)],
    ),
    "kernels: rows": ("rows", [Case(rows=n, model="kernel") for n in (10**4, 10**5, 10**6)]),
    "steps": ("steps", [Case(rows=20_000, steps=n) for n in (5, 10, 20, 40, 100, 300, 1_000)]),
}
FRONT_DOOR = (10**6, 10**7)
QUICK = {"rows": ("rows", [Case(rows=n, steps=3, heads=3) for n in (600, 1_200)])}


class Parts:
    """Seconds of the parts of a fit, by watching them."""

    def __init__(self) -> None:
        """Begins at zero."""
        self.seconds = dict.fromkeys(("trees", "reading", "values", "choosing", "adding"), 0.0)
        self.n_bytes = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watches what is done inside."""
        chunks, added = passes.Chunks.ready, ForestQ.moments
        grams, made, put = ForestQ.grams, Fit.__init__, passes.Scratch.put

        def ready(own: Any, *args: Any) -> Iterator[Any]:
            found = chunks(own, *args)
            while True:
                begin = time.perf_counter()
                one = next(found, None)
                self.seconds["reading"] += time.perf_counter() - begin
                if one is None:
                    return
                yield one

        def clocked(*args: Any) -> Any:
            worth, (forward, frontier) = valued(*args)
            self.seconds["values"] += forward
            self.seconds["choosing"] += frontier
            return worth, (forward, frontier)

        def timed(name: str, do: Callable[..., Any]) -> Callable[..., Any]:
            def done(*args: Any, **how: Any) -> Any:
                begin = time.perf_counter()
                found = do(*args, **how)
                self.seconds[name] += time.perf_counter() - begin
                return found

            return done

        def kept(own: Any, key: Any, arrays: dict[str, Any]) -> None:
            self.n_bytes += sum(
                a.numel() * a.element_size() for a in arrays.values() if a is not None
            )
            put(own, key, arrays)

        places: list[tuple[Any, str, Any]] = [
            (passes.Chunks, "ready", ready),
            (passes, "valued", clocked),
            (ForestQ, "moments", timed("adding", added)),
            (ForestQ, "grams", timed("adding", grams)),
            (Fit, "__init__", timed("trees", made)),
            (passes.Scratch, "put", kept),
        ]
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
        for owner, name, watching in places:
            setattr(owner, name, watching)
        try:
            yield
        finally:
            for owner, name, own in before:
                setattr(owner, name, own)


def measured(case: Case, folder: Path, *, is_warm: bool = True) -> dict[str, Any]:
    """Seconds and megabytes of learning in this process; of a first try, no more."""
    log = StoredLog.write(folder / "log", case.pieces())
    sample = log.first(SAMPLE)
    nature = nature_of(sample, 1.0, log.n_steps)
    lesson = Lesson(nature.ended(sample), nature, 1.0, 100)
    view = LogView(log, nature, n_held_out=0)
    model = ForestModel() if case.model == "forest" else KernelModel()
    prices = np.append(np.geomspace(60.0, 0.3, case.heads - 1), 0.0)
    parts, before = Parts(), peak()
    sums: Any = passes.Passes
    with all_threads(case.threads), bmdp.cluster.engaged(*_engine(case)), parts.watched():
        if case.workers:
            sums = lambda log, values: RaySums(log, values, workers=case.workers)  # noqa: E731
        begin = time.perf_counter()
        dial = learned(Recipe("forest", model), lesson, prices, rows=AllRows(view, sums))
        seconds = time.perf_counter() - begin
    n_iterations = max(1, nature.n_steps or 1) if nature.clock == 0 else None
    found: dict[str, Any] = {
        **asdict(case),
        "seconds": round(seconds, 3),
        "megabytes": round(peak(), 1),
        "megabytes_before": round(before, 1),
        "schedule": type(nature.schedule).__name__,
        "has_settled": dial.has_settled,
    }
    if case.workers or case.model != "forest" or not is_warm:
        return found
    speed = reading(threads=case.threads)["gigabytes_per_second"]
    found["parts"] = {name: round(taken, 3) for name, taken in parts.seconds.items()}
    found["gigabytes_per_second"] = speed
    if n_iterations is not None:
        each = (seconds - parts.seconds["trees"]) / n_iterations
        found["limit_share"] = float(f"{parts.n_bytes / 1e9 / speed / each:.2g}")
        n_trees = model.trees if isinstance(model, ForestModel) else 0
        n_bytes = len(view) * n_iterations * (4 * n_trees + 16 * case.heads)
        found["inner_loop_share"] = round(n_bytes / 1e9 / speed / parts.seconds["adding"], 4)
    return found


def _engine(case: Case) -> tuple[Any, int]:
    return ("ray", case.workers) if case.workers else ("local", 1)


def front_door(n_rows: int, folder: Path) -> dict[str, Any]:
    """Seconds, megabytes, score and overshoot of the default fit."""
    case = Case(rows=n_rows)
    task, truth = case.task, case.task.truth()
    for number, piece in enumerate(case.pieces()):
        piece.to_parquet(folder / f"part-{number:03}.parquet")
    n_bytes = sum(path.stat().st_size for path in folder.glob("*.parquet"))
    begin = time.perf_counter()
    fitted = bmdp.fit(f"{folder}/*.parquet", gamma=1.0, seed=100, on_progress=_tell(begin))
    seconds, megabytes = time.perf_counter() - begin, peak()
    low, high = float(truth.costs[0]), float(truth.costs[-1])
    budgets = np.linspace(low, high, 11)[1:]
    paid, earned = [], []
    for budget in budgets:
        reward, cost = task.play(fitted.policy, np.full(N_PLAYED, budget), seed=7)
        paid.append(float(cost.mean()))
        earned.append(float(reward.mean()))
    best = truth.reward_at(np.clip(np.maximum(budgets, paid), low, high))
    return {
        "rows": n_rows,
        "parquet_megabytes": round(n_bytes / MB, 1),
        "seconds": round(seconds, 1),
        "megabytes": round(megabytes, 1),
        "taken": fitted.candidates[0].name,
        "candidates": {c.name: round(c.seconds, 1) for c in fitted.candidates},
        "notes": list(fitted.notes),
        "budgets": budgets.round(4).tolist(),
        "paid": np.round(paid, 4).tolist(),
        "score": round(float(np.mean(np.array(earned) / best)), 4),
        "overshoot": round(float(np.mean(np.maximum(np.array(paid) - budgets, 0))), 4),
    }


def _tell(begin: float) -> Callable[[float, str], None]:
    """Says what goes on, to standard error, each thing once."""
    told: list[str] = []

    def tell(share: float, text: str) -> None:
        if text.split(":")[0] != "reading the log" and text not in told:
            told.append(text)
            print(f"{time.perf_counter() - begin:7.1f} s  {text}", file=sys.stderr, flush=True)

    return tell


def peak() -> float:
    """Peak memory of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_own_process(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """Measures a case in a process of its own."""
    command = [sys.executable, __file__, "--case", kind, json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(kind, given, done.stdout[-300:] or done.stderr[-2000:], file=sys.stderr, flush=True)
    if done.returncode:
        return {**given, "failed": done.stderr.strip().splitlines()[-1:]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def series_of(name: str, axis: str, cases: list[Case]) -> dict[str, Any]:
    """Measures the cases of a series, and tells by which power seconds grow."""
    found = [in_own_process("learn", asdict(case)) for case in cases]
    done = [one for one in found if "failed" not in one]
    sizes, seconds = [one[axis] for one in done], [one["seconds"] for one in done]
    return {
        "name": name,
        "axis": axis,
        "sizes": sizes,
        "seconds": seconds,
        "megabytes": [one["megabytes"] for one in done],
        "exponent": growth.exponent(sizes, seconds) if len(sizes) > 1 else None,
        "cases": found,
    }


def one_case(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """Measures a case in this process."""
    folder = Path(tempfile.mkdtemp(prefix="scale-"))
    try:
        if kind == "fit":
            return front_door(given["rows"], folder)
        _warm(folder)
        return measured(Case(**given), folder)
    finally:
        shutil.rmtree(folder)


def _warm(folder: Path) -> None:
    """Has all that is compiled compiled, or read from the cache of what was."""
    small = replace(Case(), rows=600, steps=3, heads=3)
    measured(small, folder / "warm", is_warm=False)


def main(arguments: list[str] | None = None) -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="JSON file to write (default: standard output)")
    parser.add_argument("--quick", action="store_true", help="a tiny size, to see that it runs")
    parser.add_argument("--only", nargs="*", help="names of series, or front-door")
    parser.add_argument("--rows", type=int, nargs="*", default=FRONT_DOOR, help="of the front door")
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.case:
        print(json.dumps(one_case(asked.case[0], json.loads(asked.case[1]))))
        return
    torch.set_num_threads(1)  # this process only waits
    result: dict[str, Any] = {}
    chosen = QUICK if asked.quick else SERIES
    names = [name for name in chosen if not asked.only or name in asked.only]
    for name in names:
        result.setdefault("series", []).append(series_of(name, *chosen[name]))
        if asked.out:
            records.write(result, asked.out)  # so that little is lost
    if asked.only and "front-door" in asked.only:
        result["front_door"] = [in_own_process("fit", {"rows": n}) for n in asked.rows]
    records.write(result, asked.out)


if __name__ == "__main__":
    main()
