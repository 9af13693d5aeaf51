"""BFTQ against FTQ(lambda) on dialogues: reward against cost, and the calibration of lambda.

Parts and pieces are those of `bmdp.paper.pricing`, and truth/truth.json, the true frontier.

Paper: the second experiment of Section 5 and its figure on the left, and the table of two dialogues
of the appendix.
"""

from __future__ import annotations

from dataclasses import replace

from bmdp.envs.slot_filling import SlotFilling, true_frontier
from bmdp.learn.presets import preset
from bmdp.learn.spec import EnvConfig, TrainingSpec
from bmdp.models import KernelModel
from bmdp.paper import pricing
from bmdp.paper.measuring import Trials, evenly, show, truth_piece
from bmdp.paper.pricing import PricingSettings
from bmdp.paper.results import Results
from bmdp.paper.runner import Work
from bmdp.paper.training import changed, explored, trained
from bmdp.report.section import Section

TITLE = "Filling slots"
QUESTION = (
    "Does one policy that takes a budget do as well on dialogues as a policy for each of several "
    "prices of cost?"
)
PARTS, COMMON = ("", "ftq"), ("truth",)

BUDGETS = (*(i / 20 for i in range(11)), 0.6, 0.7, 0.8, 0.9, 1.0)
"""Those of the paper's figure."""


SMALLER = {
    "smoke": changed(
        preset("slot-filling"),
        {"n_budgets": 5, "ensemble": 2, "model": KernelModel(20, (2.0,), (1e-1,))},
        {"rounds": 2, "episodes": 50, "decay": 0.02},
    ),
    "quick": changed(
        preset("slot-filling"),
        {"model": KernelModel(100, (1.0, 2.0, 4.0), (1e-3, 1e-2, 1e-1, 1.0))},
        {"rounds": 5, "episodes": 600, "decay": 0.0015},
    ),
}
"""Our preset of training with fewer episodes and models, by size."""


def _ours(n_seeds: int, spec: TrainingSpec, testing: Trials) -> PricingSettings:
    return PricingSettings(n_seeds, spec, pricing.all_at_once(spec), testing)


SETTINGS = {
    "smoke": _ours(2, SMALLER["smoke"], Trials((0.0, 0.25, 0.5, 1.0), 100, evenly(5), 4)),
    "quick": _ours(2, SMALLER["quick"], Trials(evenly(21), 2000, evenly(21), 4)),
    "paper": PricingSettings(
        6,
        preset("paper-slot-filling"),
        pricing.one_by_one("paper-slot-filling-ftq", pricing.PAPER_PRICES),
        Trials(BUDGETS, 1000, evenly(21), 4),
    ),
    "best": _ours(10, preset("slot-filling"), Trials(BUDGETS, 10_000, evenly(21), 4)),
    "paper-features": _ours(
        10,
        replace(preset("slot-filling"), env=EnvConfig("slot-filling")),
        Trials(BUDGETS, 10_000, evenly(21), 4),
    ),
}


def run(settings: PricingSettings, work: Work) -> None:
    """Learns budgets, or prices; or solves the task."""
    env, _ = explored(settings.budgeted)
    if work.part == "truth":
        known = true_frontier(SlotFilling(**env.settings))
        bins = {"n_bins": known.settings["n_bins"]}
        work.piece("truth", lambda: truth_piece(known, bins))
    elif work.part == "ftq":
        pricing.run_ftq(settings, work)
    else:
        show(trained(settings.budgeted, work), env, settings.testing, work)


def analyse(results: Results, anchor: str) -> Section:
    """Returns the section of a report, as far as parts are done."""
    task, dial = "dialogues of slot-filling", "A policy in dialogues"
    return pricing.price_section(results, anchor, "slot-filling", task, dial)
