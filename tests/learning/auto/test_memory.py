"""A log that is larger than the memory that a process is allowed."""

import subprocess
import sys

import pytest
from orchard import Orchard

LIMIT = 4_000_000  # kilobytes of address space, of which libraries take 1,200,000
N_NUMBERS, N_ROWS, N_PIECE = 800, 672_000, 12_000
FIT = """
import sys, bmdp
fitted = bmdp.fit(sys.argv[1], gamma=1.0, device="cpu")
print(fitted.policy.budget_range, str(fitted).split(" in ")[0])
"""
LOAD = """
import sys
from bmdp.data import load_log
load_log(sys.argv[1])
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, task = tmp_path_factory.mktemp("log"), Orchard(n_numbers=N_NUMBERS)
    for first in range(0, N_ROWS, N_PIECE):
        task.log(N_PIECE, seed=0, first=first).to_parquet(folder / f"{first}.parquet")
    return f"{folder}/*.parquet"


def limited(program, files):
    """Runs a program with so much memory at most."""
    threads = "OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1"
    command = f'ulimit -v {LIMIT}; {threads} exec "$0" -c "$1" "$2"'
    return subprocess.run(
        ["bash", "-c", command, sys.executable, program, files],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ulimit -v is of Linux")
def test_a_log_that_is_larger_than_memory_is_learned_from(files):
    n_bytes = 2 * 4 * N_NUMBERS * N_ROWS  # states and next states, in single precision
    assert n_bytes > 1024 * LIMIT
    assert limited(LOAD, files).returncode != 0
    done = limited(FIT, files)
    assert done.returncode == 0, done.stderr[-2000:]
    assert f"{N_ROWS:,} transitions" in done.stdout
