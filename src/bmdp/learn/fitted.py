"""`Fitted`: what `bmdp.fit` hands over, and how it is written down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from bmdp.arrays import FloatArray, freeze_columns
from bmdp.errors import DataError
from bmdp.kinds import checked
from bmdp.storage import one_line, require_types

if TYPE_CHECKING:
    from bmdp.policies.policy import Policy

FITTED_FORMAT = 1
"""Of the files that say what a fit handed over."""


@checked
@dataclass(frozen=True, eq=False)
class Forecast:
    """Expected cost and reward of a policy at each of `B` budgets, with 95 % intervals.

    They come from episodes that no model was fitted to.

    >>> same = {"cost": [0.1], "cost_low": [0.0], "cost_high": [0.2]}
    >>> paid = {"reward": [5.0], "reward_low": [4.0], "reward_high": [6.0]}
    >>> Forecast([0.1], **same, **paid, n_episodes=50, is_played=True).cost_high.tolist()
    [0.2]
    """

    budgets: FloatArray  # [B], asked
    cost: FloatArray  # [B], discounted
    cost_low: FloatArray  # [B]
    cost_high: FloatArray  # [B]
    reward: FloatArray  # [B], discounted
    reward_low: FloatArray  # [B]
    reward_high: FloatArray  # [B]
    n_episodes: int  # number of those episodes
    is_played: bool  # whether the policy played them; if not, they are logged

    def __post_init__(self) -> None:
        """Checks shapes, and makes arrays read-only."""
        freeze_columns(self, "[B]")


@checked
@dataclass(frozen=True, eq=False)
class Candidate:
    """A regressor and learner that were tried, and their result.

    >>> Candidate("table", 5.0, 0.0, 0.9, 0.1, True, "the most reward over all budgets").name
    'table'
    """

    name: str  # regressor and learner
    value: float  # mean reward over common budgets, by the evidence
    least_cost: float  # of its cheapest member
    most_cost: float  # of its dearest
    seconds: float  # of learning
    is_taken: bool  # whether it is the policy that was handed over
    why: str  # the reason why it was taken, or not
    policy: Any = field(default=None, repr=False)  # that it would give; None if read from a file


@checked
@dataclass(frozen=True, eq=False)
class Fitted:
    """A policy for any budget, a forecast of its costs and rewards, and the evidence for it.

    `print(fitted)` shows the summary, the table of candidates, the forecast and the notes.

    >>> ends = {"cost_low": [0.0], "cost_high": [0.2], "reward_low": [4.0], "reward_high": [6.0]}
    >>> forecast = Forecast([0.1], [0.1], reward=[5.0], **ends, n_episodes=50, is_played=True)
    >>> print(Fitted(None, forecast, (), ("all rewards are 0",), "Learned.").table())
    asked  cost (95 %)     reward (95 %)
    0.1    0.1 (0 to 0.2)  5 (4 to 6)
    """

    policy: Policy  # for any budget
    forecast: Forecast  # expected cost and reward at each budget
    candidates: tuple[Candidate, ...]  # the best one first
    notes: tuple[str, ...]  # warnings, a sentence each
    summary: str  # what was inferred from the data, in a paragraph

    def __str__(self) -> str:
        parts = self.summary, self.leaderboard(), self.table(), *_listed(self.notes)
        return "\n\n".join(parts)

    def leaderboard(self) -> str:
        """Candidates, the best one first, as a table."""
        rows = [
            (
                c.name,
                f"{c.value:.4g}",
                f"{c.least_cost:.3g} to {c.most_cost:.3g}",
                f"{c.seconds:.1f}",
                c.why,
            )
            for c in self.candidates
        ]
        return _aligned(("candidate", "mean reward", "cost", "seconds", "why"), rows)

    def table(self) -> str:
        """The forecast as a table."""
        f = self.forecast
        rows = [
            (f"{budget:.4g}", *(_between(*values) for values in both))
            for budget, *both in zip(
                f.budgets,
                zip(f.cost, f.cost_low, f.cost_high, strict=True),
                zip(f.reward, f.reward_low, f.reward_high, strict=True),
                strict=True,
            )
        ]
        return _aligned(("asked", "cost (95 %)", "reward (95 %)"), rows)

    def as_dict(self) -> dict[str, Any]:
        """All but the policies, as JSON has it; a number that is not known is None."""
        forecast = {f.name: _plain(getattr(self.forecast, f.name)) for f in fields(Forecast)}
        candidates = [
            {f.name: getattr(c, f.name) for f in fields(Candidate) if f.name != "policy"}
            for c in self.candidates
        ]
        return {
            "summary": self.summary,
            "notes": list(self.notes),
            "candidates": candidates,
            "forecast": forecast,
        }

    @classmethod
    def from_dict(cls, found: dict[str, Any], policy: Any) -> Fitted:
        """Returns what `as_dict` told, with its policy.

        Raises:
            DataError: if it is something else.
        """
        try:
            return cls._from_dict(found, policy)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"found must be what as_dict returned: {one_line(error)}.") from error

    @classmethod
    def _from_dict(cls, found: dict[str, Any], policy: Any) -> Fitted:
        columns: dict[str, Any] = {
            name: np.array(value, np.float64) if isinstance(value, list) else value
            for name, value in found["forecast"].items()
        }
        require_types("Forecast", Forecast, columns)
        for one in found["candidates"]:
            require_types("Candidate", Candidate, one)
        candidates = tuple(Candidate(**one) for one in found["candidates"])
        told = {"notes": tuple(found["notes"]), "summary": found["summary"]}
        require_types("Fitted", cls, told)
        return cls(policy, Forecast(**columns), candidates, **told)


def _between(mean: float, low: float, high: float) -> str:
    """A mean and its interval, if that is known."""
    interval = f" ({low:.4g} to {high:.4g})" if np.isfinite([low, high]).all() else ""
    return f"{mean:.4g}{interval}"


def _plain(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    return [float(number) if np.isfinite(number) else None for number in value]


def _aligned(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in (names, *rows)
    )


def _listed(notes: Sequence[str]) -> Iterator[str]:
    if notes:
        yield "\n".join(f"note: {note}" for note in notes)
