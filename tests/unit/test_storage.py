"""Values on disk: what is read is what was written, and anything else is refused."""

import hashlib
import json
import os
import pickle
import stat
import subprocess
import sys
import threading
from contextlib import nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

import bmdp
from bmdp import BmdpError, StoreError, storage
from bmdp.data import ActionBins, EncodedPolicy, Encoder, StateColumn
from bmdp.envs import ScriptedPolicy
from bmdp.envs.two_way import ReplanningDriver
from bmdp.exact import allocate_budgets
from bmdp.exact.textbook import branches
from bmdp.policies import (
    CalibratedPolicy,
    Certificate,
    EpisodeLimitPolicy,
    ExploringPolicy,
    HullPolicy,
    HullRule,
    MultiplierPolicy,
    OneStepPolicy,
    Policy,
    Portfolio,
    PriceDial,
    PricedPolicy,
    RandomBudgetedPolicy,
    TabularQ,
    UniformPolicy,
)
from bmdp.policies.policy import QPolicy
from bmdp.storage import (
    SCHEMA,
    SPEC,
    arrays_hash,
    create_folder,
    discard_folder,
    load_value,
    locked,
    read_header,
    read_sealed,
    replace_folder,
    save_value,
    sealed,
    storable,
    sweep,
    written,
)


def table(*steps, n_heads=3, dtype=np.float64):
    return TabularQ(*np.random.default_rng(0).random((2, *steps, 2, 4, n_heads)).astype(dtype))


RANDOM = RandomBudgetedPolicy(2, 0.0, 1.0, "at_most")
HULL = HullPolicy(table(), [0.0, 0.5, 1.0], HullRule(True, [3.0, 2.0], [0.1, 0.2], 1.5))
STEPS = HullPolicy(table(5, dtype=np.float32), [0.0, 0.5, 1.0])
DIAL = PriceDial(table(5), [np.inf, 1.0, 0.0], 0.01)
PORTFOLIO = Portfolio(
    (HULL, DIAL, RANDOM),
    which=np.array([0, 1, 1, 2]),
    budgets=np.array([0.5, 0.0, 2.0, 1.0]),
    costs=np.array([0.1, 0.2, 0.7, 0.9]),
    rewards=np.array([0.0, 1.0, 2.0, 5.0]),
    mixes=False,
)
CERTIFICATE = Certificate(
    confidence=0.9,
    n_episodes=10,
    seed=3,
    env="Any-v0",
    settings='{"é": 1}',
    gamma=0.95,
    cost_range=(0.0, 1.0),
    binary_costs=True,
    cost_mean=PORTFOLIO.costs / 2,
    cost_high=PORTFOLIO.costs,
    reward_mean=PORTFOLIO.rewards,
    reward_low=np.full(4, -np.inf),
)
COLUMNS = (
    StateColumn("day", "text", ("Fr", "Mo é"), has_gaps=True),
    StateColumn("age", "numbers", fill=31.5, has_gaps=True),
    StateColumn("when", "dates"),
)
BINS = ActionBins(("dose",), ((1 / 3,),), (0, 1), ((0.1,), (0.7,)))
ENCODER = Encoder(COLUMNS, bins=BINS, missing="impute", unseen="other")
POLICIES = [
    HULL,
    HullPolicy(table(), [0.0, 0.5, 1.0]),
    STEPS,
    STEPS.at_step(3),
    DIAL,
    DIAL.at_step(2),
    PricedPolicy(table(n_heads=1), np.inf, high=2.5),
    PricedPolicy(table(4, n_heads=1), 0.1),
    MultiplierPolicy(DIAL, -1.0, 2.0),
    PORTFOLIO,
    Portfolio.coin(PORTFOLIO, STEPS, 0.2, 1.0),
    CalibratedPolicy(PORTFOLIO, CERTIFICATE),
    EpisodeLimitPolicy(CalibratedPolicy(PORTFOLIO, CERTIFICATE), 2.5),
    ExploringPolicy(STEPS, RANDOM, 0.5, 0.25, 3, 0.125, 7.5, True),
    RANDOM,
    UniformPolicy(3, 0.0, 1.0),
    ScriptedPolicy("corridors/safe", high=2.0),
    ReplanningDriver(7.5, width=3),
    EncodedPolicy(RANDOM, ENCODER),
    allocate_budgets(branches().model).policy(),
]


