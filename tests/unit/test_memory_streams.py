"""Streams with a known memory: a naive form of their law, and that streams are drawn from it."""

from __future__ import annotations

import doctest
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dsrd.data.arrow import read_dataset, write_dataset
from dsrd.data.read import load
from dsrd.errors import DsrdError
from dsrd.events import Events
from dsrd.synthetic import memory
from dsrd.synthetic.memory import FELLOWS, memory_stream
from dsrd.synthetic.oracle import Truth, true_probability
from dsrd.synthetic.settings import MemoryConfig

SMALL = MemoryConfig(events=300, sources=4, targets=12, taus=(20.0,))
LAWS = {
    "one constant": SMALL,
    "two constants": replace(SMALL, taus=(3.0, 60.0), novelty=0.05),
    "structure": replace(SMALL, structure=0.6, novelty=0.2),
    "only structure": replace(SMALL, structure=0.9, taus=(5.0, 50.0)),
    "uneven sources": replace(SMALL, skew=1.2, structure=0.3),
    "no novelty": replace(SMALL, novelty=0.0),
    "uniform": replace(SMALL, novelty=1.0),
}
every_law = pytest.mark.parametrize("config", LAWS.values(), ids=LAWS)


def naive(config: MemoryConfig, pairs: list[tuple[int, int]], source: int) -> NDArray[np.float64]:
    """p(target | source) after the events `pairs`, word for word as the law is stated.  # [D]"""
    targets = range(config.sources + 1, config.sources + config.targets + 1)

    def memory_of(owner: int) -> NDArray[np.float64]:
        chance = np.zeros(len(targets))
        for tau in config.taus:
            weights = {
                row: np.exp(-(len(pairs) - row) / tau) for row, (src, _) in enumerate(pairs) if src == owner
            }
            for row, weight in weights.items():
                chance[targets.index(pairs[row][1])] += weight / sum(weights.values()) / len(config.taus)
        return chance

    random = np.full(len(targets), 1 / len(targets))
    met = [dst for src, dst in pairs if src == source]
    if not met:
        return random
    visitors = [src for src, dst in pairs if dst == met[-1]][-FELLOWS:]
    fellows = [src for src in visitors if src != source]
    by_fellow = np.mean([memory_of(fellow) for fellow in fellows], axis=0) if fellows else random
    own = 1 - config.novelty - config.structure
    return config.novelty * random + config.structure * by_fellow + own * memory_of(source)


def truth_of_all(config: MemoryConfig, row: int, source: int) -> Truth:
    targets = np.arange(config.sources + 1, config.sources + config.targets + 1)
    many = np.ones(len(targets), dtype=np.int64)
    return true_probability(config, memory_stream(config).events, row * many, source * many, targets)


@every_law
def test_the_oracle_equals_the_law_as_stated(config: MemoryConfig):
    src, dst = (column.tolist() for column in memory_stream(config).events.numpy()[:2])
    pairs = list(zip(src, dst, strict=True))
    for row in (0, 1, 7, 60, 299):
        for source in range(1, config.sources + 1):
            truth = truth_of_all(config, row, source)
            np.testing.assert_allclose(truth.partner, naive(config, pairs[:row], source), rtol=1e-9, atol=1e-12)
            assert truth.partner.sum() == pytest.approx(1)


@every_law
def test_the_source_is_drawn_by_its_own_law(config: MemoryConfig):
    weight = np.arange(1, config.sources + 1) ** -config.skew
    sources = np.arange(1, config.sources + 1)
    events = memory_stream(config).events
    truth = true_probability(config, events, 0 * sources + 50, sources, 0 * sources + config.sources + 1)
    np.testing.assert_allclose(truth.source, weight / weight.sum())
    np.testing.assert_allclose(truth.pair, truth.source * truth.partner)


@every_law
def test_streams_are_drawn_from_the_law(config: MemoryConfig):
    """In ten groups of targets by their chance, the chances add up to the number of targets drawn."""
    config = replace(config, events=20_000)
    events = memory_stream(config).events
    rows = np.arange(0, len(events), 4)
    targets = np.arange(config.sources + 1, config.sources + config.targets + 1)
    asked, src = np.repeat(rows, len(targets)), np.repeat(events.src.numpy()[rows], len(targets))
    chance = true_probability(config, events, asked, src, np.tile(targets, len(rows))).partner
    drawn = np.tile(targets, len(rows)) == np.repeat(events.dst.numpy()[rows], len(targets))
    for group in np.array_split(np.argsort(chance), 10):
        expected, variance = chance[group].sum(), (chance[group] * (1 - chance[group])).sum()
        assert abs(drawn[group].sum() - expected) < 4.5 * np.sqrt(variance) + 1e-9
    share = np.bincount(events.src.numpy(), minlength=config.sources + 1)[1:] / len(events)
    truth = true_probability(config, events, [0] * config.sources, targets[0] - 1 - np.arange(config.sources),
                             [targets[0]] * config.sources).source[::-1]  # fmt: skip
    assert np.abs(share - truth).max() < 4.5 / np.sqrt(4 * len(events))


