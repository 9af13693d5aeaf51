"""Does an environment keep to what this library asks of it? For environments of one's own.

`check_cost_env` plays an environment with random actions and looks at what comes back. A rule that
is broken is an error that says what was seen. What is allowed but good to know becomes a note.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

from bmdp.checks import require_count
from bmdp.envs.adapters import finite_number, why_not_discrete
from bmdp.envs.slots import blamed
from bmdp.errors import ConfigError, EnvError
from bmdp.kinds import checked
from bmdp.randomness import named_generator

Env: TypeAlias = gymnasium.Env[Any, Any]

_IS_WRAPPED = "is different from the unwrapped version"  # said by gymnasium of every wrapper
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@checked
@dataclass(frozen=True)
class CostEnvReport:
    """Rules that an environment was found to keep, and notes on it.

    >>> report = check_cost_env("bmdp/SlotFilling-v0", n_steps=10)
    >>> len(report.passed), report.passed[-1], report.notes
    (10, 'a step after the end is refused', ())
    """

    passed: tuple[str, ...]  # rules that it keeps to
    notes: tuple[str, ...]  # what is allowed, but may surprise


class Seen(NamedTuple):
    """The answer to a reset or a step."""

    when: str
    observation: Any
    reward: Any
    cost: Any
    terminated: Any
    truncated: Any
    mask: Any  # of available actions; None if all are


@checked
def check_cost_env(
    make: str | Callable[[], Env], *, n_steps: int = 100, episode_limit: int = 1_000
) -> CostEnvReport:
    """Checks an environment with costs, and raises at the first rule that it breaks.

    Args:
        make: function without arguments that returns a new environment, or the id of one.
        n_steps: number of steps that each rule is tried on, over as many episodes as that takes.
        episode_limit: number of steps within which an episode should end; a note if it does not.

    Returns:
        CostEnvReport. Gymnasium's warnings are among the notes.

    Raises:
        EnvError: naming the rule, and what was seen instead. The rules are: Gymnasium's `check_env`
            passes; each environment made is a new one; actions are Discrete, from 0 on; the reward
            of every step is a finite number; the cost in `info["cost"]` is one too, and at reset;
            seed and actions determine what comes back; environments do not disturb each other.
        ConfigError: if a count is below 1.

    >>> for rule in check_cost_env("bmdp/Corridors-v0").passed[:2]:
    ...     print(rule)
    gymnasium's check_env passes
    each environment made is a new one
    """
    require_count("n_steps", n_steps, 1, 10**7)
    require_count("episode_limit", episode_limit, 1, 10**7)
    with warnings.catch_warnings(record=True) as warned, ExitStack() as stack:
        warnings.simplefilter("always")

        def fresh() -> Env:
            env = _made(make)
            if isinstance(env, gymnasium.Env):  # if not, gymnasium will say so
                stack.callback(env.close)
            return env

        passed, notes = _findings(fresh, n_steps, episode_limit)
    said = dict.fromkeys(_COLOUR.sub("", str(w.message)) for w in warned)
    return CostEnvReport(
        tuple(passed), (*notes, *(text for text in said if _IS_WRAPPED not in text))
    )


def _made(make: str | Callable[[], Env]) -> Env:
    """A new environment."""
    if isinstance(make, str):
        with blamed(make, "cannot be made"):
            try:
                return gymnasium.make(make, disable_env_checker=True)
            except gymnasium.error.Error as error:
                raise ConfigError(
                    f"make must name an environment; got {make!r}: {error}"
                ) from error
    return make()


def _findings(
    fresh: Callable[[], Env], n_steps: int, episode_limit: int
) -> tuple[list[str], list[str]]:
    """Tries all rules in their order; returns those that passed, and notes."""
    passed, notes = [_gymnasium_is_content(fresh())], []
    env, other = fresh(), fresh()
    if env is other:
        raise _broken("each environment made must be a new one", "the same object came twice")
    passed.append("each environment made is a new one")
    problem = why_not_discrete(env.action_space)
    if problem is not None:
        raise _broken("actions must be Discrete, from 0 on", problem)
    passed.append("actions are Discrete, from 0 on")

    actions = _random_actions(env, n_steps)
    first = list(_play(env, 0, actions))
    passed.append("the reward is a finite number at every step")
    passed.append('info["cost"] is a finite number at reset and at every step')

    rule = "seed and actions must determine what comes back"
    _require_same(rule, first, _play(env, 0, actions), "when played again")
    _require_same(rule, first, _play(other, 0, actions), "in another environment")
    passed.append("seed and actions determine what comes back")

    _require_independence(env, other, first, actions)
    passed.append("environments do not disturb each other")

    if all(_difference(first, _play(env, seed, actions)) is None for seed in (1, 2, 3)):
        notes.append("seeds 0 to 3 all give the same: nothing seems to be left to chance")
    else:
        passed.append("seeds make a difference")
    ends, known = _end_of_an_episode(env, episode_limit)
    return passed + ends, notes + known


def _gymnasium_is_content(env: Env) -> str:
    """Runs Gymnasium's own checks."""
    with suppress(AttributeError):  # left to gymnasium to complain of
        env.action_space.seed(0)
    try:
        check_env(env, skip_render_check=True, skip_close_check=True)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise _broken("gymnasium's check_env must pass", said) from error
    return "gymnasium's check_env passes"


