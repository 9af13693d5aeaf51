"""Tables of what benchmarks wrote: a function for each, from a record to its numbers.

Ratios and growth are computed here, from what was measured in one run. `tables.py` puts the tables
on docs/paper/performance.md. The module is long as all benchmarks have their tables in it; each
table is read by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bmdp.report.section import Cell, Column, Table

USUAL = (505, 2_000)  # points of a state, and states, of which frontiers are shown in full
REFERENCES = {
    "convex_hull": "ConvexHull",
    "graham_scan": "Graham scan",
    "monotone_chain": "monotone chain",
}

Record = Mapping[str, Any]
"""What a benchmark wrote, or a row of it."""


def ratio(value: float | None, reference: float | None) -> float | None:
    """Returns how many times the reference a value is; None if one of them was not measured.

    >>> ratio(3.0, 2.0)
    1.5
    """
    return None if value is None or reference is None else value / reference


def growth(values: Sequence[float], sizes: Sequence[float], what: str) -> str:
    """Returns how many times the first value the last is, and the last size the first.

    >>> growth([2.0, 8.2], [10, 40], "rows")
    'x4.1 for x4 rows'
    """
    grown, larger = (_times(of[-1] / of[0]) for of in (values, sizes))
    return f"{grown} for {larger} {what}"


def _times(factor: float) -> str:
    return f"x{factor:,.0f}" if factor >= 9.95 else f"x{factor:.2g}"


def _rate(per_second: float) -> float:
    """Three digits of it: no more are found again by another run."""
    return float(f"{per_second:.3g}")


def _column(name: str, rows: Sequence[Record], key: str, form: str) -> Column:
    return Column(name, [row[key] for row in rows], form)


def _groups(rows: Sequence[Record], *keys: str) -> dict[tuple[Any, ...], list[Record]]:
    """Rows that have the same values, in the order of the first of each."""
    found: dict[tuple[Any, ...], list[Record]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def _cases(rows: Sequence[Record]) -> list[Column]:
    return [
        Column("job", [f"`{row['job']}`" for row in rows], "s"),
        _column("points", rows, "input", "s"),
        _column("precision", rows, "precision", "s"),
    ]


def frontier_ratios(record: Record) -> Table:
    """Returns microseconds at the usual size, and how many times as long the references take."""
    rows = [row for row in record["rows"] if (row["K"], row["N"]) == USUAL]
    return Table(
        "ratios",
        f"{USUAL[0]:,} points a state, {USUAL[1]:,} states; us a state, and how many times as "
        "long the references take as one thread:",
        [
            *_cases(rows),
            _column("one thread, us", rows, "us", ".2f"),
            _column("two threads, us", rows, "us_two_threads", ".2f"),
            Column("gain of two", [ratio(r["us"], r["us_two_threads"]) for r in rows], ".2f"),
            *(
                Column(f"x {title}", [ratio(r[f"{name}_us"], r["us"]) for r in rows], ".0f")
                for name, title in REFERENCES.items()
            ),
        ],
    )


def frontier_least(record: Record) -> Table:
    """Returns the least gain on each reference, of each job and number of points."""
    groups = _groups(record["rows"], "job", "K")

    def least(rows: Sequence[Record], reference: str) -> str:
        known = [row for row in rows if row[f"{reference}_us"] is not None]
        row = min(known, key=lambda row: row[f"{reference}_us"] / row["us"])
        where = f"{row['input']}, {row['precision']}, {row['N']:,} states"
        return f"{row[f'{reference}_us'] / row['us']:.0f} ({where})"

    return Table(
        "least",
        "The least gain of one thread, over all inputs, precisions and numbers of states:",
        [
            Column("job", [f"`{job}`" for job, _ in groups], "s"),
            Column("points a state", [n for _, n in groups], ",d"),
            *(
                Column(f"x {title}", [least(rows, name) for rows in groups.values()], "s")
                for name, title in REFERENCES.items()
            ),
        ],
    )


def frontier_growth(what: str, size: str, others: Sequence[Record], record: Record) -> Table:
    """Returns growth with one size, for some values of the other."""
    groups = list(_groups(record["rows"], "job", "input", "precision").values())
    columns = _cases([rows[0] for rows in groups])
    for other in others:
        series = [
            sorted((r for r in rows if other.items() <= r.items()), key=lambda r: int(r[size]))
            for rows in groups
        ]
        for at in zip(*series, strict=True):
            name = f"{at[0]['K']:,} x {at[0]['N']:,}"
            columns.append(_column(name, at, "us", ".2f"))
        grown = [growth([r["us"] for r in rows], [r[size] for r in rows], what) for rows in series]
        columns.append(Column("growth", grown, "s"))
    return Table(
        what, "One thread, us a state (points x states), and how much that grows:", columns
    )


def exact_parts(record: Record) -> Table:
    """Returns what one application of T takes, and what it cannot do without."""
    row = record["row"]
    whole, products, frontiers = (
        row[f"seconds_{name}"] for name in ("per_application", "sparse_products", "frontier_values")
    )
    seconds = [products, frontiers, products + frontiers, whole]
    return Table(
        "parts",
        f"{row['states']:,} states, {row['actions']} actions, {row['successors']} successors, "
        f"{row['budgets']} budgets; {row['applications']} applications, which peak at "
        f"{row['peak_memory_mib']:,} MiB:",
        [
            Column("what", ["two sparse products", "`frontier_values`", "both", "T"], "s"),
            Column("seconds", seconds, ".4f"),
            Column("us a state", [1e6 * s / row["states"] for s in seconds], ".2f"),
            Column("x both", [ratio(s, products + frontiers) for s in seconds], ".2f"),
        ],
    )


def envs_steps(record: Record) -> Table:
    """Returns steps a second of batches, against one environment."""
    rows = record["rows"]
    gains = [ratio(r["steps_per_second"], r["single_steps_per_second"]) for r in rows]
    return Table(
        "steps",
        "Steps a second, one thread:",
        [
            _column("task", rows, "env", "s"),
            _column("batch", rows, "n", ",d"),
            Column("batched", [_rate(r["steps_per_second"]) for r in rows], ",.0f"),
            Column("one by one", [_rate(r["single_steps_per_second"]) for r in rows], ",.0f"),
            Column("ratio", gains, ".0f"),
        ],
    )


def driving_decisions(record: Record) -> Table:
    """Returns decisions a second of the two-way road, against highway-env."""
    row = record["row"]
    theirs, one, many = (row[f"{name}_per_second"] for name in ("highway_env", "single", "batch"))
    return Table(
        "decisions",
        "Decisions a second, one thread:",
        [
            Column("simulation", ["highway-env", "one road", "batch"], "s"),
            Column("roads", [1, 1, row["n"]], ",d"),
            Column("decisions a second", [_rate(v) for v in (theirs, one, many)], ",.0f"),
            Column("x highway-env", [ratio(v, theirs) for v in (theirs, one, many)], ",.0f"),
            Column("growth", [None, None, growth([one, many], [1, row["n"]], "roads")], "s"),
        ],
    )


def learning_targets(record: Record) -> Table:
    """Returns seconds of a target step, against a loop over states and the paper's network."""
    rows = record["target_step"]
    whole = [row["forward_seconds"] + row["frontier_seconds"] for row in rows]
    loops = [ratio(row["loop_seconds"], row["frontier_seconds"]) for row in rows]
    return Table(
        "targets",
        "Seconds of the target step; the loop does the frontiers alone:",
        [
            _column("network", rows, "network", "s"),
            _column("states", rows, "states", ",d"),
            _column("budgets", rows, "budgets", "d"),
            _column("forward", rows, "forward_seconds", ".3f"),
            _column("frontiers", rows, "frontier_seconds", ".3f"),
            Column("both", whole, ".3f"),
            _column("loop", rows, "loop_seconds", ".2f"),
            Column("loop / frontiers", loops, ".0f"),
            Column("both, encoder's / this", [ratio(whole[0], both) for both in whole], ".1f"),
        ],
    )


