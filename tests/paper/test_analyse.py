import json

import numpy as np
import pytest

import folders
from bmdp.evaluation import measure_dials
from bmdp.frontier import upper_frontier
from bmdp.paper import experiment
from bmdp.paper.pictures import (
    least_price,
    multiplier,
)
from bmdp.paper.published import published_curve
from bmdp.paper.results import curve_of, evaluation_of, experiment_section, prices_of
from folders import PICTURES

TABLES = {
    "corridors-exploration": ("summary", "risk-sensitive", "risk-neutral"),
    "slot-filling": ("summary", "bftq", "mixture", "carried", "ftq"),
    "driving": ("bftq", "mixture", "carried", "ftq"),
    "theory": ("gaps", "branches", "rising"),
    "calibration": (
        *("promises", "rule-mean", "rule-deviation", "rule-mixture"),
        *("dial-0", "dial-1", "dial-2", "dial-3"),
    ),
    "comparison": ("corridors",),
}


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Sections of all experiments, made once."""
    place = tmp_path_factory.mktemp("all")
    for name, write in folders.WRITERS.items():
        write(place / name)
    return {name: experiment_section(place / name, name) for name in folders.WRITERS}


@pytest.mark.parametrize("name", list(PICTURES))
def test_a_section_has_its_pictures_tables_and_words(told, name):
    section = told[name]
    assert [p.name for p in section.pictures] == [f"{name}-{what}" for what in PICTURES[name]]
    tables = [*TABLES[name], "settings"]
    assert [t.name for t in section.tables] == [f"{name}-{what}" for what in tables]
    assert section.title == f"{experiment(name).TITLE} (smoke)"
    assert section.question.endswith("?")
    assert section.answer
    assert section.notes == ()
    for picture in section.pictures:
        assert picture.caption.endswith(".")
        assert picture.alt.endswith(".")
        assert "nan" not in picture.alt + picture.caption + section.answer


@pytest.mark.parametrize("name", list(PICTURES))
def test_a_section_says_how_it_was_made(told, name):
    facts = told[name].facts
    assert facts["Seeds"] == "0, 1"
    assert facts["Command"] == f"bmdp run {name} --out somewhere"
    assert facts["Versions"] == "bmdp 0.1.0"
    assert facts["Began"] == "2026-11-16T11:00:00+00:00"
    assert facts["Machine"] == "cores 2"
    assert facts["Setting"]
    assert facts["Bands and boxes"]


def test_bands_are_said_to_be_over_seeds_or_episodes(told, tmp_path):
    words = told["corridors-exploration"].facts["Bands and boxes"]
    assert "risk-sensitive exploration: Student's 95 % intervals over 2 seeds" in words
    assert "1.96 standard errors over 4 or 5 seeds" in words
    folders.corridors(tmp_path, seeds=(3,))
    section = experiment_section(tmp_path, "one")
    assert "95 % intervals over the episodes of one seed" in section.facts["Bands and boxes"]
    assert "over the episodes of one seed" in section.pictures[0].caption


def test_the_answer_has_the_figures_of_the_dial(told):
    evaluations = [
        evaluation_of(folders.evaluation([off, 0.5 + off, 1 + off], [9 + off, 14 + off, 19 + off]))
        for off in (0.0, 0.1)
    ]
    report = measure_dials(evaluations, upper_frontier([0, 1], [10, 20]))
    assert f"Risk-sensitive exploration earns {report.mean_score:.3f} of the optimum" in (
        told["corridors-exploration"].answer
    )
    assert "exceeds a budget by 0.100 at worst" in told["corridors-exploration"].answer


def test_the_score_of_what_was_published_stands_in_the_summary(told):
    """By hand: with the frontier of the test nothing can be earned beyond cost 1."""
    table = told["slot-filling"].tables[0]
    row = table.columns[0].cells.index("BFTQ, published")
    curve = published_curve("slot-filling", "BFTQ")
    best = 10 + 10 * np.clip(np.maximum(curve.settings, curve.cost.mean), 0, 1)
    column = next(c for c in table.columns if c.key == "mean_score")
    assert column.cells[row] == pytest.approx(float((curve.reward.mean / best).mean()))


def test_answers_of_studies_have_their_figures(told):
    assert "In 2 random models the operator T reaches 0.625 of the optimum's gain" in (
        told["theory"].answer
    )
    assert "earns 2.75 where 5 can be had" in told["theory"].answer
    assert "means instead of bounds, 2 of 4 promises are broken" in (told["calibration"].answer)
    score = np.mean([[r / 10, r / 15, r / 20] for r in (9.0, 10.0)])
    assert f"BFTQ has the best score, {score:.3f}" in told["comparison"].answer


def test_calibrated_dials_are_judged_at_budgets_that_are_certified(told, tmp_path):
    """Certified from 0.2 on: of budgets 0, 0.5 and 1 the last two, with costs 0.6 and 0.4."""
    answer = told["calibration"].answer
    assert (
        "BFTQ, before calibration: at budgets from 0.200 on, which are certified, cost " in answer
    )
    assert "exceeds the budget by 0.100 at most. BFTQ, after" in answer
    assert "exceeds the budget by 0.000 at most." in answer
    folders.calibration(tmp_path)
    piece = folders.dial("BFTQ")
    piece["certificate"] = folders.CERTIFICATE | {"smallest_budget": 1.5}
    folders.write(tmp_path / "dial/seed-1/dial.json", piece)
    answer = experiment_section(tmp_path, "x").answer
    assert "BFTQ, after calibration: no budget is certified." in answer


def test_rules_of_one_seed_have_the_intervals_of_its_episodes(tmp_path):
    folders.calibration(tmp_path, seeds=(0,))
    table = next(t for t in experiment_section(tmp_path, "x").tables if t.name == "x-rule-mean")
    cells = {column.key or column.name: list(column.cells) for column in table.columns}
    assert cells["cost"] == [0.1, 0.4, 0.6]
    assert cells["cost_high"] == [0.2, 0.5, 0.7]
    assert cells["infeasible"] == [1, 0, 0]


def test_dials_and_films_go_to_the_page_with_the_true_frontier(told):
    section = told["corridors-exploration"]
    (dial,) = section.dials
    assert dial["truth"] == {"costs": [0, 1], "rewards": [10, 20]}
    assert dial["title"] == "A policy on corridors (seed 0)"
    assert dial["episodes"] == folders.executions()["episodes"]
    assert [film["title"] for film in section.films] == [
        "Exploration round by round, risk-neutral",
        "Exploration round by round, risk-sensitive",
    ]
    assert "truth" not in told["driving"].dials[0]


def test_a_part_that_has_nothing_yet_is_left_out(tmp_path):
    folders.corridors(tmp_path)
    for seed in (0, 1):
        for path in (tmp_path / f"risk-neutral/seed-{seed}").iterdir():
            path.unlink()
    section = experiment_section(tmp_path, "x")
    assert "Risk-neutral" not in section.answer
    assert section.notes == ("risk-neutral, seeds 0, 1 are not finished.",)
    assert [table.name for table in section.tables] == [
        "x-summary",
        "x-risk-sensitive",
        "x-settings",
    ]


def test_without_the_true_frontier_there_are_no_scores(tmp_path):
    folders.corridors(tmp_path)
    (tmp_path / "truth/truth.json").unlink()
    section = experiment_section(tmp_path, "x")
    assert "score" not in section.tables[0].heads
    assert section.answer.startswith("Risk-sensitive exploration: costs from 0.050 to 1.050")


def test_an_experiment_of_ones_own_is_told_without_its_code(tmp_path):
    folders.corridors(tmp_path)
    spec = json.loads((tmp_path / "spec.json").read_text())
    name = "no_such_module:EXPERIMENT"
    (tmp_path / "spec.json").write_text(json.dumps(spec | {"experiment": name}))
    section = experiment_section(tmp_path, "x")
    assert section.title == name
    assert [p.name for p in section.pictures] == [
        *("x-trade-off", "x-asked", "x-ways", "x-hull", "x-rounds")
    ]
    assert len(section.dials) == 1


# The multiplier


def prices(*costs):
    pieces = [folders.prices(cost, [15.0, 12.0, 5.0]) for cost in costs]
    return curve_of("mean", [prices_of(piece) for piece in pieces])


CURVE = prices([0.6, 0.2, 0.0], [0.8, 0.4, 0.2])  # means 0.7, 0.3, 0.1
LARGEST = np.array([0.8, 0.4, 0.2])


@pytest.mark.parametrize(
    ("budget", "by_mean", "by_largest"),
    [(0.35, 10, 20), (0.3, 10, 20), (0.15, 20, None), (0.05, None, None), (1.0, 0, 0)],
)
def test_each_rule_takes_the_least_price_that_keeps_the_budget(budget, by_mean, by_largest):
    found = (
        least_price(CURVE.settings, cost, budget + 1e-12) for cost in (CURVE.cost.mean, LARGEST)
    )
    assert tuple(found) == (by_mean, by_largest)


def test_costs_budget_and_chosen_prices_are_drawn():
    published = published_curve("slot-filling", "FTQ")
    picture = multiplier("x", CURVE, LARGEST, published, "of some kind")
    axes = picture.figure.axes[0]
    found = {line.get_label(): line for line in axes.get_lines()}
    assert found["mean"].get_xydata() == pytest.approx(np.array([[0, 0.7], [10, 0.3], [20, 0.1]]))
    assert found["largest deviation"].get_ydata().tolist() == [0.8, 0.4, 0.2]
    assert found["each seed"].get_ydata().tolist() == [0.6, 0.2, 0.0]
    assert found["mean, published"].get_ydata().tolist() == published.cost.mean.tolist()
    assert found["budget 0.4"].get_ydata() == [0.4, 0.4]  # in the middle of the costs
    upright = [x[0] for x in (line.get_xdata() for line in axes.get_lines()) if x[0] == x[-1]]
    assert upright == [10, 10]
    told = [text.get_text() for text in axes.texts]
    assert ["avg" in told[0], "10" in told[0], "max" in told[1], "10" in told[1]] == [True] * 4
    assert "λ*avg = 10, λ*max = 10" in picture.alt


def test_a_rule_without_a_price_draws_none():
    published = published_curve("slot-filling", "FTQ")
    picture = multiplier("x", CURVE, np.ones(3), published, "of some kind")
    assert ["avg" in text.get_text() for text in picture.figure.axes[0].texts] == [True]
    assert "no price keeps it (max)" in picture.caption


def test_the_largest_deviation_is_that_of_the_dearest_seed_or_the_upper_end_of_one(tmp_path):
    for seeds, largest in (((0, 1), [0.7, 0.5, 0.0]), ((0,), [0.62, 0.42, 0.02])):
        folders.slot_filling(tmp_path / str(len(seeds)), seeds)
        section = experiment_section(tmp_path / str(len(seeds)), "x")
        picture = next(p for p in section.pictures if p.name == "x-calibration")
        lines = {line.get_label(): line for line in picture.figure.axes[0].get_lines()}
        assert lines["largest deviation"].get_ydata() == pytest.approx(largest)


def table_of(section, name):
    return next(table for table in section.tables if table.name == name)


def test_prices_that_differ_from_seed_to_seed_are_not_averaged(tmp_path):
    folders.slot_filling(tmp_path)
    alike = experiment_section(tmp_path, "x")
    assert "x-calibration" in [picture.name for picture in alike.pictures]
    assert table_of(alike, "x-ftq").heads[:2] == ["lambda", "cost"]
    other = folders.prices([0.5, 0.3, 0.2, 0.0], [15.0] * 4, listed=[0.0, 5.0, 10.0, 20.0])
    folders.write(tmp_path / "ftq/seed-1/prices.json", other)
    section = experiment_section(tmp_path, "x")
    assert "x-calibration" not in [picture.name for picture in section.pictures]
    assert table_of(section, "x-ftq").heads == ["lambda", "published cost", "published reward"]
    assert "policies of FTQ(lambda)" not in section.answer
    assert "400 more episodes a seed" in section.facts["Setting"]


# Experiments as they are really run: what `run` writes, `analyse` can read


def test_the_setting_of_a_comparison_is_that_of_its_preset(tmp_path):
    folders.comparison(tmp_path / "some")
    measuring = {"n_tests": 2000, "n_calibrating": 60, "n_budgets": 6}
    folders.spec(tmp_path / "some", "comparison", settings={"measuring": measuring})
    facts = experiment_section(tmp_path / "some", "some").facts
    assert "2,000 test episodes at each of 6 budgets" in facts["Setting"]
    assert "60 episodes of each member" in facts["Setting"]


def test_explorations_and_executions_are_animated(told):
    assert [animation.name for animation in told["driving"].animations] == ["driving-executions"]
    names = [a.name for a in told["corridors-exploration"].animations]
    assert names == ["corridors-exploration-exploration", "corridors-exploration-executions"]


@pytest.mark.parametrize("name", list(folders.WRITERS))
def test_an_experiment_that_has_only_begun_says_that_it_is_not_complete(tmp_path, name):
    folders.spec(tmp_path, name)
    section = experiment_section(tmp_path, "x")
    assert "seeds 0, 1 are not finished." in " ".join(section.notes)
    assert list(section.pictures) == []
    assert section.answer == ""
