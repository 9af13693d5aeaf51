"""Tests repeat themselves; `--hypothesis-profile=explore` draws new examples at every run."""

import os
import signal
from pathlib import Path

from hypothesis import settings

# Helpers of tests are imported by their names; as modules with examples they would be imported a
# second time, under another name.
collect_ignore = [str(path) for path in (Path(__file__).parent / "tests").glob("*.py")]

# A kernel of Triton, which is there with CUDA alone.
collect_ignore.append(str(Path(__file__).parent / "src/bmdp/models/descent_kernel.py"))

# Tests run side by side, so that one of them need not use all cores; numba's threads, which torch
# takes for its own number, would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

# A shell has what it runs in the background ignore Ctrl-C, and so would all that is started here.
signal.signal(signal.SIGINT, signal.default_int_handler)


settings.register_profile("explore", deadline=None)
settings.register_profile("repeat", deadline=None, derandomize=True, database=None)
settings.load_profile("repeat")
