"""The page of a server, and what it reads: `/v1/feed`, `/v1/recent`, `/v1/nodes`, `/v1/node/NAME`, `/v1/model`.

`/v1/feed` is a stream of server-sent events. It keeps nothing for its readers: each asks the engine's `Watch` once
a second for what is newer than the last event it has, so a slow browser misses events, which it is told, and costs
no memory. A browser that comes back says with `Last-Event-ID` where it was.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Header, HTTPException, Query
from fastapi.responses import Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from dsrd.errors import DsrdError
from dsrd.live.about import Readable, Typical, UnknownNodeError, about_event, about_model, about_node

READERS = 32  # browsers that may listen at the same time
EVENTS = 200  # in one message
PERIOD = 1.0  # seconds between two messages
CHECKED = 0.1  # seconds until a server that stops is noticed
HISTORY = 300  # seconds of events per second that a new reader gets
TYPICAL = 1_000  # latest events that say what is usual

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
FILES = ("index.html", "page.css", "page.js", "plot.js", "feed.js")
AFTER = Query(None, ge=0, description="Events after this sequence number; default: the latest 200.")


def page_router() -> APIRouter:
    """The files of the page. They hold nothing of the stream, so they need no token."""
    router = APIRouter(include_in_schema=False)
    folder = files("dsrd.live").joinpath("page")
    for name in FILES:
        text = folder.joinpath(name).read_text(encoding="utf-8")
        kind = TYPES[name.rpartition(".")[2]]
        answer = Response(text, media_type=kind, headers=HEADERS)
        path = "/" if name == "index.html" else f"/page/{name}"
        router.add_api_route(path, _constant(answer), methods=["GET"])
    return router


def _constant(answer: Response) -> Callable[[], Response]:
    return lambda: answer


def feed_router(
    engine: Readable, health: Callable[[], dict[str, Any]] = dict, stopping: Callable[[], bool] = lambda: False
) -> APIRouter:
    """What the page asks. `health` adds to each message of the feed; `stopping` ends the feeds of a server."""
    router = APIRouter(prefix="/v1", tags=["page"])
    _add_feed(router, engine, Feeds(engine, health, stopping))
    _add_questions(router, engine)
    return router


def _add_feed(router: APIRouter, engine: Readable, feeds: Feeds) -> None:
    @router.get("/feed", response_class=StreamingResponse, responses=FEED)
    async def feed(
        after: int | None = AFTER,
        last_event_id: str | None = Header(None, max_length=20),
    ) -> StreamingResponse:
        """Events and the state of the server as they come, as server-sent events: `events` and `state`."""
        _ = engine.watch  # an error now, not in the middle of an answer, while the engine is not ready
        if feeds.readers >= READERS:
            raise HTTPException(429, f"{READERS} readers listen already; try again later", {"Retry-After": "10"})
        if last_event_id is not None and last_event_id.isdecimal():
            after = int(last_event_id)
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(feeds.messages(after), media_type="text/event-stream", headers=headers)


def _add_questions(router: APIRouter, engine: Readable) -> None:
    @router.get("/recent")
    def recent(
        seconds: float = Query(3600, gt=0, le=3600, description="By the clock of the server."),
        k: int = Query(20, ge=1, le=50, description="How many events."),
    ) -> dict[str, Any]:
        """The most surprising events of the last hour, and which factor made them so."""
        watch = engine.watch
        events = watch.most_surprising(seconds, k)
        typical = Typical.of(watch.latest(most=TYPICAL))
        with engine.reading():
            told = [about_event(event, typical, engine.live) for event in events]
            return {"seq": engine.live.timeline.seq, "seconds": seconds, "typical": vars(typical), "events": told}

    @router.get("/nodes")
    def nodes(
        q: str = Query("", max_length=200, description="Part of a name."), k: int = Query(10, ge=1, le=50)
    ) -> dict[str, Any]:
        """Nodes whose name contains a text, for a search box."""
        with engine.reading():
            timeline = engine.live.timeline
            return {"seq": timeline.seq, "names": [name for name, _ in timeline.nodes.starting_with(q, k)]}

    @router.get("/model")
    def model() -> dict[str, Any]:
        """Which model answers, its settings, and the half-lives it has learned."""
        with engine.reading():
            return {"seq": engine.live.timeline.seq, **about_model(engine.live)}

    @router.get("/node/{name:path}", responses={404: {"description": "The stream knows no such name."}})
    def node(name: str, k: int = Query(10, ge=1, le=50)) -> dict[str, Any]:
        """A node's likely partners with probabilities, its latest events, and the nodes nearest to it."""
        try:
            return about_node(engine, name.strip(), k)
        except UnknownNodeError as error:
            raise HTTPException(404, str(error)) from None
        except DsrdError as error:
            raise HTTPException(422, str(error)) from None


