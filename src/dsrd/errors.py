"""The one exception a user is meant to see."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class DsrdError(Exception):
    """Bad input or a run that cannot go on: one line that names the culprit and the remedy.

    The command line prints the message and exits with code 2; no traceback is shown without ``--debug``.

    >>> raise DsrdError("events.csv: row 7: time is negative (-3.0); times must be 0 or later")
    Traceback (most recent call last):
    ...
    dsrd.errors.DsrdError: events.csv: row 7: time is negative (-3.0); times must be 0 or later
    """


def unknown(kind: str, name: str, valid: Iterable[str]) -> DsrdError:
    """The error for a name nobody knows, with the nearest one that exists.

    >>> str(unknown("model", "tng", ["edgebank", "tgn"]))
    "unknown model 'tng'; did you mean 'tgn'? (valid: edgebank, tgn)"
    """
    names = sorted(valid)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'? " if close else ""
    listed = f"(valid: {', '.join(names)})"
    return DsrdError(f"unknown {kind} '{name}'; {hint}{listed}")
