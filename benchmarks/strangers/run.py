r"""Runs the benchmark: each task, source, size, seed and method is a process with a time limit.

    python benchmarks/strangers/run.py --half develop --source random --sizes 500,5000 \
        --seeds 100:105 --methods fit,coin,fqi,bftq --out FOLDER

Each process writes one JSON file; what is there already is not run again. `table.py` makes tables
of such a folder. With `--source explore` only `fit` is run: it is given the environment, batched
where it can be, and the number of episodes that it may play; size 0 is the default call.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # the folder of this file has names of its own

import numpy as np

import bmdp
from strangers.data import random_log
from strangers.envs import MADE
from strangers.measure import measure
from strangers.rivals import RIVALS
from strangers.tasks import TASKS

METHODS = ("fit", *RIVALS)
_SHORT = 100  # steps of an episode, of which many can be played
SOURCES = ("random", "explore")


@dataclass(frozen=True)
class Job:
    """One cell of the benchmark."""

    task: str
    source: str
    size: int  # episodes
    seed: int
    method: str

    @property
    def file(self) -> str:
        """Name of its file."""
        return f"{self.task}.{self.source}.{self.size}.{self.method}.{self.seed}.json"


def plain(value: Any) -> Any:
    """Returns what JSON can say of a value.

    >>> plain({"a": np.array([1.0, float("nan")]), 2: ("b", None)})
    {'a': [1.0, None], '2': ['b', None]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def learned(job: Job) -> tuple[Any, dict[str, Any]]:
    """Returns the policy of a job, and what is to be told of how it was found."""
    task = TASKS[job.task]
    told: dict[str, Any] = {}
    log = None
    if job.source == "random":
        log = random_log(task, job.size, job.seed)
        told |= {"rows": len(log), "state_size": log.state_size}
    begun = time.perf_counter()
    if job.method in RIVALS:
        assert log is not None
        policy: Any = RIVALS[job.method](log, task, job.seed)
    else:
        module: Any = bmdp
        if log is None:
            found = module.fit(task.fast_id, episodes=job.size or None, seed=job.seed)
        else:
            found = module.fit(log, gamma=task.gamma, seed=job.seed)
        policy = found.policy
        told |= plain(found.as_dict())
        told["others"] = [c.policy for c in found.candidates[1:]]
    told["seconds"] = time.perf_counter() - begun
    told["policy"] = type(policy).__name__
    told["budget_range"] = plain(policy.budget_range)
    return policy, told


def run_here(job: Job) -> dict[str, Any]:
    """Learns and measures, and returns the record."""
    policy, told = learned(job)
    told["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    begun = time.perf_counter()
    measured = measure(policy, TASKS[job.task], seed=1_000_000 + job.seed)
    told["measuring_seconds"] = time.perf_counter() - begun
    told["candidate_scores"] = [measured.mean_score, *_other_scores(told.pop("others", []), job)]
    return {**told, **measured.to_json()}


def _other_scores(policies: list[Any], job: Job) -> list[float]:
    """Mean scores of the candidates that were not taken, by fewer episodes."""
    task = TASKS[job.task]
    if task.fast_id == task.env_id or not task.truth().is_known:
        return []
    n_episodes = 2_000 if (MADE[job.task].max_steps or 0) <= _SHORT else 200
    how: dict[str, Any] = {"episodes": n_episodes, "seed": 1_000_000 + job.seed}
    return [measure(policy, task, **how).mean_score for policy in policies]


def write(job: Job, record: dict[str, Any], out: Path) -> None:
    """Keeps the record of a job."""
    whole = {**asdict(job), "half": TASKS[job.task].half, "version": bmdp.__version__, **record}
    part = out / f"{job.file}.part"
    part.write_text(json.dumps(whole, indent=1) + "\n")
    part.rename(out / job.file)


def run_apart(job: Job, out: Path, limit: float) -> str:
    """Runs a job in a process of its own, and returns how it went."""
    told = json.dumps(asdict(job))
    command = [sys.executable, str(Path(__file__)), "--job", told, "--out", str(out)]
    path = os.pathsep.join(filter(None, sys.path))
    begun = time.perf_counter()
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": path},
            timeout=limit,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        write(job, {"failed": f"not done after {limit:g} s", "seconds": limit}, out)
        return "not done in time"
    if not (out / job.file).exists():
        spent = time.perf_counter() - begun
        write(job, {"failed": done.stderr[-2_000:] or str(done.returncode), "seconds": spent}, out)
    return "failed" if done.returncode else "done"


def jobs_of(options: argparse.Namespace) -> list[Job]:
    """Returns the jobs that are asked for."""
    first, _, last = options.seeds.partition(":")
    seeds = range(int(first), int(last) if last else int(first) + 1)
    named = options.tasks.split(",") if options.tasks else list(TASKS)
    tasks = [t for t in named if options.half in ("both", TASKS[t].half)]
    methods = options.methods.split(",")
    _require("method", methods, METHODS)
    return [
        Job(task, source, int(size), seed, method)
        for seed in seeds
        for size in options.sizes.split(",")
        for source in options.source.split(",")
        for task in tasks
        for method in methods
        if source == "random" or method == "fit"
    ]


def _require(kind: str, asked: Iterable[str], known: Iterable[str]) -> None:
    unknown = sorted(set(asked) - set(known))
    if unknown:
        sys.exit(f"no {kind} is called {', '.join(unknown)}; there are {', '.join(known)}.")


def options() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--half", choices=("develop", "test", "both"), default="develop")
    parser.add_argument("--tasks", help="some of the tasks of that half, with commas between")
    parser.add_argument("--source", default="random", help="random, explore, or random,explore")
    parser.add_argument("--sizes", default="500", help="episodes, with commas between")
    parser.add_argument("--seeds", default="100:105", help="first:last, without the last")
    parser.add_argument("--methods", default="fit,coin,fqi,bftq")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds of a process")
    parser.add_argument("--again", action="store_true", help="run failed ones again")
    parser.add_argument("--job", help=argparse.SUPPRESS)  # of a process of its own, as JSON
    return parser.parse_args()


def main() -> None:
    """Runs what is asked for and not there yet."""
    asked = options()
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.job:
        job = Job(**json.loads(asked.job))
        try:
            write(job, run_here(job), asked.out)
        except Exception:
            write(job, {"failed": traceback.format_exc()[-2_000:]}, asked.out)
            sys.exit(1)
        return
    if asked.tasks:
        _require("task", asked.tasks.split(","), TASKS)
    _require("source", asked.source.split(","), SOURCES)
    waiting = [job for job in jobs_of(asked) if _is_waiting(asked.out / job.file, asked.again)]
    with ThreadPoolExecutor(asked.jobs) as pool:
        going = {job: pool.submit(run_apart, job, asked.out, asked.limit) for job in waiting}
        for n, (job, result) in enumerate(going.items(), 1):
            print(f"{n}/{len(waiting)} {job.file}: {result.result()}", file=sys.stderr, flush=True)


def _is_waiting(path: Path, again: bool) -> bool:
    return not path.exists() or (again and "failed" in json.loads(path.read_text()))


if __name__ == "__main__":
    main()
