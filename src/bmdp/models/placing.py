"""Learned policies whose Q-functions are computed on another device. Importing it imports torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bmdp.arrays import FloatArray
from bmdp.errors import ConfigError
from bmdp.models.kernel import KernelQ
from bmdp.models.networks import NetworkQ, chunk_rows, grid_budgets
from bmdp.models.plain import flat_states
from bmdp.models.separate import SideBySideQ
from bmdp.policies.calibrated import CalibratedPolicy
from bmdp.policies.crossed import MeanQ, leaning
from bmdp.policies.hull import HullPolicy, QFunction
from bmdp.policies.multiplier import MultiplierPolicy
from bmdp.policies.portfolio import Portfolio
from bmdp.policies.priced import PriceDial, PricedPolicy
from bmdp.policies.staged import NarrowQ, StagedPolicy

Values = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From states `[N, D]` to (q_r, q_c), each `[N, A, B]`, on one device."""


def placed(policy: Any, device: str) -> Any:
    """Returns the same policy, with Q-functions that are computed on a device.

    It cannot be stored, and so plays in this process only.

    Raises:
        ConfigError: if a Q-function of the policy is neither a network nor a kernel model.
    """
    if isinstance(policy, StagedPolicy):
        return replace(policy, stages=tuple(placed(stage, device) for stage in policy.stages))
    if isinstance(policy, Portfolio):
        return replace(policy, policies=tuple(placed(member, device) for member in policy.policies))
    if isinstance(policy, CalibratedPolicy):
        return replace(policy, portfolio=placed(policy.portfolio, device))
    if isinstance(policy, MultiplierPolicy):
        return replace(policy, dial=placed(policy.dial, device))
    if isinstance(policy, HullPolicy | PriceDial | PricedPolicy):
        return replace(policy, q_function=PlacedQ(policy.q_function, torch.device(device)))
    raise ConfigError(f"a {type(policy).__name__} cannot be placed on a device.")


@dataclass(frozen=True, eq=False)
class PlacedQ:
    """A Q-function that is computed on a device."""

    q_function: QFunction
    device: torch.device

    def __post_init__(self) -> None:
        """Brings it there."""
        _ = self._values

    def __call__(self, states: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c) of the states `[N, D]`, each `[N, A, B]`, in single precision."""
        with torch.no_grad():
            found = self._values(torch.tensor(flat_states(states), device=self.device))
        q_r, q_c = (values.float().cpu().numpy() for values in found)
        return q_r, q_c

    @cached_property
    def _values(self) -> Values:
        return _on(self.q_function, self.device)


def _on(q_function: QFunction, device: torch.device) -> Values:
    """A Q-function as one of tensors."""
    if isinstance(q_function, KernelQ):
        return _kernel_on(q_function, device)
    if isinstance(q_function, NetworkQ):
        return _network_on(q_function, device)
    if isinstance(q_function, NarrowQ):
        inner = _on(q_function.q_function, device)
        columns = torch.tensor(np.asarray(q_function.columns), device=device)
        return lambda states: inner(states[:, columns])
    if isinstance(q_function, MeanQ):
        return _mean_on(q_function, device)
    if isinstance(q_function, SideBySideQ):
        return _side_by_side_on(q_function, device)
    raise ConfigError(f"a {type(q_function).__name__} cannot be placed on a device.")


def _kernel_on(kernel: KernelQ, device: torch.device) -> Values:
    sums = type(kernel.sums)(*(tensor.to(device) for tensor in kernel.sums))
    centre, scale = (torch.tensor(a, device=device) for a in (kernel.centre, kernel.scale))

    def values(states: Tensor) -> tuple[Tensor, Tensor]:
        found = sums.at((states - centre) / scale)
        return found[:, 0] * kernel.reward_scale, found[:, 1]

    return values


def _network_on(network: NetworkQ, device: torch.device) -> Values:
    stack = network.make_stack()[0].to(device)
    budgets = grid_budgets(stack, network.beta_grid, device)
    centre, scale = (torch.tensor(a, device=device) for a in (network.centre, network.scale))

    def values(states: Tensor) -> tuple[Tensor, Tensor]:
        rows = ((states - centre) / scale).float()
        parts = torch.split(rows, chunk_rows(len(budgets)))
        found = torch.cat([stack.grid(part[None], budgets)[0] for part in parts])
        return found[:, 0] * network.reward_scale, found[:, 1]

    return values


def _mean_on(mean: MeanQ, device: torch.device) -> Values:
    parts = [_on(q, device) for q in mean.functions]

    def values(states: Tensor) -> tuple[Tensor, Tensor]:
        rewards, costs = zip(*(q(states) for q in parts), strict=True)
        return leaning(rewards, -mean.caution), leaning(costs, mean.caution)

    return values


def _side_by_side_on(several: SideBySideQ, device: torch.device) -> Values:
    parts = [_on(q, device) for q in several.functions]

    def values(states: Tensor) -> tuple[Tensor, Tensor]:
        rewards, costs = zip(*(q(states) for q in parts), strict=True)
        return torch.cat(rewards, dim=-1), torch.cat(costs, dim=-1)

    return values
