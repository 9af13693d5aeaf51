"""Whether sections can be put on a page: said when it is made, not when someone opens it.

A dial is a mapping of what JSON can say. `B` is the number of its budgets, a list of `B` numbers
may have null where nothing is known, and a point is a cost and a reward.

    title       text
    env         name of the environment, for plug-ins
    gamma       discount of a step
    budgets     [B], rising
    realised    cost, cost_low, cost_high, reward, reward_low, reward_high: [B] each
    forecast    cost, reward: [B] each; "source", in words
    frontier    costs, rewards: [V] of the vertices; labels: [V] texts
    choices     [B] of lower, upper (vertices), p_upper, status, cost, reward
    status      [B] texts, where there are no choices
    states      [S] of name, frontier, choices: the first state, and others to choose from
    words       on what a choice is
    truth       costs, rewards of the true frontier
    baselines   [..] of name, costs, rewards: a line, or a point with cost_low and so on; is_far: it
                is told of, and not drawn
    actions     names [A]; by_budget [B][A], shares of decisions; by_step [B][T][A], shares of
                episodes; steps [T]; "source", in words
    layout      of the plug-in
    episodes    [B] lists of episodes, for the plug-in

`budgets` and `realised` must be there, and `frontier` with `choices`. What files of experiments and
plug-ins bring is checked; the rest comes from `bmdp.report.run` alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from bmdp.errors import DataError
from bmdp.frontier import BudgetStatus
from bmdp.report.section import Data, Section

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_REALISED = [name + end for name in ("cost", "reward") for end in ("", "_low", "_high")]
_STATUSES = [status.name for status in BudgetStatus]


def require_sections(sections: Sequence[Section]) -> None:
    """Checks what a page is made of.

    Raises:
        DataError: if there is no section, an anchor or a name of a file is none or given twice, a
            dial is not what this module says, or a film has no rounds.
    """
    if not sections:
        raise DataError("sections must not be empty: there is nothing to report.")
    _require_names("anchor", (section.anchor for section in sections))
    for kind in ("pictures", "tables", "animations"):
        _require_names(kind, (one.name for section in sections for one in getattr(section, kind)))
    for section in sections:
        for i, dial in enumerate(section.dials):
            _Dial(f"dial [{i}] of {section.anchor!r}", dial).require_all()
        for i, film in enumerate(section.films):
            if not film.get("rounds"):
                raise DataError(f"film [{i}] of {section.anchor!r} must have rounds; it has none.")


def _require_names(kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for i, name in enumerate(names):
        if not _NAME.fullmatch(name):
            raise DataError(
                f"{kind}: a name must be letters, digits, - and _, a letter first; "
                f"got {name!r} at [{i}]."
            )
        if name in seen:
            raise DataError(f"{kind}: a name must be given once; got {name!r} again at [{i}].")
        seen.add(name)


class _Dial:
    """A dial that is being checked; errors begin with its owner."""

    def __init__(self, owner: str, dial: Data) -> None:
        self.owner, self.dial = owner, dial

    def require_all(self) -> None:
        dial, budgets = self.dial, self.numbers("budgets")
        is_rising = len(budgets) > 0 and all(a < b for a, b in pairwise(budgets))
        self.require(is_rising, "budgets", "increase, and be at least one", budgets)
        self.require(_is_number(dial.get("gamma", 1.0)), "gamma", "be a number", dial.get("gamma"))
        for name in _REALISED:
            self.numbers(f"realised.{name}", len(budgets), nulls=True)
        if "episodes" in dial:
            self.entries("episodes", len(budgets))
        if dial.get("truth") is not None:
            self.points("truth")
        both = [name for name in ("frontier", "choices") if name in dial]
        self.require(len(both) != 1, "frontier", "come with choices", both)
        if both:
            self.require_choices(len(budgets))

    def require_choices(self, n_budgets: int) -> None:
        n = self.points("frontier")
        n_labels = len(self.dial["frontier"].get("labels", ()))
        self.require(n_labels in (0, n), "frontier.labels", f"be {n}", n_labels)
        rules: dict[str, tuple[Sequence[Any], str]]
        rules = {name: (range(n), f"be a vertex, 0 to {n - 1}") for name in ("lower", "upper")}
        rules["status"] = (_STATUSES, f"be one of {', '.join(_STATUSES)}")
        for i, choice in enumerate(self.entries("choices", n_budgets)):
            self.require(isinstance(choice, Mapping), f"choices[{i}]", "be values by name", choice)
            for name, (known, rule) in rules.items():
                got = choice.get(name)
                self.require(got in known, f"choices[{i}].{name}", rule, got)
            for name in ("p_upper", "cost", "reward"):
                got = choice.get(name)
                self.require(_is_number(got), f"choices[{i}].{name}", "be a number", got)

    def points(self, name: str) -> int:
        """Number of points of a curve, which must be one at least."""
        n = len(self.numbers(f"{name}.costs"))
        self.require(n > 0, f"{name}.costs", "have at least one point", [])
        return len(self.numbers(f"{name}.rewards", n))

    def numbers(self, name: str, n: int | None = None, *, nulls: bool = False) -> list[Any]:
        values = self.entries(name, n)
        for i, value in enumerate(values):
            is_right = _is_number(value) or (nulls and value is None)
            self.require(is_right, f"{name}[{i}]", "be a number", value)
        return values

    def entries(self, name: str, n: int | None = None) -> list[Any]:
        value: Any = self.dial
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        self.require(value is not None, name, "be there", value)
        self.require(isinstance(value, list | tuple), name, "be a list", value)
        self.require(n in (None, len(value)), name, f"have {n} entries", len(value))
        return list(value)

    def require(self, is_right: bool, name: str, rule: str, got: Any) -> None:
        if not is_right:
            raise DataError(f"{self.owner}: {name} must {rule}; got {repr(got)[:80]}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
