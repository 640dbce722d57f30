"""The folder of a sweep: what is planned, what has begun, failed or finished. Every place to run shares it.

plan.toml        the plan, as it was when the sweep last started
records.jsonl    the records of finished runs, each once
planned/KEY.json what one run is: all that a worker needs to know
runs/KEY/        the run folder, without the events
started/KEY.json who runs it
failed/KEY.json  why it failed
logs/KEY.txt     what it printed
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dsrd.config import DataConfig, overridden
from dsrd.decoding import own_json, parsed_json
from dsrd.errors import DsrdError
from dsrd.experiments.plan import Plan, PlannedRun
from dsrd.files import json_text, locked, write_json, write_text
from dsrd.train.record import Record
from dsrd.train.run_folder import RunFolder

WAIT = 120.0  # seconds until the process of a killed sweep must have let go of a run


@dataclass(frozen=True)
class Spec:
    """One run as a worker reads it."""

    model: str
    preset: str
    protocol: str
    seed: int
    settings: Mapping[str, Any]
    dataset: str  # as `load` takes it
    name: str  # of the data set in records
    data: Mapping[str, Any]  # columns
    digest: str
    evaluate: bool  # False: training and validation only

    @classmethod
    def of(cls, planned: PlannedRun, evaluate: bool) -> Spec:
        """The spec of a planned run."""
        run, stream = planned.run, planned.stream
        return cls(
            model=run.model,
            preset=run.preset,
            protocol=run.protocol,
            seed=run.seed,
            settings=dict(planned.settings),
            dataset=stream.text,
            name=stream.name,
            data=asdict(run.data),
            digest=planned.digest,
            evaluate=evaluate,
        )

    @property
    def columns(self) -> DataConfig:
        return overridden(DataConfig(), self.data)


@dataclass(frozen=True)
class SweepFolder:
    """The files of a sweep."""

    path: Path

    @property
    def records_file(self) -> Path:
        return self.path / "records.jsonl"

    @property
    def journal(self) -> Path:
        """What a search has tried, as Optuna writes it."""
        return self.path / "search.journal"

    def run(self, key: str) -> RunFolder:
        return RunFolder(self.path / "runs" / key)

    def log(self, key: str) -> Path:
        return self.path / "logs" / f"{key}.txt"

    @contextmanager
    def claimed(self, plan: Plan) -> Iterator[None]:
        """Lock the folder for one sweep inside the block, and keep the plan in it."""
        if self.path.is_file():
            raise DsrdError(f"{self.path}: is a file; choose another folder")
        with locked(self.path, f"{self.path}: another sweep is at work in this folder; wait for it, or stop it"):
            if plan.text:
                write_text(self.path / "plan.toml", plan.text)
            else:
                write_json(self.path / "plan.json", dict(plan.source))
            yield

    # --- One run ---

    def write_spec(self, planned: PlannedRun, *, evaluate: bool = True) -> None:
        """Write what a worker needs to know; marks of earlier attempts go."""
        for mark in ("started", "failed"):
            self._mark(mark, planned.key).unlink(missing_ok=True)
        write_json(self.path / "planned" / f"{planned.key}.json", asdict(Spec.of(planned, evaluate)))

    def spec(self, key: str) -> Spec:
        path = self.path / "planned" / f"{key}.json"
        try:
            return Spec(**own_json(path))
        except FileNotFoundError:
            raise DsrdError(f"{path}: no such run in this sweep; start the sweep again") from None
        except (ValueError, TypeError) as error:
            raise DsrdError(f"{path}: damaged ({error}); start the sweep again") from None

    @contextmanager
    def working(self, key: str, about: Mapping[str, Any]) -> Iterator[None]:
        """Lock a run inside the block, and say who works on it.

        The process of a sweep that was killed a moment ago may still hold it: it is waited for.
        """
        place = self.path / "locks" / key
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(place, timeout=WAIT):
                write_json(self._mark("started", key), dict(about))
                yield
        except Timeout:
            raise DsrdError(f"{key}: another process works on this run; wait for it, or stop it") from None

    def has_started(self, key: str) -> bool:
        return self._mark("started", key).exists()

    def fail(self, key: str, reason: str, details: str = "") -> None:
        """Keep why a run failed."""
        write_json(self._mark("failed", key), {"reason": reason, "details": details})

    def failure(self, key: str) -> str | None:
        """Why a run failed; None if it has not."""
        path = self._mark("failed", key)
        try:
            return str(own_json(path)["reason"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return f"see {path}"

    def history(self, key: str) -> list[dict[str, Any]]:
        """The epochs of a run so far, as its log says; empty before the first one."""
        path = self.run(key).path / "log.jsonl"
        try:
            return [parsed_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except ValueError as error:
            raise DsrdError(f"{path}: damaged ({error}); remove the folder of this run") from None

    def _mark(self, kind: str, key: str) -> Path:
        return self.path / kind / f"{key}.json"

    # --- All records ---

    def records(self) -> dict[str, Record]:
        """The records of finished runs by digest; half a line, which a full disk may leave, is skipped."""
        found: dict[str, Record] = {}
        if self.records_file.is_file():
            for line in self.records_file.read_bytes().splitlines():
                try:
                    record = parsed_json(line)
                    found.setdefault(record["digests"]["config"], record)
                except (ValueError, KeyError, TypeError):
                    continue
        return found

    def collect(self, runs: Iterable[tuple[str, str]]) -> dict[str, Record]:
        """Put the records of finished runs, given by (key, digest), into `records.jsonl`; returns all by digest.

        The file is replaced as a whole: it holds every record once, however often and wherever this is called.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path / ".records.lock"):
            found = self.records()
            before = len(found)
            for key, digest in runs:
                record = None if digest in found else self.run(key).stored_record()
                if record is not None:
                    found[digest] = record
            if len(found) > before:
                write_text(self.records_file, "".join(json_text(record) + "\n" for record in found.values()))
        return found
