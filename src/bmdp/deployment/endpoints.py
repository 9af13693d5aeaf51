"""A service behind HTTP: the endpoints, and a guard before anything is parsed.

The guard looks at the token and counts bytes; FastAPI checks bodies by the models of
`bmdp.deployment.service`, and describes them at /openapi.json. All that is refused is told as
`{"error": ...}`, in one line.
"""

from __future__ import annotations

import asyncio
import hmac
import importlib.util
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bmdp import __version__
from bmdp.deployment.service import (
    DecideBody,
    Decided,
    Frontier,
    FrontierBody,
    Health,
    ObserveBody,
    Observed,
    Plain,
    Refused,
    Service,
    StartBody,
    Started,
)
from bmdp.errors import BmdpError, MissingDependency, PolicyError, StoreError
from bmdp.kinds import checked
from bmdp.policies import HullPolicy, TabularQ

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.responses import Response

MAX_BYTES = 8_000_000
"""Bytes of a request, at most."""

_PATIENCE = 30.0  # seconds in which the body of a request must be there
_REWORDED = {
    "Input should": "must",
    "String should": "must",
    "List should have at least 1 item after validation, not 0": "must have at least one",
    "Field required": "is missing",
    "a valid dictionary or object to extract fields from": "a JSON object",
    "a valid boolean": "true or false",
    "valid integer": "whole number",
    "a valid ": "a ",
}
"""What pydantic says, in words for those who write JSON."""

_TYPES = ("float", "bool", "int")  # words of pydantic for alternatives


@checked
def application(
    service: Service, *, token: str | None = None, max_bytes: int = MAX_BYTES
) -> FastAPI:
    """Returns a service as an application for uvicorn, or for any other ASGI server.

    Args:
        service: what the endpoints do.
        token: that requests must have in `Authorization: Bearer TOKEN`; None for none.
        max_bytes: of the body of a request, at most.

    Raises:
        MissingDependency: if FastAPI is not installed.

    >>> q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])
    >>> app = application(Service(HullPolicy(q, beta_grid=[0.0, 1.0])))
    >>> sorted(app.openapi()["paths"])
    ['/decide', '/frontier', '/health', '/observe', '/start']
    """
    require_fastapi()
    from fastapi import FastAPI

    pages: Any = {"docs_url": None, "redoc_url": None, "redirect_slashes": False}
    app = FastAPI(title="bmdp", version=__version__, **pages)
    app.add_middleware(_Guard, token=token, max_bytes=max_bytes)
    _add_errors(app)
    _add_endpoints(app, service)
    _add_description(app)
    return app