def learning_growth(record: Record) -> Table:
    """Returns growth of the target step of the frontier network with the number of states."""
    few, many = record["target_step"][-1], record["million"]
    sizes = [few["states"], many["transitions"]]
    seconds = [few["forward_seconds"] + few["frontier_seconds"], many["seconds"]]
    return Table(
        "growth",
        "The target step of the frontier network, and what it adds to the peak of memory:",
        [
            Column("states", sizes, ",d"),
            Column("seconds", seconds, ".3f"),
            Column("us a state", [1e6 * s / n for s, n in zip(seconds, sizes, strict=True)], ".2f"),
            Column("MiB added", [None, many["added_mib"]], ".1f"),
            Column("growth", [None, growth(seconds, sizes, "states")], "s"),
        ],
    )


def learning_acting(record: Record) -> Table:
    """Returns decisions a second of one state after the other, and of many at once."""
    one, many = 1e3 / record["act_milliseconds"], record["decisions_per_second"]
    n = record["target_step"][-1]["states"]
    return Table(
        "acting",
        "Decisions of the frontier network:",
        [
            Column("call", ["`act`", "`decide`"], "s"),
            Column("states at once", [1, n], ",d"),
            Column("us a state", [1e3 * record["act_milliseconds"], 1e6 / many], ".1f"),
            Column("states a second", [_rate(one), _rate(many)], ",.0f"),
            Column("x `act`", [1.0, ratio(many, one)], ".0f"),
        ],
    )


