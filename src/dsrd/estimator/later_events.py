"""A fitted run measured on events that came later, from its state now: each is asked about, then taken in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from dsrd import machine
from dsrd.config import RunConfig
from dsrd.data.growing import Arrival
from dsrd.estimator.fitted import Fitted
from dsrd.evaluate.protocol import Pass, Protocol, protocol
from dsrd.evaluate.scoring import Drawn, Progress, draw, measure, observe_all, score_pass
from dsrd.events import Events
from dsrd.history.past import Past
from dsrd.models import TemporalModel, rules
from dsrd.negatives.sampling import NoNegativeError
from dsrd.train.build import build
from dsrd.train.record import Record, identity

SEED = 2  # of the negatives: that of the published test


def measured_ahead(run: RunConfig, fitted: Fitted, arrival: Arrival, progress: Progress) -> Record:
    """AP and AUC on events to come; the model and its state stay as they are.

    `inductive` are the events of nodes that the stream did not know. Rules are measured beside the model if they
    were when it was trained: which of them is the best was found on validation.
    """
    online, model, how = fitted.online, fitted.online.model, protocol(run.protocol)
    asked = run.evaluate.head
    heads = (asked,) if asked else model.heads
    found: dict[str, dict[str, Any]] = {head: {} for head in heads}
    beside: dict[str, dict[str, Any]] = {name: {} for name in (fitted.record or {}).get("rules", {})}
    known = online.stream.dataset()
    passes = list(_passes(known.events, arrival))
    with online.ahead(arrival) as (_, past):
        begin = model.state.snapshot()
        for each in passes:
            drawn = _drawn(each, how, run)
            for head in heads:
                model.state.restore(begin)
                found[head][each.setting] = _measured(model, drawn, past, how, run, progress, head)
            for name in beside:
                rule = _rule(name, run, fitted, how, past)
                beside[name][each.setting] = _measured(rule, drawn, past, how, run, progress)
    main, *others = heads
    record: Record = {
        **identity(run, run.dataset),
        "measured_on": f"{len(arrival.events):,} later events",
        "head": main,
        "results": found[main],
        "config": {**run.to_dict()},
        "versions": machine.versions(),
    }
    if others:
        record["heads"] = {head: {"results": found[head]} for head in others}
    if beside:
        validated = (fitted.record or {})["rules"]
        record["rules"] = {
            name: {"results": results, "validation": validated[name]["validation"]}
            for name, results in beside.items()
            if name in rules()
        }
    return record


def _passes(known: Events, arrival: Arrival) -> Iterator[Pass]:
    events = arrival.events
    pool, last = Events.cat(known, events), float(known.time[-1])
    new = events[torch.from_numpy(np.flatnonzero(~arrival.known))]
    for setting, part in (("transductive", events), ("inductive", new)):
        yield Pass(setting, "test", setting, part, events, pool, SEED, last, "val")  # type: ignore[arg-type]


def _drawn(each: Pass, how: Protocol, run: RunConfig) -> Drawn | None:
    try:
        return draw(each, how, run.evaluate) if len(each.events) else None
    except NoNegativeError:
        return None


def _measured(
    model: TemporalModel,
    drawn: Drawn | None,
    past: Past,
    how: Protocol,
    run: RunConfig,
    progress: Progress,
    head: str = "",
) -> dict[str, Any]:
    if drawn is None:
        return {}
    return measure(drawn, score_pass(model, drawn, past, how, run.evaluate.batch_size, progress, head))


def _rule(name: str, run: RunConfig, fitted: Fitted, how: Protocol, past: Past) -> TemporalModel:
    """A rule that has seen everything before the events to come."""
    known = fitted.online.stream.dataset()
    own = replace(run, model=name, preset="published", model_args={})
    model = build(own, known, known.events)
    observe_all(model, known.events, past, how.lagging(), 10_000)
    return model
