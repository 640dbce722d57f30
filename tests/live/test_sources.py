"""Sources: positions, lines that are no events, files that grow; and that both ways of reading lines agree."""

from __future__ import annotations

import gzip
import io
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsrd.config import DataConfig
from dsrd.data.dataset import Dataset, Names
from dsrd.errors import DsrdError
from dsrd.live.incoming import EventReader, Incoming
from dsrd.live.streams.address import Address
from dsrd.live.streams.bookmarks import Bookmarks
from dsrd.live.streams.decoding import Decoded, Decoder
from dsrd.live.streams.files import FileSource
from dsrd.live.streams.raw import Raw, Source
from dsrd.live.streams.standard_input import StandardInput

COLUMNS = DataConfig(source="caller", target="callee", time="when", features=("f_0", "f_1"))


def dataset(*, features: bool = False, dates: bool = False, columns: DataConfig = COLUMNS) -> Dataset:
    return Dataset.from_arrays(
        "calls",
        [1, 2],
        [2, 3],
        [0.0, 1.0],
        names=Names(["", "ann", "bob", "eve"]),
        edge_x=np.array([[0, 0], [1, 2], [3, 4]]) if features else None,
        features=("f_0", "f_1") if features else (),
        columns=columns,
        dates=dates,
    )


def decoder(data: Dataset | None = None, **options: Any) -> Decoder:
    data = data or dataset()
    return Decoder(EventReader(data), data, **options)


def raw(*lines: str | bytes) -> Raw:
    block = b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines)
    return Raw(block, lambda row: f"calls: line {row + 1}", "calls", [10 * (row + 1) for row in range(len(lines))])


def columns_of(events: Incoming) -> tuple[Any, ...]:
    after = None if events.position is None else events.position.after
    return events.source, events.target, events.time.tolist(), events.id, events.x.tolist(), after


# --- Lines ------------------------------------------------------------------------------------------------------

GOOD_JSON = {
    "plain": [{"source": "ann", "target": "bob", "time": 3}, {"source": "eve", "target": "x", "time": 4.5}],
    "own names": [{"caller": "ann", "callee": "bob", "when": 3, "more": [1, {"a": None}]}] * 3,
    "numbers as names": [{"source": 7, "target": 8, "time": 1e3}, {"source": 9, "target": 7, "time": 1e3}],
    "spaces": [{"source": " ann ", "target": "bob", "time": 3}],
    "features": [{"source": "a", "target": "b", "time": 3, "f_0": 1, "f_1": 2.5}] * 2,
    "without features": [{"source": "a", "target": "b", "time": 3}],
    "times as text": [
        {"source": "a", "target": "b", "time": "3.25"},
        {"source": "a", "target": "b", "time": " 4"},
    ],
    "unicode": [{"source": "Zoë \N{GRINNING FACE}", "target": "日本", "time": 0}],
    "ids": [
        {"source": "a", "target": "b", "time": 3, "key": "k1"},
        {"source": "a", "target": "b", "time": 3, "key": "k2"},
    ],
}


@pytest.mark.parametrize("case", GOOD_JSON)
def test_a_block_is_read_as_its_lines_are(case: str):
    reads = decoder(dataset(features=True), id_field="key" if case == "ids" else None)
    batch = raw(*map(json.dumps, GOOD_JSON[case]))
    at_once, each = reads._at_once(batch), reads._one_by_one(batch)
    assert each.fault is None
    assert columns_of(at_once) == columns_of(each.events)
    assert reads.decode(batch).rows == range(len(GOOD_JSON[case]))


@pytest.mark.parametrize(
    "lines",
    [
        ["ann,bob,3,x", 'eve,"b,c",4.5,y'],
        [" ann ,bob,3,x"],
        ["007,12,20240101,x"],
        ["ann,bob,2024-05-01T12:30:00Z,x", "ann,bob,2024-05-02T00:00:00Z,y"],
        ['"quo""te",bob,3,'],
    ],
)
def test_a_block_of_csv_is_read_as_its_lines_are(lines: list[str]):
    reads = decoder(dataset(dates=True))
    reads.header = ["caller", "callee", "when", "note"]
    batch = raw(*lines)
    assert columns_of(reads._at_once(batch)) == columns_of(reads._one_by_one(batch).events)
    assert reads.record(batch.lines[0])["note"] in ("x", "")


def test_features_in_a_list_are_read():
    found = decoder(dataset(features=True)).decode(
        raw('{"source": "a", "target": "b", "time": 1, "features": [5, 6]}')
    )
    assert found.events.x.tolist() == [[5, 6]]


BAD = {
    '{"source": "a", "target": "b", "time": 2e19}': "time is 2e+19; give a number from 0 to 1e+19",
    '{"source": "a", "target": "b"}': "has no time; give source, target and time",
    "nonsense": "is not JSON",
    "[1, 2]": "is JSON, but no object",
    '{"source": "", "target": "b", "time": 1}': "has a node without a name",
    '{"source": 1.5, "target": "b", "time": 1}': "is neither text nor a whole number",
    '{"source": true, "target": "b", "time": 1}': "is neither text nor a whole number",
    '{"source": "a", "target": "b", "time": -1}': "time is -1",
    '{"source": "a", "target": "b", "time": NaN}': "NaN is no number",
    '{"source": "a", "target": "b", "time": 1e999}': "time is inf",
    '{"source": "a", "target": "b", "time": "soon"}': "time is 'soon', neither a number nor a date",
    '{"source": "a", "target": "b", "time": "2024-05-01"}': "the times of this stream are numbers",
    '{"source": "a", "target": "b", "time": 1, "f_0": 1}': "has no feature 'f_1'",
    '{"source": "a", "target": "b", "time": 1, "f_0": 1, "f_1": "x"}': "has a feature that is not a number",
    "[" * 100_000: "is not JSON",
}


@pytest.mark.parametrize("line", BAD, ids=lambda line: line[:40])
def test_a_bad_line_is_named_and_those_before_it_are_kept(line: str):
    good = '{"source": "a", "target": "b", "time": 1}'
    found = decoder(dataset(features=True)).decode(raw(good, line, good))
    assert str(found.fault).startswith("calls: line 2: ")
    assert BAD[line] in str(found.fault)
    assert list(found.rows) == [0]
    assert found.events.position is not None
    assert found.events.position.after == (10,)
    found = decoder(dataset(features=True), skip_bad=True).decode(raw(good, line, good))
    assert (found.fault, list(found.rows), found.skipped) == (None, [0, 2], 1)


def test_bad_lines_of_csv_are_named():
    reads = decoder()
    reads.header = ["source", "target", "time"]
    for line, fault in (("a,b", "has 2 fields where 3"), (b"\xff,b,1", "not UTF-8"), ('"a,b,1', "is not CSV")):
        assert fault in str(reads.decode(raw("a,b,1", line)).fault)


def test_times_written_in_two_ways_are_refused():
    both = ('{"source": "a", "target": "b", "time": 1}', '{"source": "a", "target": "b", "time": "2024-05-01"}')
    with pytest.raises(DsrdError, match="give numbers or dates"):
        decoder(dataset(dates=True)).decode(raw(*both))


def test_an_event_without_its_id_is_refused():
    found = decoder(id_field="key").decode(raw('{"source": "a", "target": "b", "time": 1}'))
    assert "has no key" in str(found.fault)


def test_empty_lines_are_passed_over():
    found = decoder().decode(raw('{"source": "a", "target": "b", "time": 1}', "", "  "))
    assert (found.fault, list(found.rows), found.skipped) == (None, [0], 0)


# --- Files ------------------------------------------------------------------------------------------------------


def line(number: int) -> str:
    return json.dumps({"source": f"n{number}", "target": "b", "time": number})


def read(source: Source, position: int | None = None, data: Dataset | None = None) -> Iterator[Decoded | None]:
    """The events of a source from a position on; None where it waits."""
    source.start(lambda name: position)
    reads = decoder(data)
    for batch in source.batches():
        if batch is not None:
            reads.header, reads.delimiter = source.header, source.delimiter
        yield None if batch is None else reads.decode(batch)


def names_of(batches: Iterator[Decoded | None]) -> list[str]:
    return [name for batch in batches if batch is not None for name in batch.events.source]


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., FileSource]:
    def source(path: Path, *, follow: bool = False, batch: int = 3) -> FileSource:
        return FileSource(path, Bookmarks(tmp_path / "notes"), follow=follow, batch=batch)

    return source


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_file_is_read_on_from_any_position(
    tmp_path: Path, opened: Callable[..., FileSource], kind: str, packed: bool
):
    path = tmp_path / (f"calls.{kind}" + ".gz" * packed)
    lines = [line(number) for number in range(8)]
    if kind == "csv":
        lines = ["\ufeffsource;target;time", *(f"n{number};b;{number}" for number in range(8))]
    text = "\n".join(lines).encode()  # no newline at the end
    path.write_bytes(gzip.compress(text) if packed else text)
    expected = [f"n{number}" for number in range(8)]
    batches = [batch for batch in read(opened(path)) if batch is not None]
    assert [len(batch.rows) for batch in batches] == [3, 3, 1, 1]  # the last line has no end
    assert names_of(iter(batches)) == expected
    after = [each for batch in batches if batch.events.position for each in batch.events.position.after]
    assert after[-1] == len(text)
    for number, position in enumerate(after):
        assert names_of(read(opened(path), position)) == expected[number + 1 :]


def test_errors_name_the_line_also_after_a_start_in_the_middle(tmp_path: Path, opened: Callable[..., FileSource]):
    path = tmp_path / "calls.jsonl"
    path.write_text("\n".join([line(0), line(1), line(2), line(3), "oops"]) + "\n")
    for position in (None, len(line(0)) + 1, 4 * (len(line(0)) + 1)):
        *_, last = read(opened(path), position)
        assert last is not None
        assert str(last.fault).startswith(f"{path}: line 5: is not JSON")


def test_a_growing_file_is_followed_and_half_a_line_waits(tmp_path: Path, opened: Callable[..., FileSource]):
    path = tmp_path / "calls.jsonl"
    path.write_text("")
    batches = read(opened(path, follow=True))
    assert next(batches) is None
    with path.open("a") as file:
        file.write(line(0) + "\n" + line(1)[:10])
        file.flush()
        assert names_of(iter([next(batches)])) == ["n0"]
        assert next(batches) is None
        file.write(line(1)[10:] + "\n")
        file.flush()
        assert names_of(iter([next(batches)])) == ["n1"]


def test_a_header_that_is_half_written_waits(tmp_path: Path, opened: Callable[..., FileSource]):
    path = tmp_path / "calls.csv"
    path.write_text("source,tar")
    batches = read(opened(path, follow=True))
    assert next(batches) is None
    path.write_text("source,target,time\nann,bob,1\n")
    assert names_of(iter([next(batches)])) == ["ann"]


@pytest.mark.parametrize("what", ["truncated", "replaced by another file", "removed or renamed"])
def test_truncation_and_rotation_are_refused_by_name(tmp_path: Path, opened: Callable[..., FileSource], what: str):
    path = tmp_path / "calls.jsonl"
    path.write_text(line(0) + "\n")
    batches = read(opened(path, follow=True))
    assert names_of(iter([next(batches)])) == ["n0"]
    if what == "truncated":
        path.write_text("")
    else:
        path.rename(tmp_path / "old.jsonl")
        if what.startswith("replaced"):
            path.write_text(line(1) + "\n")
    with pytest.raises(DsrdError, match=f"calls.jsonl: was {what} while it was followed"):
        next(batches)


def test_a_file_that_is_not_the_one_read_before_is_refused(tmp_path: Path, opened: Callable[..., FileSource]):
    path = tmp_path / "calls.jsonl"
    text = line(0) + "\n" + line(1) + "\n"
    path.write_text(text)
    assert names_of(read(opened(path))) == ["n0", "n1"]
    path.write_text(text[:-5])
    with pytest.raises(DsrdError, match=r"is another file|is shorter than what was read"):
        list(read(opened(path), len(text)))
    path.write_text(text.replace("n0", "n9") + line(2) + "\n")
    with pytest.raises(DsrdError, match="is another file than the one read before"):
        list(read(opened(path), len(text)))
    path.write_text(text + line(2) + "\n")
    assert names_of(read(opened(path), len(text))) == ["n2"]


def test_a_last_line_that_was_continued_is_refused(tmp_path: Path, opened: Callable[..., FileSource]):
    path = tmp_path / "calls.csv"
    path.write_text("source,target,time\nann,bob,1")
    assert names_of(read(opened(path))) == ["ann"]
    path.write_text("source,target,time\nann,bob,12\n")
    with pytest.raises(DsrdError, match="last line was continued after it had been read"):
        list(read(opened(path), 28))


@pytest.mark.parametrize(
    ("name", "follow", "fault"),
    [
        ("calls.jsonl.gz", True, "a compressed file cannot be followed"),
        ("calls.parquet", False, "neither .csv nor .jsonl"),
        ("none.jsonl", False, "no such file"),
    ],
)
def test_files_that_cannot_be_read_are_refused(
    tmp_path: Path, opened: Callable[..., FileSource], name: str, follow: bool, fault: str
):
    with pytest.raises(DsrdError, match=fault):
        list(read(opened(tmp_path / name, follow=follow)))


def test_a_damaged_gz_file_is_refused(tmp_path: Path, opened: Callable[..., FileSource]):
    path = tmp_path / "calls.jsonl.gz"
    path.write_bytes(gzip.compress((line(0) + "\n").encode() * 50)[:-20])
    with pytest.raises(DsrdError, match="cannot be read"):
        list(read(opened(path)))


def test_standard_input_is_read_as_it_comes():
    class Pipe(io.RawIOBase):
        """Gives a line, then waits for the reader to have seen it."""

        def __init__(self) -> None:
            self.blocks, self.seen = [line(0) + "\n" + line(1)[:9], line(1)[9:] + "\n", line(2)], threading.Event()

        def read1(self, size: int) -> bytes:
            if len(self.blocks) < 3:
                assert self.seen.wait(5)
            return self.blocks.pop(0).encode() if self.blocks else b""

    pipe = Pipe()
    batches = read(StandardInput(10, pipe))  # type: ignore[arg-type]
    first = next(batches)
    assert names_of(iter([first])) == ["n0"]
    assert first is not None
    assert first.events.position is None
    pipe.seen.set()
    assert names_of(batches) == ["n1", "n2"]


def test_an_address_never_shows_a_password():
    address = Address.of("redis://me:secret@127.0.0.1:6379/calls")
    assert (address.user, address.password, address.server) == ("me", "secret", "127.0.0.1:6379")
    assert "secret" not in str(address)
