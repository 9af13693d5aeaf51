import json

import numpy as np
import pytest

import folders
from bmdp.evaluation import measure_dials
from bmdp.experiments.parts.measuring import evaluation_of
from bmdp.frontier import upper_frontier
from bmdp.report.chapters.chapter import episodes_explored, episodes_played
from bmdp.report.sections import CHAPTERS, tell
from folders import PICTURES

TABLES = {
    "corridors-exploration": ("summary", "risk-sensitive", "risk-neutral"),
    "slot-filling": ("summary", "bftq", "mixture", "carried", "ftq"),
    "driving": ("bftq", "mixture", "carried", "ftq"),
    "theory": ("branches", "gaps", "rising"),
    "calibration": (
        *("promises", "rule-mean", "rule-deviation", "rule-mixture"),
        *("dial-0", "dial-1", "dial-2", "dial-3"),
    ),
    "comparison": ("corridors",),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What is told of every experiment, once for all tests."""
    place = tmp_path_factory.mktemp("all")
    for name, write in folders.WRITERS.items():
        write(place / name)
    return {name: tell(place / name, name) for name in folders.WRITERS}


def test_every_experiment_of_the_catalog_has_a_chapter():
    from bmdp.experiments.catalog import CATALOG

    assert list(CHAPTERS) == list(CATALOG) == list(PICTURES)


@pytest.mark.parametrize("name", list(PICTURES))
def test_a_section_has_its_pictures_tables_and_words(told, name):
    section = told[name].section
    assert [p.name for p in section.pictures] == [f"{name}-{what}" for what in PICTURES[name]]
    assert [t.name for t in section.tables] == [f"{name}-{what}" for what in TABLES[name]]
    assert section.question.endswith("?")
    assert section.answer
    assert "Not complete" not in section.answer
    for picture in section.pictures:
        assert picture.caption.endswith(".")
        assert picture.alt.endswith(".")
        assert "nan" not in picture.alt + picture.caption + section.answer


@pytest.mark.parametrize("name", list(PICTURES))
def test_a_section_says_how_it_was_made(told, name):
    facts = told[name].section.facts
    assert facts["Seeds"] == "0, 1"
    assert facts["Command"] == f"bmdp run {name} --out somewhere"
    assert facts["Versions"] == "bmdp 0.1.0"
    assert facts["Began"] == "2026-11-16T11:00:00+00:00"
    assert facts["Machine"] == "cores 2"
    assert facts["Setting"]
    assert facts["Bands and boxes"]


def test_bands_are_said_to_be_over_seeds_or_episodes(told, tmp_path):
    words = told["corridors-exploration"].section.facts["Bands and boxes"]
    assert "risk-sensitive: Student's 95 % intervals over 2 seeds" in words
    assert "1.96 standard errors over 4 or 5 seeds" in words
    folders.corridors(tmp_path, seeds=(3,))
    section = tell(tmp_path, "one").section
    assert "95 % intervals over the episodes of one seed" in section.facts["Bands and boxes"]
    assert "over the episodes of one seed" in section.pictures[0].caption


def test_the_answer_has_the_figures_of_the_dial(told):
    evaluations = [
        evaluation_of(folders.evaluation([off, 0.5 + off, 1 + off], [9 + off, 14 + off, 19 + off]))
        for off in (0.0, 0.1)
    ]
    report = measure_dials(evaluations, upper_frontier([0, 1], [10, 20]))
    assert f"Risk-sensitive exploration earns {report.mean_score:.3f} of the optimum" in (
        told["corridors-exploration"].section.answer
    )
    assert "exceeds a budget by 0.100 at worst" in told["corridors-exploration"].section.answer


def test_the_score_of_what_was_published_stands_in_the_summary(told):
    """By hand: with the frontier of the test nothing can be earned beyond cost 1."""
    from bmdp.report.published import published_curve

    table = told["slot-filling"].chapter.tables[0]
    row = table.columns[0].cells.index("BFTQ, published")
    curve = published_curve("slot-filling", "BFTQ")
    best = 10 + 10 * np.clip(np.maximum(curve.settings, curve.cost.mean), 0, 1)
    column = next(c for c in table.columns if c.key == "mean_score")
    assert column.cells[row] == pytest.approx(float((curve.reward.mean / best).mean()))


def test_answers_of_studies_have_their_figures(told):
    assert "In 2 random models the operator T reaches 0.625 of the optimum's gain" in (
        told["theory"].section.answer
    )
    assert "earns 2.75 where 5 can be had" in told["theory"].section.answer
    assert "means instead of bounds, 2 of 4 promises are broken" in (
        told["calibration"].section.answer
    )
    score = np.mean([[r / 10, r / 15, r / 20] for r in (9.0, 10.0)])
    assert f"BFTQ has the best score, {score:.3f}" in told["comparison"].section.answer


def test_the_setting_of_a_comparison_is_that_of_its_preset(tmp_path):
    folders.comparison(tmp_path / "some")
    measuring = {"n_tests": 2000, "n_calibrating": 60, "n_budgets": 6}
    folders.spec(tmp_path / "some", "comparison", settings={"measuring": measuring})
    facts = tell(tmp_path / "some", "some").section.facts
    assert "2,000 test episodes at each of 6 budgets" in facts["Setting"]
    assert "60 episodes of each member" in facts["Setting"]


def test_calibrated_dials_are_judged_at_budgets_that_are_certified(told, tmp_path):
    """Certified from 0.2 on: of budgets 0, 0.5 and 1 the last two, with costs 0.6 and 0.4."""
    answer = told["calibration"].section.answer
    assert (
        "BFTQ, before calibration: at budgets from 0.200 on, which are certified, cost " in answer
    )
    assert "exceeds the budget by 0.100 at most. BFTQ, after" in answer
    assert "exceeds the budget by 0.000 at most." in answer
    folders.calibration(tmp_path)
    piece = folders.dial("BFTQ")
    piece["certificate"] = folders.CERTIFICATE | {"smallest_budget": 1.5}
    folders.write(tmp_path / "dial/seed-1/dial.json", piece)
    answer = tell(tmp_path, "x").section.answer
    assert "BFTQ, after calibration: no budget is certified." in answer


def test_rules_of_one_seed_have_the_intervals_of_its_episodes(tmp_path):
    folders.calibration(tmp_path, seeds=(0,))
    table = next(t for t in tell(tmp_path, "x").chapter.tables if t.name == "x-rule-mean")
    cells = {column.key or column.name: list(column.cells) for column in table.columns}
    assert cells["cost"] == [0.1, 0.4, 0.6]
    assert cells["cost_high"] == [0.2, 0.5, 0.7]
    assert cells["infeasible"] == [1, 0, 0]


def test_dials_and_films_go_to_the_page_with_the_true_frontier(told):
    section = told["corridors-exploration"].section
    (dial,) = section.dials
    assert dial["truth"] == {"costs": [0, 1], "rewards": [10, 20]}
    assert dial["title"] == "A policy on corridors (seed 0)"
    assert dial["episodes"] == folders.executions()["episodes"]
    assert [film["title"] for film in section.films] == [
        "Exploration round by round, risk-neutral",
        "Exploration round by round, risk-sensitive",
    ]
    assert "truth" not in told["driving"].section.dials[0]


def test_animations_are_named_in_the_facts(told):
    assert "figures/driving-executions.gif" in told["driving"].section.facts["Animations"]
    names = [a.name for a in told["corridors-exploration"].chapter.animations]
    assert names == ["corridors-exploration-exploration", "corridors-exploration-executions"]


@pytest.mark.parametrize("name", list(folders.WRITERS))
def test_an_experiment_that_has_only_begun_says_that_it_is_not_complete(tmp_path, name):
    folders.spec(tmp_path, name)
    section = tell(tmp_path, "x").section
    assert "seeds 0, 1 are not finished." in section.answer
    assert section.pictures == []
    assert section.facts["Not complete"]


def test_a_part_that_has_nothing_yet_is_left_out(tmp_path):
    folders.corridors(tmp_path)
    for seed in (0, 1):
        for path in (tmp_path / f"risk-neutral/seed-{seed}").iterdir():
            path.unlink()
    section = tell(tmp_path, "x").section
    assert "Risk-neutral" not in section.answer.split("Not complete")[0]
    assert "risk-neutral, seeds 0, 1 are not finished." in section.answer
    assert [table.name for table in section.tables] == ["x-summary", "x-risk-sensitive"]


def test_without_the_true_frontier_there_are_no_scores(tmp_path):
    folders.corridors(tmp_path)
    (tmp_path / "truth/truth.json").unlink()
    section = tell(tmp_path, "x").section
    assert "score" not in section.tables[0].columns
    assert section.answer.startswith("Risk-sensitive exploration: costs from 0.050 to 1.050")


def test_an_experiment_of_ones_own_is_told_without_its_code(tmp_path):
    folders.corridors(tmp_path)
    spec = json.loads((tmp_path / "spec.json").read_text())
    name = "no_such_module:EXPERIMENT"
    (tmp_path / "spec.json").write_text(json.dumps(spec | {"experiment": name}))
    section = tell(tmp_path, "x").section
    assert section.title == name
    assert [p.name for p in section.pictures] == [
        *("x-trade-off", "x-asked", "x-executions", "x-hull", "x-rounds")
    ]
    assert len(section.dials) == 1


def test_settings_are_told_in_words():
    assert (
        episodes_explored({"exploration": {"rounds": 10, "episodes": 500}})
        == "5,000 episodes in 10 rounds"
    )
    assert episodes_explored({}) == ""
    budgets = {"testing": {"budgets": [0.0, 1.0], "n_episodes": 1000}}
    assert episodes_played(budgets) == "1,000 test episodes at each of 2 budgets"
    assert episodes_played({}) == ""


def test_all_settings_are_in_a_file(told):
    table = told["theory"].chapter.tables[-1]
    assert "sensitive.exploration.rounds,2\n" in table.csv()
