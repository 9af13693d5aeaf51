"""Noise in an exact dynamic program: which greedy rule predicts honestly, and which survives.

    python examples/noise_harness.py --out out/noise.json

For each rule (who chooses, who sets the probability, who values, who acts; with a tolerance, a
slope cap, or neither) and each budget: what it predicts at the start, what its policy realises in
the noise-free problem, and its score against the exact optimum. Means over seeds; nothing is
sampled but the noise. Takes half a minute on one core; --quick takes a second.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from bmdp.envs.corridors import Corridors
from bmdp.envs.corridors.frontier import corridors_grid, start_node
from bmdp.envs.corridors.task import STOP
from bmdp.exact import FiniteBMDP, cost_range
from bmdp.exact.textbook import garnet
from bmdp.learn.noise import Noise, NoiseProblem, NoiseRule, measured, noise_problem, run_noise
from bmdp.policies.greedy import GreedyRule

BUDGETS = (0.0, 0.3, 1.0)
CAP_TO_CHORD = 3.0  # slope cap, over the slope from the cheapest to the best paid
MEASURES = (
    *("predicted_reward", "predicted_cost", "reward", "cost"),
    *("score", "overshoot", "dial_error"),
)
KINDS: dict[str, dict[str, Any]] = {
    "self": {"valuation": "self", "probability": "own", "folds": 1},
    "crossed values": {"probability": "own"},
    "crossed": {},
    "crossed, average acts": {"acting": "average"},
}
"""Settings of `NoiseRule`; "crossed" is the rule of `CrossedPolicy`."""


def corridors_problem(*, resolution: int = 3, n_budgets: int = 41) -> NoiseProblem:
    """Corridors on a coarse grid, which is a finite problem of its own. `stop` ends it."""
    grid = corridors_grid(Corridors(), resolution)
    n_actions, n_nodes = grid.rewards.shape
    blocks = []
    for action, move in enumerate(grid.moves):
        ends = np.full((n_nodes, 1), float(action == STOP))
        blocks.append(sparse.hstack((move, sparse.csr_array(ends))))
    by_state = np.arange(n_actions * n_nodes).reshape(n_actions, n_nodes).T.ravel()
    rows = sparse.csr_array(sparse.vstack(blocks))[by_state]
    nothing = np.zeros((1, n_actions))
    model = FiniteBMDP(
        transition=sparse.vstack((rows, sparse.csr_array((n_actions, n_nodes + 1))), format="csr"),
        reward=np.concatenate((grid.rewards.T, nothing)),
        cost=np.concatenate((grid.costs.T, nothing)),
        gamma=grid.task.gamma,
        terminal=np.arange(n_nodes + 1) == n_nodes,
        horizon=grid.task.horizon,
    )
    betas = np.linspace(*grid.task.budget_range, n_budgets)
    return noise_problem("corridors", model, betas, start=start_node(grid))


def garnet_problem(*, n_states: int = 60, horizon: int = 8, seed: int = 0) -> NoiseProblem:
    """A random problem, with a tenth between the budgets of its grid."""
    endless = garnet(n_states, 4, 3, gamma=0.95, rng=np.random.default_rng(seed))
    model = FiniteBMDP(
        transition=endless.transition,
        reward=endless.reward,
        cost=endless.cost,
        gamma=endless.gamma,
        horizon=horizon,
    )
    dearest = int(np.ceil(cost_range(model)[1]))
    return noise_problem("garnet", model, np.linspace(0, dearest, 10 * dearest + 1), start=0)


def rules(problem: NoiseProblem, *, tolerance: float) -> dict[str, NoiseRule]:
    """Every kind, with neither remedy and with each."""
    cap = CAP_TO_CHORD * problem.chord_slope
    remedies: dict[str, dict[str, Any]] = {
        "": {},
        " + tolerance": {"tolerance": tolerance},
        " + cap": {"greedy": GreedyRule(cost_floor=0.0, slope_cap=cap)},
    }
    return {
        kind + remedy: NoiseRule(**settings, **more)
        for kind, settings in KINDS.items()
        for remedy, more in remedies.items()
    }


def rows(problem: NoiseProblem, rule: NoiseRule, noise: Noise, n_seeds: int) -> list[Any]:
    """Means over seeds of all measures, and the deviation of the score, for each budget."""
    found: dict[str, list[Any]] = {name: [] for name in MEASURES}
    for seed in range(n_seeds):
        run = run_noise(problem, rule, noise, seed=seed)
        every = run._asdict() | measured(problem, run)._asdict()
        for name in MEASURES:
            found[name].append(every[name])
    places = [int(np.abs(problem.beta_grid - budget).argmin()) for budget in BUDGETS]
    return [
        {"budget": float(problem.beta_grid[b])}
        | {name: float(np.mean(values, axis=0)[b]) for name, values in found.items()}
        | {"score_std": float(np.std(found["score"], axis=0)[b])}
        for b in places
    ]


def study(problem: NoiseProblem, options: argparse.Namespace) -> dict[str, Any]:
    """All rules on one problem, printed as a table."""
    noise = problem.noise(options.noise, beta_length=options.beta_length, splits_data=options.split)
    exact = {"exact": NoiseRule(valuation="self", probability="own", folds=1)}
    record: dict[str, Any] = {"frontier": {}, "rules": {}}
    for name in ("costs", "rewards"):
        record["frontier"][name] = getattr(problem.frontier, name).tolist()
    print(f"\n{problem.name}: {problem.model.n_states} states, {problem.model.horizon} steps")
    print(f"{'':34}" + "".join(f"{f'budget {b:g}':^36}" for b in BUDGETS))
    print(
        f"{'rule':34}" + f"{'predicted':>10}{'reward':>9}{'cost':>8}{'score':>7}  " * len(BUDGETS)
    )
    for name, rule in (exact | rules(problem, tolerance=options.tolerance)).items():
        is_exact = name == "exact"
        found = rows(
            problem,
            rule,
            problem.noise(0.0) if is_exact else noise,
            1 if is_exact else options.seeds,
        )
        record["rules"][name] = found
        cells = (
            f"{row['predicted_reward']:10.2f}{row['reward']:9.2f}{row['cost']:8.3f}"
            f"{row['score']:7.2f}  "
            for row in found
        )
        print(f"{name:34}" + "".join(cells), flush=True)
    return record


def main(arguments: list[str] | None = None) -> None:
    """Runs, prints and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--noise", type=float, default=0.003, help="over the scale of the problem")
    parser.add_argument("--beta-length", type=float, default=0.0, help="0: errors apart by budget")
    parser.add_argument("--split", action="store_true", help="networks share the data")
    parser.add_argument("--tolerance", type=float, default=0.05, help="on the cost of the cheapest")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--quick", action="store_true", help="one seed, small problems")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seeds = 1
        problems = [corridors_problem(n_budgets=11), garnet_problem(n_states=12, horizon=4)]
    else:
        problems = [corridors_problem(), garnet_problem()]
    settings = {k: v for k, v in vars(options).items() if k != "out"}
    record: dict[str, Any] = {"settings": settings}
    for problem in problems:
        record[problem.name] = study(problem, options)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
