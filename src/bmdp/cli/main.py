"""The `bmdp` command: its verbs, and how errors end it.

Exit codes: 0 fine; 1 an error of the user's, told in one line; 2 bad usage. Errors that nobody
expected keep their traceback. The module of a verb is imported when the verb is asked for, so
`bmdp --help` waits for none of them.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bmdp import BmdpError, __version__

VERBS = {
    "envs": "List the environments: what is seen, what can be done, and which budgets mean "
    "something.",
    "solve": "Print what each budget buys: expected reward and cost, from one start, in a known "
    "model.",
    "fit": "Learn a policy that takes any budget, in a folder from which a killed run can be "
    "resumed.",
    "train": "The same as bmdp fit.",
    "evaluate": "Play a policy at several budgets: what was asked, what was paid, and what was "
    "earned.",
    "play": "Play one episode, a line a step: what was done, earned, paid, and which budget was "
    "held.",
    "calibrate": "Play policies, and save one that costs at most its budget on average, with a "
    "certificate.",
    "report": "Write one page with dials to turn, figures and tables; runs may be going on still.",
    "serve": "Decide over HTTP, by a policy or a training run, until Ctrl-C.",
    "watch": "Tell whether a deployed dial keeps its promise. Exit code 1 says that it does not.",
    "export": "Write a policy as one ONNX file: states, budgets and random numbers in, decisions "
    "out.",
    "run": "Run an experiment. It can be killed at any time: the same command goes on with it.",
}
"""The verbs, with the line that `bmdp --help` has for each: the first of its docstring."""


def verb(name: str) -> Any:
    """Returns the command of a verb, after importing its module."""
    asked = {"train": "fit"}.get(name, name)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    line = VERBS[name] if asked != name else None
    alone.command(name, help=line)(getattr(import_module(f"bmdp.cli.{asked}"), asked))
    return typer.main.get_command(alone)


_OF_DISKS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO),
    *(errno.ENAMETOOLONG, errno.ELOOP),
}
_NO_MEMORY = (  # of torch, and of a library that is loaded
    *("can't allocate memory", "can't start new thread", "out of memory"),
    *("failed to map segment", "annot allocate memory"),
)


class Verbs(TyperGroup):
    """Runs a verb, and tells errors of the library in one line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keeps the whole command line as `ctx.obj`, for those who write it down."""
        ctx.obj = shlex.join(["bmdp", *args])
        with _in_lines():  # `--help` writes, too
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Finds the verb that was asked for, and puts the real one in its place."""
        name, found, rest = super().resolve_command(ctx, args)
        return name, found and verb(str(name)), rest

    def invoke(self, ctx: Any) -> Any:
        """Runs the verb that was asked for."""
        with _in_lines():
            return super().invoke(ctx)


@contextmanager
def _in_lines() -> Iterator[None]:
    """Tells errors in one line, but for those that nobody expected, and ends with exit code 1."""
    try:
        yield
    except (BmdpError, ImportError, MemoryError, OSError, RuntimeError) as error:
        told = _in_a_line(error)
        if told is None:
            raise
        typer.echo("error: " + " ".join(told.split()), err=True)
        raise typer.Exit(1) from error


def _in_a_line(error: Exception) -> str | None:
    """A user is told this of an error; None if nobody expected it."""
    if isinstance(error, BmdpError):
        return str(error)
    if isinstance(error, OSError):
        return str(error) if error.errno in _OF_DISKS else None
    told = str(error)
    if isinstance(error, MemoryError) or any(word in told for word in _NO_MEMORY):
        return (
            f"there is not enough memory: {told or 'none is left'}. Give less at a time, or more "
            "memory; a run goes on with bmdp fit --resume."
        )
    return None


app = typer.Typer(
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"bmdp {__version__}")
        raise typer.Exit


@app.callback()
def bmdp(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Budgeted Markov decision processes: one policy, any risk budget."""


for _name, _line in VERBS.items():
    app.command(_name, help=_line)(lambda: None)  # named in `bmdp --help`, and never run


def main() -> None:
    """Runs the command line. Figures go to files, whatever backend a notebook asks for."""
    os.environ["MPLBACKEND"] = "agg"
    app(prog_name="bmdp")
