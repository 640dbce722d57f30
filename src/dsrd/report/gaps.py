"""What a report lacks, said plainly: runs that were not made, single seeds, training cut by time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dsrd.report.figures.ablations import TITLES, ablated_runs
from dsrd.report.figures.decays import learned_by_dataset
from dsrd.report.figures.scalability import costs
from dsrd.report.figures.style import model_title, title
from dsrd.report.measured import MODEL, PROTOCOLS, PUBLISHED, Number, in_order, is_benchmark
from dsrd.report.records import Records, of_kind
from dsrd.report.tables import LinkTable, Row, View, link_table


def gaps(records: Records, found: Sequence[Number]) -> list[tuple[str, str]]:
    """Sections of the report, each with one sentence on something that is missing."""
    told = [("links", text) for protocol in PROTOCOLS for text in _links(found, protocol)]
    own = [each for each in found if each.origin == MODEL and is_benchmark(each.dataset)]
    present = [each for each in own if "earlier version" not in each.notes]
    datasets = {each.dataset for each in present or own}
    told += [("decays", text) for text in _decays(records, datasets)]
    told += [("ablations", text) for text in _ablations(records, datasets)]
    told += [("scalability", text) for text in _costs(records, found)]
    told += [("training", text) for text in _calibrations(records, datasets)]
    return told


def _links(found: Sequence[Number], protocol: str) -> list[str]:
    """By protocol: models with holes, models never measured, single seeds, training cut by time, old versions."""
    table = link_table(found, View(protocol=protocol))
    measured = [
        row for row in table.rows if row.origin == MODEL and (row.is_usual or _has(row, "earlier version"))
    ]
    measured = [row for row in measured if "(" not in row.name and "view" not in row.name]
    if not measured:
        return []
    present = [row for row in measured if not _has(row, "earlier version")] or measured
    columns = in_order({name for row in present for name in row.cells})
    holes = [
        f"{model_title(row.name)} ({_titles(set(columns) - set(row.cells))})"
        for row in measured
        if {*columns} - {*row.cells}
    ]
    never = {row.base for row in table.rows if row.origin == PUBLISHED} - {
        row.base for row in table.rows if row.origin != PUBLISHED
    }
    return [
        f"{protocol}: {words}: {', '.join(names)}"
        for words, names in (
            ("not measured here on all data sets", holes),
            ("never measured here", sorted(map(model_title, never))),
            ("a single seed", _places(table, measured, "one seed")),
            ("training cut by time", _places(table, measured, "cut by time")),
            ("measured with an earlier version of the model only", _places(table, measured, "earlier version")),
        )
        if names
    ]


def _has(row: Row, note: str) -> bool:
    return any(note in cell.notes for cell in row.cells.values())


def _places(table: LinkTable, rows: Iterable[Row], note: str) -> list[str]:
    """Models with the data sets on which their cells carry the note.

    An earlier version counts only where the present one has no result.
    """
    told = []
    for row in rows:
        there = {name for name, cell in row.cells.items() if note in cell.notes}
        if note == "earlier version":
            there -= {
                name for other in table.rows if other.base == row.base and other.is_usual for name in other.cells
            }
        elif _has(row, "earlier version"):
            continue
        if there:
            name = model_title(row.base if note == "earlier version" else row.name)
            told.append(f"{name} ({_titles(there)})")
    return told


def _decays(records: Records, datasets: set[str]) -> list[str]:
    learned = learned_by_dataset(records)
    single = [name for name, seeds in learned.items() if len(seeds) == 1]
    absent = datasets - {*learned}
    told = [f"a single seed, so no band: {_titles(set(single))}"] if single else []
    return told + ([f"no record of what was learned: {_titles(absent)}"] if absent and learned else [])


def _ablations(records: Records, datasets: set[str]) -> list[str]:
    runs = ablated_runs(records)
    if not runs:
        return []
    told = [f"no ablations on {_titles(datasets - {*runs})}"] if datasets - {*runs} else []
    for name, found in runs.items():
        lacking = [words for variant, words in TITLES.items() if variant not in found]
        told += [f"{title(name)} lacks {', '.join(lacking)}"] if lacking else []
        single = [TITLES.get(variant, variant) for variant, seeds in found.items() if len(seeds) == 1]
        told += [f"{title(name)} has a single seed of {', '.join(single)}"] if single else []
    return told


def _costs(records: Records, found: Sequence[Number]) -> list[str]:
    measured = costs(records)
    models = {each.base for each in found if each.origin in (MODEL, PUBLISHED)}
    lacking = sorted(map(model_title, models - {*measured}))
    return [f"no record of speed: {', '.join(lacking)}"] if measured and lacking else []


def _calibrations(records: Records, datasets: set[str]) -> list[str]:
    told = []
    for name, key in (("calibration", "curve"), ("surprise over time", "bits_over_time")):
        measured = {
            record["dataset"]
            for record in of_kind(records, "calibration")
            if any(isinstance(part, dict) and part.get(key) for part in record["calibration"].values())
        }
        absent = datasets - measured
        told += [f"no {name} of {_titles(absent)}"] if measured and absent else []
    return told


def _titles(datasets: set[str]) -> str:
    return ", ".join(title(name) for name in in_order(datasets))
