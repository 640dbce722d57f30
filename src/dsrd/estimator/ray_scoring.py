"""Answers about files of pairs on a Ray cluster: every processor holds the model and answers pieces of a file."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from dsrd.data.parse import Origin, parquet_schema
from dsrd.errors import DsrdError, MachineError
from dsrd.estimator.batch_scoring import FileJob, PairScorer, TableWriter
from dsrd.estimator.fitted import Fitted, open_folder
from dsrd.estimator.tables import PIECE_ROWS, arrow_input, is_parquet
from dsrd.files import is_empty, replacing, replacing_folder
from dsrd.ray_cluster import connected
from dsrd.reporter import step
from dsrd.train.run_folder import RunFolder

OURS = {f"{kind.__module__}.{kind.__name__}": kind for kind in (DsrdError, MachineError)}
ACTOR, INPUT = 0.75, 0.25  # processors that an actor, and a task that reads or writes, is counted as


def score_file_on_ray(fitted: Fitted, job: FileJob, address: str) -> int:
    """Answer a Parquet file (or a folder of them) with Ray Data; returns the number of rows.

    In a file, rows keep their order. At most a few pieces of the file are in memory at a time.
    """
    folder = _saved_folder(fitted)
    if not job.pairs.is_dir() and not is_parquet(job.pairs):
        raise DsrdError(f"{job.pairs}: a cluster reads Parquet; give a Parquet file, or a folder of them")
    if not job.pairs.is_dir():
        parquet_schema(job.pairs)  # a file that cannot be read is refused before the cluster is asked
    to_folder = not (is_parquet(job.out) or job.out.suffix.lower() == ".csv")
    if to_folder and job.out.exists() and not (job.out.is_dir() and is_empty(job.out)):
        raise DsrdError(f"{job.out}: is not an empty folder; choose another place, or a file called *.parquet")
    ray, was_connected = connected(address)
    try:
        answered = _answered(ray, folder, job)
        return _write_folder(answered, job.out) if to_folder else _write_file(answered, job.out)
    except Exception as error:
        raise _one_line(error) from error
    finally:
        if not was_connected:
            ray.shutdown()


def _saved_folder(fitted: Fitted) -> Path:
    if fitted.folder is None:
        raise DsrdError("a cluster reads the model from its folder: save it first")
    folder = RunFolder(fitted.folder)
    if not folder.has_history or folder.num_events() != fitted.online.stream.num_events:
        raise DsrdError(
            f"{folder.path}: does not hold all events of this model: save it there first, with history"
        )
    return folder.path.absolute()


def _answered(ray: Any, folder: Path, job: FileJob) -> Any:
    """The rows with their answers, as a Ray data set that is computed while it is written."""
    import ray.data

    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # an error is told in one line, by us
    actors = max(1, int(ray.cluster_resources().get("CPU", 1)))
    pairs = ray.data.read_parquet(str(job.pairs.absolute()), ray_remote_args={"num_cpus": INPUT})
    return pairs.map_batches(
        Answers,
        fn_constructor_kwargs={"folder": str(folder), "job": job},
        batch_size=PIECE_ROWS // 10,  # small enough that every actor has work
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=actors),
        num_cpus=ACTOR,
    )


class Answers:
    """An actor: holds weights, events and state of a run, which it only reads."""

    def __init__(self, folder: str, job: FileJob) -> None:
        import torch

        torch.set_num_threads(1)
        fitted = open_folder(RunFolder(Path(folder)))
        fitted.online.up_to_date()
        self.origin = Origin(str(job.pairs))
        self.scorer = PairScorer(fitted, job.at, job.head, job.strict_names)

    def __call__(self, pairs: pa.Table) -> pa.Table:
        answered: pa.Table = self.scorer.answered(arrow_input(pairs, self.origin))
        return answered


def _write_file(answered: Any, out: Path) -> int:
    rows = 0
    with replacing(out) as temporary, TableWriter(temporary, is_parquet(out)) as file:
        for table in answered.iter_batches(batch_size=None, batch_format="pyarrow"):
            file.write(table)
            rows += len(table)
            step("pairs", rows)
    return rows


def _write_folder(answered: Any, out: Path) -> int:
    """One Parquet file per piece, written by the machine that computed it; the pieces are in no order."""
    with replacing_folder(out) as temporary:
        answered.write_parquet(str(temporary.absolute()), ray_remote_args={"num_cpus": INPUT})
        return sum(pyarrow.parquet.read_metadata(str(file)).num_rows for file in temporary.glob("*.parquet"))


def _one_line(error: Exception) -> Exception:
    """The error of ours that an actor raised, of which Ray keeps the text; else the last line of Ray's."""
    if isinstance(error, DsrdError | OSError):
        return error
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in reversed(lines):
        kind, _, text = line.partition(": ")
        if kind in OURS:
            return OURS[kind](text)
    return MachineError(f"Ray could not answer the pairs ({lines[-1] if lines else type(error).__name__})")
