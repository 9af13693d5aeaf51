import numpy as np
import pytest
from scipy import sparse

from bmdp import ConfigError, DataError, FiniteBMDP, ModelError, StoreError
from bmdp.exact.textbook import PROBLEMS, garnet, problem

LOOP = {
    "transition": np.ones((1, 2, 1)),
    "reward": np.array([[0.0, 1.0]]),
    "cost": np.array([[0.0, 1.0]]),
    "gamma": 0.9,
}
PAIR = {
    "transition": np.full((2, 3, 2), 0.5),
    "reward": np.zeros((2, 3)),
    "cost": np.zeros((2, 3)),
    "gamma": 0.9,
}


def changed(base, name, index, value):
    array = base[name].copy()
    array[index] = value
    return {**base, name: array}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            changed(PAIR, "transition", (1, 0, 1), 0.4),
            r"transition\[1, 0, :\] sums to 0.9. \(1 of 6 rows are off.\)",
        ),
        (
            changed(PAIR, "transition", (slice(None), 2, 1), 0.4),
            r"transition\[0, 2, :\] sums to 0.9. \(2 of 6 rows are off.\)",
        ),
        (
            changed(PAIR, "transition", (0, 1, slice(None)), [1.5, -0.5]),
            r"from 0 on; transition\[0, 1, :\] has -0.5. \(1 values are bad.\)",
        ),
        (changed(PAIR, "transition", (0, 1, 0), np.nan), r"transition\[0, 1, :\] has nan"),
        (changed(PAIR, "reward", (1, 2), np.nan), r"reward must be finite; got nan at \[1, 2\]"),
        (changed(PAIR, "cost", (0, 1), np.inf), r"cost must be finite; got inf at \[0, 1\]"),
        ({**PAIR, "cost": np.zeros((2, 2))}, r"shape of reward, \[2, 3\]; got \[2, 2\]"),
        ({**PAIR, "reward": np.zeros(2)}, r"reward must have shape \[S, A\]; got \[2\]"),
        ({**PAIR, "transition": np.ones((2, 3, 3))}, r"\[2, 3, 2\]; got \[2, 3, 3\]"),
        ({**PAIR, "transition": [["a"]]}, "transition must be an array of real numbers"),
        (
            {**PAIR, "transition": sparse.csr_array(np.ones((2, 2)))},
            r"\[S\*A, S\] = \[6, 2\] if it is sparse; got \[2, 2\]",
        ),
        ({**PAIR, "terminal": [True]}, r"boolean mask \[S\] = \[2\]; got bool of shape \[1\]"),
        ({**PAIR, "terminal": [0, 1]}, r"boolean mask \[S\] = \[2\]; got int64"),
        ({**LOOP, "gamma": 0.0}, "gamma must be above 0 and at most 1; got 0.0"),
        ({**LOOP, "gamma": np.nan}, "gamma must be above 0"),
        ({**LOOP, "gamma": 1.0}, "from state 0 one can go on for ever"),
        ({**LOOP, "horizon": 0}, "horizon must be a count from 1 on; got 0"),
        ({**LOOP, "cost_gamma": 0.5}, "cost_gamma must equal gamma unless there is a horizon"),
        ({**LOOP, "horizon": 3, "cost_gamma": 2.0}, "cost_gamma must be above 0 and at most 1"),
    ],
)
def test_what_is_wrong_is_named(settings, message):
    with pytest.raises(ModelError, match=message):
        FiniteBMDP(**settings)


def test_an_array_is_one():
    with pytest.raises(DataError, match="reward must be an array of real numbers; got 'abc'"):
        FiniteBMDP(**PAIR | {"reward": "abc"})


def test_a_horizon_is_a_whole_number():
    with pytest.raises(ConfigError, match=r"horizon must be a whole number or None; got 2.5"):
        FiniteBMDP(**LOOP, horizon=2.5)


def test_gamma_one_is_refused_where_some_policy_goes_on_for_ever():
    transition = np.zeros((3, 2, 3))
    transition[0, 0, 1] = transition[1, 0, 2] = transition[0, 1, 2] = 1
    transition[1, 1, [0, 2]] = 0.5  # leaves with some probability each time: ends for sure
    tables = {"reward": np.zeros((3, 2)), "cost": np.zeros((3, 2)), "gamma": 1.0}
    end = np.array([False, False, True])
    FiniteBMDP(transition=transition, terminal=end, **tables)
    transition[1, 1] = [1, 0, 0]  # and back again, for ever
    with pytest.raises(ModelError, match="from state 0 one can go on for ever"):
        FiniteBMDP(transition=transition, terminal=end, **tables)


def test_dense_and_sparse_transitions_make_the_same_model():
    dense = np.random.default_rng(0).dirichlet(np.ones(4), (4, 2))
    tables = {"reward": np.ones((4, 2)), "cost": np.ones((4, 2)), "gamma": 0.5}
    one = FiniteBMDP(transition=dense, **tables)
    other = FiniteBMDP(transition=sparse.coo_array(dense.reshape(8, 4)), **tables)
    assert abs(one.transition - other.transition).max() == 0


