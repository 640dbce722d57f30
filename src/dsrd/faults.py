"""Fault points: moments at which a test lets the process die as if it was killed there. Off unless asked for.

`DSRD_FAULT=die:N` ends the process at the N-th point it comes to, counting from 1: at once, without any clean-up,
with exit code `DIED`. `DSRD_FAULT=list:FILE` appends the name of every point to a file instead. A point costs a
function call and a comparison where the variable is not set.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from dsrd.errors import DsrdError

DIED = 86
"""The exit code of a process that died at a fault point."""


def arm(setting: str) -> None:
    """Use a setting of `DSRD_FAULT` from now on; an empty one turns the points off."""
    global _passed
    kind, _, value = setting.partition(":")
    if not setting:
        _passed = None
    elif kind == "die" and value.isdecimal():
        _passed = _dying_at(int(value))
    elif kind == "list" and value:
        _passed = _listing_to(value)
    else:
        _passed = _refusing(setting)


def point(name: str) -> None:
    """A moment at which a process may die."""
    if _passed is not None:
        _passed(name, None)


def while_writing(name: str, file: Path) -> None:
    """A moment at which a process may die with half of a file written; `name` is what it will be called."""
    if _passed is not None:
        _passed(f"writing {name}", file)


def _refusing(setting: str) -> Callable[[str, Path | None], None]:
    def passed(_: str, __: Path | None) -> None:
        raise DsrdError(f"DSRD_FAULT={setting}: give die:N or list:FILE, or unset it")

    return passed


def _dying_at(left: int) -> Callable[[str, Path | None], None]:
    def passed(_: str, file: Path | None) -> None:
        nonlocal left
        left -= 1
        if not left:
            if file is not None:
                os.truncate(file, file.stat().st_size // 2)
            os._exit(DIED)

    return passed


def _listing_to(path: str) -> Callable[[str, Path | None], None]:
    def passed(name: str, _: Path | None) -> None:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{name}\n")

    return passed


_passed: Callable[[str, Path | None], None] | None = None
arm(os.environ.get("DSRD_FAULT", ""))
