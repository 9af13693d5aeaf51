import re

import numpy as np
import pytest

from bmdp import BmdpError, ConfigError, DataError
from bmdp.data import TransitionBatch
from bmdp.data.checks import FIELDS
from logs import assert_same, columns, corridor_log, full, optional_columns, small


def test_what_is_not_known_is_none():
    batch = small()
    assert [getattr(batch, name) for name in optional_columns()] == [None] * 6
    assert batch.n_actions == 3
    assert (len(batch), batch.state_size) == (6, 2)


def test_columns_cannot_be_written_to_and_are_nobody_elses():
    given = columns()
    batch = TransitionBatch(**given)
    given["reward"][0] = 99.0
    assert batch.reward[0] == 0.0
    for held in (batch, batch.take([0, 1]), TransitionBatch.concatenate([batch, batch])):
        with pytest.raises(ValueError, match="read-only"):
            held.reward[0] = 1.0


@pytest.mark.parametrize(
    ("given", "kept"),
    [(np.float16, np.float32), (np.float32, np.float32), (np.float64, np.float64), (int, float)],
)
def test_states_keep_their_precision_and_values_are_double(given, kept):
    now, after = (columns()[name].astype(given) for name in ("state", "next_state"))
    batch = small(state=now, next_state=after, reward=np.arange(6, dtype=np.float32))
    assert batch.state.dtype == batch.next_state.dtype == kept
    assert batch.reward.dtype == batch.cost.dtype == np.float64


def test_states_of_two_precisions_take_the_finer_one():
    batch = small(next_state=columns()["next_state"].astype(np.float32))
    assert batch.state.dtype == batch.next_state.dtype == np.float64


@pytest.mark.parametrize(("shape", "size"), [((6,), 1), ((6, 4), 4), ((6, 2, 3), 6)])
def test_states_become_rows_of_numbers(shape, size):
    states = np.arange(np.prod(shape), dtype=float).reshape(shape)
    batch = small(state=states, next_state=states)
    np.testing.assert_array_equal(batch.state, states.reshape(6, size))


def test_columns_may_be_floats_of_shape_n_1():
    given = {name: values.astype(float) for name, values in columns().items()}
    tall = {name: v.reshape(6, -1) for name, v in given.items()}
    assert_same(TransitionBatch(**tall), small())


BASE = columns() | optional_columns()
NOT_DISCRETE = " Only discrete actions are supported: turn others into numbers, in files by discret"


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("state", {2: np.nan, 4: np.inf}, "be finite; 2 of 6 rows are not, the first is [2]."),
        ("next_state", {5: np.nan}, "be finite; 1 of 6 rows is not, the first is [5]."),
        ("cost", {1: np.nan}, "be finite; 1 of 6 rows is not, the first is [1]."),
        ("reward", {1: -np.inf}, "be finite; 1 of 6 rows is not, the first is [1]."),
        ("budget", {0: np.inf}, "be finite; 1 of 6 rows is not, the first is [0]."),
        ("action", {3: 0.5}, "be whole numbers; 1 of 6 rows is not, the first is [3]."),
        ("action", {3: np.nan}, "be whole numbers; 1 of 6 rows is not, the first is [3]."),
        ("action", {3: 1e300}, "be whole numbers; 1 of 6 rows is not, the first is [3]."),
        ("action", {3: 0.5}, "the first is [3]." + NOT_DISCRETE),
        ("action", {1: -1, 2: -2}, "be from 0 on; 2 of 6 rows are not, the first is [1]."),
        ("step", {0: -1}, "be from 0 on; 1 of 6 rows is not, the first is [0]."),
        ("episode", {0: 0.5}, "be whole numbers; 1 of 6 rows is not, the first is [0]."),
        ("terminal", {0: 2}, "be True or False; 1 of 6 rows is not, the first is [0]."),
        ("truncated", {2: 1}, "be kept apart from truncated; 1 of 6 rows is both, the first"),
        ("probability", {4: 0}, "be above 0 and at most 1; 1 of 6 rows is not, the first is [4]"),
        ("probability", {4: 1.5}, "be above 0 and at most 1; 1 of 6 rows is not, the first is [4]"),
    ],
)
def test_bad_rows_are_counted_and_the_first_is_named(name, bad, message):
    values = np.array(BASE[name], float)
    for row, value in bad.items():
        values[row] = value
    said = "terminal" if name == "truncated" else name
    with pytest.raises(DataError, match=rf"{said} must .*{re.escape(message)}"):
        TransitionBatch(**BASE | {name: values})


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("state", np.full((6, 2), "x"), "must be an array of real numbers; got type <U1."),
        ("state", [[1.0], [1.0, 2.0]], "must be an array of real numbers"),
        ("state", 1.0, "must have shape [N, D]; got []."),
        ("state", np.zeros((6, 0)), "must have shape [N, D]; got [6, 0]."),
        ("state", None, "must be given; got None."),
        ("next_state", np.zeros((6, 3)), "must have the shape of state, [6, 2]; got [6, 3]."),
        ("next_state", np.zeros((5, 2)), "must have as many rows as state, 6; got 5."),
        ("cost", np.zeros(7), "must have as many rows as state, 6; got 7."),
        ("cost", None, "must be given; got None. Give what each transition cost; where nothing"),
        ("reward", np.zeros((6, 2)), "must have shape [N]; got [6, 2]."),
        ("reward", 1.0, "must have shape [N]; got []."),
        ("action", np.zeros((6, 2)), "must have shape [N]; got [6, 2]." + NOT_DISCRETE),
        ("n_actions", 2.5, "must be a whole number from 1 to 65536; got 2.5."),
        ("n_actions", True, "must be a whole number from 1 to 65536; got True."),
        ("n_actions", 0, "must be a whole number from 1 to 65536; got 0."),
    ],
)
def test_columns_of_another_shape_or_type_are_refused(name, given, message):
    with pytest.raises(DataError, match=re.escape(f"{name} {message}")):
        TransitionBatch(**BASE | {name: given})


