"""What a report says of exploration on corridors: risk-sensitive against risk-neutral."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from bmdp.evaluation import DialReport, Evaluation
from bmdp.report.animation import rounds_gif, ways_gif
from bmdp.report.chapters import shown
from bmdp.report.chapters.chapter import (
    Animation,
    Chapter,
    episodes_explored,
    episodes_played,
    settings_table,
)
from bmdp.report.curves import FIRST, FIRST_PUBLISHED, SECOND, SECOND_PUBLISHED, Drawn
from bmdp.report.drawing import Drawing
from bmdp.report.maps import MOST_WAYS, strategies_figure
from bmdp.report.pieces import Executions, Hull, Piece, Rounds, Truth
from bmdp.report.published import published_curve
from bmdp.report.reading import Results
from bmdp.report.series import Curve, budget_curve
from bmdp.report.tables import Table, budget_table, dial_report, summary_table

STRATEGIES = {"risk-sensitive": "", "risk-neutral": "risk-neutral"}
"""Parts by what they explore with; the main part explores with the budgeted policy."""

_STYLES = {"risk-sensitive": FIRST, "risk-neutral": SECOND}
_PUBLISHED = {"risk-sensitive": FIRST_PUBLISHED, "risk-neutral": SECOND_PUBLISHED}


def exploration_chapter(results: Results, prefix: str) -> Chapter:
    """Returns what was found, as far as it goes."""
    truth = results.common(Truth, "truth")
    evaluations = {
        name: list(results.found(Evaluation, "evaluation", part).values())
        for name, part in STRATEGIES.items()
    }
    ours = {name: budget_curve(name, found) for name, found in evaluations.items() if found}
    published = {name: published_curve("corridors", f"BFTQ {name}") for name in STRATEGIES}
    reports = {
        name: dial_report(evaluations[name], truth.frontier) for name in ours if truth is not None
    }
    films = _films(results)
    executions = results.found(Executions, "executions")
    return Chapter(
        answer=_answer(reports, ours),
        setting=_setting(results),
        curves=[*ours.values(), *published.values()],
        drawings=[
            *_curves(prefix, ours, published, truth),
            *_trajectories(prefix, films),
            *_behaviour(prefix, results, executions),
        ],
        tables=[
            *_tables(prefix, ours, published, reports, truth),
            settings_table(results, f"{prefix}-settings"),
        ],
        dials=[
            shown.dial(executions[seed], f"A policy on corridors (seed {seed})", truth)
            for seed in sorted(executions)[:1]
        ],
        films=[_film(name, found) for name, (_, found) in films.items() if found.rounds],
        animations=_animations(prefix, films, executions),
    )


def _films(results: Results) -> dict[str, tuple[int, Rounds]]:
    """The exploration of the first seed by each strategy; risk-neutral first, as in the paper."""
    found: dict[str, tuple[int, Rounds]] = {}
    for name in reversed(STRATEGIES):
        by_seed = results.found(Rounds, "exploration", STRATEGIES[name])
        seed = shown.first_seed(by_seed)
        if seed is not None and by_seed[seed].env == "corridors":
            found[name] = seed, by_seed[seed]
    return found


def _film(name: str, found: Rounds) -> Piece:
    return {**found.piece, "title": f"Exploration round by round, {name}"}


def _curves(
    prefix: str,
    ours: Mapping[str, Curve],
    published: Mapping[str, Curve],
    truth: Truth | None,
) -> list[Drawing]:
    drawn = [Drawn(curve, _STYLES[name]) for name, curve in ours.items()]
    drawn += [Drawn(curve, _PUBLISHED[name]) for name, curve in published.items()]
    if not ours:
        return []
    return [
        shown.trade_off(f"{prefix}-trade-off", drawn, truth),
        shown.asked(f"{prefix}-asked", drawn, truth),
    ]


def _trajectories(prefix: str, films: Mapping[str, tuple[int, Rounds]]) -> list[Drawing]:
    if not films:
        return []
    seeds = ", ".join(f"{name}: seed {seed}" for name, (seed, _) in films.items())
    n = [
        min(sum(len(one.episodes) for one in found.rounds), MOST_WAYS)
        for _, found in films.values()
    ]
    caption = (
        f"Ways that exploration took, some of each round ({seeds}). Green cells pay, red ones pay "
        "and cost; numbers are rewards. Paper: the left half of its figure on exploration."
    )
    alt = "Maps of the corridors with " + " and ".join(
        f"{count} ways of {name} exploration" for name, count in zip(films, n, strict=True)
    )
    alt += "."
    figure = strategies_figure({name: found for name, (_, found) in films.items()})
    return [Drawing(f"{prefix}-trajectories", "Where exploration went", caption, alt, figure)]


def _behaviour(
    prefix: str, results: Results, executions: Mapping[int, Executions]
) -> list[Drawing]:
    hulls = results.found(Hull, "hull")
    drawings = [
        *(shown.executions(f"{prefix}-ways", executions[s], s) for s in sorted(executions)[:1]),
        *(shown.hull(f"{prefix}-hull", hulls[s], s) for s in sorted(hulls)[:1]),
        shown.rounds(f"{prefix}-rounds", results),
    ]
    return [drawing for drawing in drawings if drawing is not None]


def _tables(
    prefix: str,
    ours: Mapping[str, Curve],
    published: Mapping[str, Curve],
    reports: Mapping[str, DialReport],
    truth: Truth | None,
) -> list[Table]:
    tables = [
        budget_table(
            f"{prefix}-{name}",
            f"Budgets, {name} exploration",
            curve,
            reports.get(name),
            published[name],
        )
        for name, curve in ours.items()
    ]
    if truth is None or not reports:
        return tables
    rows = dict(reports) | {
        f"{name}, published": dial_report([shown.as_evaluation(curve)], truth.frontier)
        for name, curve in published.items()
    }
    return [summary_table(f"{prefix}-summary", rows), *tables]


def _animations(
    prefix: str, films: Mapping[str, tuple[int, Rounds]], executions: Mapping[int, Executions]
) -> list[Animation]:
    strategies = {name: found for name, (_, found) in films.items() if found.rounds}
    found = []
    if strategies:
        make = partial(rounds_gif, strategies)
        found.append(Animation(f"{prefix}-exploration", "exploration round by round", make))
    for seed in sorted(executions)[:1]:
        make = partial(ways_gif, executions[seed])
        found.append(Animation(f"{prefix}-executions", "what the policy does by budget", make))
    return found


def _answer(reports: Mapping[str, DialReport], ours: Mapping[str, Curve]) -> str:
    if not reports:
        told = [f"{name} exploration: {shown.ends_of(curve)}." for name, curve in ours.items()]
    else:
        told = [shown.kept(f"{name} exploration", report) for name, report in reports.items()]
    return " ".join(text[0].upper() + text[1:] for text in told)


def _setting(results: Results) -> str:
    settings = results.spec.get("settings", {})
    parts: Sequence[str] = [
        "corridors, the paper's map",
        *(
            f"{name} exploration: {told}"
            for name in ("sensitive", "neutral")
            if (told := episodes_explored(settings.get(name) or {}))
        ),
        episodes_played(settings),
    ]
    return "; ".join(part for part in parts if part)
