"""Which column is which, and what follows from the columns that are there."""

import numpy as np
import pandas as pd
import pytest

from bmdp import DataError, StoreError
from bmdp.data import Columns, TransitionBatch, load_batch
from logs import assert_same, columns, corridor_log, full, optional_columns, small


def table(**changes):
    """The small log as a data frame of unknown origin; a change of None drops the column."""
    held = columns() | optional_columns() | changes
    kept = {k: list(v) if np.ndim(v) > 1 else v for k, v in held.items() if v is not None}
    return pd.DataFrame(kept)


READ = TransitionBatch.from_pandas
LAST = ("budget", "propensity")


def test_a_data_frame_comes_back_as_the_same_batch():
    for batch in (full(), small(), corridor_log()):
        assert_same(READ(batch.to_pandas()), batch)


def test_states_are_numbered_columns_of_a_data_frame():
    frame = full().to_pandas()
    assert list(frame.columns[:3]) == ["state_0", "state_1", "action"]
    assert frame["next_state_1"].tolist() == full().next_state[:, 1].tolist()


def test_a_data_frame_of_another_format_asks_for_an_upgrade():
    frame = full().to_pandas()
    frame.attrs["bmdp"] = {"format": "bmdp.TransitionBatch/2"}
    with pytest.raises(StoreError, match=r"Batch/2, not bmdp.TransitionBatch/1: upgrade bmdp"):
        READ(frame)


@pytest.mark.parametrize("frame", [None, {"state": [1.0]}, np.zeros(3)])
def test_what_is_no_data_frame_is_refused(frame):
    with pytest.raises(DataError, match="frame must be a pandas DataFrame; got"):
        READ(frame)


def test_columns_of_one_name_are_refused():
    frame = table()
    frame.columns = ["cost" if name == "reward" else name for name in frame.columns]
    with pytest.raises(DataError, match="frame must have columns of different names"):
        READ(frame)


@pytest.mark.parametrize(
    "names",
    [
        ("obs", "a", "r", "c", "next_obs", "done", "timeout", "t", "beta", "prob"),
        ("s", "actions", "rewards", "costs", "s2", "terminated", "timeouts", "t", "beta", "prob"),
        ("observations", "a", "r", "c", "next_observations", "dones", "timeout", "timestep", *LAST),
    ],
)
def test_columns_are_known_by_names_in_common_use(names):
    fields = ("state", "action", "reward", "cost", "next_state", "terminal", "truncated", "step")
    renamed = dict(zip((*fields, "budget", "probability"), names, strict=True))
    frame = table().rename(columns=renamed | {"episode": "episode_id"})
    assert_same(READ(frame), full(n_actions=3))


def numbered(form, first=0):
    """The small log with numbered states, in an order that is not theirs."""
    frame = table(state=None)
    states = columns()["state"]
    for k in (1, 0):
        frame[form.format(k + first)] = states[:, k]
    return frame


@pytest.mark.parametrize("form", ["state_{}", "obs_{}", "s{}", "s_{}", "state_{:02d}"])
def test_numbered_columns_are_sorted_by_number(form):
    assert_same(READ(numbered(form)), full(n_actions=3))


@pytest.mark.parametrize(
    ("form", "first", "state"),
    [
        ("x_{}", 0, "x"),
        ("x_{}", 1, "x_"),
        ("x{}", 1, "x"),
        ("x{}", 0, ("x0", "x1")),
    ],
)
def test_states_are_named_by_prefix_or_one_by_one(form, first, state):
    frame = numbered(form, first)
    assert_same(READ(frame, columns=Columns(state=state)), full(n_actions=3))


def test_ten_columns_come_before_the_eleventh():
    frame = table(state=None, next_state=None)
    for k in range(12):
        frame[f"state_{k}"] = np.full(6, k)
        frame[f"next_state_{k}"] = np.full(6, k)
    assert READ(frame).state[0].tolist() == list(range(12))