def test_an_action_is_below_the_number_of_actions():
    with pytest.raises(DataError, match=r"action must be below n_actions, 2; 1 of 6 .* is \[2\]"):
        small(n_actions=2)


def test_times_are_not_taken_for_actions():
    with pytest.raises(DataError, match=r"n_actions must be .* to 65536; got 1700000001"):
        small(action=np.array([0, 1, 2, 3, 4, 1_700_000_000]))


def test_a_batch_without_transitions_is_refused():
    nothing = {name: values[:0] for name, values in BASE.items()}
    with pytest.raises(DataError, match="state must hold at least one transition; got none"):
        TransitionBatch(**nothing)


def test_a_batch_is_shown_by_its_size():
    assert repr(full()) == "TransitionBatch(6 transitions, states of 2 numbers, 7 actions)"


@pytest.mark.parametrize("rows", [[1, 4], [-5, 4], np.array([0, 1, 0, 0, 1, 0], bool)])
def test_rows_are_taken_by_position_or_mask_from_all_columns(rows):
    part = full().take(rows)
    assert len(part) == 2
    for name, values in full().to_arrays().items():
        np.testing.assert_array_equal(getattr(part, name), values[[1, 4]], err_msg=name)
    assert part.n_actions == 7


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "rows must choose at least one transition; got none"),
        (np.zeros(6, bool), "rows must choose at least one transition; got none"),
        ([0, 6], r"rows must be below 6; got 6 at \[1\]"),
        ([-7], r"rows must be below 6; got -7 at \[0\]"),
        ([0.5], r"rows must be positions, or a mask \[N\] = \[6\]; got float64 of shape \[1\]"),
        (np.ones(5, bool), r"rows must be positions, or a mask .* got bool of shape \[5\]"),
        (np.zeros((2, 2), int), r"rows must be positions, .* got int64 of shape \[2, 2\]"),
    ],
)
def test_rows_that_are_not_there_are_refused(rows, message):
    with pytest.raises(DataError, match=message):
        full().take(rows)


def test_batches_follow_each_other_and_their_episodes_stay_different():
    joined = TransitionBatch.concatenate([full(), full(n_actions=9), full(n_actions=8)])
    assert joined.episode.tolist() == [4] * 3 + [9] * 3 + [10] * 3 + [15] * 3 + [16] * 3 + [21] * 3
    assert joined.n_actions == 9
    assert_same(joined.take(range(6)), full(n_actions=9))
    np.testing.assert_array_equal(joined.state, np.tile(full().state, (3, 1)))


def test_a_column_that_one_batch_lacks_is_dropped():
    joined = TransitionBatch.concatenate([full(), full(episode=None, budget=None)])
    known = set(joined.to_arrays())
    assert set(optional_columns()) - known == {"episode", "budget"}


def test_a_stream_of_batches_is_taken_too():
    assert len(TransitionBatch.concatenate(small() for _ in range(3))) == 18


def test_batches_of_different_states_are_not_joined():
    wide = small(state=np.zeros((6, 3)), next_state=np.zeros((6, 3)))
    with pytest.raises(DataError, match=r"\[0\] has 2 numbers a state, \[1\] has 3"):
        TransitionBatch.concatenate([small(), wide])
    with pytest.raises(DataError, match="batches must hold at least one; got none"):
        TransitionBatch.concatenate([])


@pytest.mark.parametrize("n_folds", [1, 2, 3, 7])
def test_an_episode_is_in_one_fold_and_folds_are_of_equal_size(n_folds):
    log = corridor_log()
    folds = log.folds(n_folds, np.random.default_rng(0))
    pairs = np.unique(np.stack([log.episode, folds]), axis=1)
    assert pairs.shape[1] == len(np.unique(log.episode))
    sizes = np.bincount(pairs[1], minlength=n_folds)
    assert sizes.max() - sizes.min() <= 1


