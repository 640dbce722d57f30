"""A fitted run as it lives in memory, and the folder it is saved in and opened from."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from dsrd.config import RunConfig
from dsrd.data.dataset import Dataset
from dsrd.data.read import load_with
from dsrd.errors import DsrdError
from dsrd.estimator.online import OnlineModel
from dsrd.evaluate.protocol import protocol
from dsrd.evaluate.scoring import to_end_of_training
from dsrd.evaluate.task import Task
from dsrd.files import is_empty, write_json
from dsrd.models import Snapshot, TemporalModel
from dsrd.train import checkpoint
from dsrd.train.build import checkpoint_faults
from dsrd.train.run_folder import Record, RunFolder, check_data
from dsrd.train.stopping import Progressed

NO_HISTORY = (
    "without its events a run cannot be asked anything until the stream is given again: predict, partners, "
    "surprise, embed, observe and evaluate need it"
)
OF_TRAINING = (
    "best.safetensors",
    "last.safetensors",
    "final.safetensors",
    "head.safetensors",
    "log.jsonl",
)  # no event changes them


@dataclass(frozen=True)
class Extent:
    """What part of the stream a run was trained and measured on: its first events and nodes."""

    events: int
    nodes: int
    digest: str

    @classmethod
    def of(cls, dataset: Dataset) -> Extent:
        return cls(len(dataset.events), dataset.num_nodes, dataset.digest)


@dataclass
class Fitted:
    """Everything a fitted run consists of. The stream may have gone on since it was trained."""

    run: RunConfig
    online: OnlineModel
    extent: Extent
    progressed: Progressed
    evaluated: TemporalModel  # the model that is measured: without a final training the one that predicts
    trained: Snapshot | None = None  # its state right after training; None: in the folder, or made from events
    folder: Path | None = None  # where the run is kept
    final: dict[str, Any] | None = None  # about the training on all events
    record: Record | None = None
    recent: dict[str, tuple[Tensor, int]] = field(default_factory=dict)  # bits of the latest events, by head
    _task: Task | None = None

    @property
    def task(self) -> Task:
        """What was trained on, split and indexed again if need be."""
        if self._task is None:
            dataset = self.online.stream.dataset().head(self.extent.events, self.extent.nodes)
            check_data(self.folder or Path(self.run.dataset), self.extent.digest, dataset)
            self._task = Task.of(dataset)
        return self._task

    def state_after_training(self) -> Snapshot | None:
        """The state that evaluation begins with; None for a model whose state follows from events alone."""
        if self.evaluated.state_from_events:
            return None
        if self.trained is None:
            assert self.folder is not None
            groups, _ = checkpoint.load(RunFolder(self.folder).best, only=("state",))
            self.trained = groups.get("state", {})
        return self.trained

    def trained_until(self) -> float:
        """The time of the last event that the weights have learned from, or a bound on it."""
        events = self.online.stream.dataset().events[: self.extent.events]
        share = 1.0 if self.final is not None else 0.7
        return float(events.time[int(share * (len(events) - 1))])

    def write(self, folder: RunFolder, *, history: bool, overwrite: bool) -> Path:
        """Save the run; a folder that holds it already is brought up to date."""
        path = folder.path
        if path.is_file():
            raise DsrdError(f"{path}: is a file; choose another folder")
        there = path.is_dir() and not is_empty(path)
        if there and not folder.settings.exists():
            raise DsrdError(f"{path}: is not empty and not a run; choose another folder")
        if there and self._is_in(folder):
            with folder.held():
                self.write_now(folder, history)
            self.folder = path
            return path
        if there and not overwrite:
            raise DsrdError(f"{path}: holds another run; choose another folder, or say that it may be overwritten")
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = RunFolder(Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)))
        try:
            self._write_all(temporary, history)
            temporary.path.chmod(0o755)
            if path.is_dir():
                shutil.rmtree(path)
            temporary.path.rename(path)
        finally:
            shutil.rmtree(temporary.path, ignore_errors=True)
        self.folder = path
        return path

    def _is_in(self, folder: RunFolder) -> bool:
        """Whether a folder holds this very run: settings, data and weights."""
        stored = replace(folder.config(), dataset=self.run.dataset)  # the data themselves are compared
        if stored.to_dict() != self.run.to_dict() or not folder.best.exists():
            return False
        if folder.trained_on() != self.extent.digest:
            return False
        weights = checkpoint.load(folder.best, only=("weights",))[0].get("weights", {})
        mine = self.evaluated.state_dict()
        return weights.keys() == mine.keys() and all(
            bool((weights[name] == mine[name].cpu()).all()) for name in mine
        )

    def _write_all(self, folder: RunFolder, history: bool) -> None:
        write_json(folder.settings, self.run.to_dict())
        if self.folder is not None and RunFolder(self.folder).best.exists():
            for name in OF_TRAINING:
                if (self.folder / name).exists():
                    shutil.copyfile(self.folder / name, folder.path / name)
        else:
            self._write_training(folder)
        self.write_now(folder, history)

    def _write_training(self, folder: RunFolder) -> None:
        note = {
            "model": self.run.model,
            "run": self.run.digest,
            "data": self.extent.digest,
            "events": self.extent.events,
            "graph": asdict(self.evaluated.graph),
            "progressed": asdict(self.progressed),
        }
        with self.online.set_aside():
            trained = self.state_after_training()
            if trained is None:
                to_end_of_training(self.evaluated, self.task, protocol(self.run.protocol), None)
                trained = self.evaluated.state.fields_now()
            checkpoint.save(folder.best, {"weights": self.evaluated.state_dict(), "state": trained}, note)
            self.evaluated.state.reset()
        if self.final is not None:
            checkpoint.save(folder.final, {"weights": self.online.model.state_dict()}, {**note, **self.final})
        folder.log(self.progressed.history)

    def write_now(self, folder: RunFolder, history: bool) -> None:
        """What changes as the stream goes on. The events first: a state that lags behind them catches up."""
        if history:
            folder.bring_history_up_to(self.online.stream.dataset())
        if self.record is not None:
            write_json(folder.record, self.record)
        if history:
            after = {head: count for head, (_, count) in self.recent.items()}
            bits = {head: values for head, (values, _) in self.recent.items()}
            folder.write_now(*self.online.kept(), bits, after)


def opened(folder: RunFolder, stream: Any = None, data_dir: str | Path | None = None) -> Fitted:
    """Take up a saved run, from the events it holds or, if it holds none, from the stream given."""
    run = folder.config()
    dataset = _history_of(folder, run, stream, data_dir)
    run = replace(run, dataset=dataset.name)
    note = _note(folder)
    extent = Extent(note.get("events", len(dataset.events)), note["graph"]["num_nodes"], note["data"])
    model = folder.load_model(run)
    evaluated, final = model, None
    if run.train.final and folder.final.exists():
        final = {
            key: value
            for key, value in checkpoint.note(folder.final).items()
            if key in ("epochs", "events", "losses")
        }
        model = folder.load_model(run, final=True)
    state, recent, holds = folder.read_now() if folder.has_history else (None, {}, 0)
    return Fitted(
        run=run,
        online=OnlineModel(model, dataset, state, holds),
        extent=extent,
        progressed=folder.progressed(),
        evaluated=evaluated,
        folder=folder.path,
        final=final,
        record=folder.stored_record(),
        recent=recent,
    )


def _history_of(folder: RunFolder, run: RunConfig, stream: Any, data_dir: str | Path | None) -> Dataset:
    if folder.has_history:
        held = folder.history()
        if stream is not None and load_with(stream, run.data, data_dir=data_dir).digest != held.digest:
            raise DsrdError(f"{folder.path}: holds its own events; leave the stream out, and observe what follows")
        return held
    try:
        given = load_with(run.dataset if stream is None else stream, run.data, data_dir=data_dir)
    except DsrdError as error:
        if stream is not None:
            raise
        raise DsrdError(
            f"{folder.path}: was saved without its events; give the stream too: '{run.dataset}' is not here"
        ) from error
    note = _note(folder)
    continued = given.continuing(note.get("events", len(given.events)), note["graph"]["num_nodes"], note["data"])
    if continued is None:
        check_data(folder.best, note["data"], given)
    return given if continued is None else continued


def _note(folder: RunFolder) -> dict[str, Any]:
    """What the best checkpoint says of itself; `events` is missing in those of earlier versions."""
    with checkpoint_faults(folder.best):
        note = checkpoint.note(folder.best)
        note["data"], note["graph"]["num_nodes"]
        return note


def same_stream(folder: RunFolder, given: Dataset, tell: Callable[[str], None]) -> Dataset:
    """What a run in a folder is trained on: the events it holds, if the stream given is these or goes on after."""
    if not folder.has_history:
        return given
    held = folder.history()
    if folder.best.exists():
        note = _note(folder)
        held = held.head(note.get("events", len(held.events)), note["graph"]["num_nodes"])
    if given.continuing(len(held.events), held.num_nodes, held.digest) is None:
        check_data(folder.path, held.digest, given)
    more = len(given.events) - len(held.events)
    if more:
        tell(f"{more:,} events follow those that the run in {folder.path} is trained on; update it with them")
    return held
