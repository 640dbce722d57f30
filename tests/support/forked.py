"""Work in a forked process: it has loaded everything already, and what ends it does not end the tests."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable

FAILED = 70


def exit_code_of(work: Callable[[], int | None], seconds: float = 300) -> int:
    """The exit code of `work` in a process of its own, or minus the signal that ended it (SIGALRM: too slow)."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        try:
            os._exit(work() or 0)
        except BaseException:  # whatever it is, this process must not go on with the tests of its parent
            traceback.print_exc()
            os._exit(FAILED)
    return wait_for(child, seconds)


def wait_for(child: int, seconds: float) -> int:
    """The exit code of a child of this process, which is ended after so many seconds."""
    until, pause = time.monotonic() + seconds, 0.001
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGALRM
