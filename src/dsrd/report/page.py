"""The page of a report: one HTML file with its figures, tables and records in it, that opens offline."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from dsrd.experiments.labels import command, is_earlier, record_label
from dsrd.files import json_text
from dsrd.report.figures import Drawing
from dsrd.report.figures.style import GRID, INK, model_title, title
from dsrd.report.measured import Number
from dsrd.report.published import SOURCE
from dsrd.report.records import READ_FROM, Record, Records, kind_of
from dsrd.report.side_tables import SideTable, written
from dsrd.report.tables import Cell, LinkTable, Row, link_table, shown, views

SECTIONS = {
    "links": (
        "Links",
        "Test results in percent: mean over seeds ± standard deviation. Tap a cell for its records.",
    ),
    "ranks": (
        "Ranks and significance",
        "A dagger marks a published row, which stands for a model without results "
        "here on all data sets. Bars join models that do not differ (5 %, Holm).",
    ),
    "decays": (
        "Learned decays",
        "What training has learned about forgetting. Lines are means over heads; bands span the seeds.",
    ),
    "ablations": (
        "Ablations",
        "The model without one of its parts, trained for as many epochs and measured in the same way.",
    ),
    "scalability": ("Scalability", "Time, throughput, size, and how they grow."),
    "training": (
        "Training, probabilities and data",
        "Learning curves, quality against time, calibration, surprise, and what the data give away.",
    ),
    "nodes": ("Nodes", "Labels of nodes and of events."),
}


def page(
    records: Records,
    found: Sequence[Number],
    drawn: Sequence[tuple[Drawing, str]],
    tables: Sequence[SideTable],
    missing: Sequence[tuple[str, str]],
) -> str:
    """The whole page. `drawn` are figures as SVG; `missing` are sections with what they lack."""
    body = []
    for section, (heading, about) in SECTIONS.items():
        parts = [_figure(drawing, svg) for drawing, svg in drawn if drawing.section == section]
        parts += [_side_table(table) for table in tables if table.section == section]
        parts += [LINKS.replace("SOURCE", SOURCE)] if section == "links" else []
        absent = [
            f"<p class='missing'>{_text(text.removesuffix('.'))}.</p>"
            for place, text in missing
            if place == section
        ]
        if parts or absent:
            content = "\n".join([*parts, *absent])
            body.append(
                f"<section id='{section}'><h2>{_text(heading)}</h2><p>{_text(about)}</p>{content}</section>"
            )
    links = "".join(
        f"<a href='#{name}'>{_text(heading)}</a>"
        for name, (heading, _) in SECTIONS.items()
        if f"id='{name}'" in "".join(body)
    )
    data = {"views": _views(found), "records": [_summary(each) for each in records]}
    filled = {
        "STYLE": _asset("page.css"),
        "SCRIPT": _asset("page.js"),
        "LINKS": links,
        "BODY": "\n".join(body),
        "COUNT": _counted(records),
        "DATA": _inlined(data),
    }
    text = _asset("page.html")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: filled[match[1]], text)


LINKS = """<div id="controls" class="controls"></div>
<div id="links-table" class="scroll"></div>
<p id="links-notes" class="notes"></p>
<p class="notes">Shaded: the better half on a data set. <b>Bold</b>: best, <u>underlined</u>: second.
<sup>1</sup> a single seed. <sup>c</sup> training cut by time. <sup>p</sup> read plainly, for want of a reading by
the law. <sup>e</sup> an earlier version of the model. † published row,
five runs under dyglib: SOURCE.
<sup>!</sup> doubtful, tap to see why. An empty cell was not measured.</p>"""


def _asset(name: str) -> str:
    return files("dsrd.report").joinpath("assets", name).read_text(encoding="utf-8")


def _text(text: str) -> str:
    return html.escape(text)


def _inlined(data: Any) -> str:
    """JSON that may stand in a script element."""
    return json_text(data).replace("<", "\\u003c")


def _counted(records: Records) -> str:
    kinds = [kind_of(record) for record in records]
    words = [f"{kinds.count(kind)} of {kind}" for kind in dict.fromkeys(kinds)]
    return f"{len(records)} records: {', '.join(words)}"


def _figure(drawing: Drawing, svg: str) -> str:
    name = drawing.name
    files_ = f"<a href='figures/{name}.svg'>SVG</a> <a href='figures/{name}.pdf'>PDF</a>"
    if name.startswith("ranks-"):
        files_ += f" <a href='figures/{name}.tex'>TikZ</a>"
    label = html.escape(drawing.title, quote=True)
    return (
        f"<figure id='{name}'><div class='scroll' tabindex='0' role='img' aria-label='{label}'>"
        f"{inline(svg, name)}</div>"
        f"<figcaption><b>{_text(drawing.title)}.</b> {_text(drawing.about)} "
        f"<span class='files'>{files_}</span></figcaption></figure>"
    )


def inline(svg: str, name: str) -> str:
    """An SVG file as an element of the page: its names made unique, ink and grid in the colours of the theme."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{name}-", svg)
    svg = re.sub(INK, "var(--ink)", svg, flags=re.I)
    svg = re.sub(GRID, "var(--grid)", svg, flags=re.I)
    width = re.search(r'width="([\d.]+)pt"', svg)
    points = float(width[1]) if width else 480.0
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    return svg.replace("<svg", f'<svg class="plot" style="--points:{points:.0f}"', 1)


