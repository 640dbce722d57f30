"""`dsrd inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsrd.cli import options, show

EXAMPLES = options.examples("dsrd inspect runs/first", "dsrd inspect runs/first --json")
CURVE = {"epoch": "epoch", "loss": "loss", "val_ap": "val AP", "val_auc": "val AUC", "seconds": "seconds"}


def inspect(folder: options.RunPath, json: options.Json = False) -> None:
    """Show what a run has learned: constants, sizes, curve.

    The constants are those of the best epoch so far, in words and numbers a person can read; times are in the
    stream's clock. Also works while the run is still training.
    """
    found = _inspected(folder)
    if json:
        show.as_json(found)
        return
    sizes = ("model", "preset", "dataset", "events", "parameters", "heads", "epochs", "best_epoch", "complete")
    show.figures(found["run"], {key: found[key] for key in sizes})
    if found["learned"]:
        show.figures("learned", _readable(found["learned"]))
    if found["state"]["fields"]:
        rows = [[name, _shape(each["shape"]), each["bytes"]] for name, each in found["state"]["fields"].items()]
        show.table("state after training", ["field", "shape", "bytes"], [*rows, ["", "", found["state"]["bytes"]]])
    show.table("learning curve", [*CURVE.values(), ""], [_point(line, found) for line in found["curve"]])


def _inspected(folder: Path) -> dict[str, Any]:
    from dsrd.train import checkpoint
    from dsrd.train.run_folder import RunFolder

    there = RunFolder(folder)
    run = there.config()
    model, progressed = there.load_model(run), there.progress()
    state = checkpoint.load(there.best, only=("state",))[0].get("state", {})
    fields = {name: {"shape": list(value.shape), "bytes": value.nbytes} for name, value in state.items()}
    return {
        "run": str(folder),
        "model": run.model,
        "preset": run.preset,
        "dataset": run.dataset,
        "events": there.num_events() if there.has_history else None,
        "parameters": model.num_parameters,
        "heads": list(model.heads),
        "epochs": progressed.epoch,
        "best_epoch": progressed.best_epoch,
        "complete": there.record.exists(),
        "learned": model.learned(),
        "state": {"bytes": sum(each["bytes"] for each in fields.values()), "fields": fields},
        "curve": progressed.history,
    }


def _readable(learned: Any) -> Any:
    """Numbers cut to what a table has room for."""
    if isinstance(learned, dict):
        return {key: _readable(value) for key, value in learned.items()}
    if isinstance(learned, list):
        return [_readable(value) for value in learned]
    return f"{learned:.4g}" if isinstance(learned, float) else learned


def _shape(shape: list[int]) -> str:
    return " x ".join(f"{size:,}" for size in shape)


def _point(line: dict[str, Any], found: dict[str, Any]) -> list[Any]:
    values = [line.get(key) for key in CURVE]
    values[1] = None if values[1] is None else f"{values[1]:.4f}"
    return [*values, "best" if line.get("epoch") == found["best_epoch"] else ""]
