"""Off-policy evaluation: reward and cost of a policy, with intervals, from logged episodes.

There are three methods. "fitted" learns the values of the policy from the transitions
(`bmdp.learn.fitted_evaluation`). "importance" weights the episodes by how likely they are under the
policy: it needs the probabilities of logged actions, and no model. "doubly-robust" does both, and
is right if either is. Where probabilities were not logged they are estimated
(`bmdp.models.support`).

*Weighted importance sampling.* Under another policy a logged episode is more or less likely by the
product over its steps of pi / b, where b is the probability with which the action was taken, and pi
that with which the policy would have taken it. What a budgeted policy does depends on its budget,
too, which the log does not have: it starts at what is asked, and the policy itself moves it. So at
each step, of the options (a, beta_a, p) at the state and the budget held,

    pi  is the sum of p over those whose action a was logged,

and the next budget is one of *their* beta_a, drawn in proportion to p. The mean weight over several
such paths of budgets is unbiased. With w_it the weight of episode i after step t, the policy earns

    sum over t of gamma^t (sum over i of w_it r_it) / (sum over i of w_it).

Episodes that have ended keep their weight, and earn nothing. To divide by the sum of weights rather
than by the number of episodes makes a small bias, and much less noise (Precup, Sutton and Singh,
2000).

*Doubly robust.* Fitted values of the policy take away from each step what was to be expected, so
that weights have to make up for the rest alone (Thomas and Brunskill, 2016): with the mean weight 1
before the first step,

    sum over t of gamma^t (mean of r_it - Q(s_it, a_it) by w_it, plus mean of V(s_it) by w_i,t-1).

Values for an episode are learned from other episodes: those of the other half.

*Support.* A decision that no episode took near there is not known to the log. Intervals are wider
by what becomes of the policy if the rest of the episode is then the worst, and the best, that was
seen, and `outside_share` says how often that is met.

*Intervals.* All methods are repeated with as many whole episodes as there are, drawn with
replacement (the bootstrap). With the deviation s of what the repeats say an interval is

    estimate +- q s sqrt(n / (n - 1)).

Here n is the number of *effective* episodes: all of them in fitted evaluation, those of equal
weight that would tell as much in importance sampling. The quantile q is that of Student's law with
n - 1 degrees of freedom, or one less than the number of repeats, if there are fewer. Of plain means
that is Student's interval. On finite problems intervals between quantiles of the repeats cover less
often, with both methods (docs/paper/logs.md). They need more repeats, and are shifted by rows that
occur twice in a sample: to a model these look like less noise than there is.

What repeats do not show is not in an interval: that a model is too smooth, that the policy does
what the log does not hold, that a rare cost has not occurred.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from bmdp.arrays import FloatArray, IntArray, freeze_columns, rows_at
from bmdp.checks import require_choice, require_count, require_share
from bmdp.data import TransitionBatch, cost_so_far
from bmdp.data.encoder import without_encoder
from bmdp.data.episodes import in_order
from bmdp.envs.episodes import OnPlayed, counter
from bmdp.errors import ConfigError, DataError, PolicyError
from bmdp.evaluation.rollouts import checked_budgets
from bmdp.evaluation.statistics import simultaneous_confidence
from bmdp.frontier import Mixtures, best_mixtures
from bmdp.kinds import checked
from bmdp.policies.limited import EpisodeLimitPolicy
from bmdp.policies.policy import BudgetedPolicy, Options, SteppedPolicy, run_with_policy
from bmdp.policies.portfolio import CalibratedPolicy, Portfolio
from bmdp.policies.prices import MultiplierPolicy
from bmdp.randomness import EpisodeStreams, named_generator, stream_key

if TYPE_CHECKING:
    from bmdp.learn.evaluation import Evaluated, Terms
    from bmdp.learn.fit import Schedule
    from bmdp.models import Regressor
    from bmdp.models.support import Support

Method: TypeAlias = Literal["fitted", "importance", "doubly-robust"]
METHODS = ("fitted", "importance", "doubly-robust")

_REPEATS = {"fitted": 50, "importance": 1_000, "doubly-robust": 1_000}
_HALVES = 2  # of the episodes: values for one are learned from the other
_TOGETHER = 50  # repeats by weights that are made at once
_FEW = 10  # rows for each different state, on average, where states are few
_SEEN = 1.0  # episodes that make an action known
_N_ROWS = 10  # of what the log does not know, that are told
_CHUNK = 16_384  # states at which a policy is asked at a time
_UNFIT = (IndexError, RuntimeError, TypeError, ValueError)  # of a policy at foreign states


@checked
@dataclass(frozen=True, eq=False)
class OfflineEvaluation:
    """Expected reward and cost of a policy at each of `B` budgets, from the first states.

    Each interval has the given confidence by itself. Without repeats its ends are NaN.

    >>> from bmdp.policies import HullPolicy, TabularQ
    >>> q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> policy = HullPolicy(lambda states: q(states[:, 0].astype(int)), [0.0, 1.0])
    >>> ends = {"next_state": [0] * 4, "terminal": [True] * 4, "episode": [0, 1, 2, 3]}
    >>> known = {"step": [0] * 4, "probability": [0.5] * 4}
    >>> log = TransitionBatch([0] * 4, [0, 1] * 2, [0, 10] * 2, [0, 1] * 2, **ends, **known)
    >>> asked = {"gamma": 1.0, "budgets": [0.25, 1.0], "method": "importance", "seed": 0}
    >>> found = evaluate_offline(policy, log, **asked)
    >>> found.reward.tolist(), found.cost.tolist(), found.effective_episodes.round(9).tolist()
    ([2.5, 10.0], [0.25, 1.0], [3.2, 2.0])
    """

    budgets: FloatArray  # [B], asked
    reward: FloatArray  # [B], discounted
    reward_low: FloatArray  # [B]
    reward_high: FloatArray  # [B]
    cost: FloatArray  # [B], discounted
    cost_low: FloatArray  # [B]
    cost_high: FloatArray  # [B]
    effective_episodes: FloatArray  # [B], that would tell as much if all had the same weight
    method: str  # "fitted", "importance" or "doubly-robust"
    n_episodes: int  # of the log
    n_transitions: int  # of the log
    n_bootstrap: int  # repeats for the intervals
    confidence: float  # of each interval by itself
    seed: int  # of all that is random
    outside_share: FloatArray  # [B], of episodes that come to a decision the log does not know
    outside_rows: tuple[int, ...]  # some rows of the log at whose states that happens
    probability_error: float  # of estimated probabilities (`calibration_error`); NaN if logged

    def __post_init__(self) -> None:
        """Checks shapes, and makes arrays read-only."""
        require_choice("OfflineEvaluation.method", self.method, METHODS)
        simultaneous_confidence(self.confidence, 1)
        freeze_columns(self, "[B]")


@checked
def evaluate_offline(  # noqa: PLR0913
    policy: BudgetedPolicy | SteppedPolicy,
    batch: TransitionBatch,
    *,
    gamma: float,
    cost_gamma: float | None = None,
    budgets: ArrayLike,
    method: Method = "fitted",
    confidence: float = 0.95,
    n_bootstrap: int | None = None,
    seed: int,
    model: Regressor | None = None,
    device: str = "auto",
    schedule: Schedule | None = None,
    n_budgets: int = 41,
    n_paths: int = 8,
    workers: int = 1,
    progress: OnPlayed | None = None,
) -> OfflineEvaluation:
    """Estimates rewards and costs of a policy at each budget from logged episodes.

    Args:
        policy: one whose probabilities are known: what `bmdp.fit` or a learner returned, or a
            `HullPolicy`.
        batch: whole episodes that had no part in choosing the policy. To "importance", nothing
            more comes after one that was cut off.
        gamma: discount of rewards, and of costs if these have none of their own.
        cost_gamma: discount of costs.
        budgets: `[B]`, in expected discounted cost; above `policy.budget_range` they
            are taken as its top.
        method: "fitted", "importance" or "doubly-robust". The last two estimate probabilities of
            actions that were not logged.
        confidence: of each interval by itself.
        n_bootstrap: how often the evaluation is repeated for the intervals. If not given, 50 times
            with "fitted", and 1,000 times with the others. With 0 there are no intervals.
        seed: seed of all random numbers.
        model: of fitted values, as are `device`, `schedule` and `n_budgets`: see
            `fitted_evaluation`. A smaller one saves time.
        device: "cpu", "cuda", or "auto" for the GPU if there is one.
        schedule: `Backward` or `Iterations`; what suits the policy, if not given.
        n_budgets: of the grid; best the policy's own.
        n_paths: of budgets that weights draw for each episode.
        workers: number of processes for "fitted". With more than one, the policy must be one that
            can be saved, and a script must start its work under `if __name__ == "__main__":`.
        progress: called with the number of evaluations made so far, and of all.

    Raises:
        DataError: if episodes or steps are needed and not known, if there are too few episodes, or
            none that the policy could have played.
        PolicyError: if it is not known with which probabilities the policy acts, or it cannot act
            on the states of the batch.
        BudgetError: if the policy does not take a budget.
        ConfigError: if a setting is out of range.

    >>> from bmdp import BFTQ, BFTQConfig
    >>> from bmdp.models import TableModel
    >>> ends = {"next_state": [0] * 4, "terminal": [True] * 4, "episode": [0, 1, 2, 3]}
    >>> log = TransitionBatch([0] * 4, [0, 1] * 2, [0, 10] * 2, [0, 1] * 2, **ends)
    >>> config = BFTQConfig(gamma=1.0, model=TableModel(), ensemble=1)
    >>> policy = BFTQ(config).fit(log, seed=0)
    >>> asked = {"gamma": 1.0, "budgets": [0.25], "model": TableModel(), "seed": 0}
    >>> found = evaluate_offline(policy, log, **asked, n_bootstrap=10)
    >>> found.reward.tolist(), found.cost.tolist(), bool(found.cost_low[0] < 0.25)
    ([2.5], [0.25], True)
    """
    require_choice("method", method, METHODS)
    policy = without_encoder(policy)
    if isinstance(policy, EpisodeLimitPolicy):  # costs are chances, in states that show costs
        batch, cost_gamma = cost_so_far(batch, policy.episode_limit), 1.0
        inside: Any = policy.policy
        policy = inside
    n_repeats = _REPEATS[method] if n_bootstrap is None else n_bootstrap
    discounts = gamma, gamma if cost_gamma is None else cost_gamma
    _check_settings(discounts, confidence, n_repeats)
    require_count("n_paths", n_paths, 1)
    require_count("workers", workers, 1)
    played = _played(policy, budgets)
    _check_states(played, batch)
    off = np.nan
    if method != "fitted":
        batch, off = with_probabilities(batch, seed)
    log = logged_episodes(batch, needs_steps=method != "fitted")
    if n_repeats and len(log) < 2:
        raise DataError(
            "intervals need at least 2 episodes, which are drawn again and again; the batch has "
            "1. Give more of them, or n_bootstrap=0."
        )
    report = counter(progress, (1 + n_repeats) * len(played.policies))
    how = _How(discounts, seed, model, device, schedule, n_budgets, n_paths, workers)
    told = [
        _told(one, inner, log, method, how, n_repeats, report)
        for one, inner in zip(played.policies, played.inner, strict=True)
    ]
    found, effective, left_open, rows = played.mixed(told)
    (reward, cost), ends = found[0].T, interval_ends(found, effective, confidence)
    return OfflineEvaluation(
        budgets=played.budgets,
        reward=reward,
        reward_low=ends[0, :, 0] - left_open.less[:, 0],
        reward_high=ends[1, :, 0] + left_open.more[:, 0],
        cost=cost,
        cost_low=ends[0, :, 1] - left_open.less[:, 1],
        cost_high=ends[1, :, 1] + left_open.more[:, 1],
        effective_episodes=effective,
        method=method,
        n_episodes=len(log),
        n_transitions=len(batch),
        n_bootstrap=int(n_repeats),
        confidence=confidence,
        seed=int(seed),
        outside_share=left_open.share,
        outside_rows=rows,
        probability_error=float(off),
    )


class _How(NamedTuple):
    """Settings of an evaluation."""

    discounts: tuple[float, float]
    seed: int
    model: Regressor | None
    device: str
    schedule: Schedule | None
    n_budgets: int
    n_paths: int
    workers: int

    def terms(self, policy: SteppedPolicy) -> Terms:
        """Those of fitted values."""
        from bmdp.learn.evaluation import Terms, grid_of

        grid = grid_of(policy, self.n_budgets)
        return Terms(self.model, grid, self.discounts, self.seed, self.device, self.schedule)


class _Open(NamedTuple):
    """Shares of episodes about which a log leaves something open, and how much, at `B` budgets."""

    share: FloatArray  # [B]
    less: FloatArray  # [B, 2], by which reward and cost may be less than fitted values say
    more: FloatArray  # [B, 2], by which they may be more


class _Told(NamedTuple):
    """Reward and cost of one policy, as a log tells them."""

    found: FloatArray  # [1 + R, B, 2], reward and cost, and of each repeat
    effective: FloatArray  # [B]
    left_open: _Open
    rows: tuple[int, ...]  # at which it does what the log does not know


@dataclass(frozen=True, eq=False)
class _Played:
    """Policies that are played at budgets, as shares of members: those that a coin chooses from."""

    budgets: FloatArray  # [B], asked
    policies: tuple[SteppedPolicy, ...]
    inner: tuple[FloatArray, ...]  # budgets of each policy's members
    shares: FloatArray | None = None  # [B, M], of all members; None for budgets as they are

    def mixed(self, told: Sequence[_Told]) -> tuple[FloatArray, FloatArray, _Open, tuple[int, ...]]:
        """Repeats, effective episodes, and what is left open, at the budgets asked."""
        rows = tuple(dict.fromkeys(row for one in told for row in one.rows))[:_N_ROWS]
        if self.shares is None:
            return told[0].found, told[0].effective, told[0].left_open, rows
        found = np.einsum("bm,rmk->rbk", self.shares, _joined([one.found for one in told], 1))
        each = _joined([one.effective for one in told], 0)
        effective = np.where(self.shares > 0, each, np.inf).min(axis=1)
        parts = zip(*(one.left_open for one in told), strict=True)
        left_open = _Open(*(self.shares @ _joined(part, 0) for part in parts))
        return found, effective, left_open, rows


def _joined(parts: Sequence[FloatArray], axis: int) -> FloatArray:
    return np.concatenate(list(parts), axis=axis)


def _played(policy: Any, budgets: ArrayLike) -> _Played:
    """Policies that are played at budgets `[B]`.

    Raises:
        BudgetError: if the policy does not take one.
        PolicyError: if it has no one-step form, and is no coin between members that have.
    """
    policy = policy.portfolio if isinstance(policy, CalibratedPolicy) else policy
    if isinstance(policy, MultiplierPolicy) and len(policy.costs):
        inner = np.arange(len(policy.costs), dtype=np.float64)
        asked = checked_budgets("budgets", budgets, policy)
        shape = len(asked), len(inner)
        costs, rewards = (np.broadcast_to(v, shape) for v in (policy.costs, policy.rewards))
        chosen = best_mixtures(costs, rewards, np.minimum(asked, policy.high))
        return _Played(asked, (policy.dial,), (inner,), _shares(chosen, len(inner)))
    if isinstance(policy, Portfolio):
        asked = checked_budgets("budgets", budgets, policy)
        order = np.argsort(policy.which, kind="stable")
        members = [policy.budgets[policy.which == n] for n in range(len(policy.policies))]
        shares = _shares(policy.mixtures(asked), len(order))[:, order]
        return _Played(asked, cast(Any, policy.policies), tuple(members), shares)
    if not hasattr(policy, "at_step"):
        raise PolicyError(
            "evaluate_offline needs a policy with a one-step form at each step, or a coin between "
            f"some at the start; {type(policy).__name__} is neither."
        )
    asked = checked_budgets("budgets", budgets, cast(BudgetedPolicy, policy))
    return _Played(asked, (policy,), (asked,))


def _shares(chosen: Mixtures[Any], n_members: int) -> FloatArray:
    """Shares of members `[B, M]`, given which two are mixed at each budget."""
    found, rows = np.zeros((len(chosen.lower), n_members)), np.arange(len(chosen.lower))
    np.add.at(found, (rows, chosen.lower), 1 - chosen.p_upper)
    np.add.at(found, (rows, chosen.upper), chosen.p_upper)
    return found


def _told(  # noqa: PLR0913
    policy: SteppedPolicy,
    asked: FloatArray,
    log: LoggedEpisodes,
    method: Method,
    how: _How,
    n_repeats: int,
    report: Callable[[int], None],
) -> _Told:
    """Evaluates one policy at budgets `[B]`."""
    open_by, rows = what_is_open(policy, log.batch, asked, how.terms(policy))
    if method == "fitted":
        gamma, cost_gamma = how.discounts
        settings: dict[str, Any] = {"gamma": gamma, "cost_gamma": cost_gamma, "budgets": asked}
        settings |= {"model": how.model, "device": how.device, "schedule": how.schedule}
        settings |= {"n_budgets": how.n_budgets}
        effective = np.full(len(asked), float(len(log)))
        fits = Fits(log, settings, how.seed)
        return _Told(
            repeat_fitted(policy, fits, n_repeats, how.workers, report), effective, open_by, rows
        )
    values = None
    if method == "doubly-robust":
        values = values_of_halves(policy, log, how.terms(policy))
    settings = {"discounts": how.discounts, "budgets": asked, "seed": how.seed, "values": values}
    weighted = weighted_episodes(policy, log, n_paths=how.n_paths, **settings)
    found = repeat_weighted(weighted, log, n_repeats, how.seed, report)
    return _Told(found, weighted.effective_episodes(), open_by, rows)


def what_is_open(
    policy: SteppedPolicy, batch: TransitionBatch, budgets: FloatArray, terms: Terms
) -> tuple[_Open, tuple[int, ...]]:
    """Returns what a log leaves open about a policy, and rows at which it does what is not known.

    A decision is not known that no episode took near there. The share of episodes that come to one
    is told by fitted values of an indicator, and what it may amount to by those that suppose that
    the rest of the episode is the worst, or the best, that was seen.
    """
    from bmdp.learn.evaluation import evaluate_policy, first_rows
    from bmdp.learn.natures import extremes_to_go
    from bmdp.models import ForestModel, TableModel

    starts = first_rows(batch)
    terms = terms._replace(model=TableModel() if _are_few(batch) else ForestModel())
    states, masks = batch.state[starts], rows_at(batch.available, starts)
    within = np.minimum(budgets, policy.budget_range[1])

    def supposed(rows: TransitionBatch, outside: tuple[float, float] | None) -> FloatArray:
        asked = terms._replace(support=_SEEN, outside=outside)
        found = evaluate_policy(policy, rows, asked).worth(states, within, masks)
        mean: FloatArray = found.mean(axis=0)
        return mean

    rows = _unknown_rows(policy, batch, within, _support(batch, np.arange(len(batch)), terms.seed))
    nothing = np.zeros((len(budgets), 2))
    if len(rows) == 0:
        return _Open(nothing[:, 0], nothing, nothing), ()
    columns: dict[str, Any] = dict(batch.to_arrays())
    columns |= {"reward": np.zeros(len(batch)), "cost": np.zeros(len(batch))}
    free = TransitionBatch(**columns, n_actions=batch.n_actions)
    share = supposed(free, (1.0, 1.0))[:, 0].clip(0.0, 1.0)
    if not share.any():
        return _Open(share, nothing, nothing), rows
    ends = [extremes_to_go(batch, discount) for discount in terms.discounts]
    (worst, fair), (worst_c, fair_c) = ends[0], ends[1]
    plain = supposed(batch, None)
    bad = supposed(batch, (worst[0], worst_c[1])) - plain  # less reward, more cost
    good = supposed(batch, (fair[0], fair_c[1])) - plain
    less = np.maximum(np.column_stack((-bad[:, 0], -good[:, 1])), 0.0)
    more = np.maximum(np.column_stack((good[:, 0], bad[:, 1])), 0.0)
    return _Open(share, less, more), rows


def _unknown_rows(
    policy: SteppedPolicy, batch: TransitionBatch, budgets: FloatArray, support: Support
) -> tuple[int, ...]:
    """Some rows of the log at whose states a policy does what the log does not know."""
    steps = np.zeros(len(batch), np.int64) if batch.step is None else batch.step
    found: list[int] = []
    for step in np.unique(steps):
        everyone = np.flatnonzero(steps == step)
        for rows in np.split(everyone, range(_CHUNK, len(everyone), _CHUNK)):
            masks = rows_at(batch.available, rows)
            given = () if masks is None else (masks,)
            options = policy.at_step(int(step)).options_at(batch.state[rows], budgets, *given)
            known = support.known(np.asarray(batch.state[rows], np.float64), masks)
            played = options.action.reshape(len(rows), -1)
            likely = options.probability.reshape(len(rows), -1) > 0
            is_known = np.take_along_axis(known, played, axis=1) | ~likely
            found += rows[~is_known.all(axis=1)].tolist()
            if len(found) >= _N_ROWS:
                return tuple(found[:_N_ROWS])
    return tuple(found)


def _check_settings(discounts: tuple[float, float], confidence: float, n_repeats: int) -> None:
    for name, discount in zip(("gamma", "cost_gamma"), discounts, strict=True):
        require_share(name, discount)
    simultaneous_confidence(confidence, 1)
    require_count("n_bootstrap", n_repeats, 0)
    if n_repeats == 1:
        raise ConfigError("n_bootstrap must be 0, or at least 2 to have a deviation; got 1.")


def _check_states(played: _Played, batch: TransitionBatch) -> None:
    """Checks that policies take the states of the batch."""
    for policy, asked in zip(played.policies, played.inner, strict=True):
        _check_policy(policy, batch, asked)


def _check_policy(policy: SteppedPolicy, batch: TransitionBatch, asked: FloatArray) -> None:
    within = np.minimum(asked[:1], policy.budget_range[1])
    try:
        masks = () if batch.available is None else (batch.available[:1],)
        policy.at_step(0).options_at(batch.state[:1], within, *masks)
    except PolicyError:
        raise
    except _UNFIT as error:
        raise PolicyError(
            f"the policy cannot act on the states of the batch, of shape [{batch.state_size}] and "
            f"type {batch.state.dtype}; {type(policy).__name__} said: {error}"
        ) from error


@dataclass(frozen=True, eq=False)
class LoggedEpisodes:
    """A batch of `N` episodes, and the order of their rows."""

    batch: TransitionBatch
    row: IntArray  # of the batch: one episode after the other, each by its steps
    first: IntArray  # [N], where in `row` each episode begins
    length: IntArray  # [N], steps

    def __len__(self) -> int:
        return len(self.first)

    def at(self, step: int) -> tuple[IntArray, IntArray]:
        """Returns which episodes have a step, and its rows."""
        going = np.flatnonzero(self.length > step)
        return going, self.row[self.first[going] + step]

    def drawn(self, seed: int, repeat: int) -> IntArray:
        """Returns as many episodes as there are, with replacement; repeat 0 has each of them."""
        if repeat == 0:
            return np.arange(len(self))
        rng = named_generator(seed, f"evaluate-offline/bootstrap/{repeat}")
        return rng.integers(len(self), size=len(self))

    def sample(self, drawn: IntArray) -> TransitionBatch:
        """Returns the transitions of some episodes, which may repeat; they are numbered anew."""
        length = self.length[drawn]
        before = np.cumsum(length) - length
        within = np.arange(length.sum()) - np.repeat(before, length)
        rows = self.row[np.repeat(self.first[drawn], length) + within]
        columns = {name: values[rows] for name, values in self.batch.to_arrays().items()}
        columns["episode"] = np.repeat(np.arange(len(drawn)), length)
        return TransitionBatch(**columns, n_actions=self.batch.n_actions)


def logged_episodes(batch: TransitionBatch, *, needs_steps: bool) -> LoggedEpisodes:
    """Returns the episodes of a batch, as they first appear.

    Args:
        batch: one with episodes.
        needs_steps: whether it must have steps, too. Without them rows are in order as they come.

    Raises:
        DataError: if episodes or steps are unknown, or those of an episode are not 0, 1, 2, ...
    """
    if batch.episode is None or (needs_steps and batch.step is None):
        missing = "episode" if batch.episode is None else "step"
        raise DataError(f"evaluate_offline needs whole episodes: give {missing} of each row.")
    row = in_order(batch.episode, batch.step)
    numbers = batch.episode[row]
    first = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
    length = np.diff(np.append(first, len(row)))
    if batch.step is not None:
        wanted = np.arange(len(row)) - np.repeat(first, length)
        wrong = np.flatnonzero(batch.step[row] != wanted)
        if len(wrong):
            i = int(wrong[0])
            raise DataError(
                "evaluate_offline needs whole episodes, of steps 0, 1, 2, ...; episode "
                f"{numbers[i]} has step {batch.step[row[i]]} in place of {wanted[i]}, at "
                f"[{row[i]}]."
            )
    return LoggedEpisodes(batch, row, first, length)


def with_probabilities(batch: TransitionBatch, seed: int) -> tuple[TransitionBatch, float]:
    """Returns a batch with the probabilities of its actions, estimated if they were not logged.

    States are few if there are at most a tenth as many as rows: then they are shares of a table.
    With them comes their `calibration_error`, NaN if they were logged: half of the episodes tell
    how well those fit that are estimated from the other half.
    """
    if batch.probability is not None:
        return batch, np.nan
    from bmdp.models.support import calibration_error

    states = np.asarray(batch.state, np.float64)
    episodes = np.arange(len(batch)) if batch.episode is None else batch.episode
    numbers = np.unique(episodes, return_inverse=True)[1]
    first, second = (np.flatnonzero(numbers % 2 == half) for half in range(2))
    off = np.nan
    if len(first) and len(second):
        off = calibration_error(
            _support(batch, first, seed).probabilities(states[second]), batch.action[second]
        )
    everyone = np.arange(len(batch))
    chances = _support(batch, everyone, seed).probabilities(states)[everyone, batch.action]
    columns: dict[str, Any] = batch.to_arrays() | {"probability": np.clip(chances, 1e-6, 1.0)}
    names = batch.state_names
    return TransitionBatch(**columns, n_actions=batch.n_actions, state_names=names), off


def _support(batch: TransitionBatch, rows: IntArray, seed: int) -> Support:
    """Support of actions by some rows of a log, in a table where states are few."""
    from bmdp.models.support import Support  # it imports torch

    episodes = np.arange(len(batch)) if batch.episode is None else batch.episode
    told = np.asarray(batch.state, np.float64)[rows], batch.action[rows], episodes[rows]
    how: dict[str, Any] = {"least": _SEEN, "is_table": _are_few(batch), "seed": seed}
    return Support.of(*told, batch.n_actions, **how)


def _are_few(batch: TransitionBatch) -> bool:
    """Whether states are so few that a table of them is filled."""
    return _FEW * len(np.unique(batch.state, axis=0)) <= len(batch)


class Values(NamedTuple):
    """Fitted values of a policy for each half of the episodes, learned from the other half."""

    half: IntArray  # [N], of each episode
    evaluated: tuple[Evaluated, ...]

    def at(self, states: FloatArray, step: int, who: IntArray, options: Options) -> FloatArray:
        """Expected reward and cost `[n, 2]` of options at states `[n, D]` of episodes `[n]`."""
        found = np.empty((len(states), 2))
        for number, model in enumerate(self.evaluated):
            own = self.half[who] == number
            if own.any():
                some = Options(*(column[own] for column in options))
                found[own] = model.at(states[own], step, some)
        return found


def values_of_halves(policy: SteppedPolicy, log: LoggedEpisodes, terms: Terms) -> Values:
    """Returns fitted values for each half of the episodes.

    Raises:
        DataError: if there are fewer than 2 episodes in a half.
    """
    from bmdp.learn.evaluation import evaluate_policy

    if len(log) < 2 * _HALVES:
        raise DataError(
            "values for one half of the episodes are learned from the other: give at least "
            f"{2 * _HALVES} episodes; got {len(log)}."
        )
    rng = named_generator(terms.seed, "evaluate-offline/halves")
    half = rng.permutation(np.arange(len(log)) % _HALVES)
    evaluated = (
        evaluate_policy(policy, log.sample(np.flatnonzero(half != number)), terms)
        for number in range(_HALVES)
    )
    return Values(half, tuple(evaluated))


class Weighted(NamedTuple):
    """Episodes with their weights, at each of `B` budgets, in `T` steps."""

    weight: FloatArray  # [B, N, T]
    paid: FloatArray  # [2, N, T], rewards and costs, discounted; 0 after the end
    taken: FloatArray | None = None  # [2, B, N, T], discounted values of what was done, weighted
    before: FloatArray | None = None  # [2, B, N, T], of what the policy would do, by weights before

    def estimate(self, counts: FloatArray) -> FloatArray:
        """Returns reward and cost `[K, B, 2]`, given how often each episode counts, `[K, N]`.

        It is NaN where no episode that counts has a weight.
        """
        found = np.empty((len(counts), len(self.weight), 2))
        with np.errstate(invalid="ignore"):
            for budget, weight in enumerate(self.weight):
                total = counts @ weight
                for kind, paid in enumerate(self.paid):
                    found[:, budget, kind] = (counts @ (weight * paid) / total).sum(axis=1)
                    if self.taken is not None and self.before is not None:
                        first = np.broadcast_to(counts.sum(axis=1, keepdims=True), (len(counts), 1))
                        earlier = np.concatenate((first, total[:, :-1]), axis=1)
                        taken, before = self.taken[kind, budget], self.before[kind, budget]
                        more = counts @ before / earlier - counts @ taken / total
                        found[:, budget, kind] += more.sum(axis=1)
        return found

    def effective_episodes(self) -> FloatArray:
        """Returns how many episodes of equal weight would tell as much, `[B]`: Kish's number."""
        last = self.weight[:, :, -1]
        effective: FloatArray = last.sum(axis=1) ** 2 / np.square(last).sum(axis=1)
        return effective


