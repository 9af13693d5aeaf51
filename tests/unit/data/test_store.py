"""A log on disk: it holds what `load_log` reads, in a random order, within bounded memory."""

import hashlib
import itertools
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest

from bmdp import ConfigError, DataError, StoreError
from bmdp.data import Columns, StoredLog, TransitionBatch, load_log, log_size, store_log
from bmdp.data.store import paths_of
from bmdp.learn.auto import read_source
from bmdp.learn.natures import completed
from logs import assert_same, full

NAMES = Columns(
    state=("mood", "age", "paid", "since"),
    next_state=("mood_after", "age_after", "paid_after", "since_after"),
    action="offer",
    reward="gain",
    cost="loss",
)
WITHOUT_NEXT = Columns(state=NAMES.state, action="offer", reward="gain", cost="loss")
AFTER = list(NAMES.next_state)


def clients(n=60, seed=0, **changes):
    """Visits of clients, one to six each: text, numbers, truth values and dates."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, n)
    rows = int(lengths.sum())
    episode, step = np.repeat(np.arange(n), lengths), np.concatenate(list(map(np.arange, lengths)))
    done = np.append(episode[1:] != episode[:-1], True)
    frame = pd.DataFrame(
        {
            "mood": rng.choice(["calm", "glad", "sad"], rows),
            "age": rng.normal(size=rows).round(3),
            "paid": rng.random(rows) < 0.5,
            "since": pd.Timestamp("2020-03-01")
            + pd.to_timedelta(rng.integers(999, size=rows), "h"),
        }
    )
    following = np.arange(rows) + ~done
    after = frame.iloc[following].reset_index(drop=True).add_suffix("_after")
    others = {
        "offer": rng.choice(["no", "yes", "maybe"], rows),
        "gain": rng.normal(size=rows),
        "loss": rng.random(rows),
        "done": done,
        "episode": episode,
        "step": step,
    }
    return pd.concat([frame, after, pd.DataFrame(others)], axis=1).assign(**changes)


def numbers(n=60, seed=0, **changes):
    """The same with numbers only, one of which is whole."""
    frame = clients(n, seed)
    rng, after = np.random.default_rng(seed), ~frame["done"]
    frame["s_0"], frame["s_1"] = frame["age"], rng.integers(9, size=len(frame)).astype(float)
    for name in ("s_0", "s_1"):
        frame[f"next_{name}"] = frame[name].shift(-1).where(after, frame[name])
    frame["a"] = rng.integers(3, size=len(frame))
    frame = frame.rename(columns={"gain": "r", "loss": "c", "next_s_0": "s2_0", "next_s_1": "s2_1"})
    kept = ["s_0", "s_1", "a", "r", "c", "s2_0", "s2_1", "done", "episode", "step"]
    return frame[kept].assign(**changes)


def lists(n=200, seed=0, first=0, **changes):
    """Episodes of five steps in single precision, with lists as states."""
    rng = np.random.default_rng((seed, first))
    path = rng.normal(size=(n, 6, 3)).astype(np.float32)
    rows = 5 * n
    columns = {
        "state": path[:, :5].reshape(rows, 3),
        "action": rng.integers(4, size=rows),
        "reward": rng.normal(size=rows),
        "cost": rng.random(rows),
        "next_state": path[:, 1:].reshape(rows, 3),
        "terminal": np.tile(np.arange(5) == 4, n),
        "episode": np.repeat(first + np.arange(n), 5),
        "step": np.tile(np.arange(5), n),
    }
    return TransitionBatch(**columns | changes, n_actions=5)


def whole(log):
    """All rows of a log in memory."""
    return log.first(len(log))


def episodes_of(batch):
    """The content of each episode, or else of each row, sorted."""
    arrays = batch.to_arrays()
    number = arrays.pop("episode", np.arange(len(batch)))
    assert (np.diff(number) >= 0).all()
    flat = np.column_stack([arrays[name].reshape(len(batch), -1) for name in sorted(arrays)])
    ends = np.flatnonzero(np.diff(number)) + 1
    return sorted(part.astype(np.float64).tobytes() for part in np.split(flat, ends))


def by_episode(batch):
    """Rows of an episode together, as they came."""
    return batch if batch.episode is None else batch.take(np.argsort(batch.episode, kind="stable"))


def assert_holds(log, batch):
    """Whether a stored log holds the rows of a batch, once completed, in any order of episodes."""
    found, wanted = whole(log), by_episode(completed(batch))
    kinds = [{n: (v.dtype, v.shape) for n, v in b.to_arrays().items()} for b in (found, wanted)]
    assert kinds[0] == kinds[1]
    assert episodes_of(found) == episodes_of(wanted)
    assert (found.n_actions, found.state_names) == (batch.n_actions, batch.state_names)


def assert_stored_as_loaded(source, folder, columns=None, **settings):
    log, encoder = store_log(source, folder, columns, **settings)
    loaded = load_log(source, columns, **settings)
    assert encoder == loaded.encoder
    assert_holds(log, loaded.batch)
    return log


def content(folder):
    """Hashes of the files of a log."""
    return {
        n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in ("log.json", "rows.bin")
    }


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr("bmdp.data.store.CHUNK_ROWS", 64)
    monkeypatch.setattr("bmdp.data.parquet.PIECE_ROWS", 37)


@pytest.fixture
def small_buckets(monkeypatch, small_chunks):
    monkeypatch.setattr("bmdp.data.buckets.BUCKET_BYTES", 4_000)
    monkeypatch.setattr("bmdp.data.buckets.BUFFER_BYTES", 1_500)


# What it holds


@pytest.mark.parametrize("dropped", [[], ["step"], ["episode"], ["episode", "step"]])
@pytest.mark.parametrize("has_next", [True, False])
def test_a_stored_log_holds_what_load_log_reads(tmp_path, small_buckets, dropped, has_next):
    dropped = dropped + ([] if has_next else ["s2_0", "s2_1"])
    numbers().drop(columns=dropped).to_parquet(tmp_path / "log.parquet")
    log = assert_stored_as_loaded(tmp_path / "log.parquet", tmp_path / "stored")
    assert (log.n_episodes, log.n_steps) == (60, 6)


@pytest.mark.parametrize("dropped", [[], ["step"], ["episode"], AFTER, [*AFTER, "episode", "step"]])
def test_text_dates_and_truth_values_are_those_of_load_log(tmp_path, small_chunks, dropped):
    clients().drop(columns=dropped).to_parquet(tmp_path / "log.parquet")
    names = WITHOUT_NEXT if "mood_after" in dropped else NAMES
    log = assert_stored_as_loaded(tmp_path / "log.parquet", tmp_path / "stored", names)
    assert log.state_names[:3] == ("mood=calm", "mood=glad", "mood=sad")


@pytest.mark.parametrize("kind", ["category", "int8", "Int64", "float32", "boolean", "M8[ms]"])
def test_columns_of_any_type_are_those_of_load_log(tmp_path, small_chunks, kind):
    frame = clients()
    values = frame["age"].gt(0).astype(int) if kind != "category" else frame["age"].round()
    frame = frame.assign(age=values.astype(kind)).drop(columns=AFTER)
    frame.to_parquet(tmp_path / "log.parquet")
    assert_stored_as_loaded(tmp_path / "log.parquet", tmp_path / "stored", WITHOUT_NEXT)


@pytest.mark.parametrize("name", ["mood", "age", "paid", "since"])
@pytest.mark.parametrize("has_next", [True, False])
def test_gaps_are_filled_as_load_log_does(tmp_path, small_chunks, name, has_next):
    frame = clients()
    frame[name] = frame[name].astype(object).where(frame.index % 7 != 3, None)
    frame[name] = frame[name] if name in ("mood", "paid") else frame[name].infer_objects()
    if has_next:
        after = frame.shift(-1)[name].where(~frame["done"], None)
        frame[f"{name}_after"] = after
    else:
        frame = frame.drop(columns=AFTER)
    frame.to_parquet(tmp_path / "log.parquet")
    names = NAMES if has_next else WITHOUT_NEXT
    source = tmp_path / "log.parquet"
    assert_stored_as_loaded(source, tmp_path / "stored", names, missing="impute")


def test_without_gaps_imputing_needs_no_encoder(tmp_path):
    numbers().to_parquet(tmp_path / "log.parquet")
    log, encoder = store_log(tmp_path / "log.parquet", tmp_path / "stored", missing="impute")
    assert encoder is None
    assert log.state_size == 2


@pytest.mark.parametrize("has_next", [True, False])
@pytest.mark.parametrize("has_steps", [True, False])
def test_masks_are_those_of_load_log(tmp_path, small_buckets, has_next, has_steps):
    frame, rng = numbers(), np.random.default_rng(1)
    for k in range(3):
        frame[f"mask_{k}"] = (rng.random(len(frame)) < 0.5) | (frame["a"] == k)
        frame[f"next_mask_{k}"] = (rng.random(len(frame)) < 0.5) | (k == 1)
    dropped = [] if has_next else [f"next_mask_{k}" for k in range(3)]
    frame.drop(columns=dropped + ([] if has_steps else ["step"])).to_parquet(tmp_path / "a.parquet")
    assert_stored_as_loaded(tmp_path / "a.parquet", tmp_path / "stored")


def test_all_columns_of_a_batch_are_kept(tmp_path):
    full().to_parquet(tmp_path / "log.parquet")
    log, _ = store_log(tmp_path / "log.parquet", tmp_path / "stored")
    assert_holds(log, full())
    assert log.n_actions == 7


def test_single_precision_stays_and_a_chunk_is_read_only(tmp_path):
    lists().to_parquet(tmp_path / "log.parquet")
    log, _ = store_log(tmp_path / "log.parquet", tmp_path / "stored")
    chunk = log.chunk(0)
    assert chunk.state.dtype == np.float32
    assert not chunk.state.flags.writeable
    assert_holds(log, lists())


def test_steps_are_counted_from_0_on(tmp_path):
    frame = numbers()
    frame.assign(step=frame["step"] + 1).to_parquet(tmp_path / "log.parquet")
    log = assert_stored_as_loaded(tmp_path / "log.parquet", tmp_path / "stored")
    assert whole(log).step.min() == 0


def test_rows_in_no_order_have_no_steps_if_none_are_given(tmp_path, small_chunks):
    frame = numbers().sample(frac=1, random_state=0).drop(columns="step")
    frame.to_parquet(tmp_path / "log.parquet")
    log, _ = store_log(tmp_path / "log.parquet", tmp_path / "stored")
    assert log.n_steps is None
    assert whole(log).step is None
    assert whole(log).episode is not None


def test_rows_that_tell_no_episodes_are_their_own(tmp_path, small_buckets):
    frame = numbers().sample(frac=1, random_state=0).drop(columns=["step", "episode"])
    frame.to_parquet(tmp_path / "log.parquet")
    log = assert_stored_as_loaded(tmp_path / "log.parquet", tmp_path / "stored")
    assert log.chunk(0).episode is None
    assert log.n_episodes == len(log) == len(frame)
    assert set(log.sizes()[:-1]) == {64}


def test_steps_that_go_up_tell_episodes_where_states_do_not(tmp_path, small_chunks):
    frame = numbers().drop(columns="episode")
    frame = frame.assign(s2_0=frame["s2_0"] + 5, done=False)
    frame.to_parquet(tmp_path / "log.parquet")
    log = assert_stored_as_loaded(tmp_path / "log.parquet", tmp_path / "stored")
    assert log.n_episodes == 60


@pytest.mark.parametrize("kind", ["names", "dates", "categories"])
def test_episodes_may_have_names_and_dates(tmp_path, small_chunks, kind):
    frame = clients()
    episode = frame["episode"]
    named = {
        "names": "client " + episode.astype(str),
        "dates": pd.Timestamp("2024-01-01") + pd.to_timedelta(episode, "D"),
        "categories": ("client " + episode.astype(str)).astype("category"),
    }
    frame.assign(episode=named[kind]).to_parquet(tmp_path / "log.parquet")
    frame.to_parquet(tmp_path / "other.parquet")
    log, _ = store_log(tmp_path / "log.parquet", tmp_path / "stored", NAMES)
    assert_holds(log, load_log(tmp_path / "other.parquet", NAMES).batch)


def test_numbers_of_a_log_are_those_of_its_rows(tmp_path, small_chunks):
    frame = numbers(c=lambda f: f["c"] - 3)
    frame.to_parquet(tmp_path / "log.parquet")
    log, _ = store_log(tmp_path / "log.parquet", tmp_path / "stored")
    assert log.largest == (frame["r"].abs().max(), frame["c"].abs().max())
    assert log.counts.tolist() == np.bincount(frame["a"]).tolist()
    assert log.least_cost == frame["c"].min()
    assert len(log) == log.n_rows == log.sizes().sum() == len(frame)
    assert (log.n_steps, log.n_episodes, log.state_size, log.n_actions) == (6, 60, 2, 3)


def test_categories_of_text_are_those_of_load_log(tmp_path, small_chunks):
    frame = clients()
    for name in ("mood", "mood_after", "offer"):
        frame[name] = frame[name].astype("category")
    frame.to_parquet(tmp_path / "log.parquet")
    assert_stored_as_loaded(tmp_path / "log.parquet", tmp_path / "stored", NAMES)


@pytest.mark.parametrize("has_steps", [True, False])
def test_an_episode_that_was_truncated_ends_too(tmp_path, small_chunks, has_steps):
    frame = numbers().drop(columns="episode" if has_steps else ["episode", "step"])
    is_cut = frame["done"] & (np.arange(len(frame)) % 2 == 0)
    frame = frame.assign(done=frame["done"] & ~is_cut, truncated=is_cut)
    frame.to_parquet(tmp_path / "log.parquet")
    log = assert_stored_as_loaded(tmp_path / "log.parquet", tmp_path / "stored")
    assert log.n_episodes == 60


def test_medians_of_a_large_log_are_those_of_a_sample(tmp_path, monkeypatch, small_chunks):
    monkeypatch.setattr("bmdp.data.intake._SAMPLE_NUMBERS", 1600)
    frame = clients(630)
    frame["age"] = frame["age"].where(frame.index % 5 != 0)
    frame = frame.drop(columns=AFTER)
    found = []
    for number in range(2):
        frame.sample(frac=1, random_state=number).to_parquet(tmp_path / "log.parquet")
        how = (tmp_path / "log.parquet", tmp_path / str(number), WITHOUT_NEXT)
        found.append(store_log(*how, missing="impute")[1])
    assert found[0] == found[1]
    assert found[0].columns[1].has_gaps
    assert abs(found[0].columns[1].fill - frame["age"].median()) < 4 * 1.25 / np.sqrt(160)


# Several files


def halves(tmp_path, frame, by="episode"):
    """Two files, with every other episode each."""
    odd = frame[by] % 2 == 1
    (tmp_path / "log").mkdir()
    frame[~odd].to_parquet(tmp_path / "log" / "a.parquet")
    frame[odd].to_parquet(tmp_path / "log" / "b.parquet")
    return [tmp_path / "log" / "a.parquet", tmp_path / "log" / "b.parquet"]


@pytest.mark.parametrize("dropped", [["step"], ["s2_0", "s2_1"], ["episode", "step"]])
def test_several_files_are_those_of_load_log(tmp_path, small_buckets, dropped):
    paths = halves(tmp_path, numbers())
    for path in paths:
        pd.read_parquet(path).drop(columns=dropped).to_parquet(path)
    assert_stored_as_loaded(paths, tmp_path / "stored")


def test_episodes_of_several_files_are_different_and_those_of_a_folder_are_not(tmp_path):
    frame = numbers()
    paths = halves(tmp_path, frame, by="step")
    log, _ = store_log(paths, tmp_path / "files")
    assert log.n_episodes > 60
    assert_holds(log, load_log(paths).batch)
    assert_stored_as_loaded(tmp_path / "log", tmp_path / "folder")
    assert StoredLog.open(tmp_path / "folder").n_episodes == 60


def test_names_of_folders_are_columns(tmp_path):
    frame = clients().drop(columns=AFTER)
    frame["site"] = frame["episode"] % 3
    frame.to_parquet(tmp_path / "sites", partition_cols=["site"])
    names = Columns(state=("age", "site"), action="offer", reward="gain", cost="loss")
    log = assert_stored_as_loaded(tmp_path / "sites", tmp_path / "stored", names)
    assert log.state_names == ("age", "site")


def test_a_file_may_have_next_states_where_another_has_none(tmp_path, small_chunks):
    first, second = halves(tmp_path, numbers())
    frame = pd.read_parquet(second)
    frame.drop(columns=["s2_0", "s2_1"]).to_parquet(second)
    assert_stored_as_loaded([first, second], tmp_path / "stored")


def test_neither_the_order_of_rows_nor_that_of_files_matters(tmp_path, small_buckets):
    frame = clients(200).drop(columns=AFTER)
    paths = halves(tmp_path, frame)
    store_log(paths, tmp_path / "one", WITHOUT_NEXT)
    for path in paths:
        pd.read_parquet(path).sample(frac=1, random_state=3).to_parquet(path)
    store_log(paths[::-1], tmp_path / "other", WITHOUT_NEXT)
    assert content(tmp_path / "one") == content(tmp_path / "other")


def test_rows_of_a_folder_may_be_in_any_of_its_files(tmp_path, small_buckets):
    frame = numbers(200)
    halves(tmp_path, frame)
    store_log(tmp_path / "log", tmp_path / "one")
    mixed = frame.sample(frac=1, random_state=1)
    mixed[:300].to_parquet(tmp_path / "log" / "a.parquet")
    mixed[300:].to_parquet(tmp_path / "log" / "b.parquet")
    store_log(tmp_path / "log", tmp_path / "other")
    assert content(tmp_path / "one") == content(tmp_path / "other")


def test_the_seed_draws_the_order(tmp_path):
    numbers().to_parquet(tmp_path / "log.parquet")
    logs = [store_log(tmp_path / "log.parquet", tmp_path / str(k), seed=k)[0] for k in (0, 1)]
    assert whole(logs[0]).reward.tolist() != whole(logs[1]).reward.tolist()
    assert episodes_of(whole(logs[0])) == episodes_of(whole(logs[1]))


@pytest.mark.parametrize(("bucket", "buffer"), [(1_000, 300), (10_000, 10**6), (10**6, 700)])
def test_the_size_of_buckets_does_not_matter(tmp_path, monkeypatch, small_chunks, bucket, buffer):
    numbers(300).sample(frac=1, random_state=0).to_parquet(tmp_path / "log.parquet")
    store_log(tmp_path / "log.parquet", tmp_path / "one")
    monkeypatch.setattr("bmdp.data.buckets.BUCKET_BYTES", bucket)
    monkeypatch.setattr("bmdp.data.buckets.BUFFER_BYTES", buffer)
    store_log(tmp_path / "log.parquet", tmp_path / "other")
    assert content(tmp_path / "one") == content(tmp_path / "other")


# Chunks


def test_chunks_end_where_episodes_end(tmp_path, small_chunks):
    lists().to_parquet(tmp_path / "log.parquet")
    log, _ = store_log(tmp_path / "log.parquet", tmp_path / "stored")
    assert log.n_chunks == len(log.sizes()) > 10
    numbers = [log.chunk(k).episode for k in range(log.n_chunks)]
    assert [len(number) for number in numbers] == log.sizes().tolist()
    assert (log.sizes() == 60).sum() >= log.n_chunks - 1
    assert np.concatenate(numbers).tolist() == np.repeat(np.arange(200), 5).tolist()
    assert all(a[-1] + 1 == b[0] for a, b in itertools.pairwise(numbers))


@pytest.mark.parametrize("dropped", [[], ["step"], ["s2_0", "s2_1"], ["s2_0", "s2_1", "step"]])
def test_a_long_episode_is_cut_and_loses_nothing(tmp_path, small_buckets, dropped):
    frame = numbers(100)
    length = len(frame)
    frame = frame.assign(episode=5, step=np.arange(length), done=np.arange(length) == length - 1)
    for k in range(2):
        frame[f"s2_{k}"] = frame[f"s_{k}"].shift(-1).fillna(frame[f"s_{k}"])
    other = numbers(20, seed=1).assign(episode=lambda f: f["episode"] + 9)
    log_frame = pd.concat([frame, other], ignore_index=True).drop(columns=dropped)
    if "step" not in dropped:
        log_frame = log_frame.sample(frac=1, random_state=0)
    log_frame.to_parquet(tmp_path / "log.parquet")
    log = assert_stored_as_loaded(tmp_path / "log.parquet", tmp_path / "stored")
    assert log.n_episodes == 21
    assert log.sizes().max() <= 4 * 64


def test_masks_after_a_cut_are_those_of_the_next_row(tmp_path, small_buckets):
    frame = numbers(100).assign(episode=0, step=lambda f: np.arange(len(f)), done=False)
    for k in range(2):
        frame[f"s2_{k}"] = frame[f"s_{k}"].shift(-1).fillna(0.0)
    for k in range(3):
        frame[f"mask_{k}"] = (np.arange(len(frame)) % 3 == k) | (frame["a"] == k)
    frame.to_parquet(tmp_path / "log.parquet")
    assert_stored_as_loaded(tmp_path / "log.parquet", tmp_path / "stored")


def test_the_first_and_the_last_rows_are_whole_episodes(tmp_path, small_chunks):
    log = StoredLog.write(tmp_path / "log", [lists()])
    everything = whole(log)
    first, last = log.first(103), log.last(103)
    assert len(first) == len(last) == 100
    assert_same(first, everything.take(np.arange(100)))
    assert_same(last, everything.take(np.arange(900, 1000)))
    assert (len(log.first(10**6)), len(log.last(10**6))) == (1000, 1000)
    assert (len(log.first(3)), len(log.last(3))) == (3, 3)  # of one episode, which is cut


def test_a_chunk_that_is_not_there_is_refused(tmp_path):
    log = StoredLog.write(tmp_path / "log", [lists()])
    for wrong in (-1, 1, 0.5):
        with pytest.raises(ConfigError, match="number must be a whole number"):
            log.chunk(wrong)
    with pytest.raises(ConfigError, match="n_rows must be a whole number from 1 on"):
        log.first(0)


@pytest.mark.parametrize("has_episodes", [True, False])
def test_the_first_rows_are_a_fair_sample(tmp_path, has_episodes):
    n = 20_000
    drift = np.linspace(0, 1, n)  # the log changes as it goes on
    frame = pd.DataFrame({"state": drift, "action": 0, "reward": drift, "cost": 0.0})
    frame = frame.assign(next_state=drift[::-1], terminal=False)
    if has_episodes:
        frame = frame.assign(episode=np.arange(n) // 4, step=np.arange(n) % 4)
    frame.to_parquet(tmp_path / "log.parquet")
    log, _ = store_log(tmp_path / "log.parquet", tmp_path / "stored")
    assert (log.chunk(0).episode is not None) == has_episodes
    for sample in (log.first(2_000), log.last(2_000)):
        error = drift.std() / np.sqrt(2_000 / (4 if has_episodes else 1))
        assert abs(sample.reward.mean() - 0.5) < 4 * error
        assert abs(sample.reward.std() - drift.std()) < 4 * error


def test_equal_rows_do_not_come_together(tmp_path):
    frame = pd.DataFrame({"state": np.arange(6_000) % 3, "action": 0, "reward": 1.0, "cost": 0.0})
    frame = frame.assign(next_state=7.0, terminal=False)
    frame.to_parquet(tmp_path / "log.parquet")
    log, _ = store_log(tmp_path / "log.parquet", tmp_path / "stored")
    assert abs(log.first(600).state.mean() - 1) < 4 * np.sqrt(2 / 3 / 600)


# Actions


def test_few_numbers_are_actions_as_load_log_has_them(tmp_path, small_buckets):
    clients(offer=lambda f: (np.arange(len(f)) % 4) / 4).to_parquet(tmp_path / "log.parquet")
    log = assert_stored_as_loaded(tmp_path / "log.parquet", tmp_path / "stored", NAMES)
    assert log.n_actions == 4


@pytest.mark.parametrize("dropped", [[], ["s2_0", "s2_1"]])
def test_many_numbers_are_binned(tmp_path, small_chunks, dropped):
    frame = numbers(600, a=lambda f: np.random.default_rng(2).normal(size=len(f)))
    frame = frame.assign(r=frame["a"].gt(0) * 1.0).drop(columns=dropped)
    frame.to_parquet(tmp_path / "log.parquet")
    log, encoder = store_log(tmp_path / "log.parquet", tmp_path / "stored")
    bins = encoder.bins
    assert log.n_actions == len(bins.labels) >= 2
    rows = whole(log)
    given = dict(zip(frame["s_0"] * 1e6 + frame["c"], frame["a"], strict=True))
    found = [given[key] for key in rows.state[:, 0] * 1e6 + rows.cost]
    assert rows.action.tolist() == bins.numbers(found).tolist()


def test_bins_of_several_numbers_that_are_rare_are_known(tmp_path, small_buckets, monkeypatch):
    monkeypatch.setattr("bmdp.data.intake._BIN_ROWS", 100)
    rng, frame = np.random.default_rng(0), numbers(300)
    dose = rng.normal(size=len(frame))
    frame = frame.drop(columns="a").assign(dose=dose, rate=dose)
    frame.loc[frame.index[::90], "rate"] *= -1
    frame.to_parquet(tmp_path / "log.parquet")
    names = Columns(action=("dose", "rate"))
    log, encoder = store_log(tmp_path / "log.parquet", tmp_path / "stored", names)
    assert len(log) == len(frame)
    assert encoder.bins.numbers(frame[["dose", "rate"]].to_numpy()).max() + 1 == log.n_actions


def test_actions_may_be_lists(tmp_path, small_chunks):
    frame = numbers(a=lambda f: [[k % 2 / 2, k % 3 / 3] for k in range(len(f))])
    frame.to_parquet(tmp_path / "log.parquet")
    log = assert_stored_as_loaded(tmp_path / "log.parquet", tmp_path / "stored")
    assert log.n_actions == 6


def test_whole_numbers_may_be_floats(tmp_path):
    numbers(a=lambda f: f["a"].astype(float)).to_parquet(tmp_path / "log.parquet")
    log = assert_stored_as_loaded(tmp_path / "log.parquet", tmp_path / "stored")
    assert log.n_actions == 3


# Batches, and other sources


def test_batches_are_written_as_they_come(tmp_path, small_buckets):
    parts = [lists(50, first=first) for first in range(0, 500, 50)]
    log = StoredLog.write(tmp_path / "log", iter(parts))
    assert_holds(log, TransitionBatch.concatenate(parts))
    assert log.n_episodes == 500


def test_episodes_of_different_batches_are_different(tmp_path):
    log = StoredLog.write(tmp_path / "log", [lists(20), lists(30, seed=1)])
    assert log.n_episodes == 50
    assert_holds(log, TransitionBatch.concatenate([lists(20), lists(30, seed=1)]))


def test_batches_may_tell_episodes_by_their_ends(tmp_path):
    arrays = lists().to_arrays()
    del arrays["episode"], arrays["step"]
    log = StoredLog.write(tmp_path / "log", [TransitionBatch(**arrays, n_actions=5)])
    assert_holds(log, lists())


def test_batches_may_have_no_episodes(tmp_path):
    arrays = lists().take(np.random.default_rng(0).permutation(1000)).to_arrays()
    del arrays["episode"], arrays["step"]
    batch = TransitionBatch(**arrays)
    log = StoredLog.write(tmp_path / "log", [batch, batch])
    assert (log.n_episodes, log.n_steps) == (2000, None)
    assert_holds(log, TransitionBatch.concatenate([batch, batch]))


def changed(**columns):
    return TransitionBatch(**lists(10).to_arrays() | columns)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "batches must hold at least one; got none."),
        ([lists(3), 5], r"batches must be of TransitionBatch; got int at \[1\]."),
        (lists(3), "batches must be a list; got TransitionBatch"),
        ([lists(3), changed(step=None)], r"the columns of the first; \[1\] does not tell 'step'"),
        ([lists(3), changed(state=np.zeros((50, 3)))], "precision of the first, float32; got"),
        (
            [lists(3), changed(state=np.zeros((50, 2)), next_state=np.zeros((50, 2)))],
            r"states of one size; \[0\] has 3 numbers a state, \[1\] has 2",
        ),
    ],
)
def test_batches_that_do_not_fit_are_refused(tmp_path, batches, message):
    with pytest.raises((DataError, ConfigError), match=message):
        StoredLog.write(tmp_path / "log", batches)
    assert not list((tmp_path / "log").glob("*.bin"))


def test_masks_of_batches_are_made_as_wide_as_the_first(tmp_path):
    wide = changed(available=np.ones((50, 6), bool))
    narrow = changed(available=np.ones((50, 5), bool))
    log = StoredLog.write(tmp_path / "log", [wide, narrow])
    assert_holds(log, TransitionBatch.concatenate([wide, narrow]))
    with pytest.raises(DataError, match="available must have 5 actions, as before; got 6"):
        StoredLog.write(tmp_path / "other", [narrow, wide])


def test_other_sources_are_loaded_first(tmp_path):
    frame = clients()
    frame.to_csv(tmp_path / "log.csv", index=False)
    for number, source in enumerate([tmp_path / "log.csv", frame]):
        log, encoder = store_log(source, tmp_path / str(number), NAMES)
        found = load_log(source, NAMES)
        assert encoder == found.encoder
        assert_holds(log, found.batch)
    log, encoder = store_log(lists(), tmp_path / "batch")
    assert encoder is None
    assert_holds(log, lists())


# Progress


@pytest.mark.parametrize("make", [clients, lambda: clients().drop(columns=["episode"])])
def test_progress_goes_up_to_the_number_of_rows(tmp_path, small_chunks, make):
    frame, told = make(), []
    frame.to_parquet(tmp_path / "log.parquet")
    store_log(
        tmp_path / "log.parquet",
        tmp_path / "stored",
        NAMES,
        on_rows=lambda n_done, n_all: told.append((n_done, n_all)),
    )
    done = [n_done for n_done, _ in told]
    assert done == sorted(done)
    assert len(set(done)) > 5
    assert told[-1] == (len(frame), len(frame))


# The folder


def test_a_log_is_not_written_over_another(tmp_path):
    numbers().to_parquet(tmp_path / "log.parquet")
    store_log(tmp_path / "log.parquet", tmp_path / "stored")
    before = content(tmp_path / "stored")
    with pytest.raises(StoreError, match="stored holds a log already"):
        store_log(tmp_path / "log.parquet", tmp_path / "stored", seed=1)
    with pytest.raises(StoreError, match="stored holds a log already"):
        StoredLog.write(tmp_path / "stored", [lists()])
    assert content(tmp_path / "stored") == before


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"holds 'notes\.txt', which is not of a log"):
        StoredLog.write(tmp_path, [lists()])
    with pytest.raises(StoreError, match=r"notes\.txt is not a folder"):
        StoredLog.write(tmp_path / "notes.txt", [lists()])
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


KILLED = """
    import os
    from bmdp.data import store_log

    def stop(n_done, n_all):
        if n_done > {share} * n_all:
            os._exit(9)

    import bmdp.data.store
    bmdp.data.store.CHUNK_ROWS = 64
    store_log({source!r}, {folder!r}, on_rows=stop)
