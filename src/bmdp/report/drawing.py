"""The look of pictures, and their files: colours, sizes, and bytes that do not change by chance.

Colours are those of Okabe and Ito, which people with any colour vision can tell apart; what is
drawn differs by marker or line, too, so that it can be read in print.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, BLACK, GREY = "#56B4E9", "#CC79A7", "#000000", "#767676"

COST, REWARD = "expected cost", "expected reward"
"""Names of the axes of the (cost, reward) plane."""

_DPI = 144
_LETTERS = 36  # of a name in a figure


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


def literal(text: str) -> str:
    r"""Returns a name from data as one that matplotlib draws as it is: short, and no mathematics.

    >>> literal("_$x$" + chr(10) + "y" * 40)
    ' _\\$x\\$ yyyyyyyyyyyyyyyyyyyyyyyyyyyyyy…'
    """
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    shown = shown if len(shown) <= _LETTERS else shown[: _LETTERS - 1] + "…"
    hidden = shown.startswith("_")  # legends leave out such names
    return (" " if hidden else "") + shown.replace("$", r"\$")


def svg_of(figure: Figure, name: str) -> str:
    """Returns a figure as SVG, the same whenever it is made; identifiers inside have the name."""
    file = io.StringIO()
    with _any_letters(), matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


def png_of(figure: Figure) -> bytes:
    """Returns a figure as PNG, which is the same whenever it is made."""
    file = io.BytesIO()
    with _any_letters():
        figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})
    return file.getvalue()


@contextmanager
def _any_letters() -> Iterator[None]:
    """Draws letters that the font does not have as boxes, without a warning for each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield
