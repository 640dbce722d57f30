"""Tables made from `results/{fuzz,checksums,kills}.jsonl`: attacks, the cost of checksums, kills."""

from __future__ import annotations

import json
from typing import Any

from record_pages import HERE, filled, table

RESULTS = HERE.parent / "results"
WHAT = {
    "readers": "readers: CSV, gz, Parquet, npy, benchmark folders, JSON, plans",
    "run folders": "checkpoints and run folders",
    "cache": "cache of parsed streams",
    "kill and resume": "kill and resume, at fault points",
    "settings": "settings of every model",
    "archives": "fetch and archives",
    "server": "HTTP interface of the server",
}
"""Longer names of areas."""


def last(name: str) -> dict[str, Any]:
    """The newest record of a file of results."""
    lines = (RESULTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return dict(json.loads(lines[-1]))


def security_page() -> str:
    text = (HERE / "explanation" / "security.md").read_text(encoding="utf-8")
    return filled(text, "attacks", attacks(last("fuzz")))


def attacks(record: dict[str, Any]) -> str:
    """Cases and failures by area, before the hardening and in the newest run."""
    rows = []
    for area, found in sorted(record["areas"].items(), key=lambda item: "before" not in item[1]):
        before = found.get("before")
        outcomes = found["outcomes"]
        rows.append(
            [
                WHAT.get(area, area),
                *(["-", "-"] if before is None else [f"{before['cases']:,}", f"{before['handled_badly']:,}"]),
                f"{found['cases']:,}",
                f"{found['handled_badly']:,}",
                f"{outcomes.get('refused', 0):,}",
                f"{outcomes.get('equal', 0):,}",
                f"{outcomes.get('valid', 0):,}",
            ]
        )
    columns = ["area", "cases before", "handled badly", "cases now", "handled badly", "refused", "same", "valid"]
    return (
        f"{record['cases']:,} cases, {record['handled_badly']:,} handled badly; the slowest took "
        f"{record['slowest_seconds']:.0f} seconds, and the largest process {record['peak_mb'] / 1000:.1f} GB.\n\n"
        f"{table(columns, rows)}\n"
        "*Before* is what the first attacks found, before anything was hardened. *Refused*: one line says what is "
        "wrong. *Same*: the damage was mended, or it changed no answer. *Valid*: what came out is still correct "
        "input.\n\n"
    )


def damage_page() -> str:
    text = (HERE / "explanation" / "damage.md").read_text(encoding="utf-8")
    return filled(filled(text, "cost", cost(last("checksums"))), "kills", kills(last("kills")))


def kills(record: dict[str, Any]) -> str:
    """At how many moments training and updates were killed, of how many kinds."""
    works = ", ".join(
        f"{sum(record[work].values())} of {what} ({len(record[work])} kinds)"
        for work, what in (("training", "training"), ("update", "an update"))
    )
    return (
        f"{record['moments']} moments: {works}. Tensors that differ afterwards: {record['tensors_that_differ']}.\n"
    )


def cost(record: dict[str, Any]) -> str:
    """Seconds with checksums and without."""
    cache, checkpoint = record["cache"], record["checkpoint"]
    rows = [
        [f"open a cached stream of {cache['events']:,} events ({cache['megabytes']} MB)", *_seconds(cache)],
        [f"save a checkpoint of {checkpoint['megabytes']} MB", *_seconds(checkpoint["saving"])],
        ["open it, all of it", *_seconds(checkpoint["opening"])],
    ]
    speed = ", ".join(f"{name} {value:.1f}" for name, value in record["gigabytes_per_second"].items())
    return (
        f"{table(['', 'seconds', 'without checksums'], rows)}\n"
        f"Seconds of the processor, one thread, the least of five turns. Gigabytes per second: {speed}.\n"
    )


def _seconds(figures: dict[str, float]) -> list[str]:
    return [f"{figures[name]:.3f}" for name in ("seconds", "without_checksums")]


def pages() -> dict[str, str]:
    """The two pages by file name, seen from here."""
    return {"explanation/security.md": security_page(), "explanation/damage.md": damage_page()}
