"""What to beware of before learning from a log, and what makes it impossible."""

from __future__ import annotations

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.data import TransitionBatch
from bmdp.errors import DataError
from bmdp.learn.fit_config import BFTQConfig, FitConfig, Learner


def data_notes(batch: TransitionBatch, learner: Learner) -> tuple[str, ...]:
    """Returns what to beware of, in plain words: what the log says of itself, and of budgets.

    Raises:
        DataError: if these settings cannot learn from this log at all.
    """
    notes = list(batch.summary().notes)
    if learner.gamma == 1 and not batch.terminal.any():
        notes.append(
            f"gamma is 1 and no row is terminal: values are sums over {learner.iterations} steps, "
            "one for each iteration"
        )
    if isinstance(learner, FitConfig):
        _require_columns(batch, learner)
        notes.extend(_budget_notes(batch, learner))
    return tuple(notes)


def _require_columns(batch: TransitionBatch, learner: FitConfig) -> None:
    n_episodes = len(batch) if batch.episode is None else len(np.unique(batch.episode))
    if n_episodes < learner.n_models:
        raise DataError(
            f"episode must name at least {learner.n_models} episodes for learner.valuation "
            f"{learner.valuation!r}, which gives each of so many models its own; got "
            f"{n_episodes}. Use learner.valuation=self."
        )
    if isinstance(learner, BFTQConfig) and learner.labels == "stored" and batch.budget is None:
        raise DataError(
            "budget must be given for learner.labels 'stored'; the log has none. Use "
            "learner.labels=uniform."
        )
    if learner.stages != "none" and batch.step is None:
        raise DataError("step must be given for learner.stages; the log has none.")


def _budget_notes(batch: TransitionBatch, learner: FitConfig) -> list[str]:
    """Whether the budgets have to do with what episodes cost."""
    paid = episode_costs(batch, learner.discount_of_costs)
    if paid is None or not batch.cost.any():
        return []
    low, high = learner.budget_range
    cheapest, dearest = float(paid.min()), float(paid.max())
    seen = f"episodes of the log cost {cheapest:g} to {dearest:g}"
    asked = f"budget_range, {low:g} to {high:g},"
    if high < cheapest:
        return [f"{asked} is below what any episode cost: {seen}"]
    if low >= dearest:
        return [f"{asked} is above what any episode cost: {seen}, so every budget buys the same"]
    if high - low > 20 * (dearest - low):
        return [f"{asked} is much wider than the costs: {seen}"]
    return []


def episode_costs(batch: TransitionBatch, gamma: float) -> FloatArray | None:
    """Returns the discounted cost of each episode, or None if episodes or steps are unknown."""
    if batch.episode is None or batch.step is None:
        return None
    _, which = np.unique(batch.episode, return_inverse=True)
    paid = batch.cost * gamma ** batch.step.astype(np.float64)
    costs: FloatArray = np.bincount(which, weights=paid).astype(np.float64)
    return costs
