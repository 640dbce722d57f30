"""`dsrd inspect`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from dsrd.cli import options, show

EXAMPLES = options.examples("dsrd inspect runs/first", "dsrd inspect runs/first --json")
CURVE = {"epoch": "epoch", "loss": "loss", "val_ap": "val AP", "val_auc": "val AUC", "seconds": "seconds"}


def inspect(
    folder: options.RunPath,
    dataset: options.SameData = None,
    json: options.Json = False,
    data_dir: options.DataDir = None,
) -> None:
    """Show what a run has learned: constants, sizes, curve.

    The constants are those of the best epoch so far, in words and numbers a person can read; times are in the
    stream's clock. Also works while the run is still training.
    """
    found = _inspected(folder, dataset, data_dir)
    if json:
        show.as_json(found)
        return
    sizes = ("model", "preset", "dataset", "parameters", "heads", "epochs", "best_epoch", "complete")
    show.figures(found["run"], {key: found[key] for key in sizes})
    if found["learned"]:
        show.figures("learned", _readable(found["learned"]))
    if found["state"]["fields"]:
        rows = [[name, _shape(each["shape"]), each["bytes"]] for name, each in found["state"]["fields"].items()]
        show.table("state after training", ["field", "shape", "bytes"], [*rows, ["", "", found["state"]["bytes"]]])
    show.table("learning curve", [*CURVE.values(), ""], [_point(line, found) for line in found["curve"]])


def _inspected(folder: Path, dataset: str | None, data_dir: Path | None) -> dict[str, Any]:
    from dsrd.bench import run as runner
    from dsrd.train.fit import RunFolder, load_model

    trained = RunFolder(folder)
    stored = trained.config()
    with show.bar() as progress:
        opened, task = runner.prepare(replace(stored, dataset=dataset or stored.dataset), data_dir, progress)
        model = load_model(trained, stored, task)
    progressed, state = trained.progressed(), model.state
    fields = {
        name: {
            "shape": list(state[name].shape),
            "bytes": state[name].numel() * state[name].element_size(),
        }
        for name in state.fields
    }
    return {
        "run": str(folder),
        "model": stored.model,
        "preset": stored.preset,
        "dataset": opened.dataset.name,
        "parameters": model.num_parameters,
        "heads": list(model.heads),
        "epochs": progressed.epoch,
        "best_epoch": progressed.best_epoch,
        "complete": trained.record.exists(),
        "learned": model.learned(),
        "state": {"bytes": state.nbytes(), "fields": fields},
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
