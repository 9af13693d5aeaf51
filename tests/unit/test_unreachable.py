"""Files and folders of which the system does not say whether they are there."""

import os

import numpy as np
import pytest

import bmdp
from bmdp import StoreError, TransitionBatch
from bmdp.data import StoredLog, load_log
from bmdp.policies import RandomBudgetedPolicy

LONG = "x" * 300  # no file system takes such a name
LOG = TransitionBatch(np.zeros(4), np.arange(4) % 2, np.ones(4), np.ones(4), np.zeros(4), [1] * 4)
CALLS = {
    "a policy": bmdp.load_policy,
    "a run": bmdp.learn.resume,
    "a log": load_log,
    "several logs": lambda path: load_log([path, path]),
    "a log to be fitted": lambda path: bmdp.fit(f"{path}.csv", gamma=1.0),
    "a folder of a run": lambda path: bmdp.fit(LOG, gamma=1.0, out=path),
    "an npz file": TransitionBatch.from_npz,
    "a Parquet file": TransitionBatch.from_parquet,
    "a large log": StoredLog.open,
    "a large log to be written": lambda path: StoredLog.write(path, [LOG]),
    "a file to be written": LOG.to_npz,
    "a policy to be saved": RandomBudgetedPolicy(2, 0.0, 1.0).save,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("place", [LONG, f"{LONG}/file"])
def test_a_name_that_is_too_long_is_told(call, place, tmp_path):
    with pytest.raises(StoreError, match="File name too long"):
        call(tmp_path / place)


def test_a_long_name_is_no_environment():
    with pytest.raises(bmdp.ConfigError, match=f"no environment is called '{LONG}'"):
        bmdp.fit(LONG)


def test_a_folder_that_may_not_be_entered_is_told(tmp_path, monkeypatch):
    usual = os.stat

    def stat(path, **how):
        if os.fspath(path) == os.path.join(tmp_path, "."):
            raise PermissionError(13, "Permission denied", str(path))
        return usual(path, **how)

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(StoreError, match=f"^{tmp_path} cannot be opened: Permission denied.$"):
        bmdp.load_policy(tmp_path)


def test_a_place_that_may_not_be_looked_at_is_not_written_to(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    usual = os.listdir

    def listed(path="."):
        if str(path) == str(tmp_path / "there"):
            raise PermissionError(13, "Permission denied", str(path))
        return usual(path)

    monkeypatch.setattr(os, "listdir", listed)
    for write in (LOG.to_npz, RandomBudgetedPolicy(2, 0.0, 1.0).save):
        with pytest.raises(StoreError, match=r"there cannot be written: .*Permission denied"):
            write(tmp_path / "there")
    with pytest.raises(StoreError, match=r"there cannot be written: .*Permission denied"):
        StoredLog.write(tmp_path / "there", [LOG])


def test_rows_of_a_folder_that_may_not_be_read_are_not_left_out(tmp_path, monkeypatch):
    for day in ("day=1", "day=2"):
        (tmp_path / day).mkdir()
        LOG.to_parquet(tmp_path / day / "part.parquet")
    assert len(load_log(tmp_path).batch) == 8
    usual = os.scandir

    def scanned(path="."):
        if str(path).endswith("day=2"):
            raise PermissionError(13, "Permission denied", str(path))
        return usual(path)

    monkeypatch.setattr(os, "scandir", scanned)
    for read in (load_log, TransitionBatch.from_parquet, lambda path: bmdp.fit(path, gamma=1.0)):
        with pytest.raises(StoreError, match="day=2 cannot be read: Permission denied"):
            read(tmp_path)
