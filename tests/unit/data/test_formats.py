"""Formats that people have: CSV, Arrow, folders of Parquet, polars; and what is wrong with them."""

import gzip

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from bmdp import DataError, StoreError
from bmdp.data import Columns, TransitionBatch, load_batch, load_log
from logs import assert_same, columns, full, optional_columns


def frame(**changes):
    """The small log, with a column for each number of a state, as another program has it."""
    held = columns() | optional_columns()
    for field in ("state", "next_state"):
        values = held.pop(field)
        held |= {f"{field}_{k}": values[:, k] for k in range(2)}
    return pd.DataFrame(held | changes)


def write_csv(table, path):
    table.to_csv(path, index=False)


def write_stream(table, path):
    held = pa.Table.from_pandas(table, preserve_index=False)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, held.schema) as writer:
        writer.write_table(held)


WRITERS = {
    "log.parquet": lambda table, path: table.to_parquet(path),
    "log.csv": write_csv,
    "log.csv.gz": write_csv,
    "LOG.CSV": write_csv,
    "log.feather": lambda table, path: table.to_feather(path),
    "log.arrow": write_stream,
    "folder": lambda table, path: table.to_parquet(path, partition_cols=["episode"]),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_batch(tmp_path, name):
    WRITERS[name](frame(), tmp_path / name)
    assert_same(load_batch(tmp_path / name), full(n_actions=3))
    assert_same(load_log(tmp_path / name).batch, full(n_actions=3))
    assert load_log(tmp_path / name).encoder is None


def test_tables_of_pyarrow_are_read():
    table = pa.Table.from_pandas(frame(), preserve_index=False)
    for held in (table, table.to_batches()[0]):
        assert_same(TransitionBatch.from_arrow(held), full(n_actions=3))
        assert_same(load_log(held).batch, full(n_actions=3))


def test_data_frames_of_polars_are_read():
    polars = pytest.importorskip("polars")
    table = polars.DataFrame(frame().to_dict("list"))
    for held in (table, table.lazy()):
        assert_same(load_log(held).batch, full(n_actions=3))
    assert_same(TransitionBatch.from_arrow(table), full(n_actions=3))


def test_a_lazy_frame_that_fails_is_told_in_one_line(tmp_path):
    polars = pytest.importorskip("polars")
    missing = polars.scan_parquet(tmp_path / "nowhere.parquet")
    misspelled = polars.LazyFrame(frame().to_dict("list")).select("rewart")
    for held in (missing, misspelled):
        with pytest.raises(DataError, match=r"^frame cannot be collected: .*(nowhere|rewart)"):
            load_log(held)


def test_a_table_that_this_library_wrote_is_complete(tmp_path):
    full().to_parquet(tmp_path / "log.parquet")
    assert_same(TransitionBatch.from_arrow(pq.read_table(tmp_path / "log.parquet")), full())


def test_several_files_are_one_log(tmp_path):
    write_csv(frame(), tmp_path / "a.csv")
    frame().to_parquet(tmp_path / "b.parquet")
    found = load_log([tmp_path / "a.csv", tmp_path / "b.parquet"]).batch
    assert_same(found, TransitionBatch.concatenate([full(n_actions=3)] * 2))


def test_the_names_of_partitions_are_columns(tmp_path):
    table = frame().drop(columns="episode").assign(day=["mon"] * 3 + ["tue"] * 3)
    table.to_parquet(tmp_path / "log", partition_cols=["day"])
    batch = load_batch(tmp_path / "log", Columns(episode="day"))
    assert batch.episode.tolist() == [0, 0, 0, 1, 1, 1]


def test_files_of_a_folder_are_read_by_path_and_hidden_ones_left_out(tmp_path):
    for place, rows in (("b", slice(3, 6)), ("a", slice(3)), (".c", slice(1)), ("_d", slice(1))):
        (tmp_path / place).mkdir()
        frame().iloc[rows].to_parquet(tmp_path / place / "part.parquet")
    assert_same(load_batch(tmp_path), full(n_actions=3))


def test_whole_numbers_and_others_go_together(tmp_path):
    frame(cost=np.arange(6)).to_parquet(tmp_path / "a.parquet")
    frame(cost=np.arange(6) / 2).to_parquet(tmp_path / "b.parquet")
    assert load_batch(tmp_path).cost.tolist() == [*np.arange(6), *(np.arange(6) / 2)]


# What is wrong


def test_a_folder_without_parquet_says_so(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    for read in (load_batch, load_log):
        with pytest.raises(DataError, match=rf"{tmp_path.name} holds no Parquet: give a folder of"):
            read(tmp_path)


def test_a_file_of_a_folder_that_lacks_a_column_is_named(tmp_path):
    frame().to_parquet(tmp_path / "a.parquet")
    frame().drop(columns="cost").to_parquet(tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"same columns; b.parquet has no column 'cost'"):
        load_batch(tmp_path)


def test_a_file_of_a_folder_with_another_kind_of_column_is_named(tmp_path):
    frame().to_parquet(tmp_path / "a.parquet")
    frame(cost=["much"] * 6).to_parquet(tmp_path / "b.parquet")
    message = r"'cost' is text in b.parquet, and numbers in a.parquet"
    with pytest.raises(DataError, match=message):
        load_batch(tmp_path)


def test_columns_that_are_not_needed_may_differ(tmp_path):
    frame(remark=["x"] * 6).to_parquet(tmp_path / "a.parquet")
    frame(remark=[1.0] * 6).to_parquet(tmp_path / "b.parquet")
    assert len(load_batch(tmp_path)) == 12


def test_files_with_other_kinds_of_states_are_named(tmp_path):
    write_csv(frame(), tmp_path / "a.csv")
    write_csv(frame(state_0=["x"] * 6, next_state_0=["x"] * 6), tmp_path / "b.csv")
    with pytest.raises(DataError, match=r"'state_0' is numbers in a.csv, and text in b.csv"):
        load_log([tmp_path / "a.csv", tmp_path / "b.csv"])


def test_files_with_other_columns_of_states_are_named(tmp_path):
    write_csv(frame(), tmp_path / "a.csv")
    write_csv(frame(state_2=1.0, next_state_2=1.0), tmp_path / "b.csv")
    with pytest.raises(DataError, match=r"a.csv has state_0, state_1, and b.csv has .*, state_2"):
        load_log([tmp_path / "a.csv", tmp_path / "b.csv"])


@pytest.mark.parametrize("content", ["", "state,action\n", "\n"])
def test_a_csv_without_rows_is_refused(tmp_path, content):
    (tmp_path / "log.csv").write_text(content)
    with pytest.raises(DataError, match=r"log.csv must hold a line of names, and at least one row"):
        load_batch(tmp_path / "log.csv")


def test_a_csv_with_two_columns_of_one_name_is_refused(tmp_path):
    (tmp_path / "log.csv").write_text("cost,cost\n1,2\n")
    with pytest.raises(DataError, match="must have columns of different names; got cost, cost"):
        load_batch(tmp_path / "log.csv")


@pytest.mark.parametrize(
    ("name", "cell", "message"),
    [
        ("cost", None, r"cost must be there; 1 of 6 rows is missing, the first is \[2\]"),
        ("state_1", None, r"state_1 must be there; 1 of 6 rows is missing, the first is \[2\]"),
        ("action", None, r"action must be there; 1 of 6 rows is missing, the first is \[2\]"),
        ("probability", None, r"probability must be there; 1 of 6 rows is missing, .* \[2\]"),
        ("reward", "much", r"reward must be numbers; got text, 'much' at \[2\]"),
        ("terminal", "perhaps", r"terminal must be numbers; got text, 'False' at \[0\]"),
    ],
)
def test_a_cell_of_a_csv_that_is_wrong_is_named(tmp_path, name, cell, message):
    table = frame().astype({name: object})
    table.loc[2, name] = cell
    write_csv(table, tmp_path / "log.csv")
    with pytest.raises(DataError, match=message):
        load_log(tmp_path / "log.csv")


def test_a_column_is_called_by_its_own_name_and_its_field():
    table = frame().rename(columns={"cost": "damage"}).astype({"damage": object})
    table.loc[4, "damage"] = None
    with pytest.raises(DataError, match=r"cost, in column 'damage', must be there; .* is \[4\]"):
        load_log(table, Columns(cost="damage"))


def test_text_where_a_number_is_needed_is_refused():
    with pytest.raises(DataError, match=r"reward must be numbers; got text, 'a' at \[0\]"):
        load_log(frame(reward=list("abcdef")))


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".arrow", ".feather"])
@pytest.mark.parametrize("content", [b"\0\1\2\3", b"PAR1\0\0\0PAR1"])
def test_a_file_that_is_not_what_its_suffix_says_is_named(tmp_path, suffix, content):
    path = tmp_path / f"log{suffix}"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=rf"log{suffix} is not an? \w+ file") as error:
        load_batch(path)
    assert "\n" not in str(error.value)


