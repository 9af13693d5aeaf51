"""The wheel holds the package and nothing else, and works where nothing else is.

The source distribution holds the repository, so that its tests run there.
"""

import email
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from configparser import ConfigParser
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import bmdp

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FIT = """
import numpy as np
import bmdp
from bmdp.models import TableModel

rng = np.random.default_rng(0)
step, hurry = np.arange(600) % 3, rng.integers(2, size=600)
bmdp.TransitionBatch(
    state=step,
    action=hurry,
    reward=1 + 2 * hurry,
    cost=0.2 * hurry,
    next_state=step + 1,
    terminal=step == 2,
    episode=np.arange(600) // 3,
).to_parquet("log.parquet")
log = bmdp.TransitionBatch.from_parquet("log.parquet")
config = bmdp.BFTQConfig(gamma=1.0, budget_range=(0.0, 0.6), model=TableModel())
policy = bmdp.BFTQ(config).fit(log, seed=0).at_step(0)
print(log)
print(*(policy.act([0], budget, rng).action for budget in (0.0, 0.6)))
"""


def has_setuptools():
    """Whether the wheel can be built without fetching what builds it."""
    try:
        return int(version("setuptools").partition(".")[0]) >= 77
    except PackageNotFoundError:
        return False


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, beside tests and pages that must not get into it."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", tree / "src", ignore=left_out)
    (tree / "src/bmdp/__pycache__").mkdir()
    compiled = "src/bmdp/__pycache__/kernel.py311.1.nbc"  # as numba leaves it
    others = ("tests/test_it.py", "docs/index.md", "benchmarks/speed.py", "src/notes.txt")
    for name in (compiled, *others):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text("")
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--wheel-dir", "dist"]
    options = ["--no-build-isolation"] if has_setuptools() else []
    done = subprocess.run([*command, *options], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = (tree / "dist").iterdir()
    return path


@pytest.fixture(scope="module")
def parts(wheel):
    """Contents of the wheel by name."""
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


def about(parts, name):
    return parts[f"bmdp-{bmdp.__version__}.dist-info/{name}"].decode()


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(parts):
    source = ROOT / "src"
    files = {
        path.relative_to(source).as_posix(): path.read_bytes()
        for path in (source / "bmdp").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name: data for name, data in parts.items() if ".dist-info/" not in name} == files
    assert {"bmdp/py.typed", "bmdp/paper/assets/published.csv"} < set(files)


def test_the_wheel_says_what_the_project_says(wheel, parts):
    assert wheel.name == f"bmdp-{bmdp.__version__}-py3-none-any.whl"
    told = email.message_from_string(about(parts, "METADATA"))
    assert (told["Name"], told["Version"]) == (PROJECT["name"], bmdp.__version__)
    assert told["Summary"] == PROJECT["description"]
    assert told["Requires-Python"] == PROJECT["requires-python"]
    assert (told["License-Expression"], told["License-File"]) == (PROJECT["license"], "LICENSE")
    assert about(parts, "licenses/LICENSE") == (ROOT / "LICENSE").read_text()
    assert told["Description-Content-Type"] == "text/markdown"
    assert told.get_payload().strip() == (ROOT / "README.md").read_text().strip()
    needed = [text for text in told.get_all("Requires-Dist") if "extra ==" not in text]
    assert sorted(needed) == sorted(PROJECT["dependencies"])
    assert set(told.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])


def test_the_wheel_installs_the_command(parts):
    points = ConfigParser()
    points.read_string(about(parts, "entry_points.txt"))
    assert dict(points["console_scripts"]) == {"bmdp": "bmdp.cli.main:main"}


