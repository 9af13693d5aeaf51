"""Slot-filling: a dialogue that asks for a few values, by voice or by key pad.

Each slot is right or wrong, and the system does not see which. At its turn it may

- ask for slot i *by voice*: with probability `error_rate` the value is misunderstood. Either way
  the old value is overwritten, and the recogniser gives a score, logistic of a normal number whose
  mean is higher where it understood;
- ask for slot i *by key pad*: the value is right, with score 1, but the user may hang up;
- *summarise*: if all slots are right the dialogue succeeds and pays 100, else the user denies,
  which costs no more than a turn, and tells that some slot is wrong.

After a turn it is asked, in this order: success? was it the last turn? did the user hang up? Only a
hang-up before the last turn costs 1.

What is seen (`features`): "paper", the authors' 26 numbers: the slot of the lowest score (one-hot),
scores (0 if never asked), turn (one-hot), last acts of user and system (one-hot); "fraction", the
same with the turn as a share, as the paper's text has it; "belief", the exact probability of each
combination of right and wrong slots given all that was heard, and the turn (one-hot). Only the last
makes the task Markov.

Paper: Section 5.1 and the table of Slot-Filling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from scipy.special import ndtri

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.checks import require_choice, require_count, require_share
from bmdp.envs.gym import TaskEnv, TaskVectorEnv
from bmdp.envs.slot_filling.turns import HANG_UP, NOTHING, USER_ACTS, Known, Speech, play_turn
from bmdp.envs.tasks import Outcome, Task
from bmdp.errors import ConfigError
from bmdp.kinds import checked

FEATURES = ("paper", "fraction", "belief")


class SlotFillingState(NamedTuple):
    """Dialogues, with what is hidden.

    >>> task = SlotFilling(slots=2)
    >>> state = task.start(np.zeros((1, 2)))
    >>> after = task.step(state, np.array([3]), np.full((1, 2), 0.9)).state  # the first by key pad
    >>> after.right.tolist(), after.score.tolist(), after.belief.tolist()
    ([[True, False]], [[1.0, 0.0]], [[0.0, 1.0, 0.0, 0.0]])
    """

    right: BoolArray  # [N, slots], hidden
    score: FloatArray  # [N, slots], 0 if never asked
    belief: FloatArray  # [N, 2**slots]: bit i of the position says whether slot i is right
    turn: IntArray  # [N], from 0
    user_act: IntArray  # [N], the last; -1 before the first
    system_act: IntArray  # [N], the last; -1 before the first


@checked
@dataclass(frozen=True)
class SlotFilling:
    """The slot-filling task.

    Args:
        slots: number of values to ask for, from 1 to 8.
        error_rate: probability that a value is misunderstood (ser).
        mean_wrong: mean of the normal number behind the score of a misunderstood value (mu_m).
        mean_right: the same where it was understood (mu_u).
        std: its deviation (sigma), above 0.
        hang_up: probability that the user hangs up when asked to use the key pad (p).
        horizon: number of turns (H).
        features: what is seen: "paper", "fraction" or "belief".

    Raises:
        ConfigError: if a setting is out of its range.

    Paper: Section 5.1 and the table of Slot-Filling, whose symbols are in brackets.

    >>> SlotFilling(slots=1).action_names
    ('summarise', 'voice 0', 'key pad 0')
    """

    slots: int = 3
    error_rate: float = 0.6
    mean_wrong: float = -0.25
    mean_right: float = 0.25
    std: float = 0.6
    hang_up: float = 0.25
    horizon: int = 10
    features: Literal["paper", "fraction", "belief"] = "paper"

    name = "slot-filling"
    gamma = 1.0
    budget_range = (0.0, 1.0)
    cost_range = (0.0, 1.0)  # a hang-up ends the dialogue
    binary_costs = True
    n_draws = 2

    def __post_init__(self) -> None:
        for count, most in (("slots", 8), ("horizon", 10_000)):
            require_count(count, getattr(self, count), 1, most)
        for chance in ("error_rate", "hang_up"):
            require_share(chance, getattr(self, chance))
        if not (np.isfinite(self.mean_wrong) and np.isfinite(self.mean_right)):
            raise ConfigError("mean_wrong and mean_right must be finite.")
        if not 0 < self.std < np.inf:
            raise ConfigError(f"std must be above 0; got {self.std}.")
        require_choice("features", self.features, FEATURES)

    @property
    def action_names(self) -> tuple[str, ...]:
        """Summarise, then ask for each slot by voice, then by key pad."""
        slots = range(self.slots)
        voice, pad = (f"voice {i}" for i in slots), (f"key pad {i}" for i in slots)
        return ("summarise", *voice, *pad)

    @property
    def speech(self) -> Speech:
        """Probabilities and scores of users and of the speech recogniser."""
        return Speech(self.error_rate, self.mean_wrong, self.mean_right, self.std, self.hang_up)

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """Numbers from 0 to 1."""
        turns = 1 if self.features == "fraction" else self.horizon
        size = 2**self.slots + turns
        if self.features != "belief":
            size = 2 * self.slots + turns + len(USER_ACTS) + len(self.action_names)
        return spaces.Box(0.0, 1.0, (size,), np.float64)

    def start(self, uniforms: FloatArray) -> SlotFillingState:
        """Nothing has been asked, so no slot is right."""
        n = len(uniforms)
        belief = np.zeros((n, 2**self.slots))
        belief[:, 0] = 1
        none = np.full(n, NOTHING, np.int64)
        return SlotFillingState(
            np.zeros((n, self.slots), np.bool_),
            np.zeros((n, self.slots)),
            belief,
            np.zeros(n, np.int64),
            none,
            none.copy(),
        )

    def step(self, state: SlotFillingState, actions: IntArray, uniforms: FloatArray) -> Outcome:
        """Plays one turn."""
        normal = ndtri(np.maximum(uniforms[:, 1], 2.0**-53))
        known = Known(state.right.copy(), state.score.copy(), state.belief.copy())
        success, user_act = play_turn(known, actions, uniforms[:, 0], normal, self.speech)
        is_last = state.turn + 1 >= self.horizon
        hung_up = (user_act == HANG_UP) & ~success
        following = SlotFillingState(*known, state.turn + 1, user_act, actions.copy())
        return Outcome(
            following,
            np.where(success, 100.0, 0.0),
            np.where(hung_up & ~is_last, 1.0, 0.0),
            success | is_last | hung_up,
        )

    def observe(self, state: SlotFillingState) -> NDArray[Any]:
        """Returns features `[N, D]`."""
        n = len(state.turn)
        rows = np.arange(n)
        turn = np.minimum(state.turn, self.horizon - 1)
        if self.features == "fraction":
            when = (state.turn / self.horizon)[:, None]
        else:
            when = np.zeros((n, self.horizon))
            when[rows, turn] = 1
        if self.features == "belief":
            return np.concatenate((state.belief, when), axis=1)
        lowest = np.zeros((n, self.slots))
        lowest[rows, state.score.argmin(axis=1)] = 1
        user = np.zeros((n, len(USER_ACTS) + 1))
        user[rows, state.user_act] = 1  # the last column stands for "nothing yet"
        system = np.zeros((n, len(self.action_names) + 1))
        system[rows, state.system_act] = 1
        return np.concatenate((lowest, state.score, when, user[:, :-1], system[:, :-1]), axis=1)


@checked
class SlotFillingEnv(TaskEnv):
    """One dialogue. `render_mode="ansi"` gives it as a transcript.

    Args:
        render_mode: "ansi", or None.
        settings: those of `SlotFilling`.

    >>> from bmdp.envs.slot_filling import SUMMARISE
    >>> env = SlotFillingEnv(render_mode="ansi", slots=1, error_rate=0.0)
    >>> seen, info = env.reset(seed=0)
    >>> asked = env.step(1)
    >>> env.step(SUMMARISE)[1:], env.render().count("confirms")
    ((100.0, True, False, {'cost': 0.0}), 1)
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, **settings: Any) -> None:
        """Takes the settings of `SlotFilling`."""
        super().__init__(SlotFilling(**settings), render_mode)
        self._said: list[str] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Starts the next dialogue."""
        self._said = []
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Plays one turn."""
        result = super().step(action)
        self._said.append(_line(self._episodes.state, self.task, result[1], result[4]["cost"]))
        return result

    def render(self) -> str | None:
        """Returns the dialogue so far, a line for each turn."""
        return None if self.render_mode is None else "\n".join(self._said)


