"""What a learner asks of a model, whatever it is: to be fitted again and again, and for values.

A *model* is settings: the shape of a network, the features of a linear regression. A *fitter* holds
`E` models of one kind in training; model e is fitted to the rows that are its own. What comes out
is a Q-function that can be stored. Tensors are torch's; rewards are scaled.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from numpy.typing import NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.policies.hull import QFunction

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Problem:
    """What models are fitted to, but for the targets."""

    states: NDArray[Any]  # [N, D]
    actions: IntArray  # [N]
    members: BoolArray  # [E, N], whose rows they are
    n_actions: int
    beta_grid: FloatArray  # [B]
    reward_scale: float  # rewards are divided by it
    seed: int


@dataclass(frozen=True)
class FitRecord:
    """How a regression went, mean over models."""

    first_loss: float
    last_loss: float
    n_steps: int

    def as_dict(self) -> dict[str, Any]:
        """As a dictionary."""
        return asdict(self)


class Fitter(Protocol):
    """`E` models in training."""

    def fit(self, name: str, budgets: Tensor, targets: Tensor) -> FitRecord:
        """Fits to targets `[N, L, 2]` of (Q_r, Q_c) at budgets `[N, L]`, or at the grid `[B]`.

        The name, of the iteration, is for random numbers.
        """

    def error(self, budgets: Tensor, targets: Tensor) -> float:
        """Mean squared error of Q_r plus that of Q_c of the models as they are."""

    def grid(self, states: NDArray[Any]) -> Tensor:
        """Values at states `[n, D]`: `[E, n, 2, A, B]`."""

    def result(self, model: int) -> QFunction:
        """A trained model, of rewards as they are."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that it needs to go on."""

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Goes on from there."""


class Model(Protocol):
    """Settings of a model.

    >>> from bmdp.models import EncoderNet, FrontierNet
    >>> FrontierNet().covers_grid, EncoderNet().covers_grid
    (True, False)
    """

    covers_grid: ClassVar[bool]
    """Whether it is fitted at all budgets of the grid at once, and not at labels of its rows."""


class PlainModel(Model, Protocol):
    """A model that is fitted at once, on the CPU."""

    def fitter(self, problem: Problem) -> Fitter:
        """Returns models that know nothing yet, one for each row of `problem.members`."""
