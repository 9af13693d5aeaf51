"""Available actions in logs."""

import minari
import numpy as np
import pandas as pd
import pytest

from bmdp import DataError
from bmdp.data import Columns, TransitionBatch, load_batch
from bmdp.learn.fit import Iterations
from bmdp.learn.natures import Nature, completed
from logs import assert_same, columns, full, small

MASK = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 0, 0], [1, 1, 1], [0, 1, 0]], bool)


def masked(**changes):
    return full(**{"n_actions": None, "available": MASK} | changes)


def test_actions_are_as_many_as_the_mask_has():
    wide = np.column_stack((MASK, MASK))
    assert small(available=wide).n_actions == 6
    assert small(next_available=wide).n_actions == 6
    assert small(available=MASK.astype(float)).available.dtype == np.bool_


def test_next_actions_are_those_of_the_next_row_and_all_where_that_is_not_known():
    every = [True] * 3
    expected = [MASK[1], MASK[2], every, MASK[4], MASK[5], every]
    np.testing.assert_array_equal(masked().next_available, expected)
    order = [4, 1, 5, 0, 3, 2]
    np.testing.assert_array_equal(
        TransitionBatch(**{k: v[order] for k, v in _given().items()}).next_available,
        np.array(expected)[order],
    )


def _given():
    found = masked().to_arrays()
    found.pop("next_available")
    return found


def test_a_row_that_does_not_go_on_from_the_next_state_says_nothing():
    given = _given()
    given["next_state"] = given["next_state"].copy()
    given["next_state"][0] += 1
    assert TransitionBatch(**given).next_available[0].all()
    given = _given() | {"step": np.array([0, 2, 3, 0, 1, 2])}
    assert TransitionBatch(**given).next_available[0].all()


def test_without_episodes_next_actions_are_not_known():
    batch = small(available=MASK)
    assert batch.next_available is None
    assert "next states are unknown" in batch.summary().notes[-1]


def test_next_actions_that_are_given_are_kept_but_for_the_end():
    given = ~MASK
    given[2] = False
    found = masked(next_available=np.where(given.any(1, keepdims=True), given, MASK))
    assert found.next_available[2].all()
    np.testing.assert_array_equal(found.next_available[:2], given[:2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"available": MASK[:, :2]}, "action must be below n_actions, 2; 1 of 6 rows is not"),
        (
            {"available": MASK, "n_actions": 4},
            r"available must have shape \[N, n_actions\] = \[6, 4",
        ),
        ({"available": MASK[:, 0]}, r"available must have shape \[N, A\]; got \[6\]"),
        ({"available": MASK[:4]}, "available must have as many rows as state, 6; got 4"),
        ({"available": MASK * 2}, "available must be True or False; 6 of 6 rows are not"),
        (
            {"available": MASK & (np.arange(6) < 4)[:, None]},
            r"available must have an action in every row; 2 of 6 rows are without one, the first "
            r"is \[4\]",
        ),
        (
            {"action": np.array([0, 0, 1, 0, 0, 1])},
            r"action must be one that is available; 2 of 6 rows are not, the first is \[1\]",
        ),
        (
            {"next_available": MASK & (np.arange(6) != 1)[:, None]},
            r"next_available must have an action in every row; 1 of 6 rows is without one, the "
            r"first is \[1\]",
        ),
    ],
)
def test_errors_say_which_rows(changes, message):
    with pytest.raises(DataError, match=message):
        TransitionBatch(**columns() | {"available": MASK} | changes)


def test_rows_and_batches_keep_their_masks():
    batch = masked()
    np.testing.assert_array_equal(batch.take([3, 1]).available, MASK[[3, 1]])
    np.testing.assert_array_equal(batch.take([3]).next_available, MASK[[4]])
    twice = TransitionBatch.concatenate([batch, batch])
    np.testing.assert_array_equal(twice.available, np.vstack((MASK, MASK)))


def test_where_a_batch_does_not_say_all_its_actions_are_available():
    joined = TransitionBatch.concatenate([masked(), full(n_actions=4)])
    assert joined.n_actions == 4
    np.testing.assert_array_equal(joined.available[:6], np.column_stack((MASK, np.zeros(6, bool))))
    assert joined.available[6:].all()
    assert joined.next_available[6:].all()


@pytest.mark.parametrize("suffix", [".parquet", ".h5", ".npz"])
def test_files_keep_masks(tmp_path, suffix):
    path = tmp_path / f"log{suffix}"
    write = {".parquet": "to_parquet", ".h5": "to_hdf5", ".npz": "to_npz"}[suffix]
    getattr(masked(), write)(path)
    assert_same(load_batch(path), masked())


def test_frames_have_a_column_for_each_action():
    frame = masked().to_pandas()
    assert {"available_0", "available_2", "next_available_1"} <= set(frame.columns)
    assert_same(TransitionBatch.from_pandas(frame), masked())


@pytest.mark.parametrize("name", ["available", "action_mask", "mask", "available_actions"])
def test_common_names_are_known(name):
    frame = small().to_pandas()
    frame.attrs = {}
    frame[name] = list(MASK.astype(int))
    np.testing.assert_array_equal(TransitionBatch.from_pandas(frame).available, MASK)


def test_other_names_are_given():
    frame = pd.DataFrame(small().to_pandas())
    frame.attrs = {}
    frame[["wait", "treat", "cut"]] = MASK
    names = Columns(available=("wait", "treat", "cut"))
    batch = TransitionBatch.from_pandas(frame, columns=names)
    np.testing.assert_array_equal(batch.available, MASK)


def test_minari_keeps_masks(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    after = masked().next_available.copy()
    after[5] = [False, True, False]  # known although the log was cut off
    written = masked(next_available=after, budget=None, next_budget=None, probability=None)
    dataset = written.to_minari("masks/some-v0")
    assert dataset[0].infos["action_mask"].tolist() == [*MASK[:3].astype(int).tolist(), [1, 1, 1]]
    found = TransitionBatch.from_minari(minari.load_dataset("masks/some-v0"))
    np.testing.assert_array_equal(found.available, written.available)
    np.testing.assert_array_equal(found.next_available, written.next_available)


def test_the_summary_says_how_many_actions_there_are():
    assert masked().summary().mean_available == MASK.sum() / 6
    assert "available" in str(masked().summary())
    assert full().summary().mean_available is None


def test_what_makes_other_logs_of_a_log_keeps_masks():
    batch = masked()
    whole = completed(batch)
    for state, mask in zip(whole.state, whole.available, strict=True):
        row = (batch.state == state).all(axis=1).argmax()
        np.testing.assert_array_equal(mask, MASK[row])
    shown = Nature(None, 3, 3, Iterations()).shown(batch)
    np.testing.assert_array_equal(shown.available, MASK)
    ended = Nature(None, 3, 0, Iterations()).ended(batch)
    assert ended.terminal.sum() == 2
    np.testing.assert_array_equal(ended.next_available, batch.next_available)
