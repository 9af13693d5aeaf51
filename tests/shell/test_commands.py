"""Every command and every block of Python on the pages works as it is shown.

`pages.reading` has the rules.
"""

import re
import socket

import pytest

from pages.reading import PAGES, SLOW, PageError, read_makefile
from pages.rules import RuleError
from pages.running import compare, follow, follow_page

LONG = [page for page in PAGES if SLOW in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_tells_to_type_works(page, tmp_path):
    follow_page(page, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", LONG, ids=lambda page: page.name)
def test_what_a_page_tells_to_type_and_takes_longer_works(page, tmp_path):
    follow_page(page, tmp_path, with_slow=True)


@pytest.mark.slow
def test_what_the_makefile_tells_to_run_works(tmp_path):
    snippets = read_makefile()
    assert len(snippets) > 1
    assert follow(snippets, tmp_path) == snippets


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# What is run and what is not


def followed(text, tmp_path, **how):
    """What of a page was run."""
    page = tmp_path / "page.md"
    page.write_text(text)
    (tmp_path / "work").mkdir()
    return [s.text for s in follow_page(page, tmp_path / "work", **how)]


def test_commands_and_blocks_find_what_those_before_them_made(tmp_path):
    text = """
```python title="boat.py"
EARNS = (1.0, 3.0)
```
```python
import boat
from bmdp.policies import HullPolicy, TabularQ
q = TabularQ(q_r=[[[0.0], list(boat.EARNS[1:])]], q_c=[[[0.0], [1.0]]])
HullPolicy(q, beta_grid=[0.0]).save("policy")
print("saved", len(boat.EARNS))
```
It prints
```output
saved 2
```
```python
>>> len(boat.EARNS), "policy"
(2, 'pol...')

```
```
# a comment
bmdp export policy \\
    --out policy.onnx && bmdp solve --textbook branches --plot way.png
```
"""
    assert len(followed(text, tmp_path)) == 4
    assert (tmp_path / "work" / "policy.onnx").is_file()
    assert (tmp_path / "work" / "way.png").is_file()


@pytest.mark.parametrize(
    "text",
    [
        "Use `bmdp train`, `bmdp train --data`, `bmdp run driving` or `bmdp play RUN --budget 1`.",
        "```console\n$ pip install -c constraints.txt '.[data]' torch\n$ make demo WORKERS=1\n```",
        "```\nexport A=1\ncd bmdp && python -m venv .venv\n```\n\n```text\nbmdp nothing\n```",
        "See `python benchmarks/NAME.py --out x`, which is one of many.",
        "How long does `python -c pass` take?",
        "See `python benchmarks/finite.py --out x`, and `bmdp envs --help`.",
        "<!-- slow -->\n\n```\nbmdp envs\n```\n\n<!-- slow -->\n```python\n1 / 0\n```",
        "<!-- slow -->\n# A page\n\n```python\n1 / 0\n```",
    ],
)
def test_what_cannot_be_run_is_not_run(text, tmp_path):
    assert followed(text, tmp_path) == []


def test_what_is_slow_is_run_where_it_is_asked_for(tmp_path):
    text = "<!-- slow -->\n```python\na = 1\n```\n```python\na\n```"
    assert followed(text, tmp_path, with_slow=True) == ["a = 1", "a"]


def test_what_a_page_shows_is_compared(tmp_path):
    text = """
```console
$ bmdp solve --textbook ladder --method bvi
bvi: the paper's operator can stay below the optimum; compare --method optimal
...
$ bmdp solve --textbook nothing
error: ...
$ bmdp report nowhere
...
$ echo $?
1
```
```console
$ bmdp run theory --preset best --seeds 0:4 --out x
^Cstopped; go on with: bmdp run theory --preset best --seeds 0:4 --device cpu --threads 1 --out x
```
"""
    assert len(followed(text, tmp_path)) == 4


def test_a_service_answers_until_the_page_ends(tmp_path):
    port = free_port()
    text = f"""
```python
from bmdp.policies import HullPolicy, TabularQ
HullPolicy(TabularQ(q_r=[[[0.0]]], q_c=[[[0.0]]]), beta_grid=[0.0]).save("policy")
```
```console
$ bmdp serve policy --port {port}
serving policy (HullPolicy, budgets 0 to 0) at http://127.0.0.1:{port}; ...
^Cstopped
```
```console
$ curl -s http://127.0.0.1:{port}/start --json '{{"states": [0], "budgets": 0.0}}'
{{"tracker":...,"budgets":[0.0]}}
```
"""
    assert len(followed(text, tmp_path)) == 3


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ("a  b", "a b\n"),
        ("a\n...\nd", "a\nb\nc\nd\n"),
        ("...", "a\nb"),
        ("it took 3 s, and 10 minutes", "it took 1,200.5 s, and 9 minutes"),
        ("name  seconds  cost\nx  1.5  2\n\n1.5 is it", "name  seconds  cost\nx  9  2\n1.5 is it"),
        ("<a 0x...>", "<a 0x7f12>"),
        ("b", "a\nb\nc"),
    ],
)
def test_what_is_printed_may_look_different_in_these_ways(shown, told):
    compare(shown.splitlines(), told, errors="a\nc" if shown == "b" else "")


