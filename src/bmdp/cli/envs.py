"""`bmdp envs`: which environments there are."""

from __future__ import annotations

import json
from typing import Annotated, Any

import gymnasium
import typer
from rich.console import Console
from rich.table import Table

from bmdp.envs import ENV_IDS


def envs(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list.")] = False,
) -> None:
    """List the environments: what is seen, what can be done, and which budgets mean something."""
    rows = [_row(name, env_id) for name, env_id in ENV_IDS.items()]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    console, columns = Console(), [column for column in rows[0] if column != "actions"]
    table = Table()
    for column in columns:
        table.add_column(column, no_wrap=True)
    for row in rows:
        table.add_row(*map(_told, (row[column] for column in columns)))
    console.print(table)
    for row in rows:  # beneath, as in a column they would be squeezed in a narrow terminal
        console.print(f"actions of {row['name']}: {_told(row['actions'])}", highlight=False)


def _told(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def _row(name: str, env_id: str) -> dict[str, Any]:
    """One environment with its default settings."""
    env = gymnasium.make(env_id)
    low, high = env.metadata["budget_range"]
    return {
        "name": name,
        "id": env_id,
        "seen": list(map(str, env.observation_space.shape or ())),
        "actions": list(env.metadata["action_names"]),
        "gamma": env.metadata["gamma"],
        "horizon": env.metadata["horizon"],
        "budgets": f"{low:g} to {high:g}",
    }
