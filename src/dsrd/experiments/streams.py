"""The data sets of a plan: what is known of each before it is read, and where to get one that is not here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from dsrd.config import DataConfig, overridden
from dsrd.data import catalog, tgb
from dsrd.data.read import folder_of, is_synthetic, load_with, synthetic_config
from dsrd.errors import DsrdError, unknown

TGB_NAMES = ("wiki", "review", "coin", "comment", "flight")
KEYS = ("name", *(entry.name for entry in fields(DataConfig)))


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A data set as a plan names it."""

    text: str  # a name, `synth:...` or a path, as `load` takes it
    name: str  # in records
    data: DataConfig = field(default_factory=DataConfig)
    catalogued: bool = False
    published: bool = False  # it has a published protocol
    events: int | None = None  # None: unknown before it is read
    edge_dim: int = 0
    missing: str = ""  # where to get it; empty if it is here

    @property
    def protocol(self) -> str:
        """The protocol where the plan names none."""
        return "dyglib" if self.published else "strict"


def stream_of(entry: str | Mapping[str, Any], folder: Path, data_dir: str | Path | None = None) -> Stream:
    """What is known of a data set; files are sought from `folder`.

    An unknown name is an error; a known one that is not here has `missing`.

    >>> stream_of("synth:events=500", Path()).events
    500
    """
    given = {"name": entry} if isinstance(entry, str) else dict(entry)
    text = str(given.pop("name"))
    data = overridden(DataConfig(), given)
    if is_synthetic(text):
        return Stream(text=text, name=text, data=data, events=synthetic_config(text).events)
    if text.startswith(tgb.PREFIX):
        return _tgb(text, data, data_dir)
    spec = catalog.get(text)
    if spec is not None and Path(text).name == text:
        here = folder_of(spec.name, data_dir) is not None
        bipartite = spec.bipartite if data.bipartite is None else data.bipartite
        return Stream(
            text=spec.name,
            name=spec.name,
            data=replace(data, bipartite=bipartite),
            catalogued=True,
            published=True,
            events=spec.events,
            edge_dim=spec.edge_dim,
            missing="" if here else f"{spec.url or spec.home}",
        )
    path = next((path for path in (folder / text, Path(text)) if path.exists()), None)
    return _read(text if path is None else str(path.absolute()), data, data_dir)


def _tgb(text: str, data: DataConfig, data_dir: str | Path | None) -> Stream:
    short = text.removeprefix(tgb.PREFIX).removeprefix("tgbl-")
    if short not in TGB_NAMES:
        raise unknown("data set", text, [tgb.PREFIX + name for name in TGB_NAMES])
    try:
        return _read(text, data, data_dir)
    except DsrdError as error:
        name = tgb.PREFIX + short
        return Stream(text=text, name=name, data=data, published=True, missing=str(error))


def _read(text: str, data: DataConfig, data_dir: str | Path | None) -> Stream:
    """Facts that only the data themselves tell; parsed files are cached."""
    dataset = load_with(text, data, data_dir=data_dir)
    return Stream(
        text=text,
        name=dataset.name,
        data=dataset.columns,
        catalogued=dataset.catalogued,
        published=dataset.published,
        events=len(dataset.events),
        edge_dim=dataset.edge_dim,
    )
