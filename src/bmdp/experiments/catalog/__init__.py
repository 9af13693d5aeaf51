"""The experiments, one module each, which is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bmdp.checks import require_name
from bmdp.errors import ConfigError

if TYPE_CHECKING:
    from bmdp.experiments.experiment import Experiment

CATALOG: dict[str, str] = {
    "corridors-exploration": "bmdp.experiments.catalog.corridors_exploration",
    "slot-filling": "bmdp.experiments.catalog.slot_filling",
    "driving": "bmdp.experiments.catalog.driving",
    "theory": "bmdp.experiments.catalog.theory",
    "calibration": "bmdp.experiments.catalog.calibration",
    "comparison": "bmdp.experiments.catalog.comparison",
}
"""Modules by the names of their experiments; each has one, called `EXPERIMENT`."""


def experiment(name: str) -> Experiment:
    """Returns the experiment of a name.

    Args:
        name: of the catalog; or `module:attribute`, for one of your own.

    Raises:
        ConfigError: if there is none of that name, with the nearest one.

    >>> experiment("theory").name
    'theory'
    """
    from bmdp.experiments.experiment import Experiment  # imports torch

    module, colon, attribute = name.partition(":")
    if not colon:
        require_name("experiment", name, CATALOG)
        module, attribute = CATALOG[name], "EXPERIMENT"
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"no experiment can be found as {name!r}: {error}.") from error
    if not isinstance(found, Experiment):
        raise ConfigError(f"{name!r} is no Experiment, but a {type(found).__name__}.")
    return found


def settings_of(name: str, preset: str) -> Any:
    """Returns the settings of an experiment of some size.

    Raises:
        ConfigError: if there is no such experiment, or it has no such preset.
    """
    presets = experiment(name).presets
    require_name(f"preset of {name}", preset, presets)
    return presets[preset]
