"""What studies of policies share: how they are measured, and where rows of results are kept."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np

BUDGETS = np.linspace(0, 1, 11).tolist()


def options(about: str, what: str, known: Collection[str]) -> argparse.ArgumentParser:
    """The command line of a study: of what, which seeds, by how many processes, and where to."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    names = ", ".join(known)

    def asked(name: str) -> str:
        if name not in known:
            raise argparse.ArgumentTypeError(f"no {what} is called {name}; there are {names}.")
        return name

    parser.add_argument("asked", nargs="*", type=asked, metavar=what.upper(), help=names)
    parser.add_argument("--seeds", default="0:5", help="first:last, without the last")
    parser.add_argument("--only", nargs="*", default=[], help="some of what is compared")
    parser.add_argument("--tests", type=int, default=20_000, help="test episodes a budget")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--table", action="store_true", help="print what is there")
    return parser


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
    from bmdp.paper.comparison import moves
    from bmdp.paper.measuring import evaluation_piece

    begin = time.perf_counter()
    row: dict[str, Any] = {
        "n_tests": n_tests,
        "evaluation": evaluation_piece(policy, env, BUDGETS, n_tests, seed),
    }
    if moved_at:
        n_moved = -(-n_tests // 4)
        row["moved"] = moves(policy, env, at_step=moved_at, n_episodes=n_moved, seed=seed)
    return row | {"test_seconds": time.perf_counter() - begin}


def moved_errors(rows: list[dict[str, Any]]) -> str:
    """Worst overshoot and mean error of cost-to-go after the dial was moved."""
    from bmdp.paper.comparison import move_errors

    errors = move_errors(row.get("moved", ()) for row in rows)
    return "-" if errors is None else f"{errors.worst:.3f}, {errors.mean:.4f}"


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
