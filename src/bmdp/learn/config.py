"""What is learned and how, as settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from gymnasium.envs.registration import EnvSpec

from bmdp.arrays import FloatArray
from bmdp.checks import require_choice, require_count, require_share
from bmdp.envs.slots import find_spec
from bmdp.errors import ConfigError
from bmdp.models import EncoderNet, FrontierNet, Model, Regression

_LEAST = {"n_budgets": 2, "iterations": 1, "n_labels": 1, "chunk": 1, "folds": 2}


@dataclass(frozen=True)
class BFTQConfig:
    """Settings of budgeted fitted Q-iteration.

    Args:
        gamma: discount of rewards, and of costs if these have none of their own.
        cost_gamma: discount of costs.
        budget_range: lowest and highest budget that the policy will take.
        n_budgets: of the grid between them.
        model: what estimates (Q_r, Q_c).
        regression: how networks are fitted.
        iterations: at most.
        stop_delta: loss of the old models on the new targets at which it stops (the paper's rule);
            0 for never.
        valuation: "crossed": several models, each fitted to episodes of its own; the mean of all
            others chooses the vertices, the one values them and so sets the probability, and what
            rows are fitted to is the mean over all such ones. "values": the same, but whoever
            chooses sets the probability, too. "pessimistic": several such models do everything
            together, by their mean less `caution` deviations of rewards and more of costs; so does
            the policy. "self": one model does everything, as in the paper.
        folds: number of models, but with "self".
        caution: with "pessimistic", a number of deviations over models; below 0 it is optimistic.
        acting: of several models, "average": the policy uses their mean; "pooled": it uses a
            further model, which is fitted to all episodes, and has no say in what to fit to;
            "crossed", of two models: a coin says which one chooses, and the other sets the
            probability.
        slope_cap: most that a unit of cost is worth at the cheap end of a frontier, in scaled
            rewards; about three times the slope from the cheapest to the best-paid vertex is right;
            0 for no cap.
        cost_floor: least Q_c that is believed.
        stages: "none": one model for all steps of an episode, by iterations. "own": for each step a
            model of its own, fitted to the transitions of that step, from the last to the first.
            "shared": for each step a model of its own, fitted to all transitions, as what they lead
            to does not depend on the step; those of the last step are apart. "alike": the same, and
            what the last step earns and pays is told by all transitions, too. The policy counts
            steps itself: numbers of the state that the step determines are not looked at.
        labels: budgets that a row is fitted at, new ones at every iteration: "uniform" in the
            range, or the "stored" ones of the data, as in the paper.
        n_labels: number of labels of a row; models that cover the grid take all of it.
        reward_scale: that rewards are divided by; the largest magnitude of the data, if not given.
        chunk: states whose frontiers are built at a time.
    """

    gamma: float
    cost_gamma: float | None = None
    budget_range: tuple[float, float] = (0.0, 1.0)
    n_budgets: int = 41
    model: Model = field(default_factory=EncoderNet)
    regression: Regression = field(default_factory=Regression)
    iterations: int = 10
    stop_delta: float = 0.0
    valuation: Literal["crossed", "values", "pessimistic", "self"] = "crossed"
    folds: int = 2
    caution: float = 1.0
    acting: Literal["average", "pooled", "crossed"] = "average"
    slope_cap: float = 4.0
    cost_floor: float = 0.0
    stages: Literal["none", "own", "shared", "alike"] = "none"
    labels: Literal["uniform", "stored"] = "uniform"
    n_labels: int = 1
    reward_scale: float | None = None
    chunk: int = 16384

    def __post_init__(self) -> None:
        """Checks the settings."""
        require_share("gamma", self.gamma)
        require_share("cost_gamma", self.discount_of_costs)
        low, high = self.budget_range
        if not (np.isfinite([low, high]).all() and low < high):
            raise ConfigError(f"budget_range must be two rising numbers; got {self.budget_range}.")
        object.__setattr__(self, "budget_range", (float(low), float(high)))
        for name, least in _LEAST.items():
            require_count(name, getattr(self, name), least)
        if self.acting == "crossed" and self.n_models > 2:
            raise ConfigError(f"acting 'crossed' is of two models; got folds={self.folds}.")
        if self.acting != "average" and self.valuation == "pessimistic":
            raise ConfigError("acting must be 'average' with valuation 'pessimistic'.")
        if not np.isfinite(self.caution):
            raise ConfigError(f"caution must be finite; got {self.caution}.")
        for name in ("stop_delta", "slope_cap"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must be from 0 on; got {getattr(self, name)}.")
        if self.reward_scale is not None and not self.reward_scale > 0:
            raise ConfigError(f"reward_scale must be above 0; got {self.reward_scale}.")
        for name, choices in (
            ("valuation", ("crossed", "values", "pessimistic", "self")),
            ("acting", ("average", "pooled", "crossed")),
            ("labels", ("uniform", "stored")),
            ("stages", ("none", "own", "shared", "alike")),
        ):
            require_choice(name, getattr(self, name), choices)

    @property
    def n_models(self) -> int:
        """How many models are fitted, to episodes of their own."""
        return 1 if self.valuation == "self" else self.folds

    @property
    def discount_of_costs(self) -> float:
        """Their own, or that of rewards."""
        return self.gamma if self.cost_gamma is None else self.cost_gamma

    @property
    def beta_grid(self) -> FloatArray:
        """Budgets that can be handed on."""
        return np.linspace(*self.budget_range, self.n_budgets)


@dataclass(frozen=True)
class FTQConfig:
    """Settings of fitted Q-iteration on reward - price * cost.

    Args:
        gamma: discount.
        price: of a unit of cost, in rewards.
        model: what estimates Q; one that covers a grid, here of a single budget.
        regression: how networks are fitted.
        iterations: at most.
        stop_delta: loss of the old model on the new targets at which it stops; 0 for never.
        budget_range: that the policy takes, to no effect.
        reward_scale: that rewards are divided by; the largest magnitude of the data, if not given.
    """

    gamma: float
    price: float = 0.0
    model: Model = field(default_factory=FrontierNet)
    regression: Regression = field(default_factory=Regression)
    iterations: int = 10
    stop_delta: float = 0.0
    budget_range: tuple[float, float] = (0.0, 1.0)
    reward_scale: float | None = None

    def __post_init__(self) -> None:
        """Checks the settings."""
        require_share("gamma", self.gamma)
        if not np.isfinite(self.price):
            raise ConfigError(f"price must be finite; got {self.price}.")
        require_count("iterations", self.iterations, 1)
        if not self.stop_delta >= 0:
            raise ConfigError(f"stop_delta must be from 0 on; got {self.stop_delta}.")
        if not self.budget_range[0] < self.budget_range[1]:
            raise ConfigError(f"budget_range must be two rising numbers; got {self.budget_range}.")


@dataclass(frozen=True)
class EnvConfig:
    """Which environment, and its settings."""

    id: str
    settings: dict[str, Any] = field(default_factory=dict)

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
    """

    env: EnvConfig
    learner: BFTQConfig | FTQConfig
    exploration: Exploration
    held_out: float = 0.0
    audit: bool = False

    def __post_init__(self) -> None:
        """Checks that the learner can explore in this way."""
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


def require_held_out(share: float, audit: bool, learner: BFTQConfig | FTQConfig) -> None:
    """Checks the share of episodes that are held out, and that an audit has something to go by.

    Raises:
        ConfigError: if it is not from 0 to below 1, or there is nothing to audit, or nothing to
            audit it by.
    """
    if not 0 <= share < 1:
        raise ConfigError(f"held_out must be from 0 to below 1; got {share}.")
    if audit and (share == 0 or isinstance(learner, FTQConfig)):
        raise ConfigError("audit needs episodes held out, held_out above 0, and a BFTQConfig.")
