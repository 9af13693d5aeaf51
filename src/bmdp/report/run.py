"""The section of a training run or a policy: what each budget buys, and how that is known.

A run may be unfinished: what is there is told.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec

from bmdp.arrays import FloatArray
from bmdp.data import TransitionBatch
from bmdp.envs import ENV_IDS, known_frontier
from bmdp.frontier import Frontier
from bmdp.policies import CalibratedPolicy
from bmdp.report import dial
from bmdp.report.curves import (
    ALONE,
    FIRST,
    FOURTH,
    THIRD,
    Drawn,
    asked_figure,
    rounds_figure,
    trade_off_figure,
)
from bmdp.report.dial import Progress
from bmdp.report.figures import Learning, Shares, hull_figure, learning_figure, shares_figure
from bmdp.report.measured import Measured, Opened, measure, open_folder
from bmdp.report.section import Column, Data, Picture, Plugin, Section, Table
from bmdp.report.series import Curve
from bmdp.report.tables import dial_table

N_EPISODES = 1_000
"""Played at each budget, unless told otherwise."""

N_SHOWN = 12  # episodes at each budget that a plug-in draws

_SETTING = tuple(enumerate(("setting", "value")))
QUESTION = "What does each budget of expected cost buy, and does the policy keep to it?"
_UNITS = {"memory": " GiB"}


def run_section(  # noqa: PLR0913
    folder: str | os.PathLike[str],
    *,
    anchor: str,
    env: str | EnvSpec | None = None,
    settings: Sequence[str] = (),
    n_episodes: int = N_EPISODES,
    seed: int = 0,
    truth: Frontier | None = None,
    plugins: Sequence[Plugin] = (),
    progress: Progress | None = None,
) -> Section:
    """Returns what there is to say of a training run, or of a policy.

    Args:
        folder: of the run or the policy.
        anchor: its address in the page; names of files begin with it.
        env: to play in; that of the run, if not given.
        settings: of the environment, such as "env.height=3".
        n_episodes: played at each budget; 0 to play none.
        seed: of the episodes.
        truth: the true frontier from the start; that of `known_frontier`, if not given.
        plugins: of tasks, whose scenes are played.
        progress: called with the number of episodes played so far, and of all.

    Raises:
        StoreError: if there is no run and no policy, or it is damaged.
        ConfigError: if there is no such environment, or it does not take its settings.
    """
    opened = open_folder(Path(folder), env, settings)
    if opened.policy is None:
        found = None
    else:
        found = measure(opened, opened.policy, n_episodes, seed, progress)
        if truth is None and opened.env is not None and n_episodes:
            known, _ = known_frontier(opened.env)
            truth = None if known is None else known.frontier
    parts = [*(_dial_pictures(found, truth, anchor) if found else ()), *_learning(opened, anchor)]
    dials = [_dial(opened, found, truth, plugins, seed)] if found and found.has_budgets else []
    return Section(
        anchor=anchor,
        title=opened.title,
        question=QUESTION,
        answer=_answer(opened, found),
        facts=_facts(opened, found),
        pictures=parts,
        tables=_tables(opened, found, anchor),
        dials=dials,
        notes=[*opened.notes, *(found.notes if found else ())],
    )


def _dial(
    opened: Opened,
    found: Measured,
    truth: Frontier | None,
    plugins: Sequence[Plugin],
    seed: int,
) -> Data:
    """The data of the dial."""
    name = _env_name(opened.env)
    nothing: list[Any] = [None] * len(found.budgets)
    realised = {f"{what}{end}": nothing for what in ("cost", "reward") for end in _ENDS}
    if found.realised is not None:
        realised = {
            f"{what}{end}": dial.rounded(getattr(getattr(found.realised, what), _ENDS[end]))
            for what in ("cost", "reward")
            for end in _ENDS
        }
    data: dict[str, Any] = {
        "title": "The dial",
        "env": name,
        "gamma": 1.0 if opened.gammas is None else opened.gammas[1],
        "budgets": dial.rounded(found.budgets),
        "realised": realised,
        "baselines": [_baseline(curve, _is_far(curve, found, truth)) for curve in found.baselines],
    }
    if found.played is not None:
        data["gamma"] = found.played.evaluation.gamma
    if found.forecast is not None:
        means = {n: dial.rounded(getattr(found.forecast, n).mean) for n in ("cost", "reward")}
        data["forecast"] = {**means, "source": found.source}
    if found.status:
        data["status"] = found.status
    if found.places:
        data |= dial.view_data(found.places[0][1])
        states = [{"name": place.name, **dial.view_data(view)} for place, view in found.places]
        data |= {"states": states, "words": dial.choice_words(found.policy)}
    if found.shares is not None:
        data["actions"] = dial.shares_data(found.shares, found.told)
    if truth is not None:
        data["truth"] = {"costs": dial.rounded(truth.costs), "rewards": dial.rounded(truth.rewards)}
    scenes = next((p.scenes for p in plugins if p.env == name and p.scenes is not None), None)
    if scenes is not None and opened.env is not None and found.played is not None:
        shown = scenes(found.policy, opened.env, found.budgets.tolist(), N_SHOWN, seed)
        data |= shown or {}
    return data


_ENDS = {"": "mean", "_low": "low", "_high": "high"}


def _is_far(curve: Curve, found: Measured, truth: Frontier | None) -> bool:
    """Whether a point is so far from the policy's own that a chart with both shows neither."""
    own = [c for c in (found.realised, found.forecast) if c is not None]
    costs = [*(c.cost.mean for c in own), *([truth.costs] if truth else []), found.budgets]
    rewards = [*(c.reward.mean for c in own), *([truth.rewards] if truth else [])]
    if len(curve.settings) > 1 or not own:
        return False
    for values, at in ((costs, curve.cost.mean[0]), (rewards, curve.reward.mean[0])):
        low, high = np.concatenate(values).min(), np.concatenate(values).max()
        if not low - (high - low) <= at <= high + (high - low):
            return True
    return False


