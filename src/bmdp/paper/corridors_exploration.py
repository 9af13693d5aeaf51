"""Does it pay to explore at all budgets? Risk-sensitive against risk-neutral, on corridors.

The main part explores with the budgeted policy itself (Algorithm 4). The part "risk-neutral"
explores without regard to costs, and learns a budgeted policy from these episodes. Both are
measured at the same budgets, against the true frontier.

The paper's risk-neutral exploration is by fitted Q-iteration, which looks at rewards alone. Ours
has the same learner and the same settings as the risk-sensitive one, and differs in its budgets
alone: they stay at the most that an episode can cost.

    FOLDER/truth/truth.json                     the true frontier
    FOLDER/seed-N/                              a training run that explores with budgets
    FOLDER/seed-N/{evaluation,executions,hull,exploration}.json
    FOLDER/risk-neutral/seed-N/{exploring,learning}/        two training runs
    FOLDER/risk-neutral/seed-N/{evaluation,exploration}.json

exploration.json: `env`, `layout`, and `rounds`, each with `round`, `n_episodes`, mean `reward` and
    `cost`, mean `epsilon`, and where some `episodes` went.

Paper: the first experiment of Section 5, its figure of trajectories and performances, and the
animations of the appendix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bmdp.data import TransitionBatch
from bmdp.envs.corridors import Corridors, true_frontier
from bmdp.learn.learners import BFTQConfig
from bmdp.learn.presets import preset
from bmdp.learn.spec import Exploration, TrainingSpec
from bmdp.models import EncoderNet, KernelModel
from bmdp.paper import pictures, training
from bmdp.paper.maps import MOST_WAYS, rounds_gif, strategies_figure
from bmdp.paper.measuring import Trials, evaluation_piece, evenly, show, truth_piece
from bmdp.paper.pictures import Way
from bmdp.paper.results import Results, exploration_of
from bmdp.paper.runner import Piece, Work
from bmdp.paper.scenes import layout_of, rounded, task_of
from bmdp.report.curves import FIRST, SECOND
from bmdp.report.section import Animation, Data, Picture, Section

TITLE = "Exploring corridors"
QUESTION = (
    "Does a policy that takes a budget learn better from exploring at all budgets than from "
    "exploring for reward alone?"
)
PARTS, COMMON = ("", "risk-neutral"), ("truth",)

WAYS = {
    name: Way(f"{name} exploration", part, style=style, published=("corridors", f"BFTQ {name}"))
    for name, part, style in (
        ("risk-sensitive", "", FIRST),
        ("risk-neutral", "risk-neutral", SECOND),
    )
}
"""Parts by what they explore with."""

_MOST_SHOWN = 30  # episodes of a round


@dataclass(frozen=True)
class TruthSearch:
    """Arguments of `bmdp.envs.corridors.true_frontier`."""

    resolution: int = 33
    n_episodes: int = 100_000
    max_disagreement: float = 0.003


@dataclass(frozen=True)
class ExplorationSettings:
    """Settings of the experiment."""

    n_seeds: int
    sensitive: TrainingSpec  # explores with the budgeted policy
    neutral: TrainingSpec  # explores without regard to costs
    learner: BFTQConfig  # of the budgeted policy from the episodes of `neutral`
    testing: Trials
    truth: TruthSearch = TruthSearch()


def _ours(
    n_seeds: int, spec: TrainingSpec, testing: Trials, how: TruthSearch
) -> ExplorationSettings:
    assert isinstance(spec.learner, BFTQConfig)
    return ExplorationSettings(n_seeds, spec, at_the_top(spec), spec.learner, testing, how)


def at_the_top(spec: TrainingSpec) -> TrainingSpec:
    """Returns the same exploration of corridors at budgets that no episode can exceed."""
    env, how = training.explored(spec)
    learner = replace(spec.learner, budget_range=Corridors(**env.settings).cost_range)
    return replace(spec, learner=learner, exploration=replace(how, budgets="top"))


def _smaller(model: KernelModel, n_budgets: int, **exploration: Any) -> TrainingSpec:
    learner = {"n_budgets": n_budgets, "ensemble": 2, "model": model}
    return training.changed(preset("corridors"), learner, exploration)


def _paper() -> ExplorationSettings:
    """The paper's tables; there, episodes collected without budgets were labelled with ten.

    The table's 5,000 steps without regard to costs are, in the authors' code, of the exploring FTQ.
    """
    spec = preset("paper-corridors")
    assert isinstance(spec.learner, BFTQConfig)
    assert isinstance(spec.learner.model, EncoderNet)
    network = replace(spec.learner.model, labels="uniform", n_labels=10)
    learner = replace(spec.learner, model=network)
    testing = Trials(evenly(10), 1000, evenly(21), n_shown=8)
    return ExplorationSettings(4, spec, preset("paper-corridors-ftq"), learner, testing)


SETTINGS = {
    "smoke": _ours(
        2,
        _smaller(KernelModel(30, (0.6,), (1e-2,)), 5, rounds=2, episodes=50, decay=0.02),
        Trials((0.0, 0.5, 1.0), 100, evenly(5), 8),
        TruthSearch(7, 2_000, 0.05),
    ),
    "quick": _ours(
        2,
        _smaller(KernelModel(200, (0.2, 0.35, 0.6, 1.0), (1e-3, 1e-2, 1e-1)), 11, rounds=8),
        Trials(evenly(21), 2000, evenly(21), 8),
        TruthSearch(17, 20_000),
    ),
    "paper": _paper(),
    "best": _ours(
        10, preset("corridors"), Trials(evenly(10), 10_000, evenly(21), 8), TruthSearch()
    ),
}


def run(settings: ExplorationSettings, work: Work) -> None:
    """Explores with budgets, or without regard to costs; or solves the task."""
    env, _ = training.explored(settings.sensitive)
    if work.part == "truth":
        task, how = Corridors(**env.settings), vars(settings.truth)
        work.piece("truth", lambda: truth_piece(true_frontier(task, seed=work.seed, **how), how))
    elif work.part == "risk-neutral":
        _neutral(settings, work)
    else:
        show(training.trained(settings.sensitive, work), env, settings.testing, work)
        work.piece("exploration", lambda: _exploration(settings.sensitive, work.folder))


def _neutral(settings: ExplorationSettings, work: Work) -> None:
    """Explores without regard to costs, and learns a budgeted policy from these episodes."""
    spec, testing, exploring = settings.neutral, settings.testing, work.folder / "exploring"
    env, _ = training.explored(spec)
    training.trained(spec, work, exploring)
    work.piece("exploration", lambda: _exploration(spec, exploring))
    batch, folder = training.log_of(exploring), work.folder / "learning"
    learned = training.trained_from(batch, settings.learner, work, folder)
    policy = training.playable(learned, work.device)
    asked = testing.budgets, testing.n_episodes, work.seed
    work.piece("evaluation", lambda: evaluation_piece(policy, env, *asked))


def _exploration(spec: TrainingSpec, folder: Path) -> Piece:
    env, how = training.explored(spec)
    return {
        "env": env.id,
        "rounds": [_round(i, batch, how) for i, batch in enumerate(training.rounds_of(folder))],
        "layout": layout_of(task_of(env.spec())),
    }


def _round(number: int, batch: TransitionBatch, how: Exploration) -> Piece:
    starts = batch.starts()
    n = len(starts)
    ends = np.append(starts[1:], len(batch))
    episodes = number * how.episodes + np.arange(n)
    epsilon = how.floor + (1 - how.floor) * np.exp(-how.decay * episodes)
    shown = np.linspace(0, n - 1, min(n, _MOST_SHOWN)).astype(int)
    return {
        "round": number,
        "n_episodes": n,
        "reward": round(float(batch.reward.sum() / n), 4),
        "cost": round(float(batch.cost.sum() / n), 5),
        "epsilon": round(float(epsilon.mean()) if number else 1.0, 4),
        "episodes": [_way(batch, int(starts[k]), int(ends[k])) for k in shown],
    }


def _way(batch: TransitionBatch, first: int, after: int) -> Piece:
    """Places of one episode, the budget that it began with, and its cost."""
    assert batch.budget is not None
    places = np.vstack((batch.state[first:after, :2], batch.next_state[after - 1 : after, :2]))
    return {
        "x": rounded(places[:, 0], 2),
        "y": rounded(places[:, 1], 2),
        "budget": round(float(batch.budget[first]), 3),
        "cost": round(float(batch.cost[first:after].sum()), 4),
    }


def analyse(results: Results, anchor: str) -> Section:
    """Returns the section of a report, as far as parts are done."""
    dials = pictures.dials_of(results, anchor, WAYS)
    shown = pictures.behaviour(results, anchor, "A policy on corridors", dials.truth)
    films = {  # of the first seed; risk-neutral first, as in the paper
        name: found
        for name, way in reversed(WAYS.items())
        for found in pictures.first_of(results.each("exploration", exploration_of, way.part))
        if found[1]["rounds"]
    }
    strategies = {name: rounds for name, (_, rounds) in films.items()}
    make, what = partial(rounds_gif, strategies), "exploration round by round"
    told = [pictures.kept(name, report) for name, report in dials.reports.items()]
    if not told:
        told = [f"{curve.label}: {pictures.ends_of(curve)}." for curve in dials.curves.values()]
    return Section(
        anchor,
        "",
        answer=" ".join(text[0].upper() + text[1:] for text in told),
        facts=pictures.facts_of(
            [*dials.curves.values(), *dials.published],
            "corridors, the paper's map",
            *(
                pictures.episodes_explored(f"{name} exploration", results.settings.get(name))
                for name in ("sensitive", "neutral")
            ),
            pictures.episodes_played(results.settings),
        ),
        pictures=[
            *dials.pictures,
            *([_trajectories(anchor, films)] if films else []),
            *shown.pictures,
        ],
        tables=dials.tables,
        dials=shown.dials,
        films=[
            {**rounds, "title": f"Exploration round by round, {name}"}
            for name, rounds in strategies.items()
        ],
        animations=[
            *([Animation(f"{anchor}-exploration", what, make)] if films else []),
            *shown.animations,
        ],
    )


def _trajectories(anchor: str, films: Mapping[str, tuple[int, Data]]) -> Picture:
    seeds = ", ".join(f"{name}: seed {seed}" for name, (seed, _) in films.items())
    caption = (
        f"Ways that exploration took, some of each round ({seeds}). Green cells pay, red ones pay "
        "and cost; numbers are rewards. Paper: the left half of its figure on exploration."
    )
    counts = {
        name: min(sum(len(one["episodes"]) for one in found["rounds"]), MOST_WAYS)
        for name, (_, found) in films.items()
    }
    told = " and ".join(f"{n} ways of {name} exploration" for name, n in counts.items())
    figure = strategies_figure({name: found for name, (_, found) in films.items()})
    title, alt = "Where exploration went", f"Maps of the corridors with {told}."
    return Picture(f"{anchor}-trajectories", title, caption, alt, figure)
