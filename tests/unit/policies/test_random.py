"""The random budgeted policy: every distribution drawn is within the budget, and uniform."""

import numpy as np
import pytest
from scipy import stats

from bmdp import ConfigError
from bmdp.policies import RandomBudgetedPolicy
from oracles.random_budgets import uniform_distributions

N = 20_000
SPENDS = pytest.mark.parametrize("spend", ["all", "at_most"])


def distributions(policy, beta, n=N, seed=0):
    uniforms = np.random.default_rng(seed).random((n, policy.n_draws))
    return policy.distributions(np.full(n, beta), uniforms)


@SPENDS
@pytest.mark.parametrize("beta", [-1.0, -0.9, 0.5, 1.9, 2.0])
@pytest.mark.parametrize("n_actions", [1, 2, 5])
def test_every_distribution_drawn_is_within_the_budget(spend, beta, n_actions):
    policy = RandomBudgetedPolicy(n_actions, -1.0, 2.0, spend)
    p, next_budgets = distributions(policy, beta)
    assert p.sum(1) == pytest.approx(np.ones(N))
    assert (p >= 0).all()
    assert ((next_budgets >= -1) & (next_budgets <= 2)).all()
    mean = (p * next_budgets).sum(1)
    assert (mean <= beta + 1e-12).all()
    if spend == "all":
        assert mean == pytest.approx(np.full(N, beta))


@pytest.mark.parametrize("beta", [0.3, 0.5, 0.8, 1.0])
def test_at_most_is_uniform_on_the_papers_simplex_over_the_end_budgets(beta):
    """p_0, beta_0 and the mean budget have the law of the paper's draws, read the same way."""
    p, budgets = distributions(RandomBudgetedPolicy(3, 0.0, 1.0, "at_most"), beta)
    rng = np.random.default_rng(1)
    rho = uniform_distributions(rng, n_actions=3, grid=[0.0, 1.0], beta=beta, n=N)
    paper_p, paper_budgets = rho.sum(2), rho[:, :, 1] / rho.sum(2)
    for ours, papers in (
        (p[:, 0], paper_p[:, 0]),
        (budgets[:, 0], paper_budgets[:, 0]),
        ((p * budgets).sum(1), rho[:, :, 1].sum(1)),
        (p.max(1) * budgets[:, 1], paper_p.max(1) * paper_budgets[:, 1]),
    ):
        assert stats.ks_2samp(ours, papers).pvalue > 1e-3


def test_without_the_cut_budgets_are_uniform_and_independent_of_p():
    p, budgets = distributions(RandomBudgetedPolicy(4, 0.0, 1.0, "at_most"), 1.0)
    assert stats.kstest(budgets[:, 2], "uniform").pvalue > 1e-3
    assert (
        stats.kstest(p[:, 2], stats.beta(2, 6).cdf).pvalue > 1e-3
    )  # margin of Dirichlet(2, ..., 2)
    assert abs(np.corrcoef(p[:, 2], budgets[:, 2])[0, 1]) < 3.3 / np.sqrt(N)


def test_all_is_uniform_on_the_face_where_the_budget_is_spent():
    p, budgets = distributions(RandomBudgetedPolicy(3, 0.0, 1.0), 0.3)
    x, y = p * budgets, p * (1 - budgets)
    for values, mass in ((x[:, 0], 0.3), (y[:, 1], 0.7)):  # margins of a uniform simplex
        assert stats.kstest(values / mass, stats.beta(1, 2).cdf).pvalue > 1e-3


def test_over_a_fine_grid_the_papers_draws_are_nearly_all_alike():
    rng = np.random.default_rng(2)
    grid = np.linspace(0, 1, 101)
    rho = uniform_distributions(rng, n_actions=5, grid=grid, beta=1.0, n=2000)
    mean = (rho * grid).sum((1, 2))
    assert mean.std() == pytest.approx(0.29 / np.sqrt(5 * 101), rel=0.1)
    assert mean.mean() == pytest.approx(0.5, abs=0.002)


@SPENDS
def test_actions_and_budgets_follow_the_distribution_drawn(spend):
    policy = RandomBudgetedPolicy(3, 0.0, 1.0, spend)
    rng = np.random.default_rng(3)
    uniforms = np.tile(rng.random(policy.n_draws), (N, 1))  # one distribution ...
    uniforms[:, -1] = rng.random(N)  # ... and many actions from it
    budgets = np.full(N, 0.6)
    p, next_budgets = policy.distributions(budgets, uniforms)
    decision = policy.choose(np.zeros(N), budgets, uniforms)
    assert (decision.next_budget == next_budgets[0, decision.action]).all()
    counts = np.bincount(decision.action, minlength=3)
    assert stats.chisquare(counts, p[0] * N).pvalue > 1e-3


def test_spending_all_keeps_the_mean_budget_along_an_episode():
    policy = RandomBudgetedPolicy(5, 0.0, 1.0)
    tracker = policy.start(np.zeros(N), 0.4, np.random.default_rng(4))
    for _ in range(9):
        tracker.decide(np.zeros(N))
        tracker.observe(0.0, np.zeros(N), False)
    assert abs(tracker.budgets.mean() - 0.4) < 3.3 * tracker.budgets.std() / np.sqrt(N)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0.0, 1.0), "n_actions must be a whole number from 1 to 65536; got 0"),
        ((2, 1.0, 1.0), "low and high must be two rising numbers; got 1.0 and 1.0"),
        ((2, 0.0, np.inf), "low and high must be two rising numbers"),
        ((2, 0.0, 1.0, "some"), "spend must be one of"),
    ],
)
def test_bad_settings_are_named(arguments, message):
    with pytest.raises(ConfigError, match=message):
        RandomBudgetedPolicy(*arguments)
