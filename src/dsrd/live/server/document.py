"""What the OpenAPI document says about bodies: schemas and examples."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

NAME: Schema = {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 1000}, {"type": "integer"}]}
TIME: Schema = {
    "anyOf": [{"type": "number", "minimum": 0, "maximum": 1e19}, {"type": "string"}],
    "description": "A number, or a date in ISO 8601 where the stream has dates. Dates without a zone are UTC.",
}
FEATURES: Schema = {
    "anyOf": [
        {"type": "array", "items": {"type": "number"}},
        {"type": "object", "additionalProperties": {"type": "number"}},
    ],
    "description": "Features of the event, by name or in the order of the stream; zeros if left out.",
}
NUMBER_OR_NULL: Schema = {"anyOf": [{"type": "number"}, {"type": "null"}]}
TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


EVENT = _object({"source": NAME, "target": NAME, "time": TIME}, {"id": NAME, "features": FEATURES})
PAIR = _object({"source": NAME, "target": NAME})
SCORE = _object(
    {
        "source": TEXT,
        "target": TEXT,
        "partner": {"type": "number", "description": "p(target | source, time)"},
        "rate": NUMBER_OR_NULL | {"description": "Expected events of the pair per day, or per unit of time."},
        "surprise": {"type": "number", "description": "Bits: -log2 of the probability of the pair."},
        "known": {"type": "boolean", "description": "Whether the stream knows both names."},
    }
)
SURPRISE = _object(
    {
        "source": TEXT,
        "target": TEXT,
        "surprise": {"type": "number"},
        "source_bits": NUMBER_OR_NULL,
        "partner_bits": {"type": "number"},
        "percentile": {
            "type": "number",
            "description": "The share of the latest events that were less surprising.",
        },
        "known": {"type": "boolean"},
    }
)
SCORES = _object({"seq": COUNT, "scores": _list(SCORE)})

OBSERVE = (
    _object({"events": _list(EVENT)}),
    {"events": [{"source": "ann", "target": "bob", "time": "2024-05-01T12:00:00Z", "id": "call-17"}]},
)
OBSERVED = (
    _object({"seq": COUNT, "accepted": COUNT, "duplicates": COUNT}, {"late": COUNT}),
    {"seq": 17, "accepted": 1, "duplicates": 0},
)
ASK_SCORE = (
    _object({"pairs": _list(PAIR, minItems=1)}, {"time": TIME}),
    {"pairs": [{"source": "ann", "target": "bob"}], "time": "2024-05-01T13:00:00Z"},
)
SCORED = (
    SCORES,
    {
        "seq": 17,
        "scores": [
            {"source": "ann", "target": "bob", "partner": 0.62, "rate": 1.4, "surprise": 4.1, "known": True}
        ],
    },
)
PARTNERS = (
    _object({"seq": COUNT, "exact": {"type": "boolean"}, "scores": _list(SCORE)}),
    {**SCORED[1], "exact": True},
)
ASK_PARTNERS = (
    _object(
        {"node": NAME},
        {
            "k": {"type": "integer", "minimum": 1, "default": 10},
            "time": TIME,
            "exact": {
                "type": "boolean",
                "default": False,
                "description": "rank every target, not only those that a cheap first score puts in front",
            },
        },
    ),
    {"node": "ann", "k": 3},
)
ASK_SURPRISE = (
    _object({"events": _list(EVENT, minItems=1)}),
    {"events": [{"source": "ann", "target": "zoe", "time": "2024-05-01T13:00:00Z"}]},
)
SURPRISED = (
    _object({"seq": COUNT, "surprises": _list(SURPRISE)}),
    {
        "seq": 17,
        "surprises": [
            {
                "source": "ann",
                "target": "zoe",
                "surprise": 17.3,
                "source_bits": 3.2,
                "partner_bits": 14.1,
                "percentile": 99.5,
                "known": True,
            }
        ],
    },
)
STATE = (
    _object(
        {
            "seq": COUNT,
            "events": COUNT,
            "nodes": COUNT,
            "time": {"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "null"}]},
            "digest": TEXT,
        }
    ),
    {"seq": 17, "events": 2017, "nodes": 60, "time": "2024-05-01T12:00:00Z", "digest": "5d1f..."},
)
SNAPSHOT = (_object({"seq": COUNT}), {"seq": 17})
ERROR = (_object({"error": TEXT}), {"error": "event 1: has no target; give source, target and time"})
HEALTH = (_object({"status": TEXT}), {"status": "ok"})

FAULTS = {
    401: "No token, or a wrong one.",
    403: "Not from this machine, or events sent to a replica.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    422: "The request is wrong; nothing of it was taken.",
    429: "Too many requests at a time; see the header Retry-After.",
    503: "Catching up with the log, stopping, or the disk is full.",
}


def responses(body: tuple[Schema, Schema], *faults: int) -> dict[int | str, dict[str, Any]]:
    """The answer of an endpoint and the errors it may give."""
    answers: dict[int | str, dict[str, Any]] = {200: {"description": "Done.", "content": _content(*body)}}
    for status in faults or tuple(FAULTS):
        answers[status] = {"description": FAULTS[status], "content": _content(*ERROR)}
    return answers


def request_body(schema: Schema, example: Schema) -> dict[str, Any]:
    """For `openapi_extra`: the handler reads the body itself."""
    return {"requestBody": {"required": True, "content": _content(schema, example)}}


def _content(schema: Schema, example: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema, "example": example}}
