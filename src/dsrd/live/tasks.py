"""`Tasks`: a thread that does what is waiting, all of it together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from dsrd.errors import MachineError

T = TypeVar("T")
R = TypeVar("R")


class Tasks(Generic[T]):
    """Whatever was put while the thread was busy is done next, in one call; nothing waits for more to come."""

    def __init__(self, name: str, work: Callable[[list[T]], None]) -> None:
        self._work = work
        self._waiting: deque[tuple[T, Future[Any]]] = deque()
        self._condition = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, task: T, future: Future[R]) -> Future[R]:
        """Add a task; the future gets an error if its work fails."""
        with self._condition:
            if self._closed:
                raise MachineError("the engine is stopping; ask again when it is back")
            self._waiting.append((task, future))
            self._condition.notify()
        return future

    def close(self) -> None:
        """Do what is waiting, then end the thread."""
        with self._condition:
            self._closed = True
            self._condition.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._waiting and not self._closed:
                    self._condition.wait()
                if not self._waiting:
                    return
                taken = [waiting for waiting in self._waiting if waiting[1].set_running_or_notify_cancel()]
                self._waiting.clear()
            try:
                self._work([task for task, _ in taken])
            except BaseException as error:  # the thread must go on, and nobody may wait forever
                for _, future in taken:
                    if not future.done():
                        future.set_exception(error)
