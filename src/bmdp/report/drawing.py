"""How pictures of a report look and are saved: colours, sizes, files that do not change by chance.

Colours are those of Okabe and Ito, which people with any colour vision can tell apart; what is
drawn differs by marker or line, too, so that it can be read in print.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, BLACK, GREY = "#56B4E9", "#CC79A7", "#000000", "#767676"

COST, REWARD = "expected cost", "expected reward"
"""Names of the axes of the (cost, reward) plane."""

_DPI = 144


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure that is not saved yet; see `Picture` for its words."""

    name: str
    title: str
    caption: str
    alt: str
    figure: Figure


def new_figure(width: float = 6.4, height: float = 4.4) -> Figure:
    """Returns an empty figure, sized in inches, which makes room for its labels by itself."""
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def plane(axes: Axes) -> None:
    """Makes axes those of the (cost, reward) plane."""
    axes.set_xlabel(COST)
    axes.set_ylabel(REWARD)
    tidy(axes)


def tidy(axes: Axes) -> None:
    """Takes away the box around axes, and adds a light grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)


def svg_of(figure: Figure, name: str) -> str:
    """Returns a figure as SVG, which is the same whenever it is made.

    Args:
        figure: to be drawn.
        name: identifiers inside are made from it, so that figures can share a page.
    """
    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


def png_of(figure: Figure) -> bytes:
    """Returns a figure as PNG, which is the same whenever it is made."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})
    return file.getvalue()
