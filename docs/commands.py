"""Writes docs/reference/command-line.md from the command itself.

    python docs/commands.py

Options and their words are those of `bmdp VERB --help`.
"""

from __future__ import annotations

import argparse
import enum
from pathlib import Path
from typing import Any

from bmdp.cli.main import VERBS, verb

PAGE = Path(__file__).parent / "reference" / "command-line.md"
HEAD = """# Command line

<!-- made by python docs/commands.py -->

Results go to stdout, as one JSON object with `--json`; progress and notes go to stderr. A command
ends with 0 if all is well, with 1 after an error, which is told in one line, and with 2 if it was
not typed as it should be. Commands that write refuse to overwrite without `--force`.
`bmdp VERB --help` says what is on this page.
"""
SAME = {"train": "fit"}
"""Verbs that are other verbs."""
KINDS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}


def page() -> str:
    """The page, as it should be."""
    verbs = {name: verb(name) for name in VERBS if name not in SAME}
    parts = [HEAD, "| verb | what it does |\n|---|---|"]
    for name, line in VERBS.items():
        parts[-1] += f"\n| [`{name}`](#bmdp-{SAME.get(name, name)}) | {_text(line)} |"
    parts[-1] += "\n"
    return "\n".join([*parts, *(_section(name, one) for name, one in verbs.items())])


def _section(name: str, found: Any) -> str:
    """A verb: what it does, how it is typed, and its options."""
    options = [one for one in found.params if one.opts[0].startswith("-")]
    given = [one for one in found.params if one not in options]
    usage = " ".join(["bmdp", name, *map(_place, given), "[OPTIONS]"])
    rows = [(f"`{one.metavar.removesuffix('...')}`", one) for one in given]
    rows += [(f"`{', '.join(one.opts)}{_value(one)}`", one) for one in options]
    table = [f"| {written} | {_text(one.help or '')}{_notes(one)} |" for written, one in rows]
    lines = [f"## bmdp {name}", "", _paragraphs(found.help), "", "```text", usage, "```", ""]
    return "\n".join([*lines, "| option | meaning |", "|---|---|", *table, ""])


def _place(one: Any) -> str:
    many = one.metavar.removesuffix("...") + "..." * (one.nargs == -1)
    return many if one.required else f"[{many}]"


def _value(one: Any) -> str:
    """The name of an option's value, with a space before it."""
    kind = one.type_descriptor.annotation
    if getattr(one, "is_flag", False):
        return ""
    if one.metavar:
        return " " + one.metavar.replace("|", " / ")
    if isinstance(kind, enum.EnumMeta):
        return " " + " / ".join(choice.value for choice in kind)
    return f" {KINDS[kind]}"


def _notes(one: Any) -> str:
    """Its default, and the variable that gives it."""
    notes = []
    default = one.default.value if isinstance(one.default, enum.Enum) else one.default
    if default not in (None, False, (), []) and not callable(default):
        notes.append(f"Default: `{default}`.")
    if getattr(one, "envvar", None):
        notes.append(f"Variable: `{one.envvar}`.")
    if getattr(one, "multiple", False) and "may be repeated" not in one.help:
        notes.append("May be repeated.")
    return "".join(f" {note}" for note in notes)


def _paragraphs(text: str) -> str:
    return "\n\n".join(_text(part) for part in text.split("\n\n"))


def _text(text: str) -> str:
    """One line, with code where it is code."""
    words = [f"`{w}`" if w.startswith("--") else w for w in " ".join(text.split()).split(" ")]
    return " ".join(_quoted(word) for word in words).replace("|", "\\|")


def _quoted(word: str) -> str:
    """A quoted option, without its point, comma or colon."""
    end = word.rstrip("`")[-1:]
    if word.startswith("`") and end in ".,;:)":
        return f"{word.rstrip('`')[:-1]}`{end}"
    return word


def main(arguments: list[str] | None = None) -> None:
    """Writes the page."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    ).parse_args(arguments)
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
