"""Calibration: prices tuned to a budget, promises put to the test, and dials before and after.

Two rules of the paper's appendix choose a price for a budget: of the prices that keep it the one
that earns most, where a price is said to cost its mean, or the mean of the worst of ten groups of
episodes (the largest deviation). Beside them, the mixture of two prices that spends the budget
(Beutler and Ross, 1985). Promises are put to the test on a problem whose costs are known exactly:
one decision, where the more an action pays, the more often a cost of 1 follows at the next step. A
policy with a dial is calibrated again and again, each time from new episodes.

    FOLDER/truth/truth.json          the true frontier of dialogues
    FOLDER/seed-N/                   a training run: the episodes that prices are learned from
    FOLDER/seed-N/prices.json        the calibration curve of FTQ(lambda), on dialogues
    FOLDER/seed-N/rules.json         which lambda each rule chooses: `line_search`
    FOLDER/seed-N/dial.json          the mixture of prices before and after `bmdp.calibrate`
    FOLDER/certificates/seed-N/certificates.json    many calibrations: `certificates`
    FOLDER/dial/seed-N/              a training run: BFTQ
    FOLDER/dial/seed-N/dial.json     its dial before and after

dial.json: `policy`, `budgets`, `before` and `after`, each an evaluation, and `certificate`
    (`confidence`, `n_episodes` of each member, `smallest_budget`, and of each member `cost_mean`,
    `cost_high`, `reward_mean`; `text`). Nothing is promised below the smallest budget.

Paper: the figure of the Lagrangian appendix. Certificates are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from gymnasium.envs.registration import EnvSpec
from matplotlib.figure import Figure
from scipy.stats import binom

from bmdp.arrays import FloatArray
from bmdp.data import TransitionBatch
from bmdp.envs.finite import FiniteEnv, FiniteVectorEnv
from bmdp.envs.slot_filling import true_frontier
from bmdp.evaluation import Evaluation, Interval, calibrate, measure_portfolio
from bmdp.exact import FiniteBMDP, budgeted_value_iteration, evaluate_policy
from bmdp.frontier import BudgetStatus
from bmdp.learn.presets import preset
from bmdp.learn.spec import EnvConfig, TrainingSpec
from bmdp.models import KernelModel
from bmdp.paper import measuring, pictures, training
from bmdp.paper.pricing import PAPER_PRICES, PriceLearning, all_at_once, one_by_one
from bmdp.paper.published import published_curve
from bmdp.paper.results import (
    Outcomes,
    Results,
    Truth,
    columns,
    curve_of,
    evaluation_of,
    prices_of,
    truth_of,
)
from bmdp.paper.runner import Piece, Work
from bmdp.paper.slot_filling import PRICES
from bmdp.policies import CalibratedPolicy, HullPolicy, Portfolio
from bmdp.policies.policy import Policy
from bmdp.report.curves import FIRST, FOURTH, SECOND, THIRD, Drawn
from bmdp.report.drawing import BLACK, BLUE, RED, new_figure, tidy
from bmdp.report.section import Column, Data, Picture, Section, Table
from bmdp.report.series import Curve, budget_curve
from bmdp.report.tables import budget_table, dial_report

TITLE = "Calibration of prices and dials"
QUESTION = (
    "How many episodes does it take to tune a price to a budget, and do certificates keep their "
    "promise as often as they say?"
)
PARTS, COMMON = ("", "certificates", "dial"), ("truth",)

RULES = {
    "mean": "least price by the mean",
    "deviation": "least price by the largest deviation",
    "mixture": "mixture of two prices",
}
"""Ways to choose prices for a budget, in words."""

KINDS = {
    "binary": "bounds for costs of 0 or 1",
    "bounded": "bounds for any costs",
    "means": "means instead of bounds",
}
"""What promises go by, in words: bounds of Clopper and Pearson, since costs are 0 or 0.9; bounds
that hold for any costs in that range; and, for comparison, means, which promise too much."""

GAMMA = 0.9  # of the problem whose costs are known

_CHANCES, _PAYS = (0.02, 0.2, 0.5), (0.0, 5.0, 8.0)  # of a cost, and for an action
_N_INNER, _N_SHOWN = 4, 20
_SLIP = 1e-12  # of exact costs
_SURE = 0.99  # that a right calibrator has no more broken promises than are allowed
_STYLES = (FIRST, SECOND, THIRD, replace(FOURTH, marker="D"))


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
        n_calibrating: episodes of each member of a calibrated dial.
        calibrations: of the problem whose costs are known exactly, for each seed.
        confidence: of certificates.
        n_known: episodes of each member there.
        n_bins: of scores, for the true frontier.
    """

    n_seeds: int
    priced: PriceLearning
    budgeted: TrainingSpec
    budgets: tuple[float, ...]
    n_curve: int
    n_tests: int
    n_calibrating: int
    calibrations: int
    confidence: float = 0.95
    n_known: int = 150
    n_bins: int = 4


