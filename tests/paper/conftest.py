"""An experiment that nothing interrupted."""

import pytest

import tiny_experiments
from bmdp.paper.runner import run_experiment


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """Done by one process."""
    folder = tmp_path_factory.mktemp("whole") / "training"
    assert run_experiment(tiny_experiments.LONG, folder) == ()
    return folder
