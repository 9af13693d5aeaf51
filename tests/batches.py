"""Batches of transitions whose answer is known, and a keeper that kills what is fitted to them."""

import numpy as np
from gymnasium.envs.registration import EnvSpec

from bmdp import FiniteBMDP, TransitionBatch
from bmdp.envs.finite import FiniteEnv, FiniteVectorEnv
from bmdp.learn import collect


def bandit(n=400, seed=0):
    """One step: action 0 earns 0 for nothing, action 1 earns 1 for cost 1."""
    rng = np.random.default_rng(seed)
    state, action = rng.normal(size=(n, 2)), rng.integers(2, size=n)
    paid = action.astype(float)
    return TransitionBatch(
        state=state,
        action=action,
        reward=paid,
        cost=paid,
        next_state=state,
        terminal=np.ones(n, bool),
        episode=np.arange(n),
        step=np.zeros(n, int),
        budget=rng.random(n),
    )


def chain(n=600, seed=0):
    """Two steps: the first leads on and pays nothing, the second is the bandit."""
    rng = np.random.default_rng(seed)
    first = np.column_stack([np.zeros(n), rng.normal(size=n)])
    second = np.column_stack([np.ones(n), rng.normal(size=n)])
    last = bandit(n, seed)
    start = TransitionBatch(
        state=first,
        action=rng.integers(2, size=n),
        reward=np.zeros(n),
        cost=np.zeros(n),
        next_state=second,
        terminal=np.zeros(n, bool),
        episode=np.arange(n),
        step=np.zeros(n, int),
        budget=rng.random(n),
    )
    end = TransitionBatch(
        state=second,
        action=last.action,
        reward=last.reward,
        cost=last.cost,
        next_state=second,
        terminal=last.terminal,
        episode=np.arange(n),
        step=np.ones(n, int),
        budget=rng.random(n),
    )
    return end_to_end([start, end])


def end_to_end(batches):
    """All rows of several batches; unlike `TransitionBatch.concatenate`, of the same episodes."""
    arrays = [batch.to_arrays() for batch in batches]
    return TransitionBatch.from_arrays(
        {name: np.concatenate([one[name] for one in arrays]) for name in arrays[0]},
        n_actions=batches[0].n_actions,
    )


def fraction_model(seed, gamma, **settings):
    """Four states, of which the last is the end, three actions, and probabilities in quarters."""
    rng = np.random.default_rng(seed)
    transition = np.zeros((4, 3, 4))
    for state, action in np.ndindex(4, 3):
        np.add.at(transition[state, action], rng.integers(4, size=4), 0.25)
    return FiniteBMDP(
        transition=transition,
        reward=rng.integers(-2, 9, (4, 3)) / 8,
        cost=rng.integers(5, size=(4, 3)) / 8,
        gamma=gamma,
        terminal=np.arange(4) == 3,
        **settings,
    )


def exhaustive_batch(model, *, parts, n_copies):
    """Every (s, a, s') as often as is its probability, in parts; each copy is an episode."""
    chances = model.transition.toarray().reshape(*model.shape, model.n_states)
    state, action, following = np.nonzero(chances)
    counts = chances[state, action, following] * parts
    assert (counts == counts.round()).all()
    rows = np.tile(np.repeat(np.arange(len(counts)), counts.astype(int)), n_copies)
    state, action, following = state[rows], action[rows], following[rows]
    return TransitionBatch(
        state=state.astype(float),
        action=action,
        reward=model.reward[state, action],
        cost=model.cost[state, action],
        next_state=following.astype(float),
        terminal=model.terminal[following],
        episode=np.repeat(np.arange(n_copies), len(rows) // n_copies),
        n_actions=model.n_actions,
    )


def every_step(model, n_steps, *, n_copies=1, last=None):
    """All transitions at every step; at the last one those of another model, if given."""
    batches = []
    for step in range(n_steps):
        is_last = step == n_steps - 1
        rows = exhaustive_batch(
            last if last is not None and is_last else model, parts=4, n_copies=n_copies
        ).to_arrays()
        rows["step"] = np.full(len(rows["action"]), step)
        rows["terminal"] = rows["terminal"] | is_last
        batches.append(TransitionBatch.from_arrays(rows, n_actions=model.n_actions))
    return end_to_end(batches)


def seen_with(batch, *columns):
    """A batch whose states begin with more numbers, each a function of the step and the row."""
    arrays = batch.to_arrays()
    row = np.arange(len(batch))
    for name, later in (("state", 0), ("next_state", 1)):
        more = [column(batch.step + later, row) for column in columns]
        arrays[name] = np.column_stack([*more, arrays[name]])
    return TransitionBatch.from_arrays(arrays, n_actions=batch.n_actions)


class Memory:
    """Keeps what a fit needs in memory, and kills the fit at an iteration."""

    def __init__(self, kill_at):
        self.n_done, self.change, self.kept, self.kill_at = 0, None, {}, kill_at

    def load(self):
        return self.n_done, self.change, self.kept

    def save(self, n_done, change, step, tensors):
        self.n_done, self.change = n_done, change
        self.kept[step] = {name: tensor.clone() for name, tensor in tensors.items()}
        if n_done == self.kill_at:
            raise KeyboardInterrupt


def played(policy, model, n, *, seed, budgets=1.0):
    """Episodes of a finite model from state 0."""
    spec = EnvSpec(
        "Finite-v0",
        entry_point=FiniteEnv,
        vector_entry_point=FiniteVectorEnv,
        kwargs={"model": model},
    )
    return collect(policy, spec, range(n), budgets=np.full(n, budgets), seed=seed)


def changed(batch, **changes):
    """A batch with other columns; None takes one away."""
    columns = batch.to_arrays() | changes
    known = {name: values for name, values in columns.items() if values is not None}
    return TransitionBatch(**known, n_actions=batch.n_actions)
