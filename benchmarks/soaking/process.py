"""A `dsrd serve` process that is started, killed and started again on the same data folder."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

TOKEN = "soak-0123456789abcdef"
STARTED = 900.0  # seconds a start may take, on a machine that is busy with other work


@dataclass
class Answered:
    """A status and a JSON body; status 0: no whole answer came."""

    status: int
    body: Any = None


class Client:
    """One connection that is opened again when it breaks."""

    def __init__(self, port: int, token: str = TOKEN, timeout: float = 60.0) -> None:
        self.port, self.timeout = port, timeout
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: Any = None) -> Answered:
        """One request; bodies are JSON unless they are bytes."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = self.headers | ({"Content-Type": "application/json"} if data is not None else {})
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            self.close()
            return Answered(0)
        try:
            return Answered(answer.status, json.loads(text))
        except ValueError:
            return Answered(answer.status, text)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


@dataclass
class Server:
    """The process, and how long its starts took."""

    run: Path
    data: Path
    log: Path  # what it prints
    port: int = 0
    options: tuple[str, ...] = ()
    recoveries: list[float] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.port = self.port or free_port()
        began = time.monotonic()
        command = [sys.executable, "-m", "dsrd", "serve", str(self.run), "--data", str(self.data)]
        command += ["--port", str(self.port), *self.options]
        with self.log.open("ab") as out:
            environment = {**os.environ, "DSRD_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
        client = Client(self.port)
        while client.ask("GET", "/readyz").status != 200:
            if self.process.poll() is not None or time.monotonic() - began > STARTED:
                raise AssertionError(f"the server did not start; see {self.log}")
            time.sleep(0.05)
        client.close()
        self.recoveries.append(time.monotonic() - began)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def rss(self) -> float:
        """Its memory, in MB."""
        return float(psutil.Process(self.pid).memory_info().rss / 1e6)

    def kill(self) -> None:
        """End it at once, if it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int:
        """End it in good order; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=STARTED)
        except subprocess.TimeoutExpired:
            self.kill()
            return -1


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
