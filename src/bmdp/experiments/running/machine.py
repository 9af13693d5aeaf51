"""The machine that results come from."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

_PROCESSORS = Path("/proc/cpuinfo")  # of Linux


def machine() -> dict[str, Any]:
    """Returns what this machine is: system, processor, cores, memory (GiB), and GPU, if any."""
    found: dict[str, Any] = {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory": _memory(),
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def _processor() -> str:
    """The model of the processor."""
    try:
        lines = _PROCESSORS.read_text().splitlines()
    except OSError:  # on other systems
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()


def _memory() -> float | None:
    """GiB, where the system tells."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):
        return None