FEED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "`event: state` once a second, `event: events` when there are new ones.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    429: {"description": "Too many readers."},
}


class Feeds:
    """The messages that each reader of the feed gets."""

    def __init__(
        self, engine: Readable, health: Callable[[], dict[str, Any]], stopping: Callable[[], bool]
    ) -> None:
        self._engine, self._health, self._stopping = engine, health, stopping
        self.readers = 0

    async def messages(self, after: int | None) -> AsyncIterator[str]:
        """Messages from an event on, until the reader goes or the server stops."""
        self.readers += 1
        try:
            yield "retry: 2000\n\n"
            second = int(time.time()) - HISTORY
            while not self._stopping():
                texts, after, second = await run_in_threadpool(self._next, after, second)
                for text in texts:
                    yield text
                await self._pause()
        except DsrdError:  # the engine has stopped; a reader tries again by itself
            return
        finally:
            self.readers -= 1

    async def _pause(self) -> None:
        waited = 0.0
        while waited < PERIOD and not self._stopping():
            await asyncio.sleep(CHECKED)
            waited += CHECKED

    def _next(self, after: int | None, second: int) -> tuple[list[str], int, int]:
        """The messages about what came after an event and after a second, and where the next ones begin."""
        watch, texts = self._engine.watch, []
        now = int(time.time())
        rates = [pair for pair in watch.rates.after(second) if pair[0] < now]  # the present second is not over
        message = self._state() | {"at": now, "since": second, "rates": rates}
        last = message["seq"]
        if after is not None and after > last:  # of a log that has been replaced
            after = None
        events = watch.latest(after or 0, EVENTS)
        if events:
            typical = Typical.of(watch.latest(most=TYPICAL))
            with self._engine.reading():
                told = [about_event(event, typical, self._engine.live) for event in events]
            last = max(last, events[-1].seq)
            texts.append(_message("events", {"events": told, "first": after is None}, id=events[-1].seq))
        texts.append(_message("state", message))
        return texts, events[-1].seq if events else after or 0, now - 1

    def _state(self) -> dict[str, Any]:
        state, watch = self._engine.state(), self._engine.watch
        drift, failure = watch.drift(), self._engine.failure
        with self._engine.reading():
            present = self._engine.live.timeline.present
            dated, written = present.dates, present.written_time
        known = math.isfinite(state.time)
        return {
            "seq": state.seq,
            "events": state.events,
            "nodes": state.nodes,
            "waiting": state.waiting,
            "dates": dated,
            "time": state.time if known else None,
            "when": written(state.time) if known else None,
            "failure": None if failure is None else str(failure),
            "drift": {
                "then": _finite(drift.then),
                "now": _finite(drift.now),
                "standard_error": _finite(drift.standard_error),
                "events": drift.events,
                "drifted": drift.drifted,
            },
            **self._health(),
        }


def _finite(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None


def _message(event: str, data: dict[str, Any], id: int | None = None) -> str:
    identity = "" if id is None else f"id: {id}\n"
    return f"event: {event}\n{identity}data: {json.dumps(data, allow_nan=False)}\n\n"
