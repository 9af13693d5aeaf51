"""Episodes that a learner never sees, and what they say of the policy that it learned.

They say what the policy will earn and pay. They are drawn for each round by itself, so that a run
that is resumed holds out the same ones.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bmdp.arrays import FloatArray, IntArray
from bmdp.data import TransitionBatch
from bmdp.errors import DataError
from bmdp.learn.fit import Record, TrainedPolicy
from bmdp.learn.fit_config import BFTQConfig, FitConfig, Learner
from bmdp.learn.fitted import SMOOTH, StageKind, first_rows, fitted_evaluation
from bmdp.learn.policy_fit import Terms
from bmdp.learn.priced_worth import expected_of_prices, grid_of
from bmdp.models import EncoderNet, FrontierNet, Model
from bmdp.policies.multiplier import MultiplierPolicy
from bmdp.policies.portfolio import Portfolio
from bmdp.randomness import named_generator

N_PREDICTED = 11  # budgets of a prediction, from end to end of the range
_MOST_STEPS = 50  # of an episode, for stages


class Parts(NamedTuple):
    """The episodes of a round: some to learn from, and some held out, if any."""

    learned: TransitionBatch
    held_out: TransitionBatch | None


def split_episodes(batch: TransitionBatch, share: float, *, seed: int, number: int) -> Parts:
    """Draws episodes of a round to be held out: a share of them, but neither none nor all.

    Args:
        batch: the transitions of the round.
        share: of episodes; with 0 nothing is held out.
        seed: of the run.
        number: of the round.

    Raises:
        DataError: if episodes are unknown, there is one only, or none of those drawn has a
            beginning.
    """
    if share == 0:
        return Parts(batch, None)
    if batch.episode is None:
        raise DataError("held_out needs a batch with episodes, to hold out whole ones.")
    episodes = np.unique(batch.episode)
    if len(episodes) < 2:
        raise DataError("held_out needs at least 2 episodes, to hold out one of them; got 1.")
    n_held_out = min(max(round(share * len(episodes)), 1), len(episodes) - 1)
    drawn = named_generator(seed, f"held-out/{number}").permutation(episodes)[:n_held_out]
    is_held_out = np.isin(batch.episode, drawn)
    held_out = batch.take(is_held_out)
    first_rows(held_out)  # checks that there are any
    return Parts(batch.take(~is_held_out), held_out)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What was held out of a run, to judge its policy by.

    Args:
        batch: the transitions.
        learner: what learned the policy, for discounts, grid, stages and, unless it is a network,
            the model.
        seed: of the run.
        device: of the model.
    """

    batch: TransitionBatch
    learner: Learner
    seed: int
    device: str

    @classmethod
    def of(cls, parts: Sequence[Parts], learner: Learner, seed: int, device: str) -> HeldOut | None:
        """Returns all that was held out of some rounds, if anything."""
        batches = [part.held_out for part in parts if part.held_out is not None]
        if not batches:
            return None
        return cls(TransitionBatch.concatenate(batches), learner, seed, device)

    def prediction(self, policy: TrainedPolicy, number: int) -> Record:
        """Returns what a policy of the round of a number will earn and pay."""
        begin = time.perf_counter()
        budgets = np.linspace(*self.learner.budget_range, N_PREDICTED)
        starts = first_rows(self.batch)
        reward, cost = self._expected(policy, starts, budgets)
        return {
            "kind": "prediction",
            "round": number,
            "budgets": budgets.tolist(),
            "reward": reward.tolist(),
            "cost": cost.tolist(),
            "n_episodes": len(starts),
            "n_transitions": len(self.batch),
            "seconds": time.perf_counter() - begin,
        }

    def _expected(
        self, policy: TrainedPolicy, starts: IntArray, budgets: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Mean rewards and costs from the first rows, at budgets."""
        learner, batch, stages = self.learner, self.batch, _stages(self.learner, self.batch)
        if isinstance(policy, Portfolio | MultiplierPolicy):
            assert isinstance(learner, FitConfig)
            terms = self._terms(learner, grid_of(policy))
            return expected_of_prices(policy, batch, batch.state[starts], budgets, terms, stages)
        found = fitted_evaluation(
            policy,
            batch,
            gamma=learner.gamma,
            cost_gamma=learner.cost_gamma if isinstance(learner, FitConfig) else None,
            budgets=budgets,
            model=self._model,
            seed=self._seed,
            device=self.device,
            n_budgets=learner.n_budgets if isinstance(learner, BFTQConfig) else 2,
            stages=stages,
        )
        return found.reward, found.cost

    def _terms(self, learner: FitConfig, grid: FloatArray) -> Terms:
        return Terms(
            model=self._model,
            beta_grid=grid,
            discounts=(learner.gamma, learner.discount_of_costs),
            reward_scale=float(np.abs(self.batch.reward).max()) or 1.0,
            n_actions=self.batch.n_actions,
            seed=self._seed,
            device=self.device,
        )

    @property
    def _model(self) -> Model:
        is_network = isinstance(self.learner.model, EncoderNet | FrontierNet)
        return SMOOTH if is_network else self.learner.model

    @property
    def _seed(self) -> int:
        return int(named_generator(self.seed, "held-out/prediction").integers(2**31))


def _stages(learner: Learner, batch: TransitionBatch) -> StageKind:
    """How to evaluate: as it was learned, or backwards if episodes have an end.

    The latter is right where time is hidden, and values need not settle.
    """
    own = learner.stages if isinstance(learner, FitConfig) else "none"
    if batch.step is None or (own == "none" and batch.step.max() >= _MOST_STEPS):
        return "none"
    counts = np.bincount(batch.step)
    ends = batch.terminal[batch.step == len(counts) - 1]
    return "shared" if own != "none" or ends.all() else "none"
