"""The page of results: its records say what was measured, and it says what its records say."""

import json

import numpy as np
import pytest
import reproduction as made
import reproduction_tables as shown

import folders
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
    frontier = shown.reference(results)
    evaluations = results["best"].each("evaluation", evaluation_of).values()
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


def test_the_overview_has_the_share_of_the_best_at_the_same_cost(records):
    """The best is 10 + 10 c at cost c; seeds pay up to 0.05 too much on average."""
    results = made.found_of(shown.TASKS["corridors"], records)
    table = shown.overview({"corridors": results})
    row = dict(zip(table.heads, table.rows[0], strict=True))
    costs = np.array([0.1, 0.2, 0.4, 0.6, 0.8, 1.0])
    share = np.mean((8.55 + 10 * costs) / (10 + 10 * costs))
    assert row["ours, as many episodes"] == f"{share:.2f}, 0.050"
    assert "ours, a carried price" not in row


def test_a_dial_earns_nothing_at_costs_to_which_it_does_not_come_down(records):
    task = shown.TASKS["corridors"]
    results = made.found_of(task, records)
    dial = next(d for d in shown.dials_of(task, results) if d.line.label == "best")
    best = shown.reference(results)
    assert dial.curve.cost.mean.min() == pytest.approx(0.05)
    one, both = shown.share(dial, best, [0.2]), shown.share(dial, best, [0.01, 0.2])
    assert one == pytest.approx(10.55 / 12)
    assert both == pytest.approx(one / 2)


def test_what_was_reproduced_is_compared_with_what_was_published(records):
    task = shown.TASKS["corridors"]
    table = shown.reproduced(task, made.found_of(task, records))
    assert [row[0] for row in table.rows] == ["BFTQ", "BFTQ, risk-neutral"]
    assert {row[1] for row in table.rows} == {"2"}  # budgets 0 and 1 are in both
    cost, reward = (0.05 + 1.05 - 0.00225 - 1.08138) / 2, (9.05 + 19.05 - 11.102 - 183.8) / 2
    assert float(table.rows[0][2]) == pytest.approx(cost, abs=1e-3)
    assert float(table.rows[0][4]) == pytest.approx(reward, abs=0.1)


def test_figures_are_made_of_records(records):
    task = shown.TASKS["corridors"]
    found = shown.figures(task, "corridors", made.found_of(task, records))
    assert sorted(found) == ["corridors-asked.png", "corridors-trade-off.png"]
    assert all(data.startswith(b"\x89PNG") for data in found.values())


def test_the_page_is_up_to_date():
    made.main(["page", "--check"])
