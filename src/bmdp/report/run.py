"""The section of a training run or a policy: what each budget buys, and how that is known.

A run may be unfinished: what is there is told.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec

from bmdp.envs import ENV_IDS, known_frontier
from bmdp.frontier import Frontier
from bmdp.policies import CalibratedPolicy
from bmdp.policies.limited import episode_limit_of, without_limit
from bmdp.policies.portfolio import Certificate, LogCertificate
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
from bmdp.report.figures import column, hull_figure, learning_figure, shares_figure
from bmdp.report.measured import Measured, measure
from bmdp.report.opened import Opened, open_folder
from bmdp.report.section import Column, Data, Picture, Plugin, Section, Table
from bmdp.report.series import Curve, bare_curve
from bmdp.report.tables import (
    candidates_table,
    dial_table,
    duration,
    flat,
    forecast_table,
    listed,
)

N_EPISODES = 1_000
"""Played at each budget, unless told otherwise."""

N_SHOWN = 12  # episodes at each budget that a plug-in draws
QUESTION = "What does each budget of expected cost buy, and does the policy keep to it?"


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
    progress: Callable[..., None] | None = None,
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
        progress: called with the number of episodes played so far, and of all; and, once they are
            played, with `text` for what goes on.

    Raises:
        StoreError: if there is no run and no policy, or it is damaged.
        ConfigError: if there is no such environment, or it does not take its settings.
    """
    opened = open_folder(Path(folder), env, settings)
    found, shown = None, dict[str, Any]()
    if opened.policy is not None:
        found = measure(opened, opened.policy, n_episodes, seed, progress)
    if found and found.played and opened.env is not None:
        n_all = n_episodes * (len(found.budgets) + 1)
        tell = progress or (lambda *_, **__: None)
        if truth is None:
            tell(n_all, n_all, text="finding the optimum")
            known, _ = known_frontier(opened.env)
            truth = None if known is None else known.frontier
        tell(n_all, n_all, text="drawing")
        own = (p.scenes for p in plugins if p.scenes and p.env == _env_name(opened.env))
        if found.has_budgets and (scenes := next(own, None)) is not None:
            budgets = found.budgets.tolist()
            shown = dict(scenes(found.policy, opened.env, budgets, N_SHOWN, seed) or {})
    return Section(
        anchor=anchor,
        title=opened.title,
        question=QUESTION,
        answer=_answer(opened, found),
        facts=_facts(opened, found),
        pictures=[
            *(_dial_pictures(found, truth, anchor) if found else ()),
            *_learning(opened, anchor),
        ],
        tables=list(_tables(opened, found, anchor)),
        dials=[_dial(opened, found, truth, shown)] if found and found.has_budgets else [],
        notes=[*opened.notes, *(found.notes if found else ())],
    )


def _dial(opened: Opened, found: Measured, truth: Frontier | None, shown: Data) -> Data:
    gamma = 1.0 if opened.gammas is None else opened.gammas[1]
    is_own = opened.gammas is not None and opened.gammas[0] != opened.gammas[1]
    n = len(found.budgets)
    data: dict[str, Any] = {
        "title": "The dial",
        "env": _env_name(opened.env),
        "gamma": gamma if is_own or not found.played else found.played.evaluation.gamma,
        "budgets": dial.rounded(found.budgets),
        "realised": _columns(found.realised or bare_curve("", *[np.full(n, np.nan)] * 3)),
        "baselines": [_baseline(curve, _is_far(curve, found, truth)) for curve in found.baselines],
    }
    if found.forecast is not None:
        columns = _columns(found.forecast)
        data["forecast"] = {name: columns[name] for name in ("cost", "cost_low", "reward")}
        data["forecast"]["source"] = found.source
    if found.status:
        data["status"] = found.status
    if found.places:
        states = [{"name": place.name, **dial.view_data(view)} for place, view in found.places]
        data |= dial.view_data(found.places[0][1])
        data |= {"states": states, "words": dial.choice_words(found.policy)}
    if found.shares is not None:
        data["actions"] = dial.shares_data(found.shares, found.told)
    if truth is not None:
        data["truth"] = {"costs": dial.rounded(truth.costs), "rewards": dial.rounded(truth.rewards)}
    return data | {name: shown[name] for name in ("layout", "episodes") if name in shown}


