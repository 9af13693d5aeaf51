"""Pictures and words that several experiments share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from matplotlib.figure import Figure

from bmdp.arrays import FloatArray
from bmdp.envs.tasks import TrueFrontier
from bmdp.evaluation import DialReport
from bmdp.paper.maps import drives_figure, drives_gif, ways_figure, ways_gif
from bmdp.paper.published import CITED, published_curve, published_report
from bmdp.paper.results import Executions, Results, evaluation_of, executions_of, hull_of, truth_of
from bmdp.report.curves import (
    FIRST,
    FIRST_PUBLISHED,
    SECOND_PUBLISHED,
    Drawn,
    Style,
    asked_figure,
    leaving,
    rounds_figure,
    trade_off_figure,
)
from bmdp.report.drawing import BLACK, BLUE, COST, GREY, ORANGE, RED, SKY, new_figure, tidy
from bmdp.report.figures import Hull, hull_figure
from bmdp.report.section import Animation, Data, Picture, Section, Table
from bmdp.report.series import Curve, bands, budget_curve
from bmdp.report.tables import budget_table, dial_report, summary_table

T = TypeVar("T")

_HOLLOW = FIRST_PUBLISHED, SECOND_PUBLISHED

PUBLISHED = (
    f"Hollow: {CITED}; its boxes are 1.96 standard errors over 4 or 5 seeds (on the road, a number "
    "that is not known)."
)


def trade_off(name: str, drawn: Sequence[Drawn], truth: TrueFrontier | None) -> Picture:
    """Returns reward against cost."""
    frontier, error = (truth.frontier, truth.reward_error) if truth else (None, 0.0)
    figure = trade_off_figure(drawn, frontier, reward_error=error)
    notes = _boxes("Boxes", drawn)
    if truth is not None:
        notes.append(f"Optimum: the true frontier, rewards within {error:.2g}.")
    n_out = leaving(drawn, figure)
    if n_out:
        are = "box leaves" if n_out == 1 else "boxes leave"
        notes.append(f"{n_out} {are} the axes, which show all means.")
    seen = (
        f"{_costs(one.curve)}, reward from {_from_to(one.curve.reward.mean, '.3g')}."
        for one in drawn
    )
    alt = "Expected reward against expected cost. " + " ".join(seen)
    return Picture(name, "Reward against cost", " ".join(notes), alt, figure)


def asked(
    name: str,
    drawn: Sequence[Drawn],
    truth: TrueFrontier | None,
    title: str = "Asked against realised",
    words: str = "",
) -> Picture:
    """Returns the cost that was paid against the budget that was asked for."""
    ends = None
    notes = [words] if words else []
    notes.append("On the diagonal, the dial tells the truth.")
    if truth is not None:
        ends = float(truth.frontier.costs[0]), float(truth.frontier.costs[-1])
        notes.append("Optimum: what the best policy spends, which cannot spend more than it needs.")
    notes += _boxes("Bars", drawn)
    alt = "Expected cost against the budget asked for. "
    alt += " ".join(f"{_costs(one.curve)}." for one in drawn)
    return Picture(name, title, " ".join(notes), alt, asked_figure(drawn, ends))


def behaviour(results: Results, anchor: str, title: str, truth: TrueFrontier | None) -> Section:
    """Returns the dial of the policy of the first seed, its deeds, hull and rounds of exploration.

    Names of files begin with the anchor; the title is that of the dial.
    """
    drawn, dials, animations = list[Picture](), list[Data](), list[Animation]()
    for seed, executions in first_of(results.each("executions", executions_of)):
        dials.append(_dial(executions, f"{title} (seed {seed})", truth))
        if executions.env != "slot-filling":
            drawn.append(_executions(anchor, executions, seed))
        make, what = {
            "corridors": (ways_gif, "what the policy does by budget"),
            "two-way": (drives_gif, "a drive at some budgets"),
        }.get(executions.env, (None, ""))
        if make is not None and any(executions.episodes):
            animations.append(Animation(f"{anchor}-executions", what, partial(make, executions)))
    for seed, hull in first_of(results.each("hull", hull_of)):
        drawn.append(_hull(f"{anchor}-hull", hull, seed))
    drawn += _rounds(f"{anchor}-rounds", results)
    return Section(anchor, title, pictures=drawn, dials=dials, animations=animations)


@dataclass(frozen=True)
class Way:
    """A way to spend a budget."""

    label: str  # of its curve
    part: str = ""  # of the experiment that has it
    piece: str = "evaluation"
    style: Style = FIRST
    published: tuple[str, str] | None = None  # figure and series of the paper, if any
    is_compared: bool = True  # whether it is drawn with reward against cost


@dataclass(frozen=True, eq=False)
class Dials:
    """Curves, pictures and tables of ways to spend a budget, as far as they have found any."""

    truth: TrueFrontier | None
    curves: Mapping[str, Curve]
    published: Sequence[Curve]
    reports: Mapping[str, DialReport]  # by label, if the true frontier is known
    pictures: Sequence[Picture]
    tables: Sequence[Table]


def dials_of(
    results: Results,
    anchor: str,
    ways: Mapping[str, Way],
    beside: Sequence[Drawn] = (),
    others: Sequence[Drawn] = (),
) -> Dials:
    """Returns what ways to spend a budget earn and pay, against the optimum and the paper.

    Names of files begin with the anchor, and end with those of the ways. Curves `beside` are drawn
    with reward against cost alone, `others` there if anything of ours is.
    """
    truth = results.common("truth", truth_of)
    found = {
        name: list(results.each(way.piece, evaluation_of, way.part).values())
        for name, way in ways.items()
    }
    found = {name: some for name, some in found.items() if some}
    curves = {name: budget_curve(ways[name].label, some) for name, some in found.items()}
    reports = {
        ways[name].label: dial_report(some, truth.frontier) for name, some in found.items() if truth
    }
    paper = {name: published_curve(*way.published) for name, way in ways.items() if way.published}
    hollow = [Drawn(curve, style) for curve, style in zip(paper.values(), _HOLLOW, strict=False)]
    drawn = {name: Drawn(curve, ways[name].style) for name, curve in curves.items()}
    compared = [*(one for name, one in drawn.items() if ways[name].is_compared), *beside]
    pictures, tables = [], []
    if compared:
        pictures.append(trade_off(f"{anchor}-trade-off", [*compared, *others, *hollow], truth))
    if drawn:
        pictures.append(asked(f"{anchor}-asked", [*drawn.values(), *hollow], truth))
    if truth is not None and reports:
        published = {
            f"{ways[name].label}, published": published_report(curve, truth.frontier)
            for name, curve in paper.items()
        }
        tables.append(summary_table(f"{anchor}-summary", reports | published))
    for name, curve in curves.items():
        report, title = reports.get(curve.label), f"Budgets, {curve.label}"
        tables.append(budget_table(f"{anchor}-{name}", title, curve, report, paper.get(name)))
    return Dials(truth, curves, list(paper.values()), reports, pictures, tables)


def analyse(results: Results, anchor: str) -> Section:
    """Returns what the main part of any experiment found, by pieces of well-known names."""
    dials = dials_of(results, anchor, {"budgets": Way("policy")})
    shown = behaviour(results, anchor, "The policy", dials.truth)
    curves = list(dials.curves.values())
    return Section(
        anchor,
        "",
        answer=" ".join(f"At all budgets: {ends_of(curve)}." for curve in curves),
        facts=facts_of(curves),
        pictures=[*dials.pictures, *shown.pictures],
        tables=dials.tables,
        dials=shown.dials,
        animations=shown.animations,
    )


def multiplier(
    name: str, curve: Curve, largest: FloatArray, published: Curve, words: str
) -> Picture:
    """Returns the cost of each price, and the least price that keeps a budget by two rules.

    The budget is halfway between the least and the largest mean cost; `words` say of which kind the
    largest deviation of each price is.

    Paper: the figure of the Lagrangian appendix.
    """
    mean = curve.cost.mean
    budget = round(float(mean.min() + mean.max()) / 2, 2)
    chosen = {
        "avg": least_price(curve.settings, mean, budget),
        "max": least_price(curve.settings, largest, budget),
    }
    told = ", ".join(
        f"no price keeps it ({rule})" if price is None else f"λ*{rule} = {price:g}"
        for rule, price in chosen.items()
    )
    caption = (
        f"Mean cost of the policy of each price, over {curve.n_seeds} seeds, and its largest "
        f"deviation: {words}. Two rules choose the least price that keeps budget {budget:g}, on "
        f"average or at the largest deviation: {told}. Paper: the figure of the Lagrangian "
        "appendix. Hollow: published means."
    )
    alt = (
        f"Cost falls from {mean[0]:.3f} at price {curve.settings[0]:g} to {mean[-1]:.3f} at "
        f"price {curve.settings[-1]:g}; {told}."
    )
    figure = _multiplier_figure(curve, largest, published, budget, chosen)
    return Picture(name, "Calibration of the multiplier", caption, alt, figure)


def least_price(prices: FloatArray, costs: FloatArray, budget: float) -> float | None:
    """Returns the least price that costs no more than a budget."""
    fits = np.flatnonzero(costs <= budget)
    return float(prices[fits[0]]) if len(fits) else None


def _multiplier_figure(
    curve: Curve,
    largest: FloatArray,
    published: Curve,
    budget: float,
    chosen: Mapping[str, float | None],
) -> Figure:
    figure = new_figure(height=4.8)
    axes = figure.subplots()
    tidy(axes)
    axes.set(xlabel="price of a unit of cost (lambda)", ylabel=COST)
    for i, costs in enumerate(curve.cost_by_seed if curve.n_seeds > 1 else ()):
        label = "each seed" if i == 0 else "_"
        axes.plot(curve.settings, costs, color=SKY, linewidth=0.8, alpha=0.7, label=label)
    axes.plot(curve.settings, curve.cost.mean, "o-", color=BLUE, label="mean")
    axes.plot(curve.settings, largest, "^--", color=RED, label="largest deviation")
    hollow: dict[str, Any] = {"markerfacecolor": "white", "label": "mean, published"}
    axes.plot(published.settings, published.cost.mean, "v:", color=ORANGE, **hollow)
    axes.axhline(budget, color=BLACK, linestyle="--", linewidth=1, label=f"budget {budget:g}")
    for (rule, price), colour, height in zip(chosen.items(), (BLUE, RED), (1.0, 0.92), strict=True):
        if price is not None:
            axes.axvline(price, color=colour, linewidth=1, alpha=0.8)
            axes.annotate(
                f"$\\lambda^*_{{\\mathrm{{{rule}}}}}$ = {price:g}",
                (price, height),
                xycoords=("data", "axes fraction"),
                xytext=(4, -12),
                textcoords="offset points",
                color=colour,
            )
    axes.axhline(0, color=GREY, linewidth=0.6)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return figure


def first_of(found: Mapping[int, T]) -> list[tuple[int, T]]:
    """Returns the least seed that has something, with that; nothing if none has."""
    return sorted(found.items(), key=lambda pair: pair[0])[:1]


def ends_of(curve: Curve) -> str:
    """Returns from where to where a curve goes, in words."""
    cost, reward = _from_to(curve.cost.mean, ".3f"), _from_to(curve.reward.mean, ".3g")
    return f"costs from {cost}, rewards from {reward}"


def kept(name: str, report: DialReport) -> str:
    """Returns the score and worst overshoot of a dial, in a sentence."""
    return (
        f"{name} earns {report.mean_score:.3f} of the optimum on average, and exceeds a budget by "
        f"{max(report.worst_overshoot, 0.0):.3f} at worst."
    )


def facts_of(curves: Sequence[Curve], *setting: str) -> dict[str, str]:
    """Returns the setting, of parts that are not empty, and the meaning of curves' bands."""
    each = dict.fromkeys(f"{curve.label}: {bands(curve)}" for curve in curves)
    return {"Setting": "; ".join(filter(None, setting)), "Bands and boxes": "; ".join(each)}


