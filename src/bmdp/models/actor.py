"""An actor and a critic for all prices of cost at once.

The actor says how likely each action is, the critic what a state is worth in reward and in cost.
Both are networks of two hidden layers. Their last layer is interpolated between *knots*, by the
*place* of a price, from -1 (the highest) to 1 (the lowest): neighbours learn from each other, and a
price that is put between two others has a place, and so a policy, at once.

An actor is read as a Q-function. Among policies with entropy, Q = V + log pi, in some unit, holds
exactly at the optimum (Ziebart, 2010): here it is

    Q_r(s, a) = V_r(s) + log pi(a | s) - max log pi,    Q_c(s, a) = V_c(s),

so that the greedy action is the likeliest one at any price, and it is worth what the critic says.
Importing this module imports torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bmdp.arrays import BoolArray, FloatArray, require_shape
from bmdp.checks import require_count
from bmdp.errors import ConfigError, StoreError
from bmdp.frontier import BudgetStatus
from bmdp.kinds import checked
from bmdp.models.regressor import LearnedQ, Loss, Problem, QModel, RowSet, Sizes
from bmdp.policies.policy import Decision, Decisions, OneStepPolicy, require_step
from bmdp.storage import storable

_NO_TARGETS = "an actor is not fitted to targets: it practises (bmdp.learn.practice)."
_NO = -1e9  # logarithm of a probability that is 0
_FAR = 10.0  # deviations beyond which a number of a state is not looked at


@checked
@storable
@dataclass(frozen=True)
class ActorModel:
    """Sizes of the networks.

    Args:
        width: units of a hidden layer.
        knots: places between which the last layer is interpolated; 2 at least.

    >>> sizes = Sizes(n_members=1, n_steps=1, n_actions=3, n_numbers=2, heads=(0.0, 1.0))
    >>> model = ActorModel().empty(sizes)
    >>> model(torch.zeros(4, 2)).shape  # four states, (Q_r, Q_c) of three actions at two prices
    torch.Size([1, 4, 2, 3, 2])
    """

    width: int = 64
    knots: int = 10

    def __post_init__(self) -> None:
        require_count("width", self.width, 1)
        require_count("knots", self.knots, 2)

    def empty(self, sizes: Sizes) -> ActorQ:
        """Returns networks whose weights are 0, for prices whose places are spread evenly."""
        return ActorQ(self, sizes)


class ActorQ(QModel):
    """Networks of one actor and one critic."""

    settings: ActorModel
    centre: Tensor  # [D], of states
    scale: Tensor  # [D], of states
    places: Tensor  # [H], of prices

    def __init__(self, settings: ActorModel, sizes: Sizes) -> None:
        """Makes networks that say nothing."""
        super().__init__(settings, sizes)
        n_numbers, n_heads = sizes.n_numbers, len(sizes.heads)
        self.register_buffer("centre", torch.zeros(n_numbers, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(n_numbers, dtype=torch.float64))
        self.register_buffer("places", torch.linspace(-1.0, 1.0, n_heads))
        self.actor = _Network(n_numbers, sizes.n_actions, settings)
        self.critic = _Network(n_numbers, 2, settings)

    def start(self, generator: torch.Generator) -> None:
        """Draws first weights, by which all actions are nearly as likely."""
        self.actor.start(generator, 0.01)
        self.critic.start(generator, 0.1)

    def prepare(self, problem: Problem) -> None:
        """Refuses: an actor is not fitted to targets."""
        raise ConfigError(_NO_TARGETS)

    def fit(self, step: int, rows: RowSet, labels: Tensor, targets: Tensor, name: str) -> Loss:
        """Refuses, as `prepare` does."""
        raise ConfigError(_NO_TARGETS)

    def error(self, step: int, rows: RowSet, labels: Tensor, targets: Tensor) -> float:
        """Refuses, as `prepare` does."""
        raise ConfigError(_NO_TARGETS)

    def embed(self, states: Tensor) -> Tensor:
        """States in units of their deviation, `[n, D]`."""
        scaled = (states.double() - self.centre) / self.scale
        return scaled.clamp(-_FAR, _FAR).float()

    def chances(
        self, embedded: Tensor, heads: Tensor | None = None, available: Tensor | None = None
    ) -> Tensor:
        """Logarithms of probabilities `[n, A, H]`, or `[n, A]` at a head of each state `[n]`.

        Actions that are not available, `[n, A]`, have probability 0.
        """
        found = self._at(self.actor(embedded), heads)
        if available is not None:
            there = available if heads is not None else available[:, :, None]
            found = found.masked_fill(~there, _NO)
        return found.log_softmax(1)

    def worth(self, embedded: Tensor, heads: Tensor | None = None) -> Tensor:
        """(V_r, V_c), scaled, `[n, 2, H]`, or `[n, 2]` at a head of each state `[n]`."""
        return self._at(self.critic(embedded), heads)

    def _at(self, values: Tensor, heads: Tensor | None) -> Tensor:
        """Outputs of all heads, or of one for each state, given those at knots `[n, ..., K]`."""
        knots = torch.arange(self.settings.knots)
        at = (self.places[:, None] + 1) / 2 * (self.settings.knots - 1)
        shares = (1 - (at - knots).abs()).clamp(0)  # [H, K]
        if heads is None:
            return values @ shares.T
        return (values * shares[heads][:, None]).sum(-1)

    def read(self, embedded: Tensor, step: int, members: slice = slice(None)) -> Tensor:
        """Values at embedded states, `[1, n, 2, A, H]`."""
        logs, worth = self.chances(embedded), self.worth(embedded)
        q_r = worth[:, :1] + (logs - logs.amax(1, keepdim=True))
        return torch.stack((q_r, worth[:, 1:].expand_as(q_r)), dim=1)[None]

    def among(self, values: Tensor, available: Tensor) -> Tensor:
        """Values by which the likeliest of the available actions is worth what the critic says."""
        rewards, costs = values.unbind(2)
        some = rewards.masked_fill(~available[:, :, None], -torch.inf)
        levelled = rewards + rewards.amax(2, keepdim=True) - some.amax(2, keepdim=True)
        return torch.stack((levelled, costs), dim=2)

    def check(self) -> None:
        """Checks that all is finite, and that places are where prices can be.

        Raises:
            StoreError: if not.
        """
        self.require_scaling()
        for name, tensor in self.state_dict().items():
            self.require(name, tuple(tensor.shape))
        self.require("places", (len(self.sizes.heads),), -1, 1)
        if self.sizes.n_members != 1 or self.sizes.n_steps != 1:
            raise StoreError("ActorQ must have one member and one step.")

    def select(self, members: list[int]) -> ActorQ:
        """Returns a copy: there is one member."""
        found = self.settings.empty(self.sizes)
        found.set_tensors(self.state_dict())
        return found


class _Network(nn.Module):
    """Two hidden layers, and a last one for each knot."""

    def __init__(self, n_numbers: int, n_outputs: int, settings: ActorModel) -> None:
        super().__init__()
        width = settings.width
        self.first, self.second = nn.Linear(n_numbers, width), nn.Linear(width, width)
        self.last = nn.Parameter(torch.zeros(width, n_outputs, settings.knots))
        self.bias = nn.Parameter(torch.zeros(n_outputs, settings.knots))
        for layer in (self.first, self.second):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def start(self, generator: torch.Generator, size: float) -> None:
        """Draws weights; `size` is the deviation of those of the last layer."""
        for layer in (self.first, self.second):
            nn.init.orthogonal_(layer.weight, math.sqrt(2), generator=generator)
        with torch.no_grad():
            self.last.copy_(size * torch.randn(self.last.shape, generator=generator))

    def forward(self, rows: Tensor) -> Tensor:
        """Outputs at knots, `[n, outputs, K]`."""
        hidden = torch.tanh(self.second(torch.tanh(self.first(rows))))
        return (hidden @ self.last.flatten(1)).view(-1, *self.last.shape[1:]) + self.bias


@storable
@dataclass(frozen=True, eq=False)
class SampledActor(OneStepPolicy):
    """Draws actions by an actor's probabilities; the number on its dial says at which price.

    >>> sizes = Sizes(n_members=1, n_steps=1, n_actions=4, n_numbers=1, heads=(0.0, 1.0))
    >>> q = LearnedQ(ActorModel().empty(sizes), np.ones(1, bool), np.ones(4, bool), 1.0, 1.0)
    >>> actions = SampledActor(q).decide([[0.5]] * 1000, 1, np.random.default_rng(0)).action
    >>> bool((np.abs(np.bincount(actions) - 250) < 50).all())  # it knows nothing yet
    True
    """

    q_function: LearnedQ  # whose model is an `ActorQ`
    step: int | None = None  # the only step that it plays; all of them, if not given

    takes_masks = True

    def __post_init__(self) -> None:
        """Checks that there is an actor."""
        if not isinstance(self.q_function.model, ActorQ):
            raise ConfigError("SampledActor.q_function must be of an actor.")
        require_step("SampledActor.step", self.step, self.q_function)

    @property
    def budget_range(self) -> tuple[float, float]:
        """Numbers of the prices."""
        return 0.0, len(self.q_function.model.sizes.heads) - 1.0

    @property
    def n_steps(self) -> int:
        """Steps that differ, or 1 if it plays a single one."""
        return self.q_function.n_steps if self.step is None else 1

    @property
    def n_draws(self) -> int:
        """One for an action."""
        return 1

    def at_step(self, step: int) -> SampledActor:
        """Returns the policy of one step; the last one is for later steps, too."""
        if self.n_steps == 1:
            return self
        return replace(self, step=min(step, self.n_steps - 1))

    def choose(
        self,
        states: NDArray[Any],
        budgets: FloatArray,
        uniforms: FloatArray,
        available: BoolArray | None = None,
    ) -> Decisions:
        """Draws an action for the price on the dial."""
        model: Any = self.q_function.model
        mask = None
        if available is not None:
            shape = len(states), model.sizes.n_actions
            require_shape("available", available, shape, "[N, A]")
            mask = torch.tensor(available)
        heads = torch.from_numpy(np.rint(budgets).astype(np.int64))
        with torch.no_grad():
            embedded = self.q_function.embedded(states, self.step or 0)
            below = model.chances(embedded, heads, mask).double().exp().cumsum(1).numpy()
        actions = (uniforms * below[:, -1:] >= below[:, :-1]).sum(axis=1)
        return Decision(actions, budgets.copy(), np.full(len(actions), BudgetStatus.SLACK, np.int8))