def _smaller(rounds: int, episodes: int, **learner: Any) -> TrainingSpec:
    """Our preset of slot-filling, with fewer episodes and changes of the learner."""
    exploration = {"rounds": rounds, "episodes": episodes, "decay": 5 / rounds / episodes}
    return training.changed(preset("slot-filling"), learner, exploration)


def _ours(n_seeds: int, spec: TrainingSpec, n_budgets: int, **sizes: int) -> CalibrationSettings:
    priced = all_at_once(spec, PRICES)
    return CalibrationSettings(n_seeds, priced, spec, measuring.evenly(n_budgets), **sizes)


def _smoke() -> CalibrationSettings:
    spec = _smaller(2, 50, n_budgets=5, ensemble=2, model=KernelModel(20, (2.0,), (1e-1,)))
    sizes = {"n_curve": 60, "n_tests": 100, "n_calibrating": 60, "n_bins": 2}
    return _ours(2, spec, 6, **sizes, calibrations=20)


def _quick() -> CalibrationSettings:
    spec = _smaller(5, 600, model=KernelModel(100, (1.0, 2.0, 4.0), (1e-3, 1e-2, 1e-1, 1.0)))
    sizes = {"n_curve": 1000, "n_tests": 5000, "n_calibrating": 2000}
    return _ours(2, spec, 11, **sizes, calibrations=200)


def _paper() -> CalibrationSettings:
    priced = one_by_one("paper-slot-filling-ftq", PAPER_PRICES)
    spec = preset("paper-slot-filling")
    return CalibrationSettings(
        5, priced, spec, measuring.evenly(11), 1000, 20_000, 5000, calibrations=400
    )


def _best() -> CalibrationSettings:
    sizes = {"n_curve": 1000, "n_tests": 20_000, "n_calibrating": 5000}
    return _ours(5, preset("slot-filling"), 11, **sizes, calibrations=400)


SETTINGS = {"smoke": _smoke(), "quick": _quick(), "paper": _paper(), "best": _best()}


def run(settings: CalibrationSettings, work: Work) -> None:
    """Does a part."""
    if work.part == "truth":
        n = settings.n_bins
        work.piece("truth", lambda: measuring.truth_piece(true_frontier(n_bins=n), {"n_bins": n}))
    elif work.part == "certificates":
        n, how = settings.calibrations, (settings.confidence, settings.n_known)
        work.piece("certificates", lambda: certificates(n, *how, seed=work.seed, known=hazard()))
    elif work.part == "dial":
        policy = training.playable(training.trained(settings.budgeted, work), work.device)
        env, _ = training.explored(settings.budgeted)
        work.piece("dial", lambda: _dial("BFTQ", policy, env, settings, work))
    else:
        _tune(settings, work)


def _tune(settings: CalibrationSettings, work: Work) -> None:
    """Tunes prices to budgets, as in the paper, and calibrates the mixture of them."""
    how, (env, _) = settings.priced, training.explored(settings.priced.exploring)
    training.trained(how.exploring, work)
    batch = TransitionBatch.concatenate(training.rounds_of(work.folder))
    learned = training.fitted_prices(how.learner, how.prices, batch, work, work.folder / "learning")
    played = training.playable(learned, work.device)
    seed = measuring.other_seed(work.seed, "calibration/curve")
    curve = work.piece(
        "prices", lambda: measuring.prices_piece(played, how.prices, env, settings.n_curve, seed)
    )
    mixture = measuring.with_prices(played, curve)

    def rules() -> Piece:
        worst = measure_portfolio(
            played, env.spec(), n_episodes=settings.n_curve, seed=seed, by="deviation"
        )
        others = measuring.other_seed(work.seed, "calibration/test")
        test = measuring.prices_piece(played, how.prices, env, settings.n_tests, others)
        return line_search(mixture, worst, test, settings.budgets)

    work.piece("rules", rules)
    work.piece("dial", lambda: _dial("FTQ(lambda), mixture", mixture, env, settings, work))


def _dial(
    name: str, policy: Policy, env: EnvConfig, settings: CalibrationSettings, work: Work
) -> Piece:
    """What a policy does at budgets before and after it is calibrated."""
    calibrated = calibrate(
        policy,
        env.spec(),
        confidence=settings.confidence,
        n_episodes=settings.n_calibrating,
        seed=measuring.other_seed(work.seed, "calibration/calibrate"),
        budgets=settings.budgets,
    )
    asked = settings.budgets, settings.n_tests, measuring.other_seed(work.seed, "calibration/test")
    return {
        "policy": name,
        "budgets": list(settings.budgets),
        "before": measuring.evaluation_piece(policy, env, *asked),
        "after": measuring.evaluation_piece(calibrated, env, *asked),
        "certificate": measuring.certificate_piece(calibrated.certificate),
    }


# Prices chosen for a budget


def line_search(
    by_mean: Portfolio, by_deviation: Portfolio, test: Piece, budgets: Sequence[float]
) -> Piece:
    """Returns which price each rule chooses at budgets, and what that realises.

    Args:
        by_mean: with a member for each price, by falling price, at its mean cost.
        by_deviation: the same at the cost of the worst group.
        test: what prices earn and pay in other episodes (`measuring.prices_piece`).
        budgets: asked for.

    Returns:
        `budgets`, `prices` (rising), `test`, and `rules`: for each of `RULES` the `cost` that it
        says each price has, and for each budget `price`, `other_price` and `p_other` (of a
        mixture; else the price again, and 0), whether it is `infeasible`, the cost `said`, and
        `cost` and `reward` in the other episodes as `realised_cost`, `realised_reward`, with
        `realised_cost_low` and `realised_cost_high` (95 %).
    """
    portfolios = {
        "mean": replace(by_mean, mixes=False),
        "deviation": replace(by_deviation, mixes=False),
        "mixture": by_mean,
    }
    return {
        "budgets": list(map(float, budgets)),
        "prices": test["prices"],
        "rules": {rule: _chosen(portfolios[rule], test, budgets) for rule in RULES},
        "test": test,
    }


def _chosen(portfolio: Portfolio, test: Piece, budgets: Sequence[float]) -> Piece:
    falling = np.array(test["prices"])[::-1]
    found = portfolio.mixtures(np.asarray(budgets, np.float64))

    def realised(name: str) -> list[float]:
        values: FloatArray = np.array(test[name], np.float64)[::-1]
        low, high = values[found.lower], values[found.upper]
        mixed: list[float] = (low + found.p_upper * (high - low)).tolist()
        return mixed

    return {
        "cost": portfolio.costs[::-1].tolist(),
        "price": falling[found.lower].tolist(),
        "other_price": falling[found.upper].tolist(),
        "p_other": found.p_upper.tolist(),
        "infeasible": (found.status == BudgetStatus.INFEASIBLE).tolist(),
        "said": found.cost.tolist(),
        "realised_cost": realised("cost_mean"),
        "realised_cost_low": realised("cost_low"),
        "realised_cost_high": realised("cost_high"),
        "realised_reward": realised("reward_mean"),
    }


