"""Does what pages tell, at a small size, in one process, and in one folder for each page.

Files that are read, and that no command has written, are made (`pages.inputs`); folders that a page
writes twice are written anew. Where a page shows what is printed, it must be printed: line by line,
with `...` for any lines, and with any numbers if the command was made small or learns from a log.
Where it shows `^C`, the command is interrupted.
"""

import argparse
import ast
import contextlib
import functools
import io
import re
import shlex
import sys
import traceback
from glob import glob
from pathlib import Path

import gymnasium

import commands
from bmdp import storage
from bmdp.cli.options import INTERRUPTED
from bmdp.cli.progress import Progress
from bmdp.models.regressor import REGRESSORS
from pages.inputs import make_input
from pages.reading import ROOT, PageError, read_page
from pages.rules import (
    CHECKED,
    PLACEHOLDER,
    VERBS,
    NotWhole,
    RuleError,
    check_experiment,
    parsed,
    require,
    small,
    value_of,
)
from pages.sizes import Enough, make_small, parse_small
from scripts import script

SHELL = re.compile(r"[|&<>]+|.*;|\d?>.*")
NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?")


def follow_page(path, folder, patches):
    """Does all that a page tells, and returns what was run.

    Raises:
        PageError: at the first that fails.
    """
    with _as_before():
        reader = Reader(folder, patches, path.read_text())
        return reader.follow(read_page(path))


@contextlib.contextmanager
def _as_before():
    """As a new process: knows no regressors of other tests, and forgets what a page has brought."""
    registers = [gymnasium.registry, REGRESSORS, storage._KINDS]
    before = [dict(register) for register in registers]
    examples = {path.stem for path in (ROOT / "examples").glob("*.py")}
    modules = {name: sys.modules.pop(name) for name in examples & set(sys.modules)}
    for register in (REGRESSORS, storage._KINDS):
        for name in [n for n, cls in register.items() if not cls.__module__.startswith("bmdp.")]:
            del register[name]
    try:
        yield
    finally:
        for register, known in zip(registers, before, strict=True):
            register.clear()
            register.update(known)
        for name in examples & set(sys.modules):
            del sys.modules[name]
        sys.modules.update(modules)


