import numpy as np
import pytest

from bmdp.errors import ConfigError, PolicyError
from bmdp.policies import EpisodeLimitPolicy, HullPolicy, RandomBudgetedPolicy
from bmdp.policies.limited import Spent, episode_limit_of
from contracts.policy import Case, contract_tests

GRID = np.linspace(0, 1, 5)


def plane(states):
    """Q-values of continuous states `[N, D]`."""
    action = np.arange(3)[:, None]
    q_c = np.abs(np.sin(states[:, :1, None] + action)) * (0.2 + GRID)
    return np.sqrt(q_c) + states[:, 1:2, None] * 0.1, q_c


STATES = np.random.default_rng(0).random((9, 2))
ANY = RandomBudgetedPolicy(3, 0.0, 1.0, "at_most")
CASES = {
    "random": Case(EpisodeLimitPolicy(ANY, 2.0), STATES, 3, one_step=False),
    "hull": Case(
        EpisodeLimitPolicy(HullPolicy(plane, GRID), 2.0), STATES, 3, one_step=False, can_save=False
    ),
}
test_contract, test_saving = contract_tests(CASES)


class Recorder:
    """A policy that keeps what it is shown."""

    budget_range = (0.0, 1.0)
    takes_masks = True

    def start(self, states, budgets, rng):
        self.seen, self.costs, self.masks, self.budgets = [], [], [], np.broadcast_to(budgets, 2)
        return self

    def set_budget(self, budgets):
        self.budgets = np.broadcast_to(budgets, 2)

    def decide(self, states, *masks):
        self.seen.append(states.tolist())
        self.masks.append(masks)
        return ANY.decide(states, self.budgets, np.random.default_rng(0))

    def observe(self, costs, next_states, ended, *masks):
        self.costs.append(costs.tolist())


def test_the_policy_inside_sees_what_was_paid_and_one_cost():
    inside = Recorder()
    tracker = EpisodeLimitPolicy(inside, 2.0).start([[7.0], [8.0]], 0.5, np.random.default_rng(0))
    for costs in ([1.5, 0.0], [0.5, 2.5], [0.25, 1.0], [9.0, 9.0]):
        tracker.decide([[7.0], [8.0]], np.ones((2, 3), bool))
        tracker.observe(costs, [[7.0], [8.0]], [False, False])
    assert inside.seen == [
        [[7, 0, 0], [8, 0, 0]],
        [[7, 1.5, 0], [8, 0, 0]],
        [[7, 2, 0], [8, 2, 1]],
        [[7, 2, 1], [8, 2, 1]],
    ]
    assert inside.costs == [[0, 0], [0, 1], [1, 0], [0, 0]]
    assert all(len(masks) == 1 for masks in inside.masks)


def test_what_comes_after_the_end_is_not_counted():
    inside = Recorder()
    tracker = EpisodeLimitPolicy(inside, 1.0).start([[7.0], [8.0]], 0.5, np.random.default_rng(0))
    for ended in ([True, False], [True, False]):
        tracker.decide([[7.0], [8.0]])
        tracker.observe([0.75, 0.75], [[7.0], [8.0]], ended)
    assert tracker.spent.exceeded.tolist() == [False, True]


def test_a_dial_that_is_moved_does_not_forget_what_was_paid():
    inside = Recorder()
    tracker = EpisodeLimitPolicy(inside, 2.0).start([[7.0], [8.0]], 0.5, np.random.default_rng(0))
    tracker.decide([[7.0], [8.0]])
    tracker.observe([1.0, 0.0], [[7.0], [8.0]], False)
    tracker.set_budget([0.1, 0.2])
    assert inside.budgets.tolist() == [0.1, 0.2]
    assert tracker.spent.so_far.tolist() == [1.0, 0.0]


def test_sums_that_are_off_by_rounding_are_the_limit():
    spent = Spent.nothing(1)
    for _ in range(20):
        spent = spent.after([0.1], 2.0)  # the sum is 2.0000000000000004
    assert (spent.so_far.tolist(), spent.exceeded.tolist()) == ([2.0], [False])
    one, two = Spent.nothing(1), Spent.nothing(1)
    for cost in (0.1, 0.2, 0.3):
        one = one.after([cost], 2.0)
    for cost in (0.3, 0.2, 0.1):
        two = two.after([cost], 2.0)
    assert one.so_far != two.so_far
    assert (one.shown([[0]]) == two.shown([[0]])).all()


@pytest.mark.parametrize("limit", [-1.0, np.inf, np.nan, "2", None, [1.0]])
def test_a_limit_is_a_finite_number_from_0_on(limit):
    with pytest.raises(ConfigError, match=r"episode_limit must be a (finite )?number"):
        EpisodeLimitPolicy(ANY, limit)


def test_one_step_form_is_refused_with_the_reason():
    with pytest.raises(PolicyError, match="adds up what an episode has cost so far"):
        EpisodeLimitPolicy(ANY, 1.0).act([0.0], 0.5, np.random.default_rng(0))


def test_the_limit_of_a_policy_is_found_inside_of_others():
    class Around:
        policy = EpisodeLimitPolicy(ANY, 1.5)

    assert (episode_limit_of(Around()), episode_limit_of(ANY)) == (1.5, None)


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("inside", "step"), 0),
        (("inside", "has_decided"), True),
        (("inside", "ended"), [True, True]),
        (("inside", "streams", "episodes"), [8, 9]),
        (("budgets",), [0.0, 0.2]),
        (("exceeded",), [True, False]),
    ],
)
def test_parts_of_a_state_that_contradict_each_other_are_refused(where, value):
    policy = EpisodeLimitPolicy(ANY, 2.0)
    tracker = policy.start([[7.0], [8.0]], 0.5, np.random.default_rng(0))
    tracker.decide([[7.0], [8.0]])
    tracker.observe([1.0, 0.0], [[7.0], [8.0]], False)
    assert policy.resume(tracker.state()).state() == tracker.state()
    state = part = tracker.state()
    for key in where[:-1]:
        part = part[key]
    assert part[where[-1]] != value
    part[where[-1]] = value
    with pytest.raises(PolicyError, match="must be"):
        policy.resume(state)
