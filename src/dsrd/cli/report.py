"""`dsrd report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsrd.cli import options, output

EXAMPLES = options.examples(
    "dsrd report results.jsonl --out my-report", "dsrd report runs/*/record.json results --out my-report"
)


def report(
    records: Annotated[
        list[Path],
        typer.Argument(metavar="RECORDS...", help="Files of records (JSONL), or folders with such files or runs."),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the report.", show_default=False)
    ],
    json: options.Json = False,
) -> None:
    """Write a report of records: tables, tests, figures.

    The page index.html opens offline and holds everything. Beside it are its figures (SVG, PDF, TikZ) and tables
    (CSV, LaTeX). What the records do not say is named on the page and printed. A folder that holds an older report
    is replaced. Needs `pip install dsrd[report]`.
    """
    from dsrd.report import report as make

    made = make(records, out)
    if json:
        summary = {
            "page": str(made.page),
            "figures": [*made.figures],
            "missing": made.missing,
            "gaps": made.gap_texts,
        }
        output.as_json(summary)
        return
    output.line(f"{made.page}: {len(made.records)} records, {len(made.figures)} figures")
    output.note(*(f"missing: {name}: {why}" for name, why in made.missing.items()))
    if made.gap_texts:
        output.note(f"{len(made.gap_texts)} notes on the page say what was not measured, or only once")