def serving_one(record: Record) -> Table:
    """Returns microseconds of single decisions, and how many times as long the reference takes."""
    rows, one = record["rows"], [row["one"] for row in record["rows"]]

    def told(name: str, key: str) -> list[float | None]:
        return [found[name][key] if name in found else None for found in one]

    steps = told("step", "median_us")
    return Table(
        "one",
        "One decision, us:",
        [
            Column("policy", [row["policy"] for row in rows], "s"),
            Column("step", steps, ".0f"),
            Column("step, p99", told("step", "p99_us"), ",.0f"),
            Column("p99 of CPU", told("step", "cpu_p99_us"), ",.0f"),
            Column("request", told("request", "median_us"), ".0f"),
            Column("`act`", told("act", "median_us"), ".0f"),
            Column("reference", told("reference", "median_us"), ".0f"),
            Column("x step", list(map(ratio, told("reference", "median_us"), steps)), ".1f"),
        ],
    )


def serving_many(record: Record) -> Table:
    """Returns decisions a second of batches and of threads, and what policies weigh."""
    rows = record["rows"]
    batch, threads = [row["batch"] for row in rows], [row["threads"]["per_second"] for row in rows]
    later = [found["later_per_second"] for found in batch]
    return Table(
        "many",
        f"Decisions a second of {record['batch']:,} episodes on one core, and of single decisions "
        f"by threads; the whole process took {record['peak_mb']:.0f} MB:",
        [
            Column("policy", [row["policy"] for row in rows], "s"),
            Column("first", [_rate(found["first_per_second"]) for found in batch], ",.0f"),
            Column("later", list(map(_rate, later)), ",.0f"),
            Column("reference", [_rate(b["reference_per_second"]) for b in batch], ",.0f"),
            Column(
                "x reference",
                [ratio(n, b["reference_per_second"]) for n, b in zip(later, batch, strict=True)],
                ".1f",
            ),
            Column("one thread", [_rate(found["1"]) for found in threads], ",.0f"),
            Column("eight", [_rate(found["8"]) for found in threads], ",.0f"),
            Column("weights, MB", [row["weights_mb"] for row in rows], ".1f"),
        ],
    )


def workers_collection(record: Record) -> Table:
    """Returns seconds of collecting with some processes, against one."""
    return _spread(
        "collection",
        "Seconds of collecting, the start of the processes included:",
        record["collection"],
        {"env": "task", "episodes": "episodes", "start_seconds": "start of two, s"},
        "workers",
    )


def workers_targets(record: Record) -> Table:
    """Returns seconds of a target step with some threads, against one."""
    return _spread(
        "targets",
        "Seconds of the target step:",
        record["target_step"],
        {"network": "network", "states": "states", "budgets": "budgets"},
        "threads",
    )


def _spread(
    part: str, title: str, rows: Sequence[Record], kept: Mapping[str, str], what: str
) -> Table:
    """A row for each count of each row, with its gain on the first count."""
    spread = [
        {**row, "n": n, "s": s, "gain": ratio(row["seconds"][0], s)}
        for row in rows
        for n, s in zip(row[what], row["seconds"], strict=True)
    ]
    return Table(
        part,
        title,
        [
            *(_column(name, spread, key, ",") for key, name in kept.items()),
            _column(what, spread, "n", "d"),
            _column("seconds", spread, "s", ".3f"),
            _column("times as fast as one", spread, "gain", ".2g"),
        ],
    )


def together_step(record: Record) -> Table:
    """Returns milliseconds of a step of stacks, against as many networks one after the other."""
    rows, key = record["step"], "step_milliseconds"
    single = {row["network"]: row[key] for row in rows if row["networks"] == 1}
    ratios, grown = list[Cell](), list[Cell]()
    for row in rows:
        one, n = single[row["network"]], row["networks"]
        ratios.append(ratio(row[key], n * one))
        grown.append(None if n == 1 else growth([one, row[key]], [1, n], "networks"))
    return Table(
        "step",
        "A step, and how many times as long it takes as those of as many single networks:",
        [
            _column("network", rows, "network", "s"),
            _column("rows", rows, "rows", ",d"),
            _column("networks", rows, "networks", "d"),
            _column("milliseconds", rows, key, ".2f"),
            Column("ratio", ratios, ".2f"),
            Column("growth", grown, "s"),
        ],
    )


