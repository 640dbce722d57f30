"""Snapshots of a model's state: one safetensors file each, named by sequence number, whole or absent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dsrd.errors import DsrdError
from dsrd.files import leftovers
from dsrd.models import Snapshot
from dsrd.train import checkpoint


@dataclass(frozen=True)
class Moment:
    """Where a snapshot stands in the log."""

    seq: int  # events in the log
    applied: int  # events of the log that the state holds; the others were waiting for older ones
    digest: str  # of the events in the log


class Snapshots:
    """The snapshots of one run in a folder."""

    def __init__(self, folder: Path, run: str) -> None:
        """`run` is the digest of the weights; snapshots of other weights are not touched."""
        self._folder, self._run = folder, run

    def write(self, moment: Moment, state: Snapshot) -> Path:
        """Write a snapshot under a temporary name and rename it."""
        path = self._folder / f"{moment.seq:015d}-{self._run}.safetensors"
        self._folder.mkdir(parents=True, exist_ok=True)
        checkpoint.save(path, {"state": state}, {"run": self._run, **vars(moment)})
        return path

    def newest_first(self) -> Iterator[tuple[Moment, Path]]:
        """All snapshots that can be read; damaged ones are skipped."""
        for path in sorted(self._files(), reverse=True):
            try:
                note = checkpoint.note(path)
                moment = Moment(int(note["seq"]), int(note["applied"]), str(note["digest"]))
            except (DsrdError, KeyError, TypeError, ValueError):
                continue
            if note.get("run") == self._run:
                yield moment, path

    @staticmethod
    def read(path: Path) -> Snapshot | None:
        """The state in a snapshot; None if the file is damaged."""
        try:
            groups, _ = checkpoint.load(path)
        except (DsrdError, OSError):
            return None
        return groups.get("state", {})

    def remove_all_but(self, newest: int) -> int:
        """Remove older snapshots, and what a killed process left; how many."""
        gone = [*sorted(self._files(), reverse=True)[newest:], *self._leftovers()]
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)

    def _files(self) -> list[Path]:
        return list(self._folder.glob(f"*-{self._run}.safetensors"))

    def _leftovers(self) -> list[Path]:
        return leftovers(self._folder) if self._folder.is_dir() else []
