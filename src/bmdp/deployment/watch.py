"""The watch over a deployed dial: what was asked, what is paid, and whether the promise is kept.

`Watch` reads the log of a policy in production (`bmdp.deployment.decisions`) and keeps, for all
budgets together and for each range of them, a test that says when the promise is broken and a band
around the mean excess (`bmdp.deployment.sequences`). Both hold at all times together, so that one
may look after each episode.

Half of a capital is put against the promise as a whole, and half is shared by the ranges. The sum
is one bet: it reaches 1 / alpha with probability alpha at most, if all promises are kept. A range
is named if its own part alone has made the alarm. Bands share alpha in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from bmdp.arrays import MAGNITUDE, FloatArray, IntArray, require_finite
from bmdp.checks import require_count, require_from_0, require_share
from bmdp.deployment.decisions import DecisionLog, Kept, Promises, Rows
from bmdp.deployment.drift import Drift, DriftReport
from bmdp.deployment.sequences import Band, Capital, Course
from bmdp.envs.slots import open_slots
from bmdp.errors import ConfigError, DataError, StoreError
from bmdp.evaluation.statistics import simultaneous_confidence
from bmdp.kinds import checked
from bmdp.policies import CalibratedPolicy
from bmdp.policies.limited import episode_limit_of, require_limit
from bmdp.policies.portfolio import LogCertificate
from bmdp.report.opened import open_folder

Verdict = Literal["kept", "broken", "not known yet"]

RANGES = 5
"""Ranges of budgets that are judged by themselves."""

_SHOWN = np.unique(np.round(1.03 ** np.arange(800)).astype(np.int64))  # promises of a course
_MOST_MORE = 1e9  # episodes; more are never


@dataclass(frozen=True)
class Judged:
    """Promises of one range of budgets, and the verdict on them."""

    low: float  # of the range
    high: float
    n: int  # promises
    asked: float  # mean budget
    paid: float  # mean cost, as far as it is known
    excess_low: float  # of the band around the mean excess
    excess_high: float
    evidence: float  # log of the capital that was made against the promise
    alarm_at: float  # evidence from which on it is broken
    verdict: Verdict
    since: int | None  # promise, in the order of beginnings, at which it was found broken
    more: int | None  # episodes that are about needed to know; None if that cannot be said


@dataclass(frozen=True, eq=False)
class WatchReport:
    """All that a log says about the promise.

    `whole` is of all budgets; `ranges` are from the lowest on. A promise is an episode, or the part
    of one from where its dial was moved.
    """

    confidence: float
    gamma: float  # discount of costs
    most_cost: float  # of an episode; infinite if it is not known
    tolerance: float
    whole: Judged
    ranges: tuple[Judged, ...]
    course: Course  # means and band of all budgets, at some of the promises so far
    n_lines: int
    n_open: int  # episodes that go on
    n_cut: int  # promises of which only a part of the cost is known
    n_moved: int  # times that a dial was moved
    n_headless: int  # lines of episodes whose beginning is not in the log
    infeasible: tuple[int, float, float]  # budgets that cannot be kept: number, mean asked and paid
    drift: DriftReport | None

    @property
    def is_broken(self) -> bool:
        """Whether the promise is broken, at some budgets at least."""
        return any(judged.verdict == "broken" for judged in (self.whole, *self.ranges))

    def told(self, judged: Judged) -> str:
        """Returns a verdict in words.

        Args:
            judged: `whole`, or one of the `ranges`.
        """
        if judged.verdict == "broken":
            return f"broken since episode {judged.since:,} (at confidence {self.confidence:g})"
        if judged.verdict == "kept":
            return "kept"
        if judged.more is None:
            return "not known yet"
        return f"not known yet: about {judged.more:,} more episodes"

    def named(self) -> list[tuple[str, Judged]]:
        """Returns all verdicts by the names of their ranges, but for ranges without a promise."""
        ranges = [(f"{judged.low:g} to {judged.high:g}", judged) for judged in self.ranges]
        return [("all", self.whole), *((name, judged) for name, judged in ranges if judged.n)]

    def notes(self) -> list[str]:
        """Returns what is to be known beside the verdicts, a sentence each."""
        n, asked, paid = self.infeasible
        notes = []
        if n:
            notes.append(
                f"{n:,} budgets cannot be kept, as the log says, and are not judged: asked "
                f"{asked:.4g} and paid {paid:.4g} on average."
            )
        if self.n_moved:
            notes.append(f"Dials were moved in the middle {self.n_moved:,} times.")
        if self.n_cut:
            notes.append(
                f"Of {self.n_cut:,} promises only a part of the cost is known: the dial was moved, "
                "lines are missing, or the episode did not end."
            )
        if self.n_headless:
            notes.append(
                f"{self.n_headless:,} lines are of episodes whose beginning is not in the log."
            )
        if math.isinf(self.most_cost):
            notes.append("Nothing is found kept without the most that an episode can cost.")
        return notes + ([] if self.drift is None else self.drift.notes())


@dataclass(eq=False)
class _Account:
    """Evidence on one range of budgets."""

    capital: Capital
    band: Band
    alarm_at: float
    since: int | None = None
    course: list[Course] = field(default_factory=list)

    def take(self, kept: Kept, number: IntArray, terms: Watch) -> FloatArray:
        """Takes note of promises, and returns the log of the capital after each."""
        self.capital, path = self.capital.after(kept.asked + terms.tolerance, kept.paid)
        most = np.where(kept.is_cut, terms.most_cost, kept.paid)
        most = most if math.isfinite(terms.most_cost) else kept.paid
        first, last = np.searchsorted(_SHOWN, self.band.n + np.array([1, len(path) + 1]))
        at = _SHOWN[first:last] - self.band.n - 1
        self.band, course = self.band.after(kept.asked, kept.paid, most, at=at)
        self.course.append(course)
        self.look(path, number)
        return path

    def look(self, path: FloatArray, number: IntArray) -> None:
        """Keeps the first promise at which the capital makes the alarm."""
        over = path >= self.alarm_at
        if self.since is None and over.any():
            self.since = int(number[over.argmax()])


@checked
class Watch:
    """Judges a log while it grows.

    Args:
        budget_range: of the policy; it is cut into ranges that are judged by themselves.
        gamma: discount of costs.
        confidence: with which there is no false alarm, ever, and with which all bands hold.
        most_cost: the most that an episode can cost. It is not needed to find a promise broken;
            without it no promise can be found kept.
        tolerance: cost above the budget that still counts as kept.
        training: first states of the training log, `[n, D]`, to find drift.
        names: of the numbers of a state.
        patience: promises that may begin before the end of one is no longer waited for.
        name: of the log, for errors.
        episode_limit: on the plain sum of the costs of an episode, if budgets are chances to exceed
            it; gamma and the most that an episode can cost are 1 then.

    Raises:
        ConfigError: if a setting is out of its range.
        DataError: if there are too few training states.

    >>> rng = np.random.default_rng(0)
    >>> def line(i, cost):
    ...     ends = {"episode": str(i), "step": 0, "ended": True}
    ...     return {**ends, "budget": 0.2, "cost": float(cost)}
    >>> watch = Watch((0.0, 1.0), most_cost=1.0)
    >>> watch.add(1, [line(i, cost) for i, cost in enumerate(rng.random(1_000) < 0.1)])
    >>> watch.report().whole.verdict
    'kept'
    >>> watch.add(1_001, [line(i, cost) for i, cost in enumerate(rng.random(1_000) < 0.5)])
    >>> report = watch.report()
    >>> report.whole.verdict, report.is_broken, [range.n for range in report.ranges]
    ('broken', True, [0, 2000, 0, 0, 0])
    """

    def __init__(  # noqa: PLR0913
        self,
        budget_range: tuple[float, float],
        *,
        gamma: float = 1.0,
        confidence: float = 0.95,
        most_cost: float | None = None,
        tolerance: float = 0.0,
        training: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        patience: int = 10_000,
        name: str = "the log",
        episode_limit: float | None = None,
    ) -> None:
        if episode_limit is not None:
            require_limit(episode_limit)
            gamma, most_cost = 1.0, 1.0
        require_share("gamma", gamma)
        require_from_0("tolerance", tolerance)
        require_count("patience", patience, 1)
        if most_cost is not None and not 0 < most_cost < np.inf:
            raise ConfigError(f"most_cost must be a number above 0; got {most_cost}.")
        self.confidence, self.gamma, self.tolerance = confidence, gamma, tolerance
        self.most_cost = math.inf if most_cost is None else float(most_cost)
        require_finite("budget_range", np.array(budget_range, np.float64), limit=MAGNITUDE)
        low, high = map(float, budget_range)
        if low > high:
            raise ConfigError(f"budget_range must not fall; got {low:g} to {high:g}.")
        n_ranges = RANGES if high > low else 1
        self.edges = np.linspace(low, high, n_ranges + 1)
        self.name = name
        self._promises = Promises(
            gamma=gamma, patience=patience, name=name, episode_limit=episode_limit
        )
        self._drift = None
        if training is not None:
            self._drift = Drift(training, names, confidence=confidence)
        whole = simultaneous_confidence(confidence, 2)
        self._whole = self._account(whole, -np.log(1 - confidence))
        each = simultaneous_confidence(confidence, 2 * n_ranges)
        self._ranges = [self._account(each, -np.log(1 - each)) for _ in range(n_ranges)]
        self._n = self._n_cut = 0
        self._infeasible = np.zeros(3)  # number, sums asked and paid

    def add(self, first_line: int, rows: Rows) -> None:
        """Records lines of the log.

        Args:
            first_line: number of the first of them, for errors.
            rows: objects, as `DecisionLog` has them.

        Raises:
            DataError: naming the line that is wrong, or a cost above the most that there can be.
        """
        self._promises.add(first_line, rows)
        if self._drift is not None:
            self._drift.add(self._promises.first_states)
        self._promises.first_states.clear()
        kept = self._promises.done()
        self._judge(kept, self._numbers(kept), self._whole, self._ranges)
        self._n += len(kept.asked)
        self._n_cut += int((kept.is_cut & kept.is_feasible).sum())
        hopeless = ~kept.is_feasible
        self._infeasible += hopeless.sum(), kept.asked[hopeless].sum(), kept.paid[hopeless].sum()

    def report(self) -> WatchReport:
        """Returns the verdicts at this time.

        Promises that are not over count by what was paid so far, which can only hide an alarm.
        """
        self._look_ahead()
        courses = [_no_course(), *self._whole.course]
        course = Course(*(np.concatenate(column) for column in zip(*courses, strict=True)))
        n, asked, paid = self._infeasible
        ends = zip(self.edges[:-1], self.edges[1:], self._ranges, strict=True)
        return WatchReport(
            confidence=self.confidence,
            gamma=self.gamma,
            most_cost=self.most_cost,
            tolerance=self.tolerance,
            whole=self._judged(self.edges[0], self.edges[-1], self._whole),
            ranges=tuple(self._judged(low, high, account) for low, high, account in ends),
            course=course,
            n_lines=self._promises.n_lines,
            n_open=self._promises.n_open,
            n_cut=self._n_cut,
            n_moved=self._promises.n_moved,
            n_headless=self._promises.n_headless,
            infeasible=(int(n), asked / n if n else math.nan, paid / n if n else math.nan),
            drift=None if self._drift is None else self._drift.report(),
        )

    def _account(self, confidence: float, alarm_at: float) -> _Account:
        band = Band.start(
            confidence=confidence,
            largest_prediction=2 * float(self.edges[-1]),
            most_cost=self.most_cost,
        )
        return _Account(Capital.start(), band, float(alarm_at))

    def _numbers(self, kept: Kept) -> IntArray:
        """Numbers of promises, from 1 on."""
        return self._n + np.arange(1, len(kept.asked) + 1)

    def _judge(
        self, kept: Kept, number: IntArray, whole: _Account, ranges: Sequence[_Account]
    ) -> None:
        """Takes note of promises in accounts."""
        if (kept.paid > self.most_cost).any():
            raise DataError(
                f"{self.name}: an episode cost {kept.paid.max():.6g}, but none can cost more than "
                f"{self.most_cost:g}, as was said: give the true bound as --most-cost."
            )
        number = number[kept.is_feasible]
        kept = kept.take(kept.is_feasible)
        if not len(number):
            return
        since = whole.since
        before = [float(account.capital.log) for account in ranges]
        path = whole.take(kept, number, self)
        whole.since = since  # it is the sum that counts
        where = np.searchsorted(self.edges[1:-1], kept.asked, side="right")
        shared = np.full(len(number), -np.inf)
        for i, account in enumerate(ranges):
            mine = np.flatnonzero(where == i)
            part = account.take(kept.take(mine), number[mine], self)
            so_far = np.searchsorted(mine, np.arange(len(number)), side="right")
            shared = np.logaddexp(shared, np.append(before[i], part)[so_far])
        whole.look(np.logaddexp(path, shared - np.log(len(ranges))) - np.log(2), number)

    def _look_ahead(self) -> None:
        """Looks for an alarm in promises that are not over, and takes note of nothing else."""
        pending = self._promises.pending()
        accounts = (self._whole, *self._ranges)
        if all(account.since is not None for account in accounts) or not len(pending.asked):
            return
        copies = [_Account(a.capital, a.band, a.alarm_at, a.since) for a in accounts]
        self._judge(pending, self._numbers(pending), copies[0], copies[1:])
        for account, copy in zip(accounts, copies, strict=True):
            account.since = copy.since

    def _judged(self, low: float, high: float, account: _Account) -> Judged:
        band, n = account.band, account.band.n
        excess_low, excess_high = map(float, band.ends)
        verdict: Verdict = "not known yet"
        if account.since is not None:
            verdict = "broken"
        elif excess_high <= self.tolerance:
            verdict = "kept"
        return Judged(
            low=float(low),
            high=float(high),
            n=n,
            asked=float(band.asked) / n if n else math.nan,
            paid=float(band.least) / n if n else math.nan,
            excess_low=excess_low,
            excess_high=excess_high,
            evidence=float(account.capital.log),
            alarm_at=account.alarm_at,
            verdict=verdict,
            since=account.since,
            more=self._more(account) if verdict == "not known yet" else None,
        )

    def _more(self, account: _Account) -> int | None:
        """Episodes until a verdict, if all goes on as it did."""
        band, capital = account.band, account.capital
        if not band.n:
            return None
        excess = float(band.least - band.asked) / band.n - self.tolerance
        if excess > 0:
            pace = float(capital.pace)
            left = account.alarm_at - float(capital.log)
            needed = left / pace if pace > 0 else math.inf
        else:
            slack = self.tolerance - float(band.most - band.asked) / band.n
            needed = _least_number(band, slack) - band.n
        return _rounded(needed)


@checked
def watch_log(log: str | Path, budget_range: tuple[float, float], **settings: Any) -> WatchReport:
    r"""Returns whether a deployed policy keeps its promise, by its log of decisions.

    Args:
        log: JSON lines, or Parquet (`bmdp.deployment.DecisionLog`).
        budget_range: of the policy.
        settings: of `Watch`: `gamma`, `confidence`, `most_cost`, `tolerance`, `training` ...

    Raises:
        DataError: naming the line that is wrong.

    >>> import json, tempfile
    >>> line = {"episode": "a", "step": 0, "budget": 0.5, "action": 1, "cost": 1.0, "ended": True}
    >>> with tempfile.TemporaryDirectory() as place:
    ...     path = Path(place, "log.jsonl")
    ...     _ = path.write_text((json.dumps(line) + "\n") * 100)
    ...     report = watch_log(path, (0.0, 1.0))
    >>> report.told(report.whole)
    'broken since episode 11 (at confidence 0.95)'
    """
    found, lines = Watch(budget_range, name=str(log), **settings), DecisionLog(log)
    for first_line, rows in lines.new():
        found.add(first_line, rows)
    found.add(*lines.last())
    return found.report()


@dataclass(frozen=True, eq=False)
class Known:
    """All that the folder of a policy or a run says of its promise."""

    budget_range: tuple[float, float]
    gamma: float | None  # discount of costs
    most_cost: float | None  # of an episode, where its environment or certificate says so
    training: FloatArray | None  # [n, D], first states of what it was learned from
    names: tuple[str, ...] | None  # of the numbers of a state
    episode_limit: float | None = None  # that budgets are chances to exceed


@checked
def known_of(folder: str | Path) -> Known:
    """Returns what a folder says of the promise of its policy.

    The most that was seen in a log is no bound on what comes, and is not taken for one.

    Args:
        folder: of a policy, or of a run.

    Raises:
        StoreError: if there is no policy.

    >>> import tempfile
    >>> from bmdp.policies import HullPolicy, TabularQ
    >>> q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     HullPolicy(q, [0.0, 1.0]).save(f"{place}/policy")
    ...     known = known_of(f"{place}/policy")
    >>> known.budget_range, known.gamma
    ((0.0, 1.0), None)
    """
    opened = open_folder(Path(folder), None, ())
    if opened.policy is None:
        raise StoreError(f"{folder} has no policy yet: finish the run first.")
    gamma = None if opened.gammas is None else opened.gammas[1]
    most = None
    if isinstance(opened.policy, CalibratedPolicy):
        promise = opened.policy.certificate
        gamma = promise.gamma if gamma is None else gamma
        most = None if isinstance(promise, LogCertificate) else promise.cost_range[1]
    if most is None and opened.env is not None:
        slots = open_slots(opened.env)
        said = slots.metadata.get("cost_range")
        slots.close()
        most = None if said is None else float(said[1])
    training, names = None, None
    if opened.batch is not None:
        states = np.asarray(opened.batch.state, np.float64)[opened.batch.starts()]
        training = states.reshape(len(states), -1)
        names = opened.batch.state_names
    limit = episode_limit_of(opened.policy)
    if limit is not None:
        gamma, most = 1.0, 1.0  # an episode exceeds it, or does not
    return Known(opened.policy.budget_range, gamma, most, training, names, limit)


def _no_course() -> Course:
    return Course(np.empty(0, np.int64), *np.empty((4, 0)))


def _least_number(band: Band, slack: float) -> float:
    """Episodes after which the high end is below, if the mean is by `slack`."""
    if slack <= 0 or not math.isfinite(band.most_cost):
        return math.inf
    low, high = band.n, band.n
    while band.width_after(high, high=True) > slack:
        low, high = high, 2 * high
        if high > _MOST_MORE:
            return math.inf
    while high - low > 1 + low // 100:
        middle = (low + high) // 2
        is_enough = band.width_after(middle, high=True) <= slack
        low, high = (low, middle) if is_enough else (middle, high)
    return high


def _rounded(needed: float) -> int | None:
    """A number of episodes with two digits, rounded up."""
    if not needed < _MOST_MORE:
        return None
    digits = int(10 ** max(len(str(int(needed))) - 2, 0))
    return max(math.ceil(needed / digits) * digits, 1)
