"""Which environments there are, and their registration with Gymnasium."""

from __future__ import annotations

import gymnasium

ENV_IDS = {
    "corridors": "bmdp/Corridors-v0",
    "slot-filling": "bmdp/SlotFilling-v0",
    "two-way": "bmdp/TwoWay-v0",
}
"""Short names and ids of the environments."""

_CLASSES = {"corridors": "Corridors", "slot-filling": "SlotFilling", "two-way": "TwoWay"}


def register() -> None:
    """Tells Gymnasium of the environments it does not know; nothing is made or imported yet."""
    for name, env_id in ENV_IDS.items():
        if env_id in gymnasium.registry:
            continue
        place = f"bmdp.envs.{name.replace('-', '_')}:{_CLASSES[name]}"
        gymnasium.register(
            id=env_id, entry_point=f"{place}Env", vector_entry_point=f"{place}VectorEnv"
        )
