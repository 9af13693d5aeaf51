"""Every file says which version wrote it, and one of a newer format is refused in one line."""

import json
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pyarrow.parquet
import pytest
from safetensors import safe_open

import bmdp
import regressors
from bmdp import BmdpError, DataError, PeriodBudget, PolicyError, StoreError, TransitionBatch
from bmdp.data import StoredLog, load_batch
from bmdp.deployment.decisions import DecisionLog, Promises
from bmdp.exact.textbook import branches
from bmdp.learn import Backward, BFTQConfig, Iterations, resume, train_from_data
from bmdp.learn.auto import read_fitted
from bmdp.learn.runs import RunFolder
from bmdp.models import TableModel
from bmdp.storage import header_text
from serving import Here, hull
from training import Killed, kill_after

LEARNER = BFTQConfig(
    gamma=1.0, model=TableModel(), ensemble=1, schedule=Iterations(4, settled=0.0), n_budgets=3
)
WITHOUT_ROOM = {"records.jsonl", "done", "lock", "weights.safetensors", "rows.bin"}
SAYING = ("policy.json", "log.json", "spec.json")
"""One of these says it for them, in their folder or above."""


def log():
    hurry, zeros = [0, 1] * 50, [0] * 100
    return TransitionBatch(zeros, hurry, hurry, hurry, zeros, [True] * 100)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    for suffix in ("npz", "parquet", "hdf5"):
        getattr(log(), f"to_{suffix}")(folder / f"batch.{suffix}")
    hull().save(folder / "policy")
    branches().model.save(folder / "model.npz")
    StoredLog.write(folder / "stored", [log()])
    bmdp.fit(log(), gamma=1.0, out=folder / "fit")
    train_from_data(log(), LEARNER, folder / "run", seed=0)
    with pytest.raises(Killed):
        train_from_data(log(), LEARNER, folder / "begun", seed=0, on_record=kill_after(2))
    return folder


def version_in(path):
    """The version that a file says wrote it."""
    if path.suffix == ".npz":
        with np.load(path) as file:
            return str(file["bmdp"])
    if path.suffix == ".parquet":
        return json.loads(pyarrow.parquet.read_schema(path).metadata[b"bmdp"])["bmdp"]
    if path.suffix == ".hdf5":
        with h5py.File(path) as file:
            return file.attrs["bmdp"].decode()
    if path.suffix == ".safetensors":
        with safe_open(path, "np") as file:
            return (file.metadata() or {}).get("bmdp")
    said = json.loads(path.read_text())
    return said["bmdp"] if "bmdp" in said else said["versions"]["bmdp"]


def test_every_file_says_its_version_or_one_beside_it_does(written):
    files = [path for path in written.rglob("*") if path.is_file()]
    said = 0
    for path in files:
        if path.name in WITHOUT_ROOM:
            beside = (above / name for above in path.parents for name in SAYING)
            path = next(other for other in beside if other.is_file())
        assert version_in(path) == bmdp.__version__, path
        said += 1
    assert said == len(files) > 20


def newer_json(name, key, number):
    def change(folder):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: number}))

    return change


def newer_spec(folder):
    header = json.loads((folder / "spec.json").read_text())
    del header["checksum"]
    (folder / "spec.json").write_text(header_text(header | {"schema": 99}))


def newer_npz(path):
    with np.load(path) as file:
        arrays = dict(file)
    mark = str(arrays["format"])[:-1] + "99"
    np.savez(path, **(arrays | {"format": np.array(mark)}))


def newer_parquet(path):
    table = pyarrow.parquet.read_table(path)
    notes = json.loads(table.schema.metadata[b"bmdp"]) | {"format": "bmdp.TransitionBatch/99"}
    table = table.replace_schema_metadata({b"bmdp": json.dumps(notes).encode()})
    pyarrow.parquet.write_table(table, path)


def newer_hdf5(path):
    with h5py.File(path, "a") as file:
        file.attrs["format"] = "bmdp.TransitionBatch/99"


KINDS = {
    "batch.npz": (newer_npz, load_batch),
    "batch.parquet": (newer_parquet, load_batch),
    "batch.hdf5": (newer_hdf5, load_batch),
    "model.npz": (newer_npz, bmdp.FiniteBMDP.load),
    "policy": (newer_json("policy.json", "format", 99), bmdp.load_policy),
    "stored": (newer_json("log.json", "format", "bmdp.StoredLog/99"), StoredLog.open),
    "run": (newer_spec, RunFolder),
    "begun": (newer_spec, resume),
    "fit": (newer_spec, resume),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_is_of_a_newer_format_is_refused(written, tmp_path, name):
    change, load = KINDS[name]
    copy = shutil.copytree if (written / name).is_dir() else shutil.copyfile
    load(copy(written / name, tmp_path / f"same-{name}"))
    place = copy(written / name, tmp_path / name)
    change(place)
    with pytest.raises(BmdpError, match=r"99.*upgrade bmdp|99.*Upgrade bmdp") as error:
        load(place)
    assert "\n" not in str(error.value)


def test_a_newer_fit_is_refused(written, tmp_path):
    shutil.copytree(written / "fit", tmp_path / "fit")
    newer_json("fitted.json", "format", 99)(tmp_path / "fit")
    with pytest.raises(BmdpError, match="format 99, newer than 1: upgrade bmdp"):
        read_fitted(RunFolder(tmp_path / "fit"))


def test_states_of_episodes_and_of_periods_say_their_format():
    policy = hull()
    state = policy.start([0], 0.5, np.random.default_rng(0)).state()
    assert state["format"] == 1
    with pytest.raises(PolicyError, match=r'state\["format"\] must be 1'):
        policy.resume(state | {"format": 99})
    state = PeriodBudget(total=1.0, episodes=10, budget_range=(0.0, 1.0)).state()
    assert state["format"] == 1
    with pytest.raises(DataError, match="format 99, newer than 1: upgrade bmdp"):
        PeriodBudget.resume(state | {"format": 99})


def test_lines_of_a_service_say_their_format(tmp_path):
    path = tmp_path / "log.jsonl"
    here = Here(hull(), log=path)
    tracker = here("/start", states=[0], budgets=[0.5], episodes=["a"])["tracker"]
    tracker = here("/decide", tracker=tracker, states=[0])["tracker"]
    here("/observe", tracker=tracker, costs=[0.0], next_states=[0], ended=[True])
    ((first, rows),) = DecisionLog(path).new()
    assert [row["format"] for row in rows] == [1]
    Promises(gamma=0.9).add(first, rows)
    with pytest.raises(DataError, match=r"line 1, is of format 99, not 1: upgrade bmdp"):
        Promises(gamma=0.9).add(first, [rows[0] | {"format": 99}])


def test_a_killed_run_that_lost_a_step_is_not_gone_on_with(tmp_path):
    run = tmp_path / "run"
    learner = replace(LEARNER, schedule=Backward())
    with pytest.raises(Killed):
        train_from_data(regressors.dice(), learner, run, seed=0, on_record=kill_after(3))
    kept = sorted((run / "round-000" / "fit").iterdir())
    assert len(kept) == 2
    kept[1].unlink()  # of the last step, which was fitted first
    with pytest.raises(StoreError, match=r"files of its steps are missing. Delete the folder fit/"):
        resume(run)
    shutil.rmtree(run / "round-000" / "fit")
    assert resume(run).budget_range == (0.0, 1.0)
