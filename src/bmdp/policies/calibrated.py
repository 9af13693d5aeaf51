"""A portfolio whose costs are upper bounds that hold together, and what is promised of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bmdp.arrays import FloatArray, freeze_columns
from bmdp.errors import ConfigError, DataError
from bmdp.policies.decisions import Randomness
from bmdp.policies.portfolio import Portfolio, PortfolioTracker
from bmdp.policies.protocol import Policy
from bmdp.policies.stored import storable


@storable
@dataclass(frozen=True, eq=False)
class Certificate:
    """What was measured of `K` members, and the promise that follows.

    The promise: with probability `confidence` over the episodes that were played to measure, the
    expected discounted cost of an episode played at any budget from `smallest_budget` on is at most
    that budget, whatever the budget. It is about episodes that start as the environment's do, with
    these settings, and whose budget is not moved in the middle. It rests on `cost_range`, and on
    `binary_costs` where that is set.

    Of rewards nothing is promised, unless `reward_low` is finite: then those bounds hold together
    with the bounds on costs.

    >>> from bmdp import calibrate
    >>> from bmdp.envs import ScriptedPolicy
    >>> rules = [ScriptedPolicy(f"slot-filling/{rule}") for rule in ("voice-again", "key-pad")]
    >>> policy = calibrate(rules, "slot-filling", confidence=0.95, n_episodes=100, seed=0)
    >>> promise = policy.certificate
    >>> promise.n_members, round(promise.smallest_budget, 3), promise.cost_high.round(3).tolist()
    (2, 0.036, [0.036, 0.706])
    """

    confidence: float  # that the promise holds, above 0 and below 1
    n_episodes: int  # of each member
    seed: int  # of these episodes
    env: str  # its id
    settings: str  # of the environment, as JSON
    gamma: float  # discount of costs and rewards
    cost_range: tuple[float, float]  # no episode costs less, or more
    binary_costs: bool  # whether none costs anything between
    cost_mean: FloatArray  # [K], of discounted costs
    cost_high: FloatArray  # [K], upper bounds
    reward_mean: FloatArray  # [K], of discounted rewards
    reward_low: FloatArray  # [K], lower bounds; minus infinity if none are known

    def __post_init__(self) -> None:
        """Checks shapes, and makes arrays read-only."""
        low, high = self.cost_range
        object.__setattr__(self, "cost_range", (float(low), float(high)))
        if np.shape(self.cost_mean)[:1] == (0,):
            raise DataError("Certificate.cost_mean must have at least one member.")
        freeze_columns(self, "[K]")

    @property
    def n_members(self) -> int:
        """K."""
        return len(self.cost_high)

    @property
    def smallest_budget(self) -> float:
        """The least upper bound of a member's cost: below it nothing is promised."""
        return float(self.cost_high.min())

    def __str__(self) -> str:
        """The promise in three lines."""
        low, high = self.cost_range
        between = f"{low:g} or {high:g}" if self.binary_costs else f"from {low:g} to {high:g}"
        return (
            f"Promised with confidence {self.confidence:g}: at every budget from "
            f"{self.smallest_budget:.4g} on, an episode costs at most the budget on average "
            f"(discounted by {self.gamma:g}).\n"
            f"For episodes that start as those of {self.env} with settings {self.settings}, which "
            f"cost {between}. A dial that is moved in the middle of an episode is not covered.\n"
            f"Found by {self.n_episodes} episodes of each of {self.n_members} members, seed "
            f"{self.seed}."
        )


@storable
@dataclass(frozen=True, eq=False)
class CalibratedPolicy(Policy):
    """A portfolio, and the certificate that its costs are upper bounds: see `bmdp.calibrate`.

    Below `certificate.smallest_budget` its status is INFEASIBLE, and it plays the member whose
    bound is least.

    >>> import bmdp
    >>> from bmdp.envs import ScriptedPolicy
    >>> rule = ScriptedPolicy("slot-filling/voice-again")  # never costs anything
    >>> policy = bmdp.calibrate(rule, "slot-filling", confidence=0.95, n_episodes=100, seed=0)
    >>> found = bmdp.evaluate(policy, "slot-filling", budgets=[0.01, 0.1], n_episodes=10, seed=1)
    >>> found.cost_mean.tolist(), found.infeasible_share.tolist()  # it can promise 0.03
    ([0.0, 0.0], [1.0, 0.0])
    """

    portfolio: Portfolio  # whose costs are the upper bounds
    certificate: Certificate  # of these bounds

    why_no_one_step_form = Portfolio.why_no_one_step_form

    def __post_init__(self) -> None:
        """Checks that the two belong together."""
        if not np.array_equal(self.portfolio.costs, self.certificate.cost_high):
            raise ConfigError("CalibratedPolicy.portfolio.costs must be certificate.cost_high.")

    @property
    def budget_range(self) -> tuple[float, float]:
        """That of the portfolio."""
        return self.portfolio.budget_range

    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> PortfolioTracker:
        """Starts `N` episodes."""
        return self.portfolio.start(states, budgets, rng)
