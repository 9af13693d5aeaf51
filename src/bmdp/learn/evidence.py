"""Evidence of what a dial costs and earns, and the choice among several.

Episodes say what each member of a dial costs and earns from the start of an episode: by a fitted
evaluation of a log (Eq. 6), or by playing where there is a simulator. The *curve* of a dial follows
its members from the cheapest to the dearest. It is not the frontier of their points, which would
pick the luckiest of them.

The rule that chooses: the dial whose curve earns the most, on average over budgets that are spread
evenly from the least to the largest cost of all candidates. Where a budget is below its cheapest
member, there is a coin between that one and the cheapest member of all candidates. Of dials that
differ by next to nothing, the mean of two is taken, or the one that was learned first: simple ones
come first. Where dials were played, the paper's dial is taken only if every other one is clearly
worse: it is the slowest to play.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec

from bmdp.arrays import BoolArray, FloatArray, IntArray, rows_at
from bmdp.cluster import Engine
from bmdp.data import TransitionBatch, cost_so_far
from bmdp.learn.candidates import Dial, Lesson, played, promised
from bmdp.learn.collect import collect
from bmdp.learn.evaluation import Terms, evaluate_policy
from bmdp.learn.natures import Nature, returns
from bmdp.models.regressor import Regressor
from bmdp.policies.limited import EpisodeLimitPolicy
from bmdp.policies.portfolio import Portfolio
from bmdp.policies.prices import MultiplierPolicy, PriceDial

N_GROUPS = 5
"""Groups of episodes, one of which is left out at a time."""

_N_BUDGETS = 21  # at which curves are compared
_UNABLE = 0.01  # share of the range of rewards that is taken off a dial that cannot save at all
_NOTHING = 0.003  # share of the range of costs that is not worth saving
_LITTLE = 0.005  # share of the range of rewards that makes no difference
_ALIKE = 0.15  # share of the range of members over which a model errs alike
_OWN = 0.1  # share of its error that is of a member alone
_TIMES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # that a model may be off by more than was thought
_SAME = 1e-3  # share of the largest value by which the same may differ


@dataclass(frozen=True, eq=False)
class Curve:
    """Costs and rewards of the `M` members of a dial, from the start of an episode."""

    cost: FloatArray  # [M]
    reward: FloatArray  # [M]
    cost_error: FloatArray  # [M], standard errors; NaN if they are not known
    reward_error: FloatArray  # [M]
    counts: FloatArray  # [M], episodes that say so

    def take(self, members: IntArray) -> Curve:
        """Returns the curve of some of the members; they may repeat."""
        return Curve(*(getattr(self, f.name)[members] for f in fields(self)))

    def joined(self, other: Curve) -> Curve:
        """Returns the curve of these members, and then of those of another one."""
        return Curve(
            *(np.append(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        )

    def is_like(self, other: Curve) -> bool:
        """Whether both are the same, give or take next to nothing."""
        return all(
            bool(np.abs(one - two).max() <= _SAME * np.abs(one).max())
            for one, two in ((self.cost, other.cost), (self.reward, other.reward))
        )

    def rising(self) -> FloatArray:
        """Costs that rise from member to member, as near to those as can be, `[M]`."""
        from sklearn.isotonic import isotonic_regression  # takes long to import

        least = 1e-12 + 1e-3 * np.abs(self.cost).max()
        weights = 1 / np.maximum(np.nan_to_num(self.cost_error, nan=1.0), least) ** 2
        found: FloatArray = isotonic_regression(self.cost, sample_weight=weights)
        return found

    def first(self) -> int:
        """The cheapest member that is played.

        It is the best paid of those that cost next to nothing more than the cheapest one, if it
        earns clearly more: what saves a thousandth may throw away all that pays.

        >>> cost, none = np.array([0.0, 0.001, 1.0]), np.full(3, np.nan)
        >>> Curve(cost, np.array([0.0, 5.0, 10.0]), none, none, none).first()
        1
        """
        costs = self.rising()
        is_near = costs <= costs[0] + _NOTHING * (costs[-1] - costs[0])
        best = int(np.argmax(np.where(is_near, self.reward, -np.inf)))
        gain = self.reward[best] - self.reward[0]
        return best if gain > _LITTLE * np.ptp(self.reward) else 0

    def pooled(self) -> Curve:
        """Returns a curve with errors by one deviation of all members, where each has few episodes.

        >>> two = np.full(2, 2.0)
        >>> Curve(two, two, np.array([0.0, 2.0]), two, two).pooled().cost_error.round(3).tolist()
        [1.414, 1.414]
        """
        free = self.counts - 1
        cost, reward = (
            np.sqrt((free * self.counts * error**2).sum() / max(free.sum(), 1) / self.counts)
            for error in (self.cost_error, self.reward_error)
        )
        return Curve(self.cost, self.reward, cost, reward, self.counts)

    def reward_at(self, budgets: FloatArray, cheapest: tuple[float, float]) -> FloatArray:
        """Rewards of coins between neighbours, and below them with a cheaper (cost, reward)."""
        costs, rewards = self.rising()[self.first() :], self.reward[self.first() :]
        if cheapest[0] < costs[0]:
            costs, rewards = np.append(cheapest[0], costs), np.append(cheapest[1], rewards)
        return np.interp(budgets, costs, rewards)


def bare_curve(found: FloatArray, counts: FloatArray) -> Curve:
    """Returns a curve of costs and rewards `[M, 2]` whose errors are not known."""
    unknown = np.full(len(found), np.nan)
    cost, reward = found.T.astype(np.float64)
    return Curve(cost, reward, unknown, unknown, counts)


def choice_values(curves: Sequence[Curve]) -> FloatArray:
    """Mean rewards of curves `[C]` over common budgets: what the choice goes by.

    >>> cheap, dear = np.array([0.0, 1.0]), np.array([0.5, 1.0])
    >>> none, many = np.full(2, np.nan), np.full(2, 100.0)
    >>> curves = [Curve(c, np.array([0.0, 10.0]), none, none, many) for c in (cheap, dear)]
    >>> choice_values(curves).round(2).tolist()  # the second one earns nothing below 0.5
    [5.0, 2.57]
    """
    rising = [curve.rising()[curve.first() :] for curve in curves]
    costs = np.concatenate(rising)
    rewards = np.concatenate([curve.reward for curve in curves])
    budgets = np.linspace(costs.min(), costs.max(), _N_BUDGETS)
    bottom = cheapest(curves)
    point = float(rising[bottom][0]), float(curves[bottom].reward[curves[bottom].first()])
    width = (costs.max() - costs.min()) or 1.0
    unable = _UNABLE * (np.ptp(rewards) or 1.0) / width  # of a unit of cost that cannot be saved
    return np.array(
        [
            curve.reward_at(budgets, point).mean() - unable * (own[0] - costs.min())
            for curve, own in zip(curves, rising, strict=True)
        ]
    )


def cheapest(curves: Sequence[Curve]) -> int:
    """Returns the place of the curve with the least cost; of equals, the one that earns most."""
    first = [curve.first() for curve in curves]
    ends = [
        (curve.rising()[at], -curve.reward[at], place)
        for place, (curve, at) in enumerate(zip(curves, first, strict=True))
    ]
    return int(min(ends)[2])


def little(curves: Sequence[Curve]) -> float:
    """A difference of mean rewards that does not matter: a small share of what there is to earn."""
    return _LITTLE * float(np.ptp(np.concatenate([curve.reward for curve in curves])))


def chosen(curves: Sequence[Curve], among: BoolArray | None = None) -> int:
    """Returns the place of the dial to take: the first one that is as good as the best one.

    Args:
        curves: of all dials.
        among: which of them may be taken, `[C]`; all, if not given.

    >>> cost, none, many = np.array([0.0, 1.0]), np.full(2, np.nan), np.full(2, 100.0)
    >>> rewards = ([0.0, 9.0], [0.0, 10.0], [0.0, 10.001])
    >>> curves = [Curve(cost, np.array(reward), none, none, many) for reward in rewards]
    >>> chosen(curves), chosen(curves, np.array([True, False, False]))
    (1, 0)
    """
    values = choice_values(curves)
    values = values if among is None else np.where(among, values, -np.inf)
    return int(np.flatnonzero(values >= values.max() - little(curves))[0])


@dataclass(frozen=True)
class Judge:
    """The regressor of evaluations, seconds of each, and what becomes of what is not known."""

    model: Regressor
    seconds: float = np.inf
    support: float = 0.0  # episodes that make an action known
    outside: tuple[float, float] | None = None  # reward and cost of what is not known
    kept: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)


def evaluated_curve(dial: Dial, batch: TransitionBatch, lesson: Lesson, judge: Judge) -> Curve:
    """Returns the curve of a dial by a fitted evaluation.

    Args:
        dial: whose members are evaluated.
        batch: transitions of whole episodes.
        lesson: for discount, nature, seed and device.
        judge: how values are learned.
    """
    found = _evaluated(dial, batch, lesson, judge, keep=True)
    return bare_curve(found, np.full(len(found), float(len(batch.starts()))))


def between(one: Curve, other: Curve) -> Curve:
    """Returns the mean of two curves of the same members."""
    return Curve(*((getattr(one, f.name) + getattr(other, f.name)) / 2 for f in fields(Curve)))


def promised_curve(dial: Dial, lesson: Lesson) -> Curve:
    """Returns the curve that a dial promises itself, which is optimistic.

    No cost is below 0 where no row has one.
    """
    found = promised(dial, lesson)
    if lesson.batch.cost.min() >= 0:
        found[:, 0] = np.maximum(found[:, 0], 0.0)
    return bare_curve(found, np.zeros(len(found)))


def left_out(dial: Dial, batch: TransitionBatch, lesson: Lesson, judge: Judge) -> FloatArray:
    """Returns costs and rewards `[K, M, 2]` with each of K groups of episodes left out in turn."""
    n_episodes = len(batch) if batch.episode is None else len(np.unique(batch.episode))
    n_groups = min(N_GROUPS, n_episodes)
    if n_groups == 1:  # nothing can be left out: errors are not known
        return _evaluated(dial, batch, lesson, judge)[None]
    groups = batch.folds(n_groups, lesson.generator("auto/groups"))
    each = replace(judge, seconds=judge.seconds / n_groups)
    return np.stack(
        [_evaluated(dial, batch.take(groups != g), lesson, each) for g in range(n_groups)]
    )


def jackknife_error(repeats: FloatArray) -> FloatArray:
    """Standard errors of estimates whose repeats `[K, ...]` each leave out one of K groups.

    >>> float(jackknife_error(np.array([1.0, 2.0, 3.0])).round(4))
    1.1547
    """
    spread = np.square(repeats - repeats.mean(axis=0)).sum(axis=0)
    error: FloatArray = np.sqrt((len(repeats) - 1) / len(repeats) * spread)
    return error


def outside_share(dial: Dial, batch: TransitionBatch, lesson: Lesson, judge: Judge) -> FloatArray:
    """Returns the shares of episodes `[M]` in which members do what a log does not know.

    It is told by the log itself: the chance to get to such a decision, discounted as costs are.
    """
    columns: dict[str, Any] = dict(batch.to_arrays())
    nothing = np.zeros(len(batch))
    columns |= {"reward": nothing, "cost": nothing, "n_actions": batch.n_actions}
    found = _evaluated(dial, TransitionBatch(**columns), lesson, replace(judge, outside=(1.0, 1.0)))
    share: FloatArray = np.clip(found[:, 0], 0.0, 1.0)
    return share


def _evaluated(
    dial: Dial, batch: TransitionBatch, lesson: Lesson, judge: Judge, *, keep: bool = False
) -> FloatArray:
    """Costs and rewards of the members, `[M, 2]`.

    Args:
        dial: whose members are evaluated.
        batch: transitions of whole episodes.
        lesson: for discount, nature, seed and device.
        judge: how values are learned.
        keep: whether trees of the judge are kept, for other dials and the same transitions.
    """
    nature = lesson.nature
    key = id(batch), dial.recipe.dial, dial.members.tobytes()
    _, shown, fit = judge.kept.get(key, (batch, None, None))
    shown = nature.shown(batch) if shown is None else shown
    cost_gamma = lesson.gamma if lesson.cost_gamma is None else lesson.cost_gamma
    discounts, how = (lesson.gamma, cost_gamma), (lesson.seed, lesson.device, nature.schedule)
    terms = Terms(
        judge.model, dial.members, discounts, *how, judge.seconds, judge.support, judge.outside
    )
    evaluated = evaluate_policy(dial.policy, shown, terms, fit)
    if keep:  # and the batch, by whose place in memory it is known
        judge.kept[key] = batch, shown, evaluated.fit
    starts = shown.starts()
    states, masks = shown.state[starts], rows_at(shown.available, starts)
    worth = evaluated.worth(states, dial.members, masks).mean(axis=0)  # [M, 2]
    found: FloatArray = worth[:, ::-1].astype(np.float64)
    return found


@dataclass(frozen=True)
class Player:
    """A simulator in which policies are played."""

    spec: EnvSpec
    gamma: float
    seed: int
    workers: int = 1
    engine: Engine = "local"
    cost_gamma: float | None = None  # discount of costs, if it is another one
    episode_limit: float | None = None  # on an episode: its states say what it has cost so far

    def play(self, policy: Any, budgets: FloatArray, first: int) -> TransitionBatch:
        """Returns one episode for each budget `[N]`; they are numbered from `first` on.

        Raises:
            EnvError: if the environment raises an error of its own.
        """
        numbers = range(first, first + len(budgets))
        how: dict[str, Any] = {"seed": self.seed, "workers": self.workers, "engine": self.engine}
        if self.episode_limit is None:
            return collect(policy, self.spec, numbers, budgets=budgets, **how)
        limited = EpisodeLimitPolicy(policy, self.episode_limit)
        batch = collect(limited, self.spec, numbers, budgets=budgets, **how)
        return cost_so_far(batch, self.episode_limit)

    def returns(self, batch: TransitionBatch) -> FloatArray:
        """Returns discounted rewards and costs `[N, 2]` of episodes."""
        return returns(batch, self.gamma, self.cost_gamma)


def curve_of(found: FloatArray, which: IntArray, n_members: int) -> Curve:
    """Returns means and errors of rewards and costs `[N, 2]` of episodes of some members `[N]`."""
    counts = np.bincount(which, minlength=n_members).astype(np.float64)
    means = np.stack([np.bincount(which, column, n_members) / counts for column in found.T])
    squares = np.stack(
        [
            np.bincount(which, (column - mean[which]) ** 2, n_members)
            for column, mean in zip(found.T, means, strict=True)
        ]
    )
    error = np.sqrt(squares / np.maximum(counts - 1, 1) / counts)
    return Curve(means[1], means[0], error[1], error[0], counts)


@dataclass(frozen=True)
class Spread:
    """Variance of what episodes cost and earn: of costs, for each unit of their mean."""

    cost: float
    reward: float

    @classmethod
    def of(cls, found: FloatArray) -> Spread:
        """That of rewards and costs `[N, 2]` of episodes."""
        mean = np.abs(found[:, 1]).mean()
        cost = float(np.square(found[:, 1]).mean() / mean) if mean > 0 else 0.0
        return cls(cost, float(found[:, 0].var()))


def blended(model: Curve, measured: Curve, spread: Spread, doubt: float) -> Curve:
    """Returns what a model says of members, corrected by what was measured.

    One factor for all members comes first. Then each member is the mean of both, by their precision
    and by that of its neighbours, since a model errs alike on members that are alike (a Gaussian
    process over what the model says, as wide as what was measured is likeliest).

    Args:
        model: costs and rewards.
        measured: the same by episodes that were played.
        spread: of other episodes of the task. Costs are rare, or many small ones: their variance
            grows as their mean does.
        doubt: how far the model is thought to be off, as a share of what it says.
    """
    sizes = np.maximum(np.abs(model.cost), 0.02 * np.abs(model.cost).max())
    n = np.maximum(measured.counts, 1e-9)  # next to nothing is known of what was not played
    cost_error = np.sqrt(spread.cost * sizes / n)
    reward_error = np.sqrt(spread.reward / n)
    cost = _corrected(model.cost, measured.cost, cost_error, doubt)
    reward = _corrected(model.reward, measured.reward, reward_error, doubt)
    return Curve(cost[0], reward[0], cost[1], reward[1], measured.counts)


def _corrected(
    model: FloatArray, measured: FloatArray, error: FloatArray, doubt: float
) -> tuple[FloatArray, FloatArray]:
    """Means of what a model says and what was measured, and their errors."""
    sd = doubt * (np.abs(model) + 0.2 * np.abs(model).max())
    error = np.maximum(error, 1e-12 + 1e-6 * np.abs(model).max())
    weights = 1 / error**2
    total = (weights * model**2).sum()
    if total == 0:
        return measured, error
    noise, trust = 1 / total, (weights * sd**2).sum() / total
    raw = (weights * model * measured).sum() / total
    trust = max(trust, (raw - 1) ** 2 - 4 * noise)
    prior = model * (1 + (raw - 1) * trust / (trust + noise))
    apart = np.subtract.outer(model, model) / (_ALIKE * np.ptp(model) or 1.0)
    likeness = (1 - _OWN) * np.exp(-(apart**2) / 2) + _OWN * np.eye(len(model))
    covariance = np.outer(sd, sd) * likeness
    covariance *= _likeliest(measured - prior, covariance, np.diag(error**2)) ** 2
    gain = np.linalg.solve(covariance + np.diag(error**2), covariance).T
    known = np.sqrt(np.maximum(np.diag(covariance - gain @ covariance), 0.0))
    left = np.hypot(known, np.abs(prior) * np.sqrt(trust * noise / (trust + noise)))
    return prior + gain @ (measured - prior), np.minimum(left, error)


def _likeliest(off: FloatArray, covariance: FloatArray, noise: FloatArray) -> float:
    """By how much more a model is off than was thought, as what was measured is likeliest."""

    def likelihood(times: float) -> float:
        whole = times**2 * covariance + noise
        return -float(off @ np.linalg.solve(whole, off)) - float(np.linalg.slogdet(whole)[1])

    return max(_TIMES, key=likelihood)


def handed_over(
    dial: Dial, curve: Curve, nature: Nature, cheap: tuple[Dial, Curve] | None = None
) -> MultiplierPolicy | Portfolio:
    """Returns the policy that spends budgets by what members cost.

    Rewards between the ends rise in proportion to prices, so that every member is a vertex: what
    is known of rewards is too noisy to leave members out by.

    Args:
        dial: that is handed over.
        curve: its members, by evidence.
        nature: of the data.
        cheap: another dial and its curve, whose cheapest member is played at budgets below those of
            the dial.
    """
    costs, first = curve.rising(), curve.first()
    costs[:first] = costs[first]
    gained = np.append(0.0, np.cumsum(dial.slopes * np.diff(costs)))
    if gained[-1] > 0 and curve.reward[-1] > curve.reward[first]:
        gained *= (curve.reward[-1] - curve.reward[first]) / gained[-1]
    rewards = curve.reward[first] + gained
    rewards[:first] -= np.ptp(curve.reward)  # so that they are never played
    policy = played(dial, nature)
    low, high = min(0.0, float(costs[0])), float(costs[-1])
    if cheap is not None:
        other, told = cheap
        at = told.first()
        return Portfolio(
            (policy, played(other, nature)),
            np.append(1, np.zeros(len(costs), np.int64)),
            np.append(other.members[at], dial.members),
            np.append(told.rising()[at], costs),
            np.append(told.reward[at], rewards),
        )
    if isinstance(policy, PriceDial):
        return MultiplierPolicy(policy, low, high if high > low else low + 1.0, costs, rewards)
    return Portfolio((policy,), np.zeros(len(costs), np.int64), dial.members, costs, rewards)


def shares_at(curve: Curve, budgets: FloatArray) -> FloatArray:
    """Probabilities `[B, M]` with which members are played at budgets, by a curve."""
    costs, first = curve.rising(), curve.first()
    place = np.searchsorted(costs, budgets, side="right") - 1
    lower = np.clip(place, first, len(costs) - 1)
    upper = np.clip(place + 1, first, len(costs) - 1)
    gap = costs[upper] - costs[lower]
    share = np.where(gap > 0, (budgets - costs[lower]) / np.where(gap > 0, gap, 1.0), 0.0)
    found = np.zeros((len(budgets), len(costs)))
    rows = np.arange(len(budgets))
    np.add.at(found, (rows, lower), 1 - np.clip(share, 0, 1))
    np.add.at(found, (rows, upper), np.clip(share, 0, 1))
    return found
