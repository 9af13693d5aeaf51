"""All deterministic policies of a tiny model, valued one by one."""

import itertools

import numpy as np


def all_policy_values(model, start):
    """(costs, rewards) of every deterministic stationary policy from a state."""
    dense = model.transition.toarray().reshape(model.n_states, model.n_actions, model.n_states)
    states = np.arange(model.n_states)
    found = []
    for actions in itertools.product(range(model.n_actions), repeat=model.n_states):
        chain = np.eye(model.n_states) - model.gamma * dense[states, actions]
        values = (
            np.linalg.solve(chain, t[states, actions])[start] for t in (model.cost, model.reward)
        )
        found.append(tuple(values))
    return np.array(found).T
