"""Tasks of daily work with exact tables: a store, a server, a machine, a patient.

Each is an ordinary Gymnasium environment that draws its own random numbers, and a function that
computes the same chances as tables. The two share only constants, so that one checks the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from scipy.stats import poisson

from strangers.tables import Chance, Tables, tabulate

Seen = Any
Stepped = tuple[Seen, float, bool, bool, dict[str, Any]]


class Stock(gymnasium.Env[Any, Any]):
    """Keeping a store for 30 days: an order arrives in the morning, then customers come.

    A state is (stock in the morning, days so far). A piece sold earns 1, one that stays overnight
    costs the owner 0.1, an order costs the owner 2 whatever its size. `info["cost"]` is the number
    of pieces asked for in vain.
    """

    capacity, demand, days, first_stock = 40, 8.0, 30, 10
    orders = (0, 4, 8, 12, 16)
    margin, holding, ordering = 1.0, 0.1, 2.0
    gamma = 0.99
    metadata: dict[str, Any] = {"gamma": gamma}  # noqa: RUF012

    def __init__(self) -> None:
        self.action_space = spaces.Discrete(len(self.orders))
        self.observation_space = stock_space()

    def _seen(self) -> NDArray[np.float32]:
        return np.array([self._stock, self._day], np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """Opens the store."""
        super().reset(seed=seed)
        self._stock, self._day = self.first_stock, 0
        return self._seen(), {"cost": 0.0}

    def step(self, action: int) -> Stepped:
        """One day."""
        order = self.orders[action]
        there = min(self.capacity, self._stock + order)
        asked = int(self.np_random.poisson(self.demand))
        sold = min(there, asked)
        self._stock, self._day = there - sold, self._day + 1
        earned = self.margin * sold - self.holding * self._stock - self.ordering * (order > 0)
        info = {"cost": float(asked - sold)}
        return self._seen(), float(earned), self._day == self.days, False, info


def stock_space() -> spaces.Box:
    """Stock and days so far."""
    highest = np.array([Stock.capacity, Stock.days], np.float32)
    return spaces.Box(np.zeros(2, np.float32), highest, dtype=np.float32)


def stock_tables() -> Tables:
    """Tables of `Stock`; more than 40 customers a day (chance 1e-15) are 40."""
    asked = np.arange(41)
    chances = poisson.pmf(asked, Stock.demand)
    width = Stock.capacity + 1  # state = day * width + stock

    def outcomes(state: int, action: int) -> Iterator[Chance]:
        day, stock = divmod(state, width)
        if day == Stock.days:
            return
        there = min(stock + Stock.orders[action], Stock.capacity)
        fixed = Stock.ordering if action else 0.0
        for n, chance in zip(asked.tolist(), chances.tolist(), strict=True):
            left = max(there - n, 0)
            earned = Stock.margin * (there - left) - Stock.holding * left - fixed
            following = (day + 1) * width + left
            yield Chance(chance, following, earned, float(max(n - there, 0)), day + 1 == Stock.days)

    days, stocks = np.divmod(np.arange((Stock.days + 1) * width), width)
    return tabulate(
        outcomes,
        n_actions=len(Stock.orders),
        gamma=Stock.gamma,
        start=np.arange(len(days)) == Stock.first_stock,
        observations=np.stack((stocks, days), axis=1).astype(np.float32),
        space=stock_space(),
    )


class Queue(gymnasium.Env[Any, Any]):
    """A server that works slowly, at ease or fast, for ever.

    A state is how many wait, of 30 at most. In a step one of them is served, with a chance that
    depends on the speed, and then one more comes with chance 0.5. One served earns 1, one who waits
    costs the owner 0.01, and one who finds the room full is lost. `info["cost"]` is power.
    """

    places = 30
    service = (0.3, 0.5, 0.8)
    power = (0.0, 0.02, 0.1)
    arrival, waiting = 0.5, 0.01
    gamma = 0.98
    metadata: dict[str, Any] = {"gamma": gamma}  # noqa: RUF012

    def __init__(self) -> None:
        self.action_space = spaces.Discrete(len(self.service))
        self.observation_space = spaces.Discrete(self.places + 1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """Opens the room, where up to 10 wait already."""
        super().reset(seed=seed)
        self._length = int(self.np_random.integers(11))
        return self._length, {"cost": 0.0}

    def step(self, action: int) -> Stepped:
        """One moment."""
        served = self._length > 0 and self.np_random.random() < self.service[action]
        self._length -= served
        if self.np_random.random() < self.arrival:
            self._length = min(self._length + 1, self.places)
        earned = float(served) - self.waiting * self._length
        return self._length, earned, False, False, {"cost": self.power[action]}


def queue_tables() -> Tables:
    """Tables of `Queue`."""

    def outcomes(length: int, action: int) -> Iterator[Chance]:
        serve = Queue.service[action] if length else 0.0
        for served, chance in ((1, serve), (0, 1 - serve)):
            for came, share in ((1, Queue.arrival), (0, 1 - Queue.arrival)):
                following = min(length - served + came, Queue.places)
                earned = served - Queue.waiting * following
                yield Chance(chance * share, following, earned, Queue.power[action], False)

    lengths = np.arange(Queue.places + 1)
    return tabulate(
        outcomes,
        n_actions=len(Queue.service),
        gamma=Queue.gamma,
        start=lengths <= 10,
        observations=lengths,
        space=spaces.Discrete(Queue.places + 1),
    )


class MachineRepair(gymnasium.Env[Any, Any]):
    """A machine that wears: run it, service it, or replace it, for ever.

    A state is its wear, 0 to 9, or 10 if it is broken. Running earns 1 less 0.03 for each degree of
    wear, and may break it: `info["cost"]` is 1 for a breakdown. A service takes away up to 2
    degrees. A new machine comes with chance 0.25 in each step that it is waited for, and with
    chance 0.4 where the old one is broken, whatever is done. Nothing is earned meanwhile.
    """

    broken = 10
    breaks = (0.0, 0.004, 0.01, 0.02, 0.03, 0.045, 0.06, 0.08, 0.1, 0.15)
    wears = (0.3, 0.5, 0.2)  # by 0, 1, 2
    mends = (0.3, 0.5, 0.2)  # by 0, 1, 2
    planned, urgent = 0.25, 0.4  # chances of a new machine
    slower = 0.03
    run, service, replace = 0, 1, 2
    gamma = 0.98
    metadata: dict[str, Any] = {"gamma": gamma}  # noqa: RUF012

    def __init__(self) -> None:
        self.action_space = spaces.Discrete(3)
        self.observation_space = spaces.Discrete(self.broken + 1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """Starts with any machine that is not broken."""
        super().reset(seed=seed)
        self._wear = int(self.np_random.integers(self.broken))
        return self._wear, {"cost": 0.0}

    def step(self, action: int) -> Stepped:
        """One shift."""
        before, reward, cost = self._wear, 0.0, 0.0
        if before == self.broken or action == self.replace:
            came = self.urgent if before == self.broken else self.planned
            self._wear = 0 if self.np_random.random() < came else before
        elif action == self.service:
            self._wear = max(before - int(self.np_random.choice(3, p=self.mends)), 0)
        else:
            reward = 1 - self.slower * before
            if self.np_random.random() < self.breaks[before]:
                self._wear, cost = self.broken, 1.0
            else:
                self._wear = min(before + int(self.np_random.choice(3, p=self.wears)), 9)
        return self._wear, reward, False, False, {"cost": cost}


def machine_tables() -> Tables:
    """Tables of `MachineRepair`."""
    kind = MachineRepair

    def outcomes(wear: int, action: int) -> Iterator[Chance]:
        if wear == kind.broken:
            yield Chance(kind.urgent, 0, 0.0, 0.0, False)
            yield Chance(1 - kind.urgent, kind.broken, 0.0, 0.0, False)
        elif action == kind.run:
            earned, chance = 1 - kind.slower * wear, kind.breaks[wear]
            yield Chance(chance, kind.broken, earned, 1.0, False)
            for more, share in enumerate(kind.wears):
                yield Chance((1 - chance) * share, min(wear + more, 9), earned, 0.0, False)
        elif action == kind.service:
            for less, share in enumerate(kind.mends):
                yield Chance(share, max(wear - less, 0), 0.0, 0.0, False)
        else:
            yield Chance(kind.planned, 0, 0.0, 0.0, False)
            yield Chance(1 - kind.planned, wear, 0.0, 0.0, False)

    wears = np.arange(kind.broken + 1)
    return tabulate(
        outcomes,
        n_actions=3,
        gamma=kind.gamma,
        start=wears < kind.broken,
        observations=wears,
        space=spaces.Discrete(kind.broken + 1),
    )


class Treatment(gymnasium.Env[Any, Any]):
    """Thirty months of a patient: no drug, a low dose, or a high dose.

    A state is (tumour 0 to 8, toxicity 0 to 5, months so far). A month lived earns 1, less 0.06 for
    each degree of the tumour and 0.04 for each of toxicity. In a month the tumour grows or shrinks
    by a degree, toxicity rises or falls by one, a large tumour kills, and toxicity may send the
    patient to hospital: `info["cost"]` is 1 for that.
    """

    months, first = 30, (4, 0, 0)
    grows, shrinks = (0.45, 0.2, 0.1), (0.05, 0.35, 0.6)
    rises, falls = (0.0, 0.35, 0.65), (0.5, 0.25, 0.1)
    kills = (0.002, 0.004, 0.008, 0.013, 0.02, 0.035, 0.06, 0.1, 0.2)
    hospital = (0.0, 0.01, 0.03, 0.07, 0.13, 0.22)
    gamma = 0.99
    metadata: dict[str, Any] = {"gamma": gamma}  # noqa: RUF012

    def __init__(self) -> None:
        self.action_space = spaces.Discrete(3)
        self.observation_space = treatment_space()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Seen, dict[str, Any]]:
        """A new patient."""
        super().reset(seed=seed)
        self._state = self.first
        return np.array(self._state), {"cost": 0.0}

    def step(self, action: int) -> Stepped:
        """One month."""
        tumour, toxicity, month = self._state
        growth, change, death, event = self.np_random.random(4)
        reward = 1 - 0.06 * tumour - 0.04 * toxicity
        cost = float(event < self.hospital[toxicity])
        died = bool(death < self.kills[tumour])
        if growth < self.grows[action]:
            tumour = min(tumour + 1, 8)
        elif growth > 1 - self.shrinks[action]:
            tumour = max(tumour - 1, 0)
        if change < self.rises[action]:
            toxicity = min(toxicity + 1, 5)
        elif change > 1 - self.falls[action]:
            toxicity = max(toxicity - 1, 0)
        self._state = (tumour, toxicity, month + 1)
        over = died or month + 1 == self.months
        return np.array(self._state), reward, over, False, {"cost": cost}


def treatment_space() -> spaces.MultiDiscrete:
    """Tumour, toxicity, months so far."""
    return spaces.MultiDiscrete(np.array([9, 6, Treatment.months + 1]))


def treatment_tables() -> Tables:
    """Tables of `Treatment`."""
    kind, shape = Treatment, (9, 6, Treatment.months + 1)
    shown = np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), axis=1)

    def outcomes(state: int, action: int) -> Iterator[Chance]:
        tumour, toxicity, month = map(int, shown[state])
        if month == kind.months:
            return
        earned = 1 - 0.06 * tumour - 0.04 * toxicity
        up, down = kind.grows[action], kind.shrinks[action]
        more, less = kind.rises[action], kind.falls[action]
        kill, event = kind.kills[tumour], kind.hospital[toxicity]
        for growth, p in ((1, up), (0, 1 - up - down), (-1, down)):
            for change, q in ((1, more), (0, 1 - more - less), (-1, less)):
                after = min(max(tumour + growth, 0), 8), min(max(toxicity + change, 0), 5)
                following = int(np.ravel_multi_index((*after, month + 1), shape))
                for died, k in ((True, kill), (False, 1 - kill)):
                    over = died or month + 1 == kind.months
                    for cost, e in ((1.0, event), (0.0, 1 - event)):
                        yield Chance(p * q * k * e, following, earned, cost, over)

    return tabulate(
        outcomes,
        n_actions=3,
        gamma=kind.gamma,
        start=(shown == kind.first).all(axis=1),
        observations=shown,
        space=treatment_space(),
    )
