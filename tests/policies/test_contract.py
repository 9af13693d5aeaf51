import numpy as np

from bmdp.policies import (
    CalibratedPolicy,
    Certificate,
    HullPolicy,
    Portfolio,
    RandomBudgetedPolicy,
    StagedPolicy,
    TabularQ,
)
from contracts.policy import Case, contract_tests

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
STAGED = StagedPolicy((HULL, HullPolicy(table(1), GRID), HULL))


def portfolio(**changes):
    """Six members, one of them on no frontier, of a policy that counts steps among others."""
    members = {
        "policies": (HULL, STAGED, RANDOM),
        "which": np.array([0, 0, 1, 1, 2, 2]),
        "budgets": np.array([0.1, 0.9, 0.2, 0.6, 0.5, 1.0]),
        "costs": np.array([0.1, 0.9, 0.3, 0.6, 0.4, 0.8]),
        "rewards": np.array([1.0, 6.0, 3.0, 5.0, 2.0, 4.5]),
    }
    return Portfolio(**members | changes)


def calibrated():
    whole = portfolio()
    certificate = Certificate(
        confidence=0.9,
        n_episodes=10,
        seed=3,
        env="Any-v0",
        settings="{}",
        gamma=1.0,
        cost_range=(0.0, 1.0),
        binary_costs=False,
        cost_mean=whole.costs / 2,
        cost_high=whole.costs,
        reward_mean=whole.rewards,
        reward_low=np.full(6, -np.inf),
    )
    return CalibratedPolicy(whole, certificate)


CASES = {
    "hull, table": Case(HULL, NUMBERS, N_ACTIONS),
    "hull, function": Case(
        HullPolicy(plane, GRID), np.random.default_rng(0).random((9, 2)), N_ACTIONS, can_save=False
    ),
    "random": Case(RANDOM, NUMBERS, N_ACTIONS),
    "random, at most": Case(
        RandomBudgetedPolicy(N_ACTIONS, -1, 2.5, "at_most"), np.zeros((4, 2, 2)), N_ACTIONS
    ),
    "coin": Case(Portfolio.coin(HULL, RANDOM, 0.2, 0.8), NUMBERS, N_ACTIONS, one_step=False),
    "coin of coins": Case(
        Portfolio.coin(Portfolio.coin(HULL, RANDOM, 0.2, 0.8), STAGED, 0.1, 0.9),
        NUMBERS,
        N_ACTIONS,
        one_step=False,
    ),
    "portfolio": Case(portfolio(), NUMBERS, N_ACTIONS, one_step=False),
    "portfolio that does not mix": Case(portfolio(mixes=False), NUMBERS, N_ACTIONS, one_step=False),
    "calibrated": Case(calibrated(), NUMBERS, N_ACTIONS, one_step=False),
}


test_contract, test_saving = contract_tests(CASES)
