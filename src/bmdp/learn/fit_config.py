"""How values are learned from transitions, as settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.checks import require_choice, require_count, require_from_0, require_rising, require_share
from bmdp.errors import ConfigError
from bmdp.models import EncoderNet, FrontierNet, Model, Regression


@dataclass(frozen=True)
class FitConfig(ABC):
    """Settings that all ways of fitted Q-iteration with several models have.

    Args:
        gamma: discount of rewards, and of costs if these have none of their own.
        cost_gamma: discount of costs.
        budget_range: lowest and highest budget that the policy will take, in discounted cost.
        model: what estimates (Q_r, Q_c).
        regression: how networks are fitted.
        iterations: at most.
        stop_delta: loss of the old models on the new targets at which it stops (the paper's rule);
            0 for never.
        valuation: "crossed": several models, each fitted to episodes of its own; the mean of all
            others chooses, the one values what is chosen (and, of mixtures, so sets the
            probability), and what rows are fitted to is the mean over all such ones. "pessimistic":
            several such models do everything together, by their mean less `caution` deviations of
            rewards and more of costs; so does the policy. "self": one model does everything, as in
            the paper.
        folds: number of models, but with "self".
        caution: with "pessimistic", a number of deviations over models; below 0 it is optimistic.
        acting: of several models, "average": the policy uses their mean; "pooled": it uses a
            further model, which is fitted to all episodes, and has no say in what to fit to.
        stages: "none": one model for all steps of an episode, by iterations. "shared": for each
            step a model of its own, from the last to the first, fitted to all transitions, as what
            they lead to does not depend on the step; those of the last step are apart. "alike": the
            same, and what the last step earns and pays is told by all transitions, too. The policy
            counts steps itself: numbers of the state that the step determines are not looked at.
        reward_scale: that rewards are divided by; the largest magnitude of the data, if not given.
    """

    gamma: float
    cost_gamma: float | None = None
    budget_range: tuple[float, float] = (0.0, 1.0)
    model: Model = field(default_factory=EncoderNet)
    regression: Regression = field(default_factory=Regression)
    iterations: int = 10
    stop_delta: float = 0.0
    valuation: Literal["crossed", "pessimistic", "self"] = "crossed"
    folds: int = 2
    caution: float = 1.0
    acting: Literal["average", "pooled"] = "average"
    stages: Literal["none", "shared", "alike"] = "none"
    reward_scale: float | None = None

    def __post_init__(self) -> None:
        """Checks the settings."""
        require_share("gamma", self.gamma)
        require_share("cost_gamma", self.discount_of_costs)
        require_rising("budget_range", self.budget_range)
        object.__setattr__(self, "budget_range", tuple(map(float, self.budget_range)))
        for name, least in (("iterations", 1), ("folds", 2)):
            require_count(name, getattr(self, name), least)
        if self.acting != "average" and self.valuation == "pessimistic":
            raise ConfigError("acting must be 'average' with valuation 'pessimistic'.")
        if not np.isfinite(self.caution):
            raise ConfigError(f"caution must be finite; got {self.caution}.")
        require_from_0("stop_delta", self.stop_delta)
        if self.reward_scale is not None and not self.reward_scale > 0:
            raise ConfigError(f"reward_scale must be above 0; got {self.reward_scale}.")
        for name, choices in (
            ("valuation", ("crossed", "pessimistic", "self")),
            ("acting", ("average", "pooled")),
            ("stages", ("none", "shared", "alike")),
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
    @abstractmethod
    def beta_grid(self) -> FloatArray:
        """What values are estimated at, rising."""


@dataclass(frozen=True)
class BFTQConfig(FitConfig):
    """Settings of budgeted fitted Q-iteration; those of `FitConfig`, and more.

    Args:
        n_budgets: of the grid over the budget range.
        slope_cap: most that a unit of cost is worth at the cheap end of a frontier, in scaled
            rewards. From three times the slope from the cheapest to the best-paid vertex on it does
            no harm; below that the policy takes risks at budget 0, too. 0 for no cap.
        cost_floor: least Q_c that is believed.
        labels: budgets that a row is fitted at, new ones at every iteration: "uniform" in the
            range, or the "stored" ones of the data, as in the paper.
        n_labels: number of labels of a row; models that cover the grid take all of it.

    Paper: the settings of Algorithm 2, and the tables of the appendix.

    >>> BFTQConfig(gamma=0.9, budget_range=(0.0, 2.0), n_budgets=5).beta_grid.tolist()
    [0.0, 0.5, 1.0, 1.5, 2.0]
    """

    n_budgets: int = 41
    slope_cap: float = 50.0
    cost_floor: float = 0.0
    labels: Literal["uniform", "stored"] = "uniform"
    n_labels: int = 1

    def __post_init__(self) -> None:
        """Checks the settings."""
        super().__post_init__()
        require_count("n_budgets", self.n_budgets, 2)
        require_count("n_labels", self.n_labels, 1)
        require_from_0("slope_cap", self.slope_cap)
        require_choice("labels", self.labels, ("uniform", "stored"))

    @property
    def beta_grid(self) -> FloatArray:
        """Budgets that can be handed on."""
        return np.linspace(*self.budget_range, self.n_budgets)


@dataclass(frozen=True)
class LagrangianConfig(FitConfig):
    """Settings of fitted Q-iteration for many prices of cost at once; of `FitConfig`, and more.

    Args:
        prices: of a unit of cost, in rewards, falling or rising; `inf` looks at costs first. If not
            given, 0, powers of 10 ** 0.5 around the reward scale, and `inf`.
        model: what estimates (Q_r, Q_c); one with an output for each price, if it covers a grid, or
            else one for each price.
        plays: "mixture": a coin between two prices, tossed once per episode; "carried": a price
            chosen by what it costs from the state at the start, and kept.

    Paper: the Lagrangian appendix.

    >>> config = LagrangianConfig(gamma=0.9, prices=(0, 100, float("inf")))
    >>> config.prices, config.beta_grid.tolist()
    ((inf, 100.0, 0.0), [0.0, 1.0, 2.0])
    """

    model: Model = field(default_factory=lambda: FrontierNet(structure="free"))
    prices: tuple[float, ...] = ()
    plays: Literal["mixture", "carried"] = "mixture"

    def __post_init__(self) -> None:
        """Checks the settings."""
        super().__post_init__()
        prices = tuple(sorted(map(float, self.prices), reverse=True))
        if not all(price >= 0 for price in prices) or len(set(prices)) < len(prices):
            raise ConfigError(f"prices must be different numbers from 0 on; got {self.prices}.")
        object.__setattr__(self, "prices", prices)
        require_choice("plays", self.plays, ("mixture", "carried"))

    @property
    def beta_grid(self) -> FloatArray:
        """Numbers of the prices, from the highest price to the lowest."""
        return np.arange(len(self.prices), dtype=np.float64)


@dataclass(frozen=True)
class FTQConfig:
    """Settings of fitted Q-iteration on reward - price * cost.

    Args:
        gamma: discount of rewards and costs.
        price: lambda, of a unit of cost, in rewards.
        model: what estimates Q; one that covers a grid, here of a single budget.
        regression: how networks are fitted.
        iterations: at most.
        stop_delta: loss of the old model on the new targets at which it stops; 0 for never.
        budget_range: that the policy takes, to no effect.
        reward_scale: that rewards are divided by; the largest magnitude of the data, if not given.

    Paper: FTQ(lambda) of Section 5.

    >>> config = FTQConfig(gamma=0.9, price=20.0)
    >>> config.iterations, config.budget_range
    (10, (0.0, 1.0))
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
        require_from_0("stop_delta", self.stop_delta)
        require_rising("budget_range", self.budget_range)


Learner: TypeAlias = BFTQConfig | FTQConfig | LagrangianConfig


def of_kind(learner: Learner, kind: type[Learner]) -> Learner:
    """Returns settings of another kind, which keep what was set of those that both have.

    What has its default takes that of the new kind: each has a model of its own.

    >>> budgeted = BFTQConfig(gamma=0.9, budget_range=(0.0, 2.0), folds=3, n_budgets=5)
    >>> priced = of_kind(budgeted, LagrangianConfig)
    >>> priced == LagrangianConfig(gamma=0.9, budget_range=(0.0, 2.0), folds=3)
    True
    """
    default = type(learner)(gamma=learner.gamma)
    both = {f.name for f in fields(learner)} & {f.name for f in fields(kind)}
    changed = {
        name: getattr(learner, name)
        for name in both
        if getattr(learner, name) != getattr(default, name)
    }
    return kind(**{**changed, "gamma": learner.gamma})
