"""Environments as a number of slots, each of which plays one episode from a seed of its own.

An environment is named by an id, a short name, or a specification. If it has a vector entry point
that takes a seed for each slot, all slots are one batched simulation; otherwise each is an
environment of its own, and only those whose episode is going on are stepped. What a slot plays is
the same in both, and in any company.
A state is a number, or a row of numbers: observations of several axes or parts are flattened.
Actions are numbers from 0 on, whatever the environment counts them from. A task of ours has slots
without Gymnasium, too, whose whole state can be read.

Where some actions are not available at some states an environment says so by Gymnasium's
convention: `info["action_mask"]`, a 0 or 1 for each action, at reset and at every step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.checks import is_number, nearest, told
from bmdp.envs.adapters import finite_number
from bmdp.envs.gym import Episodes, describe
from bmdp.envs.registry import ENV_IDS
from bmdp.envs.tasks import State, Task
from bmdp.errors import BmdpError, ConfigError, EnvError
from bmdp.later import imported
from bmdp.randomness import EpisodeStreams

_NUMBERS = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box)
_OURS = ("num_envs", "render_mode", "vectorization_mode")  # settings that are decided here
_BEGUN = ("observation", "info")
_PLAYED = ("observation", "reward", "terminated", "truncated", "info")


class SlotOutcome(NamedTuple):
    """The result of a step in every slot; that of ended slots means nothing."""

    states: NDArray[Any]  # [N] or [N, D]
    rewards: FloatArray  # [N]
    costs: FloatArray  # [N]
    ended: BoolArray  # [N]
    truncated: BoolArray  # [N], of the ended ones: by a limit, and not by the task


class Facts(NamedTuple):
    """Discount and horizon, by the metadata of an environment."""

    gamma: float  # discount of rewards and costs; 1 if they do not say
    horizon: int | None


class Slots(Protocol):
    """Slots that play episodes side by side."""

    name: str  # of the environment: its id
    facts: Facts
    metadata: dict[str, Any]  # of the environment; none if a wrapper may have changed its costs
    state_space: spaces.Space[Any]  # as the environment has it
    action_space: spaces.Discrete  # from 0 on
    most: int  # slots at a time
    available: BoolArray | None  # [N, A], actions that can be taken now; None if all always can

    def reset(self, seeds: Sequence[int]) -> NDArray[Any]:
        """Starts one episode for each seed; returns states `[N]` or `[N, D]`."""

    def step(self, actions: IntArray, going: BoolArray) -> SlotOutcome:
        """Plays actions `[N]` in the slots that are going on."""

    def close(self) -> None:
        """Frees the environments."""


def find_spec(env: str | EnvSpec) -> EnvSpec:
    """Returns the specification of an environment, given that, its id, or its short name.

    An id may name the module that registers it, as in Gymnasium: `module:Name-v0`.

    Raises:
        ConfigError: if there is none of that name, with the nearest name, or no such module.

    >>> find_spec("corridors").id
    'bmdp/Corridors-v0'
    """
    if isinstance(env, EnvSpec):
        kept = {name: value for name, value in env.kwargs.items() if name not in _OURS}
        return dataclasses.replace(env, kwargs=kept)
    module, _, name = env.rpartition(":")
    if module:
        imported(module, f"'{env}'")
    try:
        return gymnasium.spec(ENV_IDS.get(name, name))
    except gymnasium.error.Error as error:
        known = [*ENV_IDS, *gymnasium.registry]
        hint = nearest(env, known) or f" Short names are {', '.join(ENV_IDS)}."
        raise ConfigError(f"no environment is called '{env}'.{hint}") from error


def open_slots(spec: EnvSpec) -> EnvSlots:
    """Returns slots of an environment, batched if it can be.

    Raises:
        ConfigError: if the environment does not take the settings of the specification.
        EnvError: if it cannot be made, its actions are not discrete, its observations are not
            numbers, or it has only batches, which cannot be used here.
    """
    if spec.vector_entry_point is None or spec.additional_wrappers:
        return SingleSlots(spec)
    try:
        return BatchedSlots(spec)
    except _UnfitBatchError:
        if spec.entry_point is None:
            raise
        return SingleSlots(spec)


@contextmanager
def blamed(name: str, what: str) -> Iterator[None]:
    """Names an environment in errors of its own, whatever they may be.

    Raises:
        EnvError: instead of them.

    >>> with blamed("Ferry-v0", "failed while it was played"):
    ...     {}["wheel"]
    Traceback (most recent call last):
    bmdp.errors.EnvError: Ferry-v0 failed while it was played: KeyError: 'wheel'
    """
    try:
        yield
    except (BmdpError, MemoryError):
        raise
    except Exception as error:
        raise EnvError(f"{name} {what}: {type(error).__name__}: {error}") from error


class _UnfitBatchError(EnvError):
    """A batch does not play episodes as slots do."""


class BatchedSlots:
    """Slots of one batched simulation, which begin together, and so reach a time limit together.

    Args:
        spec: of the batch.

    Raises:
        EnvError: if the batch takes no seed for each slot, or hides how episodes end.
    """

    most = 10_000
    available: BoolArray | None = None

    def __init__(self, spec: EnvSpec) -> None:
        """Makes a batch of one, to see what it is."""
        self.spec, self.name = spec, spec.id
        self._spec = dataclasses.replace(spec, max_episode_steps=None)
        self._limit, self._n_steps = spec.max_episode_steps or np.inf, 0
        self._envs = self._make(1)
        mode = self._envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if mode != AutoresetMode.NEXT_STEP:
            raise _UnfitBatchError(
                f"{spec.id} must start ended episodes anew at the next step (NEXT_STEP); "
                f"its autoreset_mode is {mode}."
            )
        self._require_seeds()
        self.facts = _facts(spec, self._envs.metadata)
        self.metadata = _own_metadata(self._envs)
        self.state_space = _numeric(spec, self._envs.single_observation_space)
        self.action_space, self._first = _discrete(spec, self._envs.single_action_space)

    def _require_seeds(self) -> None:
        """Checks that each slot takes a seed: some batches of Gymnasium's take one for all."""
        seeds: Any = [0]
        try:
            self._envs.reset(seed=seeds)
        except (gymnasium.error.Error, TypeError, ValueError) as error:
            self._envs.close()
            raise _UnfitBatchError(
                f"batches of {self.name} must take a list of seeds, one for each slot: {error}"
            ) from error

    def _make(self, n: int) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        with _made(self._spec):
            return gymnasium.make_vec(
                self._spec, num_envs=n, vectorization_mode="vector_entry_point"
            )

    def reset(self, seeds: Sequence[int]) -> NDArray[Any]:
        """Starts one episode for each seed."""
        if self._envs.num_envs != len(seeds):
            self._envs.close()
            self._envs = self._make(len(seeds))
        self._n_steps = 0
        of_slots: Any = list(seeds)  # gymnasium's own batches take them, its annotation does not
        with blamed(self.name, "failed while it was played"):
            states, info = self._envs.reset(seed=of_slots)
        self.available = None
        if "action_mask" in info:
            needed = np.ones(len(seeds), np.bool_)
            self.available = self._masks(info, needed, needed)
        return flattened(self.state_space, states)

    def _masks(self, info: dict[str, Any], needed: BoolArray, known: BoolArray) -> BoolArray:
        """Actions that can be taken, where a slot goes on or has not come to an end of its own."""
        n = int(self.action_space.n)
        given = np.asarray(info.get("action_mask", np.ones((len(needed), n))))
        there = np.asarray(info.get("_action_mask", np.full(len(needed), "action_mask" in info)))
        found = _masks(self.spec, n, given, there & known, needed)
        self._open: IntArray = np.where(there, given.argmax(axis=1), 0)  # in ended slots too
        return found

    def step(self, actions: IntArray, going: BoolArray) -> SlotOutcome:
        """Plays actions, in the slots that ended too."""
        if self.available is not None:
            actions = np.where(going, actions, self._open)
        played = actions + self._first if self._first else actions
        with blamed(self.name, "failed while it was played"):
            states, rewards, terminated, truncated, info = self._envs.step(played)
        if "cost" not in info:
            raise _no_cost(self._spec)
        self._n_steps += 1
        ended = terminated | truncated | (self._n_steps >= self._limit)
        if _has_masks(self.spec, self.available, "action_mask" in info):
            self.available = self._masks(info, going & ~ended, going & ~terminated)
        paid = np.asarray(rewards), np.asarray(info["cost"])
        seen = flattened(self.state_space, states)
        return SlotOutcome(seen, *paid, ended, ended & ~terminated)

    def close(self) -> None:
        """Frees the batch."""
        with blamed(self.name, "failed while it was closed"):
            self._envs.close()


