"""Fits the networks of a stack to targets, all at once, each to rows of its own.

Importing this module imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bmdp.models.problem import FitRecord
from bmdp.models.settings import Regression
from bmdp.models.stacks import QStack

_CHECK_EVERY = 50  # steps between two looks at the loss


class Samples(NamedTuple):
    """What `E` networks are fitted to, `n` rows each; rows of weight 0 only fill up."""

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
    """What each number of a row counts, `[E, n, 1, 1]`."""
    n_labels = samples.targets.shape[2]
    total = n_labels * samples.weights.sum(dim=1, keepdim=True).clamp(min=1e-12)
    return (samples.weights / total)[..., None, None]


def _losses(stack: QStack, samples: Samples, shares: Tensor) -> Tensor:
    found = stack.taken(samples.states, samples.actions, samples.budgets)
    return ((found - samples.targets).square() * shares).sum(dim=(1, 2, 3))


def make_optimiser(stack: QStack, settings: Regression) -> torch.optim.Optimizer:
    """Returns Adam as the settings have it."""
    device = next(stack.parameters()).device
    on_gpu = device.type == "cuda"
    rate = torch.tensor(settings.learning_rate, device=device) if on_gpu else settings.learning_rate
    return torch.optim.Adam(
        stack.parameters(),
        lr=rate,
        weight_decay=settings.weight_decay,
        capturable=on_gpu,
        fused=on_gpu,
    )


def regress(
    stack: QStack,
    samples: Samples,
    settings: Regression,
    optimiser: torch.optim.Optimizer,
    generator: torch.Generator,
) -> FitRecord:
    """Fits in place, and tells how it went.

    Args:
        stack: the networks.
        samples: what they are fitted to.
        settings: how.
        optimiser: of the parameters of the stack, with the moments it has.
        generator: on the CPU, of what is random.
    """
    walk = _walker(stack, samples, settings, optimiser, generator)
    n_taken, found = 0, torch.empty(0)
    while n_taken < settings.steps:
        to_check = -n_taken % _CHECK_EVERY + 1
        last = walk(min(to_check, settings.steps - n_taken))
        found = torch.stack((last[0] if n_taken == 0 else found[0], last[-1]))
        n_taken += len(last)
        if _is_low(last[-1], settings):
            break
    return FitRecord(float(found[0].mean()), float(found[1].mean()), n_taken)


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
            found = run(low + 1)
        return found

    return walk


def _state(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    """Parameters and moments, without what the first step will make."""
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
            with torch.cuda.graph(graph):
                losses_of.append(step())
        graph.replay()
        return losses_of[0]

    return take


def _part(samples: Samples, size: int, generator: torch.Generator) -> Samples:
    """Some rows at random."""
    places = torch.randint(samples.states.shape[1], (size,), generator=generator)
    return samples.rows(places.to(samples.states.device))
