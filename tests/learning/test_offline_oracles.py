"""Estimates by weights against those of scope-rl and obp, from the same logs and values.

These libraries know no budgets, so the policy here does the same at all of them. Their numbers are
written down below. Where they are installed, they are asked again.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from bmdp import TransitionBatch
from bmdp.evaluation import evaluate_offline, offline
from bmdp.evaluation.offline import Values, logged_episodes, weighted_episodes
from bmdp.models import TableModel
from bmdp.policies.policy import Options

# By scope-rl 0.2.1 (discrete PerDecisionImportanceSampling, SelfNormalizedPDIS, SelfNormalizedDR)
# and obp 0.4.1 (InverseProbabilityWeighting, its self-normalized form, SelfNormalizedDoublyRobust),
# with numpy 2.4.6: reward, then cost. "pdis" and "ipw" divide by the number of episodes, the others
# by the sum of weights, as we do.
SCOPE_RL = {
    "three steps": {
        "pdis": [4.623525138486452, 0.3490185777777778],
        "snpdis": [4.5017492361271145, 0.3403392649553582],
        "sndr": [4.581288303086667, 0.3569024824846248],
    },
    "up to three steps": {
        "pdis": [3.65814856601402, 0.28954504761904765],
        "snpdis": [3.6043853715164516, 0.28538680239797876],
        "sndr": [3.685679243456789, 0.29954293200812016],
    },
}
OBP = {  # of one step
    "ipw": [1.8761108620811457, 0.16725],
    "snipw": [1.8364522387351274, 0.16371454541217048],
    "sndr": [1.8063579883797087, 0.1698651513739018],
}

N_EPISODES = 200
DISCOUNTS = (0.9, 0.8)  # of rewards and of costs
ROUNDING = {"rtol": 1e-9}  # scope-rl adds 1e-10 to the mean weight by which it divides

PLAYED = np.array([[0.8, 0.2], [0.3, 0.7], [1.0, 0.0]])  # by the policy, at each state
LOGGED = np.array([[0.5, 0.5], [0.4, 0.6], [0.7, 0.3]])
FOLLOWS = np.array([[[5, 3, 2], [1, 6, 3]], [[4, 4, 2], [2, 3, 5]], [[6, 2, 2], [3, 3, 4]]]) / 10
REWARD = np.array([[0.0, 2.0], [1.0, 4.0], [0.5, 8.0]])
RISK = np.array([[0.0, 0.3], [0.1, 0.6], [0.0, 0.9]])  # of a cost of 1


# Logs and values


class Log(NamedTuple):
    """Episodes of up to `T` steps; after the end there are state 0 and action 0, and no pay."""

    state: np.ndarray  # [N, T]
    action: np.ndarray  # [N, T]
    paid: np.ndarray  # [2, N, T], rewards and costs
    goes_on: np.ndarray  # [N, T], whether the episode has the step

    def batch(self):
        who, step = np.nonzero(self.goes_on)
        at = who, step
        is_last = ~np.pad(self.goes_on, ((0, 0), (0, 1)))[who, step + 1]
        following = np.pad(self.state, ((0, 0), (0, 1)))[who, step + 1]
        return TransitionBatch(
            **{"state": self.state[at], "action": self.action[at], "next_state": following},
            **{"reward": self.paid[0][at], "cost": self.paid[1][at], "terminal": is_last},
            **{"episode": who, "step": step, "n_actions": 2},
            probability=LOGGED[self.state[at], self.action[at]],
        )

    def rows(self, table):
        """Chances of actions by a table, one row for each step; after the end action 0 is sure."""
        return np.where(self.goes_on[..., None], table[self.state], [1.0, 0.0]).reshape(-1, 2)


@cache
def log(n_steps, ends):
    """Episodes of a finite problem, that end after a step with some probability.

    Made of raw bits, which numpy promises not to change.
    """
    bits = np.random.PCG64(24).random_raw(N_EPISODES * n_steps * 6)
    chance = iter(((bits >> np.uint64(11)) * 2.0**-53).reshape(n_steps * 6, N_EPISODES))
    state, action = np.zeros((2, N_EPISODES, n_steps), int)
    paid, goes_on = np.zeros((2, N_EPISODES, n_steps)), np.zeros((N_EPISODES, n_steps), bool)
    now, is_on = (3 * next(chance)).astype(int), np.ones(N_EPISODES, bool)
    for step in range(n_steps):
        act = (next(chance) >= LOGGED[now, 0]).astype(int)
        state[:, step], action[:, step], goes_on[:, step] = now * is_on, act * is_on, is_on
        paid[0, :, step] = (REWARD[now, act] + next(chance)) * is_on
        paid[1, :, step] = (next(chance) < RISK[now, act]) & is_on
        now = (next(chance)[:, None] >= FOLLOWS[now, act].cumsum(axis=1)[:, :2]).sum(axis=1)
        is_on &= next(chance) >= ends
    return Log(state, action, paid, goes_on)


LOGS = {"three steps": (3, 0.0), "up to three steps": (3, 0.3)}
both_logs = pytest.mark.parametrize("name", LOGS)


class Fixed:
    """A policy that does the same whatever its budget, and hands it on."""

    budget_range = (0.0, 1.0)

    def at_step(self, step):
        return self

    def options(self, states, budgets):
        shape, held = (len(states), 1), np.column_stack([budgets, budgets])
        return Options(np.tile([0, 1], shape), held, PLAYED[states[:, 0].astype(int)])

    def options_at(self, states, budgets):
        found = self.options(np.repeat(states, len(budgets), axis=0), np.tile(budgets, len(states)))
        return Options(*(column.reshape(len(states), len(budgets), 2) for column in found))


class Given:
    """Values of one half of the episodes, wrong ones: of each step, state and action."""

    def __init__(self, half):
        steps, states, actions = np.arange(3)[:, None, None], np.arange(3)[:, None], np.arange(2)
        reward = 6 - 2 * steps + states + 2 * actions - 1.5 * half
        cost = 0.9 - 0.3 * steps + 0.1 * states * actions + 0.2 * half
        self.table = np.stack([reward, cost], axis=-1)

    def at(self, states, step, options):
        told = self.table[step, states[:, :1].astype(int), options.action]
        return (options.probability[..., None] * told).sum(axis=1)


GIVEN = Values(np.arange(N_EPISODES) % 2, (Given(0), Given(1)))


def told(values, episodes):
    """Values of both actions, `[2, N * T, 2]`: of rewards and of costs, 0 after the end."""
    found = np.zeros((2, *episodes.state.shape, 2))
    for step in range(episodes.state.shape[1]):
        who = np.flatnonzero(episodes.goes_on[:, step])
        states, sure = episodes.state[who, step, None].astype(float), np.ones((len(who), 1))
        for action in range(2):
            done = Options(np.full((len(who), 1), action), sure, sure)
            found[:, who, step, action] = values.at(states, step, who, done).T
    return found.reshape(2, -1, 2)


# Ours


ASKED = {"gamma": DISCOUNTS[0], "cost_gamma": DISCOUNTS[1], "budgets": [1.0], "seed": 0}
ROBUST = {"method": "doubly-robust", "model": TableModel(), "n_budgets": 2, "device": "cpu"}


def ours(episodes, **settings):
    found = evaluate_offline(Fixed(), episodes.batch(), **ASKED, n_bootstrap=0, **settings)
    return [found.reward[0], found.cost[0]]


def ours_not_normalized(episodes):
    weighted = weighted_episodes(
        Fixed(),
        logged_episodes(episodes.batch(), needs_steps=True),
        **{"discounts": DISCOUNTS, "budgets": np.array([1.0]), "n_paths": 2, "seed": 0},
    )
    return (weighted.weight * weighted.paid).sum(axis=2).mean(axis=1)


@pytest.fixture
def given_values(monkeypatch):
    """Doubly robust estimates have these values, rather than learn them."""
    monkeypatch.setattr(offline, "values_of_halves", lambda *_: GIVEN)


@both_logs
def test_importance_is_what_scope_rl_says_with_normalized_weights_of_each_step(name):
    found = ours(log(*LOGS[name]), method="importance")
    np.testing.assert_allclose(found, SCOPE_RL[name]["snpdis"], **ROUNDING)


@both_logs
@pytest.mark.usefixtures("given_values")
def test_doubly_robust_is_what_scope_rl_says_of_the_same_values(name):
    found = ours(log(*LOGS[name]), **ROBUST)
    np.testing.assert_allclose(found, SCOPE_RL[name]["sndr"], **ROUNDING)


@both_logs
def test_weights_that_are_not_normalized_say_what_scope_rl_says(name):
    found = ours_not_normalized(log(*LOGS[name]))
    np.testing.assert_allclose(found, SCOPE_RL[name]["pdis"], **ROUNDING)


@pytest.mark.usefixtures("given_values")
def test_episodes_of_one_step_say_what_obp_says():
    episodes = log(1, 0.0)
    np.testing.assert_allclose(ours(episodes, method="importance"), OBP["snipw"], **ROUNDING)
    np.testing.assert_allclose(ours(episodes, **ROBUST), OBP["sndr"], **ROUNDING)
    np.testing.assert_allclose(ours_not_normalized(episodes), OBP["ipw"], **ROUNDING)


@pytest.mark.parametrize("theirs", [*SCOPE_RL.values(), OBP], ids=[*SCOPE_RL, "one step"])
def test_what_they_say_differs_from_one_estimator_to_the_next(theirs):
    """Or agreement would not tell which of them ours is."""
    first, second, third = np.array(list(theirs.values()))
    for one, other in ((first, second), (first, third), (second, third)):
        assert (np.abs(one / other - 1) > 0.005).all()


# Theirs, where they are installed


def by_scope_rl(episodes, values):
    """What its estimators say; it wants as many steps of each episode."""
    discrete = pytest.importorskip("scope_rl.ope.discrete", exc_type=ImportError)
    estimators = {
        "pdis": discrete.PerDecisionImportanceSampling(),
        "snpdis": discrete.SelfNormalizedPDIS(),
        "sndr": discrete.SelfNormalizedDR(),
    }
    action, logged = episodes.action.ravel(), episodes.rows(LOGGED)
    common = {
        "step_per_trajectory": episodes.state.shape[1],
        "action": action,
        "pscore": logged[np.arange(len(action)), action],
        "evaluation_policy_action_dist": episodes.rows(PLAYED),
    }
    kinds = list(zip(episodes.paid, DISCOUNTS, told(values, episodes), strict=True))
    return {
        name: [
            estimator.estimate_policy_value(
                **common, reward=paid.ravel(), gamma=gamma, state_action_value_prediction=q
            )
            for paid, gamma, q in kinds
        ]
        for name, estimator in estimators.items()
    }


def by_obp(episodes, values):
    """What its estimators say of episodes of one step."""
    ope = pytest.importorskip("obp.ope", exc_type=ImportError)
    estimators = {
        "ipw": ope.InverseProbabilityWeighting(),
        "snipw": ope.SelfNormalizedInverseProbabilityWeighting(),
        "sndr": ope.SelfNormalizedDoublyRobust(),
    }
    state, action = episodes.state[:, 0], episodes.action[:, 0]
    common = {
        "action": action,
        "pscore": LOGGED[state, action],
        "action_dist": PLAYED[state][..., None],
        "position": np.zeros(N_EPISODES, int),
    }
    kinds = list(zip(episodes.paid, told(values, episodes), strict=True))
    return {
        name: [
            estimator.estimate_policy_value(
                **common, reward=paid[:, 0], estimated_rewards_by_reg_model=q[..., None]
            )
            for paid, q in kinds
        ]
        for name, estimator in estimators.items()
    }


def assert_same(found, wanted):
    assert list(found) == list(wanted)
    for name, values in found.items():
        np.testing.assert_allclose(values, wanted[name], **ROUNDING)


@both_logs
@pytest.mark.filterwarnings("ignore")
def test_scope_rl_still_says_what_is_written_here(name):
    assert_same(by_scope_rl(log(*LOGS[name]), GIVEN), SCOPE_RL[name])


@pytest.mark.filterwarnings("ignore")
def test_obp_still_says_what_is_written_here():
    assert_same(by_obp(log(1, 0.0), GIVEN), OBP)


@both_logs
@pytest.mark.filterwarnings("ignore")
def test_doubly_robust_is_what_scope_rl_says_of_values_that_were_learned(name, monkeypatch):
    """Values are in single precision."""
    learned = []

    def noting(*args):
        learned.append(values_of_halves(*args))
        return learned[-1]

    values_of_halves = offline.values_of_halves
    monkeypatch.setattr(offline, "values_of_halves", noting)
    found = ours(log(*LOGS[name]), **ROBUST)
    theirs = by_scope_rl(log(*LOGS[name]), learned[0])["sndr"]
    np.testing.assert_allclose(found, theirs, rtol=1e-5)
