"""Checkpoints: named tensors and a JSON note in one safetensors file. They contain no code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dsrd.errors import DsrdError
from dsrd.files import replacing

NOTE = "dsrd"  # the metadata key that holds the JSON


def save(path: Path, groups: Mapping[str, Mapping[str, Tensor]], note: Mapping[str, Any]) -> None:
    """Write groups of tensors and a note. The file is written completely or not at all."""
    tensors: dict[str, Tensor] = {}
    written: set[int] = set()
    for group, members in groups.items():
        for name, value in members.items():
            tensor = value.detach().cpu().contiguous()
            # The format accepts neither views of a larger tensor nor one tensor under two names.
            shared = tensor.untyped_storage().nbytes() != tensor.nbytes or tensor.data_ptr() in written
            tensors[f"{group}/{name}"] = tensor.clone() if shared else tensor
            written.add(tensor.data_ptr())
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata={NOTE: json.dumps(note)})


def load(path: Path, only: Sequence[str] | None = None) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Read what `save` wrote: (groups, note). `only` names the groups to read; None: all."""
    groups: dict[str, dict[str, Tensor]] = {}
    with _opened(path) as file:
        for key in file.keys():  # noqa: SIM118 (not a mapping)
            group, _, name = key.partition("/")
            if only is None or group in only:
                groups.setdefault(group, {})[name] = file.get_tensor(key)
        return groups, _note(file)


def note(path: Path) -> dict[str, Any]:
    """Read the note without the tensors."""
    with _opened(path) as file:
        return _note(file)


def _note(file: Any) -> dict[str, Any]:
    text = (file.metadata() or {}).get(NOTE)
    if text is None:
        raise ValueError("it has no note of dsrd")
    content: dict[str, Any] = json.loads(text)
    return content


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError:
        raise DsrdError(
            f"{path}: no such checkpoint; give the folder of a run that trained for an epoch at least"
        ) from None
    except (SafetensorError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise DsrdError(f"{path}: not a dsrd checkpoint, or a damaged one ({reason}); train again") from error


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of an optimiser as named tensors: `<parameter>.<quantity>`."""
    return {
        f"{index}.{name}": value
        for index, quantities in optimizer.state_dict()["state"].items()
        for name, value in quantities.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load what `optimizer_tensors` returned."""
    content = optimizer.state_dict()
    content["state"] = {}
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        content["state"].setdefault(int(index), {})[name] = value
    optimizer.load_state_dict(content)
