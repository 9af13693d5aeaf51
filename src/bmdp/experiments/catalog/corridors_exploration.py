"""Does it pay to explore at all budgets? Risk-sensitive against risk-neutral, on corridors.

The main part explores with the budgeted policy itself (Algorithm 4). The part "risk-neutral"
explores with fitted Q-iteration, which looks at rewards alone, and learns a budgeted policy from
these episodes. Both are measured at the same budgets, against the true frontier.

Paper: the first experiment of Section 5, its figure of trajectories and performances, and the
animations of the appendix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from bmdp.data import TransitionBatch
from bmdp.envs.corridors import Corridors, true_frontier
from bmdp.experiments.experiment import Experiment, Work
from bmdp.experiments.parts.executions import learned_dial
from bmdp.experiments.parts.exploration import exploration_piece
from bmdp.experiments.parts.measuring import Trials, evaluation_piece, evenly, truth_piece
from bmdp.experiments.parts.training import (
    changed,
    explored,
    playable,
    risk_neutral,
    rounds_of,
    trained,
    trained_from,
)
from bmdp.learn.learners import BFTQConfig
from bmdp.learn.presets import preset
from bmdp.learn.spec import TrainingSpec
from bmdp.models import EncoderNet, KernelModel


@dataclass(frozen=True)
class Truth:
    """How the true frontier is found: arguments of `bmdp.envs.corridors.true_frontier`."""

    resolution: int = 33
    n_episodes: int = 100_000
    max_disagreement: float = 0.003


@dataclass(frozen=True)
class Settings:
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
    truth: Truth = Truth()


def with_budgets(settings: Settings, work: Work) -> None:
    """Explores with the budgeted policy, and measures and shows what it has learned."""
    learned_dial(settings.sensitive, settings.testing, work)
    work.piece("exploration", lambda: exploration_piece(settings.sensitive, work.folder))


def without_costs(settings: Settings, work: Work) -> None:
    """Explores without regard to costs, learns a budgeted policy from that, and measures it."""
    spec, testing = settings.neutral, settings.testing
    exploring, learning = work.folder / "exploring", work.folder / "learning"
    trained(spec, work, exploring)
    work.piece("exploration", lambda: exploration_piece(spec, exploring))
    batch = TransitionBatch.concatenate(rounds_of(exploring))
    policy = playable(trained_from(batch, settings.learner, work, learning), work.device)
    asked = testing.budgets, testing.n_episodes, work.seed
    env, _ = explored(spec)
    work.piece("evaluation", lambda: evaluation_piece(policy, env, *asked))


def truth(settings: Settings, work: Work) -> None:
    """Finds the true frontier."""
    how, task = settings.truth, Corridors(**explored(settings.sensitive)[0].settings)
    work.piece(
        "truth",
        lambda: truth_piece(
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


def _ours(n_seeds: int, spec: TrainingSpec, testing: Trials, how: Truth) -> Settings:
    """Settings of our own, at some size."""
    assert isinstance(spec.learner, BFTQConfig)
    return Settings(n_seeds, spec, risk_neutral(spec), spec.learner, testing, how)


def _paper() -> Settings:
    """The paper's tables; there, what was collected without budgets was labelled with ten.

    The table's 5,000 steps without regard to costs are, in the authors' code, of the exploring FTQ.
    """
    spec = preset("paper-corridors")
    assert isinstance(spec.learner, BFTQConfig)
    assert isinstance(spec.learner.model, EncoderNet)
    network = replace(spec.learner.model, labels="uniform", n_labels=10)
    learner = replace(spec.learner, model=network)
    testing = Trials(evenly(10), 1000, evenly(21), n_shown=8)
    return Settings(4, spec, preset("paper-corridors-ftq"), learner, testing)


def _best() -> Settings:
    """Our preset."""
    return _ours(10, preset("corridors"), Trials(evenly(10), 10_000, evenly(21), 8), Truth())


def _quick() -> Settings:
    """Our preset with fewer rounds, and with fewer bumps and budgets."""
    model = KernelModel(200, (0.2, 0.35, 0.6, 1.0), (1e-3, 1e-2, 1e-1))
    learner = {"n_budgets": 11, "ensemble": 2, "model": model}
    spec = changed(preset("corridors"), learner, {"rounds": 8})
    return _ours(2, spec, Trials(evenly(21), 2000, evenly(21), 8), Truth(17, 20_000))


def _smoke() -> Settings:
    """Hardly anything."""
    learner = {"n_budgets": 5, "ensemble": 2, "model": KernelModel(30, (0.6,), (1e-2,))}
    exploration = {"rounds": 2, "episodes": 50, "decay": 0.02}
    spec = changed(preset("corridors"), learner, exploration)
    testing = Trials((0.0, 0.5, 1.0), 100, evenly(5), 8)
    return _ours(2, spec, testing, Truth(7, 2_000, 0.05))


EXPERIMENT = Experiment(
    name="corridors-exploration",
    title="Exploring corridors",
    question="Does a policy that takes a budget learn better from exploring at all budgets than "
    "from exploring for reward alone?",
    parts={"": with_budgets, "risk-neutral": without_costs},
    common={"truth": truth},
    presets={"smoke": _smoke(), "quick": _quick(), "paper": _paper(), "best": _best()},
)
