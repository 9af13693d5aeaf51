"""Errors that are nobody's fault end in one line; others keep their traceback."""

import errno
from importlib import import_module

import pytest

import commands
from bmdp.errors import MissingDependency


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