def test_nothing_is_earned_or_paid_at_terminal_states():
    model = FiniteBMDP(
        transition=np.full((2, 1, 2), [[[0.0, 1.0]], [[7.0, 7.0]]]),
        reward=[[1.0], [5.0]],
        cost=[[2.0], [5.0]],
        gamma=1.0,
        terminal=[False, True],
    )
    assert model.reward.tolist() == [[1.0], [0.0]]
    assert model.cost.tolist() == [[2.0], [0.0]]
    assert model.expected_next(np.array([3.0, 4.0])).tolist() == [[4.0], [0.0]]


def test_a_model_does_not_change_with_the_arrays_it_was_made_from():
    transition = sparse.csr_array(np.ones((2, 1)))
    model = FiniteBMDP(**{**LOOP, "transition": transition})
    transition.data[:] = 0.3
    assert model.transition.toarray().tolist() == [[1.0], [1.0]]
    with pytest.raises(ValueError, match="read-only"):
        model.reward[0, 0] = 1


def test_a_start_is_a_state_or_a_distribution():
    model = FiniteBMDP(**PAIR)
    assert model.start_distribution(1).tolist() == [0.0, 1.0]
    assert model.start_distribution([0.25, 0.75]).tolist() == [0.25, 0.75]
    for bad, message in (
        (2, "from 0 to 1; got 2"),
        (-1, "from 0 to 1; got -1"),
        (0.5, "a state from 0 to 1"),
        ([1.0], r"\[S\] = \[2\]; got shape \[1\]"),
        ([0.5, 0.6], "the sum is 1.1"),
        ([1.5, -0.5], "the least is -0.5"),
        ([np.nan, 1.0], "must be a distribution"),
    ):
        with pytest.raises(ModelError, match=message):
            model.start_distribution(bad)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_saved_model_is_the_same_model(name, tmp_path):
    model = problem(name).model
    model.save(tmp_path / "model.npz")
    loaded = FiniteBMDP.load(tmp_path / "model.npz")
    assert (loaded.gamma, loaded.cost_gamma, loaded.horizon) == (
        model.gamma,
        model.cost_gamma,
        model.horizon,
    )
    for field in ("reward", "cost", "terminal"):
        assert (getattr(loaded, field) == getattr(model, field)).all()
    assert (loaded.transition.toarray() == model.transition.toarray()).all()


def test_saving_does_not_overwrite_unless_asked(tmp_path):
    path = tmp_path / "model.npz"
    FiniteBMDP(**LOOP).save(path)
    with pytest.raises(StoreError, match="exists already"):
        FiniteBMDP(**PAIR).save(path)
    FiniteBMDP(**PAIR).save(path, overwrite=True)
    assert FiniteBMDP.load(path).n_states == 2
    with pytest.raises(StoreError, match="cannot be written"):
        FiniteBMDP(**LOOP).save(path / "model.npz")
    assert [p.name for p in tmp_path.iterdir()] == ["model.npz"]


def test_foreign_truncated_and_missing_files_are_refused(tmp_path):
    path = tmp_path / "model.npz"
    with pytest.raises(StoreError, match="does not exist"):
        FiniteBMDP.load(path)
    garnet(20, 3, 3, gamma=0.9, rng=np.random.default_rng(0)).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match="not a whole model file"):
        FiniteBMDP.load(path)
    path.write_text("hello")
    with pytest.raises(StoreError, match="not a whole model file"):
        FiniteBMDP.load(path)
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    with pytest.raises(StoreError, match="a single array"):
        FiniteBMDP.load(path)
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes(b ^ 0xFF for b in whole[middle:-2000]) + whole[-2000:])
    with pytest.raises(StoreError, match="not a"):
        FiniteBMDP.load(path)
    np.savez(path, a=np.ones(3))
    with pytest.raises(StoreError, match="not a whole model file"):
        FiniteBMDP.load(path)
    np.savez(path, format=np.array("other/1"))
    with pytest.raises(StoreError, match="has format other/1"):
        FiniteBMDP.load(path)


def test_objects_in_a_file_are_not_unpickled(tmp_path):
    path = tmp_path / "model.npz"
    np.savez(path, format=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(StoreError, match="not a whole model file"):
        FiniteBMDP.load(path)


@pytest.mark.parametrize(
    ("field", "value", "error", "message"),
    [
        ("next_state", np.array([0, 99]), StoreError, "not a whole model file"),
        ("row_start", np.array([0, 1]), StoreError, "not a whole model file"),
        ("probability", np.array([0.5, 1.0]), ModelError, "sums to 0.5"),
    ],
)
def test_a_tampered_file_is_refused(field, value, error, message, tmp_path):
    path = tmp_path / "model.npz"
    FiniteBMDP(**LOOP).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    arrays[field] = value
    np.savez(path, **arrays)
    with pytest.raises(error, match=message):
        FiniteBMDP.load(path)
