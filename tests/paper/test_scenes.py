import gymnasium
import numpy as np
import pytest

from bmdp import EpisodeStreams, PolicyError
from bmdp.envs import ScriptedPolicy
from bmdp.envs.corridors import Corridors
from bmdp.envs.episodes import environment_seeds
from bmdp.learn import EnvConfig
from bmdp.paper.measuring import first_decision, hull_piece
from bmdp.paper.scenes import PLUGINS, Trace, episode_of, layout_of, played, task_of
from bmdp.policies import HullPolicy, HullRule, RandomBudgetedPolicy

ENVS = {
    "corridors": EnvConfig("corridors", {"observe_time": True}),
    "slot-filling": EnvConfig("slot-filling"),
    "two-way": EnvConfig("two-way", {"vehicles": [2, 6]}),
}
RULES = {
    "corridors": "corridors/safe",
    "slot-filling": "slot-filling/key-pad",
    "two-way": "two-way/slow",
}


def alone(policy, env, seed, k, budget):
    """Episode k, step by step in a Gymnasium environment."""
    made = gymnasium.make(env.spec(), disable_env_checker=True)
    state, _ = made.reset(seed=environment_seeds(seed, range(k, k + 1))[0])
    tracker = policy.start(state[None], budget, EpisodeStreams.named(seed, "executions", [k]))
    seen, steps, budgets, ended = [state], [], [tracker.budgets[0]], False
    while not ended:
        action = int(tracker.decide(state[None]).action[0])
        budgets.append(tracker.budgets[0])
        state, reward, ended, _, info = made.step(action)
        tracker.observe([info["cost"]], state[None], [ended])
        seen.append(state)
        steps.append((action, reward, info["cost"]))
    made.close()
    return np.array(seen), np.array(steps), np.array(budgets)


@pytest.mark.parametrize("name", ENVS)
def test_what_is_played_side_by_side_is_what_is_played_alone(name):
    env = ENVS[name]
    task = task_of(env.spec())
    policy = RandomBudgetedPolicy(len(task.action_names), 0.0, 1.0)
    for k, trace in enumerate(played(policy, task, 0.4, 5, seed=9)):
        seen, steps, budgets = alone(policy, env, 9, k, 0.4)
        assert np.array_equal(np.concatenate([task.observe(s) for s in trace.states]), seen)
        assert np.array_equal(np.stack((trace.actions, trace.rewards, trace.costs), 1), steps)
        assert np.array_equal(trace.budgets, budgets)


def test_the_settings_of_an_environment_are_those_of_its_task():
    assert task_of(EnvConfig("corridors", {"height": 4}).spec()) == Corridors(height=4)


def test_cars_that_are_not_there_are_not_shown():
    task = task_of(ENVS["two-way"].spec())
    traces = played(ScriptedPolicy("two-way/slow"), task, 0.0, 8, seed=0)
    shown = [len(episode_of(task, trace)["cars"]) for trace in traces]
    assert shown == [int(trace.states[0].present.sum()) for trace in traces]
    assert len(set(shown)) > 1


def test_a_crash_is_shown_from_its_frame_on():
    task = task_of(EnvConfig("two-way").spec())
    for trace in played(ScriptedPolicy("two-way/idle"), task, 0.0, 3, seed=0):
        assert trace.costs[-1] == 1  # whoever keeps 30 m/s hits the car ahead
        ego = episode_of(task, trace)["cars"][0]
        first = ego["crashed"].index(1)
        assert ego["crashed"] == [0] * first + [1] * (len(ego["x"]) - first)
        assert len(ego["x"]) - 5 <= first


def test_a_late_hang_up_costs_nothing_and_is_told_so():
    task = task_of(EnvConfig("slot-filling", {"hang_up": 1.0, "horizon": 1}).spec())
    state = task.start(np.zeros((1, 2)))
    outcome = task.step(state, np.array([4]), np.full((1, 2), 0.5))
    budgets = np.full(2, 0.5)
    trace = Trace((state, outcome.state), np.array([4]), outcome.rewards, outcome.costs, budgets)
    found = episode_of(task, trace)
    assert found["cost"] == 0
    assert [line["act"] for line in found["lines"]] == ["ask_num_pad", "hang_up", "hang_up"]
    assert found["lines"][-1]["text"].endswith("at the last turn, which costs nothing.")


def test_routes_are_drawn_as_they_are():
    layout = layout_of(Corridors(routes=3, height=5))
    assert (layout["columns"], layout["rows"]) == (7, 5)
    paid = {(cell["x"], cell["y"]) for cell in layout["cells"] if cell["reward"] > 0}
    assert paid == {(1, 4), (3, 4), (5, 4)}


def test_a_policy_without_a_frontier_has_none_to_show():
    with pytest.raises(PolicyError, match="a ScriptedPolicy has no frontier to show"):
        first_decision(ScriptedPolicy("corridors/safe"))


def test_the_hull_is_by_the_rule_of_the_policy():
    rewards, costs = [0.0, 5.0, 6.0, 2.0, -np.inf], [-0.1, 0.1, 1.0, 0.5, np.inf]

    def q_function(states):
        both = (np.array(values, np.float32)[None, :, None] for values in (rewards, costs))
        return tuple(np.repeat(values, len(states), axis=0) for values in both)

    rule = HullRule(costs_from_zero=True, slope=[40.0], slack=[0.2])
    policy = HullPolicy(q_function, [0.0], rule)
    found = hull_piece(policy, EnvConfig("corridors"), 0.05, seed=0)
    assert found["costs"][:4] == pytest.approx([0.0, 0.1, 1.0, 0.5])
    assert found["rewards"][:4] == [0.0, 5.0, 6.0, 2.0]
    assert found["rewards"][4] < 0  # of an action that is not in the data: never on the frontier
    assert found["frontier"]["index"] == [1, 2]
    choice = {name: found["mixture"][name] for name in ("lower", "p_upper", "status", "cost")}
    assert choice == {"lower": 0, "p_upper": 0.0, "status": "TIGHT", "cost": 0.1}


# Plug-ins of pages


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.env)
def test_a_plug_in_plays_its_own_task_at_each_budget(plugin):
    env, policy = ENVS[plugin.env], ScriptedPolicy(RULES[plugin.env])
    found = plugin.scenes(policy, env.spec(), [0.0, 1.0], 2, 9)
    task = task_of(env.spec())
    assert found["layout"] == layout_of(task)
    again = [episode_of(task, trace) for trace in played(policy, task, 1.0, 2, seed=9)]
    assert [len(of_budget) for of_budget in found["episodes"]] == [2, 2]
    assert found["episodes"][1] == again


def test_a_plug_in_leaves_other_environments_alone():
    for env in (ENVS["corridors"].spec(), gymnasium.spec("FrozenLake-v1")):
        assert PLUGINS[1].scenes(ScriptedPolicy("corridors/safe"), env, [0.0], 1, 0) is None


def test_plug_ins_register_what_they_draw():
    texts = {plugin.env: "".join(plugin.scripts) for plugin in PLUGINS}
    for env, text in texts.items():
        assert f'addStage("{env}", "What it does' in text
    assert 'addPart("film", mountFilm);' in texts["corridors"]
    assert all(".map {" in "".join(plugin.styles) for plugin in PLUGINS)
