"""Gaps and expansions of the paper's operator T, on models that are known.

Random models are Garnet: 20 states, 3 actions and a few random successors of each. Rewards are
those from state 0, at budgets of a quarter, half and three quarters of the range of the optimal
frontier. Two measures: the *ratio* of a reward to the best that its own cost could buy, and the
*share* of what the optimum gains over the safest policy.

    FOLDER/seed-N/gaps.json                     random models of a seed
    FOLDER/counter-examples/expansion.json      T expands distances
    FOLDER/counter-examples/branches.json       the two-branch problem
    FOLDER/counter-examples/pairs.json          pairs of Q-functions, to be drawn

gaps.json: `kind`, for each kind of model ("random", "deterministic") a list of rows, one a model,
    as `gap` and `other_ways` have them; `summary`, for each kind, as `summary` has it.
expansion.json: `rows`, each with `size` and the expansion of the pairs "steep" and "kinked";
    `rising`, each with `L`, its `bound` 1 + L, and the `largest` expansion seen; `gamma`.
branches.json: as `branch_frontiers` has it.
pairs.json: `gamma`, and `pairs` as `drawn_pairs` has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bmdp.arrays import FloatArray
from bmdp.exact import (
    FiniteBMDP,
    allocate_budgets,
    budgeted_value_iteration,
    cost_range,
    evaluate_policy,
    optimal_frontier,
    solve_cmdp,
)
from bmdp.exact.operators import QTables, distance, optimality_operator
from bmdp.exact.price_dial import price_dial
from bmdp.exact.textbook import branches, forever, garnet, kinked_pair, steep_pair
from bmdp.frontier import Frontier, frontier_values, hull_mixture, upper_frontier
from bmdp.paper.results import Results
from bmdp.paper.runner import Piece, Work
from bmdp.policies import MultiplierPolicy
from bmdp.report.drawing import BLACK, BLUE, GREEN, GREY, ORANGE, RED, new_figure, plane, tidy
from bmdp.report.section import Column, Data, Picture, Section, Table

TITLE = "The theory, put to the test"
QUESTION = (
    "How much of the optimum does the paper's operator T reach, and by how much can it expand?"
)
PARTS, COMMON = ("",), ("counter-examples",)

GAMMA = 0.9
N_STATES, N_ACTIONS = 20, 3
SHARES = (0.25, 0.5, 0.75)
"""Shares of the frontier's range, where budgets are asked."""

KINDS = {"random": (3, 1), "deterministic": (1, 5)}
"""By kind of model: successors of a state and action, and how much finer the grid of budgets is."""

PAIRS = {"steep": steep_pair, "kinked": kinked_pair}
"""Pairs of Q-functions whose distance T expands: the paper's, and one against its Remark 2."""

LIPSCHITZ = (0.01, 0.1, 0.5, 1.0, 5.0)
"""Slopes of rising graphs."""

WAYS = {
    "linear_program": ("linear program", BLACK, "-", ""),
    "allocation": ("budgets that depend on the next state", GREEN, "", "s"),
    "carried": ("price carried along", ORANGE, "", "X"),
    "operator": ("the paper's operator T", BLUE, "-", "o"),
}
"""Ways to spend a budget: name, colour, line and marker."""

_SIZES = (1e-3, 0.05, 0.5)  # by which random graphs differ
_N_BUDGETS = 11  # at which the two branches are drawn
_DRAWN_SIZE = 0.2  # of the pairs of Q-functions in a picture


@dataclass(frozen=True)
class TheorySettings:
    """Settings of the experiment."""

    n_seeds: int
    models: int  # random models of each kind, for each seed
    budgets: int  # of the grid of T; five times as many for deterministic models
    rounds: int  # of 400 random pairs of rising graphs, for each slope and size


SETTINGS = {
    "smoke": TheorySettings(2, models=2, budgets=31, rounds=5),
    "quick": TheorySettings(2, models=5, budgets=101, rounds=100),
    "paper": TheorySettings(5, models=10, budgets=101, rounds=100),
    "best": TheorySettings(5, models=10, budgets=401, rounds=400),
}


def run(settings: TheorySettings, work: Work) -> None:
    """Solves random models, or the counter-examples."""
    if work.part == "counter-examples":
        rising = partial(rising_expansions, settings.rounds)
        work.piece("expansion", lambda: {"rows": expansions(), "rising": rising(), "gamma": GAMMA})
        work.piece("branches", branch_frontiers)
        work.piece("pairs", lambda: {"gamma": GAMMA, "pairs": drawn_pairs(_DRAWN_SIZE)})
    else:
        work.piece("gaps", lambda: _gaps(settings, work.seed))


