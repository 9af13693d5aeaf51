"""`bmdp serve`: what it refuses to listen to, and one that listens."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import bmdp
from bmdp.cli import serve
from commands import assert_is_user_error, run
from scripts import script
from serving import There, coin, hull, paths, played, served

BMDP = [sys.executable, "-c", "from bmdp.cli.main import main; main()"]
SECRET = "a-secret-of-this-test"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("served") / "policy"
    coin().save(place)
    return place


@contextmanager
def listening(*words):
    """A service in a process of its own: its address, and the process."""
    source = str(Path(bmdp.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": source, "BMDP_TOKEN": SECRET}
    command = [*BMDP, "serve", *map(str, words), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
    try:
        told = process.stderr.readline()
        found = re.search(r"at (http://127\.0\.0\.1:\d+);", told)
        assert found, told + process.stderr.read()
        yield There(found[1], SECRET), process
    finally:
        process.kill()
        process.wait(timeout=30)
        process.stderr.close()


def test_episodes_go_on_where_a_service_was_ended(folder, tmp_path):
    log, world = tmp_path / "log", paths(2, 5, seed=1)
    with listening(folder, "--log", log) as (first, ended):
        with listening(folder, "--log", log, "--max-bytes", 100_000) as (second, _):
            found = served([first, second], world, 0.6, 3)
            worlds = [paths(2, 4, seed=seed) for seed in range(4)]
            with ThreadPoolExecutor(4) as pool:  # clients at once
                at_once = [pool.submit(served, [first], w, 0.5, i) for i, w in enumerate(worlds)]
            assert_large_bodies_are_refused(second)
            assert_the_client_of_the_page_plays(second)
            begun = first("/start", states=[0] * 50, budgets=0.6, seed=9)
            ended.send_signal(signal.SIGTERM)
            assert ended.wait(timeout=30) == 0
            after = second("/decide", tracker=begun["tracker"], states=[0] * 50)["actions"]
            assert second.ask("/health", headers={"Authorization": "Bearer x"}.items())[0] == 401
        assert "stopped" in (said := ended.stderr.read())
        assert SECRET not in said
    assert found == played(coin(), world, 0.6, 3)[: len(found)]
    for i, (w, future) in enumerate(zip(worlds, at_once, strict=True)):
        assert future.result() == played(coin(), w, 0.5, i)[: len(future.result())]
    tracker = coin().start([0] * 50, 0.6, np.random.default_rng(9))
    assert after == tracker.decide([0] * 50).action.tolist()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lengths = [
        min(np.argmax(w[2][:, i]) + 1 if w[2][:, i].any() else 6, 6)
        for w in [world, *worlds]
        for i in range(w[2].shape[1])
    ]
    assert len(lines) == sum(lengths) + 6  # of the page's client
    assert len({line["episode"] for line in lines}) == len(lengths) + 2


def assert_the_client_of_the_page_plays(service):
    """That of docs/production.md, in a world of three steps."""
    page = (Path(__file__).parents[3] / "docs" / "production.md").read_text()
    code = next(b for b in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def play" in b)
    names = {"json": json}
    exec(compile(code, "production.md", "exec"), names)
    names |= {"SERVICE": service.address, "ask": service}
    actions = []

    class World:
        def reset(self):
            return [0, 1]

        def step(self, chosen):
            actions.append(chosen)
            return [1, 0], [0.0, 1.0], [len(actions) == 3] * 2

    names["play"](World(), 0.5)
    assert [len(chosen) for chosen in actions] == [2, 2, 2]


def assert_large_bodies_are_refused(service):
    """Of a stated length, and in chunks, of which the service reads no more than it takes."""
    host = service.address.removeprefix("http://")
    for headers in ({"Content-Length": str(10**9)}, {"Transfer-Encoding": "chunked"}):
        client = http.client.HTTPConnection(host, timeout=20)
        client.putrequest("POST", "/start")
        own = {"Content-Type": "application/json", "Authorization": f"Bearer {service.token}"}
        for name, value in (own | headers).items():
            client.putheader(name, value)
        client.endheaders()
        if "Transfer-Encoding" in headers:
            for _ in range(101):
                client.send(b"3e8\r\n" + b" " * 1_000 + b"\r\n")
        answer = client.getresponse()
        assert answer.status == 413
        assert "at most 100,000 bytes" in json.loads(answer.read())["error"]
        client.close()


def test_a_port_that_is_taken_is_told(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("serve", folder, "--port", port)
    assert_is_user_error(result, f"--port {port} cannot be listened on", "in use")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--host", "0.0.0.0"], "give --token-file FILE or BMDP_TOKEN, or say --no-token"),
        (["--host", "::"], "can be reached from other machines"),
        (["--host", "no.such.host.invalid", "--no-token"], "cannot be listened on"),
        (["--token", "x", "--no-token"], "choose one"),
        (["--token", "x", "--token-file", "y"], "choose one"),
        (["--token-file", "nowhere"], "--token-file nowhere cannot be read"),
        (["--token", ""], "must be ASCII characters, at least one"),
        (["--token", "é"], "must be ASCII"),
        (["--log", "nowhere/log"], "nowhere/log cannot be written"),
    ],
)
def test_what_makes_no_sense_is_told_before_anything_listens(words, told, folder, monkeypatch):
    monkeypatch.delenv("BMDP_TOKEN", raising=False)
    monkeypatch.setattr(serve, "_run", lambda *given: pytest.fail("it listens"))
    assert_is_user_error(run("serve", folder, *words, "--port", 0), told)


def test_answers_are_sent_at_once():
    with (
        serve._listening("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_folder_that_is_no_policy_is_told(tmp_path):
    assert_is_user_error(run("serve", tmp_path), str(tmp_path))


def test_a_missing_extra_is_told(folder, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert_is_user_error(run("serve", folder), "pip install 'bmdp[serve]'")


def test_a_token_may_be_in_a_file_or_in_the_environment(folder, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(serve, "_run", lambda app, listener: seen.append(app))
    monkeypatch.setattr(
        "bmdp.deployment.endpoints.application",
        lambda service, token, max_bytes: seen.append(token) or _Silent(),
    )
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    file_result = run("serve", folder, "--port", 0, "--token-file", file)
    monkeypatch.setenv("BMDP_TOKEN", SECRET)
    results = [file_result, run("serve", folder, "--port", 0, "--host", "localhost")]
    for result in results:
        assert result.exit_code == 0
        assert SECRET not in result.output
        assert re.search(r"^serving .* \(Portfolio, budgets 0 to 1\) at http://", result.stderr)
    assert seen[::2] == [SECRET, SECRET]


class _Silent:
    def openapi(self):
        """Describes nothing."""


def test_a_run_is_served_too(folder, tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "spec.json").write_text("{}")
    hull().save(tmp_path / "run" / "policy")
    monkeypatch.setattr(serve, "_run", lambda *given: None)
    result = run("serve", tmp_path / "run", "--port", 0)
    assert (result.exit_code, "(HullPolicy, budgets 0 to 1)" in result.stderr) == (0, True)


def test_ctrl_c_stops_it(folder, monkeypatch):
    import uvicorn

    async def interrupted(server):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(uvicorn.Server, "main_loop", interrupted)
    before = signal.getsignal(signal.SIGTERM)
    result = run("serve", folder, "--port", 0)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (130, "stopped")
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.slow
def test_the_load_test_ends_by_itself(tmp_path):
    script("benchmarks/service_load.py").main(["--quick", "--out", str(tmp_path / "load.json")])
    found = json.loads((tmp_path / "load.json").read_text())["series"]
    assert [row["rows"] for row in found] == [1, 100]
    assert sum(load["requests"] for row in found for load in row["loads"]) <= 40
    assert all(row["ratio"] > 0 for row in found)
