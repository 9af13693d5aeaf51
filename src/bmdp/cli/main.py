"""The `bmdp` command: its verbs, and how errors end it.

Exit codes: 0 fine; 1 an error of the user's, told in one line; 2 bad usage. Errors that nobody
expected keep their traceback. Verbs import inside of their functions what takes long to import, so
that `bmdp --help` does not wait for torch or matplotlib.
"""

from __future__ import annotations

import errno
import shlex
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from bmdp import BmdpError, __version__
from bmdp.cli.calibrate import calibrate
from bmdp.cli.envs import envs
from bmdp.cli.evaluate import evaluate
from bmdp.cli.export import export
from bmdp.cli.fit import fit
from bmdp.cli.play import play
from bmdp.cli.report import report
from bmdp.cli.run import run
from bmdp.cli.serve import serve
from bmdp.cli.solve import solve
from bmdp.cli.watch import watch

_OF_DISKS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO}
_NO_MEMORY = (  # of torch, and of a library that is loaded
    *("can't allocate memory", "can't start new thread", "out of memory"),
    *("failed to map segment", "annot allocate memory"),
)


class Verbs(TyperGroup):
    """Runs a verb, and tells errors of the library in one line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keeps the whole command line as `ctx.obj`, for those who write it down."""
        ctx.obj = shlex.join(["bmdp", *args])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs the verb that was asked for."""
        try:
            return super().invoke(ctx)
        except (BmdpError, ImportError, MemoryError, OSError, RuntimeError) as error:
            told = _in_a_line(error)
            if told is None:
                raise
            typer.echo("error: " + " ".join(told.split()), err=True)
            raise typer.Exit(1) from error


def _in_a_line(error: Exception) -> str | None:
    """What a user is told of an error; None if nobody expected it."""
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


app.command()(envs)
app.command()(solve)
app.command()(fit)
app.command("train", help="The same as bmdp fit.")(fit)
app.command()(evaluate)
app.command()(play)
app.command()(calibrate)
app.command()(report)
app.command()(serve)
app.command()(watch)
app.command()(export)
app.command()(run)


def main() -> None:
    """Runs the command line."""
    app(prog_name="bmdp")