class SingleSlots:
    """Slots that are environments of their own.

    Args:
        spec: of each of them.
        render_mode: of each of them.
    """

    most = 250
    available: BoolArray | None = None

    def __init__(self, spec: EnvSpec, render_mode: str | None = None) -> None:
        """Makes one, to see what it is."""
        self.spec, self.name = spec, spec.id
        # An environment need not take the argument at all.
        self._settings: dict[str, Any] = {}
        if render_mode is not None:
            self._settings["render_mode"] = render_mode
        self.envs: list[gymnasium.Env[Any, Any]] = [self._make()]
        self._states: NDArray[Any] = np.empty(0)
        self.facts = _facts(spec, self.envs[0].metadata)
        self.metadata = _own_metadata(self.envs[0])
        self.state_space = _numeric(spec, self.envs[0].observation_space)
        self.action_space, self._first = _discrete(spec, self.envs[0].action_space)

    def _make(self) -> gymnasium.Env[Any, Any]:
        with _made(self.spec):
            return gymnasium.make(self.spec, disable_env_checker=True, **self._settings)

    def reset(self, seeds: Sequence[int]) -> NDArray[Any]:
        """Starts one episode for each seed."""
        self.envs += [self._make() for _ in range(len(seeds) - len(self.envs))]
        with blamed(self.name, "failed while it was played"):
            answers = [env.reset(seed=s) for env, s in zip(self.envs, seeds, strict=False)]
            started = [_answer(self.spec, "reset", _BEGUN, answer) for answer in answers]
            self._states = self._side_by_side([self._state(state) for state, _ in started])
        infos = [info for _, info in started]
        self.available = None
        if any("action_mask" in info for info in infos):
            self.available = self._masks(infos, np.ones(len(infos), np.bool_))
        return self._states

    def _masks(self, infos: Sequence[Mapping[str, Any]], needed: BoolArray) -> BoolArray:
        """Actions that can be taken, by the info of each slot."""
        n = int(self.action_space.n)
        every = np.ones(n, np.bool_)
        given = [np.asarray(info.get("action_mask", every)) for info in infos]
        bad = next((mask for mask in given if mask.shape != (n,)), None)
        there = np.array(["action_mask" in info for info in infos])
        return _masks(self.spec, n, np.stack(given) if bad is None else bad[None], there, needed)

    def _state(self, seen: Any) -> NDArray[Any]:
        """One observation as a state, `[1]` or `[1, D]`."""
        return flattened(self.state_space, _batch_of_one(self.state_space, seen))

    def _side_by_side(self, states: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """States of all slots, of a type that holds each of them."""
        shapes = list(dict.fromkeys(state.shape[1:] for state in states))
        if len(shapes) > 1:
            shown = " and of ".join(str(list(shape)) for shape in shapes)
            raise EnvError(f"{self.name} must show states of one shape; got some of {shown}.")
        return np.concatenate(states)

    def step(self, actions: IntArray, going: BoolArray) -> SlotOutcome:
        """Plays actions in the slots that are going on."""
        states = list(self._states[:, None])  # of ended slots, the last
        rewards, costs = np.zeros((2, len(actions)))
        ended, cut = ~going, np.zeros(len(actions), np.bool_)
        infos: list[Mapping[str, Any]] = [{}] * len(actions)
        with blamed(self.name, "failed while it was played"):
            for i in np.flatnonzero(going):
                answer = self.envs[i].step(int(actions[i]) + self._first)
                seen, reward, *ends, info = _answer(self.spec, "step", _PLAYED, answer)
                if "cost" not in info:
                    raise _no_cost(self.spec)
                states[i] = self._state(seen)
                rewards[i] = _number(self.spec, "reward", reward)
                costs[i] = _number(self.spec, "cost", info["cost"])
                names = ("terminated", "truncated")
                over, out_of_time = map(partial(_truth, self.spec), names, ends)
                ended[i], cut[i] = over or out_of_time, out_of_time and not over
                infos[i] = {} if over else info
            self._states = self._side_by_side([self._states[:0], *states])
        if _has_masks(self.spec, self.available, any("action_mask" in info for info in infos)):
            self.available = self._masks(infos, ~ended)
        return SlotOutcome(self._states, rewards, costs, ended, cut)

    def close(self) -> None:
        """Frees the environments."""
        with blamed(self.name, "failed while it was closed"):
            for env in self.envs:
                env.close()


EnvSlots: TypeAlias = BatchedSlots | SingleSlots


class TaskSlots:
    """Slots of a task, as Gymnasium's environments of it would play.

    An ended slot keeps its last state. There may be any number of slots.

    Args:
        task: the task.
        streams: of the episodes with given seeds; those of its environments if not given.

    >>> from bmdp.envs import Corridors
    >>> slots = TaskSlots(Corridors(noise_std=0.0))
    >>> seen = slots.reset([0, 1])
    >>> outcome = slots.step(np.array([0, 2]), np.array([True, True]))  # stop, and right
    >>> slots.state.x.tolist(), outcome.ended.tolist()
    ([3.5, 4.5], [True, False])
    """

    most = BatchedSlots.most
    available: BoolArray | None = None

    def __init__(
        self, task: Task, streams: Callable[[Sequence[int]], EpisodeStreams] | None = None
    ) -> None:
        self.name, self._task, self._streams = task.name, task, streams
        self.facts, self.metadata = Facts(task.gamma, task.horizon), describe(task)
        self.state_space = task.observation_space
        self.action_space = spaces.Discrete(len(task.action_names))

    @property
    def state(self) -> State:
        """The states of all slots, with what is hidden."""
        return self._episodes.state

    def reset(self, seeds: Sequence[int]) -> NDArray[Any]:
        """Starts one episode for each seed."""
        self._episodes = Episodes(self._task, len(seeds))
        if self._streams is None:
            self._episodes.seed(np.asarray(seeds, np.int64))
        else:
            self._episodes.draw_from(self._streams(seeds))
        self._episodes.start(np.arange(len(seeds)))
        return self._task.observe(self.state)

    def step(self, actions: IntArray, going: BoolArray) -> SlotOutcome:
        """Plays actions in the slots that are going on."""
        rows, ended = np.flatnonzero(going), ~going
        rewards, costs = np.zeros((2, len(actions)))
        _, rewards[rows], costs[rows], ended[rows] = self._episodes.step(rows, actions[rows])
        seen = self._task.observe(self.state)
        return SlotOutcome(seen, rewards, costs, ended, np.zeros(len(actions), np.bool_))

    def close(self) -> None:
        """Does nothing."""


def _answer(spec: EnvSpec, where: str, names: tuple[str, ...], answer: Any) -> Any:
    """An answer of an environment, which must have so many parts, the last of them the info."""
    if not isinstance(answer, tuple | list):
        got = told(answer)
    elif len(answer) != len(names):
        got = f"{len(answer)} values"
    elif not isinstance(answer[-1], Mapping):
        got = f"{told(answer[-1])} as info"
    else:
        return answer
    raise EnvError(
        f"{spec.id}.{where} must return ({', '.join(names)}), and info must be a dictionary; "
        f"got {got}."
    )


def _number(spec: EnvSpec, name: str, value: Any) -> float:
    """A reward or a cost of a step."""
    number = value if type(value) is float else finite_number(value)
    if number is None:
        raise EnvError(f"{spec.id} must give a finite {name} at every step; got {told(value)}.")
    return number


def _truth(spec: EnvSpec, name: str, value: Any) -> bool:
    """Whether an episode has ended; 0 and 1 are as good, and so is an array of one of them."""
    if type(value) is bool:
        return value
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf" or array.item() not in (0, 1):
        raise EnvError(f"{spec.id} must give {name} as True or False; got {told(value)}.")
    return bool(array.item())


def _facts(spec: EnvSpec, metadata: Mapping[str, Any]) -> Facts:
    """Discount and horizon by metadata, checked."""
    gamma, horizon = metadata.get("gamma", 1.0), metadata.get("horizon")
    if not (is_number(gamma) and 0 <= gamma <= 1):
        raise EnvError(f"gamma must be from 0 to 1 in metadata of {spec.id}; got {told(gamma)}.")
    is_whole = is_number(horizon) and isinstance(horizon, int | np.integer)
    if not (horizon is None or (is_whole and horizon >= 1)):
        raise EnvError(
            f"horizon must be a whole number from 1 on, or None, in metadata of {spec.id}; "
            f"got {told(horizon)}."
        )
    return Facts(float(gamma), None if horizon is None else int(horizon))


def _own_metadata(env: Any) -> dict[str, Any]:
    """Metadata of an environment; none if it is in a wrapper that is not Gymnasium's."""
    while isinstance(env, gymnasium.Wrapper | gymnasium.vector.VectorWrapper):
        if not type(env).__module__.startswith("gymnasium."):
            return {}
        env = env.env
    return dict(env.metadata)


def _discrete(spec: EnvSpec, space: spaces.Space[Any]) -> tuple[spaces.Discrete, int]:
    """The actions, counted from 0, and the first one as the environment counts them."""
    if not isinstance(space, spaces.Discrete):
        raise EnvError(
            f"{spec.id} must have discrete actions; its action space is {space}. "
            "Wrap it, and offer a few of its actions by number."
        )
    return spaces.Discrete(int(space.n)), int(space.start)


def _numeric(spec: EnvSpec, space: spaces.Space[Any]) -> spaces.Space[Any]:
    for part in _leaves(space):
        if not isinstance(part, _NUMBERS):
            raise EnvError(
                f"{spec.id} must show numbers: Discrete, MultiDiscrete, MultiBinary, Box, or a "
                f"Tuple or Dict of them; its observation space has {part}."
            )
    return space


def _leaves(space: spaces.Space[Any]) -> Iterator[spaces.Space[Any]]:
    """Parts of a space that have no parts, in order."""
    if isinstance(space, spaces.Tuple | spaces.Dict):
        parts = space.values() if isinstance(space, spaces.Dict) else space.spaces
        for part in parts:
            yield from _leaves(part)
    else:
        yield space


def flattened(space: spaces.Space[Any], seen: Any) -> NDArray[Any]:
    """Returns a batch of observations as states, `[N]` or `[N, D]`.

    A number stays a number. What has axes becomes a row. What has parts becomes a row of all their
    numbers, in the order of the space; a batch may show such rows itself.

    Args:
        space: of one observation.
        seen: of `N` of them, as a batched environment shows them.

    >>> space = spaces.Dict(place=spaces.Box(0, 9, (2, 1)), door=spaces.Discrete(3))
    >>> seen = {"door": np.array([2, 0]), "place": np.array([[[1.0], [5.0]], [[3.0], [4.0]]])}
    >>> flattened(space, seen).tolist()
    [[1.0, 5.0, 2.0], [3.0, 4.0, 0.0]]
    """
    if isinstance(space, spaces.Tuple | spaces.Dict) and not isinstance(seen, np.ndarray):
        rows = [np.asarray(own).reshape(len(own), -1) for own in _parts(space, seen)]
        return np.concatenate(rows, axis=1).astype(np.float64)
    states = np.asarray(seen)
    return states if states.ndim < 3 else states.reshape(len(states), -1)


def _parts(space: spaces.Space[Any], seen: Any) -> Iterator[Any]:
    """Observations of the parts of a space that have no parts, in order."""
    if isinstance(space, spaces.Dict):
        for name, part in space.items():
            yield from _parts(part, seen[name])
    elif isinstance(space, spaces.Tuple):
        for part, own in zip(space.spaces, seen, strict=True):
            yield from _parts(part, own)
    else:
        yield seen


def _batch_of_one(space: spaces.Space[Any], seen: Any) -> Any:
    """An observation as a batch of observations."""
    if isinstance(space, spaces.Dict):
        return {name: _batch_of_one(part, seen[name]) for name, part in space.items()}
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, seen, strict=True)
        return tuple(_batch_of_one(part, own) for part, own in pairs)
    return np.asarray(seen)[None]


