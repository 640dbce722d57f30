"""How a run is trained and measured, from its settings to a `Fitted`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dsrd.config import RunConfig
from dsrd.data.dataset import Dataset
from dsrd.estimator.fitted import Extent, Fitted
from dsrd.estimator.online import OnlineModel
from dsrd.evaluate.task import Task
from dsrd.models import TemporalModel
from dsrd.reporter import Reporter
from dsrd.train.final import fit_final
from dsrd.train.measure import measured
from dsrd.train.run_folder import RunFolder
from dsrd.train.trainer import EpochCallback, Fit

Callbacks = EpochCallback | Iterable[EpochCallback]


def train_run(
    run: RunConfig, task: Task, folder: RunFolder | None, on_epoch: Callbacks, report: Reporter
) -> Fitted:
    """Train, on all events too if the run says so; what comes out stands at the end of the stream."""
    callbacks = [on_epoch] if callable(on_epoch) else list(on_epoch)

    def after_epoch(epoch: int, metrics: Mapping[str, float]) -> None:
        report.epoch(epoch, metrics)
        for callback in callbacks:
            callback(epoch, metrics)

    fit = Fit(run, task, folder, after_epoch)
    progressed = fit(report)
    trained = None if fit.model.state_from_events else fit.model.state.release()
    fit.model.state.reset()
    model, final = fit.model, None
    if run.train.final:
        model, final = fit_final(run, task, progressed.best_epoch, folder, report)
    return Fitted(
        run=run,
        online=OnlineModel(model, task.dataset),
        extent=Extent.of(task.dataset),
        progressed=progressed,
        evaluated=fit.model,
        trained=trained,
        folder=None if folder is None else folder.path,
        final=final,
        _task=task,
    )


def measure_run(run: RunConfig, fitted: Fitted, report: Reporter) -> dict[str, Any]:
    """The record of the model that validation chose; one trained on all events has no test events left."""
    with fitted.online.set_aside():
        trained = fitted.state_after_training()
        record = measured(run, fitted.task, fitted.evaluated, trained, fitted.progressed, report)
        fitted.evaluated.state.reset()
    if fitted.final is not None:
        record["final"] = fitted.final
    return record


def clock_notes(model: TemporalModel, run: RunConfig, dataset: Dataset) -> list[str]:
    """A warning for a clock that the model was not made for."""
    unit = dataset.clock_unit
    if unit is None or model.any_clock:
        return []
    return [f"times look like {unit} since 1970: {run.model} was made for seconds, and depends on the unit"]