def finite_shares(record: Record) -> Table:
    """Returns rewards as shares of the linear program's."""
    rows = record["rows"]
    random = [row for name, row in rows.items() if name.startswith("random")]
    named = {name: row for name, row in rows.items() if not name.startswith("random")}
    ways = [key for key in random[0] if key not in ("budget", "price anew, cost")]
    best = "linear program"
    shares = [[row[way] / row[best] for row in random] for way in ways]
    return Table(
        "shares",
        f"Rewards at the middle budget, as shares of the linear program's; {len(random)} random "
        "models:",
        [
            Column("way", ways, "s"),
            *(
                Column(name, [ratio(row[way], row[best]) for way in ways])
                for name, row in named.items()
            ),
            Column("random, mean", [sum(share) / len(share) for share in shares]),
            Column("random, least", [min(share) for share in shares]),
        ],
    )


def offline_seconds(record: Record) -> Table:
    """Returns what intervals from a log take, of all finite models together."""
    named = [{**r, "problem": re.sub(r"finite \d+", "finite", r["case"])} for r in record["rows"]]
    keys = ("problem", "method", "episodes", "repeats")
    rows = [
        dict(zip(keys, key, strict=True)) | {"log": _mean_seconds(group)}
        for key, group in _groups(named, *keys).items()
    ]
    for row in rows:
        row["repeat"] = 1e3 * row["log"] / (row["repeats"] + 1)
    rivals = {(r["problem"], r["episodes"]): r for r in rows if r["method"] == "importance"}
    gains = [ratio(r["repeat"], rivals[r["problem"], r["episodes"]]["repeat"]) for r in rows]
    grown: list[Cell] = []
    for row in rows:
        first = _groups(rows, "problem", "method")[row["problem"], row["method"]][0]
        sizes, seconds = ([of[key] for of in (first, row)] for key in ("episodes", "log"))
        grown.append(None if row is first else growth(seconds, sizes, "episodes"))
    return Table(
        "seconds",
        "Seconds of the evaluation of one log, its collection included, and of each repeat of it:",
        [
            _column("problem", rows, "problem", "s"),
            Column("method", [f"`{row['method']}`" for row in rows], "s"),
            _column("episodes", rows, "episodes", ",d"),
            _column("repeats", rows, "repeats", "d"),
            _column("seconds a log", rows, "log", ".3f"),
            _column("ms a repeat", rows, "repeat", ",.2f"),
            Column("a repeat, x `importance`", gains, ",.0f"),
            Column("growth", grown, "s"),
        ],
    )


def _mean_seconds(rows: Sequence[Record]) -> float:
    return float(sum(row["seconds"] for row in rows) / sum(row["logs"] for row in rows))


def comparison_seconds(record: Record) -> Table:
    """Returns seconds of learning, against the coin's; those of BFTQ are of all its rounds."""
    tasks = {
        task: methods
        for task, methods in record.items()
        if all("seconds" in row for row in methods.values())
    }
    names = list(dict.fromkeys(name for methods in tasks.values() for name in methods))
    columns = [Column("method", names, "s")]
    for task, methods in tasks.items():
        seconds = [methods[name]["seconds"] if name in methods else None for name in names]
        gains: list[Cell] = [
            None if name == "BFTQ" else ratio(s, methods["coin"]["seconds"])
            for name, s in zip(names, seconds, strict=True)
        ]
        columns += [Column(f"{task}, s", seconds, ".3g"), Column("x coin", gains, ".3g")]
    return Table("seconds", "Seconds of learning, means over seeds:", columns)


def growth_series(record: Record) -> Table:
    """Returns sizes, seconds and peak memory of each series, and by which power seconds grow."""
    series = [one for one in record["series"] if one["exponent"] is not None]

    def told(key: str, form: str) -> list[Cell]:
        return ["; ".join(format(number, form) for number in one[key]) for one in series]

    return Table(
        "growth",
        "",
        [
            Column("series", [one["name"] for one in series]),
            Column("sizes", told("sizes", ",d")),
            Column("seconds", told("seconds", ".3g")),
            Column("peak MB", told("megabytes", ",.0f")),
            Column("exponent", [one["exponent"] for one in series], ".2f"),
        ],
    )


