"""Parts of experiments as tests do them, what they leave, and what is true of all of them."""

import json

import numpy as np
import pytest

import bmdp
import folders
from bmdp import storage
from bmdp.frontier import upper_frontier
from bmdp.paper.runner import Work
from bmdp.paper.scenes import first_state, task_of
from training import Killed


def done(name, experiment, folder, seed=3):
    """Does all of an experiment at its smallest size for one seed; returns where."""
    folders.spec(folder, name, seeds=[seed])
    common = [Work(folder / part, 0, "cpu", part) for part in experiment.COMMON]
    for one in (*common, *(work(folder, part, seed) for part in experiment.PARTS)):
        experiment.run(experiment.SETTINGS["smoke"], one)
        folders.finish(one.folder)
    return folder


def work(folder, part, seed=3):
    """A part of a seed in its place."""
    return Work(place(folder, part, seed), seed, "cpu", part)


def place(folder, part, seed=3):
    return folder / part / f"seed-{seed}"


def piece(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def pieces(folder):
    """Texts of all pieces of a part, by name; settings of a training run, and its end, are none."""
    others = ("spec.json", "finished.json")
    return {p.name: p.read_text() for p in sorted(folder.glob("*.json")) if p.name not in others}


def check_killed(experiment, part, folder, tmp_path, monkeypatch, n_writes):
    """A part that is killed at the n-th time that it waits for the disk leaves the same.

    `folder` is where nothing interrupted it.
    """
    settings, again = experiment.SETTINGS["smoke"], work(tmp_path, part)
    left = [n_writes]
    to_disk = storage.to_disk

    def killing(path):
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        to_disk(path)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "to_disk", killing)
        with pytest.raises(Killed):
            experiment.run(settings, again)
    experiment.run(settings, again)
    assert pieces(again.folder) == pieces(place(folder, part))


def check_evaluation(found, policy, env, budgets, n_episodes, seed):
    """An evaluation is that of a policy, to the last digit."""
    expected = bmdp.evaluate(policy, env.spec(), budgets=budgets, n_episodes=n_episodes, seed=seed)
    assert set(found) == {*vars(expected), "env_settings"}
    assert found["env"] == env.id
    assert found["env_settings"] == json.loads(json.dumps(env.settings))
    for name, value in vars(expected).items():
        if name != "env":
            assert found[name] == (value.tolist() if isinstance(value, np.ndarray) else value)


def check_executions(found, policy, env, testing, seed):
    """What all executions have, whatever the environment."""
    assert set(found) == {
        *("env", "env_settings", "gamma", "budgets", "frontier", "choices"),
        *("realised", "layout", "episodes"),
    }
    assert found["env"] == env.id
    assert found["budgets"] == list(testing.dial)
    check_frontier(found, first_points(policy, env, seed))
    check_realised(found, policy, env, testing, seed)
    assert len(found["episodes"]) == len(testing.dial)
    assert all(len(of_budget) == testing.n_shown for of_budget in found["episodes"])


def first_points(policy, env, seed):
    """What a policy expects at the first state of the first episode."""
    task = task_of(env.spec())
    return policy.at_step(0).points(first_state(task, seed)[None])


def check_frontier(found, points):
    """Choices are mixtures of two neighbours on the frontier that spend the budget.

    One that is short of the frontier by the policy's slack is raised to its first vertex.
    """
    least = float(points.least_budget[0])
    frontier = found["frontier"]
    costs, rewards = frontier["costs"], frontier["rewards"]
    assert len(upper_frontier(costs, rewards)) == len(costs) == len(frontier["labels"])
    for budget, choice in zip(found["budgets"], found["choices"], strict=True):
        lower, upper, share = (choice[name] for name in ("lower", "upper", "p_upper"))
        status = "INFEASIBLE" if budget < least else "SLACK" if budget >= costs[-1] else "TIGHT"
        assert choice["status"] == status
        assert upper - lower == (status == "TIGHT")
        expected = np.clip(budget, costs[0], costs[-1])
        assert choice["cost"] == pytest.approx(expected, abs=2e-4)
        mixed = (1 - share) * np.array(rewards)[lower] + share * np.array(rewards)[upper]
        assert choice["reward"] == pytest.approx(mixed, abs=2e-3 + 1e-4 * max(rewards))


def check_realised(found, policy, env, testing, seed):
    """Realised figures are those of an evaluation at the same budgets."""
    expected = bmdp.evaluate(
        policy, env.spec(), budgets=testing.dial, n_episodes=testing.n_episodes, seed=seed
    )
    ends = {"": "mean", "_low": "low", "_high": "high"}
    assert set(found["realised"]) == {f"{w}{e}" for w in ("cost", "reward") for e in ends}
    for name, values in found["realised"].items():
        what, _, end = name.partition("_")
        full = getattr(expected, f"discounted_{what}_{end or 'mean'}")
        assert values == pytest.approx(full, abs=1e-4)


def check_hull(found, policy, state, n_actions):
    """All points at a state, with the frontier that the policy has there."""
    first = policy.at_step(0)
    frontier, n_points = first.frontier(state), n_actions * len(first.beta_grid)
    index = found["frontier"]["index"]
    assert index == frontier.index.tolist()
    assert found["state"] == pytest.approx(np.asarray(state), abs=1e-4)
    for name in ("costs", "rewards"):
        assert len(found[name]) == n_points
        assert found["frontier"][name] == pytest.approx(getattr(frontier, name), abs=1e-3)
        assert np.array(found[name])[index] == pytest.approx(found["frontier"][name], abs=1e-3)
    assert len(found["action_names"]) == n_actions
    assert found["action"] == sorted(list(range(n_actions)) * len(first.beta_grid))
    assert found["handed_on"] == pytest.approx(np.tile(first.beta_grid, n_actions), abs=1e-4)
    points = first.points(np.asarray(state)[None])
    raised = float(points.raised(np.array([found["budget"]]))[0, 0])
    mixture = bmdp.hull_mixture(frontier, raised)
    assert found["mixture"]["status"] == mixture.status.name
    ends = found["mixture"]["lower"], found["mixture"]["upper"]
    assert ends == (mixture.lower, mixture.upper)
    assert found["mixture"]["cost"] == pytest.approx(mixture.cost, abs=1e-4)
