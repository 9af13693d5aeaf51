"""BFTQ against FTQ(lambda) on dialogues: reward against cost, and the calibration of lambda.

Parts and pieces are those of `bmdp.paper.pricing`, and truth/truth.json, the true frontier.

Paper: the second experiment of Section 5 and its figure on the left, and the table of two dialogues
of the appendix.
"""

from __future__ import annotations

from dataclasses import dataclass

from bmdp.envs.slot_filling import SlotFilling, true_frontier
from bmdp.learn.presets import preset
from bmdp.learn.spec import TrainingSpec
from bmdp.models import KernelModel
from bmdp.paper import pricing
from bmdp.paper.measuring import Trials, evenly, learned_dial, truth_piece
from bmdp.paper.pricing import PricingSettings, Words
from bmdp.paper.results import Results
from bmdp.paper.runner import Work
from bmdp.paper.training import changed, explored
from bmdp.report.section import Section

TITLE = "Filling slots"
QUESTION = (
    "Does one policy that takes a budget do as well on dialogues as a policy for each of several "
    "prices of cost?"
)
PARTS, COMMON = ("", "ftq"), ("truth",)

PRICES = (0.0, 15.0, 30.0, 50.0, 60.0, 62.5, 65.0, 67.5, 70.0, 75.0, 80.0, 100.0)
"""Those around the slopes of the true frontier, which are from 61 to 69, and some others."""

BUDGETS = (*(i / 20 for i in range(11)), 0.6, 0.7, 0.8, 0.9, 1.0)
"""Those of the paper's figure."""


@dataclass(frozen=True)
class SlotFillingSettings(PricingSettings):
    """Settings of the experiment: those of prices, and `n_bins` of scores for the true frontier."""

    n_bins: int = 4


def _ours(
    n_seeds: int, spec: TrainingSpec, testing: Trials, n_bins: int = 4
) -> SlotFillingSettings:
    return SlotFillingSettings(n_seeds, spec, pricing.all_at_once(spec, PRICES), testing, n_bins)


def _smoke() -> SlotFillingSettings:
    learner = {"n_budgets": 5, "ensemble": 2, "model": KernelModel(20, (2.0,), (1e-1,))}
    exploration = {"rounds": 2, "episodes": 50, "decay": 0.02}
    spec = changed(preset("slot-filling"), learner, exploration)
    return _ours(2, spec, Trials((0.0, 0.25, 0.5, 1.0), 100, evenly(5), 4), n_bins=2)


def _quick() -> SlotFillingSettings:
    """Our preset with fewer rounds and models."""
    model = KernelModel(100, (1.0, 2.0, 4.0), (1e-3, 1e-2, 1e-1, 1.0))
    exploration = {"rounds": 5, "episodes": 600, "decay": 0.0015}
    spec = changed(preset("slot-filling"), {"model": model}, exploration)
    return _ours(2, spec, Trials(evenly(21), 2000, evenly(21), 4))


def _paper() -> SlotFillingSettings:
    """The paper's tables: a network for each lambda."""
    return SlotFillingSettings(
        n_seeds=6,
        budgeted=preset("paper-slot-filling"),
        priced=pricing.one_by_one("paper-slot-filling-ftq", pricing.PAPER_PRICES),
        testing=Trials(BUDGETS, 1000, evenly(21), n_shown=4),
    )


def _best() -> SlotFillingSettings:
    return _ours(10, preset("slot-filling"), Trials(BUDGETS, 10_000, evenly(21), 4))


SETTINGS = {"smoke": _smoke(), "quick": _quick(), "paper": _paper(), "best": _best()}


def run(settings: SlotFillingSettings, work: Work) -> None:
    """Does a part."""
    if work.part == "ftq":
        pricing.run_ftq(settings, work)
    elif work.part == "truth":
        task, n = SlotFilling(**explored(settings.budgeted)[0].settings), settings.n_bins
        work.piece("truth", lambda: truth_piece(true_frontier(task, n_bins=n), {"n_bins": n}))
    else:
        learned_dial(settings.budgeted, settings.testing, work)


def analyse(results: Results, anchor: str) -> Section:
    """Returns what was found, as far as it goes."""
    task, dial = "dialogues of slot-filling", "A policy in dialogues"
    return pricing.price_section(
        results, anchor, Words(TITLE, QUESTION, "slot-filling", task, dial)
    )
