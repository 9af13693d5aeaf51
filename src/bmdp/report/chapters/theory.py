"""What a report says of the theory: what T misses and expands, on models that are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bmdp.report.chapters.chapter import Chapter, settings_table
from bmdp.report.drawing import Drawing
from bmdp.report.pieces import Piece
from bmdp.report.reading import Results
from bmdp.report.tables import Column, Table
from bmdp.report.theory import WAYS, branches_figure, expansion_figure, gap_figure, pairs_figure

Rows = Mapping[str, Sequence[Mapping[str, Any]]]


def theory_chapter(results: Results, prefix: str) -> Chapter:
    """Returns what was found, as far as it goes."""
    rows = _rows(results)
    expansion, branches, pairs = (
        results.common(dict, name) for name in ("expansion", "branches", "pairs")
    )
    drawings: list[Drawing] = []
    tables: list[Table] = []
    if branches is not None:
        drawings.append(_branches(prefix, branches))
        tables.append(_branches_table(prefix, branches))
    if rows:
        drawings.append(_gaps(prefix, rows))
        tables.append(_gaps_table(prefix, rows))
    if pairs is not None and pairs["pairs"]:
        drawings.append(_pairs(prefix, pairs))
    if expansion is not None:
        drawings.append(_expansion(prefix, expansion))
        tables.append(_rising_table(prefix, expansion))
    settings = results.spec.get("settings", {})
    return Chapter(
        answer=_answer(rows, branches, expansion),
        setting=f"Garnet models of 20 states and 3 actions, gamma 0.9; {settings.get('models')} of "
        f"each kind for each seed; {settings.get('budgets')} budgets on the grid of T",
        drawings=drawings,
        tables=[*tables, settings_table(results, f"{prefix}-settings")],
        bands="None: models are solved exactly.",
    )


def _rows(results: Results) -> dict[str, list[Mapping[str, Any]]]:
    """Models of all seeds, by kind."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for piece in results.found(dict, "gaps").values():
        for kind, rows in piece["kind"].items():
            found.setdefault(kind, []).extend(rows)
    return {kind: rows for kind, rows in found.items() if rows}


def _gaps(prefix: str, rows: Rows) -> Drawing:
    count = ", ".join(f"{len(found)} {kind}" for kind, found in rows.items())
    caption = (
        "Reward of the paper's operator T as a share of what the optimum gains over the safest "
        f"policy, in random models ({count}) at three budgets each: how many are below a share. "
        "In deterministic models the operator is the optimum, but for its grid."
    )
    told = (f"{kind} from {_shares(found).min():.3f}" for kind, found in rows.items())
    alt = f"Shares of the optimum's gain: {', '.join(told)} to 1."
    return Drawing(f"{prefix}-gaps", "What T misses", caption, alt, gap_figure(rows))


def _branches(prefix: str, found: Piece) -> Drawing:
    rewards = found["rewards"]
    caption = (
        "Two branches, each with probability 1/2; a risk of cost 1 pays 10 in one and 1 in the "
        "other. The operator hands the same budget to both, the optimum risks in one alone. "
        f"Dashed: budget {found['budget']:g}. Theorem 1 of the paper does not hold here."
    )
    if "n_episodes" in found:
        caption += f" Band: 95 % over {found['n_episodes']:,} episodes."
    alt = (
        f"Reward against cost on two branches: at cost {found['budget']:g} the linear program "
        f"earns {rewards['linear_program']:.3g}, the paper's operator {rewards['operator']:.3g}."
    )
    title = "A counter-example: two branches"
    return Drawing(f"{prefix}-branches", title, caption, alt, branches_figure(found))


def _pairs(prefix: str, found: Piece) -> Drawing:
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
    title = "Counter-examples: near before T, far after"
    return Drawing(f"{prefix}-pairs", title, caption, alt, pairs_figure(found["pairs"]))


def _expansion(prefix: str, found: Piece) -> Drawing:
    rows = found["rows"]
    caption = (
        "Distance of the images of the two pairs under T, over the distance of the pairs, against "
        "their size. Above the dashed line T expands, without bound."
    )
    alt = f"Expansion rises to {max(row['steep'] for row in rows):.3g} as pairs get smaller."
    return Drawing(f"{prefix}-expansion", "T expands", caption, alt, expansion_figure(rows))


def _gaps_table(prefix: str, rows: Rows) -> Table:
    shares, ratios = (
        [_flat(found, name) for found in rows.values()] for name in ("share", "ratio")
    )
    others = {
        name: [_flat(found, f"{name}_share") for found in rows.values()]
        for name in ("allocation", "carried")
    }
    converged = [sum(bool(row["converged"]) for row in found) for found in rows.values()]
    return Table(
        f"{prefix}-gaps",
        "What T misses",
        [
            Column("models", list(rows), "s"),
            Column("number", [len(found) for found in rows.values()], "d"),
            Column("converged", converged, "d"),
            Column("ratio, mean", [float(r.mean()) for r in ratios], key="ratio_mean"),
            Column("ratio, least", [float(r.min()) for r in ratios], key="ratio_least"),
            Column("share, mean", [float(s.mean()) for s in shares], key="share_mean"),
            Column("share, least", [float(s.min()) for s in shares], key="share_least"),
            *(
                Column(
                    f"{name}: share, mean", [float(s.mean()) for s in found], key=f"{name}_share"
                )
                for name, found in others.items()
            ),
        ],
        "Ratio: reward over the best for the same cost. Share: of what the optimum gains over the "
        "safest policy. Allocation: budgets that depend on the next state. Carried: a price that "
        "is kept.",
    )


def _branches_table(prefix: str, found: Piece) -> Table:
    rewards = {way: found["rewards"][way] for way in WAYS if way in found["rewards"]}
    return Table(
        f"{prefix}-branches",
        f"Two branches at budget {found['budget']:g}",
        [
            Column("way", [WAYS[way][0] for way in rewards], "s"),
            Column("reward", list(rewards.values()), ".4g"),
        ],
    )


def _rising_table(prefix: str, found: Piece) -> Table:
    rows = found["rising"]
    return Table(
        f"{prefix}-rising",
        "Where Remark 2 holds: graphs that rise strictly in cost",
        [
            Column("L", [row["L"] for row in rows], "g"),
            Column("bound 1 + L", [row["bound"] for row in rows], "g", "bound"),
            Column("largest seen", [row["largest"] for row in rows], ".3f", "largest"),
        ],
        "Expansion by the greedy step of random pairs of graphs, no steeper than L.",
    )


def _answer(rows: Rows, branches: Piece | None, expansion: Piece | None) -> str:
    told = []
    for kind, found in rows.items():
        shares = _shares(found)
        told.append(
            f"In {len(found)} {kind} models the operator T reaches {shares.mean():.3f} of the "
            f"optimum's gain on average, and {shares.min():.3f} at least."
        )
    if branches is not None:
        rewards = branches["rewards"]
        told.append(
            f"On two branches it earns {rewards['operator']:.3g} where "
            f"{rewards['linear_program']:.3g} can be had."
        )
    if expansion is not None:
        largest = max(row["steep"] for row in expansion["rows"])
        told.append(f"It expands distances, here up to {largest:.3g} times.")
    return " ".join(told)


def _flat(rows: Sequence[Mapping[str, Any]], name: str) -> Any:
    values = np.array([row[name] for row in rows], np.float64).ravel()
    return values[np.isfinite(values)]


def _shares(rows: Sequence[Mapping[str, Any]]) -> Any:
    return _flat(rows, "share")
