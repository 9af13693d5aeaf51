"""Experiments that nothing interrupted, made once for all tests."""

import pytest

import tiny_experiments
from bmdp.paper import experiment
from bmdp.paper.runner import run_experiment
from pieces import done


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """LONG, done by one process."""
    folder = tmp_path_factory.mktemp("whole") / "training"
    assert run_experiment(tiny_experiments.LONG, folder) == ()
    return folder


@pytest.fixture(scope="session")
def smoke(tmp_path_factory):
    """From names to the folders of experiments at their smallest size, seed 3."""
    made = {}

    def folder(name):
        if name not in made:
            made[name] = done(name, experiment(name), tmp_path_factory.mktemp(name))
        return made[name]

    return folder
