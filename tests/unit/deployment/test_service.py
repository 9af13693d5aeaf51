"""A service decides as the policy does, keeps nothing, and refuses what makes no sense."""

import asyncio
import copy
import json
import re
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

import bmdp
from bmdp.data.encoder import EncodedPolicy, Encoder, StateColumn
from bmdp.deployment import Service, endpoints
from bmdp.deployment.service import Carried, DecideBody, EpisodeLog, ObserveBody, StartBody
from bmdp.policies import RandomBudgetedPolicy
from serving import Here, coin, hull, paths, played, prices, served

POLICIES = {"hull": (hull, 2), "prices": (prices, 3), "coin": (coin, 2)}
BUDGETS = np.linspace(0, 1, 7).tolist()


def json_of(content):
    return {"content": content, "headers": {"content-type": "application/json"}}


# It decides as the policy does


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("move", [None, (2, 0.35)], ids=["kept", "moved"])
def test_episodes_of_two_services_are_those_of_the_policy(name, move):
    make, n_states = POLICIES[name]
    world = paths(n_states, len(BUDGETS), seed=3)
    services = [Here(make()), Here(make())]
    found = served(services, world, BUDGETS, 11, move)
    assert found == played(make(), world, BUDGETS, 11, move)[: len(found)]
    assert len(found) > 3
    assert all(s.service.health()["decisions"] > 0 for s in services)


def test_the_same_request_has_the_same_answer():
    here = Here(hull())
    tracker = here("/start", states=[0] * 20, budgets=0.5)["tracker"]
    first, second = (here("/decide", tracker=tracker, states=[0] * 20) for _ in range(2))
    assert first == second
    assert {*first["actions"]} == {0, 1}


def test_without_a_seed_episodes_differ_and_with_one_they_do_not():
    here, how = Here(hull()), {"states": [0] * 64, "budgets": 0.5}

    def actions(**seed):
        tracker = here("/start", **how, **seed)["tracker"]
        return here("/decide", tracker=tracker, states=[0] * 64)["actions"]

    assert actions() != actions()
    assert actions(seed=5) == actions(seed=5) != actions(seed=6)


