"""Fitted evaluation: what a given policy earns and pays, told from logged episodes alone.

What a learner promises is optimistic: its policy does what its models think best, and so finds
their errors. Here the policy is given. Another model is fitted to episodes that had no part in
choosing it, and nothing is maximised on the way:

    Q(s, a, beta_a)  <-  r + gamma * sum of pi(a', beta' | s', beta_a) Q(s', a', beta')

over (a', beta'), for rewards and for costs, by regression on the transitions, at a grid of budgets
beta_a. Budgets between those of the grid are interpolated. What is reported is the mean over the
first states of the episodes.

A policy that counts steps is evaluated backwards, with a model for each step, in the way of
`bmdp.learn.stages`: fitted to all transitions but those of the last step, which have a model of
their own, and without the numbers of a state that the step determines. The policy may look at
these: it is shown those of the step at which it is evaluated.

What the policy does must occur in the episodes now and then: an action that they do not hold is
worth what the model makes of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from bmdp.arrays import BoolArray, FloatArray, IntArray, freeze_columns, real_array
from bmdp.checks import require_choice, require_count, require_share
from bmdp.data import TransitionBatch
from bmdp.errors import BudgetError, DataError, PolicyError
from bmdp.learn.policy_fit import PolicyFit, Terms
from bmdp.learn.stages import told_by_step
from bmdp.models import KernelModel, Model
from bmdp.policies.decisions import admitted_budgets
from bmdp.policies.protocol import OneStepPolicy, SteppedPolicy

StageKind = Literal["none", "shared"]

SMOOTH = KernelModel(ridges=(1e-2, 1e-1, 1.0, 10.0))
"""A kernel model without its smallest ridges: with these, bumps may say anything where the policy
does what is rare in the data."""

_ITERATIONS = 50  # at most, without stages
_SETTLED = 1e-6  # change of targets, relative to the largest of them, at which iterations end


@dataclass(frozen=True, eq=False)
class Prediction:
    """What a policy is expected to earn and pay at each of `M` budgets, from the first states.

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