@dataclass(frozen=True, eq=False)
class Solved:
    """A random model, and the best that can be had from state 0."""

    seed: int
    model: FiniteBMDP
    optimum: Frontier
    allocation: Frontier  # by budgets that depend on the next state


def solve(seed: int, n_successors: int) -> Solved:
    """Returns a random model, solved."""
    rng = np.random.default_rng(seed)
    model = garnet(N_STATES, N_ACTIONS, n_successors, gamma=GAMMA, rng=rng)
    optimum = optimal_frontier(model, start=0)
    return Solved(seed, model, optimum, allocate_budgets(model).frontier(0))


def gap(solved: Solved, n_budgets: int) -> Piece:
    """Solves a model by the paper's operator T, on a grid of so many budgets and those asked.

    Returns:
        `seed`, `converged`; at the budgets asked: `asked`, `cost` and `reward` of the operator's
        policy, `best` (what the optimum earns at that cost), `ratio` and `share` (None where there
        is nothing to gain); `largest_excess` of reward over best, and `allocation_error`, the
        largest difference between allocation and the linear program over seven budgets.
    """
    model, optimum = solved.model, solved.optimum
    asked = asked_budgets(optimum)
    grid = np.union1d(np.linspace(*cost_range(model), n_budgets), asked)
    solution = budgeted_value_iteration(model, grid)
    v_r, v_c = evaluate_policy(model, solution.policy(), grid)
    places = np.searchsorted(grid, asked)
    reward, cost = v_r[0, places], v_c[0, places]
    best = optimum.reward_at(np.clip(cost, optimum.costs[0], optimum.costs[-1]))
    seven = np.linspace(solved.allocation.costs[0], solved.allocation.costs[-1], 7)
    programs = [solve_cmdp(model, start=0, budget=b).reward for b in seven]
    return {
        "seed": solved.seed,
        "converged": solution.converged,
        "asked": asked.tolist(),
        "cost": cost.tolist(),
        "reward": reward.tolist(),
        "best": best.tolist(),
        "ratio": (reward / best).tolist(),
        "share": shares(reward, best, float(optimum.rewards[0])),
        "largest_excess": float((reward - best).max()),
        "allocation_error": float(abs(solved.allocation.reward_at(seven) - programs).max()),
    }


def other_ways(solved: Solved) -> Piece:
    """Solves a model by ways that reach the optimum, at the budgets asked.

    Returns:
        Rewards of `linear_program`, of `allocation` (budgets that depend on the next state) and of
        `carried` (a price that is kept), and `allocation_share` and `carried_share`.
    """
    model, optimum = solved.model, solved.optimum
    asked, safest = asked_budgets(optimum), float(optimum.rewards[0])
    programs = np.array([solve_cmdp(model, start=0, budget=b).reward for b in asked])
    row: Piece = {"linear_program": programs.tolist()}
    carried = carried_policy(model, optimum).frontier(0)
    for name, frontier in (("allocation", solved.allocation), ("carried", carried)):
        least = frontier.costs[0]  # that of the optimum, but for rounding
        reward = np.asarray(frontier.reward_at(asked.clip(least)))
        row |= {name: reward.tolist(), f"{name}_share": shares(reward, programs, safest)}
    return row


def asked_budgets(optimum: Frontier) -> FloatArray:
    """Returns the budgets at which ways are compared."""
    low, high = optimum.costs[0], optimum.costs[-1]
    return np.asarray(low + np.array(SHARES) * (high - low))


def carried_policy(model: FiniteBMDP, optimum: Frontier) -> MultiplierPolicy:
    """Returns the policy of a price for each vertex of the optimal frontier."""
    slopes = np.diff(optimum.rewards) / np.diff(optimum.costs)
    prices = (np.inf, *((slopes[1:] + slopes[:-1]) / 2), 0.0)
    ends = min(0.0, float(optimum.costs[0])), max(1.0, cost_range(model)[1])
    return MultiplierPolicy(price_dial(model, prices), *ends)


def shares(reward: FloatArray, best: FloatArray, safest: float) -> list[float | None]:
    """Returns gains over the safest policy, as shares of the optimum's.

    >>> shares(np.array([2.0, 1.0]), np.array([3.0, 1.0]), 1.0)
    [0.5, None]
    """
    gains = zip((reward - safest).tolist(), (best - safest).tolist(), strict=True)
    return [gained / gain if gain > 1e-9 else None for gained, gain in gains]


