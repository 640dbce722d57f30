"""One of several processes that train a run together: `python -m dsrd.train.worker JOB RANK`.

What to do is in the folder `JOB`: `job.json`, and the events, which all processes map into memory. What happens
goes to standard output, a JSON object a line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dsrd.config import RunConfig
from dsrd.data.arrow import read_dataset, write_dataset
from dsrd.errors import DsrdError, MachineError
from dsrd.evaluate.task import Task
from dsrd.files import write_json
from dsrd.processes import LostProcessError, Processes, connected, stop_with_parent
from dsrd.reporter import Reporter
from dsrd.train.run_folder import RunFolder
from dsrd.train.trainer import Trainer, train_on_all_events

Message = dict[str, Any]
STEP_EVERY = 0.2  # seconds between two messages about a step
FAILED = 1


def write_job(job: Path, run: RunConfig, task: Task, folder: RunFolder, threads: int) -> None:
    """Write what the processes need into a folder."""
    data = job / "data"
    data.mkdir(parents=True)
    write_dataset(task.dataset, data)
    content = {"run": run.to_dict(), "folder": str(folder.path.absolute()), "threads": threads}
    write_json(job / "job.json", content)


def work(job: Path, processes: Processes) -> None:
    """Train the run of a job to its end, together with the other processes, which must be connected."""
    import torch

    content = json.loads((job / "job.json").read_text(encoding="utf-8"))
    torch.set_num_threads(content["threads"])
    run, folder = RunConfig.from_dict(content["run"]), RunFolder(Path(content["folder"]))
    task = Task.of(read_dataset(job / "data", mapped=True))
    progress = Trainer(run, task, folder, processes=processes).train()
    if run.train.final:
        train_on_all_events(run, task, progress, folder, processes)


class Relay(Reporter):
    """Sends progress to the process that shows it."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        super().__init__(show=False)
        self._send, self._sent = send, 0.0

    def step(self, name: str, done: int = 0, total: int = 0) -> None:
        if time.monotonic() - self._sent > STEP_EVERY or done == total:
            self._sent = time.monotonic()
            self._send({"step": [name, done, total]})

    def epoch(self, epoch: int, metrics: Mapping[str, float]) -> None:
        self._send({"epoch": [epoch, dict(metrics)]})

    def note(self, *lines: str) -> None:
        self._send({"note": list(lines)})


def failure(error: Exception) -> Message:
    """What became of a process that failed: the kind of error and its text."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, LostProcessError):
        return {"failed": "lost", "text": text}
    if isinstance(error, MachineError):
        return {"failed": "machine", "text": text}
    if isinstance(error, DsrdError):
        return {"failed": "input", "text": text}
    if isinstance(error, MemoryError) or "not enough memory" in text:
        return {"failed": "machine", "text": "out of memory; use fewer processes or a smaller train.batch_size"}
    return {"failed": "bug", "text": f"{type(error).__name__}: {text}", "trace": traceback.format_exc()}


def main() -> None:
    """Do the work, and tell the process that reads standard output how it goes."""
    stop_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then ends this process
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print does not get into the messages
    job, processes = Path(sys.argv[1]), Processes(int(sys.argv[2]), int(sys.argv[3]))

    def send(message: Message) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    code = 0
    try:
        report = Relay(send) if processes.is_first else Reporter(show=False)
        with connected(processes, job / "meeting"), report:
            work(job, processes)
    except Exception as error:
        send(failure(error))
        code = FAILED
    channel.close()
    sys.stderr.flush()
    os._exit(code)  # all is written: threads of libraries neither wait for messages nor abort at the end


if __name__ == "__main__":
    main()
