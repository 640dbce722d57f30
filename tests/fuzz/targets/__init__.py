"""What is attacked. Every file of this folder defines targets; a file that is added is found by itself."""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from dsrd.errors import DsrdError

REFUSED, EQUAL, VALID = "refused", "equal", "valid"


class Target(ABC):
    """Something that reads input. Cases are JSON values: they are kept as text."""

    area: ClassVar[str]  # the row of the table of figures
    share: ClassVar[int] = 1  # of the time, beside other targets
    traced: ClassVar[str] = ""  # a part of the path of files whose lines guide the mutation; empty: none

    @property
    def name(self) -> str:
        return type(self).__name__

    @abstractmethod
    def prepare(self, folder: Path) -> None:
        """Make what every case starts from, once; the folder stays."""

    @abstractmethod
    def draw(self, chance: Random, corpus: list[Any]) -> Any:
        """A new case; `corpus` has former cases that reached new lines."""

    @abstractmethod
    def attempt(self, case: Any, folder: Path) -> str:
        """Do it in an empty folder: `REFUSED`, `EQUAL` or `VALID`. Whatever is raised is a failure."""


class DifferentError(AssertionError):
    """A silently different answer."""


def refused_or(work: Callable[[], str]) -> str:
    """What `work` says, or `REFUSED` if it raised a proper error: one line, not empty."""
    try:
        return work()
    except DsrdError as error:
        text = str(error)
        if not text.strip() or "\n" in text.strip():
            raise DifferentError(f"an error of several lines, or of none: {text!r}") from error
        return REFUSED


def same(given: Any, expected: Any) -> str:
    """`EQUAL`, or a failure."""
    if given != expected:
        raise DifferentError(f"another answer than without the damage: {str(given)[:200]}")
    return EQUAL


def all_targets() -> list[Target]:
    """The targets of every file in this folder."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return [kind() for kind in sorted(_concrete(Target), key=lambda kind: kind.__name__)]


def _concrete(kind: type[Target]) -> list[type[Target]]:
    below = [found for child in kind.__subclasses__() for found in _concrete(child)]
    return below if getattr(kind, "__abstractmethods__", None) else [kind, *below]