def episodes_explored(name: str, training: Data | None) -> str:
    """Returns the number of episodes explored by settings of training, in words.

    >>> episodes_explored("BFTQ", {"exploration": {"rounds": 10, "episodes": 500}})
    'BFTQ: 5,000 episodes in 10 rounds'
    """
    how = (training or {}).get("exploration") or {}
    rounds, episodes = how.get("rounds"), how.get("episodes")
    if not isinstance(rounds, int) or not isinstance(episodes, int):
        return ""
    return f"{name}: {rounds * episodes:,} episodes in {rounds} rounds"


def episodes_played(settings: Data) -> str:
    """Returns the number of test episodes by settings, in words."""
    how = settings.get("testing") or {}
    budgets, episodes = how.get("budgets"), how.get("n_episodes")
    if not isinstance(budgets, list) or not isinstance(episodes, int):
        return ""
    return f"{episodes:,} test episodes at each of {len(budgets)} budgets"


def _executions(anchor: str, found: Executions, seed: int) -> Picture:
    what, draw = "Drives", drives_figure
    legend = "Hatched: the lane of oncoming cars. Crosses: crashes."
    if found.env == "corridors":
        what, draw = "Ways", ways_figure
        legend = "Green cells pay, red ones pay and cost; numbers are rewards."
    caption = (
        f"{what} of the policy of seed {seed}: {max(map(len, found.episodes))} episodes at each "
        "budget, with the same chances at all budgets. Costs and rewards are means over the test "
        f"episodes. {legend}"
    )
    told = [
        f"budget {b:.3g} costs {c:.3f} and earns {r:.3g}"
        for b, c, r in zip(found.budgets, found.cost, found.reward, strict=True)
    ]
    alt = f"{what} by budget: {told[0]}; {told[-1]}."
    return Picture(f"{anchor}-{what.lower()}", f"{what} by budget", caption, alt, draw(found))


