"""The paper's random distributions by rejection: uniform on the simplex, E[beta_a] <= beta."""

import numpy as np


def uniform_distributions(rng, *, n_actions, grid, beta, n):
    """`n` distributions over (action, budget), uniform among those within the budget, [n, A, B]."""
    grid = np.asarray(grid)
    kept, n_kept = [], 0
    while n_kept < n:
        drawn = rng.dirichlet(np.ones(n_actions * len(grid)), size=4 * n)
        drawn = drawn.reshape(-1, n_actions, len(grid))
        within = drawn[(drawn * grid).sum((1, 2)) <= beta]
        kept.append(within)
        n_kept += len(within)
    return np.concatenate(kept)[:n]
