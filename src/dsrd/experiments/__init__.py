"""Experiments as data: plans, sweeps, searches, files of records, speed.

>>> from dsrd.experiments import load_plan
>>> load_plan({"datasets": ["synth:events=500"], "models": [{"name": "dsrd"}]}).runs[0].key[:23]
'synth-events-500-dsrd-0'
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsrd.experiments.plan import Plan, load_plan
    from dsrd.experiments.searching import search
    from dsrd.experiments.sweeping import Sweep, sweep

__all__ = ["Plan", "Sweep", "load_plan", "search", "sweep"]

_HOME = {"Plan": "plan", "Sweep": "sweeping", "load_plan": "plan", "search": "searching", "sweep": "sweeping"}

if not TYPE_CHECKING:  # loaded at first use: files of records are read without all this

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'dsrd.experiments' has no attribute '{name}'")
        value = globals()[name] = resolve_name(f"dsrd.experiments.{_HOME[name]}:{name}")
        return value
