"""What studies of policies share: how they are measured, and where rows of results are kept."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BUDGETS = np.linspace(0, 1, 11)
MOVES = (0.0, 0.5, 1.0)  # budgets before the dial is moved


def options(about: str, what: str, known: Iterable[str]) -> argparse.ArgumentParser:
    """The command line of a study: of what, which seeds, by how many processes, and where to."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("asked", nargs="*", metavar=what.upper(), help=", ".join(known))
    parser.add_argument("--seeds", default="0:5", help="first:last, without the last")
    parser.add_argument("--only", nargs="*", default=[], help="some of what is compared")
    parser.add_argument("--tests", type=int, default=20_000, help="test episodes a budget")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--table", action="store_true", help="print what is there")
    return parser


def require_known(
    parser: argparse.ArgumentParser, kind: str, asked: Iterable[str], known: Iterable[str]
) -> None:
    """Ends the program if something is asked for that there is not."""
    unknown = sorted(set(asked) - set(known))
    if unknown:
        parser.error(f"no {kind} is called {', '.join(unknown)}; there are {', '.join(known)}.")


def do_all(do: Callable[[Any], None], jobs: Iterable[Any], workers: int) -> None:
    """Does jobs, several at a time, each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers, maxtasksperchild=1) as pool:
        for _ in pool.imap_unordered(do, jobs, chunksize=1):
            pass


def add_row(folder: Path | str, row: dict[str, Any]) -> None:
    """Keeps what was measured."""
    with open(Path(folder) / "rows.jsonl", "a") as file:
        file.write(json.dumps(row) + "\n")


def rows_of(folder: Path | str) -> list[dict[str, Any]]:
    """All that was measured."""
    path = Path(folder) / "rows.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def on_device(policy: Any, device: str) -> Any:
    """The policy on a device, or as it is if it cannot be there."""
    from bmdp import ConfigError
    from bmdp.models.fitting import torch_device
    from bmdp.models.placing import placed

    if torch_device(device).type == "cpu":
        return policy
    try:
        return placed(policy, device)
    except ConfigError:
        return policy


def measured(
    policy: Any, env: Any, *, n_tests: int, seed: int, moved_at: int = 0
) -> dict[str, Any]:
    """What a policy earns and pays, at a step of its dial and after it was moved, if at all.

    Args:
        policy: of any kind.
        env: settings of an environment (`EnvConfig`).
        n_tests: episodes a budget; a quarter of it for each pair of budgets when moved.
        seed: of everything.
        moved_at: step at which the dial is moved; 0 for never.
    """
    import bmdp
    from bmdp.evaluate import evaluate_move

    begin = time.perf_counter()
    how: dict[str, Any] = {"n_episodes": n_tests, "seed": seed}
    found = bmdp.evaluate(policy, env.spec(), budgets=BUDGETS, **how)
    plain = {k: v.tolist() if hasattr(v, "tolist") else v for k, v in vars(found).items()}
    row: dict[str, Any] = {"n_tests": n_tests, "evaluation": plain}
    if moved_at:
        row["moved"] = []
        for first in MOVES:
            move = evaluate_move(
                policy,
                env.spec(),
                first_budget=first,
                new_budgets=BUDGETS[::2],
                at_step=moved_at,
                **{**how, "n_episodes": -(-n_tests // 4)},
            )
            row["moved"].append(
                {
                    "from": first,
                    "going": move.going_share,
                    "infeasible": move.infeasible_share.tolist(),
                    "cost": move.cost_mean.tolist(),
                    "reward": move.reward_mean.tolist(),
                    "ideal": _ideal(policy, env, first, moved_at, seed),
                }
            )
    return row | {"test_seconds": time.perf_counter() - begin}


def _ideal(policy: Any, env: Any, first: float, step: int, seed: int) -> list[float] | None:
    """Corridors: the mean cost-to-go of an honest dial, E[clip(budget, least, most of a state)]."""
    from bmdp.envs import Corridors
    from bmdp.envs.corridors.frontier import corridors_grid, cost_range
    from bmdp.learn import collect

    if env.id != "corridors":
        return None
    batch = collect(policy, env.spec(), range(5000), budgets=np.full(5000, first), seed=seed)
    assert batch.step is not None
    states = np.asarray(batch.state[batch.step == step], np.float64)[:, :2]
    if len(states) == 0:
        return None
    ends = cost_range(corridors_grid(Corridors(**env.settings), 17), states, step)
    return [float(np.clip(budget, *ends.T).mean()) for budget in BUDGETS[::2]]


def move_errors(row: dict[str, Any]) -> NDArray[np.float64]:
    """Errors of cost-to-go after the dial was moved, one for each pair of budgets.

    Where the ideal cost is not known it is the new budget, and only what is paid above it counts.
    """
    errors: list[float] = []
    for move in (move for move in row.get("moved", ()) if move["going"] > 0):
        is_known = move["ideal"] is not None
        off = np.subtract(move["cost"], move["ideal"] if is_known else BUDGETS[::2])
        errors += list(off if is_known else off.clip(0))
    return np.array(errors)


def moved_errors(rows: list[dict[str, Any]]) -> str:
    """Worst overshoot and mean error of cost-to-go after the dial was moved."""
    errors = np.concatenate([move_errors(row) for row in rows])
    return f"{errors.max():.3f}, {np.abs(errors).mean():.4f}" if errors.size else "-"


def optimum_of(env: Any, folder: Path) -> Any:
    """The true frontier of a task, kept in the folder: it takes up to a minute."""
    from bmdp import Frontier
    from bmdp.envs import Corridors, corridors, slot_filling

    settings = {k: v for k, v in env.settings.items() if k not in ("observe_time", "features")}
    path = folder / f"optimum-{env.id}-{len(settings)}.npy"
    if not path.exists():
        if env.id == "corridors":
            how = {"resolution": 17, "max_disagreement": 1.0} if settings else {"resolution": 33}
            found = corridors.true_frontier(Corridors(**settings), **how).frontier
        else:
            found = slot_filling.true_frontier().frontier
        np.save(path, np.stack((found.costs, found.rewards)))
    return Frontier(*np.load(path))
