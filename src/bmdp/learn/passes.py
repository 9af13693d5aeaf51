"""Passes over all rows of a log, chunk by chunk: the sums that averagers are fitted from.

A batch, which is a sample of the log, gives a fit its structure: trees, centres, lengths. The means
in that structure are of all rows. A pass values the next states of a chunk, makes targets, adds
them to sums, and forgets them, so memory does not grow with the rows. All that stays the same from
pass to pass, such as the leaves of next states, is computed once and kept: in memory while it fits,
then in a file.

Sums are whole numbers, so they are the same whoever adds up which chunks, in whatever order
(`bmdp.models.regressor`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bmdp.data import TransitionBatch
from bmdp.learn.fit import Fit, NextValues, Order, averager_of, bootstrap_targets, followed
from bmdp.learn.rows import Log, NextStates, SetRows, valued
from bmdp.models.regressor import Part, Sum, plus

MEMORY = 2**29
"""Bytes of what is kept between passes that stay in memory; the rest is in a file."""


class Scratch:
    """Keeps arrays under a key: in memory, and from a number of bytes on in a file.

    The file has no name, and is gone with the process, however that ends.

    >>> scratch = Scratch(memory=10)
    >>> scratch.put("a", {"x": torch.arange(4), "y": None})
    >>> scratch.get("a")["x"].tolist(), scratch.get("a")["y"], scratch.n_bytes
    ([0, 1, 2, 3], None, 32)
    """

    def __init__(self, memory: float = MEMORY) -> None:
        """Keeps nothing yet."""
        self._memory, self.n_bytes, self._file = memory, 0, -1
        self._held: dict[Any, dict[str, Any]] = {}

    def __contains__(self, key: Any) -> bool:
        return key in self._held

    def put(self, key: Any, arrays: dict[str, Tensor | None]) -> None:
        """Keeps arrays; those on a GPU stay there."""
        kept: dict[str, Any] = {}
        for name, tensor in arrays.items():
            if tensor is None or tensor.device.type != "cpu" or self.n_bytes <= self._memory:
                kept[name] = tensor
            if tensor is not None and tensor.device.type == "cpu":
                size = tensor.numel() * tensor.element_size()
                if self.n_bytes + size > self._memory:
                    kept[name] = self._written(tensor)
                self.n_bytes += size
        self._held[key] = kept

    def get(self, key: Any) -> dict[str, Any]:
        """Returns the arrays of a key."""
        return {
            name: self._read(*value) if isinstance(value, tuple) else value
            for name, value in self._held[key].items()
        }

    def _written(self, tensor: Tensor) -> tuple[int, torch.dtype, torch.Size]:
        if self._file < 0:
            handle, path = tempfile.mkstemp(prefix="bmdp-")
            os.unlink(path)
            self._file = handle
        place = os.lseek(self._file, 0, os.SEEK_END)
        rest = _bytes_of(tensor.contiguous())
        while len(rest):
            rest = rest[os.write(self._file, rest) :]
        return place, tensor.dtype, tensor.shape

    def _read(self, place: int, dtype: torch.dtype, shape: torch.Size) -> Tensor:
        found = torch.empty(shape, dtype=dtype)
        rest = _bytes_of(found)
        while len(rest):
            n_read = os.preadv(self._file, [rest], place)
            if n_read == 0:
                raise OSError("a temporary file of the fit is shorter than what was written to it")
            rest, place = rest[n_read:], place + n_read
        return found

    def __del__(self) -> None:
        """Lets go of the file."""
        if self._file >= 0:
            os.close(self._file)


def _bytes_of(tensor: Tensor) -> memoryview:
    """The memory of an array."""
    return tensor.numpy().reshape(-1).view(np.uint8).data


class Ready(NamedTuple):
    """A set of rows of a chunk, with all that a pass needs of it."""

    paid: Tensor  # [n, 1, 2]
    going: Tensor  # [m], rows that are not terminal
    states: NextStates | None  # after them, if next values are needed
    after: tuple[Tensor | None, Tensor]  # whether the next row goes on, `[n]`, and its action
    parts: list[Part]  # rows of each member


class Passes:
    """Adds up sums over some chunks of a log, in this process.

    Args:
        log: all transitions.
        next_values: what next states are worth.
        chunks: that are added up; all, if not given.
        memory: bytes of what is kept that stay in memory.
    """

    def __init__(
        self,
        log: Log,
        next_values: NextValues,
        chunks: Iterable[int] | None = None,
        memory: float = MEMORY,
    ) -> None:
        """Takes the log."""
        self._log, self._next_values = log, next_values
        self.chunks: Sequence[int] = list(range(log.n_chunks) if chunks is None else chunks)
        self._scratch = Scratch(memory)

    def grams(self, fit: Fit, step: int, name: str, scale: float) -> list[Tensor]:
        """Sums of each member that depend on the rows of a set alone."""
        q = averager_of(fit)
        sums: list[Sum] = [None] * q.sizes.n_members
        for chunk in self.chunks:
            for member, part in enumerate(self._ready(fit, name, chunk).parts):
                sums[member] = q.grams(sums[member], step, member, part, scale)
        return _all(sums)

    def moments(self, fit: Fit, order: Order) -> list[Tensor]:
        """Sums of targets of each member, at an iteration."""
        q = averager_of(fit)
        step, source, name = fit.plan(order.iteration)
        labels = q.labels(order.iteration, fit.device)
        value = None
        if source is not None:
            sample = fit.whole.next_states(fit.whole.rows(name))
            value = self._next_values(fit.source(source, sample))
        sums: list[Sum] = [None] * q.sizes.n_members
        for chunk in self.chunks:
            ready = self._ready(fit, name, chunk)
            targets, worth = ready.paid.expand(-1, len(labels), -1), None
            if source is not None and value is not None and ready.states is not None:
                worth, _ = valued(fit, source, ready.states, value, labels)
                targets = bootstrap_targets(targets, ready.going, worth.values, fit.discounts)
                targets = followed(targets, worth, ready.going, ready.after, fit.discounts)
            values = targets.clamp(-order.bound, order.bound).transpose(1, 2)
            for member, part in enumerate(ready.parts):
                own = values if len(part.places) == len(values) else values[part.places]
                sums[member] = q.moments(sums[member], step, member, part, own, order.scale)
        return _all(sums)

    def _ready(self, fit: Fit, name: str, chunk: int) -> Ready:
        """A set of rows of a chunk; what was computed once is kept."""
        q, key = averager_of(fit), (name, chunk)
        if key not in self._scratch:
            self._scratch.put(key, _kept(fit, self._log.chunk(chunk), name))
        held, states = self._scratch.get(key), None
        if len(held["embedded"]):
            embedded, which = q.unpacked(held["embedded"]), held["which"]
            which = None if which is None else which.long()
            states = NextStates(_NOTHING, embedded, held["known"], which)
        after = held["follows"], held["after"].long()
        actions, rows = held["actions"].long(), q.unpacked_own(held["rows"], held["actions"].long())
        parts = []
        for mask in held["members"]:
            places = torch.nonzero(mask)[:, 0]
            if len(places) == len(mask):
                parts.append(Part(rows, actions, held["weights"], places))
            else:
                weights = None if held["weights"] is None else held["weights"][places]
                parts.append(Part(rows[places], actions[places], weights, places))
        return Ready(held["paid"][:, None], held["going"].long(), states, after, parts)


_NOTHING = np.zeros((0, 0))


def _kept(fit: Fit, batch: TransitionBatch, name: str) -> dict[str, Tensor | None]:
    """Arrays of a set of rows of a chunk, as small as they are without loss."""
    q, portion = averager_of(fit), fit.portion(batch)
    own: SetRows = portion.rows(name)
    positions, held = own.rows.positions, portion.held
    states = portion.next_states(own) if name != "last" else None
    actions = torch.from_numpy(held.actions[positions]).to(fit.device)
    seen = torch.from_numpy(np.ascontiguousarray(held.states[positions])).to(fit.device)
    follows = portion.follows
    weights = None if held.weights is None else torch.from_numpy(held.weights[positions])
    nothing = torch.zeros(0, dtype=torch.int16)
    return {
        "paid": own.paid[:, 0],
        "going": own.going.int(),
        "embedded": nothing if states is None else q.packed(states.embedded),
        "known": None if states is None else states.known,
        "which": None if states is None or states.which is None else states.which.int(),
        "follows": follows,
        "after": nothing if follows is None else portion.next_actions.short(),
        "actions": actions.short(),
        "rows": q.packed_own(q.own(q.embed(seen), actions), actions),
        "members": torch.from_numpy(np.ascontiguousarray(held.members[:, positions])),
        "weights": None if weights is None else weights.to(fit.device),
    }


def _all(sums: Sequence[Sum]) -> list[Tensor]:
    return [found for found in sums if found is not None]


def added(parts: Iterable[list[Tensor]]) -> list[Tensor]:
    """The sums of several workers, added up: whole numbers, so their order does not matter."""
    found: list[Sum] = []
    for part in parts:
        found = [plus(one, two) for one, two in zip(found or [None] * len(part), part, strict=True)]
    return _all(found)
