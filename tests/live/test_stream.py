"""`dsrd stream`: kills lose nothing, lines say what the engine found, bad lines are refused or counted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsrd.errors import MachineError
from dsrd.live.engine import Engine
from dsrd.live.settings import LiveSettings
from dsrd.live.streams.address import Address
from dsrd.live.streams.bookmarks import Bookmarks
from dsrd.live.streams.decoding import Decoder
from dsrd.live.streams.lines import LineWriter, stream_rates
from dsrd.live.streams.open_ends import open_sink, open_source
from dsrd.live.streams.recent import Recent
from dsrd.live.streams.stream import Stream
from live.streaming import (
    QUIET,
    START,
    Twin,
    as_jsonl,
    assert_lines_are_those_of,
    assert_nothing_is_lost,
    events,
    kill_when,
    num_logged,
    stop,
    stream,
    twin_of,
    wait_for,
)
from support.program import done, dsrd

COUNT = 600


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return events(COUNT)


@pytest.fixture(scope="module")
def twin(run: Path, records: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Twin:
    return twin_of(run, tmp_path_factory.mktemp("twin") / "data", records)


# --- Kills -------------------------------------------------------------------------------------------------------


def test_a_kill_loses_nothing_and_repeats_nothing(
    tmp_path: Path, run: Path, records: list[dict[str, Any]], twin: Twin
):
    """A growing file; killed in the middle, started again, stopped by SIGTERM at the end."""
    source, sink, data = tmp_path / "calls.jsonl", tmp_path / "out.jsonl", tmp_path / "data"
    source.write_text(as_jsonl(records))
    words = (run, "--data", data, "--from", source, "--to", sink, "--follow", "--batch", 20)
    first = stream(*words)
    kill_when(first, lambda: sink.exists() and sink.stat().st_size > 6_000)
    assert 0 < num_logged(data) < COUNT
    with sink.open("a") as file:
        file.write('{"source": 3, "tar')  # half a line, as a kill may leave it
    second = stream(*words)
    wait_for(second, lambda: num_logged(data) == COUNT)
    assert "written" in stop(second)
    assert list((data / "snapshots").glob(f"{COUNT:015d}-*.safetensors"))
    assert_lines_are_those_of(read(sink), twin, records)
    assert_nothing_is_lost(data, twin, COUNT)


def passing(engine: Engine, source: Path, sink: str, batch: int = 50, alert: float | None = None) -> Stream:
    bookmarks = Bookmarks(engine.folder.path / "streams")
    decoder = Decoder(engine.reader, engine.live.fitted.online.stream.dataset())
    opened = open_source(Address.of(str(source)), bookmarks, batch=batch)
    return Stream(
        engine, opened, open_sink(Address.of(sink)), decoder, LineWriter(decoder, alert, Recent()), bookmarks
    )


@pytest.mark.parametrize("model", ["run", "tgn"])
@pytest.mark.parametrize("snapshot_at", [0, 100, 400])
def test_events_that_did_not_reach_the_sink_are_measured_again(
    tmp_path: Path, request: pytest.FixtureRequest, model: str, snapshot_at: int
):
    """The process ends between the log and the sink, with or without a snapshot that is old enough."""
    run: Path = request.getfixturevalue(model)
    source, sink, data = tmp_path / "calls.jsonl", tmp_path / "out.jsonl", tmp_path / "data"
    records = events(400)
    source.write_text(as_jsonl(records))
    expected = tmp_path / "expected.jsonl"
    settings = LiveSettings(watch=0.0, snapshot_events=0, snapshot_minutes=0, keep_snapshots=9)
    with Engine(tmp_path / "twin", run, settings) as engine:
        passing(engine, source, str(expected)).run(_never(), "expected")
    with Engine(data, run, settings) as engine:
        stopped = passing(engine, source, str(sink))
        write = stopped._sink.write

        def fails_at_200(seqs: list[int], lines: list[str]) -> None:
            if seqs[-1] == snapshot_at:
                engine.snapshot()
            if seqs[-1] >= 200:
                raise MachineError("the machine stops here")
            write(seqs, lines)

        stopped._sink.write = fails_at_200  # type: ignore[method-assign, assignment]
        with pytest.raises(MachineError):
            stopped.run(_never(), "sink")
        if snapshot_at == 400:
            engine.snapshot()
        engine._live.last_snapshot = engine.live.timeline.seq  # no snapshot at the end
    assert (num_logged(data), len(read(sink))) == (200, 150)
    with Engine(data, settings=settings) as engine:
        totals = passing(engine, source, str(sink)).run(_never(), "sink")
        assert (totals.events, totals.again, totals.written) == (200, 50, 250)
    got, wanted = read(sink), read(expected)
    for name in ("seq", "time"):
        assert [each[name] for each in got] == [each[name] for each in wanted]
    bits = [[each["surprise"] for each in lines] for lines in (got, wanted)]
    assert np.allclose(*bits, rtol=1e-4, atol=1e-4)


def _never() -> threading.Event:
    return threading.Event()


@pytest.mark.slow
def test_ten_kills_at_random_moments(tmp_path: Path, run: Path):
    draw = np.random.default_rng(1)
    records = events(6_000)
    twin = twin_of(run, tmp_path / "twin", records)
    source, sink, data = tmp_path / "calls.jsonl", tmp_path / "out.jsonl", tmp_path / "data"
    source.write_text(as_jsonl(records))
    words = (run, "--data", data, "--from", source, "--to", sink, "--batch", 5)
    for _ in range(10):
        before, more = num_logged(data), int(draw.integers(20, 500))
        process = stream(*words)
        kill_when(process, lambda until=before + more: num_logged(data) >= until)
    done("stream", *words)
    assert_lines_are_those_of(read(sink), twin, records)
    assert_nothing_is_lost(data, twin, len(records))


# --- Lines -------------------------------------------------------------------------------------------------------


def test_lines_have_what_the_event_had_and_what_the_engine_found(
    tmp_path: Path, run: Path, records: list[dict[str, Any]]
):
    source, sink = tmp_path / "calls.csv", tmp_path / "out.jsonl"
    rows = [f"{each['source']},{each['target']},{each['time']},{each['note']},7\n" for each in records[:80]]
    source.write_text("source,target,time,note,rate\n" + "".join(rows))
    said = done("stream", run, "--data", tmp_path / "data", "--from", source, "--to", sink, "--json").json
    assert said == {"seq": 80, "events": 80, "duplicates": 0, "late": 0, "skipped": 0, "written": 80, "again": 0}
    lines = read(sink)
    with Engine(tmp_path / "twin", run, QUIET) as engine:
        plain = [{key: each[key] for key in ("source", "target", "time")} for each in records[:80]]
        engine.observe(plain[:79])
        asked = engine.surprise(plain[79:]).answer
    last = lines[-1]
    assert (last["source"], last["note"], last["rate"], last["seq"]) == (str(plain[79]["source"]), "e79", 7, 80)
    assert last["surprise"] == pytest.approx(float(asked.surprise[0]), rel=1e-3)
    assert last["partner"] == pytest.approx(float(asked.partner[0]), rel=1e-3)
    assert asked.rate is not None
    assert last["dsrd_rate"] == pytest.approx(float(asked.rate[0]), rel=0.05)
    assert last["source_bits"] + last["partner_bits"] == pytest.approx(last["surprise"], abs=1e-4)


def test_the_rate_of_the_stream_is_nearly_that_of_every_event(tmp_path: Path, run: Path):
    draw = np.random.default_rng(2)
    gaps = draw.exponential(1.0, 3_000)
    gaps[1_500] = 2_000.0  # a silence
    time = (START + np.cumsum(gaps)).tolist()
    with Engine(tmp_path / "data", run, QUIET) as engine:
        engine.observe([{"source": 1, "target": 2, "time": each} for each in time])
        present = engine.live.timeline.present
        asked = np.array(time[1_200:1_800])
        exact = present.stream_rate(asked)
        near = stream_rates(present, asked)
    off = np.abs(near / exact - 1)
    assert np.quantile(off, 0.9) < 0.02
    assert off.max() < 0.6  # in the 50 events after the silence


def test_alerts_are_the_most_surprising_events(tmp_path: Path, run: Path, records: list[dict[str, Any]]):
    source, sink = tmp_path / "calls.jsonl", tmp_path / "out.jsonl"
    source.write_text(as_jsonl(records[:300]))
    words = ("stream", run, "--from", source, "--to", sink)
    done(*words, "--data", tmp_path / "all")
    every = read(sink)
    sink.unlink()
    done(*words, "--data", tmp_path / "data", "--alert", 95)
    alerts = read(sink)
    assert 3 <= len(alerts) <= 60
    assert all(each in every for each in alerts)
    least = min(each["surprise"] for each in alerts)
    assert least > np.median([each["surprise"] for each in every])


# --- What is refused ---------------------------------------------------------------------------------------------


def test_bad_lines_stop_a_stream_or_are_counted(tmp_path: Path, run: Path, records: list[dict[str, Any]]):
    source, data = tmp_path / "calls.jsonl", tmp_path / "data"
    lines = as_jsonl(records[:10]).splitlines()
    lines[3:3] = ["oops"]
    lines[6:6] = ['{"source": "ann", "target": 3, "time": 3000008}']  # the nodes of this stream are numbers
    source.write_text("\n".join(lines) + "\n")
    words = ("stream", run, "--data", data, "--from", source)
    outcome = dsrd(*words)
    assert (outcome.code, num_logged(data)) == (2, 3)
    assert outcome.error.startswith(f"error: {source}: line 4: is not JSON")
    lines[3] = ""
    source.write_text("\n".join([*lines[:3], "    ", *lines[4:]]) + "\n")  # mended, in the same number of bytes
    outcome = dsrd(*words)
    assert (outcome.code, num_logged(data)) == (2, 5)
    assert "line 7: node 'ann' is no number" in outcome.error
    said = done(*words, "--skip-bad", "--json").json
    assert (said["seq"], said["events"], said["skipped"]) == (10, 5, 1)


def test_late_events_are_refused_dropped_or_reordered(tmp_path: Path, run: Path):
    source, sink = tmp_path / "calls.jsonl", tmp_path / "out.jsonl"
    times = [START + each for each in (1, 5, 3, 9, 7, 20)]
    source.write_text(as_jsonl([{"source": 1, "target": 2, "time": time, "n": n} for n, time in enumerate(times)]))
    words = ("stream", run, "--from", source, "--to", sink, "--batch", 1)
    outcome = dsrd(*words, "--data", tmp_path / "refused")
    assert "line 3: time 3000003 is older than the newest event" in outcome.error
    sink.unlink()
    assert done(*words, "--data", tmp_path / "dropped", "--late", "drop", "--json").json["late"] == 2
    assert [each["n"] for each in read(sink)] == [0, 1, 3, 5]
    sink.unlink()
    done(*words, "--data", tmp_path / "reordered", "--late", "reorder", "--window", 4)
    assert [each["n"] for each in read(sink)] == [0, 2, 1, 4, 3]  # the last one waits
    assert [each["seq"] for each in read(sink)] == [1, 2, 3, 4, 5]


def test_events_with_known_ids_are_not_counted_again(tmp_path: Path, run: Path):
    source = tmp_path / "calls.jsonl"
    record = {"source": 1, "target": 2, "time": START, "key": "a"}
    source.write_text(as_jsonl([record, {**record, "key": "b"}, record]))
    said = done("stream", run, "--data", tmp_path / "data", "--from", source, "--id", "key", "--json").json
    assert (said["events"], said["duplicates"]) == (2, 1)


def test_a_sink_of_others_is_refused(tmp_path: Path, run: Path, records: list[dict[str, Any]]):
    source, sink = tmp_path / "calls.jsonl", tmp_path / "out.jsonl"
    source.write_text(as_jsonl(records[:5]))
    words = ("stream", run, "--data", tmp_path / "data", "--from", source, "--to", sink)
    sink.write_text("{}\n")
    assert "has no `seq`" in dsrd(*words).error
    sink.write_text('{"seq": 900}\n')
    assert "belongs to another data folder" in dsrd(*words).error
    assert "let the name end in .jsonl" in dsrd(*words[:-1], tmp_path / "out.csv").error


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("--from", "ftp://x/y"), "unknown kind of stream"),
        (("--from", "kafka://127.0.0.1:1"), "has no topic"),
        (("--from", "-", "--follow"), "standard input is read until it ends"),
        (("--from", "calls.jsonl", "--alert", "100"), "give a percentile"),
        (("--from", "none"), "no source called none"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, run: Path, words: tuple[str, ...], fault: str):
    assert fault in dsrd("stream", run, "--data", tmp_path / "data", *words).error


def test_standard_input_to_standard_output(tmp_path: Path, run: Path, records: list[dict[str, Any]]):
    """Through real pipes; Ctrl-C stops it cleanly."""
    words = ("stream", str(run), "--data", str(tmp_path / "data"), "--from", "-", "--to", "-", "--threads", "1")
    process = subprocess.Popen(
        [sys.executable, "-c", "from dsrd.cli import main; main()", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(as_jsonl(records[:2]).encode())
    process.stdin.flush()
    lines = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert [each["seq"] for each in lines] == [1, 2]
    assert [each["note"] for each in lines] == ["e0", "e1"]
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert b"2 events; 2 written" in (process.stderr.read() if process.stderr else b"")
    assert num_logged(tmp_path / "data") == 2
    process.stdin.close()
