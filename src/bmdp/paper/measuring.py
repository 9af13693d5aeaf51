"""Pieces of an experiment that measure a policy: its returns, its deeds, its forecasts.

evaluation.json: the fields of `bmdp.Evaluation`, `env`, `env_settings`.
truth.json: `costs` and `rewards` of the true frontier, `reward_error`, `settings`.
prices.json: for each of `prices` (rising) means and 95 % intervals of reward and cost
    (`reward_mean`, `reward_low`, ...), `cost_deviation` over episodes, `n_episodes` of each,
    `n_more`, episodes of all of them beside those of learning, `gamma`.
executions.json: a dial, what a policy does and expects at each budget.
hull.json: all augmented actions at the first state, their frontier, and the mixture at a budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.checks import require_count
from bmdp.envs.tasks import TrueFrontier
from bmdp.errors import ConfigError, PolicyError
from bmdp.evaluation import Evaluation, calibrate, evaluate, mean_interval, play_members
from bmdp.frontier import hull_mixture
from bmdp.learn.spec import EnvConfig
from bmdp.paper.runner import Piece, Work
from bmdp.paper.scenes import episode_of, first_state, layout_of, played, rounded, task_of
from bmdp.paper.training import playable
from bmdp.policies.hull import HullPolicy, augmented_actions
from bmdp.policies.policy import BudgetedPolicy, Policy
from bmdp.policies.portfolio import Portfolio
from bmdp.randomness import named_generator
from bmdp.settings import plain


@dataclass(frozen=True)
class Trials:
    """Test episodes of a policy, and those that are shown."""

    budgets: tuple[float, ...]  # at which it is measured
    n_episodes: int  # at each of them
    dial: tuple[float, ...]  # budgets at which it is shown
    n_shown: int  # episodes at each of them
    hull_budget: float = 0.3  # at which the choice at the first state is shown

    def __post_init__(self) -> None:
        if not self.budgets or not self.dial:
            raise ConfigError("Trials.budgets and Trials.dial must hold at least one budget.")
        require_count("n_episodes", self.n_episodes, 2)
        require_count("n_shown", self.n_shown, 1)


def evenly(n: int) -> tuple[float, ...]:
    """Returns budgets from 0 to 1.

    >>> evenly(5)
    (0.0, 0.25, 0.5, 0.75, 1.0)
    """
    return tuple(np.linspace(0, 1, n).round(12).tolist())


def other_seed(seed: int, name: str) -> int:
    """Returns a seed of the same name and number for ever, so that chances are not met twice."""
    return int(named_generator(seed, f"experiment/{name}").integers(2**31))


def evaluation_piece(
    policy: BudgetedPolicy, env: EnvConfig, budgets: Sequence[float], n_episodes: int, seed: int
) -> Piece:
    """Returns the evaluation of a policy at budgets."""
    found = evaluate(policy, env.spec(), budgets=budgets, n_episodes=n_episodes, seed=seed)
    values = {field.name: getattr(found, field.name) for field in fields(Evaluation)}
    lists = {n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in values.items()}
    return lists | _where(env)


def truth_piece(found: TrueFrontier, settings: Any) -> Piece:
    """Returns a true frontier, with the settings that it was found by."""
    return {
        "costs": found.frontier.costs.tolist(),
        "rewards": found.frontier.rewards.tolist(),
        "reward_error": float(found.reward_error),
        "settings": plain(settings),
    }


def prices_piece(
    portfolio: Portfolio, prices: Sequence[float], env: EnvConfig, n_episodes: int, seed: int
) -> Piece:
    """Returns what each member of a portfolio earns and pays, discounted, when played by itself.

    Members are by falling price; means are those of `measure_portfolio`.
    """
    rewards, costs, gamma = play_members(portfolio, env.spec(), n_episodes=n_episodes, seed=seed)
    piece: Piece = {"prices": sorted(map(float, prices))}
    for name, samples in (("reward", rewards[::-1]), ("cost", costs[::-1])):
        interval = mean_interval(samples, confidence=0.95)
        piece |= {f"{name}_{end}": values.tolist() for end, values in interval._asdict().items()}
    deviation = costs[::-1].std(axis=1, ddof=1).tolist()
    piece |= {"cost_deviation": deviation, "n_episodes": n_episodes, "n_more": costs.size}
    return piece | {"gamma": float(gamma)}


def with_prices(portfolio: Portfolio, found: Piece) -> Portfolio:
    """Returns a portfolio whose members cost and earn what `prices_piece` found."""
    costs, rewards = (np.array(found[name])[::-1] for name in ("cost_mean", "reward_mean"))
    return replace(portfolio, costs=costs, rewards=rewards)


def calibrated_piece(
    policy: Policy,
    env: EnvConfig,
    asked: tuple[Sequence[float], int, int],
    *,
    confidence: float,
    n_episodes: int,
    seed: int,
) -> Piece:
    """Returns the `certificate` of a policy, and its `evaluation` after calibration.

    The evaluation is at the budgets, by the episodes and with the seed `asked`, budgets are also
    those of the members, and the others are arguments of `bmdp.calibrate`.
    """
    how: dict[str, Any] = {"confidence": confidence, "n_episodes": n_episodes, "seed": seed}
    calibrated = calibrate(policy, env.spec(), budgets=asked[0], **how)
    found = calibrated.certificate
    members = {n: getattr(found, n).tolist() for n in ("cost_mean", "cost_high", "reward_mean")}
    smallest = found.smallest_budget
    promised = {"confidence": found.confidence, "n_episodes": found.n_episodes}
    return {
        "certificate": {**promised, "smallest_budget": smallest, **members, "text": str(found)},
        "evaluation": evaluation_piece(calibrated, env, *asked),
    }


def show(learned: BudgetedPolicy, env: EnvConfig, testing: Trials, work: Work) -> None:
    """Keeps the evaluation of a learned policy, its deeds by budget, and its hull at the start."""
    policy = playable(learned, work.device)
    asked = testing.budgets, testing.n_episodes, work.seed
    found = work.piece("evaluation", lambda: evaluation_piece(policy, env, *asked))
    work.piece("executions", lambda: executions_piece(policy, env, testing, work.seed, found))
    work.piece("hull", lambda: hull_piece(policy, env, testing.hull_budget, work.seed))


def executions_piece(
    policy: BudgetedPolicy, env: EnvConfig, testing: Trials, seed: int, evaluation: Piece
) -> Piece:
    """Returns what a policy does at each budget of the dial, in the same episodes at all of them.

    Forecasts are those of the first state of the first episode. An evaluation at these very budgets
    is taken as it is.
    """
    task = task_of(env.spec())
    traces = [played(policy, task, budget, testing.n_shown, seed) for budget in testing.dial]
    first, state = first_decision(policy), task.observe(traces[0][0].states[0])[0]
    frontier = first.frontier(state)
    assert frontier.index is not None
    vertices = zip(*augmented_actions(frontier.index, first.beta_grid), strict=True)
    measured = evaluation
    if evaluation["budgets"] != list(testing.dial):
        measured = evaluation_piece(policy, env, testing.dial, testing.n_episodes, seed)
    return {
        **_where(env),
        "gamma": float(task.gamma),
        "budgets": rounded(testing.dial),
        "frontier": {
            "costs": rounded(frontier.costs),
            "rewards": rounded(frontier.rewards),
            "labels": [
                f"{task.action_names[action]}, handing on {handed_on.round(3):g}"
                for action, handed_on in vertices
            ],
        },
        "choices": [_choice(first, state, budget) for budget in testing.dial],
        "realised": {
            f"{what}_{end}".removesuffix("_mean"): rounded(measured[f"discounted_{what}_{end}"])
            for what in ("cost", "reward")
            for end in ("mean", "low", "high")
        },
        "layout": layout_of(task),
        "episodes": [[episode_of(task, trace) for trace in of_budget] for of_budget in traces],
    }


def hull_piece(policy: BudgetedPolicy, env: EnvConfig, budget: float, seed: int) -> Piece:
    """Returns all augmented actions at the first state of the first episode, and their frontier.

    Points are as the policy expects them, those that its rule leaves out included.
    """
    task, first = task_of(env.spec()), first_decision(policy)
    state = first_state(task, seed)
    every = replace(first, rule=first.rule.from_cheapest()).points(state[None])
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
    """Returns the first step of a policy; a PolicyError if it plays no mixture on a frontier."""
    at_step = getattr(policy, "at_step", None)
    found: Any = at_step(0) if at_step is not None else policy
    if not isinstance(found, HullPolicy):
        raise PolicyError(f"a {type(found).__name__} has no frontier to show.")
    return found


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


def _where(env: EnvConfig) -> Piece:
    return {"env": env.id, "env_settings": plain(env.settings)}
