"""Errors that are nobody's fault end in one line; others keep their traceback."""

import errno
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import commands
from bmdp.errors import MissingDependency

BMDP = Path(sys.executable).with_name("bmdp")


def failing(monkeypatch, error):
    """Runs a verb that meets an error."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(import_module("bmdp.cli.solve"), "print_columns", fail)
    return commands.run("solve", "--textbook", "branches")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "here"), "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", "here"), "Permission denied"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "here"), "File name too long"),
        (MemoryError(), "there is not enough memory: none is left"),
        (MemoryError("Unable to\nallocate 8 GiB"), "not enough memory: Unable to allocate 8 GiB"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "not enough memory"),
        (ImportError("x.so: failed to map segment from shared object"), "not enough memory"),
        (MissingDependency("pip install x"), "pip install x"),
    ],
)
def test_what_the_machine_lacks_is_told_in_one_line(monkeypatch, error, told):
    commands.assert_is_user_error(failing(monkeypatch, error), told)


@pytest.mark.parametrize(
    "error", [RuntimeError("nobody thought of it"), OSError("odd"), ImportError("no module")]
)
def test_what_nobody_expected_keeps_its_traceback(monkeypatch, error):
    with pytest.raises(type(error), match=str(error)):
        failing(monkeypatch, error)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
@pytest.mark.parametrize("words", [["--help"], ["--version"], ["fit", "--help"]])
def test_help_that_cannot_be_written_is_told_in_one_line(words):
    with open("/dev/full", "w") as full:
        ended = subprocess.run([BMDP, *words], stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "error: [Errno 28] No space left on device\n"


def test_a_backend_of_a_notebook_does_not_matter():
    """The process of a notebook hands on the name of its own, which may not be installed here."""
    code = "import bmdp.cli.main as m; m.app = lambda **_: None; m.main(); import matplotlib"
    environment = {**os.environ, "MPLBACKEND": "no_such_backend"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_tables_are_not_cut_off_where_they_are_wider_than_the_screen():
    wide = commands.run("solve", "--textbook", "branches", columns=200).stdout
    assert commands.run("solve", "--textbook", "branches", columns=10).stdout == wide