def test_requests_under_way_at_once_do_not_mix():
    here = Here(hull())
    worlds = [paths(2, 3, n_steps=3, seed=seed) for seed in range(6)]

    async def episode(client, world, seed):
        states, costs, _ = world

        async def ask(path, **body):
            return (await client.post(path, json=body)).json()

        begun = await ask("/start", states=states[0].tolist(), budgets=0.5, seed=seed)
        tracker, found = begun["tracker"], []
        for k in range(len(costs)):
            said = await ask("/decide", tracker=tracker, states=states[k].tolist())
            found.append(said["actions"])
            followed = {"costs": costs[k].tolist(), "next_states": states[k + 1].tolist()}
            seen = await ask("/observe", tracker=said["tracker"], **followed, ended=False)
            tracker = seen["tracker"]
        return found

    async def together():
        transport = httpx.ASGITransport(here.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            tasks = [episode(client, world, seed) for seed, world in enumerate(worlds)]
            return await asyncio.gather(*tasks)

    for seed, (world, found) in enumerate(zip(worlds, asyncio.run(together()), strict=True)):
        never = (*world[:2], np.zeros_like(world[2]))
        assert found == [step[0] for step in played(hull(), never, 0.5, seed)]


@pytest.mark.parametrize(
    "masks", [[[1], [1, 0]], [[1, 0]], [[0, 0], [1, 1]], [[2, 1]] * 2, [[10**18, 1]] * 2]
)
def test_masks_that_make_no_sense_are_refused(masks):
    here = Here(hull())
    tracker = here("/start", states=[0, 0], budgets=1.0)["tracker"]
    body = {"tracker": tracker, "states": [0, 0], "available": masks}
    answer = here.ask("POST", "/decide", json=body)
    assert (answer.status_code, "available" in answer.text) == (422, True)


def test_only_available_actions_are_played():
    here = Here(hull())
    tracker = here("/start", states=[0, 0], budgets=1.0)["tracker"]
    masks = [[True, False], [1, 1]]
    assert here("/decide", tracker=tracker, states=[0, 0], available=masks)["actions"] == [0, 1]


def test_states_may_be_rows_of_a_log_and_actions_have_names():
    encoder = Encoder((StateColumn("day", "text", ("Mon", "Tue")),), actions=("go", "wait"))
    policy = EncodedPolicy(RandomBudgetedPolicy(2, 0.0, 1.0), encoder)
    here, days = Here(policy), [{"day": "Mon"}, {"day": "Tue"}]
    begun = here("/start", states=days, budgets=0.5, seed=1)
    said = here("/decide", tracker=begun["tracker"], states=days)
    tracker = policy.start(days, 0.5, np.random.default_rng(1))
    assert said["actions"] == tracker.decide(days).action.tolist()
    assert said["action_names"] == [("go", "wait")[a] for a in said["actions"]]
    seen = here(
        "/observe",
        tracker=said["tracker"],
        costs=0,
        next_states=[None, {"day": "Mon"}],
        ended=[True, False],
    )
    here("/decide", tracker=seen["tracker"], states=[None, {"day": "Mon"}])
    for wrong in (
        [{"day": "Sun"}],
        [{}],
        [{"day": 10**400}],
        [{"day": ["Mon"]}],
        [["Mon", "Tue"]],
        [{"day": 1}, [1]],
    ):
        answer = here.ask("POST", "/start", json={"states": wrong, "budgets": 0})
        assert (answer.status_code, [*answer.json()]) == (422, ["error"]), wrong


def test_the_frontier_is_that_of_the_policy_and_some_have_none():
    found, own = Here(prices())("/frontier", state=0), prices().frontier(0)
    assert (found["costs"], found["rewards"]) == (own.costs.tolist(), own.rewards.tolist())
    answer = Here(coin()).ask("POST", "/frontier", json={"state": 0})
    assert answer.status_code == 404
    assert answer.json()["error"].startswith("Portfolio has no frontier")


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"state": 0, "step": 10**18}, 200),
        ({"state": 0, "available": [1, False]}, 200),
        ({"state": 99}, 422),
        ({"state": None}, 422),
        ({"state": [[0]]}, 422),
        ({"state": 0, "step": -1}, 422),
        ({"state": 0, "available": [0, 0]}, 422),
        ({"state": 0, "available": [1]}, 422),
        ({"state": 0, "available": [10**18, 0]}, 422),
        ({"state": 0, "available": 1}, 422),
        ({}, 422),
    ],
)
def test_what_a_frontier_is_asked_for_is_checked(asked, status):
    assert Here(prices()).ask("POST", "/frontier", json=asked).status_code == status


def test_health_says_what_is_played_and_how_much():
    here = Here(hull(), checksum="abc")
    tracker = here("/start", states=[0, 1], budgets=0.5)["tracker"]
    here("/decide", tracker=tracker, states=[0, 1])
    found = here.ask("GET", "/health").json()
    assert found.pop("uptime") > 0
    assert found == {
        "status": "ok",
        "version": bmdp.__version__,
        "policy": "HullPolicy",
        "checksum": "abc",
        "budget_range": [0.0, 1.0],
        "decisions": 2,
    }


def test_a_policy_that_cannot_go_on_from_a_state_is_not_served():
    class Own:
        budget_range = (0.0, 1.0)

    with pytest.raises(bmdp.PolicyError, match="Own cannot be served"):
        Service(Own())