def test_a_csv_whose_rows_differ_in_length_is_refused(tmp_path):
    (tmp_path / "log.csv").write_text("a,b\n1,2\n1,2,3\n")
    with pytest.raises(StoreError, match=r"log.csv is not a CSV file: .*Expected 2 columns, got 3"):
        load_batch(tmp_path / "log.csv")


def test_names_of_columns_that_are_no_text_are_refused_in_one_line(tmp_path):
    path = tmp_path / "log.csv"
    path.write_bytes(b"stat\xf8e,action\n1,2\n")
    with pytest.raises(
        StoreError, match=r"log.csv is not a table with names that are text"
    ) as error:
        load_log(path)
    assert "\n" not in str(error.value)


def test_a_compressed_csv_that_is_cut_short_is_refused(tmp_path):
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 1_000)[:-20])
    with pytest.raises(StoreError, match="is not a CSV file"):
        load_batch(path)


@pytest.mark.parametrize("source", [3, None, [1], {"state": [1]}])
def test_what_is_no_log_is_refused(source):
    with pytest.raises(DataError, match="source must be a data frame, a table of pyarrow, a path"):
        load_log(source)


def test_no_file_is_no_log():
    with pytest.raises(DataError, match="at least one file; got none"):
        load_log([])


# Names of columns


def test_columns_are_named_by_a_text():
    found = Columns.from_text("action=hurry, cost=damage,state=age+income")
    assert found == Columns(action="hurry", cost="damage", state=("age", "income"))
    assert Columns.from_dict(found.as_dict()) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cots=damage", r"a column must be one of .*; got 'cots'. Did you mean 'cost'\?"),
        ("cost=damage,cost=harm", "columns must name a field once; got 'cost' twice"),
        ("cost", r"columns must be like action=hurry,state=age\+income; got 'cost'"),
        ("cost=", "columns must be like .*; got 'cost='"),
        ("state=age++income", "columns must be like .*; got 'state=age"),
        ("", "columns must be like"),
    ],
)
def test_a_text_that_names_no_columns_is_refused(text, message):
    with pytest.raises(DataError, match=message):
        Columns.from_text(text)


def test_an_unknown_column_names_the_nearest():
    with pytest.raises(DataError, match=r"'rewrad' is not among .* Did you mean 'reward'\?"):
        load_log(frame(), Columns(reward="rewrad"))


def test_a_column_named_twice_is_refused():
    with pytest.raises(DataError, match="state must be in different columns; got step, step"):
        load_log(frame(), Columns(state=("step", "step")))
