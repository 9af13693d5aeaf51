"""How many decisions a service makes, and how long each request waits, beside Python itself.

    python benchmarks/service_load.py --out benchmarks/results/service.json

`bmdp serve` listens on the loopback address of this machine, in a process of its own. Clients ask
POST /decide, which can be asked again and again as the service keeps nothing, with 1 and with 100
episodes a request: one client, which tells how long a request takes, and several at once, which
tell how many there is room for. The reference is the same in this process: `policy.resume(state)`,
`decide`, `state()`. Seconds of the clock depend on what else the machine does (`load` is how many
programs wanted a core); seconds of the processor hardly do, and the ratio is of these: what HTTP
and JSON add. All series end after 2,000 requests, or 20 seconds.
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
from collections.abc import Callable, Iterator
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
    bmdp.BFTQ(config).fit(log, seed=0).save(folder)


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, int]]:
    """The port of a service, and its process, which ends with the block."""
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
        yield int(found[1]), service.pid
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


def cpu_seconds(process: int) -> float:
    """Seconds of the processor that a process has taken (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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


def cpu_milliseconds(work: Callable[[], Any], n_times: int) -> float:
    """Milliseconds of the processor that some work takes, on average."""
    begin = time.process_time()
    for _ in range(n_times):
        work()
    return 1e3 * (time.process_time() - begin) / n_times


def series(service: Service, there: tuple[int, int], n_rows: int, n_requests: int) -> Any:
    """All that is measured with so many episodes a request."""
    asks, (port, process) = question(service, n_rows), there
    body, states = json.dumps(asks).encode(), np.array(asks["states"])

    def alone() -> list[int]:
        tracker = service.policy.resume(asks["tracker"]["state"])
        actions: list[int] = tracker.decide(states).action.tolist()
        tracker.state()
        return actions

    def without_http() -> None:
        json.dumps(service.decide(DecideBody.model_validate(json.loads(body))))

    _, answer = asked(port, body, 3, np.inf)  # warms up
    if json.loads(answer)["actions"] != alone():
        raise RuntimeError("the service decides otherwise than the policy")
    n_times = min(n_requests, 300)
    reference = cpu_milliseconds(alone, n_times)
    inside = cpu_milliseconds(without_http, n_times)
    begin, seconds = cpu_seconds(process), MOST_SECONDS / len(ROWS) / len(CLIENTS)
    loads = [load(port, body, n, n_requests, seconds) for n in CLIENTS]
    served_ = 1e3 * (cpu_seconds(process) - begin) / sum(row["requests"] for row in loads)
    return {
        "rows": n_rows,
        "bytes": len(body),
        "cpu_milliseconds": {
            "in_process": round(reference, 3),
            "without_http": round(inside, 3),
            "service": round(served_, 3),
        },
        "ratio": round(served_ / reference, 2),
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
        with served(folder) as there:
            found = [series(service, there, n, n_requests) for n in ROWS]
    about: dict[str, Any] = {"load": round(os.getloadavg()[0], 1)}
    about |= {"numbers": N_NUMBERS, "actions": N_ACTIONS, "policy": type(service.policy).__name__}
    records.write({**about, "series": found}, options.out)


if __name__ == "__main__":
    main()
