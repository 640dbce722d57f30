"""`python -m fuzz --minutes 5`: attack everything, keep what failed, write the figures."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

from fuzz.attack import GOOD, Found, attack, keep
from fuzz.targets import Target, all_targets

BEFORE = {  # what about six thousand attacks found before anything was hardened: cases, and those handled badly
    "readers": (2541, 249),
    "run folders": (459, 24),
    "cache": (60, 42),
    "kill and resume": (21, 0),
    "settings": (482, 26),
    "size and odd streams": (40, 11),
    "`model.score` from threads": (2496, 0),
    "questions from threads": (16, 16),
    "archives": (117, 23),
    "compiled-code cache": (9, 4),
}


def run(targets: list[Target], seconds: float, most: int, seed: int) -> dict[str, Found]:
    """Attack targets in turns, each for its share of the time."""
    found = {target.name: Found(target.area) for target in targets}
    with tempfile.TemporaryDirectory(prefix="fuzz-seeds-") as folder:
        os.environ["DSRD_CACHE"] = str(Path(folder) / "cache")
        for target in targets:
            place = Path(folder) / target.name
            place.mkdir()
            target.prepare(place)
        until, shares = time.monotonic() + seconds, sum(target.share for target in targets)
        turn = min(seconds / 3, 60.0)  # several turns each, so that the time is shared even if it is cut
        number = 0
        while time.monotonic() < until and sum(sum(each.outcomes.values()) for each in found.values()) < most:
            for target in targets:
                chance = Random(f"{seed} {target.name} {number}")
                stop = min(until, time.monotonic() + turn * target.share / shares)
                attack(target, found[target.name], chance, stop, most)
            number += 1
            show(found)
    return found


def show(found: dict[str, Found]) -> None:
    """Show failures that were not shown yet, and how far the attack has come."""
    for each in found.values():
        for failure in each.failures[each.shown :]:
            words = (failure["target"], failure["outcome"], failure.get("detail", ""))
            print(*words, json.dumps(failure["case"])[:600], sep=" | ")
        each.shown = len(each.failures)
    cases, badly = (sum(counts) for counts in zip(*map(counted, found.values()), strict=True))
    print(f"{cases:,} cases, {badly:,} handled badly", flush=True)


def counted(found: Found) -> tuple[int, int]:
    """Cases of a target, and those handled badly."""
    return found.outcomes.total(), len(found.failures)


def record(found: dict[str, Found], seed: int, minutes: float) -> dict[str, object]:
    """The figures by area, beside those of before."""
    areas: dict[str, dict[str, object]] = {}
    for each in found.values():
        area = areas.setdefault(each.area, {"cases": 0, "handled_badly": 0, "outcomes": {}})
        area["cases"] += each.outcomes.total()  # type: ignore[operator]
        area["handled_badly"] += len(each.failures)  # type: ignore[operator]
        for outcome, count in each.outcomes.items():
            area["outcomes"][outcome] = area["outcomes"].get(outcome, 0) + count  # type: ignore[index,attr-defined]
    for name, (cases, badly) in BEFORE.items():
        if name in areas:
            areas[name]["before"] = {"cases": cases, "handled_badly": badly}
    return {
        "benchmark": "fuzz",
        "seed": seed,
        "minutes": round(minutes, 2),
        "cases": sum(each.outcomes.total() for each in found.values()),
        "handled_badly": sum(len(each.failures) for each in found.values()),
        "areas": areas,
        "slowest_seconds": round(max(each.slowest for each in found.values()), 1),
        "peak_mb": max(each.peak_mb for each in found.values()),
        "lines_reached": {name: len(each.lines) for name, each in found.items() if each.lines},
        "machine": {"python": platform.python_version(), "system": platform.system()},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--cases", type=int, default=10**9, help="stop after so many cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="targets or areas, separated by commas")
    parser.add_argument("--out", type=Path, help="append the figures to this file")
    parser.add_argument("--keep", action="store_true", help="add what failed to kept.jsonl")
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    targets = [each for each in all_targets() if not only or {each.name, each.area} & only]
    began = time.monotonic()
    found = run(targets, 60 * options.minutes, options.cases, options.seed)
    failures = [failure for each in found.values() for failure in each.failures]
    if options.keep and failures:
        keep(failures)
    figures = record(found, options.seed, (time.monotonic() - began) / 60)
    for name, each in found.items():
        bad = sum(count for outcome, count in each.outcomes.items() if outcome not in GOOD)
        print(f"{name:24} {each.outcomes.total():6} cases {bad:4} handled badly  {dict(each.outcomes)}")
    print(json.dumps(figures))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        with options.out.open("a") as file:
            file.write(json.dumps(figures) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
