"""Threads that write events and ask questions until they are told to stop, and remember what they were told."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from soaking.process import Client

CAP = 300 * 86_400.0  # seconds that event times may jump ahead altogether


@dataclass
class Told:
    """What all clients saw. Every event has a time of its own, which identifies it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    acknowledged: dict[str, float] = field(default_factory=dict)  # id -> time
    sent: set[float] = field(default_factory=set)
    seq: int = 0  # the newest event that was acknowledged
    statuses: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    requests: int = 0

    def saw(self, what: str, status: int, body: Any, since: int = 0) -> None:
        """Count an answer; `since` is the newest event that was acknowledged before the question was sent."""
        with self.lock:
            self.requests += 1
            self.statuses[f"{what} {status}"] += 1
            if status >= 500 and status != 503:
                self.faults.append(f"{what}: {status} {str(body)[:300]}")
            seq = body.get("seq") if isinstance(body, dict) else None
            if status == 200 and isinstance(seq, int) and seq < since:
                self.faults.append(f"{what}: answered as of event {seq}, although {since} was acknowledged")


class Clock:
    """Times of events: they grow in small steps, and jump now and then."""

    def __init__(self, start: float) -> None:
        self._lock, self._time, self._jumped = threading.Lock(), start, 0.0

    def next(self, count: int) -> list[float]:
        """Times of the next events."""
        with self._lock:
            times = [self._time + 0.01 * (row + 1) for row in range(count)]
            self._time = times[-1]
            return times

    def jump(self, seconds: float) -> None:
        """Go ahead by some seconds, unless it was too often."""
        with self._lock:
            if self._jumped + seconds < CAP:
                self._jumped += seconds
                self._time += seconds

    def at_least(self, time: float) -> None:
        """Somebody else's event was later."""
        with self._lock:
            self._time = max(self._time, time)


