"""Every command and every block of Python on the pages works, at a small size.

`pages.running` says how they are run, `pages.rules` what is only checked. Blocks with `>>>` are run
by pytest itself.
"""

import shlex
import tomllib

import pytest

from pages.reading import PAGES, ROOT, PageError, read_makefile, read_page
from pages.rules import small
from pages.running import Reader, follow_page

LONG = ("results.md",)  # runs and reports all experiments
BY_LENGTH = [
    pytest.param(page, marks=pytest.mark.slow) if page.name in LONG else page for page in PAGES
]


@pytest.mark.parametrize("page", BY_LENGTH, ids=lambda page: page.name)
def test_what_a_page_tells_to_type_works(page, tmp_path, monkeypatch):
    follow_page(page, tmp_path, monkeypatch)


def test_what_the_makefile_tells_to_run_works(tmp_path, monkeypatch):
    snippets = read_makefile()
    assert len(snippets) > 1
    assert Reader(tmp_path, monkeypatch).follow(snippets) == snippets


def test_pytest_runs_the_examples_of_all_pages():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert "--doctest-glob=*.md" in options["addopts"].split()
    for page in PAGES:
        if any(snippet.kind == "doctest" for snippet in read_page(page)):
            assert {page.name, page.parent.name} & set(options["testpaths"]), page


# What is run and what is not


def followed(text, tmp_path, monkeypatch):
    """What of a page was run."""
    page = tmp_path / "page.md"
    page.write_text(text)
    (tmp_path / "work").mkdir()
    return [s.text for s in follow_page(page, tmp_path / "work", monkeypatch)]


def test_commands_find_what_those_before_them_made(tmp_path, monkeypatch):
    text = """
With `bmdp fit --data log.parquet --gamma 1 --out run` from a log, or

```
# by exploring
bmdp train corridors \\
    --out run   # in place of the other
bmdp evaluate run --json && bmdp play run --budget 0.3 --out way.png
```

```python
import bmdp
policy = bmdp.load_policy("run")
```
```python
policy.save("policy")
```
"""
    assert len(followed(text, tmp_path, monkeypatch)) == 5
    assert (tmp_path / "work" / "way.png").is_file()
    assert (tmp_path / "work" / "policy").is_dir()


@pytest.mark.parametrize(
    "text",
    [
        "Use `bmdp train`, `bmdp train --data`, `bmdp run driving` or `bmdp play RUN --budget 1`.",
        "```console\n$ pip install -c constraints.txt '.[data]' torch\n$ make demo WORKERS=1\n```",
        "```\nRAY_ADDRESS=there:1 bmdp run driving --preset paper --engine ray --out x\n```",
        "```\ncd bmdp && python -m venv .venv\n```\n\n```text\nbmdp nothing\n```",
        "```python\n>>> 1 + 1\n2\n\n```",
        "See `python benchmarks/NAME.py --out x`, which is one of many.",
    ],
)
def test_what_cannot_be_run_is_not_run(text, tmp_path, monkeypatch):
    assert followed(text, tmp_path, monkeypatch) == []


def test_what_a_page_shows_is_compared(tmp_path, monkeypatch):
    text = """
```console
$ bmdp solve --textbook ladder --method bvi
bvi: the paper's operator can stay below the optimum; compare --method optimal
...
$ bmdp train --data log.parquet --gamma 1 --out run --set held_out=0.5
predicted from 5,000 episodes that were not learned from
$ bmdp run theory --out x
^Cstopped; go on with: bmdp run theory --preset quick --seeds 0:9 --device cpu --threads 1 --out x
```
"""
    assert len(followed(text, tmp_path, monkeypatch)) == 3


