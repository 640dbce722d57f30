"""Checkpoints: named tensors and a JSON note in one safetensors file. They contain no code.

The note holds a checksum of every tensor, and before the note stands its own. What is read is verified. Equal
content gives equal files: there is one entry of metadata, because the format writes several in any order.
"""

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

from dsrd import checksums
from dsrd.decoding import unreadable
from dsrd.errors import DsrdError
from dsrd.files import replacing

NOTE = "dsrd"  # the metadata key that holds the checksum of the JSON, a space, and the JSON
NOTE_CHECKSUM = "dsrd_checksum"  # in files of earlier versions, the key of that checksum
CHECKSUMS = "checksums"  # the entry of the note with those of tensors, by key
FILE = "file"  # the entry with the name under which it was written


OFFERS = {  # a damaged file of a run: the one that may do instead, and how
    "best.safetensors": ("last.safetensors", "rename it to best.safetensors to use its weights, or train again"),
    "last.safetensors": ("best.safetensors", "remove the damaged file to use it; training then starts over"),
    "final.safetensors": ("best.safetensors", "remove the damaged file to use its weights"),
    "final-last.safetensors": ("best.safetensors", "remove the damaged file, and the final training starts over"),
    "now.safetensors": (
        "best.safetensors",
        "remove the damaged file, and the state is built from the events again",
    ),
}


class DamagedCheckpointError(DsrdError):
    """A checkpoint that cannot be read, or that is not as it was written; offers a whole one of the same run."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: not a dsrd checkpoint, or a damaged one ({reason}); {_remedy(path)}")


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
    sums = {key: checksums.of_tensor(value) for key, value in tensors.items()}
    text = json.dumps({**note, FILE: path.name, CHECKSUMS: sums})
    with replacing(path) as temporary:
        save_file(tensors, temporary, metadata={NOTE: f"{checksums.of_bytes(text.encode())} {text}"})


def load(path: Path, only: Sequence[str] | None = None) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Read what `save` wrote: (groups, note). `only` names the groups to read and verify; None: all."""
    with _opened(path) as file:
        groups, content = _read(file, only)
        _refuse_other_role(path, content.pop(FILE, path.name))
        return groups, content


def _refuse_other_role(path: Path, written_as: str) -> None:
    """Refuse one file of a run under the name of another, unless a damaged one may be replaced by it."""
    offered = (path.name, written_as) == ("best.safetensors", "last.safetensors")
    if path.name in OFFERS and written_as in OFFERS and written_as != path.name and not offered:
        raise ValueError(f"it was written as {written_as}")


def note(path: Path) -> dict[str, Any]:
    """Read the note without the tensors."""
    with _opened(path) as file:
        content = _note(file)[0]
        content.pop(FILE, None)
        return content


def has_checksums(path: Path) -> bool:
    """Whether damage to a checkpoint is noticed; earlier versions wrote no checksums."""
    with _opened(path) as file:
        return _note(file)[1] is not None


def is_whole(path: Path) -> bool:
    """Whether a checkpoint is there and can be read, all of it."""
    try:
        with safe_open(path, framework="pt") as file:
            _read(file, None)
    except (OSError, SafetensorError, ValueError):
        return False
    return True


def _read(file: Any, only: Sequence[str] | None) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    groups: dict[str, dict[str, Tensor]] = {}
    note, expected = _note(file)
    keys = list(file.keys())
    if expected is not None and set(keys) != set(expected):
        raise ValueError("its list of tensors differs from what was written")
    for key in keys:
        group, _, name = key.partition("/")
        if only is None or group in only:
            tensor = groups.setdefault(group, {})[name] = file.get_tensor(key)
            if expected is not None and checksums.of_tensor(tensor) != expected[key]:
                raise ValueError(f"the checksum of {key} differs")
    return groups, note


def _note(file: Any) -> tuple[dict[str, Any], dict[str, str] | None]:
    """The note, and the checksums of the tensors if there are any."""
    metadata = file.metadata() or {}
    text = metadata.get(NOTE)
    if text is None:
        raise ValueError("it has no note of dsrd")
    stored = metadata.get(NOTE_CHECKSUM)
    if not text.startswith("{"):
        stored, _, text = text.partition(" ")
    if stored is not None and stored != checksums.of_bytes(text.encode()):
        raise ValueError("the checksum of its note differs")
    content: dict[str, Any] = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError("its note is no JSON object")
    expected = content.pop(CHECKSUMS, None)
    if (expected is None) != (stored is None):
        raise ValueError("some of its checksums are gone")
    return content, expected


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError:
        if path.exists():  # said of a file without permission too
            raise unreadable(path) from None
        raise DsrdError(
            f"{path}: no such checkpoint; give the folder of a run that trained for an epoch at least"
        ) from None
    except (SafetensorError, ValueError) as error:
        raise DamagedCheckpointError(path, (str(error).splitlines() or [type(error).__name__])[0]) from error


def _remedy(damaged: Path) -> str:
    """What to do about a damaged file: the newest whole checkpoint of the run, if it has another."""
    name, how = OFFERS.get(damaged.name, ("", ""))
    if not name or not is_whole(damaged.with_name(name)):
        return "train again"
    progressed = note(damaged.with_name(name)).get("progressed", {})
    epoch = progressed.get("best_epoch" if name.startswith("best") else "epoch")
    return f"{name}{f' of epoch {epoch}' if epoch else ''} is whole: {how}"


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of an optimiser as named tensors: `<parameter>.<quantity>`."""
    return {
        f"{index}.{name}": value
        for index, quantities in optimizer.state_dict()["state"].items()
        for name, value in quantities.items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Load what `optimizer_tensors` returned; a ValueError if it does not fit the parameters."""
    content = optimizer.state_dict()
    content["state"] = {}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for key, value in tensors.items():
        index, _, name = key.partition(".")
        parameter = parameters[int(index)] if 0 <= int(index) < len(parameters) else None
        if parameter is None or (value.dim() and value.shape != parameter.shape):  # numbers of steps have no shape
            raise ValueError(f"optimizer/{key} does not fit the weights")
        content["state"].setdefault(int(index), {})[name] = value
    optimizer.load_state_dict(content)
