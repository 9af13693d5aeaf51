"""The page of methods: its record says what was measured, and it says what its record says."""

import json
import shutil

import comparison as made
import numpy as np
import pytest

import folders
from bmdp.paper import comparison, rivals
from bmdp.report.section import NOTHING

SEEDS = (0, 1, 2)
BUDGETS = np.array(folders.BUDGETS)
LEAST, MOST = 0.1, 0.9  # costs of the true frontier
TRUTH = folders.truth((LEAST, MOST), (10.0, 20.0))

COSTS = np.array([[0.1, 0.5, 1.0], [0.22, 0.41, 0.7], [0.05, 0.6, 0.95]])  # of each seed
REWARDS = np.array([[9.0, 14.0, 19.0], [8.0, 12.0, 17.5], [7.0, 15.0, 18.0]])
AFTER_COSTS, AFTER_REWARDS = COSTS - 0.04, REWARDS - 0.5
SMALLEST = (0.2, None, 0.6)  # seed 1 cannot be calibrated
MOVED_BUDGETS = np.array([0.0, 0.4])
MOVED_COSTS = np.array([[0.1, 0.3], [0.02, 0.45], [0.3, 0.8]])


def calibrated(seed):
    """Calibration of a piece."""
    if SMALLEST[seed] is None:
        return {"error": "nothing is certified."}
    return {
        "certificate": {**folders.CERTIFICATE, "smallest_budget": SMALLEST[seed]},
        "evaluation": folders.evaluation(AFTER_COSTS[seed], AFTER_REWARDS[seed]),
    }


def piece(seed, *, ideal=None, **changes):
    """A method of one seed."""
    move = {"from": 0.0, "budgets": MOVED_BUDGETS.tolist(), "going": 1.0, "infeasible": [0.0] * 2}
    move |= {"cost": MOVED_COSTS[seed].tolist(), "reward": [1.0] * 2, "ideal": ideal}
    over = {**move, "going": 0.0, "infeasible": None, "cost": None, "reward": None, "ideal": None}
    found = {"method": "some", "task": "some", "seed": seed, "n_models": 7, "n_more": 30}
    found["evaluation"] = folders.evaluation(COSTS[seed], REWARDS[seed])
    found |= {"moved": [move, over], "seconds": {"train": 2.5 + seed, "test": 9.0}}
    return found | {"calibrated": calibrated(seed)} | changes


@pytest.fixture
def folder(tmp_path):
    """A few methods of two tasks, by hand."""
    place = tmp_path / "run"
    folders.spec(place, "comparison", SEEDS)
    for task in ("slot-filling", "routes-4"):
        folders.write(place / f"truth/truth-{task}.json", TRUTH)
    for seed in SEEDS:
        slots, routes = (place / task / f"seed-{seed}" for task in ("slot-filling", "routes-4"))
        folders.write(slots / "method-coin.json", piece(seed))
        folders.write(slots / "method-ftq-paper.json", piece(seed, moved=[], calibrated=None))
        folders.write(routes / "method-ridge.json", piece(seed, ideal=[0.05, 0.5]))
    folders.write(place / "routes-4/seed-0/method-bftq.json", piece(0))  # so far
    return place


@pytest.fixture
def record(folder, tmp_path):
    """The record of the repository, with what the folder has."""
    path = tmp_path / "comparison.json"
    shutil.copy(made.RECORD, path)
    made.main(["keep", str(folder), "--record", str(path)])
    return path


def before():
    return json.loads(made.RECORD.read_text())


def row_of(page, task, method):
    """Cells of a method below the marker of a task."""
    table = page.read_text().partition(f"<!-- {task}: methods -->")[2].partition("<!-- end")[0]
    (line,) = (line for line in table.splitlines() if line.startswith(f"| {method} |"))
    return line.strip("| ").split(" | ")


# What follows from the figures above, by plain formulas


def scores(costs, rewards):
    """Scores `[seeds, budgets]`."""
    paid = np.clip(np.maximum(BUDGETS, costs), LEAST, MOST)
    return rewards / (10 + 10 * (paid - LEAST) / (MOST - LEAST))


