r"""A dial in production: from a log to a certificate, a service, and a watch over its promise.

    python examples/in_production.py --out out/story

Each step is a command that you could give yourself:

    bmdp fit --data out/story/log.parquet --gamma 1 --out out/story/run
    bmdp report out/story/run
    bmdp calibrate out/story/run --data out/story/later.parquet --out out/story/safe
    bmdp serve out/story/safe --log out/story/served.jsonl
    bmdp watch out/story/served.jsonl --policy out/story/safe --training out/story/log.parquet \
        --gamma 1 --most-cost 4 --out out/story/watch

Customers are those of `bmdp.data.customers`: a call sells more, and ends in a complaint more often,
which is the cost. The service decides about customers who come in groups, each with a budget of
complaints, and the watch says whether they complain more than they were allowed to. Then customers
get angrier than those of the log, and the watch says that the promise is broken.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import typer

from bmdp.cli.main import app
from bmdp.data import customers
from bmdp.data.shop import N_CONTACTS, contact, new_customers

GROUP = 50  # customers of a request
SECONDS = 60  # that an answer may take
MOST_COMPLAINTS = float(N_CONTACTS)


def told(*words: str | Path) -> int:
    """Runs a command of `bmdp`, and returns its exit code."""
    print("\n$ bmdp " + " ".join(map(str, words)), flush=True)
    try:
        return int(app(list(map(str, words)), standalone_mode=False) or 0)
    except typer.Exit as end:
        return end.exit_code


@contextmanager
def served(policy: Path, log: Path) -> Iterator[str]:
    """Serves a policy on this machine for as long as the context is open; gives its address."""
    words = ["serve", str(policy), "--port", "0", "--log", str(log)]
    print("\n$ bmdp " + " ".join(words), flush=True)
    command = [sys.executable, "-c", "from bmdp.cli.main import main; main()", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr is not None
        try:
            line = service.stderr.readline()
            found = re.search(r"http://[\d.]+:\d+", line)
            if found is None:
                raise RuntimeError(line + service.stderr.read())
            print(line, end="", flush=True)
            yield found[0]
        finally:
            service.terminate()


def asked(address: str, endpoint: str, body: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer of the service to one request."""
    request = Request(f"{address}/{endpoint}", json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urlopen(request, timeout=SECONDS) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def contact_all(address: str, budgets: np.ndarray, rng: np.random.Generator, anger: float) -> None:
    """Contacts a group of customers four times each, as the service decides."""
    states = new_customers(len(budgets), rng)
    begin = {
        "states": states.tolist(),
        "budgets": budgets.tolist(),
        "seed": int(rng.integers(2**32)),
    }
    tracker = asked(address, "start", begin)["tracker"]
    for number in range(N_CONTACTS):
        decided = asked(address, "decide", {"tracker": tracker, "states": states.tolist()})
        _, complained, states = contact(states, np.array(decided["actions"]), rng, anger)
        seen = {"costs": complained.tolist(), "next_states": states.tolist()}
        is_last = number == N_CONTACTS - 1
        body = {"tracker": decided["tracker"], **seen, "ended": is_last}
        tracker = asked(address, "observe", body)["tracker"]


def stream(address: str, n_customers: int, rng: np.random.Generator, anger: float = 1.0) -> None:
    """Sends so many customers to the service, group by group, with budgets of all sizes."""
    low, high = asked_range(address)
    for first in range(0, n_customers, GROUP):
        budgets = rng.uniform(low, high, min(GROUP, n_customers - first)).round(3)
        contact_all(address, budgets, rng, anger)


def asked_range(address: str) -> tuple[float, float]:
    """Returns the budgets that the service takes."""
    with urlopen(f"{address}/health", timeout=SECONDS) as answer:
        low, high = json.load(answer)["budget_range"]
    return float(low), float(high)


def story(given: argparse.Namespace) -> tuple[int, int]:
    """Goes all the way; returns the exit codes of the watch, before and after customers change."""
    out, seed, n_served = given.out, given.seed, given.served
    out.mkdir(parents=True)
    for number, name in enumerate(("log", "later")):
        customers(given.logged, seed + number).to_parquet(out / f"{name}.parquet")
    run, safe, log = out / "run", out / "safe", out / "served.jsonl"
    training = out / "log.parquet"
    told("fit", "--data", training, "--gamma", "1", "--minutes", str(given.minutes), "--out", run)
    told("report", run)
    told("calibrate", run, "--data", out / "later.parquet", "--out", safe)
    watching: list[str | Path] = ["--policy", safe, "--training", training, "--gamma", "1"]
    watching += ["--most-cost", f"{MOST_COMPLAINTS:g}"]
    rng = np.random.default_rng([seed, 2])
    with served(safe, log) as address:
        stream(address, n_served, rng)
        before = told("watch", log, *watching, "--out", out / "watch")
        print(f"\ncustomers get angrier after {n_served:,}")
        stream(address, n_served, rng, given.anger)
    after = told("watch", log, *watching, "--out", out / "watch-after")
    return before, after


def main(words: list[str] | None = None) -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--logged", type=int, default=6_000, help="customers of each log")
    parser.add_argument(
        "--served", type=int, default=2_000, help="customers, and as many angry ones"
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="that the fit may take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--anger", type=float, default=3.0, help="times as many complaints, then")
    codes = story(parser.parse_args(words))
    print(f"\nthe watch ended with {codes[0]}, and with {codes[1]} after customers had changed")


if __name__ == "__main__":
    main()
