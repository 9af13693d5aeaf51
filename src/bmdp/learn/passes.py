"""Passes over all rows of a log, chunk by chunk: the sums that averagers are fitted from.

A batch, which is a sample of the log, gives a fit its structure: trees, centres, lengths. The means
in that structure are of all rows. A pass values the next states of a chunk, makes targets, adds
them to sums, and forgets them, so memory does not grow with the rows. All that stays the same from
pass to pass, such as the leaves of next states, is computed once and kept: on the GPU or in memory
while it fits, then in a file. Chunks are read ahead by threads.

Sums are whole numbers, so they are the same whoever adds up which chunks, in whatever order
(`bmdp.models.regressor`).
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from bmdp.learn.fit import Fit, NextValues, Order, averager_of, bootstrap_targets, followed
from bmdp.learn.rows import Log, NextStates, Portion, Reader, SetRows, Worth, on_device, valued
from bmdp.models.regressor import Averager, Part, Sum, cover, plus
from bmdp.workers import n_threads

MEMORY = 2**29
"""Bytes of what is kept between passes that stay in memory; the rest is in a file."""

_SLAB, _ALIGNED = 2**25, 64  # bytes of memory that holds many arrays, and of where one begins
_SHARE = 0.7  # of the free memory of a GPU, for what is kept between passes
_READERS = 8  # threads that read ahead for a GPU
_GPU_ROWS = 2**18  # rows that a GPU works on at a time, about

Group = tuple[int, ...]
"""Chunks that are read together."""

Item = TypeVar("Item")
Found = TypeVar("Found")


class Scratch:
    """Keeps arrays under a key: on the GPU or in memory, and from a number of bytes on in a file.

    The file has no name, and is gone with the process, however that ends.

    Args:
        memory: bytes that stay in memory.
        gpu_memory: bytes that stay on the GPU; a share of what is free, if not given. Arrays beyond
            it go to memory, or to the file, and come back on the GPU.

    >>> scratch = Scratch(memory=10)
    >>> scratch.put("a", {"x": torch.arange(4), "y": None})
    >>> scratch.get("a")["x"].tolist(), scratch.get("a")["y"], scratch.n_bytes
    ([0, 1, 2, 3], None, 32)
    """

    def __init__(self, memory: float = MEMORY, gpu_memory: float | None = None) -> None:
        """Keeps nothing yet."""
        self._memory, self.n_bytes, self._file = memory, 0, -1
        self._gpu_memory, self.n_gpu_bytes = gpu_memory, 0
        self._slab, self._n_used = torch.empty(0, dtype=torch.uint8), 0
        self._held: dict[Any, dict[str, _Kept | None]] = {}

    def __contains__(self, key: Any) -> bool:
        return key in self._held

    def has_room(self, arrays: dict[str, Tensor | None]) -> bool:
        """Whether arrays would be kept without a file."""
        held = [tensor for tensor in arrays.values() if tensor is not None]
        on_gpu = [tensor for tensor in held if tensor.is_cuda]
        if on_gpu:
            size = self.n_gpu_bytes + sum(map(_size, on_gpu))
            return size <= self._room(on_gpu[0].device)
        return self.n_bytes + sum(map(_size, held)) <= self._memory

    def put(self, key: Any, arrays: dict[str, Tensor | None]) -> None:
        """Keeps arrays; those on a GPU stay there while there is room."""
        self._held[key] = {
            name: None if tensor is None else self._kept(tensor) for name, tensor in arrays.items()
        }

    def get(self, key: Any) -> dict[str, Any]:
        """Returns the arrays of a key, each on the device that it was put from."""
        return {
            name: None if kept is None else self._found(kept)
            for name, kept in self._held[key].items()
        }

    def _room(self, device: torch.device) -> float:
        """Bytes that may be kept on a GPU."""
        if self._gpu_memory is None:
            self._gpu_memory = _SHARE * torch.cuda.mem_get_info(device)[0]
        return self._gpu_memory

    def _kept(self, tensor: Tensor) -> _Kept:
        size, device = _size(tensor), tensor.device
        if tensor.is_cuda and self.n_gpu_bytes + size <= self._room(device):
            self.n_gpu_bytes += size
            return _Kept(device, tensor)
        self.n_bytes += size
        if self.n_bytes <= self._memory:
            return _Kept(device, self._in_slab(tensor.cpu()))
        return _Kept(device, None, self._written(tensor.cpu()))

    def _in_slab(self, tensor: Tensor) -> Tensor:
        """Copies an array into a large piece of memory that holds many.

        Each by itself would lie between what a chunk needs for a moment, and keep that from being
        used again: memory would grow with every chunk.
        """
        size = _size(tensor)
        begin = -(-self._n_used // _ALIGNED) * _ALIGNED
        if begin + size > len(self._slab):
            self._slab, begin = torch.empty(max(_SLAB, size), dtype=torch.uint8), 0
        self._n_used = begin + size
        place = self._slab[begin : begin + size].view(tensor.dtype).view(tensor.shape)
        return place.copy_(tensor)

    def _found(self, kept: _Kept) -> Tensor:
        tensor = kept.tensor
        if tensor is None:
            assert kept.place is not None
            tensor = self._read(kept.place)
        return tensor.to(kept.device)

    def _written(self, tensor: Tensor) -> _Place:
        if self._file < 0:
            handle, path = tempfile.mkstemp(prefix="bmdp-")
            os.unlink(path)
            self._file = handle
        begin = os.lseek(self._file, 0, os.SEEK_END)
        rest = _bytes_of(tensor.contiguous())
        while len(rest):
            rest = rest[os.write(self._file, rest) :]
        return _Place(begin, tensor.dtype, tensor.shape)

    def _read(self, place: _Place) -> Tensor:
        found = torch.empty(place.shape, dtype=place.dtype)
        rest, begin = _bytes_of(found), place.begin
        while len(rest):
            n_read = os.preadv(self._file, [rest], begin)
            if n_read == 0:
                raise OSError("a temporary file of the fit is shorter than what was written to it")
            rest, begin = rest[n_read:], begin + n_read
        return found

    def __del__(self) -> None:
        """Lets go of the file."""
        if self._file >= 0:
            os.close(self._file)


class _Place(NamedTuple):
    """Where in the file an array is."""

    begin: int
    dtype: torch.dtype
    shape: torch.Size


class _Kept(NamedTuple):
    """An array that is kept, in memory or in the file."""

    device: torch.device  # that it is wanted on
    tensor: Tensor | None
    place: _Place | None = None


def _bytes_of(tensor: Tensor) -> memoryview:
    """The memory of an array."""
    return tensor.numpy().reshape(-1).view(np.uint8).data


def _size(tensor: Tensor) -> int:
    """Bytes of an array."""
    return tensor.numel() * tensor.element_size()


class Ready(NamedTuple):
    """A set of rows of a chunk, with all that a pass needs of it."""

    paid: Tensor  # [n, 1, 2]
    going: Tensor  # [m], rows that are not terminal
    states: NextStates | None  # after them, if next values are needed
    after: tuple[Tensor | None, Tensor]  # whether the next row goes on, `[n]`, and its action
    parts: list[Part]  # rows of each member


class Chunks:
    """Chunks of a log as a fit reads them, each computed once and kept.

    Args:
        log: all transitions.
        memory: bytes of what is kept that stay in memory.
        spills: whether the rest is in a file; if not, it is read from the log again.
    """

    def __init__(self, log: Log, memory: float = MEMORY, *, spills: bool = True) -> None:
        """Takes the log."""
        self._log, self._scratch, self._spills = log, Scratch(memory), spills

    def groups(self, fit: Fit, chunks: Sequence[int]) -> list[Group]:
        """Chunks that are read together: one at a time, but several for a GPU.

        Rows that are merged stay those of one chunk, so that means are rounded alike.
        """
        size = 1
        if fit.device.type == "cuda" and not fit.whole.is_merged:
            size = max(1, _GPU_ROWS * self._log.n_chunks // max(1, len(self._log)))
        return [tuple(chunks[part]) for part in cover(len(chunks), size)]

    def ready(self, fit: Fit, name: str, groups: Iterable[Group]) -> Iterator[Ready]:
        """Returns a set of rows of some groups, one after the other, which are read ahead."""
        repeats = _repeats(fit)

        def arrays(group: Group) -> tuple[Group, dict[str, dict[str, Tensor | None]] | None]:
            if (name, group) in self._scratch:
                return group, None
            portion = fit.part([self._log.chunk(chunk) for chunk in group])
            return group, {own: _kept(fit, portion, own, repeats) for own in fit.set_names}

        for group, found in ahead(arrays, groups, _n_ahead(fit.device)):
            held: dict[str, Any]
            if found is None:
                held = self._scratch.get((name, group))
            else:
                held = found[name]
                for own, kept in found.items():
                    if self._spills or self._scratch.has_room(kept):
                        self._scratch.put((own, group), kept)
            yield _made_ready(fit, held)


def ahead(work: Callable[[Item], Found], items: Iterable[Item], n: int) -> Iterator[Found]:
    """Results of work on items, in order, by threads that are n items ahead; by none if n is 0.

    >>> list(ahead(abs, [-1, 2, -3], 2))
    [1, 2, 3]
    """
    if n == 0:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(n, "bmdp-ahead")
    waiting: deque[Future[Found]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > n:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        pool.shutdown()


def _n_ahead(device: torch.device) -> int:
    """Threads that read ahead: one beside a CPU that has another core to compute with."""
    if device.type == "cuda":
        return min(_READERS, os.cpu_count() or 1)
    return 1 if n_threads() > 1 else 0


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
        self._next_values, self._chunks = next_values, Chunks(log, memory)
        self.chunks: Sequence[int] = list(range(log.n_chunks) if chunks is None else chunks)

    def grams(self, fit: Fit, step: int, name: str, scale: float) -> list[Tensor]:
        """Sums of each member that depend on the rows of a set alone."""
        q = averager_of(fit)
        sums: list[Sum] = [None] * q.sizes.n_members
        for ready in self._chunks.ready(fit, name, self._chunks.groups(fit, self.chunks)):
            for member, part in enumerate(ready.parts):
                sums[member] = q.grams(sums[member], step, member, part, scale)
        return _all(sums)

    def moments(self, fit: Fit, order: Order) -> list[Tensor]:
        """Sums of targets of each member, at an iteration."""
        q = averager_of(fit)
        step, source, name = fit.plan(order.iteration)
        labels, value = q.labels(order.iteration, fit.device), None
        if source is not None:
            sample = fit.whole.next_states(fit.whole.rows(name))
            value = self._next_values(fit.source(source, sample))
        sums: list[Sum] = [None] * q.sizes.n_members
        for ready in self._chunks.ready(fit, name, self._chunks.groups(fit, self.chunks)):
            targets = chunk_targets(fit, ready, source, value, labels, fit.discounts)
            values = targets.clamp(-order.bound, order.bound).transpose(1, 2)
            for member, part in enumerate(ready.parts):
                own = values if len(part.places) == len(values) else values[part.places]
                sums[member] = q.moments(sums[member], step, member, part, own, order.scale)
        return _all(sums)


def chunk_targets(
    fit: Reader,
    ready: Ready,
    source: int | None,
    value: Worth | None,
    labels: Tensor,
    discounts: Tensor,
) -> Tensor:
    """Targets `[n, H, 2]` of rows of a chunk.

    Args:
        fit: whose models value next states.
        ready: the rows.
        source: step of those models; None for a last step.
        value: what next states are worth; None for a last step.
        labels: heads `[H]`.
        discounts: of rewards and of costs, `[2]`.
    """
    targets = ready.paid.expand(-1, len(labels), -1)
    if source is None or value is None or ready.states is None:
        return targets
    worth, _ = valued(fit, source, ready.states, value, labels)
    targets = bootstrap_targets(targets, ready.going, worth.values, discounts)
    return followed(targets, worth, ready.going, ready.after, discounts)


def _made_ready(fit: Fit, held: dict[str, Any]) -> Ready:
    """A set of rows of a chunk, from arrays that were kept."""
    q, states = fit.q, None
    if len(held["embedded"]):
        embedded, which = q.unpacked(held["embedded"]), held["which"]
        which = None if which is None else which.long()
        states = NextStates(_NOTHING, embedded, held["known"], which)
    after = held["follows"], held["after"].long()
    actions = held["actions"].long()
    rows = q.unpacked_own(held["rows"], actions) if isinstance(q, Averager) else held["rows"]
    parts = []
    for mask in [None] if held["members"] is None else held["members"]:
        if mask is None or bool(mask.all()):
            places = torch.arange(len(actions), device=actions.device)
            parts.append(Part(rows, actions, held["weights"], places))
        else:
            places = torch.nonzero(mask)[:, 0].to(actions.device)
            weights = None if held["weights"] is None else held["weights"][places]
            parts.append(Part(rows[places], actions[places], weights, places))
    return Ready(held["paid"][:, None], held["going"].long(), states, after, parts)


_NOTHING = np.zeros((0, 0))


def _repeats(fit: Fit) -> dict[str, bool]:
    """Sets of rows that next states are needed of, and whether many of these are the same."""
    sets = {name: fit.whole.rows(name) for name in fit.set_names if name != "last"}
    return {name: fit.whole.next_states(own).which is not None for name, own in sets.items()}


def _kept(
    fit: Fit, portion: Portion, name: str, repeats: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Arrays of a set of rows of a chunk, as small as they are without loss."""
    q, device = fit.q, fit.device
    own: SetRows = portion.rows(name)
    positions, held = own.rows.positions, portion.held
    states = None
    if name in repeats:
        states = portion.next_states(own, one_each=not repeats[name])
    actions = torch.from_numpy(held.actions[positions]).to(device)
    seen = on_device(held.states[positions], device)
    follows = portion.follows
    weights = None if held.weights is None else torch.from_numpy(held.weights[positions])
    members = None if len(held.members) == 1 else held.members[:, positions]
    nothing = torch.zeros(0, dtype=torch.int16, device=device)
    if isinstance(q, Averager):
        rows = q.packed_own(q.embed_own(seen, actions), actions)
    else:
        rows = q.embed(seen)
    return {
        "paid": own.paid[:, 0],
        "going": own.going.int(),
        "embedded": nothing if states is None else q.packed(states.embedded),
        "known": None if states is None else states.known,
        "which": None if states is None or states.which is None else states.which.int(),
        "follows": follows,
        "after": nothing if follows is None else portion.next_actions.short(),
        "actions": actions.short(),
        "rows": rows,
        "members": None if members is None else torch.from_numpy(np.ascontiguousarray(members)),
        "weights": None if weights is None else weights.to(device),
    }


def _all(sums: Sequence[Sum]) -> list[Tensor]:
    return [found for found in sums if found is not None]


def added(parts: Iterable[list[Tensor]]) -> list[Tensor]:
    """The sums of several workers, added up: whole numbers, so their order does not matter."""
    found: list[Sum] = []
    for part in parts:
        found = [plus(one, two) for one, two in zip(found or [None] * len(part), part, strict=True)]
    return _all(found)
