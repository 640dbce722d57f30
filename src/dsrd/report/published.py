"""The published rows of the baselines: test AP and AUC, mean and deviation of five runs under dyglib."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from dsrd.data import catalog

SOURCE = "arXiv 2410.04013 (NeurIPS 2024), Tables 1 and 6 to 10"
RUNS = 5


class PublishedCell(NamedTuple):
    """One published number."""

    setting: str
    negatives: str
    metric: str
    dataset: str
    model: str
    mean: float
    std: float
    note: str  # what is known about it; mostly nothing


@cache
def published_cells() -> tuple[PublishedCell, ...]:
    """Every published cell, with the names that models and data sets have here."""
    text = files("dsrd.report").joinpath("published.csv").read_text(encoding="utf-8")
    return tuple(
        PublishedCell(
            row["setting"],
            row["negatives"],
            row["metric"].lower(),
            catalog.find(row["dataset"]).name,
            row["model"].lower(),
            float(row["mean"]),
            float(row["std"]),
            row["note"],
        )
        for row in csv.DictReader(text.splitlines())
    )


@cache
def titles() -> dict[str, str]:
    """How the papers write the names of models."""
    text = files("dsrd.report").joinpath("published.csv").read_text(encoding="utf-8")
    return {row["model"].lower(): row["model"] for row in csv.DictReader(text.splitlines())}
