"""The tables beside those of links: tests, differences, correlations, costs, labels of nodes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dsrd.experiments.labels import record_label
from dsrd.report.figures.decays import correlations
from dsrd.report.figures.ranks import Ranking, differences, rankings
from dsrd.report.figures.scalability import PAPER, costs, figures_of
from dsrd.report.figures.style import model_title, title
from dsrd.report.latex import escaped
from dsrd.report.measured import KINDS, METRICS, PROTOCOLS, READINGS, SETTINGS, Number
from dsrd.report.records import Records, of_kind
from dsrd.report.tables import View

Row = list[Any]
PAGE_ROWS = 45  # of a printed page
LONGEST = 40  # letters of a cell on one line


@dataclass(frozen=True)
class SideTable:
    """A plain table: `None` is a missing cell. `records` names the record of each row, if there is one."""

    name: str
    section: str
    title: str
    about: str
    columns: list[str]
    rows: list[Row]
    records: list[int | None] | None = None

    def csv(self) -> str:
        """The table as CSV."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([self.columns, *self.rows])
        return text.getvalue()

    def latex(self) -> str:
        """The table as LaTeX, with booktabs; one that is longer than a page runs over several."""
        columns = "".join(self._alignment(column) for column in range(len(self.columns)))
        body = [" & ".join(escaped(written(value)) for value in row) + " \\\\" for row in self.rows]
        head = ["\\toprule", " & ".join(escaped(name) for name in self.columns) + " \\\\", "\\midrule"]
        end = "." if self.title[-1].isalnum() else ""
        caption = f"\\caption{{{escaped(self.title)}{end} {escaped(self.about)}}}"
        small = ["{\\scriptsize\\setlength{\\tabcolsep}{0.9mm}"]
        if len(body) > PAGE_ROWS:
            lines = ["% needs \\usepackage{booktabs,longtable}", *small, f"\\begin{{longtable}}{{{columns}}}"]
            lines += [
                f"{caption}\\\\",
                *head,
                "\\endhead",
                "\\bottomrule",
                "\\endfoot",
                *body,
                "\\end{longtable}}",
            ]
        else:
            lines = ["% needs \\usepackage{booktabs}", "\\begin{table}[!tb]", "\\centering", caption, *small]
            lines += [f"\\begin{{tabular}}{{{columns}}}", *head, *body]
            lines += ["\\bottomrule", "\\end{tabular}}", "\\end{table}"]
        return "\n".join(lines) + "\n"

    def _alignment(self, column: int) -> str:
        """Numbers right, words left, sentences in lines of their own."""
        values = [row[column] for row in self.rows]
        if all(value is None or isinstance(value, int | float) for value in values):
            return "r"
        return "l" if max(len(written(value)) for value in values) <= LONGEST else "p{3.5cm}"


def written(value: Any) -> str:
    """A cell as text.

    >>> written(0.00001234), written(1234.5), written(None), written(12), written("uci")
    ('1.23e-05', '1,234.5', '--', '12', 'uci')
    """
    if value is None:
        return "--"
    if isinstance(value, float):
        if value != value:
            return "--"
        small = value != 0 and abs(value) < 1e-3
        return f"{value:.3g}" if small else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def side_tables(records: Records, found: Sequence[Number]) -> list[SideTable]:
    """Every table for which there are records."""
    ranked = [
        (View(protocol=protocol, reading=reading, metric=metric), metric)
        for protocol in PROTOCOLS
        for reading in READINGS
        for metric in METRICS
    ]
    by_view = {view: rankings(found, view) for view, _ in ranked}
    tables = [
        _tests(by_view),
        _pairs(by_view),
        _differences(found, by_view),
        _correlations(records),
        _costs(records),
        _one_batch(records),
        _nodes(records),
    ]
    return [table for table in tables if table.rows]


def _named(ranking: Ranking) -> Row:
    view = ranking.view
    return [view.protocol, view.reading, view.metric.upper(), view.setting, view.negatives]


NAMED = ["protocol", "reading", "metric", "setting", "negatives"]


def _tests(by_view: dict[View, list[Ranking]]) -> SideTable:
    rows = []
    for each in (ranking for found in by_view.values() for ranking in found):
        test = each.test
        row = [*_named(each), test.datasets, test.models, test.chi2, test.chi2_p, test.f, test.f_p]
        rows.append([*row, "; ".join(each.warnings) or None])
    columns = [*NAMED, "data sets", "models", "chi²", "p", "F", "p of F", "warning"]
    about = "Friedman's test over data sets, as chi-square and as Iman and Davenport's F."
    return SideTable("friedman", "ranks", "Do the models differ?", about, columns, rows)


