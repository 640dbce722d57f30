"""The data folder of an engine: a copy of the run, the log, the snapshots, and which run is in use."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dsrd.data.dataset import digest_of_tensors
from dsrd.decoding import own_json
from dsrd.errors import DsrdError
from dsrd.estimator.fitted import Fitted, open_folder
from dsrd.files import locked, replacing_folder, write_json
from dsrd.live.settings import LiveSettings
from dsrd.train.run_folder import RunFolder

FORMAT = 1


@dataclass(frozen=True)
class Base:
    """The run an engine starts from, and how much of the log its history holds."""

    run: str  # name of its folder in `runs`, or `refits/1`
    digest: str  # of its weights and events
    held: int = 0  # events of the log that are part of its history
    window: float = 0.0  # of late events; it decides in which order the events of the log are seen
    format: int = FORMAT


@dataclass(frozen=True)
class DataFolder:
    """The files of an engine. It refers to nothing outside of itself and can be moved while nobody uses it."""

    path: Path

    @property
    def log(self) -> Path:
        return self.path / "log.sqlite"

    @property
    def snapshots(self) -> Path:
        return self.path / "snapshots"

    @property
    def settings(self) -> Path:
        return self.path / "live.json"

    @property
    def refits(self) -> Path:
        return self.path / "refits"

    @property
    def drift(self) -> Path:
        """How surprising recent events are, written by the engine."""
        return self.path / "drift.json"

    def run_folder(self, name: str) -> Path:
        """The folder of a run: in `runs`, or `refits/1`."""
        return self.path / name if "/" in name else self.path / "runs" / name

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Lock the folder against another engine that writes to it."""
        if self.path.is_file():
            raise DsrdError(f"{self.path}: is a file; give a folder for the log and the snapshots")
        busy = f"{self.path}: another process writes to this folder; stop it, or open the folder read-only"
        new = not self.path.exists()
        try:
            with locked(self.path, busy):
                yield
        except BaseException:
            if new:
                with suppress(OSError):  # it holds something by now
                    self.path.rmdir()
            raise

    def base(self) -> Base:
        """Which run is in use."""
        try:
            stored: dict[str, Any] = own_json(self.settings)
            base = Base(**stored)
        except FileNotFoundError:
            raise DsrdError(
                f"{self.path}: not the data folder of an engine; start one there with a run first"
            ) from None
        except (ValueError, TypeError) as error:
            raise DsrdError(f"{self.settings}: damaged ({error}); put back a copy of it") from None
        if base.format != FORMAT:
            raise DsrdError(f"{self.path}: was written by another version of dsrd (format {base.format})")
        return base

    def prepare(self, run: Path | None, settings: LiveSettings) -> Base:
        """What to start from: the run in use if the folder has one, which must be `run` or come from it."""
        if self.settings.exists():
            base = self.base()
            if base.window != settings.window:
                raise DsrdError(
                    f"{self.path}: its log was written with a window of {base.window:g} for late events, not "
                    f"{settings.window:g}; start with the same, or with a new folder"
                )
            if run is not None and _first_digest(self, base) != run_digest(open_folder(RunFolder(run))):
                raise DsrdError(f"{self.path}: was started with another run than {run}; choose another folder")
            return base
        if run is None:
            raise DsrdError(f"{self.path}: not the data folder of an engine; give the run to start from")
        return self.start(run, settings)

    def start(self, run: Path, settings: LiveSettings) -> Base:
        """Copy a run into the folder and use it."""
        fitted = open_folder(RunFolder(run))
        if not RunFolder(run).has_history:
            raise DsrdError(f"{run}: was saved without its events; train it with them to use it live")
        name = self.adopt_run(run)
        base = Base(name, run_digest(fitted), window=settings.window)
        self.use(base)
        return base

    def adopt_run(self, run: Path) -> str:
        """Copy a run under the next free number; its name."""
        taken = [int(path.name) for path in (self.path / "runs").glob("[0-9]*") if path.name.isdecimal()]
        name = f"{max(taken, default=0) + 1:04d}"
        with replacing_folder(self.run_folder(name)) as temporary:
            shutil.copytree(run, temporary, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
            fitted = open_folder(RunFolder(temporary))
            fitted.hold_out()  # takes a replay of all events, which no later start needs to repeat
            fitted.save_changes(RunFolder(temporary), history=True)
        return name

    def use(self, base: Base) -> None:
        """Start from this run from now on."""
        write_json(self.settings, asdict(base))

    def open_run(self, base: Base) -> Fitted:
        """The run of the folder, checked."""
        fitted = open_folder(RunFolder(self.run_folder(base.run)))
        if run_digest(fitted) != base.digest:
            raise DsrdError(
                f"{self.run_folder(base.run)}: has changed since the log was started; put back a copy of it"
            )
        return fitted


def run_digest(fitted: Fitted) -> str:
    """Identifies a run by its weights and events."""
    weights = fitted.online.model.state_dict()
    tensors = digest_of_tensors(*(weights[name] for name in sorted(weights)))
    return f"{tensors}{fitted.online.stream.dataset().digest}"


def _first_digest(folder: DataFolder, base: Base) -> str:
    """The digest of the run that the folder was started with."""
    first = folder.run_folder("0001")
    return base.digest if base.run == first.name else run_digest(open_folder(RunFolder(first)))
