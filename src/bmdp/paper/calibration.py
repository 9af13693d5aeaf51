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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium.envs.registration import EnvSpec
from matplotlib.figure import Figure
from scipy.stats import binom

from bmdp.arrays import FloatArray
from bmdp.envs.finite import FiniteEnv, FiniteVectorEnv
from bmdp.envs.slot_filling import true_frontier
from bmdp.envs.tasks import TrueFrontier
from bmdp.evaluation import Evaluation, Interval, calibrate, measure_portfolio
from bmdp.exact import FiniteBMDP, budgeted_value_iteration, evaluate_policy
from bmdp.frontier import BudgetStatus
from bmdp.learn.presets import preset
from bmdp.learn.spec import EnvConfig, TrainingSpec
from bmdp.paper import measuring, pictures, pricing, training
from bmdp.paper.published import published_curve
from bmdp.paper.results import (
    Results,
    columns,
    curve_of,
    evaluation_of,
    prices_of,
    seed_curve,
    truth_of,
)
from bmdp.paper.runner import Piece, Work
from bmdp.paper.slot_filling import SMALLER
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
"""Costs that promises go by: bounds of Clopper and Pearson, since costs are 0 or 0.9; bounds that
hold for any costs in that range; and, for comparison, means, which promise too much."""

PRICES = (0.0, 15.0, 30.0, 50.0, 60.0, 62.5, 65.0, 67.5, 70.0, 75.0, 80.0, 100.0)
"""The same for all seeds. Slopes of the true frontier are from 61 to 69."""

GAMMA = 0.9  # of the problem whose costs are known

_CHANCES, _PAYS = (0.02, 0.2, 0.5), (0.0, 5.0, 8.0)  # of a cost, and for an action
_N_INNER, _N_SHOWN = 4, 20
_SLIP = 1e-12  # of exact costs
_SURE = 0.99  # that a right calibrator has no more broken promises than are allowed
_STYLES = (FIRST, SECOND, THIRD, replace(FOURTH, marker="D"))


@dataclass(frozen=True)
class CalibrationSettings:
    """Settings of the experiment."""

    n_seeds: int
    priced: pricing.PriceLearning
    budgeted: TrainingSpec  # of BFTQ, whose dial is calibrated
    budgets: tuple[float, ...]  # that are asked of prices and dials
    n_curve: int  # episodes that each price is measured by
    n_tests: int  # episodes a budget, or a price, of tests
    n_calibrating: int  # episodes of each member of a calibrated dial
    calibrations: int  # of the problem whose costs are known exactly, for each seed
    confidence: float = 0.95  # of certificates
    n_known: int = 150  # episodes of each member, where costs are known


def _ours(n_seeds: int, spec: TrainingSpec, n_budgets: int, *sizes: int) -> CalibrationSettings:
    priced = pricing.all_at_once(spec, PRICES)
    return CalibrationSettings(n_seeds, priced, spec, measuring.evenly(n_budgets), *sizes)


_DECAYS = {"smoke": 1 / 20, "quick": 1 / 600}
_SMALLER = {
    size: training.changed(SMALLER[size], {}, {"decay": decay}) for size, decay in _DECAYS.items()
}

SETTINGS = {
    "smoke": _ours(2, _SMALLER["smoke"], 6, 60, 100, 60, 20),
    "quick": _ours(2, _SMALLER["quick"], 11, 1000, 5000, 2000, 200),
    "paper": CalibrationSettings(
        5,
        pricing.one_by_one("paper-slot-filling-ftq", pricing.PAPER_PRICES),
        preset("paper-slot-filling"),
        *(measuring.evenly(11), 1000, 20_000, 5000, 400),
    ),
    "best": _ours(5, preset("slot-filling"), 11, 1000, 20_000, 5000, 400),
}


