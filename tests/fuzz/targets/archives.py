"""Downloads and the archives in them."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import dsrd
from dsrd.data import fetch as fetching
from dsrd.data.catalog import find
from dsrd.data.fetch import fetch
from fuzz.mutate import applied, bytes_case
from fuzz.targets import VALID, Target, refused_or
from fuzz.targets.readers import benchmark, check, raw, zipped

LENGTHS = (None, None, None, None, "abc", "-1", "0", "99999999999999999999", "")


class Archive(Target):
    """A server that sends damaged archives, and headers that are wrong."""

    area, share, traced = "archives", 3, "dsrd/data/"

    def prepare(self, folder: Path) -> None:
        fetching.PAUSE = 0.001
        self.spec = find("uci")
        files = benchmark("uci")
        self.seeds = {
            "processed.zip": zipped({f"processed_data/uci/{name}": content for name, content in files.items()}),
            "raw.zip": zipped({"uci/uci.csv": raw()}),
            "uci.csv": raw(),
            "above.zip": zipped({"../uci.csv": raw(), "/uci.csv": raw()}),
        }

    def draw(self, chance: Random, corpus: list[Any]) -> Any:
        name = chance.choice(list(self.seeds))
        case = bytes_case(chance, name, self.seeds[name], corpus)
        return {**case, "length": chance.choice(LENGTHS), "cut": chance.random() < 0.1}

    def attempt(self, case: Any, folder: Path) -> str:
        from dataclasses import replace

        body = applied(self.seeds[case["seed"]], case["edits"])
        with ThreadingHTTPServer(("127.0.0.1", 0), _handler(body, case)) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005})
            thread.start()
            try:
                url = f"http://127.0.0.1:{server.server_address[1]}/{case['seed']}"
                place = folder / "data"
                before = {*folder.parent.iterdir()}

                def get() -> str:
                    found = fetch(replace(self.spec, url=url, sha256=None, md5=None), place)
                    check(dsrd.load(found, cache=False))
                    return VALID

                outcome = refused_or(get)
                outside = [path for path in folder.rglob("*") if not path.is_relative_to(place)]
                assert not outside, outside
                assert before
                return outcome
            finally:
                server.shutdown()
                thread.join()


def _handler(body: bytes, case: Any) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            length = case["length"]
            self.send_header("Content-Length", str(len(body)) if length is None else length)
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if case["cut"] else body)
            self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    return Handler
