"""What a training run is made of, as settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from gymnasium.envs.registration import EnvSpec

from bmdp.checks import require_choice, require_count, require_share
from bmdp.envs.slots import find_spec
from bmdp.errors import ConfigError
from bmdp.learn.fit_config import BFTQConfig, FTQConfig, Learner

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
            of rows of the same action in the same cell of states. "targets": models learn from
            the mean of all of them, `weight` deviations towards more reward and less cost.
        weight: of the bonus.
        cell: side of a cell, in deviations of the states.

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
    bonus: Literal["none", "count", "targets"] = "none"
    weight: float = 0.0
    cell: float = 0.5

    def __post_init__(self) -> None:
        """Checks the settings."""
        for name in ("rounds", "episodes", "hold"):
            require_count(name, getattr(self, name), 1)
        require_share("move", self.move)
        require_choice("bonus", self.bonus, ("none", "count", "targets"))
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

    def __post_init__(self) -> None:
        """Checks that the learner can explore in this way."""
        if not isinstance(self.learner, BFTQConfig | FTQConfig):
            raise ConfigError(
                "TrainingSpec.learner must be a BFTQConfig or an FTQConfig; got a "
                f"{type(self.learner).__name__}. {NOT_EXPLORED}"
            )
        require_held_out(self.held_out)
        if self.held_out > 0 and self.exploration.episodes < 2:
            raise ConfigError("held_out needs rounds of at least 2 episodes; got 1.")
        if isinstance(self.learner, FTQConfig) and self.exploration.bonus == "targets":
            raise ConfigError(
                "with FTQConfig, exploration.bonus must be one of none, count; got 'targets'."
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
    """

    learner: Learner
    held_out: float = 0.0

    def __post_init__(self) -> None:
        """Checks the share."""
        require_held_out(self.held_out)


def require_held_out(share: float) -> None:
    """Checks the share of episodes that are held out.

    Raises:
        ConfigError: if it is not from 0 to below 1.
    """
    if not 0 <= share < 1:
        raise ConfigError(f"held_out must be from 0 to below 1; got {share}.")
