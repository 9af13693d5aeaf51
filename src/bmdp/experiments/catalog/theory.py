"""Theory: what the paper's operator T misses and expands, on models that are known.

    FOLDER/seed-N/gaps.json                     random models of a seed
    FOLDER/counter-examples/expansion.json      T expands distances
    FOLDER/counter-examples/branches.json       the two-branch problem
    FOLDER/counter-examples/pairs.json          pairs of Q-functions, to be drawn

gaps.json: `kind`, for each kind of model ("random", "deterministic") a list of rows, one a model:
    `seed` of the model, `asked` budgets; of T `converged`, `cost`, `reward`, `best` (the optimum at
    that cost), `ratio`, `share` (null where there is nothing to gain), `largest_excess`;
    `allocation_error`; rewards of `linear_program`, `allocation` and `carried` at the budgets
    asked, `allocation_share` and `carried_share`. `summary`, for each kind: `models`,
    `converged`, `ratio_mean`, `ratio_least`, `share_mean`, `share_least`, `largest_excess`,
    `allocation_error`.
expansion.json: `rows`, each with `size` and the expansion of the pairs "steep" and "kinked";
    `rising`, each with `L`, its `bound` 1 + L, and the `largest` expansion seen; `gamma`.
branches.json: `payoffs`, `budget`, `rewards` at that budget by way ("linear_program", "operator",
    "allocation", "carried"), and `frontiers` by way with `costs` and `rewards`.
pairs.json: `gamma`, and `pairs`, each with `name` ("steep": Q_eps^1 and Q_eps^2 of the paper;
    "kinked": against Remark 2), `size`, `budget`, `distance`, `image_distance`, `expansion`, and
    `first` and `second`, each with `costs` and `rewards` of its actions, and `chosen`, the `cost`
    and `reward` of the greedy step at that budget.
"""

from __future__ import annotations

from dataclasses import dataclass

from bmdp.experiments.experiment import Experiment, Piece, Work
from bmdp.experiments.parts.counter_examples import (
    branch_frontiers,
    drawn_pairs,
    expansions,
    rising_expansions,
)
from bmdp.experiments.parts.random_models import GAMMA, KINDS, gap, other_ways, solve, summary

_DRAWN_SIZE = 0.2  # of the pairs of Q-functions in a picture


@dataclass(frozen=True)
class TheorySettings:
    """How much is computed.

    Args:
        n_seeds: that it is done with, unless others are asked for.
        models: random models of each kind, for each seed.
        budgets: of the grid of T; five times as many for deterministic models.
        rounds: of 400 random pairs of rising graphs, for each slope and size.
    """

    n_seeds: int
    models: int
    budgets: int
    rounds: int


def random_models(settings: TheorySettings, work: Work) -> None:
    """Compares all ways to spend a budget on the random models of a seed."""
    work.piece("gaps", lambda: _gaps(settings, work.seed))


def counter_examples(settings: TheorySettings, work: Work) -> None:
    """Computes where T expands, and where it misses the optimum."""
    work.piece(
        "expansion",
        lambda: {
            "rows": expansions(),
            "rising": rising_expansions(settings.rounds),
            "gamma": GAMMA,
        },
    )
    work.piece("branches", branch_frontiers)
    work.piece("pairs", lambda: {"gamma": GAMMA, "pairs": drawn_pairs(_DRAWN_SIZE)})


def _gaps(settings: TheorySettings, seed: int) -> Piece:
    """Models of different seeds are different ones."""
    numbers = range(seed * settings.models, (seed + 1) * settings.models)
    rows: dict[str, list[Piece]] = {kind: [] for kind in KINDS}
    for kind, (n_successors, finer) in KINDS.items():
        for number in numbers:
            solved = solve(number, n_successors)
            rows[kind].append({**gap(solved, finer * settings.budgets), **other_ways(solved)})
    return {"kind": rows, "summary": {kind: summary(found) for kind, found in rows.items()}}


EXPERIMENT = Experiment(
    name="theory",
    title="The theory, put to the test",
    question=(
        "How much of the optimum does the paper's operator T reach, and by how much can it expand?"
    ),
    parts={"": random_models},
    presets={
        "smoke": TheorySettings(2, models=2, budgets=31, rounds=5),
        "quick": TheorySettings(2, models=5, budgets=101, rounds=100),
        "paper": TheorySettings(5, models=10, budgets=101, rounds=100),
        "best": TheorySettings(5, models=10, budgets=401, rounds=400),
    },
    common={"counter-examples": counter_examples},
)
