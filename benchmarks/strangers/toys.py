"""Gymnasium's small tasks with a cost: frozen lakes, a taxi in the rain, a cliff, a card game."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.envs.toy_text.blackjack import BlackjackEnv
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.frozen_lake import MAPS, FrozenLakeEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv

from bmdp.envs.adapters import CostFunction
from strangers.tables import Chance, Tables, from_toy_text, tabulate

Env = gymnasium.Env[Any, Any]
Pays: TypeAlias = Callable[[int, int, int, float], tuple[float, float]]
"""From (state, action, next state, the author's reward) to (reward, cost)."""


def with_gamma(env: Env, gamma: float) -> Env:
    """Returns an environment whose metadata tell its discount."""
    env.metadata = {**env.metadata, "gamma": gamma}
    return env


class Priced(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Splits the reward of an environment with numbered states into a reward and a cost."""

    def __init__(self, env: Any, pays: Pays) -> None:
        super().__init__(env)
        self._pays = pays

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode, at cost 0."""
        self._seen, info = self.env.reset(seed=seed, options=options)
        return self._seen, {**info, "cost": 0.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Plays one step."""
        before = int(self._seen)
        self._seen, given, terminated, truncated, info = self.env.step(action)
        reward, cost = self._pays(before, int(action), int(self._seen), float(given))
        return self._seen, reward, terminated, truncated, {**info, "cost": cost}


# Frozen lakes.

LAKE_GAMMA = 0.97


def _lake(size: str) -> Any:
    return FrozenLakeEnv(map_name=size, is_slippery=True)


def _holes(size: str) -> frozenset[int]:
    return frozenset(i for i, square in enumerate("".join(MAPS[size])) if square == "H")


def frozen_lake(size: str) -> Env:
    """FrozenLake, slippery, with cost 1 for falling into a hole."""
    holes = _holes(size)
    env = CostFunction(_lake(size), lambda before, action, after, info: float(after in holes))
    return with_gamma(env, LAKE_GAMMA)


def frozen_lake_tables(size: str) -> Tables:
    """Tables of a frozen lake."""
    holes = _holes(size)
    return from_toy_text(_lake(size), lambda s, a, s2, r: (r, float(s2 in holes)), gamma=LAKE_GAMMA)


# A taxi.

TAXI_GAMMA = 0.98
CROSSING = (2, 2)  # row and column of the square that all ways from west to east lead over


def _taxi_pays(before: int, action: int, after: int, reward: float) -> tuple[float, float]:
    """A toll for entering the crossing, and a complaint for a wrong pickup or dropoff."""
    is_wrong = reward == -10
    entered = action < 4 and before != after and divmod(after // 20, 5) == CROSSING
    return -1.0 if is_wrong else reward, float(is_wrong or entered)


def taxi() -> Env:
    """Taxi in the rain: entering the crossing costs 1, and so does a wrong pickup or dropoff.

    A wrong pickup or dropoff earns -1, as any other step, instead of -10.
    """
    return with_gamma(Priced(TaxiEnv(is_rainy=True), _taxi_pays), TAXI_GAMMA)


def taxi_tables() -> Tables:
    """Tables of `taxi`."""
    return from_toy_text(TaxiEnv(is_rainy=True), _taxi_pays, gamma=TAXI_GAMMA)


# A cliff.

CLIFF_GAMMA = 0.98
EDGE = 0.1


def _cliff_pays(before: int, action: int, after: int, reward: float) -> tuple[float, float]:
    """A fall costs 1 and earns -1, as any other step, instead of -100; the edge costs 0.1.

    Falls alone would be no trade-off: who slips does so to either side, so that a step away from
    the cliff moves along it as fast as a step along it, and the best-paid policy never falls.
    """
    row, column = divmod(after, 12)
    is_edge = row == 2 and 0 < column < 11
    return -1.0, float(reward == -100) + EDGE * is_edge


def cliff_walking() -> Env:
    """CliffWalking, slippery: a step earns -1, a fall costs 1, a step to the edge costs 0.1."""
    return with_gamma(Priced(CliffWalkingEnv(is_slippery=True), _cliff_pays), CLIFF_GAMMA)


def cliff_tables() -> Tables:
    """Tables of `cliff_walking`."""
    env: Any = CliffWalkingEnv(is_slippery=True)
    return from_toy_text(env, _cliff_pays, gamma=CLIFF_GAMMA)


# A card game.

BLACKJACK_GAMMA = 1.0
STICK, HIT = 0, 1
CARDS = tuple((card, (4 if card == 10 else 1) / 13) for card in range(1, 11))
"""Values and chances of an infinite deck; an ace is 1."""

Hand: TypeAlias = tuple[int, int]
"""Sum, with a usable ace as 11, and whether there is one."""


def with_card(hand: Hand, card: int) -> Hand:
    """Returns a hand with one more card; above 21 it is bust.

    >>> with_card((13, 1), 9), with_card((12, 0), 1), with_card((10, 0), 1)
    ((12, 0), (13, 0), (21, 1))
    """
    total, usable = hand
    total += card
    if card == 1 and total + 10 <= 21:
        return total + 10, 1
    if usable and total > 21:
        return total - 10, 0
    return total, usable


@cache
def dealer_ends(hand: Hand) -> dict[int, float]:
    """Returns the chances of the dealer's last sum, 0 if bust; 17 or more is enough."""
    if hand[0] > 21:
        return {0: 1.0}
    if hand[0] >= 17:
        return {hand[0]: 1.0}
    ends: dict[int, float] = {}
    for card, chance in CARDS:
        for end, share in dealer_ends(with_card(hand, card)).items():
            ends[end] = ends.get(end, 0.0) + chance * share
    return ends


def blackjack() -> Env:
    """Blackjack-v1: the win is the reward, going bust costs 1."""
    env: Any = BlackjackEnv()
    busts = CostFunction(env, lambda before, action, after, info: float(after[0] > 21))
    return with_gamma(busts, BLACKJACK_GAMMA)


def blackjack_tables() -> Tables:
    """Tables of `blackjack`; the hidden card of the dealer is drawn when the player sticks."""
    # Sums to 31 are seen after a bust.
    shown = [
        (total, card, ace) for total in range(4, 32) for card in range(1, 11) for ace in (0, 1)
    ]
    number = {state: i for i, state in enumerate(shown)}

    def outcomes(state: int, action: int) -> Iterator[Chance]:
        total, showing, ace = shown[state]
        if total > 21 or (ace and total < 12):
            return
        if action == HIT:
            for card, chance in CARDS:
                after, usable = with_card((total, ace), card)
                is_bust = after > 21
                following = number[after, showing, usable]
                yield Chance(chance, following, -float(is_bust), float(is_bust), is_bust)
            return
        for end, chance in dealer_ends(with_card((0, 0), showing)).items():
            yield Chance(chance, state, float(np.sign(total - end)), 0.0, True)

    start = np.zeros(len(shown))
    for first, one in CARDS:
        for second, other in CARDS:
            total, ace = with_card(with_card((0, 0), first), second)
            for showing, chance in CARDS:
                start[number[total, showing, ace]] += one * other * chance
    return tabulate(
        outcomes,
        n_actions=2,
        gamma=BLACKJACK_GAMMA,
        start=start,
        observations=np.array(shown),
        space=BlackjackEnv().observation_space,
    )
