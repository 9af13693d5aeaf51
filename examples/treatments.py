r"""A log of 300,000 treatments, from Parquet to a policy, its forecast, a certificate and a page.

    python examples/treatments.py --out out/treatments
    bmdp fit --data out/treatments/log/year=2024 --gamma 1 --out out/treatments/run \
        --columns state=severity+age+ward+allergic
    bmdp calibrate out/treatments/run --data out/treatments/log/year=2025 --out out/treatments/safe
    bmdp report out/treatments/run out/treatments/safe --out out/treatments/pages

With `--whole` the script does all four itself.

Each patient is seen five times. The doctor waits, gives tablets, or an infusion. Stronger
treatments heal more, and have more side effects, which are the cost; a patient with an allergy gets
no infusion, which is what the column `available` says. The log has text, truth values and a mask,
is a folder of Parquet with a partition for each year, and was written by doctors who mostly treat
by severity, and now and then otherwise. The policy is learned from one year, and certified by the
next.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import bmdp
from bmdp.cli.main import app

ACTIONS = ("infusion", "tablets", "wait")
HEALS = np.array([0.3, 0.15, 0.05])
HARMS = np.array([0.12, 0.04, 0.0])
WARDS = ("east", "north", "west")
N_VISITS = 5
PATIENTS = 30_000  # of each year


def logged(n_patients: int, seed: int) -> dict[str, NDArray[Any]]:
    """Returns the columns of a year's log."""
    rng = np.random.default_rng(seed)
    severity, age = rng.random(n_patients), rng.integers(20, 90, n_patients)
    ward, allergic = rng.choice(WARDS, n_patients), rng.random(n_patients) < 0.2
    parts: list[dict[str, NDArray[Any]]] = []
    for visit in range(N_VISITS):
        usual = np.where(severity > 0.7, 0, np.where(severity > 0.3, 1, 2))
        otherwise = rng.integers(len(ACTIONS), size=n_patients)
        action = np.where(rng.random(n_patients) < 0.4, otherwise, usual)
        action = np.where(allergic & (action == 0), 1, action)
        heals = rng.random(n_patients) < HEALS[action] * (1 + severity)
        risk = HARMS[action] * (1 + (age > 65)) * (1 + severity)
        after = np.clip(severity - 0.4 * heals + 0.1 * rng.random(n_patients), 0.0, 1.0)
        available = np.ones((n_patients, len(ACTIONS)), np.bool_)
        available[:, 0] = ~allergic
        parts.append(
            {
                "severity": severity.round(3),
                "age": age,
                "ward": ward,
                "allergic": allergic,
                "action": np.array(ACTIONS)[action],
                "reward": (severity - after).round(3),
                "cost": (rng.random(n_patients) < risk).astype(np.float64),
                "terminal": np.full(n_patients, visit == N_VISITS - 1),
                "episode": np.arange(n_patients),
                "step": np.full(n_patients, visit),
                **{f"available_{n}": available[:, n] for n in range(len(ACTIONS))},
            }
        )
        severity = after
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def write_log(out: Path, n_patients: int, seed: int) -> None:
    """Writes two years as a partitioned folder."""
    for number, year in enumerate((2024, 2025)):
        folder = out / f"year={year}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table(logged(n_patients, seed + number)), folder / "part-0.parquet")


def whole_story(out: Path, minutes: float) -> dict[str, Any]:
    """Fits, certifies and reports, and returns what was promised."""
    state = ("severity", "age", "ward", "allergic")
    columns = bmdp.Columns(state=state)
    first, second = (str(out / "log" / f"year={year}") for year in (2024, 2025))
    fitted = bmdp.fit(first, gamma=1.0, columns=columns, minutes=minutes, out=out / "run")
    print(fitted)
    later = bmdp.data.load_log(second, columns, encoder=fitted.policy.encoder).batch
    safe = bmdp.certify(fitted.policy, later, gamma=1.0)
    safe.save(out / "safe")
    print(safe.certificate)
    pages = [str(out / name) for name in ("run", "safe")]
    app(["report", *pages, "--out", str(out / "pages")], standalone_mode=False)
    patient = {"severity": 0.9, "age": 80, "ward": "east", "allergic": True}
    tracker = safe.start([patient], 0.3, np.random.default_rng(0))
    chosen = tracker.decide([patient], available=[[False, True, True]]).action[0]
    print(f"an allergic patient of 80 gets: {safe.action_name(int(chosen))}")
    promise = safe.certificate
    return {"smallest": promise.smallest_budget, "high": promise.cost_high.tolist()}


def main(words: list[str] | None = None) -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--patients", type=int, default=PATIENTS, help="of each year")
    parser.add_argument("--minutes", type=float, default=5.0, help="that the fit may take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--whole", action="store_true", help="learn, certify and report, too")
    asked = parser.parse_args(words)
    write_log(asked.out / "log", asked.patients, asked.seed)
    if asked.whole:
        print(json.dumps(whole_story(asked.out, asked.minutes)))


if __name__ == "__main__":
    main()
