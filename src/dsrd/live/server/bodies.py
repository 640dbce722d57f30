"""Bodies of requests and answers: how they are read and written, and what the OpenAPI document says about them."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from dsrd.errors import DsrdError
from dsrd.live.answering import Scored, State
from dsrd.live.server.guard import Limits, too_large
from dsrd.live.writer import Observed


class TooLargeError(DsrdError):
    """A body above the limit."""


async def read_object(request: Request, limits: Limits, fields: tuple[str, ...]) -> dict[str, Any]:
    """The JSON object of a request, which may have these fields."""
    try:
        async with asyncio.timeout(limits.body_seconds):
            content = await _content(request, limits)
    except TimeoutError:
        fault = f"the body did not come within {limits.body_seconds:g} seconds; send the request again"
        raise HTTPException(408, fault, {"Connection": "close"}) from None
    try:
        body = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise DsrdError(f"the body is not JSON ({str(error).splitlines()[0]})") from None
    if not isinstance(body, dict):
        raise DsrdError(f"the body is no JSON object; give one with {', '.join(fields)}")
    other = next((field for field in body if field not in fields), None)
    if other is not None:
        raise DsrdError(f"field '{other[:60]}' is unknown; the fields are {', '.join(fields)}")
    return body


async def _content(request: Request, limits: Limits) -> bytes:
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > limits.body:
            raise TooLargeError(too_large(limits))
        pieces.append(piece)
    return b"".join(pieces)


def listed(body: dict[str, Any], field: str, limits: Limits) -> list[dict[str, Any]]:
    """A list of objects in a body."""
    rows = body.get(field)
    if not isinstance(rows, list):
        raise DsrdError(f"'{field}' is missing or no list; give a list of objects")
    if len(rows) > limits.batch:
        raise DsrdError(f"'{field}' has {len(rows):,} entries; send at most {limits.batch:,} at a time")
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise DsrdError(f"{field[:-1]} {number + 1}: is no JSON object; give one with source and target")
    return rows


def pairs_of(body: dict[str, Any], limits: Limits) -> list[tuple[Any, Any]]:
    """The pairs of a question."""
    pairs = []
    for number, row in enumerate(listed(body, "pairs", limits)):
        if row.keys() != {"source", "target"}:
            other = ", ".join(f"'{name[:40]}'" for name in list(row)[:5]) or "nothing"
            raise DsrdError(f"pair {number + 1}: has {other}; give source and target")
        pairs.append((row["source"], row["target"]))
    return pairs


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer; numbers that are not finite become null."""
    return Response(orjson.dumps(content), status, headers, "application/json")


def observed(done: Observed) -> dict[str, int]:
    """What became of the events of a request; `late` only if some were dropped."""
    told = {"seq": done.seq, "accepted": done.accepted, "duplicates": done.duplicates}
    return told | {"late": done.late} if done.late else told


def flag(body: dict[str, Any], name: str) -> bool:
    """A field that is true or false; false if it is missing."""
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise DsrdError(f"{name}={value!r:.40}: give true or false")
    return value


def scores(scored: Scored) -> list[dict[str, Any]]:
    """A row per pair."""
    said = scored.answer
    rate = [None] * len(scored.source) if said.rate is None else said.rate.tolist()
    rows = zip(
        scored.source,
        scored.target,
        said.partner.tolist(),
        rate,
        said.surprise.tolist(),
        scored.known,
        strict=True,
    )
    names = ("source", "target", "partner", "rate", "surprise", "known")
    return [dict(zip(names, row, strict=True)) for row in rows]


def surprises(scored: Scored, percentile: list[float]) -> list[dict[str, Any]]:
    """A row per event."""
    said = scored.answer
    source_bits = [None] * len(scored.source) if said.source_bits is None else said.source_bits.tolist()
    rows = zip(
        scored.source,
        scored.target,
        said.surprise.tolist(),
        source_bits,
        said.partner_bits.tolist(),
        percentile,
        scored.known,
        strict=True,
    )
    names = ("source", "target", "surprise", "source_bits", "partner_bits", "percentile", "known")
    return [dict(zip(names, row, strict=True)) for row in rows]


def state(now: State, written_time: str | float | None) -> dict[str, Any]:
    """Where the engine stands."""
    return {
        "seq": now.seq,
        "events": now.events,
        "nodes": now.nodes,
        "time": written_time,
        "digest": now.digest,
    }


def time_in_answer(time: float, dates: bool, written: str) -> str | float | None:
    """A time as the stream has it: a date in its own format, or a number."""
    if not math.isfinite(time):
        return None
    return written if dates else time
