"""Runs as a SLURM array: the script that `sbatch` takes. It runs nothing itself."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dsrd.experiments.estimate import Estimate
from dsrd.experiments.folder import SweepFolder
from dsrd.experiments.plan import PlannedRun
from dsrd.files import write_text

MOST_TASKS = 1000  # of one array: the limit of a SLURM installation that has not raised it is 1001
SPARE_TIME, SPARE_MEMORY = 2.0, 1.5  # factors over the estimates
LONGEST, LEAST_MEMORY = 72.0, 2048  # hours, where nothing is known; MB


def write_scripts(
    folder: SweepFolder,
    name: str,
    runs: Sequence[PlannedRun],
    estimates: Mapping[str, Estimate],
    *,
    threads: int = 1,
    at_a_time: int = 0,
    data_dir: str | Path | None = None,
) -> list[Path]:
    """Write `sweep.sh`, or several of them for more than 1,000 runs; the runs themselves are in the folder.

    A task that is killed or runs out of time continues where it was when the script is submitted again.
    """
    (folder.path / "logs").mkdir(parents=True, exist_ok=True)
    for run in runs:
        folder.write_spec(run)
    parts = [runs[start : start + MOST_TASKS] for start in range(0, len(runs), MOST_TASKS)]
    for old in folder.path.glob("sweep*.sh"):
        old.unlink()
    written = []
    for number, part in enumerate(parts, start=1):
        path = folder.path / ("sweep.sh" if len(parts) == 1 else f"sweep-{number}.sh")
        known = [estimates[run.key] for run in part if run.key in estimates]
        write_text(path, _script(path, name, part, known, threads, at_a_time, data_dir))
        path.chmod(0o755)
        written.append(path)
    return written


def _script(
    path: Path,
    name: str,
    runs: Sequence[PlannedRun],
    estimates: Sequence[Estimate],
    threads: int,
    at_a_time: int,
    data_dir: str | Path | None,
) -> str:
    """The text of an array script: one task a run, asking for the time and memory of the largest."""
    folder = path.parent.absolute()
    hours = [estimate.seconds * SPARE_TIME / 3600 for estimate in estimates]
    memory = [estimate.memory_mb * SPARE_MEMORY for estimate in estimates]
    longest = max(hours) if len(hours) == len(runs) else max([LONGEST, *hours])
    array = f"0-{len(runs) - 1}{f'%{at_a_time}' if at_a_time else ''}"
    data = f" --data-dir {shlex.quote(str(Path(data_dir).absolute()))}" if data_dir else ""
    keys = "\n".join(f"  {shlex.quote(run.key)}" for run in runs)
    return f"""#!/bin/bash
# {len(runs)} runs of the sweep '{name}'. Submit with: sbatch {shlex.quote(str(folder / path.name))}
# A run that was cut off continues when this is submitted again; finished ones return at once.
#SBATCH --job-name=dsrd-{name}
#SBATCH --array={array}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={threads}
#SBATCH --mem={math.ceil(max([LEAST_MEMORY, *memory]) / 256) * 256}M
#SBATCH --time={_duration(longest)}
#SBATCH --requeue
#SBATCH --output={shlex.quote(f"{folder}/logs/%A_%a.txt")}
set -eu

runs=(
{keys}
)

export OMP_NUM_THREADS={threads} NUMBA_NUM_THREADS={threads}
cd {shlex.quote(str(Path.cwd()))}
exec {shlex.quote(sys.executable)} -m dsrd.experiments.worker {shlex.quote(str(folder))} \\
  "${{runs[$SLURM_ARRAY_TASK_ID]}}" --threads {threads} --collect{data}
"""


def _duration(hours: float) -> str:
    """Hours as SLURM writes them, in steps of half an hour.

    >>> _duration(0.2), _duration(30)
    ('00:30:00', '30:00:00')
    """
    halves = max(1, math.ceil(hours * 2))
    return f"{halves // 2:02}:{halves % 2 * 30:02}:00"