# Promises where costs are known


@dataclass(frozen=True, eq=False)
class Hazard:
    """A problem, a policy with a dial, and what that costs exactly at its inner budgets."""

    model: FiniteBMDP
    policy: HullPolicy
    inner: FloatArray  # [K], budgets
    costs: FloatArray  # [K]

    @property
    def env(self) -> EnvSpec:
        """The problem as an environment."""
        kinds: dict[str, Any] = {"entry_point": FiniteEnv, "vector_entry_point": FiniteVectorEnv}
        return EnvSpec("Hazard-v0", **kinds, kwargs={"model": self.model, "start": 0})


def hazard() -> Hazard:
    """Returns the problem; an episode costs 0 or 0.9, discounted.

    >>> hazard().costs.round(3).tolist()
    [0.018, 0.15, 0.3, 0.45]
    """
    n = len(_CHANCES)
    transition = np.zeros((3, n, 3))
    transition[0, :, 1], transition[0, :, 2] = _CHANCES, 1 - np.array(_CHANCES)
    transition[1:, :, 2] = 1
    reward, cost = np.zeros((2, 3, n))
    reward[0], cost[1] = _PAYS, 1
    model = FiniteBMDP(
        transition=transition, reward=reward, cost=cost, gamma=GAMMA, terminal=[False, False, True]
    )
    inner = np.linspace(0, GAMMA * _CHANCES[-1], _N_INNER)
    policy = budgeted_value_iteration(model, inner, tol=1e-9, max_iterations=100).policy()
    assert isinstance(policy, HullPolicy)
    return Hazard(model, policy, inner, evaluate_policy(model, policy, inner)[1][0])


def certificates(
    n_calibrations: int, confidence: float, n_episodes: int, *, seed: int, known: Hazard
) -> Piece:
    """Calibrates many times, and tells which promises are kept.

    Args:
        n_calibrations: of each kind; those of another seed are other ones.
        confidence: of each.
        n_episodes: of each member.
        seed: of everything.
        known: the problem.

    Returns:
        `confidence`, `n_episodes`, `exact` costs of members, and `kinds`: for each of `KINDS`
        `rows`, one a calibration, as `promise` has them, with its number `calibration`; `shown`,
        of the first few `mean` and `high` of the members; and its numbers of `calibrations` and of
        promises that are `broken`, and how many of them are `allowed`.
    """
    rows: dict[str, list[Piece]] = {kind: [] for kind in KINDS}
    shown: dict[str, list[Piece]] = {kind: [] for kind in KINDS}
    for number in range(seed * n_calibrations, (seed + 1) * n_calibrations):
        for kind, portfolio, means in _calibrated(known, number, confidence, n_episodes):
            rows[kind].append({"calibration": number, **promise(portfolio, known.costs)})
            shown[kind].append({"mean": means.tolist(), "high": portfolio.costs.tolist()})
    kinds = {
        kind: {
            "rows": found,
            "shown": shown[kind][:_N_SHOWN],
            "calibrations": len(found),
            "broken": sum(not row["kept"] for row in found),
            "allowed": allowed_broken(len(found), confidence),
        }
        for kind, found in rows.items()
    }
    how = {"confidence": confidence, "n_episodes": n_episodes}
    return {**how, "exact": known.costs.tolist(), "kinds": kinds}


def _calibrated(
    known: Hazard, number: int, confidence: float, n_episodes: int
) -> list[tuple[str, Portfolio, FloatArray]]:
    """A calibrated portfolio of each kind, and the mean costs of its members."""

    def one(binary: bool) -> CalibratedPolicy:
        return calibrate(
            known.policy,
            known.env,
            budgets=known.inner,
            confidence=confidence,
            n_episodes=n_episodes,
            seed=number,
            cost_range=(0.0, GAMMA),
            binary_costs=binary,
        )

    found = {"binary": one(True), "bounded": one(False)}
    means = found["binary"].certificate.cost_mean
    portfolios = {kind: policy.portfolio for kind, policy in found.items()}
    portfolios["means"] = replace(portfolios["binary"], costs=means)
    return [(kind, portfolio, means) for kind, portfolio in portfolios.items()]


