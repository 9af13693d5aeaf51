"""Leaves of many states in many trees at once, by one kernel of a GPU.

Torch's own operations take a level of the trees at a time, each with several launches, and the GPU
waits for these most of the time. Triton comes with torch where that is built for CUDA.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

_BLOCK = 128  # rows of a program


def has_kernel(rows: Tensor) -> bool:
    """Whether there is a kernel for the device of rows."""
    return rows.is_cuda and _is_installed()


@lru_cache(maxsize=1)
def _is_installed() -> bool:
    return find_spec("triton") is not None


def descended(
    rows: Tensor, shift: Tensor, columns: Tensor, nodes: tuple[Tensor, ...], depth: int
) -> Tensor:
    """Leaves `[n, C]` of rows `[n, D]`, float32, in C trees each.

    Args:
        rows: scaled states.
        shift: `[n]`, int32, number of the first tree of each row.
        columns: `[C]`, int32, trees from there on.
        nodes: features, thresholds and leaves `[M, K]` and children `[M, K, 2]` of M trees.
        depth: levels of the deepest tree.
    """
    feature, threshold, child, leaf_of = (tensor.contiguous() for tensor in nodes)
    rows = rows.contiguous()
    found = torch.empty((len(rows), len(columns)), dtype=torch.int32, device=rows.device)
    if len(rows):
        kernel = import_module("bmdp.models.descent_kernel").descend
        grid: Any = (-(-len(rows) // _BLOCK), len(columns))
        sizes = len(rows), rows.shape[1], len(columns), feature.shape[1], depth
        with torch.cuda.device(rows.device):
            kernel[grid](
                rows,
                shift,
                columns,
                feature,
                threshold,
                child,
                leaf_of,
                found,
                *sizes,
                BLOCK=_BLOCK,
            )
    return found