def overshoots(costs):
    return costs - np.maximum(BUDGETS, LEAST)


def rounded(values):
    return pytest.approx(np.asarray(values).tolist(), abs=0.51e-5, rel=0)


def test_the_record_has_what_was_measured_of_each_seed(record):
    row = json.loads(record.read_text())["slot-filling"]["coin"]
    assert list(row) == list(before()["slot-filling"]["coin"])
    assert row["seeds"] == [0, 1, 2]
    assert row["score"] == rounded(scores(COSTS, REWARDS).mean(axis=1))
    assert row["worst_overshoot"] == rounded(overshoots(COSTS).max(axis=1))
    assert row["dial_error"] == rounded(np.abs(COSTS - BUDGETS.clip(LEAST, MOST)).mean(axis=1))
    assert (row["seconds"], row["models"], row["more_episodes"]) == (3.5, 7, 30)
    assert all(value == round(value, 5) for name in ("score", "dial_error") for value in row[name])


def test_moves_count_above_the_budget_or_from_the_ideal_if_it_is_known(record):
    found = json.loads(record.read_text())
    above = (MOVED_COSTS - MOVED_BUDGETS).clip(0)
    off = MOVED_COSTS - [0.05, 0.5]
    for row, errors in (
        (found["slot-filling"]["coin"], above),
        (found["routes=4"]["ridge, stages"], off),
    ):
        assert row["moved_overshoot"] == rounded(errors.max(axis=1))
        assert row["moved_error"] == rounded(np.abs(errors).mean(axis=1))


def test_calibrated_seeds_count_from_their_smallest_budget_on(record):
    after = json.loads(record.read_text())["slot-filling"]["coin"]["calibrated"]
    assert list(after) == list(before()["slot-filling"]["coin"]["calibrated"])
    assert (after["seeds"], after["smallest"]) == ([0, 2], [0.2, 0.6])
    for name, costs, rewards in (
        ("_before", COSTS, REWARDS),
        ("", AFTER_COSTS, AFTER_REWARDS),
    ):
        every, over = scores(costs, rewards), overshoots(costs)
        assert after[f"score{name}"] == rounded([every[0, 1:].mean(), every[2, 2]])
        assert after[f"overshoot{name}"] == rounded([over[0, 1:].max(), over[2, 2]])


def test_what_the_folder_does_not_have_stays(record):
    old, new = before(), json.loads(record.read_text())
    assert list(new) == list(old)
    assert list(new["routes=4"]) == list(old["routes=4"])
    names = list(made.METHODS.values())  # the new one in its place
    others = [name for name in old["slot-filling"] if name not in names]
    assert list(new["slot-filling"]) == [*names, *others]
    replaced = {
        ("slot-filling", "coin"),
        ("slot-filling", "FTQ(lambda), paper"),
        ("routes=4", "BFTQ"),
        ("routes=4", "ridge, stages"),
    }
    for task, methods in old.items():
        for method, row in methods.items():
            assert (new[task][method] != row) == ((task, method) in replaced)


def method(seeds, scores, calibrated, seconds):
    """A method of the record, with two of its figures alone."""
    after = {"seeds": list(calibrated), "smallest": list(calibrated.values())}
    row = {"seeds": seeds, "score": scores, "seconds": seconds}
    return row | {"models": 7, "calibrated": after if calibrated else None}


def test_seeds_of_today_join_those_that_are_kept():
    old = method([100, 101], [0.1, 0.2], {100: 0.5, 101: 0.6}, 1.0)
    assert made.joined(old, method([101, 102], [0.3, 0.4], {102: 0.7}, 4.0)) == method(
        [100, 101, 102], [0.1, 0.3, 0.4], {100: 0.5, 102: 0.7}, 3.0
    )
    assert made.joined(old, method([101], [0.3], {}, 4.0))["calibrated"]["seeds"] == [100]
    assert made.joined(old, method([100, 101], [0.3, 0.4], {}, 4.0))["calibrated"] is None