@pytest.mark.parametrize(
    ("command", "smaller"),
    [
        ("run x --seeds=3,4 --out y", "run x --seeds=0:1 --out y --preset smoke --device cpu"),
        ("evaluate run --device cuda --workers 4 --episodes 9", None),
        ("train --resume run", "train --resume run"),
        ("fit two-way --out x", "fit two-way --out x --episodes 60 --minutes 0.01"),
        ("fit --data x.npz --workers 2", "fit --data x.npz --workers 1"),
        ("calibrate run --out x", "calibrate run --out x --episodes 50"),
        ("report run", "report run --episodes 50"),
    ],
)
def test_commands_are_made_small_where_they_are_not(command, smaller):
    smaller = smaller or "evaluate run --device cpu --workers 1 --episodes 50"
    verb, *words = shlex.split(command)
    assert [verb, *small(verb, words)] == shlex.split(smaller)


# What is wrong is told


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("bmdp solve --textbok ladder", "bmdp solve has no option --textbok"),
        ("bmdp evaluate run --episodes many", "--episodes"),
        ("bmdp evaluate", "Missing argument"),
        ("bmdp train corridors", "needs out or resume"),
        ("bmdp fit corridors", "needs out or resume"),
        ("bmdp calibrate run --confidnce 0.9", "bmdp calibrate has no option --confidnce"),
        ("bmdp calibrate run", "Missing option '--out'"),
        ("bmdp trian corridors --out run", "bmdp has no verb 'trian'"),
        ("bmdp run slot-filing --preset quick --out x", "Did you mean 'slot-filling'?"),
        ("bmdp run slot-filling --preset qick --out x", "Did you mean 'quick'?"),
        ("bmdp run driving --prest paper --engine ray --out x", "has no option --prest"),
        ("bmdp train corridors --set learner.gama=1 --out x", "Did you mean 'gamma'?"),
        ("bmdp report nowhere", "it ended with 1; run as: bmdp report nowhere --episodes 50"),
        ("python examples/nothing.py", "there is no examples/nothing.py"),
        ("python benchmarks/finite.py --in x", "unrecognized arguments: --in x"),
        ('python benchmarks/dial.py "goals rod" --out x', "no study is called goals rod"),
        ("python -c 'print()'", "no rule covers what python is to run"),
        ("make dmeo", "the Makefile has no target 'dmeo'"),
        ("pip install 'bmdp[dta]'", "there is no extra 'dta'"),
        ("pip install -r needed.txt", "there is no file 'needed.txt'"),
        ("pip install rich pandsa", "pyproject.toml does not name 'pandsa'"),
        ("tensorboard --logdir x", "no command of the page has made 'x'"),
        ("bmdp envs | sort", "no rule covers '|' of the shell"),
        ("conda install bmdp", "no rule covers 'conda': add one to CHECKED"),
    ],
)
def test_a_wrong_command_is_told_with_its_page_and_line(command, told, tmp_path, monkeypatch):
    with pytest.raises(PageError) as error:
        followed(f"# A page\n\n```console\n$ make\n$ {command}\n```\n", tmp_path, monkeypatch)
    message = str(error.value)
    assert message.startswith(f"page.md, line 5 (block of line 3): {command}\n")
    assert told in " ".join(message.replace("│", " ").split())


@pytest.mark.parametrize(
    ("text", "where", "told"),
    [
        ("Use\n`bmdp evaluate\nrun --all`.", "line 2: bmdp evaluate run", "has no option --all"),
        ("```python\nx = 1\ny = z\n```", "line 2 (block of line 1): x", "in line 3: name 'z'"),
        ("```console\n$ bmdp envs\npolicy: x\n```", "line 2", "did not print 'policy: x'"),
        ("```console\npolicy: x\n```", "line 2", "a console begins with `$ `"),
        ("```rust\n```", "line 1: ```rust", "no rule says what this language is"),
        ("So:\n\n    $ bmdp envs", "line 3", "commands stand in fenced blocks"),
        ("`bmdp train mine:Boat-v0 --out x`", "line 1", "the page has no class Boat"),
    ],
)
def test_what_else_is_wrong_is_told_with_its_line(text, where, told, tmp_path, monkeypatch):
    with pytest.raises(PageError) as error:
        followed(text, tmp_path, monkeypatch)
    assert str(error.value).startswith(f"page.md, {where}")
    assert told in str(error.value)
