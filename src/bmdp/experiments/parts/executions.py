"""What a policy does and expects at each budget: the dial of a report, and the hull at a state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.envs.tasks import Task
from bmdp.errors import PolicyError
from bmdp.experiments.experiment import Piece, Work
from bmdp.experiments.parts.measuring import Trials, evaluation_piece, rounded, where
from bmdp.experiments.parts.scenes import episode_of, layout_of
from bmdp.experiments.parts.traces import played, started, task_of
from bmdp.experiments.parts.training import explored, playable, trained
from bmdp.frontier import Frontier, hull_mixture
from bmdp.learn.spec import EnvConfig, TrainingSpec
from bmdp.policies.hull import HullPolicy, HullRule, augmented_actions
from bmdp.policies.policy import BudgetedPolicy


def learned_dial(spec: TrainingSpec, testing: Trials, work: Work) -> None:
    """Explores and learns in the folder of the work, and measures and shows what was learned."""
    policy = playable(trained(spec, work), work.device)
    env, asked = explored(spec)[0], (testing.budgets, testing.n_episodes, work.seed)
    found = work.piece("evaluation", lambda: evaluation_piece(policy, env, *asked))
    work.piece("executions", lambda: executions_piece(policy, env, testing, work.seed, found))
    work.piece("hull", lambda: hull_piece(policy, env, testing.hull_budget, work.seed))


def executions_piece(
    policy: BudgetedPolicy, env: EnvConfig, testing: Trials, seed: int, evaluation: Piece
) -> Piece:
    """Returns what a policy does at each budget of the dial, in the same episodes at all of them.

    What it expects is that of the first state of the first episode.

    Args:
        policy: one that was learned.
        env: an environment of ours.
        testing: budgets, and how many episodes are shown and measured.
        seed: of everything.
        evaluation: of the policy, which is not measured again if it has these very budgets.
    """
    task = task_of(env)
    traces = [played(policy, task, budget, testing.n_shown, seed) for budget in testing.dial]
    first, state = first_decision(policy), task.observe(traces[0][0].states[0])[0]
    frontier = first.frontier(state)
    measured = evaluation
    if evaluation["budgets"] != list(testing.dial):
        measured = evaluation_piece(policy, env, testing.dial, testing.n_episodes, seed)
    realised = {
        (what if end == "mean" else f"{what}_{end}"): rounded(measured[f"discounted_{what}_{end}"])
        for what in ("cost", "reward")
        for end in ("mean", "low", "high")
    }
    return {
        **where(env),
        "gamma": float(task.gamma),
        "budgets": rounded(testing.dial),
        "frontier": {
            "costs": rounded(frontier.costs),
            "rewards": rounded(frontier.rewards),
            "labels": _labels(first, frontier, task),
        },
        "choices": [_choice(first, state, budget) for budget in testing.dial],
        "realised": realised,
        "layout": layout_of(task),
        "episodes": [[episode_of(task, trace) for trace in of_budget] for of_budget in traces],
    }


def hull_piece(policy: BudgetedPolicy, env: EnvConfig, budget: float, seed: int) -> Piece:
    """Returns all augmented actions at the first state of the first episode, and their frontier.

    Points are as the policy expects them, those that its rule leaves out included.
    """
    task, first = task_of(env), first_decision(policy)
    state = task.observe(started(task, 1, seed).state)[0]
    every = replace(first, rule=HullRule(first.rule.costs_from_zero)).points(state[None])
    frontier = first.frontier(state)
    assert frontier.index is not None
    actions, handed_on = augmented_actions(np.arange(every.costs.size), first.beta_grid)
    return {
        "state": rounded(state),
        "costs": rounded(every.costs[0], 5),
        "rewards": rounded(every.rewards[0], 3),
        "action": actions.tolist(),
        "handed_on": rounded(handed_on),
        "action_names": list(task.action_names),
        "frontier": {
            "costs": rounded(frontier.costs, 5),
            "rewards": rounded(frontier.rewards, 3),
            "index": frontier.index.tolist(),
        },
        "budget": budget,
        "mixture": _choice(first, state, budget),
    }


def first_decision(policy: BudgetedPolicy) -> HullPolicy:
    """Returns what a learned policy does at the first step.

    Raises:
        PolicyError: if it is not one that plays a mixture on a frontier.
    """
    at_step = getattr(policy, "at_step", None)
    found: Any = at_step(0) if at_step is not None else policy
    if not isinstance(found, HullPolicy):
        raise PolicyError(f"a {type(found).__name__} has no frontier to show.")
    return found


def _labels(first: HullPolicy, frontier: Frontier, task: Task) -> list[str]:
    """What each vertex does."""
    assert frontier.index is not None
    vertices = zip(*augmented_actions(frontier.index, first.beta_grid), strict=True)
    return [
        f"{task.action_names[action]}, handing on {handed_on.round(3):g}"
        for action, handed_on in vertices
    ]


def _choice(first: HullPolicy, state: FloatArray, budget: float) -> Piece:
    """Which vertices are played at a budget, and what they promise.

    A budget that is hardly short of the first vertex plays that one, by the policy's own rule.
    """
    held = float(first.points(state[None]).raised(np.array([budget]))[0, 0])
    mixture = hull_mixture(first.frontier(state), held)
    return {
        "lower": mixture.lower,
        "upper": mixture.upper,
        "p_upper": round(mixture.p_upper, 4),
        "status": mixture.status.name,
        "cost": round(mixture.cost, 5),
        "reward": round(mixture.reward, 3),
    }