def assert_same(one, other):
    """Both are the same to the last bit, of the same types."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.tolist()) == (other.dtype, other.tolist())
    elif is_dataclass(one):
        for field in fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for each, same in zip(one, other, strict=True):
            assert_same(each, same)
    else:
        assert one == other


# Policies in two files


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_what_is_read_is_what_was_written(policy, tmp_path):
    policy.save(tmp_path / "policy")
    files = sorted(path.name for path in (tmp_path / "policy").iterdir())
    assert files == ["policy.json", "weights.safetensors"]
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    assert_same(bmdp.load_policy(tmp_path / "policy"), policy)


def test_every_policy_of_the_library_is_among_them():
    def below(cls):
        return {cls}.union(*map(below, cls.__subclasses__()))

    own = {cls for cls in below(Policy) if cls.__module__.partition(".")[0] == "bmdp"}
    solved = {cls for cls in own if cls.__module__.endswith(".frontier")}  # of a task, in memory
    learned = {cls for cls in own if cls.__module__ == "bmdp.models.actor"}  # its tests save it
    bases = {Policy, OneStepPolicy, QPolicy}
    assert own - solved - learned - bases == {type(policy) for policy in POLICIES}


@pytest.fixture
def folder(tmp_path):
    EXPLORING.save(tmp_path / "policy")
    return tmp_path / "policy"


EXPLORING = ExploringPolicy(HULL, RANDOM, floor=0.25)


def test_a_file_says_in_words_what_is_in_it(folder):
    header = json.loads((folder / "policy.json").read_text())
    assert header.keys() == {"format", "bmdp", "checksum", "content"}
    assert header["bmdp"] == bmdp.__version__
    content = header["content"]
    assert (content["kind"], content["floor"]) == ("ExploringPolicy", 0.25)
    assert content["greedy"]["q_function"]["kind"] == "TabularQ"


def test_an_existing_folder_is_left_alone_unless_told_otherwise(folder):
    with pytest.raises(StoreError, match=r"policy exists already.*overwrite=True"):
        RANDOM.save(folder)
    assert_same(bmdp.load_policy(folder), EXPLORING)
    RANDOM.save(folder, overwrite=True)
    assert bmdp.load_policy(folder) == RANDOM
    assert [path.name for path in folder.parent.iterdir()] == ["policy"]


@pytest.mark.parametrize("name", ["policy.json", "weights.safetensors"])
def test_no_damaged_byte_is_believed(folder, name):
    """Every third byte of a file in turn: it is refused, or means the same (a space, say)."""
    path, n_same = folder / name, 0
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        try:
            assert_same(bmdp.load_policy(folder), EXPLORING)
            n_same += 1
        except StoreError:
            pass
    most = {"policy.json": 0.4 * len(whole) / 3, "weights.safetensors": 0}
    assert n_same <= most[name]


@pytest.mark.parametrize("name", ["policy.json", "weights.safetensors"])
@pytest.mark.parametrize("n_left", [0, 20, None], ids=["empty", "cut", "missing"])
def test_half_a_policy_is_refused(folder, name, n_left):
    path = folder / name
    whole = path.read_bytes()
    path.unlink()
    if n_left is not None:
        path.write_bytes(whole[:n_left])
    with pytest.raises(StoreError, match=r"damaged|is not JSON|cannot be read"):
        bmdp.load_policy(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must hold a JSON object"),
        ("{", "is not JSON"),
        ("{}", "does not describe a policy"),
        ('{"format": 2, "content": []}', "does not describe a policy"),
        ('{"format": "2", "content": {}}', "does not describe a policy"),
    ],
)
def test_a_foreign_file_is_refused(folder, text, message):
    (folder / "policy.json").write_text(text)
    with pytest.raises(StoreError, match=message):
        bmdp.load_policy(folder)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StoreError, match="nowhere is not there: give the folder of a policy"):
        bmdp.load_policy(tmp_path / "nowhere")


def test_a_folder_of_the_first_version_is_refused_by_name(tmp_path):
    (tmp_path / "manifest.json").write_text('{"schema": 1, "files": {}}')
    (tmp_path / "value.json").write_text('{"kind": "HullPolicy", "settings": {}, "parts": []}')
    with pytest.raises(StoreError, match=r"written by bmdp 0\.1\.0, .* train it again"):
        bmdp.load_policy(tmp_path)


def change(folder, content=None, **header):
    """Changes what a file says, in a way that its checksum agrees with."""
    path = folder / "policy.json"
    whole = json.loads(path.read_text())
    whole["content"].update(content or {})
    found = hashlib.sha256(json.dumps(whole["content"], sort_keys=True).encode())
    found.update((folder / "weights.safetensors").read_bytes())
    path.write_text(json.dumps(whole | {"checksum": found.hexdigest()} | header))


@pytest.mark.parametrize("number", [1, 3, 99])
def test_another_format_is_refused_with_the_version_that_wrote_it(folder, number):
    change(folder, format=number, bmdp="7.8.9")
    with pytest.raises(StoreError, match=rf"format {number}, written by bmdp 7\.8\.9; .* format 2"):
        bmdp.load_policy(folder)


def test_a_change_that_the_checksum_agrees_with_is_read(folder):
    change(folder, {"floor": 0.5})
    assert bmdp.load_policy(folder).floor == 0.5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"floor": 25.0}, r"ExploringPolicy does not make sense: .*from 0 to 1"),
        ({"colour": "red"}, r"ExploringPolicy does not make sense: .*'colour'"),
        ({"greedy": {"array": "nowhere"}}, "an array is missing: nowhere"),
        ({"greedy": {"rule": 1}}, "kind None is unknown"),
    ],
)
def test_settings_that_make_no_sense_are_refused(folder, content, message):
    change(folder, content)
    with pytest.raises(StoreError, match=message):
        bmdp.load_policy(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"floor": "a"}, r"ExploringPolicy\.floor must be a number; got 'a'"),
        ({"floor": True}, r"ExploringPolicy\.floor must be a number; got True"),
        ({"floor": None}, r"ExploringPolicy\.floor must be a number; got None"),
        ({"hold": 1.5}, r"ExploringPolicy\.hold must be a whole number; got 1\.5"),
        ({"hold": 10**30}, r"ExploringPolicy\.hold must be a whole number"),
        ({"at_top": 1}, r"ExploringPolicy\.at_top must be true or false; got 1"),
        ({"length": []}, r"ExploringPolicy\.length must be a number or null; got \(\)"),
        ({"greedy": 3}, r"ExploringPolicy\.greedy must be a SteppedPolicy; got 3"),
        ({"explorer": {"number": "nan"}}, r"ExploringPolicy\.explorer must be a OneStepPolicy"),
        ({"floor": {"number": "7"}}, r"a number must be inf, -inf or nan; got '7'"),
        ({"greedy": {"array": ["q"]}}, r"an array is missing"),
        ({"greedy": {"kind": ["q"]}}, r"kind \['q'\] is unknown"),
    ],
)
def test_parts_of_another_type_are_refused_in_one_line(folder, content, message):
    change(folder, content)
    with pytest.raises(StoreError, match=message) as error:
        bmdp.load_policy(folder)
    assert "\n" not in str(error.value)


def test_types_of_all_that_is_stored_are_known():
    for policy in POLICIES:
        for field in fields(policy) if is_dataclass(policy) else ():
            hint, _ = storage._types_of(type(policy))[field.name]
            assert storage._words(hint) != "what it was" or field.name == "q_function"


def test_a_file_that_is_too_deep_is_refused(folder):
    (folder / "policy.json").write_text("[" * 100_000)
    with pytest.raises(StoreError, match=r"policy.json is not JSON"):
        bmdp.load_policy(folder)


def changed_arrays(folder, change_arrays):
    """Changes the arrays of a file, in a way that its checksum agrees with."""
    arrays = load_file(folder / "weights.safetensors")
    change_arrays(arrays)
    save_file(arrays, folder / "weights.safetensors")
    change(folder)


ALLOCATION = allocate_budgets(branches().model).policy()


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("next_state", lambda a: a + 10**6, "next_state must be from 0 to"),
        ("next_state", lambda a: -1 - a, "next_state must be from 0 to"),
        ("row_start", lambda a: a[::-1].copy(), "row_start must rise from 0"),
        ("row_start", lambda a: a + 1, "row_start must rise from 0"),
        ("row_start", lambda a: a[:-1].copy(), "row_start must have shape"),
        ("first", lambda a: a * 100, "first must rise from 0"),
        ("first", lambda a: a * 0, "first must rise from 0"),
        ("stage_start", lambda a: a + 7, "stage_start must rise from 0"),
        ("vertex_cost", lambda a: a * 0, "vertex_cost must rise strictly at each state"),
        ("vertex_cost", lambda a: a * np.nan, "vertex_cost must be finite"),
        ("probability", lambda a: -a, "probability must be above 0"),
        ("reward", lambda a: a[0], "reward must have shape"),
        ("cost", lambda a: a[:, :1].copy(), "cost must have shape"),
        ("next_state", lambda a: a * 1.0, "next_state must be an array of whole numbers"),
    ],
)
def test_frontiers_that_lead_out_of_their_arrays_are_refused(tmp_path, name, make, message):
    ALLOCATION.save(tmp_path / "policy")

    def change_arrays(arrays):
        arrays[name] = make(arrays[name])

    changed_arrays(tmp_path / "policy", change_arrays)
    with pytest.raises(StoreError, match=message):
        bmdp.load_policy(tmp_path / "policy")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StateColumn("day", "colours"), "holds must be one of"),
        (lambda: StateColumn("day", "text", ("b", "a")), "must be its different texts, sorted"),
        (lambda: StateColumn("day", "numbers", ("a",)), "must be its different texts, sorted"),
        (lambda: StateColumn("age", "numbers", fill=np.nan), "fill of 'age' must be finite"),
        (lambda: Encoder(COLUMNS[:1] * 2), "columns must have different names"),
        (lambda: Encoder((), actions=("go", "go")), "actions must have different names"),
        (lambda: replace(BINS, cells=(1, 0)), "cells must rise from 0 to 1"),
        (lambda: replace(BINS, cells=(0, 2)), "cells must rise from 0 to 1"),
        (lambda: replace(BINS, edges=((1.0, 1.0),)), "edges must be finite and rise"),
        (lambda: replace(BINS, edges=((np.nan,),)), "edges must be finite and rise"),
        (lambda: replace(BINS, values=((0.1,),)), "values must be 1 numbers for each of 2"),
        (lambda: replace(BINS, names=()), "cells must rise"),
        (lambda: replace(HULL, step=2), r"step must be a whole number from 0 to 0; got 2"),
        (lambda: replace(STEPS, step=-1), r"step must be a whole number from 0 to 4; got -1"),
        (lambda: replace(DIAL, prices=[1.0, 0.0]), r"prices must be as many as heads .*, 3; got 2"),
        (lambda: replace(HULL.rule, cost_cap=np.nan), "cost_cap must be finite, or None"),
        (lambda: PricedPolicy(table(n_heads=1), np.nan), "price must be from 0 on; got nan"),
        (lambda: PricedPolicy(table(n_heads=1), 1.0, 2.0, 1.0), "must be two rising numbers"),
        (lambda: ScriptedPolicy("corridors/safe", 1.0, 0.0), "must be two rising numbers"),
        (lambda: replace(CERTIFICATE, confidence=1.5), "confidence must be above 0 and below 1"),
        (lambda: replace(CERTIFICATE, gamma=2.0), "gamma must be from 0 to 1"),
        (lambda: replace(CERTIFICATE, cost_range=(1.0, 0.0)), "cost_range must be finite and rise"),
        (lambda: replace(CERTIFICATE, cost_mean=PORTFOLIO.costs * np.nan), "cost_mean must be fin"),
        (lambda: replace(CERTIFICATE, reward_low=PORTFOLIO.costs * np.nan), "reward_low must be"),
        (lambda: RandomBudgetedPolicy(10**9, 0.0, 1.0), "n_actions must be a whole number from 1"),
        (lambda: TabularQ(np.zeros((2, 0, 1)), np.zeros((2, 0, 1))), "q_r must hold values"),
    ],
)
def test_parts_that_make_no_sense_together_are_refused(make, message):
    with pytest.raises(BmdpError, match=message):
        make()


def test_an_unknown_kind_is_refused(folder):
    change(folder, {"explorer": {"kind": "Oracle"}})
    with pytest.raises(StoreError, match=r"kind 'Oracle' is unknown\.$"):
        bmdp.load_policy(folder)


# Nothing in a file is executed


STRANGER = """
from dataclasses import dataclass
from bmdp.policies import RandomBudgetedPolicy
from bmdp.storage import storable

