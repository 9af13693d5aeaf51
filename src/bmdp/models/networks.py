"""Networks that estimate (Q_r, Q_c): their settings, and what is left of them after training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import FloatArray
from bmdp.checks import require_choice
from bmdp.errors import ConfigError
from bmdp.policies.stored import storable

if TYPE_CHECKING:
    import torch

    from bmdp.models.stacks import QStack

_CHUNK = 2**22  # numbers of a layer that are computed at a time


@storable
@dataclass(frozen=True)
class EncoderNet:
    """The paper's network: the budget is an input, which is encoded first.

    Paper: Section 4 and the tables of the appendix. Its text has an activation after every layer.
    The authors' code has none after the encoder and none after the first layer: `reading="code"`.
    Those layers are then one affine map, and are computed as such.

    Args:
        hidden: units of the hidden layers.
        encoder: units of the layers that encode the budget.
        reading: "text" or "code".
        inputs: "scaled": the numbers of states are brought to mean 0 and deviation 1 of the log;
            "raw": they are left as they are, as in the authors' code.

    >>> from bmdp import BFTQ, BFTQConfig, TransitionBatch
    >>> from bmdp.models import Regression
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> how = {"regression": Regression(steps=200, learning_rate=0.01), "n_labels": 20}
    >>> once = {"valuation": "self", "iterations": 1}
    >>> config = BFTQConfig(gamma=0.9, model=EncoderNet((16,)), **how, **once)
    >>> round(BFTQ(config).fit(log, seed=0).frontier([0]).reward_at(0.5))
    5
    """

    hidden: tuple[int, ...] = (256, 128, 64)
    encoder: tuple[int, ...] = (50,)
    reading: Literal["text", "code"] = "text"
    inputs: Literal["scaled", "raw"] = "scaled"

    covers_grid: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Checks the settings."""
        _set_units(self, "hidden", least=1 if self.reading == "text" else 2)
        _set_units(self, "encoder", least=1)
        require_choice("reading", self.reading, ("text", "code"))
        require_choice("inputs", self.inputs, ("scaled", "raw"))

    def stack(
        self, sizes: tuple[int, int, int], beta_grid: FloatArray, generator: torch.Generator
    ) -> QStack:
        """Makes networks: their number, and the numbers of a state and of actions."""
        from bmdp.models.stacks import EncoderStack

        return EncoderStack(sizes, self.hidden, self.encoder, self.reading == "text", generator)


