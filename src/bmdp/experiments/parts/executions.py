"""What a policy does and expects at each budget: the dial of a report, and the hull at a state."""

from __future__ import annotations

from typing import Any

import numpy as np

from bmdp.envs.tasks import Task
from bmdp.errors import PolicyError
from bmdp.experiments.experiment import Piece, Work
from bmdp.experiments.parts.measuring import Trials, evaluation_piece, rounded, where
from bmdp.experiments.parts.scenes import episode_of, layout_of
from bmdp.experiments.parts.traces import played, started, task_of
from bmdp.experiments.parts.training import playable, trained
from bmdp.frontier import Frontier, Mixture, hull_mixture
from bmdp.learn.spec import EnvConfig, TrainingSpec
from bmdp.policies.hull import HullPolicy, augmented_actions
from bmdp.policies.policy import BudgetedPolicy


def learned_dial(spec: TrainingSpec, testing: Trials, work: Work) -> None:
    """Explores and learns in the folder of the work, and measures and shows what was learned."""
    policy = playable(trained(spec, work), work.device)
    asked = testing.budgets, testing.n_episodes, work.seed
    found = work.piece("evaluation", lambda: evaluation_piece(policy, spec.env, *asked))
    work.piece("executions", lambda: executions_piece(policy, spec.env, testing, work.seed, found))
    work.piece("hull", lambda: hull_piece(policy, spec.env, testing.hull_budget, work.seed))


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
    first = first_decision(policy)
    frontier = first.frontier(task.observe(traces[0][0].states[0])[0])
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
        "choices": [_choice(hull_mixture(frontier, budget)) for budget in testing.dial],
        "realised": realised,
        "layout": layout_of(task),
        "episodes": [[episode_of(task, trace) for trace in of_budget] for of_budget in traces],
    }


def hull_piece(policy: BudgetedPolicy, env: EnvConfig, budget: float, seed: int) -> Piece:
    """Returns all augmented actions at the first state of the first episode, and their frontier.

    Points are as the policy expects them, those that its slope cap takes away included.
    """
    task, first = task_of(env), first_decision(policy)
    state = task.observe(started(task, 1, seed).state)[0]
    q_r, q_c = first.q_function(state[None])
    costs = np.maximum(np.asarray(q_c, np.float64).ravel(), first.rule.cost_floor)
    frontier = first.frontier(state)
    assert frontier.index is not None
    actions, handed_on = augmented_actions(np.arange(len(costs)), first.beta_grid)
    return {
        "state": rounded(state),
        "costs": rounded(costs, 5),
        "rewards": rounded(np.asarray(q_r, np.float64).ravel(), 3),
        "action": actions.tolist(),
        "handed_on": rounded(handed_on),
        "action_names": list(task.action_names),
        "frontier": {
            "costs": rounded(frontier.costs, 5),
            "rewards": rounded(frontier.rewards, 3),
            "index": frontier.index.tolist(),
        },
        "budget": budget,
        "mixture": _choice(hull_mixture(frontier, budget)),
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


def _choice(mixture: Mixture) -> Piece:
    """Which vertices are played, and what they promise."""
    return {
        "lower": mixture.lower,
        "upper": mixture.upper,
        "p_upper": round(mixture.p_upper, 4),
        "status": mixture.status.name,
        "cost": round(mixture.cost, 5),
        "reward": round(mixture.reward, 3),
    }