def _baseline(curve: Curve, is_far: bool) -> Data:
    data: dict[str, Any] = {"name": curve.label, "costs": dial.rounded(curve.cost.mean)}
    data["is_far"] = is_far
    data["rewards"] = dial.rounded(curve.reward.mean)
    if len(curve.settings) == 1:
        for what, end in ((w, e) for w in ("cost", "reward") for e in ("low", "high")):
            data[f"{what}_{end}"] = dial.rounded(getattr(getattr(curve, what), end))[0]
    return data


def _env_name(spec: EnvSpec | None) -> str:
    """The name of an environment in dials: the short one, if it is ours."""
    if spec is None:
        return ""
    return next((name for name, env_id in ENV_IDS.items() if env_id == spec.id), spec.id)


def _dial_pictures(found: Measured, truth: Frontier | None, prefix: str) -> Iterator[Picture]:
    """The dial for those without scripts."""
    curves = [Drawn(c, s) for c, s in ((found.realised, FIRST), (found.forecast, THIRD)) if c]
    near = [c for c in found.baselines if not _is_far(c, found, truth)]
    lines = [Drawn(c, FOURTH) if len(c.settings) > 1 else Drawn(c, ALONE, [c.label]) for c in near]
    far = [f"{c.label}, {_ends(c)}" for c in found.baselines if c not in near]
    left_out = f"Too far away to be drawn: {'; '.join(far)}." if far else ""
    boxes = "Boxes: 95 % intervals over episodes, each by itself." if found.played else ""
    told = f"Forecast: {found.source}." if found.forecast else ""
    if curves or lines:
        yield Picture(
            f"{prefix}-trade-off",
            "Reward against cost",
            _joined("Each point is a budget of the dial.", told, boxes, left_out),
            "Expected reward against expected cost. "
            + " ".join(_seen(one.curve) for one in curves),
            trade_off_figure([*curves, *lines], truth),
        )
    if curves and found.has_budgets and len(found.budgets) > 1:
        yield Picture(
            f"{prefix}-asked",
            "Cost against the budget asked for",
            _joined("On the diagonal, the dial says what is paid.", told, boxes),
            "Expected cost against the budget. " + " ".join(_seen(one.curve) for one in curves),
            asked_figure(curves),
        )
    middle = len(found.budgets) // 2
    if found.shares is not None and len(found.shares.names):
        yield Picture(
            f"{prefix}-actions",
            "What the policy does",
            _joined(found.told, "Bars by step are shares of episodes, which end one by one.")
            if found.played
            else found.told,
            _deeds(found.shares, middle),
            shares_figure(found.shares, middle),
        )
    if found.places:
        place = found.places[0][0]
        budget = float(found.budgets[middle])
        hull = dial.hull_of(found.policy, place, budget, found.names)
        if hull is not None:
            yield Picture(
                f"{prefix}-state",
                "What it expects at a state",
                f"{place.name[0].upper()}{place.name[1:]}. Each point is an action together with "
                "the budget that is held after it, the larger the more is left. The line is the "
                f"frontier. At budget {budget:.3g} the policy mixes the ends of the red part; the "
                "star is what that mixture costs and earns.",
                f"{len(hull.costs)} points of {len(found.names)} actions and a frontier of "
                f"{len(hull.vertex_costs)} vertices; the mixture costs {hull.mixture.cost:.3g} and "
                f"earns {hull.mixture.reward:.3g}.",
                hull_figure(hull),
            )


