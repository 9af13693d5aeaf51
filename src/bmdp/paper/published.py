"""The curves of the paper: Carrara et al. 2019, read from its figures.

Means are good to about 0.002 (rewards of corridors), 0.0005 (of slot-filling) and 0.0001 (of
driving), costs to 1e-5. Boxes of the figures reach 1.96 standard errors to either side, over 4
seeds (corridors) or 5 (slot-filling) of each seed's mean; of driving their number is not known. In
driving budgets were not printed; they are inferred from the order of the markers, which merge two
grids.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files

import numpy as np

from bmdp.errors import ConfigError
from bmdp.evaluation import DialReport, Interval
from bmdp.evaluation.dial import dial_measures
from bmdp.frontier import Frontier
from bmdp.report.series import Curve

CITED = "Carrara et al. 2019, read from the figures"
"""Source of the curves, as it is cited."""

N_SEEDS: dict[str, int | None] = {"corridors": 4, "slot-filling": 5, "highway": None}
"""Seeds of each figure, as its means show. Those of driving do not show it: the table of the paper
says 10, but it says 6 for slot-filling, too."""

ASSUMED_SEEDS = 5
"""Seeds of a figure whose number is not known. Tests take degrees of freedom from it, and nothing
else: standard errors are those of the figure."""


def published_curve(figure: str, series: str) -> Curve:
    """Returns a curve of the paper, or a ConfigError that names all figures and their series.

    >>> curve = published_curve("slot-filling", "FTQ")
    >>> float(curve.settings[-1]), float(curve.cost.mean[-1])
    (60.0, 0.0108)
    """
    rows = [row for row in _rows() if (row["figure"], row["series"]) == (figure, series)]
    if not rows:
        names = sorted({f"{row['figure']}: {row['series']}" for row in _rows()})
        raise ConfigError(f"no curve '{figure}: {series}' is published; got {', '.join(names)}.")
    rows.sort(key=lambda row: float(row["param"]))
    read = ("param", "Gc_mean", "Gc_ci95_half", "Gr_mean", "Gr_ci95_half")
    settings, *means = (np.array([float(row[name]) for row in rows]) for name in read)
    cost, reward = (
        Interval(mean, mean - half, mean + half) for mean, half in (means[:2], means[2:])
    )
    label = f"{'FTQ(lambda)' if series == 'FTQ' else series}, published"
    unknown = np.empty((0, len(rows)))  # means of each seed
    n_seeds = N_SEEDS[figure] or ASSUMED_SEEDS
    return Curve(label, settings, cost, reward, "published", n_seeds, unknown, unknown)


def published_report(curve: Curve, frontier: Frontier) -> DialReport:
    """Returns the measures of a curve of the paper; intervals are the whole line: none is known.

    >>> from bmdp import upper_frontier
    >>> curve = published_curve("slot-filling", "BFTQ")
    >>> found = published_report(curve, upper_frontier([0.0, 0.5], [20.0, 60.0]))
    >>> round(found.mean_score, 3), round(found.worst_overshoot, 3), found.n_seeds
    (0.854, 0.023, 5)
    """
    found = dial_measures(curve.settings, curve.cost.mean, curve.reward.mean, frontier)
    line = np.full(len(curve.settings), np.inf)
    ends = {f"{name}_{end}" for name in found._fields for end in ("low", "high")}
    return DialReport(
        budgets=curve.settings,
        **found._asdict(),
        **{name: line if name.endswith("high") else -line for name in ends},
        mean_score=float(np.nanmean(found.score)),
        worst_overshoot=float(found.overshoot.max()),
        mean_dial_error=float(found.dial_error.mean()),
        confidence=1.0,
        n_seeds=curve.n_seeds,
    )


@cache
def _rows() -> tuple[dict[str, str], ...]:
    text = (files("bmdp.paper") / "assets" / "published.csv").read_text()
    return tuple(csv.DictReader(text.splitlines()))
