"""Builds the model of a run: freshly initialised, or for the weights of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from dsrd.config import RunConfig
from dsrd.data.dataset import Dataset
from dsrd.errors import DsrdError
from dsrd.events import Events
from dsrd.models import GraphSpec, Snapshot, TemporalModel, create, settings


def build(run: RunConfig, dataset: Dataset, train: Events) -> TemporalModel:
    """The model of a run, initialised from its seed and calibrated on the training events."""
    graph = GraphSpec(
        num_nodes=dataset.num_nodes,
        node_dim=dataset.node_dim,
        edge_dim=dataset.edge_dim,
        num_events=len(train),
        whole_moments=run.protocol_rules.strict,
    )
    model = build_for(run, graph)
    model.calibrate(train)
    return placed(model, run)


def build_for(run: RunConfig, graph: GraphSpec) -> TemporalModel:
    """The model of a run for a graph of these sizes. Not calibrated: a checkpoint holds the measured values."""
    config = settings(run.model, run.dataset, run.preset, run.model_args)
    torch.manual_seed(run.seed)
    try:
        return create(run.model, graph, config)
    except (ValueError, RuntimeError, ArithmeticError) as error:
        raise DsrdError(f"{run.model}: {reason(error)}; correct the model's settings") from error


def placed(model: TemporalModel, run: RunConfig) -> TemporalModel:
    """The model on the device that the run names."""
    try:
        return model.to(run.train.device)
    except (RuntimeError, AssertionError) as error:
        device = run.train.device
        raise DsrdError(f"train.device={device}: {reason(error)}; use cpu, or cuda where there is one") from error


def load_weights(model: TemporalModel, weights: Mapping[str, Tensor], path: Path | None) -> None:
    """Load weights into a model; an error names the file they came from."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        detail = str(error).splitlines()[-1].strip()
        raise DsrdError(f"{path}: does not fit the model's settings ({detail}); train again") from error


def verify_state(model: TemporalModel, state: Mapping[str, Tensor], path: Path, num_events: int) -> Snapshot:
    """A state from a file, checked before compiled code reads it; an error names the file."""
    try:
        model.state.verify(state, num_events)
    except DsrdError as error:
        raise DsrdError(f"{path}: {error}") from error
    return dict(state)


@contextmanager
def checkpoint_faults(path: Path) -> Iterator[None]:
    """Turn errors about missing or misshapen parts of a checkpoint into one that names the file."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, OverflowError) as error:
        raise DsrdError(f"{path}: lacks something or does not fit ({reason(error)}); train again") from error


def reason(error: Exception) -> str:
    """The first line of an error of another library."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
