"""Regression with a Gaussian kernel: smooth, in closed form, and as smooth as the data ask for.

Every action has a function of its own: a mean plus bumps around *centres*, states of the data that
are far from each other,

    q(s) = m + sum over c of w_c exp(-|s - c|^2 / (2 l^2)),

whose weights make the squared errors plus `ridge` times w' K w least, K being the bumps of centres
at each other. It is the mean of a Gaussian process that is told of the data at the centres alone.
The length l (the bandwidth) and the ridge are those whose *leave-one-out* error is least: what each
row would be given by the others, which needs no second fit.

Bumps of near centres are nearly the same. They are therefore turned into *directions*: combinations
that are orthogonal in the sense of the kernel, and on the rows. In these a ridge is a division, and
the leave-one-out error of every ridge follows from one decomposition.

A value is a weighted sum of the targets nearby, with the same weights for all heads. So the errors
of all heads are alike, and a frontier cannot pick the luckiest of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bmdp.arrays import FloatArray
from bmdp.checks import require_count
from bmdp.errors import ConfigError, StoreError
from bmdp.kinds import checked
from bmdp.models.regressor import (
    Averager,
    Part,
    Problem,
    RowSet,
    Scaling,
    Sizes,
    Sum,
    cover,
    plus,
    register_regressor,
    weighed,
    whole,
)

_BUMPS, _GPU_BUMPS = 2**20, 2**22  # bumps that are held at a time; on a CPU, in its cache
_FEW = 64  # states at which all members are computed at once
_N_JUDGED = 8192  # rows by which the length and the ridge are chosen, at most
_FARTHEST = -80.0  # exponent of a bump: smaller numbers are slow, as they are not normal
_SHORTEST = 1e-150  # length of a bump, of which one over the square is a number
_LEAST = 1e-7  # directions of bumps that are told apart, next to the largest


@checked
@register_regressor
@dataclass(frozen=True)
class KernelModel:
    """Regression with a Gaussian kernel.

    Distances grow with the root of the number of numbers of a state, and so does the longest
    length; the shortest does not, as few of the numbers may matter.

    Args:
        centres: of bumps, for each action, at most.
        lengths: of bumps, to choose from, rising, in deviations of the numbers of a state, for two
            of them.
        ridges: to choose from.

    >>> from bmdp import BFTQ, BFTQConfig, TransitionBatch
    >>> log = TransitionBatch([0, 0], [0, 1], [0, 10], [0, 1], [0, 0], [True, True])
    >>> config = BFTQConfig(gamma=0.9, model=KernelModel(), ensemble=1)
    >>> frontier = BFTQ(config).fit(log, seed=0).frontier([0])
    >>> frontier.costs.round(6).tolist(), frontier.rewards.round(6).tolist()
    ([0.0, 1.0], [0.0, 10.0])
    """

    centres: int = 300
    lengths: tuple[float, ...] = (0.2, 0.35, 0.6, 1.0, 2.0, 4.0)
    ridges: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)

    def __post_init__(self) -> None:
        require_count("centres", self.centres, 1)
        for name in ("lengths", "ridges"):
            given = getattr(self, name)
            values = tuple(given) if isinstance(given, list | tuple) else (np.nan,)
            if not values or not all(0 < value < np.inf for value in values):
                raise ConfigError(f"{name} must be numbers above 0; got {given}.")
            object.__setattr__(self, name, values)

    def empty(self, sizes: Sizes) -> KernelQ:
        """Returns models that are 0 everywhere."""
        return KernelQ(self, sizes)


class KernelQ(Averager):
    """Sums of bumps.

    Weights are in single precision: it is in products with them that time is spent.
    """

    common = frozenset({"centre", "scale", "group"})
    constant = frozenset({"centres"})
    weighs_rows = True

    settings: KernelModel
    centre: Tensor  # [D], of states
    scale: Tensor  # [D], of states
    group: Tensor  # [S], which centres a step has
    centres: Tensor  # [E, groups, A, C, D], of scaled states
    lengths: Tensor  # [E, S, A]
    weights: Tensor  # [E, S, A, C, 2, H], float32
    means: Tensor  # [E, S, A, 2, H]

    def __init__(self, settings: KernelModel, sizes: Sizes) -> None:
        """Makes models that are 0 everywhere."""
        super().__init__(settings, sizes)
        for name, value in {"centre": 0.0, "scale": 1.0}.items():
            self.register_buffer(name, torch.full((sizes.n_numbers,), value, dtype=torch.float64))
        self.register_buffer("group", torch.zeros(sizes.n_steps, dtype=torch.int64))
        shape = (sizes.n_members, 1, sizes.n_actions, 1, sizes.n_numbers)
        self._set_centres(torch.zeros(shape, dtype=torch.float64))

    def _set_centres(self, centres: Tensor) -> None:
        """Takes centres, and forgets what was fitted."""
        n_members, n_steps, n_actions, _, heads = self.sizes
        values = (2, len(heads))
        shape = (n_members, n_steps, n_actions)
        weights = torch.zeros((*shape, centres.shape[3], *values), device=centres.device)
        self.register_buffer("centres", centres)
        self.register_buffer("lengths", centres.new_ones(shape))
        self.register_buffer("weights", weights)
        self.register_buffer("means", centres.new_zeros((*shape, *values)))

    def build(self, problem: Problem) -> None:
        """Chooses centres that are far apart, for each member and action."""
        by, device = Scaling.of(problem.states, problem.weights), self.centre.device
        self.centre[:], self.scale[:] = torch.from_numpy(by.centre), torch.from_numpy(by.scale)
        rows = (problem.states - by.centre) / by.scale
        groups = np.zeros(len(rows)) if problem.is_last is None else problem.is_last
        n_groups = 1 if problem.is_last is None else 2  # a last step of its own has its own centres
        self.group[-1] = n_groups - 1
        shape, found = (len(problem.members), n_groups, self.sizes.n_actions), {}
        for e, g, a in np.ndindex(shape):
            own = rows[problem.members[e] & (groups == g) & (problem.actions == a)]
            if len(own):
                rng = problem.generator(f"centres/{e}/{a}" if g == 0 else f"centres/{g}/{e}/{a}")
                found[e, g, a] = far_apart(own, self.settings.centres, rng)
        self._n_centres = {place: len(own) for place, own in found.items()}
        centres = np.zeros((*shape, max(self._n_centres.values()), self.sizes.n_numbers))
        for place, own in found.items():
            centres[place][: len(own)] = own
        self._set_centres(torch.from_numpy(centres).to(device))
        squares = np.average(np.square(rows), axis=0, weights=problem.weights)  # 1, or about 0
        n_varying = np.count_nonzero(squares > 0.25)  # others have no part in distances
        stretch = max(1.0, (n_varying / 2) ** 0.5)
        shares = np.linspace(0, 1, len(self.settings.lengths))
        shares[-1] = 1  # a single one is the longest
        self._lengths = tuple((np.array(self.settings.lengths) * stretch**shares).tolist())
        self._ridges = np.ones((len(problem.members), self.sizes.n_actions))
        self._bases: dict[tuple[str, int, int], Basis] = {}
        self._turned: dict[int, tuple[Tensor, float, Directions]] = {}
        self._generator = problem.generator

    def embed(self, states: Tensor) -> Tensor:
        """Scaled states."""
        return (states - self.centre) / self.scale

    def packed(self, embedded: Tensor) -> Tensor:
        """Scaled states in single precision."""
        return embedded.float()

    def unpacked(self, kept: Tensor) -> Tensor:
        """Scaled states in double precision."""
        return kept.double()

    def choose(self, step: int, rows: RowSet, values: Tensor) -> None:
        """Chooses a length and a ridge for each member and action, by the rows of a set."""
        for member, action in np.ndindex(self.sizes.n_members, self.sizes.n_actions):
            own = self._own_places(member, action, rows)
            if len(own):
                basis = self._basis(rows, member, step, action)
                length, ridge = basis.smoothness(values[own].double())
                self.lengths[member, step, action], self._ridges[member, action] = length, ridge

    def gram_key(self, step: int, member: int) -> tuple[Any, ...]:
        """Centres and lengths of all actions."""
        return int(self.group[step]), *self.lengths[member, step].tolist()

    def grams(self, found: Sum, step: int, member: int, part: Part, scale: float) -> Tensor:
        """Products of a constant and bumps with each other for each action, `[A, 1 + C, 1 + C]`."""
        each = [
            grams(
                self._bumps(step, member, action, part.rows[own]),
                None if part.weights is None else part.weights[own],
            )
            for action, own in self._by_action(part)
        ]
        return plus(found, whole(torch.stack(each), scale))

    def moments(
        self, found: Sum, step: int, member: int, part: Part, values: Tensor, scale: float
    ) -> Tensor:
        """Products of a constant and bumps with targets for each action, `[A, 1 + C, 2 * H]`."""
        targets = weighed(values.double(), part.weights)
        each = [
            moments(self._bumps(step, member, action, part.rows[own]), targets[own])
            for action, own in self._by_action(part)
        ]
        return plus(found, whole(torch.stack(each), scale))

    def _by_action(self, part: Part) -> list[tuple[int, Tensor]]:
        """Actions, and which rows of a part are theirs."""
        return [(a, torch.nonzero(part.actions == a)[:, 0]) for a in range(self.sizes.n_actions)]

    def _bumps(self, step: int, member: int, action: int, rows: Tensor) -> Tensor:
        """Bumps around all centres of a member and action at rows, `[n, C]`."""
        centres = self.centres[member, self.group[step], action]
        return bumps(rows, centres, float(self.lengths[member, step, action]))

    def solve(self, step: int, sums: list[tuple[Tensor, Tensor]]) -> None:
        """Solves for each member and action; an action without rows has the mean of all."""
        for member, (grams_of, moments_of) in enumerate(sums):
            shape = self.means.shape[3:]
            everywhere = moments_of[:, 0].sum(0) / grams_of[:, 0, 0].sum()
            self.weights[member, step] = 0
            for action, (gram, moment) in enumerate(zip(grams_of, moments_of, strict=True)):
                place, mean = (member, int(self.group[step]), action), everywhere
                n = 1 + self._n_centres.get(place, 0)
                if gram[0, 0] > 0 and n > 1:
                    mean = moment[0] / gram[0, 0]
                    weights = self._weights_of(step, place, gram[:n, :n], moment[:n], mean)
                    self.weights[member, step, action][: n - 1] = weights.view(-1, *shape).float()
                self.means[member, step, action] = mean.view(shape)

    def _weights_of(
        self, step: int, place: tuple[int, int, int], gram: Tensor, moment: Tensor, mean: Tensor
    ) -> Tensor:
        """Weights of bumps `[C, 2 * H]`, given products with a constant and bumps."""
        member, _, action = place
        length, key = float(self.lengths[member, step, action]), gram.data_ptr()
        if key not in self._turned or self._turned[key][1] != length:
            turned = directions(gram[1:, 1:], self.centres[place][: len(gram) - 1], length)
            self._turned[key] = gram, length, turned  # who holds it, holds its place in memory
        root, sizes = self._turned[key][2]
        left = moment[1:] - gram[1:, :1] * mean  # moments of targets without their mean
        weights: Tensor = root @ (root.T @ left / (sizes + self._ridges[member, action])[:, None])
        return weights

    def _own_places(self, member: int, action: int, rows: RowSet) -> Tensor:
        """Where in a set the rows of a member and an action are."""
        key = rows.name, member * self.sizes.n_actions + action + self.sizes.n_members
        if key not in self._own:
            places = self.places(member, rows)
            self._own[key] = places[self._actions[self.positions(rows)[places]] == action]
        return self._own[key]

    def _basis(self, rows: RowSet, member: int, step: int, action: int) -> Basis:
        """Bumps at the rows of one member and action, which are the same at every fit."""
        key = rows.name, member, action
        if key not in self._bases:
            own = self._own_places(member, action, rows)
            place = member, int(self.group[step]), action
            positions = self.positions(rows)[own]
            self._bases[key] = Basis(
                self._rows[positions],
                None if self._weights is None else self._weights[positions],
                self.centres[place][: self._n_centres[place]],
                self._lengths,
                self.settings.ridges,
                self._generator(f"judged/{rows.name}/{member}/{action}"),
            )
        return self._bases[key]

    def check(self) -> None:
        """Checks that there are centres for each step, and weights for each centre.

        Raises:
            StoreError: if not.
        """
        n_members, n_steps, n_actions, n_numbers, heads = self.sizes
        n_groups, n_centres = ((*self.centres.shape, 0, 0)[at] for at in (1, 3))
        if self.centres.ndim != 5 or n_centres < 1:
            raise StoreError("KernelQ.centres must have shape [E, groups, A, C, D].")
        shape, values = (n_members, n_steps, n_actions), (2, len(heads))
        self.require_scaling()
        self.require("group", (n_steps,), 0, n_groups - 1)
        self.require("centres", (n_members, n_groups, n_actions, n_centres, n_numbers))
        self.require("lengths", shape, _SHORTEST)
        self.require("weights", (*shape, n_centres, *values))
        self.require("means", (*shape, *values))

    def read(self, embedded: Tensor, step: int, members: slice = slice(None)) -> Tensor:
        """Values of some members at embedded states: `[E, n, 2, A, H]`.

        At few states all members are computed at once; at many, one at a time stays in the cache.
        """
        if len(embedded) > _FEW:
            return super().read(embedded, step, members)
        return self._sums(embedded, step, members, slice(None))

    def read_member(self, member: int, embedded: Tensor, step: int) -> Tensor:
        """Values of one model, `[n, 2, A, H]`."""
        return self._sums(embedded, step, slice(member, member + 1), slice(None))[0]

    def read_own(self, member: int, rows: Tensor, actions: Tensor, step: int) -> Tensor:
        """Values of one model for the action of each row, `[n, 2, H]`."""
        values = self.weights.new_empty((len(rows), 2, len(self.sizes.heads)))
        one = slice(member, member + 1)
        for action in range(self.sizes.n_actions):
            own = actions == action
            found = self._sums(rows[own], step, one, slice(action, action + 1))
            values[own] = found[0, :, :, 0]
        return values

    def _sums(self, embedded: Tensor, step: int, members: slice, actions: slice) -> Tensor:
        """Sums of bumps of some members and actions at rows, `[E, n, 2, A, H]`."""
        weights = self.weights[members, step, actions]
        n_members, n_actions, n_centres, _, n_heads = weights.shape
        n_sums = n_members * n_actions
        centres = self.centres[members, self.group[step], actions].flatten(0, 2)
        lengths = self.lengths[members, step, actions].flatten().repeat_interleave(n_centres)
        means = self.means[members, step, actions].transpose(1, 2).to(weights.dtype)
        flat = weights.reshape(n_sums, n_centres, 2 * n_heads)
        values = weights.new_empty((n_members, len(embedded), 2, n_actions, n_heads))
        most = _GPU_BUMPS if embedded.is_cuda else _BUMPS
        for part in cover(len(embedded), max(1, most // (n_sums * (n_centres + 2 * n_heads)))):
            near = bumps(embedded[part], centres, lengths, flat.dtype)
            sums = torch.bmm(near.view(-1, n_sums, n_centres).transpose(0, 1), flat)
            each = sums.view(n_members, n_actions, -1, 2, n_heads)
            values[:, part] = each.permute(0, 2, 3, 1, 4)
        values += means[:, None]
        return values


class Directions(NamedTuple):
    """Combinations of bumps that are orthogonal, on some rows and in the sense of the kernel."""

    root: Tensor  # [C, M], combinations
    sizes: Tensor  # [M], sums of their squares on the rows


class Judge(NamedTuple):
    """From it the leave-one-out errors of one length follow, in single precision."""

    features: Tensor  # [n, M], directions at the rows
    shrunk: Tensor  # [R, M], what a ridge leaves of a direction, over its size
    left: Tensor  # [R, n], what others have in the value of a row


class Basis:
    """Rows that judge lengths and ridges, by bumps in directions that are orthogonal."""

    def __init__(
        self,
        rows: Tensor,
        weights: Tensor | None,
        centres: Tensor,
        lengths: tuple[float, ...],
        ridges: tuple[float, ...],
        rng: np.random.Generator,
    ) -> None:
        """Chooses the rows that judge smoothness: all of them, unless there are many.

        Args:
            rows: `[n, D]`.
            weights: `[n]`, how much a row counts; None for all alike.
            centres: `[C, D]`.
            lengths: to choose from.
            ridges: to choose from.
            rng: of the rows that judge.
        """
        self.rows, self.weights, self.centres = rows, weights, centres
        self._lengths, self._ridges = lengths, rows.new_tensor(ridges)
        judged = np.sort(rng.permutation(len(rows))[:_N_JUDGED])
        self._judged = torch.from_numpy(judged).to(rows.device)
        self._judges: list[Judge] = []

    def smoothness(self, targets: Tensor) -> tuple[float, float]:
        """The length and the ridge of the least leave-one-out error, on some rows and heads."""
        n_heads = targets.shape[2]
        heads = [0, n_heads // 2, n_heads - 1]
        columns = targets[self._judged][:, :, heads].flatten(1)
        weights = None if self.weights is None else self.weights[self._judged, None]
        columns = columns - _column_mean(columns, weights)
        deviation = _column_mean(columns.square(), weights).sqrt()
        varies = deviation > 1e-6 * targets.abs().max()
        columns = (columns / torch.where(varies, deviation, torch.inf)).float()
        weighing = columns.new_ones((len(columns), 1)) if weights is None else weights.float()
        errors = []
        for judge in self._judges or self._make_judges():
            moment = judge.features.T @ (weighing * columns)  # [M, K]
            found = judge.features @ (judge.shrunk[:, :, None] * moment)  # [R, n, K]
            misses = (columns - found) / judge.left[:, :, None]
            errors.append((weighing * misses.square()).sum((1, 2)))
        best = int(torch.stack(errors).argmin())
        n_ridges = len(self._ridges)
        return self._lengths[best // n_ridges], float(self._ridges[best % n_ridges])

    def _make_judges(self) -> list[Judge]:
        """One for each length."""
        rows = self.rows[self._judged]
        for length in self._lengths:
            near = bumps(rows, self.centres, length)
            weighed = near if self.weights is None else near * self.weights[self._judged, None]
            root, sizes = directions(weighed.T @ near, self.centres, length)
            features = near @ root
            shrunk = 1 / (sizes + self._ridges[:, None])
            left = 1 - (shrunk @ features.square().T).clip(max=0.99)
            self._judges.append(Judge(features.float(), shrunk.float(), left.float()))
        return self._judges


def grams(near: Tensor, weights: Tensor | None = None) -> Tensor:
    """Products of a constant and bumps `[n, C]` with each other, summed over weighted rows."""
    weighed = near if weights is None else near * weights[:, None]
    each, both = weighed.sum(0), weighed.T @ near
    count = near.new_full((1,), len(near)) if weights is None else weights.sum()[None]
    top = torch.cat((count, each))[None]
    return torch.cat((top, torch.cat((each[:, None], both), dim=1)))


def moments(near: Tensor, targets: Tensor) -> Tensor:
    """Products of a constant and bumps with targets `[n, 2, H]`, summed: `[1 + C, 2 * H]`."""
    columns = targets.flatten(1)
    return torch.cat((columns.sum(0)[None], near.T @ columns))


def directions(gram: Tensor, centres: Tensor, length: float) -> Directions:
    """Turns bumps into directions, given their products `[C, C]` on the rows."""
    own, turn = _eigh(bumps(centres, centres, length))
    kept = own > _LEAST * own[-1]
    root = turn[:, kept] / own[kept].sqrt()
    sizes, turn = _eigh(root.T @ gram @ root)
    return Directions(root @ turn, sizes.clip(0))


def bumps(
    rows: Tensor, centres: Tensor, lengths: float | Tensor, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Kernel of rows `[n, D]` and centres `[C, D]`: `[n, C]`, from 0 (far) to 1 (equal).

    Lengths are one, or one for each centre, `[C]`.

    >>> rows = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    >>> bumps(rows, rows[:1], 1.0).numpy().round(3).tolist()
    [[1.0], [0.135]]
    """
    squares = torch.addmm(centres.square().sum(1), rows, centres.T, alpha=-2)
    squares += rows.square().sum(1)[:, None]
    squares *= -0.5 / lengths**2
    return squares.to(dtype).clamp_(_FARTHEST, 0).exp_()


def far_apart(rows: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    """Returns at most n different rows, each as far as can be from those before it.

    >>> far_apart(np.array([[0.0], [0.0], [1.0], [5.0]]), 3, np.random.default_rng(0)).T.tolist()
    [[5.0, 0.0, 1.0]]
    """
    chosen = [int(rng.integers(len(rows)))]
    distance = np.square(rows - rows[chosen[0]]).sum(axis=1)
    while len(chosen) < n and distance.max() > 0:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.square(rows - rows[chosen[-1]]).sum(axis=1))
    return rows[chosen]


def _column_mean(columns: Tensor, weights: Tensor | None) -> Tensor:
    """Means of columns `[n, K]`, rows weighing `[n, 1]`."""
    return columns.mean(0) if weights is None else (weights * columns).sum(0) / weights.sum()


def _eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, rising, and vectors; by the CPU, which is faster at matrices of this size."""
    sizes, vectors = torch.linalg.eigh(matrix.cpu())
    return sizes.to(matrix.device), vectors.to(matrix.device)
