"""Processes in which pages are followed: one Python for a page, and one for each command.

All are new processes, made by a server that has imported the library before: commands know nothing
of what blocks of Python did, and Ctrl-C is a signal.
"""

import argparse
import contextlib
import doctest
import io
import multiprocessing
import os
import runpy
import signal
import socket
import sys
import time
import traceback
import types
import warnings
from pathlib import Path

import commands
from pages.reading import TIME

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["bmdp.learn", "bmdp.evaluation", "bmdp.report", "bmdp.cli.main"])
HUNG = 1_800.0
"""Seconds after which something is said to hang."""
PATIENCE = 60.0
"""Seconds for a port to become free, and for a service to listen on it."""


class Hung(Exception):
    """Something does not end as it should."""


class Process:
    """A process in a folder.

    Args:
        do: called with a connection and `given`.
        folder: where it works.
        variables: of its environment, beside those of this process.
        given: to do.
    """

    def __init__(self, do, folder, variables, *given):
        self.connection, other = PROCESSES.Pipe()
        self.process = PROCESSES.Process(
            target=_work, args=(do, other, str(folder), dict(variables), given)
        )
        self.process.start()
        other.close()

    def interrupt(self):
        """Ctrl-C."""
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGINT)

    def answer(self):
        """What it sends next."""
        if not self.connection.poll(HUNG):
            raise Hung(f"it did not end within {HUNG:g} seconds.")
        try:
            return self.connection.recv()
        except EOFError:
            self.process.join()
            raise Hung(f"its process died, with {self.process.exitcode}.") from None

    def close(self):
        """Ends it, if it has not ended."""
        self.connection.close()
        self.process.join(1.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _work(do, connection, folder, variables, given):
    """Does something in a new process, as in a terminal of its own."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(variables)
    sys.path[:0] = [p for p in variables.get("PYTHONPATH", "").split(os.pathsep) if p]
    os.chdir(folder)
    warnings.simplefilter("error")
    do(connection, *given)


def bmdp(connection, words):
    """Runs `bmdp`, and sends its exit code, what it printed, and what of it on stderr."""
    try:
        result = commands.run(*words)
        connection.send((result.exit_code, result.output, result.stderr))
    except BaseException:
        connection.send((1, traceback.format_exc(), ""))


def script(connection, path, arguments, is_checked):
    """Runs a script, and sends the same. If it `is_checked`, only its arguments are read."""
    told, sys.argv, code = _Terminal(), [path, *arguments], 0
    sys.path.insert(0, str(Path(path).parent.resolve()))
    if is_checked:
        argparse.ArgumentParser.parse_args = _only_parse
    with contextlib.redirect_stdout(told.out), contextlib.redirect_stderr(told.err):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as error:
            code = error.code or 0
        except BaseException:
            code = 1
            traceback.print_exc()
    connection.send((code, told.all.getvalue(), told.errors.getvalue()))


def python(connection, page):
    """Executes one block of Python after the other, and sends its error, if any, and its output."""
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    sys.path.insert(0, "")
    with contextlib.suppress(EOFError):
        while True:
            kind, text, line = connection.recv()
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                run = _examples if kind == "doctest" else _block
                error = run(text, module.__dict__, page, line)
            connection.send((error, out.getvalue()))


def _block(text, names, page, line):
    """Executes a block; tracebacks have the lines of the page."""
    try:
        exec(compile("\n" * (line - 1) + text, page, "exec"), names)
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == page]
        where = f" in line {lines[-1]}" if lines else ""
        return f"{type(error).__name__}{where}: {error}"
    return None


def _examples(text, names, page, line):
    """Runs a block of `>>>` as `doctest` does."""
    test = doctest.DocTestParser().get_doctest(text, names, page, page, line - 1)
    test.globs = names  # and not a copy
    told = io.StringIO()
    runner = doctest.DocTestRunner(_Times(), verbose=False, optionflags=doctest.ELLIPSIS)
    result = runner.run(test, out=told.write, clear_globs=False)
    return told.getvalue() if result.failed else None


class _Times(doctest.OutputChecker):
    """Lets times differ."""

    def check_output(self, want, got, optionflags):
        want, got = (TIME.sub("#", text) for text in (want, got))
        return super().check_output(want, got, optionflags)


class _Terminal:
    """Two streams, and all that is written to them in its order."""

    def __init__(self):
        self.all, self.errors = io.StringIO(), io.StringIO()
        self.out, self.err = _Both([self.all]), _Both([self.all, self.errors])


class _Both(io.TextIOBase):
    def __init__(self, streams):
        self.streams = streams

    def write(self, text):
        for stream in self.streams:
            stream.write(text)
        return len(text)


def _only_parse(parser, arguments=None, namespace=None):
    """Parses arguments, and ends the script if they are right."""
    _, unknown = parser.parse_known_args(arguments, namespace)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    raise SystemExit(0)


def wait_until(is_open, port, process=None):
    """Waits for a port to be taken, or to be free."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        with socket.socket() as probe:
            if (probe.connect_ex(("127.0.0.1", port)) == 0) == is_open:
                return
        if process is not None and not process.process.is_alive():
            return
        time.sleep(0.05)
    raise Hung(f"port {port} of this machine is {'not taken' if is_open else 'not free'}.")
