"""What policies earn and pay, as pieces of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from bmdp.arrays import FloatArray
from bmdp.checks import require_count
from bmdp.envs.tasks import TrueFrontier
from bmdp.errors import ConfigError, StoreError
from bmdp.evaluation.calibration import play_members
from bmdp.evaluation.rollouts import Evaluation, evaluate
from bmdp.evaluation.statistics import mean_interval
from bmdp.experiments.experiment import Piece
from bmdp.learn.spec import EnvConfig, plain
from bmdp.policies.policy import BudgetedPolicy
from bmdp.policies.portfolio import Portfolio
from bmdp.randomness import named_generator


@dataclass(frozen=True)
class Trials:
    """How policies are measured and shown.

    Args:
        budgets: at which they are measured.
        n_episodes: at each of them.
        dial: budgets at which they are shown.
        n_shown: episodes that are shown at each of them.
        hull_budget: at which the choice at the first state is shown.
    """

    budgets: tuple[float, ...]
    n_episodes: int
    dial: tuple[float, ...]
    n_shown: int
    hull_budget: float = 0.3

    def __post_init__(self) -> None:
        """Checks the numbers."""
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


def evaluation_piece(
    policy: BudgetedPolicy, env: EnvConfig, budgets: Sequence[float], n_episodes: int, seed: int
) -> Piece:
    """Returns what a policy earns and pays at budgets: the fields of `bmdp.Evaluation`."""
    found = evaluate(policy, env.spec(), budgets=budgets, n_episodes=n_episodes, seed=seed)
    values = {field.name: getattr(found, field.name) for field in fields(Evaluation)}
    lists = {n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in values.items()}
    return lists | where(env)


def evaluation_of(piece: Mapping[str, Any]) -> Evaluation:
    """Returns an evaluation that was kept as a piece.

    Raises:
        StoreError: if something is missing.
    """
    try:
        return Evaluation(**{field.name: piece[field.name] for field in fields(Evaluation)})
    except KeyError as error:
        raise StoreError(f"an evaluation has no {error}: run the experiment again.") from error


def where(env: EnvConfig) -> Piece:
    """What a piece says of its environment."""
    return {"env": env.id, "env_settings": plain(env.settings)}


def truth_piece(found: TrueFrontier, settings: Any) -> Piece:
    """Returns a true frontier."""
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

    They are the means that `measure_portfolio` finds.

    Args:
        portfolio: with a member for each price, by falling price.
        prices: of the members, in any order.
        env: where they are played.
        n_episodes: that each of them is played for.
        seed: of everything.
    """
    rewards, costs, gamma = play_members(portfolio, env.spec(), n_episodes=n_episodes, seed=seed)
    rising = slice(None, None, -1)
    found: Piece = {"prices": sorted(map(float, prices))}
    for name, samples in (("reward", rewards), ("cost", costs)):
        interval = mean_interval(samples[rising], confidence=0.95)
        found |= {f"{name}_{end}": values.tolist() for end, values in interval._asdict().items()}
    deviation = costs[rising].std(axis=1, ddof=1)
    return found | {
        "cost_deviation": deviation.tolist(),
        "n_episodes": n_episodes,
        "gamma": float(gamma),
    }


def with_prices(portfolio: Portfolio, found: Piece) -> Portfolio:
    """Returns a portfolio whose members cost and earn what `prices_piece` found."""
    costs, rewards = (np.array(found[name])[::-1] for name in ("cost_mean", "reward_mean"))
    return replace(portfolio, costs=costs, rewards=rewards)


def other_seed(seed: int, name: str) -> int:
    """Returns a seed of the same name and number for ever, so that chances are not met twice."""
    return int(named_generator(seed, f"experiment/{name}").integers(2**31))


def rounded(values: FloatArray | Sequence[float], digits: int = 4) -> list[float]:
    """Returns numbers for JSON, with so many digits after the point.

    >>> rounded([1 / 3, -0.00001])
    [0.3333, 0.0]
    """
    found: list[float] = (np.round(np.asarray(values, np.float64), digits) + 0.0).tolist()
    return found
