"""BFTQ against FTQ(lambda): code that the experiments on dialogues and on driving share.

The main part explores with the budgeted policy, and measures and shows what it has learned. The
part "ftq" explores once, learns a policy for each of several prices of cost from these episodes,
and measures each by itself; then the mixture of them that spends a budget, by a coin that is tossed
once per episode (Beutler and Ross, 1985). Where one model has learned all prices, it also measures
the policy that chooses a price by the budget at the start, and carries it (ours).

In the paper it explores without regard to costs, by FTQ(0). With settings of ours it explores as
the main part does, so that both learn from the same episodes. Prices are those of the paper, or
found from the episodes, by each seed for itself.

    FOLDER/seed-N/                              a training run: BFTQ
    FOLDER/seed-N/{evaluation,executions,hull}.json
    FOLDER/ftq/seed-N/exploring/                a training run
    FOLDER/ftq/seed-N/learning/                 policies of prices
    FOLDER/ftq/seed-N/found.json                `prices` that were found
    FOLDER/ftq/seed-N/{prices,evaluation,evaluation-carried}.json

Paper: the second experiment of Section 5, and the Lagrangian appendix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from bmdp.data import TransitionBatch
from bmdp.learn.candidates import Lesson, placed_prices, with_highest
from bmdp.learn.learners import BFTQConfig, FTQConfig, LagrangianConfig
from bmdp.learn.natures import nature_of
from bmdp.learn.presets import preset
from bmdp.learn.runs import save_policy
from bmdp.learn.spec import TrainingSpec
from bmdp.paper import pictures, training
from bmdp.paper.measuring import Trials, evaluation_piece, other_seed, prices_piece, with_prices
from bmdp.paper.pictures import Dials, Way
from bmdp.paper.published import published_curve
from bmdp.paper.results import Results, are_alike, curve_of, prices_of
from bmdp.paper.runner import Work
from bmdp.policies.portfolio import Portfolio
from bmdp.policies.prices import MultiplierPolicy, PriceDial
from bmdp.report.curves import FOURTH, SECOND, SECOND_PUBLISHED, THIRD, Drawn
from bmdp.report.section import Picture, Section
from bmdp.report.series import Curve
from bmdp.report.tables import price_table, published_prices

PAPER_PRICES = (0.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 60.0)
"""Prices of a hang-up on slot-filling, in rewards, in the paper's figure."""


@dataclass(frozen=True)
class PriceLearning:
    """Settings of FTQ(lambda)."""

    exploring: TrainingSpec  # collects the episodes that all of them are learned from
    learner: FTQConfig | LagrangianConfig  # of one price at a time, as in the paper, or of all
    prices: tuple[float, ...] | Literal["found"]  # of a unit of cost, in rewards (lambda)


def one_by_one(name: str, prices: tuple[float, ...]) -> PriceLearning:
    """Returns a preset that learns a model for each price, as in the paper."""
    spec = preset(name)
    assert isinstance(spec.learner, FTQConfig)
    return PriceLearning(spec, spec.learner, prices)


def all_at_once(
    spec: TrainingSpec, prices: tuple[float, ...] | Literal["found"] = "found"
) -> PriceLearning:
    """Returns settings by which models of BFTQ's kind learn all prices from its episodes."""
    assert isinstance(spec.learner, BFTQConfig)
    return PriceLearning(spec, training.all_prices(spec.learner), prices)


@dataclass(frozen=True)
class PricingSettings:
    """Settings of an experiment that compares BFTQ with FTQ(lambda)."""

    n_seeds: int
    budgeted: TrainingSpec  # explores with the budgeted policy
    priced: PriceLearning
    testing: Trials


def found_prices(
    batch: TransitionBatch, gamma: float, *, seed: int, device: str
) -> tuple[float, ...]:
    """Returns about 20 prices where they make a difference, falling, as `bmdp.fit` finds them."""
    lesson = Lesson(batch, nature_of(batch, gamma), gamma, seed, device)
    return tuple(with_highest(placed_prices(lesson), lesson).tolist())


def learned_prices(
    how: PriceLearning, work: Work, exploring: Path
) -> tuple[Portfolio, tuple[float, ...]]:
    """Explores in a folder, and learns a policy for each price, or goes on with that.

    Returns:
        The policies, and the prices that they are of.
    """
    training.trained(how.exploring, work, exploring)
    batch, folder, prices = training.log_of(exploring), work.folder / "learning", how.prices
    if prices == "found":
        by: dict[str, Any] = {"seed": work.seed, "device": work.device}
        found = work.piece(
            "found", lambda: {"prices": list(found_prices(batch, how.learner.gamma, **by))}
        )
        prices = tuple(found["prices"])
    return training.fitted_prices(how.learner, prices, batch, work, folder), prices