# It refuses


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "the body must be JSON: "),
        (b"", "the body must be a JSON object."),
        (b"\xff\xfe", "the body must be JSON: "),
        (b"[1]", "the body must be a JSON object."),
        (b"null", "the body must be a JSON object."),
        (b"[" * 50_000, "too deep"),
        (b'{"states": [0], "budgets": ' + b"1" * 5_000 + b"}", "too many digits"),
        (b'{"states": [0]}', "budgets is missing."),
        (b'{"states": [0], "budgets": 0, "bugdet": 1}', "bugdet is unknown."),
        (b'{"states": [0], "budgets": NaN}', "NaN is no number"),
        (b'{"states": [-Infinity], "budgets": 0}', "-Infinity is no number"),
        (b'{"states": [0], "budgets": 1e999}', "budgets must be a finite number."),
        (b'{"states": [1e999], "budgets": 0}', "states must be finite; not so at [0]."),
        (b'{"states": ["NaN"], "budgets": 0}', "states must be numbers."),
        (b'{"states": [true], "budgets": 0}', "states must be numbers."),
        (b'{"states": [null], "budgets": 0}', "states must be numbers."),
        (b'{"states": [{"a": 1}], "budgets": 0}', "states must be numbers."),
        (b'{"states": [1' + b"0" * 40 + b'], "budgets": 0}', "states must be numbers."),
        (b'{"states": [[0], [0, 1]], "budgets": 0}', "the same shape in all rows"),
        (b'{"states": [' + b"[" * 80 + b"]" * 80 + b'], "budgets": 0}', "states must be"),
        (b'{"states": [], "budgets": 0}', "states must have at least one."),
        (b'{"states": 0, "budgets": 0}', "states must be a list."),
        (b'{"states": [0], "budgets": true}', "budgets must be a number."),
        (b'{"states": [0], "budgets": "0"}', "budgets must be a number."),
        (b'{"states": [0, 0], "budgets": [0, "0"]}', "budgets[1] must be a number."),
        (b'{"states": [0, 0], "budgets": [0]}', "budgets must have shape [N] = [2]; got [1]."),
        (b'{"states": [0], "budgets": -1}', "budgets must be numbers from 0 on"),
        (b'{"states": [0], "budgets": 0, "seed": 1.5}', "seed must be a whole number"),
        (b'{"states": [0], "budgets": 0, "seed": -1}', "seed must be greater"),
        (b'{"states": [0], "budgets": 0, "episodes": ["a", "b"]}', "one for each of 1 episodes"),
        (b'{"states": [0], "budgets": 0, "episodes": [7]}', "episodes[0] must be a string."),
        (b'{"states": [0], "budgets": 0, "episodes": [""]}', "[0] must have at least 1 character."),
        (b'{"states": [0, 0], "budgets": 0, "episodes": ["a", "a"]}', "got 'a' 2 times."),
        (b'{"states": ["\xff"], "budgets": 0}', "no UTF-8"),
    ],
    ids=lambda value: value[:40] if isinstance(value, bytes) else "",
)
def test_a_wrong_body_is_refused_in_one_line(content, told):
    answer = Here(hull()).ask("POST", "/start", **json_of(content))
    assert answer.status_code in (400, 422)
    error = answer.json()["error"]
    assert told in error
    assert "\n" not in error


def test_a_state_that_the_policy_does_not_know_is_refused_when_it_decides():
    here = Here(hull())
    tracker = here("/start", states=[0], budgets=0)["tracker"]
    for states in ([7], [0.5], [[0]], [0, 0], [None]):
        answer = here.ask("POST", "/decide", json={"tracker": tracker, "states": states})
        assert answer.status_code == 422, states
        assert answer.json()["error"].startswith("states must"), states


def moments():
    """Trackers before and after a decision, of each policy, with what is asked of them."""
    for name, (make, _) in POLICIES.items():
        service = Service(make(), checksum="it")
        begun = service.start(StartBody(states=[0, 1], budgets=0.5, seed=0))["tracker"]
        said = service.decide(DecideBody(tracker=begun, states=[0, 1]))["tracker"]
        followed = {"costs": [0, 1], "next_states": [1, 0], "ended": [False, True]}
        seen = service.observe(ObserveBody(tracker=said, **followed))["tracker"]
        if name == "hull":
            yield f"{name}-start", make, "/decide", {"tracker": begun, "states": [0, 1]}
        yield f"{name}-decided", make, "/observe", {"tracker": said, **followed}
        yield f"{name}-seen", make, "/decide", {"tracker": seen, "states": [1, 0]}


