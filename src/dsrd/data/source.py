"""`open_dataset`: whatever `--dataset` names, a file, a benchmark or the synthetic stream."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dsrd.config import DataConfig, overridden
from dsrd.data.dataset import Dataset
from dsrd.data.read import load
from dsrd.data.synthetic import SynthConfig, synth
from dsrd.data.tabular import Columns
from dsrd.errors import DsrdError

SYNTH = "synth"


@dataclass(frozen=True)
class Source:
    """A data set, and the law it was drawn from if it is synthetic."""

    dataset: Dataset
    law: SynthConfig | None = None


def open_dataset(name: str, config: DataConfig = DataConfig(), data_dir: str | Path | None = None) -> Source:
    """Open a catalogue name, a path, or `synth` with settings: `synth`, `synth:events=5000,bipartite=true`.

    >>> len(open_dataset("synth:events=500").dataset.events)
    500
    """
    if name == SYNTH or name.startswith(f"{SYNTH}:"):
        law = synth_config(name)
        return Source(synth(law, name), law)
    columns = Columns(config.source, config.target, config.time, config.features, config.label)
    return Source(load(name, data_dir=data_dir, format=config.format, columns=columns, bipartite=config.bipartite))


def synth_config(name: str) -> SynthConfig:
    """The settings in `synth:key=value,key=value`."""
    given: dict[str, str] = {}
    for setting in filter(None, name.partition(":")[2].split(",")):
        key, equals, value = setting.partition("=")
        if not equals:
            raise DsrdError(f"{name}: '{setting}' is not key=value; write for example synth:events=5000,seed=1")
        given[key.strip()] = value.strip()
    return overridden(SynthConfig(), given, prefix="synth:")
