from dataclasses import replace
from pathlib import Path

import pytest

from bmdp import ConfigError, StoreError
from bmdp.cli.options import parse_seeds
from bmdp.experiments import catalog
from bmdp.experiments.catalog import CATALOG, experiment, settings_of
from bmdp.experiments.running import machine
from bmdp.experiments.running.spec import ExperimentSpec, asked_spec, seeds_text
from tiny_experiments import COUNT, COUNTING, LONG, TRAINING, Size

NAME = "tiny_experiments:COUNTING"


# The catalog


@pytest.mark.parametrize("name", CATALOG)
def test_every_experiment_has_its_name_a_question_and_all_sizes(name):
    found = experiment(name)
    assert found.name == name
    assert found.question.endswith("?")
    assert set(found.presets) == {"smoke", "quick", "paper", "best"}


def test_an_experiment_of_ones_own_is_found_by_its_module():
    assert experiment(NAME) is COUNTING
    assert settings_of(NAME, "quick") == Size(2)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("slot-fillin", r"no experiment is called 'slot-fillin'.*Did you mean 'slot-filling'\?"),
        ("nothing:AT_ALL", "no experiment can be found as 'nothing:AT_ALL'"),
        ("tiny_experiments:COUNT_ME", "has no attribute 'COUNT_ME'"),
        ("tiny_experiments:LONG", "is no Experiment, but a ExperimentSpec"),
    ],
)
def test_what_is_no_experiment_is_told(name, words):
    with pytest.raises(ConfigError, match=words):
        experiment(name)


def test_an_unknown_size_names_the_nearest():
    with pytest.raises(ConfigError, match=r"no preset of .* 'smok'.*Did you mean 'smoke'\?"):
        settings_of(NAME, "smok")


# What is asked


def test_seeds_are_as_many_as_the_preset_says():
    assert asked_spec("tiny_experiments:TRAINING", "quick").seeds == (0, 1, 2)
    assert asked_spec(NAME, "quick").seeds == (0,)
    assert asked_spec(NAME, "quick", seeds=[7, 3]).seeds == (7, 3)


def test_the_device_is_one_that_is_here():
    assert asked_spec(NAME, "quick").device in ("cpu", "cuda")
    assert asked_spec(NAME, "quick", device="cuda:3").device_kind == "cuda"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": ()}, "seeds must be at least one"),
        ({"seeds": (1, 1)}, r"seeds must be .* each once; got \[1, 1\]"),
        ({"seeds": (-1,)}, "seed must be"),
        ({"threads": 0}, "threads must be"),
        ({"experiment": "tiny_experiments:UNSPEAKABLE"}, "size must be something that JSON can"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        replace(COUNT, **changes)


def test_the_command_says_all_that_was_asked():
    assert replace(COUNT, device="cuda:1").command("my folder").split(" ", 3)[3] == (
        "--preset smoke --seeds 0:2 --device cuda --threads 1 --out 'my folder'"
    )


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2), (4, 5), (7, 3), (2, 4)])
def test_seeds_are_read_as_they_are_written(seeds):
    assert parse_seeds(seeds_text(seeds)) == seeds


# Whether a folder is of the same


def header_of(spec):
    return spec.header("folder")


def test_what_is_written_is_of_the_same_spec():
    LONG.require_same(header_of(LONG), "folder")
    replace(LONG, device="cuda:1").require_same(header_of(replace(LONG, device="cuda")), "folder")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seeds": (0, 1, 2)}, r"its seeds is \[0, 1\], asked is \[0, 1, 2\]"),
        ({"threads": 2}, "its threads is 1, asked is 2"),
        ({"device": "cuda"}, "its device is 'cpu', asked is 'cuda'"),
        ({"preset": "quick"}, "its preset is 'smoke', asked is 'quick'; its settings.size is 1"),
    ],
)
def test_what_differs_is_named(changes, told):
    with pytest.raises(StoreError, match=f"folder is of another spec: {told}"):
        replace(COUNT, **changes).require_same(header_of(COUNT), "folder")


def test_settings_that_were_changed_since_are_another_spec(monkeypatch):
    header = header_of(COUNT)
    changed = replace(COUNTING, presets={"smoke": Size(1, ("cm", "lb"))})
    monkeypatch.setattr("tiny_experiments.COUNTING", changed)
    with pytest.raises(StoreError, match=r"settings.unit is \['cm', 'kg'\], asked is \['cm', 'lb'"):
        COUNT.require_same(header, "folder")


def test_of_many_differences_some_are_named():
    other = ExperimentSpec(LONG.experiment, "quick", (3,), "cuda", 2)
    with pytest.raises(StoreError, match=r"; and 5 more\. Choose another folder"):
        other.require_same(header_of(LONG), "folder")


def test_the_header_says_where_results_come_from():
    header = header_of(COUNT)
    assert header["machine"]["cores"] >= 1
    assert header["machine"]["processor"]
    assert {"bmdp", "torch"} <= set(header["versions"])
    assert header["began"].endswith("+00:00")
    assert header["settings"] == {"size": 1, "unit": ["cm", "kg"]}


def test_a_machine_says_what_it_knows_of_itself(monkeypatch):
    monkeypatch.setattr(machine, "_PROCESSORS", Path("nowhere"))
    monkeypatch.setattr(machine.platform, "processor", lambda: "")
    monkeypatch.setattr(machine.os, "sysconf", lambda name: int(name))
    monkeypatch.setattr(machine.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(machine.torch.cuda, "get_device_name", lambda: "H200")
    found = machine.machine()
    assert found["processor"] == machine.platform.machine()
    assert (found["memory"], found["gpu"]) == (None, "H200")


def test_the_catalog_imports_nothing_until_it_is_asked():
    assert all(module.startswith(f"{catalog.__name__}.") for module in CATALOG.values())
    assert TRAINING.name not in CATALOG
