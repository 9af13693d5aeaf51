"""BFTQ against FTQ(lambda): what the experiments on dialogues and on driving share.

The main part explores with the budgeted policy, and measures and shows what it has learned. The
part "ftq" explores once, learns a policy for each of several prices of cost from these episodes,
and measures each by itself; then the mixture of them that spends a budget, by a coin that is tossed
once per episode (Beutler and Ross, 1985). Where one model has learned all prices, it also measures
the policy that chooses a price by the budget at the start, and carries it (ours).

In the paper it explores without regard to costs, by FTQ(0). With settings of ours it explores as
the main part does, so that both learn from the same episodes.

Paper: the second experiment of Section 5, and the Lagrangian appendix.
"""

from __future__ import annotations

from dataclasses import dataclass

from bmdp.data import TransitionBatch
from bmdp.experiments.experiment import Work
from bmdp.experiments.parts.executions import learned_dial
from bmdp.experiments.parts.measuring import (
    Trials,
    evaluation_piece,
    other_seed,
    prices_piece,
    with_prices,
)
from bmdp.experiments.parts.training import (
    all_prices,
    carried_price,
    explored,
    fitted_prices,
    playable,
    rounds_of,
    trained,
)
from bmdp.learn.learners import BFTQConfig, FTQConfig, LagrangianConfig
from bmdp.learn.presets import preset
from bmdp.learn.runs import save_policy
from bmdp.learn.spec import TrainingSpec


@dataclass(frozen=True)
class Prices:
    """How FTQ(lambda) is learned.

    Args:
        exploring: collects the episodes that all of them are learned from.
        learner: of a policy for each price: of one at a time, as in the paper, or of all at once.
        prices: of a unit of cost, in rewards (lambda).
    """

    exploring: TrainingSpec
    learner: FTQConfig | LagrangianConfig
    prices: tuple[float, ...]


def one_by_one(name: str, prices: tuple[float, ...]) -> Prices:
    """Returns how a preset learns a model for each price, as in the paper."""
    spec = preset(name)
    assert isinstance(spec.learner, FTQConfig)
    return Prices(spec, spec.learner, prices)


def all_at_once(spec: TrainingSpec, prices: tuple[float, ...]) -> Prices:
    """Returns how models of BFTQ's kind learn all prices, from episodes that BFTQ explored."""
    assert isinstance(spec.learner, BFTQConfig)
    return Prices(spec, all_prices(spec.learner), prices)


@dataclass(frozen=True)
class Settings:
    """Settings of an experiment that compares BFTQ with FTQ(lambda).

    Args:
        n_seeds: that it is done with, unless others are asked for.
        budgeted: explores with the budgeted policy.
        priced: how FTQ(lambda) is learned.
        testing: how policies are measured and shown.
    """

    n_seeds: int
    budgeted: TrainingSpec
    priced: Prices
    testing: Trials


def bftq(settings: Settings, work: Work) -> None:
    """Explores with the budgeted policy, and measures and shows what it has learned."""
    learned_dial(settings.budgeted, settings.testing, work)


def ftq(settings: Settings, work: Work) -> None:
    """Learns a policy for each price from the same episodes, and measures them and ways to mix.

    What the mixture goes by is measured in other episodes than the mixture itself.
    """
    how, testing = settings.priced, settings.testing
    (env, _), exploring = explored(how.exploring), work.folder / "exploring"
    trained(how.exploring, work, exploring)
    batch = TransitionBatch.concatenate(rounds_of(exploring))
    learned = fitted_prices(how.learner, how.prices, batch, work, work.folder / "learning")
    played, seed = playable(learned, work.device), other_seed(work.seed, "prices")
    found = work.piece(
        "prices", lambda: prices_piece(played, how.prices, env, testing.n_episodes, seed)
    )
    save_policy(with_prices(learned, found), work.folder / "policy")
    mixture, asked = with_prices(played, found), (testing.budgets, testing.n_episodes, work.seed)
    work.piece("evaluation", lambda: evaluation_piece(mixture, env, *asked))
    if isinstance(how.learner, LagrangianConfig):
        carried = carried_price(played, how.learner)
        work.piece("evaluation-carried", lambda: evaluation_piece(carried, env, *asked))