def _hull(name: str, found: Hull, seed: int) -> Picture:
    state = ", ".join(f"{x:g}" for x in found.state[:4]) + (", …" if len(found.state) > 4 else "")
    caption = (
        f"What the policy of seed {seed} expects at the first state ({state}): each point is an "
        "action with a budget that it hands on, the larger the more it hands on. Line: the "
        "frontier, by the policy's own rule, which may leave points out. Star: the mixture at "
        f"budget {found.budget:g}, of the two ends of the red line. Paper: the picture of the "
        "hull policy."
    )
    alt = (
        f"{len(found.costs)} points of {len(found.action_names)} actions in the plane of cost and "
        f"reward, a frontier of {len(found.vertex_costs)} vertices above them, and a mixture that "
        f"costs {found.mixture.cost:.3g} and earns {found.mixture.reward:.3g}."
    )
    return Picture(name, "The hull at a state", caption, alt, hull_figure(found))


def _rounds(name: str, results: Results) -> list[Picture]:
    by_seed = {
        seed: [record for record in records if record.get("kind") == "collection"]
        for seed, records in results.records().items()
    }
    rewards, costs = (
        {
            seed: np.array([np.nan if r.get(what) is None else r[what] for r in found], float)
            for seed, found in by_seed.items()
            if found
        }
        for what in ("reward", "cost")
    )
    if not rewards:
        return []
    caption = (
        "Episodes of exploration, which begin at random budgets; sums over an episode, not "
        f"discounted. Thin lines: {len(rewards)} seeds. Dots: their mean."
    )
    first, last = (np.mean([found[i] for found in rewards.values()]) for i in (0, -1))
    alt = f"Mean reward of an episode by round, from {first:.3g} to {last:.3g}, and mean cost."
    return [Picture(name, "Exploration by round", caption, alt, rounds_figure(rewards, costs))]


def _dial(found: Executions, title: str, truth: TrueFrontier | None) -> Data:
    data: dict[str, Any] = {**found.piece, "title": title}
    if truth is not None:
        frontier = truth.frontier
        data["truth"] = {"costs": frontier.costs.tolist(), "rewards": frontier.rewards.tolist()}
    return data


def _boxes(what: str, drawn: Sequence[Drawn]) -> list[str]:
    """The meaning of boxes or bars, a sentence for each kind of them."""
    ours = [one.curve for one in drawn if one.curve.over != "published"]
    notes = [f"{what}: {kind}." for kind in dict.fromkeys(map(bands, ours))]
    return notes if len(ours) == len(drawn) else [*notes, PUBLISHED]


def _costs(curve: Curve) -> str:
    return f"{curve.label}: cost from {_from_to(curve.cost.mean, '.3f')}"


def _from_to(values: FloatArray, form: str) -> str:
    return f"{values.min():{form}} to {values.max():{form}}"