@pytest.mark.skipif(not has_setuptools(), reason="needs setuptools")
def test_the_source_distribution_holds_all_that_tests_need(tmp_path):
    tree = tmp_path / "tree"
    left_out = (".*", "build", "out", "__pycache__", "*.egg-info", "*.pyc")
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*left_out))
    shutil.copytree(ROOT / ".github", tree / ".github")
    wanted = {p.relative_to(tree).as_posix() for p in tree.rglob("*") if p.is_file()}
    (tree / "src/bmdp/__pycache__").mkdir()
    for name in ("src/bmdp/__pycache__/kernel.py311.1.nbc", "tests/old.pyc"):
        (tree / name).write_text("")
    code = "from setuptools.build_meta import build_sdist; print(build_sdist('dist'))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (archive,) = (tree / "dist").iterdir()
    top = f"bmdp-{bmdp.__version__}"
    with tarfile.open(archive) as file:
        names = {m.name.removeprefix(f"{top}/") for m in file if m.isfile()}
    made = {name for name in names if ".egg-info/" in name} | {"PKG-INFO", "setup.cfg"}
    assert names - made == wanted


class Place:
    """A virtual environment with a folder to work in, both far from the repository."""

    def __init__(self, folder):
        self.work, self.bin = folder / "work", folder / "venv" / "bin"
        self.work.mkdir()
        venv.create(folder / "venv", with_pip=True)
        ours = ("PYTHON", "COV", "VIRTUAL_ENV")
        self.variables = {k: v for k, v in os.environ.items() if not k.startswith(ours)}

    def run(self, program, *words, fails=False):
        """What a program prints, on stdout, or on stderr if it is to fail."""
        command = [str(self.bin / program), *map(str, words)]
        done = subprocess.run(
            command, cwd=self.work, env=self.variables, capture_output=True, text=True
        )
        assert (done.returncode != 0) == fails, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stderr if fails else done.stdout

    def install(self, what):
        self.run("pip", "install", "--quiet", "-c", ROOT / "constraints.txt", what)


def check_the_command(place):
    assert place.run("bmdp", "--version") == f"bmdp {bmdp.__version__}\n"
    found = place.run("python", "-c", "import bmdp; print(bmdp.__file__)").strip()
    assert Path(found).is_relative_to(place.bin.parent)


def check_an_experiment(place, name, answer):
    """It is run, and its page is made, with script and style."""
    told = place.run("bmdp", "run", name, "--preset", "smoke", "--out", f"runs/{name}")
    assert told == f"folder: runs/{name}\nreport: bmdp report runs/{name}\n"
    told = place.run("bmdp", "report", f"runs/{name}")
    assert answer in told
    assert f"page: runs/{name}/report/index.html\n" in told
    page = (place.work / "runs" / name / "report" / "index.html").read_text()
    for asset in ("page.css", "start.js"):
        assert (ROOT / "src/bmdp/report/assets" / asset).read_text().strip() in page


def check_a_solver(place):
    asked = ("--textbook", "branches", "--method", "bvi", "--budget", "0:1:0.25", "--json")
    found = json.loads(place.run("bmdp", "solve", *asked))
    assert (found["method"], found["converged"]) == ("bvi", True)
    assert [row["budget"] for row in found["rows"]] == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert found["rows"][2]["reward"] == pytest.approx(2.75, abs=1e-6)


def check_a_log(place, wheel):
    """It is learned from once the extra is there."""
    assert "pip install 'bmdp[data]'" in place.run("python", "-c", FIT, fails=True)
    place.install(f"{wheel}[data]")
    told = "TransitionBatch(600 transitions, states of 1 numbers, 2 actions)\n0 1\n"
    assert place.run("python", "-c", FIT) == told


@pytest.mark.slow
def test_the_wheel_works_in_a_clean_environment(wheel, tmp_path):
    place = Place(tmp_path)
    place.install(wheel)
    check_the_command(place)
    check_an_experiment(place, "theory", "On two branches it earns 2.75 where 5 can be had.")
    check_an_experiment(place, "slot-filling", "Filling slots (smoke)\nOne BFTQ model at all")
    check_a_solver(place)
    check_a_log(place, wheel)
