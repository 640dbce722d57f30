"""A report from records: figures, tables, and the page that shows them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from dsrd.errors import DsrdError
from dsrd.files import is_empty, json_text, replacing_folder
from dsrd.report import Source
from dsrd.report import records as records_module
from dsrd.report.figures import DRAWINGS, Drawing, style
from dsrd.report.figures.ranks import rankings
from dsrd.report.gaps import gaps
from dsrd.report.latex import booktabs, tikz
from dsrd.report.measured import KINDS, METRICS, PROTOCOLS, READINGS, Number, numbers
from dsrd.report.page import page
from dsrd.report.records import READ_FROM, Record, Records
from dsrd.report.side_tables import SideTable, side_tables
from dsrd.report.tables import View, link_table, views
from dsrd.reporter import Reporter, reporting, step

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE = "index.html"
MARK = 'content="dsrd report"'
"""What the page of a report holds; a folder with it may be replaced by a new report."""


@dataclass
class Report:
    """A report in memory: `figures` by name, `tables` beside those of links, `missing` parts with the reason."""

    records: Records
    numbers: Sequence[Number]
    figures: dict[str, Figure] = field(default_factory=dict)
    tables: list[SideTable] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  # title of a part, and why it is not there
    page: Path | None = None  # once saved

    @cached_property
    def gaps(self) -> list[tuple[str, str]]:
        """Sections, each with a sentence on something that was not measured, or only once."""
        return gaps(self.records, self.numbers)

    @property
    def gap_texts(self) -> list[str]:
        """The sentences with the names of their sections."""
        return [f"{section}: {text}" for section, text in self.gaps]

    def save(self, out: str | PathLike[str]) -> Path:
        """Write the page, the figures (SVG, PDF, TikZ) and the tables (CSV, LaTeX) to a folder; returns the page.

        An older report in that folder is replaced. A folder that holds anything else is refused.
        """
        folder = Path(out)
        require_replaceable(folder)
        drawings = [each for each in DRAWINGS if each.name in self.figures]
        with replacing_folder(folder) as temporary:
            for part in ("figures", "tables"):
                (temporary / part).mkdir()
            drawn = []
            for done, each in enumerate(drawings):
                step("saving", done, len(drawings))
                drawn.append((each, self._figure(each, temporary / "figures")))
            self._tables(temporary / "tables")
            self._tikz(temporary / "figures")
            absent = [
                (each.section, f"{each.title}: {self.missing[each.title]}")
                for each in DRAWINGS
                if each.title in self.missing
            ]
            text = page(self.records, self.numbers, drawn, self.tables, [*absent, *self.gaps])
            (temporary / PAGE).write_text(text, encoding="utf-8")
        self.page = folder / PAGE
        return self.page

    def _figure(self, drawing: Drawing, folder: Path) -> str:
        """Save a figure as PDF and SVG; returns the SVG."""
        figure, text = self.figures[drawing.name], io.StringIO()
        with style.styled():
            figure.savefig(folder / f"{drawing.name}.pdf", metadata={"CreationDate": None})
            layout = figure.get_layout_engine()
            figure.set_layout_engine("none")  # the layout of the PDF serves the SVG as well
            figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
            figure.set_layout_engine(layout)
        (folder / f"{drawing.name}.svg").write_text(text.getvalue(), encoding="utf-8")
        return text.getvalue()

    def _tables(self, folder: Path) -> None:
        (folder / "links.csv").write_text(links_csv(self.numbers, self.records), encoding="utf-8")
        for name, text in links_latex(self.numbers).items():
            (folder / f"{name}.tex").write_text(text, encoding="utf-8")
        for table in self.tables:
            (folder / f"{table.name}.csv").write_text(table.csv(), encoding="utf-8")
            (folder / f"{table.name}.tex").write_text(table.latex(), encoding="utf-8")

    def _tikz(self, folder: Path) -> None:
        for protocol in PROTOCOLS:
            for reading in READINGS:
                for metric in METRICS:
                    found = rankings(self.numbers, View(protocol=protocol, reading=reading, metric=metric))
                    if found:
                        text = tikz(found, metric.upper())
                        (folder / f"ranks-{protocol}-{reading}-{metric}.tex").write_text(text, encoding="utf-8")


def build(
    records: Source | Iterable[Source], out: str | PathLike[str] | None, progress: bool | Reporter
) -> Report:
    """What `dsrd.report` does."""
    given = gathered(records)
    if out is not None:
        require_replaceable(Path(out))
    style.imported()
    with reporting(progress):
        made = Report(given, numbers(given))
        for done, drawing in enumerate(DRAWINGS):
            step("figures", done, len(DRAWINGS))
            try:
                made.figures[drawing.name] = drawing.draw(given)
            except DsrdError as reason:
                made.missing[drawing.title] = str(reason)
        made.tables = side_tables(given, made.numbers)
        if not any(each.record is not None for each in made.numbers):
            made.missing["Tables of links"] = "no record of link prediction"
        if out is not None:
            made.save(out)
    return made


def gathered(records: Source | Iterable[Source]) -> list[Record]:
    """All records, those of files read; each is checked."""
    given = [records] if isinstance(records, str | PathLike | dict) else list(records)
    found: list[Record] = []
    paths = [Path(each) for each in given if isinstance(each, str | PathLike)]
    for number, each in enumerate(given, start=1):
        if isinstance(each, str | PathLike):
            continue
        placed = {READ_FROM: f"record {number}", **json.loads(json_text(each))} if isinstance(each, dict) else each
        records_module.check(placed)  # as a file would give it: lists for tuples, null for NaN
        found.append(placed)
    if paths or not found:
        found += records_module.read(paths)
    return found


def require_replaceable(folder: Path) -> None:
    """Refuse a folder that holds anything but an older report."""
    if folder.is_file():
        raise DsrdError(f"{folder}: is a file; give the name of a folder")
    if folder.is_dir() and not is_empty(folder):
        old = folder / PAGE
        if not old.is_file() or MARK not in old.read_text(encoding="utf-8", errors="replace")[:2000]:
            raise DsrdError(f"{folder}: holds other files; give an empty folder, or one with an older report")


def links_csv(found: Sequence[Number], records: Records) -> str:
    """Every number of links, a row each, with where its record stands."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [
        "dataset",
        "protocol",
        "reading",
        "setting",
        "negatives",
        "metric",
        "origin",
        "row",
        "seed",
        "value",
    ]
    writer.writerow([*columns, "std", "notes", "read_from"])
    for each in found:
        place = "" if each.record is None else records[each.record].get(READ_FROM, "")
        entries = [getattr(each, name) for name in columns]
        writer.writerow([*entries, "" if each.std is None else each.std, "; ".join(each.notes), place])
    return text.getvalue()


def links_latex(found: Sequence[Number]) -> dict[str, str]:
    """The tables of links by file name: beside the published rows, and measured here alone."""
    texts = {}
    there = views(found)
    for view in there:
        tables = [
            link_table(found, replace(view, negatives=kind)) for kind in KINDS if _is_there(view, kind, there)
        ]
        name = f"links-{view.protocol}-{view.reading}-{view.setting}-{view.metric}"
        name += "" if view.benchmarks else "-others"
        if name not in texts:
            texts[name] = booktabs(tables)
            texts[f"{name}-measured"] = booktabs(tables, beside_published=False)
    return texts


def _is_there(view: View, negatives: str, there: Sequence[View]) -> bool:
    return replace(view, negatives=negatives) in there
