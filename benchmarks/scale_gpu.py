"""A GPU on logs of the orchard: time against two cores, and a network against a forest.

    python benchmarks/scale_gpu.py --out benchmarks/results/gpu.json

*Speed*: a forest of 25 trees, whose structure comes from a sample of 100,000 rows, learns 20 prices
from a log on disk, on the GPU and on two threads of the CPU of the same machine. Seconds are of the
whole fit, without the reading of the sample, after what is compiled at first use has been; on the
GPU, the second time that a log is learned from.

*Worth*: a forest and a network learn 20 prices from a log of states of 100 numbers, of which two
matter. Members are put on a dial by a fitted evaluation with a forest, the judge of `bmdp.fit`, on
rows that nothing was learned from. Policies are then played. The score is the mean over budgets of
the reward over the most that can be had at the cost, or at the budget if that is more. The
overshoot is the mean over budgets of the cost beyond the budget. *Mixed*: products in bfloat16.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import records
import torch
from orchard import Orchard

from bmdp import TransitionBatch
from bmdp.arrays import FloatArray
from bmdp.data import StoredLog
from bmdp.learn import Backward, LagrangianConfig, LagrangianFTQ, fitted_evaluation
from bmdp.models import ForestModel, FrontierNet, networks
from bmdp.models.networks import Regression
from bmdp.models.regressor import placed
from bmdp.policies.prices import MultiplierPolicy

PRICES = tuple(np.append(np.geomspace(60.0, 0.3, 19), 0.0).tolist())
BUDGETS = np.linspace(0.1, 1.3, 7)
LOG_SEED, HELD_SEED, PLAY_SEED = 200, 201, 17  # others than those that settings were tried on
N_THREADS = 2
NETWORK = FrontierNet(
    (256, 128),
    structure="free",
    regression=Regression(steps=800, batch_size=8192, weight_decay=1e-3),
)
_WRITTEN = 1_000_000  # rows that are made at a time, about


@dataclass(frozen=True)
class Setting:
    """Sizes of the benchmark."""

    sizes: tuple[int, ...] = (1_000_000, 10_000_000)  # rows of logs whose time is taken
    n_sample: int = 100_000  # rows that structure comes from
    n_numbers: int = 100  # of a state, for what a network is worth
    n_rows: int = 1_000_000  # of the log for it
    n_held_out: int = 200_000  # rows that set the dial
    n_episodes: int = 20_000  # that are played at each budget
    n_seeds: int = 2
    network: FrontierNet = NETWORK


def device_name() -> str:
    """The GPU, or the CPU where there is none."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Computes with so many threads on the CPU."""
    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(count)
    numba.set_num_threads(min(count, before[1]))
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])