def summary(rows: Sequence[Piece]) -> Piece:
    """Returns means and least ones over all models and budgets, from rows of `gap`."""
    ratio, share = (np.array([r[name] for r in rows], dtype=float) for name in ("ratio", "share"))
    return {
        "models": len(rows),
        "converged": sum(row["converged"] for row in rows),
        "ratio_mean": float(ratio.mean()),
        "ratio_least": float(ratio.min()),
        "share_mean": float(np.nanmean(share)),
        "share_least": float(np.nanmin(share)),
        "largest_excess": max(row["largest_excess"] for row in rows),
        "allocation_error": max(row["allocation_error"] for row in rows),
    }


def _gaps(settings: TheorySettings, seed: int) -> Piece:
    """Models of different seeds are different ones."""
    rows: dict[str, list[Piece]] = {kind: [] for kind in KINDS}
    for kind, (n_successors, finer) in KINDS.items():
        for number in range(seed * settings.models, (seed + 1) * settings.models):
            solved = solve(number, n_successors)
            rows[kind].append({**gap(solved, finer * settings.budgets), **other_ways(solved)})
    return {"kind": rows, "summary": {kind: summary(found) for kind, found in rows.items()}}


def expansions(sizes: Sequence[float] = tuple(10.0 ** -np.arange(1, 7))) -> list[dict[str, float]]:
    """Returns the expansion of the pairs' distance by T, a row for each size of a pair."""
    rows = []
    for size in map(float, sizes):
        row = {"size": size}
        for name in PAIRS:
            left, right, images = _images(name, size, np.array([0.0, size, 1.0]))
            row[name] = distance(*images) / distance(left, right)
        rows.append(row)
    return rows


def drawn_pairs(size: float) -> list[Piece]:
    """Returns the pairs as points, and the greedy choice of each.

    Returns:
        For each pair: `name`, `size`, `budget` (at which its images differ), `distance`,
        `image_distance` and `expansion`; `first` and `second`, each with `costs` and `rewards` of
        its actions, and `chosen`, the `cost` and `reward` of the greedy mixture.

    Paper: the figure of the counter-example in the proof of Theorem 2.
    """
    found = []
    for name in PAIRS:
        budget = size if name == "steep" else 1.0
        left, right, images = _images(name, size, np.unique([0.0, budget, 1.0]))
        apart, images_apart = distance(left, right), distance(*images)
        found.append(
            {
                "name": name,
                "size": size,
                "budget": budget,
                "distance": apart,
                "image_distance": images_apart,
                "expansion": images_apart / apart,
                "first": _points(left, budget),
                "second": _points(right, budget),
            }
        )
    return found


def _images(name: str, size: float, grid: FloatArray) -> tuple[QTables, QTables, list[QTables]]:
    """A pair of Q-functions, and their images by T."""
    model = forever(GAMMA).model
    left, right = PAIRS[name](model, len(grid), size)
    return left, right, [optimality_operator(model, q, grid) for q in (left, right)]


def _points(q: QTables, budget: float) -> Piece:
    """The actions of a Q-function that is the same everywhere, and the greedy mixture of them."""
    rewards, costs = q.q_r[0, :, 0], q.q_c[0, :, 0]
    chosen = hull_mixture(upper_frontier(costs, rewards), budget)
    return {
        "costs": costs.tolist(),
        "rewards": rewards.tolist(),
        "chosen": {"cost": chosen.cost, "reward": chosen.reward},
    }


def rising_pairs(
    rng: np.random.Generator, lipschitz: float, n_points: int, size: float
) -> tuple[FloatArray, ...]:
    """Returns 400 pairs of graphs `[N, K]` that rise, no steeper than L, and differ by `size`."""
    shape = (400, n_points)
    costs = np.sort(rng.random(shape) ** rng.choice([1, 4]), axis=1)
    slopes = lipschitz * np.maximum(rng.random(shape) ** rng.choice([0.1, 1, 8]), 1e-3)
    rewards = np.cumsum(np.diff(costs, axis=1, prepend=0) * slopes, axis=1)
    other_costs = np.sort(costs + size * rng.uniform(-1, 1, shape), axis=1)
    other_rewards = rewards + size * rng.uniform(-1, 1, shape)
    for k in range(1, n_points):  # back to a graph that rises, no steeper than L
        step = other_costs[:, k] - other_costs[:, k - 1]
        low, high = (other_rewards[:, k - 1] + s * step for s in (1e-3 * lipschitz, lipschitz))
        other_rewards[:, k] = np.clip(other_rewards[:, k], low, high)
    return costs, rewards, other_costs, other_rewards