def weighted_episodes(  # noqa: PLR0913
    policy: SteppedPolicy,
    episodes: LoggedEpisodes,
    *,
    discounts: tuple[float, float],
    budgets: FloatArray,
    n_paths: int,
    seed: int,
    values: Values | None = None,
) -> Weighted:
    """Returns logged episodes with their weights under a policy.

    Args:
        policy: one whose probabilities are known.
        episodes: with probabilities of actions.
        discounts: of rewards and of costs.
        budgets: at the start, `[B]`.
        n_paths: of budgets, for each episode and budget at the start.
        seed: of the paths. What is drawn does not depend on the other budgets.
        values: of the policy, for a doubly robust estimate.

    Raises:
        DataError: if there are no probabilities, or all episodes have weight 0 at a budget.
        PolicyError: if it is not known with which probabilities the policy acts.
    """
    batch, n_steps = episodes.batch, int(episodes.length.max())
    if batch.probability is None:
        raise DataError(
            "importance sampling needs the probabilities of logged actions: give probability of "
            'each row, or use method="fitted".'
        )
    streams = EpisodeStreams.named(seed, "evaluate-offline/paths", range(len(episodes)))
    held = np.tile(budgets[:, None, None], (1, len(episodes), n_paths))
    weight = np.ones(held.shape)
    found = Weighted(np.empty((*held.shape[:2], n_steps)), np.zeros((2, len(episodes), n_steps)))
    if values is not None:
        shape = (2, *found.weight.shape)
        found = found._replace(taken=np.zeros(shape), before=np.zeros(shape))
    row = np.zeros(len(episodes), np.int64)  # of each episode that goes on
    for step in range(n_steps):
        going, rows = episodes.at(step)
        row[going] = rows
        for kind, column in enumerate((batch.reward, batch.cost)):
            found.paid[kind, going, step] = discounts[kind] ** step * column[rows]
        is_played = (weight > 0) & (episodes.length > step)[:, None]
        if is_played.any():
            _, who, path = np.nonzero(is_played)
            at = row[who]
            options = _options(policy, step, batch, at, held[is_played])
            uniforms = streams.uniforms(step, n_paths)[who, path]
            chance, after = given_action(options, batch.action[at], uniforms)
            earlier = weight[is_played]
            held[is_played], weight[is_played] = after, earlier * chance / batch.probability[at]
            if values is not None:
                done = Options(batch.action[at][:, None], after[:, None], np.ones((len(at), 1)))
                shrink = np.array(discounts) ** step
                for told, some, by in (
                    (found.before, options, earlier),
                    (found.taken, done, weight[is_played]),
                ):
                    assert told is not None
                    worth = shrink * by[:, None] * values.at(batch.state[at], step, who, some)
                    for kind in range(2):
                        whole = np.zeros(held.shape)
                        whole[is_played] = worth[:, kind]
                        told[kind, :, :, step] = whole.mean(axis=2)
        found.weight[:, :, step] = weight.mean(axis=2)
        _require_weight(found.weight[:, :, step], budgets, step)
    return found


