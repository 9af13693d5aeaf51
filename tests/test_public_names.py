import importlib
import re
import types
from pathlib import Path

import pytest

import bmdp

PACKAGES = [
    "bmdp",
    "bmdp.data",
    "bmdp.envs",
    "bmdp.envs.corridors",
    "bmdp.envs.slot_filling",
    "bmdp.envs.two_way",
    "bmdp.evaluate",
    "bmdp.exact",
    "bmdp.frontier",
    "bmdp.learn",
    "bmdp.models",
    "bmdp.policies",
]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_what_is_exported(name):
    package = importlib.import_module(name)
    submodules = {p.stem for p in Path(package.__file__).parent.iterdir() if p.stem != "__init__"}
    public = {
        n
        for n, value in vars(package).items()
        if not n.startswith("_") and not (isinstance(value, types.ModuleType) and n in submodules)
    }
    listed = set(package.__all__) - {"__version__"} - set(getattr(package, "_LEARNING", ()))
    modules = {n for n in listed if isinstance(getattr(package, n), types.ModuleType)}
    assert listed - modules == public


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_is_documented(name):
    package = importlib.import_module(name)
    for public in set(package.__all__) - {"__version__"}:
        assert getattr(package, public).__doc__, public


def test_the_version_is_the_newest_in_the_changelog():
    changelog = Path(__file__).parents[1] / "CHANGELOG.md"
    assert re.search(r"^## (\S+)", changelog.read_text(), re.MULTILINE)[1] == bmdp.__version__


def test_every_error_belongs_to_the_tree():
    errors = [v for v in vars(bmdp.errors).values() if isinstance(v, type)]
    assert all(issubclass(error, bmdp.BmdpError) for error in errors)
    drawn = set(re.findall(r"(\w+)(?:\(|\n)", bmdp.errors.__doc__))
    assert {error.__name__ for error in errors} <= drawn
