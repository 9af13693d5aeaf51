"""The one loop over episodes: what it yields is what a loop by hand sees."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from bmdp import BudgetError, BudgetStatus, ConfigError, EnvError, PolicyError
from bmdp.envs import Corridors, ScriptedPolicy, SlotFilling, TwoWay
from bmdp.envs.episodes import play_episode, play_episodes, play_parts
from bmdp.envs.slots import BatchedSlots, SingleSlots, TaskSlots, find_spec, open_slots
from bmdp.exact.textbook import forever
from bmdp.policies import RandomBudgetedPolicy
from bmdp.randomness import EpisodeStreams
from jobs import first_states, refuse
from problems import Walk, always, finite_spec, walk_spec

SEEDS = [3, 1, 4, 15, 9, 26]
TASKS = {"corridors": Corridors(), "slot-filling": SlotFilling(), "two-way": TwoWay()}
ENVS = [*TASKS, "walk"]
KINDS = [BatchedSlots, SingleSlots, "task"]


def spec_of(name):
    return walk_spec() if name == "walk" else find_spec(name)


def slots_of(name, kind=BatchedSlots):
    if kind == "task" and name in TASKS:
        return TaskSlots(TASKS[name])
    return SingleSlots(spec_of(name)) if name == "walk" else kind(spec_of(name))


def random_policy(slots):
    return RandomBudgetedPolicy(int(slots.action_space.n), 0.0, 1.0)


def steps_of(slots, policy=None, budgets=0.5, seeds=SEEDS, **how):
    streams = EpisodeStreams.named(0, "test", range(len(seeds)))
    how = {"budgets": budgets, "seeds": seeds, "streams": streams} | how
    return list(play_episodes(policy or random_policy(slots), slots, **how))


def trajectory(steps, row):
    """State, action, reward, cost, budget, next state and end of each step of an episode."""
    return [
        (
            step.states[row].tolist(),
            int(step.actions[row]),
            float(step.rewards[row]),
            float(step.costs[row]),
            float(step.budgets[row]),
            step.next_states[row].tolist(),
            bool(step.ended[row]),
        )
        for step in steps
        if step.going[row]
    ]


def by_hand(name, policy, seed, number, budget=0.5, moves=None):
    """The same of a loop over one Gymnasium environment."""
    env = gymnasium.make(spec_of(name), disable_env_checker=True)
    state, _ = env.reset(seed=seed)
    streams = EpisodeStreams.named(0, "test", [number])
    tracker = policy.start(np.asarray(state)[None], budget, streams)
    found, ended = [], False
    while not ended:
        if len(found) in (moves or {}):
            tracker.set_budget(moves[len(found)])
        held = float(tracker.budgets[0])
        action = int(tracker.decide(np.asarray(state)[None]).action[0])
        after, reward, terminated, truncated, info = env.step(action)
        ended = terminated or truncated
        tracker.observe([info["cost"]], np.asarray(after)[None], [ended])
        now = state.tolist(), action, float(reward), float(info["cost"]), held, after.tolist()
        found.append((*now, bool(ended)))
        state = after
    return found


@pytest.mark.parametrize("moves", [None, {0: 0.9}, {1: 0.1, 2: 0.8}])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ENVS)
def test_episodes_side_by_side_are_those_of_a_loop_by_hand(name, kind, moves):
    slots = slots_of(name, kind)
    policy = random_policy(slots)
    steps = steps_of(slots, policy, moves=moves)
    for row, seed in enumerate(SEEDS):
        assert trajectory(steps, row) == by_hand(name, policy, seed, row, moves=moves)


def test_each_episode_may_have_its_own_budget_and_its_own_move():
    budgets, moved = np.linspace(0, 1, 6), np.linspace(1, 0, 6)
    slots = slots_of("slot-filling")
    first, second, *_ = steps_of(slots, budgets=budgets, moves={1: moved})
    assert first.budgets.tolist() == budgets.tolist()
    assert second.budgets[second.going].tolist() == moved[second.going].tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["slot-filling", "two-way"])
def test_a_slot_that_ended_stays_ended_and_pays_nothing(name, kind):
    steps = steps_of(slots_of(name, kind), seeds=list(range(40)))
    assert [step.index for step in steps] == list(range(len(steps)))
    going = np.ones(40, bool)
    for step in steps:
        assert (step.going == going).all()
        assert not step.ended[~going].any()
        assert not step.truncated[~going].any()
        assert (step.rewards[~going] == 0).all()
        assert (step.costs[~going] == 0).all()
        going = going & ~step.ended
    assert not going.any()
    assert len({int(step.going.sum()) for step in steps}) > 3


def test_a_time_limit_truncates():
    spec = replace(find_spec("corridors"), max_episode_steps=3)
    policy = ScriptedPolicy("corridors/safe")
    steps = steps_of(BatchedSlots(spec), policy)
    assert len(steps) == 3
    assert (steps[-1].ended & steps[-1].truncated).all()
    assert not steps[-2].ended.any()


def endless():
    return BatchedSlots(finite_spec(forever(gamma=0.5)))


def test_an_episode_that_does_not_end_is_an_error_after_its_last_step():
    playing = play_episodes(
        always(0, 1),
        endless(),
        budgets=[0.25, 0.5],
        seeds=[0, 1],
        streams=EpisodeStreams.named(0, "test", [7, 8]),
        max_steps=4,
    )
    assert [next(playing).index for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(EnvError, match=r"max_steps, 4 steps; episode 7 at budget 0\.25"):
        next(playing)


def test_an_episode_that_does_not_end_can_be_cut():
    steps = steps_of(endless(), always(0, 1), max_steps=4, cut=True)
    assert len(steps) == 4
    assert (steps[-1].ended & steps[-1].truncated).all()
    assert not any(step.ended.any() for step in steps[:-1])


def test_episodes_that_end_in_time_are_not_cut():
    last = steps_of(slots_of("corridors"), ScriptedPolicy("corridors/safe"), cut=True)[-1]
    assert last.ended.all()
    assert not last.truncated.any()


@pytest.mark.parametrize(
    ("policy", "name", "error", "words"),
    [
        (ScriptedPolicy("slot-filling/key-pad"), "corridors", PolicyError, r"\[2\].*26 features"),
        (RandomBudgetedPolicy(9, 0.0, 1.0), "corridors", PolicyError, "0 to 4; .*chose [5-8]"),
        (RandomBudgetedPolicy(5, 0.7, 1.0), "corridors", BudgetError, "from 0.7 on"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_that_does_not_fit_is_refused_by_all_slots(policy, name, error, words, kind):
    with pytest.raises(error, match=words):
        steps_of(slots_of(name, kind), policy, seeds=list(range(50)))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"cost": np.nan}, "Walk-v0 .*finite cost.* nan"),
        ({"cost": np.inf}, "Walk-v0 .*finite cost.* inf"),
        ({"has_cost": False}, r"Walk-v0 .*info\['cost'\]"),
    ],
)
def test_costs_that_are_missing_or_not_numbers_are_errors(settings, words):
    with pytest.raises(EnvError, match=words):
        steps_of(SingleSlots(walk_spec(**settings)))


class Generous(Walk):
    """Pays more than a number can say."""

    def step(self, action):
        seen, _, *ends = super().step(action)
        return seen, np.inf, *ends


def test_rewards_that_are_not_numbers_are_errors():
    with pytest.raises(EnvError, match=r"finite reward.* inf"):
        steps_of(SingleSlots(EnvSpec("Generous-v0", entry_point=Generous)))


# A task's own state


@pytest.mark.parametrize("name", TASKS)
def test_the_whole_state_of_a_task_can_be_read_before_and_after_each_step(name):
    task, slots = TASKS[name], TaskSlots(TASKS[name])
    streams = EpisodeStreams.named(0, "test", range(len(SEEDS)))
    how = {"budgets": 0.5, "seeds": SEEDS, "streams": streams}
    playing = play_episodes(random_policy(slots), slots, **how)
    before = slots.state
    for step in playing:
        np.testing.assert_array_equal(task.observe(before), step.states)
        np.testing.assert_array_equal(task.observe(slots.state), step.next_states)
        before = slots.state


def test_a_task_can_be_played_with_other_random_numbers():
    named = TaskSlots(Corridors(), lambda seeds: EpisodeStreams.named(5, "other", seeds))
    policy = ScriptedPolicy("corridors/risky")
    first, again = (steps_of(named, policy, seeds=range(20))[-1] for _ in range(2))
    other = steps_of(TaskSlots(Corridors()), policy, seeds=range(20))[-1]
    np.testing.assert_array_equal(first.states, again.states)
    assert (first.states != other.states).any()


# One episode that can be seen


def test_one_episode_has_the_states_of_its_steps_and_the_budgets_of_its_moves():
    policy = RandomBudgetedPolicy(5, 0.0, 1.0)
    found = play_episode(policy, find_spec("two-way"), budget=0.5, seed=4, moves={2: 0.1})
    assert len(found.states) == len(found.steps) + 1
    for state, step in zip(found.states, found.steps, strict=False):
        np.testing.assert_array_equal(TwoWay().observe(state), step.states)
    assert found.steps[2].budgets.tolist() == [0.1]
    assert found.picture is None


def test_one_episode_can_be_rendered():
    policy = ScriptedPolicy("slot-filling/key-pad")
    found = play_episode(policy, find_spec("slot-filling"), budget=0.5, seed=0, render_mode="ansi")
    assert found.picture.count("system: key pad") == sum(s.actions[0] >= 4 for s in found.steps)


def test_an_environment_of_others_need_not_know_of_rendering_and_hides_its_state():
    found = play_episode(RandomBudgetedPolicy(2, 0.0, 1.0), walk_spec(), budget=0.5, seed=0)
    assert found.steps[-1].ended.all()
    assert found.states == []


# Parts


PARTS = [range(3), range(3, 5), range(5, 9)]


@pytest.mark.parametrize("workers", [1, 2])
def test_parts_are_returned_in_their_order_and_counted(workers):
    told = []
    with_slots = open_slots(find_spec("two-way"))
    found = play_parts(
        first_states,
        RandomBudgetedPolicy(5, 0.0, 1.0),
        with_slots,
        PARTS,
        workers=workers,
        progress=lambda *now: told.append(now),
    )
    assert found == [first_states(None, with_slots, part) for part in PARTS]
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (9, 9)
    assert len(told) == 3


def test_an_error_in_a_worker_is_raised_with_its_own_class():
    policy, slots = RandomBudgetedPolicy(5, 0.0, 1.0), open_slots(find_spec("corridors"))
    with pytest.raises(BudgetError, match=r"no budget for [035]"):
        play_parts(refuse, policy, slots, PARTS, workers=2)


def test_an_environment_made_on_the_spot_is_refused_before_work_begins():
    slots = SingleSlots(EnvSpec("Here-v0", entry_point=lambda: Walk()))
    with pytest.raises(ConfigError, match="Here-v0 cannot be handed over"):
        play_parts(first_states, RandomBudgetedPolicy(2, 0.0, 1.0), slots, PARTS, workers=2)


def test_statuses_are_those_of_the_policy():
    step = steps_of(slots_of("corridors"), ScriptedPolicy("corridors/safe"))[0]
    assert (step.decision.status == BudgetStatus.SLACK).all()
