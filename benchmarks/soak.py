"""A server under load while everything goes wrong: `python benchmarks/soak.py --save results/soak.jsonl`.

Writers and readers load a `dsrd serve` process. Meanwhile it is killed at random moments and started again, asked
to stop, its log and snapshots are torn, its disk fills up, connections break, bodies make no sense (by hand and by
schemathesis from the OpenAPI description), and the times of events jump. After each recovery its answers are
compared with those of a twin in this process that was never interrupted. The last line is a JSON record. The exit
code is 1 if an acknowledged event was lost or counted twice, an answer differs or is older than an acknowledged
event, or a request was answered with a status of 500 or more other than 503, which says: not now.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dsrd
from dsrd.data.sample import write_sample
from dsrd.live import Engine
from record import print_record
from soaking import faults
from soaking.checks import Twin, lost_and_twice, open_torn_copy
from soaking.fuzz import fuzz
from soaking.load import Clock, Load, Told, seconds
from soaking.process import Client, Server

LEVEL = 0.1  # of the time: the same events again and again, while memory is measured
LEAST_LEVEL = 8.0  # seconds, but not more than a third
SLOPE = 1.0  # MB a minute that memory may grow without new events, once the longer half of that phase has begun


def main() -> int:
    options = parsed()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="dsrd-soak-", dir=options.folder) as folder:
        soak = Soak(options, Path(folder))
        try:
            record = soak.run()
        finally:
            soak.server.kill()
        if options.keep_log is not None:
            options.keep_log.write_bytes(soak.server.log.read_bytes())
    for fault in record["faults"]:
        print(fault, file=sys.stderr)
    print_record(options.save, **record)
    return 0 if record["passed"] else 1


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=32, help="at most about how many; starts take their time too")
    parser.add_argument("--cases", type=int, default=1_000, help="requests made by schemathesis")
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.25, help="seconds between two requests of one client")
    parser.add_argument("--no-disk", action="store_true", help="leave out the disk that fills up")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run", type=Path, help="a trained run; default: one epoch on a call log")
    parser.add_argument("--folder", type=Path, help="where temporary files go")
    parser.add_argument("--keep-log", type=Path, help="copy what the server printed to this file")
    parser.add_argument("--save", type=Path, help="append the record to this file")
    return parser.parse_args()


def small_run(folder: Path) -> Path:
    """A run on a call log with names and dates."""
    log, *_ = write_sample(folder)
    model = dsrd.LinkPredictor(epochs=1, dim=8)
    stream = dsrd.load(log, source="caller", target="callee", time="date")
    model.fit(stream, folder=folder / "run", progress=False)
    return folder / "run"


@dataclass
class Soak:
    """One soak: the server, its load, its twin, and what was found."""

    options: argparse.Namespace
    folder: Path
    told: Told = field(default_factory=Told)
    done: dict[str, int] = field(default_factory=dict)  # by kind of fault

    def __post_init__(self) -> None:
        self.rng = random.Random(self.options.seed)
        self.trained = self.options.run or small_run(self.folder)
        self.data = self.folder / "data"
        self.server = self._new_server(self.data)

    def _new_server(self, data: Path) -> Server:
        # snapshots often: most kills shall meet one that is new, or half written
        options = ("--snapshot-events", "2000", "--snapshot-minutes", "0.3")
        return Server(self.trained, data, self.folder / "server.log", options=options)

    def run(self) -> dict[str, Any]:
        """Everything; the record."""
        total, began = 60 * self.options.minutes, time.monotonic()
        disk = self.full_disk()
        self.server.start()
        with Engine(self.folder / "twin", self.trained) as engine:
            self.twin = Twin(engine, random.Random(self.options.seed))
            self.load = self._load()
            self.load.start(self.options.writers, self.options.readers)
            level = max(LEVEL * total, min(LEAST_LEVEL, total / 3))
            between = max(total - level - (time.monotonic() - began), 1.0) / self.options.kills
            while time.monotonic() - began < total - level or self.done.get("kill", 0) < min(
                self.options.kills, 2
            ):
                self.disturb(self.rng.uniform(0.3, 1.7) * between)
                self.interrupt()
            while self.done.get("case", 0) < self.options.cases:  # there were fewer interruptions than planned
                self.fuzz(self.options.cases)
            memory = self.level(level)
            self.load.stop()
            self.twin.compare(Client(self.server.port), self.data / "log.sqlite", "at the end")
        code = self.server.stop()
        if code:
            self.told.faults.append(f"the server ended with exit code {code}")
        return self._record(time.monotonic() - began, disk, memory)

    def _load(self) -> Load:
        client = Client(self.server.port)
        state = client.ask("GET", "/v1/state").body
        client.close()
        names = [name for name in self.twin.names if name][:40]
        return Load(
            self.server.port,
            self.told,
            names,
            Clock(seconds(state["time"])),
            self.options.seed,
            self.options.pause,
        )

    def _did(self, kind: str, count: int = 1) -> None:
        self.done[kind] = self.done.get(kind, 0) + count

    # --- Between interruptions ---------------------------------------------------------------------------------

    def disturb(self, span: float) -> None:
        """Break connections and send nonsense for a while."""
        end = time.monotonic() + span
        self.fuzz(round(1.3 * self.options.cases / max(self.options.kills, 1)) + 1)
        while time.monotonic() < end:
            faults.break_connections(self.server.port, self.told, self.rng)
            faults.send_nonsense(self.server.port, self.told, self.rng)
            time.sleep(min(self.rng.uniform(0.1, 1.0), max(end - time.monotonic(), 0)))

    def fuzz(self, most: int) -> None:
        """Send some of the cases of schemathesis that are left."""
        left = self.options.cases - self.done.get("case", 0)
        if left > 0:
            self._did("case", fuzz(self.server.port, self.told, min(most, left), self.rng.randrange(10**6)))

    def interrupt(self) -> None:
        """Kill the server or stop it, damage its files, start it, and compare it with the twin."""
        kind = self.rng.choices(["kill", "stop", "no room"], weights=[8, 1, 1])[0]
        if kind == "no room":
            self.no_room()
        if kind == "stop":
            code = self.server.stop()
            if code:
                self.told.faults.append(f"the server was asked to stop and ended with exit code {code}")
        else:
            self.server.kill()
            self._did("kill")
        if kind != "kill":
            self._did(kind)
        if kind != "stop" and self.rng.random() < 0.7:
            self._did(faults.tear(self.data, self.rng))
        wrong = open_torn_copy(self.data, self.rng)
        self._did("torn copy")
        self.told.faults += [wrong] if wrong else []
        self.server.start()
        self.load.pause_all()
        self.twin.compare(
            Client(self.server.port), self.data / "log.sqlite", f"after {kind} {self.done.get(kind)}"
        )
        lost, twice = lost_and_twice(self.data / "log.sqlite", self.told)
        if lost or twice:
            self.told.faults.append(
                f"after {kind} {self.done.get(kind)}: {lost} events lost, {twice} counted twice"
            )
        self.load.go_on()

    def no_room(self) -> None:
        """No file may grow: events are refused with 503, questions are answered."""
        faults.files_on(self.server.pid, 4096)
        time.sleep(1.5)
        client = Client(self.server.port)
        asked = client.ask("POST", "/v1/score", {"pairs": [{"source": "ann", "target": "bob"}]})
        if asked.status != 200:
            self.told.faults.append(f"without room for files a question was answered with {asked}")
        client.close()
        faults.files_on(self.server.pid, None)

    def full_disk(self) -> dict[str, Any]:
        """A disk that fills up and is freed again: events are refused meanwhile, nothing is lost."""
        if self.options.no_disk:
            return {"tried": False}
        with faults.small_disk(self.folder / "disk", 16) as disk:
            if disk is None:
                return {"tried": False}
            server = self._new_server(disk / "data")
            try:
                return {"tried": True, **self._fill(server, disk / "ballast")}
            finally:
                server.kill()

    def _fill(self, server: Server, ballast: Path) -> dict[str, Any]:
        server.start()
        told, client = Told(), Client(server.port)
        clock = Clock(seconds(client.ask("GET", "/v1/state").body["time"]))
        load = Load(server.port, told, ["ann", "bob", "eve"], clock, 1)
        for _ in range(10):
            load.write(client, self.rng)
        with ballast.open("wb", buffering=0) as file:
            faults.fill(file)
        refused = 0
        for _ in range(60):
            status, body = load.send(client, load.new_events(self.rng))
            refused += status == 503 and "disk is full" in str(body)
        answered = client.ask("POST", "/v1/score", {"pairs": [{"source": "ann", "target": "bob"}]}).status
        ballast.unlink()
        for _ in range(200):
            if not load.unsent:
                break
            load.write(client, self.rng)
        freed = len(load.unsent)
        server.kill()
        server.start()
        server.kill()
        lost, twice = lost_and_twice(server.data / "log.sqlite", told)
        self.told.faults += told.faults
        found = {"refused": refused, "question": answered, "unsent": freed, "lost": lost, "twice": twice}
        if not refused or answered != 200 or freed or lost or twice:
            self.told.faults.append(f"full disk: {found}")
        return found

    def level(self, span: float) -> dict[str, float]:
        """No new events, everything else: memory must stay where it is."""
        self.load.repeat.set()
        end, began, samples = time.monotonic() + span, time.monotonic(), []
        while time.monotonic() < end:
            faults.break_connections(self.server.port, self.told, self.rng)
            faults.send_nonsense(self.server.port, self.told, self.rng)
            samples.append((time.monotonic() - began, self.server.rss()))
        at, mb = np.array(samples)[len(samples) // 2 :].T
        slope = float(np.polyfit(at, mb, 1)[0] * 60) if len(at) > 2 else 0.0
        return {"level_mb": round(float(np.median(mb)), 1), "slope_mb_per_minute": round(slope, 3)}

    def _record(self, span: float, disk: dict[str, Any], memory: dict[str, float]) -> dict[str, Any]:
        lost, twice = lost_and_twice(self.data / "log.sqlite", self.told)
        told, starts = self.told, self.server.recoveries
        bad = sum(count for what, count in told.statuses.items() if what.split()[0] in ("nonsense", "stranger"))
        fives = sum(
            count for what, count in told.statuses.items() if what[-3:].isdigit() and 500 <= int(what[-3:]) != 503
        )
        level = memory["slope_mb_per_minute"] < SLOPE or self.options.minutes < 10
        passed = not (lost or twice or told.faults or self.twin.unequal) and level
        return {
            "benchmark": "soak",
            "passed": passed,
            "minutes": round(span / 60, 2),
            "kills": self.done.get("kill", 0),
            "interruptions": dict(sorted(self.done.items())),
            "requests": told.requests,
            "acknowledged_events": len(told.acknowledged),
            "lost": lost,
            "counted_twice": twice,
            "answers_compared": self.twin.compared,
            "answers_unequal": len(self.twin.unequal),
            "bad_requests": bad + self.done.get("case", 0),
            "server_errors": fives,
            "full_disk": disk,
            "recovery_seconds": {"median": round(statistics.median(starts), 2), "most": round(max(starts), 2)},
            "memory": memory,
            "statuses": dict(sorted(told.statuses.items())),
            "faults": [*told.faults[:20], *self.twin.unequal[:20]],
            "model": "dsrd",
            "seed": self.options.seed,
        }


if __name__ == "__main__":
    sys.exit(main())
