"""The experiments of the paper, and their runner. `bmdp run` and `bmdp report` alone know of them.

An experiment is a module, or any object, with these names:

    TITLE, QUESTION           of its section in a report
    SETTINGS                  by size, "smoke" to "best": frozen dataclasses with `n_seeds`
    PARTS                     done for each seed; "" is the main one, whose folder is a training run
    COMMON                    parts that are done once, whatever the seeds
    run(settings, work)       does `work.part`, and keeps what it finds as pieces
    analyse(results, anchor)  makes the section of a report

One of your own needs SETTINGS, PARTS, COMMON and `run`.
"""

from __future__ import annotations

from typing import Any

from bmdp.checks import require_name
from bmdp.errors import ConfigError
from bmdp.later import imported

CATALOG: dict[str, str] = {
    "corridors-exploration": "bmdp.paper.corridors_exploration",
    "slot-filling": "bmdp.paper.slot_filling",
    "driving": "bmdp.paper.driving",
    "theory": "bmdp.paper.theory",
    "calibration": "bmdp.paper.calibration",
    "comparison": "bmdp.paper.comparison",
}
"""Modules by the names of their experiments, in the order of a report."""


def experiment(name: str) -> Any:
    """Returns the experiment of a name, whose module is imported.

    Args:
        name: of the catalog; or, for one of your own, `module:attribute` or `package.module`.

    Raises:
        ConfigError: if there is none of that name, with the nearest one.
    """
    module, colon, attribute = name.partition(":")
    if not colon and "." not in name:
        require_name("experiment", name, CATALOG)
        module = CATALOG[name]
    found = imported(module, f"experiment {name!r}")
    try:
        found = getattr(found, attribute) if colon else found
    except AttributeError as error:
        raise ConfigError(f"no experiment can be found as {name!r}: {error}.") from error
    missing = [part for part in ("SETTINGS", "PARTS", "COMMON", "run") if not hasattr(found, part)]
    if missing:
        raise ConfigError(f"{name!r} is no experiment: it has no {', '.join(missing)}.")
    return found
