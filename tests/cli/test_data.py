"""`dsrd data ...`: every command, on a synthetic stream and on a CSV file."""

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


def test_list_marks_data_sets_that_are_present(monkeypatch: pytest.MonkeyPatch):
    Path("data/uci").mkdir(parents=True)
    rows = {row["name"]: row for row in done("data", "list", "--json", "--data-dir", "data").json["datasets"]}
    assert rows["uci"]["here"] == "data/uci"
    assert rows["enron"]["here"] is None
    assert (rows["uci"]["events"], rows["uci"]["nodes"]) == (59_835, 1_899)
    shown = done("data", "list", "--data-dir", "data").out.splitlines()
    assert all(len(line) <= 80 for line in shown), "a table that does not fit a terminal"
    assert next(line for line in shown if line.startswith("uci ")).split()[-1] == "yes"
    assert next(line for line in shown if line.startswith("Flights ")).split()[-1] == "no"


def test_describe_a_synthetic_stream():
    result = done("data", "describe", STREAM, "--json").json
    assert (result["name"], result["events"], result["nodes"], result["sorted"]) == (STREAM, 1000, 40, True)
    shown = done("data", "describe", STREAM)
    assert "repeat ratio" in shown.out
    assert shown.err == ""


def test_describe_an_own_csv_file(calls: Path):
    result = done("data", "describe", calls, *CALLS, "--json").json
    assert (result["events"], result["nodes"], result["edge_dim"]) == (120, 8, 1)
    assert result["labels"] == {"0": 60, "1": 60}
    assert result["first_time"] == 1714523400.0  # 2024-05-01T00:30:00Z
    assert result["notes"] == [
        "sorted by time: 1 of 120 rows were earlier than the row before",
        "ignored the column remark; choose features with `features`, a label with `label`",
    ]
    assert "sorted by time" in done("data", "describe", calls, *CALLS).err


def test_describe_from_the_cache_gives_the_same(calls: Path):
    assert (
        done("data", "describe", calls, *CALLS, "--json").out
        == done("data", "describe", calls, *CALLS, "--json").out
    )


def test_audit_reports_negatives_and_ceiling():
    result = done("data", "audit", STREAM, "--json").json
    assert result["negatives"]["transductive"]["historical"]["ceiling_ap"] == 100
    assert set(result["negatives"]["inductive"]) == {"random", "historical", "inductive"}
    shown = done("data", "audit", STREAM, "--order", "fast")
    assert "ceiling AP" in shown.out
    assert "strangers first" in shown.out
    assert 0 < result["unlearned"]["historical"]["given_away"] < 1
    assert all(len(line.rstrip()) <= 80 for line in shown.out.splitlines())


def test_audit_of_a_file(calls: Path):
    assert done("data", "audit", calls, *CALLS, "--json").json["dataset"] == "calls"


@pytest.mark.parametrize("out", ["copy.csv", "copy.parquet", "copy", "deep/folder/copy.parquet"])
def test_convert_keeps_the_events(calls: Path, out: str):
    message = done("data", "convert", calls, out, *CALLS, "--json").json
    assert (message["path"], message["events"]) == (out, 120)
    names = ["--features", "f_*", "--label", "label"] if out.endswith(".csv") else []
    result = done("data", "describe", out, *names, "--json").json
    assert (result["events"], result["nodes"], result["edge_dim"], result["labels"]) == (
        120,
        8,
        1,
        {"0": 60, "1": 60},
    )
    assert not list(Path().rglob("*.part"))


def test_convert_prints_path_and_events(calls: Path):
    assert done("data", "convert", calls, "copy.csv", *CALLS).out == "copy.csv: 120 events\n"


@pytest.mark.parametrize("out", ["drawn.csv", "drawn.parquet", "drawn"])
def test_synth_writes_the_stream_of_its_settings(out: str):
    message = done("data", "synth", out, "--set", "events=300", "--set", "seed=5", "--json").json
    assert message["events"] == 300
    assert "seed=5" in message["notes"][-1]
    written, drawn = load(out), done("data", "describe", "synth:events=300,seed=5", "--json").json
    assert len(written.events) == 300
    assert float(written.events.time[-1]) == pytest.approx(drawn["last_time"])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The URL of a folder with one file, `calls.csv`."""
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


def test_fetch_downloads_a_file(server: str):
    result = done("data", "fetch", f"{server}/calls.csv", "--to", "here", "--json")
    assert result.json == {"path": "here/calls.csv"}
    assert Path("here/calls.csv").read_text() == "source,target,time\n1,2,3\n"
    assert done("data", "fetch", f"{server}/calls.csv", "--to", "here").out == "here/calls.csv\n"


def test_fetch_refuses_a_wrong_checksum_and_a_missing_file(server: str):
    Path("here").mkdir()
    message = refused("data", "fetch", f"{server}/calls.csv", "--to", "here", "--sha256", "abc")
    assert "expected abc" in message
    assert "404" in refused("data", "fetch", f"{server}/other.csv", "--to", "here")


def test_fetch_without_a_network_exits_with_code_1(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dsrd.data.fetch.ATTEMPTS", 1)
    Path("here").mkdir()
    message = refused("data", "fetch", "http://127.0.0.1:9/calls.csv", "--to", "here", code=1)
    assert "check the network and try again" in message
