"""Does what pages tell, as they show it. The rules are in `pages.reading`."""

import ast
import contextlib
import os
import re
import shlex
import shutil
import subprocess
import time
from itertools import zip_longest

from pages import terminal
from pages.reading import ROOT, TIME, PageError, read_page
from pages.rules import (
    CHECKED,
    PLACEHOLDER,
    VERBS,
    NotWhole,
    RuleError,
    check_bmdp,
    require,
    value_of,
)

INTERRUPTED = 130
DEFAULT_PORT = 8000
SOON = 3.0
"""Seconds for which a command that has a folder is at work before its `^C`."""
SHELL = re.compile(r"[|&<>]+|.*;|\d?>.*")
LINKED = ("benchmarks", "constraints.txt", "examples")
"""Of a copy of the repository, which the reader of a page has at hand."""
EXIT_CODE = "echo $?"
SHOWN = ("cat", "curl", "ls")
"""Programs that are run, beside `bmdp` and scripts of Python."""


def follow_page(path, folder, *, with_slow=False):
    """Does all that a page tells, and returns what was run.

    Args:
        path: of the page.
        folder: to do it in, with nothing in it.
        with_slow: whether what is marked as slow is done, and not only checked.

    Raises:
        PageError: at the first that fails.
    """
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    is_record = path.is_relative_to(ROOT / "docs" / "paper")
    return follow(read_page(path), folder, with_slow=with_slow, is_record=is_record)


def follow(snippets, folder, *, with_slow=False, is_record=False):
    """Does what snippets of a page tell, and returns those that were run."""
    done = []
    with contextlib.ExitStack() as stack:
        reader = Reader(folder, stack, is_record=is_record)
        for snippet, following in zip_longest(snippets, snippets[1:]):
            reader.may_fail = following is not None and following.text == EXIT_CODE
            try:
                if reader.does(snippet, is_checked=snippet.is_slow and not with_slow):
                    done.append(snippet)
            except (RuleError, terminal.Hung) as error:
                raise PageError(snippet, str(error)) from error
    return done


