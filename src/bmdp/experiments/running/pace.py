"""How much of a training run is done, by its records.

Work is counted in iterations of the first round. Iterations of later rounds have more data, and
take longer: those of round r count r + 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bmdp.learn.learners import Learner


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


def most_iterations(learner: Learner, record: dict[str, Any] | None) -> int:
    """Returns the number of iterations of a round, at most, as far as it can be told.

    If steps have models of their own there is one for each step, as many as records tell.

    Args:
        learner: settings.
        record: of the last iteration, if there was one.

    >>> from bmdp.learn import BFTQConfig, Iterations
    >>> most_iterations(BFTQConfig(gamma=1.0, schedule=Iterations(12)), None)
    12
    >>> most_iterations(BFTQConfig(gamma=1.0), {"iteration": 2, "step": 6})
    9
    """
    from bmdp.learn.fit import Backward, Iterations  # imports torch

    step = None if record is None else record.get("step")
    if record is not None and step is not None:
        return int(record["iteration"] + step + 1)
    if isinstance(learner.schedule, Backward) or (learner.schedule is None and record is None):
        return 1
    schedule = learner.schedule or Iterations()
    return schedule.most(max(learner.gamma, learner.cost_gamma or 0.0))
