"""Which values the settings of a model may have: a range is part of a setting's type, and one function checks it.

    layers: Positive = 2    # 1, 2, ...
    dropout: Chance = 0.1   # 0 up to, not including, 1
    dim: int = 172          # any other number is finite and not negative

A rule about several settings together is a method `check` of the model's `Config`, which raises a `DsrdError`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

from dsrd.errors import DsrdError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C", bound="DataclassInstance")


@dataclass(frozen=True)
class Range:
    """Finite numbers from `least` on, or above it if `exclusive`, and below `below`."""

    least: float = 0
    below: float = math.inf
    exclusive: bool = False

    def __contains__(self, value: float) -> bool:
        return self.least <= value < self.below and not (self.exclusive and value == self.least)

    def __str__(self) -> str:
        low = f"a number above {self.least}" if self.exclusive else f"{self.least} or more"
        return low if self.below == math.inf else f"{low}, below {self.below}"


Positive = Annotated[int, Range(1)]
AboveZero = Annotated[float, Range(0, exclusive=True)]
Chance = Annotated[float, Range(0, below=1)]


def checked(config: C) -> C:
    """The same settings, if every number lies in its range and the rules hold; an error otherwise."""
    types = get_type_hints(type(config), include_extras=True)
    for setting in fields(config):
        marks = getattr(types[setting.name], "__metadata__", ())
        _check(config, setting.name, next((mark for mark in marks if isinstance(mark, Range)), Range()))
    if hasattr(config, "check"):
        config.check()
    return config


def at_least(config: object, **least: int) -> None:
    """Refuse settings below these bounds, where a bound depends on another setting."""
    for name, bound in least.items():
        _check(config, name, Range(bound))


def _check(config: object, name: str, allowed: Range) -> None:
    value: Any = getattr(config, name)
    if isinstance(value, int | float) and value not in allowed:
        raise DsrdError(f"model.{name}={value}: give {allowed}")
