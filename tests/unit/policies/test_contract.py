import numpy as np

from bmdp.policies import (
    CalibratedPolicy,
    Certificate,
    ExploringPolicy,
    HullPolicy,
    HullRule,
    MultiplierPolicy,
    Portfolio,
    PriceDial,
    PricedPolicy,
    RandomBudgetedPolicy,
    TabularQ,
)
from contracts.policy import Case, contract_tests

GRID = np.linspace(0, 1, 5)
N_ACTIONS = 3


def table(seed=0, steps=(), n_heads=5):
    q_r, q_c = np.random.default_rng(seed).random((2, *steps, 7, N_ACTIONS, n_heads))
    return TabularQ(q_r=q_r, q_c=q_c)


def plane(states):
    """Q-values of continuous states [N, 2]."""
    action = np.arange(N_ACTIONS)[:, None]
    q_c = np.abs(np.sin(states[:, :1, None] + action)) * (0.2 + GRID)
    return np.sqrt(q_c) + states[:, 1:, None] * 0.1, q_c


RANDOM = RandomBudgetedPolicy(N_ACTIONS, 0.0, 1.0)
HULL = HullPolicy(table(), GRID)
NUMBERS = np.arange(7)
STEPS = HullPolicy(table(1, (3,)), GRID)
DIAL = PriceDial(table(2, n_heads=4), [np.inf, 2.0, 0.5, 0.0], 0.1)
DIAL_OF_STEPS = PriceDial(table(3, (3,), 4), DIAL.prices)


def portfolio(**changes):
    """Six members, one of them on no frontier, of a policy that counts steps among others."""
    members = {
        "policies": (HULL, STEPS, RANDOM),
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


def exploring(greedy):
    return ExploringPolicy(greedy, RANDOM, decay=0.01, floor=0.3, move=0.2)


CAPPED = HullRule.of(*table()(NUMBERS), 3.0, costs_from_zero=True)
BY_STEP = HullRule(slope=[1.0, 2.0, 3.0], slack=[0.1, 0.0, 0.2])
CASES = {
    "hull, table": Case(HULL, NUMBERS, N_ACTIONS),
    "hull, capped": Case(HullPolicy(table(), GRID, CAPPED), NUMBERS, N_ACTIONS),
    "hull, steps": Case(
        HullPolicy(table(1, (3,)), GRID, BY_STEP), NUMBERS, N_ACTIONS, one_step=False
    ),
    "hull, one of several steps": Case(STEPS.at_step(1), NUMBERS, N_ACTIONS),
    "hull, function": Case(
        HullPolicy(plane, GRID), np.random.default_rng(0).random((9, 2)), N_ACTIONS, can_save=False
    ),
    "random": Case(RANDOM, NUMBERS, N_ACTIONS),
    "random, at most": Case(
        RandomBudgetedPolicy(N_ACTIONS, -1, 2.5, "at_most"), np.zeros((4, 2, 2)), N_ACTIONS
    ),
    "price": Case(PricedPolicy(table(4, n_heads=1), 0.5), NUMBERS, N_ACTIONS),
    "price, steps": Case(
        PricedPolicy(table(4, (3,), 1), np.inf), NUMBERS, N_ACTIONS, one_step=False
    ),
    "dial": Case(DIAL, NUMBERS, N_ACTIONS),
    "dial, steps": Case(DIAL_OF_STEPS, NUMBERS, N_ACTIONS, one_step=False),
    "carried price": Case(
        MultiplierPolicy(DIAL), NUMBERS, N_ACTIONS, one_step=False, hands_on_one_budget=False
    ),
    "carried price, steps": Case(
        MultiplierPolicy(DIAL_OF_STEPS, -1.0, 2.0),
        NUMBERS,
        N_ACTIONS,
        one_step=False,
        hands_on_one_budget=False,
    ),
    "exploring": Case(exploring(HULL), NUMBERS, N_ACTIONS, one_step=False),
    "exploring, steps": Case(exploring(STEPS), NUMBERS, N_ACTIONS, one_step=False),
    "coin": Case(Portfolio.coin(HULL, RANDOM, 0.2, 0.8), NUMBERS, N_ACTIONS, one_step=False),
    "coin of coins": Case(
        Portfolio.coin(Portfolio.coin(HULL, RANDOM, 0.2, 0.8), STEPS, 0.1, 0.9),
        NUMBERS,
        N_ACTIONS,
        one_step=False,
    ),
    "portfolio": Case(portfolio(), NUMBERS, N_ACTIONS, one_step=False),
    "portfolio that does not mix": Case(portfolio(mixes=False), NUMBERS, N_ACTIONS, one_step=False),
    "calibrated": Case(calibrated(), NUMBERS, N_ACTIONS, one_step=False),
}


test_contract, test_saving = contract_tests(CASES)
