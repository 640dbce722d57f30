"""Several processes that train one model together: what each is, and what they tell each other.

The messages go through `torch.distributed` with the backend gloo, over the network of the machine or between
machines. `ALONE` is a single process, which sends none: code that is written for several processes runs with it as
it is.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dsrd.errors import DsrdError, MachineError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
PR_SET_PDEATHSIG = 1  # of prctl(2)
PATIENCE = timedelta(
    days=7
)  # for a message; a process that ends is noticed at once, because its connections close


@dataclass(frozen=True)
class Processes:
    """This process is number `rank` of `count`, counted from 0. All must make the same calls in the same order.

    >>> ALONE.is_first, ALONE.share(10), ALONE.from_first({"loss": 0.5})
    (True, slice(0, 10, None), {'loss': 0.5})
    """

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def share(self, size: int) -> slice:
        """The part of that many rows that this process works on."""
        return slice(size * self.rank // self.count, size * (self.rank + 1) // self.count)

    def sum_(self, values: Tensor) -> Tensor:
        """The sum over all processes, in place; the same numbers in each to the last bit."""
        if self.count > 1:
            from torch import distributed

            with _others_present():
                distributed.all_reduce(values)
        return values

    def copy_first_(self, values: Tensor) -> Tensor:
        """Replace a tensor by that of the first process, in place."""
        if self.count > 1:
            from torch import distributed

            with _others_present():
                distributed.broadcast(values, 0)
        return values

    def from_first(self, value: T) -> T:
        """A value of the first process, in all; it goes through JSON."""
        if self.count == 1:
            return value
        import torch

        text = json.dumps(value).encode() if self.is_first else b""
        size = self.copy_first_(torch.tensor([len(text)]))
        sent = torch.frombuffer(bytearray(text), dtype=torch.uint8) if self.is_first else None
        received = self.copy_first_(torch.empty(int(size), dtype=torch.uint8) if sent is None else sent)
        result: T = json.loads(received.numpy().tobytes())
        return result

    def wait(self) -> None:
        """Wait until all processes have come here."""
        import torch

        self.sum_(torch.zeros(1))

    def check_equal(self, values: Tensor, what: str) -> None:
        """An error if these whole numbers differ between processes."""
        first = self.copy_first_(values.clone())
        differs = self.sum_((first != values).any().long().reshape(1))
        if int(differs):
            raise DsrdError(
                f"{what} differs between the {self.count} processes; give all the same data and run folder, the "
                "same versions, and machines of the same kind"
            )


ALONE = Processes()


def launched(variables: Mapping[str, str] | None = None) -> Processes | None:
    """What the variables of `torchrun`, or of another launcher with the same ones, say; None without a launcher.

    >>> launched({"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"})
    Processes(rank=1, count=4)
    """
    variables = os.environ if variables is None else variables
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= variables.keys():
        return None
    rank, count = variables["RANK"], variables["WORLD_SIZE"]
    if not (rank.isdecimal() and count.isdecimal() and int(rank) < int(count)):
        raise DsrdError(
            f"RANK={rank}, WORLD_SIZE={count}: no launcher sets these; start with torchrun, or unset them"
        )
    return Processes(int(rank), int(count))


@contextmanager
def connected(processes: Processes, meeting: Path | None = None) -> Iterator[Processes]:
    """Connect to the other processes inside the block, unless the program already is (Ray connects its workers).

    They find each other by a file that all of them see, or without one as the launcher says.
    """
    from torch import distributed

    if processes.count == 1 or distributed.is_initialized():
        yield processes
        return
    how = None if meeting is None else meeting.absolute().as_uri()
    try:
        distributed.init_process_group(
            "gloo", how, timeout=PATIENCE, rank=processes.rank, world_size=processes.count
        )
    except (distributed.DistError, RuntimeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise MachineError(
            f"the {processes.count} processes do not reach each other ({reason}); check their addresses and ports"
        ) from error
    try:
        yield processes
        processes.wait()  # nobody leaves while another one is still reading what it sent
    finally:
        distributed.destroy_process_group()


def stop_with_parent() -> None:
    """End this process when the one that started it is gone: its end of the pipe then closes.

    Code that holds the interpreter's lock, such as a compiler, delays this. Linux does it at once by itself.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def wait() -> None:
        while os.read(0, 1):  # not `sys.stdin`, whose lock would be held when the interpreter shuts down
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class LostProcessError(MachineError):
    """Another process has ended while this one was waiting for it."""


@contextmanager
def _others_present() -> Iterator[None]:
    from torch import distributed

    try:
        yield
    except (distributed.DistError, RuntimeError) as error:
        if isinstance(error, MemoryError) or "out of memory" in str(error):
            raise
        raise LostProcessError(
            "another of the processes that train together has ended; run the same command again, which continues "
            "after the last epoch"
        ) from error
