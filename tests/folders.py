"""Folders of experiments, written by hand: small, with numbers that are easy to check."""

import json

import numpy as np

BUDGETS = [0.0, 0.5, 1.0]
ENDS = ("mean", "low", "high")
CELLS = [
    {"x": 0, "y": 0, "reward": 0.0, "cost": 0.0, "kind": "start"},
    {"x": 1, "y": 0, "reward": 0.0, "cost": 0.0, "kind": "wall"},
    {"x": 0, "y": 1, "reward": 1.0, "cost": 0.0, "kind": "safe"},
    {"x": 1, "y": 1, "reward": 10.0, "cost": 0.125, "kind": "risky"},
]
MAP = {"columns": 2, "rows": 2, "cells": CELLS, "start": [0.5, 0.5]}
ROAD = {"lane_width": 4.0, "n_lanes": 2, "length": 800.0, "car_length": 5.0, "car_width": 2.0}


def write(path, piece):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(piece))


def finish(folder, seconds=1.5):
    write(folder / "finished.json", {"seconds": seconds, "machine": {"cores": 2}})


def spec(folder, experiment, seeds=(0, 1), **changes):
    header = {
        "schema": 2,
        "kind": "experiment",
        "experiment": experiment,
        "preset": "smoke",
        "seeds": list(seeds),
        "device": "cpu",
        "threads": 1,
        "settings": {"sensitive": {"exploration": {"rounds": 2, "episodes": 50}}, "n": 1},
        "versions": {"bmdp": "0.1.0"},
        "machine": {"cores": 2},
        "began": "2026-11-16T11:00:00+00:00",
        "command": f"bmdp run {experiment} --out somewhere",
    }
    write(folder / "spec.json", header | changes)


def evaluation(cost, reward, *, budgets=BUDGETS, half=0.01, **changes):
    """Fields of an evaluation; intervals reach `half` to either side."""
    n = len(budgets)
    piece = {"budgets": list(budgets), "confidence": 0.95, "seed": 0, "env": "corridors"}
    for name, values in (("cost", cost), ("reward", reward)):
        for kind in ("", "discounted_"):
            for end, off in zip(ENDS, (0, -half, half), strict=True):
                piece[f"{kind}{name}_{end}"] = [v + off for v in values]
    piece |= {"cost_quantiles": [[0.0] * 3] * n, "gamma": 1.0, "n_episodes": 100}
    for name in ("cost_cvar", "episode_length_mean", "infeasible_share"):
        piece[name] = [0.0] * n
    return piece | changes


def truth(costs=(0.0, 1.0), rewards=(10.0, 20.0)):
    return {"costs": costs, "rewards": rewards, "reward_error": 0.5, "settings": {}}


def prices(cost, reward, *, listed=(0.0, 10.0, 20.0), half=0.02):
    piece = {"prices": listed, "n_episodes": 100, "gamma": 1.0}
    for name, values in (("cost", cost), ("reward", reward)):
        for end, off in zip(ENDS, (0, -half, half), strict=True):
            piece[f"{name}_{end}"] = [v + off for v in values]
    return piece | {"cost_deviation": [0.1] * len(listed), "n_more": 100 * len(listed)}


def hull():
    return {
        "state": [3.5, 0.5],
        "costs": [0.0, 1.0, 0.5],
        "rewards": [0.0, 10.0, 1.0],
        "action": [0, 1, 1],
        "handed_on": [0.0, 1.0, 0.5],
        "action_names": ["stay", "go", "never"],
        "frontier": {"costs": [0.0, 1.0], "rewards": [0.0, 10.0], "index": [0, 1]},
        "budget": 0.25,
        "mixture": {
            **{"lower": 0, "upper": 1, "p_upper": 0.25, "status": "TIGHT"},
            **{"cost": 0.25, "reward": 2.5},
        },
    }


def way(*places, cost=0.0):
    x, y = zip(*places, strict=True)
    n = len(x) - 1
    return {
        **{"x": list(x), "y": list(y), "action": [1] * n, "reward": [0.0] * n},
        **{"cost": [cost] * n, "budget": [0.5] * (n + 1)},
    }


