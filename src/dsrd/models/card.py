"""What a model says about itself: one `ModelCard` per model, and the settings of its published rows."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dsrd.decoding import read_text
from dsrd.errors import DsrdError

PUBLISHED = "published.toml"


@dataclass(frozen=True)
class Preset:
    """Settings that belong together, under a name: `--preset NAME`."""

    about: str  # a few words
    model: Mapping[str, Any]  # settings of the model, over its defaults
    recipe: Mapping[str, Any]  # training settings, over the published defaults
    keeps: Mapping[str, str] | None = None  # as in the card, if the state is another one


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """Facts about a model: for the table of models, for training, for tests."""

    paper: str  # who published it, where
    reads: str  # what a score depends on
    keeps: Mapping[str, str] = field(default_factory=dict)  # bytes of the state, see `state_size`
    cost: str = "not said"  # of one score, in a few words (k: `neighbors`)
    recipe: Mapping[str, Any] = field(default_factory=dict)  # training settings, over the published defaults
    presets: Mapping[str, Preset] = field(default_factory=dict)  # further variants, by name
    small: Mapping[str, Any] = field(default_factory=dict)  # model settings that make a test quick
    skips: Mapping[str, str] = field(default_factory=dict)  # conformance checks that cannot hold, and why
    rule: bool = False  # learns nothing; tables compare every trained model with it
    any_clock: bool = False  # scores do not depend on the unit of time


def read_published(folders: Iterable[str | Path]) -> dict[str, dict[str, dict[str, Any]]]:
    """The `published.toml` files of these folders as one table: model -> data set -> settings."""
    table: dict[str, dict[str, dict[str, Any]]] = {}
    for file in (Path(folder) / PUBLISHED for folder in folders):
        if file.is_file():
            try:
                table |= tomllib.loads(read_text(file))
            except (tomllib.TOMLDecodeError, RecursionError) as error:
                raise DsrdError(f"{file}: {error}; correct the file") from error
    return table
