"""The page of results: its records say what was measured, and it says what its records say."""

import json
from dataclasses import replace

import numpy as np
import pytest
import reproduction as made
import reproduction_tables as shown
from reproduction_dials import OLD
from scipy import stats

import folders
from bmdp import upper_frontier
from bmdp.envs import slot_filling, two_way
from bmdp.paper.results import evaluation_of, read_results
from bmdp.report.section import NOTHING

ROOT = made.ROOT


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Two presets of corridors, by hand."""
    place = tmp_path_factory.mktemp("results")
    for preset in ("paper", "best"):
        folders.corridors(place / preset)
        header = json.loads((place / preset / "spec.json").read_text())
        folders.write(place / preset / "spec.json", header | {"preset": preset})
    made.keep([place / "paper", place / "best"], place / "records")
    return place / "records"


def test_a_record_has_what_was_measured(records):
    found = made.read_record(records / "corridors-exploration-best.json")
    whole = read_results(records.parent / "best")
    assert (found.experiment, found.preset, found.seeds) == (whole.experiment, "best", whole.seeds)
    for part in ("", "risk-neutral"):
        ours, theirs = (r.each("evaluation", evaluation_of, part) for r in (found, whole))
        assert list(ours) == list(theirs) == [0, 1]
        for seed in ours:
            assert ours[seed].discounted_cost_mean == pytest.approx(
                theirs[seed].discounted_cost_mean, rel=1e-5
            )
    assert found.seconds == whole.seconds


def test_seeds_of_several_folders_make_one_record(tmp_path):
    for place, seeds in (("both", (0, 1)), ("second", (1,)), ("first", (0,))):
        folders.corridors(tmp_path / place, seeds)
    made.keep([tmp_path / "both"], tmp_path / "at-once")
    made.keep([tmp_path / "second", tmp_path / "first"], tmp_path / "one-by-one")
    name = "corridors-exploration-smoke.json"
    at_once, one_by_one = (
        (tmp_path / place / name).read_text() for place in ("at-once", "one-by-one")
    )
    assert [p["seed"] for p in json.loads(at_once)["parts"]] == [0, 1, 0, 1, None]
    assert one_by_one == at_once


def test_a_seed_that_is_run_again_takes_the_place_of_the_old_one_once_it_is_measured():
    nothing, old, new = {}, {"evaluation": "old"}, {"evaluation": "new"}
    spec = {"settings": {"n": 3}, "versions": {"torch": "2"}}

    def record(*pieces):
        parts = [{"part": "", "seed": i, "pieces": p} for i, p in enumerate(pieces)]
        return {**spec, "seeds": list(range(len(pieces))), "parts": parts}

    joined = made.joined(record(old, old, nothing), record(nothing, new, new, nothing))
    assert joined == record(old, new, new, nothing)


@pytest.mark.parametrize("changed", [{"settings": {"n": 4}}, {"versions": {"torch": "3"}}])
def test_records_of_other_specs_are_not_joined(changed):
    spec = {"settings": {"n": 3}, "versions": {"torch": "2"}}
    there = {**spec, "seeds": [0], "parts": [{"part": "", "seed": 0, "pieces": {}}]}
    found = {**spec, **changed, "seeds": [1], "parts": [{"part": "", "seed": 1, "pieces": {}}]}
    assert made.joined(there, found) == found


def test_the_summary_is_that_of_each_seed(records):
    results = made.found_of(shown.TASKS["corridors"], records)
    table = shown.summary(shown.TASKS["corridors"], results)
    row = dict(zip(table.heads, table.rows[[r[0] for r in table.rows].index("best")], strict=True))
    frontier = shown.scored_against(shown.TASKS["corridors"], results)
    evaluations = results.today["best"].each("evaluation", evaluation_of).values()
    costs = np.array([e.discounted_cost_mean for e in evaluations])
    rewards = np.array([e.discounted_reward_mean for e in evaluations])
    asked = next(iter(evaluations)).budgets
    least, most = frontier.costs[[0, -1]]
    possible = np.interp(
        np.clip(np.maximum(asked, costs), least, most), frontier.costs, frontier.rewards
    )
    scores = (rewards / possible).mean(axis=1)
    floor = np.maximum(asked, least)
    assert row["seeds"] == "2"
    assert row["score"] == f"{scores.mean():.3f}"
    assert row["sd"] == f"{scores.std(ddof=1):.3f}"
    assert row["overshoot"] == f"{(costs.mean(axis=0) - floor).max():.3f}"
    assert row["worst seed"] == f"{(costs - floor).max():.3f}"
    assert row["dial error"] == f"{np.abs(costs - np.clip(asked, least, most)).mean():.3f}"


def test_what_is_published_stands_beside_it(records):
    results = made.found_of(shown.TASKS["corridors"], records)
    table = shown.budgets(shown.TASKS["corridors"], results)
    assert table.rows[0][table.heads.index("published")] == "11.1 at 0.002"
    assert table.rows[-1][table.heads.index("published")] == "183.8 at 1.081"
    assert table.rows[1][table.heads.index("best")] == NOTHING  # was not asked


def test_rewards_are_compared_at_the_same_cost(records):
    """Seed s pays and earns 0.1 s more: means are (0.05, 9.05), (0.55, 14.05), (1.05, 19.05)."""
    results = made.found_of(shown.TASKS["corridors"], records)
    table = shown.costs(shown.TASKS["corridors"], results)
    column = table.heads.index("best")
    by_cost = {row[0]: row[column] for row in table.rows}
    assert by_cost["0"] == NOTHING  # it cannot pay so little
    assert by_cost["0.2"] == f"{9.05 + 10 * 0.15:.4g}"
    assert by_cost["1"] == f"{9.05 + 10 * 0.95:.4g}"


def test_what_was_reproduced_is_compared_with_what_was_published(records):
    task = shown.TASKS["corridors"]
    table = shown.reproduced(task, made.found_of(task, records))
    assert [row[0] for row in table.rows] == ["BFTQ", "BFTQ, risk-neutral"]
    assert {tuple(row[1:4]) for row in table.rows} == {("4", "2", "2")}  # budgets 0 and 1
    cost, reward = (0.05 + 1.05 - 0.00225 - 1.08138) / 2, (9.05 + 19.05 - 11.102 - 183.8) / 2
    assert float(table.rows[0][4]) == pytest.approx(cost, abs=1e-3)
    assert float(table.rows[0][6]) == pytest.approx(reward, abs=0.1)


def test_figures_are_made_of_records(records):
    task = shown.TASKS["corridors"]
    found = shown.figures(task, "corridors", made.found_of(task, records))
    assert sorted(found) == ["corridors-asked.png", "corridors-trade-off.png"]
    assert all(data.startswith(b"\x89PNG") for data in found.values())


BEST = upper_frontier([0.0, 1.0], [10.0, 20.0])
"""What could be had in records by hand."""


def share_of_best(share, over=0.0):
    """An evaluation of that score, which pays so much more than it is asked for."""
    costs = [budget + over for budget in folders.BUDGETS]
    return folders.evaluation(costs, [share * float(BEST.reward_at(min(c, 1.0))) for c in costs])


def piece_of(part, seed, **pieces):
    return {"part": part, "seed": seed, "seconds": 60.0, "machine": {}, "pieces": pieces} | {
        "training_seconds": None
    }


def keep_record(folder, experiment, preset, parts, settings=None):
    """Writes a record by hand."""
    seeds = sorted({part["seed"] for part in parts if part["seed"] is not None})
    spec = {"device": "cpu", "threads": 1, "settings": settings or {}, "versions": {}}
    names = {"experiment": experiment, "preset": preset, "seeds": seeds}
    folders.write(folder / f"{experiment}-{preset}.json", names | spec | {"parts": parts})


def scored(shares, part="", first=0, name="evaluation", **others):
    """Parts whose seeds have these scores."""
    return [
        piece_of(part, first + i, **{name: share_of_best(share)}, **others)
        for i, share in enumerate(shares)
    ]


TRUTH = piece_of("truth", None, truth=folders.truth())


def corridors_by_hand(folder):
    """0.1.0 has both presets, today has `best` of three seeds."""
    experiment = "corridors-exploration"
    for preset, shares in (("paper", (0.2, 0.4)), ("best", (0.5, 0.7))):
        keep_record(folder / OLD, experiment, preset, [*scored(shares), TRUTH])
    keep_record(folder, experiment, "best", [*scored((0.8, 0.9, 1.0), first=100), TRUTH])
    return made.found_of(shown.TASKS["corridors"], folder)


def rows_of(table):
    """Cells by the first cell of their row, in order."""
    return {row[0]: row[1:] for row in table.rows}


def test_a_preset_without_a_record_is_shown_as_0_1_0_had_it(tmp_path):
    task, found = shown.TASKS["corridors"], corridors_by_hand(tmp_path)
    rows = rows_of(shown.summary(task, found))
    assert list(rows) == ["published", "published, risk-neutral", "paper (0.1.0)", "best"]
    assert rows["paper (0.1.0)"][:2] == ["2", "0.300"]
    assert rows["best"][:2] == ["3", "0.900"]
    assert "paper (0.1.0)" in shown.budgets(task, found).heads
    assert "paper (0.1.0)" in shown.costs(task, found).heads
    assert [row[0] for row in shown.reproduced(task, found).rows] == ["BFTQ (0.1.0)"]
    assert [row[:2] for row in shown.machines(task, found).rows] == [
        ["paper (0.1.0)", "0 to 1"],
        ["best", "100 to 102"],
    ]


def test_changes_are_the_difference_of_mean_scores_with_the_interval_of_welch(tmp_path):
    table = shown.changes({"corridors": corridors_by_hand(tmp_path)})
    paper, best = table.rows
    assert paper == [
        *("corridors", "paper", "2", "0.300", "0.000", "0"),
        *(NOTHING, NOTHING, NOTHING),
    ]
    assert best[:-1] == [
        *("corridors", "best", "2", "0.600", "0.000", "3"),
        *("0.900", "0.000"),
    ]
    test = stats.ttest_ind([0.8, 0.9, 1.0], [0.5, 0.7], equal_var=False)
    low, high = test.confidence_interval(0.95)
    assert best[-1] == f"+0.300 ({low:+.3f} to {high:+.3f})"


def test_without_deviations_the_interval_is_the_difference():
    low, high = shown.welch_interval([0.75, 0.75], [0.25, 0.25, 0.25])
    assert (low, high) == pytest.approx((0.5, 0.5))


def priced_parts(shares, carried, prices, first=0):
    """Parts of an experiment with prices; the mixture is 0.1 below the carried price."""
    found = scored(shares, first=first)
    for i, share in enumerate(carried):
        pieces = {
            "evaluation": share_of_best(share - 0.1),
            "evaluation-carried": share_of_best(share, over=0.05),
            "prices": prices[i],
        }
        found.append(piece_of("ftq", first + i, **pieces))
    return found


@pytest.fixture
def road(tmp_path, monkeypatch):
    """The road: 0.1.0 has both presets; today has `paper`, and `best` whose prices differ."""
    higher = {"replanning": BEST, "clairvoyant": upper_frontier([0.0, 1.0], [20.0, 40.0])}
    task = replace(shown.TASKS["driving"], references=lambda _: higher)
    monkeypatch.setitem(shown.TASKS, "driving", task)
    same = [folders.prices([0.6, 0.4, 0.0], [15.0, 12.0, 5.0])] * 2
    old = [{name: v for name, v in one.items() if name != "n_more"} for one in same]
    own = [folders.prices([0.5, 0.3], [9.0, 4.0], listed=(0.0, 1.0 + i)) for i in range(2)]
    how = {"exploration": {"rounds": 10, "episodes": 15}}
    settings = {"budgeted": how, "priced": {"exploring": how}}
    for preset in ("paper", "best"):
        parts = priced_parts((0.5, 0.5), (0.7, 0.7), old)
        keep_record(tmp_path / OLD, "driving", preset, parts, settings)
    for preset, prices in (("paper", same), ("best", own)):
        parts = priced_parts((0.8, 0.8), (0.9, 0.9), prices, first=100)
        keep_record(tmp_path, "driving", preset, parts, settings)
    return tmp_path, task


def test_episodes_beside_those_learned_from_are_told(road):
    folder, task = road
    table = shown.summary(task, made.found_of(task, folder))
    wanted = [table.heads.index(head) - 1 for head in ("episodes", "more episodes")]
    told = {name: [cells[i] for i in wanted] for name, cells in rows_of(table).items()}
    assert told["published"] == [NOTHING, NOTHING]
    assert told["best"] == ["150", "0"]
    assert told["best, FTQ mixture"] == ["150", "200"]
    assert told["best, carried price"] == ["150", "0"]
    for path in folder.glob("*.json"):
        path.unlink()
    rows = rows_of(shown.summary(task, made.found_of(task, folder)))
    mixture = rows["best, FTQ mixture (0.1.0, times to collision, kernels, given prices)"]
    assert mixture[wanted[1]] == "300"  # three prices of 100 episodes


def test_the_road_is_scored_against_two_references_and_published_seeds_are_unknown(road):
    folder, task = road
    table = shown.summary(task, made.found_of(task, folder))
    rows = rows_of(table)
    assert rows["published"][0] == NOTHING
    one, other = (table.heads.index(head) - 1 for head in ("score", "score, clairvoyant"))
    assert (rows["best"][one], rows["best"][other]) == ("0.800", "0.400")
    assert shown.reproduced(task, made.found_of(task, folder)).rows[0][1] == "5, assumed"


def test_prices_that_differ_by_seed_are_not_in_the_table_of_prices(road):
    folder, task = road
    table = shown.prices(task, made.found_of(task, folder))
    assert table.heads == ["lambda", "published", "paper, 2 seeds"]
    assert rows_of(table)["10"] == ["4.675 at 0.285", "12 at 0.400"]


def test_each_dial_of_the_road_is_compared_with_that_of_0_1_0(road):
    folder, task = road
    table = shown.changes({"driving": made.found_of(task, folder)})
    told = {row[1]: row[3:4] + row[6:7] + row[8:] for row in table.rows}
    same = "(0.1.0: times to collision, kernels, given prices)"
    assert told["paper"] == ["0.500", "0.800", "+0.300 (+0.300 to +0.300)"]
    assert told["best (0.1.0: times to collision, kernels)"] == told["paper"]
    assert told[f"best, carried price {same}"][:2] == ["0.700", "0.900"]
    assert told["time to collision (0.1.0: kernels)"] == ["0.500", NOTHING, NOTHING]


def test_the_overview_has_score_and_overshoot_by_what_is_seen(road):
    folder, task = road
    table = shown.overview({"driving": made.found_of(task, folder)})
    rows = rows_of(table)
    assert list(rows) == ["driving, times to collision", "driving, full features"]
    published, reproduced, ours, carried = rows["driving, times to collision"]
    assert published.endswith(", 0.129")  # it pays 0.223 at budget 0.094
    assert reproduced == "0.800, 0.000"
    assert (ours, carried) == ("0.500, 0.000 (0.1.0)", NOTHING)  # its prices were given
    assert rows["driving, full features"] == [NOTHING, NOTHING, "0.800, 0.000", "0.900, 0.050"]
    (folder / "driving-best.json").unlink()
    table = shown.overview({"driving": made.found_of(task, folder)})
    assert [row[0] for row in table.rows] == ["driving, times to collision"]


def test_today_s_times_to_collision_take_the_place_of_0_1_0_in_the_overview(road):
    folder, task = road
    parts = priced_parts((0.6, 0.6), (0.7, 0.7), [folders.prices([0.5], [9.0], listed=(0.0,))] * 2)
    keep_record(folder, "driving", "time-to-collision", parts)
    rows = rows_of(shown.overview({"driving": made.found_of(task, folder)}))
    assert rows["driving, times to collision"][2:] == ["0.600, 0.000", "0.700, 0.050"]


def test_all_references_of_the_road_are_drawn(road, monkeypatch):
    folder, task = road
    monkeypatch.setattr(shown, "png_of", lambda figure: figure)
    found = shown.figures(task, "driving", made.found_of(task, folder))
    lines = {line.get_label(): line for line in found["driving-trade-off.png"].axes[0].get_lines()}
    assert lines["replanning"].get_xydata().tolist() == [[0, 10], [1, 20]]
    assert lines["clairvoyant"].get_xydata().tolist() == [[0, 20], [1, 40]]


def test_two_seeds_have_no_boxes(road, monkeypatch):
    folder, task = road
    monkeypatch.setattr(shown, "png_of", lambda figure: figure)
    found = shown.figures(task, "driving", made.found_of(task, folder))
    boxes = found["driving-trade-off.png"].axes[0].patches
    assert {box.get_linestyle() for box in boxes} == {":"}  # of what was published


def test_references_are_those_of_the_package():
    nothing = made.Found({}, {})
    known = shown.TASKS["slot-filling"].references(nothing)["optimum"]
    assert np.array_equal(known.rewards, slot_filling.true_frontier().frontier.rewards)
    road = shown.TASKS["driving"].references(nothing)
    assert list(road) == ["replanning", "clairvoyant", "same budget"]
    names = ("replanning", "clairvoyant", "equal-budget")
    for name, frontier in zip(names, road.values(), strict=True):
        assert np.array_equal(frontier.costs, two_way.known_curve(name).frontier.costs)


def test_the_page_is_up_to_date():
    made.main(["page", "--check"])
