"""Networks in training. Importing this module imports torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bmdp.arrays import BoolArray
from bmdp.models.kernel import KernelModel
from bmdp.models.kernel_fitting import KernelFitter
from bmdp.models.networks import (
    EncoderNet,
    FrontierNet,
    NetworkQ,
    Scaling,
    chunk_rows,
    grid_budgets,
)
from bmdp.models.problem import FitRecord, Fitter, PlainModel, Problem
from bmdp.models.regression import Samples, losses, make_optimiser, regress
from bmdp.models.settings import Regression
from bmdp.models.stacks import QStack, flat_parameters, load_parameters
from bmdp.randomness import named_generator


def make_fitter(model: Any, problem: Problem, regression: Regression, device: Any) -> Fitter:
    """Returns models that know nothing yet: networks, or whatever makes a fitter of its own.

    Only networks and kernel models are on the device; see `device_of`.
    """
    if isinstance(model, EncoderNet | FrontierNet):
        return NetworkFitter(model, regression, problem, device)
    if isinstance(model, KernelModel):
        return KernelFitter(model, problem, device)
    plain: PlainModel = model
    return plain.fitter(problem)


def device_of(model: Any, name: str) -> torch.device:
    """Returns the device of a name; "auto" is the GPU, if there is one that can be used."""
    can_be_there = isinstance(model, EncoderNet | FrontierNet | KernelModel)
    return torch_device(name if can_be_there else "cpu")


def torch_device(name: str) -> torch.device:
    """Returns the device of a name; "auto" is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


class NetworkFitter:
    """Networks in training."""

    def __init__(
        self,
        network: EncoderNet | FrontierNet,
        regression: Regression,
        problem: Problem,
        device: torch.device,
    ) -> None:
        """Makes networks that know nothing."""
        self.network, self.regression, self.problem = network, regression, problem
        self.device = device
        is_raw = network.inputs == "raw"
        self.scaling = (
            Scaling.none(problem.states.shape[-1]) if is_raw else Scaling.of(problem.states)
        )
        self._states = self._scaled(problem.states)
        self._actions = torch.tensor(problem.actions, device=device)
        self._rows, self._weights = _rows_of(problem.members, device)
        self.stack: QStack
        self.budgets: Tensor
        self.optimiser: torch.optim.Optimizer
        self._renew("start")

    def fit(self, round_name: str, budgets: Tensor, targets: Tensor) -> FitRecord:
        """Fits to targets `[N, L, 2]` at budgets `[N, L]` (or `[B]`), of scaled rewards."""
        self.begin(round_name)
        samples = self.samples(budgets, targets)
        generator = self._generator(f"{round_name}/regression")
        return regress(self.stack, samples, self.regression, self.optimiser, generator)

    def begin(self, round_name: str) -> None:
        """Makes networks and optimiser ready for a regression, as the settings have it."""
        if self.regression.start == "restart":
            moments = self.optimiser.state_dict() if self.regression.keep_moments else None
            self._renew(round_name)
            if moments is not None:
                self.optimiser.load_state_dict(moments)
        elif not self.regression.keep_moments:
            self.optimiser = make_optimiser(self.stack, self.regression)

    def samples(self, budgets: Tensor, targets: Tensor) -> Samples:
        """Each network's own rows, of all that it is fitted to."""
        rows = self._rows
        own = self.budgets if budgets.ndim == 1 else budgets.to(self.device)[rows]
        values = targets.to(self.device)[rows]
        return Samples(self._states[rows], self._actions[rows], own, values, self._weights)

    def error(self, budgets: Tensor, targets: Tensor) -> float:
        """Mean loss of the networks as they are."""
        with torch.no_grad():
            return float(losses(self.stack, self.samples(budgets, targets)).mean())

    def grid(self, states: NDArray[Any]) -> Tensor:
        """Values at states `[n, D]`: `[E, n, 2, A, B]`, of scaled rewards."""
        with torch.no_grad():
            rows = self._scaled(states).expand(len(self.problem.members), -1, -1)
            parts = torch.split(rows, chunk_rows(len(self.budgets)), dim=1)
            return torch.cat([self.stack.grid(part, self.budgets) for part in parts], dim=1)

    def result(self, model: int) -> NetworkQ:
        """A trained network, as a function of states that can be stored."""
        return NetworkQ(
            self.network,
            flat_parameters(self.stack, model),
            self.problem.beta_grid,
            self.scaling.centre,
            self.scaling.scale,
            self.problem.reward_scale,
            self.problem.n_actions,
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Parameters and the moments of the optimiser."""
        n_networks = len(self.problem.members)
        found = {
            "parameters": np.stack([flat_parameters(self.stack, e) for e in range(n_networks)])
        }
        for i, state in self.optimiser.state_dict()["state"].items():
            for name, value in state.items():
                found[f"moments/{i}/{name}"] = value.detach().cpu().numpy()
        return found

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Goes on from there."""
        load_parameters(self.stack, arrays["parameters"])
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in arrays.items():
            if key.startswith("moments/"):
                _, i, name = key.split("/")
                state.setdefault(int(i), {})[name] = torch.tensor(value)
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": state})

    def _renew(self, name: str) -> None:
        """Makes new networks, and a new optimiser."""
        sizes = (len(self.problem.members), self._states.shape[-1], self.problem.n_actions)
        stack = self.network.stack(
            sizes, self.problem.beta_grid, self._generator(f"{name}/weights")
        )
        self.stack = stack.to(self.device)
        self.budgets = grid_budgets(self.stack, self.problem.beta_grid, self.device)
        self.optimiser = make_optimiser(self.stack, self.regression)

    def _generator(self, name: str) -> torch.Generator:
        """A generator of its own for each purpose, on the CPU."""
        seed = int(named_generator(self.problem.seed, f"fit/{name}").integers(2**62))
        return torch.Generator().manual_seed(seed)

    def _scaled(self, states: NDArray[Any]) -> Tensor:
        rows = (np.asarray(states, np.float64) - self.scaling.centre) / self.scaling.scale
        return torch.tensor(rows, dtype=torch.float32, device=self.device)


def _rows_of(members: BoolArray, device: torch.device) -> tuple[Tensor, Tensor]:
    """Rows of each model, filled up to the same number, and their weights, each `[E, n]`."""
    most = int(members.sum(axis=1).max())
    rows, weights = np.zeros((len(members), most), np.int64), np.zeros((len(members), most))
    for e, mask in enumerate(members):
        own = np.flatnonzero(mask)
        rows[e, : len(own)], weights[e, : len(own)] = own, 1
    return torch.tensor(rows, device=device), torch.tensor(weights, dtype=torch.float32).to(device)