@checked
class SlotFillingVectorEnv(TaskVectorEnv):
    """A batch of dialogues.

    Args:
        num_envs: number of slots.
        render_mode: None: a batch cannot be rendered.
        settings: those of `SlotFilling`.

    >>> envs = SlotFillingVectorEnv(num_envs=1_000)
    >>> seen, info = envs.reset(seed=0)
    >>> envs.step(np.full(1_000, 4))[4]["cost"].mean().item()  # asked to use the key pad
    0.235
    """

    def __init__(self, num_envs: int = 1, render_mode: str | None = None, **settings: Any) -> None:
        """Takes the settings of `SlotFilling`."""
        super().__init__(SlotFilling(**settings), num_envs, render_mode)


def _line(state: SlotFillingState, task: Task, reward: float, cost: float) -> str:
    """One turn of a transcript: what was asked, what the user did, and what the system knows."""
    act = task.action_names[state.system_act[0]]
    user = (
        "confirms" if reward > 0 else f"{USER_ACTS[state.user_act[0]]}s".replace("denys", "denies")
    )
    user = user.replace("hang ups", "hangs up")
    scores = " ".join(f"{s:.2f}" if s > 0 else "-" for s in state.score[0])
    return (
        f"{state.turn[0]:>2}  system: {act:<10} user: {user:<9} scores: {scores}"
        f"  reward {reward:g}  cost {cost:g}"
    )