@storable
@dataclass(frozen=True)
class Stranger(RandomBudgetedPolicy):
    pass
"""


def test_a_kind_of_another_module_is_loaded_once_that_was_imported(folder, monkeypatch):
    (folder.parent / "foreigners.py").write_text(STRANGER)
    monkeypatch.syspath_prepend(folder.parent)
    settings = {"n_actions": 3, "low": 0.0, "high": 1.0, "spend": "all"}
    change(folder, {"explorer": {"kind": "Stranger", "module": "foreigners", **settings}})
    with pytest.raises(StoreError, match=r"'Stranger' is unknown\. Import foreigners, which"):
        bmdp.load_policy(folder)
    assert "foreigners" not in sys.modules
    foreigners = import_module("foreigners")
    monkeypatch.delitem(sys.modules, "foreigners")
    loaded = bmdp.load_policy(folder)
    assert loaded.explorer == foreigners.Stranger(3, 0.0, 1.0)
    loaded.save(folder.parent / "again")
    header = json.loads((folder.parent / "again" / "policy.json").read_text())
    assert header["content"]["explorer"]["module"] == "foreigners"


@pytest.mark.parametrize("kind", ["system", "os.system", "Certificate.__init__", "__import__"])
def test_the_name_of_a_function_is_no_kind(folder, kind):
    change(folder, {"explorer": {"kind": kind, "module": "os", "command": "true"}})
    with pytest.raises(StoreError, match=f"kind '{kind}' is unknown"):
        bmdp.load_policy(folder)


def test_nothing_is_unpickled(folder, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("pickle was used")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    assert_same(bmdp.load_policy(folder), EXPLORING)


def test_what_is_no_policy_is_refused_as_one(tmp_path):
    save_value(table(), tmp_path / "table")
    assert_same(load_value(tmp_path / "table"), table())
    with pytest.raises(StoreError, match="holds a TabularQ, which is no policy"):
        bmdp.load_policy(tmp_path / "table")


# What cannot be stored


@dataclass(frozen=True)
class Unknown(RandomBudgetedPolicy):
    """A policy that nobody registered."""


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (HullPolicy(lambda states: None, [0.0]), "<lambda>"),
        (Portfolio.coin(RANDOM, HullPolicy(lambda _: None, [0.0]), 0.1, 0.2), "<lambda>"),
        (HullPolicy(np.sin, [0.0]), "sin"),
        (Unknown(2, 0.0, 1.0), "Unknown"),
    ],
    ids=["function", "part", "numpy function", "not registered"],
)
def test_what_cannot_be_stored_is_named_and_nothing_is_written(policy, name, tmp_path):
    with pytest.raises(StoreError, match=f"'{name}' cannot be stored: only .*HullPolicy.* can"):
        policy.save(tmp_path / "policy")
    assert list(tmp_path.iterdir()) == []


def test_a_stranger_of_a_known_name_is_not_stored(tmp_path):
    @dataclass(frozen=True)
    class TabularQ:
        q_r: int = 0

        def __call__(self, states):
            return None

    with pytest.raises(StoreError, match="'TabularQ' cannot be stored"):
        HullPolicy(TabularQ(), [0.0]).save(tmp_path / "policy")


def test_what_cannot_be_stored_leaves_the_policy_that_is_there(folder):
    with pytest.raises(StoreError, match="cannot be stored"):
        HullPolicy(lambda states: None, [0.0]).save(folder, overwrite=True)
    assert_same(bmdp.load_policy(folder), EXPLORING)


@storable
@dataclass(frozen=True)
class Amount:
    number: float


@pytest.mark.parametrize("number", [np.inf, -np.inf, 1e-300, 0.1 + 0.2, -0.0])
def test_numbers_are_read_to_the_last_bit(tmp_path, number):
    save_value(Amount(number), tmp_path / "amount")
    found = load_value(tmp_path / "amount").number
    assert np.float64(found).tobytes() == np.float64(number).tobytes()


@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_arrays_are_stored_by_their_values_however_they_lie_in_memory(tmp_path, order):
    q_r = np.arange(24.0).reshape(2, 4, 3)
    laid = np.repeat(q_r, 2, axis=2)[..., ::2] if order == "strided" else np.array(q_r, order=order)
    save_value(TabularQ(laid, laid), tmp_path / "table")
    assert (load_value(tmp_path / "table").q_r == q_r).all()


# Files and folders that are whole or not there


def fill_file(new, text):
    new.write_text(text)


def fill_folder(new, text):
    new.mkdir()
    (new / "inside").mkdir()
    (new / "inside" / "text").write_text(text)


def write(target, fill, text, *, then=lambda: None, **options):
    """Writes a file or a folder, and does something else before it is done."""
    with written(target, **options) as new:
        fill(new, text)
        then()


def raises(error):
    def fails(*_):
        raise error

    return fails


FILLS = pytest.mark.parametrize("fill", [fill_file, fill_folder], ids=["file", "folder"])
ERRORS = pytest.mark.parametrize(
    ("error", "seen"),
    [(OSError("disk full"), StoreError), (KeyboardInterrupt(), KeyboardInterrupt)],
    ids=["full", "interrupted"],
)


def tree(place):
    """Texts of all files of a place, hidden ones too, and its folders."""
    return {
        path.relative_to(place): path.read_text() if path.is_file() else None
        for path in place.rglob("*")
    }


@FILLS
def test_nothing_is_seen_before_it_is_whole_and_nothing_else_is_left(tmp_path, fill):
    target = tmp_path / "deep" / "notes"
    with written(target) as new:
        fill(new, "one")
        assert not target.exists()
    before = tree(tmp_path)
    with written(target) as new:
        fill(new, "two")
        assert all(tree(tmp_path)[path] == text for path, text in before.items())
    assert [path.name for path in target.parent.iterdir()] == ["notes"]
    assert tree(tmp_path) == {k: v and "two" for k, v in before.items()}


@FILLS
@ERRORS
@pytest.mark.parametrize("is_there", [False, True])
def test_a_write_that_fails_leaves_what_was_there(tmp_path, fill, error, seen, is_there):
    if is_there:
        write(tmp_path / "notes", fill, "old")
    before = tree(tmp_path)
    with pytest.raises(seen):
        write(tmp_path / "notes", fill, "half", then=raises(error))
    assert tree(tmp_path) == before


@FILLS
@ERRORS
def test_a_move_that_fails_leaves_what_was_there(tmp_path, monkeypatch, fill, error, seen):
    write(tmp_path / "notes", fill, "old")
    before, rename = tree(tmp_path), os.rename

    def fails(source, target):
        if source.name == "new":
            raise error
        rename(source, target)

    monkeypatch.setattr(os, "rename", fails)
    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(seen):
        write(tmp_path / "notes", fill, "new")
    assert tree(tmp_path) == before


@FILLS
def test_what_may_not_be_overwritten_is_refused_before_anything_is_written(tmp_path, fill):
    write(tmp_path / "notes", fill, "old", overwrite=False)
    before = tree(tmp_path)
    with pytest.raises(StoreError, match=r"notes exists already.*overwrite=True"):
        write(tmp_path / "notes", raises(AssertionError()), "new", overwrite=False)
    assert tree(tmp_path) == before


def test_a_folder_that_another_process_filled_meanwhile_is_left_alone(tmp_path):
    def theirs():
        fill_folder(tmp_path / "notes", "theirs")

    with pytest.raises(StoreError, match="notes cannot be written"):
        write(tmp_path / "notes", fill_folder, "mine", then=theirs, overwrite=False)
    assert set(tree(tmp_path).values()) == {None, "theirs"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_replaces_no_folder(tmp_path, overwrite):
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="empty cannot be written"):
        write(tmp_path / "empty", fill_file, "text", overwrite=overwrite)
    assert tree(tmp_path) == {Path("empty"): None}


@FILLS
def test_all_of_it_is_on_the_disk_before_it_is_moved(tmp_path, monkeypatch, fill):
    events, to_disk = [], storage.to_disk
    monkeypatch.setattr(storage, "to_disk", lambda path: events.append(path.name) or to_disk(path))
    for name in ("rename", "replace"):
        move = getattr(os, name)
        monkeypatch.setattr(os, name, lambda a, b, move=move: events.append("move") or move(a, b))
    write(tmp_path / "notes", fill, "text")
    *synced, last = events[: events.index("move")]
    assert set(synced) == ({"inside", "text"} if fill is fill_folder else set())
    assert last == "new"
    assert events[-1] == tmp_path.name


def test_a_folder_is_filled_by_a_function(tmp_path):
    for text in ("one", "two"):
        replace_folder(tmp_path / "notes", lambda new, text=text: (new / text).touch())
    assert tree(tmp_path) == {Path("notes"): None, Path("notes/two"): ""}


def test_a_policy_that_cannot_be_written_leaves_the_one_that_is_there(folder, monkeypatch):
    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr("bmdp.storage.save_file", full)
    with pytest.raises(StoreError, match="policy cannot be written: disk full"):
        RANDOM.save(folder, overwrite=True)
    assert_same(bmdp.load_policy(folder), EXPLORING)
    assert [path.name for path in folder.parent.iterdir()] == ["policy"]


def test_parents_are_made_and_others_may_read(tmp_path):
    RANDOM.save(tmp_path / "one" / "two" / "policy")
    plain = tmp_path / "plain"
    plain.mkdir()
    made = tmp_path / "one" / "two" / "policy"
    assert stat.S_IMODE(made.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
def test_files_are_for_whom_the_user_says(tmp_path, mask):
    """The umask, whatever the libraries that write files make of it."""
    before = os.umask(mask)
    try:
        HULL.save(tmp_path / "policy")
        with written(tmp_path / "weights") as new:
            save_file({"x": np.zeros(3)}, new)
        made = (tmp_path / "plain", tmp_path / "folder")
        made[0].touch()
        made[1].mkdir()
    finally:
        os.umask(before)
    file, folder = (stat.S_IMODE(path.stat().st_mode) for path in made)
    assert file == 0o666 & ~mask
    found = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "policy").iterdir()}
    assert found == {"policy.json": file, "weights.safetensors": file}
    assert stat.S_IMODE((tmp_path / "policy").stat().st_mode) == folder
    assert stat.S_IMODE((tmp_path / "weights").stat().st_mode) == file


def test_no_name_of_what_is_half_written_can_be_foreseen(tmp_path):
    names = set()
    for _ in range(3):
        with written(tmp_path / "file") as new:
            names.add(new.parent.name)
            assert stat.S_IMODE(new.parent.stat().st_mode) == 0o700
            new.touch()
    assert len(names) == 3


def test_what_was_sealed_is_read_and_nothing_else(tmp_path):
    path, content = tmp_path / "said.json", {"seconds": 1.5, "of": [1, None, {"a": "é"}]}
    path.write_text(json.dumps(sealed(content, 3)))
    assert read_sealed(path, 3) == content
    whole = json.loads(path.read_text())
    assert whole["bmdp"] == bmdp.__version__
    for changes, message in (
        ({"seconds": 2.5}, "damaged"),
        ({"more": 1}, "damaged"),
        ({"checksum": None}, "damaged"),
        ({"format": 2}, "damaged"),
        ({"format": 4}, r"format 4, newer than 3: upgrade bmdp"),
    ):
        path.write_text(json.dumps(whole | changes))
        with pytest.raises(StoreError, match=message):
            read_sealed(path, 3)


def test_a_folder_whose_header_was_changed_is_refused(tmp_path):
    create_folder(tmp_path / "walk", {"kind": "walk", "seed": 1})
    path = tmp_path / "walk" / "spec.json"
    path.write_text(path.read_text().replace('"seed": 1', '"seed": 2'))
    with pytest.raises(StoreError, match=r"spec.json is not what was written.*take its checksum"):
        read_header(tmp_path / "walk", "walk", lambda header: header["kind"] == "walk")
    header = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in header.items() if k != "checksum"}))
    assert read_header(tmp_path / "walk", "walk", lambda header: True)["seed"] == 2


def test_a_hash_of_arrays_tells_names_types_shapes_and_values_apart():
    two = np.array([1.0, 2.0])
    kinds = [
        ({"a": two}, ""),
        ({"b": two}, ""),
        ({"a": two}, "mark"),
        ({"a": two.astype(np.float32)}, ""),
        ({"a": two[None]}, ""),
        ({"a": two.view(np.int64)}, ""),
        ({"a": two + 1}, ""),
        ({"a": two[:1], "b": two[1:]}, ""),
    ]
    assert len({arrays_hash(*kind) for kind in kinds}) == len(kinds)
    one, other = {"a": two, "b": two + 1}, {"b": two + 1, "a": two}
    assert arrays_hash(one) == arrays_hash(other)


# Folders of work


def is_walk(header):
    return header.get("what") == "walk"


def test_a_folder_begins_with_what_it_is(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        create_folder(tmp_path / name, {"what": "walk", "steps": [1, 2]})
        found = read_header(tmp_path / name, "walk", is_walk)
        assert found == {"schema": SCHEMA, "what": "walk", "steps": [1, 2]}
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o755
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "new"]


def test_a_folder_with_something_in_it_is_not_begun(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all I have")
    with pytest.raises(StoreError, match="mine exists already"):
        create_folder(tmp_path / "mine", {"what": "walk"})
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["mine", "thesis.txt"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is no walk: there is no spec.json in it"),
        ("{", "is not JSON"),
        ("[]", "is not of a walk"),
        ('{"what": "walk"}', "is not of a walk"),
        ('{"schema": 2, "what": "swim"}', "is not of a walk"),
        ('{"schema": 3, "what": "walk"}', "schema 3, newer than 2: upgrade bmdp"),
        ('{"schema": 1, "what": "walk"}', r"begun by bmdp 0\.1\.0"),
    ],
)
def test_a_folder_that_is_something_else_is_not_read(tmp_path, text, message):
    if text is not None:
        (tmp_path / SPEC).write_text(text)
    with pytest.raises(StoreError, match=message):
        read_header(tmp_path, "walk", is_walk)


def test_a_folder_is_discarded_if_it_is_one_of_the_kind(tmp_path):
    create_folder(tmp_path / "walk", {"what": "walk"})
    (tmp_path / "empty").mkdir()
    for name in ("walk", "empty", "nothing"):
        discard_folder(tmp_path / name, "walk", lambda _: nullcontext())
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_held_is_not_discarded(tmp_path):
    create_folder(tmp_path / "walk", {"what": "walk"})
    with locked(tmp_path / "lock", tmp_path / "walk"), pytest.raises(StoreError, match="in use"):
        discard_folder(tmp_path / "walk", "walk", lambda path: locked(tmp_path / "lock", path))
    assert (tmp_path / "walk" / SPEC).exists()


# Locks


def test_a_lock_says_who_holds_it(tmp_path):
    message = f"{tmp_path} is in use by process {os.getpid()} on"
    with (
        locked(tmp_path / "lock", tmp_path),
        pytest.raises(StoreError, match=message),
        locked(tmp_path / "lock", tmp_path),
    ):
        pass


def test_a_lock_is_free_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "lock", tmp_path):
        raise ZeroDivisionError
    with locked(tmp_path / "lock", tmp_path):
        pass


HOLD = """
import os, sys, time
from pathlib import Path
from bmdp.storage import locked
with locked(Path(sys.argv[1]), Path("it")):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process, which holds a lock until its input ends or it is killed."""
    asked = [sys.executable, "-c", HOLD, tmp_path / "lock"]
    with subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        yield other
        other.kill()


def test_a_lock_of_another_process_is_refused_with_its_number(holder, tmp_path):
    with (
        pytest.raises(StoreError, match=f"it is in use by process {holder.pid} on"),
        locked(tmp_path / "lock", Path("it")),
    ):
        pass


def test_the_lock_of_a_process_that_was_killed_holds_nobody_back(holder, tmp_path):
    holder.kill()
    holder.wait()
    with (
        locked(tmp_path / "lock", tmp_path),
        pytest.raises(StoreError, match=f"process {os.getpid()} on"),
        locked(tmp_path / "lock", tmp_path),
    ):
        pass


def test_a_lock_is_waited_for_if_there_is_time(holder, tmp_path):
    ending = threading.Timer(0.3, holder.stdin.close)
    ending.start()
    with locked(tmp_path / "lock", tmp_path, wait=60.0):
        assert holder.wait(timeout=60) == 0


def test_a_lock_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(StoreError, match="lock cannot be written"),
        locked(tmp_path / "file" / "lock", tmp_path),
    ):
        pass


def test_errors_of_storage_are_errors_of_the_library():
    assert issubclass(StoreError, BmdpError)


def test_a_registered_dataclass_of_ones_own_is_stored_as_those_of_the_library(tmp_path):
    @storable
    @dataclass(frozen=True)
    class Doubled(OneStepPolicy):
        inner: OneStepPolicy
        names: tuple[str, ...]
        budget_range, n_draws = (0.0, 1.0), 0

        def choose(self, states, budgets, uniforms):
            return self.inner.choose(states, budgets, uniforms)

    Doubled(RANDOM, ("one", "two")).save(tmp_path / "policy")
    assert bmdp.load_policy(tmp_path / "policy") == Doubled(RANDOM, ("one", "two"))


KINDS = """
import importlib, pkgutil
import bmdp
import bmdp.policies.policy as policy
from bmdp import storage
for module in ("bmdp.policies", *policy._OTHER_KINDS):
    importlib.import_module(module)
