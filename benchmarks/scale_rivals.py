"""Other libraries on the log of the orchard, for one price of cost: time, memory, and worth.

    python benchmarks/scale_rivals.py --rows 100000 1000000 --d3rlpy PYTHON \
        --out benchmarks/results/rivals.json

The reward of a row is its reward less its priced cost, so each rival learns one policy, at one
point of the frontier; for another price it learns anew.

*FQI*: fitted Q-iteration by scikit-learn's extra trees (Ernst et al., 2005), a forest for each
action and step, the last step first. The last step is fitted to all rows, those before to all rows
that go on.
*DQN* and *DiscreteCQL*: of d3rlpy, in an environment of its own, whose Python is given. They see
the step as one more number. They take batches of 256 rows, as many as make one pass over the rows,
and 10,000 at least. Their learning rate and how often targets move are not the defaults, which are
for video games and a hundred times as many steps.

Each learns in a process of its own. Its memory is the peak of that process, and includes the log
and the libraries: *before* is the peak before it learns. A rival that takes longer than the limit
is stopped. Policies are played for 20,000 episodes. *Truth* is the exact frontier at what a policy
costs; *share* is its reward less priced cost, over the most there is.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import records
import sklearn
import torch
from numpy.typing import NDArray
from orchard import Orchard
from sklearn.ensemble import ExtraTreesRegressor

from bmdp import TransitionBatch
from bmdp.arrays import FloatArray, IntArray

TREES = {"n_estimators": 50, "min_samples_leaf": 100}
NETWORK = {
    "batch_size": 256,
    "learning_rate": 1e-3,
    "gamma": 1.0,
    "target_update_interval": 500,
}
LEAST_STEPS, EPOCH = 10_000, 1_000  # of gradient descent; whole epochs are done
ALGORITHMS = ("DQN", "DiscreteCQL")
N_EPISODES = 20_000  # that are played
LOG_SEED, PLAY_SEED = 0, 1
LEFT_OUT = "DQN and DiscreteCQL were left out: no Python with d3rlpy was given (--d3rlpy PYTHON)."

Act = Callable[[NDArray[np.float32], int], IntArray]
"""Actions of states `[n, D]` at a step."""


@dataclass(frozen=True)
class Setting:
    """What all rivals are given."""

    task: Orchard
    n_rows: int
    price: float
    n_episodes: int = N_EPISODES
    limit: float = 600.0  # seconds of a rival, at most
    least_steps: int = LEAST_STEPS

    def log(self) -> TransitionBatch:
        """The transitions that are learned from."""
        return self.task.log(self.n_rows, LOG_SEED)

    def paid(self, log: TransitionBatch) -> FloatArray:
        """Rewards less priced costs of the rows."""
        paid: FloatArray = log.reward - self.price * log.cost
        return paid


Forests = list[list[Any]]
"""A forest for each step and action."""


def fitted_forests(setting: Setting, log: TransitionBatch) -> Forests:
    """Forests of the rewards less priced costs to go, fitted from the last step to the first."""
    rows, going = np.arange(len(log)), np.flatnonzero(~log.terminal)
    targets, forests = setting.paid(log), Forests()
    for step in reversed(range(setting.task.n_steps)):
        forests.insert(0, [])
        for action in range(log.n_actions):
            own = log.action[rows] == action
            forest = ExtraTreesRegressor(**TREES, n_jobs=-1, random_state=step)
            forests[0].append(forest.fit(log.state[rows[own]], targets[own]))
        if step > 0:
            rows = going
            targets = setting.paid(log)[rows] + values(forests[0], log.next_state[rows]).max(axis=0)
    return forests


def values(forests: list[Any], states: NDArray[Any]) -> FloatArray:
    """Values of all actions at states, `[A, n]`."""
    return np.array([forest.predict(states) for forest in forests])


def played(setting: Setting, act: Act) -> dict[str, float]:
    """Mean reward and cost of episodes, their standard errors, and what could be had."""
    task, n = setting.task, setting.n_episodes
    rng = np.random.default_rng(PLAY_SEED)
    wear, price = task.starts(n, rng)
    others = task.others(n, rng)
    total = np.zeros((2, n))
    for step in range(task.n_steps):
        action = act(task.states(wear, price, others), step)
        reward, cost, wear, price = task.step(wear, price, action, rng)
        total += reward, cost
    (reward_mean, cost_mean), errors = total.mean(axis=1), total.std(axis=1) / np.sqrt(n)
    truth = task.truth()
    worth = reward_mean - setting.price * cost_mean
    found = {
        "reward": reward_mean,
        "reward_error": errors[0],
        "cost": cost_mean,
        "cost_error": errors[1],
        "truth": truth.reward_at(float(cost_mean)),
        "share": worth / (truth.rewards - setting.price * truth.costs).max(),
    }
    return {name: round(float(number), 4) for name, number in found.items()}


def fqi(setting: Setting) -> dict[str, Any]:
    """Row of fitted Q-iteration; its memory is right in a process of its own."""
    log = setting.log()
    before, begin = _megabytes(), time.perf_counter()
    forests = fitted_forests(setting, log)
    row = {
        "rival": "FQI",
        "rows": len(log),
        "settings": TREES,
        "threads": os.cpu_count(),
        "seconds": round(time.perf_counter() - begin, 2),
        "megabytes": _megabytes(),
        "megabytes_before": before,
        "versions": {"scikit-learn": sklearn.__version__},
    }
    return row | played(setting, lambda states, step: values(forests[step], states).argmax(axis=0))


def _megabytes() -> float:
    """Most memory of this process; ru_maxrss would be that of its parent, if that has more."""
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return round(int(peak) / 1024, 1)


def alone(limit: float, work: Callable[..., Any], *arguments: Any) -> Any:
    """What work returns in a process of its own; None if it takes more seconds than the limit."""
    context = multiprocessing.get_context("spawn")
    end, other = context.Pipe(duplex=False)
    process = context.Process(target=_tell, args=(other, work, *arguments))
    process.start()
    other.close()
    try:
        return end.recv() if end.poll(limit) else None
    finally:
        process.terminate()
        process.join()


def _tell(end: Connection, work: Callable[..., Any], *arguments: Any) -> None:
    end.send(work(*arguments))


def write_log(setting: Setting, path: Path) -> int:
    """Writes the log for d3rlpy, and returns its rows."""
    log = setting.log()
    assert log.step is not None
    np.savez(
        path,
        observations=_with_step(log.state, log.step, setting),
        actions=log.action,
        rewards=setting.paid(log).astype(np.float32),
        terminals=log.terminal.astype(np.float32),
    )
    return len(log)


def _with_step(
    states: NDArray[np.float32], step: int | IntArray, setting: Setting
) -> NDArray[np.float32]:
    share = np.broadcast_to(step, len(states)) / setting.task.n_steps
    return np.column_stack((states, share)).astype(np.float32)


def play_script(setting: Setting, path: Path) -> dict[str, float]:
    """Plays a policy that d3rlpy has written as TorchScript."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # d3rlpy knows no other format
        policy = torch.jit.load(str(path))  # type: ignore[no-untyped-call]

    def act(states: NDArray[np.float32], step: int) -> IntArray:
        with torch.no_grad():
            found: IntArray = policy(torch.from_numpy(_with_step(states, step, setting))).numpy()
        return found

    return played(setting, act)


