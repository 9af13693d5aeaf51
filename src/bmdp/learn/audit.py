"""A learned policy whose dial is read by fitted evaluation. Importing this module imports torch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.data import TransitionBatch
from bmdp.frontier import mixtures_at
from bmdp.learn.fit import LearnedPolicy
from bmdp.learn.fitted import StageKind, evaluated
from bmdp.learn.policy_fit import Terms
from bmdp.policies.audited import AuditedPolicy


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
    audits = [fit.result() for fit in evaluated(policy, batch, terms, stages)]
    return AuditedPolicy(policy, tuple(reversed(audits)), terms.beta_grid)


def expected_at(
    policy: AuditedPolicy, states: NDArray[np.generic], budgets: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean rewards and costs `[M]` that a policy is said to have from first states at budgets."""
    costs, rewards = policy.worth(states, 0)
    found = mixtures_at(costs, rewards, np.minimum(budgets, policy.budget_range[1]))
    return found.reward.mean(axis=0), found.cost.mean(axis=0)
