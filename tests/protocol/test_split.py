"""The published split: sizes on real data, and a slow twin on random streams."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsrd.data.split import cut, split
from dsrd.errors import DsrdError
from dsrd.events import Events

GOLDEN = json.loads((Path(__file__).parent / "golden_negatives.json").read_text())


@pytest.mark.parametrize("name", GOLDEN)
def test_sizes_of_published_splits(name, real_data):
    parts = split(real_data(name).events)
    sizes = {
        "train": len(parts.train),
        "val": len(parts.val),
        "test": len(parts.test),
        "new_node_val": len(parts.val_new),
        "new_node_test": len(parts.test_new),
        "withheld": len(parts.withheld),
        "new_nodes": len(parts.new_nodes),
    }
    assert sizes == {part: GOLDEN[name][part] for part in sizes}


def slow_split(src, dst, t, seed):
    """The published protocol on Python sets, with the global random generator."""
    val_time, test_time = np.quantile(t, [1 - 0.15 - 0.15, 1 - 0.15])
    random.seed(seed)
    late = t > val_time
    late_nodes = set(src[late]).union(set(dst[late]))
    nodes = set(src) | set(dst)
    withheld = set(random.sample(tuple(late_nodes), int(0.1 * len(nodes))))
    rows = list(enumerate(zip(src, dst, t, strict=True), start=1))
    train = [id for id, (a, b, when) in rows if when <= val_time and a not in withheld and b not in withheld]
    new = nodes - {node for id in train for node in (src[id - 1], dst[id - 1])}
    val = [id for id, (_, _, when) in rows if val_time < when <= test_time]
    test = [id for id, (_, _, when) in rows if when > test_time]
    val_new, test_new = ([id for id in part if src[id - 1] in new or dst[id - 1] in new] for part in (val, test))
    return withheld, new, {"train": train, "val": val, "test": test, "val_new": val_new, "test_new": test_new}


@settings(max_examples=60, deadline=None)
@given(
    events=st.integers(60, 2000),
    nodes=st.integers(2, 3000),
    instants=st.sampled_from([15, 100, 10**6]),
    seed=st.integers(0, 10**6),
)
def test_split_equals_the_slow_twin(events, nodes, instants, seed):
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(1, nodes + 1, events), rng.integers(1, 3 * nodes + 1, events)
    t = np.sort(rng.integers(0, instants, events)).astype(np.float64)
    val_time, test_time = np.quantile(t, [1 - 0.15 - 0.15, 1 - 0.15])
    if not ((t > val_time) & (t <= test_time)).any() or t[-1] <= test_time:
        return  # the published cut leaves a part empty
    try:
        parts = split(Events.from_numpy(src, dst, t), seed=seed)
    except DsrdError:
        return  # too few distinct times or late nodes for a split
    withheld, new, views = slow_split(src, dst, t, seed)
    assert parts.withheld.tolist() == sorted(withheld)
    assert parts.new_nodes.tolist() == sorted(new)
    for name, ids in views.items():
        assert getattr(parts, name).id.tolist() == ids


def stream(times):
    count = len(times)
    return Events.from_numpy(np.arange(count) % 7 + 1, np.arange(count) % 5 + 8, times)


def test_different_splits_have_different_digests():
    events = stream(np.arange(100))
    assert split(events).digest == split(events).digest
    assert split(events).digest != split(events, seed=1).digest


def test_val_and_test_share_the_memory_of_the_stream():
    events = stream(np.arange(100))
    parts = split(events)
    assert parts.test.src.untyped_storage().data_ptr() == events.src.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    ("times", "options", "message"),
    [
        (np.arange(5), {}, "5 events are too few; give at least 10"),
        (np.zeros(50), {}, "50 training, 0 validation and 0 test events .* longer stream"),
        (np.append(np.zeros(44), np.ones(6)), {}, "44 training, 0 validation and 6 test"),
        (np.arange(50), {"val_ratio": 0.9, "test_ratio": 0.2}, "together below 1"),
        (np.arange(50), {"withhold": 0.95}, "0 training, .* withheld from training"),
    ],
)
def test_a_stream_that_cannot_be_split_is_refused(times, options, message):
    with pytest.raises(DsrdError, match=message) as error:
        split(stream(times), **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("counts", [[660, 220, 120], [1, 1, 998], [998, 1, 1], [1, 998, 1], [100] * 3 + [690, 10]])
def test_no_part_is_empty_and_no_timestamp_is_in_two_parts(counts):
    first, second = cut(np.repeat(np.arange(float(len(counts))), counts))
    assert 0 < first < second < sum(counts)
    assert {first, second} <= set(np.cumsum(counts).tolist())


def test_the_cut_of_yearly_times_is_the_nearest_one():
    years = np.repeat([39.0, 40.0, 41.0, 42.0, 43.0], [24653, 4535, 9718, 5410, 19])  # as in a citation stream
    assert cut(years) == (29188, 38906)
    parts = split(stream(years), withhold=0)
    assert [len(part) for part in (parts.train, parts.val, parts.test)] == [29188, 9718, 5429]
    assert (parts.val_time, parts.test_time) == (40.0, 41.0)


def test_withholding_more_nodes_than_are_active_late_is_refused():
    src, dst = np.arange(1, 41), np.append(np.arange(41, 69), [1] * 12)
    src[28:] = 2
    with pytest.raises(DsrdError, match="cannot withhold 5 nodes, only 2 are active after training"):
        split(Events.from_numpy(src, dst, np.arange(40)))
