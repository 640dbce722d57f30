"""Speed of `dsrd serve`, `dsrd stream` and recovery: events and questions a second, on this machine. JSON output.

    python benchmarks/serving.py --save results/serving.jsonl
    python benchmarks/serving.py --model tgn --save results/serving.jsonl

Draws a stream, trains a model for one epoch, serves it from one process and asks it from another, over
127.0.0.1; then passes a file through a stream, and times the recovery of a long log, in this process. Processor
time is that of the server, per event, request or pair: it depends little on what else the machine does. `bare` is
the same model called in Python without engine or server, measured just before: it says how fast the machine was at
that moment, and what the server adds. The load of the machine is noted too. Beside the figures of all requests are
those of the fifth in a row that was answered fastest (`best_fifth`): other processes were least in the way there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch

import dsrd
from dsrd.live import Engine, LiveSettings
from dsrd.live.streams.bookmarks import Bookmarks
from dsrd.live.streams.decoding import Decoder
from dsrd.live.streams.files import FileSource
from dsrd.live.streams.lines import LineWriter
from dsrd.live.streams.recent import Recent
from dsrd.live.streams.sinks import FileSink, NoSink, Sink
from dsrd.live.streams.stream import Stream
from dsrd.machine import load_average
from record import print_record

BATCH = 200  # events of a request
BULK = 5_000  # pairs of a request
NODES = 5_000
LOGGED_AT_ONCE = 2_000
QUIET = LiveSettings(watch=0, snapshot_events=0, snapshot_minutes=0)


# --- A client, in a process of its own


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    writer.write(f"{head}\r\n\r\n".encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(answer.partition(b"content-length:")[2].partition(b"\r\n")[0])
    content = await reader.readexactly(length)
    if not answer.startswith(b"http/1.1 200"):
        raise RuntimeError(content.decode())
    return content


async def _load(port: int, path: str, bodies: list[bytes], connections: int) -> list[tuple[float, float]]:
    """Send each body once, over some connections; when each request began and ended."""
    waiting, times = iter(bodies), []

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for body in waiting:
            began = time.perf_counter()
            await _ask(reader, writer, path, body)
            times.append((began, time.perf_counter()))
        writer.close()

    await asyncio.gather(*(connection() for _ in range(connections)))
    return times


def _client(port: int, path: str, bodies: list[bytes], connections: int, results: Any) -> None:
    results.put(asyncio.run(_load(port, path, bodies, connections)))


def load(port: int, path: str, bodies: list[bytes], connections: int = 1) -> list[tuple[float, float]]:
    """Send each body once from another process; when each request began and ended."""
    context = get_context("spawn")
    results = context.Queue()
    client = context.Process(target=_client, args=(port, path, bodies, connections, results))
    client.start()
    found: list[tuple[float, float]] = results.get(timeout=600)
    client.join()
    return found


# --- What is sent


def events(count: int, start: float, seed: int) -> list[dict[str, Any]]:
    ends = np.random.default_rng(seed).integers(1, NODES, (count, 2)).tolist()
    return [{"source": src, "target": dst, "time": start + row} for row, (src, dst) in enumerate(ends)]


def pairs(count: int, seed: int) -> list[dict[str, int]]:
    ends = np.random.default_rng(seed).integers(1, NODES, (count, 2)).tolist()
    return [{"source": src, "target": dst} for src, dst in ends]


def encoded(field: str, rows: list[dict[str, Any]], size: int) -> list[bytes]:
    return [json.dumps({field: rows[start : start + size]}).encode() for start in range(0, len(rows), size)]


# --- The server


@contextmanager
def served(run: Path, data: Path) -> Iterator[Server]:
    """Serve a run on a free port until the block ends."""
    command = [sys.executable, "-m", "dsrd", "serve", str(run), "--data", str(data), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stderr is not None
        try:
            address = re.search(r":(\d+)$", process.stderr.readline().strip())
            assert address, "the server did not start"
            server = Server(int(address[1]), psutil.Process(process.pid))
            asyncio.run(_until_ready(server.port))
            yield server
        finally:
            process.send_signal(signal.SIGTERM)


class Server(NamedTuple):
    """A running server."""

    port: int
    process: psutil.Process

    def asked(self, path: str, bodies: list[bytes], connections: int = 1) -> Asked:
        """Send each body once."""
        before = self.cpu()
        times = np.array(load(self.port, path, bodies, connections))
        return Asked(times, self.cpu() - before)

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)


class Asked(NamedTuple):
    """When requests began and ended, by their end, and the server's seconds of processor time."""

    times: Any  # [R, 2]
    cpu: float

    def figures(self, count: int, what: str) -> dict[str, Any]:
        """A second and in processor time, of events, requests or pairs."""
        each = count / len(self.times)
        part = max(len(self.times) // 5, 1)
        ended = np.concatenate([self.times[:1, 0], self.times[:, 1]])
        first = int((ended[part:] - ended[:-part]).argmin())
        return {
            **_spans(self.times, each, what, float(ended[0])),
            f"cpu_us_{what}": round(1e6 * self.cpu / count, 1),
            "best_fifth": _spans(self.times[first : first + part], each, what, float(ended[first])),
        }


def _spans(times: Any, each: float, what: str, start: float) -> dict[str, float]:
    """How many a second since `start`, and how long requests took."""
    seconds = float(times[-1, 1]) - start
    took = times[:, 1] - times[:, 0]
    spans = {f"p{share}_ms": round(1e3 * float(np.percentile(took, share)), 2) for share in (50, 99)}
    return {f"{what}s_s": round(len(times) * each / seconds), **spans}


async def _until_ready(port: int) -> None:
    for _ in range(6_000):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        if b" 200 " in answer.partition(b"\r\n")[0]:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError("the server is not ready after ten minutes")


def over_http(run: Path, data: Path, start: float, scale: float) -> dict[str, Any]:
    """Figures of the endpoints; `scale` shortens them."""
    one, observed = max(int(2_000 * scale), 20), max(int(100_000 * scale), 10 * BATCH)
    bulk = max(int(60_000 * scale), BULK)
    with served(run, data) as server:
        server.asked("/v1/score", encoded("pairs", pairs(20, 1), 1))  # compiled code and connections are warm
        single = server.asked("/v1/score", encoded("pairs", pairs(one, 2), 1))
        many = server.asked("/v1/score", encoded("pairs", pairs(4 * one, 3), 1), 32)
        in_bulk = server.asked("/v1/score", encoded("pairs", pairs(bulk, 4), BULK))
        rows = encoded("events", events(observed, start, 5), BATCH)
        warm = len(rows) // 10
        server.asked("/v1/observe", rows[:warm])
        observe = server.asked("/v1/observe", rows[warm:])
    return {
        "score_one_connection": single.figures(one, "request"),
        "score_32_connections": many.figures(4 * one, "request"),
        "score_bulk": in_bulk.figures(bulk, "pair"),
        "observe": observe.figures(observed - warm * BATCH, "event"),
    }


# --- In this process


def bare(run: Path) -> dict[str, float]:
    """The model without engine or server, in processor time: for one pair, and for a pair of five hundred."""
    model = dsrd.open(run).fitted.online
    past, module = model.past, model.up_to_date()
    src, dst = (torch.randint(1, NODES, (500,)) for _ in range(2))
    query = dsrd.Query(src, dst, torch.full((500,), model.after_last, dtype=torch.float64))

    def best(work: Callable[[], Any], repeats: int) -> float:
        seconds = []
        for _ in range(repeats):
            began = time.process_time()
            work()
            seconds.append(time.process_time() - began)
        return float(np.median(seconds))

    with torch.no_grad():
        one = best(lambda: module.score(query[:1], past, "partner" if module.has_intensity else ""), 100)
        many = best(lambda: module.score(query, past, "partner" if module.has_intensity else ""), 10)
    return {"cpu_us_one": round(1e6 * one, 1), "cpu_us_bulk": round(1e6 * many / 500, 1)}


def from_file(run: Path, folder: Path, start: float, count: int) -> dict[str, Any]:
    """A CSV file through a stream: observed only, and with a line for each event written to a file."""
    file = folder / "events.csv"
    rows = "".join(f"{each['source']},{each['target']},{each['time']}\n" for each in events(count, start, 7))
    file.write_text("source,target,time\n" + rows)
    sinks: dict[str, Sink] = {"observed": NoSink(), "measured": FileSink(folder / "surprises.jsonl")}
    return {name: _passed(run, folder / name, file, sink) for name, sink in sinks.items()}


def _passed(run: Path, data: Path, file: Path, sink: Sink) -> dict[str, float]:
    bookmarks = Bookmarks(data / "streams")
    with (
        Engine(data, run, QUIET) as engine,
        closing(sink),
        closing(FileSource(file, bookmarks, follow=False, batch=10_000)) as source,
    ):
        fitted = engine.live.fitted
        decoder = Decoder(engine.reader, fitted.online.stream.dataset())
        lines = LineWriter(decoder, None, Recent())
        stream = Stream(engine, source, sink, decoder, lines, bookmarks)
        began, cpu = time.perf_counter(), time.process_time()
        count = stream.run(threading.Event(), "sink").events
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return {"events_s": round(count / seconds), "cpu_us_event": round(1e6 * cpu / count, 1)}


def recovery(run: Path, data: Path, start: float, count: int) -> dict[str, Any]:
    """Seconds until an engine answers again, without and with a snapshot."""
    with Engine(data, run, QUIET) as engine:
        rows = events(count, start, 6)
        began, cpu = time.perf_counter(), time.process_time()
        for first in range(0, count, LOGGED_AT_ONCE):
            engine.observe(rows[first : first + LOGGED_AT_ONCE])
        written, cpu = time.perf_counter() - began, time.process_time() - cpu
    for snapshot in (data / "snapshots").iterdir():
        snapshot.unlink()
    seconds, spent = [], []
    for _ in range(2):  # the first leaves a snapshot
        began, before = time.perf_counter(), time.process_time()
        with Engine(data, settings=QUIET) as engine:
            seconds.append(time.perf_counter() - began)
            spent.append(time.process_time() - before)
            assert engine.state().seq == count
            engine.snapshot()
    log = (data / "log.sqlite").stat().st_size
    return {
        "events": count,
        "observe_events_s": round(count / written),
        "observe_cpu_us_event": round(1e6 * cpu / count, 1),
        "without_snapshot_s": round(seconds[0], 2),
        "without_snapshot_cpu_s": round(spent[0], 2),
        "with_snapshot_s": round(seconds[1], 2),
        "with_snapshot_cpu_s": round(spent[1], 2),
        "log_bytes_per_event": round(log / count, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="dsrd")
    parser.add_argument("--data", default=f"synth:events=60000,nodes={NODES}")
    parser.add_argument("--run", type=Path, help="folder of a run; trained there if it does not exist")
    parser.add_argument(
        "--recover", type=int, default=1_000_000, help="events in the log that is recovered; 0: none"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the requests to send")
    parser.add_argument("--save", type=Path, help="append the result to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder, run = Path(temporary), arguments.run or Path(temporary) / "run"
        if not (run / "now.safetensors").exists():
            dsrd.LinkPredictor(arguments.model, epochs=1).fit(
                dsrd.load(arguments.data), folder=run, progress=False
            )
        start = dsrd.open(run).fitted.online.stream.last_time + 1
        before = load_average()
        figures: dict[str, Any] = {"bare": bare(run)}
        figures |= over_http(run, folder / "served", start, arguments.scale)
        figures["stream_from_a_file"] = from_file(run, folder, start, max(int(200_000 * arguments.scale), 2_000))
        if arguments.recover:
            figures["recovery"] = recovery(run, folder / "recovered", start, arguments.recover)
        figures["load"] = [before, load_average()]
    print_record(arguments.save, benchmark="serving", model=arguments.model, data=arguments.data, figures=figures)


if __name__ == "__main__":
    main()