def promise(portfolio: Portfolio, exact: FloatArray) -> Piece:
    """Returns how a portfolio keeps its promise at the budget where it is nearest to break it.

    Between two vertices of its frontier both what it says to cost and what it does cost change
    evenly with the budget, so the nearest is a vertex, and it keeps its promise at all budgets if
    it does so at vertices.

    Args:
        portfolio: with a member for each exact cost; its costs are what it goes by.
        exact: what members cost, `[K]`.

    Returns:
        `smallest` budget that it is about; the budget `asked` from there on for which the exact
        cost is furthest above that, which it is certified not to be, the `exact` cost there, and
        whether the promise is `kept` at all budgets.
    """
    curve = portfolio.curve
    excess = exact[curve.index] - curve.costs
    worst = int(excess.argmax())
    return {
        "smallest": float(curve.costs[0]),
        "asked": float(curve.costs[worst]),
        "exact": float(exact[curve.index][worst]),
        "kept": bool(excess[worst] <= _SLIP),
    }


def allowed_broken(n_calibrations: int, confidence: float) -> int:
    """Returns how many promises of a right calibrator are broken at most, with 99 % certainty.

    >>> allowed_broken(400, 0.95)
    31
    """
    return int(binom.ppf(_SURE, n_calibrations, 1 - confidence))


# What was found


class Dial(NamedTuple):
    """A dial of one seed, before and after calibration."""

    policy: str
    evaluations: dict[str, Evaluation]  # "before" and "after"
    smallest: float  # budget that is certified


class Promises(NamedTuple):
    """Calibrations of a kind, of one seed or of several."""

    excess: FloatArray  # [N], exact cost above the budget, at the worst budget
    n: int
    broken: int
    confidence: float


def analyse(results: Results, anchor: str) -> Section:
    """Returns what was found, as far as it goes."""
    truth = results.common("truth", truth_of)
    kinds = _all_promises(results.each("certificates", promises_of, "certificates").values())
    rules = _rules(results, anchor, truth)
    dials = _dials(results, anchor, truth)
    promised = (
        f"By {KINDS.get(kind, kind)}, {one.broken} of {one.n} promises are broken."
        for kind, one in kinds.items()
    )
    return Section(
        anchor,
        TITLE,
        QUESTION,
        " ".join((*promised, *dials.told)),
        facts=_setting(results.settings) | pictures.bands_fact([*rules.curves, *dials.curves]),
        pictures=[
            *rules.pictures,
            *dials.pictures,
            *([_promises(anchor, kinds)] if kinds else []),
        ],
        tables=[
            *([_promise_table(anchor, kinds)] if kinds else []),
            *rules.tables,
            *dials.tables,
        ],
    )


class Shown(NamedTuple):
    """What is told and drawn of prices or of dials."""

    curves: list[Curve]
    pictures: list[Picture]
    tables: list[Table]
    told: list[str]


def _rules(results: Results, anchor: str, truth: Truth | None) -> Shown:
    """The calibration of the multiplier, and prices chosen for a budget."""
    rules = list(results.each("rules", rules_of).values())
    prices = list(results.each("prices", prices_of).values())
    if not rules:
        return Shown([], [], [], [])
    curves = {rule: curve_of(RULES[rule], [one[rule].points for one in rules]) for rule in RULES}
    tables = [
        _rule_table(anchor, rule, curve, [one[rule].infeasible for one in rules])
        for rule, curve in curves.items()
    ]
    drawn = [Drawn(curve, style) for curve, style in zip(curves.values(), _STYLES, strict=False)]
    words = (
        "What the price that a rule chooses for a budget costs in other episodes. Single prices "
        "leave budget unspent; mixtures of two spend it."
    )
    title = "Prices chosen for a budget"
    found = [pictures.asked(f"{anchor}-rules", drawn, truth, title, words)]
    if prices:
        largest = np.mean([one["deviation"].said for one in rules], axis=0)
        words = "the mean of the worst of ten groups of episodes"
        paper, name = published_curve("slot-filling", "FTQ"), f"{anchor}-multiplier"
        curve = curve_of("mean", prices)
        found.insert(0, pictures.multiplier(name, curve, largest, paper, words))
    return Shown(list(curves.values()), found, tables, [])


