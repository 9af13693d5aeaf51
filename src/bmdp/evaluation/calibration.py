"""Portfolios by what their members cost when played: measured, or bounded for a promise.

To *measure* a portfolio is to play each member (a policy at an inner budget), and to take its mean
cost and reward.

To *calibrate* policies is to bound the expected cost of each member from above, such that all
bounds hold together with a given confidence. A mixture of members that is tossed at the start of an
episode costs the mixture of their costs, so one that spends the budget by the bounds costs at most
the budget in truth. Since the bounds hold together, this is so for all budgets at once, whichever
are asked for later.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeGuard

import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import ArrayLike

from bmdp.arrays import FloatArray, real_array
from bmdp.checks import require_choice, require_count
from bmdp.cluster import Engine, engaged, require_engine
from bmdp.envs.episodes import OnPlayed
from bmdp.envs.slots import find_spec, open_slots
from bmdp.errors import ConfigError, DataError
from bmdp.evaluation.rollouts import Counting, Plan, checked_budgets, play_plans
from bmdp.evaluation.statistics import (
    bernstein_interval,
    bounded_interval,
    share_interval,
    simultaneous_confidence,
)
from bmdp.kinds import checked
from bmdp.policies.limited import EpisodeLimitPolicy, episode_limit_of
from bmdp.policies.policy import BudgetedPolicy, Policy
from bmdp.policies.portfolio import CalibratedPolicy, Certificate, Portfolio
from bmdp.randomness import stream_key

N_BUDGETS = 11
"""Inner budgets of a policy, where none are given."""

_N_GROUPS = 10  # of episodes, for the largest deviation
_ROUNDING = 1e-9  # of a sum of discounted costs, relative to their range


class MemberReturns(NamedTuple):
    """Discounted returns of each of `K` members in `n` episodes, costs as budgets count them."""

    rewards: FloatArray  # [K, n]
    costs: FloatArray  # [K, n]
    gamma: float  # discount of the environment


@checked
def play_members(  # noqa: PLR0913
    portfolio: Portfolio,
    env: str | EnvSpec,
    *,
    n_episodes: int,
    seed: int,
    stream: str = "portfolio",
    workers: int = 1,
    engine: Engine = "local",
    max_steps: int = 10_000,
    progress: OnPlayed | None = None,
    cost_gamma: float | None = None,
) -> MemberReturns:
    """Returns what each member of a portfolio earns and pays when it is played by itself.

    Args:
        portfolio: whose members are played at their inner budgets.
        env: an id, a short name, or a Gymnasium specification.
        n_episodes: that each member is played for; all meet the same chances.
        seed: seed of all random numbers, from 0 on.
        stream: name of the random numbers of members.
        workers: number of processes.
        engine: "ray" to play on a Ray cluster, as in `evaluate`.
        max_steps: of an episode, where the environment's metadata have no `horizon`.
        progress: called with the number of episodes played so far, and of all.
        cost_gamma: discount of costs, as in `evaluate`.

    Raises:
        ConfigError: if a setting is out of range.
        PolicyError: if a member does not fit the environment.

    >>> from bmdp.envs import ScriptedPolicy
    >>> rules = [ScriptedPolicy(f"slot-filling/{rule}") for rule in ("voice-again", "key-pad")]
    >>> coin = Portfolio.coin(*rules, cheap_cost=0.0, dear_cost=0.578)
    >>> play_members(coin, "slot-filling", n_episodes=100, seed=0).costs.mean(axis=1).tolist()
    [0.0, 0.56]
    """
    require_count("n_episodes", n_episodes, 1)
    rewards, costs = np.zeros((2, len(portfolio.which), n_episodes))
    n_before = 0

    def report(done: int, _: int) -> None:
        if progress is not None:
            progress(n_before + done, rewards.size)

    how: dict[str, Any] = {"workers": workers, "engine": engine, "max_steps": max_steps}
    with engaged(engine, workers):
        for number, policy in enumerate(portfolio.policies):
            members = np.flatnonzero(portfolio.which == number)
            budgets = portfolio.budgets[members].tolist()
            plans = [
                Plan(0, n_episodes, budget, f"{stream}/{k}")
                for k, budget in zip(members, budgets, strict=True)
            ]
            counting = Counting.of(policy, cost_gamma)
            own = how | {"counting": counting, "progress": report}
            played, facts = play_plans(policy, env, plans, seed=seed, **own)
            rewards[members] = [returns.discounted_reward for returns in played]
            costs[members] = [returns.dial_cost for returns in played]
            n_before += n_episodes * len(members)
    return MemberReturns(rewards, costs, facts.gamma)


@checked
def measure_portfolio(  # noqa: PLR0913
    portfolio: Portfolio,
    env: str | EnvSpec,
    *,
    n_episodes: int,
    seed: int,
    by: Literal["mean", "deviation"] = "mean",
    workers: int = 1,
    engine: Engine = "local",
    max_steps: int = 10_000,
    progress: OnPlayed | None = None,
) -> Portfolio:
    """Returns the portfolio with costs and rewards of its members as they were measured.

    Args:
        portfolio: such as `LagrangianFTQ` returns, with a member for each price.
        env: an id, a short name, or a Gymnasium specification.
        n_episodes: that each member is played for.
        seed: seed of all random numbers, from 0 on.
        by: "mean": a member costs its mean. "deviation": it costs the mean of the worst of 10
            groups of episodes, so that safer members are chosen where costs vary more.
        workers: number of processes.
        engine: as in `evaluate`.
        max_steps: of an episode, where the environment's metadata have no `horizon`.
        progress: called with the number of episodes played so far, and of all.

    Raises:
        ConfigError: if a setting is out of range, or there are too few episodes for groups.
        PolicyError: if a member does not fit the environment.

    Paper: the figure of the Lagrangian appendix.

    >>> from bmdp.envs import ScriptedPolicy
    >>> rules = [ScriptedPolicy(f"slot-filling/{rule}") for rule in ("voice-again", "key-pad")]
    >>> guess = {"budgets": [0, 0], "costs": [0, 0], "rewards": [0, 0]}
    >>> unknown = Portfolio(tuple(rules), which=[0, 1], **guess)
    >>> found = measure_portfolio(unknown, "slot-filling", n_episodes=100, seed=0)
    >>> found.costs.tolist(), found.mixtures([0.28]).p_upper.tolist()
    ([0.0, 0.56], [0.5])
    """
    require_choice("by", by, ("mean", "deviation"))
    require_count("n_episodes", n_episodes, 1 if by == "mean" else _N_GROUPS)
    how: dict[str, Any] = {"workers": workers, "engine": engine, "max_steps": max_steps}
    played = play_members(
        portfolio, env, n_episodes=n_episodes, seed=seed, progress=progress, **how
    )
    groups = np.array_split(played.costs, 1 if by == "mean" else _N_GROUPS, axis=1)
    costs = np.max([group.mean(axis=1) for group in groups], axis=0)
    return replace(portfolio, costs=costs, rewards=played.rewards.mean(axis=1))


class Bounds(NamedTuple):
    """Least and largest discounted cost, or reward, of an episode."""

    lowest: float
    highest: float
    binary: bool = False  # whether it is one of the two, and nothing between


@checked
def calibrate(  # noqa: PLR0913
    policies: BudgetedPolicy | Sequence[BudgetedPolicy],
    env: str | EnvSpec,
    *,
    confidence: float,
    n_episodes: int,
    seed: int,
    budgets: ArrayLike | None = None,
    workers: int = 1,
    engine: Engine = "local",
    cost_range: tuple[float, float] | None = None,
    binary_costs: bool | None = None,
    reward_range: tuple[float, float] | None = None,
    max_steps: int = 10_000,
    progress: OnPlayed | None = None,
    cost_gamma: float | None = None,
) -> Policy:
    """Returns a policy that keeps its budget in expectation, with a given confidence.

    The promise: with probability `confidence` over the episodes played here, at *every* budget from
    `certificate.smallest_budget` on, an episode that starts as those of the environment costs at
    most the budget in expectation (discounted, with the settings given). Below that budget the
    status is INFEASIBLE. A budget that is moved in the middle of an episode is not covered. Neither
    are policies that were chosen by what the same seed showed here: take a new one for new ones.

    Of policies with an episode limit it promises that the chance to exceed it is at most the
    budget.

    Every inner budget of every policy is a member, played for `n_episodes`. Bounds on costs are
    those of Clopper and Pearson for binary costs, and otherwise the better of Hoeffding's and of
    the empirical Bernstein bound, each with half of the risk; each of K members may fail with
    probability (1 - confidence) / K (Bonferroni), or with half of it where rewards are bounded too.

    Args:
        policies: a policy, or several.
        env: an id, a short name, or a Gymnasium specification with its settings.
        confidence: probability that the promise holds, above 0 and below 1.
        n_episodes: number of episodes of each member.
        seed: seed of all random numbers, from 0 on.
        budgets: inner budgets, brought into each policy's `budget_range`; 11 equally spaced ones
            over that range if not given. A policy without a dial has one member.
        workers: number of processes, as in `evaluate`.
        engine: as there.
        cost_range: no episode has a lower discounted cost than the first, or a higher one than the
            second, whether seen or not; from the environment's metadata if not given.
        binary_costs: whether every episode costs one of these two, and nothing between; from the
            metadata if neither is given.
        reward_range: the same for rewards. If given, members are compared by lower bounds of their
            rewards, and these hold together with the bounds on costs. If not, they are compared by
            mean rewards, of which nothing is promised.
        max_steps: of an episode, where the environment's metadata have no `horizon`.
        progress: called with the number of episodes played so far, and of all.
        cost_gamma: discount of the costs that are promised, as in `evaluate`. The costs of the
            environment's metadata are those of its own discount: with another, give `cost_range`.

    Returns:
        A `CalibratedPolicy`; within an `EpisodeLimitPolicy`, if that is what was given.

    Raises:
        BudgetError: if a budget is not a finite number.
        ConfigError: if there is no such environment, a setting is out of range, there is no policy,
            or the most that an episode can cost is not known.
        DataError: if an episode costs or earns more, or less, than the ranges given allow.
        PolicyError: if a policy does not fit the environment, or cannot travel to the workers.
        EnvError: if an episode does not end in time, or the environment gives no cost.

    >>> from bmdp.envs import ScriptedPolicy
    >>> rules = [ScriptedPolicy(f"slot-filling/{rule}") for rule in ("voice-again", "key-pad")]
    >>> policy = calibrate(rules, "slot-filling", confidence=0.95, n_episodes=2_000, seed=0)
    >>> policy.certificate.cost_mean.round(3).tolist()  # the truth is 0 and 1 - 0.75**3 = 0.578
    [0.0, 0.588]
    >>> policy.certificate.cost_high.round(3).tolist()
    [0.002, 0.61]
    """
    simultaneous_confidence(confidence, 1)
    require_count("n_episodes", n_episodes, 1)
    require_count("workers", workers, 1)
    require_engine(engine)
    members = _members(policies, budgets)
    spec, limit = find_spec(env), _common_limit(members)
    counting, rewards_of = Counting.of(members.policies[0], cost_gamma), None
    costs_of = _cost_bounds(spec, cost_range, binary_costs, counting)
    if reward_range is not None:
        rewards_of = Bounds(*_checked_range("reward_range", reward_range))
    rewards, costs, gamma = play_members(
        members,
        spec,
        n_episodes=n_episodes,
        # Episodes are new ones for whoever evaluated with the same seed before.
        seed=stream_key(seed, "calibrate")[0],
        stream="calibrate",
        workers=workers,
        engine=engine,
        max_steps=max_steps,
        progress=progress,
        cost_gamma=cost_gamma,
    )
    each = (1 - confidence) / len(members.which) / (1 if rewards_of is None else 2)
    cost_high = upper_means(within("cost", costs, costs_of), costs_of, chance=each)
    reward_low = np.full(len(rewards), -np.inf)
    if rewards_of is not None:
        mirrored = Bounds(-rewards_of.highest, -rewards_of.lowest)
        reward_low = -upper_means(-within("reward", rewards, rewards_of), mirrored, chance=each)
    certificate = Certificate(
        confidence=float(confidence),
        n_episodes=int(n_episodes),
        seed=int(seed),
        env=spec.id,
        settings=_settings(spec),
        gamma=gamma,
        cost_range=(costs_of.lowest, costs_of.highest),
        binary_costs=costs_of.binary,
        cost_mean=costs.mean(axis=1),
        cost_high=cost_high,
        reward_mean=rewards.mean(axis=1),
        reward_low=reward_low,
        **counting._asdict(),
    )
    worth = rewards.mean(axis=1) if rewards_of is None else reward_low
    known: dict[str, Any] = {"costs": cost_high, "rewards": worth}
    if limit is None:
        return CalibratedPolicy(replace(members, **known), certificate)
    # The limit goes around the portfolio, so that a dial that is moved forgets no cost.
    inside = tuple(policy.policy for policy in members.policies if _is_limited(policy))
    found = CalibratedPolicy(replace(members, policies=inside, **known), certificate)
    return EpisodeLimitPolicy(found, limit)


def _is_limited(policy: BudgetedPolicy) -> TypeGuard[EpisodeLimitPolicy]:
    return isinstance(policy, EpisodeLimitPolicy)


def _common_limit(members: Portfolio) -> float | None:
    """The limit on an episode that budgets of all members are about, if any.

    Raises:
        ConfigError: if they are not about the same.
    """
    limits = {episode_limit_of(policy) for policy in members.policies}
    is_limited = [_is_limited(policy) for policy in members.policies]
    if len(limits) > 1 or (limits != {None} and not all(is_limited)):
        told = ", ".join("none" if limit is None else f"{limit:g}" for limit in limits)
        raise ConfigError(
            f"policies must have the same episode limit, each around a policy; got limits {told}."
        )
    return limits.pop()


def upper_means(samples: FloatArray, bounds: Bounds, *, chance: float) -> FloatArray:
    """Returns upper bounds of expectations, each of which fails with probability `chance` at most.

    Args:
        samples: independent ones of each row, `[K, n]`, within the bounds.
        bounds: of every sample, whether seen or not.
        chance: above 0 and below 1.

    >>> upper_means(np.zeros((1, 100)), Bounds(0.0, 1.0, binary=True), chance=0.025).round(4)
    array([0.0362])
    """
    lowest, highest, binary = bounds
    if lowest == highest:
        return np.full(len(samples), highest)
    if binary:
        hits = (samples > (lowest + highest) / 2).sum(axis=1)
        two_sided = max(1 - 2 * chance, 0.01)
        share = share_interval(hits, samples.shape[1], confidence=two_sided).high
        return lowest + (highest - lowest) * share
    # Each of the four ends fails with chance / 2, so the two upper ones together with chance.
    settings: dict[str, Any] = {"lowest": lowest, "highest": highest, "confidence": 1 - chance}
    return np.minimum(
        bounded_interval(samples, **settings).high, bernstein_interval(samples, **settings).high
    )


def within(what: str, samples: FloatArray, bounds: Bounds) -> FloatArray:
    """Returns costs or rewards `[K, n]` of episodes, made to be within their bounds.

    Raises:
        DataError: naming the first that is off by more than rounding.
    """
    lowest, highest, binary = bounds
    slip = _ROUNDING * max(abs(lowest), abs(highest), highest - lowest)
    good = (samples >= lowest - slip) & (samples <= highest + slip)
    rule = f"from {lowest:g} to {highest:g}"
    if binary:
        good &= np.minimum(abs(samples - lowest), abs(samples - highest)) <= slip
        rule = f"{lowest:g} or {highest:g}, as {what}s are said to be binary"
    bad = np.argwhere(~good)
    if len(bad):
        member, episode = bad[0]
        raise DataError(
            f"the {what} of an episode must be {rule} ({what}_range); got "
            f"{samples[member, episode]:g} at episode {episode} of member {member}."
        )
    return samples.clip(lowest, highest)


def _members(
    policies: BudgetedPolicy | Sequence[BudgetedPolicy], budgets: ArrayLike | None
) -> Portfolio:
    """All policies at all their inner budgets, of which nothing is known yet."""
    given = list(policies) if isinstance(policies, Sequence) else [policies]
    if not given:
        raise ConfigError("policies must hold at least one policy; got none.")
    different = [p for i, p in enumerate(given) if not any(p is other for other in given[:i])]
    which, inner = [], []
    for number, policy in enumerate(different):
        asked = _inner_budgets(policy, budgets)
        which += [number] * len(asked)
        inner += asked
    unknown = np.zeros((2, len(which)))
    return Portfolio(tuple(different), np.array(which), np.array(inner), *unknown)


def _inner_budgets(policy: BudgetedPolicy, budgets: ArrayLike | None) -> list[float]:
    """Different budgets of a policy, rising."""
    low, high = policy.budget_range
    if not getattr(policy, "has_dial", True):
        return [low]
    if budgets is None:
        return sorted(set(np.linspace(low, high, N_BUDGETS).tolist()))
    asked = checked_budgets("budgets", np.clip(real_array("budgets", budgets), low, high), policy)
    return sorted(set(asked.tolist()))


def _cost_bounds(
    spec: EnvSpec,
    cost_range: tuple[float, float] | None,
    binary_costs: bool | None,
    counting: Counting,
) -> Bounds:
    """Bounds of an episode's cost, as the caller or else the environment says."""
    if counting.episode_limit is not None:
        if cost_range is not None or binary_costs is not None:
            raise ConfigError(
                "cost_range and binary_costs are not for an episode limit: an episode exceeds it, "
                "or does not."
            )
        return Bounds(0.0, 1.0, binary=True)
    binary = bool(binary_costs)
    if cost_range is not None:
        return Bounds(*_checked_range("cost_range", cost_range), binary)
    slots = open_slots(spec)
    slots.close()
    said = slots.metadata.get("cost_range")
    if said is not None and counting.cost_gamma not in (None, slots.facts.gamma):
        raise ConfigError(
            f"cost_range must be given: the metadata of {spec.id} say it for costs discounted by "
            f"{slots.facts.gamma:g}, not by {counting.cost_gamma:g}."
        )
    if said is None:
        raise ConfigError(
            f"cost_range must be given: the metadata of {spec.id} do not say how little and how "
            "much an episode can cost."
        )
    if binary_costs is None:
        binary = bool(slots.metadata.get("binary_costs", False))
    return Bounds(*_checked_range("cost_range", said), binary)


def _checked_range(name: str, ends: tuple[float, float]) -> tuple[float, float]:
    values = np.asarray(ends)
    if values.shape != (2,) or values.dtype.kind not in "fiu" or not np.isfinite(values).all():
        raise ConfigError(f"{name} must be two finite numbers; got {ends!r}.")
    if values[0] > values[1]:
        raise ConfigError(f"{name} must have the lower number first; got {ends!r}.")
    return float(values[0]), float(values[1])


def _settings(spec: EnvSpec) -> str:
    """Settings of an environment as JSON; what JSON cannot say, by the name of its type."""
    settings = dict(spec.kwargs)
    if spec.max_episode_steps is not None:
        settings["max_episode_steps"] = spec.max_episode_steps

    def plain(value: Any) -> Any:
        is_number = isinstance(value, np.ndarray | np.generic)
        return value.tolist() if is_number else f"<{type(value).__name__}>"

    return json.dumps(settings, default=plain, sort_keys=True)
