"""Several networks of one shape as one, in torch: what is trained together is computed together.

Parameters have a leading axis of `E` networks, and so have inputs and outputs: network e sees its
own rows only. Importing this module imports torch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

_PART = 512  # rows over which a gradient is summed at a time


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
        bound = float(np.sqrt(6 / (n_in + n_out)))
        drawn = torch.rand((n_networks, n_in, n_out), generator=generator)
        self.weight = nn.Parameter((2 * drawn - 1) * bound)
        self.bias = nn.Parameter(torch.zeros((n_networks, 1, n_out)))

    def forward(self, rows: Tensor) -> Tensor:
        """From `[E, n, n_in]` to `[E, n, n_out]`."""
        return affine(self.bias, rows, self.weight)


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

    def __init__(
        self,
        sizes: tuple[int, int, int],
        hidden: Sequence[int],
        encoder: Sequence[int],
        is_literal: bool,
        generator: torch.Generator,
    ) -> None:
        """Makes networks.

        Args:
            sizes: number of networks, of numbers of a state, and of actions.
            hidden: units of the hidden layers.
            encoder: units of the layers that encode the budget.
            is_literal: whether every layer has an activation, as the paper's text has it; if not,
                neither the encoder nor the first layer has one, as in the authors' code.
            generator: of the first weights.
        """
        super().__init__()
        n_networks, state_size, self.n_actions = sizes
        widths = (1, *encoder)
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
        """What leads to the first activation: weights of states and of encoded budgets, biases.

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
    """From a state to values at knots of the budget, linear in between."""

    def __init__(
        self,
        sizes: tuple[int, int, int],
        hidden: Sequence[int],
        knots: NDArray[np.float64],
        is_monotone: bool,
        generator: torch.Generator,
    ) -> None:
        """Makes networks.

        Args:
            sizes: number of networks, of numbers of a state, and of actions.
            hidden: units of the hidden layers.
            knots: budgets `[M]` at which values are estimated.
            is_monotone: whether Q_r is made to rise with the budget, and Q_c to rise by no more
                than the budget does.
            generator: of the first weights.
        """
        super().__init__()
        n_networks, state_size, self.n_actions = sizes
        self.n_knots, self.is_monotone = len(knots), is_monotone
        widths = (state_size, *hidden, 2 * self.n_actions * self.n_knots)
        self.layers = nn.ModuleList(
            LinearStack(n_networks, a, b, generator) for a, b in pairwise(widths)
        )
        self.register_buffer("knots", torch.tensor(knots, dtype=torch.float32), persistent=False)

    def _outputs(self, states: Tensor) -> Tensor:
        """What `_at_knots` makes values of: from `[E, n, D]` to `[E, n, 2, A, M]`."""
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
        """Values at all budgets: from `[E, n, D]` and `[B]` to `[E, n, 2, A, B]`."""
        values = self._at_knots(self._outputs(states))
        if budgets is self.knots:
            return values
        if self.n_knots == 1:
            return values.expand(*values.shape[:-1], len(budgets))
        lower, share = self._place(budgets)
        return torch.lerp(values[..., lower], values[..., lower + 1], share)

    def taken(self, states: Tensor, actions: Tensor, budgets: Tensor) -> Tensor:
        """Values of actions `[E, n]` at their budgets `[E, n, L]`, or `[L]`: `[E, n, L, 2]`."""
        which = actions[:, :, None, None, None].expand(*actions.shape, 2, 1, self.n_knots)
        values = self._at_knots(self._outputs(states).gather(3, which))[:, :, :, 0]
        if budgets is self.knots:
            return values.transpose(2, 3)
        if self.n_knots == 1:
            return values.expand(*values.shape[:-1], budgets.shape[-1]).transpose(2, 3)
        lower, share = self._place(budgets.expand(*actions.shape, budgets.shape[-1]))
        lower, share = (t[:, :, None].expand(-1, -1, 2, -1) for t in (lower, share))
        found = torch.lerp(values.gather(-1, lower), values.gather(-1, lower + 1), share)
        return found.transpose(2, 3)

    def _place(self, budgets: Tensor) -> tuple[Tensor, Tensor]:
        """Knot below each budget, and the share of the way to the next one."""
        knots: Tensor = self.knots  # type: ignore[assignment]
        lower = torch.searchsorted(knots, budgets.contiguous(), right=True) - 1
        lower = lower.clamp(0, self.n_knots - 2)
        share = (budgets - knots[lower]) / (knots[lower + 1] - knots[lower])
        return lower, share.clamp(0, 1)


def flat_parameters(stack: nn.Module, network: int) -> NDArray[np.float32]:
    """All parameters of one network, in one row."""
    rows = [p.detach()[network].reshape(-1) for p in stack.parameters()]
    return torch.cat(rows).cpu().numpy().astype(np.float32)


def load_parameters(stack: nn.Module, rows: NDArray[np.float32]) -> None:
    """Sets the parameters of all networks, given one row for each, `[E, P]`."""
    values, first = torch.tensor(rows), 0
    with torch.no_grad():
        for parameter in stack.parameters():
            size = parameter[0].numel()
            parameter.copy_(values[:, first : first + size].reshape(parameter.shape))
            first += size
