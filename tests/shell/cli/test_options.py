import pytest

from bmdp import BudgetError
from bmdp.cli.options import MOST_BUDGETS, parse_budgets


def test_numbers_keep_their_order():
    assert parse_budgets(["0.3", "-1", "1e-3"]) == [0.3, -1.0, 0.001]


def test_a_range_includes_both_ends_and_has_no_rounding_dirt():
    tenths = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert parse_budgets(["0:1:0.1"]) == tenths


@pytest.mark.parametrize(
    ("text", "budgets"),
    [
        ("-0.2:0.1:0.1", [-0.2, -0.1, 0.0, 0.1]),
        ("2:2:1", [2.0]),
        ("0:1:1", [0.0, 1.0]),
        ("1e-9:3e-9:1e-9", [1e-9, 2e-9, 3e-9]),
    ],
)
def test_a_range_goes_from_its_low_end_to_its_high_end(text, budgets):
    assert parse_budgets([text]) == budgets


def test_a_budget_that_is_named_twice_comes_once():
    assert parse_budgets(["0.5", "0:1:0.5", "-0"]) == [0.5, 0.0, 1.0]


def test_minus_zero_is_zero():
    assert [str(budget) for budget in parse_budgets(["-0"])] == ["0.0"]


def test_no_text_names_no_budget():
    assert parse_budgets([]) == []


@pytest.mark.parametrize("text", ["", "half", "0:1", "0:1:0.1:2", "0::0.1", "0,5", "0:x:1"])
def test_what_is_neither_a_number_nor_a_range_is_refused(text):
    with pytest.raises(BudgetError, match=f"number or low:high:step; got '{text}'"):
        parse_budgets([text])


@pytest.mark.parametrize("text", ["nan", "snan", "inf", "-Infinity", "1e999", "0:inf:1", "0:1:nan"])
def test_what_is_not_finite_is_refused(text):
    with pytest.raises(BudgetError, match=f"must be finite; got '{text}'"):
        parse_budgets([text])


@pytest.mark.parametrize("text", ["1:0:0.1", "0:1:0", "0:1:-0.1"])
def test_a_range_that_does_not_rise_is_refused(text):
    with pytest.raises(BudgetError, match=f"must rise, by a step above 0; got '{text}'"):
        parse_budgets([text])


def test_a_range_whose_steps_miss_the_upper_end_is_refused_with_one_that_does_not():
    with pytest.raises(BudgetError, match=r"ends at 0\.9\. Write 0:0\.9:0\.3,"):
        parse_budgets(["0:1:0.3"])
    assert parse_budgets(["0:0.9:0.3"]) == [0.0, 0.3, 0.6, 0.9]


@pytest.mark.parametrize("step", ["1e-4", "1e-300", "1e-999"])
def test_a_range_of_too_many_budgets_is_refused(step):
    with pytest.raises(BudgetError, match=f"at most {MOST_BUDGETS} budgets"):
        parse_budgets([f"0:1:{step}"])
