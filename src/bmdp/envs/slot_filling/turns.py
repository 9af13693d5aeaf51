"""A turn of slot-filling, compiled: what users say, what is heard, and what to believe of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from bmdp.arrays import BoolArray, FloatArray, IntArray

SUMMARISE = 0
"""The action; those after it ask for a slot, by voice and then by key pad."""

USER_ACTS = ("inform", "hang up", "deny")
NOTHING, INFORM, HANG_UP, DENY = -1, 0, 1, 2  # places of user acts; nothing before the first


class Known(NamedTuple):
    """The part of a state that a turn changes."""

    right: BoolArray  # [N, slots], hidden
    score: FloatArray  # [N, slots], 0 if never asked
    belief: FloatArray  # [N, 2**slots]: bit i of the position says whether slot i is right


class Speech(NamedTuple):
    """Probabilities and scores of users and of the speech recogniser."""

    error_rate: float
    mean_wrong: float
    mean_right: float
    std: float
    hang_up: float


@njit(cache=True)
def play_turn(
    known: Known, actions: IntArray, chance: FloatArray, normal: FloatArray, speech: Speech
) -> Any:
    """Plays one turn of each dialogue, in place; returns success and what the user did."""
    right, score, belief = known
    n_slots = right.shape[1]
    success = np.zeros(actions.shape[0], np.bool_)
    user_act = np.full(actions.shape[0], INFORM)
    for n in range(actions.shape[0]):
        if actions[n] == SUMMARISE:
            success[n] = right[n].all()
            user_act[n] = INFORM if success[n] else DENY
            if not success[n]:
                _rule_out_all_right(belief[n])
        elif actions[n] <= n_slots:
            slot = actions[n] - 1
            right[n, slot] = chance[n] >= speech.error_rate
            mean = speech.mean_right if right[n, slot] else speech.mean_wrong
            heard = mean + speech.std * normal[n]
            score[n, slot] = 1 / (1 + np.exp(-heard))
            _replace(belief[n], slot, _chance_right(heard, speech))
        else:
            slot = actions[n] - 1 - n_slots
            if chance[n] < speech.hang_up:
                user_act[n] = HANG_UP
            else:
                right[n, slot], score[n, slot] = True, 1.0
                _replace(belief[n], slot, 1.0)
    return success, user_act


@njit(cache=True)
def _chance_right(heard: float, speech: Speech) -> Any:
    """P(understood | the normal number heard), by Bayes."""
    far_right = ((heard - speech.mean_right) / speech.std) ** 2
    far_wrong = ((heard - speech.mean_wrong) / speech.std) ** 2
    right, wrong = 1 - speech.error_rate, speech.error_rate
    if right == 0 or wrong == 0:
        return right
    return 1 / (1 + wrong / right * np.exp((far_right - far_wrong) / 2))


@njit(cache=True)
def _replace(belief: FloatArray, slot: int, chance: float) -> None:
    """The old value of a slot is gone; the new one is right with some probability."""
    bit = 1 << slot
    for v in range(belief.shape[0]):
        if v & bit == 0:
            both = belief[v] + belief[v | bit]
            belief[v], belief[v | bit] = both * (1 - chance), both * chance


@njit(cache=True)
def _rule_out_all_right(belief: FloatArray) -> None:
    """The user denied: some slot is wrong."""
    rest = 1 - belief[-1]
    belief[-1] = 0
    if rest > 0:
        for v in range(belief.shape[0]):
            belief[v] /= rest
