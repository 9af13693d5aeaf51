"""Fitted evaluation: what a given policy earns and pays, told from logged episodes alone.

What a learner promises is optimistic: its policy does what its models think best, and so finds
their errors. Here the policy is given. Another model is fitted to episodes that had no part in
choosing it, and nothing is maximised on the way:

    Q(s, a, beta_a)  <-  r + gamma * sum of pi(a', beta' | s', beta_a) Q(s', a', beta')

over (a', beta'), for rewards and for costs, at a grid of budgets beta_a (`policy_values` in the
loop of `bmdp.learn.fit`). Budgets between those of the grid are interpolated. The result is the
mean over the first states of the episodes.

A policy that counts steps is evaluated backwards. It may look at numbers of the state that the step
determines: it is shown those of the step at which it is evaluated.

What the policy does must occur in the episodes now and then: an action that they do not hold is
worth what the model makes of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray, freeze_columns, real_array, rows_at
from bmdp.checks import require_count, require_share
from bmdp.data import TransitionBatch
from bmdp.data.encoder import without_encoder
from bmdp.errors import BudgetError, ConfigError, DataError, PolicyError
from bmdp.kinds import checked
from bmdp.learn.fit import (
    Backward,
    Ensemble,
    Fit,
    Heads,
    Iterations,
    Schedule,
    iterated,
    told_by_step,
    torch_device,
)
from bmdp.learn.learners import BFTQConfig, Learner
from bmdp.learn.next_values import as_it_is, beyond, expected, places_of, policy_values
from bmdp.models.kernel import KernelModel
from bmdp.models.networks import EncoderNet, FrontierNet
from bmdp.models.regressor import Regressor
from bmdp.policies.policy import Options, SteppedPolicy, admitted_budgets
from bmdp.policies.portfolio import Portfolio
from bmdp.policies.prices import MultiplierPolicy, PriceDial
from bmdp.randomness import named_generator

SMOOTH = KernelModel(ridges=(1e-2, 1e-1, 1.0, 10.0))
"""A kernel model without its smallest ridges: with these, bumps may say anything where the policy
does what is rare in the data."""

N_PREDICTED = 11  # budgets of a prediction, from end to end of the range
_UNTIL_SETTLED = Iterations(50, settled=1e-5)
_MOST_STEPS = 50  # of an episode that is evaluated backwards although it was learned by iterations


@checked
@dataclass(frozen=True, eq=False)
class Prediction:
    """Expected reward and cost of a policy at each of `M` budgets, from the first states.

    >>> log = {"n_episodes": 20, "n_transitions": 90}
    >>> found = Prediction([0.0, 1.0], reward=[0.0, 10.0], cost=[0.1, 0.9], **log)
    >>> (found.cost - found.budgets).round(3).tolist()  # more than is asked for, then less
    [0.1, -0.1]
    """

    budgets: FloatArray  # [M], asked
    reward: FloatArray  # [M], discounted
    cost: FloatArray  # [M], discounted
    n_episodes: int  # whose first states these are
    n_transitions: int  # that it was learned from

    def __post_init__(self) -> None:
        """Checks shapes, and makes arrays read-only."""
        freeze_columns(self, "[M]")


@checked
def fitted_evaluation(  # noqa: PLR0913
    policy: SteppedPolicy,
    batch: TransitionBatch,
    *,
    gamma: float,
    cost_gamma: float | None = None,
    budgets: ArrayLike,
    model: Regressor | None = None,
    seed: int,
    device: str = "auto",
    n_budgets: int = 41,
    schedule: Schedule | None = None,
) -> Prediction:
    """Estimates rewards and costs of a policy from logged transitions (off-policy evaluation).

    Args:
        policy: one whose probabilities are known: what a learner returned, or a `HullPolicy`.
        batch: transitions that had no part in choosing the policy, of whole episodes.
        gamma: discount of rewards, and of costs if these have none of their own.
        cost_gamma: discount of costs.
        budgets: `[M]`, in expected discounted cost; above `policy.budget_range` they
            are taken as its top.
        model: the regressor of (Q_r, Q_c); a kernel, if not given.
        seed: of all that is random.
        device: "cpu", "cuda", or "auto" for the GPU if there is one.
        n_budgets: of the grid. Nothing is interpolated if it is the policy's own, or part of it.
        schedule: `Backward`, or `Iterations` until values settle, which is wrong where time is
            hidden and has an end. If not given, backwards for a policy that counts steps.

    Raises:
        PolicyError: if it is not known with which probabilities the policy acts, or it plays
            actions that the batch does not have.
        DataError: if steps are needed and not known, or no episode begins in the batch.
        BudgetError: if the policy does not take a budget.
        ConfigError: if a setting is out of range.

    Paper: Eq. 6, the operator T^pi, estimated as T is in Section 3.1.

    >>> from bmdp.models import TableModel
    >>> from bmdp.policies import HullPolicy, TabularQ
    >>> hopeful = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [0.5, 0.5]]])
    >>> policy = HullPolicy(lambda states: hopeful(states[:, 0].astype(int)), [0.0, 1.0])
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True], episode=[0, 1])
    >>> asked = {"gamma": 0.9, "budgets": [0.25], "model": TableModel(), "seed": 0}
    >>> found = fitted_evaluation(policy, log, **asked)
    >>> found.reward.tolist(), found.cost.tolist()  # the risk costs 1, and not 0.5
    ([5.0], [0.5])
    """
    policy = without_encoder(policy)
    if not hasattr(policy, "at_step"):
        raise PolicyError(
            "fitted_evaluation needs a policy with a one-step form at each step; "
            f"{type(policy).__name__} has none."
        )
    discounts = gamma, gamma if cost_gamma is None else cost_gamma
    for name, discount in zip(("gamma", "cost_gamma"), discounts, strict=True):
        require_share(name, discount)
    asked = np.atleast_1d(real_array("budgets", budgets))
    asked = admitted_budgets(asked, len(asked), policy.budget_range)
    if len(asked) == 0:
        raise BudgetError("budgets must hold at least one; got none.")
    starts = first_rows(batch)
    terms = Terms(model, grid_of(policy, n_budgets), discounts, seed, device, schedule)
    evaluated = evaluate_policy(policy, batch, terms)
    within = np.minimum(asked, policy.budget_range[1])
    masks = rows_at(batch.available, starts)
    found = evaluated.worth(batch.state[starts], within, masks).mean(axis=0)
    return Prediction(asked, found[:, 0], found[:, 1], len(starts), len(batch))


def grid_of(policy: SteppedPolicy, n_budgets: int) -> FloatArray:
    """An even grid of budgets over the range of a policy; of prices, their numbers."""
    require_count("n_budgets", n_budgets, 2)
    if isinstance(policy, PriceDial):
        return np.arange(len(policy.prices), dtype=np.float64)
    low, high = policy.budget_range
    return np.linspace(low, high if high > low else low + 1, n_budgets)


class Terms(NamedTuple):
    """Settings of a fitted evaluation."""

    model: Regressor | None  # a kernel, if not given
    heads: FloatArray  # [H], budgets of the grid, or numbers of prices
    discounts: tuple[float, float]  # of rewards and of costs
    seed: int
    device: str
    schedule: Schedule | None
    seconds: float = np.inf  # after which iterations end, whether values have settled or not
    support: float = 0.0  # episodes that make an action known
    outside: tuple[float, float] | None = None  # reward and cost of what is not known


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The values of a policy, as a model has learned them."""

    policy: SteppedPolicy
    terms: Terms
    fit: Fit

    def worth(
        self, states: NDArray[Any], budgets: FloatArray, available: BoolArray | None = None
    ) -> FloatArray:
        """Rewards and costs `[N, M, 2]` of the policy from first states at budgets `[M]`."""
        masks = () if available is None else (available,)
        options = self.policy.at_step(0).options_at(states, budgets, *masks)
        return self.of_options(states, 0, options, available)

    def at(
        self,
        states: NDArray[Any],
        step: int,
        options: Options,
        available: BoolArray | None = None,
    ) -> FloatArray:
        """Expected rewards and costs `[N, 2]` of options at states that are met at a step."""
        action, next_budget, probability = options  # of one budget each
        one = Options(action[:, None], next_budget[:, None], probability[:, None])
        return self.of_options(states, step, one, available)[:, 0]

    def known(self, states: NDArray[Any], available: BoolArray | None = None) -> BoolArray:
        """Actions that the data know at states, `[N, A]`."""
        found: BoolArray = (
            self.fit.known(states, self.fit.embedded(states), available).cpu().numpy()
        )
        return found

    def probabilities(self, states: NDArray[Any]) -> FloatArray:
        """Probabilities `[N, A]` with which the data take actions at states."""
        assert self.fit.support is not None
        return self.fit.support.probabilities(np.asarray(states, np.float64)[:, self.fit.columns])

    def of_options(
        self,
        states: NDArray[Any],
        step: int,
        options: Options,
        available: BoolArray | None = None,
    ) -> FloatArray:
        """Expected rewards and costs `[N, M, 2]` of options `[N, M, J]` at states, at a step."""
        fit, terms = self.fit, self.terms
        embedded = fit.embedded(states)
        values = fit.q.read(embedded, min(step, fit.n_steps - 1))[0]
        known = fit.known(states, embedded, available)
        values = beyond(values, known, terms.outside, fit.units)
        places = places_of(options, terms.heads, fit.batch.n_actions)
        found = expected(values.cpu().numpy(), places)
        worth: FloatArray = np.moveaxis(found, 1, 2) * np.array(fit.units)
        return worth


