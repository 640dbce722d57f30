"""`Guard`: what every request passes before it is answered: who may ask, how much, how many at a time."""

from __future__ import annotations

import hmac
import logging
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dsrd.live.server.metrics import Requests

LOCAL = ("localhost", "127.0.0.1", "::1", "[::1]")
OPEN = ("/healthz", "/readyz")  # without a token: they tell nothing about the stream
PAGE = "/page/"

log = logging.getLogger("dsrd.live")


@dataclass(frozen=True)
class Limits:
    """How much a server takes."""

    body: int = 16 << 20  # bytes of a request
    batch: int = 10_000  # events or pairs of a request
    partners: int = 1_000  # k
    body_seconds: float = 30.0  # for a body to come: a client that stalls must not keep its place
    queue: int = 512  # requests at a time
    retry_after: int = 1  # seconds


class Guard:
    """Refuses requests that may not ask, are too large or too many; counts and times all; turns every failure into
    one line of JSON."""

    def __init__(self, app: ASGIApp, limits: Limits, requests: Requests, token: str | None) -> None:
        """Without a token, only programs of this machine may ask, and no page of another site in its browsers."""
        self._app, self._limits, self._requests = app, limits, requests
        self._token = None if token is None else token.encode()
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        refusal = self._refusal(scope)
        counted = scope["method"] == "POST"
        self._running += counted
        try:
            if refusal is not None:
                await _answer(sent, *refusal)
            else:
                await self._app(scope, receive, sent)
        except Exception as error:
            log.exception("a request failed")
            if not status:
                await _answer(
                    sent, 500, f"{type(error).__name__}: {error} (a bug in dsrd; see the log of the server)"
                )
        finally:
            self._running -= counted
            self._requests.count(scope, status, time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> tuple[int, str, dict[str, str]] | None:
        """(status, error, headers) of a request that is not let through."""
        headers = dict(scope["headers"])
        path = scope["path"]
        if self._token is None:
            fault = _foreign(headers)
            if fault:
                return 403, fault, {}
        elif not (path in OPEN or path == "/" or path.startswith(PAGE)):
            kind, _, given = headers.get(b"authorization", b"").partition(b" ")
            if kind.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self._token):
                fault = "the token is missing or wrong; send the header `Authorization: Bearer TOKEN`"
                return 401, fault, {"WWW-Authenticate": "Bearer"}
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self._limits.body:
            return 413, too_large(self._limits), {"Connection": "close"}
        if scope["method"] == "POST" and self._running >= self._limits.queue:
            fault = f"{self._running} requests are being answered; try again later"
            return 429, fault, {"Retry-After": str(self._limits.retry_after)}
        return None


def too_large(limits: Limits) -> str:
    """The error for a body above the limit."""
    return f"the body is larger than {limits.body / (1 << 20):g} MiB; send it in parts"


def _foreign(headers: dict[bytes, bytes]) -> str | None:
    """Why a request to a server without a token does not come from this machine's own programs."""
    host = headers.get(b"host", b"localhost").decode("latin-1")
    if _host_name(f"//{host}") not in LOCAL:
        return (
            f"host {host[:60]!r} is not this machine; start the server with a token to be asked under other names"
        )
    origin = headers.get(b"origin", b"").decode("latin-1")
    if origin and _host_name(origin) not in LOCAL:
        return f"origin {origin[:60]!r}: pages of other sites may not ask"
    return None


def _host_name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


async def _answer(send: Send, status: int, error: str, headers: dict[str, str] | None = None) -> None:
    body = orjson.dumps({"error": error})
    lines = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
    encoded = [(name.lower().encode(), value.encode()) for name, value in lines.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
