"""Reports: figures, tables and tests from records. `dsrd.report(records, "report")` writes one; see `report`."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from dsrd.report.build import Report, gathered, report

__all__ = ["Report", "gathered", "report"]


class _Callable(ModuleType):
    """This package, which can be called: `dsrd.report` is the function, and still holds the figures."""

    def __call__(self, *arguments: Any, **options: Any) -> Report:
        return report(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