def drive(lane=4.0, crashed=None):
    ego = {"x": [0.0, 10.0, 30.0], "y": [4.0, lane, lane], "heading": [0.0] * 3, "ego": True}
    other = {"x": [40.0, 38.0, 36.0], "y": [0.0] * 3, "heading": [3.14] * 3, "ego": False}
    if crashed is not None:
        ego["crashed"] = crashed
    steps = {"action": [1], "reward": [1.0], "cost": [0.0], "budget": [0.5, 0.5]}
    return {"dt": 0.2, "cars": [other, ego], **steps}


def dialogue():
    line = {"who": "system", "act": "ask", "text": "Say it.", "reward": 0.0, "cost": 0.0}
    return {"lines": [line | {"budget": 0.5}], "reward": 0.0, "cost": 0.0}


def executions(env="corridors", budgets=BUDGETS):
    n = len(budgets)
    one = {
        "corridors": way((0.5, 0.5), (0.5, 1.5)),
        "two-way": drive(),
        "slot-filling": dialogue(),
    }[env]
    ends = {f"{n}_{e}": list(budgets) for n in ("cost", "reward") for e in ("low", "high")}
    choice = {"lower": 0, "upper": 0, "p_upper": 0.0, "status": "SLACK", "cost": 0, "reward": 1}
    layouts = {"corridors": MAP, "two-way": ROAD, "slot-filling": {"slots": 3}}
    return {
        **{"env": env, "env_settings": {}, "gamma": 1.0, "budgets": list(budgets)},
        "frontier": {"costs": [0.0], "rewards": [1.0], "labels": ["stay, handing on 0"]},
        "choices": [choice] * n,
        "realised": {"cost": [0.1 + b / 2 for b in budgets], "reward": [9.0] * n, **ends},
        "layout": layouts[env],
        "episodes": [[one, one] for _ in budgets],
    }


def exploration(n_rounds=2, n_episodes=3):
    episodes = [way((0.5, 0.5), (0.5, 1.5), (1.5, 1.5)) | {"cost": 0.1}] * n_episodes
    rounds = [
        {"round": i, "n_episodes": 50, "reward": 1.0 + i, "cost": 0.1, "episodes": episodes}
        for i in range(n_rounds)
    ]
    return {"env": "corridors", "rounds": rounds, "layout": MAP}


def corridors(folder, seeds=(0, 1)):
    """All of the experiment on exploration. Seed s pays and earns 0.1 s more."""
    spec(folder, "corridors-exploration", seeds)
    write(folder / "truth/truth.json", truth())
    finish(folder / "truth")
    for seed in seeds:
        off = 0.1 * seed
        sensitive, neutral = folder / f"seed-{seed}", folder / f"risk-neutral/seed-{seed}"
        costs = [0.0 + off, 0.5 + off, 1.0 + off]
        write(sensitive / "evaluation.json", evaluation(costs, [9 + off, 14 + off, 19 + off]))
        write(sensitive / "executions.json", executions())
        write(sensitive / "exploration.json", exploration())
        write(sensitive / "hull.json", hull())
        write(neutral / "evaluation.json", evaluation(costs, [1.0, 2.0, 3.0]))
        write(neutral / "exploration.json", exploration())
        lines = [{"kind": "collection", "round": i, "reward": i + off, "cost": 0.1} for i in (0, 1)]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (sensitive / "records.jsonl").write_text(text + '{"kind": "coll')  # as a kill leaves it
        finish(sensitive)
        finish(neutral)


def slot_filling(folder, seeds=(0, 1), experiment="slot-filling", env="slot-filling"):
    """All of an experiment with prices. Seed s pays 0.1 s more."""
    spec(folder, experiment, seeds)
    if experiment == "slot-filling":
        write(folder / "truth/truth.json", truth())
        finish(folder / "truth")
    for seed in seeds:
        off = 0.1 * seed
        main, ftq = folder / f"seed-{seed}", folder / f"ftq/seed-{seed}"
        costs = [0.0 + off, 0.5 + off, 0.6 + off]
        write(main / "evaluation.json", evaluation(costs, [9.0, 14.0, 15.0]))
        write(main / "executions.json", executions(env))
        write(main / "hull.json", hull())
        write(ftq / "prices.json", prices([0.6 + off, 0.4 + off, 0.0], [15.0, 12.0, 5.0]))
        write(ftq / "evaluation.json", evaluation(costs, [8.0, 13.0, 15.0]))
        write(ftq / "evaluation-carried.json", evaluation(costs, [9.5, 14.5, 16.0]))
        finish(main)
        finish(ftq)


