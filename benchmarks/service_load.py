"""How many decisions a service makes, and how long each request waits, beside Python itself.

    python benchmarks/service_load.py --out benchmarks/results/service.json

`bmdp serve` listens on the loopback address of this machine, in a process of its own. Clients ask
POST /decide, which can be asked again and again as the service keeps nothing, with 1 and with 100
episodes a request: one client, which tells how long a request takes, and several at once, which
tell how many there are room for. The reference is the same in this process: `policy.resume(state)`,
`decide`, `state()`; the ratio is what HTTP and JSON add. All ends after 2,000 requests, or 20
seconds.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import records

import bmdp
from bmdp import TransitionBatch
from bmdp.deployment.service import DecideBody, Service, StartBody
from bmdp.models import ForestModel

N_NUMBERS, N_ACTIONS, N_ROWS = 8, 4, 2_000  # of the log that the policy learns from
ROWS = (1, 100)  # episodes of a request
CLIENTS = (1, 4)
MOST_REQUESTS, MOST_SECONDS = 2_000, 20.0  # of all series together
QUICK = 40  # requests
SERVE = "from bmdp.cli.main import main; main()"


def learned(folder: Path) -> None:
    """Saves a policy that was learned from a log of one step, in which risks pay."""
    rng = np.random.default_rng(0)
    state, action = rng.normal(size=(N_ROWS, N_NUMBERS)), np.arange(N_ROWS) % N_ACTIONS
    log = TransitionBatch(
        state=state,
        action=action,
        reward=action * (1 + state[:, 0]) + rng.normal(size=N_ROWS),
        cost=action / N_ACTIONS * (rng.random(N_ROWS) < 0.5),
        next_state=state,
        terminal=np.ones(N_ROWS, bool),
    )
    config = bmdp.BFTQConfig(gamma=1.0, model=ForestModel(), n_budgets=21)
    bmdp.BFTQ(config).fit(log, seed=0).save(folder)  # type: ignore[attr-defined]


@contextmanager
def served(folder: Path) -> Iterator[int]:
    """The port of a service that ends with the block."""
    words = [sys.executable, "-c", SERVE, "serve", str(folder), "--port", "0"]
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    service = subprocess.Popen(
        words, stderr=subprocess.PIPE, text=True, env={**os.environ, **one_thread}
    )
    assert service.stderr is not None
    try:
        told = service.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", told)
        if found is None:
            raise RuntimeError(told + service.stderr.read())
        yield int(found[1])
    finally:
        service.terminate()
        service.wait(timeout=30)
        service.stderr.close()


def question(service: Service, n_rows: int) -> dict[str, Any]:
    """The body of a request that asks for decisions in new episodes."""
    states = np.random.default_rng(1).normal(size=(n_rows, N_NUMBERS)).tolist()
    begun = service.start(StartBody(states=states, budgets=0.3, seed=0))
    return {"tracker": begun["tracker"], "states": states}


def asked(port: int, body: bytes, n_requests: int, deadline: float) -> tuple[list[float], bytes]:
    """Seconds of each request of one client, and the last answer. It keeps its connection."""
    client, found, answer = http.client.HTTPConnection("127.0.0.1", port, timeout=10), [], b""
    for _ in range(n_requests):
        begin = time.perf_counter()
        client.request("POST", "/decide", body, {"Content-Type": "application/json"})
        response = client.getresponse()
        answer = response.read()
        found.append(time.perf_counter() - begin)
        if response.status != 200:
            raise RuntimeError(answer.decode())
        if time.perf_counter() > deadline:
            break
    client.close()
    return found, answer


def load(port: int, body: bytes, n_clients: int, n_requests: int, seconds: float) -> dict[str, Any]:
    """What clients met that asked at once, each its share of the requests."""
    times: list[float] = []
    begin = time.perf_counter()

    def one() -> None:
        times.extend(asked(port, body, n_requests // n_clients, begin + seconds)[0])

    threads = [threading.Thread(target=one) for _ in range(n_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begin
    latency = {f"p{q}": 1e3 * float(np.percentile(times, q)) for q in (50, 95, 99)}
    return {
        "clients": n_clients,
        "requests": len(times),
        "requests_a_second": round(len(times) / took, 1),
        "milliseconds": {name: round(value, 2) for name, value in latency.items()},
    }


def in_process(policy: Any, body: dict[str, Any], n_times: int) -> tuple[float, list[int]]:
    """Median milliseconds of the same decisions without a service, and their actions."""
    times, actions = [], []
    for _ in range(n_times):
        begin = time.perf_counter()
        tracker = policy.resume(body["tracker"]["state"])
        actions = tracker.decide(np.array(body["states"])).action.tolist()
        tracker.state()
        times.append(time.perf_counter() - begin)
    return 1e3 * float(np.median(times)), actions


def series(service: Service, port: int, n_rows: int, n_requests: int, seconds: float) -> Any:
    """All that is measured with so many episodes a request."""
    question_ = question(service, n_rows)
    body = json.dumps(question_).encode()
    _, answer = asked(port, body, 3, np.inf)  # warms up
    alone, actions = in_process(service.policy, question_, min(n_requests, 200))
    if json.loads(answer)["actions"] != actions:
        raise RuntimeError("the service decides otherwise than the policy")
    service_only = []
    for _ in range(min(n_requests, 200)):
        begin = time.perf_counter()
        json.dumps(service.decide(DecideBody.model_validate(json.loads(body))))
        service_only.append(time.perf_counter() - begin)
    loads = [load(port, body, n, n_requests, seconds) for n in CLIENTS]
    return {
        "rows": n_rows,
        "bytes": len(body),
        "in_process_milliseconds": round(alone, 3),
        "without_http_milliseconds": round(1e3 * float(np.median(service_only)), 3),
        "ratio": round(loads[0]["milliseconds"]["p50"] / alone, 2),
        "most_decisions_a_second": round(n_rows * max(x["requests_a_second"] for x in loads)),
        "loads": loads,
    }


def main(arguments: list[str] | None = None) -> None:
    """Measures, and writes the result."""
    options = records.options(__doc__ or "", arguments)
    n_series = len(ROWS) * len(CLIENTS)
    n_requests = (QUICK if options.quick else MOST_REQUESTS) // n_series
    with tempfile.TemporaryDirectory(prefix="bmdp-") as place:
        folder = Path(place) / "policy"
        learned(folder)
        service = Service.open(folder)
        with served(folder) as port:
            seconds = MOST_SECONDS / n_series
            found = [series(service, port, n, n_requests, seconds) for n in ROWS]
    about = {"numbers": N_NUMBERS, "actions": N_ACTIONS, "policy": type(service.policy).__name__}
    records.write({**about, "series": found}, options.out)


if __name__ == "__main__":
    main()
