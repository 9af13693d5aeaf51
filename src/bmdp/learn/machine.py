"""What a run is computed with: a device, and versions of what results depend on."""

from __future__ import annotations

import platform

import gymnasium
import numpy as np
import torch

import bmdp
from bmdp.errors import ConfigError
from bmdp.models.fitting import torch_device


def versions() -> dict[str, str]:
    """Returns the versions of what results depend on, by name."""
    return {
        "bmdp": bmdp.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "gymnasium": gymnasium.__version__,
    }


def checked_device(name: str) -> str:
    """Returns the name of a device that is here; "auto" is the GPU if there is one.

    Raises:
        ConfigError: if it is not here.
    """
    try:
        device = torch_device(name)
    except RuntimeError:
        raise ConfigError(f"device must be 'auto', 'cpu' or 'cuda'; got {name!r}.") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device {name!r} is not here; 'auto' takes what there is.")
    return str(device)
