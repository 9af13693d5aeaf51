"""Files of all kinds: what is read is what was written, and what is wrong is said in one line."""

import json
import subprocess
import sys

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bmdp import DataError, MissingDependency, StoreError
from bmdp.arrays import MAGNITUDE
from bmdp.data import Columns, TransitionBatch, load_batch, load_batches
from bmdp.learn import BFTQ, Backward, BFTQConfig
from bmdp.models import LinearModel
from logs import assert_same, columns, corridor_log, full, optional_columns, small

SUFFIXES = (".parquet", ".hdf5", ".npz")
WRITERS = {
    ".parquet": TransitionBatch.to_parquet,
    ".hdf5": TransitionBatch.to_hdf5,
    ".npz": TransitionBatch.to_npz,
}
DSRL = {
    "observations": "state",
    "next_observations": "next_state",
    "actions": "action",
    "rewards": "reward",
    "costs": "cost",
    "terminals": "terminal",
    "timeouts": "truncated",
}


def write(batch, path, **settings):
    WRITERS[path.suffix](batch, path, **settings)
    return path


def write_table(path, **held):
    """A file that some other program wrote."""
    kept = {name: np.asarray(values) for name, values in held.items() if values is not None}
    if path.suffix == ".npz":
        np.savez(path, **kept)
    elif path.suffix == ".parquet":
        pq.write_table(pa.table({k: list(v) if v.ndim > 1 else v for k, v in kept.items()}), path)
    else:
        with h5py.File(path, "w") as file:
            for name, values in kept.items():
                file[name] = values
    return path


def dsrl(**changes):
    """The small log as DSRL has it: single precision, under its names."""
    held = columns() | optional_columns()
    return {name: held[field].astype(np.float32) for name, field in DSRL.items()} | changes


# Round trips.


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("batch", [full(), small(), corridor_log()], ids=["full", "small", "log"])
def test_what_is_read_is_what_was_written(tmp_path, suffix, batch):
    assert_same(load_batch(write(batch, tmp_path / f"log{suffix}")), batch)


@st.composite
def batches(draw):
    """Any batch, with any choice of optional columns."""
    n, size = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    width = draw(st.sampled_from([32, 64]))

    def column(values, shape=n):
        flat = draw(st.lists(values, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
        return np.array(flat).reshape(shape)

    finite = st.floats(-MAGNITUDE, MAGNITUDE)
    narrow = st.floats(allow_nan=False, allow_infinity=False, width=width)
    narrow = finite if width == 64 else narrow
    seen = [column(narrow, (n, size)).astype(f"f{width // 8}") for _ in range(2)]
    terminal = column(st.booleans())
    optional = {
        "truncated": column(st.booleans()) & ~terminal,
        "episode": column(st.integers(-(2**62), 2**62)),
        "step": column(st.integers(0, 2**62)),
        "budget": column(finite),
        "next_budget": column(finite),
        "probability": column(st.floats(0, 1, exclude_min=True)),
        "n_actions": 10 + draw(st.integers(0, 5)),
    }
    known = draw(st.sets(st.sampled_from(sorted(optional))))
    return TransitionBatch(
        state=seen[0],
        action=column(st.integers(0, 9)),
        reward=column(finite),
        cost=column(finite),
        next_state=seen[1],
        terminal=terminal,
        **{name: optional[name] for name in known},
    )


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_any_batch_comes_back_as_it_was(tmp_path_factory, suffix):
    path = tmp_path_factory.mktemp("any") / f"log{suffix}"

    @settings(max_examples=60)
    @given(batches())
    def round_trip(batch):
        assert_same(load_batch(write(batch, path, overwrite=True)), batch)

    round_trip()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_existing_file_is_left_alone_unless_told_otherwise(tmp_path, suffix):
    path = write(full(), tmp_path / f"deep/log{suffix}")
    with pytest.raises(StoreError, match=r"exists already: choose another name, or pass overwr"):
        write(small(), path)
    assert_same(load_batch(path), full())
    write(small(), path, overwrite=True)
    assert_same(load_batch(path), small())
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path, suffix):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="cannot be written"):
        write(small(), tmp_path / "file" / f"log{suffix}")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_nothing_is_left_behind_when_writing_fails(tmp_path, monkeypatch):
    def full_disk(file, **_):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("bmdp.data.formats.np.savez_compressed", full_disk)
    with pytest.raises(StoreError, match="cannot be written: disk full"):
        small().to_npz(tmp_path / "log.npz")
    assert list(tmp_path.iterdir()) == []


