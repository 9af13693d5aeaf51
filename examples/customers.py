"""A log of decisions about customers, as a shop might have it, and what it leads to.

    python examples/customers.py --out out/customers.parquet
    bmdp fit --data out/customers.parquet --gamma 1 --out out/customers
    bmdp report out/customers

With `--fit` the script itself learns from the log, by `bmdp.fit`. The customers are those of
`bmdp.data.customers`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bmdp import fit
from bmdp.data import customers


def main(words: list[str] | None = None) -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a .parquet file")
    parser.add_argument("--customers", type=int, default=1_500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fit", action="store_true", help="learn from it, and print what came")
    asked = parser.parse_args(words)
    log = customers(asked.customers, asked.seed)
    log.to_parquet(asked.out, overwrite=True)
    print(log.summary())
    if asked.fit:
        print(fit(log, gamma=1.0, seed=asked.seed))


if __name__ == "__main__":
    main()
