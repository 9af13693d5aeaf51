"""Whole episodes of a log: in which order their rows are, and which are drawn to say it again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bmdp.arrays import IntArray
from bmdp.data import TransitionBatch
from bmdp.data.episodes import in_order
from bmdp.errors import DataError
from bmdp.randomness import named_generator


@dataclass(frozen=True, eq=False)
class LoggedEpisodes:
    """A batch of `N` episodes, and the order of their rows."""

    batch: TransitionBatch
    row: IntArray  # of the batch: one episode after the other, each by its steps
    first: IntArray  # [N], where in `row` each episode begins
    length: IntArray  # [N], steps

    def __len__(self) -> int:
        """Number of episodes."""
        return len(self.first)

    def at(self, step: int) -> tuple[IntArray, IntArray]:
        """Returns which episodes have a step, and its rows."""
        going = np.flatnonzero(self.length > step)
        return going, self.row[self.first[going] + step]

    def drawn(self, seed: int, repeat: int) -> IntArray:
        """Returns as many episodes as there are, with replacement; repeat 0 has each of them."""
        if repeat == 0:
            return np.arange(len(self))
        rng = named_generator(seed, f"evaluate-offline/bootstrap/{repeat}")
        return rng.integers(len(self), size=len(self))

    def sample(self, drawn: IntArray) -> TransitionBatch:
        """Returns the transitions of some episodes, which may repeat; they are numbered anew."""
        length = self.length[drawn]
        before = np.cumsum(length) - length
        within = np.arange(length.sum()) - np.repeat(before, length)
        rows = self.row[np.repeat(self.first[drawn], length) + within]
        columns = {name: values[rows] for name, values in self.batch.to_arrays().items()}
        columns["episode"] = np.repeat(np.arange(len(drawn)), length)
        return TransitionBatch(**columns, n_actions=self.batch.n_actions)


def logged_episodes(batch: TransitionBatch, *, needs_steps: bool) -> LoggedEpisodes:
    """Returns the episodes of a batch, as they first appear.

    Args:
        batch: one with episodes.
        needs_steps: whether it must have steps, too. Without them rows are in order as they come.

    Raises:
        DataError: if episodes or steps are unknown, or those of an episode are not 0, 1, 2, ...
    """
    if batch.episode is None or (needs_steps and batch.step is None):
        missing = "episode" if batch.episode is None else "step"
        raise DataError(f"evaluate_offline needs whole episodes: give {missing} of each row.")
    row = in_order(batch.episode, batch.step)
    numbers = batch.episode[row]
    first = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
    length = np.diff(np.append(first, len(row)))
    if batch.step is not None:
        wanted = np.arange(len(row)) - np.repeat(first, length)
        wrong = np.flatnonzero(batch.step[row] != wanted)
        if len(wrong):
            i = int(wrong[0])
            raise DataError(
                "evaluate_offline needs whole episodes, of steps 0, 1, 2, ...; episode "
                f"{numbers[i]} has step {batch.step[row[i]]} in place of {wanted[i]}, at "
                f"[{row[i]}]."
            )
    return LoggedEpisodes(batch, row, first, length)