# Several files.


def test_several_files_are_one_batch_with_episodes_of_their_own(tmp_path):
    paths = [write(full(), tmp_path / f"log{suffix}") for suffix in SUFFIXES]
    batch = load_batches(paths)
    assert_same(batch, TransitionBatch.concatenate([full()] * 3))
    assert len(np.unique(batch.episode)) == 6


def test_no_file_is_no_batch():
    with pytest.raises(DataError, match="batches must hold at least one; got none"):
        load_batches([])


# Files of others.


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_of_others_are_known_by_common_names(tmp_path, suffix):
    path = write_table(tmp_path / f"log{suffix}", **dsrl())
    batch = load_batch(path)
    held = columns() | optional_columns()
    wanted = {f: held[f].astype(np.float32) for f in ("state", "next_state")}
    kept = {f: held[f] for f in ("action", "reward", "cost", "terminal", "truncated")}
    counted = {"episode": [0, 0, 0, 1, 1, 1], "step": [0, 1, 2, 0, 1, 2]}
    assert_same(batch, TransitionBatch(**wanted, **kept, **counted))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_columns_of_any_file_can_be_named(tmp_path, suffix):
    held = columns()
    held["damage"] = held.pop("cost")
    path = write_table(tmp_path / f"log{suffix}", **held)
    batch = load_batch(path, Columns(cost="damage"))
    np.testing.assert_array_equal(batch.cost, columns()["cost"])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_without_costs_lists_what_it_has(tmp_path, suffix):
    path = write_table(tmp_path / f"log{suffix}", **columns(cost=None))
    with pytest.raises(
        DataError, match=rf"cost must be a column of log{suffix}, .*found are .*rew"
    ):
        load_batch(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_with_states_that_are_no_numbers_counts_them(tmp_path, suffix):
    states = columns()["state"]
    states[2:4] = np.nan
    path = write_table(tmp_path / f"log{suffix}", **columns(state=states))
    with pytest.raises(DataError, match=r"state must be finite; 2 of 6 rows are not, the .* \[2\]"):
        load_batch(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rows_of_a_file_that_are_both_terminal_and_truncated_are_refused(tmp_path, suffix):
    ended = np.array([0, 0, 1, 0, 0, 1], bool)
    path = write_table(tmp_path / f"log{suffix}", **columns(terminal=ended, truncated=ended))
    with pytest.raises(DataError, match=r"terminal must be kept apart .* 2 of 6 rows are both"):
        load_batch(path)


@pytest.mark.parametrize("suffix", [".hdf5", ".npz"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cost": np.zeros(5)}, "cost must have as many rows as state, 6; got 5"),
        ({"episode": np.zeros(5)}, "episode must have as many rows as state, 6; got 5"),
        ({"reward": np.float64(1.0)}, r"reward must have shape \[N\]; got \[\]"),
        ({"next_state": np.zeros((6, 3))}, r"next_state must have the shape of state, \[6, 2\]"),
        ({"next_state": np.zeros((5, 2))}, "next_state must have as many rows as state, 6; got 5"),
    ],
)
def test_arrays_of_a_file_that_do_not_fit_are_named(tmp_path, suffix, changes, message):
    path = write_table(tmp_path / f"log{suffix}", **columns(**changes))
    with pytest.raises(DataError, match=message):
        load_batch(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_continuous_actions_need_a_function(tmp_path, suffix):
    steering = np.array([[-1.0, 0.0], [0.1, 0.0], [1.0, 0.0]])[columns()["action"]]
    path = write_table(tmp_path / f"log{suffix}", **dsrl(actions=steering))
    with pytest.raises(DataError, match=r"Only discrete actions .* in files by discretise"):
        load_batch(path)
    batch = load_batch(path, discretise=lambda a: np.digitize(a[:, 0], [-0.5, 0.5]))
    assert batch.action.tolist() == columns()["action"].tolist()


def test_a_function_that_makes_no_whole_numbers_is_found_out(tmp_path):
    path = write_table(tmp_path / "log.hdf5", **dsrl())
    with pytest.raises(DataError, match="action must be whole numbers; 6 of 6 rows are not"):
        TransitionBatch.from_hdf5(path, discretise=lambda a: a[:, 0] + 0.5)


def test_whole_actions_may_be_floats_of_one_column(tmp_path):
    tall = columns()["action"].astype(np.float32)[:, None]
    path = write_table(tmp_path / "log.h5", **dsrl(actions=tall))
    assert load_batch(path).action.tolist() == columns()["action"].tolist()


def test_next_states_of_a_file_follow_from_its_rows(tmp_path):
    ends = np.array([0, 0, 1, 0, 0, 1])
    held = dsrl(next_observations=None, timeouts=None, terminals=ends)
    batch = load_batch(write_table(tmp_path / "log.h5", **held))
    np.testing.assert_array_equal(batch.next_state, columns()["state"][[1, 2, 2, 4, 5, 5]])
    assert batch.next_state.dtype == np.float32


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_steps_of_a_file_are_counted_where_its_rows_follow(tmp_path, suffix):
    """None of these formats is one that DSRL or others write with steps."""
    held = dsrl()
    batch = load_batch(write_table(tmp_path / f"log{suffix}", **held))
    assert batch.step.tolist() == [0, 1, 2, 0, 1, 2]
    mixed = {name: values[[3, 0, 5, 1, 4, 2]] for name, values in held.items()}
    batch = load_batch(write_table(tmp_path / f"mixed{suffix}", **mixed))
    assert (batch.step, batch.episode) == (None, None)


def test_a_log_without_steps_is_learned_from_step_by_step(tmp_path):
    """The log of the README: state, action, reward, cost, and whether it was the last row."""
    rng, n_rows = np.random.default_rng(0), 600
    action, third = rng.integers(2, size=n_rows), np.arange(n_rows) % 3
    held = {"state": rng.normal(size=(n_rows, 2)), "action": action, "reward": 1.0 + action}
    held |= {"cost": 0.25 * action, "terminal": third == 2}
    log = load_batch(write_table(tmp_path / "log.parquet", **held))
    assert log.step.tolist() == third.tolist()
    config = BFTQConfig(gamma=1.0, model=LinearModel(), schedule=Backward(), ensemble=1)
    policy = BFTQ(config).fit(log, seed=0, device="cpu")
    assert policy.n_steps == 3
    frontier = policy.frontier(log.state[0])
    assert frontier.costs[[0, -1]] == pytest.approx([0.0, 0.75], abs=0.05)
    assert frontier.rewards[[0, -1]] == pytest.approx([3.0, 6.0], abs=0.2)


@pytest.mark.parametrize("path", [None, 3, ["log.npz"], object()])
def test_what_names_no_file_is_refused(path):
    readers = (TransitionBatch.from_parquet, TransitionBatch.from_hdf5, TransitionBatch.from_npz)
    for use in (load_batch, *readers, *(lambda p, w=w: w(small(), p) for w in WRITERS.values())):
        with pytest.raises(StoreError, match=r"path must be the name of a file( or folder)?; got"):
            use(path)


@pytest.mark.parametrize("paths", [None, 3, "log.npz"])
def test_one_file_is_not_several(paths):
    with pytest.raises(DataError, match="paths must be a list of files; got"):
        load_batches(paths)


def test_hdf5_files_have_the_names_of_dsrl(tmp_path):
    with h5py.File(write(full(), tmp_path / "log.hdf5")) as file:
        assert set(DSRL) | {"episode", "step", "budget", "next_budget", "probability"} == set(file)


def test_arrays_in_groups_are_not_columns(tmp_path):
    path = write_table(tmp_path / "log.h5", **dsrl(costs=None))
    with h5py.File(path, "a") as file:
        file.create_group("costs")["of"] = np.zeros(6)
    with pytest.raises(DataError, match=r"cost must be a column of log.h5"):
        load_batch(path)


def test_an_npz_file_may_say_how_many_actions_there_are(tmp_path):
    path = write_table(tmp_path / "log.npz", **columns(), n_actions=8)
    assert load_batch(path).n_actions == 8
    path = write_table(tmp_path / "log.npz", **columns(), n_actions=[8, 9])
    with pytest.raises(DataError, match=r"n_actions must be a whole number .*; got \[8, 9\]"):
        load_batch(path)


# Lists in Parquet files.


def parquet(path, **arrays):
    held = {k: list(v) if v.ndim > 1 else v for k, v in columns().items()}
    pq.write_table(pa.table(held | arrays), path)
    return path


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float64()),
        pa.list_(pa.float64(), 2),
        pa.large_list(pa.float64()),
        pa.list_(pa.int32()),
    ],
    ids=str,
)
def test_states_are_lists_of_any_kind(tmp_path, kind):
    states = pa.array(columns()["state"].tolist(), kind)
    assert_same(
        load_batch(parquet(tmp_path / "log.parquet", state=states)),
        load_batch(parquet(tmp_path / "same.parquet")),
    )


