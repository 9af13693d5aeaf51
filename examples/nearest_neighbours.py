"""Nearest neighbours: a regressor of one's own. See docs/extending.md."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bmdp.models import Averager, Problem, RowSet, Sizes, register_regressor


@register_regressor
@dataclass(frozen=True)
class NearestNeighbours:
    """Values are mean targets of the k nearest rows of an action."""

    k: int = 5

    def empty(self, sizes: Sizes) -> "NeighboursQ":
        """Returns models that are 0 everywhere."""
        return NeighboursQ(self, sizes)


class NeighboursQ(Averager):
    """Rows and their targets; at first a single row, whose targets are 0."""

    common = frozenset({"rows", "actions"})
    rows: Tensor  # [N, D]
    actions: Tensor  # [N]
    is_own: Tensor  # [E, S, N], rows that a model was fitted to
    targets: Tensor  # [E, S, N, 2, H]

    def __init__(self, settings: NearestNeighbours, sizes: Sizes) -> None:
        super().__init__(settings, sizes)
        self._take(torch.zeros((1, sizes.n_numbers)).double(), torch.zeros(1).long())

    def _take(self, rows: Tensor, actions: Tensor) -> None:
        shape = (*self.sizes[:2], len(rows))
        self.register_buffer("rows", rows)
        self.register_buffer("actions", actions)
        self.register_buffer("is_own", torch.ones(shape).bool())
        self.register_buffer("targets", torch.zeros((*shape, 2, len(self.sizes.heads))))

    def build(self, problem: Problem) -> None:
        """Takes the rows."""
        self._take(torch.tensor(problem.states), torch.tensor(problem.actions))

    def fit_members(self, step: int, rows: RowSet, values: Tensor) -> None:
        """Takes the values `[n, 2, H]` of each member's own rows."""
        self.is_own[:, step] = False
        for member in range(self.sizes.n_members):
            places = self.places(member, rows)
            self.is_own[member, step, self.positions(rows)[places]] = True
            self.targets[member, step, self.positions(rows)[places]] = values[places]

    def read_member(self, member: int, embedded: Tensor, step: int) -> Tensor:
        """Values of one member at states, `[n, 2, A, H]`."""
        found, is_own, targets = [], self.is_own[member, step], self.targets[member, step]
        for action in range(self.sizes.n_actions):
            own = is_own & (self.actions == action)
            own = own if own.any() else is_own
            gaps = torch.cdist(embedded, self.rows[own], 2, "donot_use_mm_for_euclid_dist")
            last = gaps.kthvalue(min(self.settings.k, gaps.shape[1]), dim=1, keepdim=True).values
            weights = (gaps <= last).float()  # of more than k, if some are equally far
            found.append(torch.tensordot(weights / weights.sum(1, keepdim=True), targets[own], 1))
        return torch.stack(found, dim=2)
