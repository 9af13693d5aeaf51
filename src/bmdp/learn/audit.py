"""A learned policy whose dial is read by fitted evaluation. Importing this module imports torch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.data import TransitionBatch
from bmdp.frontier import best_mixtures
from bmdp.learn.fit import LearnedPolicy
from bmdp.learn.fitted import StageKind, Steps, go_back, iterate
from bmdp.learn.policy_fit import PolicyFit, Terms
from bmdp.policies.audited import AuditedPolicy
from bmdp.policies.protocol import OneStepPolicy

_ITERATIONS = 50  # at most, without stages


def audited(
    policy: LearnedPolicy, batch: TransitionBatch, terms: Terms, stages: StageKind
) -> AuditedPolicy:
    """Returns a policy that plays `policy` at the budget that costs what was asked.

    What it costs and earns is found by fitted evaluation. On episodes that had no part in choosing
    the policy this is honest; on those that had, it shares the errors that the policy found.

    Args:
        policy: what was learned.
        batch: transitions, of other episodes than it was learned from.
        terms: of the evaluation.
        stages: as for `fitted_evaluation`.
    """
    if stages == "none" and isinstance(policy, OneStepPolicy):
        audits = [iterate(policy, PolicyFit(terms, batch), _ITERATIONS).result()]
    else:
        steps = Steps(terms, batch, shared=stages != "own")
        audits = [fit.result() for fit in go_back(policy, steps)]
    return AuditedPolicy(policy, tuple(reversed(audits)), terms.grid)


def expected_at(
    policy: AuditedPolicy, states: NDArray[np.generic], budgets: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean rewards and costs `[M]` that a policy is said to have from first states at budgets."""
    costs, rewards = policy.worth(states, 0)
    means = []
    for budget in np.minimum(budgets, policy.budget_range[1]):
        mixtures = best_mixtures(costs, rewards, np.full(len(states), budget))
        means.append((mixtures.reward.mean(), mixtures.cost.mean()))
    reward, cost = np.array(means).T
    return reward, cost
