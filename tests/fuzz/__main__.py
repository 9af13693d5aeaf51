"""Runs a campaign for a time, and says how its cases ended.

    make fuzz NAME=files SECONDS=60
    python -m fuzz files --seconds 60 --seed 3 --out counts.json    (in tests/)

A campaign is a module of this package with `cases(seed, folder)`, which yields one word for each
case: how it ended. A promise that is broken is an AssertionError that says how to repeat the case.
"""

import argparse
import importlib
import itertools
import json
import math
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

CAMPAIGNS = sorted(
    path.stem
    for path in Path(__file__).parent.glob("*.py")
    if not path.stem.startswith(("_", "test_"))
)

_PAUSE = 0.5  # seconds between two counts that are told


def run_campaign(name, *, seconds=None, n_cases=None, seed=0, tell=None):
    """Counts of how cases ended.

    Args:
        name: of a module of this package.
        seconds: no case begins after so many.
        n_cases: at most so many.
        seed: of the cases.
        tell: called with the counts now and then.
    """
    campaign = importlib.import_module(f"fuzz.{name}")
    counts, begin = Counter(), time.monotonic()
    told = -math.inf
    with tempfile.TemporaryDirectory() as folder:
        for ended in itertools.islice(campaign.cases(seed, Path(folder)), n_cases):
            counts[ended] += 1
            now = time.monotonic()
            if tell and now - told > _PAUSE:
                tell(counts)
                told = now
            if seconds is not None and now - begin > seconds:
                break
    return dict(counts)


def main(arguments=None):
    """Runs what is asked, with the counts on one line as they grow."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=CAMPAIGNS)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="counts are added to this JSON file")
    asked = parser.parse_args(arguments)
    counts = run_campaign(
        asked.name,
        seconds=asked.seconds,
        seed=asked.seed,
        tell=lambda counts: print(f"\r{_line(counts)}", end="", file=sys.stderr, flush=True),
    )
    print(f"\r{asked.name}: {_line(counts)}")
    if asked.out:
        kept = json.loads(asked.out.read_text()) if asked.out.exists() else {}
        kept[asked.name] = dict(Counter(kept.get(asked.name, {})) + Counter(counts))
        asked.out.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def _line(counts):
    told = ", ".join(f"{ended} {n:,}" for ended, n in sorted(counts.items()))
    return f"{sum(counts.values()):,} cases: {told}"


if __name__ == "__main__":
    main()
