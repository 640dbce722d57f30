"""A lock for what many threads read and one at a time changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition, get_ident
from typing import TypeVar

T = TypeVar("T")


class _NotAloneError(Exception):
    """Raised by `require_alone` to begin again without others."""


class SharedLock:
    """Readers work beside each other, a writer alone. A writer that waits goes before readers that come later.

    >>> lock = SharedLock()
    >>> with lock.shared():
    ...     pass  # read
    >>> with lock.alone(), lock.alone(), lock.shared():
    ...     pass  # change; the thread that is alone may lock again
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._readers: dict[int, int] = {}  # threads that read, and how often they have locked
        self._writer: int | None = None  # the thread that is alone
        self._depth = 0  # how often it has locked
        self._waiting = 0  # threads that want to be alone

    def run(self, work: Callable[[], T]) -> T:
        """Do `work` beside others; if it comes to `require_alone`, once more from its beginning, alone."""
        try:
            with self.shared():
                return work()
        except _NotAloneError:
            with self.alone():
                return work()

    def require_alone(self) -> None:
        """Called before something is changed: a reader inside `run` begins again, alone."""
        me = get_ident()
        if me in self._readers and self._writer != me:
            raise _NotAloneError

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Read inside the block."""
        me = get_ident()
        with self._changed:
            while self._writer != me and me not in self._readers and (self._writer is not None or self._waiting):
                self._changed.wait()
            self._readers[me] = self._readers.get(me, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._readers[me] -= 1
                if not self._readers[me]:
                    del self._readers[me]
                    self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Change things inside the block."""
        me = get_ident()
        with self._changed:
            self._waiting += 1
            try:
                while self._writer != me and (self._writer is not None or self._readers):
                    self._changed.wait()
            finally:
                self._waiting -= 1
            self._writer, self._depth = me, self._depth + 1
        try:
            yield
        finally:
            with self._changed:
                self._depth -= 1
                if not self._depth:
                    self._writer = None
                    self._changed.notify_all()

    def __reduce__(self) -> tuple[type[SharedLock], tuple[()]]:
        """A copy is a new lock."""
        return SharedLock, ()
