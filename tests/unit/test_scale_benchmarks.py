"""What benchmarks of scale are made of: rivals, limits of memory, and how time grows."""

import json

import growth
import limits
import long_horizons
import numpy as np
import pytest
import scale
import scale_gpu
import scale_rivals
from orchard import Orchard

PANELS = ("rows", "numbers", "actions", "heads", "steps")


def record_of(names):
    series = {"sizes": [10, 100, 1000], "seconds": [0.5, 4.0, 45.0], "megabytes": [300, 320, 800]}
    return {"series": [{"name": name, **series, "exponent": 0.977} for name in names]}


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.3])
def test_the_exponent_of_a_power_is_that_power(power):
    sizes = np.array([10.0, 30.0, 1e3, 1e6])
    assert growth.exponent(sizes, 0.02 * sizes**power) == pytest.approx(power)


def test_the_exponent_is_that_of_least_squares():
    sizes, seconds = np.array([1.0, 2.0, 7.0, 40.0]), np.array([1.0, 5.0, 6.0, 90.0])
    slope, _ = np.polyfit(np.log(sizes), np.log(seconds), 1)
    assert growth.exponent(sizes, seconds) == pytest.approx(slope)


@pytest.mark.parametrize(
    ("sizes", "seconds", "told"),
    [
        ([5], [1.0], "two sizes at least; got 1 and 1"),
        ([5, 5], [1.0, 2.0], "two sizes at least"),
        ([5, 6], [1.0], "as many, of two sizes at least; got 2 and 1"),
        ([5, 6], [1.0, 0.0], "above zero"),
    ],
)
def test_an_exponent_that_cannot_be_told_is_refused(sizes, seconds, told):
    with pytest.raises(ValueError, match=told):
        growth.exponent(sizes, seconds)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_figure_has_a_panel_for_each_series(n):
    figure = growth.growth_figure(record_of(PANELS[:n]))
    assert len(figure.axes) == n
    for axes, name in zip(figure.axes, PANELS, strict=False):
        assert axes.get_title() == f"{name}: exponent 0.98"
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        seconds, megabytes, linear = (line.get_ydata().tolist() for line in axes.get_lines())
        assert (seconds, megabytes) == ([0.5, 4.0, 45.0], [300, 320, 800])
        assert linear == pytest.approx([0.5, 5.0, 50.0])


