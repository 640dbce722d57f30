"""A fitted run in memory: how it is trained, evaluated, saved to a folder and opened again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from dsrd import machine
from dsrd.config import RunConfig
from dsrd.data.dataset import Dataset
from dsrd.data.read import load_with
from dsrd.errors import DsrdError
from dsrd.estimator.online import OnlineModel
from dsrd.estimator.surprise import recent_surprises
from dsrd.evaluate.calibration import SAMPLE, calibration
from dsrd.evaluate.scoring import to_end_of_training
from dsrd.evaluate.task import Task
from dsrd.files import is_empty, replacing_folder
from dsrd.models import Snapshot, TemporalModel, configured
from dsrd.processes import ALONE, Processes
from dsrd.reporter import current
from dsrd.train import checkpoint
from dsrd.train.build import checkpoint_faults, verify_state
from dsrd.train.record import Record, evaluation_record, identity
from dsrd.train.run_folder import RunFolder, check_data
from dsrd.train.sizes import refuse_negatives
from dsrd.train.stopping import TrainingProgress
from dsrd.train.trainer import EpochCallback, Trainer, model_note, train_on_all_events

Callbacks = EpochCallback | Iterable[EpochCallback]

NO_HISTORY = (
    "without its events a run cannot be asked anything until the stream is given again: predict, partners, "
    "surprise, embed, observe and evaluate need it"
)
FILES_OF_TRAINING = (
    "best.safetensors",
    "last.safetensors",
    "final.safetensors",
    "head.safetensors",
    "log.jsonl",
)  # later events do not change them


@dataclass(frozen=True)
class Extent:
    """The part of the stream that a run was trained and evaluated on: its first events and nodes."""

    events: int
    nodes: int
    digest: str

    @classmethod
    def of(cls, dataset: Dataset) -> Extent:
        return cls(len(dataset.events), dataset.num_nodes, dataset.digest)


@dataclass
class Fitted:
    """A fitted run. The stream may have continued since it was trained."""

    run: RunConfig
    online: OnlineModel
    extent: Extent
    progress: TrainingProgress
    evaluated: TemporalModel  # the model that is evaluated; the one that predicts may be trained on all events
    trained: Snapshot | None = None  # its state right after training; None: in the folder, or follows from events
    folder: Path | None = None  # the folder of the run
    final: dict[str, Any] | None = None  # about the training on all events
    record: Record | None = None
    recent: dict[str, tuple[Tensor, int]] = field(default_factory=dict)  # by head: bits of the latest events
    _task: Task | None = None

    @property
    def task(self) -> Task:
        """The task the run was trained on; rebuilt if needed."""
        if self._task is None:
            dataset = self.online.stream.dataset().head(self.extent.events, self.extent.nodes)
            check_data(self.folder or Path(self.run.dataset), self.extent.digest, dataset)
            self._task = Task.of(dataset)
        return self._task

    def state_after_training(self) -> Snapshot | None:
        """The state that evaluation starts from; None for a model whose state follows from events alone."""
        if self.evaluated.state_from_events:
            return None
        if self.trained is None:
            assert self.folder is not None
            path = RunFolder(self.folder).best
            groups, _ = checkpoint.load(path, only=("state",))
            self.trained = verify_state(self.evaluated, groups.get("state", {}), path, self.extent.events)
        return self.trained

    def trained_until(self) -> float:
        """The time of the last event that the weights were trained on, or a bound on it."""
        events = self.online.stream.dataset().events[: self.extent.events]
        share = 1.0 if self.final is not None else 0.7
        return float(events.time[int(share * (len(events) - 1))])

    def evaluate(self, run: RunConfig) -> Record:
        """The record of the model that validation chose; one trained on all events has no test events left."""
        refuse_negatives(run, self.task)
        with self.online.state_preserved():
            trained = self.state_after_training()
            record = evaluation_record(run, self.task, self.evaluated, trained, self.progress)
            self.evaluated.state.reset()
        if self.final is not None:
            record["final"] = self.final
        return record

    def recent_surprises(self, head: str) -> Tensor:
        """Bits of the latest events; computed again when as many new events have been observed."""
        online = self.online
        key = "intensity" if online.model.has_intensity else head  # which is the same for every head
        bits, num_events = self.recent.get(key, (None, 0))
        if bits is None or online.stream.num_events - num_events >= len(bits):
            bits = recent_surprises(online, head)
            self.recent[key] = (bits, online.stream.num_events)
        return bits

    def hold_out(self, head: str = "") -> Tensor:
        """Bits of the latest events by weights that were not trained on them; `recent_surprises` from now on.

        A model trained on all events finds these less surprising than events to come.
        """
        if self.evaluated is not self.online.model:
            online = OnlineModel(self.evaluated, self.online.stream.dataset())
            key = "intensity" if self.evaluated.has_intensity else head
            self.recent[key] = (recent_surprises(online, head), online.stream.num_events)
            self.evaluated.state.reset()
        return self.recent_surprises(head)

    def calibration(self, run: RunConfig, sample: int = SAMPLE) -> Record:
        """Log loss and calibration of the same model on a sample of the test events."""
        with self.online.state_preserved():
            trained, protocol = self.state_after_training(), run.protocol_rules
            measured = calibration(self.evaluated, self.task, protocol, run.evaluate, trained, sample=sample)
            self.evaluated.state.reset()
        digests = {"data": self.task.dataset.digest, "split": self.task.split.digest, "config": run.digest}
        return {
            **identity(run, self.task.dataset.name),
            "calibration": measured,
            "digests": digests,
            "versions": machine.versions(),
        }

    def save(self, folder: RunFolder, *, history: bool, overwrite: bool) -> Path:
        """Save the run; if the folder already contains it, write what has changed."""
        path = folder.path
        if path.is_file():
            raise DsrdError(f"{path}: is a file; choose another folder")
        in_use = path.is_dir() and not is_empty(path)
        if in_use and not folder.settings.exists():
            raise DsrdError(f"{path}: is not empty and not a run; choose another folder")
        if in_use and self._is_in(folder):
            with folder.locked():
                self.save_changes(folder, history)
            self.folder = path
            return path
        if in_use and not overwrite:
            raise DsrdError(f"{path}: holds another run; choose another folder, or say that it may be overwritten")
        with replacing_folder(path) as temporary:
            self._save_all(RunFolder(temporary), history)
        self.folder = path
        return path

    def _is_in(self, folder: RunFolder) -> bool:
        """Whether a folder contains this run: the same settings, data and weights."""
        stored = replace(folder.config(), dataset=self.run.dataset)  # the data are compared by content
        if stored.to_dict() != self.run.to_dict() or not folder.best.exists():
            return False
        if folder.trained_on() != self.extent.digest:
            return False
        stored_weights = checkpoint.load(folder.best, only=("weights",))[0].get("weights", {})
        weights = self.evaluated.state_dict()
        return stored_weights.keys() == weights.keys() and all(
            bool((stored_weights[name] == weights[name].cpu()).all()) for name in weights
        )

    def _save_all(self, folder: RunFolder, history: bool) -> None:
        folder.write_config(self.run)
        if self.folder is not None and RunFolder(self.folder).best.exists():
            for name in FILES_OF_TRAINING:
                if (self.folder / name).exists():
                    shutil.copyfile(self.folder / name, folder.path / name)
        else:
            self._save_training(folder)
        self.save_changes(folder, history)

    def _save_training(self, folder: RunFolder) -> None:
        note = {
            **model_note(self.run, self.task, self.evaluated),
            "events": self.extent.events,
            "progressed": asdict(self.progress),
        }
        with self.online.state_preserved():
            trained = self.state_after_training()
            if trained is None:
                to_end_of_training(self.evaluated, self.task, self.run.protocol_rules, None)
                trained = self.evaluated.state.fields_now()
            checkpoint.save(folder.best, {"weights": self.evaluated.state_dict(), "state": trained}, note)
            self.evaluated.state.reset()
        if self.final is not None:
            checkpoint.save(folder.final, {"weights": self.online.model.state_dict()}, {**note, **self.final})
        folder.log(self.progress.history)

    def save_changes(self, folder: RunFolder, history: bool) -> None:
        """Save what changes as the stream continues. Events come first: a state can catch up with them later."""
        if history:
            folder.extend_history(self.online.stream.dataset())
        if self.record is not None:
            folder.write_record(self.record)
        if history:
            num_events = {head: count for head, (_, count) in self.recent.items()}
            bits = {head: values for head, (values, _) in self.recent.items()}
            folder.write_now(*self.online.state_to_save(), bits, num_events)


def train(
    run: RunConfig,
    task: Task,
    folder: RunFolder | None = None,
    on_epoch: Callbacks = (),
    processes: Processes = ALONE,
) -> Fitted:
    """Train a run, and once more on all events if its settings say so; it then stands at the end of the stream.

    Of several `processes` that train it together, each gets the result.
    """
    callbacks = [on_epoch] if callable(on_epoch) else list(on_epoch)
    trainer = Trainer(run, task, folder, callbacks, processes)
    progress = trainer.train()
    evaluated = trainer.model
    trained = None if evaluated.state_from_events else evaluated.state.release()
    evaluated.state.reset()
    model, final = evaluated, None
    if run.train.final:
        model, final = train_on_all_events(run, task, progress, folder, processes)
    return Fitted(
        run=run,
        online=OnlineModel(model, task.dataset),
        extent=Extent.of(task.dataset),
        progress=progress,
        evaluated=evaluated,
        trained=trained,
        folder=None if folder is None else folder.path,
        final=final,
        _task=task,
    )


def open_folder(folder: RunFolder, stream: Any = None, data_dir: str | Path | None = None) -> Fitted:
    """Open a saved run with the events in its folder or, if it has none, with the stream passed."""
    run = folder.config()
    dataset = _history_of(folder, run, stream, data_dir)
    run = replace(run, dataset=dataset.name)
    note = _note(folder)
    extent = Extent(note.get("events", len(dataset.events)), note["graph"]["num_nodes"], note["data"])
    model = folder.load_model(run)
    evaluated, final = model, None
    if run.train.final and folder.final.exists():
        final_note = checkpoint.note(folder.final)
        final = {key: final_note[key] for key in final_note if key in ("epochs", "events", "losses")}
        model = folder.load_model(run, final=True)
    events = len(dataset.events)
    state, recent, num_observed = folder.now_of(model, events) if folder.has_history else (None, {}, 0)
    if not folder.has_checksums:
        current().note(f"{folder.path}: an earlier version wrote it without checksums; damage is not noticed")
    return Fitted(
        run=run,
        online=OnlineModel(model, dataset, state, num_observed),
        extent=extent,
        progress=folder.progress(),
        evaluated=evaluated,
        folder=folder.path,
        final=final,
        record=folder.stored_record(),
        recent=recent,
    )


def _history_of(folder: RunFolder, run: RunConfig, stream: Any, data_dir: str | Path | None) -> Dataset:
    if folder.has_history:
        history = folder.history()
        if stream is not None and load_with(stream, run.data, data_dir=data_dir).digest != history.digest:
            raise DsrdError(f"{folder.path}: holds its own events; leave the stream out, and observe what follows")
        return history
    try:
        dataset = load_with(run.dataset if stream is None else stream, run.data, data_dir=data_dir)
    except DsrdError as error:
        if stream is not None:
            raise
        raise DsrdError(
            f"{folder.path}: was saved without its events; give the stream too: '{run.dataset}' is not here"
        ) from error
    note = _note(folder)
    num_events = note.get("events", len(dataset.events))
    continued = dataset.continuing(num_events, note["graph"]["num_nodes"], note["data"])
    if continued is None:
        check_data(folder.best, note["data"], dataset)
    return dataset if continued is None else continued


def _note(folder: RunFolder) -> dict[str, Any]:
    """The note of the best checkpoint; those of earlier versions have no `events`."""
    with checkpoint_faults(folder.best):
        note = checkpoint.note(folder.best)
        note["data"], note["graph"]["num_nodes"]
        return note


def training_data(folder: RunFolder, dataset: Dataset, note_to_user: Callable[[str], None]) -> Dataset:
    """The events a run in a folder is trained on: those in the folder, which `dataset` must equal or continue."""
    if not folder.has_history:
        return dataset
    history = folder.history()
    if folder.best.exists():
        note = _note(folder)
        history = history.head(note.get("events", len(history.events)), note["graph"]["num_nodes"])
    if dataset.continuing(len(history.events), history.num_nodes, history.digest) is None:
        check_data(folder.path, history.digest, dataset)
    if _borders(dataset) != _borders(history):
        raise DsrdError(
            f"{folder.path}: was trained on '{history.name}', with another split than '{dataset.name}'; "
            "choose another folder"
        )
    more = len(dataset.events) - len(history.events)
    if more:
        note_to_user(
            f"{more:,} events follow those that the run in {folder.path} is trained on; update it with them"
        )
    return history


def _borders(dataset: Dataset) -> tuple[int, int] | None:
    return None if dataset.own_split is None else dataset.own_split.borders


def clock_notes(model: TemporalModel, run: RunConfig, dataset: Dataset) -> list[str]:
    """A warning if the stream's unit of time is not the one the model was designed for."""
    unit = dataset.clock_unit
    if unit is None or model.any_clock:
        return []
    return [f"times look like {unit} since 1970: {run.model} was made for seconds, and depends on the unit"]


def params_of(run: RunConfig) -> dict[str, Any]:
    """The arguments of the constructor for this run."""
    defaults = configured(RunConfig(dataset="", model=run.model, preset=run.preset), {})
    changed = {
        f"{part}__{name}": value
        for part in ("train", "evaluate")
        for name, value in vars(getattr(run, part)).items()
        if value != getattr(getattr(defaults, part), name)
    }
    model_settings = {f"model__{name}": value for name, value in run.model_args.items()}
    named = {"model": run.model, "preset": run.preset, "protocol": run.protocol, "seed": run.seed}
    return {**named, **changed, **model_settings}
