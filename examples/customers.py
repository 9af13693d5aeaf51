"""A log of decisions about customers, as a shop might have it, and what it leads to.

    python examples/customers.py --out out/customers.parquet
    bmdp fit --data out/customers.parquet --gamma 1 --out out/customers
    bmdp report out/customers

With `--fit` the script itself learns from the log, by `bmdp.fit`.

Each customer is contacted four times: not at all, by mail, or by a call. A call sells more, and
more often ends in a complaint, which is the cost. The log was written by someone who chose at
random, and its columns have names of their own.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bmdp import TransitionBatch, fit

ACTIONS = ("nothing", "mail", "call")
SALES, PRICES, COMPLAINTS = (0.05, 0.12, 0.3), (0.0, 0.5, 4.0), (0.0, 0.03, 0.15)
STATE = ("days_since_purchase", "basket", "complaints")
N_CONTACTS = 4


def contacted(
    rng: np.random.Generator, state: Sequence[float], action: int, anger: float = 1.0
) -> tuple[float, float, tuple[float, float, float]]:
    """Returns what a contact earns, whether it ends in a complaint, and the customer after it.

    Args:
        rng: of what is left to chance.
        state: of the customer, as `STATE` has it.
        action: number of one of the `ACTIONS`.
        anger: factor on the chances of a complaint.
    """
    days, basket, complaints = state
    buys = rng.random() < SALES[action] * np.exp(-days / 60)
    complains = float(rng.random() < anger * COMPLAINTS[action] * (1 + complaints))
    after = (0.0 if buys else days + 7, 0.8 * basket + 0.2 * rng.gamma(2, 30))
    return basket * buys - PRICES[action], complains, (*after, complaints + complains)


def first_state(rng: np.random.Generator) -> tuple[float, float, float]:
    """Returns a customer who was not contacted yet."""
    return rng.exponential(20), rng.gamma(2, 30), 0.0


def logged(n_customers: int, seed: int) -> TransitionBatch:
    """Returns the log of so many customers."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for customer in range(n_customers):
        state = first_state(rng)
        for contact in range(N_CONTACTS):
            action = int(rng.integers(len(ACTIONS)))
            earned, complained, after = contacted(rng, state, action)
            rows.append(
                {
                    **dict(zip(STATE, state, strict=True)),
                    "action": action,
                    "earned": earned,
                    "complained": complained,
                    "customer": customer,
                    "contact": contact,
                    "last": contact == N_CONTACTS - 1,
                }
            )
            state = after
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    states = np.stack([columns.pop(name) for name in STATE], axis=1)
    following = np.concatenate([states[1:], states[-1:]])
    following[columns["last"]] = states[columns["last"]]  # nothing follows the last contact
    return TransitionBatch(
        states,
        columns["action"],
        columns["earned"],
        columns["complained"],
        following,
        columns["last"],
        episode=columns["customer"],
        step=columns["contact"],
        state_names=STATE,
    )


def main(words: list[str] | None = None) -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a .parquet file")
    parser.add_argument("--customers", type=int, default=1_500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fit", action="store_true", help="learn from it, and print what came")
    asked = parser.parse_args(words)
    log = logged(asked.customers, asked.seed)
    log.to_parquet(asked.out, overwrite=True)
    print(log.summary())
    if asked.fit:
        print(fit(log, gamma=1.0, seed=asked.seed))


if __name__ == "__main__":
    main()