@storable
@dataclass(frozen=True)
class FrontierNet:
    """From a state to the values at all budgets of the grid at once, for every action.

    One pass gives all that a frontier needs, and every transition teaches all budgets.

    Args:
        hidden: units of the hidden layers.
        structure: "monotone": Q_r rises with the budget, and Q_c rises, by no more than the budget
            does; "free": budgets have nothing to do with each other.
        inputs: "scaled" or "raw" numbers of states, as for `EncoderNet`.

    >>> from bmdp import BFTQ, BFTQConfig, TransitionBatch
    >>> from bmdp.models import Regression
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> how = {"regression": Regression(steps=5), "valuation": "self", "iterations": 1}
    >>> config = BFTQConfig(gamma=0.9, model=FrontierNet((8,)), **how)
    >>> q_r, q_c = BFTQ(config).fit(log, seed=0).q_function([[0.0]])
    >>> q_r.shape, bool((np.diff(q_r) >= 0).all())
    ((1, 2, 41), True)
    """

    hidden: tuple[int, ...] = (256, 128, 64)
    structure: Literal["monotone", "free"] = "monotone"
    inputs: Literal["scaled", "raw"] = "scaled"

    covers_grid: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Checks the settings."""
        _set_units(self, "hidden", least=1)
        require_choice("structure", self.structure, ("monotone", "free"))
        require_choice("inputs", self.inputs, ("scaled", "raw"))

    def stack(
        self, sizes: tuple[int, int, int], beta_grid: FloatArray, generator: torch.Generator
    ) -> QStack:
        """Makes networks: their number, and the numbers of a state and of actions."""
        from bmdp.models.stacks import FrontierStack

        knots = np.asarray(beta_grid, np.float64)
        return FrontierStack(sizes, self.hidden, knots, self.structure == "monotone", generator)


@dataclass(frozen=True, eq=False)
class Scaling:
    """How numbers are brought to a size that networks like; `value = scaled * scale + centre`."""

    centre: FloatArray  # [D]
    scale: FloatArray  # [D]

    @classmethod
    def of(cls, states: NDArray[Any]) -> Scaling:
        """Mean and deviation of each number; one that never changes is left as it is."""
        centre, deviation = states.mean(axis=0), states.std(axis=0)
        return cls(centre, np.where(deviation > 1e-8, deviation, 1.0))

    @classmethod
    def none(cls, size: int) -> Scaling:
        """Leaves states of so many numbers as they are."""
        return cls(np.zeros(size), np.ones(size))


@storable
@dataclass(frozen=True, eq=False)
class NetworkQ:
    """Q-values of a trained network, in the units of the data.

    >>> network = FrontierNet((4,), structure="free")  # 3 * 4 parameters, then 5 * 2 * 2 * 2
    >>> units = {"centre": np.zeros(2), "scale": np.ones(2), "reward_scale": 10.0}
    >>> parameters = np.repeat(np.array([0.0, 1.0], np.float32), [44, 8])  # all outputs are 1
    >>> q = NetworkQ(network, parameters, [0.0, 1.0], **units, n_actions=2)
    >>> q_r, q_c = q(np.zeros((3, 2)))
    >>> q_r[0].tolist(), q_c[0].tolist()
    ([[10.0, 10.0], [10.0, 10.0]], [[1.0, 1.0], [1.0, 1.0]])
    """

    network: EncoderNet | FrontierNet  # its settings
    parameters: NDArray[np.float32]  # [P], of all layers
    beta_grid: FloatArray  # [B], budgets that can be handed on
    centre: FloatArray  # [D], of states
    scale: FloatArray  # [D], of states
    reward_scale: float  # that rewards were divided by
    n_actions: int  # A

    def __call__(self, states: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c) of the states `[N, D]`, each `[N, A, B]`."""
        import torch

        stack, budgets = self._stack
        rows = np.asarray(states, np.float64).reshape(len(states), len(self.centre))
        rows = (rows - self.centre) / self.scale
        parts = []
        with torch.no_grad():
            for first in range(0, len(rows), step := chunk_rows(len(budgets))):
                part = torch.tensor(rows[first : first + step], dtype=torch.float32)
                parts.append(stack.grid(part[None], budgets)[0])
        values = torch.cat(parts).numpy() if parts else self._nothing
        return values[:, 0] * np.float32(self.reward_scale), values[:, 1]

    @property
    def _nothing(self) -> NDArray[np.float32]:
        return np.empty((0, 2, self.n_actions, len(self.beta_grid)), np.float32)

    @cached_property
    def _stack(self) -> tuple[QStack, Any]:
        return self.make_stack()

    def make_stack(self) -> tuple[QStack, Any]:
        """The network, and its budgets as a tensor, on the CPU."""
        import torch

        from bmdp.models.stacks import load_parameters

        sizes = (1, len(self.centre), self.n_actions)
        stack = self.network.stack(sizes, self.beta_grid, torch.Generator())
        load_parameters(stack, np.asarray(self.parameters)[None])
        return stack, grid_budgets(stack, self.beta_grid, torch.device("cpu"))


def grid_budgets(stack: QStack, beta_grid: FloatArray, device: Any) -> Any:
    """The budgets of a grid as a tensor; a network's own knots, if it has any."""
    import torch

    knots = getattr(stack, "knots", None)
    return torch.tensor(beta_grid, dtype=torch.float32, device=device) if knots is None else knots


def chunk_rows(n_budgets: int, width: int = 256) -> int:
    """How many states to compute at a time, so that memory stays bounded."""
    return max(1, _CHUNK // (n_budgets * width))


def _set_units(network: Any, name: str, *, least: int) -> None:
    """Checks the sizes of layers, and keeps them as a tuple (a list is what JSON has)."""
    units: Sequence[int] = getattr(network, name)
    if len(units) < least or any(not isinstance(u, int) or u < 1 for u in units):
        raise ConfigError(
            f"{name} must be whole numbers from 1 on, at least {least} of them; got {units}."
        )
    object.__setattr__(network, name, tuple(units))
