"""Speed of networks trained as one stack, against one network at a time, within one run.

    python benchmarks/together.py --device cuda --out benchmarks/results/together.json

*Step*: seconds of one step of a regression on all rows, for one network, and for a stack of 6 and
of 20, each network with 45,000 rows of its own on a GPU, and 2,000 on a CPU. *Ratio*: seconds of
the stack, over those of as many networks one after the other; below 1, the stack is faster.
`--device` is "cpu", "cuda", or "auto" (default) for the GPU if there is one.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
import records
import torch

from bmdp.models import EncoderNet, FrontierNet, Regression
from bmdp.models.fitting import torch_device
from bmdp.models.networks import grid_budgets
from bmdp.models.regression import Samples, make_optimiser, regress

STATE_SIZE, N_ACTIONS, N_BUDGETS = 18, 5, 41
STACKS = (1, 6, 20)


def step_seconds(
    network: EncoderNet | FrontierNet, n_networks: int, n: int, device: torch.device, n_steps: int
) -> float:
    """Seconds of a step: what some steps more take, so that the set-up is not counted."""
    rng = torch.Generator().manual_seed(0)
    grid = np.linspace(0, 1, N_BUDGETS)
    stack = network.stack((n_networks, STATE_SIZE, N_ACTIONS), grid, rng).to(device)
    n_labels = N_BUDGETS if network.covers_grid else 1
    budgets = torch.rand((n_networks, n, 1), generator=rng).to(device)
    samples = Samples(
        torch.randn((n_networks, n, STATE_SIZE), generator=rng).to(device),
        torch.randint(N_ACTIONS, (n_networks, n), generator=rng).to(device),
        grid_budgets(stack, grid, device) if network.covers_grid else budgets,
        torch.rand((n_networks, n, n_labels, 2), generator=rng).to(device),
        torch.ones((n_networks, n), device=device),
    )
    few = 20 if device.type == "cuda" else 1  # on a GPU, so many are recorded and replayed

    def seconds(steps: int) -> float:
        settings = Regression(steps=steps, check_every=steps)
        begin = time.perf_counter()
        regress(stack, samples, settings, make_optimiser(stack, settings), torch.Generator())
        return time.perf_counter() - begin

    seconds(few)
    tries = [seconds(few + n_steps) - seconds(few) for _ in range(3)]
    return float(np.median(tries)) / n_steps


def main(arguments: list[str] | None = None) -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--device", default="auto")
    where, others = parser.parse_known_args(arguments)
    asked = records.options(__doc__, others)
    device = torch_device(where.device)
    n, n_steps = (45_000, 50) if device.type == "cuda" else (2_000, 5)
    if asked.quick:
        n, n_steps = 20, 2
    rows: list[dict[str, Any]] = []
    for network in (EncoderNet(), FrontierNet()):
        single = 0.0
        for n_networks in STACKS:
            seconds = step_seconds(network, n_networks, n, device, n_steps)
            single = single or seconds
            rows.append(
                {
                    "network": type(network).__name__,
                    "networks": n_networks,
                    "rows": n,
                    "step_milliseconds": round(1e3 * seconds, 4),
                    "ratio": round(seconds / (n_networks * single), 3),
                }
            )
            print(*(f"{k}={v}" for k, v in rows[-1].items()), file=sys.stderr)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    setting = {"device": name, "torch_threads": torch.get_num_threads()}
    records.write({**setting, "step": rows}, asked.out)


if __name__ == "__main__":
    main()
