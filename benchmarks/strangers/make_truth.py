"""Computes the true frontiers of the tasks, and keeps them in the folder `truth`.

    python benchmarks/strangers/make_truth.py stock queue    # all of them if none is named

Those of tables take seconds, the others minutes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # the folder of this file has names of its own

import numpy as np

import bmdp
from bmdp.arrays import FloatArray
from bmdp.envs import corridors, slot_filling
from bmdp.envs.slots import find_spec, open_slots
from bmdp.exact import FiniteBMDP, optimal_frontier
from bmdp.frontier import Frontier, upper_frontier
from strangers.boxes import BoxTask, CartPoleTask, MountainCarTask
from strangers.data import UniformPolicy, n_actions_of
from strangers.envs import MADE
from strangers.planning import box_grid, box_points, rooms_frontier
from strangers.tasks import FREE, STORED, TASKS, Kind, Truth

Found = tuple[Truth, dict[str, Any]]
"""A truth, and the settings that made it."""


def random_reward(model: FiniteBMDP, start: FloatArray) -> float:
    """Returns the expected discounted reward of the uniformly random policy."""
    values: FloatArray = np.zeros(model.n_states)
    for _ in range(model.horizon or 2_000):  # episodes without a horizon have ended by then
        values = (model.reward + model.gamma * model.expected_next(values)).mean(axis=1)
    return float(start @ values)


def played_floor(name: str, episodes: int) -> float:
    """Returns min(0, reward of the uniformly random policy), by playing it."""
    task = TASKS[name]
    policy = UniformPolicy(n_actions_of(task))
    found = bmdp.evaluate(policy, task.fast_id, budgets=[0.0], n_episodes=episodes, seed=0)
    return min(0.0, float(found.discounted_reward_mean[0]))


def of_tables(name: str, tol: float = 1e-6) -> Found:
    """Solves a task that is known as tables."""
    model, start = TASKS[name].model()
    found = optimal_frontier(model, start=start, tol=tol)
    floor = min(0.0, random_reward(model, start))
    scale = float(abs(found.rewards).max() + np.ptp(found.rewards))
    how = f"all {model.n_states - 1} states, bmdp.exact.optimal_frontier"
    if model.horizon is not None:
        how += f", episodes of {model.horizon} steps at most"
    return _truth(found, floor, "exact", tol * scale, how), {"tol": tol}


def of_rooms(name: str, tol: float = 1e-6) -> Found:
    """Solves four rooms, set by set of taken shapes."""
    model, start = TASKS[name].model()
    floor = min(0.0, random_reward(model, start))
    found = rooms_frontier(tol)
    error = tol * float(found.rewards.max())
    how = "all states by MO-Gymnasium's rules, set by set of taken shapes (planning.py)"
    return _truth(found, floor, "exact", error, how), {"tol": tol}


def of_corridors(name: str, resolution: int = 33, episodes: int = 100_000) -> Found:
    """Measures the policies of a grid; those of a coarser grid tell how far they may be off."""
    task = corridors.Corridors(routes=4)
    how: dict[str, Any] = {"n_episodes": episodes, "max_disagreement": 1.0}
    fine = corridors.true_frontier(task, resolution=resolution, **how).frontier
    coarse = corridors.true_frontier(task, resolution=resolution - 8, **how).frontier
    # Below this the frontier is so steep that rewards there mean little.
    costs = np.linspace(0.002, fine.costs[-1], 200)
    gap = np.interp(costs, fine.costs, fine.rewards) - np.interp(
        costs, coarse.costs, coarse.rewards
    )
    error = float(abs(gap).max())
    text = (
        f"policies of a grid of resolution {resolution}, which see the time, measured in "
        f"{episodes} episodes each; the error is what resolution {resolution - 8} changes at costs "
        "from 0.002 on"
    )
    return _truth(fine, 0.0, "bound", error, text), {"resolution": resolution, **how}


def of_slots(name: str) -> Found:
    """Returns the frontier of slot-filling that is kept with the package."""
    found = slot_filling.true_frontier()
    n_bins = found.settings["n_bins"]
    text = (
        f"bmdp.envs.slot_filling.true_frontier with scores in {n_bins} bins, from below; the error "
        "is the largest distance to a bound from above"
    )
    return _truth(found.frontier, played_floor(name, 20_000), "bound", found.reward_error, text), {
        "n_bins": n_bins
    }


def _of_box(
    name: str, task: BoxTask, axes: list[tuple[float, float, int]], depth: int, prices: list[float]
) -> Found:
    nodes = [np.linspace(low, high, n) for low, high, n in axes]
    n_steps, n_starts = MADE[name].max_steps or 1_000, 1_000
    points, gaps = box_points(
        box_grid(task, nodes, depth), prices=prices, n_starts=n_starts, n_steps=n_steps
    )
    found = upper_frontier(*np.array(points).T)
    assert found.index is not None
    error = float(max(abs(gaps[i]) for i in found.index))
    sizes = " x ".join(str(n) for *_, n in axes)
    text = (
        f"policies by value iteration on a grid of {sizes} nodes and plans of {depth} steps, "
        f"played from {n_starts} starts; the error is the largest difference to what the grid "
        "promised"
    )
    settings = {"axes": axes, "depth": depth, "prices": prices, "n_starts": n_starts}
    floor = played_floor(name, 20_000)
    return _truth(found, floor, "bound", error, text), {**settings, "gaps": gaps, "points": points}


def of_mountain_car(name: str) -> Found:
    """Plans on a grid of position and velocity."""
    prices = [0.0, 2.0, 5.0, *map(float, range(10, 100, 5)), 1_000.0]
    axes = [(-1.2, 0.6, 721), (-0.07, 0.07, 561)]
    return _of_box(name, MountainCarTask(), axes, 2, prices)


def of_cart_pole(name: str) -> Found:
    """Plans on a grid of the four numbers."""
    prices = [1e5, 3e3, 1e3, 500.0, 250.0, 150.0, 100.0, 70.0, 50.0, 35.0, 20.0, 0.0]
    lean = float(CartPoleTask.lean)
    axes = [(-2.4, 2.4, 97), (-2.5, 2.5, 25), (-lean, lean, 17), (-2.5, 2.5, 25)]
    return _of_box(name, CartPoleTask(), axes, 4, prices)


def of_nothing(name: str, episodes: int = 200) -> Found:
    """Only the reward of random actions is known."""
    none = Truth(np.empty(0), np.empty(0), played_floor(name, episodes), "none", 0.0, "not known")
    return none, {"episodes": episodes}


def _truth(found: Frontier, floor: float, kind: Kind, error: float, how: str) -> Truth:
    """A truth without the vertices that no measurement tells apart; see `tasks.py`."""
    free = min(FREE, FREE * float(found.costs[-1]))
    first = max(int((found.costs <= free).sum()) - 1, 0)
    return Truth(found.costs[first:], found.rewards[first:], floor, kind, error, how)


WAYS: dict[str, Callable[[str], Found]] = {
    "treatment": lambda name: of_tables(name, 1e-5),
    "cart-pole": of_cart_pole,
    "mountain-car": of_mountain_car,
    "corridors-4": of_corridors,
    "slot-filling": of_slots,
    "four-room": of_rooms,
    "highway-fast": of_nothing,
    "intersection": of_nothing,
    "lunar-lander": of_nothing,
}
"""Tasks that are not simply solved by their tables."""


def make(name: str) -> Found:
    """Returns the truth of a task, and the settings that made it."""
    with closing(open_slots(find_spec(TASKS[name].env_id))):
        return WAYS.get(name, of_tables)(name)


def write(name: str) -> None:
    """Computes the truth of a task and keeps it."""
    truth, settings = make(name)
    held = {
        "task": name,
        "gamma": TASKS[name].gamma,
        "kind": truth.kind,
        "how": truth.how,
        "error": truth.error,
        "floor": truth.floor,
        "costs": truth.costs.tolist(),
        "rewards": truth.rewards.tolist(),
        "settings": settings,
    }
    STORED.mkdir(exist_ok=True)
    (STORED / f"{name}.json").write_text(json.dumps(held, indent=1) + "\n")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Computes true frontiers.")
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=", ".join(TASKS))
    asked = parser.parse_args().tasks or list(TASKS)
    unknown = sorted(set(asked) - set(TASKS))
    if unknown:
        parser.error(f"no task is called {', '.join(unknown)}; there are {', '.join(TASKS)}.")
    for name in asked:
        print(name, file=sys.stderr, flush=True)
        try:
            write(name)
        except bmdp.MissingDependency as missing:
            print(f"  left out: {missing}", file=sys.stderr)


if __name__ == "__main__":
    main()
