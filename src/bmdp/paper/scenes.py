"""Episodes of the paper's tasks as plain data, to be drawn or read: ways, dialogues, drives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from bmdp.arrays import FloatArray, IntArray
from bmdp.envs.corridors import Corridors, CorridorsState
from bmdp.envs.episodes import Step, environment_seeds, play_episodes
from bmdp.envs.gym import TaskEnv
from bmdp.envs.slot_filling import SUMMARISE, SlotFilling, SlotFillingState
from bmdp.envs.slot_filling.turns import USER_ACTS
from bmdp.envs.slots import TaskSlots
from bmdp.envs.tasks import State, Task, rows_of
from bmdp.envs.two_way import RoadState, TwoWay, physics
from bmdp.errors import BmdpError
from bmdp.paper.runner import Piece
from bmdp.policies.policy import BudgetedPolicy
from bmdp.randomness import EpisodeStreams
from bmdp.report.section import Plugin

_FRAMES_KEPT = 3  # every third of 15 a second


@dataclass(frozen=True, eq=False)
class Trace:
    """One episode of `T` steps."""

    states: tuple[State, ...]  # [T + 1], of one row each, with what is hidden
    actions: IntArray  # [T]
    rewards: FloatArray  # [T]
    costs: FloatArray  # [T]
    budgets: FloatArray  # [T + 1], held before each decision, and handed on by the last


def task_of(spec: EnvSpec) -> Any:
    """Returns the task of an environment; None if it is not one of ours."""
    made = gymnasium.make(spec, disable_env_checker=True)
    made.close()
    return made.unwrapped.task if isinstance(made.unwrapped, TaskEnv) else None


def first_state(task: Task, seed: int) -> NDArray[Any]:
    """Returns what is seen at first of the first episode of `bmdp.evaluate` with the same seed."""
    state: NDArray[Any] = TaskSlots(task).reset(environment_seeds(seed, range(1)))[0]
    return state


def played(
    policy: BudgetedPolicy, task: Task, budget: float, n_episodes: int, seed: int
) -> list[Trace]:
    """Plays episodes at a budget.

    Episode k meets the chances that it meets in `bmdp.evaluate` with the same seed. The policy's
    random numbers do not depend on the budget either.
    """
    slots, numbers = TaskSlots(task), range(n_episodes)
    seeds = environment_seeds(seed, numbers)
    streams = EpisodeStreams.named(seed, "executions", numbers)
    playing = play_episodes(policy, slots, budgets=budget, seeds=seeds, streams=streams)
    states, steps = [slots.state], list[Step]()
    for step in playing:
        steps.append(step)
        states.append(slots.state)
    return [_trace(states, [step for step in steps if step.going[k]], k) for k in numbers]


def _trace(states: Sequence[State], steps: Sequence[Step], k: int) -> Trace:
    return Trace(
        tuple(rows_of(state, np.array([k])) for state in states[: len(steps) + 1]),
        np.array([step.actions[k] for step in steps]),
        np.array([step.rewards[k] for step in steps]),
        np.array([step.costs[k] for step in steps]),
        np.array([*(step.budgets[k] for step in steps), steps[-1].decision.next_budget[k]]),
    )


def rounded(values: FloatArray | Sequence[float], digits: int = 4) -> list[float]:
    """Returns numbers for JSON, with so many digits after the point.

    >>> rounded([1 / 3, -0.00001])
    [0.3333, 0.0]
    """
    found: list[float] = (np.round(np.asarray(values, np.float64), digits) + 0.0).tolist()
    return found


def layout_of(task: Any) -> Piece:
    """Returns what does not change from episode to episode."""
    return _LAYOUTS[task.name](task)


def episode_of(task: Any, trace: Trace) -> Piece:
    """Returns one episode, with what is drawn or read of it."""
    return _EPISODES[task.name](task, trace)


def check_scene(env: str, layout: Mapping[str, Any], episodes: Sequence[Mapping[str, Any]]) -> None:
    """Looks up all that is drawn of kept episodes; a KeyError or ValueError if it is damaged."""
    if env == "corridors":
        [cell[name] for cell in layout["cells"] for name in ("x", "y", "reward", "cost")]
        [layout[name] for name in ("columns", "rows")]
        [np.array([way[name] for name in ("x", "y")], np.float64) for way in episodes]
    elif env == "slot-filling":
        [line["text"] for episode in episodes for line in episode["lines"]]
    elif env == "two-way":
        [float(layout[name]) for name in ("lane_width", "n_lanes")]
        cars = [car for drive in episodes for car in drive["cars"]]
        [np.array([car[name] for name in ("x", "y", "heading")], np.float64) for car in cars]
    else:
        raise ValueError(f"'env' must be corridors, slot-filling or two-way; got {env!r}")


def _map(task: Corridors) -> Piece:
    cells, (rows, columns) = task.map, task.map.wall.shape
    start = int(cells.start)
    found = []
    for y in range(rows):
        for x in range(columns):
            reward, cost = float(cells.reward[y, x]), float(cells.cost[y, x])
            kind = "risky" if cost > 0 else "safe" if reward > 0 else "free"
            kind = "wall" if cells.wall[y, x] else "start" if (x, y) == (start, 0) else kind
            found.append({"x": x, "y": y, "reward": reward, "cost": cost, "kind": kind})
    return {
        "columns": columns,
        "rows": rows,
        "cells": found,
        "start": [float(cells.start), 0.5],
        "actions": list(task.action_names),
    }


def _way(task: Corridors, trace: Trace) -> Piece:
    states: tuple[CorridorsState, ...] = trace.states
    return {
        "x": rounded([float(state.x[0]) for state in states], 3),
        "y": rounded([float(state.y[0]) for state in states], 3),
        **_steps(trace),
    }


def _steps(trace: Trace) -> Piece:
    return {
        "action": trace.actions.tolist(),
        "reward": rounded(trace.rewards),
        "cost": rounded(trace.costs),
        "budget": rounded(trace.budgets),
    }


def _form(task: SlotFilling) -> Piece:
    return {"slots": task.slots, "horizon": task.horizon, "actions": list(task.action_names)}


def _dialogue(task: SlotFilling, trace: Trace) -> Piece:
    names = ("who", "act", "text", "reward", "cost", "budget")
    lines = list[tuple[Any, ...]]()
    for turn, action in enumerate(trace.actions.tolist()):
        before, after = trace.states[turn], trace.states[turn + 1]
        held, handed_on = rounded(trace.budgets[turn : turn + 2])
        reward, cost = rounded([trace.rewards[turn], trace.costs[turn]])
        lines.append(("system", *_asked(task, before, action), 0.0, 0.0, held))
        lines.append(("user", *_answered(task, after, action, reward), reward, cost, handed_on))
    lines.append(("end", *_end(lines[-1][1], cost), 0.0, 0.0, handed_on))
    return {
        "lines": [dict(zip(names, line, strict=True)) for line in lines],
        "reward": float(trace.rewards.sum()),
        "cost": float(trace.costs.sum()),
    }


def _asked(task: SlotFilling, state: SlotFillingState, action: int) -> tuple[str, str]:
    if action == SUMMARISE:
        known = ", ".join(f"{s:.2f}" if s > 0 else "none" for s in state.score[0])
        return "summarise", f"Is all of this right? (scores {known})"
    slot = (action - 1) % task.slots
    if action <= task.slots:
        return "ask_oral", f"Please say slot {slot}."
    return "ask_num_pad", f"Please type slot {slot} on the key pad."


def _answered(
    task: SlotFilling, state: SlotFillingState, action: int, reward: float
) -> tuple[str, str]:
    if action == SUMMARISE:
        if reward > 0:
            return "confirm", "Yes, that is right."
        return "deny", "No, something is wrong."
    slot = (action - 1) % task.slots
    if action <= task.slots:
        heard = "understood" if state.right[0, slot] else "misunderstood"
        return "inform", f"Says slot {slot}: {heard}, score {state.score[0, slot]:.2f}."
    if USER_ACTS[state.user_act[0]] == "hang up":
        return "hang_up", "Hangs up."
    return "inform", f"Types slot {slot}."


def _end(last: str, cost: float) -> tuple[str, str]:
    if last == "confirm":
        return "success", "The form is filled."
    if last == "hang_up":
        free = "" if cost > 0 else ", at the last turn, which costs nothing"
        return "hang_up", f"The user has hung up{free}."
    return "out_of_turns", "There are no turns left."


def _road(task: TwoWay) -> Piece:
    """The road, in m; y is across it."""
    return {
        "lane_width": physics.LANE_WIDTH,
        "n_lanes": 2,
        "length": physics.ROAD_LENGTH,
        "lanes": [{"y": 0.0, "kind": "oncoming"}, {"y": physics.LANE_WIDTH, "kind": "own"}],
        "car_length": physics.CAR_LENGTH,
        "car_width": physics.CAR_WIDTH,
        "actions": list(task.action_names),
    }


def _drive(task: TwoWay, trace: Trace) -> Piece:
    frames: list[RoadState] = [trace.states[0]]
    for state, action in zip(trace.states, trace.actions, strict=False):
        within = task.frames(state, np.array([action]))
        frames += within[_FRAMES_KEPT - 1 :: _FRAMES_KEPT]
    cars = []
    for car in np.flatnonzero(frames[0].present[0]).tolist():
        crashed = [int(frame.crashed[0, car]) for frame in frames]
        cars.append(
            {
                "x": rounded([frame.x[0, car] for frame in frames], 2),
                "y": rounded([frame.y[0, car] for frame in frames], 2),
                "heading": rounded([frame.heading[0, car] for frame in frames], 3),
                "ego": car == 0,
                **({"crashed": crashed} if any(crashed) else {}),
            }
        )
    return {"dt": _FRAMES_KEPT * physics.DT, "cars": cars, **_steps(trace)}


_LAYOUTS: Mapping[str, Callable[[Any], Piece]]
_LAYOUTS = {"corridors": _map, "slot-filling": _form, "two-way": _road}
_EPISODES: Mapping[str, Callable[[Any, Trace], Piece]]
_EPISODES = {"corridors": _way, "slot-filling": _dialogue, "two-way": _drive}


def _plugin(env: str, *scripts: str) -> Plugin:
    def scenes(
        policy: BudgetedPolicy, spec: EnvSpec, budgets: Sequence[float], n_episodes: int, seed: int
    ) -> Piece | None:
        try:
            task = task_of(spec)
        except (BmdpError, gymnasium.error.Error):
            return None
        if task is None or task.name != env:
            return None
        every = [played(policy, task, float(budget), n_episodes, seed) for budget in budgets]
        episodes = [[episode_of(task, trace) for trace in of_budget] for of_budget in every]
        return {"layout": layout_of(task), "episodes": episodes}

    assets = resources.files("bmdp.paper") / "assets"
    texts = [(assets / name).read_text(encoding="utf-8") for name in (*scripts, "stages.css")]
    return Plugin(env, texts[:-1], texts[-1:], scenes)


PLUGINS = (
    _plugin("corridors", "corridors.js", "film.js"),
    _plugin("slot-filling", "dialogue.js"),
    _plugin("two-way", "road.js"),
)
"""Pictures of the paper's tasks, for pages of any policy that plays them."""