class Reader:
    """One who types what a page says.

    Args:
        folder: to type it in.
        stack: closed at the end of the page.
        is_record: whether commands are only checked.
    """

    def __init__(self, folder, stack, *, is_record=False):
        self.folder, self.stack, self.is_record = folder, stack, is_record
        self.python, self.variables = None, {}
        self.code, self.may_fail = 0, False

    def does(self, snippet, *, is_checked):
        """Does it, or checks it, and returns whether it was done.

        Raises:
            RuleError: if something is wrong.
        """
        if snippet.kind.startswith("file "):
            path = self.folder / snippet.kind.removeprefix("file ")
            require(not path.exists(), f"{path.name} is there already.")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(snippet.text)
            return True
        if snippet.kind in ("python", "doctest"):
            return self._execute(snippet, is_checked)
        is_checked = is_checked or self.is_record or snippet.kind == "inline"
        words, ran = shlex.split(snippet.text, comments=True), []
        while words:
            end = words.index("&&") if "&&" in words else len(words)
            ran.append(self._command(snippet, words[:end], is_checked))
            words = words[end + 1 :]
        return any(ran)

    def _command(self, snippet, words, is_checked):
        variables = dict(self.variables)
        while words and (variable := re.fullmatch(r"([A-Z_]+)=(.*)", words[0])):
            variables[variable[1]] = variable[2]
            words = words[1:]
        if not words:
            self.variables = variables
            return False
        program, *rest = words
        for word in rest:
            require(not SHELL.fullmatch(word), f"no rule covers {word!r} of the shell.")
        if snippet.text == EXIT_CODE:
            require(is_checked or snippet.shown == (str(self.code),), f"it was {self.code}.")
            return False
        if program == "export":
            self.variables |= dict(word.split("=", 1) for word in rest)
            return False
        if program == "bmdp":
            return self._bmdp(snippet, rest, variables, is_checked)
        if program == "python":
            return rest[:2] != ["-m", "venv"] and self._script(snippet, rest, variables, is_checked)
        if program in SHOWN:
            return not is_checked and self._shown(snippet, words, variables)
        require(
            program in CHECKED,
            f"no rule covers {program!r}: add one to CHECKED in tests/pages/rules.py. "
            "What is no command stands in a block of ```text.",
        )
        CHECKED[program](rest)
        return False

    def _bmdp(self, snippet, words, variables, is_checked):
        words = words or ["--help"]
        if PLACEHOLDER.fullmatch(words[0]):
            words = [next(iter(VERBS)), *words[1:]]
        try:
            check_bmdp(words)
        except NotWhole:
            if snippet.kind != "inline":
                raise
        given = [word for i, word in enumerate(words) if words[i - 1] != "--out"]
        open_words = [word for word in given if PLACEHOLDER.fullmatch(word)]
        if is_checked or not all((self.folder / word).exists() for word in open_words):
            return False
        if words[0] == "serve" and "--help" not in words:
            return self._serves(snippet, words, variables)
        process = self._process(terminal.bmdp, variables, words)
        if any(line.startswith("^C") for line in snippet.shown):
            self._wait_for(words, process)
            process.interrupt()
        self._ended(snippet, process.answer())
        return True

    def _wait_for(self, words, process):
        """Waits until a command is at work: some seconds after its folder is there."""
        out, end = value_of(words, "--out"), time.monotonic() + terminal.PATIENCE
        while out and not (self.folder / out).exists() and time.monotonic() < end:
            if not process.process.is_alive():
                break
            time.sleep(0.05)
        time.sleep(SOON)

    def _serves(self, snippet, words, variables):
        """Starts a service, which is stopped at the end of the page."""
        port = int(value_of(words, "--port") or DEFAULT_PORT)
        terminal.wait_until(False, port)
        process = self._process(terminal.bmdp, variables, words)
        terminal.wait_until(True, port, process)
        if process.process.is_alive():
            self.stack.callback(self._stop, snippet, process)
        else:
            self._ended(snippet, process.answer())
        return True

    def _stop(self, snippet, process):
        process.interrupt()
        self._ended(snippet, process.answer())

    def _script(self, snippet, words, variables, is_checked):
        path, *arguments = words
        if path == "-c" and snippet.kind == "inline":
            ast.parse(" ".join(arguments))
            return False
        if re.search(r"\b[A-Z]{2,}\b", path):
            return False
        require(re.fullmatch(r"[\w/]+\.py", path), "no rule covers what python is to run.")
        folder = ROOT if is_checked and not (self.folder / path).exists() else self.folder
        require((folder / path).is_file(), f"there is no {path}.")
        found = terminal.Process(terminal.script, folder, variables, path, arguments, is_checked)
        self.stack.callback(found.close)
        if is_checked:
            code, told, _ = found.answer()
            require(code == 0, f"it ended with {code}; it printed:\n{told}")
            return False
        self._ended(snippet, found.answer())
        return True

    def _shown(self, snippet, words, variables):
        """Runs a program of the system."""
        require(shutil.which(words[0]), f"this test needs {words[0]}, which is not installed.")
        if words[0] == "curl" and not snippet.shown:
            words = [*words, "--fail-with-body"]  # else it ends well whatever is answered
        found = subprocess.run(
            words,
            cwd=self.folder,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=terminal.PATIENCE,
            check=False,
        )
        self._ended(snippet, (found.returncode, found.stdout, ""))
        return True

    def _execute(self, snippet, is_checked):
        """Runs a block of Python after those before it."""
        if is_checked:
            if snippet.kind == "python":
                ast.parse(snippet.text)
            return False
        if self.python is None:
            self.python = self._process(terminal.python, {}, snippet.page)
        self.python.connection.send((snippet.kind, snippet.text, snippet.line))
        error, told = self.python.answer()
        require(error is None, error)
        if snippet.shown:
            compare(snippet.shown, told)
        return True

    def _process(self, do, variables, *given):
        process = terminal.Process(do, self.folder, variables, *given)
        self.stack.callback(process.close)
        return process

    def _ended(self, snippet, answer):
        """Whether a command did well, and printed what is shown."""
        code, told, errors = answer
        shown = [line.removeprefix("^C") for line in snippet.shown]
        wanted = {0}
        if any(line.startswith("error: ") for line in shown):
            wanted = {1}
        elif shown != list(snippet.shown):
            wanted = {0, INTERRUPTED}
        self.code = code
        require(code in wanted or self.may_fail, f"it ended with {code}; it printed:\n{told}")
        if shown:
            compare(shown, told, errors)


def compare(shown, told, errors=""):
    """Whether something was printed as it is shown.

    Args:
        shown: lines of a page.
        told: what was printed.
        errors: what of it on stderr, which need not be shown.

    Raises:
        RuleError: if not.
    """
    free = {_plain(line) for line in errors.splitlines()} | {""}
    printed = list(zip(_steady(told.splitlines()), told.splitlines(), strict=True))
    skips, number = False, 0
    for line, shown_line in zip(_steady(shown), shown, strict=True):
        if line == "...":
            skips = True
            continue
        if not line:
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("...")))
        while True:
            require(number < len(printed), f"it did not print {shown_line!r}; it printed:\n{told}")
            got, plain = printed[number][0], _plain(printed[number][1])
            number += 1
            if pattern.fullmatch(got):
                break
            hides = not skips and plain not in free
            require(not hides, f"it printed {plain!r}, not {shown_line!r}; it printed:\n{told}")
        skips = False
    rest = [] if skips else [_plain(text) for _, text in printed[number:]]
    left = [text for text in rest if text not in free]
    require(not left, f"it printed {left[:1]}, too, which is not shown; it printed:\n{told}")


def _steady(lines):
    """Lines without times, and with single spaces."""
    heads, found = [], []
    for line in lines:
        cells = re.split(r" {2,}", line.strip())
        if "seconds" in cells:
            heads = cells
        elif len(cells) == len(heads):
            cells[heads.index("seconds")] = "#"
        else:
            heads = []
        found.append(TIME.sub("#", _plain(" ".join(cells))))
    return found


def _plain(line):
    return " ".join(line.split())
