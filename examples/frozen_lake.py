"""Gymnasium's FrozenLake with a cost: how often may we fall into a hole?

    PYTHONPATH=examples bmdp fit frozen_lake:FrozenLakeHoles-v0 --out out/lake
    PYTHONPATH=examples bmdp report out/lake

or, in Python, `python examples/frozen_lake.py --out out/lake`. `FrozenLakeHoles8x8-v0` is a larger
lake, which thaws later.

The lake is slippery: one step in three goes where it was meant to go. Reaching the other side pays
1, falling into a hole costs 1; both end the episode. Budgets are probabilities of falling, a little
discounted.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

import bmdp


class FrozenLakeHoles(FrozenLakeEnv):
    """FrozenLake whose `info["cost"]` is 1 where a step ends in a hole."""

    metadata = {  # noqa: RUF012 (Gymnasium's own is a plain dictionary, too)
        **FrozenLakeEnv.metadata,
        "gamma": 0.99,
        "cost_range": (0.0, 1.0),
        "action_names": ("left", "down", "right", "up"),
    }

    def __init__(self, horizon: int = 100, **settings: Any) -> None:
        """Makes a lake that thaws after so many steps."""
        super().__init__(**settings)
        self.metadata = {**self.metadata, "horizon": horizon}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Starts at the upper left corner."""
        state, info = super().reset(seed=seed, options=options)
        self._n_steps = 0
        return state, {**info, "cost": 0.0}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Slips one step; when the lake thaws the episode is over."""
        lake: Any = super()  # whose methods have no types
        state, reward, terminated, truncated, info = lake.step(action)
        self._n_steps += 1
        fell = np.ravel(self.desc)[state] == b"H"
        ended = bool(terminated) or self._n_steps == self.metadata["horizon"]
        return state, float(reward), ended, bool(truncated), {**info, "cost": float(fell)}


if "FrozenLakeHoles-v0" not in gymnasium.registry:
    gymnasium.register("FrozenLakeHoles-v0", "frozen_lake:FrozenLakeHoles")
    gymnasium.register(
        "FrozenLakeHoles8x8-v0",
        "frozen_lake:FrozenLakeHoles",
        kwargs={"map_name": "8x8", "horizon": 200},
    )


def main(words: list[str] | None = None) -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="folder of the run")
    parser.add_argument("--episodes", type=int, default=None, help="to play; 5,000")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(words)
    name = "frozen_lake:FrozenLakeHoles-v0"
    print(bmdp.fit(name, episodes=asked.episodes, seed=asked.seed, out=asked.out))


if __name__ == "__main__":
    main()
