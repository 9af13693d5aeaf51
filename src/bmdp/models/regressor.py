"""The protocol of regressors: fitted again and again, and asked for values.

A *regressor* is settings, a frozen dataclass marked with `@register_regressor`. Its `empty(sizes)`
makes a `QModel`: a torch module that holds an ensemble of E models for S steps of an episode, and
gives (Q_r, Q_c) of all A actions on H heads at once. A *head* is a budget handed on, or a price of
cost. All arrays of a model are buffers or parameters, so that moving it to a device, saving it and
going on after a kill are torch's own.

An *averager* is a model whose value is a weighted mean of targets, with weights that depend on
states and actions alone (Gordon, 1995). The weights are the same for all heads, so their errors are
alike, and a frontier cannot pick the luckiest of them. It is fitted from sums over rows. Sums are
whole numbers: multiples of a power of two that is the same for all rows. Whole numbers add up to
the same in any order, so one thread or many, one machine or many, rows in memory or a stream of
files have the same sums to the last bit.

Values inside a model are in units of the data's largest reward and cost; `LearnedQ` turns them into
the units of the data. Importing this module imports torch.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bmdp.arrays import (
    MAGNITUDE,
    BoolArray,
    FloatArray,
    IntArray,
    flat_states,
    narrowed,
    require_finite,
    require_shape,
)
from bmdp.errors import ConfigError, DataError, StoreError
from bmdp.kinds import checked
from bmdp.policies.policy import MOST_KEPT, Policy
from bmdp.randomness import named_generator
from bmdp.storage import restores, storable

CHUNK = 8192
"""Rows of which sums are made at a time: fixed, as sums are rounded as their parts are cut."""

LARGEST = 1e150
"""Magnitude of a number of a model that is read from a file, at most: products are finite then."""

_MOST_STEPS = 2**31  # of a clock
_MOST_JUDGED = 4096  # rows of a model that tell its loss
_FEW_NUMBERS = 2**20  # that an empty model may have, whatever its arrays are

Settings = TypeVar("Settings")


class Sizes(NamedTuple):
    """Sizes of a model."""

    n_members: int  # E, models of the ensemble
    n_steps: int  # S
    n_actions: int  # A
    n_numbers: int  # D, of a state as the model sees it
    heads: tuple[float, ...]  # [H], budgets handed on, or numbers of prices


@checked
@dataclass(frozen=True, eq=False)
class Problem:
    """The rows that models are fitted to, without their targets."""

    states: FloatArray  # [N, D], float64
    actions: IntArray  # [N]
    members: BoolArray  # [E, N], the rows of each model
    outcomes: FloatArray  # [N, K], what followed: reward, cost, end, change of the state
    sizes: Sizes  # of the model that is fitted
    seed: int  # of its random numbers
    budgets: FloatArray | None = None  # [N], held in the log, if known
    is_last: BoolArray | None = None  # [N], rows of a last step that is fitted by itself, if any
    weights: FloatArray | None = None  # [N], how many equal rows each stands for; None for one
    expected: FloatArray | None = None  # [N, K], what earlier models expect to follow, if any

    def generator(self, name: str) -> np.random.Generator:
        """Random numbers for a purpose."""
        return named_generator(self.seed, f"fit/{name}")


class RowSet(NamedTuple):
    """Rows of a problem that a step is fitted to."""

    name: str  # what is computed from rows alone is kept under it
    positions: IntArray  # [n], rising


class Loss(NamedTuple):
    """Loss of a regression, mean over models: squared error of Q_r plus that of Q_c.

    >>> Loss(0.5)  # of a regression that is solved at once
    Loss(last=0.5, first=None, n_steps=1)
    """

    last: float  # of the models after
    first: float | None = None  # before the first step of gradient descent, if there were any
    n_steps: int = 1  # of gradient descent


class Regressor(Protocol):
    """Settings of a model."""

    def empty(self, sizes: Sizes) -> QModel:
        """Returns models that know nothing."""


REGRESSORS: dict[str, type[Any]] = {}


@checked
def register_regressor(cls: type[Settings]) -> type[Settings]:
    """Registers a frozen dataclass as a regressor under its name.

    Learners, runs, workers and `bmdp.load_policy` then treat it as one of the library's own. Its
    fields must be numbers, words, truth values, or tuples of them.

    Args:
        cls: settings, with a method `empty(sizes)` that returns a `QModel`.

    Raises:
        ConfigError: if another class has that name.
    """
    known = REGRESSORS.get(cls.__name__)
    if known is not None and (known.__module__, known.__qualname__) != (
        cls.__module__,
        cls.__qualname__,
    ):
        raise ConfigError(f"a regressor called {cls.__name__!r} is registered already.")
    REGRESSORS[cls.__name__] = cls
    return storable(cls)


class QModel(nn.Module):
    """An ensemble of models of (Q_r, Q_c) for each step of an episode.

    A subclass registers its arrays as buffers or parameters. Their axes begin with [E, S], but for
    those named in `common` (no axis of the ensemble) and in `constant` (no axis of steps).

    Args:
        settings: that made it, kept in `self.settings`.
        sizes: of the ensemble, kept in `self.sizes`.

    >>> from bmdp.models import LinearModel
    >>> sizes = Sizes(n_members=3, n_steps=5, n_actions=2, n_numbers=1, heads=(0.0, 0.5, 1.0))
    >>> model = LinearModel().empty(sizes)
    >>> model(torch.zeros(4, 1), step=2).shape  # three models at four states, of Q_r and Q_c
    torch.Size([3, 4, 2, 2, 3])
    """

    common: ClassVar[frozenset[str]] = frozenset()
    constant: ClassVar[frozenset[str]] = frozenset()
    weighs_rows: bool = False  # whether it looks at `Problem.weights`

    def __init__(self, settings: Any, sizes: Sizes) -> None:
        """Makes models that know nothing."""
        super().__init__()
        self.settings, self.sizes = settings, sizes

    @property
    def device(self) -> torch.device:
        """Where its arrays are."""
        return next(chain(self.buffers(), self.parameters())).device

    @abstractmethod
    def prepare(self, problem: Problem) -> None:
        """Takes the rows, and computes what depends on them alone."""

    @abstractmethod
    def fit(self, step: int, rows: RowSet, labels: Tensor, targets: Tensor, name: str) -> Loss:
        """Fits the models of a step.

        Args:
            step: number of the step.
            rows: of the problem, that are fitted.
            labels: what `labels` returned, for all rows of the problem.
            targets: `[n, L, 2]` of (Q_r, Q_c), for the rows of the set.
            name: of the iteration, for random numbers.
        """

    @abstractmethod
    def error(self, step: int, rows: RowSet, labels: Tensor, targets: Tensor) -> float:
        """Squared error of Q_r plus that of Q_c of the models as they are, mean over models."""

    def labels(self, iteration: int, device: torch.device) -> Tensor:
        """Heads at which rows are fitted: all of them, `[H]`, or labels of each row, `[N, L]`."""
        return torch.tensor(self.sizes.heads, dtype=torch.float32, device=device)

    def embed(self, states: Tensor) -> Tensor:
        """Computes what `read` needs of states `[n, D]`, whatever the step."""
        return states

    def packed(self, embedded: Tensor) -> Tensor:
        """Returns embedded states in few bytes, to be kept."""
        return embedded

    def unpacked(self, kept: Tensor) -> Tensor:
        """Returns embedded states that were `packed`."""
        return kept

    @abstractmethod
    def read(self, embedded: Tensor, step: int, members: slice = slice(None)) -> Tensor:
        """Values of some members at embedded states: `[E, n, 2, A, H]`, float32, scaled."""

    def forward(self, states: Tensor, step: int = 0) -> Tensor:
        """Values at states `[n, D]` at a step: `[E, n, 2, A, H]`."""
        return self.read(self.embed(states), min(step, self.sizes.n_steps - 1))

    def known(self, embedded: Tensor) -> Tensor | None:
        """Which actions the data know at embedded states, `[n, A]`; None if it cannot be said."""
        return None

    def among(self, values: Tensor, available: Tensor) -> Tensor:
        """Values `[E, n, 2, A, H]` as they are where some actions `[n, A]` alone are available."""
        return values

    def select(self, members: list[int]) -> QModel:
        """Returns a model with some members of the ensemble."""
        sizes = self.sizes._replace(n_members=len(members))
        found: QModel = self.settings.empty(sizes)
        found.set_tensors(
            {
                name: tensor if name in self.common else tensor[members]
                for name, tensor in self.state_dict().items()
            }
        )
        return found

    def step_tensors(self, step: int) -> dict[str, Tensor]:
        """Tensors fitted at one step, and those from which the next regression goes on."""
        return {n: t[:, step] for n, t in self.state_dict().items() if self._has_steps(n)}

    def set_step(self, step: int, tensors: dict[str, Tensor]) -> None:
        """Sets what `step_tensors` returned.

        Raises:
            StoreError: if it is of another model.
        """
        own, state = self.step_tensors(step), self.state_dict()
        for name in own.keys() | tensors.keys():
            kinds = [
                (t.shape, t.dtype) for t in (own.get(name), tensors.get(name)) if t is not None
            ]
            if len(kinds) < 2 or kinds[0] != kinds[1]:
                raise StoreError(f"{type(self).__name__}: {name} is not that of the model.")
            state[name][:, step] = tensors[name].to(state[name].device)

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Sets all buffers and parameters, and checks them; see `set_tensors`.

        Raises:
            StoreError: if one is missing, unknown, of another type, or makes no sense.
        """
        self.set_tensors(tensors)
        for module in self.modules():
            if isinstance(module, QModel):
                module.check()

    def set_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Sets all buffers and parameters; buffers take the shape they are given.

        Raises:
            StoreError: if one is missing, unknown, or of another type.
        """
        parameters, state = dict(self.named_parameters()), self.state_dict()
        if tensors.keys() != state.keys():
            wrong = sorted(tensors.keys() ^ state.keys())
            raise StoreError(f"{type(self).__name__}: arrays do not match: {', '.join(wrong)}.")
        for name, tensor in tensors.items():
            if tensor.dtype != state[name].dtype:
                own = str(state[name].dtype).removeprefix("torch.")
                raise StoreError(f"{type(self).__name__}.{name} must be of type {own}.")
            if name in parameters:
                if tensor.shape != parameters[name].shape:
                    raise StoreError(f"{type(self).__name__}: {name} has the wrong shape.")
                with torch.no_grad():
                    parameters[name].copy_(tensor)
            else:
                owner, _, last = name.rpartition(".")
                module = self.get_submodule(owner)
                module.register_buffer(last, tensor.to(device=state[name].device))

    def stored(self) -> tuple[str, dict[str, Any]]:
        """Kind and fields of the model, for a file."""
        tensors = self.state_dict()
        arrays = tuple(tensor.cpu().numpy() for tensor in tensors.values())
        fields_of = {"settings": self.settings, "sizes": tuple(self.sizes)}
        return "QModel", {**fields_of, "names": tuple(tensors), "arrays": arrays}

    def check(self) -> None:
        """Checks arrays that were read from a file, before anything else looks at them.

        Raises:
            StoreError: if they make no sense.
        """

    def require(
        self, name: str, shape: tuple[int, ...], least: float = -LARGEST, most: float = LARGEST
    ) -> None:
        """Checks one of its tensors: the shape, and that all numbers are of a range, and finite.

        Raises:
            StoreError: naming the tensor, the rule, and what was given.
        """
        tensor, told = self.state_dict()[name], f"{type(self).__name__}.{name}"
        if tensor.shape != shape:
            raise StoreError(f"{told} must have shape {list(shape)}; got {list(tensor.shape)}.")
        good = (tensor >= least) & (tensor <= most)
        if tensor.is_floating_point():  # the largest number of single precision is infinite
            good &= tensor.isfinite()
        if not good.all():
            place = torch.nonzero(~good)[0].tolist()
            found = float(tensor[tuple(place)])
            rule = f"from {least:g} to {most:g}" if np.isfinite(found) else "finite"
            raise StoreError(f"{told} must be {rule}; got {found:g} at {place}.")

    def require_scaling(self) -> None:
        """Checks `centre` and `scale` of states, `[D]` each.

        Raises:
            StoreError: if they are not finite, or a scale is not above 0.
        """
        self.require("centre", (self.sizes.n_numbers,))
        self.require("scale", (self.sizes.n_numbers,), np.finfo(np.float64).tiny)

    def _has_steps(self, name: str) -> bool:
        return name not in self.common and name not in self.constant


@restores("QModel")
def _restored(
    settings: Regressor,
    sizes: tuple[int, int, int, int, tuple[float, ...]],
    names: tuple[str, ...],
    arrays: tuple[np.ndarray[Any, Any], ...],
) -> QModel:
    """The model that `stored` described."""
    if len(names) != len(arrays) or len(set(names)) < len(names):
        raise StoreError("its arrays do not match their names.")
    room = sum(array.size for array in arrays)
    checked = _checked_sizes(Sizes(*sizes), room)
    _require_room(settings, checked, room)
    model = settings.empty(checked)
    given = (torch.from_numpy(np.array(array)) for array in arrays)
    model.load_tensors(dict(zip(names, given, strict=True)))
    return model


def _checked_sizes(sizes: Sizes, room: int) -> Sizes:
    """Sizes that arrays of so many numbers may have.

    Raises:
        StoreError: naming the first that is wrong.
    """
    least = {"n_members": 1, "n_steps": 1, "n_actions": 1, "n_numbers": 0}
    for name, fewest in least.items():
        found = getattr(sizes, name)
        if not fewest <= found <= max(room, 1):
            rule = f"from {fewest} to the size of its arrays"
            raise StoreError(f"{name} must be {rule}; got {found}.")
    if not sizes.heads or not np.isfinite(sizes.heads).all():
        raise StoreError("heads must be finite numbers, and at least one.")
    return sizes


def _require_room(settings: Regressor, sizes: Sizes, room: int) -> None:
    """Checks that a model of some sizes is no larger than arrays of so many numbers, unmade.

    Numbers of one and of two steps say how many there are of any number of steps.

    Raises:
        StoreError: if it is larger.
    """
    one, two = (_n_numbers_of(settings, sizes._replace(n_steps=n)) for n in (1, 2))
    if one + (two - one) * (sizes.n_steps - 1) > max(room, _FEW_NUMBERS):
        raise StoreError("its sizes are larger than its arrays.")


def _n_numbers_of(settings: Regressor, sizes: Sizes) -> int:
    """Number of numbers of an empty model; 0 if that cannot be said without making it."""
    try:
        with torch.device("meta"):
            return sum(tensor.numel() for tensor in settings.empty(sizes).state_dict().values())
    except NotImplementedError:
        return 0


Sum: TypeAlias = "Tensor | None"
"""Sums so far, if there are any."""


class Part(NamedTuple):
    """Some rows, as an averager reads them."""

    rows: Tensor  # [n, ...], what is kept of them: see `Averager.own`
    actions: Tensor  # [n]
    weights: Tensor | None  # [n], whole numbers
    places: Tensor  # [n], where their targets are


class Averager(QModel):
    """A model whose value is a weighted mean of targets, fitted from sums over rows.

    The structure (cells, leaves, centres) comes from states and actions alone. `grams` are sums
    that depend on the rows alone, and `moments` are sums of targets. Both count a row as often as
    it weighs, and both are whole numbers: multiples of 1 / scale.

    A subclass that is not fitted from sums has its own `fit_members`, and `is_summed` is False.
    """

    is_summed: bool = True
    reach: float = 1.0  # the largest magnitude of what rows are multiplied by in sums

    _rows: Tensor  # [N, ...], embedded states of the problem
    _actions: Tensor  # [N]
    _weights: Tensor | None  # [N], float64
    _masks: BoolArray  # [E, N], rows of each member
    _positions: dict[str, Tensor]  # the rows of a set
    _own: dict[tuple[str, int], Tensor]  # where in a set the rows of a member are
    _parts: dict[tuple[str, int], list[Part]]
    _judged: dict[tuple[str, int], Part]
    _grams: dict[Any, Tensor]

    def prepare(self, problem: Problem) -> None:
        """Takes the rows, and builds the structure."""
        device = self.device
        self.build(problem)
        self.to(device)
        self._actions = torch.tensor(problem.actions, device=device)
        self._rows = self._kept(torch.from_numpy(problem.states).to(device))
        weights = problem.weights
        self._weights = None if weights is None else torch.tensor(weights, device=device)
        self._masks, self._positions, self._own = problem.members, {}, {}
        self._parts, self._judged, self._grams = {}, {}, {}

    def _kept(self, states: Tensor) -> Tensor:
        """Keeps states `[N, D]` of the problem as sums need them, some at a time."""
        parts = cover(max(1, len(states)), CHUNK)
        return torch.cat([self.embed_own(states[p], self._actions[p]) for p in parts])

    @abstractmethod
    def build(self, problem: Problem) -> None:
        """Builds the structure."""

    def own(self, embedded: Tensor, actions: Tensor) -> Tensor:
        """Returns as much of embedded rows `[n, ...]` with actions `[n]` as sums need."""
        return embedded

    def embed_own(self, states: Tensor, actions: Tensor) -> Tensor:
        """Returns what `own` keeps of states `[n, D]` with actions `[n]`."""
        return self.own(self.embed(states), actions)

    def packed_own(self, rows: Tensor, actions: Tensor) -> Tensor:
        """Returns rows of some actions, as `own` keeps them, in few bytes."""
        return self.packed(rows)

    def unpacked_own(self, kept: Tensor, actions: Tensor) -> Tensor:
        """Returns rows that `packed_own` made small."""
        return self.unpacked(kept)

    def choose(self, step: int, rows: RowSet, values: Tensor) -> None:
        """Chooses what depends on targets and is no sum, given those of a set, `[n, 2, H]`."""

    def gram_key(self, step: int, member: int) -> Any:
        """On what grams depend, beside the rows."""
        return None

    def grams(self, found: Sum, step: int, member: int, part: Part, scale: float) -> Tensor:
        """Adds sums over a part that depend on its rows alone, in multiples of 1 / scale, int64.

        Args:
            found: sums so far, which may be overwritten; None if there are none.
            step: whose models are fitted.
            member: of the ensemble.
            part: some of its rows.
            scale: a power of two.
        """
        raise NotImplementedError

    def moments(
        self, found: Sum, step: int, member: int, part: Part, values: Tensor, scale: float
    ) -> Tensor:
        """Adds sums of the targets `[n, 2, H]` of a part; see `grams`."""
        raise NotImplementedError

    def solve(self, step: int, sums: list[tuple[Tensor, Tensor]]) -> None:
        """Sets the models of a step, given grams and moments of each member, float64."""
        raise NotImplementedError

    def fit(self, step: int, rows: RowSet, labels: Tensor, targets: Tensor, name: str) -> Loss:
        """Fits all members."""
        values = targets.transpose(1, 2)
        self.fit_members(step, rows, values)
        return Loss(self.loss(step, rows, values))

    def fit_members(self, step: int, rows: RowSet, values: Tensor) -> None:
        """Adds up the sums over values `[n, 2, H]` of all members, and solves."""
        self.choose(step, rows, values)
        weight = len(values) if self._weights is None else float(self._weights.sum())
        of_rows, of_targets = self.scales(float(values.abs().max()), weight)
        found = []
        for member in range(self.sizes.n_members):
            parts = self._parts_of(member, rows)
            key = rows.name, member, self.gram_key(step, member)
            if key not in self._grams:
                grams: Sum = None
                for part in parts:
                    grams = self.grams(grams, step, member, part, of_rows)
                self._grams[key] = unscaled(grams, of_rows)
            moments: Sum = None
            for part in parts:
                own = values[part.places]
                moments = self.moments(moments, step, member, part, own, of_targets)
            found.append((self._grams[key], unscaled(moments, of_targets)))
        self.solve(step, found)

    def scales(self, bound: float, weight: float) -> tuple[float, float]:
        """Scales of grams and of moments, for targets within a bound and rows of a weight."""
        return scale_of(self.reach**2, weight), scale_of(self.reach * bound, weight)

    def _parts_of(self, member: int, rows: RowSet) -> list[Part]:
        """The rows of a set that are a member's, some at a time."""
        key = rows.name, member
        if key not in self._parts:
            places = self.places(member, rows)
            parts = cover(max(1, len(places)), CHUNK)
            self._parts[key] = [self._part(rows, places[part]) for part in parts]
        return self._parts[key]

    def _part(self, rows: RowSet, places: Tensor) -> Part:
        """Some rows of a set."""
        positions = self.positions(rows)[places]
        weights = None if self._weights is None else self._weights[positions]
        return Part(self._rows[positions], self._actions[positions], weights, places)

    def positions(self, rows: RowSet) -> Tensor:
        """The rows of a set."""
        if rows.name not in self._positions:
            self._positions[rows.name] = torch.from_numpy(rows.positions).to(self._actions.device)
        return self._positions[rows.name]

    def places(self, member: int, rows: RowSet) -> Tensor:
        """Where in a set the rows of a member are."""
        key = rows.name, member
        if key not in self._own:
            own = np.flatnonzero(self._masks[member][rows.positions])
            self._own[key] = torch.from_numpy(own).to(self._actions.device)
        return self._own[key]

    def error(self, step: int, rows: RowSet, labels: Tensor, targets: Tensor) -> float:
        """Squared error of Q_r plus that of Q_c, on some rows of each member."""
        return self.loss(step, rows, targets.transpose(1, 2))

    def loss(self, step: int, rows: RowSet, values: Tensor) -> float:
        """The same for values `[n, 2, H]`."""
        losses = []
        for member in range(self.sizes.n_members):
            judged = self._judging(member, rows)
            if len(judged.places) == 0:
                continue
            taken = self.read_own(member, judged.rows, judged.actions, step)
            errors = (taken - values[judged.places]).square().sum(1).mean(1)
            losses.append(_mean(errors, judged.weights))
        return float(torch.stack(losses).mean()) if losses else 0.0

    def _judging(self, member: int, rows: RowSet) -> Part:
        """Rows of a set by which the loss of a member is told."""
        key = rows.name, member
        if key not in self._judged:
            places = self.places(member, rows)
            self._judged[key] = self._part(rows, places[:: max(1, -(-len(places) // _MOST_JUDGED))])
        return self._judged[key]

    @abstractmethod
    def read_member(self, member: int, embedded: Tensor, step: int) -> Tensor:
        """Values of one model, `[n, 2, A, H]`."""

    def read_own(self, member: int, rows: Tensor, actions: Tensor, step: int) -> Tensor:
        """Values of one model for the actions of rows, as `own` keeps them, `[n, 2, H]`."""
        found = self.read_member(member, rows, step)
        which = actions[:, None, None, None].expand(-1, 2, 1, found.shape[-1])
        return found.gather(2, which)[:, :, 0]

    def read(self, embedded: Tensor, step: int, members: slice = slice(None)) -> Tensor:
        """Values of some members at embedded states: `[E, n, 2, A, H]`."""
        chosen = range(self.sizes.n_members)[members]
        return torch.stack([self.read_member(e, embedded, step).float() for e in chosen])


@dataclass(frozen=True, eq=False)
class Scaling:
    """Scaling of numbers to mean 0 and deviation 1: `value = scaled * scale + centre`."""

    centre: FloatArray  # [D]
    scale: FloatArray  # [D]

    @classmethod
    def of(cls, states: NDArray[Any], weights: FloatArray | None = None) -> Scaling:
        """Mean and deviation of each number; one that never changes is left as it is."""
        if weights is None:
            centre, deviation = states.mean(axis=0), states.std(axis=0)
        else:
            centre = weights @ states / weights.sum()
            deviation = np.sqrt(weights @ np.square(states - centre) / weights.sum())
        is_constant = deviation <= 1e-12 * np.abs(states).max(axis=0, initial=0)
        return cls(centre, np.where(is_constant, 1.0, deviation))


class Bounded(QModel):
    """A model that is not believed beyond what it was fitted to.

    No value of an action on a head is below the least or above the most of its targets. Where a
    policy does what is rare in the data a model may say anything, and as every regression learns
    from the one before, such errors would grow from step to step.
    """

    constant = frozenset()

    def __init__(self, inner: QModel) -> None:
        super().__init__(inner.settings, inner.sizes)
        self.inner, self.weighs_rows = inner, inner.weighs_rows
        shape = (inner.sizes.n_steps, 2, inner.sizes.n_actions, len(inner.sizes.heads))
        self.register_buffer("least", torch.zeros(shape))
        self.register_buffer("most", torch.zeros(shape))
        self._actions: Tensor

    def prepare(self, problem: Problem) -> None:
        """Takes the rows."""
        self.inner.prepare(problem)
        self._actions = torch.tensor(problem.actions, device=self.get_buffer("least").device)

    def labels(self, iteration: int, device: torch.device) -> Tensor:
        """Those of the model."""
        return self.inner.labels(iteration, device)

    def fit(self, step: int, rows: RowSet, labels: Tensor, targets: Tensor, name: str) -> Loss:
        """Fits the model, and notes the range of targets of each action."""
        actions = self._actions[torch.from_numpy(rows.positions).to(self._actions.device)]
        for action in range(self.sizes.n_actions):
            own = targets[actions == action]
            own = own if len(own) else targets
            self.get_buffer("least")[step, :, action] = own.amin(0).T
            self.get_buffer("most")[step, :, action] = own.amax(0).T
        return self.inner.fit(step, rows, labels, targets, name)

    def error(self, step: int, rows: RowSet, labels: Tensor, targets: Tensor) -> float:
        """As of the model."""
        return self.inner.error(step, rows, labels, targets)

    def embed(self, states: Tensor) -> Tensor:
        """As the model does."""
        return self.inner.embed(states)

    def known(self, embedded: Tensor) -> Tensor | None:
        """As the model says."""
        return self.inner.known(embedded)

    def among(self, values: Tensor, available: Tensor) -> Tensor:
        """As the model has them."""
        return self.inner.among(values, available)

    def read(self, embedded: Tensor, step: int, members: slice = slice(None)) -> Tensor:
        """Values within their bounds."""
        found = self.inner.read(embedded, step, members)
        return found.clamp(self.get_buffer("least")[step], self.get_buffer("most")[step])


class Knows(Protocol):
    """Says which actions may be played."""

    def known(self, states: FloatArray, available: BoolArray | None = None) -> BoolArray:
        """Which of the available actions are known at states `[n, D]`, `[n, A]`."""


class Looked(NamedTuple):
    """States that were looked at."""

    embedded: Tensor
    mask: BoolArray  # [n, A], actions that may be played
    available: BoolArray | None  # [n, A], actions that there are, if not all


@checked
@storable
@dataclass(frozen=True, eq=False)
class LearnedQ:
    """Q-values of a trained model, in the units of the data.

    An action that never occurs in the data has reward minus infinity and cost infinity, and so has
    one that is not available: no policy plays it.

    >>> from bmdp.models import LinearModel
    >>> model = LinearModel().empty(Sizes(1, 1, n_actions=2, n_numbers=1, heads=(0.0,)))
    >>> q = LearnedQ(model, np.array([True]), np.array([True, False]), 1.0, 1.0)
    >>> q_r, q_c = q(np.array([[0.5]]))
    >>> q_r.tolist(), q_c.tolist()
    ([[[0.0], [-inf]]], [[[0.0], [inf]]])
    """

    model: QModel  # of the members that act
    shown: BoolArray  # [D], which numbers of a state the model sees
    taken: BoolArray  # [A], actions that occur in the data
    reward_unit: float  # that rewards were divided by
    cost_unit: float  # that costs were divided by
    caution: float = 0.0  # deviations over models by which Q_r is lowered and Q_c raised
    clock: int = 0  # steps that the model is shown, as a last number of the state; 0 if none are
    support: Knows | None = None  # of actions, in place of what the model says of them

    takes_masks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Checks that all parts are of one model.

        Raises:
            DataError: naming the part that is not.
        """
        sizes = self.model.sizes
        require_shape("LearnedQ.taken", self.taken, (sizes.n_actions,), "[A]")
        require_shape("LearnedQ.shown", self.shown, (None,), "[D]")
        n_shown = int(np.count_nonzero(self.shown))
        if n_shown != sizes.n_numbers:
            raise DataError(
                f"LearnedQ.shown must show the model its {sizes.n_numbers} numbers; got {n_shown}."
            )
        if not self.taken.any():
            raise DataError("LearnedQ.taken must have an action; got none.")
        for name in ("reward_unit", "cost_unit"):
            unit = getattr(self, name)
            if not 0 < unit <= LARGEST:
                raise DataError(f"LearnedQ.{name} must be above 0, up to {LARGEST:g}; got {unit}.")
        if not np.isfinite(self.caution):
            raise DataError(f"LearnedQ.caution must be finite; got {self.caution}.")
        if not 0 <= self.clock <= _MOST_STEPS or (self.clock and sizes.n_steps > 1):
            raise DataError(f"LearnedQ.clock must be 0, or of a single model; got {self.clock}.")
        fits = getattr(self.support, "fits", None)
        if fits is not None and not fits(sizes.n_numbers, sizes.n_actions):
            raise DataError("LearnedQ.support must be of the states and actions of the model.")

    @property
    def n_heads(self) -> int:
        """Number of heads, H."""
        return len(self.model.sizes.heads)

    @property
    def n_steps(self) -> int:
        """Number of steps that differ."""
        return self.clock or self.model.sizes.n_steps

    def __call__(
        self, states: NDArray[Any], step: int = 0, available: BoolArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c) of the states `[N, ...]` at a step, each `[N, A, H]`.

        Args:
            states: `[N, ...]`.
            step: of the episode.
            available: `[N, A]`, which actions there are; all, if not given. If the data know none
                of them, they may be played all the same.
        """
        if available is None:
            found = self._compiled(states, step)
            if found is not None:
                return found
        return self.at(self.look(states, step, available), step)

    def _compiled(self, states: NDArray[Any], step: int) -> tuple[FloatArray, FloatArray] | None:
        """The same values without torch, of a model that has a compiled form."""
        read_rows = getattr(self.model, "read_rows", None)
        if read_rows is None:
            return None
        rows = self.rows(states, step)
        values = read_rows(rows, min(step, self.model.sizes.n_steps - 1))
        if values is None:
            return None
        q_r, q_c = values[:, 0] * self.reward_unit, values[:, 1] * self.cost_unit
        mask: BoolArray = np.broadcast_to(self.taken, (len(rows), len(self.taken)))
        if self.support is not None:
            mask = narrowed(mask, self.support.known(rows))
        if not mask.all():
            q_r[~mask], q_c[~mask] = -np.inf, np.inf
        return q_r, q_c

    def cells(self, states: NDArray[Any], step: int = 0) -> IntArray:
        """Numbers of the cells of states `[N, ...]`, if the model is a table."""
        found: IntArray = self.model.cell_numbers(self.rows(states, step))  # type: ignore[operator]
        return found

    def cell_values(self, step: int = 0) -> tuple[FloatArray, FloatArray] | None:
        """Returns (q_r, q_c) of all cells at a step, each `[C, A, H]`; None if it is no table."""
        n_cells = getattr(self.model, "n_cells", None)
        if n_cells is None:
            return None
        n_numbers = len(self.taken) * len(self.model.sizes.heads)
        if n_cells * n_numbers > MOST_KEPT:
            return None
        embedded = torch.arange(n_cells, device=self.model.device)
        known = self._known_cells(embedded)
        if known is None:
            return None
        mask: BoolArray = np.broadcast_to(self.taken, (n_cells, len(self.taken)))
        return self.at(Looked(embedded, narrowed(mask, known), None), step)

    def _known_cells(self, embedded: Tensor) -> BoolArray | None:
        """Actions that are known in all cells of a table, `[C, A]`; None if it cannot be said."""
        if self.support is not None:
            known_cells = getattr(self.support, "known_cells", None)
            found: BoolArray | None = None if known_cells is None else known_cells(self.model)
            return found
        known = self.model.known(embedded)
        return None if known is None else known.cpu().numpy()

    def look(
        self, states: NDArray[Any], step: int = 0, available: BoolArray | None = None
    ) -> Looked:
        """Looks at states at a step: without a clock, at all steps."""
        with torch.no_grad():
            rows = self.rows(states, step)
            if available is not None:
                require_shape("available", available, (len(rows), len(self.taken)), "[N, A]")
            embedded = self.model.embed(torch.from_numpy(rows).to(self.model.device))
            known = self._known(rows, embedded, available)
        mask: BoolArray = np.broadcast_to(self.taken, (len(rows), len(self.taken)))
        if available is not None:
            mask = narrowed(available, mask)
        if known is not None:
            mask = narrowed(mask, known)
        return Looked(embedded, mask, available)

    def at(self, look: Looked, step: int = 0) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c) of states that were looked at, each `[N, A, H]`."""
        with torch.no_grad():
            found = self.model.read(look.embedded, min(step, self.model.sizes.n_steps - 1))
            if look.available is not None:
                found = self.model.among(found, torch.tensor(look.available).to(found.device))
            values = combined(found, self.caution).cpu().numpy()  # [n, 2, A, H]
        q_r, q_c = values[:, 0] * self.reward_unit, values[:, 1] * self.cost_unit
        if look.mask.all():
            return q_r, q_c
        allowed = look.mask[:, :, None]
        return np.where(allowed, q_r, -np.inf), np.where(allowed, q_c, np.inf)

    def _known(
        self, rows: FloatArray, embedded: Tensor, available: BoolArray | None
    ) -> BoolArray | None:
        """Actions that are known at states, `[n, A]`; None if it cannot be said."""
        if self.support is not None:
            return self.support.known(rows, available)
        known = self.model.known(embedded)
        return None if known is None else known.cpu().numpy()

    def rows(self, states: NDArray[Any], step: int) -> FloatArray:
        """States `[N, ...]` as the model sees them at a step, `[N, D]`.

        Raises:
            DataError: if there are not as many numbers as in the data, or one is not finite.
        """
        rows = flat_states(states)
        if not (np.abs(rows) <= MAGNITUDE).all():
            require_finite("states", rows, limit=MAGNITUDE)
        if self.clock:
            rows = with_clock(rows, step, self.clock).astype(np.float64)
        require_shape("states", rows, (len(rows), len(self.shown)), "[N, D]")
        return rows[:, self.shown]

    def embedded(self, states: NDArray[Any], step: int) -> Tensor:
        """States `[N, ...]` as the model reads them at a step."""
        return self.model.embed(torch.from_numpy(self.rows(states, step)).to(self.model.device))

    def to(self, device: str | torch.device) -> LearnedQ:
        """Returns the same, computed on a device."""
        model = self.model.select(list(range(self.model.sizes.n_members)))
        return replace(self, model=model.to(device))


@storable
@dataclass(frozen=True, eq=False)
class MeanQ:
    """The mean of several Q-functions of the same heads and steps."""

    parts: tuple[LearnedQ, ...]

    takes_masks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Checks that the parts have the same heads, actions and numbers.

        Raises:
            DataError: if they have not.
        """
        kinds = {(len(p.taken), len(p.shown) - (p.clock > 0), p.n_heads) for p in self.parts}
        if len(kinds) != 1:
            raise DataError("MeanQ.parts must be of the same states, actions and heads.")

    @property
    def n_heads(self) -> int:
        """Number of heads, H."""
        return self.parts[0].n_heads

    @property
    def n_steps(self) -> int:
        """Number of steps that differ."""
        return max(part.n_steps for part in self.parts)

    def __call__(
        self, states: NDArray[Any], step: int = 0, available: BoolArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c) of the states `[N, ...]` at a step, each `[N, A, H]`."""
        return _means([part(states, step, available) for part in self.parts])

    @property
    def clock(self) -> int:
        """Steps that a part is shown, if any is."""
        return max(part.clock for part in self.parts)

    def look(
        self, states: NDArray[Any], step: int = 0, available: BoolArray | None = None
    ) -> tuple[Looked, ...]:
        """Looks at states at a step: without a clock, at all steps."""
        return tuple(part.look(states, step, available) for part in self.parts)

    def at(self, look: tuple[Looked, ...], step: int = 0) -> tuple[FloatArray, FloatArray]:
        """Returns (q_r, q_c) of states that were looked at, each `[N, A, H]`."""
        return _means([part.at(own, step) for part, own in zip(self.parts, look, strict=True)])

    def to(self, device: str | torch.device) -> MeanQ:
        """Returns the same, computed on a device."""
        return MeanQ(tuple(part.to(device) for part in self.parts))


def _means(found: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    """Mean values of several Q-functions."""
    q_r, q_c = (np.mean(each, axis=0) for each in zip(*found, strict=True))
    return q_r, q_c


def with_clock(states: FloatArray, steps: IntArray | int, clock: int) -> FloatArray:
    """States `[N, D]` with the step as one more number, from 0 to 1 at the last of the clock.

    >>> with_clock(np.array([[7.0], [8.0]]), np.array([0, 5]), 10).tolist()
    [[7.0, 0.0], [8.0, 0.5]]
    """
    share = np.minimum(np.broadcast_to(steps, len(states)), clock) / clock
    return np.column_stack((np.asarray(states, np.float64), share))


def placed(value: Any, device: str) -> Any:
    """Returns a policy, or a part of one, whose learned values are computed on a device."""
    if isinstance(value, LearnedQ | MeanQ):
        return value.to(device)
    if isinstance(value, tuple):
        return tuple(placed(part, device) for part in value)
    if not isinstance(value, Policy) or not is_dataclass(value):
        return value
    parts = {field.name: placed(getattr(value, field.name), device) for field in fields(value)}
    return replace(value, **parts)


def combined(values: Tensor, caution: float) -> Tensor:
    """Mean of an ensemble `[E, n, 2, A, H]`, less a caution in deviations: `[n, 2, A, H]`.

    It is the mean; with caution, rewards less and costs more by so many deviations over the
    ensemble. Below 0, what is unknown looks good.

    >>> values = torch.tensor([1.0, 3.0]).view(2, 1, 1, 1, 1).expand(-1, -1, 2, -1, -1)
    >>> combined(values, 0.5).flatten().tolist()
    [1.5, 2.5]
    """
    if len(values) == 1:
        return values[0]
    mean = values.mean(dim=0)
    if caution == 0:
        return mean
    squares = torch.zeros_like(mean)
    for own in values:
        squares += (own - mean).square_()
    signs = values.new_tensor([-caution, caution])[:, None, None]
    return mean + signs * squares.div_(len(values)).sqrt_()


def barred(values: Tensor, known: Tensor) -> Tensor:
    """Values `[n, 2, A, H]`; actions that are not known `[n, A]` earn nothing and cost all."""
    if bool(known.all()):
        return values
    worst = values.new_tensor([-torch.inf, torch.inf])[:, None, None]
    return torch.where(known[:, None, :, None], values, worst)


def weighed(values: Tensor, weights: Tensor | None) -> Tensor:
    """Values `[n, ...]`, each row multiplied by its weight, in the kind of values."""
    if weights is None:
        return values
    return values * weights.to(values.dtype).view(-1, *[1] * (values.ndim - 1))


def _mean(errors: Tensor, weights: Tensor | None) -> Tensor:
    """Mean of errors `[n]`, each as often as it weighs."""
    return errors.mean() if weights is None else (errors * weights).sum() / weights.sum()


def plus(found: Sum, more: Tensor) -> Tensor:
    """Sums so far, and more; the sums so far are overwritten."""
    return more if found is None else found.add_(more)


def unscaled(found: Sum, scale: float) -> Tensor:
    """Sums of multiples of 1 / scale as numbers, float64."""
    assert found is not None
    return found.double() / scale


def scale_of(bound: float, weight: float) -> float:
    """The power of two by which numbers become whole ones whose sums fit into 63 bits.

    Args:
        bound: the largest magnitude of a number.
        weight: how many of them are added up.

    >>> scale_of(1.0, 1000) == 2.0**52, scale_of(1000.0, 1e9) == 2.0**22
    (True, True)
    """
    _, exponent = math.frexp(max(bound, 1e-30) * max(weight, 1.0))
    return 2.0 ** min(62 - exponent, 900)


def whole(values: Tensor, scale: float) -> Tensor:
    """Numbers as multiples of 1 / scale, int64.

    >>> whole(torch.tensor([0.5, -0.26]), 4.0).tolist()
    [2, -1]
    """
    return (values.double() * scale).round_().long()


def cover(n_rows: int, size: int) -> Iterable[slice]:
    """Parts of rows of a size at most."""
    return (slice(first, first + size) for first in range(0, n_rows, size))
