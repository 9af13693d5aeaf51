"""Support: which actions a log knows at a state, and how often it takes them there.

What a log never did is not known, whatever a regressor makes of it. States are put into groups that
cannot be told apart by what was done in them: the cells of a table where states are few, else the
leaves of trees that are grown to forecast the logged action. An action is *supported* at a state if
enough different episodes took it in the group of the state, or a third as many as took the most
frequent one. So where all are rare, as anywhere in a small log of random actions, all are known
alike; where the log nearly always does the same, others must have been tried often enough.

Groups are so large that a log which takes all actions alike has twice as many rows of each as are
needed, or ten of each. Trees split where behaviour changes, so that a risk which is taken only
where it is free is not known anywhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from bmdp.arrays import BoolArray, FloatArray, IntArray, require_finite, require_shape
from bmdp.errors import DataError
from bmdp.kinds import checked
from bmdp.models.forest import ForestModel, ForestQ
from bmdp.models.regressor import CHUNK, Problem, QModel, RowSet, Sizes, cover
from bmdp.models.table import TableModel, TableQ
from bmdp.storage import storable

_TREES = 20
_RATIO = 1 / 3  # of the episodes that took the most frequent action: the ratio of discrete BCQ
_ROOM, _LEAST = 2, 5  # times the rows of an action that are needed, which are so many at least


@checked
@storable
@dataclass(frozen=True, eq=False)
class Support:
    """Actions that a log knows.

    >>> risky = np.array([[0.0], [0.0], [1.0], [1.0]])
    >>> few = Support.of(risky, np.array([0, 1, 0, 0]), np.arange(4), 2, least=1, is_table=True)
    >>> few.known(np.array([[0.0], [1.0]])).tolist()
    [[True, True], [True, False]]
    >>> few.probabilities(np.array([[0.0], [1.0]])).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """

    model: QModel  # groups of states, and shares of actions in them
    counts: FloatArray  # [G, A], different episodes that took an action in a group
    least: float  # episodes that make an action known

    def __post_init__(self) -> None:
        """Checks that there are counts of each group.

        Raises:
            DataError: if there are not, or they are none.
        """
        model = self.model
        if not isinstance(model, TableQ | ForestQ) or model.sizes[:3] != (1, 1, 1):
            raise DataError("Support.model must be one table, or one forest, of one action.")
        n_groups = model.n_cells if isinstance(model, TableQ) else model.values.shape[2]
        require_shape("Support.counts", self.counts, (None, len(model.sizes.heads)), "[G, A]")
        require_finite("Support.counts", self.counts)
        if len(self.counts) < n_groups or (self.counts < 0).any():
            raise DataError(f"Support.counts must be from 0 on, of {n_groups} groups at least.")
        if not 0 <= self.least < np.inf:
            raise DataError(f"Support.least must be from 0 on and finite; got {self.least}.")

    def fits(self, n_numbers: int, n_actions: int) -> bool:
        """Whether it is of states of so many numbers, and of so many actions."""
        return (self.model.sizes.n_numbers, self.counts.shape[1]) == (n_numbers, n_actions)

    @classmethod
    def of(  # noqa: PLR0913
        cls,
        states: FloatArray,
        actions: IntArray,
        episodes: IntArray,
        n_actions: int,
        *,
        least: float,
        is_table: bool,
        seed: int = 0,
        also: FloatArray | None = None,
    ) -> Support:
        """Returns what a log supports.

        Args:
            states: `[N, D]`, as models see them.
            actions: `[N]`, that were taken.
            episodes: `[N]`, their numbers.
            n_actions: A.
            least: episodes that make an action known.
            is_table: whether states are few.
            seed: of the trees.
            also: `[N, K]`, other numbers that trees are to forecast.
        """
        states = np.array(states, np.float64)
        leaf = int(np.ceil(_ROOM * max(least, _LEAST) * n_actions))
        settings = TableModel() if is_table else ForestModel(_TREES, leaf)
        heads = tuple(map(float, range(n_actions)))
        sizes = Sizes(1, 1, 1, states.shape[1], heads)
        n = len(states)
        taken = np.zeros((n, n_actions))
        taken[np.arange(n), actions] = 1.0
        model = settings.empty(sizes)
        everything = np.ones((1, n), np.bool_)
        others = () if also is None else (also,)
        outcomes = np.column_stack((np.zeros((n, 3)), taken, *others))
        nothing = np.zeros(n, np.int64)
        model.prepare(Problem(states, nothing, everything, outcomes, sizes, seed))
        targets = torch.from_numpy(np.stack((taken, taken), axis=2)).float()  # [N, A, 2]
        model.fit(0, RowSet("all", np.arange(n)), model.labels(0, model.device), targets, "support")
        counts = _episodes(_groups(model, states), actions, episodes, n_actions)
        return cls(model.select([0]), counts, float(least))

    def groups(self, states: FloatArray) -> IntArray:
        """Groups of states `[n, D]` in each of T trees, `[n, T]`, or in the table."""
        return _groups(self.model, states)

    def episodes(self, states: FloatArray) -> FloatArray:
        """Numbers of episodes that took each action in the groups of states `[n, D]`, `[n, A]`.

        Of several trees it is the lower quartile: one of them may split far from where behaviour
        changes.
        """
        counts = self.counts[self.groups(states)]  # [n, T, A]
        found: FloatArray = np.sort(counts, axis=1)[:, counts.shape[1] // 4]
        return found

    def known(self, states: FloatArray, available: BoolArray | None = None) -> BoolArray:
        """Which actions may be played at states `[n, D]`, of those that are available `[n, A]`."""
        found = self.episodes(states)
        return self._enough(found if available is None else np.where(available, found, 0.0))

    def known_cells(self, table: TableQ) -> BoolArray | None:
        """The same for all cells of a table, `[C, A]`; None if groups are not its cells."""
        if not isinstance(self.model, TableQ) or not torch.equal(self.model.cells, table.cells):
            return None
        return self._enough(self.counts[: table.n_cells])

    def _enough(self, found: FloatArray) -> BoolArray:
        """Where numbers of episodes `[n, A]` make an action known."""
        most = found.max(axis=1, keepdims=True)
        enough: BoolArray = found >= np.minimum(self.least, _RATIO * most)
        return enough

    def probabilities(self, states: FloatArray) -> FloatArray:
        """Probabilities with which the log takes actions at states `[n, D]`, `[n, A]`."""
        with torch.no_grad():
            values = self.model(torch.from_numpy(np.array(states, np.float64)))
        found: FloatArray = values[0, :, 0, 0].double().numpy()
        return found


def _groups(model: QModel, states: FloatArray) -> IntArray:
    """Groups of states in each of T trees, `[n, T]`, or in the table."""
    rows = np.array(states, np.float64, order="C")
    if isinstance(model, TableQ):
        return model.cell_numbers(rows)[:, None]
    leaves = model.leaf_rows(rows) if isinstance(model, ForestQ) else None
    if leaves is not None:
        return leaves[:, 0]
    parts = [
        model.embed(torch.from_numpy(rows[part]))[:, None].flatten(1).numpy()
        for part in cover(max(1, len(rows)), CHUNK)
    ]
    found: IntArray = np.concatenate(parts)
    return found


def _episodes(
    groups: IntArray, actions: IntArray, episodes: IntArray, n_actions: int
) -> FloatArray:
    """Different episodes that took each action in each group, `[G, A]`."""
    _, episode = np.unique(episodes, return_inverse=True)
    n_groups, n_episodes = int(groups.max()) + 2, int(episode.max()) + 1
    found = np.zeros(n_groups * n_actions)
    for group in groups.T:
        pairs = np.unique((group.astype(np.int64) * n_actions + actions) * n_episodes + episode)
        found += np.bincount(pairs // n_episodes, minlength=len(found))
    return found.reshape(n_groups, n_actions)


def calibration_error(probabilities: FloatArray, actions: IntArray, n_bins: int = 10) -> float:
    """Returns how far shares of actions are from the probabilities they were forecast with.

    All forecasts `[N, A]` are put into bins by their probability. The expected calibration error is
    the mean over forecasts of the difference between the mean probability of their bin and the
    share of it that came true.

    >>> calibration_error(np.array([[0.5, 0.5], [0.5, 0.5]]), np.array([0, 1]))
    0.0
    >>> calibration_error(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1]))
    0.5
    """
    came_true = (actions[:, None] == np.arange(probabilities.shape[1])).ravel()
    told = probabilities.ravel()
    bins = np.minimum((told * n_bins).astype(np.int64), n_bins - 1)
    off = np.bincount(bins, told - came_true, minlength=n_bins)
    return float(np.abs(off).sum() / len(told))