def evaluate_policy(
    policy: SteppedPolicy, batch: TransitionBatch, terms: Terms, fit: Fit | None = None
) -> Evaluated:
    """Fits the values of a policy; see `fitted_evaluation`.

    Args:
        policy: that is evaluated.
        batch: transitions.
        terms: settings.
        fit: of an evaluation of another policy by the same transitions and terms, whose structure
            is taken over, and whose values are overwritten.
    """
    if isinstance(terms.model, EncoderNet):
        raise ConfigError("model must have values on all heads: not an EncoderNet.")
    schedule = terms.schedule
    if schedule is None:
        counts_steps = getattr(policy, "n_steps", 2) > 1
        schedule = Backward() if counts_steps else _UNTIL_SETTLED
    shown = _Clock(batch) if isinstance(schedule, Backward) else as_it_is
    begin = time.perf_counter()
    if fit is None:
        fit = Fit(
            batch,
            SMOOTH if terms.model is None else terms.model,
            Heads(terms.heads, False),
            terms.discounts,
            schedule,
            Ensemble(),
            terms.seed,
            torch_device(terms.device),
            bounded=True,
            support=terms.support,
        )
    values = policy_values(policy, terms.heads, batch.n_actions, shown, terms.outside)
    *_, last = iterated(fit, values, until=lambda: time.perf_counter() - begin > terms.seconds)
    return Evaluated(policy, terms, last.fit)


