"""Networks that are trained from a stream: mini-batches of a log that is larger than memory.

At every iteration chunks are read in a random order, some ahead of the others. Targets of a chunk
are computed when it comes, by the models of the step before, which stay as they are. Several chunks
make a *window*, whose rows are shuffled and handed on in mini-batches. What fits on the GPU or into
memory is read once; all else is read again at every pass.

The rate of learning falls to 0 over the second half of the steps: mini-batches differ, and small
last steps take the mean over many of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from bmdp.errors import ConfigError
from bmdp.learn.fit import Fit, NextValues, Regression
from bmdp.learn.passes import MEMORY, Chunks, Group, chunk_targets
from bmdp.learn.rows import Log, Reader, Worth
from bmdp.models.networks import FrontierNet, NetworkQ, Samples
from bmdp.models.regressor import Loss, QModel

BATCH = 4096
"""Rows of a mini-batch, if the regression does not say."""

_WINDOW, _GPU_WINDOW = 2**26, 2**30  # bytes of rows that are shuffled together


class Stream:
    """Trains networks on all rows of a log.

    Args:
        log: all transitions.
        next_values: what next states are worth.
        memory: bytes of what is kept from pass to pass in memory.
        window: bytes of rows that are shuffled together; if not given, as many as the device has
            room for.
    """

    def __init__(
        self,
        log: Log,
        next_values: NextValues,
        memory: float = MEMORY,
        window: float | None = None,
    ) -> None:
        """Takes the log."""
        self.log, self.next_values, self.window = log, next_values, window
        self.chunks = Chunks(log, memory, spills=False)

    def regression(self, fit: Fit) -> Regression:
        """Returns what trains the networks of a fit.

        Raises:
            ConfigError: if its models are something else, or several.
        """
        return FromStream(fit, self)


class FromStream:
    """Trains the networks of a fit, iteration by iteration; see `Stream.regression`."""

    def __init__(self, fit: Fit, stream: Stream) -> None:
        """Checks the models."""
        self._fit, self._q, self._stream = fit, network_of(fit), stream

    def __call__(self, iteration: int, targets: Tensor) -> Loss:
        """Trains the network of an iteration; the loss is on the sample, whose targets are given.

        Its targets are those of the models before, also where these are trained themselves.
        """
        fit, q, name = self._fit, self._q, f"iteration-{iteration}"
        step, source, rows_of = fit.plan(iteration)
        own, labels = fit.whole.rows(rows_of), q.labels(iteration, fit.device)
        reader: Reader = fit if source != step else _Frozen(fit)
        value = None
        if source is not None:
            value = self._stream.next_values(fit.source(source, fit.whole.next_states(own)))
        told = _Order(reader, source, value, rows_of, labels)
        n_steps = q.fit_stream(step, self._batches(told, name), name)
        return Loss(q.error(step, own.rows, labels, targets), None, n_steps)

    def _batches(self, told: _Order, name: str) -> Iterator[Samples]:
        """Mini-batches at random, as many as there are steps."""
        how, device = self._q.settings.regression, self._fit.device
        rng = self._q.random(f"{name}/chunks")
        draws = torch.Generator(device).manual_seed(int(rng.integers(2**62)))
        chunks, n_left, whole = range(self._stream.log.n_chunks), how.steps, None
        groups = self._stream.chunks.groups(self._fit, chunks)
        while n_left > 0:
            n_windows, rows = 0, None
            order = [groups[k] for k in rng.permutation(len(groups))]
            windows = iter([whole]) if whole else self._windows(told, order)
            for rows in windows:
                n_windows += 1
                for places in _parts(len(rows.actions), how.batch_size or BATCH, draws):
                    yield rows.samples(places, told.labels)
                    n_left -= 1
                    if n_left == 0:
                        return
            if rows is None:
                return  # the set has no rows
            whole = rows if n_windows == 1 else None

    def _windows(self, told: _Order, order: Sequence[Group]) -> Iterator[Window]:
        """Rows of some chunks at a time, with their targets."""
        fit, stream = self._fit, self._stream
        most = stream.window
        if most is None:
            most = _GPU_WINDOW if fit.device.type == "cuda" else _WINDOW
        held: list[Window] = []
        for ready in stream.chunks.ready(fit, told.rows, order):
            (part,) = ready.parts
            targets = chunk_targets(
                told.reader, ready, told.source, told.value, told.labels, fit.discounts
            )
            if len(targets):
                held.append(Window(part.rows, part.actions, targets))
            if sum(window.n_bytes for window in held) >= most:
                yield _joined(held)
                held = []
        if held:
            yield _joined(held)


class Window(NamedTuple):
    """Rows that are shuffled together."""

    states: Tensor  # [n, D], as the network sees them
    actions: Tensor  # [n]
    targets: Tensor  # [n, H, 2]

    @property
    def n_bytes(self) -> int:
        """Bytes of all of them."""
        return 4 * (self.states.numel() + 2 * len(self.actions) + self.targets.numel())

    def samples(self, places: Tensor, labels: Tensor) -> Samples:
        """Some of the rows, for one network."""
        states, actions, targets = (t.index_select(0, places)[None] for t in self)
        weights = torch.ones_like(actions, dtype=torch.float32)
        return Samples(states, actions, labels, targets, weights)


class _Order(NamedTuple):
    """The request of an iteration."""

    reader: Reader  # whose models value next states
    source: int | None  # step of these models
    value: Worth | None  # by what they say
    rows: str  # name of the set that is fitted
    labels: Tensor  # [H], heads


class _Frozen:
    """The models of a fit as they are now."""

    def __init__(self, fit: Fit) -> None:
        self.q: QModel = fit.q.select(list(range(fit.q.sizes.n_members))).to(fit.device)
        self.device, self.columns, self.n_choosing = fit.device, fit.columns, fit.n_choosing
        self.look = fit.look


def network_of(fit: Fit) -> NetworkQ:
    """Returns the network of a fit that can be trained from a stream.

    Raises:
        ConfigError: if there is none, or several.
    """
    q, kind = fit.q, type(fit.q.settings).__name__
    if not isinstance(q, NetworkQ) or not isinstance(q.settings, FrontierNet):
        raise ConfigError(
            f"a log in chunks needs an averager, or a network of all heads; got {kind}."
        )
    if q.sizes.n_members > 1:
        raise ConfigError(
            f"a log in chunks trains one network; got ensemble={fit.ensemble.n}. Use ensemble=1."
        )
    return q


def _parts(n: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Places of rows at random, in parts of one size; those that are left over are left out."""
    order = torch.randperm(n, generator=generator, device=generator.device)
    size = min(size, n)
    yield from order[: n // size * size].view(-1, size)


def _joined(held: list[Window]) -> Window:
    """The rows of several windows."""
    if len(held) == 1:
        return held[0]
    return Window(*(torch.cat(tensors) for tensors in zip(*held, strict=True)))
