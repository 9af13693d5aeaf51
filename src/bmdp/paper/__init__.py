"""The paper's experiments, one module each, which is imported when it is asked for."""

from __future__ import annotations

import importlib
from types import ModuleType

from bmdp.checks import require_name

CATALOG: dict[str, str] = {
    "corridors-exploration": "bmdp.paper.corridors_exploration",
    "slot-filling": "bmdp.paper.slot_filling",
    "driving": "bmdp.paper.driving",
    "theory": "bmdp.paper.theory",
    "calibration": "bmdp.paper.calibration",
    "comparison": "bmdp.paper.comparison",
}


def experiment(name: str) -> ModuleType:
    """Returns the module of an experiment.

    Raises:
        ConfigError: if there is none of that name, with the nearest one.
    """
    require_name("experiment", name, CATALOG)
    return importlib.import_module(CATALOG[name])