def test_states_that_are_lists_of_lists_are_flattened(tmp_path):
    pictures = np.arange(36.0).reshape(6, 2, 3)
    held = pa.array(pictures.tolist())
    batch = load_batch(parquet(tmp_path / "log.parquet", state=held, next_state=held))
    np.testing.assert_array_equal(batch.state, pictures.reshape(6, 6))


def test_columns_in_several_pieces_are_one(tmp_path):
    path = parquet(tmp_path / "log.parquet")
    pq.write_table(pq.read_table(path), path, row_group_size=2)
    assert len(load_batch(path)) == 6


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ([[0, 1], [0, 1], [0], [0, 1], [], [0, 1]], r"lists of one length; 2 of 6 .* \[2\]"),
        ([[0, 1], [0, 1], None, [0, 1], [0, 1], [0, 1]], r"lists, none missing; 1 of 6 .* \[2\]"),
        ([None, [0, 1], [0, 1], [0, 1], [0, 1], [0, 1]], r"lists, none missing; 1 of 6 .* \[0\]"),
        ([[]] * 6, "state must be an array of real numbers; got type object"),
        ([[0, 1], [0, None]] * 3, r"finite; 3 of 6 rows are not, the first is \[1\]"),
        ([[[0], [1]], [[0], [1, 2]]] * 3, r"lists of one length; 3 of 6 .* \[1\]"),
    ],
)
def test_lists_that_are_not_alike_are_refused(tmp_path, states, message):
    path = parquet(tmp_path / "log.parquet", state=pa.array(states))
    with pytest.raises(DataError, match=message):
        load_batch(path)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("cost", [0.0, None, 1.0, None, 0.0, 0.0], r"cost must be finite; 2 of 6 .* is \[1\]"),
        ("action", [0, None, 1, 2, 0, 0], r"action must be whole numbers; 1 of 6 .* is \[1\]"),
        ("terminal", [True, None] * 3, "terminal must be an array of real numbers; got type obj"),
        ("action", ["left", "right"] * 3, "action must be an array of real numbers; got type"),
    ],
)
def test_gaps_and_words_are_refused(tmp_path, name, values, message):
    path = parquet(tmp_path / "log.parquet", **{name: values})
    with pytest.raises(DataError, match=message):
        load_batch(path)


