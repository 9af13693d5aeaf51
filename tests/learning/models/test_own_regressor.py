"""A user's own regressor is trained, killed, resumed, saved and named as one of the library's."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from nearest_neighbours import NearestNeighbours

import bmdp
import commands
from batches import bandit
from bmdp import BFTQ, FTQ, BFTQConfig, ConfigError, FTQConfig, StoreError, storage
from bmdp.learn import EnvConfig, Exploration, Iterations, TrainingSpec, collect, resume, train
from bmdp.learn.spec import from_json, to_json, with_setting
from bmdp.models.regressor import REGRESSORS
from regressors import fitted, problem_of, values
from training import SPEC, Killed, content, kill_after

ROOT = Path(__file__).parents[3]
NAME = "nearest_neighbours:NearestNeighbours"
LEARNER = BFTQConfig(
    gamma=1.0, n_budgets=3, model=NearestNeighbours(3), schedule=Iterations(2), ensemble=2
)
RUN = TrainingSpec(EnvConfig("corridors"), LEARNER, Exploration(2, 70, decay=0.05))


def test_the_page_has_the_code_of_the_example():
    page = (ROOT / "docs" / "extending.md").read_text()
    saved = r'^```python title="nearest_neighbours.py"\n(.*?)^```'
    (shown,) = re.findall(saved, page, re.MULTILINE | re.DOTALL)
    code = (ROOT / "examples" / "nearest_neighbours.py").read_text()
    assert code.split('"""\n\n', 1)[1] == shown


@pytest.mark.parametrize("k", [1, 4, 100])
def test_values_are_means_of_the_nearest_targets(k):
    rng = np.random.default_rng(0)
    states, actions, targets = rng.normal(size=(50, 2)), np.arange(50) % 2, rng.random((50, 5, 2))
    q = fitted(NearestNeighbours(k), problem_of(states, actions, n_actions=2), targets)
    asked = rng.normal(size=(9, 2))
    for action in range(2):
        own = np.flatnonzero(actions == action)
        gaps = np.linalg.norm(asked[:, None] - states[own], axis=2)
        near = own[np.argsort(gaps)[:, :k]]
        expected = targets[near].mean(axis=1).transpose(0, 2, 1)
        np.testing.assert_allclose(values(q, asked)[0, :, :, action], expected, atol=1e-6)


def test_bftq_learns_with_it():
    config = BFTQConfig(gamma=0.9, model=NearestNeighbours())
    policy = BFTQ(config).fit(bandit(), seed=0, device="cpu")
    assert policy.frontier([0.0, 0.0]).reward_at(0.25) == pytest.approx(0.25)


@pytest.mark.parametrize(("price", "action"), [(0.5, 1), (2.0, 0)])
def test_ftq_learns_with_it(price, action):
    config = FTQConfig(gamma=0.9, price=price, model=NearestNeighbours())
    policy = FTQ(config).fit(bandit(), seed=0, device="cpu")
    assert policy.act([0.0, 0.0], 0.5, np.random.default_rng(0)).action == action


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Where nothing interrupted it."""
    folder = tmp_path_factory.mktemp("own") / "run"
    train(RUN, folder, seed=0, device="cpu")
    return folder


def test_workers_play_its_episodes(run):
    policy, budgets = bmdp.load_policy(run), np.full(70, 0.5)
    one, two = (
        collect(policy, RUN.env.spec(), range(70), budgets=budgets, seed=0, workers=workers)
        for workers in (1, 2)
    )
    for name, values_of in one.to_arrays().items():
        np.testing.assert_array_equal(two.to_arrays()[name], values_of, err_msg=name)


@pytest.mark.parametrize("n_records", [1, 2, 4, 5, 6])
def test_a_killed_run_is_resumed_to_the_same_bytes(run, tmp_path, n_records):
    with pytest.raises(Killed):
        train(RUN, tmp_path / "run", seed=0, device="cpu", on_record=kill_after(n_records))
    resume(tmp_path / "run")
    assert content(tmp_path / "run" / "policy") == content(run / "policy")


def test_a_policy_is_loaded_as_it_was(run, tmp_path):
    policy = bmdp.load_policy(run)
    policy.save(tmp_path / "policy")
    assert content(tmp_path / "policy") == content(run / "policy")
    assert policy.q_function.model.settings == NearestNeighbours(3)


TWICE = """
import sys, bmdp

try:
    bmdp.load_policy(sys.argv[1])
except bmdp.StoreError as error:
    print(error)
import nearest_neighbours
bmdp.load_policy(sys.argv[1])
"""


def test_where_its_module_was_not_imported_the_error_names_it(run):
    """Another process, in which nothing is registered yet."""
    paths = [str(ROOT / "examples"), os.environ.get("PYTHONPATH", "")]
    found = subprocess.run(
        [sys.executable, "-c", TWICE, str(run)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert "'NearestNeighbours' is unknown. Import nearest_neighbours, which" in found.stdout


def test_a_policy_of_a_changed_class_is_refused(run, monkeypatch):
    monkeypatch.setattr(NearestNeighbours, "empty", lambda self, sizes: 1 / "a")
    with pytest.raises(StoreError, match="a stored QModel does not make sense"):
        bmdp.load_policy(run)


def test_settings_name_it_with_its_module():
    assert to_json(RUN)["learner"]["model"] == {"kind": NAME, "k": 3}
    assert from_json(to_json(RUN)) == RUN
    spec = with_setting(with_setting(SPEC, f"learner.model={NAME}"), "learner.model.k=7")
    assert spec.learner.model == NearestNeighbours(7)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere:NearestNeighbours", "needs the module nowhere: .* Put its folder on PYTHONPATH"),
        ("nearest_neighbours:Nothing", "must be one of .*NearestNeighbours; got 'Nothing'"),
    ],
)
def test_what_is_not_there_is_refused(name, message):
    with pytest.raises(ConfigError, match=message):
        with_setting(SPEC, f"learner.model={name}")


@pytest.fixture
def unknown(monkeypatch):
    """As in a new process: nobody has imported its module."""
    monkeypatch.delitem(sys.modules, "nearest_neighbours")
    monkeypatch.delitem(REGRESSORS, "NearestNeighbours")
    monkeypatch.delitem(storage._KINDS, "NearestNeighbours")


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", "--episodes", 5, "--budgets", 0.5, "--set", "env.height=3"),
        ("play", "--budget", 0.5),
        ("train", "--resume"),
    ],
)
def test_commands_open_its_run(run, words, unknown):
    verb, *options = words
    found = commands.run(verb, *options, run)
    assert found.exit_code == 0, found.output
    assert sys.modules["nearest_neighbours"].NearestNeighbours is not NearestNeighbours


def test_it_is_named_on_the_command_line(tmp_path, unknown):
    settings = {
        "exploration.rounds": 1,
        "learner.n_budgets": 3,
        "learner.ensemble": 2,
        "learner.model": NAME,
        "learner.model.k": 3,
    }
    changes = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    words = ("train", "corridors", "--episodes", 20, "--device", "cpu", *changes)
    found = commands.run(*words, "--out", tmp_path / "run")
    assert found.exit_code == 0, found.output
    settings_of = bmdp.load_policy(tmp_path / "run").q_function.model.settings
    assert settings_of == sys.modules["nearest_neighbours"].NearestNeighbours(3)
