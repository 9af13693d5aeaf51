"""Jobs in other processes: each is done once, and nothing outlives its parent."""

import os
import subprocess
import sys
import time

import pytest
import torch

from bmdp.workers import Died, alone, n_threads, run_jobs
from jobs import divided, live_or_die, pid_of


def results(jobs, do, **how):
    return {found[0]: found[1] for found in run_jobs(do, jobs, **how) if found is not None}


def test_every_job_has_its_own_result():
    assert results([1, -2, 3], abs, workers=2) == {0: 1, 1: 2, 2: 3}


def test_no_more_processes_than_asked_for():
    pids = results(range(4), pid_of, workers=1)
    assert len(set(pids.values())) == 1
    assert isinstance(pids[0], int)
    assert pids[0] != os.getpid()


def test_an_error_of_a_job_is_raised():
    with pytest.raises(ZeroDivisionError):
        results([1, 0], divided, workers=1)


def test_a_process_that_dies_takes_one_job_with_it():
    found = results(["live", "die", "live", "live"], live_or_die, workers=2)
    died = found.pop(1)
    assert isinstance(died, Died)
    assert "SIGKILL" in died.reason
    assert found == {0: "live", 2: "live", 3: "live"}


def test_workers_have_the_threads_that_they_are_given(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert results(["OMP_NUM_THREADS"], os.getenv, workers=1, threads=3) == {0: "3"}
    assert "OMP_NUM_THREADS" not in os.environ


def test_jobs_that_are_not_done_are_killed_when_nobody_waits():
    jobs = run_jobs(time.sleep, [600], workers=1)
    assert next(jobs) is None
    begin = time.monotonic()
    jobs.close()
    assert time.monotonic() - begin < 60


SCRIPT = """
import time
from bmdp.workers import run_jobs
if __name__ == "__main__":
    for found in run_jobs(time.sleep, [100], workers=1):
        pass
"""


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(SCRIPT)
    parent = subprocess.Popen([sys.executable, str(script)])
    deadline = time.monotonic() + 60
    while not (children := children_of(parent.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(2)
    children = children_of(parent.pid)
    assert children
    parent.kill()
    parent.wait()
    while any(map(is_alive, children)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(is_alive, children))


def children_of(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout
    return [int(word) for word in found.split()]


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


def test_alone_torch_has_one_thread_and_loops_have_as_many_as_before():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with alone():
            with alone():
                assert (torch.get_num_threads(), n_threads()) == (1, 3)
            assert (torch.get_num_threads(), n_threads()) == (1, 3)
        assert (torch.get_num_threads(), n_threads()) == (3, 3)
    finally:
        torch.set_num_threads(before)


THREADS = """
import numpy as np, torch
from bmdp.frontier import kernels, frontier_values
from numba import get_num_threads
with kernels.compiled_threads():
    print(get_num_threads())
frontier_values(*np.random.default_rng(0).random((2, 3000, 100)), [0.5])
print(torch.get_num_threads())
"""


@pytest.mark.parametrize(("of_numba", "expected"), [(None, ["1", "1"]), ("2", ["2", "1"])])
def test_compiled_loops_keep_to_the_threads_that_are_asked_for(of_numba, expected):
    """`OMP_NUM_THREADS` is asked, unless numba has a number of its own."""
    known = {k: v for k, v in os.environ.items() if k != "NUMBA_NUM_THREADS"}
    known |= {"OMP_NUM_THREADS": "1", "NUMBA_CPU_COUNT": "2"}
    known |= {} if of_numba is None else {"NUMBA_NUM_THREADS": of_numba}
    command = [sys.executable, "-c", THREADS]
    found = subprocess.run(command, env=known, capture_output=True, text=True, check=True)
    assert found.stdout.split() == expected
