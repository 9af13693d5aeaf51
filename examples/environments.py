"""Pictures of corridors and slot-filling, and their true frontiers with how well they are known.

    python examples/environments.py --out out/environments
    python examples/environments.py --frontier --out src/bmdp/envs/slot_filling

Corridors: the grid's own value beside what its policy earns in the real task, at three resolutions.
Slot-filling: the frontier from below and from above as bins of scores are halved, beside what the
policy of the lower one earns in the real task. Takes 20 minutes and 4 GB; --quick takes seconds, at
coarser settings. The second command only makes the frontier of slot-filling that is kept with the
package.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import gymnasium
import matplotlib.image
import numpy as np

import bmdp
from bmdp.arrays import FloatArray
from bmdp.envs import ScriptedPolicy, corridors, slot_filling
from bmdp.envs.corridors import Corridors, frontier, picture
from bmdp.envs.scripted import RULES
from bmdp.envs.slot_filling import SlotFilling
from bmdp.envs.slot_filling import frontier as belief
from bmdp.evaluation import measure_dial
from bmdp.randomness import EpisodeStreams

CHEAP, DEAR = 1e9, 1e-7  # prices at the two ends of a frontier
BINS, N_PLAYED = (1, 2, 4, 8, 16), 10**6
COMMAND = "python examples/environments.py --frontier --out src/bmdp/envs/slot_filling"


def ways(rule: str, n: int) -> list[FloatArray]:
    """Ways of a scripted policy through corridors, each `[T + 1, 2]`."""
    task = Corridors()
    streams = EpisodeStreams.named(0, rule, range(n))
    state = task.start(streams.uniforms(0, task.n_draws))
    places = [task.observe(state)]
    for step in range(task.horizon):
        actions = RULES[rule](places[-1])
        state = task.step(state, actions, streams.uniforms(step + 1, task.n_draws)).state
        places.append(task.observe(state))
    return list(np.stack(places, axis=1))


def dialogue() -> str:
    """A transcript."""
    env: Any = gymnasium.make("bmdp/SlotFilling-v0", render_mode="ansi")
    seen, _ = env.reset(seed=12)
    is_over = False
    while not is_over:
        action = int(RULES["slot-filling/key-pad-again"](seen[None])[0])
        seen, _, is_over, _, _ = env.step(action)
    return str(env.render())


def corridors_row(resolution: int, n_episodes: int) -> dict[str, Any]:
    """Both ends of the frontier on one grid, promised and realised."""
    begin = time.perf_counter()
    grid = frontier.corridors_grid(Corridors(), resolution)
    row: dict[str, Any] = {"resolution": resolution, "nodes": grid.rewards.shape[1]}
    for end, price in (("cheap", CHEAP), ("dear", DEAR)):
        (cost, reward), scores = frontier.best_values(grid, price)
        rewards, costs = frontier.play(grid, scores, n_episodes=n_episodes, seed=0)
        row[end] = {
            "grid_cost": cost,
            "grid_reward": reward,
            "cost": float(costs.mean()),
            "reward": float(rewards.mean()),
            "reward_error": float(rewards.std() / np.sqrt(n_episodes)),
            "disagreement": abs(float(rewards.mean()) - reward) / float(rewards.mean()),
        }
    tables = [t for move in grid.moves for t in (move.data, move.indices, move.indptr)]
    return row | measured(begin, tables)


def slot_filling_row(n_bins: int, n_episodes: int, kept: Path | None = None) -> dict[str, Any]:
    """Both bounds with so many bins; both ends of the lower one, promised and realised.

    Args:
        n_bins: bins of scores.
        n_episodes: dialogues that each end is played in.
        kept: file for the frontier, if it is to be kept.
    """
    begin, task = time.perf_counter(), SlotFilling()
    above = belief.tree_frontier(belief.belief_tree(task, belief.spread_scores(task, n_bins)))
    tree = belief.belief_tree(task, belief.binned_scores(task, n_bins))
    below = belief.tree_frontier(tree)
    row: dict[str, Any] = {"bins": n_bins, "beliefs": tree.n_beliefs, "vertices": len(below)}
    for side, found in (("below", below), ("above", above)):
        row[side] = {f"reward_at_{c:g}": float(found.reward_at(c)) for c in (0, 0.1, 0.2, 0.3)}
        row[side] |= {"most_reward": float(found.rewards[-1]), "at_cost": float(found.costs[-1])}
    row["largest_gap"] = belief.largest_gap(below, above)
    row |= measured(begin, [t for level in tree.levels for t in level])
    for end, price in (("cheap", CHEAP), ("dear", DEAR)):
        (cost, reward), policy = belief.best_policy(tree, price)
        rewards, costs = belief.play(policy, n_episodes=n_episodes, seed=0)
        row[end] = {
            "tree_cost": cost,
            "tree_reward": reward,
            "cost": float(costs.mean()),
            "reward": float(rewards.mean()),
            "reward_error": float(rewards.std() / np.sqrt(n_episodes)),
        }
    if kept is not None:
        held = belief.as_kept(task, n_bins, (below, above))
        kept.write_text(json.dumps({"command": COMMAND} | held, indent=1) + "\n")
    return row


def scripted_rows(is_quick: bool) -> list[dict[str, Any]]:
    """The measures of every scripted policy, at budgets that it ignores."""
    grid: dict[str, Any] = {"resolution": 5, "max_disagreement": 0.2} if is_quick else {}
    known = {
        "corridors": corridors.true_frontier(**grid),
        "slot-filling": slot_filling.true_frontier(),
    }
    budgets, n_episodes = [0.0, 0.25, 0.5, 0.75, 1.0], 1_000 if is_quick else 20_000
    rows = []
    for rule in RULES:
        env = rule.split("/")[0]
        if env not in known:
            continue
        found = bmdp.evaluate(
            ScriptedPolicy(rule), env, budgets=budgets, n_episodes=n_episodes, seed=0
        )
        report = measure_dial(found, known[env].frontier)
        row = {"policy": rule, "reward": found.reward_mean[0], "cost": found.cost_mean[0]}
        row |= {"mean_score": report.mean_score, "least_score": report.score.min()}
        row |= {"overshoot": report.worst_overshoot, "dial_error": report.mean_dial_error}
        rows.append({k: v if isinstance(v, str) else float(v) for k, v in row.items()})
    return rows


def measured(begin: float, arrays: list[Any]) -> dict[str, float]:
    """Seconds since the beginning, and the memory of what was built."""
    size = sum(array.nbytes for array in arrays) / 2**20
    return {"seconds": round(time.perf_counter() - begin, 1), "mib": round(size, 1)}


def main(arguments: list[str] | None = None) -> None:
    """Draws, computes, prints and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("out/environments"), help="folder")
    parser.add_argument("--quick", action="store_true", help="coarse settings")
    parser.add_argument("--frontier", action="store_true", help="only that of the package")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.frontier:
        size = (2, 5_000) if options.quick else (BINS[-1], N_PLAYED)
        print(json.dumps(slot_filling_row(*size, options.out / belief.KEPT)))
        return
    drawn = ways("corridors/safe", 4) + ways("corridors/risky", 4)
    matplotlib.image.imsave(options.out / "corridors.png", picture(Corridors().map, drawn))
    matplotlib.image.imsave(options.out / "routes.png", picture(Corridors(routes=4).map, []))
    (options.out / "dialogue.txt").write_text(dialogue() + "\n")
    resolutions, bins, n = ((5,), (1, 2), 5_000) if options.quick else ((9, 17, 33), BINS, N_PLAYED)
    record: dict[str, Any] = {"corridors": [], "slot_filling": []}
    for resolution in resolutions:
        record["corridors"].append(corridors_row(resolution, n))
        print("corridors", json.dumps(record["corridors"][-1]), flush=True)
    for n_bins in bins:
        record["slot_filling"].append(slot_filling_row(n_bins, n))
        print("slot-filling", json.dumps(record["slot_filling"][-1]), flush=True)
    record["scripted"] = scripted_rows(options.quick)
    for row in record["scripted"]:
        print(*row.values())
    (options.out / "frontiers.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