@dataclass
class Load:
    """Writers and readers of one server."""

    port: int
    told: Told
    names: list[str]
    clock: Clock
    seed: int
    pause: float = 0.2  # seconds between two requests of a writer, on average
    number: Any = field(default_factory=itertools.count)
    stopping: threading.Event = field(default_factory=threading.Event)
    paused: threading.Event = field(default_factory=threading.Event)
    repeat: threading.Event = field(default_factory=threading.Event)  # send only events that were sent before
    latest: list[list[dict[str, Any]]] = field(default_factory=list)  # acknowledged requests, to be repeated
    threads: list[threading.Thread] = field(default_factory=list)
    unsent: list[list[dict[str, Any]]] = field(default_factory=list)  # requests without an answer
    busy: Counter[str] = field(default_factory=Counter)

    def start(self, writers: int, readers: int) -> None:
        """Start the threads."""
        works: list[tuple[str, Callable[..., None]]] = [(f"w{each}", self.write) for each in range(writers)]
        works += [(f"r{each}", self.read) for each in range(readers)]
        for name, work in works:
            thread = threading.Thread(target=self._loop, args=(name, work), daemon=True)
            thread.start()
            self.threads.append(thread)

    def _loop(self, name: str, work: Callable[[Client, random.Random], None]) -> None:
        client, rng = Client(self.port), random.Random(f"{self.seed}{name}")
        while not self.stopping.is_set():
            self.busy[name] = not self.paused.is_set()
            if self.busy[name] and not self.paused.is_set():
                work(client, rng)
            self.busy[name] = 0
            self.stopping.wait(rng.expovariate(1 / self.pause))
        client.close()

    def pause_all(self) -> None:
        """Return when no request is running."""
        self.paused.set()
        while any(self.busy.values()):
            self.stopping.wait(0.01)

    def go_on(self) -> None:
        """End a pause."""
        self.paused.clear()

    def stop(self) -> None:
        """End the threads."""
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    # --- Writers -----------------------------------------------------------------------------------------------

    def write(self, client: Client, rng: random.Random) -> None:
        """Send new events, or again those whose answer never came."""
        with self.told.lock:
            old = self.unsent.pop() if self.unsent and rng.random() < 0.7 else None
            again = rng.choice(self.latest) if self.repeat.is_set() and self.latest else None
        events = old or again or self.new_events(rng)
        status, body = self.send(client, events)
        if status == 200 and rng.random() < 0.1:
            self.send(client, events)  # a client that did not trust the answer
        if status == 422 and "older" in str(body):
            self.again(client, events)

    def new_events(self, rng: random.Random) -> list[dict[str, Any]]:
        """A batch with ids and times that nobody else uses."""
        if rng.random() < 0.01:
            self.clock.jump(rng.choice([60.0, 3600.0, 86_400.0]))
        times = self.clock.next(rng.choice([1, 1, 2, 5, 20, 100]))
        events = []
        for time in times:
            source, target = rng.sample(self.names, 2)
            if rng.random() < 0.01:
                target = f"new {next(self.number)}"
            events.append({"source": source, "target": target, "time": time, "id": f"e{next(self.number)}"})
        return events

    def send(self, client: Client, events: list[dict[str, Any]]) -> tuple[int, Any]:
        """Send events and note what became of them."""
        with self.told.lock:
            self.told.sent.update(event["time"] for event in events)
            since = self.told.seq
        answer = client.ask("POST", "/v1/observe", {"events": events})
        self.told.saw("observe", answer.status, answer.body, since)
        with self.told.lock:
            if answer.status == 200:
                got = answer.body["accepted"] + answer.body["duplicates"]
                if got != len(events):
                    self.told.faults.append(f"observe: {got} of {len(events)} events are accounted for")
                self.told.acknowledged.update((event["id"], event["time"]) for event in events)
                self.told.seq = max(self.told.seq, answer.body["seq"])
                self.latest = [*self.latest[-20:], events]
            elif answer.status in (0, 503, 429):
                self.unsent.append(events)
        return answer.status, answer.body

    def again(self, client: Client, events: list[dict[str, Any]]) -> None:
        """Another writer was faster, or somebody's clock is ahead: send the same events with later times.

        Some of them may have been accepted before, in a request whose answer never came: those keep their ids, so
        they are not counted again, and their first times.
        """
        answer = client.ask("GET", "/v1/state")
        if answer.status != 200 or not isinstance(answer.body, dict):
            return
        self.clock.at_least(seconds(answer.body["time"]))
        for event, time in zip(events, self.clock.next(len(events)), strict=True):
            event["time"] = time
        self.send(client, events)

    # --- Readers -----------------------------------------------------------------------------------------------

    def read(self, client: Client, rng: random.Random) -> None:
        """Ask one of the questions."""
        with self.told.lock:
            since = self.told.seq
        ends = [rng.sample(self.names, 2) for _ in range(rng.choice([1, 1, 30]))]
        pairs = [{"source": source, "target": target} for source, target in ends]
        name = rng.choice(self.names)
        asked: list[tuple[str, str, str, Any]] = [
            ("score", "POST", "/v1/score", {"pairs": pairs}),
            ("partners", "POST", "/v1/partners", {"node": name, "k": 5}),
            ("state", "GET", "/v1/state", None),
            ("recent", "GET", "/v1/recent", None),
            ("node", "GET", f"/v1/node/{name}", None),
            ("model", "GET", "/v1/model", None),
            ("metrics", "GET", "/metrics", None),
            ("page", "GET", "/", None),
        ]
        what, method, path, body = rng.choices(asked, weights=[8, 3, 3, 1, 1, 1, 1, 1])[0]
        answer = client.ask(method, path, body)
        self.told.saw(what, answer.status, answer.body, since)


def seconds(written: Any) -> float:
    """A time of an answer, in seconds since 1970."""
    return float(written) if isinstance(written, int | float) else datetime.fromisoformat(str(written)).timestamp()
