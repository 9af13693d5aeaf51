"""Asking a service: in this process, or one that listens."""

import asyncio
import json
import urllib.error
import urllib.request

import httpx
import numpy as np

from bmdp.deployment import Service, application
from bmdp.exact.price_dial import price_dial
from bmdp.exact.textbook import branches
from bmdp.policies import HullPolicy, MultiplierPolicy, Portfolio, RandomBudgetedPolicy, TabularQ

RISK = TabularQ(  # two states: a risk that pays 10 and costs 1, and one that pays 1 and costs 0.5
    q_r=[[[0.0, 0.0], [10.0, 10.0]], [[0.0, 0.0], [1.0, 1.0]]],
    q_c=[[[0.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [0.5, 0.5]]],
)


def hull():
    return HullPolicy(RISK, beta_grid=[0.0, 1.0])


def prices():
    return MultiplierPolicy(price_dial(branches().model, prices=(np.inf, 5.0, 0.0)))


def coin():
    some = RandomBudgetedPolicy(3, 0.0, 1.0)
    return Portfolio.coin(some, hull(), cheap_cost=0.1, dear_cost=1.0)


class Here:
    """A service in this process, asked over ASGI."""

    def __init__(self, policy, *, token=None, max_bytes=1_000_000, **settings):
        self.service = Service(policy, **settings)
        self.app = application(self.service, token=token, max_bytes=max_bytes)

    def ask(self, method, path, **request):
        return self.ask_each(method, path, [request])[0]

    def ask_each(self, method, path, requests):
        async def asked():
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                return [await client.request(method, path, **request) for request in requests]

        return asyncio.run(asked())

    def __call__(self, path, **body):
        answer = self.ask("POST", path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


class There:
    """A service that listens."""

    def __init__(self, address, token=None):
        self.address, self.token = address, token

    def ask(self, path, body=None, headers=()):
        """Status and answer; a body that can be iterated is sent in chunks."""
        own = {"Content-Type": "application/json"} if body is not None else {}
        if self.token is not None:
            own["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.address + path, body, own | dict(headers))
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def __call__(self, path, **body):
        status, answer = self.ask(path, json.dumps(body).encode())
        assert status == 200, answer
        return answer


def paths(n_states, n_episodes, n_steps=6, seed=0):
    """What happens to episodes, whatever they do: states, costs, and which have ended."""
    rng = np.random.default_rng(seed)
    states = rng.integers(n_states, size=(n_steps + 1, n_episodes))
    ended = np.cumsum(rng.random((n_steps, n_episodes)) < 0.15, axis=0) > 0
    return states, rng.random((n_steps, n_episodes)).round(2), ended


def played(policy, world, budgets, seed, move=None):
    """Actions, next budgets, statuses, and budgets held, as a policy plays in Python."""
    states, costs, ended = world
    tracker, found = policy.start(states[0], budgets, np.random.default_rng(seed)), []
    for k in range(len(costs)):
        if move is not None and k == move[0]:
            tracker.set_budget(move[1])
        decision = tracker.decide(states[k])
        tracker.observe(costs[k], states[k + 1], ended[k])
        names = [("INFEASIBLE", "TIGHT", "SLACK")[s] for s in decision.status]
        held = tracker.budgets.tolist()
        found.append((decision.action.tolist(), decision.next_budget.tolist(), names, held))
    return found


def served(services, world, budgets, seed, move=None):
    """The same by services that take turns at requests, through JSON. Ended episodes send null."""
    states, costs, ended = world
    turn, over, found = 0, np.zeros(states.shape[1], bool), []

    def ask(path, **body):
        nonlocal turn
        turn += 1
        return services[turn // 3 % len(services)](path, **body)

    def rows(k):
        return [None if o else int(s) for s, o in zip(states[k], over, strict=True)]

    budgets = budgets if np.isscalar(budgets) else list(budgets)
    tracker = ask("/start", states=states[0].tolist(), budgets=budgets, seed=seed)["tracker"]
    for k in range(len(costs)):
        if over.all():
            break
        moved = {"set_budget": move[1]} if move is not None and k == move[0] else {}
        said = ask("/decide", tracker=tracker, states=rows(k), **moved)
        over = over | ended[k]
        seen = ask(
            "/observe",
            tracker=said["tracker"],
            costs=costs[k].tolist(),
            next_states=rows(k + 1),
            ended=ended[k].tolist(),
        )
        tracker = seen["tracker"]
        found.append((said["actions"], said["next_budgets"], said["status"], seen["budgets"]))
    return found