def _columns(curve: Curve) -> dict[str, list[Any]]:
    """Means and ends of intervals, as dials have them."""
    both = {"cost": curve.cost, "reward": curve.reward}
    ends = ("", "_low", "_high")
    return {n + e: dial.rounded(v) for n, of in both.items() for e, v in zip(ends, of, strict=True)}


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
    columns = _columns(curve)
    data: dict[str, Any] = {"name": curve.label, "is_far": is_far}
    data |= {"costs": columns.pop("cost"), "rewards": columns.pop("reward")}
    if len(curve.settings) == 1:
        data |= {name: values[0] for name, values in columns.items()}
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
    left_out = [f"Too far away to be drawn: {'; '.join(far)}."] if far else []
    told = [f"Forecast: {found.source}."] if found.forecast else []
    has_ends = any(np.isfinite(one.curve.cost.low).any() for one in curves)
    ends = ["95 % intervals, each by itself."] if has_ends else []
    boxes, bars = ([f"{what}: {text}" for text in ends] for what in ("Boxes", "Bars"))
    seen = " ".join(_seen(one.curve) for one in curves)
    if curves or lines:
        yield Picture(
            f"{prefix}-trade-off",
            "Reward against cost",
            " ".join(["Each point is a budget of the dial.", *told, *boxes, *left_out]),
            f"Expected reward against expected cost. {seen}",
            trade_off_figure([*curves, *lines], truth),
        )
    if curves and found.has_budgets and len(found.budgets) > 1:
        yield Picture(
            f"{prefix}-asked",
            "Cost against the budget asked for",
            " ".join(["On the diagonal, the dial says what is paid.", *told, *bars]),
            f"Expected cost against the budget. {seen}",
            asked_figure(curves),
        )
    middle = len(found.budgets) // 2
    if found.shares is not None and len(found.shares.names):
        shares = zip(found.shares.names, found.shares.by_budget[middle], strict=True)
        deeds = [f"{name} {share:.0%}" for name, share in shares]
        ending = " Bars by step are shares of episodes, which end one by one."
        yield Picture(
            f"{prefix}-actions",
            "What the policy does",
            found.told + ending * bool(found.played),
            f"Shares of actions at budget {found.budgets[middle]:.3g}: {', '.join(deeds)}.",
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
        n = f"{len(found)} iterations" if len(found) > 1 else "1 iteration"
        several = len({r.get("round", 0) for r in found}) > 1
        reward, cost = (column(found, f"start_{what}_high")[-1] for what in ("reward", "cost"))
        yield Picture(
            f"{prefix}-learning",
            "Learning",
            f"{n} of fitted Q-iteration. Promised: what the models expect of the least and of the "
            f"largest budget at first states.{' Grey lines: a new round begins.' * several}",
            f"{n}; at the end the largest budget promises reward {reward:.3g} at cost {cost:.3g}.",
            learning_figure(found),
        )
    played = [r for r in opened.records if r.get("kind") == "collection"]
    if len(played) > 1:
        rewards, costs = (column(played, name) for name in ("reward", "cost"))
        begin = "which begin at random budgets"
        if opened.header.get("kind") == "fit":
            begin = "the first at random, the others at random prices of cost"
        yield Picture(
            f"{prefix}-rounds",
            "Exploration by round",
            f"Mean of the episodes of each round, {begin}; sums over an episode, not discounted.",
            f"Mean reward of an episode by round, from {rewards[0]:.3g} to {rewards[-1]:.3g}, and "
            f"mean cost, from {costs[0]:.3g} to {costs[-1]:.3g}.",
            rounds_figure({0: rewards}, {0: costs}),
        )


def _tables(opened: Opened, found: Measured | None, prefix: str) -> Iterator[Table]:
    if found is not None and (found.realised or found.forecast):
        status = found.status if found.has_budgets else []
        name = f"{prefix}-budgets"
        yield dial_table(name, found.budgets, status, found.realised, found.forecast)
    if opened.fitted:
        yield candidates_table(f"{prefix}-candidates", opened.fitted.get("candidates") or ())
        yield forecast_table(f"{prefix}-forecast", opened.fitted.get("forecast") or {})
    if isinstance(calibrated := without_limit(opened.policy), CalibratedPolicy):
        held, members = calibrated.certificate, calibrated.portfolio
        columns = [
            Column("own budget", members.budgets.tolist(), ".4g", "own_budget"),
            Column("mean cost", held.cost_mean.tolist(), ".4g", "cost_mean"),
            Column("cost at most", held.cost_high.tolist(), ".4g", "cost_high"),
            Column("mean reward", held.reward_mean.tolist(), ".4g", "reward_mean"),
        ]
        if isinstance(held, LogCertificate):
            needed = held.needed_episodes.tolist()
            columns += [
                Column("effective episodes", held.effective_episodes.tolist(), ",.0f", "effective"),
                Column("unknown decisions", held.outside_share.tolist(), ".1%", "outside"),
                Column("episodes for a close bound", needed, ",.0f", "needed"),
            ]
        title = "Calibration: what each member costs"
        yield Table(f"{prefix}-calibration", title, columns, _line(held))
    if opened.batch is not None:
        lines = [line.split("  ", 1) for line in str(opened.batch.summary()).splitlines()]
        columns = [
            Column(name, [line[i].strip() for line in lines], "s")
            for i, name in enumerate(("quantity", "value"))
        ]
        note = "Rewards and costs are of a step; those of an episode are not discounted."
        yield Table(f"{prefix}-data", "The data", columns, note)
    if settings := list(flat(opened.header.get("spec") or {})):
        columns = [
            Column(name, [row[i] for row in settings], "")
            for i, name in enumerate(("setting", "value"))
        ]
        yield Table(f"{prefix}-settings", "All settings", columns)
    if opened.records:
        keys = dict.fromkeys(key for record in opened.records for key in record)
        columns = [Column(key, [_cell(r.get(key)) for r in opened.records], "") for key in keys]
        yield Table(f"{prefix}-records", "Records of learning", columns)


def _facts(opened: Opened, found: Measured | None) -> dict[str, str]:
    header, env = opened.header, opened.env
    data, learner = header.get("data") or {}, (header.get("spec") or {}).get("learner") or {}
    files = data.get("files") or (header.get("source") or {}).get("files") or ()
    taken = [c["name"] for c in opened.fitted.get("candidates") or () if c.get("is_taken")]
    asked = {n: v for n, v in (header.get("asked") or {}).items() if v is not None}
    played = found.played.evaluation if found and found.played else None
    seconds = sum(float(r.get("seconds") or 0) for r in opened.records)
    facts = {
        "Environment": f"{env.id} {listed(env.kwargs)}".strip() if env else "",
        "Learned from": ", ".join(Path(str(name)).name for name in files),
        "Learner": str(learner.get("kind", "")).removesuffix("Config"),
        "Taken": ", ".join(taken),
        "Asked for": listed(asked),
        "Policy": type(opened.policy).__name__ if opened.policy else "",
        "Budgets are": _budgets_are(opened),
        "Measured": f"{played.n_episodes:,} episodes at each budget, seed {played.seed}; intervals "
        "have 95 %, each by itself"
        if played
        else "",
        "Promise": _line(held)
        if (held := getattr(opened.policy, "certificate", None)) is not None
        else "",
        "Seed": str(header.get("seed", "")),
        "Command": str(header.get("command", "")),
        "Began": str(header.get("began", "")),
        "Time": duration(seconds) if seconds else "",
        "Device": f"{header['device']}, threads: {header.get('threads')}"
        if "device" in header
        else "",
        "Machine": listed(header.get("machine")),
        "Versions": listed(header.get("versions")),
        "Folder": str(opened.folder),
        **dict(flat(header.get("spec") or {})),
    }
    return {name: text for name, text in facts.items() if text}


def _answer(opened: Opened, found: Measured | None) -> str:
    told = _found(opened, found), str(opened.fitted.get("summary", ""))
    return " ".join(filter(None, told))


def _found(opened: Opened, found: Measured | None) -> str:
    if found is None:
        done = [r for r in opened.records if r.get("kind") == "iteration"]
        at = f" Learning has reached iteration {len(done)}." if done else ""
        rounds = [r for r in opened.records if r.get("kind") == "collection"]
        if rounds and not done:
            n_episodes = sum(r.get("episodes") or 0 for r in rounds)
            at = f" Explored so far: {n_episodes:,} episodes, in rounds: {len(rounds)}."
        return f"There is no policy yet.{at}"
    n, curve = len(found.budgets), found.realised or found.forecast
    if curve is None:
        return "Nothing was played, and the policy forecasts nothing."
    if found.played is None:
        told = [f"Forecast, {found.source}: {_ends(curve)}."]
    else:
        at = f" at each of {n} budgets" if found.has_budgets else ""
        told = [f"Played for {found.played.evaluation.n_episodes:,} episodes{at}: {_ends(curve)}."]
    if not found.has_budgets:
        return told[0]
    least, sure = curve.cost.low, " (95 % intervals)"
    if not np.isfinite(least).all():
        least, sure = curve.cost.mean, ""
    can = np.array([word != "INFEASIBLE" for word in found.status or [""] * n])
    broken = can & (least > found.budgets + 1e-5 * np.abs(found.budgets).max())
    if broken.any():
        over = np.where(broken, curve.cost.mean - found.budgets, -np.inf)
        worst = int(over.argmax())
        were = "budget was" if broken.sum() == 1 else "budgets were"
        were = were if found.played else f"{were.split()[0]} would be"
        were = f"{were} exceeded{sure}"
        told.append(
            f"{broken.sum()} of {n} {were}, at worst by {over[worst]:.3g} at budget "
            f"{found.budgets[worst]:.3g}."
        )
    elif sure and can.any():
        was = "was" if found.played else "would be"
        told.append(f"No budget that it said it can keep {was} exceeded by more than chance{sure}.")
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


def _line(certificate: Certificate) -> str:
    return " ".join(str(certificate).split("\n"))


def _budgets_are(opened: Opened) -> str:
    """Quantity that budgets are about."""
    limit, gammas = episode_limit_of(opened.policy), opened.gammas
    if limit is not None:
        return f"the chance that an episode costs more than {limit:g}"
    if gammas is None or gammas[0] == gammas[1]:
        shown = f", discounted by {gammas[1]:g} a step" if gammas and gammas[1] < 1 else ""
        return f"expected cost from now on{shown}"
    costs = "not discounted" if gammas[1] == 1 else f"discounted by {gammas[1]:g} a step"
    return f"expected cost from now on, {costs}; rewards are discounted by {gammas[0]:g}"


def _cell(value: Any) -> float | int | str | None:
    return value if isinstance(value, int | float | str | None) else json.dumps(value)
