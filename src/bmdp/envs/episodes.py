"""Episodes of a policy in an environment: the one loop of the library.

Whoever measures a policy, collects what it does, shows it or traces it reads the steps that
`play_episodes` yields. What an episode does is a function of its seed and of its stream, in
whatever batch and by whichever process it is played. (A policy that computes with a network may
round differently in batches of different size.)
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import ArrayLike, NDArray

from bmdp.arrays import BoolArray, FloatArray, IntArray
from bmdp.cluster import Engine, require_engine
from bmdp.envs.gym import TaskEnv
from bmdp.envs.slots import EnvSlots, SingleSlots, Slots, TaskSlots, open_slots
from bmdp.envs.tasks import State, Task
from bmdp.errors import BudgetError, ConfigError, EnvError, PolicyError
from bmdp.policies.policy import BudgetedPolicy, Decisions, run_with_policy
from bmdp.randomness import EpisodeStreams, stream_key

N_SEEDS = 2**32
"""Seeds that an environment takes, from 0 on."""

OnPlayed: TypeAlias = Callable[[int, int], None]
"""Called with the number of episodes played so far, and of all."""

_UNFIT = (IndexError, RuntimeError, TypeError, ValueError)  # of a policy at foreign states


@dataclass(frozen=True, eq=False)
class Step:
    """One step of `N` episodes. In slots that were not going, rewards and costs are 0.

    What else these slots have means nothing.
    """

    index: int  # steps made before
    states: NDArray[Any]  # [N, ...], at which was decided
    budgets: FloatArray  # [N], held before the decision
    decision: Decisions  # as the policy made it
    actions: IntArray  # [N], that were played
    rewards: FloatArray  # [N]
    costs: FloatArray  # [N]
    next_states: NDArray[Any]  # [N, ...]
    ended: BoolArray  # [N], whether the episode ended with this step
    truncated: BoolArray  # [N], of these: by a limit, and not by the task
    going: BoolArray  # [N], whether the episode had not ended before this step
    available: BoolArray | None = None  # [N, A], actions that could be taken; None if all could
    next_available: BoolArray | None = None  # [N, A], at the next states


def play_episodes(  # noqa: PLR0913
    policy: BudgetedPolicy,
    slots: Slots,
    *,
    budgets: ArrayLike,
    seeds: Sequence[int],
    streams: EpisodeStreams,
    max_steps: int = 10_000,
    moves: Mapping[int, ArrayLike] | None = None,
    cut: bool = False,
) -> Iterator[Step]:
    """Starts episodes side by side, and returns an iterator of their steps, until all have ended.

    When it returns, the episodes have begun: a caller that reads `TaskSlots.state` has the first
    states now, and the next ones after each step.

    Args:
        policy: any policy; it is played in episode form.
        slots: of an environment.
        budgets: at the start, `[N]` or one for all, in expected discounted cost.
        seeds: of the environment, `[N]`.
        streams: of the policy, `[N]`; their numbers are those of the episodes in messages.
        max_steps: of an episode, where the environment has no horizon.
        moves: budgets, `[N]` or one for all, to be held from the decision of a step on.
        cut: whether an episode that reaches the limit is truncated there. If not, it is an error.

    Raises:
        BudgetError: if the policy does not take a budget.
        PolicyError: if the policy does not fit the states, or chooses an action that is none.
        EnvError: if a reward or a cost is missing or not finite, or an episode does not end.

    >>> from bmdp.envs import ScriptedPolicy
    >>> from bmdp.envs.slots import find_spec
    >>> slots, streams = open_slots(find_spec("slot-filling")), EpisodeStreams.named(0, "", [0, 1])
    >>> policy = ScriptedPolicy("slot-filling/key-pad")
    >>> for step in play_episodes(policy, slots, budgets=0.5, seeds=[0, 8], streams=streams):
    ...     print(step.index, step.actions, step.costs, step.going)
    0 [4 4] [0. 0.] [ True  True]
    1 [5 5] [0. 0.] [ True  True]
    2 [6 6] [1. 0.] [ True  True]
    3 [0 0] [0. 0.] [False  True]
    """
    begun = slots.reset(seeds)
    with _fitting(policy, slots, begun):
        tracker = policy.start(begun, budgets, streams)
    limit = slots.facts.horizon or max_steps

    def steps() -> Iterator[Step]:
        states, available = begun, slots.available
        going: BoolArray = np.ones(len(states), np.bool_)
        for index in range(limit):
            if moves and index in moves:
                tracker.set_budget(moves[index])
            held = tracker.budgets
            with _fitting(policy, slots, states):
                decision = tracker.decide(states, *_masks(available))
            actions = _actions(policy, slots, decision, going, available)
            following, rewards, costs, ended, truncated = slots.step(actions, going)
            rewards, costs = (
                _finite(slots, name, np.where(going, values, 0.0))
                for name, values in (("reward", rewards), ("cost", costs))
            )
            ended, truncated = going & ended, going & ended & truncated
            if cut and index + 1 == limit:
                ended, truncated = going, truncated | (going & ~ended)
            next_available = slots.available
            tracker.observe(costs, following, ~going | ended, *_masks(next_available))
            yield Step(
                index=index,
                states=states,
                budgets=held,
                decision=decision,
                actions=actions,
                rewards=rewards,
                costs=costs,
                next_states=following,
                ended=ended,
                truncated=truncated,
                going=going,
                available=available,
                next_available=next_available,
            )
            states, available, going = following, next_available, going & ~ended
            if not going.any():
                return
        raise _endless(slots, limit, going, budgets, streams)

    return steps()


@contextmanager
def _fitting(policy: BudgetedPolicy, slots: Slots, states: NDArray[Any]) -> Iterator[None]:
    """Says which states they were if the policy cannot act on them."""
    try:
        yield
    except BudgetError:
        raise
    except _UNFIT as error:
        raise PolicyError(
            f"the policy cannot act on what {slots.name} shows, states of shape "
            f"{list(states.shape[1:])} and type {states.dtype}; {type(policy).__name__} said: "
            f"{error}"
        ) from error


def _masks(available: BoolArray | None) -> tuple[BoolArray, ...]:
    """The last argument of a tracker that is told which actions are available; none if all are."""
    return () if available is None else (available,)


def _actions(
    policy: BudgetedPolicy,
    slots: Slots,
    decision: Decisions,
    going: BoolArray,
    available: BoolArray | None,
) -> IntArray:
    """Actions that the environment has; the first one in slots that ended."""
    first = int(slots.action_space.start)
    last = first + int(slots.action_space.n) - 1
    actions = np.where(going, decision.action, first)
    bad = np.flatnonzero((actions < first) | (actions > last))
    if len(bad):
        raise PolicyError(
            f"{slots.name} has actions {first} to {last}; "
            f"{type(policy).__name__} chose {actions[bad[0]]}."
        )
    if available is not None:
        bad = np.flatnonzero(going & ~available[np.arange(len(actions)), actions - first])
        if len(bad):
            raise PolicyError(
                f"{type(policy).__name__} chose action {actions[bad[0]]} of {slots.name} where it "
                "is not available, by info['action_mask']."
            )
    return actions


def _finite(slots: Slots, name: str, paid: FloatArray) -> FloatArray:
    bad = np.flatnonzero(~np.isfinite(paid))
    if len(bad):
        raise EnvError(f"{slots.name} must give a finite {name} at every step; got {paid[bad[0]]}.")
    return paid


def _endless(
    slots: Slots, limit: int, going: BoolArray, budgets: ArrayLike, streams: EpisodeStreams
) -> EnvError:
    i = int(np.flatnonzero(going)[0])
    rule = "its horizon" if slots.facts.horizon else "max_steps"
    return EnvError(
        f"an episode of {slots.name} must end within {rule}, {limit} steps; episode "
        f"{streams.episodes[i]} at budget {np.broadcast_to(budgets, len(going))[i]:g} did not. "
        "Give the environment a horizon, or its specification max_episode_steps."
    )


def play_task(
    policy: BudgetedPolicy, task: Task, *, n_episodes: int, seed: int, stream: str
) -> tuple[FloatArray, FloatArray]:
    """Returns undiscounted rewards and costs `[N]` of episodes of a task, by streams of a name."""
    streams = partial(EpisodeStreams.named, seed, stream)
    slots, numbers = TaskSlots(task, streams), range(n_episodes)
    rewards, costs = np.zeros((2, n_episodes))
    for step in play_episodes(policy, slots, budgets=0.0, seeds=numbers, streams=streams(numbers)):
        rewards += step.rewards
        costs += step.costs
    return rewards, costs


class Episode(NamedTuple):
    """One episode, and what there is to see of it when it is over."""

    steps: list[Step]  # [T], of one slot
    picture: Any  # as Gymnasium renders it; None without a render mode
    states: list[State]  # [T + 1], with what is hidden; empty unless it is of a task of ours


def play_episode(
    policy: BudgetedPolicy,
    spec: EnvSpec,
    *,
    budget: float,
    seed: int,
    moves: Mapping[int, float] | None = None,
    render_mode: str | None = None,
) -> Episode:
    """Plays one episode in an environment that can be seen.

    Args:
        policy: any policy; it is played in episode form.
        spec: of the environment.
        budget: at the start, in expected discounted cost.
        seed: of the environment, and of the policy.
        moves: budgets to be held from the decision of a step on.
        render_mode: of the environment.

    Raises:
        BudgetError, PolicyError, EnvError: as `play_episodes`; an episode that does not end is cut.

    >>> from bmdp.envs import ScriptedPolicy
    >>> from bmdp.envs.slots import find_spec
    >>> policy = ScriptedPolicy("corridors/risky")
    >>> found = play_episode(policy, find_spec("corridors"), budget=1.0, seed=0)
    >>> len(found.steps), len(found.states), found.states[0].x
    (9, 10, array([3.5]))
    """
    with closing(SingleSlots(spec, render_mode)) as slots:
        streams = EpisodeStreams.named(seed, "play", [0])
        how: dict[str, Any] = {"budgets": budget, "moves": moves, "cut": True}
        playing = play_episodes(policy, slots, seeds=[seed], streams=streams, **how)
        env: Any = slots.envs[0]
        is_ours = isinstance(env.unwrapped, TaskEnv)
        steps, states = [], [env.unwrapped.state] if is_ours else []
        for step in playing:
            steps.append(step)
            states += [env.unwrapped.state] if is_ours else []
        return Episode(steps, None if render_mode is None else env.render(), states)


class Sized(Protocol):
    """A number of episodes that are played together."""

    def __len__(self) -> int:
        """Number of episodes."""


PartT = TypeVar("PartT", bound=Sized)
Played = TypeVar("Played")
PlayPart: TypeAlias = Callable[[BudgetedPolicy, Slots, PartT], Played]


def play_parts(  # noqa: PLR0913
    play: PlayPart[PartT, Played],
    policy: BudgetedPolicy,
    slots: EnvSlots,
    parts: Sequence[PartT],
    *,
    workers: int = 1,
    engine: Engine = "local",
    progress: OnPlayed | None = None,
) -> list[Played]:
    """Returns what came of each part of the episodes, by this process or by several.

    Args:
        play: plays a part in slots: a function of a module, or a `partial` of one.
        policy: for several workers, one that can be saved.
        slots: of the environment. Other processes open their own.
        parts: numbers of episodes.
        workers: number of processes.
        engine: "ray" for processes of a Ray cluster, whatever their number.
        progress: called after each part.

    Raises:
        ConfigError: if the environment cannot travel to the workers, or there is no such engine.
        MissingDependency: if Ray is asked for and not installed.
        PolicyError, EnvError: as `run_with_policy`.
    """
    require_engine(engine)
    more = counter(progress, sum(map(len, parts)))
    if engine == "local" and (workers == 1 or len(parts) == 1):
        found: list[Played] = []
        for part in parts:
            found.append(play(policy, slots, part))
            more(len(part))
        return found
    require_portable(slots.spec)
    how: dict[str, Any] = {"on_done": lambda i: more(len(parts[i])), "engine": engine}
    return run_with_policy(_player, policy, (play, slots.spec), parts, workers=workers, **how)


def counter(progress: OnPlayed | None, total: int) -> Callable[[int], None]:
    """Returns a function that adds what was done since it was called, and tells of it."""
    done = 0

    def more(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    return more


def _player(policy: BudgetedPolicy, setting: tuple[Any, EnvSpec]) -> Callable[[Any], Any]:
    play, spec = setting
    return partial(play, policy, open_slots(spec))


def require_portable(spec: EnvSpec) -> None:
    """Checks that other processes can make an environment.

    Raises:
        ConfigError: if they cannot.
    """
    try:
        pickle.dumps(spec)
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        raise ConfigError(
            f"several workers need an environment that other processes can make; {spec.id} "
            f"cannot be handed over: {error}. Use workers=1, or an entry point in a module."
        ) from error


def environment_seeds(seed: int, episodes: range, name: str = "evaluate/environment") -> list[int]:
    """Returns the seeds of an environment for some episodes: one after the other, below 2**32.

    Args:
        seed: of all of them.
        episodes: their numbers.
        name: of their stream.

    >>> environment_seeds(0, range(5, 7))[1] - environment_seeds(0, range(5))[0]
    6
    """
    base = stream_key(seed, name)[0]
    return [(base + number) % N_SEEDS for number in episodes]
