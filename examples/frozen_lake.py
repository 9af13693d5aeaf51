"""Gymnasium's FrozenLake with a cost: how often may we fall into a hole?

    PYTHONPATH=examples bmdp fit frozen_lake:FrozenLakeHoles-v0 --out out/lake \
        --set learner.model=TableModel --episodes 4000
    PYTHONPATH=examples bmdp report out/lake

The lake is slippery: one step in three goes where it was meant to go. Reaching the other side pays
1, falling into a hole costs 1; both end the episode. Budgets are probabilities of falling, a little
discounted.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv


class FrozenLakeHoles(FrozenLakeEnv):
    """FrozenLake whose `info["cost"]` is 1 where a step ends in a hole."""

    metadata = {  # noqa: RUF012 (Gymnasium's own is a plain dictionary, too)
        **FrozenLakeEnv.metadata,
        "gamma": 0.99,
        "horizon": 100,
        "cost_range": (0.0, 1.0),
        "action_names": ("left", "down", "right", "up"),
    }

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Starts at the upper left corner."""
        state, info = super().reset(seed=seed, options=options)
        self._n_steps = 0
        return state, {**info, "cost": 0.0}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Slips one step; after 100 steps the lake thaws and the episode is over."""
        lake: Any = super()  # whose methods have no types
        state, reward, terminated, truncated, info = lake.step(action)
        self._n_steps += 1
        fell = np.ravel(self.desc)[state] == b"H"
        ended = bool(terminated) or self._n_steps == self.metadata["horizon"]
        return state, float(reward), ended, bool(truncated), {**info, "cost": float(fell)}


gymnasium.register("FrozenLakeHoles-v0", "frozen_lake:FrozenLakeHoles")
