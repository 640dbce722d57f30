"""Evaluation on events that follow the stream: each is scored from the current state, then observed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from dsrd import machine
from dsrd.config import RunConfig
from dsrd.data.growing import Arrival
from dsrd.estimator.fitted import Fitted
from dsrd.evaluate.pass_queries import PassQueries, draw_if_possible
from dsrd.evaluate.questions import ask
from dsrd.evaluate.scoring import labels_of, measure_heads, measured_heads, observe_all
from dsrd.evaluate.task import Pass
from dsrd.events import Events
from dsrd.history.past import Past
from dsrd.models import TemporalModel, rules
from dsrd.train.build import build
from dsrd.train.record import Record, identity

SEED = 2  # of the negatives: the seed of the published test


def evaluate_later_events(run: RunConfig, fitted: Fitted, arrival: Arrival) -> Record:
    """AP and AUC on upcoming events; the model and its state do not change.

    `inductive` are the events of nodes that are new to the stream. Rules are evaluated too if they were when the
    model was trained: the best of them was chosen on validation.
    """
    online, model = fitted.online, fitted.online.model
    heads = measured_heads(model, run.evaluate)
    results: dict[str, dict[str, Any]] = {label: {} for label in labels_of(model, heads, run.evaluate)}
    trained_rules = (fitted.record or {}).get("rules", {})
    rule_results: dict[str, dict[str, Any]] = {name: {} for name in trained_rules}
    with online.with_upcoming(arrival) as (_, past):
        start_state = model.state.snapshot()
        for pass_ in _passes(online.stream.dataset().events, arrival):
            queries = draw_if_possible(pass_, run.protocol_rules, run.evaluate)
            measure_on = partial(_metrics, queries=queries, past=past, run=run)
            measured = measure_on(model, heads=heads, restore=partial(model.state.restore, start_state))
            for label, settings in results.items():
                settings[pass_.setting] = measured.get(label, {})
            for name in rule_results:
                rule_results[name][pass_.setting] = measure_on(_rule(name, run, fitted, past)).get("", {})
        asked = {}
        if run.evaluate.questions and len(arrival.events):
            model.state.restore(start_state)
            pass_ = next(_passes(online.stream.dataset().events, arrival))
            asked["questions"] = ask(model, pass_, pass_.pool, past, run.evaluate)
    main, *others = results
    record: Record = {
        **identity(run, run.dataset),
        "measured_on": f"{len(arrival.events):,} later events",
        "head": main,
        "results": results[main],
        **asked,
        "config": {**run.to_dict()},
        "versions": machine.versions(),
    }
    if others:
        record["heads"] = {label: {"results": results[label]} for label in others}
    if rule_results:
        record["rules"] = {
            name: {"results": results, "validation": trained_rules[name]["validation"]}
            for name, results in rule_results.items()
            if name in rules()
        }
    return record


def _passes(known: Events, arrival: Arrival) -> Iterator[Pass]:
    events = arrival.events
    pool, last = Events.cat(known, events), float(known.time[-1])
    new = events[torch.from_numpy(np.flatnonzero(~arrival.known))]
    yield Pass("transductive", "test", "transductive", events, events, pool, SEED, last, "val")
    yield Pass("inductive", "test", "inductive", new, events, pool, SEED, last, "val")


def _metrics(
    model: TemporalModel,
    queries: PassQueries | None,
    past: Past,
    run: RunConfig,
    heads: Sequence[str] = ("",),
    restore: Callable[[], None] = lambda: None,
) -> dict[str, dict[str, Any]]:
    """Metrics by label; none if there was nothing to measure on."""
    if queries is None:
        return {}
    return measure_heads(model, queries, past, run.protocol_rules, run.evaluate, heads, restore)


def _rule(name: str, run: RunConfig, fitted: Fitted, past: Past) -> TemporalModel:
    """A rule that has observed everything before the upcoming events."""
    known = fitted.online.stream.dataset()
    rule_run = replace(run, model=name, preset="published", model_args={})
    model = build(rule_run, known, known.events)
    observe_all(model, known.events, past, run.protocol_rules.lagging(), 10_000)
    return model
