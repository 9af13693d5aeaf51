"""The two-way road: both simulations side by side, scripts, curves of what can be earned, a drive.

    python examples/two_way.py --out out/two-way
    python examples/two_way.py --curves --out src/bmdp/envs/two_way

The first needs `bmdp[driving]`, and takes about ten minutes, most of them in highway-env. It reads
the curves that are shipped with the package. The second makes those, in about half an hour; the
road is the default one, with 1,000 situations. --quick takes seconds, at tiny sizes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
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
from bmdp.envs.two_way import (
    FASTER,
    IDLE,
    KNOWN_CURVES,
    LANE_LEFT,
    LANE_RIGHT,
    SLOWER,
    ReferenceCurve,
    RoadState,
    TwoWay,
    compare,
    equal_budget_curve,
    film,
    filmstrip,
    known_curve,
    reference_curve,
    replanning_curve,
)
from bmdp.envs.two_way.curves import curve_record, point_record, task_record
from bmdp.envs.two_way.replanning import PRICES

COMMAND = "python examples/two_way.py --curves --out src/bmdp/envs/two_way"
COSTS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
TABLE = ("costs", "rewards", "reward_errors")
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
    """Some points of a reference curve."""
    found = curve.frontier
    row = {
        "smallest_cost": curve.smallest_cost,
        "reward_at_smallest_cost": float(found.rewards[0]),
        "largest_reward": float(found.rewards[-1]),
        "cost_at_largest_reward": float(found.costs[-1]),
    }
    for cost in COSTS:
        row[f"reward_at_{cost}"] = float(found.reward_at(max(cost, curve.smallest_cost)))
    return row


def curves(n_situations: int, width: int, driver_width: int, prices: Sequence[float]) -> Any:
    """The three curves as the package has them."""
    how: dict[str, Any] = {"n_situations": n_situations, "seed": 0}
    reference = reference_curve(TwoWay(), width=width, **how)
    replanning = replanning_curve(TwoWay(), width=driver_width, prices=prices, **how)
    points = point_record(replanning)
    found = {
        "clairvoyant": curve_record(reference, width=width, seed=0),
        "equal-budget": curve_record(equal_budget_curve(reference), width=width, seed=0),
        "replanning": curve_record(replanning, width=driver_width, seed=0, points=points),
    }
    return {"command": COMMAND, "task": task_record(TwoWay()), "curves": found}


def known_points() -> list[dict[str, Any]]:
    """Some points of the curves that are shipped, with standard errors over situations."""
    rows = []
    for name in KNOWN_CURVES:
        found = known_curve(name)
        costs, rewards = found.frontier.costs, found.frontier.rewards
        errors = found.settings["reward_errors"]
        row = {
            "curve": name,
            "situations": found.settings["n_situations"],
            "width": found.settings["width"],
            "smallest_cost": float(costs[0]),
            "smallest_cost_error": found.settings["smallest_cost_error"],
            "reward_at_smallest_cost": float(rewards[0]),
            "reward_at_smallest_cost_error": errors[0],
            "largest_reward": float(rewards[-1]),
            "largest_reward_error": errors[-1],
            "cost_at_largest_reward": float(costs[-1]),
        }
        table = found.settings["table"]
        for cost, *values in zip(*(table[column] for column in TABLE), strict=True):
            row[f"reward_at_{cost}"], row[f"reward_at_{cost}_error"] = values
        rows.append(row)
    return rows


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


def figure(rows: list[dict[str, Any]]) -> Figure:
    """The curves, and where scripts are."""
    drawing = Figure(figsize=(7, 4.5), layout="constrained")
    axes = drawing.subplots()
    for name, label, style in (
        ("clairvoyant", "knows the future", "-"),
        ("equal-budget", "knows the future, same budget from every start", "--"),
        ("replanning", "no foresight: plans anew every second", "-"),
    ):
        found = known_curve(name).frontier
        marker = "." if name == "replanning" else ""
        axes.plot(found.costs, found.rewards, style, label=label, marker=marker)
    for row in rows:
        point = row["batched"]
        axes.plot(point["cost"], point["reward"], "o", color="0.4")
        axes.annotate(
            row["policy"].split("/")[1],
            (point["cost"], point["reward"]),
            textcoords="offset points",
            xytext=(6, -4),
        )
    axes.set(xlabel="discounted cost", ylabel="discounted reward", xlim=(0, 1), ylim=(0, 8))
    axes.legend(loc="lower right")
    return drawing


def main(arguments: list[str] | None = None) -> None:
    """Measures, draws and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out/two-way"))
    parser.add_argument("--curves", action="store_true", help="make curves.json, and no more")
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    asked = parser.parse_args(arguments)
    quick = asked.quick
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.curves:
        made = curves(3, 1, 1, (2.0, 1000.0)) if quick else curves(1000, 16, 2, PRICES)
        (asked.out / "curves.json").write_text(json.dumps(made) + "\n")
        return
    rows = scripts(50, 2) if quick else scripts(20_000, 300)
    known = known_points()
    clairvoyant = known_curve("clairvoyant").frontier
    record: dict[str, Any] = {
        "equality": equality(2 if quick else 200),
        "scripts": rows,
        "convergence": convergence(5, [1, 2]) if quick else convergence(100, [1, 4, 16, 64]),
        "curves": known,
        "reference": {
            **known[0],
            "costs": clairvoyant.costs.tolist(),
            "rewards": clairvoyant.rewards.tolist(),
        },
    }
    (asked.out / "driving.json").write_text(json.dumps(record, indent=1) + "\n")
    figure(rows).savefig(asked.out / "reference.png", dpi=120)
    one = reference_curve(TwoWay(), n_situations=1, width=2 if quick else 16)
    for name, vertex in (("careful", 0), ("bold", -1)):
        frames = drive(TwoWay(), one.starts, one.situations[0].actions[vertex])
        (asked.out / f"{name}.svg").write_text(film(frames))
        strip = filmstrip(frames[:-15:30])
        matplotlib.image.imsave(asked.out / f"{name}.png", strip)
    for row in record["equality"]:
        print(row["oncoming"], row["actions"], row["n_decisions"], row["largest"])


if __name__ == "__main__":
    main()
