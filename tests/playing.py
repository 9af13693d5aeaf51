"""Playing batches with rules, for the tests of environments."""

import numpy as np


def returns(env, rule, seed=0):
    """Undiscounted (rewards, costs, lengths) of one episode in each slot of a batch."""
    seen, info = env.reset(seed=seed)
    rewards, costs, lengths = np.zeros((3, env.num_envs))
    done = np.zeros(env.num_envs, bool)
    while not done.all():
        seen, reward, ended, _, info = env.step(rule(seen))
        rewards += np.where(done, 0, reward)
        costs += np.where(done, 0, info["cost"])
        lengths += ~done
        done |= ended
    return rewards, costs, lengths


def agrees(samples, mean, std, n):
    """Whether two sample means agree at 99.9 %: ours, and a reported one with its own error."""
    error = np.hypot(samples.std() / np.sqrt(len(samples)), std / np.sqrt(n))
    return abs(samples.mean() - mean) <= 3.29 * error