def given_action(
    options: Options, actions: IntArray, uniforms: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns probabilities of actions `[n]`, and next budgets that are drawn given these actions.

    >>> two = Options(np.array([[0, 1]]), np.array([[0.2, 0.8]]), np.array([[0.75, 0.25]]))
    >>> given_action(two, np.array([1]), np.array([0.5]))
    (array([0.25]), array([0.8]))
    """
    chances = np.where(options.action == actions[:, None], options.probability, 0.0)
    below = np.cumsum(chances, axis=1)
    chosen = (below <= uniforms[:, None] * below[:, -1:]).sum(axis=1)
    chosen = np.minimum(chosen, chances.shape[1] - 1)  # where no option has the action
    return below[:, -1], np.take_along_axis(options.next_budget, chosen[:, None], axis=1)[:, 0]


def _options(
    policy: SteppedPolicy, step: int, batch: TransitionBatch, row: IntArray, held: FloatArray
) -> Options:
    """Options of the policy at states of rows `[n]` with budgets `[n]`, each asked once."""
    now = policy.at_step(step)
    ask = getattr(now, "options", None)
    if ask is None:
        raise PolicyError(
            f"{type(now).__name__} does not say with which probabilities it acts at a budget for "
            "each state: it has no `options`."
        )
    levels, level = np.unique(np.minimum(held, policy.budget_range[1]), return_inverse=True)
    pairs, which = np.unique(row * len(levels) + level, return_inverse=True)
    parts = []
    for some in np.split(pairs, range(_CHUNK, len(pairs), _CHUNK)):
        at, budgets = some // len(levels), levels[some % len(levels)]
        masks = () if batch.available is None else (batch.available[at],)
        parts.append(ask(batch.state[at], budgets, *masks))
    return Options(*(np.concatenate(columns)[which] for columns in zip(*parts, strict=True)))


def _require_weight(weight: FloatArray, budgets: FloatArray, step: int) -> None:
    """Checks that at each budget an episode has a weight, `[B, N]`."""
    lost = np.flatnonzero(weight.sum(axis=1) == 0)
    if len(lost):
        raise DataError(
            "no logged episode could have been played by the policy at budget "
            f"{budgets[lost[0]]:g}: at step {step} it takes none of the logged actions. Log more "
            'episodes and all actions, or use method="fitted".'
        )


def repeat_weighted(
    weighted: Weighted,
    log: LoggedEpisodes,
    n_repeats: int,
    seed: int,
    report: Callable[[int], None],
) -> FloatArray:
    """Reward and cost by weights, of all episodes and of each repeat, `[1 + R, B, 2]`."""
    found = []
    for first in range(0, 1 + n_repeats, _TOGETHER):
        repeats = range(first, min(first + _TOGETHER, 1 + n_repeats))
        drawn = [np.bincount(log.drawn(seed, repeat), minlength=len(log)) for repeat in repeats]
        found.append(weighted.estimate(np.array(drawn, np.float64)))
        report(len(repeats))
    return np.concatenate(found)


@dataclass(frozen=True)
class Fits:
    """Shared settings of the fitted evaluations of a log."""

    log: LoggedEpisodes
    settings: dict[str, Any]
    seed: int

    def told(self, policy: SteppedPolicy, repeat: int) -> FloatArray:
        """Reward and cost by a fitted evaluation, `[B, 2]`; repeat 0 is that of the log itself."""
        from bmdp.learn.evaluation import fitted_evaluation

        batch, seed = self.log.batch, self.seed
        if repeat > 0:
            batch = self.log.sample(self.log.drawn(self.seed, repeat))
            seed = stream_key(self.seed, f"evaluate-offline/model/{repeat}")[0] % 2**31
        found = fitted_evaluation(policy, batch, seed=seed, **self.settings)
        return np.stack((found.reward, found.cost), axis=1).astype(np.float64)


def repeat_fitted(
    policy: SteppedPolicy,
    fits: Fits,
    n_repeats: int,
    workers: int,
    report: Callable[[int], None],
) -> FloatArray:
    """Reward and cost by fitted evaluations, of the log and of each repeat, `[1 + R, B, 2]`."""
    repeats = range(1 + n_repeats)
    if workers > 1 and n_repeats:
        travelling = cast(BudgetedPolicy, policy)
        how: dict[str, Any] = {"workers": workers, "on_done": lambda repeat: report(1)}
        return np.stack(run_with_policy(_teller, travelling, fits, repeats, **how))
    found = []
    for repeat in repeats:
        found.append(fits.told(policy, repeat))
        report(1)
    return np.stack(found)


def _teller(policy: BudgetedPolicy, fits: Fits) -> Callable[[int], FloatArray]:
    """Evaluates in a worker, with one thread."""
    import torch

    torch.set_num_threads(1)
    return lambda repeat: fits.told(cast(SteppedPolicy, policy), repeat)


def interval_ends(found: FloatArray, effective: FloatArray, confidence: float) -> FloatArray:
    """Ends of the intervals `[2, B, 2]`, given the estimate and its repeats `[1 + R, B, 2]`.

    A repeat without an estimate does not count. Fewer than 2 effective episodes say nothing: their
    interval is the whole line.
    """
    estimate, repeats = found[0], found[1:]
    if not len(repeats):
        return np.full((2, *estimate.shape), np.nan)
    is_known = ~np.isnan(repeats)
    n_known, n = is_known.sum(axis=0), effective[:, None]
    mean = np.where(is_known, repeats, 0.0).sum(axis=0) / n_known.clip(1)
    squares = np.where(is_known, np.square(repeats - mean), 0.0).sum(axis=0)
    variance = squares / (n_known - 1).clip(1) * n / (n - 1).clip(1)
    degrees = np.minimum(n_known, n) - 1
    half = stdtrit(degrees.clip(1), (1 + confidence) / 2) * np.sqrt(variance)
    half = np.where(degrees < 1 - 1e-9, np.inf, half)
    return np.stack((estimate - half, estimate + half))
