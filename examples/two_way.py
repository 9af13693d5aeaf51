"""The two-way road: both simulations side by side, scripts, the reference curve, and a drive.

    python examples/two_way.py --out out/two-way

Needs `bmdp[driving]`. Takes about ten minutes, most of them in highway-env; --quick takes seconds,
at tiny sizes.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium
import matplotlib.image
import numpy as np
from matplotlib.figure import Figure

import bmdp
from bmdp.arrays import IntArray
from bmdp.envs import ScriptedPolicy
from bmdp.envs.scripted import RULES
from bmdp.envs.tasks import rows_of
from bmdp.envs.two_way import (
    FASTER,
    IDLE,
    LANE_LEFT,
    LANE_RIGHT,
    SLOWER,
    ReferenceCurve,
    RoadState,
    TwoWay,
    compare,
    film,
    filmstrip,
    reference_curve,
)

SCRIPTS = (
    [IDLE] * 15,
    [SLOWER] * 15,
    [SLOWER] + [IDLE] * 14,
    [LANE_LEFT] + [FASTER] * 14,
)
PROVOCATIONS = (
    [LANE_LEFT, LANE_RIGHT] * 7 + [IDLE],  # weaves
    [LANE_LEFT, FASTER, FASTER, LANE_RIGHT, SLOWER] + [SLOWER] * 10,  # cuts in and brakes
    [SLOWER, SLOWER, LANE_LEFT, IDLE, IDLE, IDLE]
    + [LANE_RIGHT, FASTER] * 4
    + [IDLE],  # squeezes in
    [FASTER, SLOWER] * 7 + [IDLE],  # flutters
    [SLOWER] * 6 + [LANE_LEFT] * 9,  # meets who comes towards it slowly
)


def equality(n_situations: int) -> list[dict[str, Any]]:
    """How far apart the two simulations are, by what the ego car does."""
    random = np.random.default_rng(0).integers(0, 5, (n_situations, 15))
    rows = []
    for aware in (False, True):
        for name, actions in (
            ("random", random),
            ("scripted", np.resize(SCRIPTS, (n_situations, 15))),
            ("adversarial", np.resize(PROVOCATIONS, (n_situations, 15))),
        ):
            found = compare(actions, aware_oncoming=aware, first_seed=10_000)
            rows.append({"oncoming": "aware" if aware else "unaware", "actions": name})
            rows[-1] |= asdict(found)
    return rows


def scripts(n_episodes: int, n_highway: int) -> list[dict[str, Any]]:
    """What scripts earn and cost in either simulation, and in both in the same episodes."""
    rows = []
    for rule in (name for name in RULES if name.startswith("two-way/")):
        row: dict[str, Any] = {"policy": rule}
        for name, backend, n in (
            ("batched", "batched", n_episodes),
            ("batched_same", "batched", n_highway),
            ("highway_env", "highway-env", n_highway),
        ):
            spec = gymnasium.make("bmdp/TwoWay-v0", backend=backend).spec
            assert spec is not None
            found = bmdp.evaluate(ScriptedPolicy(rule), spec, budgets=[0.0], n_episodes=n, seed=0)
            row[name] = {
                "episodes": n,
                "reward": float(found.discounted_reward_mean[0]),
                "reward_low": float(found.discounted_reward_low[0]),
                "reward_high": float(found.discounted_reward_high[0]),
                "cost": float(found.discounted_cost_mean[0]),
                "cost_low": float(found.discounted_cost_low[0]),
                "cost_high": float(found.discounted_cost_high[0]),
            }
        rows.append(row)
    return rows


def convergence(n_situations: int, widths: list[int]) -> list[dict[str, float]]:
    """The reference curve as the beam is widened."""
    rows = []
    for width in widths:
        begin = time.perf_counter()
        curve = reference_curve(TwoWay(), n_situations=n_situations, width=width)
        row = {"width": width, "seconds": round(time.perf_counter() - begin, 1)}
        rows.append(row | summary(curve))
    return rows


def summary(curve: ReferenceCurve) -> dict[str, float]:
    """Some points of a reference curve, with the standard error of its situations."""
    found = curve.frontier
    least = np.array([drives.frontier.costs[0] for drives in curve.situations])
    most = np.array([drives.frontier.rewards[-1] for drives in curve.situations])
    root = np.sqrt(len(least))
    row = {
        "smallest_cost": curve.smallest_cost,
        "smallest_cost_error": float(least.std() / root),
        "reward_at_smallest_cost": float(found.rewards[0]),
        "largest_reward": float(found.rewards[-1]),
        "largest_reward_error": float(most.std() / root),
        "cost_at_largest_reward": float(found.costs[-1]),
    }
    for cost in (0.05, 0.1, 0.2, 0.3, 0.4):
        row[f"reward_at_{cost}"] = float(found.reward_at(max(cost, curve.smallest_cost)))
    return row


def drive(task: TwoWay, start: RoadState, actions: IntArray) -> list[RoadState]:
    """Every frame of a drive, and a pause of a second at its end."""
    frames = [start]
    state = start
    for action in actions[actions >= 0]:
        told = np.array([action])
        frames += task.frames(state, told)
        state = task.step(state, told, np.empty((1, 0))).state
        frames[-1] = state
    return frames + [state] * 15


def figure(curve: ReferenceCurve, rows: list[dict[str, Any]]) -> Figure:
    """The reference curve, and where scripts are."""
    drawing = Figure(figsize=(7, 4.5), layout="constrained")
    axes = drawing.subplots()
    axes.plot(curve.frontier.costs, curve.frontier.rewards, label="reference: knows the future")
    for row in rows:
        point = row["batched"]
        axes.plot(point["cost"], point["reward"], "o", color="0.4")
        axes.annotate(
            row["policy"].split("/")[1],
            (point["cost"], point["reward"]),
            textcoords="offset points",
            xytext=(6, -4),
        )
    axes.axvline(curve.smallest_cost, color="0.7", linewidth=0.8)
    axes.set(xlabel="discounted cost", ylabel="discounted reward", xlim=(0, 0.9), ylim=(0, 8))
    axes.legend(loc="lower right")
    return drawing


def main(arguments: list[str] | None = None) -> None:
    """Measures, draws and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/two-way"))
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    quick = asked.quick
    curve = reference_curve(TwoWay(), n_situations=5 if quick else 1000, width=2 if quick else 16)
    rows = scripts(50, 2) if quick else scripts(20_000, 300)
    record: dict[str, Any] = {
        "equality": equality(2 if quick else 200),
        "scripts": rows,
        "convergence": convergence(5, [1, 2]) if quick else convergence(100, [1, 4, 16, 64]),
        "reference": {
            "situations": len(curve.situations),
            "width": curve.width,
            **summary(curve),
            "costs": curve.frontier.costs.round(5).tolist()[:: 1 if quick else 20],
            "rewards": curve.frontier.rewards.round(4).tolist()[:: 1 if quick else 20],
        },
    }
    (asked.out / "driving.json").write_text(json.dumps(record, indent=1) + "\n")
    figure(curve, rows).savefig(asked.out / "reference.png", dpi=120)
    situation = 0
    drives, start = curve.situations[situation], rows_of(curve.starts, np.array([situation]))
    for name, vertex in (("careful", 0), ("bold", -1)):
        frames = drive(TwoWay(), start, drives.actions[vertex])
        (asked.out / f"{name}.svg").write_text(film(frames))
        strip = filmstrip(frames[:-15:30])
        matplotlib.image.imsave(asked.out / f"{name}.png", strip)
    for row in record["equality"]:
        print(row["oncoming"], row["actions"], row["n_decisions"], row["largest"])


if __name__ == "__main__":
    main()