def run(settings: CalibrationSettings, work: Work) -> None:
    """Tunes prices, calibrates where costs are known, or calibrates the dial of BFTQ."""
    if work.part == "truth":
        known = true_frontier()
        bins = {"n_bins": known.settings["n_bins"]}
        work.piece("truth", lambda: measuring.truth_piece(known, bins))
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
    learned, prices = pricing.learned_prices(how, work, work.folder)
    played = training.playable(learned, work.device)
    seed = measuring.other_seed(work.seed, "calibration/curve")
    curve = work.piece(
        "prices", lambda: measuring.prices_piece(played, prices, env, settings.n_curve, seed)
    )
    mixture = measuring.with_prices(played, curve)

    def rules() -> Piece:
        worst = measure_portfolio(
            played, env.spec(), n_episodes=settings.n_curve, seed=seed, by="deviation"
        )
        others = measuring.other_seed(work.seed, "calibration/test")
        test = measuring.prices_piece(played, prices, env, settings.n_tests, others)
        return line_search(mixture, worst, test, settings.budgets)

    work.piece("rules", rules)
    work.piece("dial", lambda: _dial("FTQ(lambda), mixture", mixture, env, settings, work))


def _dial(
    name: str, policy: Policy, env: EnvConfig, settings: CalibrationSettings, work: Work
) -> Piece:
    """A dial before and after it is calibrated."""
    asked = settings.budgets, settings.n_tests, measuring.other_seed(work.seed, "calibration/test")
    calibrated = measuring.calibrated_piece(
        policy,
        env,
        asked,
        confidence=settings.confidence,
        n_episodes=settings.n_calibrating,
        seed=measuring.other_seed(work.seed, "calibration/calibrate"),
    )
    return {
        "policy": name,
        "budgets": list(settings.budgets),
        "before": measuring.evaluation_piece(policy, env, *asked),
        "after": calibrated["evaluation"],
        "certificate": calibrated["certificate"],
    }


def line_search(
    by_mean: Portfolio, by_deviation: Portfolio, test: Piece, budgets: Sequence[float]
) -> Piece:
    """Returns which price each rule chooses at budgets, and what that realises.

    Args:
        by_mean: with a member for each price, by falling price, at its mean cost.
        by_deviation: the same at the cost of the worst group.
        test: prices in other episodes (`measuring.prices_piece`).
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


@dataclass(frozen=True, eq=False)
class Hazard:
    """A problem, a policy with a dial, and its exact costs at its inner budgets."""

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
    """Calibrates many times, and tells which promises are kept; another seed has other ones.

    Returns:
        `confidence`, `n_episodes`, `exact` costs of members, and `kinds`: for each of `KINDS`
        `rows`, one a calibration, as `promise` has them, with its number `calibration`; `shown`,
        of the first few `mean` and `high` of the members; and its numbers of `calibrations` and of
        promises that are `broken`, and how many of them are `allowed`.
    """
    rows: dict[str, list[Piece]] = {kind: [] for kind in KINDS}
    shown: dict[str, list[Piece]] = {kind: [] for kind in KINDS}
    how: Piece = {"confidence": confidence, "n_episodes": n_episodes}
    ranges: Piece = {"budgets": known.inner, "cost_range": (0.0, GAMMA)}
    for number in range(seed * n_calibrations, (seed + 1) * n_calibrations):
        binary, bounded = (
            calibrate(known.policy, known.env, **how, **ranges, seed=number, binary_costs=is_binary)
            for is_binary in (True, False)
        )
        assert isinstance(binary, CalibratedPolicy)
        assert isinstance(bounded, CalibratedPolicy)
        means = binary.certificate.cost_mean
        by_means = replace(binary.portfolio, costs=means)
        found = {"binary": binary.portfolio, "bounded": bounded.portfolio, "means": by_means}
        for kind, portfolio in found.items():
            rows[kind].append({"calibration": number, **promise(portfolio, known.costs)})
            shown[kind].append({"mean": means.tolist(), "high": portfolio.costs.tolist()})
    kinds = {
        kind: {
            "rows": some,
            "shown": shown[kind][:_N_SHOWN],
            "calibrations": len(some),
            "broken": sum(not row["kept"] for row in some),
            "allowed": allowed_broken(len(some), confidence),
        }
        for kind, some in rows.items()
    }
    return {**how, "exact": known.costs.tolist(), "kinds": kinds}


def promise(portfolio: Portfolio, exact: FloatArray) -> Piece:
    """Judges a portfolio at the budget where it is nearest to break its promise.

    Between two vertices of its frontier both its promised and its exact cost (`[K]`, of members)
    change evenly with the budget, so the nearest is a vertex, and it keeps its promise at all
    budgets if it does so at vertices.

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
    """Returns the most promises that a right calibrator breaks, with 99 % certainty.

    >>> allowed_broken(400, 0.95)
    31
    """
    return int(binom.ppf(_SURE, n_calibrations, 1 - confidence))


