"""Scoring only reads: threads that score one model at a time do not disturb each other, nor the state."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import numba
import numpy as np
import pytest
import torch
from torch import Tensor

from dsrd.config import overridden
from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models import GraphSpec, create, settings
from dsrd.models.dsrd import DSRD, DSRDConfig, feature_levels, node_queries, walk_queries, walk_state
from dsrd.models.dsrd.overlay import queries_of

THREADS = 4
EVENTS, NODES, EDGE_DIM = 3_000, 60, 3
OBSERVED = 2_000


@pytest.fixture(scope="module")
def stream() -> tuple[Events, Past]:
    """A stream whose last third brings nodes that the state has no rows for."""
    rng = np.random.default_rng(0)
    high = np.where(np.arange(EVENTS) < OBSERVED, NODES, 2 * NODES)
    events = Events.from_numpy(rng.integers(1, high), rng.integers(1, high), np.sort(rng.uniform(0, 100, EVENTS)))
    edge_x = torch.randn(EVENTS + 1, EDGE_DIM, generator=torch.Generator().manual_seed(0))
    edge_x[0] = 0
    return events, Past(events, edge_x=edge_x)


def make_model(kind: str, events: Events, past: Past) -> DSRD:
    """A model that has observed the first part of the stream."""
    torch.manual_seed(0)
    small = {"dim": 8, "heads": 2, "dropout": 0.0}
    config = settings("dsrd", "", "paper", small) if kind == "dense" else overridden(DSRDConfig(), small)
    if kind == "bfloat16":
        config = overridden(config, {"precision": kind})
    model = create("dsrd", GraphSpec(num_nodes=NODES, edge_dim=EDGE_DIM), config).eval()
    assert isinstance(model, DSRD)
    model.calibrate(events)
    model.observe(events[:OBSERVED], past)
    return model


def questions(events: Events) -> list[tuple[Query, Events]]:
    """Queries, each with the events that are unobserved when it is asked."""
    rest, rng = events[OBSERVED:], np.random.default_rng(1)
    asked = []
    for end in range(100, len(rest), 100):
        row = torch.as_tensor(rng.integers(0, end, 50))
        asked.append((Query(rest.src[row], rest.dst[row.flip(0)], rest.time[row]), rest[:end]))
    return asked


@torch.no_grad()
def answer(model: DSRD, past: Past, query: Query, unobserved: Events) -> Tensor:
    now = past.during(unobserved)
    return torch.cat([model.score(query, now, model.heads[-1]), model.embed(query.src, query.time, now).flatten()])


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "dense"])
def test_threads_get_the_sequential_answers_and_the_state_never_changes(
    kind: str, stream: tuple[Events, Past]
) -> None:
    events, past = stream
    model, asked = make_model(kind, events, past), questions(events)
    expected = [answer(model, past, *each) for each in asked]
    before, done = model.state.snapshot(), Event()

    def watch() -> set[str]:
        """Names of fields that differed from the snapshot at any moment while the threads were scoring."""
        changed: set[str] = set()
        while not done.is_set():
            changed |= {name for name in before if not torch.equal(before[name], model.state[name])}
        return changed

    with ThreadPoolExecutor(THREADS + 1) as pool:
        watching = pool.submit(watch)
        rounds = [asked[start:] + asked[:start] for start in range(THREADS)]
        running = [pool.submit(lambda order: [answer(model, past, *each) for each in order], o) for o in rounds]
        answers = [thread.result() for thread in running]
        done.set()
    for start, results in enumerate(answers):
        for result, wanted in zip(results, expected[start:] + expected[:start], strict=True):
            assert torch.equal(result, wanted)
    assert watching.result() == set()


def arrays_in(item: Any) -> Iterator[np.ndarray]:
    if isinstance(item, np.ndarray):
        yield item
    elif isinstance(item, tuple):
        for part in item:
            yield from arrays_in(part)


def test_compiled_queries_get_the_state_without_the_right_to_write(
    stream: tuple[Events, Past], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state's memory reaches them in read-only arrays alone; what they may write is elsewhere."""
    events, past = stream
    model = make_model("float32", events, past)
    memory = [field.numpy() for field in model.state.fields_now().values()]
    seen = []

    def checked(compiled_query: Any) -> Any:
        def query(view: Any, pending: Any, *others: Any) -> None:
            for array in arrays_in((view, pending, others)):
                assert not (array.flags.writeable and any(np.shares_memory(array, field) for field in memory))
            assert any(np.shares_memory(array, field) for array in arrays_in(view.state) for field in memory)
            seen.append(compiled_query)
            compiled_query(view, pending, *others)

        return query

    kernels = [(walk_queries, "read"), (node_queries, "read_sources"), (node_queries, "directions")]
    kernels.append((feature_levels, "read"))
    for module, name in kernels:
        monkeypatch.setattr(module, name, checked(getattr(module, name)))
    answer(model, past, *questions(events)[0])
    assert len(set(map(id, seen))) == len(kernels)


def test_compiled_code_that_writes_refuses_a_read_only_state(stream: tuple[Events, Past]) -> None:
    events, past = stream
    model = make_model("float32", events, past)
    query, unobserved = questions(events)[0]
    view, pending = model.body._view(queries_of(query), past.during(unobserved), model.state)
    with pytest.raises(numba.TypingError, match=r"readonly|read-only|Cannot modify"):
        walk_state.observe(view.state, pending.events, view.decay)
