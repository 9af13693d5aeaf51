"""Speed of the batched geometry against per-state loops, as ratios within one run.

    python benchmarks/frontier.py --out benchmarks/results/frontier.json

Two jobs, for N states of K points each: `best_mixtures` (one budget a state) and `frontier_values`
(101 budgets a state). The references do the same jobs state by state: `convex_hull`, scipy's
ConvexHull; `graham_scan`, plain Python as the paper describes it (Algorithm 3: drop the dominated
points, hull of the others by Graham's scan, its upper part); `monotone_chain`, the fastest plain
Python we know (sort by cost, build the upper part only). All run in this process. The library runs
on one thread for the ratios, and on two to see what a second buys.

Inputs: `cloud` (uniform in a square), `arc` (all points on the frontier), `geometric` (all on the
frontier, costs halving from one to the next). The library sorts the points that may be vertices:
few of a cloud, all of the other two.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
import records
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError

from bmdp.frontier import best_mixtures, frontier_values

Array = NDArray[Any]
MAX_THREADS: int = numba.get_num_threads()
BETA_GRID = np.linspace(0, 1, 101)


def points(shape: str, precision: str, n_points: int, n_states: int) -> tuple[Array, Array, Array]:
    """Costs and rewards `[N, K]` in random order, and budgets `[N]` over the range of costs."""
    rng = np.random.default_rng(0)
    betas = rng.random(n_states)
    if shape == "cloud":
        costs, rewards = rng.random((2, n_states, n_points))
    elif shape == "arc":
        angle = rng.random((n_states, n_points)) * np.pi / 2
        costs, rewards = 1 - np.cos(angle), np.sin(angle)
    else:
        most = min(n_points - 1, {"float32": 120, "float64": 490}[precision])  # no more are held
        costs = 0.5 ** np.minimum(np.arange(n_points), most)
        costs = rng.permuted(np.tile(costs, (n_states, 1)), axis=1)
        rewards, betas = np.sqrt(costs), 0.5 ** (betas * most)
    return costs.astype(precision), rewards.astype(precision), betas.astype(precision)


def hull_frontier(costs: Array, rewards: Array) -> tuple[Array, Array]:
    """Frontier of one state by scipy's ConvexHull."""
    vertices = ConvexHull(np.column_stack((costs, rewards))).vertices
    order = vertices[np.lexsort((-rewards[vertices], costs[vertices]))]
    order = order[: rewards[order].argmax() + 1]
    x, y = costs[order], rewards[order]
    above = (y - y[0]) * (x[-1] - x[0]) >= (x - x[0]) * (y[-1] - y[0])
    return x[above], y[above]


def undominated(costs: Array, rewards: Array) -> list[tuple[float, float]]:
    """Points that cost no more than the cheapest of the best paid (Algorithm 3, line 1)."""
    pairs = list(zip(costs.tolist(), rewards.tolist(), strict=True))
    most = max(reward for _, reward in pairs)
    dearest = min(cost for cost, reward in pairs if reward == most)
    return [pair for pair in pairs if pair[0] <= dearest]


def graham_frontier(costs: Array, rewards: Array) -> tuple[list[float], list[float]]:
    """Frontier of one state by Graham's scan in plain Python: sort by angle, hull, upper part."""
    pairs = undominated(costs, rewards)
    x0, y0 = min(pairs)

    def angle(pair: tuple[float, float]) -> tuple[float, float]:
        return math.atan2(pair[1] - y0, pair[0] - x0), pair[0] - x0

    hull: list[tuple[float, float]] = []
    for x2, y2 in sorted(pairs, key=angle):
        while len(hull) > 1:
            (xa, ya), (xb, yb) = hull[-2:]
            if (xb - xa) * (y2 - ya) > (yb - ya) * (x2 - xa):
                break
            hull.pop()
        hull.append((x2, y2))
    start = max(range(len(hull)), key=lambda i: (hull[i][1], -hull[i][0]))
    upper = [hull[start]]
    for x2, y2 in hull[start + 1 :]:  # counter-clockwise: towards lower costs, then back
        if x2 >= upper[-1][0]:
            break
        upper.append((x2, y2))
    if (x0, y0) < upper[-1] and x0 < upper[-1][0]:
        upper.append((x0, y0))
    upper.reverse()
    return [x for x, _ in upper], [y for _, y in upper]


def chain_frontier(costs: Array, rewards: Array) -> tuple[list[float], list[float]]:
    """Frontier of one state by a monotone chain in plain Python."""
    kept: list[tuple[float, float]] = []
    for cost, negative in sorted((cost, -reward) for cost, reward in undominated(costs, rewards)):
        reward = -negative
        if kept and reward <= kept[-1][1]:
            continue
        while len(kept) > 1:
            (x0, y0), (x1, y1) = kept[-2:]
            if (y1 - y0) * (cost - x0) > (reward - y0) * (x1 - x0):
                break
            kept.pop()
        kept.append((cost, reward))
    return [x for x, _ in kept], [y for _, y in kept]