Shown = tuple[list[Curve], list[Picture], list[Table]]


def analyse(results: Results, anchor: str) -> Section:
    """Returns the section of a report, as far as parts are done."""
    truth, settings = results.common("truth", truth_of), results.settings
    seeds = list(results.each("certificates", promises_of, "certificates").values())
    kinds = {  # excess of all seeds
        kind: np.concatenate([one[kind] for _, one in seeds if kind in one])
        for kind in dict.fromkeys(kind for _, one in seeds for kind in one)
    }
    rule_curves, rule_pictures, rule_tables = _rules(results, anchor, truth)
    told = [
        f"By {KINDS[kind]}, {_broken(excess)} of {len(excess)} promises are broken."
        for kind, excess in kinds.items()
    ]
    curves, drawn, tables = _dials(results, anchor, truth, told)
    counts = {
        "n_curve": "episodes that a price is measured by",
        "n_tests": "test episodes",
        "n_calibrating": "episodes of each member of a calibrated dial",
        "calibrations": "calibrations for each seed",
    }
    return Section(
        anchor,
        "",
        answer=" ".join(told),
        facts=pictures.facts_of(
            [*rule_curves, *curves],
            "dialogues of slot-filling, and a problem of one decision whose costs are known",
            pictures.episodes_explored("BFTQ", settings.get("budgeted")),
            *(
                f"{what}: {settings[name]:,}"
                for name, what in counts.items()
                if isinstance(settings.get(name), int)
            ),
        ),
        pictures=[*rule_pictures, *drawn, *([_promises(anchor, kinds)] if kinds else [])],
        tables=[
            *([_promise_table(anchor, kinds, seeds[0][0])] if kinds else []),
            *rule_tables,
            *tables,
        ],
    )