MOMENTS = list(moments())
WRONG = (None, True, -1, 1.5, 1e300, "x", [], {}, [2**63, -1])


def places_in(value, place=()):
    yield place
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places_in(value[key], (*place, key))


@pytest.mark.parametrize(
    ("make", "path", "body"), [m[1:] for m in MOMENTS], ids=[m[0] for m in MOMENTS]
)
def test_whatever_is_done_to_a_tracker_is_answered(make, path, body):
    requests = [{"json": body}]
    for place in places_in(body["tracker"]):
        for wrong in WRONG:
            changed = copy.deepcopy(body)
            holder, key = changed, "tracker"
            for part in place:
                holder, key = holder[key], part
            holder[key] = wrong
            requests.append({"json": changed})
    answers = Here(make(), checksum="it").ask_each("POST", path, requests)
    for answer, request in zip(answers, requests, strict=True):
        assert answer.status_code in (200, 422), (request, answer.text)
    assert answers[0].status_code == 200
    assert sum(answer.status_code == 422 for answer in answers) > 200


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": 2}, "tracker.format must be 1"),
        ({"policy": "other"}, "tracker must be of the policy that is served, 'it'"),
        ({"state": {}}, 'state["format"] is missing'),
        ({"state": {"format": 7}}, 'state["format"] must be 1'),
        ({"ended": [False]}, "tracker.episodes must have one for each of 1 episodes"),
        ({"more": 1}, "tracker.more is unknown"),
        ({"step": -1}, "tracker.step must be greater"),
        ({"asked": [0.5, None]}, "tracker.asked[1] must be a number"),
        ({"step": 7}, "tracker.step must be that of tracker.state"),
        ({"ended": [False, True]}, "tracker.ended must be that of tracker.state"),
    ],
)
def test_a_tracker_of_something_else_is_refused(change, told):
    _, make, path, body = MOMENTS[0]
    changed = body | {"tracker": body["tracker"] | change}
    answer = Here(make(), checksum="it").ask("POST", path, json=changed)
    assert answer.status_code == 422
    assert told in answer.json()["error"]


def test_a_step_that_is_not_that_of_the_state_is_refused_of_rows_of_a_log_too():
    encoder = Encoder((StateColumn("age", "numbers"),))
    here = Here(EncodedPolicy(RandomBudgetedPolicy(2, 0.0, 1.0), encoder))
    tracker = here("/start", states=[{"age": 30}], budgets=0.5)["tracker"]
    body = {"tracker": tracker | {"step": 7}, "states": [{"age": 30}]}
    answer = here.ask("POST", "/decide", json=body)
    assert answer.status_code == 422
    assert "tracker.step must be that of tracker.state" in answer.json()["error"]


def test_the_order_of_requests_is_kept():
    here = Here(hull())
    begun = here("/start", states=[0], budgets=1)["tracker"]
    said = here("/decide", tracker=begun, states=[0])["tracker"]
    followed = {"costs": 0, "next_states": [0], "ended": False}
    for path, body, told in (
        ("/observe", {"tracker": begun, **followed}, "/observe must follow /decide"),
        ("/decide", {"tracker": said, "states": [0]}, "decide was called twice"),
        ("/observe", {"tracker": said, **followed, "next_states": [None]}, "its episode goes on"),
        ("/observe", {"tracker": said, **followed, "costs": [0, 0]}, "costs must have one for"),
        ("/observe", {"tracker": said, **followed, "ended": [0]}, "ended[0] must be true or false"),
    ):
        answer = here.ask("POST", path, json=body)
        assert answer.status_code == 422
        assert told in answer.json()["error"]


