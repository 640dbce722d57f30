"""A run on disk: settings, weights, events, the state after training and the state after all events.

The folder refers to nothing outside of itself: it can be moved, renamed and opened anywhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from dsrd import checksums
from dsrd.config import RunConfig
from dsrd.data.arrow import DAMAGED, held_extent, is_dataset, read_dataset, write_dataset
from dsrd.data.dataset import Dataset
from dsrd.decoding import first_line, own_json
from dsrd.errors import DsrdError, MachineError
from dsrd.files import is_empty, leftovers, locked, write_json, write_text
from dsrd.models import GraphSpec, Snapshot, TemporalModel
from dsrd.train import checkpoint
from dsrd.train.build import build_for, checkpoint_faults, load_weights, placed, verify_state
from dsrd.train.stopping import TrainingProgress

OWN_TEXTS = ("config.json", "record.json", "log.jsonl")


@dataclass(frozen=True)
class RunFolder:
    """The files of a run; docs/reference/run-folder.md describes each of them."""

    path: Path

    @property
    def settings(self) -> Path:
        return self.path / "config.json"

    @property
    def best(self) -> Path:
        return self.path / "best.safetensors"

    @property
    def last(self) -> Path:
        return self.path / "last.safetensors"

    @property
    def final(self) -> Path:
        """Weights of the final training on all events, if there was one."""
        return self.path / "final.safetensors"

    @property
    def final_last(self) -> Path:
        return self.path / "final-last.safetensors"

    @property
    def now(self) -> Path:
        """The state after all events of the run."""
        return self.path / "now.safetensors"

    @property
    def record(self) -> Path:
        return self.path / "record.json"

    def owns(self, file: Path) -> bool:
        """Whether a file is, or would be, a part of the run rather than something that was put beside it."""
        own = file.suffix in (".safetensors", ".arrow") or file.name in OWN_TEXTS
        return own and file.absolute().parent.resolve() == self.path.resolve()

    @contextmanager
    def claimed(self, run: RunConfig) -> Iterator[None]:
        """Lock the folder for this run inside the block.

        Refused: a folder of another run, a folder with other files, and a folder that another process uses.
        """
        if self.path.is_file():
            raise DsrdError(f"{self.path}: is a file; choose another folder")
        with self.locked():
            self._claim(run)
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other processes inside the block; what a killed one was writing is removed."""
        busy = f"{self.path}: another process is at work in this folder; wait for it or choose another folder"
        with locked(self.path, busy):
            for file in leftovers(self.path):
                file.unlink(missing_ok=True)
            yield

    def _claim(self, run: RunConfig) -> None:
        if self.settings.exists() and self._is_untrained:
            for name in ("events.arrow", "nodes.arrow", "candidates.safetensors", "log.jsonl"):
                (self.path / name).unlink(missing_ok=True)  # of a run that ended before its first epoch did
            self.write_config(run)
        elif self.settings.exists():
            if self.extended_by(run):
                self.record.unlink(missing_ok=True)  # first: it is not the record of the new limits
                self.write_config(run)
        elif not is_empty(self.path):
            raise DsrdError(f"{self.path}: is not empty and not a run; choose another folder")
        else:
            self.write_config(run)

    @property
    def _is_untrained(self) -> bool:
        """Whether nothing would be lost if another run took the folder."""
        return not any(file.exists() for file in (self.best, self.last, self.final, self.record))

    def write_config(self, run: RunConfig) -> None:
        write_json(self.settings, checksums.signed(run.to_dict()))

    def write_record(self, record: Mapping[str, Any]) -> None:
        write_json(self.record, checksums.signed(record))

    @property
    def has_checksums(self) -> bool:
        """Whether damage to the files of the run is noticed; earlier versions wrote no checksums."""
        return checkpoint.has_checksums(self.best)

    def extended_by(self, run: RunConfig) -> bool:
        """Whether `run` is the run of this folder with higher limits, or measured on negatives in another order.

        Any other difference is an error.
        """
        stored = replace(self.config(), dataset=run.dataset)  # the data are compared by content, not by name
        longer = {name: getattr(run.train, name) for name in LIMITS if _is_raised(name, run, stored)}
        # training asks for random negatives only, which are the same in every order
        measured = replace(stored.evaluate, order=run.evaluate.order)
        extended = replace(stored, train=replace(stored.train, **longer), evaluate=measured)
        difference = _difference(extended.to_dict(), run.to_dict())
        if difference:
            raise DsrdError(
                f"{self.path}: holds a run with another {difference}; choose another folder or remove it"
            )
        return bool(longer) or measured != stored.evaluate

    def config(self) -> RunConfig:
        try:
            stored = own_json(self.settings)
            plain = {name: value for name, value in stored.items() if name != checksums.CHECKSUM}
            run = RunConfig.from_dict(plain)
            checksums.verified(stored)
            return run
        except FileNotFoundError:
            raise DsrdError(
                f"{self.path}: not a run folder (no config.json); give the folder of a trained or saved run"
            ) from None
        except NotADirectoryError:
            raise DsrdError(f"{self.path}: is a file; give the folder of a trained or saved run") from None
        except (ValueError, TypeError, KeyError, AttributeError, DsrdError) as error:
            raise DsrdError(f"{self.settings}: damaged ({error}); train again into a new folder") from None

    def progress(self) -> TrainingProgress:
        """The epochs so far, from the last checkpoint."""
        file = self.last if self.last.exists() else self.best
        with checkpoint_faults(file):
            return TrainingProgress.of(checkpoint.note(file))

    def log(self, history: list[dict[str, Any]]) -> None:
        write_text(self.path / "log.jsonl", "".join(json.dumps(line) + "\n" for line in history))

    def stored_record(self) -> dict[str, Any] | None:
        """The record of a finished run, None before; an error if it is that of another run."""
        if not self.record.exists():
            return None
        try:
            record = checksums.verified(own_json(self.record))
            for part in PARTS_OF_RECORD:
                if not isinstance(record[part], dict):
                    raise TypeError(f"{part} is {record[part]}")
            record["digests"]["data"], record["dataset"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DsrdError(f"{self.record}: damaged ({first_line(error)}); remove it and run again") from error
        run = self.config()
        for name in ("model", "preset", "seed", "protocol"):
            if record.get(name, getattr(run, name)) != getattr(run, name):
                raise DsrdError(f"{self.record}: is of a run with another {name}; remove it and run again")
        return dict(record)

    def trained_on(self) -> str:
        """The digest of the events the run was trained on."""
        with checkpoint_faults(self.best):
            return str(checkpoint.note(self.best)["data"])

    def build_model(self, path: Path, run: RunConfig) -> TemporalModel:
        """The model of a checkpoint in this folder, without loading its weights."""
        with checkpoint_faults(path):
            graph = GraphSpec(**checkpoint.note(path)["graph"])
        return build_for(run, graph)

    def load_model(self, run: RunConfig, *, final: bool = False) -> TemporalModel:
        """The model with its best weights, or with those of the final training; its state is empty."""
        path = self.final if final else self.best
        groups, note = checkpoint.load(path, only=("weights",))
        _check_model(path, note, run.model)
        model = self.build_model(path, run)
        load_weights(model, groups.get("weights", {}), path)
        return placed(model, run)

    @property
    def has_history(self) -> bool:
        return is_dataset(self.path)

    def history(self) -> Dataset:
        """The events of the run, read into memory because the file may be replaced by a longer one."""
        try:
            return read_dataset(self.path, mapped=False)
        except MachineError:
            raise
        except DAMAGED as error:
            raise DsrdError(f"{self.path}: its events.arrow or nodes.arrow is damaged ({error})") from error

    def write_history(self, dataset: Dataset) -> None:
        write_dataset(dataset, self.path, compressed=True)

    def num_events(self) -> int:
        """The number of events in the folder."""
        return held_extent(self.path)[0]

    def extend_history(self, dataset: Dataset) -> None:
        """Write a longer version of the events in the folder; an error if the folder has other events by now."""
        if self.has_history:
            events, nodes, digest = held_extent(self.path)
            if digest == dataset.digest:
                return
            if events > len(dataset.events) or dataset.head(events, nodes).digest != digest:
                raise DsrdError(
                    f"{self.path}: has observed other events meanwhile; open it again and continue there"
                )
        self.write_history(dataset)

    def write_now(self, state: Snapshot, events: int, recent: Snapshot, after: Mapping[str, int]) -> None:
        """Write the state after `events` events, and by head the surprise of the latest ones."""
        groups = {"state": state, "recent": recent}
        checkpoint.save(self.now, groups, {"events": events, "recent_after": dict(after)})

    def read_now(self) -> tuple[Snapshot | None, dict[str, tuple[Tensor, int]], int]:
        """(state, surprise of the latest events by head, events in the state); no state if never written."""
        if not self.now.exists():
            return None, {}, 0
        groups, note = checkpoint.load(self.now)
        with checkpoint_faults(self.now):
            recent = {
                head: (bits, int(note["recent_after"][head])) for head, bits in groups.get("recent", {}).items()
            }
            if any(bits.dim() != 1 or not bits.is_floating_point() for bits, _ in recent.values()):
                raise ValueError("'recent' does not hold a number for each event")
            return groups.get("state", {}), recent, int(note["events"])

    def now_of(
        self, model: TemporalModel, num_events: int
    ) -> tuple[Snapshot | None, dict[str, tuple[Tensor, int]], int]:
        """`read_now` for this model after at most so many events; refuses a state that is not one of them."""
        state, recent, observed = self.read_now()
        if not 0 <= observed <= num_events:
            raise DsrdError(
                f"{self.now}: holds {observed} events of {num_events}; remove it, and it is built again"
            )
        if state is not None:
            verify_state(model, state, self.now, num_events)
        return state, recent, observed


PARTS_OF_RECORD = ("results", "timing", "digests", "config")
LIMITS = ("epochs", "patience", "minutes", "final")  # settings of train that may be raised to train longer


def _is_raised(limit: str, run: RunConfig, stored: RunConfig) -> bool:
    """Whether `run` has a higher limit than the stored run; 0 minutes mean no limit."""
    new, old = getattr(run.train, limit), getattr(stored.train, limit)
    if limit == "minutes":
        new, old = new or math.inf, old or math.inf
    return bool(new > old)


def _difference(stored: Mapping[str, Any], requested: Mapping[str, Any], prefix: str = "") -> str:
    """The first setting that differs, as `part.name`, and both values; empty if none does."""
    for key in dict.fromkeys([*requested, *stored]):
        old, new = stored.get(key), requested.get(key)
        if isinstance(new, Mapping) and isinstance(old, Mapping):
            inner = _difference(old, new, f"{key.removesuffix('_args')}.")
            if inner:
                return inner
        elif json.dumps(old, default=str) != json.dumps(new, default=str):
            return f"{prefix}{key} ({old}, not {new})"
    return ""


def check_note(path: Path, note: Mapping[str, Any], model: str, dataset: Dataset) -> None:
    """Refuse a checkpoint of another model or of other training data."""
    _check_model(path, note, model)
    with checkpoint_faults(path):
        check_data(path, note["data"], dataset)


def _check_model(path: Path, note: Mapping[str, Any], model: str) -> None:
    with checkpoint_faults(path):
        stored = note["model"]
    if stored != model:
        raise DsrdError(f"{path}: holds a {stored}, not a {model}; give the folder of a {model} run")


def check_data(path: Path, digest: str, dataset: Dataset) -> None:
    """Refuse a run that was trained on other data."""
    if digest != dataset.digest:
        raise DsrdError(
            f"{path}: was trained on other data (digest {digest}) than '{dataset.name}' here "
            f"({dataset.digest}); give the data set it was trained on, or train again into a new folder"
        )
