"""The process of `dsrd serve`: binds, recovers in the background, answers, and stops in good order."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from dsrd.decoding import read_text
from dsrd.errors import DsrdError, MachineError
from dsrd.live.engine import Engine
from dsrd.live.recovery import Progress
from dsrd.live.replica import Replica
from dsrd.live.server.app import create_app
from dsrd.live.server.guard import Limits
from dsrd.live.server.service import Live, NotReadyError, Service
from dsrd.live.settings import LiveSettings

TOKEN = "DSRD_TOKEN"
"""The environment variable with the token."""
LEAST_TOKEN = 16  # characters
BACKLOG = 2048  # connections that wait to be accepted
PATIENCE = 30  # seconds that running requests have when the server stops


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What a server serves, where, and how much it takes."""

    data: Path
    run: Path | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    read_only: bool = False
    settings: LiveSettings = field(default_factory=LiveSettings)
    limits: Limits = field(default_factory=Limits)

    def open(self, progress: Progress) -> Live:
        """The engine, or the replica."""
        if self.read_only:
            return Replica(self.data, progress)
        return Engine(self.data, self.run, self.settings, progress)


class _Server(uvicorn.Server):
    """Leaves signals to `serve`: uvicorn would end the process with the signal, here it exits with 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(what: Serving, note: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; then finish what is running, take a snapshot and return."""
    with _bound(what) as listening:
        service = Service(what.open)
        app = create_app(service, what.limits, what.token)
        server = _Server(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                lifespan="off",
                server_header=False,
                timeout_keep_alive=60,
                timeout_graceful_shutdown=PATIENCE,
            )
        )

        def stop(*_: object) -> None:
            server.should_exit = service.stopping = True

        with _on_signals(stop):
            note(f"listening on {_address(listening)}")
            if what.token is None:
                note(
                    f"no token: only programs of this machine may ask; set {TOKEN} or a token file to serve others"
                )
            service.start(failed=stop)
            try:
                server.run(sockets=[listening])
            finally:
                service.close()
    if service.error is not None and not isinstance(service.error, NotReadyError):
        raise service.error


def read_token(file: Path | None) -> str | None:
    """The token in a file, or in the environment; None if there is none."""
    if file is None:
        where, token = TOKEN, os.environ.get(TOKEN, "")
        if not token:
            return None
    else:
        where = str(file)
        token = read_text(file)
    token = token.strip()
    if len(token) < LEAST_TOKEN or not token.isascii() or any(letter.isspace() for letter in token):
        raise DsrdError(f"{where}: give a token of {LEAST_TOKEN} or more letters and digits, without spaces")
    return token


def _bound(what: Serving) -> socket.socket:
    """A listening socket; without a token only on an address that other machines do not reach."""
    try:
        family, _, _, _, address = socket.getaddrinfo(what.host, what.port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError, OverflowError) as error:
        raise DsrdError(
            f"{what.host}:{what.port}: no such address ({error}); choose another host or port"
        ) from None
    if what.token is None and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise DsrdError(
            f"{what.host}: without a token the server listens on 127.0.0.1 only; set a token to serve others"
        )
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise MachineError(f"{what.host}:{what.port}: cannot listen there ({error.strerror or error})") from None
    return listening


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


@contextmanager
def _on_signals(stop: Callable[..., None]) -> Iterator[None]:
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
