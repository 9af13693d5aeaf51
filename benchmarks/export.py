"""Decisions of exported policies in onnxruntime, beside the policies themselves.

    python benchmarks/export.py --out benchmarks/results/export.json

Each kind of model learns the same explored episodes of corridors, at the sizes of its defaults. The
policy is exported, and both decide on the same states, budgets and uniform numbers, by one thread:
how many decisions differ, and how long one and 10,000 of them take, the least of several times.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import records
import torch
from numba import set_num_threads

from bmdp import BFTQ, BFTQConfig, TransitionBatch
from bmdp.deployment.onnx import onnx_bytes
from bmdp.envs.slots import find_spec
from bmdp.learn.collect import collect
from bmdp.models import (
    EncoderNet,
    ForestModel,
    FrontierNet,
    KernelModel,
    LinearModel,
    Regression,
    TableModel,
)
from bmdp.policies import HullPolicy, RandomBudgetedPolicy

_MEANT = 1e-6  # by which next budgets may differ


def models(n_steps: int) -> dict[str, Any]:
    """A regressor of each kind."""
    how = Regression(steps=n_steps, batch_size=1000)
    return {
        "table": TableModel(),
        "linear": LinearModel("quadratic"),
        "kernel": KernelModel(),
        "forest": ForestModel(),
        "FrontierNet": FrontierNet(regression=how),
        "EncoderNet": EncoderNet(regression=how),
    }


def explored(n_episodes: int) -> TransitionBatch:
    """Random episodes of corridors, with states in half cells, so that they repeat."""
    numbers = range(n_episodes)
    policy = RandomBudgetedPolicy(5, 0.0, 1.0)
    found = collect(
        policy, find_spec("corridors"), numbers, budgets=np.full(n_episodes, 0.5), seed=0
    )
    arrays = found.to_arrays()
    for name in ("state", "next_state"):
        arrays[name] = np.round(2 * np.asarray(arrays[name], np.float64)) / 2
    return TransitionBatch.from_arrays(arrays, n_actions=5)


def seconds(do: Callable[[], Any], times: int) -> float:
    """The least time that something takes."""
    do()
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        do()
        found.append(time.perf_counter() - begin)
    return min(found)


def compared(policy: HullPolicy, states: Any, times: int) -> dict[str, Any]:
    """How a policy and its graph differ, and how long both take."""
    rng = np.random.default_rng(1)
    low, high = policy.budget_range
    now = policy.at_step(0)
    budgets = low + 1.1 * (high - low) * rng.random(len(states))
    uniforms = rng.random((len(states), now.n_draws))
    begin = time.perf_counter()
    content = onnx_bytes(policy)
    export = time.perf_counter() - begin
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    model = onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])
    every = {"states": states, "budgets": budgets, "uniforms": uniforms}
    given = [{name: array[:n] for name, array in every.items()} for n in (1, len(states))]
    steps = {"step": np.array(0)} if policy.n_steps > 1 else {}
    found, wanted = model.run(None, given[1] | steps), now.decide_from(**given[1])
    row: dict[str, Any] = {
        "n_steps": policy.n_steps,
        "bytes": len(content),
        "export_seconds": export,
        "n_rows": len(states),
        "tight_share": float((wanted.status == 1).mean()),
        "actions_that_differ": int((found[0] != wanted.action).sum()),
        "next_budgets_that_differ": int((np.abs(found[1] - wanted.next_budget) > _MEANT).sum()),
        "statuses_that_differ": int((found[2] != wanted.status).sum()),
    }
    for name, part, n in zip(("one", "all"), given, (20 * times, times), strict=True):
        row[f"{name}_onnx_seconds"] = seconds(lambda p=part: model.run(None, p | steps), n)  # type: ignore[misc]
        row[f"{name}_bmdp_seconds"] = seconds(lambda p=part: now.decide_from(**p), n)  # type: ignore[misc]
    return row


def main(arguments: list[str] | None = None) -> None:
    """Compares, and writes the results."""
    options = records.options(__doc__ or "", arguments)
    set_num_threads(1)
    torch.set_num_threads(1)
    n_episodes, n_rows, times = (60, 100, 1) if options.quick else (500, 10_000, 5)
    batch = explored(n_episodes)
    rng = np.random.default_rng(0)
    rows = []
    for name, model in models(5 if options.quick else 50).items():
        states = batch.state[rng.integers(len(batch), size=n_rows)].astype(np.float64)
        if name != "table":
            states = states + rng.normal(size=states.shape) / 4
        policy = BFTQ(BFTQConfig(gamma=1.0, model=model)).fit(batch, seed=0, device="cpu")
        rows.append({"model": name, **compared(policy, states, times)})
        print(rows[-1], flush=True)
    records.write({"onnxruntime": onnxruntime.__version__, "rows": rows}, options.out)


if __name__ == "__main__":
    main()
