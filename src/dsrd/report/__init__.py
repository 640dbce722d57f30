"""Reports: every figure, table and test from records, as one page that opens offline.

`dsrd.report(records, "folder")` writes a report. The figures are functions in `dsrd.report.figures`, each of which
takes records and returns a matplotlib Figure. Reports need the extra `report`: `pip install dsrd[report]`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING, Any

from dsrd.errors import DsrdError
from dsrd.reporter import Reporter

if TYPE_CHECKING:
    from dsrd.report.build import Report

__all__ = ["report"]

Source = str | PathLike[str] | Mapping[str, Any]


def report(
    records: Source | Iterable[Source],
    out: str | PathLike[str] | None = None,
    *,
    progress: bool | Reporter = True,
) -> Report:
    """Make figures, tables and tests from records; `out` is a folder to write them to, as one page and its files.

    `records` are record objects (such as `Results.record`), files of records, folders with such files or runs, or
    a list of these. Of the report, `figures` holds matplotlib figures by name, `tables` what the tests say, and
    `missing` the parts for which there are no records.

    >>> import dsrd
    >>> model = dsrd.LinkPredictor(epochs=1, dim=8).fit("synth:events=800", progress=False)
    >>> made = dsrd.report([model.evaluate(progress=False).record], "first-report", progress=False)
    >>> "learning-curves" in made.figures, made.page.name
    (True, 'index.html')
    """
    try:
        from dsrd.report.build import build
    except ImportError as error:
        raise DsrdError(f"a report needs {error.name}; install it with `pip install dsrd[report]`") from None
    return build(records, out, progress)


class _Callable(ModuleType):
    """This package, which can be called: `dsrd.report` is the function above, and still holds the figures."""

    def __call__(self, *arguments: Any, **options: Any) -> Report:
        return report(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