def _learning(opened: Opened, prefix: str) -> Iterator[Picture]:
    """Curves of learning and of exploration."""
    found = [r for r in opened.records if r.get("kind") == "iteration"]
    if found:
        rounds = [r.get("round", 0) for r in found]
        starts = [i for i, number in enumerate(rounds) if i == 0 or number != rounds[i - 1]]
        promised = {
            what: np.stack([_column(found, f"start_{what}_{end}") for end in ("low", "high")], 1)
            for what in ("reward", "cost")
        }
        error, loss, change = (_column(found, name) for name in ("delta", "last_loss", "change"))
        learning = Learning(starts, error, loss, change, promised["reward"], promised["cost"])
        n = f"{len(found)} iterations" if len(found) > 1 else "1 iteration"
        lines = " Grey lines: a new round begins." if len(starts) > 1 else ""
        last = {what: values[-1, 1] for what, values in promised.items()}
        yield Picture(
            f"{prefix}-learning",
            "Learning",
            f"{n} of fitted Q-iteration. Promised: what the models expect of the least and of the "
            f"largest budget at first states.{lines}",
            f"{n}; at the end the largest budget promises reward {last['reward']:.3g} at cost "
            f"{last['cost']:.3g}.",
            learning_figure(learning),
        )
    played = [r for r in opened.records if r.get("kind") == "collection"]
    if len(played) > 1:
        rewards, costs = (_column(played, name) for name in ("reward", "cost"))
        yield Picture(
            f"{prefix}-rounds",
            "Exploration by round",
            "Mean of the episodes of each round, which begin at random budgets; sums over an "
            "episode, not discounted.",
            f"Mean reward of an episode by round, from {rewards[0]:.3g} to {rewards[-1]:.3g}, and "
            f"mean cost, from {costs[0]:.3g} to {costs[-1]:.3g}.",
            rounds_figure({0: rewards}, {0: costs}),
        )