def _rules(results: Results, anchor: str, truth: TrueFrontier | None) -> Shown:
    """The calibration of the multiplier, and prices chosen for a budget."""
    rules = list(results.each("rules", rules_of).values())
    prices = list(results.each("prices", prices_of).values())
    if not rules:
        return [], [], []
    curves = {rule: curve_of(RULES[rule], [one[rule][0] for one in rules]) for rule in RULES}
    tables = [
        _rule_table(anchor, rule, curve, [one[rule][2] for one in rules])
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
        largest = np.mean([one["deviation"][1] for one in rules], axis=0)
        words = "the mean of the worst of ten groups of episodes"
        paper, name = published_curve("slot-filling", "FTQ"), f"{anchor}-multiplier"
        curve = curve_of("mean", prices)
        found.insert(0, pictures.multiplier(name, curve, largest, paper, words))
    return list(curves.values()), found, tables


def _dials(results: Results, anchor: str, truth: TrueFrontier | None, told: list[str]) -> Shown:
    """Dials of both policies, before and after; sentences on them are added to those told."""
    curves, shown, tables, certified = list[Curve](), list[Picture](), list[Table](), list[str]()
    for part in ("dial", ""):
        found = list(results.each("dial", dial_of, part).values())
        for when in ("before", "after") if found else ():
            policy, smallest = found[0][0], max(dial[1] for dial in found)
            each, label = [dial[2][when] for dial in found], f"{policy}, {when}"
            curve = budget_curve(label, each)
            report = dial_report(each, truth.frontier) if truth is not None else None
            name, title = f"{anchor}-dial-{len(curves)}", f"Budgets, {label} calibration"
            curves.append(curve)
            tables.append(budget_table(name, title, curve, report))
            told.append(_judged(label, curve, smallest))
            certified.append(f"{policy} from {smallest:.3f} on")
    if curves:
        drawn = [Drawn(curve, style) for curve, style in zip(curves, _STYLES, strict=False)]
        words = (
            "Dials before and after `bmdp.calibrate`. Promises are about budgets that are "
            f"certified, of all seeds: {', '.join(dict.fromkeys(certified))}."
        )
        title = "Dials before and after calibration"
        shown.append(pictures.asked(f"{anchor}-dials", drawn, truth, title, words))
    return curves, shown, tables


def rules_of(piece: Data) -> dict[str, tuple[Curve, FloatArray, FloatArray]]:
    """Returns the choices of each rule in one seed.

    They are a curve at budgets, without intervals of rewards; the cost said of each price, `[P]`;
    and whether no price keeps the budget, `[B]`.
    """
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
        points = seed_curve(budgets, Interval(*cost), Interval(reward, unknown, unknown))
        found[rule] = points, said, infeasible
    return found


def dial_of(piece: Data) -> tuple[str, float, dict[str, Evaluation]]:
    """Returns the policy of a dial, its smallest certified budget, and evaluations by when."""
    evaluations = {when: evaluation_of(piece[when]) for when in ("before", "after")}
    return str(piece["policy"]), float(piece["certificate"]["smallest_budget"]), evaluations


def promises_of(piece: Data) -> tuple[float, dict[str, FloatArray]]:
    """Returns the confidence, and of each kind the excess of each calibration, `[N]`.

    It is the exact cost above the budget, at the worst budget.
    """
    return float(piece["confidence"]), {
        kind: np.array([row["exact"] - row["asked"] for row in one["rows"]], np.float64)
        for kind, one in piece["kinds"].items()
    }


def _broken(excess: FloatArray) -> int:
    return int((excess > _SLIP).sum())


def _judged(label: str, curve: Curve, smallest: float) -> str:
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


def _promise_table(anchor: str, kinds: Mapping[str, FloatArray], confidence: float) -> Table:
    numbers, broken = [len(found) for found in kinds.values()], [*map(_broken, kinds.values())]
    shares = [n_broken / max(n, 1) for n_broken, n in zip(broken, numbers, strict=True)]
    return Table(
        f"{anchor}-promises",
        "Promises that are broken",
        [
            Column("by", [KINDS[kind] for kind in kinds], "s"),
            Column("calibrations", numbers, "d"),
            Column("broken", broken, "d"),
            Column("share", shares),
            Column("promised at most", [1 - confidence] * len(kinds), ".2f", "promised"),
        ],
        "A promise is about all budgets from the smallest certified one on.",
    )


def _promises(anchor: str, kinds: Mapping[str, FloatArray]) -> Picture:
    n = max(map(len, kinds.values()))
    caption = (
        f"{n:,} calibrations of a policy whose costs are known exactly, each from new episodes: "
        "how far the exact cost is above the budget, at the budget where it is furthest. Crosses: "
        "promises that are broken."
    )
    told = (f"{KINDS[kind]}: {_broken(found)} broken" for kind, found in kinds.items())
    alt, title = f"Promises of {n} calibrations; {', '.join(told)}.", "Are promises kept?"
    return Picture(f"{anchor}-promises", title, caption, alt, promises_figure(kinds))


def promises_figure(kinds: Mapping[str, FloatArray]) -> Figure:
    """Returns the excess of exact costs, at the worst budget of each calibration, by kind."""
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
    axes.set_yticks(range(len(kinds)), [KINDS[kind] for kind in kinds])
    axes.set_ylim(len(kinds) - 0.5, -0.5)
    axes.set_xlabel("exact cost minus budget, at the worst budget (above 0: broken)")
    return figure
