"""How far the paper's operator T is from the optimum, and how far it is from contracting.

    python examples/theory.py --out out/theory

For random models (Garnet): what the policy of budgeted value iteration earns from state 0, against
the best that its own cost could buy. Two measures, at budgets of a quarter, half and three quarters
of the frontier's range: the *ratio* of the rewards, and the *share* of what the optimum gains over
the safest policy. Beside it the largest difference between the linear program and the frontiers by
allocation, and the two counter-examples. Writes theory.json and two figures.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from bmdp.paper.theory import (
    GAMMA,
    KINDS,
    N_ACTIONS,
    N_STATES,
    branch_frontiers,
    expansion_figure,
    expansions,
    gap,
    gap_figure,
    rising_expansions,
    solve,
    summary,
)


def main(arguments: list[str] | None = None) -> None:
    """Runs the study, prints its summary, and writes records and figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("out/theory"), help="folder")
    parser.add_argument("--models", type=int, default=50, help="random models of each kind")
    parser.add_argument("--budgets", type=int, default=101, help="budgets of the grid")
    options = parser.parse_args(arguments)
    rows = {
        kind: [
            gap(solve(seed, n_successors), finer * options.budgets)
            for seed in range(options.models)
        ]
        for kind, (n_successors, finer) in KINDS.items()
    }
    branches = branch_frontiers()["rewards"]
    record: dict[str, Any] = {
        "settings": {"states": N_STATES, "actions": N_ACTIONS, "gamma": GAMMA},
        "summary": {name: summary(found) for name, found in rows.items()},
        "two_branches": {
            way: branches[way] for way in ("operator", "allocation", "linear_program")
        },
        "expansion": expansions(),
        "rising": rising_expansions(n_rounds=100),
        "rows": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "theory.json").write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    shares = {
        kind: np.array([row["share"] for row in found], float).ravel()
        for kind, found in rows.items()
    }
    gap_figure(shares).savefig(options.out / "gap.png", dpi=150)
    expansion_figure(record["expansion"]).savefig(options.out / "expansion.png", dpi=150)
    for name, numbers in record["summary"].items():
        print(name, *(f"{key}={value:.4g}" for key, value in numbers.items()))
    print("two branches at budget 0.5:", record["two_branches"])
    for row in record["rising"]:
        print("rising graphs", *(f"{key}={value:.4g}" for key, value in row.items()))
    for row in record["expansion"]:
        print("expansion", *(f"{key}={value:.4g}" for key, value in row.items()))


if __name__ == "__main__":
    main()
