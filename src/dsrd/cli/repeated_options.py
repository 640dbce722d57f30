"""An option that takes one value and is given twice: of the two, one would be ignored without a word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsrd.errors import DsrdError


def refuse_repeated(program: Any, words: Sequence[str]) -> None:
    """Raise an error for the first option of a click command that is given more often than it may be."""
    command, rest = program, list(words)
    while hasattr(command, "commands"):
        place = next((i for i, word in enumerate(rest) if word in command.commands), None)
        if place is None:
            return
        command, rest = command.commands[rest[place]], rest[place + 1 :]
    known = {spelt: option for option in command.params for spelt in (*option.opts, *option.secondary_opts)}
    seen: set[str] = set()
    while rest and rest[0] != "--":
        spelt, equals, _ = rest.pop(0).partition("=")
        option = known.get(spelt) or (known.get(spelt[:2]) if not spelt.startswith("--") else None)
        if option is None or not spelt.startswith("-"):
            continue
        if option.name in seen and not option.multiple:
            raise DsrdError(f"{option.opts[0]} is given twice; keep one")
        seen.add(option.name)
        if not option.is_flag and not equals and spelt in known and rest:
            rest.pop(0)  # its value, which may look like an option