def test_folds_are_those_of_the_generator():
    log = corridor_log()
    one, same, other = (log.folds(3, np.random.default_rng(s)) for s in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()


def test_rows_are_episodes_of_their_own_where_episodes_are_unknown():
    folds = small().folds(3, np.random.default_rng(0))
    assert np.bincount(folds).tolist() == [2, 2, 2]


@pytest.mark.parametrize("n_folds", [0, 3, 2.0])
def test_there_is_a_fold_at_least_and_no_more_than_episodes(n_folds):
    with pytest.raises(ConfigError, match=r"n_folds must be a whole number from 1 to 2; got"):
        full().folds(n_folds, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({}, [0, 3]),
        ({"step": [0, 1, 2, 5, 6, 7]}, [0]),  # the second one began before the log
        ({"step": None}, [0, 3]),
        ({"step": None, "episode": [2, 1, 2, 1, 3, 3]}, [0, 1, 4]),
        ({"step": None, "episode": None}, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_episodes_start_at_step_0_or_at_their_first_row(changes, rows):
    assert full(**changes).starts().tolist() == rows


def test_the_known_columns_as_arrays_make_the_same_batch():
    for batch in (small(), full(n_actions=3)):
        assert_same(TransitionBatch.from_arrays(batch.to_arrays()), batch)
    assert set(small().to_arrays()) == set(columns())


def test_arrays_may_have_other_names():
    log = columns()
    log["obs"], log["damage"] = log.pop("state"), log.pop("cost")
    batch = TransitionBatch.from_arrays(log, cost="damage", n_actions=4)
    assert_same(batch, small(n_actions=4))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({}, r"cost must be a column of arrays, such as cost or costs or c; found are state, .*"),
        ({"cost": "damage"}, r"cost must be in columns of arrays; 'damage' is not among state, "),
        ({"price": "damage"}, r"a column must be one of state, action, .*; got 'price'"),
    ],
)
def test_arrays_without_costs_are_refused(names, message):
    log = columns(cost=None)
    with pytest.raises(DataError, match=message):
        TransitionBatch.from_arrays(log, **names)


def test_nothing_is_inferred_from_arrays():
    log = columns()
    assert TransitionBatch.from_arrays(log).episode is None
    del log["next_state"]
    with pytest.raises(DataError, match="next_state must be a column of arrays"):
        TransitionBatch.from_arrays(log)


def test_ragged_arrays_are_refused():
    with pytest.raises(BmdpError, match="state must be an array of real numbers"):
        TransitionBatch.from_arrays(columns(state=[[1.0], [1.0, 2.0]] * 3))


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("ragged", [[[1.0, 2.0]] * 5 + [[3.0]], [[1.0, 2.0]] * 5 + [3.0]])
def test_lists_of_different_lengths_are_no_column(name, ragged):
    for made in (lambda held: TransitionBatch(**held), TransitionBatch.from_arrays):
        with pytest.raises(DataError, match=f"{name} must be an array"):
            made(columns() | optional_columns() | {name: ragged})


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize(
    "value",
    [
        3,
        "ab",
        ["a"] * 6,
        [None] * 6,
        object(),
        {"a": 1},
        {1, 2},
        [{}] * 6,
        [1j] * 6,
        [],
        [2**70] * 6,
    ],
    ids=lambda value: "an object" if type(value) is object else repr(value),
)
def test_what_is_no_column_is_refused(name, value):
    with pytest.raises(DataError, match=name):
        TransitionBatch(**columns() | optional_columns() | {name: value})
    if name == "episode" and value == ["a"] * 6:
        return  # episodes of a table may have names
    with pytest.raises(DataError, match=name):
        TransitionBatch.from_arrays(columns() | optional_columns() | {name: value})


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "batches must hold at least one; got none"),
        (None, "batches must be several; got NoneType"),
        (3, "batches must be several; got int"),
        (small(), "batches must be several; got TransitionBatch"),
        ([small(), 3], r"batches must be of TransitionBatch; got int at \[1\]"),
        ([None], r"batches must be of TransitionBatch; got NoneType at \[0\]"),
        ({"a": small()}, r"batches must be of TransitionBatch; got str at \[0\]"),
        ([TransitionBatch], r"batches must be of TransitionBatch; got type at \[0\]"),
    ],
)
def test_what_are_no_batches_are_not_joined(batches, message):
    with pytest.raises(DataError, match=message):
        TransitionBatch.concatenate(batches)


@pytest.mark.parametrize("arrays", [None, 3, [1.0], "state", {1: [0.0]}, {None: [0.0]}, small()])
def test_what_are_no_arrays_by_name_are_refused(arrays):
    with pytest.raises(DataError, match="arrays must be columns by name; got"):
        TransitionBatch.from_arrays(arrays)


def test_rows_of_different_lengths_are_refused():
    with pytest.raises(DataError, match="rows must be an array; got lists of different lengths"):
        small().take([[0, 1], [2]])


@pytest.mark.parametrize("rng", [None, 3, np.random])
def test_folds_are_drawn_by_a_generator(rng):
    with pytest.raises(ConfigError, match="rng must be a generator of numpy; got"):
        small().folds(2, rng)