def require_fastapi() -> None:
    """Checks that the extra is installed.

    Raises:
        MissingDependency: saying how to install it.
    """
    for name in ("fastapi", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            raise MissingDependency(f"{name} must be installed to serve: pip install 'bmdp[serve]'")


def _add_endpoints(app: FastAPI, service: Service) -> None:
    """Adds what can be asked.

    Decisions are made on the loop of events, one after the other: they are short, compiled kernels
    that share threads must not run side by side, and a pool of threads took longer for one episode.
    """
    told: Any = {code: {"model": Refused} for code in (401, 408, 413, 415, 422)}

    @app.post("/start", response_model=Started, responses=told)
    async def start(body: StartBody) -> Any:
        """Start episodes."""
        return _answer(service.start(body))

    @app.post("/decide", response_model=Decided, responses=told)
    async def decide(body: DecideBody) -> Any:
        """Decide at states; move the dial before, if `set_budget` is given."""
        return _answer(service.decide(body))

    @app.post("/observe", response_model=Observed, responses={**told, 503: {"model": Refused}})
    async def observe(body: ObserveBody) -> Any:
        """Tell what followed."""
        return _answer(service.observe(body))

    @app.post("/frontier", response_model=Frontier, responses={**told, 404: {"model": Refused}})
    async def frontier(body: FrontierBody) -> Any:
        """Ask for the frontier of a state: the best reward that is expected for each cost."""
        found = service.frontier(body)
        if found is None:
            kind = type(service.policy).__name__
            return _refusal(404, f"{kind} has no frontier: it estimates no values of states.")
        return _answer(found)

    @app.get("/health", response_model=Health, responses={401: {"model": Refused}})
    async def health() -> Any:
        """Ask how the service is, and which policy it plays."""
        return _answer(service.health())


def _answer(content: Any, status: int = 200) -> Response:
    from starlette.responses import Response

    try:
        text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    except ValueError:  # JSON has no others
        raise PolicyError("what the tracker holds must be finite numbers.") from None
    return Response(text, status, media_type="application/json")


def _refusal(status: int, error: Any) -> Response:
    return _answer({"error": " ".join(str(error).split())}, status)


def _add_errors(app: FastAPI) -> None:
    """Has errors told in one line; of those that nobody expected, stderr has the traceback."""
    from fastapi.exceptions import RequestValidationError
    from starlette.exceptions import HTTPException

    async def of_library(request: Any, error: Any) -> Response:
        return _refusal(503 if isinstance(error, StoreError) else 422, error)

    async def of_body(request: Any, error: Any) -> Response:
        return _refusal(422, _first_error(error.errors()))

    async def of_http(request: Any, error: Any) -> Response:
        path = request.url.path
        told = {
            400: "the body cannot be read: it is no UTF-8, too deep, or has a number of too many "
            "digits.",
            404: f"there is no {path}; GET /docs says what there is.",
            405: f"{path} does not take {request.method}; GET /docs says what it takes.",
        }
        return _refusal(error.status_code, told.get(error.status_code, error.detail))

    async def of_nobody(request: Any, error: Any) -> Response:
        return _refusal(500, "the service failed; its stderr says more.")

    app.add_exception_handler(BmdpError, of_library)
    app.add_exception_handler(RequestValidationError, of_body)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(Exception, of_nobody)


def _first_error(errors: Sequence[Any]) -> str:
    """Says in one line why a body is refused."""
    first = max(errors, key=lambda error: len(error["loc"]))  # of alternatives, the nearest
    if first["type"] == "json_invalid":
        why = first.get("ctx", {}).get("error", "it cannot be read")
        return f"the body must be JSON: {why}, at character {first['loc'][-1]}."
    if first["type"] == "missing" and len(first["loc"]) == 1:  # an empty body, or null
        return "the body must be a JSON object."
    place = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}"
        for part in first["loc"][1:]
        if isinstance(part, int) or (part.isidentifier() and part not in _TYPES)
    )
    message = first["msg"]
    for theirs, ours in _REWORDED.items():
        message = message.replace(theirs, ours)
    where = place.removeprefix(".") or "the body"
    return f"{where} {'is unknown' if first['type'] == 'extra_forbidden' else message}."


