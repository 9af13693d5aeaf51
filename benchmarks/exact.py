"""Speed and memory of the budgeted Bellman operator on a large finite model.

    python benchmarks/exact.py --out benchmarks/results/exact.json

A random model: 10,000 states, 5 actions, 10 successors, 101 budgets. T is applied 100 times. The
reference, in the same process, is what one application cannot do without: two products of the
sparse transition matrix with values `[S, B]`, and one call of `frontier_values`.
"""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

import numpy as np
import records

from bmdp.exact.operators import distance, greedy_values, optimality_operator, zero_q
from bmdp.exact.textbook import sparse_garnet
from bmdp.frontier import frontier_values


def measure(n_states: int, n_actions: int, n_budgets: int, n_applications: int) -> dict[str, Any]:
    """Applies T, then times its parts on the last Q-function."""
    rng = np.random.default_rng(0)
    next_states = rng.integers(0, n_states, (n_states * n_actions, 10))
    model = sparse_garnet(next_states, (n_states, n_actions), gamma=0.9, rng=rng)
    grid = np.linspace(0, 5, n_budgets)
    q = optimality_operator(model, zero_q(model, grid), grid)  # compiles
    times, residual = [], np.inf
    for k in range(n_applications):
        begin = time.perf_counter()
        following = optimality_operator(model, q, grid)
        times.append(time.perf_counter() - begin)
        residual = distance(following, q)
        q = following
        print(f"application {k + 1}: {times[-1]:.3f} s, residual {residual:.3g}", file=sys.stderr)
    values = greedy_values(model, q, grid)
    products, frontiers = [], []
    for _ in range(10):
        begin = time.perf_counter()
        for v in values:
            model.transition @ v
        products.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        frontier_values(q.q_c.reshape(n_states, -1), q.q_r.reshape(n_states, -1), grid)
        frontiers.append(time.perf_counter() - begin)
    parts = float(np.median(products) + np.median(frontiers))
    return {
        "states": n_states,
        "actions": n_actions,
        "budgets": n_budgets,
        "successors": 10,
        "applications": n_applications,
        "last_residual": residual,
        "seconds_per_application": round(float(np.median(times)), 4),
        "seconds_sparse_products": round(float(np.median(products)), 4),
        "seconds_frontier_values": round(float(np.median(frontiers)), 4),
        "ratio_to_parts": round(float(np.median(times)) / parts, 3),
        "peak_memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main(arguments: list[str] | None = None) -> None:
    """Measures and writes."""
    asked = records.options(__doc__, arguments)
    size = (100, 5, 11, 3) if asked.quick else (10_000, 5, 101, 100)
    records.write({"row": measure(*size)}, asked.out)


if __name__ == "__main__":
    main()
