"""One decision, seven actions, one budget: which actions to mix.

    python examples/frontier_of_one_state.py --budget 0.3 --out out/frontier.png

A car is stuck behind a truck. Every action has an expected cost (the risk of a crash, scaled to 1)
and an expected reward (the distance gained). The dial says how much risk may be taken on average.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bmdp import hull_mixture, upper_frontier
from bmdp.report.figures import frontier_figure

ACTIONS = {  # name: (expected cost, expected reward)
    "stay far": (0.00, 0.0),
    "follow": (0.05, 1.5),
    "flash lights": (0.15, 0.6),
    "wait, then pass": (0.20, 4.0),
    "creep out": (0.40, 4.2),
    "pass now": (0.60, 7.0),
    "pass in the bend": (0.95, 7.6),
}


def main(arguments: list[str] | None = None) -> None:
    """Prints the actions with their place on the frontier, then the mixture, and draws both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--budget", type=float, default=0.3, help="expected cost allowed")
    parser.add_argument("--out", type=Path, default=Path("out/frontier.png"), help="picture")
    options = parser.parse_args(arguments)

    names = list(ACTIONS)
    costs, rewards = zip(*ACTIONS.values(), strict=True)
    frontier = upper_frontier(costs, rewards)
    mixture = hull_mixture(frontier, options.budget)
    assert frontier.index is not None
    vertices = frontier.index.tolist()
    chance = dict.fromkeys(vertices, 0.0)
    chance[vertices[mixture.lower]] = 1 - mixture.p_upper
    chance[vertices[mixture.upper]] += mixture.p_upper

    print(f"{'action':<18}{'cost':>6}{'reward':>8}  {'frontier':<10}{'played':>6}")
    for i, name in enumerate(names):
        place, played = ("vertex", f"{chance[i]:.1%}") if i in chance else ("below", "")
        print(f"{name:<18}{costs[i]:>6.2f}{rewards[i]:>8.2f}  {place:<10}{played:>6}")
    print(
        f"\nbudget {options.budget:g} ({mixture.status.name}): "
        f"expected cost {mixture.cost:.3f}, expected reward {mixture.reward:.3f}"
    )

    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure = frontier_figure(costs, rewards, beta=options.budget, labels=names)
    figure.savefig(options.out, dpi=150)
    print(f"picture: {options.out}")


if __name__ == "__main__":
    main()
