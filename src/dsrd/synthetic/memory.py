"""Streams whose memory has a known time constant, and the true probability of every pair in them.

Event i happens at time i. Its source is drawn from all sources, always with the same probabilities. Its target is

* with probability `novelty` uniformly random;
* with probability `structure` out of the memory of a *fellow*: the source of one of the latest eight events of the
  source's latest target, other than the source itself. Walks of two steps lead to fellows; nothing else does;
* otherwise out of the source's own memory.

A target out of a memory is the target of one of its owner's past events, drawn with weight exp(-age / tau). Ages
count the events of the whole stream. Each event picks one of the `taus` with equal probability. Where there is no
past event, or no fellow, the target is uniformly random.

With `novelty=1` the stream is uniformly random: no score is better than chance.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dsrd.compiled import compiled
from dsrd.data.dataset import Dataset
from dsrd.synthetic.law import WHO, Floats, Ints, Words, below, generator, uniform
from dsrd.synthetic.settings import MemoryConfig

FELLOWS = 8
"""Latest events of a target among whose sources a fellow is drawn."""
NEGLIGIBLE = 60
"""Older than this many time constants, an event weighs less than 1e-26 and is left out of the truth."""


class MemoryLaw(NamedTuple):
    """The settings, as compiled code wants them."""

    sources: int
    targets: int
    taus: Floats  # [T]
    novelty: float
    structure: float
    source_chance: Floats  # [S]


class MemoryPast(NamedTuple):
    """The events before the one to draw. Changed in place. Events are rows from 0, -1 where there is none."""

    dst: Ints  # [E]
    earlier: Ints  # [E]: the event before of the same source
    latest: Ints  # [S + 1]: the latest event of each source
    total: Floats  # [S + 1, T]: sum over a source's events of exp(-(latest - event) / tau)
    visitors: Ints  # [D, 8]: sources of the latest events of each target, a ring buffer
    visits: Ints  # [D]: events of each target


def law_of_memory(config: MemoryConfig) -> MemoryLaw:
    """The law of a config."""
    weight = np.arange(1, config.sources + 1) ** -float(config.skew)
    return MemoryLaw(
        sources=config.sources,
        targets=config.targets,
        taus=np.array(config.taus, dtype=np.float64),
        novelty=config.novelty,
        structure=config.structure,
        source_chance=weight / weight.sum(),
    )


def no_past(law: MemoryLaw, events: int) -> MemoryPast:
    """The past of the first event, with room for this many events."""
    return MemoryPast(
        dst=np.empty(events, dtype=np.int64),
        earlier=np.empty(events, dtype=np.int64),
        latest=np.full(law.sources + 1, -1),
        total=np.zeros((law.sources + 1, len(law.taus))),
        visitors=np.zeros((law.targets, FELLOWS), dtype=np.int64),
        visits=np.zeros(law.targets, dtype=np.int64),
    )


def memory_stream(config: MemoryConfig | None = None, name: str = "memory") -> Dataset:
    """Draw the stream of a config, the default one if none is given.

    Sources have the ids 1 .. S, targets S + 1 .. S + D.

    >>> data = memory_stream(MemoryConfig(events=1000, sources=5, targets=20, taus=(50,)))
    >>> len(data.events), int(data.events.src.max()), int(data.events.dst.min())
    (1000, 5, 6)
    """
    config = config or MemoryConfig()
    src, dst = draw_memory_pairs(config, config.events)
    return Dataset.from_arrays(name, src, dst, np.arange(float(config.events)), bipartite=True, law=config)


def draw_memory_pairs(config: MemoryConfig, events: int) -> tuple[Ints, Ints]:
    """Source and target of the first events of the stream."""
    law, src = law_of_memory(config), np.empty(events, dtype=np.int64)
    past = no_past(law, events)
    _fill(law, past, generator(np.uint64(config.seed), WHO), src)
    return src, past.dst


# --- Drawing -----------------------------------------------------------------------------------------------------


@compiled
def _fill(law: MemoryLaw, past: MemoryPast, rng: Words, src: Ints) -> None:
    for row in range(len(src)):
        chance = uniform(rng)
        source = 1
        while source < law.sources and chance >= law.source_chance[source - 1]:
            chance -= law.source_chance[source - 1]
            source += 1
        src[row] = source
        note_memory(law, past, row, source, _draw_target(law, past, rng, source))


@compiled
def _draw_target(law: MemoryLaw, past: MemoryPast, rng: Words, source: int) -> int:
    kind, choice = uniform(rng), below(rng, len(law.taus))
    owner = source
    if kind < law.novelty:
        owner = 0
    elif kind < law.novelty + law.structure:
        fellows = count_fellows(law, past, source)
        owner = _fellow(law, past, source, below(rng, fellows)) if fellows else 0
    if owner == 0 or past.latest[owner] < 0:
        return law.sources + 1 + below(rng, law.targets)
    left = uniform(rng) * past.total[owner, choice]
    event = past.latest[owner]
    while past.earlier[event] >= 0:
        left -= np.exp((event - past.latest[owner]) / law.taus[choice])
        if left < 0:
            break
        event = past.earlier[event]
    return int(past.dst[event])


@compiled
def count_fellows(law: MemoryLaw, past: MemoryPast, source: int) -> int:
    """How many of the latest events of the source's latest target have another source."""
    if past.latest[source] < 0:
        return 0
    target = past.dst[past.latest[source]] - law.sources - 1
    count = 0
    for place in range(min(past.visits[target], FELLOWS)):
        count += past.visitors[target, place] != source
    return count


