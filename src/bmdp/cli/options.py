"""Options that verbs share, the values that they name, what they open, and how results are printed.

Budgets are numbers or ranges `low:high:step` that include both ends; seeds are numbers and ranges
`first:last` without the last.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any

import typer
from gymnasium.envs.registration import EnvSpec
from rich.console import Console
from rich.table import Table

from bmdp.errors import BudgetError, ConfigError, StoreError
from bmdp.policies import BudgetedPolicy, load_policy
from bmdp.report.opened import as_explored, environment_of, environment_of_run
from bmdp.settings import Told
from bmdp.storage import SPEC

MOST_BUDGETS = 10_000  # of one range; more is a slip of the pen
_MOST_WIDE = 10_000  # letters of a table
INTERRUPTED = 130  # exit code of Ctrl-C

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
RunPath = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder of a training run, or of a policy.")
]
EnvName = Annotated[
    str | None,
    typer.Option(metavar="ENV", help="Environment; without: that of the run, as it was set."),
]
EnvSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="env.a=b", help="Change a setting of the environment."),
]
Budgets = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NUMBER|LOW:HIGH:STEP",
        help="Budgets to play at; may be repeated; a range includes both ends. "
        "Without: eleven from end to end of what the policy takes.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Of all that is random.")]
CostGamma = Annotated[
    float | None,
    typer.Option(
        metavar="G", help="Discount of the costs that budgets are about; that of the run."
    ),
]
Workers = Annotated[int, typer.Option(min=1, help="Processes that play episodes.")]


def parse_budgets(texts: Iterable[str], option: str = "--budget") -> list[float]:
    """Returns the budgets that some texts name, each once, in the order given.

    >>> parse_budgets(["2", "0:0.4:0.1"])
    [2.0, 0.0, 0.1, 0.2, 0.3, 0.4]
    """
    return list(dict.fromkeys(budget for text in texts for budget in _budgets(text, option)))


def parse_range(text: str, option: str) -> tuple[float, float]:
    """Returns the ends of a range `low:high`.

    >>> parse_range("0:1", "--budget-range")
    (0.0, 1.0)
    """
    try:
        low, high = (float(part) for part in text.split(":"))
    except ValueError:
        raise BudgetError(f"{option} must be low:high; got '{text}'.") from None
    if not -math.inf < low < high < math.inf:
        raise BudgetError(f"{option} low:high must rise; got '{text}'.")
    return low, high


def parse_seeds(text: str) -> tuple[int, ...]:
    """Returns the seeds that a text names, each once, in the order given.

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
    try:
        parts = [Decimal(part) for part in text.split(":")]  # sums of steps are then as they look
    except InvalidOperation:
        parts = []
    if len(parts) not in (1, 3):
        raise BudgetError(f"{option} must be a number or low:high:step; got '{text}'.")
    if any(part.is_nan() or not math.isfinite(float(part)) for part in parts):
        raise BudgetError(f"{option} must be finite; got '{text}'.")
    if len(parts) == 1:
        return [float(parts[0]) + 0.0]  # turns -0 into 0
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
    return [float(low + i * step) + 0.0 for i in range(int(n_steps) + 1)]


def open_run(
    run: Path, env: str | None, settings: Sequence[str] = ()
) -> tuple[BudgetedPolicy, EnvSpec]:
    """Returns the policy of a folder, and the environment to play it in, which must be known."""
    from bmdp.learn.runs import RunFolder  # torch takes long to import

    folder = RunFolder(run) if (run / SPEC).exists() else None
    own = None if folder is None else environment_of_run(folder)
    policy = load_policy(run)
    spec = environment_of(policy, own, env, settings)
    if spec is None:
        raise ConfigError(f"{run} does not name an environment: give --env ENV.")
    if env is None and folder is not None:
        spec, _ = as_explored(spec, folder.header)
    return policy, spec


def require_new_file(path: Path, force: bool) -> None:
    """Checks that a file can be written, before any work is done."""
    if path.exists() and not force:
        raise StoreError(f"{path} exists already. Choose another name, or overwrite with --force.")
    if not path.parent.is_dir():
        raise StoreError(f"{path} cannot be written: there is no folder {path.parent}.")


def write_picture(path: Path, content: bytes, force: bool) -> None:
    """Writes a picture, and prints its path on stderr."""
    try:
        with path.open("wb" if force else "xb") as file:
            file.write(content)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}.") from error
    typer.echo(f"picture: {path}", err=True)


def print_columns(columns: Mapping[str, Sequence[Any]], left: Sequence[str] = ()) -> None:
    """Prints columns under their names, to the right, but for some names. They may be wide."""
    table = Table()
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    needed = Console(width=_MOST_WIDE).measure(table).maximum  # so that no number is cut off
    Console(width=max(needed, Console().width)).print(table)


def print_settings(settings: Iterable[Told]) -> None:
    """Prints a line for each setting: its path and value, its type, and a sentence."""
    for one in settings:
        about = f": {one.about}" if one.about else ""
        typer.echo(f"{one.path}={one.value}  ({one.type}){about}")


def print_json(fields: Any) -> None:
    """Prints what JSON can say; a number that is not finite is null there."""
    typer.echo(json.dumps(_finite(fields), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(v) for name, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
