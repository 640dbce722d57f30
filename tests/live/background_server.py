"""A server in a thread of the test process, which a browser can open."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from dsrd.live.engine import Engine
from dsrd.live.server.app import create_app
from dsrd.live.server.guard import Limits
from dsrd.live.server.service import Service


@dataclass
class Served:
    """A running server and its engine."""

    port: int
    engine: Engine
    token: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text)

    def observe(self, *pairs: tuple[Any, Any]) -> int:
        """Observe events one time step after another; the number of the newest."""
        start = self.engine.state().time
        events = [
            {"source": source, "target": target, "time": start + step + 1}
            for step, (source, target) in enumerate(pairs)
        ]
        status, body = self.ask("POST", "/v1/observe", {"events": events})
        assert status == 200, body
        return int(body["seq"])


@contextmanager
def served(data: Path, run: Path | None, *, token: str | None = None, port: int = 0) -> Iterator[Served]:
    """Serve a run in the background; afterwards the port is free again."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen()
    service = Service(lambda progress: Engine(data, run, progress=progress))
    config = uvicorn.Config(create_app(service, Limits(), token), log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    service.start(failed=lambda: None)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not (server.started and service.ready):
        assert service.error is None, service.error
        time.sleep(0.01)
    engine = service.engine
    assert isinstance(engine, Engine)
    try:
        yield Served(listening.getsockname()[1], engine, token)
    finally:
        service.stopping = server.should_exit = True
        thread.join(20)
        listening.close()
        service.close()
        assert not thread.is_alive(), "a reader of the feed keeps the server from stopping"
