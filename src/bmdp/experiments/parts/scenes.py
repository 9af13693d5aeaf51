"""Episodes of our tasks as plain data that can be drawn or read: ways, dialogues, drives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bmdp.envs.corridors import Corridors, CorridorsState
from bmdp.envs.slot_filling import SUMMARISE, SlotFilling, SlotFillingState
from bmdp.envs.slot_filling.turns import USER_ACTS
from bmdp.envs.tasks import Task
from bmdp.envs.two_way import TwoWay, physics
from bmdp.envs.two_way.physics import RoadState
from bmdp.experiments.experiment import Piece
from bmdp.experiments.parts.measuring import rounded
from bmdp.experiments.parts.traces import Trace

_FRAMES_KEPT = 3  # every third of 15 a second


def layout_of(task: Task) -> Piece:
    """Returns what does not change from episode to episode."""
    return _SCENES[task.name][0](task)


def episode_of(task: Task, trace: Trace) -> Piece:
    """Returns one episode, with what is drawn or read of it."""
    return _SCENES[task.name][1](task, trace)


def _map(task: Corridors) -> Piece:
    """Cells of corridors, row by row."""
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
    """Where an episode of corridors went."""
    states: tuple[CorridorsState, ...] = trace.states
    return {
        "x": rounded([float(state.x[0]) for state in states], 3),
        "y": rounded([float(state.y[0]) for state in states], 3),
        **_steps(trace),
    }


def _steps(trace: Trace) -> Piece:
    """What each step did, earned and paid."""
    return {
        "action": trace.actions.tolist(),
        "reward": rounded(trace.rewards),
        "cost": rounded(trace.costs),
        "budget": rounded(trace.budgets),
    }


def _form(task: SlotFilling) -> Piece:
    """What a dialogue is about."""
    return {"slots": task.slots, "horizon": task.horizon, "actions": list(task.action_names)}


def _dialogue(task: SlotFilling, trace: Trace) -> Piece:
    """What was said, a line each."""
    lines = []
    for turn, action in enumerate(trace.actions.tolist()):
        before, after = trace.states[turn], trace.states[turn + 1]
        held, handed_on = rounded(trace.budgets[turn : turn + 2])
        reward, cost = rounded([trace.rewards[turn], trace.costs[turn]])
        act, text = _asked(task, before, action)
        lines.append(_line("system", act, text, budget=held))
        act, text = _answered(task, after, action, reward)
        lines.append(_line("user", act, text, reward, cost, handed_on))
    act, text = _end(lines[-1]["act"], cost)
    lines.append(_line("end", act, text, budget=handed_on))
    return {
        "lines": lines,
        "reward": float(trace.rewards.sum()),
        "cost": float(trace.costs.sum()),
    }


def _line(
    who: str, act: str, text: str, reward: float = 0.0, cost: float = 0.0, budget: float = 0.0
) -> Piece:
    """A line of a dialogue."""
    return {
        "who": who,
        "act": act,
        "text": text,
        "reward": reward,
        "cost": cost,
        "budget": budget,
    }


def _asked(task: SlotFilling, state: SlotFillingState, action: int) -> tuple[str, str]:
    """What the system does, and says."""
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
    """What the user does, and what comes of it."""
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
    """How a dialogue ended, given the last act of the user."""
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
        "lanes": [
            {"y": 0.0, "kind": "oncoming"},
            {"y": physics.LANE_WIDTH, "kind": "own"},
        ],
        "car_length": physics.CAR_LENGTH,
        "car_width": physics.CAR_WIDTH,
        "actions": list(task.action_names),
    }


def _drive(task: TwoWay, trace: Trace) -> Piece:
    """Where cars were, a few frames a second."""
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


_SCENES: dict[str, tuple[Callable[[Any], Piece], Callable[[Any, Trace], Piece]]] = {
    "corridors": (_map, _way),
    "slot-filling": (_form, _dialogue),
    "two-way": (_road, _drive),
}
