"""Certificates from a log alone: upper bounds on the cost of a policy, for all budgets at once.

`bmdp.calibrate` plays a policy in a simulator. Here there is none: members of the policy (its
prices, or inner budgets) are judged by logged episodes that had no part in learning it.

*The estimate* is doubly robust with marginal weights (Kallus and Uehara, 2020). An episode i says

    V(s_i0) + sum over t of w(s_it) pi(a_it | s_it) / b(a_it | s_it) (c_it + gamma V(s_i,t+1) - Q),

where Q and V are fitted values of the member, b is the probability with which the log took the
action, and w(s) says how much more often than the log the member comes to a state, discounted:

    w(s') = mean, over rows of the log that lead to s', of gamma w(s) pi(a | s) / b(a | s),

and 1 at the start (Xie, Ma and Wang, 2019). It is a mean over groups of states that are alike: the
cells of a table where states are few, else leaves of trees. All of this is learned from one half of
the episodes and applied to the other, and vice versa. Weights of whole episodes multiply over
steps, and after ten steps nothing is left of a log; these do not.

*What the log does not know* counts as the worst: a decision that no episode of the half took near
there, and a row at which an episode is cut off, cost as much as the dearest rest of an episode that
was seen, or as `worst_cost` says. A member is not certified, and never played, if its bound is that
high, less a tenth, or if more than a twentieth of its episodes come to such a decision: nobody saw
how bad that may be. So a narrow log promises little, and refuses where it can promise nothing.

*The bound* of a member is its estimate, and

    q s (1 + skewness of the episodes) + drift,

where s adds up two errors, as independent ones do: that of a mean of episodes, and that of the mean
of five parts of the log, each of which learns its own values and weights from one half and judges
by the other; q is a quantile of Student's distribution, with as few degrees of freedom as episodes
of great weight leave; and *drift* is the bias that may be left, by how far the estimate moves
between a fifth of the log and all of it, if it shrinks with the cube root of the episodes.
A cost that was never seen may still occur: no bound is closer to its estimate than the dearest row
times log(1 / chance) over the number of effective episodes, as for a share of which no case was
seen. Each of K members may fail with probability (1 - confidence) / K.

These bounds are asymptotic. How often they hold is measured: docs/paper/logs.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import stdtrit

from bmdp.arrays import BoolArray, FloatArray, IntArray, rows_at
from bmdp.checks import require_from_0, require_share
from bmdp.data import TransitionBatch, cost_so_far
from bmdp.data.encoder import EncodedPolicy
from bmdp.data.episodes import in_order
from bmdp.envs.episodes import OnPlayed, counter
from bmdp.errors import ConfigError, DataError, PolicyError
from bmdp.evaluation.calibration import N_BUDGETS
from bmdp.evaluation.offline import given_action
from bmdp.evaluation.statistics import simultaneous_confidence
from bmdp.frontier import upper_frontier
from bmdp.kinds import checked
from bmdp.learn.evaluation import Evaluated, Terms, evaluate_policy, grid_of
from bmdp.learn.fit import Backward, Iterations, Schedule
from bmdp.learn.natures import Nature, completed, extremes_to_go, nature_of
from bmdp.models.forest import ForestModel
from bmdp.models.regressor import LearnedQ, MeanQ, with_clock
from bmdp.models.support import Support
from bmdp.models.table import TableModel
from bmdp.policies.limited import EpisodeLimitPolicy
from bmdp.policies.policy import BudgetedPolicy, Options, Policy
from bmdp.policies.portfolio import CalibratedPolicy, LogCertificate, Portfolio
from bmdp.policies.prices import MultiplierPolicy, PriceDial
from bmdp.randomness import named_generator

LEAST_EPISODES = 100
"""A certificate needs so many episodes at least: each of ten halves of fifths has ten."""

_TREES = 10  # for each action
_PARTS = 5  # of the log, each of which is evaluated by itself
_SEEN = 1.0  # episodes that make an action known
_FILLED = 10  # rows of each action in a cell, on average, where cells are used
_NEAR = 0.5  # rows of each action and step that a group of states has at least, about, by two
_LEAST_CHANCE = 1e-3  # of a logged action
_SETTLED = 1e-4  # change of weights, relative to the largest
_CHUNK = 16_384  # states at which a policy is asked at a time
_LOST = 0.05  # share of episodes that may come to what is not known
_CLOSE = 0.1  # of the worst cost: bounds so close to their estimate are good, to it of no use
_REST = 1 / (_PARTS ** (1 / 3) - 1)  # of the drift, that may be left
_FEW = 30  # effective episodes that a good bound needs


@checked
def certify(  # noqa: PLR0913
    policy: BudgetedPolicy,
    batch: TransitionBatch,
    *,
    gamma: float,
    cost_gamma: float | None = None,
    confidence: float = 0.95,
    worst_cost: float | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: OnPlayed | None = None,
) -> Policy:
    """Returns a policy that keeps its budget in expectation, with a given confidence, by a log.

    The promise: with probability `confidence` over the logged episodes, at *every* budget from
    `certificate.smallest_budget` on, an episode that starts as those of the log do costs at most
    the budget in expectation, discounted. Below that the status is INFEASIBLE. The module says on
    what this rests, and docs/paper/logs.md how often it held.

    Args:
        policy: of `bmdp.fit`, or of a learner.
        batch: whole episodes, with steps, that had no part in learning or choosing the policy.
        gamma: discount of costs and rewards.
        cost_gamma: discount of costs, if it is another one, as for `bmdp.fit`.
        confidence: probability that the promise holds, above 0 and below 1.
        worst_cost: the most that the rest of an episode can cost, discounted; the most that was
            seen, if not given.
        seed: seed of all random numbers.
        device: "cpu", "cuda", or "auto" for the GPU if there is one.
        progress: called with the number of evaluations made so far, and of all.

    Returns:
        A `CalibratedPolicy` whose certificate is a `LogCertificate`; within an `EncodedPolicy`, or
        an `EpisodeLimitPolicy`, if that is what was given.

    Raises:
        DataError: if episodes or steps are not known, there are fewer than 100 episodes, or they
            say nothing about any member: then it tells about how many would.
        PolicyError: if it is not known with which probabilities the policy acts.
        ConfigError: if a setting is out of range.

    >>> from bmdp.policies import TabularQ
    >>> q = TabularQ(q_r=[[[0.0, 0.0], [1.0, 1.0]]], q_c=[[[0.0, 0.0], [0.5, 0.5]]])
    >>> dial = PriceDial(lambda states: q(states[:, 0].astype(int)), prices=[9.0, 0.0])
    >>> nothing, risk = np.zeros(400), np.arange(400) % 2
    >>> ends = {"next_state": nothing, "terminal": nothing == 0, "episode": np.arange(400)}
    >>> log = TransitionBatch(nothing, risk, risk, risk * (np.arange(400) % 4 == 1), **ends)
    >>> promise = certify(dial, log, gamma=1.0).certificate
    >>> promise.cost_mean.round(1).tolist(), bool((promise.cost_high > [0.0, 0.5]).all())
    ([0.0, 0.5], True)
    """
    require_share("gamma", gamma)
    if cost_gamma is not None:
        require_share("cost_gamma", cost_gamma)
    simultaneous_confidence(confidence, 1)
    if worst_cost is not None:
        require_from_0("worst_cost", worst_cost)
        if worst_cost == 0:
            raise ConfigError(
                "worst_cost must be above 0; got 0. If nothing costs, certify nothing."
            )
    if isinstance(policy, EncodedPolicy):
        how: dict[str, Any] = {"gamma": gamma, "confidence": confidence, "worst_cost": worst_cost}
        how |= {"seed": seed, "device": device, "progress": progress, "cost_gamma": cost_gamma}
        return EncodedPolicy(certify(policy.policy, batch, **how), policy.encoder)
    limit, cost_gamma = None, gamma if cost_gamma is None else cost_gamma
    if isinstance(policy, EpisodeLimitPolicy):
        limit, cost_gamma, worst_cost = policy.episode_limit, 1.0, 1.0
        policy, batch = policy.policy, cost_so_far(completed(_checked(batch)), limit)
    members = members_of(policy)
    log = _Log.of(batch, (gamma, cost_gamma), worst_cost, seed)
    n_fits = (2 + _PARTS) * len(members.policies)
    report = counter(progress, n_fits)
    report(0)
    scores = [
        _scores_of(one, members.budgets[members.which == number], log, device, report)
        for number, one in enumerate(members.policies)
    ]
    order = np.argsort(np.argsort(members.which, kind="stable"), kind="stable")
    joined = _Scores.joined(scores, order)
    chance = (1 - confidence) / len(members.which)
    found = upper_bounds(joined, chance, largest=log.dearest)
    outside = joined.outside.mean(axis=0).clip(0.0, 1.0)
    needed = _needed(found, outside, log)
    is_known = outside <= (_LOST if worst_cost is None else 1.0)
    kept = np.flatnonzero((found.high < (1 - _CLOSE) * log.worst[1]) & is_known)
    if len(kept) == 0:
        _refuse(found, outside, needed, log)
    certificate = LogCertificate(
        confidence=float(confidence),
        n_episodes=len(log.first),
        seed=int(seed),
        env="a log",
        settings="{}",
        gamma=float(gamma),
        cost_range=(0.0, float(log.worst[1])),
        binary_costs=False,
        cost_mean=found.estimate[kept],
        cost_high=found.high[kept],
        reward_mean=joined.told[:, kept, 0].mean(axis=0),
        reward_low=np.full(len(kept), -np.inf),
        effective_episodes=found.effective[kept],
        outside_share=outside[kept],
        needed_episodes=needed[kept],
        n_refused=len(needed) - len(kept),
        cost_gamma=None if cost_gamma == gamma else float(cost_gamma),
        episode_limit=limit,
    )
    certified = members_taken(members, kept)
    found_costs, worth = certificate.cost_high, certificate.reward_mean
    made = CalibratedPolicy(replace(certified, costs=found_costs, rewards=worth), certificate)
    return made if limit is None else EpisodeLimitPolicy(made, limit)


def _checked(batch: Any) -> TransitionBatch:
    if not isinstance(batch, TransitionBatch):
        raise ConfigError(f"batch must be a TransitionBatch; got {type(batch).__name__}.")
    return batch


def members_taken(portfolio: Portfolio, numbers: IntArray) -> Portfolio:
    """Returns a portfolio of some members, and of the policies that these need."""
    which, renumbered = np.unique(portfolio.which[numbers], return_inverse=True)
    names = ("budgets", "costs", "rewards")
    columns = {name: getattr(portfolio, name)[numbers] for name in names}
    policies = tuple(portfolio.policies[number] for number in which)
    return replace(portfolio, policies=policies, which=renumbered, **columns)


def members_of(policy: Any) -> Portfolio:
    """Returns what a policy mixes at the start of an episode; of prices those that it plays.

    Raises:
        PolicyError: if it is not known with which probabilities it acts.
    """
    if isinstance(policy, CalibratedPolicy):
        return policy.portfolio
    if isinstance(policy, Portfolio):
        return members_taken(policy, _played(policy.costs, policy.rewards))
    if isinstance(policy, MultiplierPolicy):
        inner = np.arange(len(policy.dial.prices), dtype=np.float64)
        if len(policy.costs):
            inner = inner[_played(policy.costs, policy.rewards)]
        policy = policy.dial
    elif not hasattr(policy, "at_step"):
        raise PolicyError(
            "certify needs a policy with a one-step form at each step, or prices that it carries; "
            f"{type(policy).__name__} has neither."
        )
    elif isinstance(policy, PriceDial):
        inner = np.arange(len(policy.prices), dtype=np.float64)
    else:
        low, high = policy.budget_range
        inner = np.unique(np.linspace(low, high, N_BUDGETS))
        inner = inner if getattr(policy, "has_dial", True) else inner[:1]
    nothing = np.zeros(len(inner))
    return Portfolio((policy,), np.zeros(len(inner), np.int64), inner, nothing, nothing)


def _played(costs: FloatArray, rewards: FloatArray) -> IntArray:
    """Numbers of the points on a frontier."""
    found = upper_frontier(costs, rewards).index
    assert found is not None
    return np.sort(found)


@dataclass(frozen=True, eq=False)
class _Log:
    """Episodes in the order of their steps."""

    batch: TransitionBatch  # rows of an episode follow each other
    nature: Nature
    discounts: tuple[float, float]  # of rewards and costs
    worst: tuple[float, float]  # reward and cost of what is not known
    episode: IntArray  # [N], from 0 on
    first: IntArray  # [n], row of each episode
    is_cut: BoolArray  # [N], whether an episode goes on after it, unseen
    seed: int

    @classmethod
    def of(
        cls,
        batch: TransitionBatch,
        discounts: tuple[float, float],
        worst_cost: float | None,
        seed: int,
    ) -> _Log:
        whole = completed(_checked(batch))
        if whole.episode is None or whole.step is None:
            raise DataError("a certificate needs a log whose episodes and steps are known.")
        gamma, cost_gamma = discounts
        nature = nature_of(whole, gamma, cost_gamma=cost_gamma)
        whole = nature.ended(whole)
        assert whole.episode is not None
        whole = whole.take(in_order(whole.episode, whole.step))
        assert whole.episode is not None
        assert whole.step is not None
        begins = np.append(True, whole.episode[1:] != whole.episode[:-1])
        first = np.flatnonzero(begins)
        if len(first) < LEAST_EPISODES:
            raise DataError(
                f"a certificate needs at least {LEAST_EPISODES} episodes; the log has {len(first)}."
            )
        is_inside = np.append(~begins[1:], False)
        if (whole.step[first] != 0).any() or (np.diff(whole.step)[is_inside[:-1]] != 1).any():
            raise DataError("a certificate needs whole episodes: steps 0, 1, 2 and so on.")
        worst, _ = extremes_to_go(whole, gamma, cost_gamma)
        if worst_cost is not None:
            worst = worst[0], float(worst_cost)
        if worst[1] <= 0:
            raise DataError(
                "no row of the log has a cost, so it does not say how bad it may be: give "
                "worst_cost, the most that the rest of an episode can cost."
            )
        is_cut = ~is_inside & ~whole.terminal
        return cls(whole, nature, discounts, worst, np.cumsum(begins) - 1, first, is_cut, seed)

    @property
    def gamma(self) -> float:
        """Discount of costs, which bounds are about."""
        return self.discounts[1]

    @property
    def dearest(self) -> float:
        """The largest cost of a row; if none has any, the worst."""
        return float(self.batch.cost.max()) or self.worst[1]

    @property
    def steps(self) -> IntArray:
        """Step of each row, `[N]`."""
        assert self.batch.step is not None
        return self.batch.step

    def parts(self) -> list[IntArray]:
        """Rows of each part of the episodes."""
        drawn = self._drawn("parts", _PARTS, np.arange(len(self.first)))
        return [np.flatnonzero(drawn[self.episode] == part) for part in range(_PARTS)]

    def halves(self, rows: IntArray) -> list[tuple[IntArray, IntArray]]:
        """Rows to learn from and to judge by, in turn: two halves of the episodes of some rows."""
        half = self._drawn("halves", 2, np.unique(self.episode[rows]))[self.episode[rows]]
        return [(rows[half != part], rows[half == part]) for part in range(2)]

    def _drawn(self, name: str, n_parts: int, episodes: IntArray) -> IntArray:
        rng = named_generator(self.seed, f"certify/{name}/{len(episodes)}")
        found = np.full(len(self.first), -1)
        found[episodes] = rng.permutation(np.arange(len(episodes)) % n_parts)
        return found


class _Asked(NamedTuple):
    """Decisions of `M` members of a policy at the rows of a log."""

    policy: Any  # as it sees the states
    batch: TransitionBatch  # with states as it sees them
    schedule: Schedule  # of its evaluation
    heads: FloatArray  # [H], budgets of its evaluation
    options: Options  # [N, M, J]
    chance: FloatArray  # [N, M], with which they take the logged action
    after: FloatArray  # [N, M], budgets that they then hand on
    held: FloatArray  # [N, M], budgets that they hold

    @property
    def is_carried(self) -> bool:
        """Whether members hold the same budget at all times."""
        return bool((self.held == self.held[0]).all())


def _ask(policy: Any, inner: FloatArray, log: _Log) -> _Asked:
    """Asks members of a policy what they do at all rows, step by step."""
    batch, schedule = log.batch, log.nature.schedule
    policy, clock = _by_states(policy)
    if clock:
        columns: dict[str, Any] = dict(batch.to_arrays())
        for name, later in (("state", 0), ("next_state", 1)):
            columns[name] = with_clock(columns[name], log.steps + later, clock)
        batch = TransitionBatch(**columns, n_actions=batch.n_actions)
        schedule = Iterations(clock + 1)
    elif getattr(policy, "n_steps", 2) > 1 and not isinstance(schedule, Backward):
        schedule = Backward()
    is_dial = isinstance(policy, PriceDial)
    heads = inner if is_dial else grid_of(policy, 2 * N_BUDGETS - 1)
    rng = named_generator(log.seed, "certify/budgets")
    shape = len(batch), len(inner)
    held, after, chance = np.empty(shape), np.empty(shape), np.empty(shape)
    found: Options | None = None
    for step in range(int(log.steps.max()) + 1):
        everyone = np.flatnonzero(log.steps == step)
        now = policy.at_step(step)
        for rows in np.split(everyone, range(_CHUNK, len(everyone), _CHUNK)):
            held[rows] = inner if step == 0 else after[rows - 1]
            options = _options(now, batch, rows, None if is_dial else held[rows], inner)
            flat = _each(options, lambda column: column.reshape(-1, column.shape[2]))
            taken = np.repeat(batch.action[rows], len(inner))
            chances, budgets = given_action(flat, taken, rng.random(len(taken)))
            chance[rows], after[rows] = (v.reshape(-1, len(inner)) for v in (chances, budgets))
            if found is None:
                width = options.action.shape[2]
                found = Options(
                    np.zeros((*shape, width), np.int32),
                    np.zeros((*shape, width), np.float32),
                    np.zeros((*shape, width), np.float32),
                )
            for column, values in zip(found, options, strict=True):
                column[rows] = values
    assert found is not None
    return _Asked(policy, batch, schedule, heads, found, chance, after, held)


def _each(options: Options, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Options:
    """Options whose columns are changed alike."""
    return Options(*map(change, options))


def _by_states(policy: Any) -> tuple[Any, int]:
    """A policy that is shown the step as a number of the state, and the steps of its clock."""
    q: Any = getattr(policy, "q_function", None)
    parts = q.parts if isinstance(q, MeanQ) else (q,)
    clock = max(part.clock if isinstance(part, LearnedQ) else 0 for part in parts)
    if not clock:
        return policy, 0
    shown = tuple(replace(part, clock=0) for part in parts)
    return replace(policy, q_function=MeanQ(shown) if isinstance(q, MeanQ) else shown[0]), clock


def _options(
    now: Any, batch: TransitionBatch, rows: IntArray, held: FloatArray | None, inner: FloatArray
) -> Options:
    """Options `[n, M, J]` of members at rows."""
    masks = () if batch.available is None else (batch.available[rows],)
    if held is None:
        return Options(*now.options_at(batch.state[rows], inner, *masks))
    ask = getattr(now, "options", None)
    if ask is None:
        raise PolicyError(
            f"{type(now).__name__} does not say with which probabilities it acts: it has no "
            "`options`."
        )
    each = [ask(batch.state[rows], budgets, *masks) for budgets in held.T]
    return Options(*(np.stack(columns, axis=1) for columns in zip(*each, strict=True)))


class _Scores(NamedTuple):
    """Scores of `M` members by `n` episodes."""

    told: FloatArray  # [n, M, 2], reward and cost
    weight: FloatArray  # [n, M], the largest weight in the episode
    outside: FloatArray  # [n, M], how much it says of decisions that the log does not know
    by_parts: FloatArray  # [P, M], mean costs by parts of the log, evaluated by themselves

    @classmethod
    def joined(cls, scores: Sequence[_Scores], order: IntArray) -> _Scores:
        """Returns the same of all members, in an order."""
        columns = zip(*scores, strict=True)
        return cls(*(np.concatenate(column, axis=1)[:, order] for column in columns))


def _scores_of(policy: Any, inner: FloatArray, log: _Log, device: str, report: Any) -> _Scores:
    """Scores of the members of one policy."""
    asked = _ask(policy, inner, log)
    everything = np.arange(len(log.batch))
    whole = _judged(asked, log, everything, log.halves(everything), device, report)
    by_parts = [
        _judged(asked, log, rows, log.halves(rows)[:1], device, report).told[:, :, 1].mean(axis=0)
        for rows in log.parts()
    ]
    return whole._replace(by_parts=np.array(by_parts))


def _judged(
    asked: _Asked,
    log: _Log,
    rows: IntArray,
    halves: Sequence[tuple[IntArray, IntArray]],
    device: str,
    report: Any,
) -> _Scores:
    """Scores by some rows: those of each half of their episodes by what the other half teaches."""
    episodes, which = np.unique(log.episode[rows], return_inverse=True)
    n, n_members = len(episodes), asked.chance.shape[1]
    told, weight = np.zeros((n, n_members, 2)), np.zeros((n, n_members))
    outside = np.zeros((n, n_members))
    is_judged = np.zeros(n, np.bool_)
    for learned, judging in halves:
        values = _Values.of(asked, log, learned, rows, device)
        ratio = asked.chance[rows] * values.known[:, None] / values.chance[:, None]
        more = _marginal(asked, log, rows, np.isin(rows, learned), ratio)
        rho = more * ratio
        is_first = np.isin(rows, log.first)
        paid = np.column_stack((log.batch.reward[rows], log.batch.cost[rows]))
        ends, is_cut = log.batch.terminal[rows], log.is_cut[rows]
        later = np.append(values.own[1:], values.own[:1], axis=0)
        later[ends], later[is_cut] = 0.0, log.worst
        surprise = paid[:, None] + np.array(log.discounts) * later - values.taken
        # Weights are discounted as costs are; those of rewards follow by the step.
        ratio_r = (log.discounts[0] / log.gamma if log.gamma else 1.0) ** log.steps[rows]
        weights = np.stack((rho * ratio_r[:, None], rho), axis=2)
        score = weights * surprise + np.where(is_first[:, None, None], values.own, 0.0)
        lost = more * values.unknown + log.gamma * rho * is_cut[:, None]
        mine = np.isin(rows, judging)
        np.add.at(told, which[mine], score[mine])
        np.add.at(outside, which[mine], lost[mine])
        np.maximum.at(weight, which[mine], rho[mine])
        is_judged[which[mine]] = True
        report(1)
    told, weight, outside = (column[is_judged] for column in (told, weight, outside))
    return _Scores(told, weight, outside, np.empty((0, n_members)))


class _Values(NamedTuple):
    """Fitted values at `n` rows, of `M` members, and what the log does there."""

    own: FloatArray  # [n, M, 2], of what members do
    taken: FloatArray  # [n, M, 2], of what was done
    known: BoolArray  # [n], whether that is known
    unknown: FloatArray  # [n, M], chance with which members do what is not known
    chance: FloatArray  # [n], of what was done

    @classmethod
    def of(
        cls, asked: _Asked, log: _Log, learned: IntArray, rows: IntArray, device: str
    ) -> _Values:
        batch, n_members = asked.batch, asked.chance.shape[1]
        discounts = log.discounts
        model = TableModel() if _is_filled(log, len(learned), 1) else ForestModel(_TREES)
        how = (discounts, log.seed, device, asked.schedule, np.inf, _SEEN, log.worst)
        learned_from = batch.take(learned)
        evaluated = evaluate_policy(asked.policy, learned_from, Terms(model, asked.heads, *how))
        found = cls(
            np.empty((len(rows), n_members, 2)),
            np.empty((len(rows), n_members, 2)),
            np.empty(len(rows), np.bool_),
            np.empty((len(rows), n_members)),
            np.empty(len(rows)),
        )
        steps = log.steps[rows] if isinstance(asked.schedule, Backward) else np.zeros(len(rows))
        for step in np.unique(steps):
            everyone = np.flatnonzero(steps == step)
            for some in np.split(everyone, range(_CHUNK, len(everyone), _CHUNK)):
                found._fill(some, asked, rows[some], int(step), evaluated)
        if batch.probability is not None:
            return found._replace(chance=batch.probability[rows].astype(np.float64))
        return found

    def _fill(
        self, some: IntArray, asked: _Asked, rows: IntArray, step: int, evaluated: Evaluated
    ) -> None:
        """Fills in what is so at a step."""
        batch = asked.batch
        states, masks = batch.state[rows], rows_at(batch.available, rows)
        options = _each(asked.options, lambda column: column[rows])
        action = np.broadcast_to(batch.action[rows][:, None, None], (*asked.chance[rows].shape, 1))
        done = Options(action, asked.after[rows][..., None], np.ones(action.shape))
        self.own[some] = evaluated.of_options(states, step, options, masks)
        self.taken[some] = evaluated.of_options(states, step, done, masks)
        known = evaluated.known(states, masks)
        self.known[some] = known[np.arange(len(rows)), batch.action[rows]]
        is_known = np.take_along_axis(known[:, None], options.action.astype(np.int64), axis=2)
        self.unknown[some] = np.where(is_known, 0.0, options.probability).sum(axis=2)
        likely = evaluated.probabilities(states)[np.arange(len(rows)), batch.action[rows]]
        self.chance[some] = np.maximum(likely, _LEAST_CHANCE)


def _is_filled(log: _Log, n_rows: int, n_steps: int) -> bool:
    """Whether states are so few that each has enough rows, at each step."""
    n_states = log.nature.n_states
    return n_states is not None and n_rows >= _FILLED * log.batch.n_actions * n_states * n_steps


def _marginal(
    asked: _Asked, log: _Log, rows: IntArray, is_learned: BoolArray, ratio: FloatArray
) -> FloatArray:
    """Marginal weights `[n, M]` at rows."""
    is_first = np.isin(rows, log.first)
    steps = log.steps[rows] if isinstance(asked.schedule, Backward) else np.zeros(len(rows), int)
    n_steps = int(steps.max()) + 1
    states = np.asarray(asked.batch.state[rows], np.float64)
    later = np.append(states[1:], states[-1:], axis=0)
    is_end = np.append(is_first[1:], True)
    change = np.where(is_end[:, None], 0.0, later - states)
    outcomes = np.column_stack((log.batch.cost[rows], is_end, change))
    is_table = asked.is_carried and _is_filled(log, int(is_learned.sum()), n_steps)
    found = np.empty_like(ratio)
    if asked.is_carried:
        groups = [states]
        members = [np.arange(ratio.shape[1])]
    else:  # budgets that are handed on are part of the state
        groups = [np.column_stack((states, held)) for held in asked.held[rows].T]
        members = [np.array([number]) for number in range(ratio.shape[1])]
    for shown, some in zip(groups, members, strict=True):
        support = Support.of(
            shown[is_learned],
            asked.batch.action[rows][is_learned],
            log.episode[rows][is_learned],
            asked.batch.n_actions,
            least=_NEAR * n_steps,
            is_table=is_table,
            seed=log.seed,
            also=outcomes[is_learned],
        )
        cells = support.groups(shown) * n_steps + steps[:, None]
        parts = None if n_steps == 1 else steps
        found[:, some] = marginal_weights(
            ratio[:, some], cells, is_learned, is_first, log.gamma, steps=parts
        )
    return found


def marginal_weights(
    ratio: FloatArray,
    cells: IntArray,
    is_learned: BoolArray,
    is_first: BoolArray,
    gamma: float,
    *,
    steps: IntArray | None = None,
) -> FloatArray:
    """Returns how much more often than the log policies come to the states of rows, `[n, M]`.

    Args:
        ratio: pi / b of the logged actions, `[n, M]`; rows of an episode follow each other.
        cells: groups of states that are alike, `[n, T]`: one in each of T partitions.
        is_learned: rows to learn from, `[n]`, whole episodes.
        is_first: `[n]`, whether an episode begins with the row.
        gamma: discount.
        steps: `[n]`, if cells of different steps differ: then one pass over the steps is enough.

    >>> ratio = np.array([[2.0], [2.0], [0.0], [2.0]])  # two episodes of two steps
    >>> first, cells = np.array([True, False, True, False]), np.array([[0], [1], [0], [1]])
    >>> marginal_weights(ratio, cells, first | True, first, 1.0).ravel().tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    n_rows, n_trees = cells.shape
    n_cells = int(cells.max()) + 1
    ends = np.arange(0, n_rows * n_trees + 1, n_trees)
    within = csr_array((np.ones(cells.size), cells.ravel(), ends), shape=(n_rows, n_cells))
    parts = [np.arange(n_rows)]
    if steps is not None:
        parts = [np.flatnonzero(steps == step) for step in np.unique(steps)]
    places = np.arange(n_rows)
    longest = int((places - np.maximum.accumulate(np.where(is_first, places, 0))).max()) + 1
    weight = np.ones(ratio.shape)
    prepared = []
    for rows in parts:
        own = rows[is_learned[rows]]
        count = within[own].sum(axis=0)
        share = np.maximum(within[rows] @ (count > 0), 1.0)[:, None]
        prepared.append((rows, own, np.maximum(count, 1.0)[:, None], share))
    for _ in range(longest if steps is None else 1):
        before = weight.copy()
        for rows, own, count, share in prepared:
            carried = gamma * ratio[own - 1] * weight[own - 1]
            carried[is_first[own]] = 1.0
            means = (within[own].T @ carried) / count
            weight[rows] = (within[rows] @ means) / share
        if np.abs(weight - before).max() <= _SETTLED * np.abs(weight).max():
            break
    return weight


