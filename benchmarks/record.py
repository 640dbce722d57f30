"""The last line that every benchmark prints: a JSON object with its figures and the versions of libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dsrd.files import append_line
from dsrd.machine import versions


def print_record(save: Path | None, **fields: Any) -> None:
    """Print the record; also append it to the file `save`, if there is one."""
    line = json.dumps({**fields, "threads": 1, "versions": versions()})
    if save:
        append_line(save, line)
    print(line)
