"""Writes down what all pipelines give: `python tests/golden/write.py [PIPELINE ...]`.

Without names all are written; with names, these alone, and the others stay as they are: `anew` says
of which commit and versions these are.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as tests have it: sums are rounded by threads
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

PLACE = Path(__file__).with_name("values.json")


def main(names: list[str]) -> None:
    """Runs pipelines and writes."""
    import gymnasium
    import numba
    import numpy
    import scipy
    import torch

    import bmdp
    from golden.pipelines import PIPELINES

    before = json.loads(PLACE.read_text()) if names and PLACE.exists() else {}
    values = before.get("values", {})
    for name in names or PIPELINES:
        begin = time.perf_counter()
        values[name] = PIPELINES[name]()
        print(f"{name}: {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(bmdp.__file__).parent,
    ).stdout.strip()
    modules = (bmdp, gymnasium, numba, numpy, scipy, torch)
    header = {
        "commit": commit,
        "versions": {m.__name__: m.__version__ for m in modules}
        | {"python": platform.python_version()},
    }
    if before:  # the header is that of the others
        anew = dict.fromkeys(names, header)
        kept = {key: before[key] for key in header}
        header = {**kept, "anew": {**before.get("anew", {}), **anew}}
    lines = [f' "{key}": {json.dumps(value)}' for key, value in header.items()]
    lines.append(' "values": {\n' + ",\n".join(_of_pipeline(k, v) for k, v in values.items()) + "}")
    PLACE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _of_pipeline(name: str, values: dict[str, float | list[float]]) -> str:
    """A line for each figure."""
    lines = [f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in values.items()]
    return f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }"


if __name__ == "__main__":
    main(sys.argv[1:])
