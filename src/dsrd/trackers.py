"""Callbacks that send the metrics of every epoch to TensorBoard or Weights & Biases.

Each is called as `callback(epoch, metrics)`; close it after the training. The tools are installed by
`pip install dsrd[trackers]` and imported when a callback is created.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dsrd.errors import DsrdError


class _Tracker(ABC):
    """A callback for every epoch; as a context manager it closes itself."""

    @abstractmethod
    def __call__(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of an epoch."""

    @abstractmethod
    def close(self) -> None:
        """Finish what was sent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class TensorBoard(_Tracker):
    """Writes event files to a folder; view them with `tensorboard --logdir FOLDER`.

    Metrics keep their names (`loss`, `val_ap`). The file is flushed after each call.
    """

    def __init__(self, folder: str | Path) -> None:
        _require("tensorboard")
        writer = import_module("torch.utils.tensorboard").SummaryWriter
        self._writer: Any = writer(log_dir=str(folder))

    def __call__(self, epoch: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandB(_Tracker):
    """Logs to a run of Weights & Biases; further arguments go to `wandb.init`.

    The run starts at the first call, so a training that fails before it creates none. `mode="offline"` needs no
    account.
    """

    def __init__(self, project: str | None = None, **init: Any) -> None:
        self._wandb: Any = _require("wandb")
        self._init = {"project": project, **init}
        self._run: Any = None

    def __call__(self, epoch: int, metrics: Mapping[str, float]) -> None:
        if self._run is None:
            self._run = self._wandb.init(**self._init)
        self._run.log(dict(metrics), step=epoch)

    def close(self) -> None:
        """End the run, and wait until it is uploaded; does nothing before the first call."""
        if self._run is not None:
            self._run.finish()
            self._run = None


def _require(library: str) -> Any:
    try:
        return import_module(library)
    except ImportError as error:
        raise DsrdError(f"{library} is not installed; run `pip install dsrd[trackers]`") from error