def _tables(opened: Opened, found: Measured | None, prefix: str) -> list[Table]:
    tables = []
    if found is not None and (found.realised or found.forecast):
        status = found.status if found.has_budgets else []
        tables.append(
            dial_table(f"{prefix}-budgets", found.budgets, status, found.realised, found.forecast)
        )
    if isinstance(opened.policy, CalibratedPolicy):
        tables.append(_members(opened.policy, prefix))
    if opened.batch is not None:
        tables.append(_data_table(opened.batch, prefix))
    if settings := list(_flat(opened.header.get("spec") or {})):
        columns = [Column(name, [row[i] for row in settings], "") for i, name in _SETTING]
        tables.append(Table(f"{prefix}-settings", "All settings", columns))
    if opened.records:
        keys = list(dict.fromkeys(key for record in opened.records for key in record))
        columns = [Column(key, [_cell(r.get(key)) for r in opened.records], "") for key in keys]
        tables.append(Table(f"{prefix}-records", "Records of learning", columns))
    return tables


def _members(policy: CalibratedPolicy, prefix: str) -> Table:
    held, members = policy.certificate, policy.portfolio
    return Table(
        f"{prefix}-calibration",
        "Calibration: what each member costs",
        [
            Column("own budget", members.budgets.tolist(), ".4g", "own_budget"),
            Column("mean cost", held.cost_mean.tolist(), ".4g", "cost_mean"),
            Column("cost at most", held.cost_high.tolist(), ".4g", "cost_high"),
            Column("mean reward", held.reward_mean.tolist(), ".4g", "reward_mean"),
        ],
        " ".join(str(held).split("\n")),
    )


def _data_table(batch: TransitionBatch, prefix: str) -> Table:
    lines = [line.split("  ", 1) for line in str(batch.summary()).splitlines()]
    named = [(name.strip(), text.strip()) for name, text in lines]
    return Table(
        f"{prefix}-data",
        "The data",
        [
            Column("quantity", [n for n, _ in named], "s"),
            Column("value", [t for _, t in named], "s"),
        ],
        "Rewards and costs are of a step; those of an episode are not discounted.",
    )


def _facts(opened: Opened, found: Measured | None) -> dict[str, str]:
    header, env = opened.header, opened.env
    data, learner = header.get("data") or {}, (header.get("spec") or {}).get("learner") or {}
    files = data.get("files") or ()
    played = found.played.evaluation if found and found.played else None
    seconds = sum(float(r.get("seconds") or 0) for r in opened.records)
    facts = {
        "Environment": f"{env.id} {_listed(env.kwargs)}".strip() if env else "",
        "Learned from": ", ".join(Path(str(name)).name for name in files),
        "Learner": str(learner.get("kind", "")).removesuffix("Config"),
        "Policy": type(opened.policy).__name__ if opened.policy else "",
        "Budgets are": "expected cost from now on" + _discounted(opened.gammas),
        "Measured": f"{played.n_episodes:,} episodes at each budget, seed {played.seed}; intervals "
        "have 95 %, each by itself"
        if played
        else "",
        "Promise": " ".join(str(opened.policy.certificate).split("\n"))
        if isinstance(opened.policy, CalibratedPolicy)
        else "",
        "Seed": str(header.get("seed", "")),
        "Command": str(header.get("command", "")),
        "Began": str(header.get("began", "")),
        "Time": _duration(seconds) if seconds else "",
        "Device": f"{header['device']}, threads: {header.get('threads')}"
        if "device" in header
        else "",
        "Machine": _listed(header.get("machine")),
        "Versions": _listed(header.get("versions")),
        "Folder": str(opened.folder),
        **dict(_flat(header.get("spec") or {})),
    }
    return {name: text for name, text in facts.items() if text}