class Reader:
    """One who types what a page says.

    Args:
        folder: to type it in.
        patches: pytest's `monkeypatch`.
        page: text of the page.
    """

    def __init__(self, folder, patches, page=""):
        self.patches, self.page = patches, page
        self.names, self.regressors = {"__name__": "__main__"}, set(REGRESSORS)
        patches.chdir(folder)
        patches.syspath_prepend(str(folder))
        make_small(patches)

    def follow(self, snippets):
        """Does all of it, in order, and returns what was run."""
        done = []
        for snippet in snippets:
            try:
                if snippet.kind == "python":
                    self._execute(snippet)
                    done.append(snippet)
                elif snippet.kind != "doctest" and self._type(snippet):
                    done.append(snippet)
            except RuleError as error:
                raise PageError(snippet, str(error)) from error
            except Exception as error:
                told = f"{type(error).__name__}{_line_of(error, snippet.page)}: {error}"
                raise PageError(snippet, told) from error
        return done

    # Commands: each says whether it was run

    def _type(self, snippet):
        words, ran = shlex.split(snippet.text, comments=True), []
        while words:
            end = words.index("&&") if "&&" in words else len(words)
            ran.append(self._command(snippet, words[:end]))
            words = words[end + 1 :]
        return any(ran)

    def _command(self, snippet, words):
        while words and (variable := re.fullmatch(r"([A-Z_]+)=(.*)", words[0])):
            if variable[1] == "PYTHONPATH":
                self.patches.syspath_prepend(str(ROOT / variable[2]))
            words = words[1:]
        require(words, "there is no command.")
        program, *rest = words
        for word in rest:
            require(not SHELL.fullmatch(word), f"no rule covers {word!r} of the shell.")
        if program == "bmdp":
            return self._bmdp(snippet, rest)
        if program == "python":
            return self._python(rest)
        require(
            program in CHECKED,
            f"no rule covers {program!r}: add one to CHECKED in tests/pages/rules.py. "
            "What is no command stands in a block of ```text.",
        )
        return CHECKED[program](rest)

    def _bmdp(self, snippet, words):
        verb, *rest = words or ["--help"]
        if verb.startswith("-") or "--help" in rest:
            for each in VERBS if PLACEHOLDER.fullmatch(verb) else [verb]:
                self._run([each, *rest], snippet)
            return True
        try:
            values = parsed(verb, rest)
        except NotWhole:
            if snippet.kind != "inline":
                raise
            return False
        if verb == "run":
            check_experiment(values)
            if values["engine"] == "ray":
                return False
        given = [word for i, word in enumerate(words) if words[i - 1] != "--out"]
        if any(PLACEHOLDER.fullmatch(word) and not Path(word).exists() for word in given):
            return False
        self._run([verb, *small(verb, self._with_inputs(verb, rest))], snippet, words)
        return True

    def _with_inputs(self, verb, words):
        """Makes what a command reads, and writes its words as a shell would."""
        found = []
        for before, word in zip(["", *words], words, strict=False):
            if before not in ("--out", "--plot"):
                make_input(word, self.page, is_model=verb == "solve")
            found += sorted(glob(word)) if "*" in word else [word]
        written = [value_of(found, option) for option in ("--out", "--plot")]
        if verb != "run" and any(path and Path(path).exists() for path in written):
            found.append("--force")
        return found

    def _run(self, words, snippet, written=None):
        """Runs `bmdp`, and compares what it prints with what the page shows."""
        shown = [line.removeprefix("^C") for line in snippet.shown]
        stops = shown != list(snippet.shown)
        with self.patches.context() as patches:
            for name in set(REGRESSORS) - self.regressors:  # another process does not know them
                patches.delitem(REGRESSORS, name)
            if stops:
                patches.setattr(Progress, "update", _interrupt)
            result = commands.run(*words)
        told = f"run as: {shlex.join(['bmdp', *words])}\n{result.output}"
        wanted = INTERRUPTED if stops else 0
        require(result.exit_code == wanted, f"it ended with {result.exit_code}; {told}")
        require(result.output.strip(), f"it printed nothing; {told}")
        as_written = written in (None, words) and words[0] not in ("fit", "train")
        printed = {_plain(line, as_written) for line in result.output.splitlines()}
        for line in map(_with_small_command, shown):
            is_there = line.strip() == "..." or _plain(line, as_written) in printed
            require(is_there, f"it did not print {line!r}; {told}")

    # Scripts and blocks of Python

    def _python(self, words):
        if words[:2] == ["-m", "venv"]:
            return False
        path, *arguments = words
        if re.search(r"\b[A-Z]{2,}\b", path):
            return False
        is_ours = re.fullmatch(r"(examples|benchmarks)/\w+\.py", path)
        require(is_ours, "no rule covers what python is to run.")
        require((ROOT / path).is_file(), f"there is no {path}.")
        parent = Path(value_of(arguments, "--out") or ".").parent
        if (ROOT / parent).is_dir():
            parent.mkdir(parents=True, exist_ok=True)
        said = io.StringIO()
        with self.patches.context() as patches, contextlib.redirect_stderr(said):
            patches.syspath_prepend(str((ROOT / path).parent))
            parse = functools.partialmethod(parse_small, path.startswith("examples"))
            patches.setattr(argparse.ArgumentParser, "parse_args", parse)
            try:
                script(path).main(arguments)
            except Enough:
                return False
            except SystemExit as error:
                require(not error.code, f"it ended with {error.code}: {said.getvalue()}")
        return True

    def _execute(self, snippet):
        """Runs a block of Python after those before it."""
        code = "\n" * (snippet.line - 1) + snippet.text  # tracebacks have the lines of the page
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                make_input(node.value, self.page, is_model="model" in node.value)
        exec(compile(code, snippet.page, "exec"), self.names)


def _line_of(error, page):
    """Where in a page an error was raised, if it was in a block of Python."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == page]
    return f" in line {lines[-1]}" if lines else ""


def _interrupt(*given, **others):
    raise KeyboardInterrupt


def _plain(line, as_written):
    """A line without what depends on the size of the work and of the terminal."""
    line = line if as_written else re.sub("[─━]+", "─", NUMBER.sub("#", line))
    return " ".join(line.split())


def _with_small_command(line):
    """What is shown, where it tells how to go on, with the command made small."""
    before, mark, command = line.partition(": bmdp ")
    if not mark:
        return line
    verb, *words = shlex.split(command)
    parsed(verb, words)
    return f"{before}: {shlex.join(['bmdp', verb, *small(verb, words)])}"