def stored(task: Orchard, n_rows: int, folder: Path) -> StoredLog:
    """A log on disk of about so many rows."""
    n_parts = max(1, n_rows // _WRITTEN)
    size = n_rows // n_parts
    parts = (task.log(size, LOG_SEED, first=k * size) for k in range(n_parts))
    return StoredLog.write(folder, parts)


def learned(
    log: StoredLog, sample: TransitionBatch, model: Any, device: str, seed: int = 0
) -> tuple[MultiplierPolicy, float]:
    """A policy of all prices, and the seconds that it took to learn."""
    config = LagrangianConfig(
        prices=PRICES, gamma=1.0, model=model, schedule=Backward(), ensemble=1
    )
    begin = time.perf_counter()
    policy = LagrangianFTQ(config).fit(sample, seed=seed, device=device, log=log)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    assert isinstance(policy, MultiplierPolicy)
    return policy, time.perf_counter() - begin


def speed(setting: Setting) -> Iterator[dict[str, Any]]:
    """Rows of times, one for each size and device."""
    task = Orchard()
    with tempfile.TemporaryDirectory() as folder:  # what is compiled at first use
        log = stored(task, min(20_000, *setting.sizes, 20_000), Path(folder) / "log")
        learned(log, log.first(len(log) // 2), ForestModel(), "cpu")
    for size in setting.sizes:
        with tempfile.TemporaryDirectory() as folder:
            log = stored(task, size, Path(folder) / "log")
            sample = log.first(setting.n_sample)
            found: dict[str, list[float]] = {}
            for device in ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",):
                count = N_THREADS if device == "cpu" else os.cpu_count() or 1
                n_times = 1 if device == "cpu" else 2
                with threads(count):
                    each = [learned(log, sample, ForestModel(), device) for _ in range(n_times)]
                found[device] = [seconds for _, seconds in each]
                row: dict[str, Any] = {"rows": len(log), "device": device}
                row |= {"seconds": round(found[device][-1], 2)}
                row |= {"seconds_first": round(found[device][0], 2), "numbers": task.n_numbers}
                row |= {"threads": count}
                if device == "cpu" and "cuda" in found:
                    row |= {"ratio": round(found["cpu"][-1] / found["cuda"][-1], 1)}
                yield row


def put_on_dial(policy: MultiplierPolicy, held_out: TransitionBatch) -> MultiplierPolicy:
    """The policy that spends budgets by what prices cost, told by rows that are held out.

    Rewards rise in proportion to prices, so that every member is a vertex.
    """
    dial, numbers = policy.dial, np.arange(len(PRICES), dtype=np.float64)
    how: dict[str, Any] = {"model": ForestModel(), "seed": 0, "schedule": Backward()}
    told = fitted_evaluation(dial, held_out, gamma=1.0, budgets=numbers, **how)
    costs = np.maximum.accumulate(told.cost.clip(0))
    slopes = (dial.prices[1:] + dial.prices[:-1]) / 2
    rewards = np.append(0.0, np.cumsum(slopes * np.diff(costs)))
    return MultiplierPolicy(dial, 0.0, float(max(costs[-1], BUDGETS[-1])), costs, rewards)


def worth(task: Orchard, policy: MultiplierPolicy, n_episodes: int) -> dict[str, Any]:
    """Score and overshoot of a policy, with standard errors, and costs at each budget."""
    truth = task.truth()
    shares, errors, costs = np.empty((3, len(BUDGETS)))
    spread = np.empty(len(BUDGETS))
    for k, budget in enumerate(BUDGETS):
        reward, cost = task.play(policy, np.full(n_episodes, budget), PLAY_SEED + k)
        costs[k], spread[k] = cost.mean(), cost.std() / np.sqrt(n_episodes)
        best = float(truth.reward_at(float(np.clip(max(budget, costs[k]), 0, truth.costs[-1]))))
        shares[k], errors[k] = reward.mean() / best, reward.std() / np.sqrt(n_episodes) / best
    over = (costs - BUDGETS).clip(0)
    found: dict[str, Any] = {
        "score": shares.mean(),
        "score_error": _of_mean(errors),
        "overshoot": over.mean(),
        "overshoot_most": over.max(),
        "overshoot_error": _of_mean(spread),
    }
    found = {name: round(float(number), 4) for name, number in found.items()}
    return found | {"costs": costs.round(4).tolist()}


def _of_mean(errors: FloatArray) -> float:
    """Standard error of the mean of numbers that have these."""
    return float(np.sqrt(np.square(errors).sum()) / len(errors))


def worths(setting: Setting) -> Iterator[dict[str, Any]]:
    """Rows of a forest and of networks, on states of many numbers."""
    task = Orchard(n_numbers=setting.n_numbers)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    held_out = task.log(setting.n_held_out, HELD_SEED)
    with tempfile.TemporaryDirectory() as folder:
        log = stored(task, setting.n_rows, Path(folder) / "log")
        sample = log.first(setting.n_sample)
        kinds: list[tuple[str, Any, bool]] = [
            ("forest", ForestModel(), False),
            ("network", setting.network, False),
            ("network", setting.network, True),
        ]
        for name, model, mixed in kinds:
            for seed in range(setting.n_seeds):
                with networks.mixed(enabled=mixed):
                    policy, seconds = learned(log, sample, model, device, seed)
                policy = placed(policy, device)
                begin = time.perf_counter()
                on_dial = put_on_dial(policy, held_out)
                judging = round(time.perf_counter() - begin, 2)
                row = {"model": name, "mixed": mixed, "seed": seed, "rows": len(log)}
                row |= {"numbers": task.n_numbers, "seconds": round(seconds, 2)}
                row |= {"seconds_dial": judging, **worth(task, on_dial, setting.n_episodes)}
                yield row


def measured(setting: Setting) -> dict[str, Any]:
    """All rows, told as they come."""
    found: dict[str, Any] = {"gpu": device_name(), "budgets": BUDGETS.round(4).tolist()}
    found |= {"n_sample": setting.n_sample, "network": repr(setting.network)}
    found |= {"worth": [], "speed": []}
    for name, rows in (("worth", worths(setting)), ("speed", speed(setting))):
        for row in rows:
            print(name, *(f"{key}={value}" for key, value in row.items()), flush=True)
            found[name].append(row)
    return found


QUICK = Setting(
    sizes=(3_000,),
    n_sample=2_000,
    n_numbers=4,
    n_rows=6_000,
    n_held_out=2_000,
    n_episodes=500,
    n_seeds=1,
    network=FrontierNet((16,), structure="free", regression=Regression(steps=30, batch_size=256)),
)


def main(arguments: list[str] | None = None) -> None:
    """Measures and writes."""
    asked = records.options(__doc__, arguments)
    records.write(measured(QUICK if asked.quick else Setting()), asked.out)


if __name__ == "__main__":
    main()
