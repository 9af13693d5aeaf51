"""Code of a user, checked by mypy --strict against what is installed; never run."""

from pathlib import Path
from typing import assert_type

import numpy as np

import bmdp
from bmdp.models import TableModel


def learned(log: bmdp.TransitionBatch) -> bmdp.Fitted:
    """The front door: a log, a forecast, a policy in a folder."""
    fitted = bmdp.fit(log, gamma=1.0, seed=0)
    forecast: bmdp.Forecast = fitted.forecast
    top = float(forecast.cost_high.max())
    print(f"{fitted} costs at most {top}", *fitted.notes)
    fitted.policy.save("policy")
    assert_type(fitted.policy, bmdp.policies.Policy)
    return fitted


def by_columns(fitted: bmdp.Fitted, later: bmdp.TransitionBatch) -> str:
    """States as the log has them, names of actions, and a promise, also of a policy from disk."""
    patient = {"severity": 0.9, "ward": "east"}
    tracker = fitted.policy.start([patient], 0.3, np.random.default_rng(0))
    assert_type(tracker, bmdp.policies.Tracker)
    action = int(tracker.decide([patient]).action[0])
    tracker.observe([0.0], [patient], [False])
    assert_type(fitted.policy.action_names, tuple[str, ...])
    safe = bmdp.certify(fitted.policy, later, gamma=1.0)
    assert_type(safe, bmdp.policies.Policy)
    print(safe.certificate, bmdp.load_policy("safe").certificate.smallest_budget)
    return safe.action_name(action)


def read(path: Path) -> bmdp.TransitionBatch:
    """Logs of several kinds."""
    assert_type(bmdp.TransitionBatch.from_parquet(path), bmdp.TransitionBatch)
    columns = bmdp.Columns(reward="gain", cost="loss")
    return bmdp.TransitionBatch.from_parquet(path, columns=columns)


def decided(folder: Path) -> list[int]:
    """Decisions of a loaded policy, in episode form and in one-step form."""
    policy = bmdp.load_policy(folder)
    policy.save("copy", overwrite=True)
    assert_type(measured(policy), bmdp.Evaluation)
    rng = np.random.default_rng(0)
    low, high = policy.budget_range
    tracker = policy.start([[0.0]], [0.5 * (low + high)], rng)
    decision = tracker.decide([[0.0]])
    tracker.observe([0.1], [[1.0]], [False])
    tracker.set_budget(0.1)
    again = policy.resume(tracker.state())
    actions: list[int] = [int(a) for a in np.asarray(decision.action)]
    return actions + [int(a) for a in np.asarray(again.decide([[1.0]]).action)]


def by_hand(log: bmdp.TransitionBatch) -> float:
    """A learner by its settings, and the frontier of a state."""
    config = bmdp.BFTQConfig(gamma=0.9, budget_range=(0.0, 1.0), model=TableModel())
    policy = bmdp.BFTQ(config).fit(log, seed=0)
    frontier: bmdp.Frontier = policy.frontier([0.0])
    mixture: bmdp.Mixture = bmdp.hull_mixture(frontier, 0.5)
    assert_type(mixture.status, bmdp.BudgetStatus)
    return frontier.reward_at(0.5) + mixture.reward


def measured(policy: bmdp.policies.BudgetedPolicy) -> bmdp.Evaluation:
    """Evaluations, by playing and by a log, and a certificate."""
    found = bmdp.evaluate(policy, "bmdp/Corridors-v0", budgets=[0.1, 0.5], n_episodes=10, seed=0)
    safe = bmdp.calibrate(policy, "bmdp/Corridors-v0", confidence=0.95, n_episodes=100, seed=0)
    safe.save("safe", overwrite=True)
    log = read(Path("log.parquet"))
    told = bmdp.evaluate_offline(policy, log, budgets=[0.1], gamma=0.9, seed=0)
    print(told.cost_high, found.cost_mean.sum(), bmdp.certify(policy, log, gamma=0.9).certificate)
    return found


def solved(transition: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """A known model, exactly."""
    model = bmdp.FiniteBMDP(
        transition=transition, reward=np.zeros((2, 2)), cost=np.zeros((2, 2)), gamma=0.9
    )
    best = bmdp.exact.optimal_frontier(model, start=0)
    grid = bmdp.exact.budgeted_value_iteration(model, np.linspace(0, 1, 11))
    assert_type(grid.converged, bool)
    try:
        return best.reward_at(0.1)
    except bmdp.BmdpError as error:
        print(error)
        return 0.0


def in_production(folder: str) -> object:
    """A service, and a budget of a period."""
    service = bmdp.deployment.Service(bmdp.load_policy(folder))
    print(bmdp.PeriodBudget, bmdp.certify, bmdp.envs.Corridors, service)
    return service
