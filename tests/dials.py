"""Small dials, films and plug-ins for pages, made by hand: three budgets, two episodes at each."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import bmdp
from bmdp.evaluation import Evaluation
from bmdp.report.section import Column, Picture, Plugin, Section, Table

BUDGETS = [0.0, 0.25, 1.0]
SOURCE = Path(bmdp.__file__).parent
STAGES = {
    "corridors": ("corridors.js", "corridorsStage"),
    "slot-filling": ("dialogue.js", "dialogueStage"),
    "two-way": ("road.js", "roadStage"),
}
LAYOUTS = """
.of-two-way { grid-template-areas: "stage stage" "tiles tiles" "frontier mixture" "frontier honesty"; }
.of-slot-filling .v-stage { align-self: stretch; display: flex; flex-direction: column; }
"""  # noqa: E501


def asset(name):
    """The text of a script or style of the paper's tasks."""
    places = (SOURCE / home / "assets" / name for home in ("paper", "report"))
    return next(place for place in places if place.exists()).read_text()


def plugin(env):
    """The pictures of one of the paper's tasks."""
    name, make = STAGES[env]
    script, style = asset(name), asset("stages.css")
    scripts = [script]
    if "addStage(" not in script:
        scripts.append(f'addStage("{env}", "What it does", {make});')
    if env == "corridors":
        film = asset("film.js")
        scripts += [film, "" if "addPart(" in film else 'addPart("film", mountFilm);']
    return Plugin(env, scripts, [style, "" if ".of-two-way" in style else LAYOUTS])


def plugins():
    return [plugin(env) for env in STAGES]


def evaluation(cost, reward, *, budgets=(0.0, 0.5, 1.0), half=0.01, **changes):
    """Means over episodes; intervals reach `half` to either side."""
    ends = {"mean": 0.0, "low": -half, "high": half}
    fields = {
        f"{kind}{name}_{end}": np.asarray(values, float) + off
        for name, values in (("cost", cost), ("reward", reward))
        for kind in ("", "discounted_")
        for end, off in ends.items()
    }
    n = len(budgets)
    fields |= {name: np.zeros(n) for name in ("cost_cvar", "episode_length_mean")}
    fields |= {"infeasible_share": np.zeros(n), "cost_quantiles": np.zeros((n, 3))}
    fields |= {"n_episodes": 100, "confidence": 0.95, "seed": 0, "env": "corridors", "gamma": 1.0}
    return Evaluation(budgets=np.asarray(budgets, float), **(fields | changes))


def dial(env, layout, episodes, **more):
    """What all dials share: below, on and above the frontier."""
    return {
        "env": env,
        "env_settings": {},
        "gamma": 1.0,
        "budgets": BUDGETS,
        "frontier": {
            "costs": [0.1, 0.5],
            "rewards": [20.0, 60.0],
            "labels": ["left, handing on 0", "right, handing on 1"],
        },
        "choices": [
            choice(0, 0, 0.0, "INFEASIBLE", 0.1, 20.0),
            choice(0, 1, 0.375, "TIGHT", 0.25, 35.0),
            choice(1, 1, 0.0, "SLACK", 0.5, 60.0),
        ],
        "realised": {
            "cost": [0.11, 0.24, None],
            "cost_low": [0.1, 0.22, None],
            "cost_high": [0.12, 0.26, None],
            "reward": [19.0, 34.5, 58.25],
            "reward_low": [18.0, 33.0, 57.0],
            "reward_high": [20.0, 36.0, 59.5],
        },
        "layout": layout,
        "episodes": episodes,
        "truth": {"costs": [0.0, 0.6], "rewards": [21.0, 66.0]},
        "title": f"Dial of {env}",
        **more,
    }


def choice(lower, upper, p_upper, status, cost, reward):
    names = ("lower", "upper", "p_upper", "status", "cost", "reward")
    return dict(zip(names, (lower, upper, p_upper, status, cost, reward), strict=True))


def layout_of_corridors():
    kinds = {(0, 0): "free", (1, 0): "start", (2, 0): "risky", (0, 1): "safe", (2, 1): "risky"}
    cells = [
        {
            "x": x,
            "y": y,
            "reward": 10.0 * y * (1 + x),
            "cost": 0.125 * (x == 2),
            "kind": kinds.get((x, y), "wall"),
        }
        for y in range(2)
        for x in range(3)
    ]
    return {"columns": 3, "rows": 2, "cells": cells, "start": [1.5, 0.5]}


def way(side, n_risky):
    """To the left or the right, then down."""
    x = 1.5 + side
    cost = [0.125] * n_risky + [0.0] * (2 - n_risky)
    return {"x": [1.5, x, x], "y": [0.5, 0.5, 1.5], "action": [2, 1], "reward": [0.0, 10.0]} | {
        "cost": cost,
        "budget": [0.25, 0.25, 0.25],
    }


def corridors():
    ways = [[way(-1, 0), way(-1, 0)], [way(-1, 0), way(1, 2)], [way(1, 2), way(1, 2)]]
    return dial("corridors", layout_of_corridors(), ways)


def line(who, act, text, reward=0.0, cost=0.0, budget=0.0):
    names = ("who", "act", "text", "reward", "cost", "budget")
    return dict(zip(names, (who, act, text, reward, cost, budget), strict=True))


