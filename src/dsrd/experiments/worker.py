"""One run of a sweep, in a process of its own: `python -m dsrd.experiments.worker FOLDER KEY`.

Local processes, Ray tasks and SLURM tasks all do this. A run that was killed continues where it stopped.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path

from dsrd.errors import DsrdError
from dsrd.experiments.folder import Spec, SweepFolder
from dsrd.processes import stop_with_parent
from dsrd.reporter import Reporter

FAILED = 1


def work(folder: str, key: str, threads: int = 1, data_dir: str | None = None) -> str | None:
    """Finish a run of a sweep; returns why it failed, None if it did not."""
    sweep = SweepFolder(Path(folder))
    about = {
        "host": platform.node(),
        "process": os.getpid(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    try:
        spec = sweep.spec(key)
        with sweep.working(key, about):
            _train(sweep, key, spec, threads, data_dir)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, MemoryError) or "not enough memory" in reason:
            reason = "out of memory; use a smaller train.batch_size, or fewer runs at a time"
        elif not isinstance(error, DsrdError):
            reason = f"{type(error).__name__}: {reason}"
        sweep.fail(key, reason, traceback.format_exc())
        return reason
    return None


def _train(sweep: SweepFolder, key: str, spec: Spec, threads: int, data_dir: str | None) -> None:
    import torch

    from dsrd.data.read import load_with
    from dsrd.estimator.link_predictor import LinkPredictor

    target = sweep.run(key)
    if spec.evaluate and target.record.exists():
        return
    torch.set_num_threads(threads)
    settings = {name.replace(".", "__", 1): value for name, value in spec.settings.items()}
    model = LinkPredictor(spec.model, preset=spec.preset, protocol=spec.protocol, seed=spec.seed, **settings)
    with Reporter() as report:
        stream = load_with(spec.dataset, spec.columns, data_dir=data_dir)
        if model.run_for(stream).digest != spec.digest:
            raise DsrdError(f"{spec.dataset}: is not read here as it was when the sweep started; start it again")
        model.fit(stream, folder=target.path, history=False, progress=report)
        if spec.evaluate:  # of a search nothing is measured but validation, after every epoch
            model.evaluate(progress=report)


def main() -> None:
    """Run the worker; the exit code is 1 if the run failed."""
    parser = argparse.ArgumentParser(prog="python -m dsrd.experiments.worker", description="One run of a sweep.")
    parser.add_argument("folder", help="the folder of the sweep")
    parser.add_argument("key", help="the name of the run in the sweep's folder `planned`")
    parser.add_argument("--threads", type=int, default=1, help="number of CPU threads")
    parser.add_argument("--data-dir", default=None, help="folder with benchmark data sets")
    parser.add_argument("--attached", action="store_true", help="stop when the standard input closes")
    parser.add_argument("--collect", action="store_true", help="put the record into the sweep's records.jsonl")
    words = parser.parse_args()
    if words.attached:
        stop_with_parent()
    reason = work(words.folder, words.key, words.threads, words.data_dir)
    if reason is None and words.collect:
        sweep = SweepFolder(Path(words.folder))
        sweep.collect([(words.key, sweep.spec(words.key).digest)])
    if reason is not None:
        print(f"error: {reason}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(FAILED)


if __name__ == "__main__":
    main()
