"""What pages tell their readers to type: commands and blocks of Python, in reading order.

Fenced blocks are read by their language:

- `console`: lines with `$ ` are commands, the others are what they print; `^C` is the reader's.
- none, `sh`, `bash`, `shell`: every line is a command.
- `python` with `>>>`: pytest runs it as a doctest; without: a piece of a program.
- those of `TEXT`: nothing to type.

Code in a sentence is a command if it begins with one of `PROGRAMS` and goes on after it.
"""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELLS = ("", "sh", "bash", "shell")
TEXT = ("text", "bibtex", "mermaid", "json", "csv", "toml", "yaml")
PROGRAMS = ("bmdp", "python", "pip", "make", "pytest", "tensorboard")
FENCE = re.compile(r"^ *(```+|~~~+) *([\w-]*)")
SPAN = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Snippet:
    """Something to type. Lines count from 1."""

    page: str
    block: int  # line where the block, or the sentence's code, begins
    line: int
    kind: str  # "command", "inline", "python" or "doctest"
    text: str
    shown: tuple[str, ...] = ()  # what the page says that it prints

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
    snippets, prose, number = [], [], 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        if fence is None:
            prose.append(lines[number])
            number += 1
            continue
        ends = (n for n in range(number + 1, len(lines)) if lines[n].strip() == fence[1])
        end = next(ends, len(lines))
        snippets += _of_block(page, number + 1, fence[2], lines[number + 1 : end])
        prose += [""] * (end + 1 - number)
        number = end + 1
    return sorted([*snippets, *_of_prose(page, prose)], key=lambda snippet: snippet.line)


def read_makefile(path=ROOT / "Makefile"):
    """The `bmdp` commands of its recipes."""
    lines = enumerate(path.read_text().splitlines(), 1)
    found = ((n, re.match(r"\t@?\$\(BIN\)/(bmdp .*)", line)) for n, line in lines)
    return [Snippet(path.name, n, n, "command", match[1]) for n, match in found if match]


def _of_block(page, line, language, lines):
    """What a fenced block holds; `line` is that of the fence."""
    body = textwrap.dedent("\n".join(lines)).splitlines()
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


def _of_console(page, line, body):
    """Commands after `$ `, and what each of them prints."""
    found = []
    for n, text in _joined(line + 1, body):
        if text.startswith("$ "):
            found.append(Snippet(page, line, n, "command", text[2:]))
        elif not found:
            raise PageError(Snippet(page, line, n, "block", text), "a console begins with `$ `.")
        elif text.strip():
            last = found.pop()
            shown = (*last.shown, text)
            found.append(Snippet(last.page, last.block, last.line, last.kind, last.text, shown))
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
