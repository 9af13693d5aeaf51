"""What all benchmarks share: their options, and how results are written."""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import numba
import numpy as np
import scipy
import torch

import bmdp
from bmdp.learn.runs import machine


def options(about: str, arguments: list[str] | None) -> argparse.Namespace:
    """Parses the command line of a benchmark: where to write, and whether to be quick."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="JSON file to write (default: standard output)")
    parser.add_argument("--quick", action="store_true", help="a tiny size, to see that it runs")
    return parser.parse_args(arguments)


def write(result: dict[str, Any], out: Path | None) -> None:
    """Writes a result as JSON, with the machine and the versions it was measured on."""
    setting = {
        "machine": machine() | {"python": platform.python_version()},
        "versions": {m.__name__: m.__version__ for m in (bmdp, numba, np, scipy, torch)},
        "threads": numba.get_num_threads(),
    }
    text = json.dumps({**setting, **result}, indent=1) + "\n"
    if out is None:
        print(text, end="")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text)
