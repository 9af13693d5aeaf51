"""Grids of MO-Gymnasium with one reward and one cost, by their documented rules and maps.

They are written anew because MO-Gymnasium asks for pygame, which cannot be installed beside the
pygame-ce of highway-env. Where MO-Gymnasium is there, tests compare the two step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from bmdp.arrays import BoolArray, IntArray
from strangers.tables import Tables, from_simulator

Place: TypeAlias = tuple[int, ...]
"""Row, column, and what else a state has."""
Followed: TypeAlias = list[tuple[float, Place, float, float, bool]]
"""Outcomes: (chance, state, reward, cost, whether the episode ends)."""


class Grid(gymnasium.Env[Any, Any]):
    """A task on a grid: a state is shown as its numbers."""

    begin: ClassVar[Place]
    n_actions = 4

    @staticmethod
    def follow(place: Place, action: int) -> Followed:
        """Returns what may follow an action."""
        raise NotImplementedError

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.action_space, self.observation_space = spaces.Discrete(self.n_actions), space
        self._place = self.begin

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.int32], dict[str, Any]]:
        """Starts an episode, at cost 0."""
        super().reset(seed=seed)
        self._place = self.begin
        return np.array(self._place, np.int32), {"cost": 0.0}

    def step(self, action: int) -> tuple[NDArray[np.int32], float, bool, bool, dict[str, Any]]:
        """Plays one step."""
        outcomes = type(self).follow(self._place, int(action))
        chances = np.cumsum([outcome[0] for outcome in outcomes])
        drawn = int(np.searchsorted(chances, self.np_random.random(), side="right"))
        _, self._place, reward, cost, over = outcomes[min(drawn, len(outcomes) - 1)]
        return np.array(self._place, np.int32), reward, over, False, {"cost": cost}


# Deep-sea treasure.

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))  # up, down, left, right

# Column by column: the row of the treasure, and its worth (Yang et al., 2019).
TREASURES = (
    *((1, 0.7), (2, 8.2), (3, 11.5), (4, 14.0), (4, 15.1), (4, 16.1)),
    *((7, 19.6), (7, 20.3), (9, 22.4), (10, 23.7)),
)
SEA = 11  # rows and columns


def dive(place: Place, action: int) -> Followed:
    """One step of a submarine: it costs 1, and a treasure ends the episode."""
    row, column = (here + move for here, move in zip(place, MOVES[action], strict=True))
    bottom = TREASURES[column][0] if 0 <= column < len(TREASURES) else SEA - 1
    if not (0 <= row <= bottom and 0 <= column < SEA):
        row, column = place
    found = column < len(TREASURES) and row == TREASURES[column][0]
    worth = TREASURES[column][1] if found else 0.0
    return [(1.0, (row, column), worth, 1.0, found)]


class DeepSeaTreasure(Grid):
    """MO-Gymnasium's deep-sea-treasure-v0: a treasure is the reward, a step costs 1."""

    metadata: dict[str, Any] = {"gamma": 0.98}  # noqa: RUF012
    begin = (0, 0)
    follow = staticmethod(dive)

    def __init__(self) -> None:
        super().__init__(treasure_space())


def treasure_space() -> spaces.Box:
    """Row and column."""
    return spaces.Box(0, SEA, (2,), np.int32)


def treasure_tables() -> Tables:
    """Tables of `DeepSeaTreasure`."""
    return _grid_tables(DeepSeaTreasure, treasure_space())


def _grid_tables(grid: type[Grid], space: spaces.Space[Any]) -> Tables:
    starts: Sequence[Place] = [grid.begin]
    return from_simulator(
        grid.follow,
        starts,
        lambda place: np.array(place, np.int32),
        n_actions=grid.n_actions,
        gamma=grid.metadata["gamma"],
        space=space,
    )


# Resource gathering.

FIELD = 5  # rows and columns
HOME, GOLD, DIAMOND, ENEMIES = (4, 2), (0, 2), (1, 4), ((0, 3), (1, 2))
KILL = 0.1


def gather(place: Place, action: int) -> Followed:
    """One step of a gatherer, whose state is (row, column, has gold, has a diamond)."""
    row, column = (here + move for here, move in zip(place, MOVES[action], strict=False))
    if not (0 <= row < FIELD and 0 <= column < FIELD):
        row, column = place[:2]
    gold, diamond, here = place[2], place[3], (row, column)
    after = (row, column, int(gold or here == GOLD), int(diamond or here == DIAMOND))
    if here in ENEMIES:
        return [(KILL, after, 0.0, 1.0, True), (1 - KILL, after, 0.0, 0.0, False)]
    if here == HOME:
        return [(1.0, after, float(gold + diamond), 0.0, True)]
    return [(1.0, after, 0.0, 0.0, False)]


class ResourceGathering(Grid):
    """MO-Gymnasium's resource-gathering-v0: gold and diamond earn 1 each, being killed costs 1."""

    metadata: dict[str, Any] = {"gamma": 0.9}  # noqa: RUF012
    begin = (*HOME, 0, 0)
    follow = staticmethod(gather)

    def __init__(self) -> None:
        super().__init__(field_space())


