"""The exceptions that users see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

MOST_LISTED = 40
"""Maximal number of valid names that an error message lists."""


class DsrdError(Exception):
    """Bad input, or a run that cannot continue: one line that says what is wrong and what to do.

    The command line prints the message and exits with code 2; no traceback is shown without ``--debug``.

    >>> raise DsrdError("events.csv: row 7: time is negative (-3.0); times must be 0 or later")
    Traceback (most recent call last):
    ...
    dsrd.errors.DsrdError: events.csv: row 7: time is negative (-3.0); times must be 0 or later
    """

    def __str__(self) -> str:
        return " ".join(super().__str__().split("\n"))  # what it quotes from a file may have several lines


class DsrdWarning(UserWarning):
    """Something worth knowing that is no error; the command line prints it as a note."""


class MachineError(DsrdError):
    """A problem of the machine, not of the input: a full disk, a folder without write permission. Exit code 1."""


def unknown(kind: str, name: str, valid: Iterable[str]) -> DsrdError:
    """The error for an unknown name; it suggests the most similar valid one.

    >>> str(unknown("protocol", "strikt", ["dyglib", "strict"]))
    "unknown protocol 'strikt'; did you mean 'strict'? (valid: dyglib, strict)"
    >>> str(unknown("setting", "lr", ["seed", "train.lr"]))
    "unknown setting 'lr'; did you mean 'train.lr'? (valid: seed, train.lr)"
    """
    names = sorted(valid)
    close = " or ".join(f"'{known}'" for known in _nearest(name, names))
    hint = f"did you mean {close}? " if close else ""
    listed = f"(valid: {', '.join(names[:MOST_LISTED])}{', ...' if len(names) > MOST_LISTED else ''})"
    return DsrdError(f"unknown {kind} '{name}'; {hint}{listed}")


def _nearest(name: str, names: Sequence[str]) -> list[str]:
    """The most similar names. Users often omit or mistype the part before the dot, so the last part counts."""
    last = _last_part(name)
    same = [known for known in names if _last_part(known) == last]
    if same:
        return same
    for written in (str.lower, _last_part):
        close = get_close_matches(written(name), map(written, names), n=1, cutoff=0.5)
        if close:
            return [known for known in names if written(known) == close[0]]
    return []


def _last_part(name: str) -> str:
    return name.lower().rpartition(".")[2]
