"""Networks of several problems fitted as one stack: each step of a regression moves all of them.

Every problem has networks, an optimiser and rows of its own. For a regression they are joined, and
rows of weight 0 fill up where there are fewer; then each takes back what is its own. So a problem
comes out as if it had been fitted alone, but for rounding. Importing this module imports torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bmdp.errors import ConfigError
from bmdp.models.fitting import NetworkFitter
from bmdp.models.networks import EncoderNet, FrontierNet, grid_budgets
from bmdp.models.problem import FitRecord
from bmdp.models.regression import Samples, descend, make_optimiser
from bmdp.models.settings import Regression
from bmdp.models.stacks import QStack


class Task(NamedTuple):
    """Networks of one problem, and what they are fitted to."""

    models: NetworkFitter
    budgets: Tensor  # [N, L], or the grid [B]
    targets: Tensor  # [N, L, 2], of scaled rewards


def require_joint(model: Any, regression: Regression) -> None:
    """Checks that models can be fitted jointly with the result of fitting them one by one.

    Raises:
        ConfigError: naming the setting that forbids it.
    """
    if not isinstance(model, EncoderNet | FrontierNet):
        raise ConfigError(
            "only networks can be fitted together: model must be an EncoderNet or a FrontierNet; "
            f"got {type(model).__name__}. Fit each seed alone."
        )
    for name, rule, reason in (
        ("batch_size", None, "all rows make a step"),
        ("stop_loss", None, "all networks take the same number of steps"),
        ("held_out", 0.0, "all networks take the same number of steps"),
    ):
        value = getattr(regression, name)
        if value != rule:
            raise ConfigError(
                f"regression.{name} must be {rule} where seeds are fitted together, as {reason}; "
                f"got {value}. Change it, or fit each seed alone."
            )


def fit_jointly(name: str, tasks: Sequence[Task]) -> list[FitRecord]:
    """Fits the networks of all problems in one regression, and tells for each how it went.

    Args:
        name: of the iteration, for random numbers.
        tasks: of networks of one shape, with one regression that passes `require_joint`.
    """
    if not tasks:
        return []
    fitters = [task.models for task in tasks]
    for fitter in fitters:
        fitter.begin(name)
    assert len({_n_steps(fitter) for fitter in fitters}) == 1, "moments of unequal age"
    settings = fitters[0].regression
    stack = _joined_stack([fitter.stack for fitter in fitters])
    optimiser = make_optimiser(stack, settings)
    _join_moments(stack, optimiser, fitters)
    samples = _joined_samples([task.models.samples(*task[1:]) for task in tasks])
    if samples.budgets.ndim == 1:
        grid = grid_budgets(stack, fitters[0].problem.beta_grid, fitters[0].device)
        samples = samples._replace(budgets=grid)
    descent = descend(stack, samples, settings, optimiser, torch.Generator())  # draws nothing
    ends = accumulate((len(fitter.problem.members) for fitter in fitters), initial=0)
    parts = [slice(*ends_of) for ends_of in pairwise(ends)]
    for fitter, part in zip(fitters, parts, strict=True):
        _take_back(fitter, part, stack, optimiser)
    return [descent.record(part) for part in parts]


def _n_steps(fitter: NetworkFitter) -> float:
    """How many steps the optimiser has moments of."""
    states = fitter.optimiser.state.values()
    return max((float(state["step"]) for state in states), default=0.0)


def _joined_stack(stacks: Sequence[QStack]) -> QStack:
    """A copy of all networks, as one stack."""
    whole = deepcopy(stacks[0])
    for parameter, *own in zip(
        whole.parameters(), *(stack.parameters() for stack in stacks), strict=True
    ):
        parameter.data = torch.cat([one.detach() for one in own])
    return whole


def _join_moments(
    whole: QStack, optimiser: torch.optim.Optimizer, fitters: Sequence[NetworkFitter]
) -> None:
    """Gives an optimiser of all networks the moments that those of the problems have."""
    for parameter, *own in zip(
        whole.parameters(), *(fitter.stack.parameters() for fitter in fitters), strict=True
    ):
        states = [f.optimiser.state.get(p, {}) for f, p in zip(fitters, own, strict=True)]
        for name, value in states[0].items():
            joined = value.clone() if value.ndim == 0 else torch.cat([s[name] for s in states])
            optimiser.state[parameter][name] = joined


def _take_back(
    fitter: NetworkFitter, part: slice, whole: QStack, optimiser: torch.optim.Optimizer
) -> None:
    """Copies parameters and moments of a problem's networks out of the whole."""
    with torch.no_grad():
        for own, parameter in zip(fitter.stack.parameters(), whole.parameters(), strict=True):
            own.copy_(parameter[part])
            fitter.optimiser.state[own] = {
                name: (value if value.ndim == 0 else value[part]).clone()
                for name, value in optimiser.state[parameter].items()
            }


def _joined_samples(parts: Sequence[Samples]) -> Samples:
    """What all networks are fitted to; where all rows have the same budgets, those of the first."""
    n = max(part.states.shape[1] for part in parts)
    states, actions, budgets, targets, weights = (
        column[0] if column[0].ndim == 1 else torch.cat([_filled(rows, n) for rows in column])
        for column in zip(*parts, strict=True)
    )
    return Samples(states, actions, budgets, targets, weights)


def _filled(rows: Tensor, n: int) -> Tensor:
    """Rows `[E, m, ...]`, filled up with 0 to `[E, n, ...]`."""
    filler = rows.new_zeros((len(rows), n - rows.shape[1], *rows.shape[2:]))
    return torch.cat((rows, filler), dim=1)
