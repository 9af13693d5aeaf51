"""Parts of a release agree: version, changelog, citation, workflow, lowest versions."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

import bmdp

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def loaded(path):
    return yaml.safe_load((ROOT / path).read_text())


# The version


def test_the_version_is_the_newest_in_the_changelog():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    number, told = re.search(r"^## (\S+)(?: \((\S+)\))?$", changelog, re.MULTILINE).groups()
    assert bmdp.__version__ == (f"{number}.dev0" if told == "unreleased" else number)


def test_the_citation_is_of_the_version_and_the_date_in_the_changelog():
    citation = loaded("CITATION.cff")
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert f"\n## {citation['version']} ({citation['date-released']})\n" in changelog
    assert citation["version"] == bmdp.__version__.removesuffix(".dev0")
    assert citation["license"] == PROJECT["license"]


# Continuous integration


JOBS = [
    pytest.param(job, id=f"{path.stem}-{name}")
    for path in WORKFLOWS
    for name, job in loaded(path)["jobs"].items()
]


def commands(job):
    """What the steps of a job run, once for every entry of its matrix."""
    matrix = job.get("strategy", {}).get("matrix", {})
    for step in job["steps"]:
        texts = [step.get("run", "")]
        for key, values in matrix.items():
            place = f"${{{{ matrix.{key} }}}}"
            texts = [text.replace(place, str(v)) for text in texts for v in values]
        yield from texts


def asked_targets(job):
    """Targets that a job makes."""
    for text in commands(job):
        words = shlex.split(text)
        if words[:1] == ["make"]:
            yield from (word for word in words[1:] if "=" not in word)


@pytest.mark.parametrize("job", JOBS)
def test_a_job_makes_targets_that_are_there(job):
    asked = set(asked_targets(job))
    assert asked
    assert asked <= TARGETS


@pytest.mark.parametrize("job", JOBS)
def test_a_job_ends_by_itself_and_checks_out_before_all(job):
    assert 0 < job["timeout-minutes"] <= 90
    assert job["steps"][0]["uses"].startswith("actions/checkout@")
    pythons = [s["with"]["python-version"] for s in job["steps"] if "python-version" in str(s)]
    assert len(pythons) == 1


def test_all_is_checked_on_every_version_of_python_that_is_promised():
    promised = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if "Python :: 3." in c}
    found = loaded(".github/workflows/ci.yml")["jobs"]
    for name in ("tests", "wheel"):
        assert set(found[name]["strategy"]["matrix"]["python"]) == promised
    made = {target for job in found.values() for target in asked_targets(job)}
    assert {"lint", "types", "compiled", "tests", "docs", "dist", "lowest"} <= made


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=str
)
def test_a_form_of_an_issue_asks_for_something(path):
    form = loaded(path)
    assert {"name", "description", "body"} <= set(form)
    names = [part["id"] for part in form["body"]]
    assert len(names) == len(set(names)) > 1
    assert any(part.get("validations", {}).get("required") for part in form["body"])


# Dependencies


def lower_bounds():
    """The lowest version that is allowed, by name, of the core and of what users add to it."""
    extras = PROJECT["optional-dependencies"]
    added = [text for name in set(extras) - {"dev", "docs"} for text in extras[name]]
    return dict(text.split(">=") for text in (*PROJECT["dependencies"], *added))


def test_the_lowest_versions_that_are_tested_are_those_that_are_allowed():
    lines = (ROOT / "constraints-min.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    allowed = lower_bounds()
    different = {n: (v, tested.get(n)) for n, v in allowed.items() if not same(v, tested.get(n))}
    assert different == {"torch": ("2.4", "2.13.0")}  # constraints-min.txt says why


def same(version, other):
    """Whether two versions are the same but for zeros at the end."""
    return other is not None and re.sub(r"(\.0)+$", "", version) == re.sub(r"(\.0)+$", "", other)
