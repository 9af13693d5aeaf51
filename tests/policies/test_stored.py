import json
from dataclasses import dataclass

import numpy as np
import pytest

import bmdp
from bmdp import StoreError
from bmdp.policies.exploring import ExploringPolicy
from bmdp.policies import HullPolicy, RandomBudgetedPolicy, TabularQ
from bmdp.storage import read_stored, to_stored, write_stored

TABLE = TabularQ(np.ones((2, 2, 3), np.float32), np.zeros((2, 2, 3), np.float32))
POLICY = ExploringPolicy(
    HullPolicy(TABLE, np.linspace(0, 1, 3)), RandomBudgetedPolicy(2, 0.0, 1.0), floor=0.25
)


@pytest.fixture
def folder(tmp_path):
    POLICY.save(tmp_path / "policy")
    return tmp_path / "policy"


def test_what_is_read_is_what_was_written(folder):
    loaded = bmdp.load_policy(folder)
    assert loaded.floor == 0.25
    assert loaded.explorer == POLICY.explorer
    assert loaded.greedy.q_function.q_r.dtype == np.float32
    assert (loaded.greedy.q_function.q_r == TABLE.q_r).all()


def test_an_existing_folder_is_left_alone_unless_told_otherwise(folder):
    with pytest.raises(StoreError, match="exists already: choose another folder"):
        POLICY.explorer.save(folder)
    assert bmdp.load_policy(folder).floor == 0.25
    POLICY.explorer.save(folder, overwrite=True)
    assert bmdp.load_policy(folder) == POLICY.explorer
    assert [p.name for p in folder.parent.iterdir()] == ["policy"]


def test_nothing_is_left_behind_when_writing_fails(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr("bmdp.storage.save_file", full)
    with pytest.raises(StoreError, match="cannot be written: disk full"):
        POLICY.save(tmp_path / "policy")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_named(folder):
    arrays = folder / "greedy" / "q_function" / "arrays.safetensors"
    content = bytearray(arrays.read_bytes())
    content[-1] ^= 1
    arrays.write_bytes(content)
    with pytest.raises(StoreError, match=r"arrays.safetensors is missing, or is not the file"):
        bmdp.load_policy(folder)


def test_a_missing_file_is_named(folder):
    (folder / "explorer" / "value.json").unlink()
    with pytest.raises(StoreError, match=r"value.json is missing"):
        bmdp.load_policy(folder)


def change_manifest(folder, **changes):
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_newer_schema_asks_for_an_upgrade(folder):
    change_manifest(folder, schema=2)
    with pytest.raises(StoreError, match="schema 2, newer than 1: upgrade bmdp"):
        bmdp.load_policy(folder)


def test_files_outside_the_manifest_are_not_read(folder):
    change_manifest(folder, files={})
    with pytest.raises(StoreError, match=r"holds no value.json"):
        bmdp.load_policy(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [("[]", "must hold a JSON object"), ("{", "is not JSON"), ("{}", "is not a manifest")],
)
def test_a_foreign_manifest_is_refused(folder, text, message):
    (folder / "manifest.json").write_text(text)
    with pytest.raises(StoreError, match=message):
        bmdp.load_policy(folder)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"manifest.json cannot be read: No such file"):
        bmdp.load_policy(tmp_path / "nowhere")


def test_arrays_that_are_not_safetensors_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "bmdp.storage.save_file", lambda arrays, path: path.write_bytes(b"garbage")
    )
    POLICY.save(tmp_path / "policy")
    with pytest.raises(StoreError, match="is not a safetensors file"):
        bmdp.load_policy(tmp_path / "policy")


def test_a_part_that_is_no_policy_is_refused(tmp_path):
    write_stored(to_stored(TABLE), tmp_path / "table")
    with pytest.raises(StoreError, match="holds a TabularQ, which is no policy"):
        bmdp.load_policy(tmp_path / "table")


def test_an_unknown_kind_names_the_known_ones(folder):
    value = folder / "explorer" / "value.json"
    value.write_text(value.read_text().replace("RandomBudgetedPolicy", "Oracle"))
    restamp(folder)
    with pytest.raises(StoreError, match=r"'Oracle' is unknown; known are .*HullPolicy"):
        bmdp.load_policy(folder)


def test_settings_that_make_no_sense_are_refused(folder):
    value = folder / "value.json"
    value.write_text(value.read_text().replace("0.25", "25.0"))
    restamp(folder)
    with pytest.raises(StoreError, match=r"ExploringPolicy does not make sense: .*from 0 to 1"):
        bmdp.load_policy(folder)


def restamp(folder):
    """Writes a manifest that fits the files as they are now."""
    from bmdp.storage import _sha256

    names = [p for p in folder.rglob("*") if p.is_file() and p.name != "manifest.json"]
    change_manifest(folder, files={p.relative_to(folder).as_posix(): _sha256(p) for p in names})


def test_a_stranger_of_a_known_name_is_not_stored():
    @dataclass(frozen=True)
    class TabularQ:
        q_r: int = 0

    with pytest.raises(StoreError, match="'TabularQ' cannot be stored"):
        to_stored(TabularQ())


def test_a_stored_value_is_plain_data(folder):
    stored = read_stored(folder)
    assert stored.settings == {"decay": 0.001, "floor": 0.25, "hold": 1, "move": 0.0}
    assert sorted(stored.parts) == ["explorer", "greedy"]