def growth_parts(record: Record) -> Table:
    """Returns shares of time of the parts of a fit, as rows grow."""
    (rows,) = (one["cases"] for one in record["series"] if one["name"] == "rows")
    cases = [case for case in rows if "parts" in case]

    def share(name: str) -> Column:
        return Column(name, [case["parts"][name] / case["seconds"] for case in cases], ".2f")

    return Table(
        "parts",
        "",
        [
            _column("rows", cases, "rows", ",d"),
            _column("seconds", cases, "seconds", ".3g"),
            *map(share, ("trees", "reading", "values", "choosing", "adding")),
            _column("memory, GB/s", cases, "gigabytes_per_second", ".1f"),
            _column("limit of reading, share", cases, "limit_share", ".3f"),
            _column("the same, inner loop", cases, "inner_loop_share", ".3f"),
        ],
    )


def door_fits(record: Record) -> Table:
    """Returns the default fits of large logs."""
    fits = record["front_door"]
    return Table(
        "front door",
        "",
        [
            _column("rows", fits, "rows", ",d"),
            _column("Parquet, MB", fits, "parquet_megabytes", ",.0f"),
            _column("seconds", fits, "seconds", ",.0f"),
            _column("peak MB", fits, "megabytes", ",.0f"),
            Column("taken", [fit["taken"] for fit in fits]),
            _column("score", fits, "score", ".3f"),
            _column("overshoot, mean", fits, "overshoot", ".3f"),
        ],
    )


def export_decisions(record: Record) -> Table:
    """Returns how exported policies decide, and how long it takes."""
    rows = record["rows"]

    def off(row: Record) -> str:
        return " / ".join(str(row[f"{what}_that_differ"]) for what in ("actions", "next_budgets"))

    return Table(
        "export",
        "",
        [
            _column("model", rows, "model", "s"),
            Column("file, MB", [row["bytes"] / 1e6 for row in rows], ".1f"),
            Column("actions / next budgets that differ", [off(row) for row in rows]),
            Column("one, ONNX, us", [1e6 * row["one_onnx_seconds"] for row in rows], ".0f"),
            Column("one, bmdp, us", [1e6 * row["one_bmdp_seconds"] for row in rows], ".0f"),
            Column("10,000, ONNX, ms", [1e3 * row["all_onnx_seconds"] for row in rows], ".0f"),
            Column("10,000, bmdp, ms", [1e3 * row["all_bmdp_seconds"] for row in rows], ".0f"),
        ],
    )


def horizons_fits(record: Record) -> Table:
    """Returns the default fits of long episodes."""
    fits = [fit for fit in record["cases"] if not fit.get("failed")]

    def given(name: str, key: str, form: str) -> Column:
        return Column(name, [fit.get(key) for fit in fits], form)

    return Table(
        "horizons",
        "",
        [
            Column("task", [fit["task"] for fit in fits]),
            Column("steps", [str(fit["steps"]) for fit in fits]),
            given("rows of the log", "rows", ",d"),
            given("seconds", "seconds", ",.0f"),
            given("peak MB", "megabytes", ",.0f"),
            given("policy, MB", "files_megabytes", ".2f"),
            given("us a decision, first step", "microseconds_first", ".1f"),
            given("last step", "microseconds_last", ".1f"),
            Column("taken", [fit["taken"] for fit in fits]),
            given("score", "score", ".3f"),
            given("overshoot, share of the range", "overshoot", ".3f"),
        ],
    )


def gpu_speed(record: Record) -> Table:
    """Returns seconds of a forest on a GPU and on two threads of the same machine."""
    pairs = _groups(record["speed"], "rows").items()
    found = [
        {"rows": rows, **{one["device"]: one["seconds"] for one in both}} for (rows,), both in pairs
    ]
    return Table(
        "gpu",
        "",
        [
            _column("rows", found, "rows", ",d"),
            _column("H200, s", found, "cuda", ".2f"),
            _column("2 threads, s", found, "cpu", ".1f"),
            Column("ratio", [one["cpu"] / one["cuda"] for one in found], ".1f"),
        ],
    )


