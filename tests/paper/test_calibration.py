from dataclasses import replace

import numpy as np
import pytest

import bmdp
import folders
from bmdp.evaluation import calibration as calibration_module
from bmdp.evaluation import evaluate, measure_portfolio
from bmdp.paper import calibration as experiment
from bmdp.paper.calibration import (
    allowed_broken,
    certificates,
    hazard,
    line_search,
    promise,
    promises_figure,
    promises_of,
)
from bmdp.paper.measuring import other_seed
from bmdp.paper.training import fitted_prices
from bmdp.policies import Portfolio, RandomBudgetedPolicy
from pieces import piece, place, work

SMOKE = experiment.SETTINGS["smoke"]
HOW = {"confidence": 0.95, "n_episodes": 150}


@pytest.fixture(scope="session")
def folder(smoke):
    return smoke("calibration")


@pytest.fixture(scope="session")
def rules(folder):
    return piece(place(folder, ""), "rules")


@pytest.fixture(scope="session")
def counted():
    return certificates(40, seed=0, known=hazard(), **HOW)


def test_the_known_costs_are_those_of_the_chances():
    known = hazard()
    assert known.costs == pytest.approx([0.9 * 0.02, 0.15, 0.3, 0.9 * 0.5])
    played = evaluate(known.policy, known.env, budgets=known.inner, n_episodes=20_000, seed=0)
    assert (played.discounted_cost_low <= known.costs + 0.005).all()
    assert (played.discounted_cost_high >= known.costs - 0.005).all()


def test_certificates_break_as_few_promises_as_they_may(counted):
    for kind in ("binary", "bounded"):
        found = counted["kinds"][kind]
        assert found["calibrations"] == len(found["rows"]) == 40
        assert found["broken"] <= found["allowed"] == allowed_broken(40, 0.95)
        assert found["broken"] == sum(row["exact"] > row["asked"] + 1e-12 for row in found["rows"])


def test_means_instead_of_bounds_are_found_out(counted):
    found = counted["kinds"]["means"]
    assert found["broken"] > 20 > found["allowed"]
    assert found["shown"][0]["high"] == found["shown"][0]["mean"]


def test_a_calibrator_that_is_too_sure_of_itself_is_found_out(monkeypatch):
    exact = calibration_module.upper_means
    monkeypatch.setattr(
        calibration_module,
        "upper_means",
        lambda samples, bounds, chance: exact(samples, bounds, chance=0.4),
    )
    found = certificates(40, seed=0, known=hazard(), **HOW)["kinds"]["binary"]
    assert found["broken"] > found["allowed"]


def test_calibrations_of_another_seed_are_other_ones(counted):
    rows = certificates(10, seed=2, known=hazard(), **HOW)["kinds"]["binary"]["rows"]
    assert [row["calibration"] for row in rows] == list(range(20, 30))
    assert rows == counted["kinds"]["binary"]["rows"][20:30]


def test_what_is_said_to_be_exact_is_what_is_paid(counted):
    known, row = hazard(), counted["kinds"]["bounded"]["rows"][0]
    policy = bmdp.calibrate(
        known.policy, known.env, budgets=known.inner, cost_range=(0, 0.9), seed=0, **HOW
    )
    found = evaluate(policy, known.env, budgets=[row["asked"]], n_episodes=20_000, seed=5)
    assert found.discounted_cost_mean[0] == pytest.approx(row["exact"], abs=0.01)
    assert row["smallest"] == policy.certificate.smallest_budget


@pytest.mark.parametrize(
    ("exact", "worst", "kept"),
    [
        ([0.05, 0.3, 0.8, 9.0], 0, True),
        ([0.05, 0.41, 0.8, 9.0], 1, False),
        ([0.2, 0.3, 0.8, 9.0], 0, False),
        ([0.05, 0.3, 1.2, 9.0], 2, False),
    ],
)
def test_a_promise_is_broken_if_it_is_at_any_budget(exact, worst, kept):
    some, certified = RandomBudgetedPolicy(2, 0.0, 1.0), np.array([0.1, 0.4, 1.0, 0.9])
    rewards = np.array([1.0, 5.0, 6.0, 0.0])  # the last is never played
    portfolio = Portfolio((some,), np.zeros(4, int), np.zeros(4), certified, rewards)
    found = promise(portfolio, np.array(exact))
    assert (found["smallest"], found["kept"]) == (0.1, kept)
    assert found["asked"] == certified[worst]
    assert found["exact"] == exact[worst]
    asked = np.linspace(0.1, 1.0, 10)
    mixed = portfolio.mixtures(asked)
    low, high = (np.array(exact)[which] for which in (mixed.lower, mixed.upper))
    paid = (1 - mixed.p_upper) * low + mixed.p_upper * high
    assert (paid <= asked + 1e-12).all() == kept