def _answer(opened: Opened, found: Measured | None) -> str:
    if found is None:
        done = [r for r in opened.records if r.get("kind") == "iteration"]
        at = f" Learning has reached iteration {len(done)}." if done else ""
        return f"There is no policy yet.{at}"
    if found.realised is None:
        if found.forecast is None:
            return "Nothing was played, and the policy forecasts nothing."
        return f"Forecast, {found.source}: {_ends(found.forecast)}."
    curve, n = found.realised, len(found.budgets)
    assert found.played is not None
    episodes = f"{found.played.evaluation.n_episodes:,} episodes"
    if not found.has_budgets:
        return f"Played for {episodes}: {_ends(curve)}."
    can = np.array([word != "INFEASIBLE" for word in found.status])
    over = curve.cost.mean - found.budgets
    broken = can & (curve.cost.low > found.budgets + 1e-12)
    told = [f"Played for {episodes} at each of {n} budgets: {_ends(curve)}."]
    if broken.any():
        worst = int(np.where(broken, over, -np.inf).argmax())
        were = "budget was" if broken.sum() == 1 else "budgets were"
        told.append(
            f"{broken.sum()} of {n} {were} exceeded (95 % intervals), at worst by "
            f"{over[worst]:.3g} at budget {found.budgets[worst]:.3g}."
        )
    elif can.any():
        told.append("No budget that it said it can keep was exceeded (95 % intervals).")
    if not can.all():
        are = "budget is" if (~can).sum() == 1 else "budgets are"
        told.append(
            f"{(~can).sum()} {are} below what the policy can promise: there it plays what is "
            "cheapest."
        )
    return " ".join(told)


def _ends(curve: Curve) -> str:
    cost, reward = curve.cost.mean, curve.reward.mean
    if len(cost) == 1:
        return f"reward {reward[0]:.3g} at cost {cost[0]:.3g}"
    return f"reward {reward[0]:.3g} at cost {cost[0]:.3g}, up to {reward[-1]:.3g} at {cost[-1]:.3g}"


def _seen(curve: Curve) -> str:
    cost, reward = curve.cost.mean, curve.reward.mean
    return (
        f"{curve.label}: cost from {cost.min():.3g} to {cost.max():.3g}, reward from "
        f"{reward.min():.3g} to {reward.max():.3g}."
    )


def _deeds(shares: Shares, chosen: int) -> str:
    told = (f"{n} {s:.0%}" for n, s in zip(shares.names, shares.by_budget[chosen], strict=True))
    return f"Shares of actions at budget {shares.budgets[chosen]:.3g}: {', '.join(told)}."


def _discounted(gammas: tuple[float, float] | None) -> str:
    return f", discounted by {gammas[1]:g} a step" if gammas and gammas[1] < 1 else ""


def _column(records: Sequence[Data], name: str) -> FloatArray:
    values = [r.get(name) for r in records]
    return np.array([v if isinstance(v, int | float) else math.nan for v in values], np.float64)


def _cell(value: Any) -> float | int | str | None:
    return value if isinstance(value, int | float | str | None) else json.dumps(value)


def _flat(settings: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Settings inside settings, by names with points in them.

    >>> list(_flat({"a": {"b": 1, "c": [1, 2]}}))
    [('a.b', '1'), ('a.c', '1, 2')]
    """
    if isinstance(settings, Mapping):
        for name, value in settings.items():
            yield from _flat(value, f"{prefix}.{name}" if prefix else str(name))
    elif isinstance(settings, list):
        yield prefix, ", ".join(map(str, settings))
    else:
        yield prefix, str(settings)


def _listed(values: Any) -> str:
    """Values by name in one line.

    >>> _listed({"cores": 2, "memory": 15.6, "gpu": None})
    'cores 2, memory 15.6 GiB'
    """
    there = values.items() if isinstance(values, Mapping) else ()
    return ", ".join(f"{n} {v}{_UNITS.get(n, '')}" for n, v in there if v is not None)


def _duration(seconds: float) -> str:
    """A time in words.

    >>> _duration(42.0), _duration(150.0), _duration(9000.0)
    ('42 s', '2.5 min', '2.5 h')
    """
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} s"


def _joined(*texts: str) -> str:
    return " ".join(text.strip() for text in texts if text.strip())
