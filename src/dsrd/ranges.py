"""Which values settings may have: a range is part of a setting's type, and one function checks it.

    layers: Layers = 2      # 1 to 64
    dim: Width = 172        # 1 to 65536
    neighbors: Links = 20   # 1 to a million
    window: Share = 0.15    # 0 to 1
    dropout: Chance = 0.1   # 0 to 1, without 1
    seed: int = 0           # any other number is finite and not negative, a whole one below 2^31

Any other rule, about several settings together or about something that is no number, is a method `check` of the
dataclass, which raises a `DsrdError`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

from dsrd.errors import DsrdError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C", bound="DataclassInstance")
MOST = (1 << 31) - 1
"""The largest whole number of a setting that names no range of its own."""


@dataclass(frozen=True)
class Range:
    """Finite numbers from `least` to `most`, without the ends in `excluded`.

    >>> 0.5 in Range(0, 1), str(Range(0, 1, excluded=(1,)))
    (True, '0 to below 1')
    """

    least: float = 0
    most: float = math.inf
    excluded: tuple[float, ...] = (math.inf,)

    def __contains__(self, value: float) -> bool:
        return self.least <= value <= self.most and value not in self.excluded

    def __str__(self) -> str:
        low = f"a number above {self.least}" if self.least in self.excluded else f"{self.least}"
        if self.most == math.inf:
            return low if self.least in self.excluded else f"{low} or more"
        return f"{low} to {'below ' if self.most in self.excluded else ''}{self.most}"


Positive = Annotated[int, Range(1)]
Layers = Annotated[int, Range(1, 64)]
LayersOrNone = Annotated[int, Range(0, 64)]
Width = Annotated[int, Range(1, 1 << 16)]
WidthOrNone = Annotated[int, Range(0, 1 << 16)]
Heads = Annotated[int, Range(1, 1024)]
Links = Annotated[int, Range(1, 1_000_000)]
LinksOrNone = Annotated[int, Range(0, 1_000_000)]
Processes = Annotated[int, Range(1, 1024)]
Steps = Annotated[int, Range(0, 64)]
AboveZero = Annotated[float, Range(0, excluded=(0, math.inf))]
Spread = Annotated[float, Range(0, 10)]
Share = Annotated[float, Range(0, 1)]
Chance = Annotated[float, Range(0, 1, excluded=(1,))]


def checked(config: C, prefix: str) -> C:
    """The same settings, if every number lies in its range and the rules hold; an error otherwise.

    `prefix` stands before the names of settings in errors: `train.`, `model.`, ...
    """
    types = get_type_hints(type(config), include_extras=True)
    for setting in fields(config):
        marks = getattr(types[setting.name], "__metadata__", ())
        allowed = next((mark for mark in marks if isinstance(mark, Range)), Range())
        _check(config, prefix + setting.name, allowed)
    if hasattr(config, "check"):
        config.check()
    return config


def at_least(config: object, **least: int) -> None:
    """Refuse settings of a model below these bounds, where a bound depends on another setting."""
    for name, bound in least.items():
        _check(config, f"model.{name}", Range(bound))


def _check(config: object, key: str, allowed: Range) -> None:
    value: Any = getattr(config, key.rpartition(".")[2])
    if isinstance(value, int) and allowed.most == math.inf and value > MOST:
        raise DsrdError(f"{key}={value}: give {MOST} or less")
    if isinstance(value, int | float) and value not in allowed:
        raise DsrdError(f"{key}={value}: give {allowed}")
