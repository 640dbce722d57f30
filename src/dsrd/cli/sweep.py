"""`dsrd sweep`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsrd.cli import options, output
from dsrd.errors import DsrdError

if TYPE_CHECKING:
    from dsrd.experiments.estimate import Estimate
    from dsrd.experiments.folder import SweepFolder
    from dsrd.experiments.plan import Plan

EXAMPLES = options.examples(
    "dsrd sweep plans/small.toml --dry-run",
    "dsrd sweep plans/small.toml --jobs 2",
    "dsrd sweep plans/paper.toml --ray auto --out /shared/paper",
    "dsrd sweep plans/paper.toml --slurm --out /shared/paper",
    "dsrd sweep plans/small.toml --search",
)
FAILED = 1

PlanFile = Annotated[Path, typer.Argument(metavar="PLAN", help="A TOML file that says what to run.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="DIR", help="Folder of the sweep.", show_default="sweeps/NAME OF PLAN"),
]
Jobs = Annotated[
    int, typer.Option("--jobs", "-j", metavar="N", help="Runs at a time, each in a process of its own.")
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Run as tasks of a Ray cluster: HOST:PORT, auto, or local.",
        show_default=False,
    ),
]
Slurm = Annotated[bool, typer.Option("--slurm", help="Write the script of a SLURM array; run nothing.")]
Search = Annotated[bool, typer.Option("--search", help="Look for settings on validation: table [search] of PLAN.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would run, and which data are here.")]
Present = Annotated[bool, typer.Option("--present", help="Leave out data sets that are not on this machine.")]
Threads = Annotated[
    int,
    typer.Option("--threads", metavar="N", help="Threads of each run; 0: the processors divided among the jobs."),
]


def sweep(
    plan: PlanFile,
    out: Out = None,
    jobs: Jobs = 1,
    ray: Ray = None,
    slurm: Slurm = False,
    search: Search = False,
    dry_run: DryRun = False,
    present: Present = False,
    threads: Threads = 0,
    json: options.Json = False,
    data_dir: options.DataDir = None,
) -> None:
    """Run all experiments of a plan, once.

    A run that is done is never repeated: the same command again continues a sweep that was stopped, tries failed
    runs once more, and adds what the plan has gained. A failed run does not stop the others. The records are in
    DIR/records.jsonl.
    """
    from dsrd.experiments.folder import SweepFolder
    from dsrd.experiments.plan import load_plan
    from dsrd.experiments.sweeping import default_folder

    chosen = [name for name, given in (("--slurm", slurm), ("--ray", ray is not None)) if given]
    if len(chosen) > 1 or (slurm and search):
        raise DsrdError(
            f"{' and '.join(chosen if len(chosen) > 1 else ['--slurm', '--search'])}: give one of them"
        )
    checked = load_plan(plan, data_dir)
    folder = SweepFolder(out or default_folder(checked))
    if dry_run:
        return _show(checked, folder, json)
    if checked.missing and not present:
        raise DsrdError(_not_here(checked))
    how: dict[str, Any] = {"folder": folder.path, "threads": threads, "data_dir": data_dir, "present": present}
    if slurm:
        return _write_scripts(checked.present(), folder, jobs, threads, data_dir, json)
    if search:
        return _search(checked, json, jobs=jobs, ray=ray, **how)
    return _sweep(checked, json, jobs=jobs, ray=ray, **how)


def _sweep(plan: Plan, json: bool, **how: Any) -> None:
    from dsrd.experiments.summary import summary
    from dsrd.experiments.sweeping import sweep as run_sweep

    done = run_sweep(plan, **how)
    if json:
        output.as_json({"records": str(done.records_file), "done": len(done.records), "failed": dict(done.failed)})
    else:
        table = summary(zip(done.labels, done.records, strict=True))
        if table.rows:
            output.table("test AP in percent, mean and deviation over seeds", table.columns, table.rows)
        _print_failed(done.failed)
        output.note(f"records: {done.records_file} ({len(done.records)} runs)")
    if done.failed:
        raise typer.Exit(FAILED)


def _search(plan: Plan, json: bool, **how: Any) -> None:
    from dsrd.experiments.searching import search as run_search

    done = run_search(plan, **how)
    rows = [
        [
            best.planned.label,
            best.planned.stream.name,
            best.planned.run.protocol,
            best.value,
            ", ".join(
                f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
                for key, value in best.settings.items()
            ),
            ", ".join(f"{count} {how_ended}" for how_ended, count in best.trials.items() if count),
        ]
        for best in done.best
    ]
    if json:
        keys = ("model", "dataset", "protocol", "validation", "settings", "trials")
        best = [
            {**dict(zip(keys, row, strict=True)), "settings": dict(each.settings), "trials": dict(each.trials)}
            for row, each in zip(rows, done.best, strict=True)
        ]
        output.as_json({"best": best, "plan": str(done.plan_file), "failed": dict(done.failed)})
    else:
        titles = ["model", "data", "protocol", "validation", "settings", "trials"]
        output.table("best settings, by validation in percent", titles, rows)
        _print_failed(done.failed)
        if done.best:
            output.note(f"a plan with these settings: {done.plan_file}")
    if done.failed:
        raise typer.Exit(FAILED)


def _write_scripts(
    plan: Plan, folder: SweepFolder, jobs: int, threads: int, data_dir: Path | None, json: bool
) -> None:
    from dsrd.experiments.places.slurm import write_scripts
    from dsrd.experiments.sweeping import expected

    with folder.claimed(plan):
        have = folder.collect((run.key, run.digest) for run in plan.runs)
        waiting = [run for run in plan.runs if run.digest not in have]
        scripts = write_scripts(
            folder,
            plan.name,
            waiting,
            expected(plan, have),
            threads=threads or 1,
            at_a_time=jobs if jobs > 1 else 0,
            data_dir=data_dir,
        )
    if json:
        output.as_json({"scripts": list(map(str, scripts)), "runs": len(waiting), "done": len(have)})
        return
    for script in scripts:
        output.line(f"sbatch {script}")
    output.note(
        f"{len(waiting)} runs to submit, {len(plan.runs) - len(waiting)} done"
        + (f"; their records will be in {folder.records_file}" if waiting else "")
    )


def _not_here(plan: Plan) -> str:
    name, address = next(iter(plan.missing.items()))
    others = f" and {len(plan.missing) - 1} more" if len(plan.missing) > 1 else ""
    return (
        f"{plan.name}: data set {name}{others} not here; `dsrd data fetch {name}` gets it ({address}), --dry-run "
        "lists all, --present leaves them out"
    )


def _show(plan: Plan, folder: SweepFolder, json: bool) -> None:
    """What would run: every run with its state and time, and the data sets."""
    from dsrd.experiments.sweeping import expected

    have = folder.records()
    estimates = expected(plan, have)
    rows = [_row(run, folder, have, estimates.get(run.key)) for run in plan.runs]
    if json:
        output.as_json({"title": plan.title, "runs": rows, "missing": plan.missing})
        return
    titles = ["model", "data", "protocol", "seeds", "state", "hours a run", "GB", "known from"]
    output.table(plan.title, titles, _grouped(rows))
    _print_data(plan)
    left = [row for row in rows if row["state"] != "done"]
    known = [row["seconds"] for row in left if row["seconds"] is not None]
    hours = f", about {sum(known) / 3600:,.1f} hours of one processor" if known else ""
    unknown = f", {len(left) - len(known)} of unknown length" if known and len(known) < len(left) else ""
    output.note(f"{len(rows)} runs, {len(rows) - len(left)} done, {len(left)} to run{hours}{unknown}")


def _row(run: Any, folder: SweepFolder, have: dict[str, Any], estimate: Estimate | None) -> dict[str, Any]:
    state = "done" if run.digest in have or folder.run(run.key).record.exists() else "to run"
    if state != "done" and (reason := folder.failure(run.key)) is not None:
        state = f"failed: {reason}"
    elif state != "done" and (epochs := folder.history(run.key)):
        state = f"begun, epoch {epochs[-1]['epoch']}"
    elif run.stream.missing:
        state = "no data"
    return {
        "model": run.label,
        "dataset": run.stream.name,
        "protocol": run.run.protocol,
        "seed": run.run.seed,
        "state": state,
        "seconds": None if estimate is None else round(estimate.seconds, 1),
        "memory_mb": None if estimate is None else round(estimate.memory_mb),
        "known_from": None if estimate is None else estimate.how,
        "digest": run.digest,
        "settings": dict(run.settings),
    }


def _grouped(rows: list[dict[str, Any]]) -> list[list[Any]]:
    """One row for all seeds of a model on a data set."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["dataset"], row["protocol"]), []).append(row)
    cells = []
    for names, runs in groups.items():
        states = Counter(run["state"] for run in runs)
        state = next(iter(states)) if len(states) == 1 else ", ".join(f"{n} {each}" for each, n in states.items())
        hours = [run["seconds"] / 3600 for run in runs if run["seconds"] is not None]
        memory = [run["memory_mb"] / 1024 for run in runs if run["memory_mb"] is not None]
        known = dict.fromkeys(run["known_from"] for run in runs if run["known_from"])
        cells.append(
            [
                *names,
                len(runs),
                state,
                f"{sum(hours) / len(hours):,.3f}" if hours else None,
                f"{max(memory):.1f}" if memory else None,
                ", ".join(known) or None,
            ]
        )
    return cells


def _print_data(plan: Plan) -> None:
    streams = {run.stream.name: run.stream for run in plan.runs}
    rows = [
        [stream.name, stream.events, not stream.missing, _remedy(name, stream.missing)]
        for name, stream in streams.items()
    ]
    output.table("data sets", ["name", "events", "here", "where to get it"], rows)


def _remedy(name: str, missing: str) -> str | None:
    if not missing:
        return None
    return f"dsrd data fetch {name} ({missing})" if missing.startswith("http") else missing


def _print_failed(failed: Any) -> None:
    if failed:
        output.table("failed", ["run", "reason"], [[name, reason] for name, reason in failed.items()])
