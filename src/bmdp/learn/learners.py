"""The learners: settings, and bindings of `fit_q` to what the next state is worth.

- `BFTQ` learns a policy that takes any budget (Algorithm 2).
- `FTQ` learns the policy of one price of cost, FTQ(lambda).
- `LagrangianFTQ` learns the policies of many prices at once, and plays within a budget by them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np

from bmdp.arrays import FloatArray, rows_at
from bmdp.checks import (
    MOST,
    require_choice,
    require_count,
    require_from_0,
    require_rising,
    require_share,
)
from bmdp.data import TransitionBatch, weighed
from bmdp.errors import ConfigError, DataError
from bmdp.kinds import checked
from bmdp.learn.fit import (
    Adder,
    Backward,
    Ensemble,
    Fit,
    Heads,
    Iterations,
    Keeper,
    NextValues,
    Record,
    Schedule,
    Trainer,
    fit_q,
    told_by_step,
)
from bmdp.learn.next_values import cost_tolerance, hull_values, priced_values
from bmdp.learn.passes import Passes
from bmdp.learn.rows import Log
from bmdp.learn.stream import Stream
from bmdp.models.kernel import KernelModel
from bmdp.models.networks import EncoderNet, FrontierNet
from bmdp.models.regressor import Regressor
from bmdp.policies.hull import HullPolicy, HullRule
from bmdp.policies.portfolio import Portfolio
from bmdp.policies.prices import MultiplierPolicy, PriceDial, PricedPolicy
from bmdp.workers import alone

OnRecord: TypeAlias = Callable[[Record], None]
Deadline: TypeAlias = Callable[[], bool]
Sums: TypeAlias = Callable[[Log, NextValues], Adder]
FitT = TypeVar("FitT", bound=Callable[..., Any])

_EXPONENTS = np.arange(-4, 5) / 2  # of 10, for prices that are not given
_MOST_STEPS = 100  # of an episode that is fitted backwards, unless that is asked for
_LEAST_ENDS = 0.1  # share of episodes that last to the longest step where there is a horizon


@checked
@dataclass(frozen=True, kw_only=True)
class BFTQConfig:
    """Settings of budgeted fitted Q-iteration.

    Args:
        gamma: discount of rewards, and of costs if these have none of their own.
        cost_gamma: discount of costs.
        budget_range: lowest and highest budget that the policy will take, in discounted cost.
        model: the regressor of (Q_r, Q_c).
        schedule: `Backward`, `Iterations`, or None: backwards if the episodes have a horizon, by
            iterations if not.
        ensemble: models that are fitted to different episodes, and check each other; 1 for the
            paper's. Each values what the mean of the others chooses (cross-fitting).
        pooled: whether one more model, fitted to all episodes, acts; if not, their mean does.
        caution: deviations over models by which rewards are lowered and costs raised, in place of
            cross-fitting. Below 0, what is unknown looks good.
        support: episodes that must have taken an action near a state for it to be played there
            (`bmdp.models.support`); at 0 every action is that the regressor knows.
        n_budgets: of the grid over the budget range.
        budgets: of a grid that is not even, rising; they take the place of range and number.
        slope_cap: most that a unit of cost is worth at the cheap end of a frontier, in mean slopes
            of the frontiers of the data; see `HullRule`. 0 for no cap, as in the paper.
        costs_from_zero: whether Q_c below 0 is raised to 0; if not given, where no cost is
            negative.
        cost_cap: Q_c above it is lowered to it, in discounted cost; if not given, it is not.

    Paper: the settings of Algorithm 2, and the tables of the appendix.

    >>> BFTQConfig(gamma=0.9, budget_range=(0.0, 2.0), n_budgets=5).beta_grid.tolist()
    [0.0, 0.5, 1.0, 1.5, 2.0]
    """

    gamma: float
    cost_gamma: float | None = None
    budget_range: tuple[float, float] = (0.0, 1.0)
    model: Regressor = field(default_factory=KernelModel)
    schedule: Schedule | None = None
    ensemble: int = 3
    pooled: bool = True
    caution: float = 0.0
    support: float = 0.0
    n_budgets: int = 21
    slope_cap: float = 10.0
    costs_from_zero: bool | None = None
    cost_cap: float | None = None
    budgets: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.budgets:
            for pair in zip(self.budgets, self.budgets[1:], strict=False):
                require_rising("budgets", pair)
            object.__setattr__(self, "budgets", tuple(map(float, self.budgets)))
            object.__setattr__(self, "budget_range", (self.budgets[0], self.budgets[-1]))
            object.__setattr__(self, "n_budgets", len(self.budgets))
        _check(self)
        require_count("n_budgets", self.n_budgets, 2)
        require_from_0("slope_cap", self.slope_cap)
        if 0 < self.slope_cap <= 1:
            raise ConfigError(f"slope_cap must be 0 or above 1; got {self.slope_cap}.")
        if self.cost_cap is not None and not self.budget_range[0] < self.cost_cap < np.inf:
            raise ConfigError(
                f"cost_cap must be finite and above the lowest budget, {self.budget_range[0]:g}, "
                f"or None; got {self.cost_cap}."
            )

    @property
    def beta_grid(self) -> FloatArray:
        """Budgets that can be handed on."""
        if self.budgets:
            return np.array(self.budgets)
        return np.linspace(*self.budget_range, self.n_budgets)


@checked
@dataclass(frozen=True, kw_only=True)
class FTQConfig:
    """Settings of fitted Q-iteration for one price of cost; those of `BFTQConfig`, and the price.

    Args:
        gamma: discount of rewards, and of costs if these have none of their own.
        price: lambda, of a unit of cost, in rewards.
        cost_gamma: discount of costs.
        budget_range: that the policy takes, to no effect.
        model: the regressor of (Q_r, Q_c).
        schedule: as in `BFTQConfig`.
        ensemble: as there.
        pooled: as there.
        caution: as there.
        support: as there.

    Paper: FTQ(lambda) of Section 5.

    >>> FTQConfig(gamma=0.9, price=20.0).budget_range
    (0.0, 1.0)
    """

    gamma: float
    price: float = 0.0
    cost_gamma: float | None = None
    budget_range: tuple[float, float] = (0.0, 1.0)
    model: Regressor = field(default_factory=KernelModel)
    schedule: Schedule | None = None
    ensemble: int = 3
    pooled: bool = True
    caution: float = 0.0
    support: float = 0.0

    def __post_init__(self) -> None:
        _check(self)
        _require_free_heads(self.model)
        if not 0 <= self.price < np.inf:
            raise ConfigError(f"price must be finite and from 0 on; got {self.price}.")


@checked
@dataclass(frozen=True, kw_only=True)
class LagrangianConfig:
    """Settings of fitted Q-iteration for many prices of cost at once.

    Args:
        gamma: discount of rewards, and of costs if these have none of their own.
        cost_gamma: discount of costs.
        budget_range: lowest and highest budget that the policy will take, in discounted cost.
        model: the regressor of (Q_r, Q_c).
        schedule: as in `BFTQConfig`.
        ensemble: as there.
        pooled: as there.
        caution: as there.
        support: as there.
        prices: of a unit of cost, in rewards; `inf` looks at costs first. If not given, 0, powers
            of 10 ** 0.5 around the largest reward over the largest cost, and `inf`.
        plays: "carried": a price chosen by what it costs from the state at the start, and kept;
            "mixture": a coin between two prices, tossed once per episode.

    Paper: the Lagrangian appendix.

    >>> LagrangianConfig(gamma=0.9, prices=(0, 100, float("inf"))).prices
    (inf, 100.0, 0.0)
    """

    gamma: float
    cost_gamma: float | None = None
    budget_range: tuple[float, float] = (0.0, 1.0)
    model: Regressor = field(default_factory=KernelModel)
    schedule: Schedule | None = None
    ensemble: int = 3
    pooled: bool = True
    caution: float = 0.0
    support: float = 0.0
    prices: tuple[float, ...] = ()
    plays: Literal["carried", "mixture"] = "carried"

    def __post_init__(self) -> None:
        _check(self)
        _require_free_heads(self.model)
        prices = tuple(sorted(map(float, self.prices), reverse=True))
        if not all(price >= 0 for price in prices) or len(set(prices)) < len(prices):
            raise ConfigError(f"prices must be different numbers from 0 on; got {self.prices}.")
        object.__setattr__(self, "prices", prices)
        require_choice("plays", self.plays, ("carried", "mixture"))


Learner: TypeAlias = BFTQConfig | FTQConfig | LagrangianConfig
LEARNERS = (BFTQConfig, FTQConfig, LagrangianConfig)


def _same_by_any_threads(fit: FitT) -> FitT:
    """Fits with one thread of torch whatever is fitted in closed form.

    Products of matrices are rounded as threads cut them, and a greedy step turns the last bit of a
    value into another action. Networks gain too much by threads: runs keep their number.
    """

    @wraps(fit)
    def fitted(self: Any, *args: Any, **how: Any) -> Any:
        is_network = isinstance(self.config.model, EncoderNet | FrontierNet)
        with nullcontext() if is_network else alone():
            return fit(self, *args, **how)

    return cast(FitT, fitted)


@checked
@dataclass(frozen=True)
class BFTQ:
    """Budgeted fitted Q-iteration: learns a policy for any budget from logged transitions.

    Paper: Algorithm 2.

    >>> from bmdp.models import TableModel
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> config = BFTQConfig(gamma=0.9, model=TableModel(), ensemble=1)
    >>> frontier = BFTQ(config).fit(log, seed=0).frontier([0])
    >>> frontier.costs.tolist(), frontier.rewards.tolist()
    ([0.0, 1.0], [0.0, 10.0])
    """

    config: BFTQConfig  # all settings

    @_same_by_any_threads
    def fit(  # noqa: PLR0913
        self,
        batch: TransitionBatch,
        *,
        seed: int,
        device: str = "auto",
        on_record: OnRecord = lambda record: None,
        keeper: Keeper | None = None,
        until: Deadline | None = None,
        log: Log | None = None,
        sums: Sums = Passes,
    ) -> HullPolicy:
        """Returns a policy that takes any budget of the range.

        Args:
            batch: transitions.
            seed: of all that is random.
            device: "cpu", "cuda", or "auto" for the GPU if there is one.
            on_record: called after every iteration with how it went.
            keeper: of what is needed to go on after a kill.
            until: a deadline for iterations; see `fit_q`.
            log: all transitions, in chunks, of which the batch is a sample (`bmdp.data.StoredLog`).
            sums: makes what adds up sums over the log: in this process, if not given.
        """
        config, grid = self.config, self.config.beta_grid
        from_zero = config.costs_from_zero
        if from_zero is None:
            least = _checked(batch).cost.min() if log is None else log.least_cost
            from_zero = bool(least >= 0)
        ends: dict[str, Any] = {"costs_from_zero": from_zero, "cost_cap": config.cost_cap}
        values = hull_values(config.slope_cap, **ends, caution=config.caution)
        heads = Heads(grid, True)
        fit = _fitted(
            config, batch, heads, values, seed, device, on_record, keeper, until, log, sums
        )
        return HullPolicy(fit.q_function(), grid, _rule(fit, config.slope_cap, **ends))


@checked
@dataclass(frozen=True)
class FTQ:
    """Fitted Q-iteration for one price of cost: learns a policy without a dial.

    Paper: FTQ(lambda) of Section 5 and the Lagrangian appendix.

    >>> from bmdp.models import TableModel
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> for price in (0.0, 20.0):
    ...     config = FTQConfig(gamma=0.9, price=price, model=TableModel(), ensemble=1)
    ...     print(FTQ(config).fit(log, seed=0).act([0], 0.5, np.random.default_rng(0)).action)
    1
    0
    """

    config: FTQConfig  # all settings

    @_same_by_any_threads
    def fit(  # noqa: PLR0913
        self,
        batch: TransitionBatch,
        *,
        seed: int,
        device: str = "auto",
        on_record: OnRecord = lambda record: None,
        keeper: Keeper | None = None,
        until: Deadline | None = None,
        log: Log | None = None,
        sums: Sums = Passes,
    ) -> PricedPolicy:
        """Returns the greedy policy of the price; arguments as for `BFTQ.fit`."""
        config, heads = self.config, Heads(np.zeros(1), False)
        at = priced_terms(config, batch, log)
        values = priced_values(np.array([config.price]), caution=config.caution, growth=at.growth)
        how: Any = (seed, device, on_record, keeper, until, at.log, sums)
        fit = _fitted(at.config, at.batch, heads, values, *how)
        budgets = config.budget_range
        return PricedPolicy(fit.q_function(), config.price, *budgets, growth=at.growth)


@checked
@dataclass(frozen=True)
class LagrangianFTQ:
    """Fitted Q-iteration for many prices of cost at once: plays within any budget.

    Paper: the Lagrangian appendix.

    >>> from bmdp.models import TableModel
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> config = LagrangianConfig(gamma=0.9, prices=(0, 100), model=TableModel(), ensemble=1)
    >>> policy = LagrangianFTQ(config).fit(log, seed=0)
    >>> policy.frontier([0]).costs.tolist(), float(policy.frontier([0]).reward_at(0.25))
    ([0.0, 1.0], 2.5)
    """

    config: LagrangianConfig  # all settings

    @_same_by_any_threads
    def fit(  # noqa: PLR0913
        self,
        batch: TransitionBatch,
        *,
        seed: int,
        device: str = "auto",
        on_record: OnRecord = lambda record: None,
        keeper: Keeper | None = None,
        until: Deadline | None = None,
        log: Log | None = None,
        sums: Sums = Passes,
    ) -> MultiplierPolicy | Portfolio:
        """Returns the policy that `plays` asks for; arguments as for `BFTQ.fit`."""
        config, prices = self.config, _prices(self.config, _checked(batch))
        at = priced_terms(config, batch, log)
        heads = Heads(np.arange(len(prices), dtype=np.float64), False)
        values = priced_values(prices, caution=config.caution, growth=at.growth)
        how: Any = (seed, device, on_record, keeper, until, at.log, sums)
        fit = _fitted(at.config, at.batch, heads, values, *how)
        tolerance = cost_tolerance(fit.acting_at_sample(0)) * fit.units[1]
        dial = PriceDial(fit.q_function(), prices, tolerance, growth=at.growth)
        if config.plays == "carried":
            return MultiplierPolicy(dial, *config.budget_range)
        return portfolio_of(dial, batch)


def portfolio_of(dial: PriceDial, batch: TransitionBatch) -> Portfolio:
    """Returns a coin between prices, by what they are thought to cost at the first states."""
    starts = batch.starts()
    rows = (starts if len(starts) else np.arange(len(batch)))[:1000]
    points = dial.at_step(0).points(batch.state[rows], rows_at(batch.available, rows))
    costs, rewards = (
        np.asarray(m.mean(axis=0), np.float64) for m in (points.costs, points.rewards)
    )
    numbers = np.arange(len(dial.prices))
    return Portfolio((dial,), np.zeros_like(numbers), numbers.astype(np.float64), costs, rewards)


class PricedTerms(NamedTuple):
    """Terms of learning prices: their growth, or rewards as they count at the start."""

    config: Any
    batch: TransitionBatch
    log: Log | None
    growth: float  # of prices with each step


def priced_terms(
    config: FTQConfig | LagrangianConfig, batch: TransitionBatch, log: Log | None = None
) -> PricedTerms:
    """Returns how prices are learned where costs have a discount of their own.

    From the start, step t weighs rewards by gamma^t and costs by cost_gamma^t, so a price that is
    carried is price * (cost_gamma / gamma)^t at step t. Models of steps have that price. One model
    for all steps must be shown the step; rewards are weighed instead, and both then have the
    discount of costs.

    Raises:
        ConfigError: if a discount is 0 and the other is not.
        DataError: if nothing tells the step.
    """
    gamma, cost_gamma = config.gamma, config.cost_gamma
    if cost_gamma is None or cost_gamma == gamma:
        return PricedTerms(config, batch, log, 1.0)
    if min(gamma, cost_gamma) <= 0:
        raise ConfigError(
            f"gamma and cost_gamma must be above 0 where they differ; got {gamma:g} and "
            f"{cost_gamma:g}."
        )
    if isinstance(schedule_of(config, _checked(batch)), Backward):
        return PricedTerms(config, batch, log, cost_gamma / gamma)
    if batch.step is None or not _shows_step(batch):
        raise DataError(
            f"prices with two discounts ({gamma:g} of rewards, {cost_gamma:g} of costs) need the "
            "step: give step and schedule=Backward(), or states that hold it."
        )
    one = replace(config, gamma=cost_gamma, cost_gamma=None, schedule=schedule_of(config, batch))
    chunks = None if log is None else _Weighed(log, gamma, cost_gamma)
    return PricedTerms(one, weighed(batch, gamma, cost_gamma), chunks, 1.0)


def _shows_step(batch: TransitionBatch) -> bool:
    """Whether states hold numbers that the step determines, and that tell every step."""
    assert batch.step is not None
    steps, rows = np.unique(batch.step, return_index=True)
    told = told_by_step(batch.state, batch.step)
    return len(np.unique(batch.state[rows][:, told], axis=0)) == len(steps)


@dataclass(frozen=True)
class _Weighed:
    """A log in chunks whose rewards are those that count at the start of an episode."""

    source: Log
    gamma: float
    cost_gamma: float

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # such as those that pickling asks for
            raise AttributeError(name)
        return getattr(self.source, name)

    def __len__(self) -> int:
        return len(self.source)

    def chunk(self, number: int) -> TransitionBatch:
        """Returns the transitions of a chunk."""
        return weighed(self.source.chunk(number), self.gamma, self.cost_gamma)


def learner_of(config: Learner) -> BFTQ | FTQ | LagrangianFTQ:
    """The learner that settings are of."""
    if isinstance(config, LagrangianConfig):
        return LagrangianFTQ(config)
    return BFTQ(config) if isinstance(config, BFTQConfig) else FTQ(config)


def of_kind(learner: Learner, kind: type[Learner]) -> Learner:
    """Returns settings of another kind, which keep what was set of those that both have.

    >>> budgeted = BFTQConfig(gamma=0.9, budget_range=(0.0, 2.0), ensemble=5, n_budgets=5)
    >>> priced = of_kind(budgeted, LagrangianConfig)
    >>> priced == LagrangianConfig(gamma=0.9, budget_range=(0.0, 2.0), ensemble=5)
    True
    """
    both = {f.name for f in fields(learner)} & {f.name for f in fields(kind)}
    return kind(**{name: getattr(learner, name) for name in both})


def schedule_of(config: Learner, batch: TransitionBatch) -> Schedule:
    """Returns the schedule of the settings, or the one that the episodes ask for.

    Backwards, if they have a horizon: all rows of the longest step are terminal, and a tenth of the
    episodes last that long.
    """
    if config.schedule is not None:
        return config.schedule
    if batch.step is None or batch.step.max() >= _MOST_STEPS:
        return Iterations()
    is_last = batch.step == batch.step.max()
    n_episodes = np.count_nonzero(batch.step == 0)
    has_horizon = batch.terminal[is_last].all() and is_last.sum() >= _LEAST_ENDS * n_episodes
    n_models = config.ensemble
    return Backward() if has_horizon and is_last.sum() >= 20 * n_models else Iterations()


def _fitted(  # noqa: PLR0913
    config: Learner,
    batch: TransitionBatch,
    heads: Heads,
    values: NextValues,
    seed: int,
    device: str,
    on_record: OnRecord,
    keeper: Keeper | None,
    until: Deadline | None,
    log: Log | None,
    sums: Sums,
) -> Fit:
    """Runs all iterations, and returns what was learned."""
    schedule = schedule_of(config, _checked(batch))
    ensemble = Ensemble(config.ensemble, config.pooled and config.caution == 0, config.caution)
    discounts = config.gamma, config.gamma if config.cost_gamma is None else config.cost_gamma
    iterations = fit_q(
        batch,
        config.model,
        values,
        heads=heads,
        gammas=discounts,
        schedule=schedule,
        ensemble=ensemble,
        seed=seed,
        device=device,
        support=config.support,
        keeper=keeper,
        until=until,
        log=log,
        adder=None if log is None else _adder(config.model, sums)(log, values),
    )
    fit: Fit
    for iteration in iterations:
        fit = iteration.fit
        if iteration.record is not None:
            on_record(iteration.record)
    return fit


def _adder(model: Regressor, sums: Sums) -> Callable[[Log, NextValues], Adder | Trainer]:
    """Makes what fits a model to a log: sums, or mini-batches for networks."""
    return Stream if isinstance(model, EncoderNet | FrontierNet) else sums


def _rule(fit: Fit, cap: float, *, costs_from_zero: bool, cost_cap: float | None) -> HullRule:
    """The rule of the policy at each step, in the units of the data."""
    rules, most = [], None if cost_cap is None else cost_cap / fit.units[1]
    for step in range(fit.n_steps):
        q_r, q_c = fit.at_states(step).unbind(1)
        rules.append(HullRule.of(q_r, q_c, cap, costs_from_zero=costs_from_zero, cost_cap=most))
    slope, slack = (
        np.concatenate([getattr(r, name) for r in rules]) for name in ("slope", "slack")
    )
    return HullRule(costs_from_zero, slope, slack, most).scaled(*fit.units)


def _prices(config: LagrangianConfig, batch: TransitionBatch) -> FloatArray:
    """Those of the settings, or powers of 10 around the largest reward over the largest cost."""
    if config.prices:
        return np.array(config.prices)
    ratio = float(np.abs(batch.reward).max() or 1.0) / float(np.abs(batch.cost).max() or 1.0)
    return np.array([np.inf, *(ratio * 10.0**-_EXPONENTS), 0.0])


def _check(config: Any) -> None:
    """Checks the settings that all learners have."""
    require_share("gamma", config.gamma)
    if config.cost_gamma is not None:
        require_share("cost_gamma", config.cost_gamma)
    require_rising("budget_range", config.budget_range)
    object.__setattr__(config, "budget_range", tuple(map(float, config.budget_range)))
    if not hasattr(config.model, "empty"):
        raise ConfigError(f"model must be a regressor; got {config.model!r}.")
    if not isinstance(config.schedule, Iterations | Backward | None):
        raise ConfigError(
            f"schedule must be Iterations, Backward or None; got {config.schedule!r}."
        )
    require_count("ensemble", config.ensemble, 1)
    require_from_0("support", config.support, MOST)
    if not np.isfinite(config.caution):
        raise ConfigError(f"caution must be finite; got {config.caution}.")


def _require_free_heads(model: Any) -> None:
    """Checks that a regressor does not take its heads for budgets."""
    if getattr(model, "needs_budgets", False):
        raise ConfigError(
            f"model must not take its heads for budgets where they are prices; got "
            f"{type(model).__name__}. Use KernelModel, or FrontierNet(structure='free')."
        )


def _checked(batch: Any) -> TransitionBatch:
    if not isinstance(batch, TransitionBatch):
        raise DataError(f"batch must be a TransitionBatch; got {type(batch).__name__}.")
    return batch
