"""A fit that is killed at any step goes on, and comes to the same policy."""

import json
import shutil
from contextlib import suppress
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import bmdp
import ferries
from bmdp import EnvError, StoreError
from bmdp.learn import expedition, resume
from bmdp.learn.shelf import Shelf
from small_logs import grid
from training import Killed, content

ENV = "tests/Rickety-v0"


class Rickety(ferries.Ferry):
    """A ferry that breaks at its n-th step of all, once."""

    left = None

    def step(self, action):
        if Rickety.left is not None:
            Rickety.left -= 1
            if Rickety.left == 0:
                Rickety.left = None
                raise RuntimeError("the chain broke")
        return super().step(action)


@pytest.fixture(autouse=True)
def registered():
    ferries.register()
    if ENV not in gymnasium.registry:
        gymnasium.register(ENV, Rickety)
    Rickety.left = None


def log():
    return grid(60)


def fit_log(out):
    return bmdp.fit(log(), gamma=0.9, out=out, device="cpu")


def fit_env(out):
    return bmdp.fit(ferries.ENV, episodes=100, out=out, device="cpu")


class Dying:
    """Stands for a shelf of a process that is killed once it has kept so many things, or one."""

    def __init__(self, monkeypatch, most=None, last=None):
        self.kept = 0
        keep = Shelf._kept

        def kept(shelf, name, make, save, load):
            is_new = not (shelf.folder / name).exists()
            found = keep(shelf, name, make, save, load)
            self.kept += is_new
            if is_new and (self.kept == most or name == last):
                raise Killed
            return found

        monkeypatch.setattr(Shelf, "_kept", kept)