def largest_expansion(
    rng: np.random.Generator, lipschitz: float, size: float, n_rounds: int
) -> float:
    """Returns the largest distance of the greedy values of two rising graphs, over their own.

    Budgets are below, within and above the graphs. T expands by gamma times this at most.
    """
    budgets, largest = np.linspace(-0.5, 2, 61), 0.0
    for _ in range(n_rounds):
        c1, r1, c2, r2 = rising_pairs(rng, lipschitz, int(rng.integers(2, 9)), size)
        apart = np.maximum(abs(c1 - c2), abs(r1 - r2)).max(axis=1)
        left, right = frontier_values(c1, r1, budgets), frontier_values(c2, r2, budgets)
        image = np.maximum(abs(left[0] - right[0]), abs(left[1] - right[1])).max(axis=1)
        largest = max(largest, float((image / apart).max()))
    return largest


def rising_expansions(n_rounds: int) -> list[dict[str, float]]:
    """Returns the largest expansion seen on rising graphs of slope L, beside its bound 1 + L."""
    largest = {
        slope: max(
            largest_expansion(np.random.default_rng(0), slope, size, n_rounds) for size in _SIZES
        )
        for slope in LIPSCHITZ
    }
    return [{"L": slope, "bound": 1 + slope, "largest": most} for slope, most in largest.items()]


def branch_frontiers() -> Piece:
    """Returns `payoffs` of two branches, a `budget`, and of each way `rewards` and `frontiers`."""
    payoffs, budget = (10.0, 1.0), 0.5
    problem = branches(payoffs)
    model, optimum = problem.model, problem.frontier
    budgets = np.linspace(0, 1, _N_BUDGETS)
    programs = [solve_cmdp(model, start=0, budget=b) for b in budgets]
    frontiers: dict[str, Frontier] = {
        "operator": budgeted_value_iteration(model, budgets).frontier(0),
        "allocation": allocate_budgets(model).frontier(0),
        "carried": carried_policy(model, optimum).frontier(0),
    }
    costs, earned = ([getattr(one, n) for one in programs] for n in ("cost", "reward"))
    drawn: Piece = {"linear_program": {"costs": costs, "rewards": earned}}
    drawn |= {
        name: {"costs": f.costs.tolist(), "rewards": f.rewards.tolist()}
        for name, f in frontiers.items()
    }
    rewards = {name: float(f.reward_at(budget)) for name, f in frontiers.items()}
    rewards["linear_program"] = programs[int(np.searchsorted(budgets, budget))].reward
    return {"payoffs": list(payoffs), "budget": budget, "rewards": rewards, "frontiers": drawn}


Told = tuple[str, list[Picture], list[Table]]
"""An answer in words, with pictures and tables."""

MEASURES = ("ratio", "share", "allocation_share", "carried_share")


def analyse(results: Results, anchor: str) -> Section:
    """Returns the section of a report, as far as parts are done."""
    shares = list(results.each("gaps", shares_of).values())
    kinds = {
        kind: {
            name: np.concatenate([one[kind][name] for one in shares if kind in one])
            for name in ("converged", *MEASURES)
        }
        for kind in dict.fromkeys(kind for one in shares for kind in one)
    }
    found = [
        _told_of_gaps(anchor, kinds) if kinds else None,
        results.common("branches", partial(_told_of_branches, anchor)),
        results.common("pairs", partial(_told_of_pairs, anchor)),
        results.common("expansion", partial(_told_of_expansion, anchor)),
    ]
    there = [told for told in found if told is not None]
    settings = results.settings
    return Section(
        anchor,
        "",
        answer=" ".join(answer for answer, _, _ in there if answer),
        facts={
            "Setting": "Garnet models of 20 states and 3 actions, gamma 0.9; "
            f"{settings.get('models')} of each kind for each seed; {settings.get('budgets')} "
            "budgets on the grid of T",
            "Bands and boxes": "None: models are solved exactly.",
        },
        pictures=[picture for _, pictures, _ in there for picture in pictures],
        tables=[table for _, _, tables in there for table in tables],
    )


