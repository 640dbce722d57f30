"""`dsrd data ...`: every command on a drawn stream and on a file of one's own."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dsrd.data.read import load
from support.call_log import CALLS
from support.program import STREAM, done, refused


def test_list_says_what_is_here(monkeypatch: pytest.MonkeyPatch):
    Path("data/uci").mkdir(parents=True)
    rows = {row["name"]: row for row in done("data", "list", "--json", "--data-dir", "data").json["datasets"]}
    assert rows["uci"]["here"] == "data/uci"
    assert rows["enron"]["here"] is None
    assert (rows["uci"]["events"], rows["uci"]["nodes"]) == (59_835, 1_899)
    shown = done("data", "list", "--data-dir", "data").out.splitlines()
    assert all(len(line) <= 80 for line in shown), "a table that does not fit a terminal"
    assert next(line for line in shown if line.startswith("uci ")).split()[-1] == "yes"
    assert next(line for line in shown if line.startswith("Flights ")).split()[-1] == "no"


def test_describe_a_drawn_stream():
    found = done("data", "describe", STREAM, "--json").json
    assert (found["name"], found["events"], found["nodes"], found["sorted"]) == (STREAM, 1000, 40, True)
    shown = done("data", "describe", STREAM)
    assert "repeat ratio" in shown.out
    assert shown.err == ""


def test_describe_a_file_of_ones_own(calls: Path):
    found = done("data", "describe", calls, *CALLS, "--json").json
    assert (found["events"], found["nodes"], found["edge_dim"]) == (120, 8, 1)
    assert found["labels"] == {"0": 60, "1": 60}
    assert found["first_time"] == 1714523400.0  # 2024-05-01T00:30:00Z
    assert found["notes"] == [
        "sorted by time: 1 of 120 rows were earlier than the row before",
        "ignored the column remark; choose features with `features`, a label with `label`",
    ]
    assert "sorted by time" in done("data", "describe", calls, *CALLS).err


def test_a_second_look_comes_from_the_cache_and_says_the_same(calls: Path):
    assert (
        done("data", "describe", calls, *CALLS, "--json").out
        == done("data", "describe", calls, *CALLS, "--json").out
    )


def test_audit():
    found = done("data", "audit", STREAM, "--json").json
    assert found["negatives"]["transductive"]["historical"]["ceiling_ap"] == 100
    assert set(found["negatives"]["inductive"]) == {"random", "historical", "inductive"}
    shown = done("data", "audit", STREAM, "--order", "fast")
    assert "ceiling AP" in shown.out
    assert all(len(line.rstrip()) <= 80 for line in shown.out.splitlines())


def test_audit_of_a_file(calls: Path):
    assert done("data", "audit", calls, *CALLS, "--json").json["dataset"] == "calls"


@pytest.mark.parametrize("out", ["copy.csv", "copy.parquet", "copy", "deep/folder/copy.parquet"])
def test_convert_keeps_the_events(calls: Path, out: str):
    said = done("data", "convert", calls, out, *CALLS, "--json").json
    assert (said["path"], said["events"]) == (out, 120)
    names = ["--features", "f_*", "--label", "label"] if out.endswith(".csv") else []
    found = done("data", "describe", out, *names, "--json").json
    assert (found["events"], found["nodes"], found["edge_dim"], found["labels"]) == (120, 8, 1, {"0": 60, "1": 60})
    assert not list(Path().rglob("*.part"))


def test_convert_says_what_it_wrote(calls: Path):
    assert done("data", "convert", calls, "copy.csv", *CALLS).out == "copy.csv: 120 events\n"


@pytest.mark.parametrize("out", ["drawn.csv", "drawn.parquet", "drawn"])
def test_synth_writes_the_stream_that_its_settings_name(out: str):
    said = done("data", "synth", out, "--set", "events=300", "--set", "seed=5", "--json").json
    assert said["events"] == 300
    assert "seed=5" in said["notes"][-1]
    written, drawn = load(out), done("data", "describe", "synth:events=300,seed=5", "--json").json
    assert len(written.events) == 300
    assert float(written.events.time[-1]) == pytest.approx(drawn["last_time"])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The address of a folder with one file, `calls.csv`."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "calls.csv").write_text("source,target,time\n1,2,3\n")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()


def test_fetch_brings_a_file(server: str):
    found = done("data", "fetch", f"{server}/calls.csv", "--to", "here", "--json")
    assert found.json == {"path": "here/calls.csv"}
    assert Path("here/calls.csv").read_text() == "source,target,time\n1,2,3\n"
    assert done("data", "fetch", f"{server}/calls.csv", "--to", "here").out == "here/calls.csv\n"


def test_fetch_refuses_another_checksum_and_what_is_not_there(server: str):
    Path("here").mkdir()
    said = refused("data", "fetch", f"{server}/calls.csv", "--to", "here", "--sha256", "abc")
    assert "expected abc" in said
    assert "404" in refused("data", "fetch", f"{server}/other.csv", "--to", "here")


def test_fetch_without_a_network_is_no_fault_of_the_input(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dsrd.data.fetch.ATTEMPTS", 1)
    Path("here").mkdir()
    said = refused("data", "fetch", "http://127.0.0.1:9/calls.csv", "--to", "here", code=1)
    assert "check the network and run the same command again" in said
