"""Refuse options given twice: click would silently ignore one of the values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsrd.errors import DsrdError


def refuse_repeated(program: Any, words: Sequence[str]) -> None:
    """Raise an error if an option that takes one value is given twice; `program` is a click command."""
    command, rest = program, list(words)
    while hasattr(command, "commands"):
        position = next((i for i, word in enumerate(rest) if word in command.commands), None)
        if position is None:
            return
        command, rest = command.commands[rest[position]], rest[position + 1 :]
    known = {name: option for option in command.params for name in (*option.opts, *option.secondary_opts)}
    seen: set[str] = set()
    while rest and rest[0] != "--":
        name, equals, _ = rest.pop(0).partition("=")
        option = known.get(name) or (known.get(name[:2]) if not name.startswith("--") else None)
        if option is None or not name.startswith("-"):
            continue
        if option.name in seen and not option.multiple:
            raise DsrdError(f"{option.opts[0]} is given twice; keep one")
        seen.add(option.name)
        if not option.is_flag and not equals and name in known and rest:
            rest.pop(0)  # the option's value, which may look like an option itself
