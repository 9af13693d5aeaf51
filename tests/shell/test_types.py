"""Code of a user passes checkers of types, against the package as it is installed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bmdp

CODE = Path(__file__).parents[1] / "outside.py"
PACKAGE = Path(bmdp.__file__).parent
WRONG = (
    "bmdp.nonsense",
    "bmdp.fit('log.parquet', gama=1.0)",
    "bmdp.hull_mixture(0.5)",
    "bmdp.fit('log.parquet').policy.startt([0], 0.5)",
    "print(bmdp.BFTQConfig(gamma='a').gamma)",
)


def installed(folder):
    """A copy of the package where a checker takes it for one of somebody else."""
    place = folder / "site"
    shutil.copytree(PACKAGE, place / "bmdp", ignore=shutil.ignore_patterns("__pycache__"))
    return place


@pytest.mark.slow
def test_mypy_finds_nothing_in_code_of_a_user_but_what_is_wrong(tmp_path):
    code = CODE.read_text() + "\n".join(WRONG) + "\n"
    (tmp_path / "code.py").write_text(code)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir=cache"]
    where = os.environ | {"MYPYPATH": "", "PYTHONPATH": str(installed(tmp_path))}
    done = subprocess.run(
        [*command, "code.py"], cwd=tmp_path, env=where, capture_output=True, text=True
    )
    lines = {int(n) for n in re.findall(r"^code\.py:(\d+): error:", done.stdout, re.MULTILINE)}
    end = code.count("\n")
    assert lines == set(range(end - len(WRONG) + 1, end + 1)), done.stdout


def test_the_package_says_that_it_has_types():
    assert (PACKAGE / "py.typed").is_file()