def n_kept(fit, folder):
    with pytest.MonkeyPatch.context() as patch:
        shelf = Dying(patch)
        fit(folder)
    return shelf.kept


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folders of fits that were not killed, and how many things they kept."""
    ferries.register()
    folder = tmp_path_factory.mktemp("whole")
    paths = {fit: folder / fit.__name__ for fit in (fit_log, fit_env)}
    return {fit: (path, n_kept(fit, path)) for fit, path in paths.items()}


@pytest.mark.parametrize("fit", [fit_log, fit_env])
def test_a_fit_that_is_killed_after_any_of_its_steps_comes_to_the_same_policy(whole, tmp_path, fit):
    """The same run is killed again and again, at each step once."""
    path, n_steps = whole[fit]
    assert n_steps > 10
    for number in range(n_steps):
        with pytest.MonkeyPatch.context() as patch, suppress(Killed):
            Dying(patch, 1)
            resume(tmp_path / "run") if number else fit(tmp_path / "run")
        assert not (tmp_path / "run" / "done").exists()
    resume(tmp_path / "run")
    assert content(tmp_path / "run" / "policy") == content(path / "policy")
    ours, theirs = (json.loads((p / "fitted.json").read_text()) for p in (tmp_path / "run", path))
    assert ours["forecast"] == theirs["forecast"]
    assert ours["notes"] == theirs["notes"]


@pytest.mark.parametrize("fit", [fit_log, fit_env])
def test_a_fit_in_a_folder_comes_to_the_policy_of_one_without(whole, tmp_path, fit):
    fit(None).policy.save(tmp_path / "policy")
    assert content(tmp_path / "policy") == content(whole[fit][0] / "policy")


def test_a_fit_that_is_killed_before_its_mark_comes_to_the_same_policy(whole, tmp_path):
    """All is done then but to say so."""
    path = whole[fit_log][0]
    shutil.copytree(path, tmp_path / "run")
    (tmp_path / "run" / "done").unlink()
    resume(tmp_path / "run")
    assert content(tmp_path / "run" / "policy") == content(path / "policy")


def test_a_fit_that_is_done_is_read(whole):
    path = whole[fit_log][0]
    with pytest.MonkeyPatch.context() as patch:
        shelf = Dying(patch)
        assert resume(path).budget_range == bmdp.load_policy(path).budget_range
    assert shelf.kept == 0


def test_an_environment_that_breaks_loses_no_round(tmp_path):
    Rickety.left = 80  # in the third round or later
    with pytest.raises(EnvError, match="Rickety-v0 failed while it was played: RuntimeError: the"):
        bmdp.fit(ENV, episodes=100, out=tmp_path / "run")
    rounds = sorted(path.name for path in (tmp_path / "run" / "steps" / "rounds").glob("*.npz"))
    assert rounds[:2] == ["0.npz", "1.npz"]
    kept = content(tmp_path / "run" / "steps" / "rounds")
    resume(tmp_path / "run").save(tmp_path / "resumed")
    assert kept.items() <= content(tmp_path / "run" / "steps" / "rounds").items()
    bmdp.fit(ENV, episodes=100).policy.save(tmp_path / "unbroken")
    assert content(tmp_path / "resumed") == content(tmp_path / "unbroken")


# Damage


STEPS = ("log.npz", "prices.json", "candidates/table/policy/policy.json")
STEPS = (*STEPS, "candidates/table/policy/weights.safetensors", "candidates/table/all.json")


@pytest.mark.parametrize("text", ["", "[1, 2", "{}"])
@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_is_damaged_is_named_with_what_to_do(whole, tmp_path, name, text):
    shutil.copytree(whole[fit_log][0], tmp_path / "run")
    (tmp_path / "run" / "done").unlink()
    (tmp_path / "run" / "steps" / name).write_text(text)
    place = name.removesuffix("/policy.json").removesuffix("/weights.safetensors")
    with pytest.raises(StoreError, match=rf"{place} is damaged: delete it, and resume"):
        resume(tmp_path / "run")


def test_a_log_that_is_missing_is_an_error(whole, tmp_path):
    shutil.copytree(whole[fit_log][0], tmp_path / "run")
    (tmp_path / "run" / "done").unlink()
    (tmp_path / "run" / "steps" / "log.npz").unlink()
    with pytest.raises(StoreError, match="does not hold the log that the run began with"):
        resume(tmp_path / "run")


@pytest.mark.parametrize("text", ["", "[]", "{}"])
def test_a_damaged_end_is_named_with_what_to_do(whole, tmp_path, text):
    shutil.copytree(whole[fit_log][0], tmp_path / "run")
    (tmp_path / "run" / "fitted.json").write_text(text)
    with pytest.raises(StoreError, match=r"fitted.json is damaged: .* Delete .*done, and resume"):
        resume(tmp_path / "run")
    (tmp_path / "run" / "done").unlink()
    resume(tmp_path / "run")
    path = whole[fit_log][0]
    assert content(tmp_path / "run" / "policy") == content(path / "policy")


# Settings that a run is resumed with


def test_a_limit_of_steps_stays(tmp_path):
    spec = replace(gymnasium.spec(ferries.ENV), max_episode_steps=2)
    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        Dying(patch, 1)
        bmdp.fit(spec, episodes=60, out=tmp_path / "run")
    resume(tmp_path / "run")
    steps = [
        int(np.load(path)["step"].max())
        for path in (tmp_path / "run" / "steps" / "rounds").glob("*.npz")
    ]
    assert len(steps) > 2
    assert max(steps) == 1


def test_rounds_that_time_cut_off_stay_cut_off(tmp_path, monkeypatch):
    """The clock begins anew when a run is resumed."""
    monkeypatch.setattr(expedition, "_SOON", 0.0)
    how = {"episodes": 100, "minutes": 1e-6}
    bmdp.fit(ferries.ENV, **how, out=tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        Dying(patch, last="prices.json")  # after exploring
        bmdp.fit(ferries.ENV, **how, out=tmp_path / "run")
    monkeypatch.setattr(expedition, "_SOON", 5.0)
    resume(tmp_path / "run")
    assert content(tmp_path / "run" / "policy") == content(tmp_path / "whole" / "policy")


# Workers


@pytest.mark.slow
def test_any_number_of_workers_comes_to_the_same_policy(tmp_path):
    for workers in (1, 4):
        found = bmdp.fit("corridors", episodes=300, workers=workers, device="cpu")
        found.policy.save(tmp_path / str(workers))
    assert content(tmp_path / "1") == content(tmp_path / "4")
