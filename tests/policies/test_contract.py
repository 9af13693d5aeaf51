import numpy as np
import pytest

from bmdp.policies import EpisodeCoin, EpsilonGreedy, HullPolicy, RandomBudgetedPolicy, TabularQ
from contracts.policy import CHECKS, Case, a_saved_policy_decides_as_before

GRID = np.linspace(0, 1, 5)
N_ACTIONS = 3


def table(seed=0, n_states=7):
    q_r, q_c = np.random.default_rng(seed).random((2, n_states, N_ACTIONS, len(GRID)))
    return TabularQ(q_r=q_r, q_c=q_c)


def plane(states):
    """Q-values of continuous states [N, 2]."""
    action = np.arange(N_ACTIONS)[:, None]
    q_c = np.abs(np.sin(states[:, :1, None] + action)) * (0.2 + GRID)
    return np.sqrt(q_c) + states[:, 1:, None] * 0.1, q_c


RANDOM = RandomBudgetedPolicy(N_ACTIONS, 0.0, 1.0)
HULL = HullPolicy(table(), GRID)
NUMBERS = np.arange(7)

CASES = {
    "hull, table": Case(HULL, NUMBERS, N_ACTIONS),
    "hull, function": Case(
        HullPolicy(plane, GRID), np.random.default_rng(0).random((9, 2)), N_ACTIONS, can_save=False
    ),
    "random": Case(RANDOM, NUMBERS, N_ACTIONS),
    "random, at most": Case(
        RandomBudgetedPolicy(N_ACTIONS, -1, 2.5, "at_most"), np.zeros((4, 2, 2)), N_ACTIONS
    ),
    "epsilon-greedy": Case(EpsilonGreedy(HULL, RANDOM, 0.3), NUMBERS, N_ACTIONS),
    "coin": Case(EpisodeCoin(HULL, RANDOM, 0.2, 0.8), NUMBERS, N_ACTIONS, one_step=False),
    "coin of coins": Case(
        EpisodeCoin(EpisodeCoin(HULL, RANDOM, 0.2, 0.8), HullPolicy(table(1), GRID), 0.1, 0.9),
        NUMBERS,
        N_ACTIONS,
        one_step=False,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_contract(check, case):
    check(case)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_saving(case, tmp_path):
    a_saved_policy_decides_as_before(case, tmp_path)
