"""DQN or DiscreteCQL of d3rlpy on a log: run by `scale_rivals.py`, with a Python that has d3rlpy.

    PYTHON benchmarks/scale_d3rlpy.py JOB.json

The job names the algorithm, the log (observations, actions, rewards, terminals as .npz), the
settings, the number of gradient steps, and the files to write: the policy as TorchScript, and the
seconds and the peak of memory as JSON. It imports nothing of this repository.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import d3rlpy  # type: ignore[import-not-found]
import numpy as np
import torch


def megabytes() -> float:
    """Most memory of this process; ru_maxrss would be that of its parent, if that has more."""
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return round(int(peak) / 1024, 1)


def main(job: dict[str, Any]) -> None:
    """Learns, and writes the policy and what it took."""
    torch.set_num_threads(job["threads"])
    d3rlpy.seed(job["seed"])
    with np.load(job["log"]) as log:
        columns = {name: log[name] for name in log.files}
    before, begin = megabytes(), time.perf_counter()
    data = d3rlpy.dataset.MDPDataset(
        **columns, action_space=d3rlpy.ActionSpace.DISCRETE, action_size=job["n_actions"]
    )
    stored = time.perf_counter()
    algorithm = getattr(d3rlpy.algos, f"{job['algorithm']}Config")(**job["settings"]).create("cpu")
    algorithm.fit(
        data,
        n_steps=job["gradient_steps"],
        n_steps_per_epoch=job["epoch"],
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
        show_progress=False,
    )
    end = time.perf_counter()
    algorithm.save_policy(job["policy"])
    told = {
        "seconds": round(end - begin, 2),
        "seconds_data": round(stored - begin, 2),
        "megabytes": megabytes(),
        "megabytes_before": before,
        "versions": {"d3rlpy": d3rlpy.__version__, "torch": torch.__version__},
    }
    Path(job["told"]).write_text(json.dumps(told))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