def _dials(results: Results, anchor: str, truth: Truth | None) -> Shown:
    """Dials of both policies, before and after."""
    shown, certified = Shown([], [], [], []), []
    for part in ("dial", ""):
        found = list(results.each("dial", dial_of, part).values())
        for when in ("before", "after") if found else ():
            label, number = f"{found[0].policy}, {when}", len(shown.curves)
            smallest = max(dial.smallest for dial in found)
            each = [dial.evaluations[when] for dial in found]
            curve = budget_curve(label, each)
            report = dial_report(each, truth.frontier) if truth is not None else None
            name, title = f"{anchor}-dial-{number}", f"Budgets, {label} calibration"
            shown.curves.append(curve)
            shown.tables.append(budget_table(name, title, curve, report))
            shown.told.append(_judged(label, curve, smallest))
            certified.append(f"{found[0].policy} from {smallest:.3f} on")
    if shown.curves:
        drawn = [Drawn(curve, style) for curve, style in zip(shown.curves, _STYLES, strict=False)]
        words = (
            "Dials before and after `bmdp.calibrate`. Promises are about budgets that are "
            f"certified, of all seeds: {', '.join(dict.fromkeys(certified))}."
        )
        title = "Dials before and after calibration"
        shown.pictures.append(pictures.asked(f"{anchor}-dials", drawn, truth, title, words))
    return shown


class Rule(NamedTuple):
    """What one rule chose in one seed."""

    points: Outcomes  # at budgets; how far rewards may be off is not known
    said: FloatArray  # [P], cost of each price
    infeasible: FloatArray  # [B], whether no price keeps the budget


def rules_of(piece: Data) -> dict[str, Rule]:
    """Returns what each rule chose."""
    (budgets,), found = columns(piece, "budgets"), {}
    for rule in RULES:
        one = piece["rules"][rule]
        names = [f"realised_{name}" for name in ("cost", "cost_low", "cost_high", "reward")]
        *cost, reward, infeasible = columns(one, *names, "infeasible")
        (said,) = columns(one, "cost")
        if len(said) != len(piece["prices"]) or len(reward) != len(budgets):
            raise ValueError(
                f"rule '{rule}' must have a cost for each price, a choice for a budget"
            )
        unknown = np.full(len(budgets), np.nan)
        points = Outcomes(budgets, Interval(*cost), Interval(reward, unknown, unknown))
        found[rule] = Rule(points, said, infeasible)
    return found


def dial_of(piece: Data) -> Dial:
    """Returns a dial before and after it was calibrated."""
    evaluations = {when: evaluation_of(piece[when]) for when in ("before", "after")}
    smallest = float(piece["certificate"]["smallest_budget"])
    return Dial(str(piece["policy"]), evaluations, smallest)


def promises_of(piece: Data) -> dict[str, Promises]:
    """Returns the calibrations of each kind."""
    return {
        kind: Promises(
            np.array([row["exact"] - row["asked"] for row in one["rows"]], np.float64),
            int(one["calibrations"]),
            int(one["broken"]),
            float(piece["confidence"]),
        )
        for kind, one in piece["kinds"].items()
    }


def _all_promises(seeds: Iterable[Mapping[str, Promises]]) -> dict[str, Promises]:
    found: dict[str, Promises] = {}
    for kind, one in (pair for seed in seeds for pair in seed.items()):
        there = found.get(kind, Promises(np.empty(0), 0, 0, one.confidence))
        excess = np.concatenate([there.excess, one.excess])
        n, broken = there.n + one.n, there.broken + one.broken
        found[kind] = Promises(excess, n, broken, one.confidence)
    return found


