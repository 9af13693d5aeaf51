"""What pages tell their readers to type: commands and blocks of Python, in reading order.

Rules for those who write pages. Fenced blocks are read by their language:

- `console`: lines with `$ ` are commands, the others are what they print. `^C` before a line is the
  reader's: it comes three seconds after the command began.
- none, `sh`, `bash`, `shell`: every line is a command.
- `python`: a piece of a program, or an example with `>>>`. One Python reads all of a page.
- `output`: what the last block of Python without `>>>` has printed.
- any language with `title="NAME"`: a file, which is written with this name: `title="boat.py"`.
- those of `TEXT`: nothing to type.

Everything is run as it is shown, in one empty folder for each page, with links to `examples/`,
`benchmarks/` and `constraints.txt`. A page makes all that it reads. `bmdp serve` stays until the
page ends, and then gets its `^C`; a page with a service takes a port that no other page has.
`curl`, `cat` and `ls` are run; `pip`, `make` and `git` are checked (`pages.rules`). A command with
a word in capitals (`bmdp report RUN`) that is no file is checked, and not run; so is code in a
sentence that begins with one of `PROGRAMS` and goes on after it. Commands must end with 0, or with
1 if they show a line that begins with `error: `; any other end is shown by `$ echo $?`.

What is shown must be printed, line by line, and what is printed on stdout must be shown. A line
`...` stands for any lines, `...` within a line for anything; spaces count as one. Times may differ:
numbers before a unit of time (`in 3 s`), and those of a column that is headed `seconds`.

`<!-- slow -->` before a block leaves that block to `make test-slow`, and those after it that need
it must be marked, too; on the first line of a page it leaves the whole page. Slow is what takes
more than ten seconds. Pages of `docs/paper/` record hours of work: their commands are checked, and
not run.
"""

import re
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELLS = ("", "sh", "bash", "shell")
TEXT = ("text", "bibtex", "mermaid", "json", "csv", "toml", "yaml")
PROGRAMS = ("bmdp", "python", "pip", "make", "pytest", "tensorboard")
FENCE = re.compile(r"^ *(```+|~~~+) *([\w-]*)(?:.* title=\"([^\"]+)\")?")
TIME = re.compile(r"\d[\d.,]*(?= ?(s|ms|µs|seconds?|milliseconds|min|minutes?|h|hours?)\b)")
SLOW = "<!-- slow -->"
SPAN = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Snippet:
    """Something to type. Lines count from 1."""

    page: str
    block: int  # line where the block, or the sentence's code, begins
    line: int
    kind: str  # "command", "inline", "python", "doctest", or "file NAME"
    text: str
    shown: tuple[str, ...] = ()  # what the page says that it prints
    is_slow: bool = False

    @property
    def where(self):
        block = f" (block of line {self.block})" if self.block != self.line else ""
        return f"{self.page}, line {self.line}{block}"


class PageError(AssertionError):
    """A page tells something that does not work."""

    def __init__(self, snippet, problem):
        super().__init__(f"{snippet.where}: {snippet.text.strip()}\n{problem}")


def read_page(path):
    """All that a page tells to type."""
    page = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    lines = path.read_text().splitlines()
    all_slow = lines[:1] == [SLOW]
    snippets, prose, number = [], [], 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        if fence is None:
            prose.append(lines[number])
            number += 1
            continue
        ends = (n for n in range(number + 1, len(lines)) if lines[n].strip() == fence[1])
        end = next(ends, len(lines))
        body = textwrap.dedent("\n".join(lines[number + 1 : end])).splitlines()
        if fence[2] == "output":
            snippets.append(_with_output(page, number + 1, snippets, body))
        else:
            is_slow = all_slow or next((t for t in reversed(prose) if t.strip()), "") == SLOW
            found = _of_block(page, number + 1, fence[2], fence[3], body)
            snippets += [replace(snippet, is_slow=is_slow) for snippet in found]
        prose += [""] * (end - number) + ["."]
        number = end + 1
    return sorted([*snippets, *_of_prose(page, prose)], key=lambda snippet: snippet.line)


def read_makefile(path=ROOT / "Makefile"):
    """The `bmdp` commands of its recipes."""
    lines = enumerate(path.read_text().splitlines(), 1)
    found = ((n, re.match(r"\t@?\$\(BIN\)/(bmdp .*)", line)) for n, line in lines)
    return [Snippet(path.name, n, n, "command", match[1]) for n, match in found if match]


def _of_block(page, line, language, title, body):
    """What a fenced block holds; `line` is that of the fence."""
    if title:
        return [Snippet(page, line, line + 1, f"file {title}", "\n".join(body) + "\n")]
    if language == "python":
        kind = "doctest" if any(text.startswith(">>>") for text in body) else "python"
        return [Snippet(page, line, line + 1, kind, "\n".join(body))]
    if language == "console":
        return _of_console(page, line, body)
    if language in SHELLS:
        commands = ((n, text) for n, text in _joined(line + 1, body) if not text.startswith("#"))
        return [Snippet(page, line, n, "command", text) for n, text in commands if text]
    if language not in TEXT:
        block = Snippet(page, line, line, "block", f"```{language}")
        raise PageError(block, "no rule says what this language is: see tests/pages/reading.py.")
    return []


def _with_output(page, line, snippets, body):
    """The last block of Python, taken from the snippets, with what it prints."""
    last = max((i for i, one in enumerate(snippets) if one.kind == "python"), default=None)
    if last is None or snippets[last].shown:
        raise PageError(Snippet(page, line, line, "block", "```output"), "no Python printed it.")
    return replace(snippets.pop(last), shown=tuple(body))


def _of_console(page, line, body):
    """Commands after `$ `, and what each of them prints."""
    found = []
    for n, text in _joined(line + 1, body):
        if text.startswith("$ "):
            found.append(Snippet(page, line, n, "command", text[2:]))
        elif not found:
            raise PageError(Snippet(page, line, n, "block", text), "a console begins with `$ `.")
        elif text.strip():
            found[-1] = replace(found[-1], shown=(*found[-1].shown, text))
    return found


def _joined(line, body):
    """Lines with their numbers; those that end in a backslash go on in the next."""
    begun, held = line, ""
    for n, text in enumerate(body, line):
        begun = begun if held else n
        held += text.strip() if held else text.rstrip()
        if held.endswith("\\"):
            held = held[:-1]
            continue
        yield begun, held
        held = ""


def _of_prose(page, lines):
    """Commands in sentences."""
    for n, line in enumerate(lines, 1):
        if re.match(r" {4,}\$ ", line):
            block = Snippet(page, n, n, "block", line)
            raise PageError(block, "commands stand in fenced blocks, or in sentences.")
    text = "\n".join(lines)
    for match in SPAN.finditer(text):
        words, line = match[1].split(), 1 + text.count("\n", 0, match.start())
        if len(words) > 1 and words[0] in PROGRAMS:
            yield Snippet(page, line, line, "inline", " ".join(words))