class Bounds(NamedTuple):
    """Upper bounds of `M` members."""

    estimate: FloatArray  # [M]
    high: FloatArray  # [M]
    effective: FloatArray  # [M], episodes that would tell as much if all had the same weight


def upper_bounds(scores: Any, chance: float, *, largest: float) -> Bounds:
    """Returns upper bounds of expected costs, each of which is to fail with probability `chance`.

    Args:
        scores: `told [n, M, 2]`, `weight [n, M]`, `by_parts [P, M]`.
        chance: above 0 and below 1.
        largest: cost of a row.
    """
    told: FloatArray = scores.told[:, :, 1]
    n = len(told)
    estimate = told.mean(axis=0)
    off = told - estimate
    deviation = np.maximum(told.std(axis=0, ddof=1), 1e-12)
    skewness = np.maximum((off**3).mean(axis=0) / deviation**3, 0.0)
    tails = (off**4).mean(axis=0) / deviation**4
    degrees = np.clip(2 * n / np.maximum(tails - 1, 1e-9), 2, n - 1)
    by_parts: FloatArray = scores.by_parts
    of_parts = by_parts.std(axis=0, ddof=1) / np.sqrt(len(by_parts))
    error = np.hypot(deviation / np.sqrt(n), of_parts)
    drift = _REST * np.abs(estimate - by_parts.mean(axis=0))
    quantile = stdtrit(degrees, 1 - chance)
    quantile = quantile + skewness * (1 + 2 * quantile**2) / (6 * np.sqrt(n))
    weight: FloatArray = scores.weight
    effective = weight.sum(axis=0) ** 2 / np.maximum((weight**2).sum(axis=0), 1e-12)
    unseen = largest * np.log(1 / chance) / np.maximum(effective, 1.0)
    estimate = np.maximum(estimate, 0.0)
    return Bounds(estimate, estimate + np.maximum(quantile * error + drift, unseen), effective)


