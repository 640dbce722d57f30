"""How all figures look: sizes for printed columns, colours that colour-blind readers can tell apart, fonts."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dsrd.data import catalog
from dsrd.errors import DsrdError
from dsrd.report.published import titles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN, PAGE = 3.4, 7.0
"""Width of one printed column and of a page, in inches."""
INK, GRID = "#1b1b1f", "#d2d2d8"
"""Colours of text and of grid lines; the page replaces them by those of its theme."""
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8A6D3B", "#7F7F7F")
"""Okabe and Ito's colours, yellow and black replaced by two that show on white and on black."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "h", "d")
DASHES = ("-", "--", "-.", ":")
LONGEST = 24
"""Most letters of the name of a data set in a figure."""
LONGEST_MODEL = 31
"""Most letters of the name of a model in a figure."""
FONTS = ["DejaVu Sans", "Arial", "Helvetica", "sans-serif"]
SETTINGS: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": FONTS,
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "svg.fonttype": "none",
    "svg.hashsalt": "dsrd",
    "pdf.fonttype": 42,
    "figure.facecolor": "white",
    "axes.facecolor": "none",
}


@contextmanager
def styled() -> Iterator[None]:
    """The settings of matplotlib under which figures are made and saved; those of the caller come back."""
    matplotlib = imported()
    with matplotlib.rc_context(SETTINGS):
        yield


def imported() -> Any:
    """Matplotlib, or an error that says how to install it."""
    try:
        import matplotlib
    except ImportError:
        raise DsrdError("figures need matplotlib; install it with `pip install dsrd[report]`") from None
    return matplotlib


def new_figure(
    width: float = COLUMN, height: float = 2.3, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """An empty figure outside pyplot, and its axes row by row."""
    imported()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(axes.ravel())


def legend_below(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> None:
    """A legend under the figure, in as many columns as its longest label leaves room for."""
    widest = 0.5 + 0.055 * max(map(len, labels), default=0)  # in inches, with its mark
    columns = int(figure.get_figwidth() / widest)
    figure.legend(handles, labels, loc="outside lower center", ncols=max(1, min(columns, len(labels), 6)))


def look(number: int) -> dict[str, Any]:
    """Colour, marker and dashes of the line with this number; no two of the first 32 are alike."""
    return {
        "color": COLORS[number % len(COLORS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": DASHES[number // len(COLORS) % len(DASHES)],
    }


def line(number: int) -> dict[str, Any]:
    """The same without a marker, for curves of many points: dashes tell them apart where colours do not print."""
    return {"color": COLORS[number % len(COLORS)], "linestyle": DASHES[number % len(DASHES)]}


def log_ticks(axes: Axes) -> None:
    """A logarithmic x axis that also reads well within one decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def whole_ticks(axes: Axes, most: int = 6) -> None:
    """Whole numbers on the x axis."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=most, integer=True))


def looks(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A look for every name: a model of the published tables has the same one in every figure."""
    known = ["dsrd", *titles()]
    taken: dict[str, int] = {}
    for name in names:
        place = known.index(name.partition(",")[0]) if name.partition(",")[0] in known else -1
        if place >= 0 and place not in taken.values():
            taken[name] = place
    free = (number for number in itertools.count() if number not in {*taken.values()})
    return {name: look(taken[name] if name in taken else next(free)) for name in names}


def title(dataset: str) -> str:
    """How the papers write the name of a data set.

    >>> title("CanParl"), title("calls.csv")
    ('Can. Parl.', 'calls.csv')
    """
    spec = catalog.SPECS.get(dataset)
    written = spec.title if spec else dataset
    return written if len(written) <= LONGEST else written[: LONGEST - 1] + "…"


def model_title(name: str) -> str:
    """How the papers write a model; a dagger marks a published row.

    >>> model_title("dsrd"), model_title("dsrd-paper"), model_title("dsrd, dim=8")
    ('DSRD', 'DSRD-paper', 'DSRD, dim=8')
    """
    base, comma, rest = name.partition(", ")
    stem, dash, preset = base.partition("-")
    written = titles().get(stem, "DSRD" if stem == "dsrd" else stem) + dash + preset
    return f"{written}†" if rest == "published" else written + comma + rest


def wrapped_title(name: str, width: int = 16) -> str:
    """The short one in lines of about this many letters.

    >>> wrapped_title("mine, with dim=32, and layers=2")
    'mine, with\\ndim=32, and\\nlayers=2'
    """
    return "\n".join(textwrap.wrap(short_title(name), width))


def short_title(name: str) -> str:
    """The same, cut to what a legend has room for.

    >>> short_title("dsrd, dim=8, heads=2, layers=1, dropout=0.2")
    'DSRD, dim=8, heads=2, layers=1…'
    """
    written = model_title(name)
    return written if len(written) <= LONGEST_MODEL else written[: LONGEST_MODEL - 1] + "…"
