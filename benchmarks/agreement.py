"""How far what was reproduced agrees with what was published, setting by setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from scipy import stats

from bmdp.arrays import FloatArray
from bmdp.report.section import Column, Table
from bmdp.report.series import Curve

LEVEL = 0.05
"""Of each test; so much of all tests fails by chance if nothing differs."""

OF_ERRORS = 1.96
"""Standard errors that published intervals reach to either side."""

Quantity = Literal["cost", "reward"]


def agreement(pairs: Mapping[str, tuple[Curve, Curve]], *, is_assumed: bool = False) -> Table:
    """Returns a row for each pair of curves, the published one first.

    Where both have the same setting, means over seeds are compared by Welch's test, which does not
    take deviations between seeds for equal.

    Args:
        pairs: of curves, by name.
        is_assumed: whether the number of published seeds is not known.
    """
    words = ", assumed" if is_assumed else ""
    kept = {name: _shared(*pair) for name, pair in pairs.items()}
    return Table(
        "agreement",
        "",
        [
            Column("", list(kept), "s"),
            Column("seeds, published", [f"{p.n_seeds}{words}" for p, _ in pairs.values()], "s"),
            Column("seeds, ours", [ours.n_seeds for _, ours in pairs.values()], "d"),
            Column("settings", [len(places) for places, _ in kept.values()], "d"),
            *_columns("cost", pairs, kept),
            *_columns("reward", pairs, kept),
        ],
    )


Places = tuple[Sequence[int], Sequence[int]]
"""Of settings that two curves share, in each of them."""


def _shared(published: Curve, ours: Curve) -> Places:
    found = [
        (i, int(np.argmin(np.abs(ours.settings - setting))))
        for i, setting in enumerate(published.settings)
        if np.abs(ours.settings - setting).min() < 1e-3
    ]
    return [i for i, _ in found], [j for _, j in found]


def _columns(
    name: Quantity, pairs: Mapping[str, tuple[Curve, Curve]], kept: Mapping[str, Places]
) -> list[Column]:
    differences, counts = [], []
    for label, (published, ours) in pairs.items():
        difference, p = differences_of(name, published, ours, kept[label])
        differences.append(float(difference.mean()))
        counts.append(int((p < LEVEL).sum()))
    form = "+.3f" if name == "cost" else "+.3g"
    return [
        Column(f"{name}: mean difference", differences, form),
        Column("settings that differ", counts, "d"),
    ]


def differences_of(
    name: Quantity, published: Curve, ours: Curve, places: Places
) -> tuple[FloatArray, FloatArray]:
    """Returns ours less what is published at shared settings, and how likely more is by chance.

    That is 0 or NaN where nothing varies, in any seed: the means differ, or they do not.
    """
    theirs, by_seed = getattr(published, name), getattr(ours, f"{name}_by_seed")
    means = theirs.mean[places[0]]
    errors = (theirs.high - theirs.mean)[places[0]] / OF_ERRORS
    seeds: FloatArray = by_seed[:, places[1]]
    difference: FloatArray = seeds.mean(axis=0) - means
    with np.errstate(divide="ignore", invalid="ignore"):
        p: FloatArray = stats.ttest_ind_from_stats(
            seeds.mean(axis=0),
            seeds.std(axis=0, ddof=1),
            len(seeds),
            means,
            errors * np.sqrt(published.n_seeds),
            published.n_seeds,
            equal_var=False,
        ).pvalue
    return difference, p
