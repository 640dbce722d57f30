"""`sweep`: run a plan. Runs that are done are never repeated, those that were killed continue."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsrd.errors import DsrdError
from dsrd.experiments import records
from dsrd.experiments.board import Board
from dsrd.experiments.estimate import Costs, Estimate
from dsrd.experiments.folder import SweepFolder
from dsrd.experiments.places import Place
from dsrd.experiments.places.local import LocalProcesses
from dsrd.experiments.plan import Plan, PlannedRun, load_plan
from dsrd.train.record import Record

SWEEPS = Path("sweeps")
PAUSE = 0.2  # seconds between two looks at the runs
REFRESH = 1.0  # seconds between two looks at their logs

PlanLike = Plan | str | Path | Mapping[str, Any]


@dataclass(frozen=True)
class Sweep:
    """How a sweep ended."""

    folder: Path
    records: tuple[Record, ...]  # of the plan's finished runs
    labels: tuple[str, ...]  # of their models in the plan
    failed: Mapping[str, str]  # reasons, by the name of the run

    @property
    def records_file(self) -> Path:
        """Where the records are: what `dsrd report` reads."""
        return SweepFolder(self.folder).records_file


def sweep(
    plan: PlanLike,
    *,
    folder: str | Path | None = None,
    jobs: int = 1,
    ray: str | None = None,
    threads: int = 0,
    data_dir: str | Path | None = None,
    present: bool = False,
    progress: bool = True,
) -> Sweep:
    """Run every run of a plan that is not done: the path of a TOML file, or the same as a mapping.

    `jobs` processes work at a time. With `ray`, the address of a cluster or `local`, every run is a Ray task. Each
    run has `threads` threads; 0 divides the processors among the jobs. Everything is written to `folder`, by
    default `sweeps/NAME`; the same call again continues there. `present` leaves out data sets that are not here. A
    run that fails does not stop the others.

    >>> plan = {"datasets": ["synth:events=500"], "models": [{"name": "dsrd", "settings": {"train.epochs": 1}}]}
    >>> done = sweep(plan, folder="first-sweep", progress=False)
    >>> len(done.records), done.failed
    (1, {})
    """
    checked = ready(plan, data_dir, present)
    target = SweepFolder(Path(folder) if folder is not None else default_folder(checked))
    with target.claimed(checked):
        have = target.collect((run.key, run.digest) for run in checked.runs)
        waiting = [run for run in checked.runs if run.digest not in have]
        estimates = expected(checked, have)
        by_key = {run.key: run for run in checked.runs}
        seconds = {key: estimate.seconds for key, estimate in estimates.items()}
        with Board(target, by_key, seconds, show=progress) as board:
            for run in checked.runs:
                if run.digest in have:
                    board.done_before(run.key)
            if waiting:
                with opened(target, len(waiting), jobs, ray, threads, data_dir) as place:
                    run_all(target, waiting, place, board)
            failed = {row.name: row.reason for row in board.rows.values() if row.state == "failed"}
        have = target.collect((run.key, run.digest) for run in checked.runs)
    finished = [run for run in checked.runs if run.digest in have]
    found, labels = (have[run.digest] for run in finished), (run.label for run in finished)
    return Sweep(target.path, tuple(found), tuple(labels), failed)


def ready(plan: PlanLike, data_dir: str | Path | None, present: bool) -> Plan:
    """The plan, if all its data are here; otherwise an error that says where to get them."""
    checked = load_plan(plan, data_dir)
    if present:
        checked = checked.present()
        if not checked.runs:
            raise DsrdError(f"{checked.name}: none of its data sets is here; fetch one first")
    if checked.missing:
        name, address = next(iter(checked.missing.items()))
        others = f" (and {len(checked.missing) - 1} more)" if len(checked.missing) > 1 else ""
        raise DsrdError(
            f"{checked.name}: data set {name} is not here{others}; fetch it ({address}), "
            "or run only what is present"
        )
    return checked


def default_folder(plan: Plan) -> Path:
    return SWEEPS / plan.name


def expected(plan: Plan, have: Mapping[str, Record]) -> dict[str, Estimate]:
    """What the runs of a plan will cost, by key, from the sweep's records and the plan's `measured` files."""
    known = [record for file in plan.measured for record in records.read(file)]
    costs = Costs([*known, *have.values()])
    found = {run.key: costs.of(run) for run in plan.runs}
    return {key: estimate for key, estimate in found.items() if estimate is not None}


@contextmanager
def opened(
    folder: SweepFolder, runs: int, jobs: int, ray: str | None, threads: int, data_dir: str | Path | None
) -> Iterator[Place]:
    """The place where runs take place; its runs are ended with the block."""
    if jobs < 1:
        raise DsrdError(f"jobs={jobs}: give 1 or more")
    if threads < 0:
        raise DsrdError(f"threads={threads}: give 1 or more, or 0 to divide the processors")
    place: Place
    if ray is None:
        place = LocalProcesses(folder, min(jobs, runs), threads, data_dir)
    else:
        from dsrd.experiments.places.ray_cluster import RayTasks

        place = RayTasks(folder, ray, threads, data_dir)
    try:
        yield place
    finally:
        place.close()


def run_all(
    folder: SweepFolder,
    runs: Iterable[PlannedRun],
    place: Place,
    board: Board,
    on_refresh: Callable[[], None] = lambda: None,
) -> None:
    """Run what is waiting, as many at a time as the place has room for."""
    waiting, by_key = deque(runs), {run.key: run for run in runs}
    submitted: set[str] = set()
    looked = 0.0
    while waiting or submitted:
        while waiting and place.has_room:
            run = waiting.popleft()
            folder.write_spec(run)
            place.start(run.key)
            submitted.add(run.key)
        for key in submitted:
            if board.rows[key].state == "waiting" and folder.has_started(key):
                board.started(key)
        for key, reason in place.ended().items():
            submitted.discard(key)
            if reason is None:
                folder.collect([(key, by_key[key].digest)])
            board.ended(key, reason)
        if time.monotonic() - looked > REFRESH:
            board.refresh()
            on_refresh()
            looked = time.monotonic()
        time.sleep(PAUSE)
