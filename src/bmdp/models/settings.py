"""How a regression is done, as settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bmdp.checks import require_choice, require_count
from bmdp.errors import ConfigError


@dataclass(frozen=True)
class Regression:
    """How networks are fitted to targets.

    Args:
        steps: of gradient descent.
        batch_size: rows a step; all of them if None.
        learning_rate: of Adam.
        weight_decay: of all parameters, added to the gradient, as in the paper.
        clip: largest magnitude of an element of the gradient, if any.
        stop_loss: loss at which the regression ends, if any (the paper's rule).
        start: "warm", from the parameters before, or "restart", from new ones.
        keep_moments: whether Adam goes on from its moments of the regression before.

    Paper: the tables of the appendix.

    >>> from bmdp import BFTQ, BFTQConfig, TransitionBatch
    >>> from bmdp.models import FrontierNet
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> once, losses = {"valuation": "self", "iterations": 1, "model": FrontierNet((8,))}, []
    >>> for steps in (10, 100):
    ...     learner = BFTQ(BFTQConfig(gamma=0.9, **once, regression=Regression(steps=steps)))
    ...     policy = learner.fit(log, seed=0, on_record=lambda r: losses.append(r["last_loss"]))
    >>> losses[1] < losses[0]
    True
    """

    steps: int = 1000
    batch_size: int | None = None
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    clip: float | None = None
    stop_loss: float | None = None
    start: Literal["warm", "restart"] = "warm"
    keep_moments: bool = True

    def __post_init__(self) -> None:
        """Checks the settings."""
        require_count("steps", self.steps, 1)
        for name in ("batch_size", "clip", "stop_loss"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{name} must be above 0, or None; got {value}.")
        if self.learning_rate <= 0 or self.weight_decay < 0:
            raise ConfigError(
                "learning_rate must be above 0 and weight_decay from 0 on; got "
                f"{self.learning_rate} and {self.weight_decay}."
            )
        require_choice("start", self.start, ("warm", "restart"))
