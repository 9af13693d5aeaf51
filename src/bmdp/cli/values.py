"""What options say, as values: lists of budgets, ranges, and seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Annotated

import typer

from bmdp.errors import BudgetError, ConfigError

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
MOST_BUDGETS = 10_000  # of one range; more is a slip of the pen


def parse_budgets(texts: Iterable[str], option: str = "--budget") -> list[float]:
    """Returns the budgets that some texts name, each once, in the order given.

    Args:
        texts: each a number, or a range `low:high:step` that includes both ends.
        option: what errors call it.

    Raises:
        BudgetError: if one is neither, or is not finite, or its steps miss the upper end.

    >>> parse_budgets(["2", "0:0.4:0.1"])
    [2.0, 0.0, 0.1, 0.2, 0.3, 0.4]
    """
    return list(dict.fromkeys(budget for text in texts for budget in _budgets(text, option)))


def parse_range(text: str) -> tuple[float, float]:
    """Returns the ends of a range `low:high`.

    Raises:
        BudgetError: if it is none, or does not rise.

    >>> parse_range("0:1")
    (0.0, 1.0)
    """
    try:
        low, high = (float(part) for part in text.split(":"))
    except ValueError:
        raise BudgetError(f"--budget-range must be low:high; got '{text}'.") from None
    if not -math.inf < low < high < math.inf:
        raise BudgetError(f"--budget-range low:high must rise; got '{text}'.")
    return low, high


def parse_seeds(text: str) -> tuple[int, ...]:
    """Returns the seeds that a text names, each once, in the order given.

    Args:
        text: numbers and ranges `first:last`, without the last, with commas between them.

    Raises:
        ConfigError: if it is something else, or names none.

    >>> parse_seeds("0:4"), parse_seeds("7,2:4")
    ((0, 1, 2, 3), (7, 2, 3))
    """
    found: list[int] = []
    for part in text.split(","):
        first, colon, last = part.partition(":")
        try:
            found += range(int(first), int(last)) if colon else [int(first)]
        except ValueError:
            raise ConfigError(f"--seeds must be like 0:4 or 0,3,7; got '{text}'.") from None
    if not found:
        raise ConfigError(f"--seeds must name at least one; got '{text}', which has none.")
    return tuple(dict.fromkeys(found))


def _budgets(text: str, option: str) -> list[float]:
    parts = [_number(part, text, option) for part in text.split(":")]
    if len(parts) == 1:
        return [_float(parts[0])]
    if len(parts) != 3:
        raise BudgetError(f"{option} must be a number or low:high:step; got '{text}'.")
    low, high, step = parts
    if low > high or step <= 0:
        raise BudgetError(f"{option} low:high:step must rise, by a step above 0; got '{text}'.")
    n_steps = (high - low) / step  # exact where it is a whole number
    if n_steps >= MOST_BUDGETS:
        raise BudgetError(
            f"{option} must name at most {MOST_BUDGETS} budgets; got {n_steps:.3g} in '{text}'."
        )
    last = low + int(n_steps) * step
    if last != high:
        raise BudgetError(
            f"{option} low:high:step must reach {high} in whole steps; got '{text}', which ends at "
            f"{last}. Write {low}:{last}:{step}, or choose another step."
        )
    return [_float(low + i * step) for i in range(int(n_steps) + 1)]


def _number(part: str, text: str, option: str) -> Decimal:
    """Reads a finite number, in decimals: sums of steps are then what they look like."""
    try:
        number = Decimal(part)
    except InvalidOperation:
        raise BudgetError(f"{option} must be a number or low:high:step; got '{text}'.") from None
    if number.is_nan() or not math.isfinite(float(number)):
        raise BudgetError(f"{option} must be finite; got '{text}'.")
    return number


def _float(number: Decimal) -> float:
    return float(number) + 0.0  # turns -0 into 0