def test_numbers_that_do_not_start_at_0_are_not_guessed():
    with pytest.raises(DataError, match="state must be a column of frame, such as state or"):
        READ(numbered("s{}", first=1))  # s1 and s2 may be a state and the next one


def test_missing_numbers_are_an_error():
    frame = numbered("state_{}").rename(columns={"state_1": "state_2"})
    with pytest.raises(DataError, match="'state' must be numbered without gaps; got state_0, stat"):
        READ(frame)


def test_a_named_column_is_not_guessed_to_be_another():
    frame = table(reward=None, cost=None)
    frame["r"], frame["c"] = columns()["cost"], columns()["reward"]
    assert_same(READ(frame, columns=Columns(cost="r", reward="c")), full(n_actions=3))
    with pytest.raises(DataError, match="reward must be a column of frame"):
        READ(frame, columns=Columns(cost="r"))


@pytest.mark.parametrize("field", ["state", "action", "reward", "cost", "terminal"])
def test_a_missing_column_lists_those_that_are_there(field):
    with pytest.raises(
        DataError, match=rf"{field} must be a column of frame.*found are .*step"
    ) as e:
        READ(table(**{field: None}))
    assert f"name it by columns=bmdp.Columns({field}=...)" in str(e.value)


@pytest.mark.parametrize("given", ["nowhere", ("state", "nowhere"), ()])
def test_a_name_that_is_not_there_lists_those_that_are(given):
    with pytest.raises(
        DataError, match=r"state must be in columns of frame; .* is not among state"
    ):
        READ(table(), columns=Columns(state=given))


def test_several_columns_of_a_state_must_be_numbers():
    with pytest.raises(DataError, match=r"of columns \[N\] of numbers; state has \[6, 2\]"):
        READ(table(), columns=Columns(state=("state", "budget")))


def test_lists_of_different_lengths_are_refused():
    ragged = [[0.0, 1.0]] * 3 + [[0.0]] + [[0.0, 1.0]] * 2
    with pytest.raises(DataError, match=r"state must be lists of one length; 1 of 6 .* is \[3\]"):
        READ(table().assign(state=pd.Series(ragged)))


def test_episodes_may_have_names():
    frame = table(episode=["b", "b", "b", "a", "a", "a"])
    assert READ(frame).episode.tolist() == [0, 0, 0, 1, 1, 1]
    with pytest.raises(DataError, match=r"episode must be there; 2 of 6 rows are not, the first"):
        READ(table(episode=["b", None, "b", "a", None, "a"]))


def test_actions_of_several_numbers_are_made_whole():
    frame = table(action=[[0.0, 0.1 * a] for a in columns()["action"]])
    with pytest.raises(DataError, match=r"action must have shape \[N\]; got \[6, 2\].* discretise"):
        READ(frame)
    batch = READ(frame, discretise=lambda a: np.round(10 * a[:, 1]))
    assert_same(batch, full(n_actions=3))


# What follows from the rest.


def test_episodes_are_numbered_by_counting_ends():
    batch = READ(table(episode=None, step=None))
    assert batch.episode.tolist() == [0, 0, 0, 1, 1, 1]
    assert batch.step.tolist() == [0, 1, 2, 0, 1, 2]


def test_an_episode_begins_where_steps_begin_anew():
    frame = table(episode=None, truncated=None, terminal=np.zeros(6))
    assert READ(frame).episode.tolist() == [0, 0, 0, 1, 1, 1]


def test_rows_in_no_order_say_nothing_of_episodes():
    batch = READ(table(episode=None, step=None).iloc[[3, 0, 5, 1, 4, 2]])
    assert (batch.episode, batch.step) == (None, None)


# Steps


@pytest.mark.parametrize("known", [{}, {"episode": None}, {"truncated": None}])
def test_steps_are_counted_where_rows_follow(known):
    assert READ(table(step=None, **known)).step.tolist() == [0, 1, 2, 0, 1, 2]