def field_space() -> spaces.Box:
    """Row, column, and what is carried."""
    return spaces.Box(0, FIELD, (4,), np.int32)


def gathering_tables() -> Tables:
    """Tables of `ResourceGathering`."""
    return _grid_tables(ResourceGathering, field_space())


# Four rooms.

MAZE = (
    "1    2X     G",
    "      X      ",
    "      1      ",
    "             ",
    "      X      ",
    "2    3X      ",
    "XX3 XXXXX 1XX",
    "      X2    3",
    "      X      ",
    "             ",
    "      2      ",
    "      X      ",
    "_     X3    1",
)
ROOM_MOVES = ((0, -1), (-1, 0), (0, 1), (1, 0))  # left, up, right, down
RED = "3"
# Numbered column by column, as MO-Gymnasium does.
SHAPES = tuple(
    (row, column)
    for column in range(len(MAZE[0]))
    for row in range(len(MAZE))
    if MAZE[row][column] in "123"
)
GOAL = (0, 12)


def wander(place: Place, action: int) -> Followed:
    """One step in four rooms, whose state is (row, column, which shapes are taken)."""
    row, column = (here + move for here, move in zip(place, ROOM_MOVES[action], strict=False))
    here, taken = (row, column), place[2:]
    if not (0 <= row < len(MAZE) and 0 <= column < len(MAZE[0])) or MAZE[row][column] == "X":
        return [(1.0, place, 0.0, 0.0, False)]
    if here == GOAL:
        return [(1.0, (*here, *taken), 3.0, 0.0, True)]
    if here not in SHAPES or taken[SHAPES.index(here)]:
        return [(1.0, (*here, *taken), 0.0, 0.0, False)]
    shape = SHAPES.index(here)
    after = (*here, *taken[:shape], 1, *taken[shape + 1 :])
    return [(1.0, after, 1.0, float(MAZE[row][column] == RED), False)]


class FourRoom(Grid):
    """MO-Gymnasium's four-room-v0: shapes earn 1 and the goal 3, and each red shape costs 1."""

    metadata: dict[str, Any] = {"gamma": 0.98}  # noqa: RUF012
    begin = (12, 0, *(0 for _ in SHAPES))
    follow = staticmethod(wander)

    def __init__(self) -> None:
        super().__init__(rooms_space())


def rooms_space() -> spaces.Box:
    """Row, column, and which shapes are taken."""
    return spaces.Box(0, len(MAZE), (2 + len(SHAPES),), np.int32)


class RoomSteps(NamedTuple):
    """Steps from each of `C` cells, `[C, A]`; a state is (taken, cell), taken a number of bits."""

    cells: IntArray  # [C, 2], row and column
    following: IntArray  # [C, A], number of the next cell
    shape: IntArray  # [C, A], number of the shape there, -1 if there is none
    is_red: BoolArray  # [C, A], whether that is red
    is_goal: BoolArray  # [C, A], whether the step ends there


def room_steps() -> RoomSteps:
    """Returns the steps of four rooms, by the rules of `wander`."""
    cells = [
        (row, column)
        for row in range(len(MAZE))
        for column in range(len(MAZE[0]))
        if MAZE[row][column] != "X"
    ]
    nothing = (0,) * len(SHAPES)
    rows = []
    for cell in cells:
        for action in range(4):
            ((_, after, _, _, over),) = wander((*cell, *nothing), action)
            here = (after[0], after[1])
            moved = here != cell  # whoever stays takes nothing
            shape = SHAPES.index(here) if moved and here in SHAPES else -1
            is_red = shape >= 0 and MAZE[here[0]][here[1]] == RED
            rows.append((cells.index(here), shape, is_red, over))
    columns = [np.array(values).reshape(len(cells), 4) for values in zip(*rows, strict=True)]
    return RoomSteps(np.array(cells), *columns)


def rooms_tables() -> Tables:
    """Tables of `FourRoom`: state = taken * C + cell, for all 2^12 of `taken`."""
    steps, n_taken = room_steps(), 2 ** len(SHAPES)
    n_cells = len(steps.cells)
    taken = np.repeat(np.arange(n_taken), n_cells)
    cell = np.tile(np.arange(n_cells), n_taken)
    shape = steps.shape[cell]
    bit = np.where(shape >= 0, 1 << np.maximum(shape, 0), 0)
    is_new = (bit > 0) & (taken[:, None] & bit == 0)
    over = steps.is_goal[cell]
    bits = (taken[:, None] >> np.arange(len(SHAPES))) & 1
    start = (taken == 0) & (steps.cells[cell] == FourRoom.begin[:2]).all(axis=1)
    return Tables(
        n_actions=4,
        gamma=FourRoom.metadata["gamma"],
        start=start.astype(np.float64),
        observations=np.concatenate((steps.cells[cell], bits), axis=1).astype(np.int32),
        space=rooms_space(),
        row_start=np.arange(4 * len(cell) + 1),
        probability=np.ones(4 * len(cell)),
        next_state=((taken[:, None] | bit) * n_cells + steps.following[cell]).ravel(),
        reward=(3.0 * over + is_new).ravel(),
        cost=(steps.is_red[cell] & is_new).astype(np.float64).ravel(),
        over=over.ravel(),
    )