# The guard

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class _Guard:
    """Lets requests through that have the token, a body of JSON, and not too many bytes."""

    def __init__(self, app: Any, token: str | None, max_bytes: int) -> None:
        self._app, self._max_bytes = app, max_bytes
        self._wanted = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands a request on, with its whole body, or refuses it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if self._wanted is not None and not hmac.compare_digest(
            headers.get(b"authorization", b""), self._wanted
        ):
            await _refuse(send, 401, "this service needs its token: Authorization: Bearer TOKEN.")
            return
        try:
            body = await self._body(headers, receive)
        except TimeoutError:
            await _refuse(send, 408, f"the body must be there within {_PATIENCE:g} seconds.")
            return
        if body is None:
            told = f"the body must have at most {self._max_bytes:,} bytes (--max-bytes)."
            await _refuse(send, 413, told)
            return
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if scope["method"] == "POST" and kind != b"application/json":
            await _refuse(send, 415, "the body must be JSON: Content-Type: application/json.")
            return
        try:
            if b"NaN" in body or b"Infinity" in body:  # perhaps in a text
                json.loads(body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            await _refuse(send, 422, f"the body must be JSON: {error}.")
            return
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def again() -> MutableMapping[str, Any]:
            return next(messages, None) or await receive()

        await self._app(scope, again, send)

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes | None:
        """The whole body; None if it is too large, of which no more is read than that."""
        said = headers.get(b"content-length", b"0")
        if not said.isdigit() or int(said) > self._max_bytes:
            return None
        parts, n_bytes, is_more = list[bytes](), 0, True
        async with asyncio.timeout(_PATIENCE):
            while is_more:
                message = await receive()
                parts.append(message.get("body", b""))
                n_bytes += len(parts[-1])
                is_more = message["type"] == "http.request" and message.get("more_body", False)
                if n_bytes > self._max_bytes:
                    return None
        return b"".join(parts)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number there")


async def _refuse(send: Send, status: int, error: str) -> None:
    """Answers without asking the application, and closes the connection."""
    content = json.dumps({"error": error}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    headers.append((b"content-length", str(len(content)).encode()))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


# What is said about the service


def _add_description(app: FastAPI) -> None:
    """Adds /docs, and examples to /openapi.json. These are made when somebody looks."""
    from starlette.responses import HTMLResponse

    describe = app.openapi

    def openapi() -> Plain:
        if app.openapi_schema is None:
            _add_examples(describe())
        return describe()

    async def docs(request: Any) -> Response:
        return HTMLResponse(_page(openapi()))

    app.openapi = openapi  # type: ignore[method-assign]
    app.add_route("/docs", docs, include_in_schema=False)


def _add_examples(schema: Plain) -> None:
    """Adds an episode of one step, as a small policy plays it, to the description."""
    q = TabularQ(q_r=[[[0.0, 0.0], [10.0, 10.0]]], q_c=[[[0.0, 0.0], [1.0, 1.0]]])  # type: ignore[arg-type]
    service = Service(HullPolicy(q, np.array([0.0, 1.0])), checksum="0123456789abcdef")
    first: Plain = {"states": [0, 0], "budgets": [0.0, 0.5], "seed": 0, "episodes": ["a", "b"]}
    started = service.start(StartBody(**first))
    second = {"tracker": started["tracker"], "states": [0, 0]}
    decided = service.decide(DecideBody(**second))
    third = {"tracker": decided["tracker"], "costs": [0.0, 1.0]}
    third |= {"next_states": [0, None], "ended": [False, True]}
    observed = service.observe(ObserveBody(**third))
    look: Plain = {"state": 0}
    episode = {
        "/start": (first, started),
        "/decide": (second, decided),
        "/observe": (third, observed),
        "/frontier": (look, service.frontier(FrontierBody(**look))),
        "/health": (None, service.health()),
    }
    for path, (asked, answered) in episode.items():
        operation = next(iter(schema["paths"][path].values()))
        if asked is not None:
            operation["requestBody"]["content"]["application/json"]["example"] = asked
        operation["responses"]["200"]["content"]["application/json"]["example"] = answered


def _page(schema: Plain) -> str:
    """A page that needs nothing from elsewhere: what can be asked, with examples."""
    parts = []
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2>{method.upper()} {escape(path)}</h2>")
            parts.append(f"<p>{escape(operation['description'])}</p>")
            asked = operation.get("requestBody", {}).get("content", {}).get("application/json")
            answered = operation["responses"]["200"]["content"]["application/json"]
            for title, held in (("Request", asked), ("Answer", answered)):
                if held is not None:
                    text = escape(json.dumps(held["example"], indent=1))
                    parts.append(f"<h3>{title}</h3><pre>{text}</pre>")
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>bmdp serve</title>"
        "<style>body{font:16px sans-serif;max-width:50em;margin:2em auto;padding:0 1em}"
        "pre{background:#8882;padding:1em;overflow:auto}</style><h1>bmdp serve</h1>"
        "<p>All types and bounds: <a href='openapi.json'>openapi.json</a>. A tracker goes back as "
        f"it came.</p>{''.join(parts)}</html>"
    )
