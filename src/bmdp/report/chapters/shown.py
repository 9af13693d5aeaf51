"""Drawings that several experiments have, with the words that go with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.evaluation import DialReport, Evaluation
from bmdp.evaluation.statistics import Interval
from bmdp.report.curves import Drawn, asked_figure, leaving, rounds_figure, trade_off_figure
from bmdp.report.drawing import Drawing
from bmdp.report.figures import hull_figure
from bmdp.report.maps import drives_figure, ways_figure
from bmdp.report.pieces import Executions, Hull, Piece, Truth
from bmdp.report.published import CITED
from bmdp.report.reading import Results
from bmdp.report.series import Curve, bands

PUBLISHED = f"Hollow: {CITED}; its boxes are 1.96 standard errors over 4 or 5 seeds."


def trade_off(name: str, drawn: Sequence[Drawn], truth: Truth | None) -> Drawing:
    """Returns reward against cost."""
    frontier = truth.frontier if truth else None
    figure = trade_off_figure(drawn, frontier, reward_error=truth.reward_error if truth else 0.0)
    notes = [*_boxes("Boxes", drawn)]
    if truth is not None:
        notes.append(f"Optimum: the true frontier, rewards within {truth.reward_error:.2g}.")
    n_out = leaving(drawn, figure)
    if n_out:
        are = "box leaves" if n_out == 1 else "boxes leave"
        notes.append(f"{n_out} {are} the axes, which show all means.")
    seen = [_seen(one.curve, "cost") + _earned(one.curve) for one in drawn]
    alt = "Expected reward against expected cost. " + " ".join(seen)
    return Drawing(name, "Reward against cost", " ".join(notes), alt, figure)


def asked(name: str, drawn: Sequence[Drawn], truth: Truth | None) -> Drawing:
    """Returns the cost that was paid against the budget that was asked for."""
    ends = None
    notes = ["On the diagonal, the dial tells the truth."]
    if truth is not None:
        ends = float(truth.frontier.costs[0]), float(truth.frontier.costs[-1])
        notes.append("Optimum: what the best policy spends, which cannot spend more than it needs.")
    notes += _boxes("Bars", drawn)
    alt = "Expected cost against the budget asked for. "
    alt += " ".join(_seen(one.curve, "cost") + "." for one in drawn)
    return Drawing(name, "Asked against realised", " ".join(notes), alt, asked_figure(drawn, ends))


def hull(name: str, found: Hull, seed: int) -> Drawing:
    """Returns the points of the first state, and the mixture at a budget."""
    state = ", ".join(f"{x:g}" for x in found.state[:4]) + (", …" if len(found.state) > 4 else "")
    mixture = found.mixture
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
        f"costs {mixture.cost:.3g} and earns {mixture.reward:.3g}."
    )
    return Drawing(name, "The hull at a state", caption, alt, hull_figure(found))


def executions(name: str, found: Executions, seed: int) -> Drawing | None:
    """Returns what a policy does at some budgets, if it can be drawn on a map."""
    if found.env == "slot-filling":
        return None
    is_map = found.env == "corridors"
    n = max(map(len, found.episodes))
    what = "Ways" if is_map else "Drives"
    caption = (
        f"{what} of the policy of seed {seed}: {n} episodes at each budget, with the same chances "
        "at all budgets. Costs and rewards are means over the test episodes. "
    )
    caption += (
        "Green cells pay, red ones pay and cost; numbers are rewards."
        if is_map
        else "Hatched: the lane of oncoming cars. Crosses: crashes."
    )
    told = [
        f"budget {b:.3g} costs {c:.3f} and earns {r:.3g}"
        for b, c, r in zip(found.budgets, found.cost, found.reward, strict=True)
    ]
    alt = f"{what} by budget: {told[0]}; {told[-1]}."
    figure = ways_figure(found) if is_map else drives_figure(found)
    return Drawing(name, f"{what} by budget", caption, alt, figure)


def rounds(name: str, results: Results) -> Drawing | None:
    """Returns what exploration earned and paid by the records of training, if there are any."""
    rewards: dict[int, FloatArray] = {}
    costs: dict[int, FloatArray] = {}
    for seed, records in results.records().items():
        found = [r for r in records if r.get("kind") == "collection"]
        if found:
            rewards[seed] = _numbers(found, "reward")
            costs[seed] = _numbers(found, "cost")
    if not rewards:
        return None
    caption = (
        "Episodes of exploration, which begin at random budgets; sums over an episode, not "
        f"discounted. Thin lines: {len(rewards)} seeds. Dots: their mean."
    )
    first, last = (np.mean([found[i] for found in rewards.values()]) for i in (0, -1))
    alt = f"Mean reward of an episode by round, from {first:.3g} to {last:.3g}, and mean cost."
    return Drawing(name, "Exploration by round", caption, alt, rounds_figure(rewards, costs))


def dial(found: Executions, title: str, truth: Truth | None) -> Piece:
    """Returns what a policy does at each budget as a dial of the page."""
    data: dict[str, Any] = {**found.piece, "title": title}
    if truth is not None:
        frontier = truth.frontier
        data["truth"] = {"costs": frontier.costs.tolist(), "rewards": frontier.rewards.tolist()}
    return data


def first_seed(found: Mapping[int, Any]) -> int | None:
    """Returns the least seed that has something."""
    return min(found) if found else None


def as_evaluation(curve: Curve) -> Evaluation:
    """Returns a curve as an evaluation whose means count, so that its dial can be measured."""
    n = len(curve.settings)
    names = [f"{kind}{what}" for kind in ("", "discounted_") for what in ("cost", "reward")]
    intervals: dict[str, Interval] = {
        name: curve.cost if name.endswith("cost") else curve.reward for name in names
    }
    return Evaluation(
        budgets=curve.settings,
        **{
            f"{name}_{end}": values
            for name, interval in intervals.items()
            for end, values in interval._asdict().items()
        },
        cost_quantiles=np.full((n, 3), np.nan),
        cost_cvar=np.full(n, np.nan),
        episode_length_mean=np.full(n, np.nan),
        infeasible_share=np.full(n, np.nan),
        n_episodes=1000,
        confidence=0.95,
        seed=0,
        env="",
        gamma=1.0,
    )


def ends_of(curve: Curve) -> str:
    """Returns from where to where a curve goes, in words."""
    cost, reward = _from_to(curve.cost.mean, ".3f"), _from_to(curve.reward.mean, ".3g")
    return f"costs from {cost}, rewards from {reward}"


def kept(name: str, report: DialReport) -> str:
    """Returns how well a dial does, in a sentence."""
    return (
        f"{name} earns {report.mean_score:.3f} of the optimum on average, and exceeds a budget by "
        f"{max(report.worst_overshoot, 0.0):.3f} at worst."
    )


def _boxes(what: str, drawn: Sequence[Drawn]) -> list[str]:
    """What boxes or bars mean: a sentence for each kind of them."""
    ours = [one.curve for one in drawn if one.curve.over != "published"]
    notes = [f"{what}: {kind}." for kind in dict.fromkeys(map(bands, ours))]
    if len(ours) < len(drawn):
        notes.append(PUBLISHED)
    return notes


def _seen(curve: Curve, name: str) -> str:
    mean: FloatArray = getattr(curve, name).mean
    return f"{curve.label}: cost from {mean.min():.3f} to {mean.max():.3f}"


def _earned(curve: Curve) -> str:
    return f", reward from {curve.reward.mean.min():.3g} to {curve.reward.mean.max():.3g}."


def _from_to(values: FloatArray, form: str) -> str:
    return f"{values.min():{form}} to {values.max():{form}}"


def _numbers(records: Sequence[Piece], name: str) -> FloatArray:
    return np.array([r.get(name) if r.get(name) is not None else np.nan for r in records], float)