def _random_actions(env: Env, n: int) -> list[int]:
    """The same actions `[n]` at every call."""
    space: Any = env.action_space
    drawn: list[int] = named_generator(0, "check_cost_env").integers(space.n, size=n).tolist()
    return drawn


def _play(env: Env, seed: int, actions: Sequence[int]) -> Iterator[Seen]:
    """Plays actions, over as many episodes as that takes; the first begins with a seed."""
    episode, step, ended = 0, 0, True
    for action in actions:
        if ended:
            episode, step = episode + 1, 0
            when = f"at reset of episode {episode}"
            given = seed if episode == 1 else None
            observation, info = _answer(when, env.reset, seed=given)
            yield (seen := _seen(when, (observation, 0.0, False, False, info)))
        step += 1
        when = f"at step {step} of episode {episode}"
        answer = _answer(when, env.step, _near(action, seen.mask))
        yield (seen := _seen(when, answer))
        ended = answer[2] or answer[3]


def _near(action: int, mask: Any) -> int:
    """The action, or one in its place that is available."""
    if mask is None or not np.any(mask):
        return action
    there = np.flatnonzero(mask)
    return int(there[action % len(there)])


def _answer(when: str, call: Callable[..., Any], *given: Any, **settings: Any) -> Any:
    """Returns the answer of a call, which must not raise."""
    try:
        return call(*given, **settings)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise _broken("reset and steps within an episode must not raise", said, when) from error


def _seen(when: str, answer: tuple[Any, Any, Any, Any, dict[str, Any]]) -> Seen:
    """A copy of what came back, its reward and cost checked."""
    observation, reward, terminated, truncated, info = answer
    if finite_number(reward) is None:
        rule = "the reward must be a finite real number at every step"
        raise _broken(rule, f"got {reward!r}", when)
    rule = 'info["cost"] must be a finite real number at reset and at every step'
    if "cost" not in info:
        rule += " (bmdp.envs.CostFunction adds it to environments that have none)"
        raise _broken(rule, f"there is none among {sorted(info)}", when)
    if finite_number(info["cost"]) is None:
        raise _broken(rule, f"got {info['cost']!r}", when)
    parts = copy.deepcopy(observation), reward, copy.copy(info["cost"]), terminated, truncated
    return Seen(when, *parts, copy.copy(info.get("action_mask")))


def _require_independence(
    env: Env, other: Env, first: Sequence[Seen], actions: Sequence[int]
) -> None:
    """Plays two environments in turn, and compares with what each does alone."""
    backwards = actions[::-1]
    second = list(_play(other, 1, backwards))
    in_turn: tuple[list[Seen], list[Seen]] = ([], [])
    for pair in zip_longest(_play(env, 0, actions), _play(other, 1, backwards)):
        for seen, so_far in zip(pair, in_turn, strict=True):
            if seen is not None:
                so_far.append(seen)
    rule = "environments must not disturb each other"
    for alone, together in zip((first, second), in_turn, strict=True):
        _require_same(rule, alone, together, "while another one was played in turn")


def _require_same(
    rule: str, first: Sequence[Seen], again: Iterator[Seen] | Sequence[Seen], how: str
) -> None:
    difference = _difference(first, again)
    if difference is not None:
        raise _broken(rule, f"{difference} {how}")


def _difference(first: Sequence[Seen], again: Iterator[Seen] | Sequence[Seen]) -> str | None:
    """The first thing in which two courses of events differ, in words."""
    for before, after in zip(first, again, strict=False):  # other lengths follow other ends
        for name, old, new in zip(Seen._fields, before, after, strict=True):
            if not _same(old, new):
                return f"the {name} {before.when} was {old!r} at first, and {new!r}"
    return None


def _same(left: Any, right: Any) -> bool:
    """Whether two values are equal in every part; NaN is equal to itself."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        return len(left) == len(right) and all(map(_same, left, right))
    one, two = np.asarray(left), np.asarray(right)
    if one.shape != two.shape:
        return False
    return bool(np.all((one == two) | ((one != one) & (two != two))))


def _end_of_an_episode(env: Env, limit: int) -> tuple[list[str], list[str]]:
    """Whether an episode ends, and what a step after that does: rules passed, and notes."""
    actions = _random_actions(env, limit)
    for seen in _play(env, 0, actions):
        if seen.terminated or seen.truncated:
            break
    else:
        note = f"no episode ended within {limit} steps of random actions: cut them, or be patient"
        return [], [note]
    ends = f"an episode of random actions ends within {limit} steps"
    try:
        env.step(actions[0])
    except Exception:  # any refusal is as good as another
        return [ends, "a step after the end is refused"], []
    return [ends], ["a step after the end is answered rather than refused: mind to reset"]


def _broken(rule: str, seen: str, when: str = "") -> EnvError:
    return EnvError(f"{rule}; {' '.join((seen.rstrip('.'), when)).rstrip()}.")
