"""Pieces of theory, calibration and comparison: checks that all is there that a report draws.

They stay what they are, values by name; the modules of `bmdp.experiments.catalog` say what is in
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bmdp.errors import StoreError
from bmdp.experiments.parts.measuring import evaluation_of
from bmdp.report.pieces import READERS, Piece, columns, entry, mapping, require_numbers


def _gaps(piece: Piece) -> None:
    for rows in mapping(entry(piece, "kind")).values():
        for row in rows:
            names = ("asked", "cost", "reward", "best", "ratio", "share")
            columns(row, (*names, "allocation_share", "carried_share"))
            bool(entry(row, "converged"))


def _expansion(piece: Piece) -> None:
    if not entry(piece, "rows"):
        raise StoreError("rows must be at least one")
    for row in entry(piece, "rows"):
        require_numbers(row, ("size", "steep", "kinked"))
    for row in entry(piece, "rising"):
        require_numbers(row, ("L", "bound", "largest"))


def _branches(piece: Piece) -> None:
    require_numbers(piece, ("budget",))
    require_numbers(entry(piece, "rewards"), ("linear_program", "operator"))
    for curve in mapping(entry(piece, "frontiers")).values():
        ends = ("reward_low", "reward_high") if "reward_low" in curve else ()
        columns(curve, ("costs", "rewards", *ends))


def _pairs(piece: Piece) -> None:
    for pair in entry(piece, "pairs"):
        require_numbers(pair, ("budget", "distance", "image_distance"))
        entry(pair, "name")
        for graph in (entry(pair, "first"), entry(pair, "second")):
            columns(graph, ("costs", "rewards"))
            require_numbers(entry(graph, "chosen"), ("cost", "reward"))


def _rules(piece: Piece) -> None:
    budgets, prices = columns(piece, ("budgets",))[0], columns(piece, ("prices",))[0]
    for rule in ("mean", "deviation", "mixture"):
        found = entry(entry(piece, "rules"), rule)
        per_budget = columns(found, ("price", "said", "realised_cost", "realised_reward"))
        if len(columns(found, ("cost",))[0]) != len(prices) or len(per_budget[0]) != len(budgets):
            raise StoreError(
                f"rule '{rule}' must have a cost for each price, a choice for a budget"
            )
    READERS["prices"](entry(piece, "test"))


def _dial(piece: Piece) -> None:
    entry(piece, "policy")
    evaluation_of(entry(piece, "before"))
    evaluation_of(entry(piece, "after"))
    require_numbers(entry(piece, "certificate"), ("confidence", "n_episodes", "smallest_budget"))


def _certificates(piece: Piece) -> None:
    require_numbers(piece, ("confidence", "n_episodes"))
    columns(piece, ("exact",))
    for found in mapping(entry(piece, "kinds")).values():
        require_numbers(found, ("calibrations", "broken", "allowed"))
        for row in entry(found, "rows"):
            require_numbers(row, ("asked", "exact", "kept"))
        for row in entry(found, "shown"):
            columns(row, ("mean", "high"))


def _method(piece: Piece) -> None:
    entry(piece, "method"), entry(piece, "moved")
    require_numbers(piece, ("seed", "n_models"))
    require_numbers(entry(piece, "seconds"), ("train",))
    evaluation_of(entry(piece, "evaluation"))
    calibrated = entry(piece, "calibrated")
    if calibrated is not None and "error" not in mapping(calibrated):
        evaluation_of(entry(calibrated, "evaluation"))
        require_numbers(entry(calibrated, "certificate"), ("smallest_budget",))


CHECKS: Mapping[str, Callable[[Piece], None]] = {
    "gaps": _gaps,
    "expansion": _expansion,
    "branches": _branches,
    "pairs": _pairs,
    "rules": _rules,
    "dial": _dial,
    "certificates": _certificates,
    "method": _method,
}
"""By the first word of the names of pieces; each raises an error if something is wrong."""