def scripts():
    piece = {"names": ["slow", "fast"], "n_episodes": 100, "gamma": 0.9}
    for name, values in (("cost", [0.1, 0.7]), ("reward", [1.0, 6.0])):
        for end, off in zip(ENDS, (0, -0.01, 0.01), strict=True):
            piece[f"discounted_{name}_{end}"] = [v + off for v in values]
    return piece


def driving(folder, seeds=(0, 1)):
    slot_filling(folder, seeds, "driving", "two-way")
    write(folder / "scripts/scripts.json", scripts())
    finish(folder / "scripts")


def gap_row(share):
    names = ("asked", "cost", "reward", "best", "ratio", "allocation_share", "carried_share")
    return {name: [1.0] * len(share) for name in names} | {"share": share, "converged": True}


BRANCHES = {
    "payoffs": [10.0, 1.0],
    "budget": 0.5,
    "rewards": {"operator": 2.75, "linear_program": 5.0},
    "frontiers": {
        "linear_program": {"costs": [0.0, 0.5, 1.0], "rewards": [0.0, 5.0, 5.5]},
        "operator": {"costs": [0.0, 1.0], "rewards": [0.0, 5.5]},
    },
}
PAIR = {
    **{"name": "steep", "size": 0.2, "budget": 0.2, "distance": 0.2, "image_distance": 1.0},
    "first": {"costs": [0.0, 0.2], "rewards": [0.0, 1.0], "chosen": {"cost": 0.2, "reward": 1.0}},
    "second": {"costs": [0.2, 0.4], "rewards": [0.0, 1.0], "chosen": {"cost": 0.2, "reward": 0.0}},
}


def theory(folder, seeds=(0, 1)):
    spec(folder, "theory", seeds)
    for seed in seeds:
        kinds = {"random": [gap_row([0.5, None, 0.7 + seed / 10])]}
        write(folder / f"seed-{seed}/gaps.json", {"kind": kinds, "summary": {}})
        finish(folder / f"seed-{seed}")
    common = folder / "counter-examples"
    rows = [
        {"size": 0.1, "steep": 10.0, "kinked": 4.5},
        {"size": 0.01, "steep": 100.0, "kinked": 45},
    ]
    rising = [{"L": 0.1, "bound": 1.1, "largest": 1.09}]
    write(common / "expansion.json", {"rows": rows, "rising": rising, "gamma": 0.9})
    write(common / "branches.json", BRANCHES)
    write(common / "pairs.json", {"gamma": 0.9, "pairs": [PAIR, PAIR]})
    finish(common)


def small(folder):
    """An experiment with one figure and two tables, which is made soon."""
    spec(folder, "theory", seeds=(0,))
    rows = [{"size": 0.1, "steep": 10.0, "kinked": 4.5}]
    piece = {"rows": rows, "rising": [], "gamma": 0.9}
    write(folder / "counter-examples/expansion.json", piece)
    finish(folder / "counter-examples")
    finish(folder / "seed-0")


def rules(off=0.0):
    found = {
        **{"price": [20.0, 10.0, 0.0], "other_price": [20.0, 10.0, 0.0], "p_other": [0.0] * 3},
        **{"infeasible": [True, False, False], "said": [0.1, 0.4, 0.6]},
        **{"realised_cost": [0.1 + off, 0.4, 0.6], "realised_reward": [5.0, 12.0, 15.0]},
        **{"realised_cost_low": [0.0, 0.3, 0.5], "realised_cost_high": [0.2, 0.5, 0.7]},
    }
    costs = {"mean": [0.6, 0.4, 0.1], "deviation": [0.7, 0.5, 0.2], "mixture": [0.6, 0.4, 0.1]}
    return {
        **{"budgets": BUDGETS, "prices": [0.0, 10.0, 20.0]},
        "rules": {rule: found | {"cost": cost} for rule, cost in costs.items()},
        "test": prices([0.6, 0.4, 0.1], [15.0, 12.0, 5.0]),
    }


