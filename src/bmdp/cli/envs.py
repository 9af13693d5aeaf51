"""`bmdp envs`: which environments there are."""

from __future__ import annotations

import gymnasium
from rich.console import Console

from bmdp.cli.options import AsJson, print_columns, print_json
from bmdp.envs import ENV_IDS


def envs(as_json: AsJson = False) -> None:
    """List the environments: what is seen, what can be done, and which budgets mean something."""
    rows = []
    for name, env_id in ENV_IDS.items():
        env = gymnasium.make(env_id)
        low, high = env.metadata["budget_range"]
        row = {
            "name": name,
            "id": env_id,
            "seen": list(map(str, env.observation_space.shape or ())),
            "actions": list(env.metadata["action_names"]),
            "gamma": env.metadata["gamma"],
            "horizon": env.metadata["horizon"],
            "budgets": f"{low:g} to {high:g}",
        }
        rows.append(row)
    if as_json:
        print_json(rows)
        return
    shown = [name for name in rows[0] if name != "actions"]
    columns = {n: [", ".join(r[n]) if n == "seen" else str(r[n]) for r in rows] for n in shown}
    print_columns(columns, left=shown)
    for row in rows:  # beneath, as in a column they would be squeezed in a narrow terminal
        told = f"actions of {row['name']}: {', '.join(row['actions'])}"
        Console().print(told, highlight=False)
