"""What an engine tells about an event, a node and its model, for people who look at it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dsrd.errors import DsrdError
from dsrd.live.answering import Scored, State
from dsrd.live.recovery import Recovered
from dsrd.live.timeline import Timeline
from dsrd.live.watch import Measured, Watch

Ids = NDArray[np.int64]

COMPARED = 1_000  # latest nodes among which the nearest ones are sought
EMBEDDED_AT_ONCE = 200  # nodes; writers may go on between two pieces
HISTORY = 200  # latest events of a node that are shown
CLEARLY = 2.0  # one factor is the reason if it accounts for this much more than the other
FADING = "half_life_in_"  # keys of `TemporalModel.learned` under which half-lives are


class Readable(Protocol):
    """An engine, or a replica of one."""

    @property
    def watch(self) -> Watch: ...
    @property
    def failure(self) -> DsrdError | None: ...
    @property
    def live(self) -> Recovered: ...
    def reading(self) -> AbstractContextManager[Any]: ...
    def state(self) -> State: ...
    def partners(self, node: Any, k: int = 10, time: Any = None) -> Scored: ...


# --- Events ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Typical:
    """The usual bits of each factor: medians of the latest events."""

    source: float
    partner: float

    @staticmethod
    def of(events: Sequence[Measured]) -> Typical:
        if not events:
            return Typical(0.0, 0.0)
        bits = np.array([(each.source_bits, each.partner_bits) for each in events])
        source, partner = np.median(np.nan_to_num(bits), axis=0)
        return Typical(float(source), float(partner))


def why(event: Measured, typical: Typical) -> str:
    """Which factor makes an event more surprising than usual: its `source`, its `partner`, `both`, or neither: ''.

    >>> usual = Typical(source=5.0, partner=2.0)
    >>> event = Measured(1, "ann", "bob", 0.0, 0.0, source_bits=5.5, partner_bits=9.0, percentile=99, last_met=0.0)
    >>> why(event, usual)
    'partner'
    """
    source = 0.0 if math.isnan(event.source_bits) else max(event.source_bits - typical.source, 0.0)
    partner = max(event.partner_bits - typical.partner, 0.0)
    if source + partner <= 1.0:  # within a bit of the usual
        return ""
    if partner > CLEARLY * source:
        return "partner"
    return "source" if source > CLEARLY * partner else "both"


def about_event(event: Measured, typical: Typical, live: Recovered) -> dict[str, Any]:
    """An event as the page shows it. Times are numbers, and as text the way the stream writes them."""
    written = live.timeline.present.written_time
    met = math.isfinite(event.last_met)
    return {
        "seq": event.seq,
        "source": event.source,
        "target": event.target,
        "time": event.time,
        "when": written(event.time),
        "at": round(event.at, 3),
        "surprise": _bits(event.surprise),
        "source_bits": _bits(event.source_bits),
        "partner_bits": _bits(event.partner_bits),
        "percentile": round(event.percentile, 2),
        "last_met": event.last_met if met else None,
        "last_met_when": written(event.last_met) if met else None,
        "why": why(event, typical),
    }


def _bits(bits: float) -> float | None:
    return None if math.isnan(bits) else round(bits, 3)


# --- A node ------------------------------------------------------------------------------------------------------


def about_node(engine: Readable, name: str, k: int) -> dict[str, Any]:
    """A node's likely partners, its latest events and the nodes that are nearest to it.

    In a stream whose sources and targets are different nodes, a name is first sought among the sources.
    """
    with engine.reading():
        timeline = engine.live.timeline
        node, is_target = _find(timeline, name)
        if node is None:
            similar = [known for known, _ in timeline.nodes.starting_with(name, 5)]
            raise UnknownNodeError(name, similar or timeline.nodes.suggestions(name))
        answer: dict[str, Any] = {"seq": timeline.seq, "name": timeline.nodes.name(node), "is_target": is_target}
        answer |= {"events": timeline.present.degree(node), "history": list(_history(engine.live, node))}
    answer["partners"] = [] if is_target else _partners(engine, name, node, k)
    answer["nearest"] = _nearest(engine, node, k)
    return answer


def _find(timeline: Timeline, name: str) -> tuple[int | None, bool]:
    """A node, and whether only targets have that name. One whose event is being committed is not known yet."""
    for target in (False, True) if timeline.nodes.two_kinds else (False,):
        node = timeline.nodes.find(name, target=target)
        if node is not None and node < timeline.num_nodes:
            return node, target
    return None, False


class UnknownNodeError(DsrdError):
    """A name that the stream does not know."""

    def __init__(self, name: str, similar: Sequence[str]) -> None:
        others = f"; similar names: {', '.join(similar)}" if similar else ""
        super().__init__(f"no node is called '{name:.60}'{others}")


def _history(live: Recovered, node: int) -> Iterator[dict[str, Any]]:
    """The latest events of a node, oldest first."""
    timeline, present = live.timeline, live.timeline.present
    for partner, time, outgoing in zip(*(each.tolist() for each in present.recent(node, HISTORY)), strict=True):
        name = timeline.nodes.name(partner)
        yield {"partner": name, "time": time, "when": present.written_time(time), "outgoing": outgoing}


def _partners(engine: Readable, name: str, node: int, k: int) -> list[dict[str, Any]]:
    try:
        scored = engine.partners(name, k)
    except DsrdError:  # only ever a target
        return []
    with engine.reading():
        timeline = engine.live.timeline
        present = timeline.present
        found = [timeline.nodes.find(each, target=True) for each in scored.target]
        targets = np.array([0 if each is None else each for each in found], np.int64)
        last = present.last_met(np.full_like(targets, node), targets, np.full(len(targets), present.after_last))
        met = [time if math.isfinite(time) else None for time in last.tolist()]
        written = [None if time is None else present.written_time(time) for time in met]
    rates = [None] * len(targets) if scored.answer.rate is None else scored.answer.rate.tolist()
    columns = zip(scored.target, scored.answer.partner.tolist(), rates, met, written, strict=True)
    keys = ("target", "partner", "rate", "last_met", "last_met_when")
    return [dict(zip(keys, row, strict=True)) for row in columns]


def _nearest(engine: Readable, node: int, k: int) -> dict[str, Any]:
    """The nodes whose vectors point in the most similar direction, among those that were active last."""
    with engine.reading():
        timeline = engine.live.timeline
        others = timeline.present.latest_nodes(COMPARED, like=node)
    pieces = []
    try:
        for start in range(0, len(others) + 1, EMBEDDED_AT_ONCE):
            asked = np.append(others, node)[start : start + EMBEDDED_AT_ONCE]
            with engine.reading():
                pieces.append(engine.live.timeline.present.embed(asked))
    except (DsrdError, NotImplementedError):
        return {"nodes": [], "compared": 0, "without": "this model has no vectors of nodes"}
    vector = np.concatenate(pieces).astype(np.float64)
    vector /= np.maximum(np.linalg.norm(vector, axis=1, keepdims=True), 1e-12)
    cosine = vector[:-1] @ vector[-1]
    best = np.argsort(-cosine, kind="stable")[:k]
    with engine.reading():
        timeline = engine.live.timeline
        nodes = [
            {"name": timeline.nodes.name(int(others[row])), "cosine": round(float(cosine[row]), 4)}
            for row in best.tolist()
        ]
    return {"nodes": nodes, "compared": len(others)}


# --- The model ---------------------------------------------------------------------------------------------------


def about_model(live: Recovered) -> dict[str, Any]:
    """Which model answers, how it was trained, and what it has learned about forgetting."""
    present, run = live.timeline.present, live.fitted.run
    model = present.model
    learned = model.learned()
    card = asdict(model.card)
    return {
        "model": run.model,
        "preset": run.preset,
        "dataset": run.dataset,
        "card": {key: card[key] for key in ("paper", "reads", "cost")},
        "parameters": model.num_parameters,
        "state_bytes": present.nbytes(),
        "trained_on": live.fitted.extent.events,
        "settings": run.to_dict(),
        "half_lives": list(half_lives(learned)),
        "learned": learned,
    }


def half_lives(learned: Mapping[str, Any], part: str = "") -> Iterator[dict[str, Any]]:
    """Every half-life among the learned constants: which part it belongs to, its unit and its value.

    >>> list(half_lives({"memory": {"repeat": {"half_life_in_events": 75.0}}}))
    [{'part': 'memory: repeat', 'unit': 'events', 'value': 75.0}]
    >>> [each["part"] for each in half_lives({"retention": {"half_life_in_events": [[3.0, 4.0]]}})]
    ['retention, layer 1, head 1', 'retention, layer 1, head 2']
    """
    for key, value in learned.items():
        if key.startswith(FADING):
            for where, life in _leaves(value):
                yield {"part": part + where, "unit": key.removeprefix(FADING), "value": life}
        elif isinstance(value, Mapping):
            yield from half_lives(value, f"{part}: {key}" if part else key)


def _leaves(value: Any, levels: Sequence[str] = ("layer", "head")) -> Iterator[tuple[str, float]]:
    if isinstance(value, list):
        for number, each in enumerate(value, start=1):
            name = f", {levels[0]} {number}" if levels else f", {number}"
            yield from ((name + rest, life) for rest, life in _leaves(each, levels[1:]))
    else:
        yield "", float(value)
