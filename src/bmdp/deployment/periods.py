"""A budget for a whole period, such as a month, over the many short episodes that come in it.

`PeriodBudget` says the budget of the next episode, from what was really spent:

    budget = (total - spent - in flight - reserve) / (episodes still expected) / ratio

*In flight* is what episodes that have begun and not ended are expected to cost. The *ratio* is what
episodes cost for each unit that was asked: riskier customers, or a dial that is off, are seen in
it. *Episodes still expected* are as planned; where times are given they follow the pace: with a
share t of the period over and n episodes begun, (n + w N) / (t + w) (1 - t), for N that were
planned, with a weight w of a tenth of a period.

The *reserve* is for what no later budget can make good. It has two parts. What is in flight may
cost more than expected: all of these at once cost at most their number times the most of one, and
more than B + sqrt(2 B C l) + C l / 3 only with probability exp(-l), where B is what they are
expected to cost and C the most of one (Bernstein). And the cheapest action may cost something, too:
then all that are still expected will cost that, at least.

Where the lowest budget costs nothing, episodes come one after another and none costs more than C,
the total is never exceeded: the last whole cost C is never at stake.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from bmdp.arrays import FloatArray, require_shape
from bmdp.checks import require_count, require_from_0
from bmdp.errors import BudgetError, ConfigError, DataError
from bmdp.kinds import checked
from bmdp.storage import one_line

_WEIGHT = 0.1  # periods that the plan counts for, against the pace
_AFTER = 0.02  # of the episodes so far, that are expected at least where times are not given
_TRUST = 0.05, 10.0  # of the total, and times the most of an episode: what a ratio of 1 counts for
_AS_SAID = 10  # episodes that the lowest budget counts for, against what is seen at it
_HALVINGS = 25  # of the range of budgets
_RATIOS = 0.2, 5.0  # that are believed
_FORMAT = 1  # of states
_MOST_TOLD = 200  # letters of an error


@dataclass(frozen=True)
class PeriodStatus:
    """State of a budget: what is left, and how it goes."""

    word: str  # "on course", "exhausted" or "too small"
    spent: float
    in_flight: float  # expected cost of episodes that have not ended
    left: float  # of the total, without both
    reserve: float
    n_begun: int
    n_ended: int
    expected: float  # episodes that are still to come
    ratio: float  # cost for each unit that is asked

    def __str__(self) -> str:
        """Says it in a sentence."""
        told = {
            "on course": "the budget is on course",
            "exhausted": "the budget is exhausted: the lowest budget is asked for",
            "too small": "the budget is too small: the lowest budget is asked for, and even that "
            "costs more than is left",
        }
        return f"{told[self.word]}; spent {self.spent:.4g}, left {self.left:.4g}"


@checked
class PeriodBudget:
    """Spends a total over the episodes of a period, and keeps it.

    Args:
        total: cost of all episodes of the period together, discounted within each as by the policy.
        episodes: that are expected in the period.
        budget_range: of the policy.
        most_cost: the most that an episode can cost; if not given, the largest budget. A larger
            cost takes its place once it was observed; before that it is no part of the reserve.
        confidence: with which the total is kept, as far as the lowest budget can keep it.

    Raises:
        ConfigError: if a setting is out of its range.

    >>> controller = PeriodBudget(total=10.0, episodes=100, budget_range=(0.0, 1.0), most_cost=1.0)
    >>> first = controller.budget()
    >>> controller.observe(1.0)
    >>> round(first, 3), round(controller.budget(), 3)
    (0.091, 0.075)
    >>> resumed = PeriodBudget.resume(controller.state())
    >>> resumed.status.spent, resumed.status.word
    (1.0, 'on course')
    """

    def __init__(
        self,
        *,
        total: float,
        episodes: int,
        budget_range: tuple[float, float],
        most_cost: float | None = None,
        confidence: float = 0.99,
    ) -> None:
        require_from_0("total", total)
        require_count("episodes", episodes, 1)
        low, high = map(float, budget_range)
        if not (math.isfinite(total) and 0 <= low <= high < math.inf):
            raise ConfigError(
                "total and budget_range must be finite, and the range from 0 on must not fall; got "
                f"{total} and {low:g} to {high:g}."
            )
        if not 0 < confidence < 1:
            raise ConfigError(f"confidence must be above 0 and below 1; got {confidence}.")
        if most_cost is not None and not 0 < most_cost < math.inf:
            raise ConfigError(f"most_cost must be a number above 0; got {most_cost}.")
        self.total, self.episodes = float(total), int(episodes)
        self.budget_range, self.confidence = (low, high), confidence
        self.most_cost = None if most_cost is None else float(most_cost)
        self._sums = _Sums()
        self._in_flight: deque[float] = deque()  # budgets, the oldest first
        self._at_stake = 0.0  # their sum
        self._time: float | None = None

    def budget(self, *, time: float | None = None) -> float:
        """Returns the budget of an episode that begins now, which is in flight from then on.

        Args:
            time: share of the period that is over, from 0 to 1. With times the number of episodes
                that are still to come follows the pace, so that no one needs to know it.
        """
        return float(self.budgets(1, time=time)[0])

    def budgets(self, n: int, *, time: float | None = None) -> FloatArray:
        """Returns the budgets of n episodes that begin now, `[n]`; they are the same.

        Args:
            n: episodes.
            time: share of the period that is over.

        Raises:
            BudgetError: if the time is no share, or earlier than the one before.
        """
        require_count("n", n, 1)
        if time is not None:
            before = self._time or 0.0
            if not before <= time <= 1:
                raise BudgetError(
                    f"time must be a share of the period, from {before:g} (the last one) to 1; got "
                    f"{time:g}."
                )
            self._time = float(time)
        asked = self._next(n)
        self._in_flight.extend([asked] * n)
        self._at_stake += n * asked
        self._sums.n_begun += n
        return np.full(n, asked)

    def observe(self, costs: ArrayLike, *, budgets: ArrayLike | None = None) -> None:
        """Records the costs of episodes that have ended.

        Args:
            costs: of one, or of several, `[n]`.
            budgets: that these were asked with; the oldest in flight, if not given. Budgets hardly
                move from one episode to the next, so that it matters little which have ended.

        Raises:
            DataError: if a cost is below 0 or no number, or more have ended than begun.
        """
        paid = np.atleast_1d(np.asarray(costs, np.float64))
        if paid.ndim != 1 or not (np.isfinite(paid) & (paid >= 0)).all():
            raise DataError("costs must be numbers from 0 on, one or [n].")
        if len(paid) > len(self._in_flight):
            raise DataError(
                f"costs are of {len(paid)} episodes, but only {len(self._in_flight)} are in flight:"
                " ask for a budget when an episode begins."
            )
        asked = self._taken(len(paid), budgets)
        self._sums.add(asked, paid, self.budget_range[0])

    @property
    def status(self) -> PeriodStatus:
        """Returns what is left of the total, and whether spending is on course."""
        in_flight, reserve = self._committed(0)
        spent = self._sums.spent
        left = self.total - spent - in_flight
        expected = self._expected(0)
        word = "on course"
        if expected and (left - reserve) <= expected * self._cheapest * (1 + 1e-9):
            word = "exhausted"
            if self._cheapest * expected > max(left, 0.0):
                word = "too small"
        elif left < 0:
            word = "too small"
        return PeriodStatus(
            word,
            spent,
            in_flight,
            left,
            reserve,
            self._sums.n_begun,
            self._sums.n_ended,
            expected,
            self._ratio,
        )

    def state(self) -> dict[str, Any]:
        """Returns all that the controller carries, as plain data that can be written as JSON."""
        settings = {
            "total": self.total,
            "episodes": self.episodes,
            "budget_range": list(self.budget_range),
            "most_cost": self.most_cost,
            "confidence": self.confidence,
        }
        sums = asdict(self._sums)
        return {
            "format": _FORMAT,
            "settings": settings,
            "sums": sums,
            "in_flight": [*self._in_flight],
            "time": self._time,
        }

    @classmethod
    def resume(cls, state: Mapping[str, Any]) -> Self:
        """Returns a controller that continues from a state.

        Args:
            state: of `state()`, maybe from another process.

        Raises:
            DataError: if it is not such a state.
        """
        try:
            number = state.get("format")
            if type(number) is int and number > _FORMAT:
                raise DataError(f"state is of format {number}, newer than {_FORMAT}: upgrade bmdp.")
            known = cls(total=0.0, episodes=1, budget_range=(0.0, 0.0)).state()
            parts = _whole("it", state, known)
            settings = _whole("settings", parts["settings"], known["settings"])
            low, high = settings.pop("budget_range")
            controller = cls(budget_range=(low, high), **settings)
            controller._sums = _Sums(**_whole("sums", parts["sums"], known["sums"]))
            controller._sums.check()
            budgets = parts["in_flight"]
            if type(number) is not int or number != _FORMAT or not isinstance(budgets, list):
                raise ValueError("its format or its budgets in flight are wrong")
            if not all(_is_amount(asked) and low <= asked <= high for asked in budgets):
                raise ValueError(f"budgets in flight must be numbers from {low:g} to {high:g}")
            if controller._sums.n_begun != controller._sums.n_ended + len(budgets):
                raise ValueError("episodes that have begun must have ended, or be in flight")
            controller._in_flight = deque(map(float, budgets))
            controller._at_stake = sum(controller._in_flight)
            time = parts["time"]
            if time is not None and not (_is_amount(time) and time <= 1):
                raise ValueError("time must be a share of the period")
            controller._time = time
        except DataError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            told = one_line(error)[:_MOST_TOLD].rstrip(".")
            raise DataError(f"state must be that of a PeriodBudget: {told}.") from error
        return controller

    def _next(self, n: int) -> float:
        """The budget of each of n episodes that begin now."""
        low, high = self.budget_range
        in_flight, _ = self._committed(0)
        left = self.total - self._sums.spent - in_flight
        to_come = self._expected(n)
        if self._fits(high, n, left, to_come):
            return high
        for _ in range(_HALVINGS):  # the reserve rises with what is asked
            middle = (low + high) / 2
            low, high = (middle, high) if self._fits(middle, n, left, to_come) else (low, middle)
        return low

    def _fits(self, asked: float, n: int, left: float, to_come: float) -> bool:
        """Whether all that are to come may ask for a budget, the next n of them now."""
        _, reserve = self._committed(n, asked)
        return asked * to_come * self._ratio + reserve <= left

    def _committed(self, n: int, asked: float = 0.0) -> tuple[float, float]:
        """Expected cost of what is in flight, and the reserve when n more begin with a budget."""
        in_flight = self._at_stake * self._ratio
        at_stake = in_flight + n * asked * self._ratio
        n_at_stake = len(self._in_flight) + n
        most = self._most
        log = -math.log(1 - self.confidence)
        later = max(self._expected(0) - n, 0.0) * self._cheapest
        both = at_stake + later
        chance = math.sqrt(2 * both * most * log) + most * log / 3
        if later:
            return in_flight, chance
        return in_flight, min(max(n_at_stake * most - at_stake, 0.0), chance)

    def _expected(self, n: int) -> float:
        """Episodes that are still to come, at least n."""
        begun = self._sums.n_begun
        if self._time is None:
            return max(self.episodes - begun, _AFTER * begun, n, 1.0)
        whole = (begun + _WEIGHT * self.episodes) / (self._time + _WEIGHT)
        return max(whole * (1 - self._time), n, 1.0)

    @property
    def _ratio(self) -> float:
        """Cost for each unit that is asked."""
        of_total, of_most = _TRUST
        trust = max(of_total * self.total, of_most * self._most)
        low, high = _RATIOS
        if trust + self._sums.asked == 0:
            return 1.0  # nothing may be spent, and nothing was
        ratio = (trust + self._sums.spent) / (trust + self._sums.asked)
        return min(max(ratio, low), high)

    @property
    def _most(self) -> float:
        """The most that an episode is thought to cost."""
        said = self.budget_range[1] if self.most_cost is None else self.most_cost
        return max(said, self._sums.largest)

    @property
    def _cheapest(self) -> float:
        """Mean cost at the lowest budget, as promised or as seen."""
        said = _AS_SAID * self.budget_range[0]
        return (said + self._sums.spent_lowest) / (_AS_SAID + self._sums.n_lowest)

    def _taken(self, n: int, budgets: ArrayLike | None) -> FloatArray:
        """Budgets of n episodes that have ended, which are no longer in flight."""
        if budgets is None:
            asked = np.array([self._in_flight.popleft() for _ in range(n)], np.float64)
        else:
            asked = np.atleast_1d(np.asarray(budgets, np.float64))
            require_shape("budgets", asked, (None,), "[n]")
            if len(asked) != n:
                raise DataError(f"budgets must be as many as costs, {n}; got {len(asked)}.")
            missing = Counter(asked.tolist()) - Counter(self._in_flight)
            if missing:
                raise DataError(f"budgets must be those in flight; got {next(iter(missing)):g}.")
            for budget in asked.tolist():
                self._in_flight.remove(budget)
        self._at_stake = self._at_stake - float(asked.sum()) if self._in_flight else 0.0
        return asked


@dataclass
class _Sums:
    """Sums over the episodes so far."""

    n_begun: int = 0
    n_ended: int = 0
    asked: float = 0.0  # of episodes that have ended
    spent: float = 0.0
    largest: float = 0.0  # cost of an episode
    n_lowest: int = 0  # episodes at the lowest budget
    spent_lowest: float = 0.0

    def check(self) -> None:
        """Checks sums that come from elsewhere.

        Raises:
            ValueError: naming what is wrong.
        """
        for name, value in asdict(self).items():
            is_count = name.startswith("n_")
            if not _is_amount(value) or (is_count and type(value) is not int):
                raise ValueError(f"{name} must be a number from 0 on")
        if self.n_lowest > self.n_ended or self.largest > self.spent:
            raise ValueError("sums must not contradict each other")

    def add(self, asked: FloatArray, paid: FloatArray, lowest: float) -> None:
        """Records the costs of episodes that have ended."""
        is_lowest = asked <= lowest
        self.n_ended += len(paid)
        self.asked += float(asked.sum())
        self.spent += float(paid.sum())
        self.largest = max(self.largest, float(paid.max(initial=0.0)))
        self.n_lowest += int(is_lowest.sum())
        self.spent_lowest += float(paid[is_lowest].sum())


def _whole(name: str, part: Any, keys: Collection[str]) -> dict[str, Any]:
    """A part of a state that has all of its keys, and no others.

    Raises:
        ValueError: naming one that is missing, or that nobody knows.
    """
    if not isinstance(part, Mapping):
        raise ValueError(f"{name} must be an object")
    for key in keys:
        if key not in part:
            raise ValueError(f"{key} is missing")
    for key in part:
        if key not in keys:
            raise ValueError(f"{name} must have {', '.join(keys)}; got {str(key)!r}, too")
    return dict(part)


def _is_amount(value: Any) -> bool:
    """Whether a value is a finite number from 0 on."""
    return type(value) in (int, float) and 0 <= value < 2.0**63
