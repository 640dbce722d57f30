"""Tables of docs/explanation/one-machine.md: sizes of states from the code, the rest from records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from record_pages import filled, table

from dsrd.models import GraphSpec, model_class, names, settings
from dsrd.models.state_size import declared_bytes, formulas

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
PAGE = HERE / "explanation" / "one-machine.md"


def one_machine_page() -> str:
    """The page with its tables written anew."""
    text = PAGE.read_text(encoding="utf-8")
    text = filled(text, "states", states())
    text = filled(text, "formats", formats())
    text = filled(text, "beyond memory", beyond_memory())
    return filled(text, "growth", growth())


def states() -> str:
    """Bytes of every model's state: the declared formulas, and their values with the default settings."""
    rows = []
    for name in names():
        for preset in ("default", *model_class(name).card.presets):
            declared = formulas(model_class(name).card, preset)
            values = declared_bytes(declared, settings(name, "", preset, {}), GraphSpec())
            label = name if preset == "default" else f"{name}, {preset}"
            for part in (part for part in declared if part != "rest"):
                rows.append([label, part, f"`{declared[part]}`", f"{values[part]:,}"])
            if not declared:
                rows.append([label, "no state", "", "0"])
    return table(["model", "bytes per", "formula", "by default"], rows)


def formats() -> str:
    """Accuracy and speed of one set of weights with its state in every format, one row per format."""
    found = {each["figures"]["data"]: each["figures"] for each in _records("state_formats")}
    datasets = sorted(found)
    rows = []
    for place, entry in enumerate(found[datasets[0]]["formats"] if datasets else []):
        given = ", ".join(f"`{key}={str(value).lower()}`" for key, value in entry["settings"].items())
        size = min(found[dataset]["formats"][place]["bytes_per_node"] for dataset in datasets)
        cells = [given or "the default", f"{size:,}"]
        for dataset in datasets:
            here = found[dataset]["formats"][place]
            ap = here["ap"]
            cells.append(
                f"{ap['random']:.2f} / {ap['historical']:.2f}; {here['observe_us']:.1f}; {here['score_us']:.0f}"
            )
        rows.append(cells)
    columns = [f"{name} ({found[name]['epochs']} epoch{'s'[: found[name]['epochs'] - 1]})" for name in datasets]
    return table(["settings", "bytes per node", *columns], rows)


def beyond_memory() -> str:
    """The first and the last part of each stream of benchmarks/beyond_memory.py."""
    rows = []
    for each in {record["stream"]: record["figures"] for record in _records("beyond_memory")}.values():
        parts = each["parts"]
        for part in (parts[0], parts[len(parts) // 2], parts[-1]):
            cost = (part[f"{verb}_us"] for verb in ("append", "observe", "score"))
            rows.append(
                [
                    f"{each['nodes']:,}",
                    f"{part['events']:,}",
                    *(f"{value:.1f}" for value in cost),
                    f"{part['rss_mb']:,.0f}",
                    f"{part['rss_mb'] - part['of_files_mb']:,.0f}",
                ]
            )
        rows[-1].append(f"{each['peak_rss_mb']:,.0f}")
    columns = ["nodes", "events so far", "append, µs", "observe, µs", "score a pair, µs"]
    columns += ["resident, MB", "of it not mapped files, MB", "peak of the run, MB"]
    return table(columns, [row + [""] * (len(columns) - len(row)) for row in rows])


def growth() -> str:
    """Cost per event by length of the stream and by nodes, and of one batch, from the newest records."""
    rows = []
    newest: dict[str, list[dict[str, Any]]] = {}
    for record in _records("scaling"):
        newest.update(record["figures"])
    for part, label in (("by_events", "stream"), ("by_nodes", "stream"), ("by_batch", "one batch")):
        for each in newest.get(part, []):
            if part == "by_batch":
                cost = ["", f"{1e6 * each['seconds'] / each['events']:.0f}, {each['seconds']:.1f} s in all"]
            else:
                cost = [f"{each['observe_us']:.2f}", f"{each['score_and_observe_us']:.0f}"]
            size = [f"{each['events']:,}", f"{each['nodes']:,}"]
            rows.append([label, *size, *cost, f"{each['state_mb']:,.0f}", f"{each['peak_rss_mb']:,.0f}"])
    columns = ["", "events", "nodes", "observe, µs per event"]
    return table([*columns, "score with a negative, or train, µs per event", "state, MB", "peak, MB"], rows)


def _records(benchmark: str) -> list[dict[str, Any]]:
    found = []
    for file in sorted(RESULTS.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if record.get("benchmark") == benchmark:
                found.append(record)
    return found
