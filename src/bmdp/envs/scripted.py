"""Policies written by hand, against which learners must hold their own.

They look at what the environment shows, and not at the budget, which they hand on as it is. They
are the reference points of the tasks: what a few lines of code earn and cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bmdp.arrays import FloatArray, IntArray
from bmdp.checks import require_choice, require_rising
from bmdp.envs.corridors import DOWN, LEFT, RIGHT
from bmdp.envs.slot_filling import SUMMARISE
from bmdp.envs.two_way import FASTER, IDLE, LANE_LEFT, SLOWER
from bmdp.envs.two_way.observations import SPEED_SCALE, Y_SCALE
from bmdp.errors import DataError
from bmdp.frontier import BudgetStatus
from bmdp.kinds import checked
from bmdp.policies.policy import Decision, Decisions, OneStepPolicy
from bmdp.storage import storable

ActionRule = Callable[[NDArray[Any]], IntArray]


@checked
@storable
@dataclass(frozen=True)
class ScriptedPolicy(OneStepPolicy):
    """Follows one of the rules of this module, by name. Its status is always SLACK.

    >>> sorted(RULES)[:2]
    ['corridors/risky', 'corridors/safe']
    >>> at_start = np.array([3.5, 0.5])
    >>> decision = ScriptedPolicy("corridors/risky").act(at_start, 0.5, np.random.default_rng(0))
    >>> decision.action == RIGHT, decision.next_budget
    (True, 0.5)
    """

    rule: str  # one of `RULES`
    low: float = 0.0  # budgets it takes, to no effect
    high: float = 1.0  # the largest of them

    has_dial = False

    def __post_init__(self) -> None:
        require_choice("rule", self.rule, RULES)
        require_rising("low and high", (self.low, self.high))

    @property
    def budget_range(self) -> tuple[float, float]:
        """Budgets it takes, to no effect."""
        return self.low, self.high

    @property
    def n_draws(self) -> int:
        """It leaves nothing to chance."""
        return 0

    def choose(self, states: NDArray[Any], budgets: FloatArray, uniforms: FloatArray) -> Decisions:
        """Applies the rule to what is seen, `[N, D]`."""
        if states.ndim != 2 or states.shape[1] < 2:
            raise DataError(f"states must have shape [N, D]; got {list(states.shape)}.")
        actions = RULES[self.rule](states)
        status = np.full(len(actions), BudgetStatus.SLACK, np.int8)
        return Decision(actions.astype(np.int64), budgets.copy(), status)


def _risky(seen: NDArray[Any]) -> IntArray:
    """Right along the top, down the risky corridor, and right into the last cell."""
    x, y = seen[:, 0], seen[:, 1]
    return np.where((y < 1) & (x < 5), RIGHT, np.where(y < 5, DOWN, RIGHT))


def _safe(seen: NDArray[Any]) -> IntArray:
    """The mirror image, by the safe corridor."""
    x, y = seen[:, 0], seen[:, 1]
    return np.where((y < 1) & (x >= 2), LEFT, np.where(y < 5, DOWN, LEFT))


def _dialogue(seen: NDArray[Any]) -> tuple[IntArray, IntArray, FloatArray, IntArray]:
    """Turn, slot of the lowest score, lowest score, and last system act of the 26 features."""
    if seen.shape[1:] != (26,):
        raise DataError(
            "these rules read the 26 features of slot-filling with 3 slots and 10 turns; "
            f"got shape {list(seen.shape)}."
        )
    system = np.where(seen[:, 19:].any(axis=1), seen[:, 19:].argmax(axis=1), -1)
    return (
        seen[:, 6:16].argmax(axis=1),
        seen[:, :3].argmax(axis=1),
        seen[:, 3:6].min(axis=1),
        system,
    )


def _key_pad(seen: NDArray[Any]) -> IntArray:
    """All three slots by key pad, then the summary."""
    turn, _, _, _ = _dialogue(seen)
    return np.where(turn < 3, 4 + turn, SUMMARISE)


def _ask_again(seen: NDArray[Any], first: int) -> IntArray:
    """All three by voice; then summary and the lowest score again, in turn, from act `first` on."""
    turn, lowest, _, last = _dialogue(seen)
    return np.where(turn < 3, 1 + turn, np.where(last == SUMMARISE, first + lowest, SUMMARISE))


def _voice_again(seen: NDArray[Any]) -> IntArray:
    """Asks again by voice."""
    return _ask_again(seen, 1)


def _key_pad_again(seen: NDArray[Any]) -> IntArray:
    """Asks again by key pad."""
    return _ask_again(seen, 4)


def _voice_until_sure(seen: NDArray[Any]) -> IntArray:
    """By voice until all scores are above one half, then the summary; again after a denial.

    The last turn is a summary in any case.
    """
    turn, lowest, least, last = _dialogue(seen)
    asks = ((least <= 0.5) | (last == SUMMARISE)) & (turn < 9)
    return np.where(turn < 3, 1 + turn, np.where(asks, 1 + lowest, SUMMARISE))


def _driving(seen: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
    """Lateral position in m and speed in m/s of the ego car, from the kinematics of 6 cars."""
    if seen.shape[1:] not in ((24,), (25,)):
        raise DataError(
            "these rules read the kinematics of a two-way road with 6 cars, 24 numbers or 25 with "
            f"the time; got shape {list(seen.shape)}."
        )
    return Y_SCALE * seen[:, 1].astype(np.float64), SPEED_SCALE * seen[:, 2].astype(np.float64)


def _keep_going(seen: NDArray[Any]) -> IntArray:
    """Does nothing, at 30 m/s."""
    return np.full(len(_driving(seen)[0]), IDLE)


def _slow(seen: NDArray[Any]) -> IntArray:
    """Slows down to 20 m/s, and stays on its lane."""
    return np.full(len(_driving(seen)[0]), SLOWER)


def _less_slow(seen: NDArray[Any]) -> IntArray:
    """Slows down to 25 m/s, and stays on its lane."""
    return np.where(_driving(seen)[1] > 27.5, SLOWER, IDLE)


def _overtake(seen: NDArray[Any]) -> IntArray:
    """Changes to the oncoming lane at once, and stays there at 30 m/s."""
    return np.where(_driving(seen)[0] > 2, LANE_LEFT, FASTER)


RULES: dict[str, ActionRule] = {
    "corridors/risky": _risky,
    "corridors/safe": _safe,
    "slot-filling/key-pad": _key_pad,
    "slot-filling/voice-again": _voice_again,
    "slot-filling/voice-until-sure": _voice_until_sure,
    "slot-filling/key-pad-again": _key_pad_again,
    "two-way/idle": _keep_going,
    "two-way/slow": _slow,
    "two-way/less-slow": _less_slow,
    "two-way/overtake": _overtake,
}
