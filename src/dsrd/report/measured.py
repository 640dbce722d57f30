"""Every measured, published or possible number of links in one long list; tables and figures choose from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dsrd.config import model_label
from dsrd.data import catalog
from dsrd.evaluate.readings import HEADS_OF_LAW
from dsrd.experiments.labels import is_earlier, record_label
from dsrd.models import model_class
from dsrd.models import names as model_names
from dsrd.report.published import published_cells
from dsrd.report.records import Record, Records, kind_of

PROTOCOLS = ("dyglib", "strict")
READINGS = ("plain", "law")
SETTINGS = ("transductive", "inductive")
KINDS = ("random", "historical", "inductive")
METRICS = ("ap", "auc")
NO_ABLATION = "none"
READ: dict[str, tuple[str, ...]] = {"plain": (), "law": ("read plainly",)}
"""What a number without a reading by the law carries in the tables of either reading."""

MODEL, PUBLISHED, RULE, CEILING = "model", "published", "rule", "ceiling"
"""Where a number comes from: a run here, a published row, a rule that learns nothing, an oracle."""


@dataclass(frozen=True, kw_only=True)
class Number:
    """One test result in percent: of one seed, or the mean of a published row."""

    dataset: str
    protocol: str
    reading: str
    setting: str
    negatives: str
    metric: str
    origin: str
    row: str  # label of its row in tables
    base: str  # the model without its settings; rows of one base are variants of each other
    value: float
    std: float | None = None  # of a published row
    seed: int = 0
    record: int | None = None  # position among the records
    notes: tuple[str, ...] = ()  # "cut by time", "earlier version", "other head", "read plainly"


def numbers(records: Records) -> list[Number]:
    """What the records say of links, and the published rows for the benchmark data sets they are about."""
    found = [number for place, record in enumerate(records) for number in _of_record(place, record)]
    datasets = {each.dataset for each in found}
    return _once(found, records) + [each for each in _published() if each.dataset in datasets]


def preferred(record: Record, other: Record | None) -> Record:
    """Of two runs with the same model settings and seed the one that was allowed to train for longer.

    That is with more epochs, or not cut by time, or with more minutes; of equals the one that finished later.
    """

    def order(each: Record) -> tuple[int, bool, float, str]:
        train = each["config"]["train"]
        minutes = train.get("minutes") or math.inf  # 0: no limit
        return train.get("epochs", 0), not cut_by_time(each), minutes, str(each.get("finished", ""))

    return record if other is None or order(record) >= order(other) else other


def _once(found: list[Number], records: Records) -> list[Number]:
    """Each number of a row and seed once, of the preferred run."""
    kept: dict[tuple[Any, ...], Number] = {}
    for each in found:
        place = (each.dataset, each.protocol, each.reading, each.setting, each.negatives, each.metric)
        key = (*place, each.origin, each.row, each.seed)
        if key not in kept or _replaces(each, kept[key], records):
            kept[key] = each
    return list(kept.values())


def _replaces(number: Number, old: Number, records: Records) -> bool:
    if number.origin != MODEL or number.record is None or old.record is None:
        return True
    return preferred(records[number.record], records[old.record]) is records[number.record]


def _of_record(place: int, record: Record) -> Iterator[Number]:
    kind = kind_of(record)
    if kind == "audit":
        yield from _of_audit(place, record)
    if kind != "link" or record["config"]["model_args"].get("ablate", NO_ABLATION) != NO_ABLATION:
        return
    label, cut = record_label(record), cut_by_time(record)
    notes = (*(["earlier version"] if is_earlier(record) else []), *(["cut by time"] if cut else []))
    rule = record["model"] in model_names() and model_class(record["model"]).card.rule
    common: dict[str, Any] = {
        "dataset": record["dataset"],
        "protocol": record["protocol"],
        "seed": 0 if rule else record["seed"],
        "record": place,
        "origin": RULE if rule else MODEL,
        "base": model_label(record["model"], record["preset"]),
    }
    heads = heads_of(record)
    main = record.get("head") or next(iter(heads))
    for reading, negatives, head, own in _asked(heads, main):
        more = notes if own else (*notes, "other head")
        more = more if reading == "plain" or "law" in heads else (*more, *READ["law"])
        row = label if own else f"{label} ({head})"
        yield from _cells(heads[head], negatives, reading=reading, row=row, notes=more, **common)
    for name, entry in record.get("rules", {}).items():
        for reading in READINGS:
            rules = common | {"origin": RULE, "base": name, "seed": 0, "notes": READ[reading]}
            for negatives in KINDS:
                yield from _cells(entry["results"], negatives, reading=reading, row=name, **rules)
    if "ceiling" in record:
        for reading in READINGS:
            best = common | {"origin": CEILING, "base": "best possible", "seed": 0}
            for negatives in KINDS:
                yield from _cells(record["ceiling"], negatives, reading=reading, row="best possible", **best)


def heads_of(record: Record) -> dict[str, Mapping[str, Any]]:
    """Test results by head; the reading by the law is among them where it was measured."""
    main = record.get("head") or "link"
    return {main: record["results"]} | {head: entry["results"] for head, entry in record.get("heads", {}).items()}


def _asked(heads: Mapping[str, Any], main: str) -> Iterator[tuple[str, str, str, bool]]:
    """Reading, negatives and head of every cell; the last entry says whether it is the head to ask about them."""
    plain = [head for head in heads if head != "law"]
    for negatives in KINDS:
        if plain:
            own = HEADS_OF_LAW[negatives] if HEADS_OF_LAW[negatives] in plain else _first(main, plain)
            for head in plain:
                yield "plain", negatives, head, head == own
            yield "law", negatives, "law" if "law" in heads else own, True
        else:
            yield "law", negatives, "law", True


def _first(main: str, plain: list[str]) -> str:
    return main if main in plain else plain[0]


def _cells(results: Mapping[str, Any], negatives: str, **entries: Any) -> Iterator[Number]:
    for setting in SETTINGS:
        cell = results.get(setting, {}).get(negatives) or {}
        for metric in METRICS:
            value = cell.get(metric)
            if isinstance(value, int | float) and math.isfinite(value):
                yield Number(setting=setting, negatives=negatives, metric=metric, value=float(value), **entries)


def _of_audit(place: int, audit: Record) -> Iterator[Number]:
    """The oracle that knows every true edge, and the two rules of the audit."""
    common: dict[str, Any] = {"dataset": audit["dataset"], "protocol": "dyglib", "record": place}
    for reading in READINGS:
        for setting, kinds in audit["negatives"].items():
            for negatives, figures in kinds.items():
                best = {"ap": figures.get("ceiling_ap"), "auc": figures.get("ceiling_auc")}
                names: dict[str, Any] = {"reading": reading, "origin": CEILING, "row": "knows every true edge"}
                results = {setting: {negatives: best}}
                yield from _cells(results, negatives, base="knows every true edge", **names, **common)
        for negatives, figures in audit["unlearned"].items():
            for rule in ("last_active", "strangers_first"):
                given = {metric: figures.get(f"{rule}_{metric}") for metric in METRICS}
                row = rule.replace("_", " ")
                names = {"reading": reading, "origin": RULE, "row": row, "notes": READ[reading]}
                results = {"transductive": {negatives: given}}
                yield from _cells(results, negatives, base=row, **names, **common)


def cut_by_time(record: Record) -> bool:
    """Whether training ended before its epochs and its patience: its minutes were over, or it was stopped."""
    timing, train = record["timing"], record["config"]["train"]
    epochs, best = timing.get("epochs"), timing.get("best_epoch")
    if not isinstance(epochs, int) or not isinstance(best, int) or not record.get("parameters"):
        return False
    return bool(epochs < train.get("epochs", 0) and epochs - best < train.get("patience", 0))


def _published() -> Iterator[Number]:
    for cell in published_cells():
        entries: dict[str, Any] = {"setting": cell.setting, "negatives": cell.negatives, "metric": cell.metric}
        number = Number(
            dataset=cell.dataset,
            protocol="dyglib",
            reading="plain",
            origin=PUBLISHED,
            row=f"{cell.model}, published",
            base=cell.model,
            value=cell.mean,
            std=cell.std,
            notes=(cell.note,) if cell.note else (),
            **entries,
        )
        yield number
        yield replace(number, reading="law", notes=(*number.notes, *READ["law"]))


def in_order(datasets: set[str]) -> list[str]:
    """Data sets as the catalogue lists them, then all others by name."""
    listed = [name for name in catalog.SPECS if name in datasets]
    return listed + sorted(datasets - {*listed})


def is_benchmark(dataset: str) -> bool:
    """Whether the catalogue has the data set.

    >>> is_benchmark("uci"), is_benchmark("calls.csv")
    (True, False)
    """
    return dataset in catalog.SPECS