class _Clock:
    """Shows states with those numbers that the step determines as they are at a step."""

    def __init__(self, batch: TransitionBatch) -> None:
        if batch.step is None:
            raise DataError(
                "fitted_evaluation needs a batch with steps, backwards or for a policy that counts "
                "them; this one has none."
            )
        self._batch, self._steps = batch, batch.step
        self._told = told_by_step(batch.state, batch.step)

    def __call__(self, step: int, states: NDArray[Any]) -> NDArray[Any]:
        rows = np.flatnonzero(self._steps == step)
        if not self._told.any() or len(rows) == 0:
            return states
        return np.where(self._told, self._batch.state[rows[0]], states)


def first_rows(batch: TransitionBatch) -> IntArray:
    """Returns the rows at which episodes begin, which is where a prediction is made.

    Raises:
        DataError: if there are none, or nothing says where they are.
    """
    if batch.episode is None and batch.step is None:
        raise DataError("a prediction is made where episodes begin: give episode or step.")
    starts = batch.starts()
    if len(starts) == 0:
        raise DataError("a prediction is made where episodes begin; no row has step 0.")
    return starts


class Parts(NamedTuple):
    """The episodes of a round: some to learn from, and some held out, if any."""

    learned: TransitionBatch
    held_out: TransitionBatch | None


def split_episodes(batch: TransitionBatch, share: float, *, seed: int, number: int) -> Parts:
    """Draws episodes of a round to be held out: a share of them, but neither none nor all.

    They are drawn for each round by itself, so that a run that is resumed holds out the same ones.

    Args:
        batch: the transitions of the round.
        share: of episodes; with 0 nothing is held out.
        seed: of the run.
        number: of the round.

    Raises:
        DataError: if episodes are unknown, there is one only, or none of those drawn has a
            beginning.
    """
    if share == 0:
        return Parts(batch, None)
    if batch.episode is None:
        raise DataError("held_out needs a batch with episodes, to hold out whole ones.")
    episodes = np.unique(batch.episode)
    if len(episodes) < 2:
        raise DataError("held_out needs at least 2 episodes, to hold out one of them; got 1.")
    n_held_out = min(max(round(share * len(episodes)), 1), len(episodes) - 1)
    drawn = named_generator(seed, f"held-out/{number}").permutation(episodes)[:n_held_out]
    is_held_out = np.isin(batch.episode, drawn)
    held_out = batch.take(is_held_out)
    first_rows(held_out)  # checks that there are any
    return Parts(batch.take(~is_held_out), held_out)


