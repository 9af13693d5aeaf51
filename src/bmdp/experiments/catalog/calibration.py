"""Calibration: prices tuned to a budget, promises put to the test, and dials before and after.

    FOLDER/truth/truth.json          the true frontier of dialogues
    FOLDER/seed-N/                   a training run: the episodes that prices are learned from
    FOLDER/seed-N/prices.json        the calibration curve of FTQ(lambda), on dialogues
    FOLDER/seed-N/rules.json         which lambda two rules choose, and what that realises
    FOLDER/seed-N/dial.json          the mixture of prices before and after `bmdp.calibrate`
    FOLDER/certificates/seed-N/certificates.json    many calibrations, with exact costs
    FOLDER/dial/seed-N/              a training run: BFTQ
    FOLDER/dial/seed-N/dial.json     its dial before and after

truth.json: `costs` and `rewards` of the frontier, `reward_error`, `settings`.
prices.json: for each of `prices` (rising) means and 95 % intervals of reward and cost
    (`reward_mean`, `reward_low`, ...), `cost_deviation` over episodes, `n_episodes`, `gamma`.
rules.json: see `bmdp.experiments.parts.line_search.line_search`.
dial.json: `policy`, `budgets`, `before` and `after`, each an evaluation (fields of
    `bmdp.Evaluation`, `env`, `env_settings`), and `certificate` (`confidence`, `n_episodes` of each
    member, `smallest_budget`, and of each member `cost_mean`, `cost_high`, `reward_mean`; `text`).
    Nothing is promised below the smallest budget.
certificates.json: see `bmdp.experiments.parts.certificates.certificates`.

Paper: the figure of the Lagrangian appendix. Certificates are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bmdp.data import TransitionBatch
from bmdp.envs.slot_filling import true_frontier
from bmdp.evaluation import calibrate, measure_portfolio
from bmdp.experiments.catalog.slot_filling import PRICES
from bmdp.experiments.experiment import Experiment, Piece, Work
from bmdp.experiments.parts.certificates import certificates, hazard
from bmdp.experiments.parts.comparing import certificate_piece
from bmdp.experiments.parts.line_search import line_search
from bmdp.experiments.parts.measuring import (
    evaluation_piece,
    evenly,
    other_seed,
    prices_piece,
    truth_piece,
    with_prices,
)
from bmdp.experiments.parts.prices import Prices, all_at_once, one_by_one
from bmdp.experiments.parts.rivals import PAPER_PRICES
from bmdp.experiments.parts.training import (
    changed,
    explored,
    fitted_prices,
    playable,
    rounds_of,
    trained,
)
from bmdp.learn.presets import preset
from bmdp.learn.spec import EnvConfig, TrainingSpec
from bmdp.models import KernelModel
from bmdp.policies.policy import Policy


@dataclass(frozen=True)
class CalibrationSettings:
    """What is calibrated, and by how many episodes.

    Args:
        n_seeds: that it is done with, unless others are asked for.
        priced: how prices are learned.
        budgeted: how BFTQ is trained, whose dial is calibrated.
        budgets: that are asked of prices and dials.
        n_curve: episodes that each price is measured by.
        n_tests: episodes a budget, or a price, of tests.
        confidence: of certificates.
        n_calibrating: episodes of each member of a calibrated dial.
        calibrations: of the problem whose costs are known exactly, for each seed.
        n_known: episodes of each member there.
        n_bins: of scores, for the true frontier.
    """

    n_seeds: int
    priced: Prices
    budgeted: TrainingSpec
    budgets: tuple[float, ...]
    n_curve: int
    n_tests: int
    n_calibrating: int
    calibrations: int
    confidence: float = 0.95
    n_known: int = 150
    n_bins: int = 4


def truth(settings: CalibrationSettings, work: Work) -> None:
    """Finds the true frontier."""
    n_bins = settings.n_bins
    work.piece("truth", lambda: truth_piece(true_frontier(n_bins=n_bins), {"n_bins": n_bins}))


def multiplier(settings: CalibrationSettings, work: Work) -> None:
    """Tunes prices to budgets, as in the paper, and calibrates the mixture of them."""
    how, (env, _) = settings.priced, explored(settings.priced.exploring)
    trained(how.exploring, work)
    batch = TransitionBatch.concatenate(rounds_of(work.folder))
    learned = fitted_prices(how.learner, how.prices, batch, work, work.folder / "learning")
    played = playable(learned, work.device)
    seed = other_seed(work.seed, "calibration/curve")
    curve = work.piece(
        "prices", lambda: prices_piece(played, how.prices, env, settings.n_curve, seed)
    )
    mixture = with_prices(played, curve)

    def rules() -> Piece:
        worst = measure_portfolio(
            played, env.spec(), n_episodes=settings.n_curve, seed=seed, by="deviation"
        )
        others = other_seed(work.seed, "calibration/test")
        test = prices_piece(played, how.prices, env, settings.n_tests, others)
        return line_search(mixture, worst, test, settings.budgets)

    work.piece("rules", rules)
    work.piece("dial", lambda: dial_piece("FTQ(lambda), mixture", mixture, env, settings, work))


def many_certificates(settings: CalibrationSettings, work: Work) -> None:
    """Counts the promises that are broken where costs are known exactly."""
    work.piece(
        "certificates",
        lambda: certificates(
            settings.calibrations,
            confidence=settings.confidence,
            n_episodes=settings.n_known,
            seed=work.seed,
            known=hazard(),
        ),
    )


def budgeted_dial(settings: CalibrationSettings, work: Work) -> None:
    """Trains BFTQ, and calibrates its dial."""
    policy = playable(trained(settings.budgeted, work), work.device)
    env, _ = explored(settings.budgeted)
    work.piece("dial", lambda: dial_piece("BFTQ", policy, env, settings, work))


def dial_piece(
    name: str, policy: Policy, env: EnvConfig, settings: CalibrationSettings, work: Work
) -> Piece:
    """Returns what a policy does at budgets before and after it is calibrated."""
    calibrated = calibrate(
        policy,
        env.spec(),
        confidence=settings.confidence,
        n_episodes=settings.n_calibrating,
        seed=other_seed(work.seed, "calibration/calibrate"),
        budgets=settings.budgets,
    )
    asked = settings.budgets, settings.n_tests, other_seed(work.seed, "calibration/test")
    return {
        "policy": name,
        "budgets": list(settings.budgets),
        "before": evaluation_piece(policy, env, *asked),
        "after": evaluation_piece(calibrated, env, *asked),
        "certificate": certificate_piece(calibrated.certificate),
    }


def _smaller(rounds: int, episodes: int, **learner: Any) -> TrainingSpec:
    """Our preset of slot-filling, with fewer episodes and changes of the learner."""
    exploration = {"rounds": rounds, "episodes": episodes, "decay": 5 / rounds / episodes}
    return changed(preset("slot-filling"), learner, exploration)


def _ours(n_seeds: int, spec: TrainingSpec, n_budgets: int, **sizes: int) -> CalibrationSettings:
    """Settings of our own, at some size."""
    priced = all_at_once(spec, PRICES)
    return CalibrationSettings(n_seeds, priced, spec, evenly(n_budgets), **sizes)


def _smoke() -> CalibrationSettings:
    model = KernelModel(20, (2.0,), (1e-1,))
    spec = _smaller(2, 50, n_budgets=5, ensemble=2, model=model)
    sizes = {"n_curve": 60, "n_tests": 100, "n_calibrating": 60, "n_bins": 2}
    return _ours(2, spec, 6, **sizes, calibrations=20)


def _quick() -> CalibrationSettings:
    model = KernelModel(100, (1.0, 2.0, 4.0), (1e-3, 1e-2, 1e-1, 1.0))
    spec = _smaller(5, 600, model=model)
    sizes = {"n_curve": 1000, "n_tests": 5000, "n_calibrating": 2000}
    return _ours(2, spec, 11, **sizes, calibrations=200)


def _paper() -> CalibrationSettings:
    priced = one_by_one("paper-slot-filling-ftq", PAPER_PRICES)
    spec = preset("paper-slot-filling")
    return CalibrationSettings(5, priced, spec, evenly(11), 1000, 20_000, 5000, calibrations=400)


def _best() -> CalibrationSettings:
    sizes = {"n_curve": 1000, "n_tests": 20_000, "n_calibrating": 5000}
    return _ours(5, preset("slot-filling"), 11, **sizes, calibrations=400)


EXPERIMENT = Experiment(
    name="calibration",
    title="Calibration of prices and dials",
    question=(
        "How many episodes does it take to tune a price to a budget, and do certificates keep "
        "their promise as often as they say?"
    ),
    parts={"": multiplier, "certificates": many_certificates, "dial": budgeted_dial},
    presets={"smoke": _smoke(), "quick": _quick(), "paper": _paper(), "best": _best()},
    common={"truth": truth},
)