def _side_table(table: SideTable) -> str:
    head = "".join(f"<th scope='col'><button>{_text(name)}</button></th>" for name in table.columns)
    rows = []
    for number, row in enumerate(table.rows):
        record = table.records[number] if table.records else None
        led = f" data-record='{record}' tabindex='0'" if record is not None else ""
        rows.append(f"<tr{led}>{''.join(_td(value) for value in row)}</tr>")
    opened = " open" if len(rows) <= 40 else ""
    saved = f"<a href='tables/{table.name}.csv'>CSV</a> <a href='tables/{table.name}.tex'>LaTeX</a>"
    return (
        f"<details{opened} id='table-{table.name}'><summary>{_text(table.title)}</summary>"
        f"<p>{_text(table.about)} <span class='files'>{saved}</span></p>"
        f"<div class='scroll'><table class='sortable'>"
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div></details>"
    )


def _td(value: Any) -> str:
    if value is None or value != value:
        return "<td class='none'></td>"
    if isinstance(value, int | float):
        return f"<td class='number' data-value='{value!r}'>{_text(written(value))}</td>"
    return f"<td>{_text(str(value))}</td>"


def _views(found: Sequence[Number]) -> list[dict[str, Any]]:
    """Every link table with its cells as text; the script of the page shows one of them at a time."""
    return [_view(link_table(found, view)) for view in views(found)]


def _view(table: LinkTable) -> dict[str, Any]:
    view = table.view
    return {
        "protocol": view.protocol,
        "reading": view.reading,
        "metric": view.metric.upper(),
        "setting": view.setting,
        "negatives": view.negatives,
        "streams": "benchmarks" if view.benchmarks else "others",
        "datasets": [title(name) for name in table.datasets],
        "rows": [_view_row(table, row) for row in table.rows],
        "warnings": table.warnings(),
    }


def _view_row(table: LinkTable, row: Row) -> dict[str, Any]:
    cells = [_view_cell(table, row, name) for name in table.datasets]
    average = table.average_ranks.get(row.name)
    return {
        "name": model_title(row.name),
        "origin": row.origin,
        "usual": table.is_main(row),
        "rank": None if average is None else round(average, 2),
        "cells": cells,
    }


def _view_cell(table: LinkTable, row: Row, dataset: str) -> dict[str, Any] | None:
    cell: Cell | None = row.cells.get(dataset)
    if cell is None:
        return None
    key = (row.name, dataset)
    given = {
        "text": shown(cell),
        "value": round(cell.mean, 4),
        "notes": cell.notes,
        "records": [each.record for each in cell.numbers if each.record is not None],
        "place": table.places.get(key, 0),
        "shade": table.shades.get(key, 0),
    }
    return {name: value for name, value in given.items() if value not in ([], 0) or name == "value"}


def _summary(record: Record) -> dict[str, Any]:
    """What the page shows of a record: who, where it is, settings, digests, command, cost."""
    kept = (
        "dataset",
        "model",
        "preset",
        "seed",
        "protocol",
        "digests",
        "versions",
        "timing",
        "machine",
        "finished",
    )
    found: dict[str, Any] = {name: record[name] for name in kept if name in record}
    found |= {"kind": kind_of(record), "read_from": record.get(READ_FROM, "")}
    if kind_of(record) in ("link", "node"):
        found |= {"label": record_label(record), "settings": record["config"]}
        typed = command(record) if kind_of(record) == "link" else ""
        gone = "made by an earlier version of the model; its settings are below"
        found["command"] = typed or (gone if is_earlier(record) else "")
    return dict(json.loads(json_text(found)))