def gpu_worth(record: Record) -> Table:
    """Returns scores of networks and forests of states of many numbers."""
    rows = record["worth"]
    return Table(
        "worth",
        "",
        [
            Column("model", [r["model"] + (", bfloat16" if r["mixed"] else "") for r in rows]),
            _column("seed", rows, "seed", "d"),
            _column("seconds", rows, "seconds", ".1f"),
            _column("score", rows, "score", ".3f"),
            _column("overshoot, mean", rows, "overshoot", ".3f"),
            _column("at the worst budget", rows, "overshoot_most", ".3f"),
        ],
    )


def rivals_fits(record: Record) -> Table:
    """Returns other libraries on the same log, for one price."""
    rows = record["rivals"]
    return Table(
        "rivals",
        "",
        [
            Column("rival, one price", [row["rival"] for row in rows]),
            _column("rows", rows, "rows", ",d"),
            _column("threads", rows, "threads", "d"),
            _column("seconds", rows, "seconds", ",.0f"),
            _column("peak MB", rows, "megabytes", ",.0f"),
            _column("share of the optimum at its price", rows, "share", ".3f"),
        ],
    )


def service_load(record: Record) -> Table:
    """Returns what clients of a service met, and what a request takes of the processor."""
    rows = [
        {"rows": row["rows"], **row["cpu_milliseconds"], "ratio": row["ratio"], **each}
        for row in record["series"]
        for each in row["loads"]
    ]
    waits = [
        Column(f"{name}, ms", [row["milliseconds"][name] for row in rows], ".1f")
        for name in ("p50", "p95", "p99")
    ]
    return Table(
        "load",
        f"Requests to decide, while {record['load']:g} programs wanted the machine's "
        f"{record['machine']['cores']} cores:",
        [
            _column("episodes a request", rows, "rows", ",d"),
            _column("clients", rows, "clients", "d"),
            _column("requests a second", rows, "requests_a_second", ",.0f"),
            *waits,
            _column("processor, ms", rows, "service", ".2f"),
            _column("in Python, ms", rows, "in_process", ".2f"),
            _column("ratio", rows, "ratio", ".1f"),
        ],
    )


def install_starts(record: Record) -> Table:
    """Returns seconds of CPU until a process has done one thing, and what memory it takes."""
    rows = record["starts"]
    return Table(
        "starts",
        "A process of its own, until it ends:",
        [
            _column("what", rows, "what", "s"),
            _column("seconds of CPU", rows, "cpu_seconds", ".2f"),
            _column("MB of memory", rows, "megabytes", ",.0f"),
        ],
    )


def install_sizes(record: Record) -> Table:
    """Returns seconds and megabytes of an installation, part after part."""
    rows = record["parts"]
    return Table(
        "sizes",
        f"An installation; the wheel itself has {record['wheel_mb']:.1f} MB:",
        [
            _column("what", rows, "what", "s"),
            _column("seconds", rows, "seconds", ".0f"),
            _column("MB on disk", rows, "megabytes", ",.0f"),
        ],
    )


def install_largest(record: Record) -> Table:
    """Returns what takes the most room."""
    rows = record["largest"]
    heads = [_column("package", rows, "name", "s"), _column("MB", rows, "megabytes", ",.0f")]
    return Table("largest", "The largest packages of it:", heads)


TABLES: Mapping[str, Mapping[str, Callable[[Record], Table]]] = {
    "frontier": {
        "ratios": frontier_ratios,
        "least": frontier_least,
        "points": partial(frontier_growth, "points", "K", [{"N": 2_000}, {"N": 200}]),
        "states": partial(frontier_growth, "states", "N", [{"K": 505}]),
    },
    "exact": {"parts": exact_parts},
    "finite": {"shares": finite_shares},
    "envs": {"steps": envs_steps},
    "driving": {"decisions": driving_decisions},
    "serving": {"one": serving_one, "many": serving_many},
    "learning": {
        "targets": learning_targets,
        "growth": learning_growth,
        "acting": learning_acting,
    },
    "workers": {"collection": workers_collection, "targets": workers_targets},
    "together": {"step": together_step},
    "offline": {"seconds": offline_seconds},
    "comparison": {"seconds": comparison_seconds},
    "growth": {"series": growth_series, "parts": growth_parts},
    "door": {"fits": door_fits},
    "horizons": {"fits": horizons_fits},
    "export": {"decisions": export_decisions},
    "gpu": {"speed": gpu_speed, "worth": gpu_worth},
    "rivals": {"fits": rivals_fits},
    "service": {"load": service_load},
    "install": {"sizes": install_sizes, "largest": install_largest, "starts": install_starts},
}
"""Tables of each benchmark, by what is written above them."""
