"""The command line in process, and what its errors must look like."""

from typer.testing import CliRunner

from bmdp.cli.main import app


def run(*arguments, columns=80):
    """Runs in process. Unexpected errors are raised, as they are for the user."""
    plain = {"FORCE_COLOR": None, "COLUMNS": str(columns), "TERM": "dumb"}
    words = [str(argument) for argument in arguments]
    return CliRunner(env=plain).invoke(app, words, catch_exceptions=False)


def assert_is_user_error(result, *words, after_notes=False):
    """One line that has these words, and nothing else but notes, if there may be any."""
    assert result.exit_code == 1
    assert result.stdout == ""
    told = result.stderr.splitlines()
    if after_notes:
        told = [line for line in told if line and not line.startswith("note: ")]
    (line,) = told
    assert line.startswith("error: ")
    for word in words:
        assert word in line
