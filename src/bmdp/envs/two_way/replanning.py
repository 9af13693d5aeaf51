"""A driver without foresight: it sees what `features="full"` shows, and plans anew every second.

It knows the rules of the road and how cars are placed on average, but not where those are that it
does not see, nor how fast others want to drive. At every decision it makes a picture of the road:

- a car that is seen is where it is seen, in the middle of its lane; it wants the highest speed at
  which it was seen;
- a car that is not seen any more goes on as the rules say;
- a car that was never seen is where it would be by its mean start, but not within sight.

From there it searches for the best drive at a price on cost, over the decisions that are left, and
plays the first action. It does not weigh what else might be: the plan takes the picture for true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.checks import require_count, require_from_0
from bmdp.envs.episodes import play_episodes
from bmdp.envs.slots import TaskSlots
from bmdp.envs.tasks import rows_of
from bmdp.envs.two_way.observations import N_AHEAD, N_BEHIND, N_NEAREST, N_ONCOMING, N_OWN, SIGHT
from bmdp.envs.two_way.physics import (
    CAR_LENGTH,
    CRASHED,
    HEADING,
    LANE,
    LEFT,
    N_COLUMNS,
    OWN,
    PRESENT,
    PUSH_X,
    PUSH_Y,
    SLOWER,
    SPEED,
    TARGET_LANE,
    TARGET_SPEED,
    RoadState,
    X,
    Y,
    closest_lane,
)
from bmdp.envs.two_way.reference import STREAM, MeasuredCurve, best_drives
from bmdp.envs.two_way.task import HORIZON, TwoWay
from bmdp.errors import ConfigError, DataError, PolicyError
from bmdp.policies.policy import (
    Decisions,
    EpisodeTracker,
    Policy,
    Randomness,
    episode_streams,
    idle_decisions,
)
from bmdp.policies.state import LARGEST, StateReader, plain_numbers
from bmdp.randomness import EpisodeStreams
from bmdp.storage import restores

PRICES = (0.0, 1.0, 2.0, 2.8, 3.2, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0, 1000.0)
"""Of cost, for which a curve is measured. 3 is the price at which the oncoming lane pays."""

_KIND = "ReplanningDriver"
_CHUNK = 100  # roads searched together
_FAR = 1e6  # m, to a car that may not be there
_PICTURE = "cars", "speed_index", "time", "was_seen"  # in the state of a tracker
_SIGNS = np.repeat([1, -1, 1], [N_AHEAD, N_BEHIND, N_ONCOMING])
_SPACING = 3 * CAR_LENGTH  # m, at least, between cars that were never seen


@dataclass(frozen=True)
class ReplanningDriver(Policy):
    """Plans anew every second for the best reward - price x cost. Budgets have no effect.

    Args:
        price: of a unit of cost, in reward, from 0 on. A large one, 1,000, is for least cost.
        width: of the beam of its search.
        task: the road, with `features="full"`. Its settings are known to the driver.

    Raises:
        ConfigError: if a setting is out of its range, or the road shows something else.

    >>> import bmdp, gymnasium
    >>> road = gymnasium.make("bmdp/TwoWay-v0", features="full").spec
    >>> driver = ReplanningDriver(20.0, width=1)
    >>> found = bmdp.evaluate(driver, road, budgets=[0.0], n_episodes=10, seed=0)
    >>> found.discounted_cost_mean.round(2).tolist()
    [0.12]
    """

    price: float
    width: int = 2
    task: TwoWay = field(default_factory=lambda: TwoWay(features="full"))

    budget_range = (0.0, 1.0)
    has_dial = False
    why_no_one_step_form = "remembers the cars that it has seen, and counts the steps"

    def __post_init__(self) -> None:
        """Checks the settings. Plans are made in the batched simulation."""
        require_from_0("price", self.price)
        require_count("width", self.width, 1)
        if self.task.features != "full":
            raise ConfigError(
                f'task.features must be "full" for a replanning driver; got {self.task.features!r}.'
            )
        object.__setattr__(self, "task", replace(self.task, backend="batched"))

    def stored(self) -> tuple[str, dict[str, Any]]:
        """Kind and fields, for a file."""
        settings = [(f.name, getattr(self.task, f.name)) for f in fields(self.task) if f.init]
        return _KIND, {"price": self.price, "width": self.width, "settings": tuple(settings)}

    def start(self, states: ArrayLike, budgets: ArrayLike, rng: Randomness) -> _DriverTracker:
        """Starts `N` drives."""
        return _DriverTracker(self, budgets, episode_streams(rng, states))

    @property
    def _prices(self) -> tuple[float, ...]:
        """Prices of the beam: those around its own keep drives that come to be the best."""
        return min(self.price / 3, 20.0), float(self.price), max(3 * self.price, 3.0)

    def first_actions(self, picture: RoadState) -> IntArray:
        """Returns the first action of the best drive from each road, `[N]`."""
        actions = []
        n_left = max(HORIZON - int(picture.time.max(initial=0)), 1)
        for first in range(0, len(picture.time), _CHUNK):
            part = rows_of(picture, np.arange(first, min(first + _CHUNK, len(picture.time))))
            how: dict[str, Any] = {"n_decisions": n_left, "prices": self._prices}
            drives = best_drives(self.task, part, width=self.width, **how)
            for found in drives:
                worth = found.frontier.rewards - self.price * found.frontier.costs
                actions.append(found.actions[worth.argmax(), 0])
        return np.array(actions, np.int64)


@restores(_KIND)
def _restored(price: float, width: int, settings: tuple[tuple[str, Any], ...]) -> ReplanningDriver:
    return ReplanningDriver(price, width, TwoWay(**dict(settings)))


class _DriverTracker(EpisodeTracker[ReplanningDriver]):
    """Drives, with the picture that the driver of each has of its road."""

    def __init__(self, policy: Any, budgets: ArrayLike, streams: EpisodeStreams) -> None:
        super().__init__(policy, budgets, streams)
        self._picture: Picture | None = None

    def _decide(self, states: NDArray[Any]) -> Decisions:
        task = self._policy.task
        if self._picture is None:
            self._picture = Picture(task, len(states))
            for _ in range(self._step):
                self._picture.go_on(np.full(len(states), SLOWER))
        going = np.flatnonzero(~self._ended)
        self._picture.look(states, going)
        decision = idle_decisions(np.minimum(self._budgets, self._policy.budget_range[1]))
        decision.action[going] = self._policy.first_actions(rows_of(self._picture.road, going))
        self._picture.go_on(decision.action)
        return decision

    def _observe(self, costs: FloatArray, next_states: NDArray[Any], ended: BoolArray) -> None:
        """Does nothing: it looks at the road when it decides."""

    def _own_state(self) -> dict[str, Any]:
        return self._picture.state() if self._picture is not None else dict.fromkeys(_PICTURE)

    def _take_over(self, kept: StateReader) -> None:
        if self._has_decided or any(kept.item(name) is not None for name in _PICTURE):
            self._picture = Picture(self._policy.task, len(self._streams))
            self._picture.take_over(kept)
        elif self._step > HORIZON:  # for which it would have to imagine the road until then
            raise PolicyError(f'state["step"] must be from 0 to {HORIZON}; got {self._step}.')


class Picture:
    """Roads as their drivers take them to be. Slots of cars are those of the task.

    Args:
        task: the road.
        n_roads: number of drivers.
    """

    def __init__(self, task: TwoWay, n_roads: int) -> None:
        self._task = task
        self.road: RoadState = task.start(np.full((n_roads, task.n_draws), 0.5))
        shape: Any = task.observation_space.shape
        self._n_seen = shape[0] - int(task.observe_time)
        self._was_seen: BoolArray = np.zeros(self.road.x.shape, np.bool_)
        lanes = self.road.target_lane[:1, 1:].ravel() if n_roads else np.empty(0)
        self._same_way = 1 + np.flatnonzero(lanes == OWN)
        self._oncoming = 1 + np.flatnonzero(lanes != OWN)

    def state(self) -> dict[str, Any]:
        """Returns the picture as plain data, by the names in `_PICTURE`."""
        cars, speed_index, time = map(plain_numbers, self.road)
        return dict(zip(_PICTURE, (cars, speed_index, time, self._was_seen.tolist()), strict=True))

    def take_over(self, kept: StateReader) -> None:
        """Takes a picture back. Its numbers are checked, for compiled code relies on them.

        Raises:
            PolicyError: naming what is wrong.
        """
        cars, speed_index, time, was_seen = _PICTURE
        there = kept.numbers(cars, self.road.cars.shape, words=("nan",))
        n = len(there)
        can_be_missing = np.isin(np.arange(N_COLUMNS), (PUSH_X, PUSH_Y))
        known = {LANE: 3, TARGET_LANE: 3, CRASHED: 2, PRESENT: 2}
        is_wrong = np.isnan(there).any(axis=(0, 1)) & ~can_be_missing
        is_wrong |= (np.abs(there) > _FAR).any(axis=(0, 1))
        for column, count in known.items():
            is_wrong[column] |= not np.isin(there[..., column], np.arange(count)).all()
        if is_wrong.any():
            raise PolicyError(
                f'state["{cars}"] must be cars as the driver took them to be; column '
                f"{is_wrong.argmax()} is not."
            )
        fastest = len(self._task.target_speeds) - 1
        self.road = RoadState(
            there,
            kept.whole_numbers(speed_index, (n,), 0, fastest),
            kept.whole_numbers(time, (n,), 0, LARGEST),
        )
        self._was_seen = kept.truths(was_seen, self._was_seen.shape)

    def go_on(self, actions: IntArray) -> None:
        """Lets a second pass."""
        n = len(actions)
        self.road = self._task.step(self.road, actions, np.empty((n, 0))).state
        is_false = self.road.crashed[:, 0]  # nothing would follow if the ego car had crashed
        self.road.cars[is_false, :, CRASHED] = 0
        self.road.cars[is_false, :, PUSH_X : PUSH_Y + 1] = np.nan

    def look(self, seen: NDArray[Any], rows: IntArray) -> None:
        """Puts cars where they are seen, on some of the roads.

        Args:
            seen: `[N, D]`, by `features="full"`.
            rows: numbers of the roads.

        Raises:
            DataError: if something else is shown, or more cars than the task has.
        """
        size = self._n_seen
        if seen.shape[1:] not in ((size,), (size + 1,)):
            raise DataError(
                f'a replanning driver reads the {size} numbers of features="full", or {size + 1} '
                f"with the time; got shape {list(seen.shape)}."
            )
        seen = np.asarray(seen, np.float64)
        self._look_at_itself(seen, rows)
        n_same = N_AHEAD + N_BEHIND
        gaps, relative = seen[:, N_OWN:N_NEAREST:2], seen[:, N_OWN + 1 : N_NEAREST : 2]
        speed = seen[:, 2:3] + relative
        for row in rows:
            x = seen[row, 0] + _SIGNS * gaps[row]
            there = gaps[row] < SIGHT
            same, towards = there[:n_same], there[n_same:]
            self._place(row, self._same_way, x[:n_same][same], speed[row, :n_same][same])
            self._place(row, self._oncoming, x[n_same:][towards], -speed[row, n_same:][towards])
            self._hide(row, self._same_way, x[N_AHEAD - 1])
            self._hide(row, self._oncoming, x[-1])

    def _look_at_itself(self, seen: FloatArray, rows: IntArray) -> None:
        """Writes what the ego car is seen to do."""
        x, y, along, across, target, is_left = seen[rows, :N_OWN].T
        ego = self.road.cars[:, 0]
        ego[rows, X], ego[rows, Y] = x, y
        ego[rows, HEADING], ego[rows, SPEED] = np.arctan2(across, along), np.hypot(along, across)
        ego[rows, TARGET_SPEED] = target
        ego[rows, TARGET_LANE] = np.where(is_left > 0, LEFT, OWN)
        aware = self._task.aware_oncoming
        ego[rows, LANE] = [closest_lane(ego[n, Y], ego[n, HEADING], aware) for n in rows]
        speeds = np.array(self._task.target_speeds)
        self.road.speed_index[rows] = np.abs(speeds - target[:, None]).argmin(axis=1)

    def _place(self, row: int, slots: IntArray, x: FloatArray, speed: FloatArray) -> None:
        """Puts cars that are seen into the slots of those that were expected nearest to them."""
        cars = self.road.cars[row]
        away = (cars[slots, X][:, None] - x) ** 2 + _FAR * (cars[slots, PRESENT][:, None] == 0)
        picked, which = linear_sum_assignment(away)
        if len(picked) < len(x):
            raise DataError(f"{len(x)} cars are seen where the task has {len(slots)}.")
        found, x, speed = slots[picked], x[which], speed[which]
        known = self._was_seen[row, found]
        wanted = np.where(known, np.maximum(cars[found, TARGET_SPEED], speed), speed)
        cars[found, X], cars[found, SPEED], cars[found, TARGET_SPEED] = x, speed, wanted
        cars[found, PRESENT], self._was_seen[row, found] = 1, True

    def _hide(self, row: int, slots: IntArray, end_of_sight: float) -> None:
        """Puts cars that were never seen beyond those that would be."""
        cars = self.road.cars[row]
        hidden = slots[~self._was_seen[row, slots]]
        for slot in hidden[np.argsort(cars[hidden, X])]:
            cars[slot, X] = max(cars[slot, X], end_of_sight)
            end_of_sight = cars[slot, X] + _SPACING


def replanning_curve(
    task: TwoWay | None = None,
    *,
    n_situations: int,
    prices: Sequence[float] = PRICES,
    width: int = 2,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> MeasuredCurve:
    """Measures replanning drivers in the situations of `reference_curve`, at several prices.

    Args:
        task: the road; the default one if not given.
        n_situations: number of random starts, the same for each price.
        prices: `[K]`, of a unit of cost.
        width: of the beam of their searches.
        seed: of the starts.
        progress: called with the number of prices that are done, and of all.

    Returns:
        MeasuredCurve. Its dial are the prices.

    >>> curve = replanning_curve(TwoWay(vehicles=1), n_situations=1, prices=[0.0, 1000.0], width=1)
    >>> curve.cost_means.round(3).tolist(), curve.reward_means.round(3).tolist()
    ([0.529, 0.0], [7.941, 6.353])
    """
    require_count("n_situations", n_situations, 1)
    road = replace(task or TwoWay(), features="full", backend="batched")
    streams, numbers = partial(EpisodeStreams.named, seed, STREAM), range(n_situations)
    costs, rewards = np.zeros((2, len(prices), n_situations))
    for k, price in enumerate(prices):
        driver, slots = ReplanningDriver(price, width, road), TaskSlots(road, streams)
        how: dict[str, Any] = {"budgets": 0.0, "seeds": numbers, "streams": streams(numbers)}
        for step in play_episodes(driver, slots, **how):
            costs[k] += road.gamma**step.index * step.costs
            rewards[k] += road.gamma**step.index * step.rewards
        progress(k + 1, len(prices))
    return MeasuredCurve(np.array(prices, np.float64), costs, rewards)