def log_loss_under(config: MemoryConfig, events: Events) -> float:
    """Nats per event of another law on a stream."""
    law = memory.law_of_memory(config)
    past, total = memory.no_past(law, len(events)), 0.0
    for row, (src, dst) in enumerate(zip(events.src.tolist(), events.dst.tolist(), strict=True)):
        total -= float(np.log(memory.memory_chances(law, past, src)[dst - config.sources - 1]))
        memory.note_memory(law, past, row, src, dst)
    return total / len(events)


def test_the_wrong_time_constant_explains_the_stream_worse():
    config = replace(SMALL, events=5000, taus=(100.0,))
    events = memory_stream(config).events
    best = log_loss_under(config, events)
    assert best == pytest.approx(-np.log(true_probability(config, events).partner).mean())
    assert log_loss_under(replace(config, taus=(50.0,)), events) > best + 0.002
    assert log_loss_under(replace(config, taus=(200.0,)), events) > best + 0.002


def test_uniform_streams_are_uniform():
    config = replace(SMALL, events=20_000, novelty=1.0)
    events = memory_stream(config).events
    assert np.allclose(true_probability(config, events).partner, 1 / config.targets)
    pairs = np.bincount((events.src.numpy() - 1) * config.targets + events.dst.numpy() - config.sources - 1)
    expected = config.events / (config.sources * config.targets)
    assert ((pairs - expected) ** 2 / expected).sum() < 48 + 4.5 * np.sqrt(2 * 48)  # chi squared, 47 degrees


def test_only_fellows_know_where_structure_leads():
    """The source's own memory explains little of a stream of structure, its fellows much more."""
    config = replace(SMALL, events=5000, targets=50, sources=20, structure=0.8, novelty=0.2, taus=(50.0,))
    events = memory_stream(config).events
    with_fellows = log_loss_under(config, events)
    assert with_fellows < np.log(config.targets) - 0.5
    own_memory = min(
        log_loss_under(replace(config, structure=0.0, novelty=novelty), events) for novelty in (0.5, 0.7, 0.9)
    )
    assert own_memory > with_fellows + 0.3


def test_queries_come_in_any_order_and_impossible_pairs_have_no_chance():
    events = memory_stream(SMALL).events
    row = np.array([200, 3, 200, 77])
    shuffled = true_probability(SMALL, events, row)
    np.testing.assert_array_equal(shuffled.partner, true_probability(SMALL, events).partner[row])
    impossible = true_probability(SMALL, events, [9, 9, 9], [1, 99, 0], [1, 7, 7])
    assert impossible.pair.tolist() == [0, 0, 0]
    assert impossible.source.tolist() == [0.25, 0, 0]


def test_streams_are_seeded_loaded_by_name_and_kept_in_files(tmp_path: Path):
    data = load("memory:events=300,sources=4,targets=12,taus=3/60,novelty=0.05")
    assert data.law == LAWS["two constants"]
    assert data.digest == memory_stream(data.law).digest
    assert data.digest != memory_stream(replace(data.law, seed=1)).digest
    (tmp_path / "data").mkdir()
    write_dataset(data, tmp_path / "data")
    assert read_dataset(tmp_path / "data", mapped=False).law == data.law


@pytest.mark.parametrize(
    ("setting", "fault"),
    [
        ("taus=0", "memory.taus"),
        ("taus=nan", "memory.taus"),
        ("structure=0.95", "memory.structure"),
        ("targets=1", "memory.targets"),
        ("skew=-1", "memory.skew"),
        ("tau=3", "memory:tau"),
        ("events", "key=value"),
    ],
)
def test_settings_are_checked(setting: str, fault: str):
    with pytest.raises(DsrdError, match=fault):
        load(f"memory:{setting}")


def test_an_oracle_of_another_seed_is_refused():
    with pytest.raises(DsrdError, match="not what seed 1 draws"):
        true_probability(replace(SMALL, seed=1), memory_stream(SMALL).events)


def test_examples():
    assert doctest.testmod(memory).failed == 0
