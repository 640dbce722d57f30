"""Tables for LaTeX (booktabs) in the paper's layout, and rank diagrams in TikZ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dsrd.report.figures.ranks import Ranking
from dsrd.report.figures.style import COLORS, model_title, title
from dsrd.report.measured import CEILING, PUBLISHED, RULE
from dsrd.report.published import SOURCE
from dsrd.report.tables import LinkTable, Row

GREEN = "\\definecolor{mygreen}{RGB}{122,197,180}"
ESCAPES = {"&": "\\&", "%": "\\%", "_": "\\_", "#": "\\#", "$": "\\$", "{": "\\{", "}": "\\}"}
NO_WIDER = "\\ifdim\\width>\\textwidth\\textwidth\\else\\width\\fi"
"""A width for `resizebox`: that of the page for what is wider, its own for all else."""
NEGATIVES = {"random": "rnd", "historical": "hist", "inductive": "ind"}
MARKS = (
    "+",
    "diamond*",
    "triangle*",
    "square*",
    "star",
    "otimes*",
    "x",
    "o",
    "halfcircle*",
    "pentagon*",
    "oplus",
    "asterisk",
    "10-pointed star",
)


def escaped(text: str) -> str:
    """Text as LaTeX takes it.

    >>> escaped("a_b, 5 %†")
    'a\\\\_b, 5 \\\\%$^\\\\dagger$'
    """
    plain = "".join(ESCAPES.get(letter, letter) for letter in text)
    return plain.replace("†", "$^\\dagger$").replace("…", "\\ldots{}")


def booktabs(tables: Sequence[LinkTable], beside_published: bool = True) -> str:
    """A LaTeX table with a block for each kind of negatives: data sets over models, best bold, second underlined.

    One setting, one metric, one reading. With `beside_published` a model without results on all data sets is shown
    by its published row; without it, only what was measured here is shown and compared, with its holes. Rules that
    learn nothing and ceilings follow in a table of their own, so that the models fit the width of a page.
    """
    if not beside_published:
        tables = [replace(each, rows=[row for row in each.rows if row.origin != PUBLISHED]) for each in tables]
    names = _columns(tables, beside_published)
    ranked = {row.name for table in tables for row in table.contenders}
    others = {row.name for table in tables for row in table.rows if row.origin in (RULE, CEILING)} - ranked
    view = tables[0].view
    models = [name for name in names if name not in others]
    texts = ["% needs \\usepackage{booktabs,multirow,graphicx} and \\usepackage[table]{xcolor}\n"]
    if models:
        texts += _table(tables, models, _caption(view.metric, view.setting, view.protocol, view.reading))
    if len(models) < len(names):
        about = f"Rules that learn nothing, and ceilings: {view.metric.upper()}, {view.setting}, {view.protocol}."
        texts += _table(tables, [name for name in names if name in others], about)
    return "".join(texts)


def _table(tables: Sequence[LinkTable], rows: list[str], caption: str) -> list[str]:
    """One table of these columns, line by line."""
    lines = [
        "\\begin{table*}[!tb]",
        "\\centering",
        GREEN,
        f"\\caption{{{caption}}}",
        f"\\resizebox{{{NO_WIDER}}}{{!}}{{%",
        "\\setlength{\\tabcolsep}{0.9mm}%",
        f"\\begin{{tabular}}{{c|c|{'c' * len(rows)}}}",
        "\\toprule",
        " & ".join(["NSS", "Dataset", *(escaped(model_title(name)) for name in rows)]) + " \\\\",
    ]
    for table in tables:
        shown = {row.name: row for row in table.rows if row.name in rows}
        datasets = [name for name in table.datasets if any(name in row.cells for row in shown.values())]
        ranked = bool(table.average_ranks.keys() & {*rows})
        lines += ["\\midrule"] if datasets else []
        for number, dataset in enumerate(datasets):
            many = f"\\multirow{{{len(datasets) + ranked}}}{{*}}{{{NEGATIVES[table.view.negatives]}}}"
            cells = [_cell(table, shown.get(name), dataset) for name in rows]
            lines.append(" & ".join(["" if number else many, escaped(title(dataset)), *cells]) + " \\\\")
        if ranked:
            lines.append(" & ".join(["", "Avg. Rank", *_ranks(table, rows)]) + " \\\\")
    return [f"{line}\n" for line in [*lines, "\\bottomrule", "\\end{tabular}}", "\\end{table*}"]]


def _columns(tables: Sequence[LinkTable], beside_published: bool) -> list[str]:
    """Names of the rows that become columns: baselines by rank, rules and ceilings last."""
    names: dict[str, Row] = {}
    for table in tables:
        rows = table.contenders if beside_published else [row for row in table.rows if table.is_main(row)]
        others = [row for row in table.rows if row.origin in (RULE, CEILING)]
        names |= {row.name: row for row in [*rows, *others]}
    order = {name: place for place, name in enumerate(names)}

    def key(name: str) -> tuple[int, float, int]:
        row = names[name]
        kind = {RULE: 1, CEILING: 2}.get(row.origin, 0)
        ranked = [table.average_ranks[name] for table in tables if name in table.average_ranks]
        return kind, -sum(ranked) / len(ranked) if ranked else 0.0, order[name]

    return sorted(names, key=key)


def _cell(table: LinkTable, row: Row | None, dataset: str) -> str:
    cell = row.cells.get(dataset) if row else None
    if cell is None or row is None:
        return "--"
    notes = "".join(mark for note, mark in (("one seed", "1"), ("cut by time", "c")) if note in cell.notes)
    text = f"{cell.mean:.2f}" + (f"{{\\scriptsize$\\pm${cell.std:.2f}}}" if cell.std is not None else "")
    text += f"$^{{{notes}}}$" if notes else ""
    place = table.places.get((row.name, dataset), 0)
    shade = table.shades.get((row.name, dataset), 0)
    text = f"\\cellcolor{{mygreen!{shade}}}{text}" if shade else text
    return {1: f"\\textbf{{{text}}}", 2: f"\\underline{{{text}}}"}.get(place, text)


def _ranks(table: LinkTable, names: list[str]) -> list[str]:
    ranked = sorted(set(table.average_ranks.values()))
    cells = []
    for name in names:
        value = table.average_ranks.get(name)
        text = "--" if value is None else f"{value:.2f}"
        place = ranked.index(value) if value is not None else -1
        cells.append({0: f"\\textbf{{{text}}}", 1: f"\\underline{{{text}}}"}.get(place, text))
    return cells


def _caption(metric: str, setting: str, protocol: str, reading: str) -> str:
    read = ", read against the law of the negatives where a model can be" if reading == "law" else ""
    return (
        f"{metric.upper()} for {setting} dynamic link prediction with random (rnd), historical (hist), and "
        f"inductive (ind) negative sampling strategies (NSS), protocol {protocol}{read}. Avg. Rank is computed "
        "over the data sets of each NSS, among models with results on all of them. The best model is shown in "
        "\\textbf{bold} and the second best model is \\underline{underlined}. "
        "\\colorbox{mygreen!50}{Shaded cells} indicate relative performance across top 50\\% models on a given "
        f"data set. $^\\dagger$: published row ({SOURCE}); $^1$: a single seed; $^c$: training cut by time; "
        "--: not measured."
    )


def tikz(found: Sequence[Ranking], caption: str) -> str:
    """A rank diagram for pgfplots: a row for each ranking; brackets join models that do not differ."""
    names = list(dict.fromkeys(name for each in found for name in each.names))
    colors = [f"\\definecolor{{rank{number}}}{{HTML}}{{{color[1:]}}}" for number, color in enumerate(COLORS)]
    cycle = ",".join(
        f"{{rank{number % len(COLORS)},mark={MARKS[number % len(MARKS)]}}}" for number in range(len(names))
    )
    rows = ",".join(str(number) for number in range(1, len(found) + 1))
    labels = ",".join(f"{{{escaped(each.label)}}}" for each in found)
    lines = [
        "% needs \\usepackage{pgfplots} and \\usetikzlibrary{plotmarks}",
        *colors,
        "\\begin{tikzpicture}[group line/.style=semithick]",
        "\\begin{axis}[clip=false, grid=both, axis line style={draw=none}, tick style={draw=none},",
        "  xticklabel pos=upper, y dir=reverse, xmin=0.5, ymin=0.66,",
        f"  xmax={max(len(each.names) for each in found) + 0.5}, ymax={len(found) + 0.66},",
        f"  ytick={{{rows}}}, yticklabels={{{labels}}}, width=0.7\\linewidth,",
        "  legend style={draw=none, fill=none, at={(1.02,0.5)}, anchor=west}, legend cell align=left,",
        f"  title style={{yshift=\\baselineskip}}, cycle list={{{cycle}}}, title={{{escaped(caption)}}}]",
    ]
    for name in names:
        points = [
            f"({each.average[each.names.index(name)]:.10g}, {row})"
            for row, each in enumerate(found, start=1)
            if name in each.names
        ]
        lines.append(f"\\addplot+[only marks] coordinates {{{' '.join(points)}}};")
        lines.append(f"\\addlegendentry{{{escaped(model_title(name))}}}")
    for row, each in enumerate(found, start=1):
        for level, group in enumerate(each.groups, start=1):
            left, right = each.average[group[0]], each.average[group[-1]]
            y = row + 0.6 * level / (len(each.groups) + 1)
            lines.append(
                f"\\draw[group line] (axis cs:{left:.10g},{y:.4f}) -- ++(0pt,-3pt) -- "
                f"([yshift=-3pt]axis cs:{right:.10g},{y:.4f}) -- ++(0pt,3pt);"
            )
    return "\n".join([*lines, "\\end{axis}", "\\end{tikzpicture}"]) + "\n"