def _needed(found: Bounds, outside: FloatArray, log: _Log) -> FloatArray:
    """Episodes that would make good bounds, about, `[M]`."""
    n = len(log.first)
    wide = (found.high - found.estimate) / (_CLOSE * max(log.worst[1], 1e-12))
    lost = outside / _LOST
    more = np.maximum(np.maximum(wide**2, lost**2), _FEW / np.maximum(found.effective, 1e-6))
    exact = np.maximum(n * more, LEAST_EPISODES)
    digits = 10.0 ** np.floor(np.log10(exact) - 1)
    needed: FloatArray = np.ceil(exact / digits) * digits
    return needed


def _refuse(found: Bounds, outside: FloatArray, needed: FloatArray, log: _Log) -> None:
    """Says why no budget can be promised.

    Raises:
        DataError: always.
    """
    best = int(np.argmin(needed))
    raise DataError(
        "the log certifies no budget. The bound of the best member is "
        f"{found.high[best]:.4g}, and the worst that was seen {log.worst[1]:.4g}; "
        f"{outside[best]:.0%} of the episodes come to a decision that the log does "
        f"not know, and {len(log.first):,} episodes tell as much as {found.effective[best]:,.0f} "
        f"of its own. It needs about {needed[best]:,.0f} episodes of this kind."
    )
