"""Policies measured by playing them: what they earn and pay at each budget, and after a move.

What episode k does is a function of the seed and of k, in whatever batch and by whichever worker it
is played:

- the environment draws from a seed that is made of the seed and k, whatever the budget: at all
  budgets episode k meets the same chances (common random numbers), so differences between budgets
  are less noisy than each of the two;
- the policy draws from stream k of a name, which a plan gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium.envs.registration import EnvSpec
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
from bmdp.checks import require_count, require_share
from bmdp.cluster import Engine, require_engine
from bmdp.envs.episodes import OnPlayed, environment_seeds, play_episodes, play_parts
from bmdp.envs.slots import Facts, Slots, find_spec, open_slots
from bmdp.errors import BudgetError, ConfigError, DataError
from bmdp.evaluation.statistics import (
    Interval,
    mean_interval,
    quantiles,
    share_interval,
    simultaneous_confidence,
    worst_mean,
)
from bmdp.frontier import BudgetStatus
from bmdp.kinds import checked
from bmdp.policies.limited import Spent, episode_limit_of
from bmdp.policies.policy import BudgetedPolicy, admitted_budgets
from bmdp.randomness import EpisodeStreams, stream_key

COST_LEVELS = (0.5, 0.9, 0.99)
"""Levels of `Evaluation.cost_quantiles`."""

WORST_SHARE = 0.1
"""Share of episodes of `Evaluation.cost_cvar`."""


@dataclass(frozen=True)
class Plan:
    """Episodes `first` to `last` - 1 at a budget, which may be moved in the middle."""

    first: int
    last: int
    budget: float
    stream: str  # name of the policy's random numbers
    since: int = 0  # step from which rewards and costs are counted
    new_budget: float | None = None  # held from that step on

    def __len__(self) -> int:
        return self.last - self.first


class Returns(NamedTuple):
    """Returns of `N` episodes from a step on."""

    reward: FloatArray  # [N]
    cost: FloatArray  # [N]
    discounted_reward: FloatArray  # [N]
    discounted_cost: FloatArray  # [N]
    dial_cost: FloatArray  # [N], as budgets count costs
    length: IntArray  # [N], steps
    infeasible: BoolArray  # [N], whether the first decision from that step on said so
    going: BoolArray  # [N], whether the episode had not ended before


class Counting(NamedTuple):
    """Costs as budgets count them, if not by the discount of the environment."""

    cost_gamma: float | None = None  # discount of costs
    episode_limit: float | None = None  # on single episodes: then a cost is a share of these

    @classmethod
    def of(cls, policy: BudgetedPolicy, cost_gamma: float | None) -> Counting:
        """That of a policy.

        Raises:
            ConfigError: if there is a limit, and a discount.
        """
        if cost_gamma is not None:
            require_share("cost_gamma", cost_gamma)
        limit = episode_limit_of(policy)
        if limit is not None and cost_gamma not in (None, 1):
            raise ConfigError(
                "cost_gamma must be 1, or not given, where budgets are chances that an episode "
                f"costs more than {limit:g}; got {cost_gamma:g}."
            )
        return cls(cost_gamma, limit)


def play_plans(  # noqa: PLR0913
    policy: BudgetedPolicy,
    env: str | EnvSpec,
    plans: Sequence[Plan],
    *,
    seed: int,
    workers: int = 1,
    engine: Engine = "local",
    max_steps: int = 10_000,
    progress: OnPlayed | None = None,
    counting: Counting | None = None,
) -> tuple[list[Returns], Facts]:
    """Returns what the episodes of each plan did, played in batches, and facts of the environment.

    Arguments and errors are those of `evaluate`.
    """
    stream_key(seed, "")  # refuses what is no seed
    require_count("workers", workers, 1)
    require_engine(engine)
    require_count("max_steps", max_steps, 1)
    with closing(open_slots(find_spec(env))) as slots:
        batches = [_batches(plan, min(slots.most, -(-len(plan) // workers))) for plan in plans]
        every = [batch for of_plan in batches for batch in of_plan]
        play = partial(_returns, seed=seed, max_steps=max_steps, counting=counting or Counting())
        how: dict[str, Any] = {"workers": workers, "engine": engine, "progress": progress}
        found = play_parts(play, policy, slots, every, **how)
    rest = iter(found)
    of_plans = [[next(rest) for _ in of_plan] for of_plan in batches]
    joined = [Returns(*map(np.concatenate, zip(*parts, strict=True))) for parts in of_plans]
    return joined, slots.facts


def _batches(plan: Plan, size: int) -> list[Plan]:
    firsts = range(plan.first, plan.last, size)
    return [replace(plan, first=first, last=min(first + size, plan.last)) for first in firsts]


def _returns(
    policy: BudgetedPolicy,
    slots: Slots,
    plan: Plan,
    *,
    seed: int,
    max_steps: int,
    counting: Counting,
) -> Returns:
    """Plays all episodes of a plan side by side."""
    numbers, n = range(plan.first, plan.last), len(plan)
    reward, cost, discounted_reward, discounted_cost, dial_cost = np.zeros((5, n))
    spent, (cost_gamma, limit) = Spent.nothing(n), counting
    length, infeasible, going = np.zeros(n, np.int64), *np.zeros((2, n), np.bool_)
    for step in play_episodes(
        policy,
        slots,
        budgets=plan.budget,
        seeds=environment_seeds(seed, numbers),
        streams=EpisodeStreams.named(seed, plan.stream, numbers),
        max_steps=max_steps,
        moves=None if plan.new_budget is None else {plan.since: plan.new_budget},
    ):
        before = spent
        spent = spent if limit is None else spent.after(step.costs, limit)
        if step.index < plan.since:
            continue
        if step.index == plan.since:
            going = step.going
            infeasible = going & (step.decision.status == BudgetStatus.INFEASIBLE)
        discount = slots.facts.gamma ** (step.index - plan.since)
        reward += step.rewards
        cost += step.costs
        discounted_reward += discount * step.rewards
        discounted_cost += discount * step.costs
        if limit is not None:
            dial_cost += spent.crossed(before)
        elif cost_gamma is None:
            dial_cost += discount * step.costs
        else:
            dial_cost += cost_gamma ** (step.index - plan.since) * step.costs
        length += step.going
    discounted = discounted_reward, discounted_cost, dial_cost
    return Returns(reward, cost, *discounted, length, infeasible, going)


def checked_budgets(name: str, budgets: ArrayLike, policy: BudgetedPolicy) -> FloatArray:
    """Returns budgets `[B]` that a policy takes.

    Raises:
        BudgetError: if there is none, or one is not a finite number, or below `budget_range`.
    """
    try:
        asked = real_array(name, budgets).astype(np.float64)
    except DataError as error:
        raise BudgetError(str(error)) from error
    if asked.ndim != 1 or not asked.size:
        raise BudgetError(
            f"{name} must have shape [B], with at least one budget; got {list(asked.shape)}."
        )
    require_finite(name, asked, error=BudgetError)
    return admitted_budgets(asked, len(asked), policy.budget_range)


def columns(name: str, interval: Interval) -> dict[str, FloatArray]:
    """Returns an interval as columns of an evaluation: `name_mean`, `name_low`, `name_high`."""
    return {f"{name}_{end}": values for end, values in interval._asdict().items()}


def _none() -> FloatArray:
    return np.empty(0)


@checked
@dataclass(frozen=True, eq=False)
class Evaluation:
    """Reward and cost of a policy at each of `B` budgets: means over episodes, with intervals.

    Intervals are Student's, each with the given confidence by itself. `discounted_*` are returns
    with the discount of the environment; the others are plain sums over an episode. Budgets are
    about `dial_cost_*`: discounted costs, unless there is a `cost_gamma`, or an `episode_limit`:
    then these are shares of episodes that cost more than the limit (Clopper and Pearson's).

    >>> from bmdp.envs import ScriptedPolicy
    >>> policy = ScriptedPolicy("slot-filling/key-pad")
    >>> found = evaluate(policy, "slot-filling", budgets=[0.2, 0.8], n_episodes=100, seed=0)
    >>> found.cost_mean.tolist(), found.cost_quantiles[0].tolist()  # it does not look at the budget
    ([0.56, 0.56], [1.0, 1.0, 1.0])
    """

    budgets: FloatArray  # [B], budgets asked for
    reward_mean: FloatArray  # [B], plain sum over an episode
    reward_low: FloatArray  # [B]
    reward_high: FloatArray  # [B]
    cost_mean: FloatArray  # [B], plain sum over an episode
    cost_low: FloatArray  # [B]
    cost_high: FloatArray  # [B]
    discounted_reward_mean: FloatArray  # [B]
    discounted_reward_low: FloatArray  # [B]
    discounted_reward_high: FloatArray  # [B]
    discounted_cost_mean: FloatArray  # [B]
    discounted_cost_low: FloatArray  # [B]
    discounted_cost_high: FloatArray  # [B]
    cost_quantiles: FloatArray  # [B, 3], of undiscounted costs, at `COST_LEVELS`
    cost_cvar: FloatArray  # [B], mean undiscounted cost of the worst tenth of episodes
    episode_length_mean: FloatArray  # [B], steps
    infeasible_share: FloatArray  # [B], of episodes whose first decision was INFEASIBLE
    n_episodes: int  # at each budget
    confidence: float  # of each interval by itself
    seed: int  # seed of all random numbers
    env: str  # its id
    gamma: float  # discount of `discounted_*`
    cost_gamma: float | None = None  # discount of `dial_cost_*`, if it is another one
    episode_limit: float | None = None  # on an episode, if budgets are probabilities to exceed one
    dial_cost_mean: FloatArray = field(
        default_factory=_none
    )  # [B], as budgets count costs; discounted, if not given
    dial_cost_low: FloatArray = field(default_factory=_none)  # [B]
    dial_cost_high: FloatArray = field(default_factory=_none)  # [B]

    def __post_init__(self) -> None:
        """Checks shapes, and makes arrays read-only."""
        if self.cost_gamma is None and self.episode_limit is None:
            for end in Interval._fields:
                own = getattr(self, f"discounted_cost_{end}")
                object.__setattr__(self, f"dial_cost_{end}", own)
        simultaneous_confidence(self.confidence, 1)
        n_budgets = np.shape(self.budgets)[:1]
        for one in fields(self):
            if one.type != "FloatArray":
                continue
            array: NDArray[Any] = np.asarray(getattr(self, one.name), np.float64)
            is_table = one.name == "cost_quantiles"
            shape = (*n_budgets, len(COST_LEVELS)) if is_table else n_budgets
            letters = f"[B, {len(COST_LEVELS)}]" if is_table else "[B]"
            require_shape(f"Evaluation.{one.name}", array, shape, letters)
            object.__setattr__(self, one.name, read_only(array))


@checked
def evaluate(  # noqa: PLR0913
    policy: BudgetedPolicy,
    env: str | EnvSpec,
    *,
    budgets: ArrayLike,
    n_episodes: int,
    seed: int,
    workers: int = 1,
    engine: Engine = "local",
    confidence: float = 0.95,
    max_steps: int = 10_000,
    progress: OnPlayed | None = None,
    cost_gamma: float | None = None,
) -> Evaluation:
    """Plays a policy at several budgets, and returns mean rewards and costs with intervals.

    Episode k is the same in any batch and on any worker. At all budgets it draws the environment's
    numbers from the same seed (common random numbers), which makes differences between budgets less
    noisy; the policy's numbers differ from budget to budget.

    Args:
        policy: any policy; it is played in episode form.
        env: an id, a short name ("corridors"), or a Gymnasium specification with its settings.
            Returns are discounted by the `gamma` of its metadata, and not at all if these have
            none.
        budgets: `[B]`, in expected discounted cost; probabilities, of a policy with an
            episode limit.
        n_episodes: number of episodes at each budget.
        seed: seed of all random numbers, from 0 on.
        workers: number of processes. With more than one, the policy must be one that can be saved,
            and a script must start its work under `if __name__ == "__main__":`.
        engine: "local" for processes of this machine, "ray" for those of a Ray cluster: the one
            that this process has joined, or that RAY_ADDRESS names, or else one that is started
            here. The episodes are the same.
        confidence: of each interval by itself.
        max_steps: of an episode, where the environment's metadata have no `horizon`.
        progress: called with the number of episodes played so far, and of all.
        cost_gamma: discount of the costs that budgets are about; that of the environment, if not
            given. 1 for the plain sum of an episode.

    Raises:
        BudgetError: if a budget is not a finite number, or the policy does not take it.
        ConfigError: if there is no such environment, or a setting is out of range.
        PolicyError: if the policy does not fit the environment, or cannot travel to the workers.
        EnvError: if an episode does not end in time, or the environment gives no cost.
        MissingDependency: if Ray is asked for and not installed.

    >>> from bmdp.envs import ScriptedPolicy
    >>> policy = ScriptedPolicy("slot-filling/key-pad")
    >>> found = evaluate(policy, "slot-filling", budgets=[0.5], n_episodes=2_000, seed=0)
    >>> bool(found.cost_low[0] < 1 - 0.75**3 < found.cost_high[0])
    True
    """
    spec, asked = find_spec(env), checked_budgets("budgets", budgets, policy)
    require_count("n_episodes", n_episodes, 1)
    simultaneous_confidence(confidence, 1)
    plans = [Plan(0, n_episodes, float(b), f"evaluate/{i}") for i, b in enumerate(asked)]
    counting = Counting.of(policy, cost_gamma)
    how: dict[str, Any] = {"workers": workers, "engine": engine, "max_steps": max_steps}
    how |= {"counting": counting}
    played, facts = play_plans(policy, spec, plans, seed=seed, progress=progress, **how)
    intervals: dict[str, Any] = {}
    for name in ("reward", "cost", "discounted_reward", "discounted_cost", "dial_cost"):
        samples = np.stack([getattr(returns, name) for returns in played])
        intervals |= columns(name, mean_interval(samples, confidence=confidence))
    if counting.episode_limit is not None:
        hits = np.array([int(returns.dial_cost.sum()) for returns in played])
        share = share_interval(hits, n_episodes, confidence=confidence)
        intervals |= columns("dial_cost", share)
    costs = np.stack([returns.cost for returns in played])
    return Evaluation(
        budgets=asked,
        **intervals,
        cost_quantiles=quantiles(costs, COST_LEVELS),
        cost_cvar=worst_mean(costs, WORST_SHARE),
        episode_length_mean=np.array([returns.length.mean() for returns in played]),
        infeasible_share=np.array([returns.infeasible.mean() for returns in played]),
        n_episodes=int(n_episodes),
        confidence=confidence,
        seed=int(seed),
        env=spec.id,
        gamma=facts.gamma,
        **counting._asdict(),
    )


@checked
@dataclass(frozen=True, eq=False)
class MoveEvaluation:
    """Reward and cost from the step on at which the dial was moved, for `M` new budgets.

    Rewards and costs are discounted from that step on, as the new budget is. Means are over the
    episodes still going at that step, which are the same ones for all new budgets; intervals of
    means are Student's, that of the share Clopper and Pearson's, each with the given confidence by
    itself. If no episode is still going, means are NaN.

    >>> from bmdp.envs import ScriptedPolicy
    >>> move = {"first_budget": 0.5, "new_budgets": [0.2, 0.8], "at_step": 1}
    >>> policy = ScriptedPolicy("slot-filling/key-pad")  # it does not look at the budget
    >>> found = evaluate_move(policy, "slot-filling", **move, n_episodes=100, seed=0)
    >>> found.n_going, (found.excess - found.cost_mean).round(2).tolist()
    (78, [-0.2, -0.8])
    """

    first_budget: float  # held at the start, in expected discounted cost
    new_budgets: FloatArray  # [M], held from that step on
    at_step: int  # steps made before the dial was moved
    reward_mean: FloatArray  # [M], discounted reward-to-go
    reward_low: FloatArray  # [M]
    reward_high: FloatArray  # [M]
    cost_mean: FloatArray  # [M], discounted cost-to-go, or share that exceeds an episode limit
    cost_low: FloatArray  # [M]
    cost_high: FloatArray  # [M]
    excess: FloatArray  # [M], cost-to-go less the new budget
    excess_low: FloatArray  # [M]
    excess_high: FloatArray  # [M]
    infeasible_share: FloatArray  # [M], of those still going whose next decision was INFEASIBLE
    n_episodes: int  # started
    n_going: int  # still going at that step
    going_share: float  # n_going / n_episodes
    going_low: float  # of its interval
    going_high: float  # likewise
    confidence: float  # of each interval by itself
    seed: int  # seed of all random numbers
    env: str  # its id

    def __post_init__(self) -> None:
        """Checks shapes, and makes arrays read-only."""
        freeze_columns(self, "[M]")


@checked
def evaluate_move(  # noqa: PLR0913
    policy: BudgetedPolicy,
    env: str | EnvSpec,
    *,
    first_budget: float,
    new_budgets: ArrayLike,
    at_step: int,
    n_episodes: int,
    seed: int,
    workers: int = 1,
    engine: Engine = "local",
    confidence: float = 0.95,
    max_steps: int = 10_000,
    progress: OnPlayed | None = None,
    cost_gamma: float | None = None,
) -> MoveEvaluation:
    """Returns what a policy earns and pays after its budget is replaced in the middle.

    Episodes run for `at_step` steps with `first_budget`; then `tracker.set_budget` moves the dial.
    Up to there they are the same for all new budgets. `excess` is measured against the new budget
    itself: from some states no policy may be able to keep it (see `infeasible_share`).

    Args:
        policy: any policy; it is played in episode form.
        env: an id, a short name, or a Gymnasium specification.
        first_budget: held at the start, in expected discounted cost.
        new_budgets: held from that step on, `[M]`, in cost discounted from there.
        at_step: number of steps before the dial is moved, from 0 on.
        n_episodes: number of episodes for each new budget.
        seed: seed of all random numbers, from 0 on.
        workers: number of processes, as in `evaluate`.
        engine: as there.
        confidence: of each interval by itself.
        max_steps: of an episode, where the environment's metadata have no `horizon`.
        progress: called with the number of episodes played so far, and of all.
        cost_gamma: discount of the costs that budgets are about, as in `evaluate`.

    Raises:
        BudgetError, ConfigError, PolicyError, EnvError: as `evaluate`.

    >>> from bmdp.envs import ScriptedPolicy
    >>> move = {"first_budget": 0.5, "new_budgets": [0.2], "at_step": 1}
    >>> policy = ScriptedPolicy("slot-filling/key-pad")
    >>> found = evaluate_move(policy, "slot-filling", **move, n_episodes=2_000, seed=0)
    >>> bool(found.cost_low[0] < 1 - 0.75**2 < found.cost_high[0])  # two of three are to be asked
    True
    """
    spec = find_spec(env)
    first = float(checked_budgets("first_budget", [first_budget], policy)[0])
    asked = checked_budgets("new_budgets", new_budgets, policy)
    require_count("n_episodes", n_episodes, 1)
    require_count("at_step", at_step, 0)
    name = f"evaluate-move/{at_step}"
    plans = [Plan(0, n_episodes, first, name, at_step, float(budget)) for budget in asked]
    how: dict[str, Any] = {"workers": workers, "engine": engine, "max_steps": max_steps}
    how |= {"counting": Counting.of(policy, cost_gamma)}
    played, _ = play_plans(policy, spec, plans, seed=seed, progress=progress, **how)
    going = played[0].going
    assert all((returns.going == going).all() for returns in played)
    rewards, costs = (
        mean_interval(np.stack([getattr(r, which)[going] for r in played]), confidence=confidence)
        for which in ("discounted_reward", "dial_cost")
    )
    n_going = int(going.sum())
    share = share_interval(n_going, n_episodes, confidence=confidence)
    infeasible = np.array([int(returns.infeasible.sum()) for returns in played])
    return MoveEvaluation(
        first_budget=first,
        new_budgets=asked,
        at_step=int(at_step),
        **columns("reward", rewards),
        **columns("cost", costs),
        excess=costs.mean - asked,
        excess_low=costs.low - asked,
        excess_high=costs.high - asked,
        infeasible_share=share_interval(infeasible, n_going, confidence=confidence).mean,
        n_episodes=int(n_episodes),
        n_going=n_going,
        going_share=float(share.mean),
        going_low=float(share.low),
        going_high=float(share.high),
        confidence=confidence,
        seed=int(seed),
        env=spec.id,
    )