def certificates():
    kept = {"calibration": 0, "asked": 0.3, "exact": 0.2, "kept": True}
    broken = kept | {"exact": 0.35, "kept": False}
    kinds = {"binary": [kept, kept], "bounded": [kept, kept], "means": [kept, broken]}
    return {
        **{"confidence": 0.95, "n_episodes": 150, "exact": [0.1, 0.2]},
        "kinds": {
            kind: {
                **{"rows": rows, "shown": [{"mean": [0.1, 0.2], "high": [0.2, 0.3]}]},
                "calibrations": len(rows),
                "broken": sum(not row["kept"] for row in rows),
                "allowed": 1,
            }
            for kind, rows in kinds.items()
        },
    }


CERTIFICATE = {"confidence": 0.95, "n_episodes": 60, "smallest_budget": 0.2, "text": "Promised."}


def dial(policy):
    return {
        **{"policy": policy, "budgets": BUDGETS, "certificate": CERTIFICATE},
        "before": evaluation([0.1, 0.6, 0.6], [9.0, 14.0, 15.0]),
        "after": evaluation([0.0, 0.4, 0.6], [8.0, 13.0, 15.0]),
    }


def calibration(folder, seeds=(0, 1)):
    spec(folder, "calibration", seeds)
    write(folder / "truth/truth.json", truth())
    finish(folder / "truth")
    for seed in seeds:
        main = folder / f"seed-{seed}"
        write(main / "prices.json", prices([0.6, 0.4 + seed / 10, 0.1], [15.0, 12.0, 5.0]))
        write(main / "rules.json", rules(seed / 10))
        write(main / "dial.json", dial("FTQ(lambda), mixture"))
        write(folder / f"certificates/seed-{seed}/certificates.json", certificates())
        write(folder / f"dial/seed-{seed}/dial.json", dial("BFTQ"))
        for place in (main, folder / f"certificates/seed-{seed}", folder / f"dial/seed-{seed}"):
            finish(place)


def method(title, seed, reward):
    found = evaluation([0.0, 0.5, 1.0], [reward] * 3)
    move = {"from": 0.0, "budgets": [0.0, 1.0], "going": 1.0, "infeasible": [0.0, 0.0]}
    return {
        **{"method": title, "task": "corridors", "seed": seed, "n_models": 9, "n_more": 0},
        **{"evaluation": found, "seconds": {"train": 2.0, "test": 1.0}},
        "moved": [move | {"cost": [0.0, 0.9], "reward": [1.0, 1.0], "ideal": [0.0, 1.0]}],
        "calibrated": {"certificate": CERTIFICATE, "evaluation": found},
    }


def comparison(folder, seeds=(0, 1)):
    spec(folder, "comparison", seeds)
    write(folder / "truth/truth-corridors.json", truth())
    finish(folder / "truth")
    for seed in seeds:
        place = folder / f"corridors/seed-{seed}"
        write(place / "method-bftq.json", method("BFTQ", seed, 9.0 + seed))
        write(place / "method-coin.json", method("coin", seed, 5.0))
        finish(place)
        for task in ("routes-4", "slot-filling", "two-way"):
            finish(folder / task / f"seed-{seed}")


WRITERS = {
    "corridors-exploration": corridors,
    "slot-filling": slot_filling,
    "driving": driving,
    "theory": theory,
    "calibration": calibration,
    "comparison": comparison,
}


def student_half(values):
    """Half of Student's 95 % interval, by a table of quantiles."""
    quantile = {2: 12.706204736, 3: 4.302652730}[len(values)]
    return quantile * np.std(values, ddof=1) / np.sqrt(len(values))


PICTURES = {
    "corridors-exploration": ("trade-off", "asked", "trajectories", "ways", "hull", "rounds"),
    "slot-filling": ("trade-off", "asked", "calibration", "hull"),
    "driving": ("trade-off", "asked", "calibration", "drives", "hull"),
    "theory": ("gaps", "branches", "pairs", "expansion"),
    "calibration": ("multiplier", "rules", "dials", "promises"),
    "comparison": ("corridors-scores", "corridors-trade-off"),
}
"""Of each experiment, at least."""