def shares_of(piece: Data) -> dict[str, dict[str, FloatArray]]:
    """Returns of each kind of model `converged`, `[N]`, and its measures, `[N * budgets]`.

    Measures are without budgets that have nothing to gain.
    """

    def flat(rows: Sequence[Data], name: str) -> FloatArray:
        values: FloatArray = np.array([row[name] for row in rows], np.float64).ravel()
        return values[np.isfinite(values)]

    return {
        kind: {name: flat(rows, name) for name in ("converged", *MEASURES)}
        for kind, rows in piece["kind"].items()
        if rows
    }


def _told_of_gaps(anchor: str, kinds: Mapping[str, Mapping[str, FloatArray]]) -> Told:
    numbers = {kind: len(found["converged"]) for kind, found in kinds.items()}
    answer = " ".join(
        f"In {numbers[kind]} {kind} models the operator T reaches {found['share'].mean():.3f} of "
        f"the optimum's gain on average, and {found['share'].min():.3f} at least."
        for kind, found in kinds.items()
    )
    caption = (
        "Reward of the paper's operator T as a share of what the optimum gains over the safest "
        f"policy, in random models ({', '.join(f'{n} {kind}' for kind, n in numbers.items())}) at "
        "three budgets each: how many are below a share. In deterministic models the operator is "
        "the optimum, but for its grid."
    )
    least = (f"{kind} from {found['share'].min():.3f}" for kind, found in kinds.items())
    alt = f"Shares of the optimum's gain: {', '.join(least)} to 1."
    figure = gap_figure({kind: found["share"] for kind, found in kinds.items()})
    measures = [
        Column(
            f"{name.replace('_share', ': share')}, {what}",
            [float(getattr(found[name], of)()) for found in kinds.values()],
            key=name if "_" in name else f"{name}_{what}",
        )
        for name in MEASURES
        for what, of in (("mean", "mean"), ("least", "min"))
        if "_" not in name or what == "mean"
    ]
    table = Table(
        f"{anchor}-gaps",
        "What T misses",
        [
            Column("models", list(kinds), "s"),
            Column("number", list(numbers.values()), "d"),
            Column("converged", [int(found["converged"].sum()) for found in kinds.values()], "d"),
            *measures,
        ],
        "Ratio: reward over the best for the same cost. Share: of what the optimum gains over the "
        "safest policy. Allocation: budgets that depend on the next state. Carried: a price that "
        "is kept.",
    )
    picture = Picture(f"{anchor}-gaps", "What T misses", caption, alt, figure)
    return answer, [picture], [table]


def _told_of_branches(anchor: str, found: Data) -> Told:
    rewards = {way: found["rewards"][way] for way in WAYS if way in found["rewards"]}
    best, reached = rewards["linear_program"], rewards["operator"]
    caption = (
        "Two branches, each with probability 1/2; a risk of cost 1 pays 10 in one and 1 in the "
        "other. The operator hands the same budget to both, the optimum risks in one alone. "
        f"Dashed: budget {found['budget']:g}. Theorem 1 of the paper does not hold here."
    )
    alt = (
        f"Reward against cost on two branches: at cost {found['budget']:g} the linear program "
        f"earns {best:.3g}, the paper's operator {reached:.3g}."
    )
    name, title = f"{anchor}-branches", "A counter-example: two branches"
    ways = Column("way", [WAYS[way][0] for way in rewards], "s")
    reward = Column("reward", list(rewards.values()), ".4g")
    answer = f"On two branches it earns {reached:.3g} where {best:.3g} can be had."
    table = Table(name, f"Two branches at budget {found['budget']:g}", [ways, reward])
    return answer, [Picture(name, title, caption, alt, branches_figure(found))], [table]


def _told_of_pairs(anchor: str, found: Data) -> Told:
    caption = (
        "Two Q-functions that are near, with what is chosen of each at the dashed budget "
        "(ringed). Steep: the paper's pair for Theorem 2, T is no contraction. Kinked: a pair "
        "of functions with small slopes, against Remark 2."
    )
    told = (
        f"{p['name']}: {p['distance']:.3g} apart before T, {p['image_distance']:.3g} after"
        for p in found["pairs"]
    )
    alt = f"Pairs of Q-functions in the plane of cost and reward; {'; '.join(told)}."
    title, figure = "Counter-examples: near before T, far after", pairs_figure(found["pairs"])
    return "", [Picture(f"{anchor}-pairs", title, caption, alt, figure)], []