def test_no_more_rows_and_bytes_than_allowed_are_taken():
    here = Here(hull(), max_rows=3, max_bytes=2_000)
    body = {"states": [0] * 4, "budgets": 0}
    answer = here.ask("POST", "/start", json=body)
    assert (answer.status_code, "at most 3 rows; got 4" in answer.text) == (422, True)
    large = json.dumps({"states": [0] * 1_000, "budgets": 0}).encode()
    assert here.ask("POST", "/start", **json_of(large)).status_code == 413

    async def chunks():
        for _ in range(100):
            yield b" " * 100
            sent.append(1)

    sent = []
    answer = here.ask("POST", "/start", **json_of(chunks()))
    assert answer.status_code == 413
    assert len(sent) < 30
    assert "at most 2,000 bytes" in answer.json()["error"]


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(endpoints, "_PATIENCE", 0.05)

    async def slow():
        yield b"{"
        await asyncio.sleep(20)

    answer = Here(hull()).ask("POST", "/start", **json_of(slow()))
    assert (answer.status_code, "within 0.05 seconds" in answer.text) == (408, True)


def test_a_body_must_say_that_it_is_json():
    answer = Here(hull()).ask("POST", "/start", content=b"{}")
    assert (answer.status_code, "Content-Type: application/json" in answer.text) == (415, True)


@pytest.mark.parametrize(
    "header", [None, "Bearer", "Bearer secret ", "Bearer Secret", "secret", "é"]
)
def test_without_the_token_nothing_is_answered(header):
    here = Here(hull(), token="secret")
    headers = {} if header is None else {"authorization": header.encode()}
    for method, path in (("GET", "/health"), ("GET", "/docs"), ("POST", "/start"), ("GET", "/no")):
        answer = here.ask(method, path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "secret" not in answer.text
    right = {"authorization": "Bearer secret"}
    assert here.ask("GET", "/health", headers=right).status_code == 200


def test_unknown_paths_and_methods_are_told():
    here = Here(hull())
    assert "there is no /no" in here.ask("GET", "/no").json()["error"]
    answer = here.ask("GET", "/start")
    assert (answer.status_code, "does not take GET" in answer.text) == (405, True)
    assert "there is no /start/" in here.ask("POST", "/start/", **json_of(b"{}")).json()["error"]


def test_an_error_that_nobody_expected_has_no_traceback(monkeypatch):
    here = Here(hull())
    monkeypatch.setattr(here.service, "start", lambda body: 1 / 0)
    answer = here.ask("POST", "/start", json={"states": [0], "budgets": 0})
    assert answer.status_code == 500
    assert answer.json() == {"error": "the service failed; its stderr says more."}


# The log


def test_the_log_has_a_line_for_each_episode_and_step(tmp_path):
    log = tmp_path / "log.jsonl"
    here = Here(prices(), log=log)
    assert log.read_text() == ""
    tracker = here("/start", states=[0, 0], budgets=[0.5, 1.0], episodes=["a", "b"])["tracker"]
    first = here("/decide", tracker=tracker, states=[0, 0])
    followed = {"costs": [0.25, 1], "next_states": [1, None], "ended": [False, True]}
    seen = here("/observe", tracker=first["tracker"], **followed)
    second = here("/decide", tracker=seen["tracker"], states=[1, None], set_budget=[0.75, 0])
    here("/observe", tracker=second["tracker"], costs=2, next_states=[None, None], ended=True)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT.*\+00:00", line.pop("time")) for line in lines)
    names = ("episode", "step", "budget", "state", "action", "status", "cost", "ended")
    (a, b), (at_a, at_b) = first["actions"], first["status"]
    assert [tuple(line[name] for name in names) for line in lines] == [
        ("a", 0, 0.5, [0], a, at_a, 0.25, False),
        ("b", 0, 1.0, [0], b, at_b, 1.0, True),
        ("a", 1, 0.75, [1], second["actions"][0], second["status"][0], 2.0, True),
    ]
    assert [line.pop("moved", False) for line in lines] == [False, False, True]
    assert all({*line} == {*names, "format"} for line in lines)
    assert {line["format"] for line in lines} == {1}


def test_what_the_watch_cannot_read_is_not_logged(tmp_path):
    here = Here(hull(), log=tmp_path / "log")
    tracker = here("/start", states=[0, 0], budgets=0.5)["tracker"]
    said = here("/decide", tracker=tracker, states=[0, 0])["tracker"]
    followed = {"next_states": [0, 0], "ended": True}
    for wrong in ({"costs": [0, -1]}, {"costs": 0, "tracker": said | {"asked": [0.5, -1]}}):
        body = {"tracker": said, **followed, **wrong}
        answer = here.ask("POST", "/observe", json=body)
        assert answer.status_code == 422
        assert "must be from 0 on where a log is kept" in answer.json()["error"]
        assert "got -1 at [1]." in answer.json()["error"]
    assert (tmp_path / "log").read_text() == ""
    here("/observe", tracker=said, costs=0, **followed)
    Here(hull())("/observe", tracker=said, costs=[0, -1], **followed)


def test_states_of_a_log_are_logged_as_numbers(tmp_path):
    encoder = Encoder((StateColumn("age", "numbers"), StateColumn("day", "text", ("Mon", "Tue"))))
    here = Here(EncodedPolicy(RandomBudgetedPolicy(2, 0.0, 1.0), encoder), log=tmp_path / "log")
    row = {"age": 30, "day": "Tue"}
    tracker = here("/start", states=[row], budgets=0.5)["tracker"]
    said = here("/decide", tracker=tracker, states=[row])
    here("/observe", tracker=said["tracker"], costs=0, next_states=[None], ended=True)
    assert json.loads((tmp_path / "log").read_text())["state"] == [30.0, 0.0, 1.0]


def test_writers_side_by_side_write_whole_lines_to_one_log(tmp_path):
    n, path = 50, tmp_path / "log"
    last = {"states": [0] * n, "actions": [0] * n, "status": ["TIGHT"] * n}

    def write(name):
        log = EpisodeLog(path)  # which opens the file for each write, as another process does
        common = {"format": 1, "policy": "", "state": {}, "step": 1, "last": last}
        of_all = {"episodes": [name] * n, "asked": [0.5] * n, "ended": [False] * n}
        carried = Carried.model_validate(common | of_all)
        for _ in range(40):
            log.add(carried, np.zeros((n, 20)), np.zeros(n), np.zeros(n, bool))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, "abcd"))
    found = [json.loads(line)["episode"] for line in path.read_text().splitlines()]
    assert sorted(found) == sorted("abcd" * 40 * n)