known = {*storage._KINDS, *storage._RESTORERS}
for found in pkgutil.walk_packages(bmdp.__path__, "bmdp."):
    if found.name != "bmdp.models.descent_kernel":  # of Triton, which is there with CUDA alone
        importlib.import_module(found.name)
print(sorted({*storage._KINDS, *storage._RESTORERS} - known))
"""


def test_a_policy_is_loaded_whichever_module_has_its_kinds():
    done = subprocess.run([sys.executable, "-c", KINDS], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


# What killed processes left


def left_beside(path, inside="new"):
    """A folder in which a process that is gone was writing."""
    place = path.with_name(f".{path.name}.x7.new")
    (place / inside).mkdir(parents=True)
    (place / inside / "notes").write_text("half")
    return place


def test_what_a_killed_process_left_is_swept_up_and_nothing_else(tmp_path):
    for name in ("notes", "other", "run/inner"):
        left_beside(tmp_path / name)
    (tmp_path / ".hidden").write_text("mine")
    (tmp_path / ".notes.mine.new").write_text("a file")
    sweep(tmp_path / "notes")
    assert {".other.x7.new", ".hidden", ".notes.mine.new", "run"} == set(os.listdir(tmp_path))
    sweep(tmp_path / "run", within=True)
    assert os.listdir(tmp_path / "run") == []


def test_what_a_living_process_is_writing_stays(tmp_path):
    with written(tmp_path / "notes") as new:
        sweep(tmp_path / "notes")
        sweep(tmp_path, within=True)
        new.write_text("whole")
    assert (tmp_path / "notes").read_text() == "whole"


def test_a_folder_that_was_being_replaced_comes_back(tmp_path):
    left_beside(tmp_path / "policy", "old")
    sweep(tmp_path / "policy")
    assert tree(tmp_path) == {Path("policy"): None, Path("policy/notes"): "half"}


@pytest.mark.parametrize("save", [RANDOM.save, lambda path: create_folder(path, {})])
def test_folders_are_swept_before_they_are_written(tmp_path, save):
    left_beside(tmp_path / "made")
    save(tmp_path / "made")
    assert os.listdir(tmp_path) == ["made"]


def test_a_disk_that_is_full_is_told_in_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr("bmdp.storage.save_file", raises(SafetensorError("No space left")))
    with pytest.raises(StoreError, match="policy cannot be written: No space left"):
        RANDOM.save(tmp_path / "policy")
    assert not os.listdir(tmp_path)
