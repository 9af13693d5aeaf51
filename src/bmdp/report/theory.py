"""Figures of the theory: the operator against the optimum, its expansion, and counter-examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bmdp.report.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    new_figure,
    plane,
    tidy,
)

WAYS = {
    "linear_program": ("linear program", BLACK, "-", ""),
    "allocation": ("budgets that depend on the next state", GREEN, "", "s"),
    "carried": ("price carried along", ORANGE, "", "X"),
    "anew": ("price chosen anew, played", PURPLE, ":", "d"),
    "operator": ("the paper's operator T", BLUE, "-", "o"),
}
"""Ways to spend a budget: name, colour, line and marker."""


def gap_figure(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Returns how much of the optimum's gain the operator reaches, model by model.

    Args:
        rows: for each kind of model, records with `share`, the shares at some budgets.
    """
    figure = new_figure(height=3.6)
    axes = figure.subplots()
    tidy(axes)
    for (kind, records), colour in zip(rows.items(), (BLUE, RED, GREEN), strict=False):
        shares = np.array([record["share"] for record in records], dtype=float).ravel()
        shares = np.sort(shares[np.isfinite(shares)])
        heights = np.linspace(0, 1, len(shares))
        axes.plot(shares, heights, label=kind, drawstyle="steps-post", color=colour)
    axes.set_xlabel("share of the optimum's gain over the safest policy")
    axes.set_ylabel("models and budgets up to here")
    axes.set_ylim(0, 1)
    axes.legend(loc="upper left")
    return figure


def expansion_figure(rows: Sequence[Mapping[str, float]]) -> Figure:
    """Returns by how much T expands the distance of two Q-functions, against their size.

    Args:
        rows: records with `size`, and an expansion under each other name.
    """
    figure = new_figure(height=3.6)
    axes = figure.subplots()
    tidy(axes)
    sizes = [row["size"] for row in rows]
    styles = ((BLUE, "o"), (RED, "s"), (GREEN, "^"))
    names = [name for name in rows[0] if name != "size"]
    for name, (colour, marker) in zip(names, styles, strict=False):
        axes.loglog(sizes, [row[name] for row in rows], f"{marker}-", color=colour, label=name)
    axes.axhline(1, color=GREY, linewidth=1, linestyle="--")
    axes.set_xlabel("size of the pair (epsilon, delta)")
    axes.set_ylabel("expansion by T")
    axes.legend()
    return figure


def pairs_figure(pairs: Sequence[Mapping[str, Any]]) -> Figure:
    """Returns pairs of Q-functions that are near, and what is chosen of each, which is not.

    Args:
        pairs: records with `name`, `budget`, `distance`, `image_distance`, and `first` and
            `second`, each with `costs`, `rewards`, and `chosen` with `cost` and `reward`.

    Paper: the figure of the proof of Theorem 2, and a pair against Remark 2.
    """
    figure = new_figure(height=3.9)
    panels = figure.subplots(1, len(pairs), squeeze=False)[0]
    for axes, pair in zip(panels, pairs, strict=True):
        plane(axes)
        axes.margins(0.15)
        axes.set_title(
            f"{pair['name']}: {pair['distance']:.3g} apart, images {pair['image_distance']:.3g}",
            fontsize=9,
        )
        axes.axvline(pair["budget"], color=GREY, linestyle="--", linewidth=1, label="budget")
        _draw_graph(axes, pair["first"], "Q1", BLUE, "o")
        _draw_graph(axes, pair["second"], "Q2", ORANGE, "s")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def branches_figure(found: Mapping[str, Any]) -> Figure:
    """Returns what each way to spend a budget earns on the two-branch problem.

    Args:
        found: with `budget`, and `frontiers`: for each way `costs` and `rewards`, and where it was
            played `reward_low` and `reward_high`.
    """
    figure = new_figure(height=4.0)
    axes = figure.subplots()
    plane(axes)
    axes.axvline(found["budget"], color=GREY, linestyle="--", linewidth=1)
    for way, (name, colour, line, marker) in WAYS.items():
        curve = found["frontiers"].get(way)
        if curve is None:
            continue
        costs, rewards = curve["costs"], curve["rewards"]
        axes.plot(costs, rewards, linestyle=line, marker=marker, color=colour, label=name)
        if "reward_low" in curve:
            ends = curve["reward_low"], curve["reward_high"]
            axes.fill_between(costs, *ends, color=colour, alpha=0.2, linewidth=0)
    axes.legend(fontsize=8, loc="upper left")
    return figure


def _draw_graph(axes: Axes, graph: Mapping[str, Any], name: str, colour: str, marker: str) -> None:
    """Points of a Q-function in the plane, and the one that is chosen."""
    axes.plot(graph["costs"], graph["rewards"], f"{marker}-", color=colour, label=name, alpha=0.9)
    chosen = graph["chosen"]
    axes.plot(
        chosen["cost"],
        chosen["reward"],
        marker="o",
        markersize=15,
        markerfacecolor="none",
        color=colour,
        linestyle="None",
        label="chosen" if name == "Q1" else "_",
    )