def _judged(label: str, curve: Curve, smallest: float) -> str:
    """How much a dial exceeds budgets that are certified, in a sentence."""
    over = (curve.cost.mean - curve.settings)[curve.settings >= smallest]
    if not len(over):
        return f"{label} calibration: no budget is certified."
    return (
        f"{label} calibration: at budgets from {smallest:.3f} on, which are certified, cost "
        f"exceeds the budget by {max(float(over.max()), 0.0):.3f} at most."
    )


def _rule_table(anchor: str, rule: str, curve: Curve, infeasible: Sequence[FloatArray]) -> Table:
    table = budget_table(f"{anchor}-rule-{rule}", f"Budgets, {RULES[rule]}", curve)
    share = np.mean(infeasible, axis=0).tolist()
    column = Column("no price keeps it", share, ".0%", "infeasible")
    note = f"{table.note} No price keeps it: share of {len(infeasible)} seeds."
    return replace(table, columns=[*table.columns, column], note=note)


def _promise_table(anchor: str, kinds: Mapping[str, Promises]) -> Table:
    found = kinds.values()
    return Table(
        f"{anchor}-promises",
        "Promises that are broken",
        [
            Column("by", [KINDS.get(kind, kind) for kind in kinds], "s"),
            Column("calibrations", [one.n for one in found], "d"),
            Column("broken", [one.broken for one in found], "d"),
            Column("share", [one.broken / max(one.n, 1) for one in found]),
            Column("promised at most", [1 - one.confidence for one in found], ".2f", "promised"),
        ],
        "A promise is about all budgets from the smallest certified one on.",
    )


def _promises(anchor: str, kinds: Mapping[str, Promises]) -> Picture:
    n = max(found.n for found in kinds.values())
    caption = (
        f"{n:,} calibrations of a policy whose costs are known exactly, each from new episodes: "
        "how far the exact cost is above the budget, at the budget where it is furthest. Crosses: "
        "promises that are broken."
    )
    told = (f"{KINDS.get(kind, kind)}: {found.broken} broken" for kind, found in kinds.items())
    alt = f"Promises of {n} calibrations; {', '.join(told)}."
    figure = promises_figure({kind: found.excess for kind, found in kinds.items()})
    return Picture(f"{anchor}-promises", "Are promises kept?", caption, alt, figure)


def promises_figure(kinds: Mapping[str, FloatArray]) -> Figure:
    """Returns how far exact costs are above the budget, at the worst budget of each calibration.

    Args:
        kinds: excess of each calibration, by what they go by.
    """
    figure = new_figure(height=1.0 + 0.75 * len(kinds))
    axes = figure.subplots()
    tidy(axes)
    for i, found in enumerate(kinds.values()):
        excess, n = np.sort(found), len(found)
        heights = i + 0.6 * (np.arange(n) / max(n - 1, 1) - 0.5)
        is_broken = excess > 0
        for mask, colour, marker in ((~is_broken, BLUE, "o"), (is_broken, RED, "X")):
            axes.plot(excess[mask], heights[mask], marker, color=colour, markersize=4, alpha=0.7)
    axes.axvline(0, color=BLACK, linewidth=1, linestyle="--")
    axes.set_yticks(range(len(kinds)), [KINDS.get(kind, kind) for kind in kinds])
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.set_xlabel("exact cost minus budget, at the worst budget (above 0: broken)")
    return figure


def _setting(settings: Data) -> dict[str, str]:
    counts = {
        "n_curve": "episodes that a price is measured by",
        "n_tests": "test episodes",
        "n_calibrating": "episodes of each member of a calibrated dial",
        "calibrations": "calibrations for each seed",
    }
    return pictures.setting_of(
        "dialogues of slot-filling, and a problem of one decision whose costs are known",
        pictures.episodes_explored("BFTQ", settings.get("budgeted")),
        *(
            f"{what}: {settings[name]:,}"
            for name, what in counts.items()
            if isinstance(settings.get(name), int)
        ),
    )
