"""What the campaign of wrong values leaves out: nothing that is public."""

import numpy as np
import pytest

from bmdp import BFTQ, BFTQConfig, DataError, TransitionBatch
from bmdp.errors import BmdpError, PolicyError
from bmdp.learn import Backward
from bmdp.models import EncoderNet, Regression, TableModel
from fuzz import calls


def test_every_public_call_is_in_the_table():
    assert not set(calls.public_calls()) - set(calls.calls())


@pytest.mark.parametrize("name", calls.calls())
def test_calls_of_the_table_are_valid(name, tmp_path):
    """But for forms that a kind of policy refuses, although all policies have their name."""
    here = calls._empty(tmp_path / "cases")
    function, given = calls.calls()[name](here)
    with calls._alone(here, name):
        try:
            function(**given)
        except PolicyError as error:
            said = str(error)
            if "cannot be written as ONNX" not in said and "the episode form only" not in said:
                raise


@pytest.mark.parametrize(
    "make",
    [
        lambda: BFTQConfig(gamma=None),
        lambda: Regression(batch_size="a"),
        lambda: EncoderNet(hidden=float("nan")),
        lambda: TransitionBatch.concatenate(3),
        lambda: TransitionBatch.from_arrays({"state": [[1.0], [2.0, 3.0]]}),
        lambda: BFTQ(BFTQConfig(gamma=0.9)).fit("a log", seed=0),
    ],
)
def test_what_once_ended_inside_is_refused(make):
    with pytest.raises(BmdpError) as refused:
        make()
    assert len(str(refused.value).splitlines()) == 1


def changed_log(**changes):
    """A log of one step in which row 7 has other values."""
    columns = {name: np.array(values) for name, values in calls.long_log().to_arrays().items()}
    for name, value in changes.items():
        columns[name][7] = value
    return TransitionBatch(**columns)


@pytest.mark.parametrize("name", ["state", "reward", "cost"])
def test_numbers_that_overflow_are_refused_with_their_row(name):
    with pytest.raises(DataError, match=rf"{name} must be at most 1e\+50 .* 1e\+308 at \[7"):
        changed_log(**{name: 1e308})


@pytest.mark.parametrize("step", [1_000, 10_000, 2**40])
def test_a_model_of_each_step_needs_rows_of_each_step(step):
    settings = BFTQConfig(gamma=0.9, model=TableModel(), ensemble=1, schedule=Backward())
    with pytest.raises(DataError, match=rf"step must be .*; got {step} at \[7\]"):
        BFTQ(settings).fit(changed_log(step=step), seed=0)


def test_masked_values_are_refused_in_one_line():
    costs = np.ma.masked_array(np.zeros((9, 9)), np.eye(9) > 0)
    with pytest.raises(DataError, match=r"^state must have no masked values; got 9 of 81\."):
        TransitionBatch(costs, *np.zeros((3, 9)), costs, np.ones(9, bool))