@dataclass(frozen=True)
class PredictionRecord:
    """Expected reward and cost of a round's policy, by held-out episodes."""

    kind: ClassVar[str] = "prediction"

    round: int
    budgets: tuple[float, ...]
    reward: tuple[float, ...]
    cost: tuple[float, ...]
    n_episodes: int
    n_transitions: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """The fields by name, for a file."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Episodes that a learner never sees, and what they say of the policy that it learned.

    Args:
        batch: the transitions.
        learner: what learned the policy, for discounts, grid, schedule and, unless it is a network,
            the model.
        seed: of the run.
        device: of the model.
    """

    batch: TransitionBatch
    learner: Learner
    seed: int
    device: str

    @classmethod
    def of(cls, parts: Sequence[Parts], learner: Learner, seed: int, device: str) -> HeldOut | None:
        """Returns all that was held out of some rounds, if anything."""
        batches = [part.held_out for part in parts if part.held_out is not None]
        if not batches:
            return None
        return cls(TransitionBatch.concatenate(batches), learner, seed, device)

    def prediction(self, policy: Any, number: int) -> PredictionRecord:
        """Returns what a policy of the round of a number will earn and pay."""
        begin = time.perf_counter()
        budgets = np.linspace(*self.learner.budget_range, N_PREDICTED)
        starts = first_rows(self.batch)
        states, masks = self.batch.state[starts], rows_at(self.batch.available, starts)
        if isinstance(policy, Portfolio | MultiplierPolicy):
            reward, cost = self._of_prices(policy, states, masks, budgets)
        else:
            low, high = policy.budget_range
            heads = np.linspace(low, high, self._n_budgets)
            evaluated = evaluate_policy(policy, self.batch, self._terms(heads))
            reward, cost = evaluated.worth(states, budgets, masks).mean(axis=0).T
        return PredictionRecord(
            round=number,
            budgets=tuple(budgets.tolist()),
            reward=tuple(reward.tolist()),
            cost=tuple(cost.tolist()),
            n_episodes=len(starts),
            n_transitions=len(self.batch),
            seconds=time.perf_counter() - begin,
        )

    def _of_prices(
        self,
        policy: Portfolio | MultiplierPolicy,
        states: NDArray[Any],
        available: BoolArray | None,
        budgets: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """Mean rewards and costs of a policy that chooses a price at the start and keeps it.

        All prices are valued from every first state by a model that had no part in choosing them,
        and the mean is taken over the prices that the policy chooses there.
        """
        dial = policy.dial if isinstance(policy, MultiplierPolicy) else policy.policies[0]
        assert isinstance(dial, PriceDial)
        numbers = np.arange(len(dial.prices), dtype=np.float64)
        evaluated = evaluate_policy(dial, self.batch, self._terms(numbers))
        worth = evaluated.worth(states, numbers, available)  # [N, prices, 2]
        points, rows = dial.at_step(0).points(states, available), np.arange(len(states))
        means = []
        for budget in budgets:
            held = np.full(len(states), budget)
            if isinstance(policy, Portfolio):
                found = policy.mixtures(held)
            else:
                found = policy.mixtures(points, held)
            p_upper = found.p_upper[:, None]
            mixed = (1 - p_upper) * worth[rows, found.lower] + p_upper * worth[rows, found.upper]
            means.append(mixed.mean(axis=0))
        reward, cost = np.array(means).T
        return reward, cost

    def _terms(self, heads: FloatArray) -> Terms:
        learner = self.learner
        discounts = (
            learner.gamma,
            learner.gamma if learner.cost_gamma is None else learner.cost_gamma,
        )
        is_network = isinstance(learner.model, EncoderNet | FrontierNet)
        model = SMOOTH if is_network else learner.model
        seed = int(named_generator(self.seed, "held-out/prediction").integers(2**31))
        return Terms(model, heads, discounts, seed, self.device, self._schedule)

    @property
    def _n_budgets(self) -> int:
        return self.learner.n_budgets if isinstance(self.learner, BFTQConfig) else 2

    @property
    def _schedule(self) -> Schedule | None:
        """Backwards where episodes have an end: right where time is hidden, and nothing settles."""
        step, batch = self.batch.step, self.batch
        if step is None or step.max() >= _MOST_STEPS:
            return None if isinstance(self.learner.schedule, Backward) else _UNTIL_SETTLED
        ends = batch.terminal[step == step.max()]
        return Backward() if ends.all() else None
