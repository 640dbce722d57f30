"""Snapshots of a model's state: one safetensors file each, named by sequence number, whole or absent."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

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


class DamagedSnapshotError(DsrdError):
    """A snapshot that cannot be used."""


class Snapshots:
    """The snapshots of one run in a folder."""

    def __init__(self, folder: Path, run: str) -> None:
        """`run` is the digest of the run; snapshots of other runs are not touched."""
        self._folder, self._run = folder, run

    def write(self, moment: Moment, state: Snapshot) -> Path:
        """Write a snapshot under a temporary name and rename it."""
        path = self._folder / f"{moment.seq:015d}-{self._run[:16]}.safetensors"
        self._folder.mkdir(parents=True, exist_ok=True)
        note = {"run": self._run, "checksum": _checksum(state), **vars(moment)}
        checkpoint.save(path, {"state": state}, note)
        return path

    def newest_first(self, notes: list[str]) -> Iterator[tuple[Moment, Path]]:
        """All snapshots whose note can be read; a line about each of the others is added to `notes`."""
        for path in sorted(self._files(), reverse=True):
            try:
                note = checkpoint.note(path)
                moment = Moment(int(note["seq"]), int(note["applied"]), str(note["digest"]))
            except (DsrdError, OSError, KeyError, TypeError, ValueError):
                notes.append(f"{path}: is damaged; skipped")
                continue
            if note.get("run") == self._run:
                yield moment, path

    def read(self, path: Path) -> Snapshot:
        """The state in a snapshot."""
        try:
            groups, note = checkpoint.load(path)
        except (DsrdError, OSError):
            raise DamagedSnapshotError("is damaged") from None
        state = groups.get("state", {})
        if note.get("checksum") != _checksum(state):
            raise DamagedSnapshotError("is damaged (its checksum differs)")
        return state

    def remove_all_but(self, newest: int) -> int:
        """Remove older snapshots, and what a killed process left; how many."""
        gone = [*sorted(self._files(), reverse=True)[newest:], *self._leftovers()]
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)

    def _files(self) -> list[Path]:
        return list(self._folder.glob(f"*-{self._run[:16]}.safetensors"))

    def _leftovers(self) -> list[Path]:
        return leftovers(self._folder) if self._folder.is_dir() else []


def _checksum(state: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