def _pairs(by_view: dict[View, list[Ranking]]) -> SideTable:
    rows = []
    for each in (ranking for found in by_view.values() for ranking in found):
        order = sorted(range(len(each.names)), key=lambda number: each.average[number])
        best = order[0]
        for other in order[1:]:
            row: Row = [*_named(each), model_title(each.names[best]), model_title(each.names[other])]
            p, adjusted = float(each.p[best, other]), float(each.adjusted[best, other])
            rows.append([*row, each.average[other] - each.average[best], p, adjusted])
    columns = [*NAMED, "first in rank", "beside", "ranks apart", "p", "p, Holm"]
    about = (
        "Exact Wilcoxon signed-rank test with Pratt's zeros; Holm over all pairs of the row, not only those shown."
    )
    return SideTable("wilcoxon", "ranks", "Which models differ from the first?", about, columns, rows)


def _differences(found: Sequence[Number], by_view: dict[View, list[Ranking]]) -> SideTable:
    rows = []
    for view in (view for view in by_view if view.reading == "plain"):
        for setting in SETTINGS:
            for negatives in KINDS:
                shown = replace(view, setting=setting, negatives=negatives)
                best, intervals, datasets = differences(found, shown)
                named = [view.protocol, view.metric.upper(), setting, negatives, len(datasets), model_title(best)]
                rows += [
                    [*named, model_title(name), each.mean, each.low, each.high] for name, each in intervals.items()
                ]
    columns = ["protocol", "metric", "setting", "negatives", "data sets", "best here", "beside", "difference"]
    columns += ["low", "high"]
    about = (
        "Points, read plainly; 95 % intervals from resampling data sets and, within each, seeds; none below five "
        "data sets."
    )
    return SideTable("differences", "ranks", "Paired differences", about, columns, rows)


def _correlations(records: Records) -> SideTable:
    rows = [
        [name, about, count, each.mean, each.low, each.high]
        for (name, about), (each, count) in correlations(records).items()
    ]
    columns = ["learned", "property", "data sets", "Spearman", "low", "high"]
    about = "Mean over heads and seeds against density (events / nodes²) and scale (events / timestamps); 95 %."
    return SideTable("decay-correlations", "decays", "Learned decays and the data sets", about, columns, rows)


def _costs(records: Records) -> SideTable:
    rows: list[Row] = [[model_title(name), *each.values()] for name, each in costs(records).items()]
    columns = ["model", "s per epoch", "pairs / s", "s per 1,000 pairs", "weights, MB", "state, MB", "peak, MB"]
    about = "One data set, one thread; the median of the records of each model's present version."
    return SideTable("costs", "scalability", "Cost of the models", about, columns, rows)


def _one_batch(records: Records) -> SideTable:
    def row(point: Any) -> Row:
        paper = PAPER.get(point["events"], (None, None, None))
        return [
            point["events"],
            1000 * point["seconds"],
            point["peak_rss_mb"],
            point["state_mb"],
            paper[0],
            paper[2],
        ]

    rows = [row(each) for each in figures_of(records, "scaling", "by_batch")]
    columns = ["edges", "ms", "process, MB", "state, MB", "paper: ms", "paper: MB"]
    about = "Forward and backward of one batch; here one CPU thread, in the paper a GPU."
    return SideTable("one-batch", "scalability", "Edges in one batch", about, columns, rows)


def _nodes(records: Records) -> SideTable:
    rows, places = [], []
    for number, record in enumerate(records):
        for name, part in _classes(record) if record in of_kind([record], "node") else ():
            interval = f"{part['auc_low']:.2f} to {part['auc_high']:.2f}" if "auc_low" in part else None
            row = [title(record["dataset"]), model_title(record_label(record)), record.get("training")]
            row += [record.get("asks"), record["seed"], name, part.get("auc"), interval, part.get("auprc")]
            rows.append([*row, part.get("auprc_factor")])
            places.append(number)
    columns = [
        "data set",
        "model",
        "training",
        "asked of",
        "seed",
        "class",
        "ROC-AUC",
        "95 %",
        "AUPRC",
        "over chance",
    ]
    about = "Test, in percent."
    return SideTable("nodes", "nodes", "Classification of nodes and events", about, columns, rows, [*places])


def _classes(record: Any) -> Iterator[tuple[str, Any]]:
    found = record["results"].get("test", {})
    yield ("mean of classes" if "classes" in found else "positive"), found
    yield from found.get("classes", {}).items()
