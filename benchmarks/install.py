"""Seconds and megabytes of an installation, and seconds until the first answer.

    python benchmarks/install.py --out benchmarks/results/install.json

The package is installed into a new environment, with the versions of constraints.txt: torch by
itself, then all the rest. Each command then runs in processes of its own, after one that fills the
caches of files and kernels. The record has the least of several times, by the clock and of the CPU,
and the most memory. With `--quick` nothing is installed, and each command runs once, by this
Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

import records

ROOT = Path(__file__).parents[1]
N_REPEATS = 5

LEARN = """
import numpy as np
import bmdp
from bmdp.models import TableModel
step, hurry = np.arange(600) % 3, np.random.default_rng(0).integers(2, size=600)
log = bmdp.TransitionBatch(
    state=step, action=hurry, reward=1 + 2 * hurry, cost=0.2 * hurry, next_state=step + 1,
    terminal=step == 2, episode=np.arange(600) // 3,
)
config = bmdp.BFTQConfig(gamma=1.0, budget_range=(0.0, 0.6), model=TableModel())
bmdp.BFTQ(config).fit(log, seed=0).save("policy", overwrite=True)
"""
DECIDE = """
import numpy as np
import bmdp
policy = bmdp.load_policy("policy")
print(policy.start([[0]], 0.3, np.random.default_rng(0)).decide([[0]]).action)
"""
# What the system says of the memory of this process alone: the count that a parent gets has the
# memory of the parent, too.
PEAK = """
import atexit
@atexit.register
def keep():
    with open("/proc/self/status") as told, open("peak", "w") as kept:
        kept.write(next(line.split()[1] for line in told if line.startswith("VmHWM")))
"""
COMMAND = "from bmdp.cli.main import main; main()"
STARTS = {
    "`python -c pass`": ["-c", "pass"],
    "`import numpy`": ["-c", "import numpy"],
    "`import torch`": ["-c", "import torch"],
    "`import bmdp`": ["-c", "import bmdp"],
    "`bmdp --help`": ["-c", COMMAND, "--help"],
    "`bmdp envs`": ["-c", COMMAND, "envs"],
    "`bmdp fit --help`": ["-c", COMMAND, "fit", "--help"],
    "a learned policy is loaded and decides": ["-c", DECIDE],
}
SIZES = """
import json
from importlib.metadata import distributions
def size(found):
    paths = {f.locate().resolve() for f in found.files or ()}
    return sum(p.stat().st_size for p in paths if p.is_file())
print(json.dumps({d.name: size(d) for d in distributions()}))
"""


def installed(folder: Path) -> tuple[str, dict[str, Any]]:
    """A Python of its own with the package, and what it took to install it."""
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv/bin/python")
    pip = [python, "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    pip.append("--disable-pip-version-check")
    wheel = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    _run([*wheel, str(ROOT)], folder)
    (built,) = folder.glob("*.whl")
    rows = []
    for name, what in (("torch and what it needs", "torch"), ("bmdp and the rest", str(built))):
        begin, before = time.perf_counter(), _megabytes(folder / "venv")
        _run([*pip, what], folder)
        seconds = time.perf_counter() - begin
        megabytes = _megabytes(folder / "venv") - before
        rows.append({"what": name, "seconds": seconds, "megabytes": megabytes})
    sizes = json.loads(_run([python, "-c", SIZES], folder))
    largest = sorted(sizes.items(), key=lambda one: -one[1])[:10]
    shown = [{"name": name, "megabytes": size / 1e6} for name, size in largest]
    return python, {"wheel_mb": built.stat().st_size / 1e6, "parts": rows, "largest": shown}


def started(python: str, words: list[str], folder: Path, n_repeats: int) -> dict[str, float]:
    """The least that a process takes that does one thing."""
    option, code, *rest = words
    command = [python, option, PEAK + code, *rest]
    found = [_process(command, folder) for _ in range(n_repeats + 1)][-n_repeats:]
    return {name: min(one[name] for one in found) for name in found[0]}


def _process(command: list[str], folder: Path) -> dict[str, float]:
    """Seconds on the clock and of the CPU, and megabytes, of one process."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}.")
    peak = float((folder / "peak").read_text()) * 1024 / 1e6
    return {"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime, "megabytes": peak}


def _run(command: list[str], folder: Path) -> str:
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def _megabytes(folder: Path) -> float:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) / 1e6


def main(arguments: list[str] | None = None) -> None:
    """Installs, measures, and writes."""
    asked = records.options(str(__doc__), arguments)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        python, sizes = (sys.executable, {}) if asked.quick else installed(folder)
        _run([python, "-c", LEARN], folder)
        starts = [
            {"what": name, **started(python, words, folder, 1 if asked.quick else N_REPEATS)}
            for name, words in STARTS.items()
        ]
    records.write({**sizes, "starts": starts}, asked.out)


if __name__ == "__main__":
    main()