REFERENCES: dict[str, Callable[[Array, Array], tuple[Any, Any]]] = {
    "convex_hull": hull_frontier,
    "graham_scan": graham_frontier,
    "monotone_chain": chain_frontier,
}


def loop(frontier: Callable[[Array, Array], tuple[Any, Any]], job: str) -> Callable[..., Array]:
    """One of the two jobs, state by state: rewards `[N]` or `[N, M]`."""

    def run(costs: Array, rewards: Array, betas: Array) -> Array:
        found = []
        for n in range(len(costs)):
            x, y = frontier(costs[n], rewards[n])
            found.append(np.interp(betas[n] if job == "best_mixtures" else betas, x, y))
        return np.array(found)

    return run


def library(job: str) -> Callable[..., Array]:
    """The same job by the library."""
    if job == "best_mixtures":
        return lambda *arguments: np.asarray(best_mixtures(*arguments).reward)
    return lambda *arguments: np.asarray(frontier_values(*arguments)[0])


def seconds_per_state(function: Callable[..., Array], arguments: tuple[Array, ...]) -> float:
    """Best of at least three runs that take at least a fifth of a second together."""
    best, begin, runs = np.inf, time.perf_counter(), 0
    while runs < 3 or time.perf_counter() - begin < 0.2:
        start = time.perf_counter()
        function(*arguments)
        best, runs = min(best, time.perf_counter() - start), runs + 1
    return best / len(arguments[0])


def cases(quick: bool) -> Iterator[tuple[str, str, str, int, int]]:
    """Job, input, precision, K and N of every row: K over two decades, N over two decades."""
    sizes = [(50, 2_000), (505, 200), (505, 2_000), (505, 20_000), (5_050, 200)]
    for job in ("best_mixtures", "frontier_values"):
        for shape in ("cloud", "arc", "geometric"):
            for precision in ("float32", "float64"):
                for n_points, n_states in [(50, 20)] if quick else sizes:
                    yield job, shape, precision, n_points, n_states


def measure(job: str, shape: str, precision: str, n_points: int, n_states: int) -> dict[str, Any]:
    """One row: microseconds a state, and how many times longer the references take."""
    costs, rewards, betas = points(shape, precision, n_points, n_states)
    asked = betas if job == "best_mixtures" else BETA_GRID.astype(precision)
    n_sample = min(n_states, 20_000 // n_points)
    sample = (
        costs[:n_sample],
        rewards[:n_sample],
        asked[:n_sample] if job == "best_mixtures" else asked,
    )
    library(job)(*sample)  # compiles
    micro = {}
    for threads in (1, 2):
        numba.set_num_threads(min(threads, MAX_THREADS))
        micro[threads] = 1e6 * seconds_per_state(library(job), (costs, rewards, asked))
    row: dict[str, Any] = {
        "job": job,
        "input": shape,
        "precision": precision,
        "K": n_points,
        "N": n_states,
    }
    row |= {"us": round(micro[1], 3), "us_two_threads": round(micro[2], 3)}
    for name, frontier in REFERENCES.items():
        reference = loop(frontier, job)
        try:
            error = float(abs(reference(*sample) - library(job)(*sample)).max())
            reference_us = 1e6 * seconds_per_state(reference, sample)
        except QhullError:
            row |= {f"{name}_us": None, f"{name}_ratio": None, f"{name}_difference": None}
            continue
        row |= {
            f"{name}_us": round(reference_us, 1),
            f"{name}_ratio": round(reference_us / micro[1], 1),
            f"{name}_difference": error,
        }
    return row


def worst(rows: list[dict[str, Any]], reference: str) -> dict[str, Any]:
    """The row at K = 505 that gains least on a reference, for each job."""
    found = {}
    for job in ("best_mixtures", "frontier_values"):
        rivals = [r for r in rows if r["job"] == job and r["K"] == 505 and r[f"{reference}_ratio"]]
        if rivals:
            found[job] = min(rivals, key=lambda row: float(row[f"{reference}_ratio"]))
    return found


def main(arguments: list[str] | None = None) -> None:
    """Measures all rows and writes them."""
    asked = records.options(__doc__, arguments)
    rows = []
    for case in cases(asked.quick):
        rows.append(measure(*case))
        print(*(f"{k}={v}" for k, v in rows[-1].items()), file=sys.stderr)
    least = {name: worst(rows, name) for name in REFERENCES}
    records.write({"rows": rows, "least_gain_at_K_505": least}, asked.out)


if __name__ == "__main__":
    main()
