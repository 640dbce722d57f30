"""`dsrd inspect`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dsrd.cli import options, output

EXAMPLES = options.examples("dsrd inspect runs/first", "dsrd inspect runs/first --json")
CURVE = {
    "epoch": "epoch",
    "loss": "loss",
    "val_ap": "val AP",
    "val_auc": "val AUC",
    "val_mrr": "val MRR",
    "seconds": "seconds",
}


def inspect(folder: options.RunPath, json: options.Json = False) -> None:
    """Show what a run has learned, its sizes and its curve.

    Shows the learned constants of the best epoch so far, the size of the state, and the learning curve. Times are
    in the unit of the data. Also works while the run is training.
    """
    summary = _summary(folder)
    if json:
        output.as_json(summary)
        return
    sizes = ("model", "preset", "dataset", "events", "parameters", "heads", "epochs", "best_epoch", "complete")
    output.figures(summary["run"], {key: summary[key] for key in sizes})
    for title, constants in _parts(summary["learned"]):
        output.figures(title, _readable(constants))
    if summary["state"]["fields"]:
        rows = [[name, _shape(each["shape"]), each["bytes"]] for name, each in summary["state"]["fields"].items()]
        output.table(
            "state after training", ["field", "shape", "bytes"], [*rows, ["", "", summary["state"]["bytes"]]]
        )
    logged = [key for key in CURVE if key != "val_mrr" or any(key in line for line in summary["curve"])]
    lines = [_point(line, logged, summary["best_epoch"]) for line in summary["curve"]]
    output.table("learning curve", [*(CURVE[key] for key in logged), ""], lines)


def _summary(folder: Path) -> dict[str, Any]:
    from dsrd.train import checkpoint
    from dsrd.train.run_folder import RunFolder

    run_folder = RunFolder(folder)
    run = run_folder.config()
    model, progressed = run_folder.load_model(run), run_folder.progress()
    state = checkpoint.load(run_folder.best, only=("state",))[0].get("state", {})
    fields = {name: {"shape": list(value.shape), "bytes": value.nbytes} for name, value in state.items()}
    return {
        "run": str(folder),
        "model": run.model,
        "preset": run.preset,
        "dataset": run.dataset,
        "events": run_folder.num_events() if run_folder.has_history else None,
        "parameters": model.num_parameters,
        "heads": list(model.heads),
        "epochs": progressed.epoch,
        "best_epoch": progressed.best_epoch,
        "complete": run_folder.record.exists(),
        "learned": model.learned(),
        "state": {"bytes": sum(each["bytes"] for each in fields.values()), "fields": fields},
        "curve": progressed.history,
    }


def _parts(learned: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """One table per part of the model, with short labels; what belongs to no part comes first."""
    single = {name: value for name, value in learned.items() if not isinstance(value, dict)}
    if single:
        yield "learned", single
    for name, value in learned.items():
        if name not in single:
            yield f"learned: {name.replace('_', ' ')}", value


def _readable(learned: Any) -> Any:
    """Numbers with four digits, so that they fit in a table. Lists of lists are by layer and head."""
    if isinstance(learned, dict):
        return {key: _readable(value) for key, value in learned.items()}
    if isinstance(learned, list):
        if learned and isinstance(learned[0], list):
            return {f"layer {depth}": _readable(heads) for depth, heads in enumerate(learned, start=1)}
        return [_readable(value) for value in learned]
    return f"{learned:.4g}" if isinstance(learned, float) else learned


def _shape(shape: list[int]) -> str:
    return " x ".join(f"{size:,}" for size in shape)


def _point(line: dict[str, Any], logged: list[str], best_epoch: int) -> list[Any]:
    cells = [line.get(key) for key in logged]
    cells[1] = None if cells[1] is None else f"{cells[1]:.4f}"
    return [*cells, "best" if line.get("epoch") == best_epoch else ""]
