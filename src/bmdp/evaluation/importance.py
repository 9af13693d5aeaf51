"""Weighted importance sampling, with budgets that are drawn along the log.

Under another policy a logged episode is more or less likely by the product over its steps of pi /
b, where b is the probability with which the action was taken, and pi that with which the policy
would have taken it. What a budgeted policy does depends on its budget, too, which the log does not
have: it starts at what is asked, and the policy itself moves it. So at each step, of the options
(a, beta_a, p) at the state and the budget held,

    pi  is the sum of p over those whose action a was logged,

and the next budget is one of *their* beta_a, drawn in proportion to p. The mean weight over several
such paths of budgets is unbiased.

With w_it the weight of episode i after step t, what the policy earns is

    sum over t of gamma^t (sum over i of w_it r_it) / (sum over i of w_it).

Episodes that have ended keep their weight, and earn nothing. To divide by the sum of weights rather
than by the number of episodes makes a small bias, and much less noise (Precup, Sutton and Singh,
2000).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bmdp.arrays import FloatArray, IntArray
from bmdp.errors import DataError, PolicyError
from bmdp.evaluation.logged import LoggedEpisodes
from bmdp.policies.policy import Options, SteppedPolicy
from bmdp.randomness import EpisodeStreams

_CHUNK = 16_384  # states at which a policy is asked at a time


class Weighted(NamedTuple):
    """Episodes with their weights, at each of `B` budgets, in `T` steps."""

    weight: FloatArray  # [B, N, T]
    paid: FloatArray  # [2, N, T], rewards and costs, discounted; 0 after the end

    def estimate(self, counts: FloatArray) -> FloatArray:
        """Returns reward and cost `[K, B, 2]`, given how often each episode counts, `[K, N]`.

        It is NaN where no episode that counts has a weight.
        """
        found = np.empty((len(counts), len(self.weight), 2))
        with np.errstate(invalid="ignore"):
            for budget, weight in enumerate(self.weight):
                total = counts @ weight
                for kind, paid in enumerate(self.paid):
                    found[:, budget, kind] = (counts @ (weight * paid) / total).sum(axis=1)
        return found

    def effective_episodes(self) -> FloatArray:
        """Returns how many episodes of equal weight would tell as much, `[B]`: Kish's number."""
        last = self.weight[:, :, -1]
        effective: FloatArray = last.sum(axis=1) ** 2 / np.square(last).sum(axis=1)
        return effective


def weighted_episodes(
    policy: SteppedPolicy,
    episodes: LoggedEpisodes,
    *,
    discounts: tuple[float, float],
    budgets: FloatArray,
    n_paths: int,
    seed: int,
) -> Weighted:
    """Returns logged episodes with their weights under a policy.

    Args:
        policy: one whose probabilities are known.
        episodes: with probabilities of actions.
        discounts: of rewards and of costs.
        budgets: at the start, `[B]`.
        n_paths: of budgets, for each episode and budget at the start.
        seed: of the paths. What is drawn does not depend on the other budgets.

    Raises:
        DataError: if there are no probabilities, or all episodes have weight 0 at a budget.
        PolicyError: if it is not known with which probabilities the policy acts.
    """
    batch, n_steps = episodes.batch, int(episodes.length.max())
    if batch.probability is None:
        raise DataError(
            "importance sampling needs the probabilities of logged actions: give probability of "
            'each row, or use method="fitted".'
        )
    streams = EpisodeStreams.named(seed, "evaluate-offline/paths", range(len(episodes)))
    held = np.tile(budgets[:, None, None], (1, len(episodes), n_paths))
    weight = np.ones(held.shape)
    found = Weighted(np.empty((*held.shape[:2], n_steps)), np.zeros((2, len(episodes), n_steps)))
    row = np.zeros(len(episodes), np.int64)  # of each episode that goes on
    for step in range(n_steps):
        going, rows = episodes.at(step)
        row[going] = rows
        for kind, column in enumerate((batch.reward, batch.cost)):
            found.paid[kind, going, step] = discounts[kind] ** step * column[rows]
        is_played = (weight > 0) & (episodes.length > step)[:, None]
        if is_played.any():
            _, who, path = np.nonzero(is_played)
            at = row[who]
            options = _options(policy, step, batch.state, at, held[is_played])
            uniforms = streams.uniforms(step, n_paths)[who, path]
            chance, held[is_played] = given_action(options, batch.action[at], uniforms)
            weight[is_played] *= chance / batch.probability[at]
        found.weight[:, :, step] = weight.mean(axis=2)
        _require_weight(found.weight[:, :, step], budgets, step)
    return found


def given_action(
    options: Options, actions: IntArray, uniforms: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns probabilities of actions `[n]`, and next budgets that are drawn given these actions.

    >>> two = Options(np.array([[0, 1]]), np.array([[0.2, 0.8]]), np.array([[0.75, 0.25]]))
    >>> given_action(two, np.array([1]), np.array([0.5]))
    (array([0.25]), array([0.8]))
    """
    chances = np.where(options.action == actions[:, None], options.probability, 0.0)
    below = np.cumsum(chances, axis=1)
    chosen = (below <= uniforms[:, None] * below[:, -1:]).sum(axis=1)
    chosen = np.minimum(chosen, chances.shape[1] - 1)  # where no option has the action
    return below[:, -1], np.take_along_axis(options.next_budget, chosen[:, None], axis=1)[:, 0]


def _options(
    policy: SteppedPolicy, step: int, states: FloatArray, row: IntArray, held: FloatArray
) -> Options:
    """What the policy may do at states of rows `[n]` with budgets `[n]`; it is asked once each."""
    now = policy.at_step(step)
    ask = getattr(now, "options", None)
    if ask is None:
        raise PolicyError(
            f"{type(now).__name__} does not say with which probabilities it acts at a budget for "
            "each state: it has no `options`."
        )
    levels, level = np.unique(np.minimum(held, policy.budget_range[1]), return_inverse=True)
    pairs, which = np.unique(row * len(levels) + level, return_inverse=True)
    parts = [
        ask(states[some // len(levels)], levels[some % len(levels)])
        for some in np.split(pairs, range(_CHUNK, len(pairs), _CHUNK))
    ]
    return Options(*(np.concatenate(columns)[which] for columns in zip(*parts, strict=True)))


def _require_weight(weight: FloatArray, budgets: FloatArray, step: int) -> None:
    """Checks that at each budget an episode has a weight, `[B, N]`."""
    lost = np.flatnonzero(weight.sum(axis=1) == 0)
    if len(lost):
        raise DataError(
            "no logged episode could have been played by the policy at budget "
            f"{budgets[lost[0]]:g}: at step {step} it takes none of the logged actions. Log more "
            'episodes and all actions, or use method="fitted".'
        )
