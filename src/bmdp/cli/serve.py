"""`bmdp serve`: a policy as a small HTTP service."""

from __future__ import annotations

import ipaddress
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from bmdp.cli.options import INTERRUPTED, RunPath
from bmdp.errors import ConfigError, StoreError

_GRACE = 5  # seconds for requests under way when the service is to stop
_MOST_CONNECTIONS = 1_000  # at once; more are told to come again


def serve(  # noqa: PLR0913
    policy: RunPath,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 8000,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="To listen on; 0.0.0.0 for all of the machine.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            envvar="BMDP_TOKEN",
            show_envvar=True,
            help="That requests must have. Other users of the machine see it in a command line.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its first line is the token.")
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Let anyone who reaches --host ask.")
    ] = False,
    log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Add a JSON line for each step of each episode."),
    ] = None,
    max_bytes: Annotated[int, typer.Option(min=1_000, help="Of a request.")] = 8_000_000,
    max_rows: Annotated[int, typer.Option(min=1, help="Episodes of a request.")] = 10_000,
) -> None:
    """Decide over HTTP, by a policy or a training run, until Ctrl-C.

    The service keeps no sessions: what an episode needs travels with it.
    """
    from bmdp.deployment.endpoints import application, require_fastapi
    from bmdp.deployment.service import Service  # fastapi is an extra

    require_fastapi()
    secret = _token(token, token_file)
    if secret is None and not no_token and not _is_this_machine(host):
        raise ConfigError(
            f"--host {host} can be reached from other machines: give --token-file FILE or "
            "BMDP_TOKEN, or say --no-token."
        )
    if secret is not None and no_token:
        raise ConfigError("--no-token and a token were given: choose one.")
    service = Service.open(policy, log=log, max_rows=max_rows)
    app = application(service, token=secret, max_bytes=max_bytes)
    app.openapi()  # plays a step, so that the first request need not wait for compiled code
    with _listening(host, port) as listener:
        address = _address(listener)
        low, high = service.policy.budget_range
        typer.echo(
            f"serving {policy} ({type(service.policy).__name__}, budgets {low:g} to {high:g}) at "
            f"{address}; try: curl {address}/health; stop with Ctrl-C",
            err=True,
        )
        _run(app, listener)


def _run(app: Any, listener: socket.socket) -> None:
    """Serves until the process is told to stop."""
    import uvicorn

    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,  # errors go to stderr as they are
        log_level="error",
        lifespan="off",
        ws="none",
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_GRACE,
    )
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except SystemExit as stop:
        if stop.code:
            raise
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, before)
    typer.echo("stopped", err=True)


def _token(given: str | None, file: Path | None) -> str | None:
    """The token, without saying it anywhere."""
    if given is not None and file is not None:
        raise ConfigError("--token (or BMDP_TOKEN) and --token-file were given: choose one.")
    if file is not None:
        try:
            given = (file.read_text().splitlines() or [""])[0].strip()
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"--token-file {file} cannot be read: {error}.") from error
    if given is not None and not (given and given.isascii() and given.isprintable()):
        raise ConfigError(
            "the token must be ASCII characters, at least one: "
            'python -c "import secrets; print(secrets.token_urlsafe())" makes one.'
        )
    return given


def _is_this_machine(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(
            f"--host {host} --port {port} cannot be listened on: {why}. Another --port, or 0 for "
            "any that is free?"
        ) from error
    with listener:
        # Connections have it too. Otherwise an answer, which is sent in two parts, waits 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
