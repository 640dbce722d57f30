"""`dsrd serve` as a process: it starts, is killed, goes on, is followed, and stops in good order."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs dsrd[serve]")

from dsrd.live import Engine
from live.rows import QUIET, answers, in_batches, rows
from support.program import dsrd

TOKEN = "a-token-of-good-length"


@dataclass
class Server:
    """A running `dsrd serve`."""

    process: subprocess.Popen[str]
    port: int
    said: list[str]

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def until_ready(self) -> None:
        for _ in range(1200):
            if self.ask("GET", "/readyz")[0] == 200:
                return
            time.sleep(0.1)
        raise AssertionError("not ready after two minutes")

    def state(self) -> dict[str, Any]:
        status, body = self.ask("GET", "/v1/state")
        assert status == 200, body
        return dict(body)


@contextmanager
def serving(*words: object, **environment: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "dsrd", "serve", *map(str, words), "--port", "0"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stderr is not None
            first = process.stderr.readline()
            address = re.search(r"listening on http://127\.0\.0\.1:(\d+)$", first.strip())
            assert address, first + process.stderr.read()
            yield Server(process, int(address[1]), [first])
        finally:
            process.kill()


def test_a_killed_server_goes_on_is_followed_and_stops_in_good_order(run: Path, tmp_path: Path):
    data = tmp_path / "data"
    with serving(run, "--data", data, "--snapshot-events", 20) as server:
        server.until_ready()
        acknowledged = 0
        for start in range(0, 56, 7):
            status, done = server.ask("POST", "/v1/observe", {"events": rows(7, start)})
            assert status == 200
            acknowledged = done["seq"]
        server.process.send_signal(signal.SIGKILL)
        assert server.process.wait(30) == -signal.SIGKILL
    assert acknowledged == 56
    with serving("--data", data) as server, serving("--data", data, "--read-only") as replica:
        server.until_ready()
        replica.until_ready()
        assert server.state()["seq"] == 56
        status, done = server.ask("POST", "/v1/observe", {"events": rows(14, 56)})
        assert (status, done["seq"]) == (200, 70)
        asked = {"pairs": [{"source": source, "target": 7} for source in range(1, 20)]}
        expected = server.ask("POST", "/v1/score", asked)
        while replica.state()["seq"] < 70:
            time.sleep(0.05)
        assert replica.ask("POST", "/v1/score", asked) == expected
        assert replica.state() == server.state()
        assert replica.ask("POST", "/v1/observe", {"events": rows(1, 70)})[0] == 403
        for each in (server, replica):
            each.process.send_signal(signal.SIGTERM)
            assert each.process.wait(60) == 0
            assert each.process.stderr is not None
            assert "Traceback" not in each.process.stderr.read()
    assert (data / "snapshots").exists()
    with Engine(data, settings=QUIET) as engine:
        assert engine.live.last_snapshot == 70
        found = answers(engine)
    with Engine(tmp_path / "twin", run, QUIET) as twin:
        in_batches(twin, 70)
        assert answers(twin) == found


def test_what_cannot_be_served_is_refused(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DSRD_TOKEN", raising=False)
    data = tmp_path / "data"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert "cannot listen there" in dsrd("serve", run, "--data", data, "--port", port).error
    every = dsrd("serve", run, "--data", data, "--host", "0.0.0.0")
    assert (every.code, "without a token the server listens on 127.0.0.1 only" in every.error) == (2, True)
    (tmp_path / "token").write_text("short")
    short = dsrd("serve", run, "--data", data, "--token-file", tmp_path / "token")
    assert (short.code, "16 or more letters" in short.error) == (2, True)
    assert "none: no such file" in dsrd("serve", run, "--token-file", tmp_path / "none").error
    assert "give the folder of a run" in dsrd("serve").error
    assert "--max-batch is 0" in dsrd("serve", run, "--max-batch", 0).error
    assert "give one above 0" in dsrd("serve", run, "--late", "reorder").error
    nowhere = dsrd("serve", tmp_path / "no-run", "--data", data, "--port", 0)
    assert (nowhere.code, "no-run" in nowhere.error) == (2, True)
    follow = dsrd("serve", "--data", tmp_path / "empty", "--read-only", "--port", 0)
    assert (follow.code, "not the data folder of an engine" in follow.error) == (2, True)