def test_what_cannot_be_logged_is_told_and_can_be_sent_again(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    here = Here(hull(), log=folder / "log")
    tracker = here("/start", states=[0], budgets=0.5)["tracker"]
    said = here("/decide", tracker=tracker, states=[0])
    body = {"tracker": said["tracker"], "costs": 0, "next_states": [0], "ended": False}
    (folder / "log").unlink()
    folder.rmdir()
    answer = here.ask("POST", "/observe", json=body)
    assert (answer.status_code, "cannot be written" in answer.text) == (503, True)
    folder.mkdir()
    here("/observe", **body)
    assert len((folder / "log").read_text().splitlines()) == 1
    with pytest.raises(bmdp.StoreError, match="cannot be written"):
        Service(hull(), log=tmp_path / "nowhere" / "log")


# What is said about the service


def test_the_description_has_examples_that_a_service_answers_as_they_say():
    here = Here(hull(), checksum="0123456789abcdef")
    schema = here.ask("GET", "/openapi.json").json()
    assert [*schema["paths"]] == ["/start", "/decide", "/observe", "/frontier", "/health"]
    for path, methods in schema["paths"].items():
        ((method, operation),) = methods.items()
        content = operation["responses"]["200"]["content"]["application/json"]
        assert "$ref" in content["schema"]
        assert content["example"]
        if method == "post":
            asked = operation["requestBody"]["content"]["application/json"]["example"]
            assert here(path, **asked) == content["example"]


def test_the_page_needs_nothing_from_elsewhere():
    answer = Here(hull()).ask("GET", "/docs")
    assert answer.headers["content-type"].startswith("text/html")
    assert not re.search(r"(src|href)=['\"]?(https?:)?//|<script|@import", answer.text)
    assert all(f"POST {path}<" in answer.text for path in ("/start", "/decide", "/observe"))