@pytest.mark.parametrize(
    ("shown", "told", "said"),
    [
        ("a 1.25", "a 1.26", "'a 1.26', not 'a 1.25'"),
        ("a\nb", "b\na", "'b', not 'a'"),
        ("a", "a\nb", "['b'], too, which is not shown"),
        ("a\nc", "a\nb\nc", "'b', not 'c'"),
        ("a\nb", "a", "did not print 'b'"),
        ("x  cost\nx  1.5", "x  cost\nx  2", "not 'x  1.5'"),
        ("seconds  cost\n1  2", "seconds  cost\n1  3", "not '1  2'"),
    ],
)
def test_what_is_printed_may_not_differ_otherwise(shown, told, said):
    with pytest.raises(RuleError, match=re.escape(said)):
        compare(shown.splitlines(), told)


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
        ("bmdp report nowhere", "it ended with 1; it printed: error: "),
        ("python examples/nothing.py", "there is no examples/nothing.py"),
        ("python benchmarks/finite.py --in x", "unrecognized arguments: --in x"),
        ('python benchmarks/dial.py "goals rod" --out x', "no study is called goals rod"),
        ("python -c 'print()'", "no rule covers what python is to run"),
        ("make dmeo", "the Makefile has no target 'dmeo'"),
        ("pip install 'bmdp[dta]'", "there is no extra 'dta'"),
        ("pip install -r needed.txt", "there is no file 'needed.txt'"),
        ("pip install rich pandsa", "pyproject.toml does not name 'pandsa'"),
        ("curl http://127.0.0.1:1", "it ended with 7"),
        ("bmdp envs | sort", "no rule covers '|' of the shell"),
        ("conda install bmdp", "no rule covers 'conda': add one to CHECKED"),
    ],
)
def test_a_wrong_command_is_told_with_its_page_and_line(command, told, tmp_path):
    with pytest.raises(PageError) as error:
        followed(f"# A page\n\n```console\n$ make\n$ {command}\n```\n", tmp_path)
    message = str(error.value)
    assert message.startswith(f"page.md, line 5 (block of line 3): {command}\n")
    assert told in " ".join(message.replace("│", " ").split())


@pytest.mark.parametrize(
    ("text", "where", "told"),
    [
        ("Use\n`bmdp evaluate\nrun --all`.", "line 2: bmdp evaluate run", "has no option --all"),
        ("```python\nx = 1\ny = z\n```", "line 2 (block of line 1): x", "in line 3: name 'z'"),
        ("```console\n$ bmdp envs\npolicy: x\n```", "line 2", "not 'policy: x'"),
        ("```python\nprint(1)\n```\n```output\n2\n```", "line 2", "it printed '1', not '2'"),
        ("```output\n2\n```", "line 1: ```output", "no Python printed it"),
        ("```python\n>>> 1\n2\n```", "line 2 (block of line 1): >>> 1", "Expected"),
        ('```text title="examples"\na\n```', "line 2 (block of line 1): a", "there already"),
        ("```console\npolicy: x\n```", "line 2", "a console begins with `$ `"),
        ("```rust\n```", "line 1: ```rust", "no rule says what this language is"),
        ("So:\n\n    $ bmdp envs", "line 3", "commands stand in fenced blocks"),
    ],
)
def test_what_else_is_wrong_is_told_with_its_line(text, where, told, tmp_path):
    with pytest.raises(PageError) as error:
        followed(text, tmp_path)
    assert str(error.value).startswith(f"page.md, {where}")
    assert told in str(error.value)