def _told_of_expansion(anchor: str, found: Data) -> Told:
    rows, rising = found["rows"], found["rising"]
    largest = max(row["steep"] for row in rows)
    caption = (
        "Distance of the images of the two pairs under T, over the distance of the pairs, against "
        "their size. Above the dashed line T expands, without bound."
    )
    alt = f"Expansion rises to {largest:.3g} as pairs get smaller."
    table = Table(
        f"{anchor}-rising",
        "Where Remark 2 holds: graphs that rise strictly in cost",
        [
            Column("L", [row["L"] for row in rising], "g"),
            Column("bound 1 + L", [row["bound"] for row in rising], "g", "bound"),
            Column("largest seen", [row["largest"] for row in rising], ".3f", "largest"),
        ],
        "Expansion by the greedy step of random pairs of graphs, no steeper than L.",
    )
    picture = Picture(f"{anchor}-expansion", "T expands", caption, alt, expansion_figure(rows))
    return f"It expands distances, here up to {largest:.3g} times.", [picture], [table]


def gap_figure(shares: Mapping[str, FloatArray]) -> Figure:
    """Returns the distribution of the operator's share of the optimum's gain, by kind of model."""
    figure, axes = _panel()
    for (kind, found), colour in zip(shares.items(), (BLUE, RED, GREEN), strict=False):
        known = np.sort(found[np.isfinite(found)])
        heights = np.linspace(0, 1, len(known))
        axes.plot(known, heights, label=kind, drawstyle="steps-post", color=colour)
    axes.set(xlabel="share of the optimum's gain over the safest policy", ylim=(0, 1))
    axes.set_ylabel("models and budgets up to here")
    axes.legend(loc="upper left")
    return figure


def _panel() -> tuple[Figure, Axes]:
    figure = new_figure(height=3.6)
    axes = figure.subplots()
    tidy(axes)
    return figure, axes


def expansion_figure(rows: Sequence[Mapping[str, float]]) -> Figure:
    """Returns the expansions of rows against their `size`."""
    figure, axes = _panel()
    sizes = [row["size"] for row in rows]
    styles = ((BLUE, "o"), (RED, "s"), (GREEN, "^"))
    names = [name for name in rows[0] if name != "size"]
    for name, (colour, marker) in zip(names, styles, strict=False):
        axes.loglog(sizes, [row[name] for row in rows], f"{marker}-", color=colour, label=name)
    axes.axhline(1, color=GREY, linewidth=1, linestyle="--")
    axes.set(xlabel="size of the pair (epsilon, delta)", ylabel="expansion by T")
    axes.legend()
    return figure


def pairs_figure(pairs: Sequence[Data]) -> Figure:
    """Returns pairs of Q-functions that are near, and the choices of each, which are not.

    Paper: the figure of the proof of Theorem 2, and a pair against Remark 2.
    """
    figure = new_figure(height=3.9)
    panels = figure.subplots(1, len(pairs), squeeze=False)[0]
    for axes, pair in zip(panels, pairs, strict=True):
        plane(axes)
        axes.margins(0.15)
        apart = f"{pair['distance']:.3g} apart, images {pair['image_distance']:.3g}"
        axes.set_title(f"{pair['name']}: {apart}", fontsize=9)
        axes.axvline(pair["budget"], color=GREY, linestyle="--", linewidth=1, label="budget")
        drawn = (("first", "Q1", BLUE, "o", "chosen"), ("second", "Q2", ORANGE, "s", "_"))
        for which, name, colour, marker, label in drawn:
            graph, form = pair[which], f"{marker}-"
            axes.plot(graph["costs"], graph["rewards"], form, color=colour, label=name, alpha=0.9)
            at, ring = graph["chosen"], {"marker": "o", "markersize": 15, "mfc": "none"}
            axes.plot(at["cost"], at["reward"], color=colour, ls="None", label=label, **ring)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def branches_figure(found: Data) -> Figure:
    """Returns the frontier of each way to spend a budget on the two-branch problem."""
    figure = new_figure(height=4.0)
    axes = figure.subplots()
    plane(axes)
    axes.axvline(found["budget"], color=GREY, linestyle="--", linewidth=1)
    for way, (name, colour, line, marker) in WAYS.items():
        if (curve := found["frontiers"].get(way)) is not None:
            style: dict[str, Any] = {"linestyle": line, "marker": marker, "color": colour}
            axes.plot(curve["costs"], curve["rewards"], label=name, **style)
    axes.legend(fontsize=8, loc="upper left")
    return figure
