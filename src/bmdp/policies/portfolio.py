"""One policy of several for each episode, by what each is said to cost and to earn.

A *member* is one of the policies at one inner budget. What all members are said to cost and to earn
from the start of an episode are points in the (cost, reward) plane, and a budget chooses among them
as it does among the actions at a state: a mixture of two neighbouring vertices of their frontier
spends it exactly. The coin is tossed once for an episode, which then belongs to its member.

A *calibrated* policy is a portfolio whose costs are upper bounds that hold together, with a
certificate of what is promised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    freeze_columns,
    read_only,
    real_array,
    require_finite,
    require_shape,
)
from bmdp.checks import require_share
from bmdp.errors import BudgetError, ConfigError, DataError
from bmdp.frontier import BudgetStatus, Frontier, Mixtures, best_mixtures, upper_frontier
from bmdp.kinds import checked
from bmdp.policies.policy import (
    BudgetedPolicy,
    Decisions,
    EpisodeTracker,
    Policy,
    Randomness,
    Tracker,
    episode_streams,
    idle_decisions,
)
from bmdp.policies.state import (
    StateReader,
    mapping,
    refusal,
    resumed,
    sequence,
    state_of,
    whole_numbers,
)
from bmdp.storage import storable

_NOT_COVERED = "It does not cover a budget that is changed in the middle of an episode."


@checked
@storable
@dataclass(frozen=True, eq=False)
class Portfolio(Policy):
    """Plays each episode by one of `K` members, chosen at the first decision after a budget is set.

    With `mixes` a coin falls on one of the two neighbouring vertices of the members' frontier
    around the budget, with the probability that makes the expected cost equal to the budget.
    Without, it is the best-paid member that costs the budget at most. Below the cheapest member the
    status is INFEASIBLE, and that one is played; at the best-paid one it is SLACK.

    The budget that is held then is the one that the member hands on. A member that is the number of
    a price hands on none: the budget is what the member is said to cost from the start.

    Moving the dial in the middle chooses again, by the same costs. They hold at the start of an
    episode, so what is left to pay then need not match the new budget: that is the limit of a coin.

    Args:
        policies: the different policies, each of which may have several members.
        which: number of the policy of each member.
        budgets: inner budget of each member, at which its policy is played.
        costs: what each member is said to cost from the start of an episode.
        rewards: what each member is said to earn.
        mixes: whether members are mixed.

    Raises:
        ConfigError: if there is no member.
        DataError: if shapes differ, or a number makes no sense.
        BudgetError: if a policy does not take an inner budget.

    Paper: the mixture of deterministic policies of Beutler and Ross (1985), cited in the proof of
    Proposition 3; without `mixes`, the smallest multiplier that satisfies the budget, as in the
    line search of the Lagrangian appendix.
    """

    policies: tuple[BudgetedPolicy, ...]
    which: IntArray  # [K]
    budgets: FloatArray  # [K]
    costs: FloatArray  # [K]
    rewards: FloatArray  # [K]
    mixes: bool = True

    why_no_one_step_form = "chooses one of its members per episode"
    takes_masks = True

    def __post_init__(self) -> None:
        """Checks the members, and makes arrays read-only."""
        which = np.asarray(self.which)
        if not self.policies or not which.size:
            raise ConfigError("Portfolio must have at least one policy and one member.")
        require_shape("Portfolio.which", which, (None,), "[K]")
        if which.dtype.kind not in "iu":
            raise DataError(f"Portfolio.which must be whole numbers; got type {which.dtype}.")
        wrong = np.flatnonzero((which < 0) | (which >= len(self.policies)))
        if len(wrong):
            raise DataError(
                f"Portfolio.which must be from 0 to {len(self.policies) - 1}; "
                f"got {which[wrong[0]]} at [{wrong[0]}]."
            )
        object.__setattr__(self, "which", read_only(which.astype(np.int64)))
        for name in ("budgets", "costs", "rewards"):
            values = real_array(f"Portfolio.{name}", getattr(self, name)).astype(np.float64)
            require_shape(f"Portfolio.{name}", values, which.shape, "[K]")
            require_finite(f"Portfolio.{name}", values)
            object.__setattr__(self, name, read_only(values))
        lows = np.array([policy.budget_range[0] for policy in self.policies])[self.which]
        refused = np.flatnonzero(self.budgets < lows)
        if len(refused):
            i = refused[0]
            raise BudgetError(
                f"Portfolio.budgets must be taken by their policies, here from {lows[i]:g} on; "
                f"got {self.budgets[i]:g} at [{i}]."
            )

    @classmethod
    def coin(
        cls, cheap: BudgetedPolicy, dear: BudgetedPolicy, cheap_cost: float, dear_cost: float
    ) -> Portfolio:
        """Returns a portfolio of two members, each played at the budget it is said to cost.

        (That is raised to the policy's `budget_range`.) What they earn does not matter to a coin:
        it is set to 0 and 1.

        Raises:
            ConfigError: if `cheap_cost` is not below `dear_cost`.
        """
        if not -np.inf < cheap_cost < dear_cost < np.inf:
            raise ConfigError(
                f"cheap_cost must be below dear_cost, both finite; got {cheap_cost} and "
                f"{dear_cost}."
            )
        costs = np.array([cheap_cost, dear_cost], np.float64)
        lows = [cheap.budget_range[0], dear.budget_range[0]]
        is_one = cheap is dear
        return cls(
            policies=(cheap,) if is_one else (cheap, dear),
            which=np.array([0, 0 if is_one else 1]),
            budgets=np.maximum(costs, lows),
            costs=costs,
            rewards=np.array([0.0, 1.0]),
        )

    @cached_property
    def curve(self) -> Frontier:
        """The frontier of what members are said to cost and earn; `index` has their numbers."""
        return upper_frontier(self.costs, self.rewards)

    @cached_property
    def members_take_budgets(self) -> BoolArray:
        """Whether the dial of each member's policy is in units of cost, `[K]`."""
        each = [getattr(policy, "takes_budgets", True) for policy in self.policies]
        return np.array(each)[self.which]

    @property
    def budget_range(self) -> tuple[float, float]:
        """From 0 (or the least cost, if that is negative) to the cost of the best-paid member."""
        return min(0.0, float(self.costs.min())), float(self.curve.costs[-1])

    def mixtures(self, budgets: ArrayLike) -> Mixtures[NDArray[Any]]:
        """Returns which members are played at budgets `[M]`, and with which probability.

        >>> from bmdp.policies import RandomBudgetedPolicy
        >>> some = RandomBudgetedPolicy(2, 0.0, 1.0)
        >>> found = Portfolio.coin(some, some, 0.2, 1.0).mixtures([0.0, 0.4, 7.0])
        >>> found.lower.tolist(), found.upper.tolist(), found.p_upper.tolist()
        ([0, 0, 1], [0, 1, 1], [0.0, 0.25, 0.0])
        """
        held = real_array("budgets", budgets).astype(np.float64)
        require_shape("budgets", held, (None,), "[M]")
        within = np.minimum(held, self.budget_range[1])
        if not self.mixes:
            return self._best_affordable(within)
        assert self.curve.index is not None
        shape = (len(held), len(self.curve))
        found = best_mixtures(
            np.broadcast_to(self.curve.costs, shape),
            np.broadcast_to(self.curve.rewards, shape),
            within,
        )
        lower, upper = self.curve.index[found.lower], self.curve.index[found.upper]
        return found._replace(lower=lower, upper=upper)

    def _best_affordable(self, budgets: FloatArray) -> Mixtures[NDArray[Any]]:
        """The best-paid member within each budget, else the cheapest."""
        order = np.lexsort((-self.rewards, self.costs))  # of equal costs the best paid first
        best_before = np.maximum.accumulate(self.rewards[order])
        is_better = np.append(True, self.rewards[order][1:] > best_before[:-1])
        steps = order[is_better]  # each dearer than the one before, and better paid
        place = np.searchsorted(self.costs[steps], budgets, side="right") - 1
        status = np.full(len(budgets), BudgetStatus.TIGHT, np.int8)
        status[place == len(steps) - 1] = BudgetStatus.SLACK
        status[place < 0] = BudgetStatus.INFEASIBLE
        member = steps[np.maximum(place, 0)]
        certain = np.zeros(len(budgets))
        cost, reward = self.costs[member], self.rewards[member]
        return Mixtures(member, member, certain, cost, reward, status)

    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> PortfolioTracker:
        """Starts `N` episodes."""
        return PortfolioTracker(self, budgets, episode_streams(rng, states))


class _Followed(NamedTuple):
    """Episodes that one member plays together."""

    member: int
    rows: IntArray  # numbers of the episodes among all
    tracker: Tracker


@checked
class PortfolioTracker(EpisodeTracker[Portfolio]):
    """Episodes under a `Portfolio`: those of one member are played together."""

    _status: IntArray
    _followed: list[_Followed] | None

    def set_budget(self, budgets: ArrayLike) -> None:
        """Has members chosen again at the next decision."""
        super().set_budget(budgets)
        self._followed = None

    def _decide(self, states: NDArray[Any]) -> Decisions:
        if self._followed is None:
            self._followed = self._toss(states)
        decision = idle_decisions(self._budgets)
        for member, chosen, tracker in self._followed:
            masks = _masks(self._available, chosen)
            decision.action[chosen], next_budget, _ = tracker.decide(states[chosen], *masks)
            decision.next_budget[chosen] = self._held(member, next_budget)
        decision.status[~self._ended] = self._status[~self._ended]
        return decision

    def _observe(self, costs: FloatArray, next_states: NDArray[Any], ended: BoolArray) -> None:
        for member, chosen, tracker in self._followed or ():
            masks = _masks(self._available, chosen)
            tracker.observe(costs[chosen], next_states[chosen], ended[chosen], *masks)
            self._budgets[chosen] = self._held(member, tracker.budgets)

    def _held(self, member: int, inner: FloatArray) -> FloatArray | float:
        """The budgets of episodes of a member, given those on its own dial."""
        takes_budgets = self._policy.members_take_budgets[member]
        return inner if takes_budgets else float(self._policy.costs[member])

    def _toss(self, states: NDArray[Any]) -> list[_Followed]:
        """Starts each episode that is going on under one of the members."""
        portfolio = self._policy
        followed: list[_Followed] = []
        found = portfolio.mixtures(self._budgets)
        draws = self._streams.child("coin").uniforms(self._step, 1)[:, 0]
        member = np.where(draws < found.p_upper, found.upper, found.lower)
        self._status = found.status
        for k in np.unique(member[~self._ended]):
            chosen = np.flatnonzero((member == k) & ~self._ended)
            policy = portfolio.policies[portfolio.which[k]]
            streams = self._streams.child(f"member {k}/{self._step}").take(chosen)
            tracker = policy.start(states[chosen], float(portfolio.budgets[k]), streams)
            begin_at = getattr(tracker, "begin_at", None)
            if begin_at is not None:
                begin_at(self._step)
            followed.append(_Followed(int(k), chosen, tracker))
        return followed

    def _own_state(self) -> dict[str, Any]:
        if self._followed is None:
            return {"status": None, "followed": None}
        followed = [
            {"member": k, "rows": rows.tolist(), "tracker": state_of(tracker)}
            for k, rows, tracker in self._followed
        ]
        return {"status": self._status.tolist(), "followed": followed}

    def _take_over(self, kept: StateReader) -> None:
        self._followed = None
        status, followed = kept.item("status"), kept.item("followed")
        if followed is None:
            if status is not None:
                raise refusal('state["status"]', "null before a member is chosen", status)
            return
        n = len(self._streams)
        self._status = kept.whole_numbers("status", (n,), 0, max(BudgetStatus), np.int8)
        parts = sequence('state["followed"]', followed)
        self._followed = [self._part(f'state["followed"][{i}]', p) for i, p in enumerate(parts)]
        times = np.bincount(
            np.concatenate([np.empty(0, np.int64), *(part.rows for part in self._followed)]),
            minlength=n,
        )
        wrong = np.flatnonzero((times > 1) | ((times == 0) & ~self._ended))
        if len(wrong):
            rule = "members that play each episode once"
            raise refusal('state["followed"]', rule, f"{times[wrong[0]]} of episode {wrong[0]}")

    def _part(self, where: str, part: Any) -> _Followed:
        """Episodes that one member plays, checked."""
        content = mapping(where, part)
        if set(content) != {"member", "rows", "tracker"}:
            raise refusal(where, "a member, rows and a tracker", sorted(map(str, content)))
        portfolio, last = self._policy, len(self._streams) - 1
        member = whole_numbers(
            f'{where}["member"]', content["member"], (), 0, len(portfolio.which) - 1
        )
        rows = sequence(f'{where}["rows"]', content["rows"])
        chosen = whole_numbers(f'{where}["rows"]', rows, (len(rows),), 0, last)
        policy = portfolio.policies[portfolio.which[int(member)]]
        tracker: Tracker = resumed(policy, content["tracker"], f'{where}["tracker"]')
        if len(tracker.budgets) != len(rows):
            raise refusal(f'{where}["tracker"]', f"of {len(rows)} episodes", len(tracker.budgets))
        return _Followed(int(member), chosen, tracker)

    def _spends(self) -> BoolArray:
        return ~self._ended & (self._followed is None)


def _masks(available: BoolArray | None, rows: IntArray) -> tuple[BoolArray, ...]:
    """The last argument of a member that is told which actions are available; none if all are."""
    return () if available is None else (available[rows],)


@checked
@storable
@dataclass(frozen=True, eq=False)
class Certificate:
    """Measured costs and rewards of `K` members, and the promise that follows.

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
    cost_gamma: float | None = field(default=None, kw_only=True)  # discount of costs, if another
    episode_limit: float | None = field(default=None, kw_only=True)  # that costs are chances of

    def __post_init__(self) -> None:
        """Checks numbers and shapes, and makes arrays read-only."""
        if not 0 < self.confidence < 1:
            raise DataError(
                f"Certificate.confidence must be above 0 and below 1; got {self.confidence}."
            )
        for name in ("gamma", "cost_gamma"):
            if getattr(self, name) is not None:
                require_share(f"Certificate.{name}", getattr(self, name))
        low, high = self.cost_range
        if not -np.inf < low <= high < np.inf:
            raise DataError(f"Certificate.cost_range must be finite and rise; got {low} to {high}.")
        object.__setattr__(self, "cost_range", (float(low), float(high)))
        if np.shape(self.cost_mean)[:1] == (0,):
            raise DataError("Certificate.cost_mean must have at least one member.")
        freeze_columns(self, "[K]")
        for name in ("cost_mean", "cost_high", "reward_mean"):
            require_finite(f"Certificate.{name}", getattr(self, name))
        if np.isnan(self.reward_low).any() or np.isposinf(self.reward_low).any():
            raise DataError("Certificate.reward_low must be finite, or minus infinity.")

    @property
    def n_members(self) -> int:
        """Number of members, K."""
        return len(self.cost_high)

    @property
    def smallest_budget(self) -> float:
        """The least upper bound of a member's cost: below it nothing is promised."""
        return float(self.cost_high.min())

    @property
    def promise(self) -> str:
        """The promise at every budget, in words."""
        first = f"at every budget from {self.smallest_budget:.4g} on, "
        if self.episode_limit is not None:
            over = f"an episode costs more than {self.episode_limit:g}"
            return f"{first}the chance that {over} is at most the budget."
        discount = self.gamma if self.cost_gamma is None else self.cost_gamma
        return f"{first}an episode costs at most the budget on average (discount {discount:g})."

    def __str__(self) -> str:
        """The promise in three lines."""
        low, high = self.cost_range
        between = f"{low:g} or {high:g}" if self.binary_costs else f"from {low:g} to {high:g}"
        cost = f", if each costs {between}" if self.episode_limit is None else ""
        return (
            f"Promised with confidence {self.confidence:g}: {self.promise}\n"
            f"This holds for episodes that start like those of {self.env} with settings "
            f"{self.settings}{cost}. {_NOT_COVERED}\n"
            f"Checked with {self.n_episodes:,} episodes of each of {self.n_members} members. Seed "
            f"{self.seed}."
        )


@storable
@dataclass(frozen=True, eq=False)
class LogCertificate(Certificate):
    """The same by a log alone: see `bmdp.certify`.

    The promise is about episodes that start as those of the log do, in which actions have the
    consequences that they have there. `cost_range` ends with the most that the rest of an episode
    is taken to cost, which is what decisions count that the log does not know.
    """

    effective_episodes: FloatArray  # [K], of the member itself, that would tell as much
    outside_share: FloatArray  # [K], of episodes that come to what the log does not know
    needed_episodes: FloatArray  # [K], of this kind, for a bound close to its estimate; about
    n_refused: int  # members of which the log says too little, which are never played

    def __str__(self) -> str:
        """The promise in three lines."""
        worth = self.effective_episodes[int(np.argmin(self.cost_high))]
        rest = f", if none costs more than {self.cost_range[1]:.4g} from any step to its end"
        return (
            f"Promised with confidence {self.confidence:g}, from a log: {self.promise}\n"
            "This holds for episodes that start like those of the log"
            f"{rest if self.episode_limit is None else ''}. {_NOT_COVERED}\n"
            f"Checked with {self.n_episodes:,} logged episodes; for the cheapest of "
            f"{self.n_members} members they are worth {worth:,.0f} episodes of its own. Members "
            f"left out because the log says too little about them: {self.n_refused}. "
            f"Seed {self.seed}."
        )


@checked
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
    takes_masks = True

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

    def resume(self, state: Any) -> Tracker:
        """Goes on from a state, which is one of its portfolio."""
        return self.portfolio.resume(state)
