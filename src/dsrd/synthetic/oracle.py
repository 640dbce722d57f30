"""The true probability of any pair at any point of a synthetic stream: the best score there is.

No model can do better than to rank pairs by the probability they were drawn with. Few will do as well: the oracle
knows what a model has to infer (the lifelong friends of each source, which pairs are bursty) and what it cannot
know (the number the next newcomer gets). All else it takes from the events before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dsrd.compiled import compiled
from dsrd.errors import DsrdError
from dsrd.events import Events
from dsrd.synthetic.drawing import SynthConfig, draw_pairs, law_of
from dsrd.synthetic.law import (
    BURNING,
    EVENTS_KNOWN,
    FRIENDS,
    MET,
    PAIRS_BURNING,
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
    World,
    arrival_chances,
    burns,
    catch_up,
    friend,
    history_moves,
    is_known_target,
    new_world,
    next_target,
    note_event,
)


class Truth(NamedTuple):
    """How likely pairs are to be the next event."""

    partner: Floats  # [Q]: p(dst | src, history), 0 where src cannot be the next source
    pair: Floats  # [Q]: p(src, dst | history)


def true_probability(
    config: SynthConfig, events: Events, row: Any = None, src: Any = None, dst: Any = None
) -> Truth:
    """The probability that event `row` of the stream is the pair (`src`, `dst`), given what it was drawn from.

    `events` is the stream drawn from `config`, or its beginning. `row` (from 0), `src` and `dst` have one entry
    per question, in any order; left out, they ask for every event, and for the pairs that came true.

    Against negatives that keep the source and draw the target uniformly, `partner` is the best possible score;
    against negatives that draw both ends uniformly, `pair` is.

    >>> from dsrd.synthetic.drawing import synth
    >>> config = SynthConfig(events=1000)
    >>> events = synth(config).events
    >>> true_probability(config, events).pair.shape
    (1000,)
    >>> everybody = range(1, config.num_nodes + 1)
    >>> truth = true_probability(config, events, [500] * 40, [3] * 40, everybody)
    >>> round(float(truth.partner.sum()), 9)
    1.0
    """
    law = law_of(config)
    sources, targets, time, _ = events.numpy()
    _check_stream(config, law, sources, targets, time)
    asked_row = np.arange(len(events)) if row is None else np.asarray(row, dtype=np.int64)  # [Q]
    _check_rows(asked_row, len(events))
    asked_src = sources[asked_row] if src is None else np.asarray(src, dtype=np.int64)  # [Q]
    asked_dst = targets[asked_row] if dst is None else np.asarray(dst, dtype=np.int64)  # [Q]
    if not asked_row.shape == asked_src.shape == asked_dst.shape:
        raise DsrdError(
            f"oracle: row, src, dst have shapes {asked_row.shape}, {asked_src.shape}, {asked_dst.shape}; "
            "give one entry per question in each"
        )
    truth = Truth(np.empty(len(asked_row)), np.empty(len(asked_row)))
    order = np.argsort(asked_row, kind="stable")  # [Q]
    _answer(law, new_world(law), sources, targets, time, order, asked_row, asked_src, asked_dst, truth)
    return truth


def _check_stream(config: SynthConfig, law: Law, src: Ints, dst: Ints, time: Floats) -> None:
    """Draw the beginning again: an oracle with another config would be wrong without a sign."""
    remedy = "pass the config the events were drawn with, and the events from the first on"
    if len(src) > law.events:
        raise DsrdError(f"oracle: {len(src)} events, but the config draws {law.events}; {remedy}")
    again_src, again_dst, _ = draw_pairs(law, time[:1000])
    differs = (src[:1000] != again_src) | (dst[:1000] != again_dst)
    if differs.any():
        raise DsrdError(f"oracle: event {differs.argmax()} is not what seed {config.seed} draws; {remedy}")


def _check_rows(row: Ints, events: int) -> None:
    outside = (row < 0) | (row >= events)
    if outside.any():
        raise DsrdError(f"oracle: row is {row[outside.argmax()]}; rows go from 0 to {events - 1}")


@compiled
def _answer(
    law: Law,
    world: World,
    src: Ints,
    dst: Ints,
    time: Floats,
    order: Ints,
    asked_row: Ints,
    asked_src: Ints,
    asked_dst: Ints,
    truth: Truth,
) -> None:
    kindles = np.empty(len(src), dtype=np.int8)
    row = 0
    for question in order:
        while row <= asked_row[question]:
            if row:
                kindles[row - 1] = note_event(law, world, src[row - 1], dst[row - 1])
            if history_moves(law, time, row):
                catch_up(law, world, src, dst, kindles, row)
            row += 1
        source, target = asked_src[question], asked_dst[question]
        source_chance, pair_chance = _pair_chance(law, world, row - 1, source, target)
        truth.pair[question] = pair_chance
        truth.partner[question] = pair_chance / source_chance if source_chance > 0 else 0.0


@compiled
def _pair_chance(law: Law, world: World, row: int, source: int, target: int) -> tuple[float, float]:
    """The chances that `source` is the next source, and that it meets `target`."""
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
    calm = none - slot * tally[PAIRS_BURNING]
    chosen = _recent_chance(law, tally, world.nodes[source, SENT], tally[SOURCES_KNOWN])
    source_chance = (target_only + calm) * chosen + slot * world.nodes[source, BURNING]
    if target_is_new:
        return source_chance, target_only * chosen
    if target_is_known:
        burst = slot if burns(law, world, source, target) else 0.0
        return source_chance, burst + calm * chosen * _target_chance(law, world, source, target)
    return source_chance, 0.0


@compiled
def _target_chance(law: Law, world: World, source: int, target: int) -> float:
    """The chance that a known target is met by a source that is no part of a burst."""
    if source == target:
        return 0.0
    tally, gradual, closure, nowhere = world.tally, 0.0, 0.0, 0.0
    for which in range(FRIENDS):
        candidate = friend(law, source, which)
        if candidate == source or not is_known_target(law, tally, candidate):
            nowhere += law.gradual / FRIENDS
        elif candidate == target:
            gradual += law.gradual / FRIENDS
    if world.nodes[source, MET]:
        closure = law.closure * _walk_chance(law, world.nodes, source, target)
        if not law.bipartite:
            nowhere += law.closure * _walk_chance(law, world.nodes, source, source)
    else:
        nowhere += law.closure
    known = tally[TARGETS_KNOWN]
    popular = _recent_chance(law, tally, world.nodes[target, RECEIVED], known)
    if is_known_target(law, tally, source):
        popular /= 1 - _recent_chance(law, tally, world.nodes[source, RECEIVED], known)
    return gradual + closure + (max(0.0, 1 - law.gradual - law.closure) + nowhere) * popular


@compiled
def _walk_chance(law: Law, nodes: Counts, source: int, target: int) -> float:
    """The chance that the walk of a closure ends at `target`: over two meetings, or three if bipartite."""
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
    """The chance of a node that occurs `count` times in the window, among `known` nodes."""
    seen = min(law.window, tally[EVENTS_KNOWN])
    return float(law.explore / known + (1 - law.explore) * count / seen)