@contextmanager
def _made(spec: EnvSpec) -> Iterator[None]:
    """Names the environment in errors of its own while it is made.

    Raises:
        ConfigError: if it does not take its settings.
        EnvError: if it fails in another way.
    """
    with blamed(spec.id, "cannot be made"):
        try:
            yield
        except TypeError as error:
            raise ConfigError(
                f"{spec.id} does not take the settings {spec.kwargs}: {error}."
            ) from error


def _has_masks(spec: EnvSpec, available: BoolArray | None, is_given: bool) -> bool:
    """Whether slots have masks, as they had at reset."""
    if available is None and is_given:
        raise _no_mask(spec)
    return available is not None


def _masks(
    spec: EnvSpec, n_actions: int, given: NDArray[Any], there: BoolArray, needed: BoolArray
) -> BoolArray:
    """Masks `[N, A]` of slots, all actions where none is there, or it is of no use.

    Args:
        spec: of the environment.
        n_actions: A.
        given: as the environment has them.
        there: `[N]`, whether it has.
        needed: `[N]`, whether the slot goes on, so that it must.
    """
    if (needed & ~there).any():
        raise _no_mask(spec)
    if given.shape[1:] != (n_actions,) or not np.isin(given, (0, 1)).all():
        raise EnvError(
            f"{spec.id} must give info['action_mask'] as {n_actions} numbers, 0 or 1; "
            f"got {given[0].tolist()}."
        )
    mask = given.astype(np.bool_) | ~there[:, None]
    is_empty: BoolArray = mask.sum(axis=1) == 0
    if (is_empty & needed).any():
        raise EnvError(
            f"{spec.id} must leave an action in info['action_mask'] while an episode goes on."
        )
    found: BoolArray = mask | is_empty[:, None]
    return found


def _no_mask(spec: EnvSpec) -> EnvError:
    return EnvError(
        f"{spec.id} must give info['action_mask'] at reset and at every step, or never; "
        "it was there at one and not at another."
    )


def _no_cost(spec: EnvSpec) -> EnvError:
    return EnvError(
        f"{spec.id} must give info['cost'] at every step; a step had none. Budgets are of cost: "
        "register a function that makes bmdp.envs.CostFunction(env, cost), and give its id, "
        "as in my_module:MyEnv-v0 (docs/environment.md)."
    )