def fitted_evaluation(  # noqa: PLR0913
    policy: SteppedPolicy,
    batch: TransitionBatch,
    *,
    gamma: float,
    cost_gamma: float | None = None,
    budgets: ArrayLike,
    model: Model | None = None,
    seed: int,
    device: str = "auto",
    n_budgets: int = 41,
    iterations: int = _ITERATIONS,
    stages: StageKind | None = None,
) -> Prediction:
    """Returns what a policy will earn and pay, told from logged transitions.

    Args:
        policy: one whose probabilities are known: what a learner returned, or a `HullPolicy`.
        batch: transitions that had no part in choosing the policy, of whole episodes.
        gamma: discount of rewards, and of costs if these have none of their own.
        cost_gamma: discount of costs.
        budgets: to ask for, `[M]`, in expected discounted cost; above `policy.budget_range` they
            are taken as its top.
        model: what estimates (Q_r, Q_c); `SMOOTH`, if not given.
        seed: of all that is random.
        device: "cpu", "cuda", or "auto" for the GPU if there is one.
        n_budgets: of the grid. Nothing is interpolated if it is the policy's own, or part of it.
        iterations: at most, with stages "none"; it ends once nothing changes.
        stages: "shared": backwards, by all transitions.
            "none": again and again, until values settle; not where time is hidden and has an end.
            If not given, "shared" for a policy that counts steps, and "none" for others.

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
    if not hasattr(policy, "at_step"):
        raise PolicyError(
            "fitted_evaluation needs a policy with a one-step form at each step; "
            f"{type(policy).__name__} has none."
        )
    discounts = gamma, gamma if cost_gamma is None else cost_gamma
    for name, discount in zip(("gamma", "cost_gamma"), discounts, strict=True):
        require_share(name, discount)
    require_count("n_budgets", n_budgets, 2)
    require_count("iterations", iterations, 1)
    if stages is None:
        stages = "none" if isinstance(policy, OneStepPolicy) else "shared"
    require_choice("stages", stages, ("none", "shared"))
    asked = np.atleast_1d(real_array("budgets", budgets))
    asked = admitted_budgets(asked, len(asked), policy.budget_range)
    if len(asked) == 0:
        raise BudgetError("budgets must hold at least one; got none.")
    starts, (low, high) = first_rows(batch), policy.budget_range
    terms = Terms(
        model=SMOOTH if model is None else model,
        beta_grid=np.linspace(low, high if high > low else low + 1, n_budgets),
        discounts=discounts,
        reward_scale=float(np.abs(batch.reward).max()) or 1.0,
        n_actions=batch.n_actions,
        seed=seed,
        device=device,
    )
    *_, first = evaluated(policy, batch, terms, stages, iterations)
    seen, within = [batch.state[starts]], np.minimum(asked, policy.budget_range[1])
    found = first.worth(seen, terms.choices(policy.at_step(0), seen, within)).mean(axis=0)
    return Prediction(asked, found[:, 0] * terms.reward_scale, found[:, 1], len(starts), len(batch))


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


def evaluated(
    policy: SteppedPolicy,
    batch: TransitionBatch,
    terms: Terms,
    stages: StageKind,
    iterations: int = _ITERATIONS,
) -> Iterator[PolicyFit]:
    """Values a policy at each step, from the last to the first; or once, if stages are "none".

    A model is as it is for a step while that step is the last that was yielded.
    """
    if stages == "none":
        yield _iterate(policy.at_step(0), PolicyFit(terms, batch), iterations)
    else:
        yield from _go_back(policy, _Steps(terms, batch))


def _iterate(policy: OneStepPolicy, fit: PolicyFit, iterations: int) -> PolicyFit:
    """Fits the values of a policy that does the same at all steps, again and again."""
    states = list(fit.next_states())
    choices = fit.terms.choices(policy, states, fit.terms.beta_grid)
    targets = fit.learn("iteration-0", None)
    for iteration in range(1, iterations):
        before, targets = targets, fit.learn(f"iteration-{iteration}", fit.worth(states, choices))
        if np.abs(targets - before).max() <= _SETTLED * np.abs(targets).max():
            break
    return fit


class _Steps:
    """What is fitted at each step, and how states look there."""

    def __init__(self, terms: Terms, batch: TransitionBatch) -> None:
        """Of a batch with steps."""
        if batch.step is None:
            raise DataError(
                "fitted_evaluation needs a batch with steps, by stages or for a policy that counts "
                "them; this one has none."
            )
        self.terms, self.batch, self.steps = terms, batch, batch.step
        self.last = int(self.steps.max())
        self.told: BoolArray = told_by_step(batch.state, self.steps)

    def fit(self, step: int) -> PolicyFit:
        """Returns the model of a step in training; but for the last, that of all steps."""
        return self._shared if step < self.last else self._fit(self.steps == step, step)

    def as_seen_at(self, step: int, states: FloatArray) -> FloatArray:
        """States with those numbers that the step determines as they are at a step."""
        rows = np.flatnonzero(self.steps == step)
        if not self.told.any() or len(rows) == 0:
            return states
        return np.where(self.told, self.batch.state[rows[0]], states)

    @cached_property
    def _shared(self) -> PolicyFit:
        return self._fit(self.steps < self.last, 0)

    def _fit(self, rows: BoolArray, step: int) -> PolicyFit:
        if not rows.any():
            raise DataError(f"fitted_evaluation needs transitions of step {step}; there are none.")
        return PolicyFit(self.terms, self.batch.take(rows), np.flatnonzero(~self.told))


def _go_back(policy: SteppedPolicy, steps: _Steps) -> Iterator[PolicyFit]:
    """Fits the values of a policy at each step, from the last to the first, and yields each."""
    later = steps.fit(steps.last)
    later.learn(f"step-{steps.last}", None)
    yield later
    for step in reversed(range(steps.last)):
        fit = steps.fit(step)
        states = [steps.as_seen_at(step + 1, part) for part in fit.next_states()]
        choices = fit.terms.choices(policy.at_step(step + 1), states, fit.terms.beta_grid)
        fit.learn(f"step-{step}", later.worth(states, choices))
        later = fit
        yield later
