"""What docs/paper/theory-in-pictures.md says in numbers is so, and its pictures are there."""

import json
import re
import struct

import numpy as np
import pytest
import theory_numbers as numbers
from gymnasium.envs.registration import EnvSpec

import bmdp
from bmdp.envs.finite import FiniteEnv, FiniteVectorEnv
from bmdp.exact import evaluate_policy, solve_cmdp
from bmdp.paper import theory
from bmdp.paper.theory import rising_pairs
from scripts import ROOT, script

PAGE = ROOT / "docs" / "paper" / "theory-in-pictures.md"
PICTURES = re.findall(r"!\[([^\]]*)\]\((\S+)\)", PAGE.read_text())
SIGMAS = 4  # of a mean; it is further off once in 15,000 times


def test_the_ferry_earns_3_if_it_may_cost_nothing_and_9_for_the_most_that_a_calm_start_costs():
    frontier = numbers.points(0.3).frontier
    assert (frontier.costs[0], frontier.rewards[0]) == (0, 3)
    assert (frontier.costs[-1], frontier.rewards[-1]) == pytest.approx((0.8, 9))


def test_the_table_of_the_page_is_the_model():
    lines = PAGE.read_text().splitlines()
    for action, name in enumerate(numbers.ACTIONS):
        row = next(line for line in lines if line.startswith(f"| {name} |"))
        earns, calm, rough = map(float, re.split(r" [|/] ", row.strip("| "))[1:])
        assert numbers.ferry().reward[0, action] == earns
        assert numbers.ferry().cost[[0, 1], action].tolist() == [calm, rough]


def test_a_budget_of_0_3_is_spent_by_leaving_soon_two_times_in_three_and_else_at_once():
    costs, _, frontier, mixture = numbers.points(0.3)
    assert costs.shape == (3, 9)
    places = frontier.index[[mixture.lower, mixture.upper]]
    assert (places // 9).tolist() == [1, 2]
    assert numbers.BUDGETS[places % 9].tolist() == [0.2, 0.2]
    assert mixture.p_upper == pytest.approx(1 / 3)
    assert (mixture.cost, mixture.reward) == pytest.approx((0.3, 20 / 3))


def test_no_budget_earns_the_ferry_more_than_the_linear_program():
    model, frontier = numbers.ferry(), numbers.points(0.3).frontier
    for budget in numbers.BUDGETS:
        best = solve_cmdp(model, start=numbers.START, budget=budget)
        assert frontier.reward_at(budget) <= best.reward + 1e-9
    best = solve_cmdp(model, start=numbers.START, budget=0.3)
    assert best.reward == pytest.approx(20 / 3)


def test_the_dial_buys_leaving_soon_then_later_crossings_then_leaving_at_once():
    found = numbers.dial(np.array([0, 0.05, 0.15, 0.25, 0.325, 0.4, 0.8]))
    soon, at_once = found.chances[:, 1], found.chances[:, 2]
    assert soon == pytest.approx([0, 1, 1, 1, 0.5, 0, 0])
    assert at_once == pytest.approx([0, 0, 0, 0, 0.5, 1, 1])
    assert found.now == pytest.approx([0, 0.05, 0.05, 0.05, 0.125, 0.2, 0.2])
    assert found.now + found.later == pytest.approx(found.budgets)


def test_paid_and_held_add_up_to_the_budget_at_every_step():
    found = numbers.travel(0.45)
    assert found.paid == pytest.approx([0, 0.2, 0.325, 0.45])
    assert found.held == pytest.approx([0.45, 0.25, 0.125, 0])
    for crossing in range(numbers.N_CROSSINGS):
        assert sum(m.chance for m in found.moves if m.crossing == crossing) == pytest.approx(1)


def test_a_day_with_0_45_costs_that_by_a_linear_system_and_by_playing():
    grid = np.union1d(numbers.BUDGETS, [0.45])
    policy = numbers.solved_ferry().policy()
    _, v_c = evaluate_policy(numbers.ferry(), policy, grid)
    assert v_c[numbers.START] == pytest.approx(grid)
    kinds = {"entry_point": FiniteEnv, "vector_entry_point": FiniteVectorEnv}
    settings = {"model": numbers.ferry(), "start": numbers.START}
    spec = EnvSpec("Ferry-v0", **kinds, kwargs=settings)
    played = bmdp.evaluate(policy, spec, budgets=[0.45], n_episodes=20_000, seed=0)
    error = SIGMAS / 1.96 * (played.cost_high - played.cost_low) / 2
    assert abs(played.cost_mean - 0.45) < error < 0.01


def test_the_same_budget_in_both_branches_earns_less_than_the_same_price():
    found = numbers.two_branches()
    assert found.risks["operator"] == pytest.approx([0.5, 0.5])
    assert found.risks["carried"].tolist() == [1, 0]
    assert found.risks["linear_program"] == pytest.approx([1, 0])
    assert 1 < found.price < 10
    earned = {way: np.interp(0.5, *curve) for way, curve in found.frontiers.items()}
    assert earned == pytest.approx({"operator": 2.75, "linear_program": 5, "carried": 5})
    budgets, best = found.frontiers["linear_program"]
    assert np.interp(budgets, *found.frontiers["carried"]) == pytest.approx(best)


def test_on_random_models_t_has_0_949_of_what_the_optimum_gains():
    record = json.loads((ROOT / "docs" / "paper" / "theory" / "theory.json").read_text())["summary"]
    assert record["random"]["models"] == 50
    assert round(record["random"]["share_mean"], 3) == 0.949


def test_t_stretches_the_steep_pair_tenfold_and_no_pair_by_more_than_its_slope_allows():
    found = numbers.stretch()
    assert found.pair["distance"] == pytest.approx(0.1)
    assert found.pair["image_distance"] == pytest.approx(1)
    for slopes, seen in ((found.slopes, found.largest), (found.pair_slopes, found.pair_stretch)):
        assert (seen <= 0.9 * (1 + slopes)).all()
        assert (seen >= 0.9 * 0.9 * slopes).all()  # and they come near
    assert 0.9 * (1 + 0.11) < 1 < 0.9 * (1 + 0.12)


def test_the_largest_stretch_of_each_slope_is_that_of_12_000_pairs(monkeypatch):
    drawn = []

    def counted(rng, lipschitz, n_points, size):
        pairs = rising_pairs(rng, lipschitz, n_points, size)
        drawn.extend([lipschitz] * len(pairs[0]))
        return pairs

    monkeypatch.setattr(theory, "rising_pairs", counted)
    slopes = numbers.stretch().slopes.tolist()
    assert [drawn.count(slope) for slope in slopes] == [12_000] * 5


def test_the_pictures_of_the_page_are_those_that_the_script_makes(tmp_path):
    script("examples/theory_pictures.py").main(["--out", str(tmp_path)])
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == sorted(path.removeprefix("theory/") for _, path in PICTURES)


@pytest.mark.parametrize(("alt", "path"), PICTURES, ids=[path for _, path in PICTURES])
def test_a_picture_is_there_small_wide_enough_and_told_in_words(alt, path):
    content = (PAGE.parent / path).read_bytes()
    assert content.startswith(b"\x89PNG")
    assert len(content) < 150_000
    assert struct.unpack(">I", content[16:20]) == (720,)
    assert len(alt) > 100
