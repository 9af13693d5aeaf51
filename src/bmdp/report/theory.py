"""Figures of the theory: the operator against the optimum, and its expansion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure


def gap_figure(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Returns how much of the optimum's gain the operator reaches, model by model.

    Args:
        rows: for each kind of model, records with `share`, the shares at some budgets.
    """
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for kind, records in rows.items():
        shares = np.array([record["share"] for record in records], dtype=float).ravel()
        shares = np.sort(shares[np.isfinite(shares)])
        axes.plot(shares, np.linspace(0, 1, len(shares)), label=kind, drawstyle="steps-post")
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
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    sizes = [row["size"] for row in rows]
    for name in [name for name in rows[0] if name != "size"]:
        axes.loglog(sizes, [row[name] for row in rows], "o-", label=name)
    axes.axhline(1, color="0.6", linewidth=1)
    axes.set_xlabel("size of the pair (epsilon, delta)")
    axes.set_ylabel("expansion by T")
    axes.legend()
    return figure
