"""The true probability of any pair at any point of a synthetic stream: the best possible score.

No model can do better than to rank pairs by the probability they were drawn with. The oracle knows what a model
has to infer (the lifelong friends of each source, which pairs are bursty) and what no model can know (the id that
the next new node gets). Everything else it takes from the events before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dsrd.compiled import compiled
from dsrd.errors import DsrdError
from dsrd.events import Events
from dsrd.synthetic.drawing import draw_pairs
from dsrd.synthetic.law import (
    ACTIVE_BURSTS,
    BURSTS,
    EVENTS_KNOWN,
    FRIENDS,
    MET,
    PARTNERS,
    RECEIVED,
    SENT,
    SOURCES_ARRIVED,
    SOURCES_KNOWN,
    TARGETS_KNOWN,
    Counts,
    Floats,
    Ints,
    Law,
    Stream,
    World,
    arrival_chances,
    catch_up,
    friend,
    has_burst,
    history_moves,
    is_known_target,
    law_of,
    new_world,
    next_target,
    note_event,
)
from dsrd.synthetic.memory import MemoryAnswers, answer_memory, draw_memory_pairs, law_of_memory, no_past
from dsrd.synthetic.settings import MemoryConfig, SyntheticLaw


class Truth(NamedTuple):
    """The probability of pairs to be the next event."""

    partner: Floats  # [Q]: p(dst | src, history), 0 where src cannot be the next source
    pair: Floats  # [Q]: p(src, dst | history)
    source: Floats  # [Q]: p(src | history)


class PairQueries(NamedTuple):
    """Is event `row` the pair (`src`, `dst`)?"""

    row: Ints  # [Q]
    src: Ints  # [Q]
    dst: Ints  # [Q]


def true_probability(
    config: SyntheticLaw, events: Events, row: Any = None, src: Any = None, dst: Any = None
) -> Truth:
    """The probability that event `row` of the stream is the pair (`src`, `dst`), given its history.

    `events` is the stream drawn from `config`, or its beginning. `row` (from 0), `src` and `dst` have one entry
    per query, in any order. Default: every event, and the pairs that came true.

    Against negatives that keep the source and draw the target uniformly, `partner` is the best possible score;
    against negatives that draw both ends uniformly, `pair` is.

    >>> from dsrd.synthetic.drawing import synth
    >>> from dsrd.synthetic.settings import SynthConfig
    >>> config = SynthConfig(events=1000)
    >>> events = synth(config).events
    >>> true_probability(config, events).pair.shape
    (1000,)
    >>> everybody = range(1, config.num_nodes + 1)
    >>> truth = true_probability(config, events, [500] * 40, [3] * 40, everybody)
    >>> round(float(truth.partner.sum()), 9)
    1.0
    """
    sources, targets, time, _ = events.numpy()
    _check_stream(config, sources, targets, time)
    rows = np.arange(len(events)) if row is None else np.asarray(row, dtype=np.int64)  # [Q]
    _check_rows(rows, len(events))
    queries = PairQueries(
        rows,
        src=sources[rows] if src is None else np.asarray(src, dtype=np.int64),
        dst=targets[rows] if dst is None else np.asarray(dst, dtype=np.int64),
    )
    if not queries.row.shape == queries.src.shape == queries.dst.shape:
        raise DsrdError(
            f"oracle: row, src, dst have shapes {queries.row.shape}, {queries.src.shape}, {queries.dst.shape}; "
            "give one entry per query in each"
        )
    order = np.argsort(rows, kind="stable")
    truth = Truth(*(np.empty(len(rows)) for _ in Truth._fields))
    if isinstance(config, MemoryConfig):
        _answer_in_memory(config, sources, targets, queries, order, truth)
        return truth
    law = law_of(config)
    stream = Stream(sources, targets, time, starts_burst=np.empty(len(events), dtype=np.int8))
    _answer(law, new_world(law), stream, queries, order, truth)
    return truth


def _check_stream(config: SyntheticLaw, src: Ints, dst: Ints, time: Floats) -> None:
    """Draw the beginning again: an oracle with another config would be wrong, and nothing would show it."""
    remedy = "pass the config the events were drawn with, and the events from the first on"
    if len(src) > config.events:
        raise DsrdError(f"oracle: {len(src)} events, but the config draws {config.events}; {remedy}")
    if isinstance(config, MemoryConfig):
        expected_src, expected_dst = draw_memory_pairs(config, len(src[:1000]))
    else:
        expected_src, expected_dst, _ = draw_pairs(law_of(config), time[:1000])
    differs = (src[:1000] != expected_src) | (dst[:1000] != expected_dst)
    if differs.any():
        raise DsrdError(f"oracle: event {differs.argmax()} is not what seed {config.seed} draws; {remedy}")


def _check_rows(row: Ints, events: int) -> None:
    outside = (row < 0) | (row >= events)
    if outside.any():
        raise DsrdError(f"oracle: row is {row[outside.argmax()]}; rows go from 0 to {events - 1}")


def _answer_in_memory(
    config: MemoryConfig, src: Ints, dst: Ints, queries: PairQueries, order: Ints, truth: Truth
) -> None:
    law, partner, source = law_of_memory(config), truth.partner[order], truth.source[order]
    answers = MemoryAnswers(queries.row[order], queries.src[order], queries.dst[order], partner, source)
    answer_memory(law, no_past(law, len(src)), src, dst, answers)
    truth.partner[order], truth.source[order], truth.pair[order] = partner, source, partner * source


@compiled
def _answer(law: Law, world: World, stream: Stream, queries: PairQueries, order: Ints, truth: Truth) -> None:
    """Answer the queries in `order`, sorted by row, while the stream is replayed."""
    src, dst, time, starts_burst = stream
    row = 0
    for query in order:
        while row <= queries.row[query]:
            if row:
                starts_burst[row - 1] = note_event(law, world, src[row - 1], dst[row - 1])
            if history_moves(law, time, row):
                catch_up(law, world, stream, row)
            row += 1
        source_chance, pair_chance = _pair_chance(law, world, row - 1, queries.src[query], queries.dst[query])
        truth.pair[query], truth.source[query] = pair_chance, source_chance
        truth.partner[query] = pair_chance / source_chance if source_chance > 0 else 0.0


@compiled
def _pair_chance(law: Law, world: World, row: int, source: int, target: int) -> tuple[float, float]:
    """The probabilities that `source` is the next source, and that it also meets `target`."""
    tally = world.tally
    both, source_only, target_only, none = arrival_chances(law, tally, row)
    target_is_new = target == next_target(law, tally, source)
    target_is_known = is_known_target(law, tally, target)
    if both + source_only > 0 and source == tally[SOURCES_ARRIVED] + 1:
        if target_is_new:
            return both + source_only, both
        if target_is_known:
            return both + source_only, source_only * _target_chance(law, world, source, target)
        return both + source_only, 0.0
    if not 1 <= source <= tally[SOURCES_KNOWN]:
        return 0.0, 0.0
    slot = none * law.burst / law.slots
    no_burst = none - slot * tally[ACTIVE_BURSTS]
    chosen = _recent_chance(law, tally, world.nodes[source, SENT], tally[SOURCES_KNOWN])
    source_chance = (target_only + no_burst) * chosen + slot * world.nodes[source, BURSTS]
    if target_is_new:
        return source_chance, target_only * chosen
    if target_is_known:
        burst = slot if has_burst(law, world, source, target) else 0.0
        return source_chance, burst + no_burst * chosen * _target_chance(law, world, source, target)
    return source_chance, 0.0


@compiled
def _target_chance(law: Law, world: World, source: int, target: int) -> float:
    """The probability that a source outside of bursts meets a known target."""
    if source == target:
        return 0.0
    tally, gradual, closure, failed = world.tally, 0.0, 0.0, 0.0
    for number in range(FRIENDS):
        candidate = friend(law, source, number)
        if candidate == source or not is_known_target(law, tally, candidate):
            failed += law.gradual / FRIENDS
        elif candidate == target:
            gradual += law.gradual / FRIENDS
    if world.nodes[source, MET]:
        closure = law.closure * _walk_chance(law, world.nodes, source, target)
        if not law.bipartite:
            failed += law.closure * _walk_chance(law, world.nodes, source, source)
    else:
        failed += law.closure
    known = tally[TARGETS_KNOWN]
    popular = _recent_chance(law, tally, world.nodes[target, RECEIVED], known)
    if is_known_target(law, tally, source):
        popular /= 1 - _recent_chance(law, tally, world.nodes[source, RECEIVED], known)
    return gradual + closure + (max(0.0, 1 - law.gradual - law.closure) + failed) * popular


@compiled
def _walk_chance(law: Law, nodes: Counts, source: int, target: int) -> float:
    """The probability that the walk of a closure ends at `target`: two steps, or three if bipartite."""
    total = 0.0
    partners = min(nodes[source, MET], PARTNERS)
    for partner in nodes[source, :partners]:
        if not law.bipartite:
            total += _partner_share(nodes, partner, target)
            continue
        peers = min(nodes[partner, MET], PARTNERS)
        for peer in nodes[partner, :peers]:
            total += _partner_share(nodes, peer, target) / peers
    return float(total / partners)


@compiled
def _partner_share(nodes: Counts, node: int, partner: int) -> float:
    count = 0
    partners = min(nodes[node, MET], PARTNERS)
    for position in range(partners):
        count += nodes[node, position] == partner
    return float(count / partners)


@compiled
def _recent_chance(law: Law, tally: Ints, count: int, known: int) -> float:
    """The probability of a node that occurs `count` times in the window, among `known` nodes."""
    seen = min(law.window, tally[EVENTS_KNOWN])
    return float(law.explore / known + (1 - law.explore) * count / seen)