def test_the_curve_is_what_each_price_costs(folder, rules):
    curve = piece(place(folder, ""), "prices")
    assert curve["prices"] == [0, 15, 30, 50, 60, 62.5, 65, 67.5, 70, 75, 80, 100]
    assert curve["n_episodes"] == SMOKE.n_curve
    assert rules["rules"]["mean"]["cost"] == curve["cost_mean"]
    learned = fitted_prices(
        SMOKE.priced.learner,
        SMOKE.priced.prices,
        None,  # it is learned already
        work(folder, ""),
        place(folder, "") / "learning",
    )
    how = {"n_episodes": SMOKE.n_curve, "seed": other_seed(3, "calibration/curve")}
    env = SMOKE.priced.exploring.env.spec()
    found = measure_portfolio(learned, env, by="mean", **how)
    assert found.costs[::-1] == pytest.approx(curve["cost_mean"])
    worst = measure_portfolio(learned, env, by="deviation", **how)
    assert worst.costs[::-1].tolist() == rules["rules"]["deviation"]["cost"]
    assert (worst.costs >= found.costs).all()


def test_rules_choose_by_what_they_were_told_and_get_what_is_true():
    some, nothing = RandomBudgetedPolicy(2, 0.0, 1.0), np.zeros(3)
    by_mean = Portfolio((some,), nothing.astype(int), nothing, [0.1, 0.4, 0.9], [1.0, 5.0, 6.0])
    by_deviation = replace(by_mean, costs=np.array([0.2, 0.6, 0.95]))
    test = {"prices": [0.0, 10.0, 20.0], "cost_mean": [0.8, 0.5, 0.0], "reward_mean": [7, 4, 2]}
    test |= {"cost_low": [0.7, 0.4, 0.0], "cost_high": [0.9, 0.6, 0.1]}
    found = line_search(by_mean, by_deviation, test, [0.0, 0.25, 0.5, 1.0])["rules"]
    assert found["mean"]["cost"] == [0.9, 0.4, 0.1]
    assert found["mean"]["price"] == [20, 20, 10, 0]
    assert found["mean"]["infeasible"] == [True, False, False, False]
    assert found["mean"]["realised_cost"] == [0.0, 0.0, 0.5, 0.8]
    assert found["mean"]["realised_cost_high"] == [0.1, 0.1, 0.6, 0.9]
    assert found["deviation"]["price"] == [20, 20, 20, 0]
    assert found["deviation"]["said"] == [0.2, 0.2, 0.2, 0.95]
    mixture = found["mixture"]
    assert (mixture["price"][1], mixture["other_price"][1]) == (20, 10)
    assert mixture["p_other"][1] == pytest.approx(0.5)
    assert mixture["realised_cost"][1] == pytest.approx(0.25)
    assert mixture["realised_reward"][1] == pytest.approx(3)
    assert mixture["realised_cost_low"][1] == pytest.approx(0.2)


@pytest.mark.parametrize(("part", "name"), [("", "FTQ(lambda), mixture"), ("dial", "BFTQ")])
def test_dials_are_measured_before_and_after(folder, part, name):
    found = piece(place(folder, part), "dial")
    certificate, after = found["certificate"], found["after"]
    assert found["policy"] == name
    assert found["before"]["budgets"] == after["budgets"] == list(SMOKE.budgets)
    assert certificate["smallest_budget"] == min(certificate["cost_high"])
    certified = np.array(found["budgets"]) >= certificate["smallest_budget"]
    assert certified.any()
    slack = 4 * np.sqrt(0.25 / SMOKE.n_tests)
    assert (np.array(after["cost_mean"]) <= np.array(found["budgets"]) + slack)[certified].all()
    assert np.array(after["infeasible_share"]).tolist() == (~certified).astype(float).tolist()


def test_the_paper_is_learned_with_its_networks():
    paper, best = experiment.SETTINGS["paper"], experiment.SETTINGS["best"]
    assert type(paper.priced.learner).__name__ == "FTQConfig"
    assert paper.priced.prices == (0, 15, 20, 25, 30, 35, 40, 60)
    assert paper.priced.exploring.exploration == paper.budgeted.exploration
    assert paper.calibrations == best.calibrations == 400
    assert replace(best, n_seeds=0) != replace(paper, n_seeds=0)


def test_promises_that_are_broken_are_right_of_zero_and_marked():
    _, found = promises_of(folders.certificates())
    axes = promises_figure(found).axes[0]
    crosses = [line.get_xdata() for line in axes.get_lines() if line.get_marker() == "X"]
    dots = [line.get_xdata() for line in axes.get_lines() if line.get_marker() == "o"]
    assert np.concatenate(crosses) == pytest.approx([0.05])
    assert np.concatenate(dots) == pytest.approx([-0.1] * 5)
    assert [label.get_text() for label in axes.get_yticklabels()][2] == "means instead of bounds"
