"""The application: one function per endpoint. Names in, names out; every answer has the number of the event it was
made after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from dsrd import __version__
from dsrd.errors import DsrdError
from dsrd.live.feed import feed_router, page_router
from dsrd.live.server import bodies, document
from dsrd.live.server.finished import Finished
from dsrd.live.server.guard import Guard, Limits
from dsrd.live.server.metrics import CONTENT_TYPE, Requests
from dsrd.live.server.service import NotReadyError, Service, status_of

MANY = 500  # events or pairs; more are read and written in a thread, so that other requests go on

T = TypeVar("T")
Handler = TypeVar("Handler", bound=Callable[..., Any])


def create_app(service: Service, limits: Limits, token: str | None) -> ASGIApp:
    """The application behind its guard."""
    app = FastAPI(title="dsrd", version=__version__, docs_url=None, redoc_url=None)
    requests = Requests(service)
    _add_questions(app, service, limits)
    _add_upkeep(app, service)
    _add_health(app, service, requests)
    app.include_router(page_router())
    app.include_router(feed_router(service, service.health, stopping=lambda: service.stopping))
    app.add_exception_handler(DsrdError, _refused)
    app.add_exception_handler(NotReadyError, _not_ready)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(ClientDisconnect, _gone)
    return Guard(app, limits, requests, token)


def _add_questions(app: FastAPI, service: Service, limits: Limits) -> None:
    finished = Finished()

    def post(path: str, asked: Any, answered: Any) -> Callable[[Handler], Handler]:
        extra = document.request_body(*asked)
        return app.post(path, openapi_extra=extra, responses=document.responses(answered), response_model=None)

    @post("/v1/observe", document.OBSERVE, document.OBSERVED)
    async def observe(request: Request) -> Response:
        """Observe events. They are on disk when the answer comes; one whose `id` was seen before is not counted
        again."""
        body = await bodies.read_object(request, limits, ("events",))
        events, engine = bodies.listed(body, "events", limits), service.writer
        read = await _aside(len(events), lambda: engine.reader.records(events))
        return bodies.answer(bodies.observed(await finished.wait_for(engine.observe_soon(read))))

    @post("/v1/score", document.ASK_SCORE, document.SCORED)
    async def score(request: Request) -> Response:
        """What the model says about pairs, now or at a later time."""
        body = await bodies.read_object(request, limits, ("pairs", "time"))
        pairs, engine = bodies.pairs_of(body, limits), service.engine
        scored = await finished.wait_for(engine.score_soon(pairs, body.get("time")))
        return await _aside(
            len(pairs), lambda: bodies.answer({"seq": scored.seq, "scores": bodies.scores(scored)})
        )

    @post("/v1/partners", document.ASK_PARTNERS, document.PARTNERS)
    async def partners(request: Request) -> Response:
        """The likeliest targets of a node, best first."""
        body = await bodies.read_object(request, limits, ("node", "k", "time", "exact"))
        if body.get("node") is None:
            raise DsrdError("'node' is missing; give the name of a node")
        k = body.get("k", 10)
        if isinstance(k, int) and k > limits.partners:
            raise DsrdError(f"k={k}: ask for at most {limits.partners:,} partners")
        asked = (body["node"], k, body.get("time"), bodies.flag(body, "exact"))
        scored = await run_in_threadpool(service.engine.partners, *asked)
        return bodies.answer({"seq": scored.seq, "exact": scored.exact, "scores": bodies.scores(scored)})

    @post("/v1/surprise", document.ASK_SURPRISE, document.SURPRISED)
    async def surprise(request: Request) -> Response:
        """How surprising each of these events would be if it came next; nothing is observed."""
        body = await bodies.read_object(request, limits, ("events",))
        events, engine = bodies.listed(body, "events", limits), service.engine
        scored = await finished.wait_for(await _aside(len(events), lambda: engine.surprise_soon(events)))
        percentile = engine.watch.percentiles(scored.answer.surprise).tolist()
        return bodies.answer({"seq": scored.seq, "surprises": bodies.surprises(scored, percentile)})

    @app.get("/v1/state", responses=document.responses(document.STATE, 401, 503), response_model=None)
    async def state() -> Response:
        """Where the engine stands. Two engines with one run and one digest give the same answers."""
        engine = service.engine
        now = await run_in_threadpool(engine.state)
        present = engine.live.timeline.present
        written = present.written_time(now.time) if present.dates and now.events else ""
        return bodies.answer(bodies.state(now, bodies.time_in_answer(now.time, present.dates, written)))


def _add_upkeep(app: FastAPI, service: Service) -> None:
    described: Any = {"responses": document.responses(document.SNAPSHOT), "response_model": None}

    @app.post("/v1/snapshot", **described)
    async def snapshot() -> Response:
        """Write a snapshot of the state now."""
        return bodies.answer({"seq": await run_in_threadpool(service.writer.snapshot)})

    @app.post("/v1/compact", **described)
    async def compact(vacuum: bool = False) -> Response:
        """Write a snapshot, join the small rows of the log up to it and forget old event ids, as is done from time
        to time anyway. With `vacuum`, space is given back to the disk; events wait meanwhile."""
        engine = service.writer
        await run_in_threadpool(lambda: engine.compact(vacuum=vacuum))
        return bodies.answer({"seq": engine.live.last_snapshot})


def _add_health(app: FastAPI, service: Service, requests: Requests) -> None:
    @app.get("/healthz", responses=document.responses(document.HEALTH, 503), response_model=None)
    async def healthz() -> Response:
        """Whether the process is alive."""
        return bodies.answer({"status": "ok"})

    @app.get("/readyz", responses=document.responses(document.HEALTH, 503), response_model=None)
    async def readyz() -> Response:
        """Whether questions are answered and events taken: not while the engine catches up with its log."""
        why_not = service.why_not_ready
        if why_not:
            return bodies.answer({"error": why_not}, 503, {"Retry-After": "1"})
        return bodies.answer({"status": "ready"})

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Figures for Prometheus."""
        return Response(await run_in_threadpool(requests.text), media_type=CONTENT_TYPE)


async def _aside(count: int, work: Callable[[], T]) -> T:
    """Small work here, large work in a thread."""
    return work() if count <= MANY else await run_in_threadpool(work)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, DsrdError)
    status = 413 if isinstance(error, bodies.TooLargeError) else status_of(error)
    headers = {"Retry-After": "1"} if status == 503 else None
    return bodies.answer({"error": _one_line(str(error))}, status, headers)


async def _not_ready(_: Request, error: Exception) -> Response:
    return bodies.answer({"error": str(error)}, 503, {"Retry-After": "1"})


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers, text = dict(error.headers or {}), str(error.detail)
    if text == "Not Found":
        text = f"there is no {request.url.path[:60]}; /openapi.json lists what there is"
    elif text == "Method Not Allowed":
        text = f"{request.method[:20]} is not allowed here; use {headers.get('Allow', 'another method')}"
    return bodies.answer({"error": _one_line(text)}, error.status_code, headers)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or "request"
    return bodies.answer({"error": _one_line(f"{where}: {first['msg']}")}, 422)


async def _gone(_: Request, error: Exception) -> Response:
    return bodies.answer({"error": "the client went away"}, 400)


def _one_line(text: str) -> str:
    return " ".join(text.split())
