"""Starts the processes that train a run together, on this machine or on a Ray cluster, and waits for them."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dsrd.config import RunConfig
from dsrd.errors import DsrdError, MachineError
from dsrd.evaluate.task import Task
from dsrd.machine import available_bytes, processors
from dsrd.ray_cluster import LOCAL, connected
from dsrd.reporter import current
from dsrd.train.run_folder import RunFolder
from dsrd.train.trainer import EpochCallback
from dsrd.train.worker import Message, failure, work, write_job

JOB = ".job"  # in the run folder, while processes are at work
GRACE = 5.0  # seconds in which the other processes may say why they failed too
PROCESS_BYTES = 200 << 20  # of memory that a process needs for the libraries alone
POLL = 0.5  # seconds between two looks at the log of a run on a cluster
RAY_RETRIES = 3  # times that Ray starts the processes again after one of them was lost
CONTINUES = "run the same training again, into the same folder: it continues after the last finished epoch"


def refuse_too_many(count: int) -> None:
    """Raise an error if so many processes cannot fit in the memory of this machine."""
    needed, free = count * PROCESS_BYTES, available_bytes()
    if needed > free:
        raise MachineError(
            f"train.workers={count}: so many processes need at least {needed / 1e9:,.1f} GB, of which "
            f"{free / 1e9:,.1f} GB are free; lower it"
        )


def train_in_processes(
    run: RunConfig, task: Task, folder: RunFolder, callbacks: list[EpochCallback], ray: str | None = None
) -> None:
    """Train a run in `run.train.workers` processes; its weights and state are then in the folder.

    With `ray`, the address of a cluster or `local`, they are workers of Ray Train. All machines must see the
    folder.
    """
    import torch

    count = run.train.workers
    threads = 1 if ray else max(1, min(torch.get_num_threads(), processors() // count))
    with _job(folder) as job:
        write_job(job, run, task, folder, threads)
        messages = (
            _on_ray(job, folder, count, threads, ray) if ray else _on_this_machine(job, folder, count, threads)
        )
        for message in messages:
            _show(message, callbacks)


def _show(message: Message, callbacks: list[EpochCallback]) -> None:
    report = current()
    if "step" in message:
        report.step(*message["step"])
    if "note" in message:
        report.note(*message["note"])
    if "epoch" in message:
        for callback in (report.epoch, *callbacks):
            callback(*message["epoch"])


@contextmanager
def _job(folder: RunFolder) -> Iterator[Path]:
    """A folder for the job inside the run folder, which is locked: one that is there is of a killed run."""
    job = folder.path / JOB
    shutil.rmtree(job, ignore_errors=True)
    try:
        yield job
    finally:
        shutil.rmtree(job, ignore_errors=True)


# --- Processes on this machine -----------------------------------------------------------------------------------


def _on_this_machine(job: Path, folder: RunFolder, count: int, threads: int) -> Iterator[Message]:
    """What the processes say until all of them have ended."""
    received: queue.Queue[tuple[int, Message | None]] = queue.Queue()
    workers = [_started(job, rank, count, threads) for rank in range(count)]
    for rank, worker in enumerate(workers):
        threading.Thread(target=_listen, args=(rank, worker, received), daemon=True).start()
    failures: dict[int, Message] = {}
    running = set(range(count))
    try:
        while running:
            try:
                rank, message = received.get(timeout=GRACE if failures else None)
            except queue.Empty:
                break  # the others wait for one that has failed
            if message is None:
                running.remove(rank)
                code = workers[rank].wait()
                if code and rank not in failures:
                    failures[rank] = {"failed": "killed" if code < 0 else "ended", "code": abs(code)}
            elif "failed" in message:
                failures[rank] = message
            else:
                yield message
    finally:
        for worker in workers:
            _end(worker)
    if failures:
        raise _error(failures, folder, count)


def _started(job: Path, rank: int, count: int, threads: int) -> subprocess.Popen[bytes]:
    limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")}
    limits |= {"TORCH_CPP_LOG_LEVEL": "FATAL"}  # a lost connection is told in one line, by us
    loopback = _loopback()
    if loopback is not None:  # nothing listens on other networks
        limits["GLOO_SOCKET_IFNAME"] = loopback
    package = str(Path(__file__).parents[2])  # the workers load the same one, wherever they are started
    paths = [
        package,
        *(os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path),
    ]
    limits["PYTHONPATH"] = os.pathsep.join(paths)
    return subprocess.Popen(
        [sys.executable, "-m", "dsrd.train.worker", str(job), str(rank), str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **limits},
    )


def _loopback() -> str | None:
    """The name of the network interface that only this machine sees."""
    import psutil  # not on top: it does not load wherever this module must

    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == "127.0.0.1" for address in addresses):
            return str(name)
    return None


def _listen(rank: int, worker: subprocess.Popen[bytes], received: queue.Queue[tuple[int, Message | None]]) -> None:
    assert worker.stdout is not None
    for line in worker.stdout:
        with suppress(ValueError):  # a line that a killed process did not finish
            received.put((rank, json.loads(line)))
    received.put((rank, None))


def _end(worker: subprocess.Popen[bytes]) -> None:
    if worker.poll() is None:
        worker.kill()
    worker.wait()
    for pipe in (worker.stdin, worker.stdout):
        if pipe is not None:
            pipe.close()


def _error(failures: dict[int, Message], folder: RunFolder, count: int) -> Exception:
    """One error for all: what went wrong first, not what followed from it."""
    order = ("input", "machine", "bug", "killed", "ended", "lost")
    rank, first = min(failures.items(), key=lambda each: order.index(each[1]["failed"]))
    kind, who = first["failed"], f"process {rank + 1} of {count}"
    if kind == "input":
        return DsrdError(first["text"])
    if kind == "machine":
        return MachineError(first["text"])
    if kind == "bug":
        error = RuntimeError(f"{who}: {first['text']}")
        error.add_note(first["trace"])
        return error
    how = f"was killed by signal {first['code']}" if kind == "killed" else "ended in the middle of training"
    perhaps = " (often because memory was full: fewer processes need less)" if _is_sigkill(first) else ""
    return MachineError(f"{folder.path}: {who} {how}{perhaps}; {CONTINUES}")


def _is_sigkill(message: Message) -> bool:
    return bool(message["failed"] == "killed" and message["code"] == getattr(signal, "SIGKILL", None))


# --- Workers of Ray Train ----------------------------------------------------------------------------------------


def _on_ray(job: Path, folder: RunFolder, count: int, threads: int, address: str | None) -> Iterator[Message]:
    """The epochs that the log of the run shows until Ray has finished. A lost worker is replaced by Ray."""
    os.environ.setdefault(
        "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "600"
    )  # torch takes its time on a busy machine
    ray, was_connected = connected(address or LOCAL)
    outcome: list[Exception | None] = []
    trainer = threading.Thread(target=_fit, args=(job, count, threads, outcome), daemon=True)
    seen = _epochs(folder)
    try:
        trainer.start()
        while trainer.is_alive():
            trainer.join(POLL)
            for line in _log(folder)[seen:]:
                seen = line["epoch"]
                yield {"epoch": [seen, {key: value for key, value in line.items() if key != "epoch"}]}
    finally:
        if not was_connected:
            ray.shutdown()
    if outcome and outcome[0] is not None:
        raise _ray_error(job, folder, outcome[0])


def _fit(job: Path, count: int, threads: int, outcome: list[Exception | None]) -> None:
    import ray.train
    from ray.train.torch import TorchConfig, TorchTrainer

    trainer = TorchTrainer(
        ray_worker,
        train_loop_config={"job": str(job.absolute())},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ray.train.ScalingConfig(num_workers=count, resources_per_worker={"CPU": threads}),
        run_config=ray.train.RunConfig(
            storage_path=str((job / "ray").absolute()),
            failure_config=ray.train.FailureConfig(max_failures=RAY_RETRIES),
        ),
    )
    try:
        trainer.fit()
        outcome.append(None)
    except Exception as error:
        outcome.append(error)


def ray_worker(config: dict[str, Any]) -> None:
    """One worker of Ray Train, which has connected it to the others. A run continues from its last epoch."""
    import ray.train

    from dsrd.processes import Processes

    job, context = Path(config["job"]), ray.train.get_context()
    processes = Processes(context.get_world_rank(), context.get_world_size())
    try:
        work(job, processes)
    except Exception as error:
        _failure_file(job, processes.rank).write_text(json.dumps(failure(error)), encoding="utf-8")
        raise


def _failure_file(job: Path, rank: int) -> Path:
    return job / f"failure-{rank}.json"


def _ray_error(job: Path, folder: RunFolder, error: Exception) -> Exception:
    failures = {
        int(file.stem.rpartition("-")[2]): json.loads(file.read_text(encoding="utf-8"))
        for file in job.glob("failure-*.json")
    }
    told = {rank: each for rank, each in failures.items() if each["failed"] != "lost"}
    if told:
        return _error(told, folder, len(failures))
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return MachineError(f"{folder.path}: Ray gave up after {RAY_RETRIES} retries ({first}); {CONTINUES}")


def _log(folder: RunFolder) -> list[dict[str, Any]]:
    file = folder.path / "log.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _epochs(folder: RunFolder) -> int:
    return len(_log(folder))


def all_processors(address: str) -> int:
    """How many processors a Ray cluster has, for one process each."""
    ray, was_connected = connected(address)
    try:
        return max(1, int(ray.cluster_resources().get("CPU", 1)))
    finally:
        if not was_connected:
            ray.shutdown()
