"""Tables of a report: rounded on its page, with all digits in a CSV file.

Score, overshoot and dial error are those of `bmdp.evaluation.dial`, of each seed by itself; the
table has their means over seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.evaluation import DialReport, Evaluation, measure_dial, measure_dials
from bmdp.frontier import Frontier
from bmdp.report.section import Cell, Column, Table
from bmdp.report.series import Curve

_STATUS = {
    "INFEASIBLE": "too low: the cheapest is played",
    "TIGHT": "spent",
    "SLACK": "more than is needed",
}
_UNITS = {"memory": " GiB"}


def dial_report(evaluations: Sequence[Evaluation], frontier: Frontier) -> DialReport:
    """Returns how well a dial does, of one seed or of several."""
    if len(evaluations) == 1:
        return measure_dial(evaluations[0], frontier)
    return measure_dials(evaluations, frontier)


def budget_table(
    name: str,
    title: str,
    curve: Curve,
    report: DialReport | None = None,
    published: Curve | None = None,
) -> Table:
    """Returns what was asked, paid and earned at each budget, and what was published for it.

    Args:
        name: of its file.
        title: above it.
        curve: at each budget.
        report: of the same budgets, if the true frontier is known.
        published: whose rows stand beside those of about the same budget.
    """
    columns = [Column("asked", curve.settings.tolist(), "g"), *_means(curve)]
    if report is not None:
        columns += [
            Column("score", report.score.tolist()),
            Column("overshoot", report.overshoot.tolist()),
            Column("dial error", report.dial_error.tolist(), key="dial_error"),
        ]
    columns += _deviations(curve)
    if published is not None:
        columns += _beside(curve.settings, published)
    return Table(name, title, columns, _note(curve, report, published))


def dial_table(
    name: str,
    budgets: FloatArray,
    status: Sequence[str],
    realised: Curve | None,
    forecast: Curve | None,
) -> Table:
    """Returns what each budget of one policy was forecast to buy, and what it bought."""
    columns, notes = [Column("asked", budgets.tolist(), ".4g")], []
    if forecast is not None:
        columns += [
            Column("forecast cost", forecast.cost.mean.tolist(), ".4g", "forecast_cost"),
            Column("forecast reward", forecast.reward.mean.tolist(), ".4g", "forecast_reward"),
        ]
    if realised is not None:
        columns += _means(realised, ".4g")
        notes.append("±: half of a 95 % interval over episodes.")
    if status:
        columns.append(Column("status", [_STATUS[word] for word in status], "s"))
        notes.append("Status: how the budget lies to what the policy expects at a first state.")
    return Table(name, "Budget by budget", columns, " ".join(notes))


def price_table(name: str, title: str, curve: Curve, published: Curve | None = None) -> Table:
    """Returns what policies of each price paid and earned, and what was published for them."""
    columns = [Column("lambda", curve.settings.tolist(), "g"), *_means(curve), *_deviations(curve)]
    if published is not None:
        columns += _beside(curve.settings, published)
    return Table(name, title, columns, _note(curve, None, published))


def published_prices(name: str, title: str, published: Curve) -> Table:
    """Returns what was published for policies of each price, where those of ours differ by seed."""
    columns = _beside(published.settings, published)
    note = "Published: Carrara et al. 2019, read from the figures. Ours differ from seed to seed."
    return Table(name, title, [Column("lambda", published.settings.tolist(), "g"), *columns], note)


def summary_table(name: str, reports: Mapping[str, DialReport]) -> Table:
    """Returns mean score, worst overshoot and mean dial error of some dials, a row each."""
    found = reports.values()
    return Table(
        name,
        "The dials in short",
        [
            Column("policy", list(reports), "s"),
            Column("seeds", [r.n_seeds for r in found], "d"),
            Column("mean score", [r.mean_score for r in found], key="mean_score"),
            Column("worst overshoot", [r.worst_overshoot for r in found], key="worst_overshoot"),
            Column("mean dial error", [r.mean_dial_error for r in found], key="mean_dial_error"),
        ],
        "Score: reward over the best for what was allowed, or paid if that is more. Overshoot: "
        "cost above the budget, the worst of any seed and budget. Dial error: distance of the "
        "cost from the budget. Means are over budgets, then over seeds.",
    )


def candidates_table(name: str, candidates: Sequence[Mapping[str, Any]]) -> Table:
    """The leaderboard of a fit, the best candidate first, as fitted.json has it."""

    def column(head: str, key: str, form: str) -> Column:
        return Column(head, [one.get(key) for one in candidates], form, key)

    return Table(
        name,
        "Candidates",
        [
            column("candidate", "name", "s"),
            column("mean reward", "value", ".4g"),
            column("least cost", "least_cost", ".3g"),
            column("largest cost", "most_cost", ".3g"),
            column("seconds", "seconds", ".1f"),
            column("why", "why", "s"),
        ],
        "All are learned from the same transitions. Mean reward: over budgets that are common to "
        "all, by the evidence of episodes that were not learned from.",
    )


def forecast_table(name: str, forecast: Mapping[str, Any]) -> Table:
    """The forecast of a fit with its intervals, as fitted.json has it."""
    columns = [Column("asked", forecast.get("budgets") or [], ".4g")]
    for what in ("cost", "reward"):
        columns += [
            Column(head, forecast.get(key) or [], ".4g", key)
            for head, key in (
                (what, what),
                (f"{what}, low", f"{what}_low"),
                (f"{what}, high", f"{what}_high"),
            )
        ]
    n, own = forecast.get("n_episodes") or 0, forecast.get("is_played")
    whose = "that the policy played" if own else "of the log that were not learned from"
    return Table(name, "Forecast", columns, f"From {n:,} episodes {whose}. Intervals have 95 %.")


def _means(curve: Curve, costs: str = ".3f") -> list[Column]:
    columns = []
    for name, interval, form in (("cost", curve.cost, costs), ("reward", curve.reward, ".4g")):
        half = (interval.high - interval.low) / 2
        columns += [
            Column(name, interval.mean.tolist(), form),
            Column("±", half.tolist(), form.replace("4g", "3g"), f"{name}_half_width"),
            Column("", interval.low.tolist(), "", f"{name}_low"),
            Column("", interval.high.tolist(), "", f"{name}_high"),
        ]
    return columns


def _deviations(curve: Curve) -> list[Column]:
    """Standard deviations between seeds, if there are several."""
    if curve.n_seeds < 2:
        return []
    return [
        Column("cost, sd of seeds", curve.between_seeds("cost").tolist(), key="cost_sd"),
        Column("reward, sd of seeds", curve.between_seeds("reward").tolist(), ".3g", "reward_sd"),
    ]


def _beside(settings: FloatArray, published: Curve) -> list[Column]:
    """Published means at the same settings; nothing where there is none."""
    distance = np.abs(settings[:, None] - published.settings[None, :])
    nearest = distance.argmin(axis=1)
    is_there = distance.min(axis=1) < 1e-3

    def taken(values: FloatArray) -> list[Cell]:
        rows = zip(is_there.tolist(), values[nearest].tolist(), strict=True)
        return [value if there else None for there, value in rows]

    if not is_there.any():
        return []
    return [
        Column("published cost", taken(published.cost.mean), key="published_cost"),
        Column("published reward", taken(published.reward.mean), ".4g", "published_reward"),
    ]


def _note(curve: Curve, report: DialReport | None, published: Curve | None) -> str:
    over = f"{curve.n_seeds} seeds" if curve.over == "seeds" else "episodes of one seed"
    notes = [f"±: half of a 95 % interval over {over}."]
    if report is not None:
        notes.append("Score, overshoot and dial error: against the true frontier.")
    if published is not None:
        notes.append("Published: Carrara et al. 2019, read from the figures.")
    return " ".join(notes)


def flat(settings: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields settings inside settings, by names with points in them.

    >>> list(flat({"a": {"b": 1, "c": [1, 2]}}))
    [('a.b', '1'), ('a.c', '1, 2')]
    """
    if isinstance(settings, Mapping):
        for name, value in settings.items():
            yield from flat(value, f"{prefix}.{name}" if prefix else str(name))
    elif isinstance(settings, list):
        yield prefix, ", ".join(map(str, settings))
    else:
        yield prefix, str(settings)


def listed(values: Any) -> str:
    """Returns values by name in one line.

    >>> listed({"cores": 2, "memory": 15.6, "gpu": None})
    'cores 2, memory 15.6 GiB'
    """
    there = values.items() if isinstance(values, Mapping) else ()
    return ", ".join(f"{n} {v}{_UNITS.get(n, '')}" for n, v in there if v is not None)


def duration(seconds: float) -> str:
    """Returns a time in words.

    >>> duration(42.0), duration(150.0), duration(9000.0)
    ('42 s', '2.5 min', '2.5 h')
    """
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} s"