@pytest.mark.parametrize(("suffix", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_record_is_drawn_into_a_file(tmp_path, suffix, begins):
    (tmp_path / "record.json").write_text(json.dumps(record_of(PANELS)))
    picture = tmp_path / f"growth.{suffix}"
    growth.main([str(tmp_path / "record.json"), str(picture)])
    assert picture.read_bytes().startswith(begins)


def test_limits_of_memory_are_positive_and_finite(tmp_path):
    limits.main(["--quick", "--out", str(tmp_path / "limits.json")])
    found = json.loads((tmp_path / "limits.json").read_text())
    assert found["row_bytes"] == 176
    assert {row["megabytes"] for row in found["gathering"]} == {0.0, 0.02, 0.26}
    rows = [*found["reading"], *found["gathering"]]
    speeds = [v for row in rows for name, v in row.items() if "_per_" in name or "_a_row_" in name]
    assert len(speeds) == len(found["reading"]) + 4 * len(found["gathering"])
    assert all(np.isfinite(speed) and speed > 0 for speed in speeds)


@pytest.fixture(scope="module")
def setting():
    return scale_rivals.Setting(Orchard(), 3_000, 2.0, n_episodes=2_000)


def test_an_orchard_in_which_nothing_is_done_earns_and_costs_nothing(setting):
    found = scale_rivals.played(setting, lambda states, step: np.zeros(len(states), np.int64))
    assert (found["reward"], found["cost"], found["truth"], found["share"]) == (0, 0, 0, 0)


def test_forests_earn_more_than_doing_nothing_and_no_more_than_the_truth(setting):
    row = scale_rivals.fqi(setting)
    assert row["rows"] == 3_000
    assert row["reward"] - setting.price * row["cost"] > 2.0
    assert 0.7 < row["share"] < 1.03
    assert row["reward"] < row["truth"] + 3 * (row["reward_error"] + 3 * row["cost_error"])
    assert row["megabytes"] >= row["megabytes_before"] > 0


def test_a_log_for_d3rlpy_has_the_step_and_the_priced_rewards(setting, tmp_path):
    n_rows = scale_rivals.write_log(setting, tmp_path / "log.npz")
    log = setting.log()
    with np.load(tmp_path / "log.npz") as found:
        assert found["observations"].shape == (n_rows, 8 + 1)
        np.testing.assert_allclose(found["observations"][:7, -1] * 6, [0, 1, 2, 3, 4, 5, 0])
        np.testing.assert_allclose(found["rewards"], log.reward - 2.0 * log.cost, rtol=1e-6)
        np.testing.assert_array_equal(found["terminals"], log.terminal)


@pytest.mark.slow
def test_work_that_takes_too_long_is_stopped():
    assert scale_rivals.alone(60.0, abs, -3) == 3
    assert scale_rivals.alone(0.01, sum, range(10**12)) is None


@pytest.mark.slow
def test_without_d3rlpy_the_record_says_what_was_left_out(tmp_path):
    scale_rivals.main(["--quick", "--out", str(tmp_path / "rivals.json")])
    found = json.loads((tmp_path / "rivals.json").read_text())
    assert [row["rival"] for row in found["rivals"]] == ["FQI"]
    assert "no Python with d3rlpy was given" in found["left_out"]


def test_a_case_of_growth_is_measured_with_its_parts(tmp_path):
    case = scale.Case(rows=600, numbers=3, actions=2, heads=3, steps=3, threads=1)
    assert sum(map(len, case.pieces())) == 600
    found = scale.measured(case, tmp_path)
    assert found["schedule"] == "Backward"
    assert set(found["parts"]) == {"trees", "reading", "values", "choosing", "adding"}
    assert 0 < sum(found["parts"].values()) <= found["seconds"]
    assert found["limit_share"] > 0


def test_the_truth_of_a_store_is_what_its_greedy_policy_earns_and_pays():
    """The dearest point of the frontier, against a dynamic program of rewards alone."""
    task = long_horizons.Stock(5)
    truth, rng = task.truth(), np.random.default_rng(0)
    orders, levels = np.array(task.orders), np.arange(task.capacity + 1)
    demand = rng.poisson(task.demand, 200_000)
    there = np.minimum(task.capacity, levels[:, None] + orders)
    chance = np.bincount(demand, minlength=80)[:80] / len(demand)
    sold = np.minimum(there[..., None], np.arange(80))
    left = there[..., None] - sold
    earned = (sold - 0.1 * left) @ chance - 2.0 * (np.arange(len(orders)) > 0)
    values = np.zeros(len(levels))
    for _ in range(task.days):
        values = (earned + task.gamma * values[left] @ chance).max(axis=1)
    assert truth.rewards[-1] == pytest.approx(values[10], rel=2e-3)


def test_logs_of_a_store_end_or_do_not():
    ends, endless = long_horizons.Stock(4, 80).log(0), long_horizons.Stock(0, 80).log(0)
    assert ends.terminal.sum() == 20
    assert ends.state_size == 2
    assert endless.terminal.sum() == 0
    assert endless.truncated.sum() == 20
    assert endless.state_size == 1


def test_a_fit_of_a_store_is_told_with_what_it_takes():
    found = long_horizons.of_stock(3, 600)
    assert found["horizon"] == "episodes of 3 steps, each with a model of its own"
    assert 0.5 < found["score"] <= 1.01
    assert found["files_megabytes"] > 0


@pytest.mark.slow
def test_the_benchmark_of_the_gpu_runs_without_one(tmp_path):
    scale_gpu.main(["--quick", "--out", str(tmp_path / "gpu.json")])
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert {row["model"] for row in found["worth"]} == {"forest", "network"}
