"""How much of a training run is done, by its records.

Work is counted in iterations of the first round. Iterations of later rounds have more data, and
take longer: those of round r count r + 1.
"""

from __future__ import annotations

from typing import Any


def all_work(n_rounds: int, n_iterations: int) -> float:
    """Returns the work of a run.

    >>> all_work(2, 10)
    30.0
    """
    return n_iterations * n_rounds * (n_rounds + 1) / 2


def work_done(record: dict[str, Any], n_rounds: int, n_iterations: int) -> float:
    """Returns the work that is done once there is a record.

    >>> work_done({"kind": "iteration", "round": 1, "iteration": 4, "is_last": False}, 2, 10)
    20.0
    """
    number: int = record["round"]
    before = all_work(number, n_iterations)
    if record["kind"] == "prediction":
        return all_work(n_rounds, n_iterations)
    if record["kind"] == "collection":
        return before
    n_done: int = n_iterations if record["is_last"] else record["iteration"] + 1
    return before + (number + 1) * n_done
