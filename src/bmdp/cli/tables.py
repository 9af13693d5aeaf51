"""Tables on stdout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table


def print_columns(columns: Mapping[str, Sequence[str]]) -> None:
    """Prints columns under their names, numbers to the right."""
    table = Table()
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    Console().print(table)
