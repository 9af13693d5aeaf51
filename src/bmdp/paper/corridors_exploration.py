"""Does it pay to explore at all budgets? Risk-sensitive against risk-neutral, on corridors.

The main part explores with the budgeted policy itself (Algorithm 4). The part "risk-neutral"
explores with fitted Q-iteration, which looks at rewards alone, and learns a budgeted policy from
these episodes. Both are measured at the same budgets, against the true frontier.

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

import numpy as np

from bmdp.data import TransitionBatch
from bmdp.envs.corridors import Corridors, true_frontier
from bmdp.learn.learners import BFTQConfig
from bmdp.learn.presets import preset
from bmdp.learn.spec import Exploration, TrainingSpec
from bmdp.models import EncoderNet, KernelModel
from bmdp.paper import measuring, pictures, training
from bmdp.paper.maps import MOST_WAYS, rounds_gif, strategies_figure
from bmdp.paper.measuring import Trials, evenly
from bmdp.paper.pictures import Way
from bmdp.paper.results import Results, Rounds, exploration_of
from bmdp.paper.runner import Piece, Work
from bmdp.paper.scenes import layout_of, rounded, task_of
from bmdp.report.curves import FIRST, SECOND
from bmdp.report.section import Animation, Picture, Section

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
    """How the true frontier is found: arguments of `bmdp.envs.corridors.true_frontier`."""

    resolution: int = 33
    n_episodes: int = 100_000
    max_disagreement: float = 0.003


@dataclass(frozen=True)
class ExplorationSettings:
    """Settings of the experiment.

    Args:
        n_seeds: that it is done with, unless others are asked for.
        sensitive: explores with the budgeted policy.
        neutral: explores with fitted Q-iteration.
        learner: of the budgeted policy from what `neutral` collected.
        testing: how policies are measured and shown.
        truth: how the true frontier is found.
    """

    n_seeds: int
    sensitive: TrainingSpec
    neutral: TrainingSpec
    learner: BFTQConfig
    testing: Trials
    truth: TruthSearch = TruthSearch()


def _ours(
    n_seeds: int, spec: TrainingSpec, testing: Trials, how: TruthSearch
) -> ExplorationSettings:
    assert isinstance(spec.learner, BFTQConfig)
    return ExplorationSettings(
        n_seeds, spec, training.risk_neutral(spec), spec.learner, testing, how
    )


def _smoke() -> ExplorationSettings:
    learner = {"n_budgets": 5, "ensemble": 2, "model": KernelModel(30, (0.6,), (1e-2,))}
    exploration = {"rounds": 2, "episodes": 50, "decay": 0.02}
    spec = training.changed(preset("corridors"), learner, exploration)
    testing = Trials((0.0, 0.5, 1.0), 100, evenly(5), 8)
    return _ours(2, spec, testing, TruthSearch(7, 2_000, 0.05))


def _quick() -> ExplorationSettings:
    """Our preset with fewer rounds, and with fewer bumps and budgets."""
    model = KernelModel(200, (0.2, 0.35, 0.6, 1.0), (1e-3, 1e-2, 1e-1))
    learner = {"n_budgets": 11, "ensemble": 2, "model": model}
    spec = training.changed(preset("corridors"), learner, {"rounds": 8})
    return _ours(2, spec, Trials(evenly(21), 2000, evenly(21), 8), TruthSearch(17, 20_000))


def _paper() -> ExplorationSettings:
    """The paper's tables; there, what was collected without budgets was labelled with ten.

    The table's 5,000 steps without regard to costs are, in the authors' code, of the exploring FTQ.
    """
    spec = preset("paper-corridors")
    assert isinstance(spec.learner, BFTQConfig)
    assert isinstance(spec.learner.model, EncoderNet)
    network = replace(spec.learner.model, labels="uniform", n_labels=10)
    learner = replace(spec.learner, model=network)
    testing = Trials(evenly(10), 1000, evenly(21), n_shown=8)
    return ExplorationSettings(4, spec, preset("paper-corridors-ftq"), learner, testing)


def _best() -> ExplorationSettings:
    testing = Trials(evenly(10), 10_000, evenly(21), 8)
    return _ours(10, preset("corridors"), testing, TruthSearch())


SETTINGS = {"smoke": _smoke(), "quick": _quick(), "paper": _paper(), "best": _best()}


def run(settings: ExplorationSettings, work: Work) -> None:
    """Does a part."""
    {"": _sensitive, "risk-neutral": _neutral, "truth": _truth}[work.part](settings, work)


def _sensitive(settings: ExplorationSettings, work: Work) -> None:
    measuring.learned_dial(settings.sensitive, settings.testing, work)
    work.piece("exploration", lambda: _exploration(settings.sensitive, work.folder))


def _neutral(settings: ExplorationSettings, work: Work) -> None:
    """Explores without regard to costs, learns a budgeted policy from that, and measures it."""
    spec, testing = settings.neutral, settings.testing
    exploring, learning = work.folder / "exploring", work.folder / "learning"
    training.trained(spec, work, exploring)
    work.piece("exploration", lambda: _exploration(spec, exploring))
    batch = TransitionBatch.concatenate(training.rounds_of(exploring))
    policy = training.playable(
        training.trained_from(batch, settings.learner, work, learning), work.device
    )
    env, asked = training.explored(spec)[0], (testing.budgets, testing.n_episodes, work.seed)
    work.piece("evaluation", lambda: measuring.evaluation_piece(policy, env, *asked))


def _truth(settings: ExplorationSettings, work: Work) -> None:
    how, task = settings.truth, Corridors(**training.explored(settings.sensitive)[0].settings)
    work.piece(
        "truth",
        lambda: measuring.truth_piece(
            true_frontier(
                task,
                resolution=how.resolution,
                n_episodes=how.n_episodes,
                seed=work.seed,
                max_disagreement=how.max_disagreement,
            ),
            how,
        ),
    )


def _exploration(spec: TrainingSpec, folder: Path) -> Piece:
    """What the rounds of a run earned and paid, and where some episodes went."""
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
    """Where one episode went, the budget that it began with, and what it paid."""
    assert batch.budget is not None
    places = np.vstack((batch.state[first:after, :2], batch.next_state[after - 1 : after, :2]))
    return {
        "x": rounded(places[:, 0], 2),
        "y": rounded(places[:, 1], 2),
        "budget": round(float(batch.budget[first]), 3),
        "cost": round(float(batch.cost[first:after].sum()), 4),
    }


def analyse(results: Results, anchor: str) -> Section:
    """Returns what was found, as far as it goes."""
    dials = pictures.dials_of(results, anchor, WAYS)
    shown = pictures.behaviour(results, anchor, "A policy on corridors", dials.truth)
    films = _films(results)
    told = [pictures.kept(name, report) for name, report in dials.reports.items()]
    if not told:
        told = [f"{curve.label}: {pictures.ends_of(curve)}." for curve in dials.curves.values()]
    return Section(
        anchor,
        TITLE,
        QUESTION,
        " ".join(text[0].upper() + text[1:] for text in told),
        facts=pictures.setting_of(
            "corridors, the paper's map",
            *(
                pictures.episodes_explored(f"{name} exploration", results.settings.get(name))
                for name in ("sensitive", "neutral")
            ),
            pictures.episodes_played(results.settings),
        )
        | pictures.bands_fact([*dials.curves.values(), *dials.published]),
        pictures=[*dials.pictures, *_trajectories(anchor, films), *shown.pictures],
        tables=dials.tables,
        dials=shown.dials,
        films=[
            {**found.piece, "title": f"Exploration round by round, {name}"}
            for name, (_, found) in films.items()
        ],
        animations=[*_animations(anchor, films), *shown.animations],
    )


def _films(results: Results) -> dict[str, tuple[int, Rounds]]:
    """The exploration of the first seed by each strategy; risk-neutral first, as in the paper."""
    found: dict[str, tuple[int, Rounds]] = {}
    for name, way in reversed(WAYS.items()):
        by_seed = results.each("exploration", exploration_of, way.part)
        for seed, rounds in pictures.first_of(by_seed):
            if rounds.rounds:
                found[name] = seed, rounds
    return found


def _trajectories(anchor: str, films: Mapping[str, tuple[int, Rounds]]) -> list[Picture]:
    if not films:
        return []
    seeds = ", ".join(f"{name}: seed {seed}" for name, (seed, _) in films.items())
    caption = (
        f"Ways that exploration took, some of each round ({seeds}). Green cells pay, red ones pay "
        "and cost; numbers are rewards. Paper: the left half of its figure on exploration."
    )
    counts = {
        name: min(sum(len(one["episodes"]) for one in found.rounds), MOST_WAYS)
        for name, (_, found) in films.items()
    }
    told = " and ".join(f"{n} ways of {name} exploration" for name, n in counts.items())
    figure = strategies_figure({name: found for name, (_, found) in films.items()})
    title, alt = "Where exploration went", f"Maps of the corridors with {told}."
    return [Picture(f"{anchor}-trajectories", title, caption, alt, figure)]


def _animations(anchor: str, films: Mapping[str, tuple[int, Rounds]]) -> list[Animation]:
    strategies = {name: found for name, (_, found) in films.items()}
    make = partial(rounds_gif, strategies)
    what = "exploration round by round"
    return [Animation(f"{anchor}-exploration", what, make)] if films else []