"""


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_a_writer_that_was_killed_leaves_nothing_readable(tmp_path, monkeypatch, share):
    source, folder = str(tmp_path / "log.parquet"), tmp_path / "stored"
    numbers(400).to_parquet(source, row_group_size=100)
    code = KILLED.format(share=share, source=source, folder=str(folder))
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert done.returncode == 9
    assert (folder / "buckets").exists()
    with pytest.raises(StoreError, match=r"holds no whole log: there is no log\.json in it"):
        StoredLog.open(folder)
    monkeypatch.setattr("bmdp.data.store.CHUNK_ROWS", 64)
    store_log(source, folder)  # begins anew
    store_log(source, tmp_path / "other")
    assert content(folder) == content(tmp_path / "other")
    assert not (folder / "buckets").exists()


def test_an_error_leaves_no_rows_behind(tmp_path):
    numbers(c=np.nan).to_parquet(tmp_path / "log.parquet")
    with pytest.raises(DataError):
        store_log(tmp_path / "log.parquet", tmp_path / "stored")
    assert {p.name for p in (tmp_path / "stored").iterdir()} <= {"lock"}


def test_a_damaged_chunk_is_not_read(tmp_path, small_chunks):
    log = StoredLog.write(tmp_path / "log", [lists()])
    path = tmp_path / "log" / "rows.bin"
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    log = StoredLog.open(tmp_path / "log")
    number = int(np.searchsorted(np.cumsum(log.sizes()), len(log) // 2, side="right"))
    with pytest.raises(StoreError, match=f"rows.bin is damaged: chunk {number} is not what was"):
        log.chunk(number)
    assert len(log.chunk(0)) == 60


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("rows.bin", lambda text: text[:-1], "rows.bin is damaged: it must have 65,000 bytes"),
        ("log.json", lambda text: text[:-9], "log.json is not of a log, or is damaged"),
        ("log.json", lambda text: b"[]", "log.json is not of a log, or is damaged"),
        ("log.json", lambda text: text.replace(b'"n_actions": 5', b'"n_actions": 6'), "is damaged"),
        (
            "log.json",
            lambda text: text.replace(b"StoredLog/1", b"StoredLog/9"),
            "upgrade bmdp to read",
        ),
    ],
)
def test_a_damaged_log_is_not_opened(tmp_path, name, change, message):
    StoredLog.write(tmp_path, [lists()])
    path = tmp_path / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(StoreError, match=message):
        StoredLog.open(tmp_path)


def test_an_open_log_whose_rows_are_gone_says_so(tmp_path):
    log = StoredLog.write(tmp_path, [lists()])
    (tmp_path / "rows.bin").unlink()
    with pytest.raises(StoreError, match=r"rows.bin cannot be read: No such file"):
        log.chunk(0)
    with pytest.raises(StoreError, match=r"rows\.bin is damaged"):
        StoredLog.open(tmp_path)


def test_the_header_says_who_wrote_it(tmp_path):
    StoredLog.write(tmp_path, [lists()])
    header = json.loads((tmp_path / "log.json").read_text())
    assert header["format"] == "bmdp.StoredLog/1"
    assert header["content"]["n_rows"] == 1000


# Bad values


def set_at(row, **values):
    def change(frame):
        for name, value in values.items():
            if isinstance(value, float):
                frame[name] = frame[name].astype(float)
            frame.loc[row, name] = value
        return frame

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            set_at(150, s_1=np.nan),
            r"s_1 must be there; 1 of 50 rows is missing, the first is \[150\]",
        ),
        (set_at(150, s_1=np.inf), r"s_1 must be finite; 1 of 50 rows is not, the first is \[150\]"),
        (set_at(150, s2_0=np.nan), r"s2_0 must be there; 1 of 50 rows is missing, the .* \[150\]"),
        (set_at(150, a=-1), r"action must be from 0 on; 1 of 50 rows is not, the first is \[150\]"),
        (set_at(150, c=np.nan), r"cost, in column 'c', must be there; 1 .* the first is \[150\]"),
        (set_at(150, r=np.inf), r"reward must be finite; .* the first is \[150\]"),
        (set_at(150, step=-3), r"step must be from 0 on; .* the first is \[150\]"),
        (set_at(150, episode=0.5), r"episode must be whole numbers; .* the first is \[150\]"),
        (lambda f: f.assign(done=f["done"] * 2), r"terminal must be True or False; \d+ of 50 rows"),
        (lambda f: f.assign(p=0.0), r"probability must be above 0 and at most 1; 50 of 50 rows"),
    ],
)
def test_a_bad_value_is_named_by_file_column_and_row(tmp_path, monkeypatch, change, message):
    monkeypatch.setattr("bmdp.data.parquet.PIECE_ROWS", 50)
    change(numbers(100)).to_parquet(tmp_path / "log.parquet")
    names = Columns(probability="p") if "probability" in message else None
    with pytest.raises(DataError, match=message) as error:
        store_log(tmp_path / "log.parquet", tmp_path / "stored", names)
    assert str(error.value).startswith("log.parquet, rows ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            set_at(150, mood=None),
            r"mood must be there; 1 of 50 rows is missing, the first is \[150\]",
        ),
        (set_at(150, offer=None), r"action must be there; 1 of 50 .* the first is \[150\]"),
        (set_at(150, age=np.inf), r"age must be finite; 1 of 50 .* the first is \[150\]"),
        (lambda f: f.assign(gain="much"), r"reward, in column 'gain', must be numbers; got text"),
        (lambda f: f.assign(mood=[f"m{k}" for k in range(len(f))]), "at most 50 different texts"),
        (lambda f: f.assign(mood_after=1.0), "mood_after must be text, as mood is; got numbers"),
        (lambda f: f.assign(mood=None), r"mood must be there"),
        (lambda f: f.assign(offer=f["since"]), "action must be numbers or text; offer is dates"),
        (lambda f: f.assign(age_after=np.nan), r"age_after must be there; \d+ of 50 rows are miss"),
    ],
)
def test_text_that_cannot_be_read_is_named(tmp_path, monkeypatch, change, message):
    monkeypatch.setattr("bmdp.data.parquet.PIECE_ROWS", 50)
    change(clients(100)).to_parquet(tmp_path / "log.parquet")
    with pytest.raises(DataError, match=message) as error:
        store_log(tmp_path / "log.parquet", tmp_path / "stored", NAMES)
    assert "\n" not in str(error.value)


def test_a_column_without_values_is_refused(tmp_path):
    clients(age=np.nan, age_after=np.nan).to_parquet(tmp_path / "log.parquet")
    with pytest.raises(DataError, match="age must have values; all rows are missing"):
        store_log(tmp_path / "log.parquet", tmp_path / "stored", NAMES, missing="impute")


def test_an_episode_that_goes_on_is_named_where_next_states_must_follow(tmp_path, small_chunks):
    frame = numbers().drop(columns=["s2_0", "s2_1"])
    last = int(np.flatnonzero(frame["done"])[30])
    frame.loc[last, "done"] = False
    frame.to_parquet(tmp_path / "log.parquet")
    message = rf"log.parquet, row \[{last}\]: next_state must be given, or follow from the next row"
    with pytest.raises(DataError, match=message) as error:
        store_log(tmp_path / "log.parquet", tmp_path / "stored")
    assert "\n" not in str(error.value)


def test_a_step_that_is_missing_is_named_where_next_states_must_follow(tmp_path, small_chunks):
    frame = numbers().drop(columns=["s2_0", "s2_1"])
    row = int(np.flatnonzero(frame["done"] & (frame["step"] == 2))[5])
    frame.loc[row, "step"] = 7
    frame.to_parquet(tmp_path / "log.parquet")
    message = rf"log.parquet, row \[{row - 1}\]: step must go up by 1 within .*; got 7 after 1\."
    with pytest.raises(DataError, match=message):
        store_log(tmp_path / "log.parquet", tmp_path / "stored")


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (lambda f: f.rename(columns={"s_1": "s_2"}), "numbered without gaps"),
        (
            lambda f: f.drop(columns=["s_1", "s2_1"]),
            "same columns of states; a.parquet has s_0, s_1",
        ),
        (lambda f: f.drop(columns=["s2_1"]), "next_state must have as many columns as state, 2"),
        (lambda f: f.assign(mask_0=True, mask_1=True, mask_2=True), "a.parquet has no available"),
        (lambda f: f.assign(a="go"), "b.parquet: actions must be text in all columns and files"),
        (lambda f: f.drop(columns=["r"]), "reward must be a column of b.parquet"),
    ],
)
def test_files_that_differ_are_named(tmp_path, second, message):
    paths = halves(tmp_path, numbers())
    second(pd.read_parquet(paths[1])).to_parquet(paths[1])
    with pytest.raises(DataError, match=message):
        store_log(paths, tmp_path / "stored")


def test_what_is_no_parquet_is_named(tmp_path):
    (tmp_path / "log.parquet").write_bytes(b"nothing")
    with pytest.raises(StoreError, match=r"log\.parquet is not a Parquet file"):
        store_log(tmp_path / "log.parquet", tmp_path / "stored")
    with pytest.raises(StoreError, match=r"none\.parquet does not exist"):
        store_log(tmp_path / "none.parquet", tmp_path / "stored")
    numbers()[:0].to_parquet(tmp_path / "log.parquet")
    with pytest.raises(DataError, match="state must hold at least one transition; got none"):
        store_log(tmp_path / "log.parquet", tmp_path / "stored")
    with pytest.raises(DataError, match="source must be a data frame, a table of pyarrow, a path"):
        store_log(5, tmp_path / "stored")


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "log.parquet"
    lists(20_000).to_parquet(path)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 255
    path.write_bytes(damaged)
    with pytest.raises(StoreError, match=r"log\.parquet is not a Parquet file"):
        store_log(path, tmp_path / "stored")


@pytest.mark.parametrize("name", ["state", "mask"])
def test_lists_of_different_lengths_are_refused(tmp_path, small_chunks, name):
    frame = numbers().drop(columns=["s_0", "s_1", "s2_0", "s2_1"])
    frame = frame.assign(state=[[1.0, 2.0]] * len(frame), mask=[[True] * 3] * len(frame))
    frame[name] = [row if k < 80 else row[:1] * 4 for k, row in enumerate(frame[name])]
    frame.to_parquet(tmp_path / "log.parquet")
    with pytest.raises(DataError, match=r"rows \d+ to \d+: \w+ must (be lists of one|have \d num)"):
        store_log(tmp_path / "log.parquet", tmp_path / "stored")


def test_states_of_files_must_have_one_size(tmp_path):
    lists().to_parquet(tmp_path / "a.parquet")
    full().to_parquet(tmp_path / "b.parquet")
    message = "state must have 3 numbers in all rows and files; got 2 in b.parquet"
    with pytest.raises(DataError, match=message):
        store_log([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "stored")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be written: .*Not a directory"):
        StoredLog.write(tmp_path / "file" / "log", [lists()])


def test_settings_that_are_unknown_are_refused(tmp_path):
    numbers().to_parquet(tmp_path / "log.parquet")
    for settings in ({"missing": "drop"}, {"unseen": "drop"}, {"seed": -1}):
        with pytest.raises(ConfigError):
            store_log(tmp_path / "log.parquet", tmp_path / "stored", **settings)


# Memory


STORED = """
    import sys
    import bmdp.data.buckets, bmdp.data.parquet, bmdp.data.store
    from bmdp.data import store_log

    bmdp.data.buckets.BUCKET_BYTES = 4 << 20
    bmdp.data.buckets.BUFFER_BYTES = 1 << 20
    bmdp.data.parquet.PIECE_ROWS = bmdp.data.store.CHUNK_ROWS = 4_096
    log, _ = store_log(*sys.argv[1:3])
    with open("/proc/self/status") as status:
        peak = next(line for line in status if line.startswith("VmHWM")).split()[1]
    print(len(log), int(peak) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_number_of_rows(tmp_path):
    wide = 40
    peaks = []
    for n_rows in (20_000, 300_000):
        rng = np.random.default_rng(0)
        frame = pd.DataFrame(rng.random((n_rows, wide), np.float32))
        frame = frame.set_axis([f"s_{k}" for k in range(wide)], axis=1)
        frame = frame.assign(a=0, r=1.0, c=0.0, done=np.arange(n_rows) % 5 == 4)
        frame = frame.assign(episode=np.arange(n_rows) // 5)
        how = {"row_group_size": 10**7, "data_page_size": 2**14, "use_dictionary": False}
        frame.to_parquet(tmp_path / "log.parquet", **how)
        places = str(tmp_path / "log.parquet"), str(tmp_path / str(n_rows))
        command = [sys.executable, "-c", textwrap.dedent(STORED), *places]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        assert int(told[0]) == n_rows
        peaks.append(int(told[1]))
    n_megabytes = (tmp_path / "300000" / "rows.bin").stat().st_size >> 20
    assert n_megabytes > 90
    assert peaks[1] - peaks[0] < 30


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_chunk_is_read_without_mapping_the_file(tmp_path):
    log = StoredLog.write(tmp_path / "log", [lists(60_000)])
    code = f"""
        import resource
        from bmdp.data import StoredLog
        log = StoredLog.open({str(tmp_path / "log")!r})
        pages = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (pages + (12 << 20),) * 2)
        print(sum(len(log.chunk(k)) for k in range(log.n_chunks)))
    """
    assert (log.folder / "rows.bin").stat().st_size > 18 << 20
    command = [sys.executable, "-c", textwrap.dedent(code)]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    assert told.stdout.split() == ["300000"]


# Patterns, and sizes


def test_a_pattern_stands_for_several_files(tmp_path, monkeypatch):
    paths = halves(tmp_path, numbers())
    pattern = str(tmp_path / "log" / "*.parquet")
    assert paths_of(pattern) == paths
    assert_same(load_log(pattern).batch, load_log(paths).batch)
    assert_same(read_source(pattern).batch, load_log(paths).batch)
    assert_stored_as_loaded(pattern, tmp_path / "stored")
    monkeypatch.chdir(tmp_path)
    assert len(load_log("log/[ab].parquet").batch) == len(numbers())
    assert len(load_log("**/a.parquet").batch) < len(numbers())


def test_a_pattern_that_matches_nothing_says_so(tmp_path):
    for read in (load_log, paths_of, log_size, lambda p: store_log(p, tmp_path / "stored")):
        with pytest.raises(StoreError, match=r"x\*\.parquet matches no file"):
            read(str(tmp_path / "x*.parquet"))
    assert not (tmp_path / "stored").exists()


def test_a_file_whose_name_looks_like_a_pattern_is_itself(tmp_path):
    numbers(10).to_parquet(tmp_path / "log[1].parquet")
    numbers(20).to_parquet(tmp_path / "log1.parquet")
    assert len(load_log(tmp_path / "log[1].parquet").batch) == len(numbers(10))


def test_paths_are_those_of_files(tmp_path):
    paths = halves(tmp_path, numbers())
    assert paths_of(tmp_path / "log") == paths_of([tmp_path / "log"]) == paths
    assert paths_of(os.fspath(paths[0])) == paths[:1]
    assert paths_of([paths[1], "x.csv"])[1].name == "x.csv"
    assert paths_of(numbers()) is None
    assert paths_of(lists()) is None


def test_the_size_of_a_log_is_told_by_its_metadata(tmp_path):
    lists().to_parquet(tmp_path / "a.parquet")
    lists().to_parquet(tmp_path / "b.parquet")
    n_rows, n_bytes = log_size(tmp_path)
    held = sum(v.size * 8 for v in lists().to_arrays().values())
    assert (n_rows, n_bytes) == (2 * len(lists()), 2 * held)
    assert log_size([tmp_path / "a.parquet"]) == (n_rows // 2, n_bytes // 2)


def test_next_states_that_must_be_told_count_too(tmp_path):
    numbers().drop(columns=["s2_0", "s2_1"]).to_parquet(tmp_path / "a.parquet")
    n_rows, n_bytes = log_size(tmp_path / "a.parquet")
    assert n_bytes >= 8 * 10 * n_rows


def test_other_logs_have_no_size(tmp_path):
    numbers().to_csv(tmp_path / "log.csv")
    for source in (tmp_path / "log.csv", numbers(), lists(), 5, tmp_path):
        assert log_size(source) is None
    with pytest.raises(StoreError, match=r"none\.parquet does not exist"):
        log_size(tmp_path / "none.parquet")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("n_rows", 10**9, "sizes that do not match"),
        ("n_rows", -1, "no whole numbers from 1 on"),
        ("n_rows", 2.5, "no whole numbers from 1 on"),
        ("n_actions", 3, "a column|do not match"),
        ("counts", [1, 2], "sizes that do not match"),
        ("largest", [float("nan"), 1.0], "sizes that do not match"),
        ("largest", 3, "it has"),
        ("_rows", [], "sizes that do not match"),
        ("_columns", [["state", "<f8", [2]]], "a column|do not match"),
        ("_columns", [["state", "|O", []]], "a column 'state' of another type"),
        ("_columns", [["colour", "<f8", []]], "a column 'colour'"),
        ("_columns", 7, "does not make sense"),
        ("n_steps", "a", "sizes that do not match"),
        ("state_names", ["x"] * 9, "sizes that do not match"),
        ("folder", "elsewhere", "other parts"),
    ],
)
def test_a_header_that_makes_no_sense_is_refused(tmp_path, name, value, message):
    StoredLog.write(tmp_path, [lists()])
    path = tmp_path / "log.json"
    header = json.loads(path.read_text())
    header["content"][name] = value
    text = json.dumps(header["content"], sort_keys=True)
    path.write_text(json.dumps(header | {"checksum": hashlib.sha256(text.encode()).hexdigest()}))
    with pytest.raises(StoreError, match=message) as error:
        StoredLog.open(tmp_path)
    assert "\n" not in str(error.value)
