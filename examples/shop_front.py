"""The picture of the first page: rewards and costs that one policy can have in a shop.

    python examples/shop_front.py --out docs/images/shop-front.png

Learns from the log of `bmdp.data.customers()`, certifies the policy by a second log, and plays both
with new customers, whom neither log has, at eleven budgets. Three rules that do always the same,
and the chance decisions of the log, are played beside them. Prints what it draws.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bmdp
from bmdp.data import customers
from bmdp.data.shop import ACTIONS, N_CONTACTS, contact, new_customers
from bmdp.report.drawing import BLACK, BLUE, GREEN, GREY, new_figure, plane, png_of

N_BUDGETS = 11
SEED = 100  # of the customers who are played


def shop(decide: Any, observe: Any, n: int) -> tuple[float, float]:
    """Returns complaints and earnings of a customer, means of `n` of them.

    Args:
        decide: from states `[n, 3]` to actions `[n]`.
        observe: told costs, next states, and which customers were contacted for the last time.
        n: customers.
    """
    rng = np.random.default_rng(SEED)
    states, cost, reward = new_customers(n, rng), 0.0, 0.0
    for number in range(N_CONTACTS):
        earned, complained, after = contact(states, decide(states), rng)
        observe(complained, after, np.full(n, number == N_CONTACTS - 1))
        states, cost, reward = after, cost + complained.mean(), reward + earned.mean()
    return float(cost), float(reward)


def played(policy: Any, budget: float, n: int) -> tuple[float, float]:
    """Returns what a customer costs and earns under a policy, with the same budget for all."""
    rng = np.random.default_rng(SEED)
    tracker = policy.start(new_customers(n, rng), np.full(n, budget), np.random.default_rng(SEED))
    return shop(lambda states: tracker.decide(states).action, tracker.observe, n)


def rules(n: int) -> dict[str, tuple[float, float]]:
    """Returns what rules cost and earn, by name."""
    rng = np.random.default_rng(SEED + 1)
    found = {
        f"always {name}": shop(lambda s, a=a: np.full(len(s), a), lambda *_: None, n)
        for a, name in enumerate(ACTIONS)
    }
    chance = shop(lambda s: rng.integers(len(ACTIONS), size=len(s)), lambda *_: None, n)
    return {"the log (random)": chance} | found


def main(arguments: list[str] | None = None) -> None:
    """Learns, certifies, plays, prints and draws."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a .png file")
    parser.add_argument("--customers", type=int, default=2_000, help="of each log")
    parser.add_argument("--played", type=int, default=100_000, help="customers at each budget")
    asked = parser.parse_args(arguments)
    policy = bmdp.fit(customers(asked.customers), gamma=1.0).policy
    safe = bmdp.certify(policy, customers(asked.customers, seed=1), gamma=1.0)
    low, high = policy.budget_range
    budgets = np.linspace(low, high, N_BUDGETS)
    lines: dict[str, NDArray[np.float64]] = {
        name: np.array([played(one, budget, asked.played) for budget in budgets])
        for name, one in (("learned", policy), ("certified", safe))
    }
    print(f"{'asked':>6}  learned: cost, reward  certified: cost, reward")
    for budget, *rows in zip(budgets, *lines.values(), strict=True):
        told = "  ".join(f"{cost:>11.4f} {reward:>10.2f}" for cost, reward in rows)
        print(f"{budget:>6.3f}  {told}")
    points = rules(asked.played)
    for name, (cost, reward) in points.items():
        print(f"{name}: cost {cost:.4f}, reward {reward:.2f}")

    figure = new_figure(6.4, 4.0)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    plane(left)
    left.set(xlabel="complaints a customer", ylabel="earned a customer")
    left.plot(*lines["learned"].T, "o-", color=BLUE, label="one policy, eleven budgets")
    for (name, point), marker in zip(points.items(), "Xsv^", strict=True):
        left.plot(*point, marker, color=BLACK if marker == "X" else GREY, label=name)
    left.legend(fontsize=8, frameon=False, loc="lower right")
    plane(right)
    right.set(xlabel="budget asked for", ylabel="complaints a customer")
    right.plot(budgets, budgets, ":", color=BLACK, label="as asked")
    right.plot(budgets, lines["learned"][:, 0], "o-", color=BLUE, label="learned")
    right.plot(budgets, lines["certified"][:, 0], "s-", color=GREEN, label="certified")
    right.legend(fontsize=8, frameon=False, loc="upper left")
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_bytes(png_of(figure))


if __name__ == "__main__":
    main()