@compiled
def _fellow(law: MemoryLaw, past: MemoryPast, source: int, number: int) -> int:
    """The source of the `number`-th of the events that `count_fellows` counts."""
    target = past.dst[past.latest[source]] - law.sources - 1
    for place in range(FELLOWS):
        if past.visitors[target, place] != source:
            if number == 0:
                return int(past.visitors[target, place])
            number -= 1
    return 0


@compiled
def note_memory(law: MemoryLaw, past: MemoryPast, row: int, source: int, target: int) -> None:
    """Add event `row` to the past."""
    since = row - past.latest[source]
    for choice in range(len(law.taus)):
        past.total[source, choice] = 1 + past.total[source, choice] * np.exp(-since / law.taus[choice])
    past.dst[row], past.earlier[row], past.latest[source] = target, past.latest[source], row
    place = target - law.sources - 1
    past.visitors[place, past.visits[place] % FELLOWS] = source
    past.visits[place] += 1


# --- Truth -------------------------------------------------------------------------------------------------------


@compiled
def memory_chances(law: MemoryLaw, past: MemoryPast, source: int) -> Floats:
    """p(target | source) for all targets.  # [D]"""
    chance = np.zeros(law.targets)
    own = max(0.0, 1 - law.novelty - law.structure)
    found = 0.0
    if past.latest[source] >= 0:
        _add_memory(law, past, source, own, chance)
        found += own
    fellows = count_fellows(law, past, source) if law.structure else 0
    for number in range(fellows):
        _add_memory(law, past, _fellow(law, past, source, number), law.structure / fellows, chance)
    found += law.structure if fellows else 0.0
    return chance + max(0.0, 1 - found) / law.targets


@compiled
def _add_memory(law: MemoryLaw, past: MemoryPast, owner: int, share: float, chance: Floats) -> None:
    """Add `share` times the chance of each target to be drawn out of the owner's memory."""
    latest = past.latest[owner]
    for choice in range(len(law.taus)):
        scale = share / (len(law.taus) * past.total[owner, choice])
        event = latest
        while event >= 0 and latest - event < NEGLIGIBLE * law.taus[choice]:
            chance[past.dst[event] - law.sources - 1] += scale * np.exp((event - latest) / law.taus[choice])
            event = past.earlier[event]


class MemoryAnswers(NamedTuple):
    """Is event `row` the pair (`src`, `dst`)? The probabilities are written here."""

    row: Ints  # [Q] in ascending order
    src: Ints  # [Q]
    dst: Ints  # [Q]
    partner: Floats  # [Q] p(dst | src)
    source: Floats  # [Q] p(src)


@compiled
def answer_memory(law: MemoryLaw, past: MemoryPast, src: Ints, dst: Ints, answers: MemoryAnswers) -> None:
    """Answer queries in the order of their rows, while the stream (`src`, `dst`) is replayed."""
    row, chance, asked_row, asked_source = 0, np.zeros(law.targets), -1, 0
    for query in range(len(answers.row)):
        while row < answers.row[query]:
            note_memory(law, past, row, src[row], dst[row])
            row += 1
        source, place = answers.src[query], answers.dst[query] - law.sources - 1
        answers.partner[query] = answers.source[query] = 0.0
        if not 1 <= source <= law.sources:
            continue
        if row != asked_row or source != asked_source:
            chance = memory_chances(law, past, source)
            asked_row, asked_source = row, source
        answers.source[query] = law.source_chance[source - 1]
        if 0 <= place < law.targets:
            answers.partner[query] = chance[place]
