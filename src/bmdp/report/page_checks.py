"""Whether sections can be put on a page: said when it is made, not when someone opens it.

A dial is a mapping of what JSON can say. `B` is the number of its budgets, a list of `B` numbers
may have null where nothing is known, and a point is a cost and a reward.

    title       text
    env         name of the environment, for plug-ins
    gamma       discount of a step
    budgets     [B], rising
    realised    cost, cost_low, cost_high, reward, reward_low, reward_high: [B] each
    forecast    the same, of which only cost and reward must be there; "source", in words
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

`budgets` and `realised` must be there, and `frontier` with `choices`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from bmdp.errors import DataError
from bmdp.report.section import Data, Section

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_ENDS = ("_low", "_high")
_REALISED = tuple(name + end for name in ("cost", "reward") for end in ("", *_ENDS))
_STATUSES = ("INFEASIBLE", "TIGHT", "SLACK")


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
            _Dial(f"dial [{i}] of {section.anchor!r}", dial).require()
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
        self.budgets = self.numbers(dial, "budgets", None)

    def require(self) -> None:
        """Checks all that the scripts of the page read."""
        dial, n = self.dial, len(self.budgets)
        if not self.budgets or any(a >= b for a, b in pairwise(self.budgets)):
            raise self.wrong("budgets", "increase, and be at least one", self.budgets)
        if not _is_number(dial.get("gamma", 1.0)):
            raise self.wrong("gamma", "be a number", dial["gamma"])
        self.entries(dial, "episodes", n)
        self.require_outcomes(n)
        if ("frontier" in dial) != ("choices" in dial):
            raise self.wrong("frontier", "come with choices", "one of the two")
        for where, place in [("", dial), *self.places()]:
            if "frontier" in place:
                self.require_choices(place, n, where)
        for i, word in enumerate(self.entries(dial, "status", n)):
            self.require_status(word, f"status[{i}]")
        for i, one in enumerate(self.entries(dial, "baselines", None)):
            self.curve(one, f"baselines[{i}].")
        if (truth := self.optional("truth")) is not None:
            self.curve(truth, "truth.")
        if (actions := self.optional("actions")) is not None:
            self.require_actions(actions, n)

    def require_outcomes(self, n: int) -> None:
        """Checks what was paid and earned, and what was foretold."""
        realised = self.mapping(self.dial, "realised")
        for name in _REALISED:
            self.numbers(realised, name, n, nulls=True, where="realised.")
        if (forecast := self.optional("forecast")) is not None:
            for name in dict.fromkeys(("cost", "reward", *(k for k in _REALISED if k in forecast))):
                self.numbers(forecast, name, n, nulls=True, where="forecast.")

    def places(self) -> list[tuple[str, Data]]:
        """Other states, each with where it is."""
        found = self.entries(self.dial, "states", None)
        for i, state in enumerate(found):
            if (
                not isinstance(state, Mapping)
                or not {"name", "frontier", "choices"} <= state.keys()
            ):
                raise self.wrong(f"states[{i}]", "have name, frontier and choices", state)
        return [(f"states[{i}].", state) for i, state in enumerate(found)]

    def require_choices(self, place: Data, n: int, where: str) -> None:
        frontier = self.mapping(place, "frontier", where)
        n_vertices = self.curve(frontier, f"{where}frontier.")
        if len(labels := frontier.get("labels", ())) not in (0, n_vertices):
            raise self.wrong(f"{where}frontier.labels", f"be {n_vertices}", len(labels))
        for i, choice in enumerate(self.entries(place, "choices", n, where)):
            at = f"{where}choices[{i}]"
            self.mapping({"choice": choice}, "choice", f"{at}.")
            for end in ("lower", "upper"):
                if choice.get(end) not in range(n_vertices):
                    rule = f"be a vertex, 0 to {n_vertices - 1}"
                    raise self.wrong(f"{at}.{end}", rule, choice.get(end))
            for name in ("p_upper", "cost", "reward"):
                if not _is_number(choice.get(name)):
                    raise self.wrong(f"{at}.{name}", "be a number", choice.get(name))
            self.require_status(choice.get("status"), f"{at}.status")

    def require_status(self, word: Any, at: str) -> None:
        if word not in _STATUSES:
            raise self.wrong(at, f"be one of {', '.join(_STATUSES)}", word)

    def require_actions(self, actions: Data, n: int) -> None:
        n_actions = len(self.entries(actions, "names", None, "actions."))
        rows = [("by_budget", self.entries(actions, "by_budget", n, "actions."))]
        if "by_step" in actions:
            n_steps = len(self.numbers(actions, "steps", None, where="actions."))
            for i, columns in enumerate(self.entries(actions, "by_step", n, "actions.")):
                if len(columns) != n_steps:
                    raise self.wrong(f"actions.by_step[{i}]", f"have {n_steps} steps", len(columns))
                rows.append((f"by_step[{i}]", columns))
        for name, shares in rows:
            for k in range(len(shares)):
                self.numbers({str(k): shares[k]}, str(k), n_actions, where=f"actions.{name}.")

    def curve(self, found: Any, where: str) -> int:
        """Number of points of a curve, which must be one at least."""
        costs = self.numbers(self.mapping({"": found}, "", where), "costs", None, where=where)
        self.numbers(found, "rewards", len(costs), where=where)
        if not costs:
            raise self.wrong(f"{where}costs", "have at least one point", costs)
        return len(costs)

    def numbers(
        self, found: Data, name: str, n: int | None, *, nulls: bool = False, where: str = ""
    ) -> list[Any]:
        """A list of numbers that must be there."""
        if name not in found:
            raise self.wrong(where + name, "be there", "nothing")
        values = self.entries(found, name, n, where)
        for i, value in enumerate(values):
            if not _is_number(value) and not (nulls and value is None):
                raise self.wrong(f"{where}{name}[{i}]", "be a number", value)
        return values

    def entries(self, found: Data, name: str, n: int | None, where: str = "") -> list[Any]:
        """A list, empty if it is not there."""
        if name not in found:
            return []
        values = found[name]
        if not isinstance(values, list | tuple):
            raise self.wrong(where + name, "be a list", values)
        if n is not None and len(values) != n:
            raise self.wrong(where + name, f"have {n} entries", len(values))
        return list(values)

    def mapping(self, found: Data, name: str, where: str = "") -> Data:
        value = found.get(name)
        if not isinstance(value, Mapping):
            raise self.wrong(where + name, "be values by name", value)
        return value

    def optional(self, name: str) -> Data | None:
        return None if self.dial.get(name) is None else self.mapping(self.dial, name)

    def wrong(self, name: str, rule: str, got: Any) -> DataError:
        text = repr(got)
        return DataError(f"{self.owner}: {name} must {rule}; got {text[:80]}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
