"""Networks that estimate (Q_r, Q_c), fitted by gradient descent.

Networks of an ensemble are computed together: parameters have a leading axis of E networks, and so
have inputs and outputs; network e sees its own rows only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from bmdp.arrays import BoolArray, FloatArray
from bmdp.checks import require_choice, require_count
from bmdp.errors import ConfigError, DataError, StoreError
from bmdp.kinds import checked
from bmdp.models.regressor import (
    Loss,
    Problem,
    QModel,
    RowSet,
    Scaling,
    Sizes,
    cover,
    register_regressor,
)
from bmdp.storage import storable

_NUMBERS = 2**22  # numbers of a layer that are computed at a time
_GPU_NUMBERS = 2**28  # the same on a GPU
_PART = 512  # rows over which a gradient is summed at a time
_LOOKS = 50  # steps between two looks at the loss, on a GPU


_is_mixed = False  # whether products are in bfloat16


@contextmanager
def mixed(*, enabled: bool = True) -> Iterator[None]:
    """Trains networks from a stream by products in bfloat16, on a GPU; all else stays as it is."""
    global _is_mixed
    before, _is_mixed = _is_mixed, enabled
    try:
        yield
    finally:
        _is_mixed = before


@checked
@storable
@dataclass(frozen=True)
class Regression:
    """Settings of gradient descent by Adam.

    Args:
        steps: of gradient descent.
        batch_size: rows a step; all of them if None.
        learning_rate: of every step.
        weight_decay: of all parameters, added to the gradient, as in the paper.
        clip: largest magnitude of an element of the gradient, if any.
        stop_loss: loss at which the regression ends, if any (the paper's rule).
        start: "warm", from the parameters before, or "restart", from new ones.
        keep_moments: whether Adam goes on from its moments of the regression before.

    Paper: the tables of the appendix.

    >>> Regression(steps=200).learning_rate
    0.001
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
        require_count("steps", self.steps, 1)
        for name in ("batch_size", "clip", "stop_loss"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} must be above 0, or None; got {value}.")
        if not self.learning_rate > 0 or not self.weight_decay >= 0:
            raise ConfigError(
                "learning_rate must be above 0 and weight_decay from 0 on; got "
                f"{self.learning_rate} and {self.weight_decay}."
            )
        require_choice("start", self.start, ("warm", "restart"))


@checked
@register_regressor
@dataclass(frozen=True)
class EncoderNet:
    """The paper's network: the budget is an input, which is encoded first.

    It is fitted at *labels*, budgets of each row, and not on all heads.

    Args:
        hidden: units of the hidden layers.
        encoder: units of the layers that encode the budget.
        reading: "text": an activation after every layer, and states of mean 0 and deviation 1.
            "code", as in the authors' code: no activation after the encoder and after the first
            layer, which are then one affine map, and states and costs as they are.
        labels: budgets that a row is fitted at. "uniform": drawn from the range, new ones at every
            iteration. "stored": the one that was held, as in the paper. "fixed": k / n of the range
            for k from 0 to n - 1. "products": k / n of the budget that was held, or of the range
            where none was held or it was the lowest.
        n_labels: number n of labels of a row; "stored" has one.
        regression: how it is fitted.

    Paper: Section 4 and the tables of the appendix.

    >>> from bmdp import BFTQ, BFTQConfig, TransitionBatch
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> how = Regression(steps=200, learning_rate=0.01)
    >>> network = EncoderNet((16,), n_labels=20, regression=how)
    >>> config = BFTQConfig(gamma=0.9, model=network, ensemble=1)
    >>> round(BFTQ(config).fit(log, seed=0).frontier([0]).reward_at(0.5))
    5
    """

    hidden: tuple[int, ...] = (256, 128, 64)
    encoder: tuple[int, ...] = (50,)
    reading: Literal["text", "code"] = "text"
    labels: Literal["uniform", "stored", "fixed", "products"] = "uniform"
    n_labels: int = 1
    regression: Regression = field(default_factory=Regression)

    def __post_init__(self) -> None:
        require_choice("reading", self.reading, ("text", "code"))
        _set_units(self, "hidden", least=1 if self.reading == "text" else 2)
        _set_units(self, "encoder", least=1)
        require_choice("labels", self.labels, ("uniform", "stored", "fixed", "products"))
        require_count("n_labels", self.n_labels, 1)

    @property
    def scales_states(self) -> bool:
        """Whether states are brought to mean 0 and deviation 1."""
        return self.reading == "text"

    @property
    def keeps_costs(self) -> bool:
        """Whether costs are fitted in their own unit, as in the authors' code."""
        return self.reading == "code"

    @property
    def needs_budgets(self) -> bool:
        """Whether its heads must be budgets: one of them is an input."""
        return True

    def empty(self, sizes: Sizes) -> NetworkQ:
        """Returns networks that know nothing."""
        return NetworkQ(self, sizes)

    def stack(self, sizes: Sizes, generator: torch.Generator) -> QStack:
        """Makes the networks of one step."""
        return EncoderStack(sizes, self, generator)


@checked
@register_regressor
@dataclass(frozen=True)
class FrontierNet:
    """From a state to the values on all heads at once, for every action.

    One pass gives all that a frontier needs, and every transition teaches all heads.

    Args:
        hidden: units of the hidden layers.
        structure: "monotone", for heads that are budgets: Q_r rises with the budget, and Q_c rises
            by no more than the budget does; "free": heads have nothing to do with each other.
        inputs: "scaled": numbers of states of mean 0 and deviation 1, costs of at most 1; "raw":
            as they are.
        regression: how it is fitted.

    >>> from bmdp import BFTQ, BFTQConfig, TransitionBatch
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> network = FrontierNet((8,), regression=Regression(steps=5))
    >>> config = BFTQConfig(gamma=0.9, model=network, ensemble=1)
    >>> q_r, q_c = BFTQ(config).fit(log, seed=0).q_function(np.array([[0.0]]))
    >>> q_r.shape, bool((np.diff(q_r) >= 0).all())
    ((1, 2, 21), True)
    """

    hidden: tuple[int, ...] = (256, 128, 64)
    structure: Literal["monotone", "free"] = "monotone"
    inputs: Literal["scaled", "raw"] = "scaled"
    regression: Regression = field(default_factory=Regression)

    def __post_init__(self) -> None:
        _set_units(self, "hidden", least=1)
        require_choice("structure", self.structure, ("monotone", "free"))
        require_choice("inputs", self.inputs, ("scaled", "raw"))

    @property
    def scales_states(self) -> bool:
        """Whether states are brought to mean 0 and deviation 1."""
        return self.inputs == "scaled"

    @property
    def keeps_costs(self) -> bool:
        """Whether costs are fitted in their own unit, as in the authors' code."""
        return self.inputs == "raw"

    @property
    def needs_budgets(self) -> bool:
        """Whether its heads must be budgets: values rise with them."""
        return self.structure == "monotone"

    def empty(self, sizes: Sizes) -> NetworkQ:
        """Returns networks that know nothing."""
        return NetworkQ(self, sizes)

    def stack(self, sizes: Sizes, generator: torch.Generator) -> QStack:
        """Makes the networks of one step."""
        return FrontierStack(sizes, self, generator)


class NetworkQ(QModel):
    """Networks for each step; those of a step begin where those of the step before ended."""

    common = frozenset({"centre", "scale", "budgets"})

    settings: EncoderNet | FrontierNet
    centre: Tensor  # [D], of states
    scale: Tensor  # [D], of states
    budgets: Tensor  # [H]

    def __init__(self, settings: EncoderNet | FrontierNet, sizes: Sizes) -> None:
        """Makes networks that know nothing."""
        super().__init__(settings, sizes)
        for name, value in {"centre": 0.0, "scale": 1.0}.items():
            self.register_buffer(name, torch.full((sizes.n_numbers,), value, dtype=torch.float64))
        self.register_buffer("budgets", torch.tensor(sizes.heads, dtype=torch.float32))
        blank = torch.Generator().manual_seed(0)
        self.stacks = nn.ModuleList(settings.stack(sizes, blank) for _ in range(sizes.n_steps))
        self._optimiser: torch.optim.Optimizer | None = None

    def prepare(self, problem: Problem) -> None:
        """Takes the rows, and the scale of states."""
        device = self.centre.device
        if self.settings.scales_states:
            by = Scaling.of(problem.states)
            self.centre[:], self.scale[:] = torch.from_numpy(by.centre), torch.from_numpy(by.scale)
        self._problem = problem
        self._rows = self.embed(torch.from_numpy(problem.states).to(device))
        self._actions = torch.tensor(problem.actions, device=device)
        self._renew(self.sizes.n_steps - 1, "start")

    def labels(self, iteration: int, device: torch.device) -> Tensor:
        """All heads, or budgets of each row for a network that takes the budget as an input."""
        if isinstance(self.settings, FrontierNet):
            return super().labels(iteration, device)
        kind, n_labels = self.settings.labels, self.settings.n_labels
        low, high = self.sizes.heads[0], self.sizes.heads[-1]
        if kind == "stored":
            found = self._held(kind)[:, None]
        elif kind == "uniform":
            rng = self._problem.generator(f"labels/{iteration}")
            found = rng.uniform(low, high, (len(self._rows), n_labels))
        else:
            tops = np.full(len(self._rows), high)
            if kind == "products":
                held = self._held(kind)
                tops = np.where(held > low, held, high)
            found = low + (tops - low)[:, None] * np.arange(n_labels) / n_labels
        return torch.tensor(found, dtype=torch.float32, device=device)

    def _held(self, labels: str) -> FloatArray:
        """Budgets that were held at the rows `[N]`."""
        if self._problem.budgets is None:
            raise DataError(
                f"labels='{labels}' needs a batch with budgets; this one has none. Use "
                "labels='uniform'."
            )
        return np.asarray(self._problem.budgets, np.float64)

    def embed(self, states: Tensor) -> Tensor:
        """States as the networks see them."""
        return ((states - self.centre) / self.scale).float()

    @torch.no_grad()
    def read(self, embedded: Tensor, step: int, members: slice = slice(None)) -> Tensor:
        """Values of some members at embedded states: `[E, n, 2, A, H]`."""
        stack, n_members = cast(QStack, self.stacks[step]), self.sizes.n_members
        numbers = _GPU_NUMBERS if embedded.is_cuda else _NUMBERS
        size = max(1, numbers // (len(self.budgets) * 256))
        parts = [
            stack.grid(embedded[part].expand(n_members, -1, -1), self.budgets)
            for part in cover(max(1, len(embedded)), size)
        ]
        return torch.cat(parts, dim=1)[members]

    def fit(self, step: int, rows: RowSet, labels: Tensor, targets: Tensor, name: str) -> Loss:
        """Fits by gradient descent."""
        stack, optimiser = self._begun(step, name)
        samples = self._samples(rows, labels, targets)
        generator = self._generator(f"{name}/regression")
        return descend(stack, samples, self.settings.regression, optimiser, generator)

    def fit_stream(self, step: int, batches: Iterable[Samples], name: str) -> int:
        """Fits by a step of gradient descent on each of some batches, and tells how many.

        Args:
            step: number of the step.
            batches: of the network, which may be computed one by one; as many as there are steps
                of the regression, or fewer.
            name: of the iteration, for random numbers.
        """
        stack, optimiser = self._begun(step, name)
        return descend_stream(stack, batches, self.settings.regression, optimiser)

    def _begun(self, step: int, name: str) -> tuple[QStack, torch.optim.Optimizer]:
        """The networks of a step, and their optimiser, as a regression begins with them."""
        how = self.settings.regression
        if how.start == "restart":
            self._renew(step, name, keep_moments=how.keep_moments)
        else:
            self._go_on(step, keep_moments=how.keep_moments)
        assert self._optimiser is not None
        return cast(QStack, self.stacks[step]), self._optimiser

    def random(self, name: str) -> np.random.Generator:
        """Random numbers for a purpose, by the seed of the problem."""
        return self._problem.generator(name)

    def error(self, step: int, rows: RowSet, labels: Tensor, targets: Tensor) -> float:
        """Mean loss of the networks as they are."""
        samples = self._samples(rows, labels, targets)
        with torch.no_grad():
            return float(losses(cast(QStack, self.stacks[step]), samples).mean())

    def check(self) -> None:
        """Checks that all is finite, and that budgets are the heads.

        Raises:
            StoreError: if not.
        """
        self.require_scaling()
        for name, tensor in self.state_dict().items():
            self.require(name, tuple(tensor.shape))
        if self.budgets.tolist() != torch.tensor(self.sizes.heads, dtype=torch.float32).tolist():
            raise StoreError("NetworkQ.budgets must be the heads of the model.")

    def step_tensors(self, step: int) -> dict[str, Tensor]:
        """Parameters of a step, and the moments of the optimiser."""
        assert self._optimiser is not None
        found = {f"stack.{n}": t for n, t in self.stacks[step].state_dict().items()}
        for i, state in self._optimiser.state_dict()["state"].items():
            found |= {f"moments.{i}.{name}": value for name, value in state.items()}
        return found

    def set_step(self, step: int, tensors: dict[str, Tensor]) -> None:
        """Goes on from there.

        Raises:
            StoreError: if it is of other networks.
        """
        stack = self.stacks[step]
        own = {k.removeprefix("stack."): v for k, v in tensors.items() if k.startswith("stack.")}
        needed = {name: tensor.shape for name, tensor in stack.state_dict().items()}
        wanted = {f"stack.{name}": shape for name, shape in needed.items()}
        if len(tensors) > len(own):  # Adam has moments of all parameters, or of none yet
            for i, parameter in enumerate(stack.parameters()):
                shapes = {"step": torch.Size(()), "exp_avg": parameter.shape}
                shapes["exp_avg_sq"] = parameter.shape
                wanted |= {f"moments.{i}.{name}": shape for name, shape in shapes.items()}
        shapes_of = {name: tensor.shape for name, tensor in tensors.items()}
        are_floats = all(tensor.dtype == torch.float32 for tensor in tensors.values())
        is_square_or_count = [n.endswith((".exp_avg_sq", ".step")) for n in tensors]
        are_right = all(
            bool(tensor.isfinite().all() and (not from_0 or (tensor >= 0).all()))
            for tensor, from_0 in zip(tensors.values(), is_square_or_count, strict=True)
        )
        if shapes_of != wanted or not are_floats or not are_right:
            raise StoreError("NetworkQ: what was kept is of other networks.")
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            if key.startswith("moments."):
                _, i_of, name = key.split(".")
                state.setdefault(int(i_of), {})[name] = value
        stack.load_state_dict(own)
        self._optimiser = self._new_optimiser(step)
        self._optimiser.load_state_dict({**self._optimiser.state_dict(), "state": state})
        self._fitted = step

    def _renew(self, step: int, name: str, *, keep_moments: bool = False) -> None:
        """Makes new networks for a step."""
        moments = self._optimiser.state_dict() if keep_moments and self._optimiser else None
        stack = self.settings.stack(self.sizes, self._generator(f"{name}/weights"))
        self.stacks[step] = stack.to(self.centre.device)
        self._optimiser = self._new_optimiser(step)
        if moments is not None:
            self._optimiser.load_state_dict(moments)
        self._fitted = step

    def _go_on(self, step: int, *, keep_moments: bool) -> None:
        """Takes the networks of the step before as the first ones of this."""
        assert self._optimiser is not None
        moments = self._optimiser.state_dict() if keep_moments else None
        if self._fitted != step:
            self.stacks[step].load_state_dict(self.stacks[self._fitted].state_dict())
        if self._fitted != step or moments is None:
            self._optimiser = self._new_optimiser(step)
            if moments is not None:
                self._optimiser.load_state_dict(moments)
        self._fitted = step

    def _new_optimiser(self, step: int) -> torch.optim.Optimizer:
        how, on_gpu = self.settings.regression, self.centre.is_cuda
        rate = torch.tensor(how.learning_rate, device=self.centre.device)
        return torch.optim.Adam(
            self.stacks[step].parameters(),
            lr=rate if on_gpu else how.learning_rate,
            weight_decay=how.weight_decay,
            capturable=on_gpu,
            fused=on_gpu,
        )

    def _generator(self, name: str) -> torch.Generator:
        """A generator of its own for each purpose, on the CPU."""
        return torch.Generator().manual_seed(int(self._problem.generator(name).integers(2**62)))

    def _samples(self, rows: RowSet, labels: Tensor, targets: Tensor) -> Samples:
        """Each network's own rows, of all that it is fitted to."""
        device = self.centre.device
        positions = torch.from_numpy(rows.positions).to(device)
        places, weights = _rows_of(self._problem.members[:, rows.positions], device)
        own = self.budgets if labels.ndim == 1 else labels[positions[places]]
        at = positions[places]
        return Samples(self._rows[at], self._actions[at], own, targets[places], weights)


class QStack(nn.Module, ABC):
    """`E` networks that estimate (Q_r, Q_c) of all actions at any state and next budget."""

    n_actions: int

    @abstractmethod
    def grid(self, states: Tensor, budgets: Tensor) -> Tensor:
        """Values at all budgets: from `[E, n, D]` and `[B]` to `[E, n, 2, A, B]`."""

    @abstractmethod
    def taken(self, states: Tensor, actions: Tensor, budgets: Tensor) -> Tensor:
        """Values of actions `[E, n]` at their budgets `[E, n, L]`, or `[L]`: `[E, n, L, 2]`."""


class EncoderStack(QStack):
    """The paper's network: the budget is encoded and joins the state at the first layer.

    Up to the first activation all is linear in state and encoded budget. Both parts go through
    those layers apart and are added, so that a grid of budgets takes one pass each. Layers without
    an activation between them are multiplied with each other first, and rows with the product.
    """

    def __init__(self, sizes: Sizes, settings: EncoderNet, generator: torch.Generator) -> None:
        """Makes networks, whose first weights are drawn by the generator."""
        super().__init__()
        n_networks, _, self.n_actions, state_size, _ = sizes
        hidden, is_literal = settings.hidden, settings.reading == "text"
        widths = (1, *settings.encoder)
        self.encoder = nn.ModuleList(
            LinearStack(n_networks, a, b, generator) for a, b in pairwise(widths)
        )
        self.first = LinearStack(n_networks, state_size + widths[-1], hidden[0], generator)
        widths = (*hidden, 2 * self.n_actions)
        self.others = nn.ModuleList(
            LinearStack(n_networks, a, b, generator) for a, b in pairwise(widths)
        )
        self.is_literal, self.state_size = is_literal, state_size

    def _first_map(self) -> tuple[Tensor, Tensor, Tensor]:
        """The first linear map: weights of states and of encoded budgets, biases.

        Budgets are encoded by themselves if every layer has an activation; if not, the encoder and
        the first two layers are one map.
        """
        bias = cast(Tensor, self.first.bias)
        weight, joining = self.first.weight.tensor_split([self.state_size], dim=1)
        if self.is_literal:
            return weight, joining, bias
        for layer in reversed(cast(Sequence[LinearStack], self.encoder)):
            joining, bias = layer.weight @ joining, layer.bias @ joining + bias
        second = cast(LinearStack, self.others[0])
        return weight @ second.weight, joining @ second.weight, second(bias)

    def _encoded(self, budgets: Tensor) -> Tensor:
        """Budgets `[..., 1]` as `_first_map` has them, `[..., C]`."""
        if not self.is_literal:
            return budgets
        rows = budgets.flatten(1, -2)
        for layer in self.encoder:
            rows = torch.relu(layer(rows))
        return rows.view(*budgets.shape[:-1], -1)

    def _rest(self, rows: Tensor) -> Tensor:
        """From the first activation on: `[E, n, H]` to `[E, n, 2 * A]`."""
        for layer in self.others if self.is_literal else self.others[1:]:
            rows = layer(torch.relu(rows))
        return rows

    def grid(self, states: Tensor, budgets: Tensor) -> Tensor:
        """Values at all budgets: from `[E, n, D]` and `[B]` to `[E, n, 2, A, B]`."""
        n_networks, n, _ = states.shape
        weight, joining, bias = self._first_map()
        encoded = self._encoded(budgets.expand(n_networks, -1)[..., None])
        joined = affine(bias, encoded, joining)  # [E, B, H]
        rows = affine(None, states, weight)[:, :, None] + joined[:, None]
        values = self._rest(rows.flatten(1, 2))
        return values.view(n_networks, n, len(budgets), 2, self.n_actions).permute(0, 1, 3, 4, 2)

    def taken(self, states: Tensor, actions: Tensor, budgets: Tensor) -> Tensor:
        """Values of actions `[E, n]` at their budgets `[E, n, L]`, or `[L]`: `[E, n, L, 2]`."""
        budgets = budgets.expand(*actions.shape, budgets.shape[-1])
        n_networks, n, n_labels = budgets.shape
        weight, joining, bias = self._first_map()
        repeated = states[:, :, None].expand(-1, -1, n_labels, -1)
        rows = torch.cat((repeated, self._encoded(budgets[..., None])), dim=-1).flatten(1, 2)
        first = affine(bias, rows, torch.cat((weight, joining), dim=1))
        values = self._rest(first).view(n_networks, n, n_labels, 2, self.n_actions)
        which = actions[:, :, None, None, None].expand(n_networks, n, n_labels, 2, 1)
        return values.gather(-1, which).squeeze(-1)


class FrontierStack(QStack):
    """From a state to values on all heads."""

    def __init__(self, sizes: Sizes, settings: FrontierNet, generator: torch.Generator) -> None:
        """Makes networks, whose first weights are drawn by the generator."""
        super().__init__()
        n_networks, _, self.n_actions, state_size, heads = sizes
        self.n_knots, self.is_monotone = len(heads), settings.structure == "monotone"
        widths = (state_size, *settings.hidden, 2 * self.n_actions * self.n_knots)
        self.layers = nn.ModuleList(
            LinearStack(n_networks, a, b, generator) for a, b in pairwise(widths)
        )
        knots = torch.tensor(heads, dtype=torch.float32)
        self.register_buffer("knots", knots, persistent=False)

    def _outputs(self, states: Tensor) -> Tensor:
        """Outputs of the network before `_at_knots`, from `[E, n, D]` to `[E, n, 2, A, M]`."""
        rows = states
        for layer in self.layers[:-1]:
            rows = torch.relu(layer(rows))
        values: Tensor = self.layers[-1](rows)
        return values.view(*states.shape[:2], 2, self.n_actions, self.n_knots)

    def _at_knots(self, values: Tensor) -> Tensor:
        """Values at the knots, of some actions, `[E, n, 2, J, M]`."""
        if not self.is_monotone:
            return values
        knots: Tensor = self.knots  # type: ignore[assignment]
        first, others = values[..., :1], values[..., 1:]
        steps = torch.stack(
            (
                nn.functional.softplus(others[:, :, 0] - 3.0),
                torch.sigmoid(others[:, :, 1] + 1.0) * knots.diff(),
            ),
            dim=2,
        )
        return torch.cat((first, steps), dim=-1).cumsum(-1)

    def grid(self, states: Tensor, budgets: Tensor) -> Tensor:
        """Values on all heads: from `[E, n, D]` to `[E, n, 2, A, M]`."""
        return self._at_knots(self._outputs(states))

    def taken(self, states: Tensor, actions: Tensor, budgets: Tensor) -> Tensor:
        """Values of actions `[E, n]` on all heads, `[E, n, M, 2]`."""
        which = actions[:, :, None, None, None].expand(*actions.shape, 2, 1, self.n_knots)
        return self._at_knots(self._outputs(states).gather(3, which))[:, :, :, 0].transpose(2, 3)


class Affine(torch.autograd.Function):
    """Rows times weights, plus biases if any, of several networks.

    The gradient of weights is a sum over all rows. A library for many small products has too few of
    them to fill a GPU; here that sum is taken in parts, side by side.
    """

    @staticmethod
    def forward(ctx: Any, bias: Tensor | None, rows: Tensor, weight: Tensor) -> Tensor:
        """From `[E, n, n_in]` to `[E, n, n_out]`."""
        ctx.save_for_backward(rows, weight)
        return torch.bmm(rows, weight) if bias is None else torch.baddbmm(bias, rows, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """Gradients of biases, rows and weights."""
        (gradient,) = gradients
        rows, weight = ctx.saved_tensors
        of_bias = gradient.sum(dim=1, keepdim=True) if ctx.needs_input_grad[0] else None
        of_rows = torch.bmm(gradient, weight.mT) if ctx.needs_input_grad[1] else None
        n = rows.shape[1] // _PART * _PART
        one, other = (t[:, :n].reshape(-1, _PART, t.shape[2]) for t in (rows, gradient))
        parts = torch.bmm(one.mT, other).view(len(rows), -1, *weight.shape[1:])
        rest = torch.bmm(rows[:, n:].mT, gradient[:, n:])
        return of_bias, of_rows, parts.sum(dim=1) + rest


def affine(bias: Tensor | None, rows: Tensor, weight: Tensor) -> Tensor:
    """Rows `[E, n, n_in]` times weights, plus biases if any: `[E, n, n_out]`."""
    if rows.is_cuda and len(rows) > 1 and rows.shape[1] >= 2 * _PART:
        found: Tensor = Affine.apply(bias, rows, weight)  # type: ignore[no-untyped-call]
        return found
    return torch.bmm(rows, weight) if bias is None else torch.baddbmm(bias, rows, weight)


class LinearStack(nn.Module):
    """`E` linear layers side by side; Xavier-uniform weights, biases 0."""

    def __init__(self, n_networks: int, n_in: int, n_out: int, generator: torch.Generator) -> None:
        """Draws the weights on the CPU, so that they are the same for every device."""
        super().__init__()
        bound, shape = float(np.sqrt(6 / (n_in + n_out))), (n_networks, n_in, n_out)
        if torch.get_default_device().type == "meta":  # where nothing can be drawn
            drawn = torch.zeros(shape)
        else:
            drawn = torch.rand(shape, generator=generator)
        self.weight = nn.Parameter((2 * drawn - 1) * bound)
        self.bias = nn.Parameter(torch.zeros((n_networks, 1, n_out)))

    def forward(self, rows: Tensor) -> Tensor:
        """From `[E, n, n_in]` to `[E, n, n_out]`."""
        return affine(self.bias, rows, self.weight)


class Samples(NamedTuple):
    """Inputs, targets and weights of `E` networks, `n` rows each; rows of weight 0 only fill up."""

    states: Tensor  # [E, n, D]
    actions: Tensor  # [E, n]
    budgets: Tensor  # [E, n, L], or [L] if all rows have the same
    targets: Tensor  # [E, n, L, 2], of (Q_r, Q_c)
    weights: Tensor  # [E, n]

    def rows(self, places: Tensor) -> Samples:
        """Some of the rows, the same of every network."""
        budgets = self.budgets if self.budgets.ndim == 1 else self.budgets[:, places]
        states, actions, targets, weights = (
            t[:, places] for t in (self.states, self.actions, self.targets, self.weights)
        )
        return Samples(states, actions, budgets, targets, weights)


def losses(stack: QStack, samples: Samples) -> Tensor:
    """Mean squared error of Q_r plus that of Q_c on the actions taken, of each network, `[E]`."""
    return _losses(stack, samples, _shares(samples))


def _shares(samples: Samples) -> Tensor:
    """Weight of each number of a row in the loss, `[E, n, 1, 1]`."""
    n_labels = samples.targets.shape[2]
    total = n_labels * samples.weights.sum(dim=1, keepdim=True).clamp(min=1e-12)
    return (samples.weights / total)[..., None, None]


def _losses(stack: QStack, samples: Samples, shares: Tensor) -> Tensor:
    found = stack.taken(samples.states, samples.actions, samples.budgets)
    return ((found - samples.targets).square() * shares).sum(dim=(1, 2, 3))


def descend(
    stack: QStack,
    samples: Samples,
    settings: Regression,
    optimiser: torch.optim.Optimizer,
    generator: torch.Generator,
) -> Loss:
    """Fits in place, and tells how it went.

    Args:
        stack: the networks.
        samples: what they are fitted to.
        settings: how.
        optimiser: of the parameters of the stack, with the moments it has.
        generator: on the CPU, of random rows.
    """
    walk = _walker(stack, samples, settings, optimiser, generator)
    n_taken, first, last = 0, torch.empty(0), torch.empty(0)
    while n_taken < settings.steps:
        found = walk(min(_LOOKS, settings.steps - n_taken))
        first = found[0] if n_taken == 0 else first
        last, n_taken = found[-1], n_taken + len(found)
        if _is_low(last, settings):
            break
    return Loss(float(last.mean()), float(first.mean()), n_taken)


def descend_stream(
    stack: QStack,
    batches: Iterable[Samples],
    settings: Regression,
    optimiser: torch.optim.Optimizer,
) -> int:
    """Takes a step on each batch, and tells how many; the rate falls to 0 over the second half.

    On a GPU, a step is recorded once as a graph, and replayed on other batches of that size.
    """
    held: Samples | None = None
    step = take = _nothing
    n_taken = 0
    for samples in batches:
        share = min(1.0, 2 * (1 - n_taken / settings.steps))
        _set_rate(optimiser, share * settings.learning_rate)
        if held is None:
            held = Samples(*(tensor.clone() for tensor in samples))
            step = _stepping(stack, held, settings, optimiser)
            take = _recorded(step) if samples.states.is_cuda and settings.steps >= 20 else step
        if samples.actions.shape == held.actions.shape:
            for old, new in zip(held, samples, strict=True):
                old.copy_(new)
            loss = take()
        else:
            loss = _stepping(stack, samples, settings, optimiser)()
        n_taken += 1
        if settings.stop_loss is not None and n_taken % _LOOKS == 0 and _is_low(loss, settings):
            break
    _set_rate(optimiser, settings.learning_rate)
    return n_taken


def _nothing() -> Tensor:
    """A step that is never taken."""
    raise NotImplementedError


def _set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def _stepping(
    stack: QStack, samples: Samples, settings: Regression, optimiser: torch.optim.Optimizer
) -> Callable[[], Tensor]:
    """Returns what takes a step on samples, and tells the losses before it."""
    shares, is_mixed = _shares(samples), _is_mixed and samples.states.is_cuda

    def step() -> Tensor:
        optimiser.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=is_mixed, cache_enabled=False):
            loss = _losses(stack, samples, shares)
        loss.sum().backward()  # type: ignore[no-untyped-call]
        if settings.clip is not None:
            torch.nn.utils.clip_grad_value_(stack.parameters(), settings.clip)
        optimiser.step()
        return loss.detach()

    return step


Walk = Callable[[int], Tensor]
"""Takes steps until the loss is low, and returns the losses before each of them, `[steps, E]`."""


def _walker(
    stack: QStack,
    samples: Samples,
    settings: Regression,
    optimiser: torch.optim.Optimizer,
    generator: torch.Generator,
) -> Walk:
    """Returns what takes steps.

    On a GPU, a step on the whole batch is recorded once as a graph, and replayed.
    """
    n = samples.states.shape[1]
    is_whole = settings.batch_size is None or settings.batch_size >= n
    shares = _shares(samples)

    def step() -> Tensor:
        optimiser.zero_grad()
        if is_whole:
            loss = _losses(stack, samples, shares)
        else:
            loss = losses(stack, _part(samples, settings.batch_size or n, generator))
        loss.sum().backward()  # type: ignore[no-untyped-call]
        if settings.clip is not None:
            torch.nn.utils.clip_grad_value_(stack.parameters(), settings.clip)
        optimiser.step()
        return loss.detach()

    if samples.states.device.type == "cuda" and is_whole and settings.steps >= 20:
        return _running(_recorded(step), settings, optimiser)
    return _walking(step, settings)


def _walking(step: Callable[[], Tensor], settings: Regression) -> Walk:
    """Looks at the loss at every step, if there is one to end at."""

    def walk(n_steps: int) -> Tensor:
        found: list[Tensor] = []
        for _ in range(n_steps):
            found.append(step())
            if _is_low(found[-1], settings):
                break
        return torch.stack(found).cpu()

    return walk


def _running(
    step: Callable[[], Tensor], settings: Regression, optimiser: torch.optim.Optimizer
) -> Walk:
    """Looks at losses at the end, lest a GPU waits for it; goes back if it has gone too far."""

    def run(n_steps: int) -> Tensor:
        return torch.stack([step().clone() for _ in range(n_steps)]).cpu()

    def walk(n_steps: int) -> Tensor:
        before = _state(optimiser)
        kept = [value.clone() for value in before] if settings.stop_loss is not None else []
        found = run(n_steps)
        low = next((i for i, loss in enumerate(found) if _is_low(loss, settings)), len(found))
        if low + 1 < len(found):
            for value, old in zip(before, kept, strict=True):
                value.copy_(old)
            for moment in _state(optimiser)[len(before) :]:  # which the first step has made
                moment.zero_()
            found = run(low + 1)
        return found

    return walk


def _state(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    """Parameters and moments, which the first step makes."""
    parameters = [p.detach() for group in optimiser.param_groups for p in group["params"]]
    moments = [value for state in optimiser.state.values() for value in state.values()]
    return parameters + [value for value in moments if isinstance(value, Tensor)]


def _is_low(loss: Tensor, settings: Regression) -> bool:
    """Whether the regression may end at losses `[E]`."""
    return settings.stop_loss is not None and float(loss.max()) < settings.stop_loss


def _recorded(step: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """A step on the GPU that is taken a few times, then recorded, then replayed."""
    n_taken = 0
    graph = torch.cuda.CUDAGraph()
    losses_of: list[Tensor] = []

    def take() -> Tensor:
        nonlocal n_taken
        n_taken += 1
        if n_taken <= 3:  # what is set up at first use must not be recorded
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                loss = step()
            torch.cuda.current_stream().wait_stream(side)
            return loss
        if n_taken == 4:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # others may read
                losses_of.append(step())
        graph.replay()
        return losses_of[0]

    return take


def _part(samples: Samples, size: int, generator: torch.Generator) -> Samples:
    """Some rows at random."""
    places = torch.randint(samples.states.shape[1], (size,), generator=generator)
    return samples.rows(places.to(samples.states.device))


def _rows_of(members: BoolArray, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows of each model, filled up to the same number, and their weights, each `[E, n]`."""
    most = int(members.sum(axis=1).max())
    rows, weights = np.zeros((len(members), most), np.int64), np.zeros((len(members), most))
    for e, mask in enumerate(members):
        own = np.flatnonzero(mask)
        rows[e, : len(own)], weights[e, : len(own)] = own, 1
    return torch.tensor(rows, device=device), torch.tensor(weights, dtype=torch.float32).to(device)


def _set_units(network: Any, name: str, *, least: int) -> None:
    """Checks the sizes of layers, and keeps them as a tuple (a list is what JSON has)."""
    units: Sequence[int] = getattr(network, name)
    if len(units) < least or any(not isinstance(u, int) or u < 1 for u in units):
        raise ConfigError(
            f"{name} must be whole numbers from 1 on, at least {least} of them; got {units}."
        )
    object.__setattr__(network, name, tuple(units))
