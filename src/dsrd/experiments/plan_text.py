"""Where a plan says what: the line of a name in a TOML file, so that errors can point to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from dsrd.errors import DsrdError, unknown

HEADER = re.compile(r"^\s*\[+\s*([^\]\s]+)\s*\]+\s*(#.*)?$")


@dataclass(frozen=True)
class Section:
    """A table of a plan: `models` number 2; the empty name is the top of the file."""

    table: str = ""
    number: int = 0


@dataclass(frozen=True)
class PlanText:
    """The text of a plan and its name; a plan from Python has no text, and errors then name no line."""

    name: str
    text: str = ""

    def line_of(self, word: str, section: Section = Section()) -> int | None:
        """The first line of a table that holds a word; of a setting `part.name` also one that holds its name.

        >>> text = PlanText("plan.toml", '[[models]]\\nname = "a"\\n[[models]]\\nname = "b"')
        >>> text.line_of("name", Section("models", 1))
        4
        """
        lines = self._lines_of(section)
        for candidate in dict.fromkeys((word, word.rpartition(".")[2])):
            whole = re.compile(rf"(?<![\w-]){re.escape(candidate)}(?![\w-])")
            for number, line in lines:
                if whole.search(line):
                    return number
        return lines[0][0] if lines and section.table else None

    def _lines_of(self, section: Section) -> list[tuple[int, str]]:
        """The lines of a table, with those of its own tables (`[models.settings]`)."""
        inside, seen, found = not section.table, -1, []
        for number, line in enumerate(self.text.splitlines(), start=1):
            header = HEADER.match(line)
            if header and header[1] == section.table:
                seen += 1
                inside = seen == section.number
            elif header:
                below = bool(section.table) and header[1].startswith(f"{section.table}.")
                inside = below and (inside or seen < 0)  # [settings.train] without [settings] before it
            if inside:
                found.append((number, line))
        return found

    def error(self, message: str, word: str = "", section: Section = Section()) -> DsrdError:
        """An error that names the plan and the line of `word`."""
        line = self.line_of(word, section) if word else None
        return DsrdError(f"{self.name}: {f'line {line}: ' if line else ''}{message}")

    def refuse(self, error: DsrdError, word: str = "", section: Section = Section()) -> NoReturn:
        """Raise an error of another part of the library, with the plan and the line."""
        raise self.error(str(error), word, section) from error

    def check_keys(self, table: Mapping[str, Any], known: Sequence[str], section: Section = Section()) -> None:
        """Refuse a key that a table of a plan does not have."""
        for key in table:
            if key not in known:
                self.refuse(unknown("key", key, known), key, section)

    def entries(self, table: Mapping[str, Any], key: str, kind: type, section: Section = Section()) -> list[Any]:
        """The values of a list; an error if it is none, or if one is not of this type."""
        values = table.get(key, [])
        if not isinstance(values, list) or not all(type(value) is kind for value in values):
            words = {str: "names in quotes", int: "whole numbers", dict: "tables"}[kind]
            raise self.error(f"{key}: give a list of {words}", key, section)
        return values

    def culprit(self, values: Mapping[str, Any], accept: Callable[[Mapping[str, Any]], object]) -> str:
        """The first of several settings that is refused by itself; empty if only their combination is."""
        for key, value in values.items():
            try:
                accept({key: value})
            except DsrdError:
                return key
        return ""


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings in nested tables as `part.name`.

    >>> flat({"train": {"epochs": 2}, "model.dim": 16})
    {'train.epochs': 2, 'model.dim': 16}
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found
