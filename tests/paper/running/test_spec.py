"""Experiments by name, and whether a folder is of what is asked."""

import json
from dataclasses import replace

import pytest

import tiny_experiments
from bmdp import ConfigError, StoreError
from bmdp.cli.options import parse_seeds
from bmdp.paper import CATALOG, experiment
from bmdp.paper.runner import ExperimentSpec, asked_spec
from bmdp.settings import plain
from tiny_experiments import COUNT, COUNTING, LONG, Size

NAME = COUNT.experiment


@pytest.mark.parametrize("name", CATALOG)
def test_every_experiment_of_the_catalog_has_a_question_and_all_sizes(name):
    found = experiment(name)
    assert found.QUESTION.endswith("?")
    assert set(found.SETTINGS) >= {"smoke", "quick", "paper", "best"}
    for settings in found.SETTINGS.values():
        assert settings.n_seeds >= 1
        assert json.loads(json.dumps(plain(settings), allow_nan=False)) == plain(settings)


def test_an_experiment_of_ones_own_is_an_attribute_or_a_module(tmp_path, monkeypatch):
    assert experiment(NAME) is COUNTING
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "question.py").write_text(
        "SETTINGS, PARTS, COMMON = {'smoke': None}, ('',), ()\ndef run(settings, work): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert ExperimentSpec("mine.question", "smoke", (0,)).settings is None


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("slot-fillin", ["'slot-fillin'", "'slot-filling'?"]),
        ("nothing:AT_ALL", ["'nothing:AT_ALL'", "'nothing'"]),
        ("tiny_experiments:COUNT_ME", ["'COUNT_ME'"]),
        ("tiny_experiments:LONG", ["'tiny_experiments:LONG'", "SETTINGS, PARTS, COMMON, run"]),
        ("no.such.module", ["'no.such.module'"]),
        (":", ["':'"]),
    ],
)
def test_what_is_no_experiment_is_told(name, facts):
    with pytest.raises(ConfigError) as told:
        experiment(name)
    assert all(fact in str(told.value) for fact in facts)


def test_seeds_are_as_many_as_the_preset_says_and_none_that_settings_were_chosen_on():
    assert asked_spec(LONG.experiment, "quick").seeds == (100, 101, 102)
    assert asked_spec(NAME, "quick").seeds == (100,)
    assert asked_spec(NAME, "quick", seeds=[7, 3]).seeds == (7, 3)


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"seeds": ()}, "seeds"),
        ({"seeds": (1, 1)}, r"seeds.*\[1, 1\]"),
        ({"seeds": (-1,)}, "seed.*-1"),
        ({"threads": 0}, "threads.*0"),
        ({"preset": "smok"}, "'smok'.*'smoke'"),
        ({"experiment": "tiny_experiments:UNSPEAKABLE"}, "size"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, facts):
    with pytest.raises(ConfigError, match=facts):
        replace(COUNT, **changes)


def test_the_command_says_all_that_was_asked():
    assert replace(COUNT, device="cuda:1").command("my folder").split(" ", 3)[3] == (
        "--preset smoke --seeds 0:2 --device cuda --threads 1 --out 'my folder'"
    )


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2), (4, 5), (7, 3), (2, 4)])
def test_seeds_are_read_as_they_are_written(seeds):
    words = replace(COUNT, seeds=seeds).command("folder").split()
    assert parse_seeds(words[words.index("--seeds") + 1]) == seeds


def test_tasks_are_common_parts_and_then_those_of_each_seed(tmp_path):
    tasks = replace(COUNT, seeds=(0, 3)).tasks(tmp_path)
    assert list(tasks) == ["once", "seed-0", "again/seed-0", "seed-3", "again/seed-3"]
    assert all(work.folder == tmp_path / name for name, work in tasks.items())
    again = tasks["again/seed-3"]
    assert (again.part, again.seed, again.device) == ("again", 3, "cpu")


@pytest.mark.parametrize("seeds", [(0, 1), (1, 0, 7)])
def test_a_folder_of_the_same_spec_may_lack_seeds_and_be_of_another_card(seeds):
    there = replace(LONG, device="cuda").header("folder")
    replace(LONG, device="cuda:1", seeds=seeds).require_same(there, "folder")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seeds": (0, 2)}, r"seeds is \[0, 1\], asked is \[0, 2\]"),
        ({"seeds": (1,)}, r"seeds is \[0, 1\], asked is \[1\]"),
        ({"threads": 2}, "threads is 1, asked is 2"),
        ({"device": "cuda"}, "device is 'cpu', asked is 'cuda'"),
        ({"preset": "quick"}, "preset is 'smoke', asked is 'quick'; its settings.size is 1"),
    ],
)
def test_what_differs_is_named(changes, told):
    with pytest.raises(StoreError, match=f"folder .*{told}"):
        replace(COUNT, **changes).require_same(COUNT.header("folder"), "folder")


def test_settings_that_were_changed_since_are_another_spec(monkeypatch):
    header = COUNT.header("folder")
    changed = replace(COUNTING, SETTINGS={"smoke": Size(1, ("cm", "lb"))})
    monkeypatch.setattr(tiny_experiments, "COUNTING", changed)
    with pytest.raises(StoreError, match=r"settings.unit is \['cm', 'kg'\], asked is \['cm', 'lb'"):
        COUNT.require_same(header, "folder")


def test_of_many_differences_some_are_named():
    other = ExperimentSpec(LONG.experiment, "quick", (3,), "cuda", 2)
    with pytest.raises(StoreError, match="and 5 more"):
        other.require_same(LONG.header("folder"), "folder")


def test_the_header_says_where_results_come_from():
    header = COUNT.header("folder")
    assert header["machine"]["cores"] >= 1
    assert {"bmdp", "torch"} <= set(header["versions"])
    assert header["began"].endswith("+00:00")
    assert header["settings"] == {"size": 1, "unit": ["cm", "kg"]}
