"""A stream that grows in pieces equals the stream read at once: ids, names, features, digest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsrd.data.dataset import Dataset
from dsrd.data.growing import Arrival, GrowingStream
from dsrd.data.parse import Origin
from dsrd.data.read import load
from dsrd.errors import DsrdError
from support.errors import error_of

ORIGIN = Origin("later.csv", lambda row: row + 2)  # as the lines of a file with a header


def table(text: str, header: str = "source target time") -> pa.Table:
    """`table("ann bob 3, bob eve 5")`: an Arrow table; columns after the second hold numbers or dates."""
    rows = [row.split() for row in text.split(",")]
    names = header.split()
    assert all(len(row) == len(names) for row in rows)
    columns: dict[str, list[Any]] = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    for name in names[2:]:
        columns[name] = [entry if "-" in entry else float(entry) for entry in columns[name]]
    return pa.table(columns)


def growing(text: str, header: str = "source target time", **options: Any) -> GrowingStream:
    return GrowingStream(load(table(text, header), **options))


def refused(stream: GrowingStream, later: pa.Table, **options: Any) -> str:
    before = (stream.num_events, stream.num_nodes, stream.dataset().digest)
    message = error_of(stream.arrival, later, ORIGIN, **options)
    assert message.startswith("later.csv: ") or options
    assert (stream.num_events, stream.num_nodes, stream.dataset().digest) == before
    return message


def triples(arrival: Arrival) -> list[tuple[int, int, float]]:
    src, dst, time, _ = arrival.events.numpy()
    return list(zip(src.tolist(), dst.tolist(), time.tolist(), strict=True))


# --- In pieces or at once ---

events = st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 6), st.integers(-2, 2), st.integers(0, 1))


def of(rows: list[tuple[Any, ...]]) -> pa.Table:
    source, target, time, x, y = map(list, zip(*rows, strict=True))
    return pa.table({"source": source, "target": target, "time": time, "x": x, "y": y})


@settings(deadline=None, max_examples=150)
@given(st.lists(events, min_size=2, max_size=25), st.data())
def test_a_stream_read_in_pieces_equals_the_whole(rows, data):
    first, *others = sorted(rows, key=lambda row: row[2])
    ordered = [(*first[:3], 1, first[4]), *others]  # features that are all zero would be dropped
    cuts = sorted(data.draw(st.lists(st.integers(1, len(rows)), max_size=3)))
    options = {"features": ["x"], "label": "y"}
    whole = load(of(ordered), **options)
    pieces = [ordered[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    stream = GrowingStream(load(of(pieces[0]), **options))
    for piece in pieces[1:]:
        later = data.draw(st.permutations(piece)) if len({row[2] for row in piece}) == len(piece) else piece
        if later:
            known = set(stream.dataset().names.array.to_pylist()) if data.draw(st.booleans()) else None
            arrival = stream.arrival(of(later), ORIGIN)
            stream.append(arrival)
            if known is not None:
                ends = [(str(later[row][0]), str(later[row][1])) for row in arrival.row]
                assert arrival.known.tolist() == [{*pair} <= known for pair in ends]
    grown = stream.dataset()
    assert grown.names.array.to_pylist() == whole.names.array.to_pylist()
    assert grown.events.time.tolist() == whole.events.time.tolist()
    np.testing.assert_array_equal(grown.edge_x.numpy(), whole.edge_x.numpy())
    assert grown.digest == whole.digest
    assert (stream.num_events, stream.num_nodes) == (len(whole.events), whole.num_nodes)
    for node in range(1, whole.num_nodes):
        assert stream.find(stream.name(node)) == node == whole.names.id(stream.name(node))


@settings(deadline=None, max_examples=100)
@given(st.lists(events, min_size=2, max_size=25), st.data())
def test_a_longer_bipartite_table_continues_the_grown_stream(rows, data):
    """A reader numbers targets after all sources, a growing stream does not: `continuing` restores its ids."""
    first, *others = sorted(rows, key=lambda row: row[2])
    ordered = [(*first[:3], 1, first[4]), *others]
    cut = data.draw(st.integers(1, len(rows) - 1))
    options = {"features": ["x"], "label": "y", "bipartite": True}
    start, whole = load(of(ordered[:cut]), **options), load(of(ordered), **options)
    stream = GrowingStream(start)
    stream.append(stream.arrival(of(ordered[cut:]), ORIGIN))
    grown = stream.dataset()
    again = whole.continuing(cut, start.num_nodes, start.digest)
    assert again is not None
    assert again.digest == grown.digest
    assert again.names.array.to_pylist() == grown.names.array.to_pylist()
    assert again.names.is_target.tolist() == grown.names.is_target.tolist()
    assert grown.head(cut, start.num_nodes).digest == start.digest
    for node in range(1, grown.num_nodes):
        assert stream.find(stream.name(node), target=bool(grown.names.is_target[node])) == node


def test_continuing_is_none_for_other_events():
    start = load(table("ann bob 1, bob eve 2"))
    whole = load(table("ann bob 1, bob eve 2, eve ann 3"))
    assert whole.continuing(2, start.num_nodes, start.digest) is whole
    assert start.continuing(3, whole.num_nodes, whole.digest) is None
    assert start.continuing(2, whole.num_nodes + 1, start.digest) is None
    for other in ("ann eve 1, bob eve 2, eve ann 3", "ann bob 1, bob eve 2.5, eve ann 3"):
        assert load(table(other)).continuing(2, start.num_nodes, start.digest) is None
        assert load(table(other), bipartite=True).continuing(2, start.num_nodes, start.digest) is None


def test_continuing_keeps_names_without_events():
    """A folder of a bipartite stream may name more nodes than its events have."""
    start = load(table("u i 1, v i 2"), bipartite=True)
    whole = load(table("u i 1, v i 2, w j 3"), bipartite=True)
    more = replace(whole, names=whole.names.with_more([("k", True)]))
    again = more.continuing(2, start.num_nodes, start.digest)
    assert again is not None
    assert again.names.array.to_pylist() == ["", "u", "v", "i", "w", "j", "k"]
    assert again.names.is_target.tolist() == [False, False, False, True, False, True, True]


def test_head_has_the_digest_of_the_shorter_stream():
    whole = load(table("ann bob 1, bob eve 2, eve zoe 3"))
    head = whole.head(2, 4)
    assert head.digest == load(table("ann bob 1, bob eve 2")).digest
    assert head.names.array.to_pylist() == ["", "ann", "bob", "eve"]
    assert whole.head(3, 5) is whole


# --- One arrival ---


def test_known_rows_are_skipped():
    stream = growing("ann bob 1, bob eve 2")
    arrival = stream.arrival(table("ann bob 1, bob eve 2, eve zoe 2, zoe ann 4"), ORIGIN)
    assert (arrival.skipped, arrival.row.tolist()) == (2, [2, 3])
    assert arrival.new_names == (("zoe", False),)
    assert triples(arrival) == [(3, 4, 2), (4, 1, 4)]
    assert arrival.known.tolist() == [False, False]
    stream.append(arrival)
    assert stream.arrival(table("ann bob 1, bob eve 2, eve zoe 2, zoe ann 4"), ORIGIN).skipped == 4
    changed = refused(stream, table("ann bob 1, bob eve 2, eve ann 2, zoe ann 4, ann bob 5"))
    assert "row 2: time 1.0 is older than the newest known event (4)" in changed


def test_known_rows_must_have_the_same_features():
    header = "source target time x"
    stream = growing("ann bob 1 7, bob eve 2 8", header, features=["x"])
    assert stream.arrival(table("ann bob 1 7, bob eve 2 8, eve ann 3 9", header), ORIGIN).skipped == 2
    assert "older than" in refused(stream, table("ann bob 1 7, bob eve 2 9, eve ann 3 9", header))


def test_late_events_are_refused_dropped_or_moved():
    stream = growing("ann bob 1, bob eve 7")
    later = table("eve ann 8, zoe ann 3, bob yan 9, ann bob 2")
    assert refused(stream, later) == (
        "later.csv: row 3: time 3.0 is older than the newest known event (7); leave the row out, or add the "
        "events with `late` set to drop or now"
    )
    dropped = stream.arrival(later, ORIGIN, "drop")
    assert (dropped.late, dropped.row.tolist(), triples(dropped)) == (2, [0, 2], [(3, 1, 8), (2, 4, 9)])
    assert dropped.new_names == (("yan", False),)
    now = stream.arrival(later, ORIGIN, "now")
    assert (now.late, now.row.tolist()) == (2, [3, 1, 0, 2])
    assert triples(now) == [(1, 2, 7), (4, 1, 7), (3, 1, 8), (2, 5, 9)]
    assert "unknown value of late 'later'" in refused(stream, later, late="later")
    stream.append(now)
    assert stream.dataset().names.array.to_pylist() == ["", "ann", "bob", "eve", "zoe", "yan"]


def test_errors_show_late_dates_as_dates():
    stream = growing("ann bob 2024-05-01, bob eve 2024-05-03")
    expected = refused(stream, table("ann bob 2024-05-02"))
    assert "row 2: time 2024-05-02 is older than the newest known event (2024-05-03T00:00:00Z)" in expected
    assert triples(stream.arrival(table("ann bob 2024-05-04"), ORIGIN)) == [(1, 2, 1714780800)]


def test_new_tables_may_lack_labels():
    header = "source target time y"
    stream = growing("ann bob 1 0, bob eve 2 1", header, label="y")
    stream.append(stream.arrival(table("eve ann 3"), ORIGIN))
    stream.append(stream.arrival(table("eve ann 4 1", header), ORIGIN))
    label = stream.dataset().label.tolist()
    assert label[:2] + label[3:] == [0, 1, 1]
    assert np.isnan(label[2])


FEATURED = "source target time f_b f_a"


def test_features_are_found_by_name_in_any_order():
    stream = growing("ann bob 1 10 20", FEATURED, features=["f_*"])
    swapped = stream.arrival(table("bob ann 2 40 30", "source target time f_a f_b"), ORIGIN)
    assert swapped.edge_x.tolist() == [[30, 40]]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("source target time f_b f_c", "differ by 'f_a'; give those of the stream: f_b, f_a"),
        ("source target time f_b x", "differ by 'f_a'; give those of the stream: f_b, f_a"),
        ("source target time f_b f_a f_c", "differ by 'f_c'; give those of the stream: f_b, f_a"),
        ("source target time x y", "differ by 'f_b'; give those of the stream: f_b, f_a"),
    ],
)
def test_other_features_are_refused(header, expected):
    stream = growing("ann bob 1 10 20", FEATURED, features=["f_*"])
    later = table(f"bob ann 2 {' '.join('1' * (len(header.split()) - 3))}", header)
    assert expected in refused(stream, later)


def test_features_that_are_not_numbers_are_refused():
    stream = growing("ann bob 1 10 20", FEATURED, features=["f_*"])
    later = pa.table({"source": ["a"], "target": ["b"], "time": [3], "f_b": ["long"], "f_a": [1]})
    assert "row 2: feature 'f_b' is 'long', not a number" in refused(stream, later)


def test_streams_from_arrays_take_numbered_features():
    dataset = Dataset.from_arrays("arrays", [1, 2], [2, 3], [0.0, 1.0], edge_x=np.eye(3, 2))
    stream = GrowingStream(dataset)
    arrival = stream.arrival(pa.table({"source": [3], "target": [4], "time": [2], "f_1": [5], "f_0": [6]}), ORIGIN)
    assert arrival.edge_x.tolist() == [[6, 5]]
    stream.append(arrival)
    assert stream.dataset().edge_x.tolist()[-1] == [6, 5]
    assert "differ by 'f_0'" in refused(stream, table("3 4 2"))


def test_feature_names_may_contain_pattern_characters():
    dataset = load(
        pa.table({"source": ["a"], "target": ["b"], "time": [1], "f[0]": [2], "f0": [3]}), features=["*"]
    )
    assert dataset.features == ("f[0]", "f0")
    later = pa.table({"source": ["a"], "target": ["b"], "time": [1], "f0": [3], "f[0]": [2]})
    assert GrowingStream(dataset).arrival(later, ORIGIN).edge_x.tolist() == [[2, 3]]


def test_bipartite_streams_number_new_sources_and_targets_apart():
    stream = growing("7 7 1, 8 7 2", bipartite=True)
    arrival = stream.arrival(table("9 8 3, 7 9 4, 9 9 5"), ORIGIN)
    assert arrival.new_names == (("9", False), ("8", True), ("9", True))
    assert triples(arrival) == [(4, 5, 3), (1, 6, 4), (4, 6, 5)]
    stream.append(arrival)
    assert (stream.find("9"), stream.find("9", target=True), stream.find("8", target=True)) == (4, 6, 5)
    assert [stream.name(node) for node in range(1, 7)] == ["7", "8", "7", "9", "8", "9"]
    assert stream.dataset().names.id("9", target=True) == 6
    assert stream.dataset().bipartite


def test_numbered_streams_take_new_ids():
    stream = GrowingStream(Dataset.from_arrays("ids", [1, 2], [2, 3], [0.0, 1.0]))
    arrival = stream.arrival(table("3 4 2, 5 1 3"), ORIGIN)
    assert arrival.known.tolist() == [False, False]
    stream.append(arrival)
    assert (stream.num_nodes, stream.find("5"), stream.find("6"), stream.find("ann")) == (6, 5, None, None)
    assert stream.dataset().num_nodes == 6
    assert refused(stream, table("1 2 4, 1 4000000 5")) == (
        "later.csv: row 3: target is 4000000, far above the 5 nodes of the stream; number new nodes without gaps"
    )
    assert "row 2: source is 0; ids start at 1 here" in refused(stream, table("0 2 4"))
    assert "row 2: source is 'ann', not a whole number" in refused(stream, table("ann 2 4"))


def test_suggestions_include_appended_names():
    stream = growing("ann bob 1, bob eve 2")
    stream.append(stream.arrival(table("zachary ann 3"), ORIGIN))
    assert stream.suggestions("zachari") == ["zachary"]
    assert stream.find("zachary") == 4


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        (pa.table({"source": ["a"], "target": ["b"]}), "there is no column 'time'"),
        (pa.table({"source": ["a", None], "target": ["b", "c"], "time": [3, 4]}), "row 3: source is empty"),
        (
            pa.table({"source": ["a"], "target": ["b"], "time": ["soon"]}),
            "row 2: time is 'soon', neither a number",
        ),
        (pa.table({"source": ["a"], "target": ["b"], "time": [-1]}), "row 2: time '-1' is negative"),
    ],
)
def test_bad_tables_are_refused(later, expected):
    assert expected in refused(growing("ann bob 1, bob eve 2"), later)


def test_an_empty_arrival_changes_nothing():
    stream = growing("ann bob 1, bob eve 2")
    digest = stream.dataset().digest
    arrival = stream.arrival(table("ann bob 1").slice(0, 0), ORIGIN)
    assert len(arrival.events) == 0
    stream.append(arrival)
    assert stream.dataset().digest == digest


def test_an_outdated_arrival_cannot_be_appended():
    stream = growing("ann bob 1, bob eve 2")
    one, other = (stream.arrival(table(text), ORIGIN) for text in ("eve zoe 3", "eve yan 4"))
    stream.append(one)
    with pytest.raises(DsrdError, match="other events were appended since these were read; read the table again"):
        stream.append(other)
    assert stream.events_since(2).time.tolist() == [3]