def dialogue(budget, *, succeeds):
    asked = line("system", "ask_oral", f"Please say value {budget}.", budget=budget)
    if succeeds:
        said = line("user", "confirm", "Yes.", 100.0, 0.0, budget)
        end = line("end", "success", "The form is filled.")
    else:
        said = line("user", "hang_up", "Hangs up.", 0.0, 1.0, budget)
        end = line("end", "hang_up", "The user has hung up.")
    return {"lines": [asked, said, end], "reward": said["reward"], "cost": said["cost"]}


def dialogues():
    episodes = [
        [dialogue(b, succeeds=True), dialogue(b, succeeds=k == 0)] for k, b in enumerate(BUDGETS)
    ]
    return dial("slot-filling", {"slots": 3, "horizon": 10}, episodes)


def drive(*, overtakes):
    """Four seconds: two frames each, on the own lane or to the other one."""
    n = 9
    ego = {"x": [30.0 + 15 * i for i in range(n)], "heading": [0.0] * n, "ego": True}
    ego["y"] = [4.0] * 3 + [2.0] + [0.0] * 5 if overtakes else [4.0] * n
    ego |= {"crashed": [0] * 8 + [1]} if overtakes else {}
    other = {"x": [100.0 + 10 * i for i in range(n)], "y": [4.0] * n, "heading": [0.0] * n}
    oncoming = {"x": [400.0 - 10 * i for i in range(n)], "y": [0.0] * n, "heading": [3.142] * n}
    cars = [ego, other | {"ego": False}, oncoming | {"ego": False}]
    cost = [0.0, 0.067, 0.067, 1.0] if overtakes else [0.0] * 4
    action = [1, 0, 3, 1] if overtakes else [4, 1, 1, 1]
    return {"dt": 0.5, "cars": cars, "action": action, "reward": [0.5] * 4, "cost": cost} | {
        "budget": [0.3, 0.2, 0.1, 0.1, 0.0]
    }


def drives():
    layout = {"lane_width": 4.0, "n_lanes": 2, "length": 800.0}
    layout["actions"] = ["left", "idle", "right", "faster", "slower"]
    episodes = [[drive(overtakes=k > 0), drive(overtakes=k > 1)] for k in range(3)]
    return dial("two-way", layout, episodes, gamma=0.9, truth=None)


def film():
    rounds = [
        {"round": i, "n_episodes": 50, "reward": 5.0 * i, "cost": 0.1 * i, "epsilon": 1 - 0.3 * i}
        | {"episodes": [way(side, 0) | {"cost": 0.0, "budget": 0.5} for side in (-1, 1)[: i + 1]]}
        for i in range(3)
    ]
    return {"env": "corridors", "rounds": rounds, "layout": layout_of_corridors(), "title": "Film"}


def picture(name="curve", **changes):
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, 1], [0, 1], clip_on=True)
    words = {"title": "A curve", "caption": "What is drawn.", "alt": "A rising line."}
    return Picture(name, **(words | changes), figure=figure)


def table(name="asked", **changes):
    columns = [
        Column("budget", [0.0, 0.25], ".2f"),
        Column("cost", [0.11, 0.24], ".2f"),
        Column("what", ["cheapest", "mixed"], "s"),
        Column("", [0.1, 0.2], "", "low"),
    ]
    parts = {"title": "Asked and realised", "columns": columns, "note": "Two seeds."}
    return Table(name, **(parts | changes))


def forecast_only(**more):
    """A dial without a simulator, with several states and actions."""
    given = dial("", {}, [])
    for name in ("layout", "episodes", "truth"):
        del given[name]
    given["realised"] = {name: [None] * 3 for name in given["realised"]}
    given["forecast"] = {"cost": [0.12, 0.3, 0.5], "reward": [19.0, 33.0, 58.0]}
    given["forecast"]["source"] = "from held-out episodes"
    later = {"costs": [0.0, 0.2, 0.4], "rewards": [1.0, 5.0, 7.0], "labels": ["a", "b", "c"]}
    choices = [
        choice(0, 0, 0.0, "TIGHT", 0.0, 1.0),
        choice(1, 2, 0.25, "TIGHT", 0.25, 5.5),
        choice(2, 2, 0.0, "SLACK", 0.4, 7.0),
    ]
    first = {"name": "state 0: first state", "frontier": given["frontier"]}
    given["states"] = [
        first | {"choices": given["choices"]},
        {"name": "state 7: stands for 30% of the data", "frontier": later, "choices": choices},
    ]
    given["actions"] = {
        "names": ["wait", "go"],
        "by_budget": [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]],
        "steps": [1, 2],
        "by_step": [[[1.0, 0.0], [0.5, 0.0]], [[0.5, 0.5], [0.25, 0.25]], [[0.0, 1.0], [0.0, 0.5]]],
        "source": "Asked at states of the log.",
    }
    given["baselines"] = [
        {"name": "a coin", "costs": [0.1, 0.5], "rewards": [20.0, 58.0]},
        {"name": "the log", "costs": [0.2], "rewards": [25.0], "cost_low": 0.1, "cost_high": 0.3},
    ]
    return given | more


def section(anchor="corridors", **more):
    """A section with all that a section can have, unless told otherwise."""
    parts = {
        "question": "Does it work?",
        "answer": "It does.",
        "facts": {"Seeds": "0, 1", "Command": "bmdp run corridors-exploration"},
        "pictures": [picture()],
        "tables": [table()],
        "dials": [corridors()],
        "films": [film()],
    }
    return Section(anchor, f"On {anchor}", **(parts | more))


def sections():
    """Of all three environments."""
    others = {"pictures": [], "tables": [], "films": []}
    return [
        section(),
        section("slot-filling", dials=[dialogues()], **others),
        section("driving", dials=[drives()], **others),
    ]