def test_seeds_of_today_do_not_join_those_of_another_version():
    old, new = (method([seed], [0.1], {}, 1.0) for seed in (0, 100))
    record = {"slot-filling": {"coin": old}}
    assert made.updated(record, {"slot-filling": {"coin": new}})["slot-filling"]["coin"] == new
    record = {"slot-filling": {"coin": method([101], [0.1], {}, 1.0)}}
    found = made.updated(record, {"slot-filling": {"coin": new}})
    assert found["slot-filling"]["coin"]["seeds"] == [101, 100]


def test_a_record_is_made_where_there_is_none(folder, tmp_path, capsys):
    path = tmp_path / "new.json"
    made.main(["keep", str(folder), "--record", str(path)])
    found = json.loads(path.read_text())
    assert {task: list(methods) for task, methods in found.items()} == {
        "slot-filling": ["FTQ(lambda), paper", "coin"],
        "routes=4": ["BFTQ", "ridge, stages"],
    }
    printed = capsys.readouterr()
    assert "routes=4, methods and numbers of seeds: BFTQ (1), ridge, stages (3)" in printed.out
    assert "slot-filling, seeds 0, 1, 2 are not finished." in printed.err


def test_the_page_shows_what_was_kept(record, tmp_path):
    page = tmp_path / "page.md"
    shutil.copy(made.PAGE, page)
    made.main(["page", "--page", str(page), "--record", str(record)])
    every = scores(COSTS, REWARDS)
    each, after = every.mean(axis=1), scores(AFTER_COSTS, AFTER_REWARDS)
    moved = (MOVED_COSTS - MOVED_BUDGETS).clip(0)
    changed = [(s[0, 1:].mean() + s[2, 2]) / 2 for s in (every, after)]
    worst = [max(o[0, 1:].max(), o[2, 2]) for o in map(overshoots, (COSTS, AFTER_COSTS))]
    named = "coin (0.1.0)"  # by its seeds
    assert row_of(page, "slot-filling", named) == [
        *(named, "3", f"{each.mean():.3f} +- {folders.student_half(each):.3f}"),
        f"{each.std(ddof=1):.3f}",
        f"{overshoots(COSTS).max():.3f}",
        f"{np.abs(COSTS - BUDGETS.clip(LEAST, MOST)).mean():.3f}",
        f"{moved.max():.3f}, {moved.mean():.4f}",
        *("4", "7", "0.400"),  # the mean of 0.2 and 0.6
        f"{changed[0]:.3f} to {changed[1]:.3f}",
        f"{worst[0]:.3f} to {worst[1]:.3f}",
    ]


def test_what_is_not_known_is_a_dash(record, tmp_path):
    page = tmp_path / "page.md"
    shutil.copy(made.PAGE, page)
    made.main(["page", "--page", str(page), "--record", str(record)])
    paper = row_of(page, "slot-filling", "FTQ(lambda), paper (0.1.0)")
    assert (paper[6], paper[9:]) == (NOTHING, [NOTHING] * 3)  # neither moved nor calibrated
    single = row_of(page, "routes-4", "BFTQ (0.1.0)")
    assert single[1:4] == ["1", f"{scores(COSTS, REWARDS)[0].mean():.3f}", NOTHING]


def test_the_page_is_up_to_date():
    made.main(["page", "--check"])


def test_every_task_and_method_has_a_name():
    assert set(made.TASKS) == set(comparison.TASKS)
    assert [name for name in made.METHODS if name in rivals.METHODS] == list(rivals.METHODS)


def test_a_folder_without_the_true_frontier_is_refused(folder, tmp_path):
    (folder / "truth/truth-routes-4.json").unlink()
    with pytest.raises(SystemExit, match=r"has no truth/truth-routes-4\.json"):
        made.main(["keep", str(folder), "--record", str(tmp_path / "new.json")])
    assert not (tmp_path / "new.json").exists()


def test_a_folder_of_something_else_is_refused(tmp_path):
    folders.corridors(tmp_path / "other")
    with pytest.raises(SystemExit, match="has no method of any task"):
        made.main(["keep", str(tmp_path / "other"), "--record", str(tmp_path / "new.json")])
