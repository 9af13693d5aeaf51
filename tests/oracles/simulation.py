"""Returns of a policy by playing it: Monte Carlo with a stated confidence."""

import numpy as np


def discounted_returns(model, policy, *, start, budget, n, seed):
    """Discounted (rewards, costs) `[n]` of episodes from a state or a distribution.

    Without an end, they are cut when discounts are below 1e-6.
    """
    rng = np.random.default_rng(seed)
    states = rng.choice(model.n_states, size=n, p=model.start_distribution(start))
    tracker = policy.start(states, budget, rng)
    cumulated = model.transition.toarray().cumsum(axis=1)
    rewards, costs, ended = np.zeros(n), np.zeros(n), model.terminal[states]
    step = 0
    while not ended.all() and step != model.horizon and model.gamma**step > 1e-6:
        action = tracker.decide(states).action
        rewards += np.where(ended, 0, model.gamma**step * model.reward[states, action])
        paid = np.where(ended, 0, model.cost[states, action])
        costs += model.cost_gamma**step * paid
        rows = cumulated[states * model.n_actions + action]
        following = (rng.random((n, 1)) > rows).sum(axis=1).clip(max=model.n_states - 1)
        following = np.where(ended, states, following)
        ended = ended | model.terminal[following]
        tracker.observe(paid, following, ended)
        states, step = following, step + 1
    return rewards, costs


def is_mean_of(samples, expected, *, n_deviations=5, slack=1e-9):
    """Whether a number is within so many standard errors of the mean of samples."""
    error = samples.std(ddof=1) / np.sqrt(len(samples))
    return abs(samples.mean() - expected) <= n_deviations * error + slack
