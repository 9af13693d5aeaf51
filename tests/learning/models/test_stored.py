"""Models that are read from files: every array is checked before anything looks at it."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import bmdp
import regressors
from bmdp import DataError, StoreError
from bmdp.models import ForestModel, LearnedQ, Support
from bmdp.models.actor import ActorModel, SampledActor
from bmdp.models.regressor import MeanQ, QModel, Sizes
from bmdp.policies import HullPolicy
from bmdp.storage import load_value, save_value

STATES = regressors.small_problem(n=60).states
SHOWN, TAKEN = np.ones(2, np.bool_), np.ones(3, np.bool_)


def learned(name, **how):
    model = regressors.fitted(regressors.ALL[name], regressors.small_problem(n=60, n_steps=1))
    return LearnedQ(model.select([0]), SHOWN, TAKEN, 1.0, 1.0, **how)


def actor():
    model = ActorModel(4, 3).empty(Sizes(1, 1, 3, 2, (0.0, 1.0)))
    return LearnedQ(model, SHOWN, TAKEN, 1.0, 1.0)


def support(*, is_table):
    rows = regressors.small_problem(n=60)
    episodes = np.arange(60)
    return Support.of(rows.states, rows.actions, episodes, 3, least=1.0, is_table=is_table)


VALUES = {
    **{
        name: HullPolicy(learned(name), regressors.GRID) for name in regressors.ALL if name != "own"
    },
    "actor": SampledActor(actor()),
    "mean": HullPolicy(MeanQ((learned("linear"), learned("forest"))), regressors.GRID),
    "table support": HullPolicy(learned("linear", support=support(is_table=True)), regressors.GRID),
    "forest support": HullPolicy(
        learned("linear", support=support(is_table=False)), regressors.GRID
    ),
}


@pytest.fixture
def change(tmp_path):
    """Saves a policy, changes what is stored, writes its checksum anew, and gives the folder."""

    def changed(policy, edit):
        folder = tmp_path / "policy"
        policy.save(folder)
        header = json.loads((folder / "policy.json").read_text())
        arrays = load_file(folder / "weights.safetensors")
        edit(header["content"], arrays)
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        save_file(arrays, folder / "weights.safetensors")
        found = hashlib.sha256(json.dumps(header["content"], sort_keys=True).encode())
        found.update((folder / "weights.safetensors").read_bytes())
        text = json.dumps({**header, "checksum": found.hexdigest()})
        (folder / "policy.json").write_text(text)
        return folder

    return changed


def place_of(content, name, at="q_function.model"):
    """Where in a file the array of a model is."""
    for key in at.split("."):
        content = content[key]
    return content["arrays"][content["names"].index(name)]["array"]


def setting(name, index, value, at="q_function.model"):
    """Sets one number of an array of a model."""

    def edit(content, arrays):
        array = arrays[place_of(content, name, at)].copy()
        array[index] = value
        arrays[place_of(content, name, at)] = array

    return edit


def making(name, make, at="q_function.model"):
    """Makes another array of one of a model."""

    def edit(content, arrays):
        arrays[place_of(content, name, at)] = make(arrays[place_of(content, name, at)])

    return edit


def saying(key, value):
    """Says something else of a model."""

    def edit(content, arrays):
        content["q_function"]["model"][key] = value

    return edit


def sizes(**changes):
    def edit(content, arrays):
        own = Sizes(*content["q_function"]["model"]["sizes"])
        content["q_function"]["model"]["sizes"] = list(own._replace(**changes))

    return edit


def one_child(child):
    """The first node that has two children is a child of itself."""
    nodes = np.arange(child.shape[3])[:, None]
    place = tuple(np.argwhere((child != nodes).all(-1))[0])
    child[(*place, 0)] = place[-1]
    return child


FAR = 2**31 - 1
ROOT = (0, 0, 0, 0)


@pytest.mark.parametrize("name", VALUES)
def test_a_model_that_was_not_changed_is_read(name, change):
    policy = bmdp.load_policy(change(VALUES[name], lambda content, arrays: None))
    found, wanted = (
        each.decide(STATES, each.budget_range[1], np.random.default_rng(0))
        for each in (policy, VALUES[name])
    )
    assert found.action.tolist() == wanted.action.tolist()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (setting("feature", ROOT, FAR), r"ForestQ\.feature must be from 0 to 1; got 2\.14"),
        (setting("feature", ROOT, -1), r"ForestQ\.feature must be from 0 to 1; got -1 at \[0, 0"),
        (setting("child", (*ROOT, 0), FAR), r"ForestQ\.child must be from 0 to \d+; got 2\.14"),
        (setting("child", (*ROOT, 1), -3), r"ForestQ\.child must be from 0 to \d+; got -3"),
        (making("child", lambda a: a[..., :1].repeat(2, -1) * 0), "children must follow parents"),
        (making("child", lambda a: one_child(a)), "children must follow parents"),
        (setting("leaf_of", ROOT, FAR), r"ForestQ\.leaf_of must be from 0 to \d+; got 2\.14"),
        (setting("leaf_of", ROOT, -1), r"ForestQ\.leaf_of must be from 0 to \d+; got -1"),
        (setting("threshold", ROOT, np.nan), r"ForestQ\.threshold must be finite; got nan"),
        (setting("values", ROOT, np.inf), r"ForestQ\.values must be finite; got inf"),
        (setting("scale", 0, 0.0), r"ForestQ\.scale must be from .* to 1e\+150; got 0"),
        (setting("scale", 0, 1e200), r"ForestQ\.scale must be from .*; got 1e\+200"),
        (setting("scale", 0, np.inf), r"ForestQ\.scale must be .*; got inf"),
        (setting("centre", 1, np.nan), r"ForestQ\.centre must be finite; got nan at \[1\]"),
        (making("child", lambda a: a[..., :1]), r"ForestQ\.child must have shape \[1, 3, 5"),
        (making("feature", lambda a: a[0]), "nodes do not make trees"),
        (making("values", lambda a: a[:, :, :0]), "nodes do not make trees"),
        (making("child", lambda a: a.astype(np.int64)), r"ForestQ\.child must be of type int32"),
        (making("values", lambda a: a.astype(np.float64)), "values must be of type float32"),
    ],
)
def test_nodes_that_make_no_trees_are_refused(edit, message, change):
    with pytest.raises(StoreError, match=message) as error:
        bmdp.load_policy(change(VALUES["forest"], edit))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("kernel", setting("group", 0, 5), r"KernelQ\.group must be from 0 to 0; got 5"),
        ("kernel", setting("lengths", 0, 0.0), r"KernelQ\.lengths must be .*; got 0"),
        ("kernel", setting("centres", ROOT, np.nan), r"KernelQ\.centres must be finite"),
        ("kernel", making("weights", lambda a: a[:, :, :, 1:]), r"KernelQ\.weights must have"),
        ("kernel", making("means", lambda a: a[..., :1]), r"KernelQ\.means must have shape"),
        ("kernel", making("centres", lambda a: a[0]), r"KernelQ\.centres must have shape \[E"),
        ("table", making("cells", lambda a: a[::-1]), r"TableQ\.cells must rise strictly"),
        ("table", making("seen", lambda a: a[1:]), r"TableQ\.seen must have shape"),
        ("table", setting("table", (0, 0), np.nan), r"TableQ\.table must be finite"),
        ("linear", making("coefficients", lambda a: a[:, :, :, 1:]), "coefficients must have"),
        ("quadratic", setting("coefficients", 0, np.inf), "coefficients must be finite"),
        ("monotone", setting("budgets", 0, 7.0), "budgets must be the heads of the model"),
        ("monotone", setting("stacks.0.layers.0.weight", 0, np.nan), "must be finite; got nan"),
        ("text", making("stacks.0.first.bias", lambda a: a[..., 1:]), "first.bias has the wrong"),
        ("actor", setting("places", 0, 3.0), r"ActorQ\.places must be from -1 to 1; got 3"),
        ("actor", setting("actor.last", 0, np.nan), r"actor\.last must be finite"),
    ],
)
def test_arrays_that_make_no_sense_are_refused(name, edit, message, change):
    with pytest.raises(StoreError, match=message):
        bmdp.load_policy(change(VALUES[name], edit))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (sizes(n_steps=10**9), "n_steps must be from 1 to the size of its arrays"),
        (sizes(n_members=10**12), "n_members must be from 1 to the size of its arrays"),
        (sizes(n_steps=0), "n_steps must be from 1"),
        (sizes(heads=[]), "heads must be finite numbers, and at least one"),
        (sizes(heads=[0.0, None]), r"QModel\.sizes must be a list"),
        (sizes(n_actions=2.5), r"QModel\.sizes must be a list"),
        (sizes(n_actions=True), r"QModel\.sizes must be a list"),
        (sizes(n_numbers=1), r"LinearQ\.centre must have shape \[1\]; got \[2\]"),
        (saying("names", ["centre"] * 3), "arrays do not match their names"),
        (saying("names", ["centre", "scale", "other"]), "arrays do not match: coefficients, other"),
        (saying("settings", {"kind": "Regression"}), r"QModel\.settings must be a Regressor"),
        (saying("settings", 3), r"QModel\.settings must be a Regressor; got 3"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(edit, message, change):
    with pytest.raises(StoreError, match=message):
        bmdp.load_policy(change(VALUES["linear"], edit))


def test_settings_of_a_model_are_no_larger_than_its_arrays(change):
    def wide(content, arrays):
        content["q_function"]["model"]["settings"]["hidden"] = [10**5, 10**5]

    with pytest.raises(StoreError, match="its sizes are larger than its arrays"):
        bmdp.load_policy(change(VALUES["monotone"], wide))


def test_many_steps_of_networks_are_refused_without_making_them(change):
    def long(content, arrays):
        content["q_function"]["model"]["sizes"][1] = 50
        content["q_function"]["model"]["settings"]["hidden"] = [400, 400]

    with pytest.raises(StoreError, match="its sizes are larger than its arrays"):
        bmdp.load_policy(change(VALUES["monotone"], long))


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("taken", np.ones(2, np.bool_), r"LearnedQ\.taken must have shape \[A\] = \[3\]"),
        ("taken", np.zeros(3, np.bool_), r"LearnedQ\.taken must have an action"),
        ("taken", np.ones(3), r"LearnedQ\.taken must be an array of truth values"),
        ("shown", np.array([True, False]), r"LearnedQ\.shown must show the model its 2 numbers"),
        ("reward_unit", 0.0, r"LearnedQ\.reward_unit must be above 0"),
        ("reward_unit", 1e300, r"LearnedQ\.reward_unit must be above 0, up to 1e\+150"),
        ("clock", 2**40, r"LearnedQ\.clock must be 0"),
        ("cost_unit", None, r"LearnedQ\.cost_unit must be a number; got None"),
        ("caution", {"number": "nan"}, r"LearnedQ\.caution must be finite"),
        ("clock", -1, r"LearnedQ\.clock must be 0"),
        ("clock", 2.5, r"LearnedQ\.clock must be a whole number"),
    ],
)
def test_parts_that_are_of_another_model_are_refused(part, value, message, change):
    def edit(content, arrays):
        if isinstance(value, np.ndarray):
            arrays[f"q_function.{part}"] = value
        else:
            content["q_function"][part] = value

    with pytest.raises(StoreError, match=message):
        bmdp.load_policy(change(VALUES["linear"], edit))


@pytest.mark.parametrize("name", ["table support", "forest support"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda counts: counts[:1], r"Support\.counts must be from 0 on, of \d+ groups"),
        (lambda counts: counts[:, :1], r"Support\.counts must have shape \[G, A\]"),
        (lambda counts: -counts, r"Support\.counts must be from 0 on"),
        (lambda counts: counts * np.nan, r"Support\.counts must be finite"),
    ],
)
def test_counts_of_a_support_are_of_its_groups(name, make, message, change):
    def edit(content, arrays):
        arrays["q_function.support.counts"] = make(arrays["q_function.support.counts"])

    with pytest.raises(StoreError, match=message):
        bmdp.load_policy(change(VALUES[name], edit))


def test_leaves_of_a_support_are_checked_like_others(change):
    edit = setting("leaf_of", ROOT, FAR, at="q_function.support.model")
    with pytest.raises(StoreError, match=r"ForestQ\.leaf_of must be from 0"):
        bmdp.load_policy(change(VALUES["forest support"], edit))


def test_the_parts_of_a_mean_have_the_same_heads():
    few = regressors.problem_of(STATES, np.arange(60) % 3, n_actions=3, heads=(0.0, 1.0))
    other = regressors.fitted(regressors.ALL["linear"], few).select([0])
    parts = learned("linear"), LearnedQ(other, SHOWN, TAKEN, 1.0, 1.0)
    with pytest.raises(DataError, match="of the same states, actions and heads"):
        MeanQ(parts)


@pytest.mark.parametrize("name", ["forest", "kernel", "table", "linear", "monotone", "text"])
def test_a_model_with_numbers_that_are_none_is_kept_but_not_read(name, tmp_path):
    """It is a fit that went wrong, which is not the moment to speak of files."""
    q = learned(name).model
    tensor = next(t for t in reversed(q.state_dict().values()) if t.is_floating_point())
    tensor.fill_(torch.nan)
    save_value(q.select([0]), tmp_path / "model")
    with pytest.raises(StoreError, match="must be finite; got nan"):
        load_value(tmp_path / "model")


def test_what_is_inside_of_a_model_is_checked_too():
    class Outer(QModel):
        def __init__(self, inner):
            super().__init__(inner.settings, inner.sizes)
            self.inner = inner

    forest = learned("forest").model
    tensors = {f"inner.{name}": tensor for name, tensor in forest.state_dict().items()}
    tensors["inner.leaf_of"] = tensors["inner.leaf_of"] + FAR // 2
    with pytest.raises(StoreError, match=r"ForestQ\.leaf_of must be from 0"):
        Outer(ForestModel(5, 3).empty(forest.sizes)).load_tensors(tensors)


NODES = """
import sys
import numpy as np
import bmdp
policy = bmdp.load_policy(sys.argv[1])
policy.decide(np.zeros((3, 2)), policy.budget_range[1], np.random.default_rng(0))
"""


def test_no_process_ends_by_nodes_that_lead_out_of_the_arrays(change):
    """Compiled code would read outside of them."""
    edit = setting("child", (slice(None),) * 4, -(2**30))
    folder = change(VALUES["forest"], edit)
    done = subprocess.run(
        [sys.executable, "-c", NODES, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.returncode
    assert "ForestQ.child must be from 0" in done.stderr