def test_steps_are_counted_where_next_states_are_inferred():
    for known in ({}, {"episode": None}):
        assert READ(ending(step=None, **known)).step.tolist() == [0, 1, 2, 0, 1, 2]


def test_steps_of_interleaved_episodes_are_counted_in_each():
    rows = [0, 3, 1, 4, 2, 5]
    assert READ(table(step=None).iloc[rows]).step.tolist() == [0, 0, 1, 1, 2, 2]
    assert READ(ending(step=None).iloc[rows]).step.tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("rows", [[3, 2, 5, 1, 4, 0], [0, 2, 1, 3, 4, 5], [5, 4, 3, 2, 1, 0]])
def test_rows_of_an_episode_in_no_order_have_no_steps(rows):
    """Not even if rows of one episode never stand beside each other."""
    batch = READ(table(step=None).iloc[rows])
    assert batch.step is None
    assert batch.episode is not None


def test_an_episode_that_ends_in_its_middle_has_no_steps():
    """One state, which every row follows: only the end tells that rows are in no order."""
    alike = {"state": np.zeros((6, 2)), "next_state": np.zeros((6, 2)), "truncated": None}
    ends = np.array([0, 0, 1, 0, 1, 0], bool)
    assert READ(table(step=None, terminal=ends, **alike)).step is None


def test_steps_that_are_given_are_kept():
    frame = table(step=[4, 5, 6, 1, 2, 3])
    assert READ(frame).step.tolist() == [4, 5, 6, 1, 2, 3]


def test_arrays_are_taken_as_they_are():
    given = columns(episode=[4, 4, 4, 9, 9, 9])
    assert TransitionBatch(**given).step is None
    assert TransitionBatch.from_arrays(given).step is None


def test_the_steps_of_a_real_log_are_found_again():
    log = corridor_log()
    frame = log.to_pandas().drop(columns="step")
    frame.attrs.clear()
    np.testing.assert_array_equal(READ(frame).step, log.step)
    mixed = frame.iloc[np.random.default_rng(0).permutation(len(frame))]
    assert READ(mixed).step is None


def test_rounded_states_still_follow_each_other():
    rounded = columns()["next_state"].astype(np.float32) * np.float32(1 + 1e-6)
    frame = table(episode=None, step=None, next_state=rounded)
    assert READ(frame).episode.tolist() == [0, 0, 0, 1, 1, 1]


def ending(**changes):
    """The small log without next states, both of its episodes terminal."""
    ends = {"terminal": np.array([0, 0, 1, 0, 0, 1], bool), "truncated": None}
    return table(**ends | {"next_state": None} | changes)


@pytest.mark.parametrize("known", [{}, {"step": None}, {"episode": None}])
def test_next_states_are_those_of_the_next_row_and_a_copy_at_the_end(known):
    batch = READ(ending(**known))
    states = columns()["state"]
    np.testing.assert_array_equal(batch.next_state, states[[1, 2, 2, 4, 5, 5]])
    assert len(np.unique(batch.episode)) == 2


@pytest.mark.parametrize("rows", [[0, 3, 1, 4, 2, 5], [5, 4, 3, 2, 1, 0]])
def test_next_states_of_mixed_rows_follow_episode_and_step(rows):
    batch = READ(ending().iloc[rows])
    np.testing.assert_array_equal(batch.next_state, READ(ending()).next_state[rows])


def test_interleaved_episodes_without_steps_are_in_order():
    rows = [0, 3, 1, 4, 2, 5]
    batch = READ(ending(step=None).iloc[rows])
    np.testing.assert_array_equal(batch.next_state, READ(ending()).next_state[rows])


def test_the_next_states_of_a_real_log_are_found_again():
    log = corridor_log()
    whole = log.take(np.isin(log.episode, log.episode[log.terminal]))
    frame = whole.to_pandas().drop(columns=["next_state_0", "next_state_1"])
    frame.attrs.clear()
    found = READ(frame)
    live = ~whole.terminal
    np.testing.assert_array_equal(found.next_state[live], whole.next_state[live])
    np.testing.assert_array_equal(found.next_state[~live], whole.state[~live])


