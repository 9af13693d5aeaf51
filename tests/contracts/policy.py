"""What every budgeted policy must do. Each check takes a `Case`, and `CHECKS` lists them all.

A module of tests has them all for its policies by

    test_contract, test_saving = contract_tests({"hull": Case(...), ...})
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import bmdp
from bmdp import (
    BmdpError,
    BudgetError,
    BudgetStatus,
    DataError,
    EpisodeStreams,
    PolicyError,
    StoreError,
)


@dataclass(frozen=True)
class Case:
    """A policy, the states it is tried on, and what it claims to have."""

    policy: Any
    states: np.ndarray  # [N, ...]
    n_actions: int
    one_step: bool = True
    can_save: bool = True
    hands_on_one_budget: bool = True  # whatever the next state


def budgets_in(case, n):
    low, high = case.policy.budget_range
    return np.linspace(low, high, n)


def many(case, n=200):
    states = np.resize(case.states, (n, *case.states.shape[1:]))
    return states, np.random.default_rng(0).permutation(budgets_in(case, n))


def run_episodes(case, states, budgets, rng, n_steps=4):
    """Plays a few steps at fixed states; returns actions and next budgets `[n_steps, N]`."""
    tracker = case.policy.start(states, budgets, rng)
    steps = []
    for _ in range(n_steps):
        decision = tracker.decide(states)
        steps.append((decision.action, decision.next_budget))
        tracker.observe(np.zeros(len(states)), states, np.zeros(len(states), bool))
    return (np.array(column) for column in zip(*steps, strict=True))


def acting_one_by_one_equals_deciding_together(case):
    if not case.one_step:
        return
    states, budgets = many(case, 50)
    rng = np.random.default_rng(1)
    together = case.policy.decide(states, budgets, np.random.default_rng(1))
    for n, (state, budget) in enumerate(zip(states, budgets, strict=True)):
        one = case.policy.act(state, float(budget), rng)
        assert (one.action, one.status) == (together.action[n], together.status[n])
        assert one.next_budget == together.next_budget[n]
        assert type(one.action) is int
        assert type(one.next_budget) is float
        assert type(one.status) is BudgetStatus


def a_policy_without_one_step_form_says_which_form_to_use(case):
    if case.one_step:
        return
    rng = np.random.default_rng(0)
    with pytest.raises(PolicyError, match=r"episode form only: use tracker = policy.start"):
        case.policy.act(case.states[0], 0.0, rng)
    with pytest.raises(PolicyError, match=r"episode form only: use tracker = policy.start"):
        case.policy.decide(case.states, 0.0, rng)


def decisions_are_within_range(case):
    states, budgets = many(case)
    decision = case.policy.start(states, budgets, np.random.default_rng(0)).decide(states)
    low, high = case.policy.budget_range
    assert decision.action.shape == decision.next_budget.shape == decision.status.shape == (200,)
    assert decision.action.dtype.kind == "i"
    assert ((decision.action >= 0) & (decision.action < case.n_actions)).all()
    assert np.isfinite(decision.next_budget).all()
    if case.one_step:  # others may hand on the budget of a policy that they follow
        assert ((decision.next_budget >= low) & (decision.next_budget <= high)).all()
    assert set(decision.status.tolist()) <= set(BudgetStatus)


def the_same_generator_gives_the_same_episodes(case):
    states, budgets = many(case)
    first = run_episodes(case, states, budgets, np.random.default_rng(3))
    second = run_episodes(case, states, budgets, np.random.default_rng(3))
    for a, b in zip(first, second, strict=True):
        assert (a == b).all()


def neither_batch_size_nor_company_changes_an_episode(case):
    states, budgets = many(case, 60)
    together = list(run_episodes(case, states, budgets, EpisodeStreams.named(5, "p", range(60))))
    for rows in (range(0, 1), range(7, 30), range(59, -1, -3)):
        some = np.array(rows)
        alone = run_episodes(case, states[some], budgets[some], EpisodeStreams.named(5, "p", rows))
        for a, b in zip(alone, together, strict=True):
            assert (a == b[:, some]).all()


def a_tracker_carries_the_budget_handed_on(case):
    states, budgets = many(case)
    tracker = case.policy.start(states, budgets, np.random.default_rng(0))
    assert (tracker.budgets == budgets).all()
    decision = tracker.decide(states)
    tracker.observe(np.zeros(200), states, np.zeros(200, bool))
    if case.hands_on_one_budget:
        assert (tracker.budgets == decision.next_budget).all()


def the_dial_can_be_moved_in_the_middle(case):
    """Once moved to the same place, it does not matter where it stood before."""
    states, budgets = many(case)
    low, high = case.policy.budget_range
    trackers = [case.policy.start(states, b, np.random.default_rng(0)) for b in (budgets, high)]
    for tracker in trackers:
        tracker.decide(states)
        tracker.observe(np.zeros(200), states, np.zeros(200, bool))
        tracker.set_budget(np.full(200, low))
        assert (tracker.budgets == low).all()
    for a, b in zip(*(tracker.decide(states) for tracker in trackers), strict=True):
        assert (a == b).all()


def decisions_and_observations_take_turns(case):
    states, budgets = many(case, 3)
    tracker = case.policy.start(states, budgets, np.random.default_rng(0))
    with pytest.raises(PolicyError, match=r"observe must follow tracker.decide"):
        tracker.observe(0.0, states, False)
    tracker.decide(states)
    with pytest.raises(PolicyError, match="decide was called twice"):
        tracker.decide(states)
    tracker.observe(0.0, states, False)
    tracker.decide(states)


def ended_episodes_do_nothing_more(case):
    states, budgets = many(case, 6)
    tracker = case.policy.start(states, budgets, np.random.default_rng(0))
    tracker.decide(states)
    ended = np.array([True, False, False, True, False, True])
    tracker.observe(np.zeros(6), states, ended)
    held = tracker.budgets
    decision = tracker.decide(states)
    assert (decision.action[ended] == 0).all()
    assert (decision.next_budget[ended] == held[ended]).all()
    assert (decision.status[ended] == BudgetStatus.SLACK).all()
    tracker.observe(np.zeros(6), states, np.ones(6, bool))
    assert (tracker.decide(states).action == 0).all()


def the_other_episodes_go_on_as_if_none_had_ended(case):
    states, budgets = many(case, 40)
    ended = np.arange(40) % 3 == 0
    runs = []
    for mask in (np.zeros(40, bool), ended):
        tracker = case.policy.start(states, budgets, np.random.default_rng(0))
        tracker.decide(states)
        tracker.observe(np.zeros(40), states, mask)
        runs.append(tracker.decide(states))
    assert (runs[0].action[~ended] == runs[1].action[~ended]).all()
    assert (runs[0].next_budget[~ended] == runs[1].next_budget[~ended]).all()


def bad_budgets_are_refused(case):
    low, high = case.policy.budget_range
    rng = np.random.default_rng(0)
    for bad in (np.nan, low - 0.1, -np.inf):
        budgets = np.full(len(case.states), high)
        budgets[-1] = bad
        index = rf"at \[{len(budgets) - 1}\]"
        with pytest.raises(BudgetError, match=index):
            case.policy.start(case.states, budgets, rng)
        with pytest.raises(BudgetError, match=index):
            case.policy.start(case.states, high, rng).set_budget(budgets)
        if case.one_step:
            with pytest.raises(BudgetError, match=index):
                case.policy.decide(case.states, budgets, rng)
            with pytest.raises(BudgetError, match="budget_range"):
                case.policy.act(case.states[0], bad, rng)
    with pytest.raises(DataError, match="budgets must have shape"):
        case.policy.start(case.states, np.full(len(case.states) + 1, high), rng)


def a_budget_above_the_range_is_the_top_and_slack(case):
    _, high = case.policy.budget_range
    for above in (high + 0.1, np.inf):
        tracker = case.policy.start(case.states, above, np.random.default_rng(0))
        top = case.policy.start(case.states, high, np.random.default_rng(0))
        decision, expected = tracker.decide(case.states), top.decide(case.states)
        assert (decision.action == expected.action).all()
        assert (decision.next_budget == expected.next_budget).all()
        assert (decision.status == BudgetStatus.SLACK).all()


def as_many_states_as_episodes_are_needed(case):
    states, budgets = many(case, 4)
    tracker = case.policy.start(states, budgets, np.random.default_rng(0))
    with pytest.raises(DataError, match="states must have shape"):
        tracker.decide(states[:3])
    with pytest.raises(PolicyError, match="one stream for each of 4 episodes; got 3"):
        case.policy.start(states, budgets, EpisodeStreams.named(0, "p", range(3)))


def through_json(policy, tracker):
    return policy.resume(json.loads(json.dumps(tracker.state(), allow_nan=False)))


def a_resumed_tracker_decides_as_the_one_before(case, n=30, n_steps=4):
    """One tracker plays on, the other is made anew at every point, before and after it decides."""
    states, budgets = many(case, n)
    rng = np.random.default_rng(11)
    budgets[0] = np.inf
    whole = case.policy.start(states, budgets, EpisodeStreams.named(7, "p", range(3, 3 + n)))
    again = through_json(case.policy, whole)
    over = np.zeros(n, bool)
    for step in range(n_steps):
        seen = states[rng.permutation(n)]
        wanted, found = whole.decide(seen), through_json(case.policy, again).decide(seen)
        again = case.policy.resume(again.state())
        for a, b in zip(wanted, found, strict=True):
            assert a.dtype == b.dtype
            assert a.tobytes() == b.tobytes()
        again.decide(seen)
        again = through_json(case.policy, again)
        assert again.budgets.tobytes() == whole.budgets.tobytes()
        if step == 1:  # in between is allowed, too
            for tracker in (whole, again):
                tracker.set_budget(np.roll(budgets, 1))
            again = through_json(case.policy, again)
        costs, over = rng.random(n), over | (rng.random(n) < 0.2)
        for tracker in (whole, again):
            tracker.observe(costs, seen, over)
        again = through_json(case.policy, again)
        assert again.budgets.tobytes() == whole.budgets.tobytes()
        assert again.state() == whole.state()


def a_state_holds_what_the_tracker_was_at(case):
    """Playing on changes nothing in a state that was taken before."""
    states, budgets = many(case, 5)
    tracker = case.policy.start(states, budgets, EpisodeStreams.named(0, "p", range(5)))
    tracker.decide(states)
    kept = tracker.state()
    text = json.dumps(kept)
    tracker.observe(np.ones(5), states, [True, False, False, False, True])
    tracker.decide(states)
    assert json.dumps(kept) == text
    resumed = case.policy.resume(kept)
    resumed.observe(np.ones(5), states, False)
    resumed.decide(states)
    assert json.dumps(kept) == text
    with pytest.raises(PolicyError, match="decide was called twice"):
        resumed.decide(states)
    with pytest.raises(PolicyError, match="decide was called twice"):
        case.policy.resume(kept).decide(states)


WRONG = (
    None, True, -1, 2.5, 10**40, float("nan"), float("inf"), "x", [], [[]], {}, {"key": 1}, object()
)  # fmt: skip


def malformed(state, path=()):
    """Copies of a state in each of which one part, at any depth, is missing, wrong or too much."""
    if isinstance(state, dict):
        for name, part in state.items():
            yield (*path, name), {k: v for k, v in state.items() if k != name}
            yield from ((at, state | {name: wrong}) for at, wrong in malformed(part, (*path, name)))
        yield (*path, "more"), state | {"more": 1}
    elif isinstance(state, list):
        yield path, state[:-1] if state else [0]
        yield path, [*state, state[-1] if state else 0]
        for i in {0, len(state) - 1} - {-1}:
            for where, wrong in malformed(state[i], (*path, i)):
                yield where, [*state[:i], wrong, *state[i + 1 :]]
    near = (*range(2, 9), 1000) if type(state) is int else ()  # just out of a range, or within
    for wrong in (*WRONG, *near):
        if type(wrong) is not type(state) or wrong != state:
            yield path, wrong


def whatever_a_state_holds_only_errors_of_the_library_come_of_it(case):
    states, budgets = many(case, 4)
    tracker = case.policy.start(states, budgets, EpisodeStreams.named(0, "p", range(4)))
    refusals, n_taken = [], 0
    for turn in range(3):
        if turn == 1:
            tracker.decide(states)
        if turn == 2:
            tracker.observe(np.zeros(4), states, [False, True, False, False])
        state = json.loads(json.dumps(tracker.state()))
        for path, wrong in malformed(state):
            try:
                resumed = case.policy.resume(wrong)
            except BmdpError as error:
                refusals.append((path, str(error)))
                continue
            n_taken += 1
            try:  # what was taken can be played
                if turn == 1:
                    resumed.observe(np.zeros(4), states, False)
                resumed.decide(states)
                resumed.state()
            except BmdpError:
                pass
    assert not [path for path, told in refusals if "\n" in told]
    assert len(refusals) > 2 * n_taken


def a_state_says_whose_it_is(case):
    """What is wrong is said by its name; another policy's state, or version's, is refused."""
    states, budgets = many(case, 4)
    state = case.policy.start(states, budgets, EpisodeStreams.named(0, "p", range(4))).state()
    for name in state:
        with pytest.raises(PolicyError, match=rf'state\["{name}"\] is missing'):
            case.policy.resume({k: v for k, v in state.items() if k != name})
    with pytest.raises(PolicyError, match=r'state\["format"\] must be 1, .*; got 2'):
        case.policy.resume(state | {"format": 2})
    with pytest.raises(PolicyError, match=r'state\["policy"\] must be .*; got .Another'):
        case.policy.resume(state | {"policy": "Another"})
    with pytest.raises(PolicyError, match="unknown part 'bugdets'"):
        case.policy.resume(state | {"bugdets": 1})
    for wrong in (None, [], "{}", 3):
        with pytest.raises(PolicyError, match="state must be a dictionary"):
            case.policy.resume(wrong)


def a_saved_policy_decides_as_before(case, folder):
    if not case.can_save:
        with pytest.raises(StoreError, match="cannot be stored"):
            case.policy.save(folder / "policy")
        assert not (folder / "policy").exists()
        return
    case.policy.save(folder / "policy")
    loaded = bmdp.load_policy(folder / "policy")
    assert loaded.budget_range == case.policy.budget_range
    states, budgets = many(case)
    streams = EpisodeStreams.named(9, "p", range(200))
    again = Case(loaded, case.states, case.n_actions, case.one_step)
    before, after = (run_episodes(c, states, budgets, streams) for c in (case, again))
    for a, b in zip(before, after, strict=True):
        assert (a == b).all()
    tracker = case.policy.start(states, budgets, streams)
    tracker.decide(states)
    resumed = through_json(loaded, tracker)  # as a process does that loads it
    for one in (tracker, resumed):
        one.observe(np.zeros(200), states, False)
    for a, b in zip(tracker.decide(states), resumed.decide(states), strict=True):
        assert (a == b).all()


CHECKS = [
    acting_one_by_one_equals_deciding_together,
    a_policy_without_one_step_form_says_which_form_to_use,
    decisions_are_within_range,
    the_same_generator_gives_the_same_episodes,
    neither_batch_size_nor_company_changes_an_episode,
    a_tracker_carries_the_budget_handed_on,
    the_dial_can_be_moved_in_the_middle,
    decisions_and_observations_take_turns,
    ended_episodes_do_nothing_more,
    the_other_episodes_go_on_as_if_none_had_ended,
    bad_budgets_are_refused,
    a_budget_above_the_range_is_the_top_and_slack,
    as_many_states_as_episodes_are_needed,
    a_resumed_tracker_decides_as_the_one_before,
    a_state_holds_what_the_tracker_was_at,
    whatever_a_state_holds_only_errors_of_the_library_come_of_it,
    a_state_says_whose_it_is,
]


def contract_tests(cases):
    """Returns two tests of cases by name: of what every policy must do, and of saving them."""
    by_case = pytest.mark.parametrize("case", cases.values(), ids=cases.keys())

    @by_case
    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_contract(check, case):
        check(case)

    @by_case
    def test_saving(case, tmp_path):
        a_saved_policy_decides_as_before(case, tmp_path)

    return test_contract, test_saving