def by_d3rlpy(setting: Setting, algorithm: str, python: Path) -> dict[str, Any] | None:
    """Row of an algorithm of d3rlpy; None if it was stopped.

    Raises:
        subprocess.CalledProcessError: if the script fails.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {"log": "log.npz", "policy": "policy.pt", "told": "told.json"}
        paths = {part: folder / file for part, file in files.items()}
        n_rows = write_log(setting, paths["log"])
        n_steps = max(setting.least_steps, n_rows / NETWORK["batch_size"])
        learning = {
            "settings": NETWORK if algorithm == "DQN" else {**NETWORK, "alpha": 1.0},
            "threads": 1,
            "gradient_steps": EPOCH * math.ceil(n_steps / EPOCH),
        }
        job = {"algorithm": algorithm, "n_actions": setting.task.n_actions, "seed": LOG_SEED}
        job |= {"epoch": EPOCH, **learning, **{part: str(path) for part, path in paths.items()}}
        (folder / "job.json").write_text(json.dumps(job))
        script = Path(__file__).resolve().with_name("scale_d3rlpy.py")
        command = [str(python), str(script), str(folder / "job.json")]
        try:
            # What d3rlpy tells of its steps is no part of the result.
            subprocess.run(command, check=True, timeout=setting.limit, stdout=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return None
        row: dict[str, Any] = {"rival": algorithm, "rows": n_rows, **learning}
        row |= json.loads(paths["told"].read_text())
        return row | play_script(setting, paths["policy"])


def rivals(setting: Setting, python: Path | None) -> Iterator[dict[str, Any]]:
    """Rows of all rivals, one after the other."""
    for name in ("FQI", *(ALGORITHMS if python else ())):
        if name == "FQI":
            row = alone(setting.limit, fqi, setting)
        else:
            assert python is not None
            row = by_d3rlpy(setting, name, python)
        row = row or {"rival": name, "rows": setting.n_rows, "stopped_after": setting.limit}
        print(*(f"{k}={v}" for k, v in row.items()), file=sys.stderr)
        yield row


def main(arguments: list[str] | None = None) -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000], help="of the log")
    parser.add_argument("--price", type=float, default=2.0, help="of cost")
    parser.add_argument("--d3rlpy", type=Path, metavar="PYTHON", help="that has d3rlpy")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of a rival at most")
    parser.add_argument("--out", type=Path, help="JSON file to write (default: standard output)")
    parser.add_argument("--quick", action="store_true", help="a tiny size, to see that it runs")
    asked = parser.parse_args(arguments)
    task = Orchard()
    setting = Setting(task, 3_000, asked.price, limit=asked.limit)
    sizes = [3_000] if asked.quick else asked.rows
    if asked.quick:
        setting = replace(setting, n_episodes=1_000, least_steps=EPOCH)
    rows = [
        row for n_rows in sizes for row in rivals(replace(setting, n_rows=n_rows), asked.d3rlpy)
    ]
    result = {
        "task": asdict(task),
        "price": asked.price,
        "episodes": setting.n_episodes,
        "rivals": rows,
        "left_out": None if asked.d3rlpy else LEFT_OUT,
    }
    records.write(result, asked.out)


if __name__ == "__main__":
    main()
