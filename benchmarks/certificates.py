"""How often certificates from a log hold, and what they promise.

    python benchmarks/certificates.py --parts FOLDER --out benchmarks/results/logs/certificates.json

*Finite*: a random model of 8 states, 3 actions and 6 steps. *Stock*: 30 days of stock-keeping.
*Corridors* and *slot-filling*: the paper's tasks, continuous states. A policy is learned once, by
`bmdp.fit` from a log of random episodes (the best candidate that is no mean of two). Each
repetition draws another log and certifies the policy by it. A certificate *holds* if the true cost
of every member is at most its bound: then every budget is kept. Truths are means of many played
episodes.

*Wide* logs play at random. *Narrow* ones play the safest member, and a random action once in ten
steps: they know little of what dearer members do. *Refused* are logs of which `certify` says that
they are too small. *Left* is how many members are certified: the log says too little about others.

Every repetition is a line of a file in FOLDER, and what is there is not done again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import records
import torch
from gymnasium.envs.registration import EnvSpec
from strangers.data import UniformPolicy
from strangers.tasks import TASKS

import bmdp
from bmdp import DataError, FiniteBMDP, TransitionBatch
from bmdp.arrays import FloatArray
from bmdp.envs.slots import find_spec, open_slots
from bmdp.evaluation.calibration import play_members
from bmdp.evaluation.certificates import certify, members_of
from bmdp.exact.textbook import garnet
from bmdp.learn import collect
from bmdp.policies import CalibratedPolicy, ExploringPolicy
from bmdp.policies.policy import Policy
from bmdp.policies.portfolio import Portfolio

CONFIDENCE = 0.95
EPSILON = 0.1  # of the narrow logger
WIDTHS = ("wide", "narrow")


@dataclass(frozen=True)
class Task:
    """Where logs come from."""

    spec: Callable[[], EnvSpec]
    episodes: int  # of a log
    taught: int  # episodes that the policy is learned from
    truth: int  # episodes of each member that tell its cost


def finite() -> EnvSpec:
    """A random model of six steps."""
    model = garnet(8, 3, 3, gamma=0.9, rng=np.random.default_rng(5))
    tables = model.transition, model.reward, model.cost
    names = ("transition", "reward", "cost")
    short = FiniteBMDP(**dict(zip(names, tables, strict=True)), gamma=0.9, horizon=6)
    return EnvSpec(
        "certificates/Finite-v0",
        entry_point="bmdp.envs:FiniteEnv",
        vector_entry_point="bmdp.envs:FiniteVectorEnv",
        kwargs={"model": short, "start": 0},
    )


CASES = {
    "finite": Task(finite, 500, 1_000, 200_000),
    "stock": Task(lambda: find_spec(TASKS["stock"].fast_id), 300, 1_000, 40_000),
    "corridors": Task(lambda: find_spec("corridors"), 1_000, 2_000, 40_000),
    "slot-filling": Task(lambda: find_spec("slot-filling"), 500, 2_000, 40_000),
}


@dataclass(frozen=True, eq=False)
class Ready:
    """A task with a policy whose costs are known."""

    spec: EnvSpec
    gamma: float
    n_actions: int
    policy: Any
    members: Portfolio
    cost: FloatArray  # [K], true

    def log(self, width: str, episodes: int, seed: int) -> TransitionBatch:
        """Returns a log."""
        return logged(self.spec, self._logger(width), episodes, seed, self.n_actions)

    def _logger(self, width: str) -> Policy:
        uniform = UniformPolicy(self.n_actions)
        if width == "wide":
            return uniform
        safest = self.members.policies[self.members.which[int(np.argmin(self.cost))]]
        return ExploringPolicy(safest, uniform, decay=100.0, floor=EPSILON)


def logged(
    spec: EnvSpec, policy: Policy, episodes: int, seed: int, n_actions: int
) -> TransitionBatch:
    """Returns episodes without what the logger thought of budgets."""
    nothing = np.zeros(episodes)
    columns = collect(policy, spec, range(episodes), budgets=nothing, seed=seed).to_arrays()
    kept = {k: v for k, v in columns.items() if k not in ("budget", "next_budget")}
    return TransitionBatch.from_arrays(kept, n_actions=n_actions)


def ready(task: Task, quick: bool) -> Ready:
    """Learns a policy, and plays its members."""
    spec = task.spec()
    with closing(open_slots(spec)) as slots:
        n_actions, gamma = int(slots.action_space.n), float(slots.metadata.get("gamma", 1.0))
    taught = logged(spec, UniformPolicy(n_actions), task.taught, 7, n_actions)
    fitted = bmdp.fit(taught, gamma=gamma, minutes=0.1 if quick else 1.0)
    names = [one.name for one in fitted.candidates]
    single = next(n for n, name in enumerate(names) if "+" not in name)  # quicker than the mean
    policy = fitted.candidates[single].policy
    members = members_of(policy)
    n_played = 200 if quick else task.truth
    played = play_members(members, spec, n_episodes=n_played, seed=99)
    return Ready(spec, gamma, n_actions, policy, members, played.costs.mean(axis=1))


def repeated(case: Ready, width: str, episodes: int, seed: int) -> dict[str, Any]:
    """Certifies by one log, and says how it went."""
    log = case.log(width, episodes, 1_000 + seed)
    begin = time.perf_counter()
    told: dict[str, Any] = {"seed": seed}
    try:
        found = certify(case.policy, log, gamma=case.gamma, confidence=CONFIDENCE, seed=seed)
    except DataError as error:
        return told | {"refused": str(error), "seconds": time.perf_counter() - begin}
    assert isinstance(found, CalibratedPolicy)
    promise: Any = found.certificate  # a LogCertificate
    cost = case.cost[np.isin(case.members.budgets, found.portfolio.budgets)]
    return told | {
        "holds": bool((cost <= promise.cost_high).all()),
        "left": promise.n_members,
        "cost": cost.tolist(),
        "smallest": promise.smallest_budget,
        "high": promise.cost_high.tolist(),
        "estimate": promise.cost_mean.tolist(),
        "effective": promise.effective_episodes.tolist(),
        "seconds": time.perf_counter() - begin,
    }


def summary(name: str, width: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """One row of the table."""
    told = [line for line in lines if "seed" in line]
    cost = np.array(lines[0]["cost"])
    promised = [line for line in told if "holds" in line]
    n, held = len(promised), sum(line["holds"] for line in promised)
    row = {"case": name, "log": width, "repetitions": len(told), "refused": len(told) - n}
    row |= {"held": held, "members": len(cost), "cost": cost.tolist()}
    row["seconds"] = float(np.mean([line["seconds"] for line in told]))
    if promised:
        above = [np.mean(np.subtract(line["high"], line["cost"])) for line in promised]
        row |= {
            "coverage": held / n,
            "left": float(np.mean([line["left"] for line in promised])),
            "smallest": float(np.mean([line["smallest"] for line in promised])),
            "above": float(np.mean(above)),
        }
    return row


def options(arguments: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--parts", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--out", type=Path, help="JSON file to write (default: standard output)")
    parser.add_argument("--cases", default=",".join(CASES), help="some of them")
    parser.add_argument("--logs", default=",".join(WIDTHS), help="wide, narrow, or both")
    parser.add_argument("--repetitions", type=int, default=400)
    parser.add_argument("--quick", action="store_true", help="a tiny size, to see that it runs")
    return parser.parse_args(arguments)


def run(asked: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """Does what is not done yet, and yields rows of the table."""
    asked.parts.mkdir(parents=True, exist_ok=True)
    n_repetitions = 1 if asked.quick else asked.repetitions
    for name in asked.cases.split(","):
        task, case = CASES[name], None
        for width in asked.logs.split(","):
            path = asked.parts / f"{name}.{width}.jsonl"
            lines = path.read_text().splitlines() if path.exists() else []
            for seed in range(max(len(lines) - 1, 0), n_repetitions):
                case = ready(task, asked.quick) if case is None else case
                if not lines:
                    lines.append(json.dumps({"cost": case.cost.tolist()}))
                    path.write_text(lines[0] + "\n")
                lines.append(json.dumps(repeated(case, width, task.episodes, seed)))
                with path.open("a") as file:
                    file.write(lines[-1] + "\n")
            yield summary(name, width, [json.loads(line) for line in lines])


def main(arguments: list[str] | None = None) -> None:
    """Measures, and writes the table."""
    asked = options(arguments)
    torch.set_num_threads(1)
    rows = []
    for row in run(asked):
        rows.append(row)
        coverage = row.get("coverage")
        print(f"{row['case']} {row['log']}: {coverage}", file=sys.stderr, flush=True)
    records.write({"confidence": CONFIDENCE, "rows": rows}, asked.out)


if __name__ == "__main__":
    main()