def run_ftq(settings: PricingSettings, work: Work) -> None:
    """Learns a policy for each price from the same episodes, and measures them and ways to mix.

    Costs that the mixture goes by are measured in other episodes than the mixture itself.
    """
    how, testing = settings.priced, settings.testing
    env, _ = training.explored(how.exploring)
    learned, prices = learned_prices(how, work, work.folder / "exploring")
    played, seed = training.playable(learned, work.device), other_seed(work.seed, "prices")
    found = work.piece(
        "prices", lambda: prices_piece(played, prices, env, testing.n_episodes, seed)
    )
    save_policy(with_prices(learned, found), work.folder / "policy")
    mixture, asked = with_prices(played, found), (testing.budgets, testing.n_episodes, work.seed)
    work.piece("evaluation", lambda: evaluation_piece(mixture, env, *asked))
    if isinstance(how.learner, LagrangianConfig):
        (dial,) = played.policies
        carried = MultiplierPolicy(cast(PriceDial, dial), *how.learner.budget_range)
        work.piece("evaluation-carried", lambda: evaluation_piece(carried, env, *asked))


def price_section(
    results: Results, anchor: str, figure: str, task: str, dial: str, scripts: Sequence[Drawn] = ()
) -> Section:
    """Returns the section of an experiment with prices, as far as it goes.

    Args:
        results: of the experiment.
        anchor: with which names of files begin.
        figure: of the paper.
        task: that is learned, in words.
        dial: title of its dial.
        scripts: policies written by hand, beside which the others are drawn.
    """
    prices = list(results.each("prices", prices_of, "ftq").values())
    priced = [curve_of("FTQ(lambda)", prices)] if prices and are_alike(prices) else []
    paper = published_curve(figure, "FTQ")
    ways = {
        "bftq": Way("BFTQ", published=(figure, "BFTQ")),
        "mixture": Way("FTQ(lambda), mixture", "ftq", style=THIRD, is_compared=False),
        "carried": Way("FTQ(lambda), carried price", "ftq", "evaluation-carried", FOURTH),
    }
    beside = [Drawn(one, SECOND, [f"λ {price:g}" for price in one.settings]) for one in priced]
    others = [*scripts, Drawn(paper, SECOND_PUBLISHED)]
    dials = pictures.dials_of(results, anchor, ways, beside, others)
    shown = pictures.behaviour(results, anchor, dial, dials.truth)
    settings, how = results.settings, results.settings.get("priced") or {}
    name, title = f"{anchor}-ftq", "Prices, FTQ(lambda)"
    return Section(
        anchor,
        "",
        answer=_answer(dials, priced),
        facts=pictures.facts_of(
            [*dials.curves.values(), *priced, *dials.published, paper],
            task,
            pictures.episodes_explored("BFTQ", settings.get("budgeted")),
            pictures.episodes_explored("FTQ(lambda)", how.get("exploring")),
            f"{len(how['prices'])} prices" if isinstance(how.get("prices"), list) else "",
            "prices that each seed found from its episodes" if how.get("prices") == "found" else "",
            _more(results),
            pictures.episodes_played(settings),
        ),
        pictures=[
            *dials.pictures,
            *(_calibration(f"{anchor}-calibration", one, paper) for one in priced),
            *shown.pictures,
        ],
        tables=[
            *dials.tables,
            *(price_table(name, title, one, paper) for one in priced),
            *([published_prices(name, title, paper)] if prices and not priced else []),
        ],
        dials=shown.dials,
        animations=shown.animations,
    )


def _more(results: Results) -> str:
    """Episodes that the mixture had more than the others, in words."""
    found = results.each("prices", lambda piece: int(piece.get("n_more", 0)), "ftq").values()
    most = max(found, default=0)
    return f"{most:,} more episodes a seed that measure the prices of the mixture" if most else ""


def _calibration(name: str, curve: Curve, published: Curve) -> Picture:
    largest, words = curve.cost.high, "upper end of 95 %, episodes"
    if curve.n_seeds > 1:
        largest, words = curve.cost_by_seed.max(axis=0), "that of the seed that pays most"
    return pictures.multiplier(name, curve, largest, published, words)


def _answer(dials: Dials, priced: Sequence[Curve]) -> str:
    told = []
    if (budgeted := dials.curves.get("bftq")) is not None:
        over = float((budgeted.cost.mean - budgeted.settings).max())
        told.append(
            f"One BFTQ model at all budgets: {pictures.ends_of(budgeted)}; its cost exceeds "
            f"the budget by {max(over, 0.0):.3f} at most."
        )
    told += [pictures.kept(name, report) for name, report in dials.reports.items()]
    told += [
        f"{len(one.settings)} policies of FTQ(lambda): {pictures.ends_of(one)}." for one in priced
    ]
    return " ".join(told)