def test_other_metadata_of_parquet_files_is_left_alone(tmp_path):
    table = pq.read_table(parquet(tmp_path / "log.parquet"))
    for note in (b"{", b"[]", b'{"format": 3}'):
        pq.write_table(table.replace_schema_metadata({b"bmdp": note}), tmp_path / "log.parquet")
        assert len(load_batch(tmp_path / "log.parquet")) == 6


def test_a_parquet_file_with_two_columns_of_one_name_is_refused(tmp_path):
    table = pa.table([[1.0], [2.0]], names=["cost", "cost"])
    pq.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(DataError, match="must have columns of different names; got cost, cost"):
        load_batch(tmp_path / "log.parquet")


# Files that are none.


@pytest.mark.parametrize("name", ["log.xlsx", "log", "log.pkl"])
def test_an_unknown_suffix_lists_the_known_ones(name):
    known = ".parquet, .csv, .csv.gz, .arrow, .feather, .h5, .hdf5, .npz"
    with pytest.raises(DataError, match=rf"end in one of {known}; got 'log"):
        load_batch(name)


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".h5"])
@pytest.mark.parametrize("content", [b"", b"no such thing at all"])
def test_a_file_that_is_not_what_its_suffix_says_is_named_in_one_line(tmp_path, suffix, content):
    path = tmp_path / f"log{suffix}"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=rf"log{suffix} is not an? \w+ file") as error:
        load_batch(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_cut_short_is_refused(tmp_path, suffix):
    path = write(corridor_log(), tmp_path / f"log{suffix}")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(StoreError, match=rf"log{suffix} is not an? \w+ file"):
        load_batch(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_damaged_inside_is_refused(tmp_path, suffix):
    path = write(corridor_log(), tmp_path / f"log{suffix}")
    if suffix == ".hdf5":  # notices only what is compressed
        with h5py.File(path, "a") as file:
            del file["costs"]
            file.create_dataset("costs", data=np.arange(976.0), compression="gzip")
            place = file["costs"].id.get_chunk_info(0).byte_offset
    else:
        place = 60
    content = bytearray(path.read_bytes())
    content[place : place + 60] = bytes(60)
    path.write_bytes(content)
    with pytest.raises(StoreError, match=rf"log{suffix} is not an? \w+ file"):
        load_batch(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_without_rows_is_no_batch(tmp_path, suffix):
    nothing = {name: values[:0] for name, values in columns().items()}
    path = tmp_path / f"log{suffix}"
    if suffix == ".parquet":
        pq.write_table(pq.read_table(write(small(), path))[:0], path)
    else:
        write_table(path, **nothing)
    with pytest.raises(DataError, match="state must hold at least one transition; got none"):
        load_batch(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_not_there_is_named(tmp_path, suffix):
    with pytest.raises(StoreError, match=rf"log{suffix} does not exist"):
        load_batch(tmp_path / f"log{suffix}")
    (tmp_path / f"log{suffix}").mkdir()
    is_parquet = suffix == ".parquet"  # of which there are folders
    message = "holds no Parquet" if is_parquet else "is not a file"
    with pytest.raises(DataError if is_parquet else StoreError, match=rf"log{suffix} {message}"):
        load_batch(tmp_path / f"log{suffix}")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_newer_format_asks_for_an_upgrade(tmp_path, suffix, monkeypatch):
    path = tmp_path / f"log{suffix}"
    with monkeypatch.context() as newer:
        newer.setattr("bmdp.data.formats.FORMAT", "bmdp.TransitionBatch/2")
        write(small(), path)
    with pytest.raises(StoreError, match=r"has format bmdp.TransitionBatch/2, not .*: upgrade"):
        load_batch(path)


def changed(path, field, values):
    """Changes a column of a file that this library wrote, and leaves all else as it is."""
    if path.suffix == ".npz":
        with np.load(path) as file:
            held = dict(file)
        np.savez(path, **(held | {field: values}))
    elif path.suffix == ".parquet":
        table = pq.read_table(path)
        place = table.column_names.index(field)
        pq.write_table(table.set_column(place, field, pa.array(values)), path)
    else:
        with h5py.File(path, "a") as file:
            file["costs" if field == "cost" else field][...] = values


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_batch_that_is_not_the_one_that_was_written_is_refused(tmp_path, suffix):
    path = write(small(), tmp_path / f"log{suffix}")
    changed(path, "cost", small().cost + 1)
    with pytest.raises(
        StoreError, match=rf"log{suffix} does not hold the batch .* damaged.*sha256"
    ):
        load_batch(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_batch_that_was_changed_on_purpose_is_read_without_its_checksum(tmp_path, suffix):
    path = write(small(), tmp_path / f"log{suffix}")
    changed(path, "cost", small().cost + 1)
    if suffix == ".npz":
        with np.load(path) as file:
            held = {name: file[name] for name in file.files if name != "sha256"}
        np.savez(path, **held)
    elif suffix == ".parquet":
        table = pq.read_table(path)
        notes = json.loads(table.schema.metadata[b"bmdp"])
        del notes["sha256"]
        pq.write_table(table.replace_schema_metadata({"bmdp": json.dumps(notes)}), path)
    else:
        with h5py.File(path, "a") as file:
            del file.attrs["sha256"]
    assert load_batch(path).cost.tolist() == (small().cost + 1).tolist()


def test_a_column_that_lost_its_name_is_missed(tmp_path):
    """The name of a member, in the list of an npz file at its end: not in what is read."""
    path = write(corridor_log(), tmp_path / "log.npz")
    content = path.read_bytes()
    place = content.rindex(b"episode.npy")
    path.write_bytes(content[:place] + b"epizode.npy" + content[place + 11 :])
    with pytest.raises(StoreError, match="is not an npz file"):
        load_batch(path)


def test_an_array_that_is_larger_than_its_file_is_refused(tmp_path):
    path = tmp_path / "log.hdf5"
    write_table(path, **dsrl())
    with h5py.File(path, "a") as file:
        del file["costs"]
        file.create_dataset("costs", (10**12,), np.float32, chunks=(1000,))
    with pytest.raises(StoreError, match=r"costs must have 4,000,000,000,000 bytes; 0 are"):
        load_batch(path)


def test_an_npz_file_of_pickles_is_not_opened(tmp_path):
    np.savez(tmp_path / "log.npz", **columns(cost=np.array([print] * 6)))
    with pytest.raises(StoreError, match=r"log.npz is not an npz file .*allow_pickle=False"):
        load_batch(tmp_path / "log.npz")


def test_a_single_array_is_no_batch(tmp_path):
    with (tmp_path / "log.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(StoreError, match="it holds a single array"):
        load_batch(tmp_path / "log.npz")


# Extras.


def test_importing_the_package_loads_none_of_the_extras():
    code = "import sys, bmdp.data; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    answer = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert not {"pyarrow", "h5py", "minari", "pandas", "torch"} & set(answer.stdout.split())


@pytest.mark.parametrize(
    ("package", "command", "call"),
    [
        ("pyarrow", "bmdp[data]", lambda path: small().to_parquet(path)),
        ("pyarrow", "bmdp[data]", TransitionBatch.from_parquet),
        ("h5py", "bmdp[data]", lambda path: small().to_hdf5(path)),
        ("h5py", "bmdp[data]", TransitionBatch.from_hdf5),
        ("minari", "bmdp[data]", lambda _: small().to_minari("log-v0")),
        ("minari", "bmdp[data]", lambda _: TransitionBatch.from_minari("log-v0")),
        ("pandas", "pandas", lambda _: small().to_pandas()),
    ],
)
def test_a_missing_extra_is_one_line_with_the_command(
    tmp_path, monkeypatch, package, command, call
):
    path = write_table(tmp_path / "log.npz", **columns()).rename(tmp_path / "log")
    for module in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependency, match=f"{package} must be installed") as error:
        call(path)
    assert str(error.value).count("pip install") == 1
    assert command in str(error.value)
    assert "\n" not in str(error.value)
