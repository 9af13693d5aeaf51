"""What a training run is made of, as settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from gymnasium.envs.registration import EnvSpec

from bmdp.checks import require_choice, require_count, require_share
from bmdp.envs.slots import find_spec
from bmdp.errors import ConfigError
from bmdp.learn.fit_config import BFTQConfig, FTQConfig, LagrangianConfig, Learner

NOT_EXPLORED = (
    "Exploring does not learn prices; learn them from the episodes of a run instead: bmdp train "
    "--data RUN/round-*/batch.npz --gamma GAMMA --set learner=LagrangianConfig --out OTHER."
)
"""What to do in place of exploring with a LagrangianConfig."""


@dataclass(frozen=True)
class EnvConfig:
    """Which environment, and its settings.

    >>> spec = EnvConfig("corridors", {"height": 3}).spec()
    >>> spec.id, spec.kwargs
    ('bmdp/Corridors-v0', {'height': 3})
    """

    id: str  # or a short name
    settings: dict[str, Any] = field(default_factory=dict)  # that it takes

    def spec(self) -> EnvSpec:
        """As Gymnasium has it."""
        spec = find_spec(self.id)
        return replace(spec, kwargs={**spec.kwargs, **self.settings})


@dataclass(frozen=True)
class Exploration:
    """How data are collected.

    Args:
        rounds: number of rounds.
        episodes: of a round.
        decay: of epsilon, for an episode.
        floor: least epsilon.
        hold: steps for which a random action is held, at most.
        move: probability, at every step, that the dial is moved to a random budget.
        bonus: what makes the unknown look good while exploring; the last round learns without it.
            "count": rewards rise by `weight` times the reward scale over the root of n, the number
            of rows of the same action in the same cell of states. "ensemble": the policy plays by
            the mean of its models, `weight` deviations towards more reward and less cost.
            "targets": so do the models while they learn, which spreads it to what leads there.
        weight: of the bonus.
        cell: side of a cell, in deviations of the states.
        budgets: first budgets of episodes: "uniform"; or "uncertain": from the second round on,
            every other one is drawn where the models disagree on what a budget earns.

    Paper: the settings of Algorithm 4.

    >>> how = Exploration(rounds=4, episodes=250)
    >>> how.rounds * how.episodes, how.bonus
    (1000, 'none')
    """

    rounds: int = 10
    episodes: int = 500
    decay: float = 0.001
    floor: float = 0.0
    hold: int = 1
    move: float = 0.0
    bonus: Literal["none", "count", "ensemble", "targets"] = "none"
    weight: float = 0.0
    cell: float = 0.5
    budgets: Literal["uniform", "uncertain"] = "uniform"

    def __post_init__(self) -> None:
        """Checks the settings."""
        for name in ("rounds", "episodes", "hold"):
            require_count(name, getattr(self, name), 1)
        require_share("move", self.move)
        require_choice("bonus", self.bonus, ("none", "count", "ensemble", "targets"))
        require_choice("budgets", self.budgets, ("uniform", "uncertain"))
        if not 0 <= self.weight < np.inf:
            raise ConfigError(f"weight must be finite and from 0 on; got {self.weight}.")
        if not 0 < self.cell < np.inf:
            raise ConfigError(f"cell must be finite and above 0; got {self.cell}.")


@dataclass(frozen=True)
class TrainingSpec:
    """All that a training run is made of, but for its seed.

    Args:
        env: where.
        learner: what is learned, and how.
        exploration: how data are collected.
        held_out: share of the episodes of each round that are not learned from; they say what the
            policy will earn and pay.
        audit: whether the dial of the policy is read by what they say (`AuditedPolicy`).

    Paper: what Algorithm 4 is given.

    >>> how = Exploration(bonus="targets", weight=0.5)
    >>> spec = TrainingSpec(EnvConfig("corridors"), BFTQConfig(gamma=1.0), how)
    >>> spec.learner.valuation, spec.exploring_learner.valuation, spec.exploring_learner.caution
    ('crossed', 'pessimistic', -0.5)
    """

    env: EnvConfig
    learner: BFTQConfig | FTQConfig
    exploration: Exploration
    held_out: float = 0.0
    audit: bool = False

    def __post_init__(self) -> None:
        """Checks that the learner can explore in this way."""
        if not isinstance(self.learner, BFTQConfig | FTQConfig):
            raise ConfigError(
                "TrainingSpec.learner must be a BFTQConfig or an FTQConfig; got a "
                f"{type(self.learner).__name__}. {NOT_EXPLORED}"
            )
        require_held_out(self.held_out, self.audit, self.learner)
        if self.held_out > 0 and self.exploration.episodes < 2:
            raise ConfigError("held_out needs rounds of at least 2 episodes; got 1.")
        how, learner = self.exploration, self.exploring_learner
        asks_models = how.bonus == "ensemble" or how.budgets == "uncertain"
        if isinstance(learner, FTQConfig):
            if asks_models or how.bonus == "targets":
                raise ConfigError(
                    "with FTQConfig, exploration.bonus must be one of none, count and "
                    f"exploration.budgets 'uniform'; got {how.bonus!r} and {how.budgets!r}."
                )
        elif asks_models and (learner.n_models == 1 or learner.acting != "average"):
            raise ConfigError(
                "exploration.bonus 'ensemble' and exploration.budgets 'uncertain' need several "
                f"models that act by their mean; got learner.valuation {learner.valuation!r} and "
                f"learner.acting {learner.acting!r}."
            )

    @property
    def exploring_learner(self) -> BFTQConfig | FTQConfig:
        """The learner of all rounds but the last, whose policies explore."""
        if self.exploration.bonus != "targets" or isinstance(self.learner, FTQConfig):
            return self.learner
        return replace(
            self.learner,
            valuation="pessimistic",
            caution=-self.exploration.weight,
            acting="average",
        )


@dataclass(frozen=True)
class DataSpec:
    """All that learning from a log is made of, but for its seed and the log.

    Args:
        learner: what is learned, and how.
        held_out: share of episodes that are not learned from; they say what the policy will earn
            and pay.
        audit: whether the dial of the policy is read by what they say.
    """

    learner: Learner
    held_out: float = 0.0
    audit: bool = False

    def __post_init__(self) -> None:
        """Checks the share."""
        require_held_out(self.held_out, self.audit, self.learner)


def is_foretold(learner: Learner) -> bool:
    """Whether held-out episodes say what the policy will earn and pay.

    Switching they do not: what it does next depends on what was paid on the way.
    """
    return not (isinstance(learner, LagrangianConfig) and learner.plays == "switching")


def require_held_out(share: float, audit: bool, learner: Learner) -> None:
    """Checks the share of episodes that are held out, and that an audit has something to go by.

    Raises:
        ConfigError: if it is not from 0 to below 1, or says nothing of what is learned, or there is
            nothing to audit, or nothing to audit it by.
    """
    if not 0 <= share < 1:
        raise ConfigError(f"held_out must be from 0 to below 1; got {share}.")
    if share > 0 and not is_foretold(learner):
        raise ConfigError(
            "held_out must be 0 with learner.plays 'switching': what is done next depends on what "
            f"was paid on the way, which no model of values follows; got {share}. Play the policy "
            "instead (bmdp evaluate, bmdp.calibrate), or use learner.plays=carried."
        )
    if audit and (share == 0 or not isinstance(learner, BFTQConfig)):
        raise ConfigError("audit needs episodes held out, held_out above 0, and a BFTQConfig.")
