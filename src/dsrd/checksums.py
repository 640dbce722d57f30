"""Checksums of what is saved, by which damage is noticed: CRC-32, which finds any damage of up to 32 bits.

They protect against faulty disks and interrupted copies, not against somebody who changes a file on
purpose. CRC-32 is part of Python and takes less than a second per gigabyte (`benchmarks/checksums.py`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.files import json_text

Buffer = bytes | memoryview | NDArray[Any]

CHECKSUM = "checksum"
"""The key of the checksum in a JSON file."""


def of_bytes(*parts: Buffer) -> str:
    """The checksum of all parts, one after the other, as 8 hexadecimal digits.

    >>> of_bytes(b"ann", b"bob") == of_bytes(b"annbob") != of_bytes(b"bobann")
    True
    """
    crc = 0
    for part in parts:
        crc = zlib.crc32(cast(memoryview, part), crc)
    return f"{crc:08x}"


def of_tensor(tensor: Tensor) -> str:
    """The checksum of a tensor's values, its type and its shape."""
    values = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return of_bytes(f"{tensor.dtype} {tuple(tensor.shape)}".encode(), values)


def of_column(column: pa.Array) -> str:
    """The checksum of an Arrow column: equal values, equal checksum, however the column lies in its file."""
    parts: list[Buffer] = [f"{column.type} {len(column)} {column.null_count}".encode()]
    if pa.types.is_fixed_size_list(column.type):
        parts.append(column.flatten().to_numpy(zero_copy_only=True))
    elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        parts += _text(column)
    elif not pa.types.is_null(column.type):
        parts.append(column.to_numpy(zero_copy_only=False))
    return of_bytes(*parts)


def _text(column: pa.Array) -> list[Buffer]:
    """Where each string ends, counted from the first, and all characters."""
    if not len(column):
        return []
    width = np.int32 if pa.types.is_string(column.type) else np.int64
    _, offsets, characters = column.buffers()
    ends = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1]
    characters = np.frombuffer(b"" if characters is None else characters, np.uint8)
    return [ends - ends[0], characters[ends[0] : ends[-1]]]


def signed(content: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object as it is written, with its checksum as a last entry."""
    written: dict[str, Any] = json.loads(json_text(content))
    return {**written, CHECKSUM: _of_json(written)}


def verified(content: Mapping[str, Any]) -> dict[str, Any]:
    """The object that `signed` was given; a ValueError if it has changed since. One without checksum passes.

    >>> verified(signed({"seed": 3}))
    {'seed': 3}
    """
    plain = {key: value for key, value in content.items() if key != CHECKSUM}
    if CHECKSUM in content and content[CHECKSUM] != _of_json(plain):
        raise ValueError(
            f"its content does not fit its checksum; if you have edited it, remove the line '{CHECKSUM}'"
        )
    return plain


def _of_json(content: Mapping[str, Any]) -> str:
    return of_bytes(json.dumps(content, sort_keys=True).encode())
