"""The page of performance has what the records of benchmarks have, and ratios that are right."""

import json
from pathlib import Path

import pytest

from scripts import script

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "benchmarks/results").glob("*.json"))
PAGE = ROOT / "docs/paper/performance.md"

tables = script("benchmarks/tables.py")
made = script("benchmarks/record_tables.py")

TWO_STACKS = {
    "step": [
        {"network": "EncoderNet", "networks": 1, "rows": 2000, "step_milliseconds": 10.0},
        {"network": "EncoderNet", "networks": 6, "rows": 2000, "step_milliseconds": 45.0},
    ]
}


def record(name):
    return json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())


def cells(table, name):
    (column,) = (column for column in table.columns if column.name == name)
    return list(column.cells)


def test_the_page_is_up_to_date_with_the_records():
    tables.main(["--check"])


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_record_is_on_the_page(path):
    page = PAGE.read_text()
    assert f"| `{path.name}` |" in page
    assert f"<!-- {path.name}: " in page


def test_a_page_that_is_not_up_to_date_is_refused_and_then_rewritten(tmp_path):
    page = tmp_path / "page.md"
    old = PAGE.read_text()
    page.write_text(old.replace("| two-way |", "| one-way |").replace("# Perf", "# My perf"))
    with pytest.raises(SystemExit, match=r"page.md is not up to date; run python benchmarks/"):
        tables.main(["--check", "--page", str(page)])
    tables.main(["--page", str(page)])
    assert page.read_text() == old.replace("# Perf", "# My perf")  # what is written by hand stays


def test_ratios_of_frontiers_are_of_the_reference_over_one_thread_and_the_least_is_found():
    row = {"job": "best_mixtures", "input": "arc", "precision": "float32", "K": 505, "N": 2000}
    row |= {"us": 2.0, "us_two_threads": 1.25}
    row |= {"convex_hull_us": None, "graham_scan_us": 300.0, "monotone_chain_us": 100.0}
    slower = {**row, "input": "cloud", "us": 4.0, "convex_hull_us": 60.0}
    found = made.frontier_ratios({"rows": [row, slower]})
    assert cells(found, "x Graham scan") == [150.0, 75.0]
    assert cells(found, "x ConvexHull") == [None, 15.0]
    assert cells(found, "gain of two") == [1.6, 3.2]
    least = made.frontier_least({"rows": [row, slower]})
    assert cells(least, "x monotone chain") == ["25 (cloud, float32, 2,000 states)"]


def test_shares_of_random_models_are_means_and_the_least():
    row = {"budget": 1.0, "linear program": 4.0, "coin": 2.0, "price anew, cost": 0.9}
    rows = {"ladder": row, "random 0": {**row, "coin": 3.0}, "random 1": {**row, "coin": 1.0}}
    found = made.finite_shares({"rows": rows})
    assert cells(found, "way") == ["linear program", "coin"]
    assert cells(found, "ladder") == [1.0, 0.5]
    assert cells(found, "random, mean") == [1.0, 0.5]
    assert cells(found, "random, least") == [1.0, 0.25]


def test_a_repeat_of_an_evaluation_is_compared_with_one_by_weights():
    shared = {"case": "finite 0, 3 steps", "logs": 10, "episodes": 200}
    rows = [
        {**shared, "method": "fitted", "repeats": 9, "seconds": 20.0},
        {**shared, "method": "importance", "repeats": 99, "seconds": 10.0},
        {**shared, "method": "importance", "repeats": 99, "seconds": 30.0, "episodes": 800},
        {**shared, "method": "fitted", "repeats": 9, "seconds": 40.0, "case": "finite 1, 3 steps"},
    ]
    found = made.offline_seconds({"rows": rows})
    assert cells(found, "seconds a log") == [3.0, 1.0, 3.0]  # two models together
    assert cells(found, "ms a repeat") == pytest.approx([300.0, 10.0, 30.0])
    assert cells(found, "a repeat, x `importance`") == pytest.approx([30.0, 1.0, 1.0])
    assert cells(found, "growth") == [None, None, "x3 for x4 episodes"]


def test_seconds_of_methods_are_compared_with_the_coin_and_those_of_exploring_are_not():
    task = {"BFTQ": {"seconds": 40.0}, "coin": {"seconds": 4.0}, "ridge": {"seconds": 10.0}}
    found = made.comparison_seconds({"task": task, "scores": {"coin": {"seeds": [0]}}})
    assert [column.name for column in found.columns] == ["method", "task, s", "x coin"]
    assert cells(found, "x coin") == [None, 1.0, 2.5]


@pytest.mark.parametrize(
    ("name", "part", "column", "noted"),
    [
        ("envs", "steps", "ratio", lambda r: [row["ratio"] for row in r["rows"]]),
        ("exact", "parts", "x both", lambda r: [r["row"]["ratio_to_parts"]]),
        ("driving", "decisions", "x highway-env", lambda r: [r["row"]["batch_ratio"]]),
        ("learning", "targets", "both, encoder's / this", lambda r: [r["frontier_net_ratio"]]),
        (
            "learning",
            "targets",
            "loop / frontiers",
            lambda r: [row["frontier_ratio"] for row in r["target_step"]],
        ),
        ("together", "step", "ratio", lambda r: [row["ratio"] for row in r["step"]]),
        (
            "workers",
            "collection",
            "times as fast as one",
            lambda r: [gain for row in r["collection"] for gain in row["speed_up"]],
        ),
        (
            "frontier",
            "ratios",
            "x Graham scan",
            lambda r: [
                row["graham_scan_ratio"] for row in r["rows"] if (row["K"], row["N"]) == (505, 2000)
            ],
        ),
    ],
)
def test_ratios_are_those_that_the_benchmark_noted(name, part, column, noted):
    expected = noted(record(name))
    found = cells(made.TABLES[name][part](record(name)), column)
    # noted before times were rounded
    assert found[-len(expected) :] == pytest.approx(expected, rel=0.05)


def test_a_record_of_another_machine_has_the_tables_of_its_benchmark():
    found = tables.tables_of({"together-cuda.json": {**TWO_STACKS, "device": "A GPU"}})
    assert set(found) == {"records", "together-cuda.json: step"}
    assert "A GPU" in found["records"]


def test_a_record_without_tables_is_refused():
    with pytest.raises(ValueError, match=r"has none for new\.json"):
        tables.tables_of({"new.json": {}})


@pytest.mark.parametrize(
    ("page", "n"),
    [("<!-- a.json: b -->\n", 0), (2 * "<!-- a.json: b -->\n<!-- end -->\n", 2)],
)
def test_a_table_needs_one_place(page, n):
    with pytest.raises(ValueError, match=rf"places for a\.json: b must be 1; got {n}\."):
        tables.rewritten(page, {"a.json: b": "table"})


def test_a_place_without_a_table_is_refused():
    with pytest.raises(ValueError, match=r"places for a\.json: b must be 0; got 1\."):
        tables.rewritten("<!-- a.json: b -->\n<!-- end -->", {})