def test_an_episode_that_goes_on_has_no_last_next_state():
    message = (
        r"next_state must be given, or follow .*; 1 of 6 rows is the last of an episode that goes "
        r"on, the first is \[5\]. Drop these rows, or give next_state."
    )
    for changes in ({}, {"episode": None, "step": None}):
        with pytest.raises(DataError, match=message):
            READ(table(next_state=None, **changes))


def test_next_states_do_not_leap_over_missing_steps():
    with pytest.raises(DataError, match=r"step must go up by 1 .*; got 3 after 1 at \[5\]"):
        READ(ending(step=[0, 1, 2, 0, 1, 3]))


# Wrong values


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"columns": {"cost": "damage"}}, "columns must be of type Columns; got dict"),
        ({"columns": Columns(cost=["damage"])}, r"cost must be named by a word, .*; got \['damage"),
        ({"columns": Columns(state=(1, 2))}, r"state must be named by a word, .*; got \(1, 2\)"),
        ({"discretise": 3}, "discretise must be a function; got int"),
        ({"discretise": lambda a: [[0]] * 5 + [[0, 1]]}, "action must be an array; got lists of"),
        ({"discretise": lambda a: None}, "action must be given; got None"),
        ({"discretise": lambda a: "none"}, "action must be an array of real numbers"),
    ],
)
def test_wrong_ways_to_read_are_refused(settings, message):
    with pytest.raises(DataError, match=message):
        READ(table(), **settings)


@pytest.mark.parametrize("inner", [[1.0, [2.0]], [[1.0], [2.0, 3.0]]])
def test_lists_of_lists_of_different_lengths_are_refused(inner):
    with pytest.raises(DataError, match="state must be an array; got lists of different lengths"):
        READ(table().assign(state=pd.Series([inner] * 6)))


def test_what_others_note_in_a_data_frame_is_not_looked_at():
    frame = table()
    frame.attrs["bmdp"] = 3
    assert_same(READ(frame), full(n_actions=3))


def test_numbers_of_a_state_keep_the_names_of_their_columns(tmp_path):
    log = {"speed": [1.0, 2.0], "gap": [3.0, 4.0], "a": [0, 1], "r": [0, 0], "c": [0, 0]}
    log |= {"terminal": [True, True], "next_state": [[0.0, 0.0]] * 2}
    batch = TransitionBatch.from_arrays(log, state=("speed", "gap"))
    assert batch.state_names == ("speed", "gap")
    assert batch.take([0]).state_names == ("speed", "gap")
    assert TransitionBatch.concatenate([batch, batch]).state_names == ("speed", "gap")
    for kind in ("npz", "parquet", "hdf5"):
        path = tmp_path / f"log.{kind}"
        getattr(batch, f"to_{kind}")(path)
        assert load_batch(path).state_names == ("speed", "gap")
    assert TransitionBatch.from_pandas(batch.to_pandas()).state_names == ("speed", "gap")


def test_numbered_columns_and_lists_have_no_names():
    rest = {"a": [0], "r": [0], "c": [0], "terminal": [True], "next_state": [[0.0, 0.0]]}
    for state in ({"state_0": [1.0], "state_1": [2.0]}, {"signal": [[1.0, 2.0]]}):
        names = {} if "signal" not in state else {"state": "signal"}
        assert TransitionBatch.from_arrays(state | rest, **names).state_names is None


@pytest.mark.parametrize("names", ["ab", ("a",), ("a", "a"), ("a", 1)])
def test_names_of_states_are_as_many_words_as_numbers(names):
    with pytest.raises(DataError, match="state_names must be 2 different words"):
        TransitionBatch([[0, 0]], [0], [0], [0], [[0, 0]], [True], state_names=names)
