"""Candidates of `bmdp.fit`: regressors and dials that are tried on the same transitions.

A *recipe* says how a dial is learned. A *dial* is what came of it: a policy, and *members* of it,
each the policy at one inner budget: a price of cost, or a budget of BFTQ. What members cost and
earn from the start of an episode is found by evidence (`bmdp.learn.evidence`), and a budget is then
spent by a coin between two neighbours.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import BoolArray, FloatArray, rows_at
from bmdp.data import TransitionBatch
from bmdp.learn.fit import Backward, Iterations, Record
from bmdp.learn.learners import BFTQ, BFTQConfig, LagrangianConfig, LagrangianFTQ, Sums
from bmdp.learn.natures import MOST_STEPS, Nature, first_prices, refined_prices, some_episodes
from bmdp.learn.rows import Log
from bmdp.models.forest import ForestModel
from bmdp.models.kernel import KernelModel
from bmdp.models.networks import FrontierNet, Regression
from bmdp.models.regressor import LearnedQ, MeanQ, Regressor
from bmdp.models.table import TableModel
from bmdp.policies.hull import HullPolicy
from bmdp.policies.prices import PriceDial
from bmdp.randomness import named_generator

N_MEMBERS = 20
"""Members of a dial."""

NETWORK = FrontierNet(structure="free", regression=Regression(steps=400, batch_size=1024))
"""The network that is tried on a GPU."""

_MANY_NUMBERS = 50  # of a state, from which on networks are tried
_N_FIRST = 13  # prices that are tried at first, over six powers of 10
_MOST_ROWS = 5_000  # that place prices
_SAFE = 10.0  # times the highest price that makes a difference
_N_BUDGETS = 9  # of an even grid that is joined to where members lie
_N_STARTS = 1000  # first states at which members are asked


@dataclass(frozen=True)
class Recipe:
    """A regressor, and what is learned with it."""

    name: str
    model: Regressor
    dial: Literal["prices", "budgets"] = "prices"
    ensemble: int = 1  # models that check each other
    caution: float = 0.0  # deviations over models, in place of cross-fitting


@dataclass(frozen=True, eq=False)
class Dial:
    """A policy that was learned, and its members."""

    recipe: Recipe
    policy: PriceDial | HullPolicy
    members: FloatArray  # [M], inner budgets, from the cheapest member to the dearest
    seconds: float  # that it took
    has_settled: bool  # whether its values have

    @property
    def slopes(self) -> FloatArray:
        """Rewards that a unit of cost is worth between neighbours, `[M - 1]`, as prices say."""
        if not isinstance(self.policy, PriceDial):
            return np.ones(len(self.members) - 1)
        high = self.policy.prices[:-1]
        slopes: FloatArray = np.sqrt(high * np.maximum(self.policy.prices[1:], high / 4))
        return slopes


@dataclass(frozen=True)
class Lesson:
    """Transitions to learn from, and what is known of them."""

    batch: TransitionBatch
    nature: Nature
    gamma: float
    seed: int
    device: str = "auto"
    support: float = 0.0  # episodes that make an action known
    cost_gamma: float | None = None  # discount of costs, if it is another one

    def generator(self, name: str) -> np.random.Generator:
        """Random numbers for a purpose."""
        return named_generator(self.seed, name)

    def starts(self) -> tuple[NDArray[Any], BoolArray | None]:
        """First states of some episodes, and the actions that are available there, if not all."""
        rows = self.batch.starts()[:_N_STARTS]
        return self.batch.state[rows], rows_at(self.batch.available, rows)


def recipes(
    nature: Nature, n_numbers: int, *, practises: bool = False, on_gpu: bool = False
) -> tuple[Recipe, ...]:
    """Returns the regressors to try with prices, the quick ones first.

    Args:
        nature: of the data.
        n_numbers: of a state.
        practises: whether the best one will practise in a simulator. Where values are iterated,
            practice is better than any of them, and begins with the quickest.
        on_gpu: whether there is a GPU, on which networks are tried for states of many numbers.
    """
    forest, kernel = Recipe("forest", ForestModel()), Recipe("kernel", KernelModel())
    if nature.n_states is not None:
        table = Recipe("table", TableModel())
        # A table of many steps is small, and so many forests are not.
        is_long = isinstance(nature.schedule, Backward) and (nature.n_steps or 0) > MOST_STEPS
        return (table,) if n_numbers == 1 or is_long else (table, forest, kernel)
    network = (Recipe("network", NETWORK),) if on_gpu and n_numbers >= _MANY_NUMBERS else ()
    if practises and isinstance(nature.schedule, Iterations):
        return (forest, *network)
    regrown: tuple[Recipe, ...] = ()
    if isinstance(nature.schedule, Backward):  # iterations would have half of the time each
        regrown = (Recipe("regrown forest", ForestModel(regrown=True)),)
    cautious = Recipe("cautious kernels", KernelModel(100), ensemble=5, caution=0.5)
    return (forest, kernel, *regrown, cautious, *network)


def budgeted(recipe: Recipe, costs: FloatArray) -> tuple[Recipe, FloatArray]:
    """Returns the paper's dial with the regressor of another, and its budgets.

    Budgets lie where members of the other one lie, which is where its frontier bends, and between
    those that are far apart.
    """
    low, high = min(0.0, float(costs[0])), float(costs[-1])
    high = high if high > low else low + 1.0
    grid = np.union1d(np.append(costs, low), np.linspace(low, high, _N_BUDGETS))
    far = np.append(True, np.diff(grid) > 1e-3 * (high - low))
    named = replace(recipe, name=f"{recipe.name}, BFTQ", dial="budgets")
    return named, grid[far & (grid <= high)]


def quick_recipe(nature: Nature) -> Recipe:
    """The recipe of explorers, and of the prices that are worth trying."""
    if nature.n_states is not None:
        return Recipe("table", TableModel())
    return Recipe("quick forest", ForestModel(trees=10, leaf=10))


@dataclass(frozen=True, eq=False)
class AllRows:
    """All rows of a large log, and what adds up sums over them."""

    log: Log
    sums: Sums


def learned(
    recipe: Recipe,
    lesson: Lesson,
    inner: FloatArray,
    seconds: float = np.inf,
    rows: AllRows | None = None,
) -> Dial:
    """Returns the dial of a recipe.

    Args:
        recipe: what is learned.
        lesson: from which transitions.
        inner: prices, falling; or budgets, rising.
        seconds: after which iterations end, whether values have settled or not.
        rows: to learn from, of which the lesson is a sample; the lesson, if not given.
    """
    begin = time.perf_counter()
    nature = lesson.nature
    batch = nature.shown(lesson.batch)
    how: dict[str, Any] = {
        "gamma": lesson.gamma,
        "cost_gamma": lesson.cost_gamma,
        "model": recipe.model,
        "schedule": nature.schedule,
        "ensemble": recipe.ensemble,
        "caution": recipe.caution,
        "support": lesson.support,
    }
    fit: dict[str, Any] = {"seed": lesson.seed, "device": lesson.device}
    if rows is not None:
        fit |= {"log": rows.log, "sums": rows.sums}
    records: list[Record] = []
    fit["on_record"] = records.append
    if np.isfinite(seconds):
        fit["until"] = lambda: time.perf_counter() - begin > seconds
    policy: PriceDial | HullPolicy
    members: FloatArray
    if recipe.dial == "prices":
        priced = LagrangianFTQ(LagrangianConfig(prices=tuple(inner), **how)).fit(batch, **fit)
        policy = priced.dial  # type: ignore[union-attr]
        members = np.arange(len(inner), dtype=np.float64)
    else:
        config = BFTQConfig(budgets=tuple(inner), **how)
        policy = BFTQ(config).fit(batch, **fit)
        members = inner
    settled = records[-1].has_settled is not False
    return Dial(recipe, policy, members, time.perf_counter() - begin, settled)


def averaged(one: Dial, other: Dial) -> Dial:
    """Returns the dial of the mean of two others, of the same prices."""
    assert isinstance(one.policy, PriceDial)
    assert isinstance(other.policy, PriceDial)
    parts: Any = tuple(dial.policy.q_function for dial in (one, other))
    tolerance = (one.policy.tolerance + other.policy.tolerance) / 2
    policy = replace(one.policy, q_function=MeanQ(parts), tolerance=tolerance)
    recipe = replace(one.recipe, name=f"{one.recipe.name} + {other.recipe.name}")
    return Dial(recipe, policy, one.members, 0.0, one.has_settled and other.has_settled)


def placed_prices(lesson: Lesson, n: int = N_MEMBERS, seconds: float = np.inf) -> FloatArray:
    """Returns prices where they make a difference, by a quick look at some of the episodes.

    The first one is higher by far than what that look found worth saving: it may have been wrong.
    """
    prices = first_prices(lesson.batch, lesson.gamma, _N_FIRST, lesson.cost_gamma)
    if len(prices) == 1:
        return prices
    if lesson.nature.n_states is None:
        rng = lesson.generator("auto/prices")
        lesson = replace(lesson, batch=some_episodes(lesson.batch, _MOST_ROWS, rng))
    for _ in range(2):
        dial = learned(quick_recipe(lesson.nature), lesson, prices, seconds / 2)
        prices = refined_prices(prices, promised(dial, lesson)[:, 0], n)
    return np.append(_SAFE * prices[0], prices)


def with_highest(prices: FloatArray, lesson: Lesson) -> FloatArray:
    """Returns prices, and above them one at which nothing but cost matters, and one between.

    A quick look may be wrong by far about what is worth saving.
    """
    highest = first_prices(lesson.batch, lesson.gamma, _N_FIRST, lesson.cost_gamma)[0]
    if highest <= _SAFE * prices[0]:
        return prices
    return np.concatenate(([highest, np.sqrt(highest * prices[0])], prices))


def promised(dial: Dial, lesson: Lesson) -> FloatArray:
    """Costs and rewards `[M, 2]` that members promise themselves at the first states."""
    first, masks = lesson.starts()
    states = lesson.nature.shown_states(first, 0)
    now = dial.policy.at_step(0)
    if isinstance(now, PriceDial):
        points = now.points(states, masks)
        return np.column_stack((points.costs.mean(axis=0), points.rewards.mean(axis=0)))
    found = np.zeros((len(dial.members), 2))
    for member, budget in enumerate(dial.members):
        mixtures = now.mixtures(states, np.full(len(states), budget), masks)
        found[member] = mixtures.cost.mean(), mixtures.reward.mean()
    return found


def played(dial: Dial, nature: Nature) -> PriceDial | HullPolicy:
    """Returns the policy as it is played: it counts the steps that it was shown."""
    q: Any = dial.policy.q_function
    if nature.clock == 0:
        return dial.policy
    if isinstance(q, MeanQ):
        q = MeanQ(tuple(replace(part, clock=nature.clock) for part in q.parts))
    elif isinstance(q, LearnedQ):
        q = replace(q, clock=nature.clock)
    return replace(dial.policy, q_function=q)
