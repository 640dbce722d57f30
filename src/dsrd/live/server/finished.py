"""`Finished`: results of other threads for the requests of an event loop that wait for them."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")
Loop = asyncio.AbstractEventLoop
Pair = tuple["asyncio.Future[Any]", "Future[Any]"]


class Finished:
    """Hands over all results that came since a loop last looked, in one call.

    The engine answers waiting questions together. `asyncio.wrap_future` would wake the loop for each of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._finished: dict[Loop, list[Pair]] = {}

    async def wait_for(self, future: Future[T]) -> T:
        """The result of work in another thread. A request that is given up leaves the queue."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[T] = loop.create_future()
        future.add_done_callback(lambda done: self._add(loop, (waiting, done)))
        try:
            return await waiting
        except asyncio.CancelledError:
            future.cancel()
            raise

    def _add(self, loop: Loop, pair: Pair) -> None:
        with self._lock:
            pairs = self._finished.setdefault(loop, [])
            pairs.append(pair)
            if len(pairs) == 1:
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(self._hand_over, loop)

    def _hand_over(self, loop: Loop) -> None:
        with self._lock:
            pairs = self._finished.pop(loop)
        for waiting, done in pairs:
            if waiting.done():  # given up
                continue
            if done.cancelled():
                waiting.cancel()
            elif (error := done.exception()) is not None:
                waiting.set_exception(error)
            else:
                waiting.set_result(done.result())
