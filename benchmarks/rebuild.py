"""Speed of two source trees against each other, in turns, as ratios.

    python benchmarks/rebuild.py --before /path/to/src --after /path/to/other/src --out ratio.json

*Target step*: the presets corridors and slot-filling learn from one log of random episodes, which
the first tree collects and both read; seconds of `seconds_forward` plus `seconds_frontier` of all
iterations, and of the whole fit. *Deciding*: microseconds to start one episode under what was
learned, and to decide once. *Mixtures*: `best_mixtures` of random points against a loop over
scipy's ConvexHull in the same process. Each repeat is a process of its own, before and after in
turns. Seconds are medians; ratios are medians over pairs of neighbouring processes, and one above 1
says that after is faster. That of the loop over ConvexHull, which is the same code in both, says
how far the machine is to be trusted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

PRESETS = ("corridors", "slot-filling")
N_POINTS = 164


def main(arguments: list[str] | None = None) -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--before", type=Path, metavar="SRC", help="folder that holds bmdp/")
    parser.add_argument("--after", type=Path, metavar="SRC", help="another one")
    parser.add_argument("--repeats", type=int, default=5, help="processes of each tree")
    parser.add_argument("--out", type=Path, help="JSON file to write, too")
    parser.add_argument("--quick", action="store_true", help="a tiny size, to see that it runs")
    parser.add_argument("--measure", metavar="LOGS", help=argparse.SUPPRESS)
    parser.add_argument("--collect", metavar="LOGS", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.collect:
        collect_logs(Path(asked.collect), asked.quick)
    elif asked.measure:
        print(json.dumps(measured(Path(asked.measure), asked.quick)))
    elif asked.before is None or asked.after is None:
        parser.error("--before and --after are needed.")
    else:
        result = compared(asked)
        text = json.dumps(result, indent=1) + "\n"
        print(text, end="")
        if asked.out:
            asked.out.parent.mkdir(parents=True, exist_ok=True)
            asked.out.write_text(text)


def compared(asked: argparse.Namespace) -> dict[str, Any]:
    """What both trees take, and the ratios of medians."""
    trees = {"before": asked.before.resolve(), "after": asked.after.resolve()}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    with tempfile.TemporaryDirectory() as logs:
        _run(trees["before"], "--collect", logs, asked.quick)
        for name in trees:  # numba compiles, where it has not yet
            _run(trees[name], "--measure", logs, True)
        for repeat in range(asked.repeats):
            in_turn = list(trees) if repeat % 2 == 0 else list(trees)[::-1]
            for name in in_turn:
                found[name].append(json.loads(_run(trees[name], "--measure", logs, asked.quick)))
                print(name, repeat, found[name][-1], file=sys.stderr)
    medians = {
        name: {key: statistics.median(one[key] for one in rows) for key in rows[0]}
        for name, rows in found.items()
    }
    pairs = list(zip(found["before"], found["after"], strict=True))
    return {
        "trees": {name: str(path) for name, path in trees.items()},
        "repeats": asked.repeats,
        "threads": int(_environment(trees["before"])["OMP_NUM_THREADS"]),
        **medians,
        "ratio": {
            key: round(statistics.median(b[key] / a[key] for b, a in pairs), 3)
            for key in pairs[0][0]
            if key.endswith((", s", ", us"))
        },
        "all": found,
    }


def _environment(tree: Path) -> dict[str, str]:
    threads = {name: os.environ.get(name, "1") for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")}
    return {**os.environ, **threads, "PYTHONPATH": str(tree)}


def _run(tree: Path, what: str, logs: str, quick: bool) -> str:
    """What a process of its own prints that imports the library from a tree."""
    command = [sys.executable, __file__, what, logs, *(["--quick"] if quick else [])]
    done = subprocess.run(
        command, env=_environment(tree), check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


# What follows is run in the processes


def collect_logs(folder: Path, quick: bool) -> None:
    """Plays random episodes of each preset, which all learn from."""
    import numpy as np

    import bmdp
    from bmdp.learn import collect
    from bmdp.policies import RandomBudgetedPolicy

    n_episodes = 60 if quick else 500
    for name in PRESETS:
        preset: Any = bmdp.preset(name)
        env = preset.env.spec()
        n_actions = {"corridors": 5, "slot-filling": 7}[name]
        chance = RandomBudgetedPolicy(n_actions, 0.0, 1.0)
        budgets = np.random.default_rng(0).random(n_episodes)
        log = collect(chance, env, range(n_episodes), budgets=budgets, seed=0)
        columns: dict[str, Any] = {"n_actions": log.n_actions, **log.to_arrays()}
        np.savez(folder / f"{name}.npz", **columns)


def of_record(record: Any, name: str) -> float:
    """A figure of a record, which is a dictionary or has attributes; 0 if it has none."""
    found = record.get(name) if isinstance(record, dict) else getattr(record, name, None)
    return float(found or 0.0)


def measured(folder: Path, quick: bool) -> dict[str, float]:
    """Seconds and microseconds of this process."""
    import bmdp

    tree = os.environ["PYTHONPATH"]
    if not Path(bmdp.__file__).is_relative_to(tree):
        raise SystemExit(f"bmdp is imported from {bmdp.__file__}, and not from {tree}.")
    found: dict[str, float] = {}
    for name in PRESETS:
        found |= _learning(name, folder / f"{name}.npz", quick)
    return found | _mixtures(200 if quick else 10_000)


def _learning(name: str, path: Path, quick: bool) -> dict[str, float]:
    import numpy as np

    import bmdp

    with np.load(path) as file:
        arrays = {key: file[key] for key in file.files}
    log = bmdp.TransitionBatch(**{**arrays, "n_actions": int(arrays["n_actions"])})
    learner: Any = bmdp.preset(name).learner
    if quick:
        size = "ensemble" if hasattr(learner, "ensemble") else "folds"
        learner = replace(learner, model=replace(learner.model, centres=20), **{size: 2})
    records: list[Any] = []
    begin = time.perf_counter()
    policy = bmdp.BFTQ(learner).fit(log, seed=0, device="cpu", on_record=records.append)
    whole = time.perf_counter() - begin
    target = sum(
        of_record(r, "seconds_forward") + of_record(r, "seconds_frontier") for r in records
    )
    states, n_decisions = log.state[:1], 20 if quick else 300
    seconds = []
    for number in range(n_decisions):
        begin = time.perf_counter()
        policy.start(states, [0.5], np.random.default_rng(number)).decide(states)
        seconds.append(time.perf_counter() - begin)
    return {
        f"{name}: target step, s": target,
        f"{name}: fit, s": whole,
        f"{name}: one decision, us": 1e6 * statistics.median(seconds),
    }


def _mixtures(n_states: int) -> dict[str, float]:
    import numpy as np
    from scipy.spatial import ConvexHull

    from bmdp.frontier import best_mixtures

    rng = np.random.default_rng(0)
    costs, rewards = rng.normal(size=(2, n_states, N_POINTS))
    budgets = rng.normal(size=n_states)
    best_mixtures(costs[:10], rewards[:10], budgets[:10])
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        best_mixtures(costs, rewards, budgets)
        seconds.append(time.perf_counter() - begin)
    few = np.stack((costs, rewards), axis=-1)[: max(100, n_states // 5)]
    begin = time.perf_counter()
    for points in few:
        ConvexHull(points)
    loop = (time.perf_counter() - begin) * n_states / len(few)
    return {
        "best_mixtures, s": min(seconds),
        "ConvexHull in a loop, s": loop,
        "ConvexHull over best_mixtures": loop / min(seconds),
    }


if __name__ == "__main__":
    main()
