"""Refuses a run that cannot fit in memory before it starts, with the setting that makes it fit.

Estimates are lower bounds of what is needed for certain: a run that is refused would have failed after hours, one
that passes may still be tight.
"""

from __future__ import annotations

import torch

from dsrd.config import RunConfig
from dsrd.errors import MachineError
from dsrd.evaluate.task import Pass, Task
from dsrd.machine import available_bytes
from dsrd.models import GraphSpec, TemporalModel, create, settings
from dsrd.negatives.pairs import PairIndex, distinct_nodes
from dsrd.negatives.python_set import MOST_PAIRS
from dsrd.negatives.sampling import num_candidates
from dsrd.train.build import build

PAIR_BYTES = 24
"""Per pair of a source and a target in the published order: its hash, its slots in two tables, its position."""
COPIES_OF_STATE = 2
"""The state, and the copy of the best epoch or of the pass before."""
COPIES_OF_WEIGHTS = 4
"""The weights, their gradients, and two averages of Adam."""
COPIES_OF_LINKS = 1
"""Tensors as wide as the model that a step keeps, at the very least, for every interaction it reads."""
FLOAT = 4  # bytes
CANDIDATE_BYTES = 8
WIDE = 2048
"""A model with a larger number among its settings is counted before it is built."""


def fitting_model(run: RunConfig, task: Task) -> TemporalModel:
    """The model of a run before it is trained; an error if it, its negatives or a step cannot fit in memory."""
    free = available_bytes()
    graph = GraphSpec(
        num_nodes=task.dataset.num_nodes,
        node_dim=task.dataset.node_dim,
        edge_dim=task.dataset.edge_dim,
        num_events=len(task.split.train),
    )
    if _is_wide(run, graph):
        _refuse_weights(run, _num_weights(run, graph), free)
    model = build(run, task.dataset, task.split.train)
    refuse_too_large(run, task, model)
    return model


def _is_wide(run: RunConfig, graph: GraphSpec) -> bool:
    config = settings(run.model, run.dataset, run.preset, run.model_args)
    numbers = [value for value in vars(config).values() if isinstance(value, int)]
    return max([graph.edge_dim, graph.node_dim, *numbers]) > WIDE


def _num_weights(run: RunConfig, graph: GraphSpec) -> int:
    """The number of weights, from a model without memory; 0 if the model cannot be built in that way."""
    config = settings(run.model, run.dataset, run.preset, run.model_args)
    try:
        with torch.device("meta"):
            return create(run.model, graph, config).num_parameters
    except Exception:  # then building it says what is wrong
        return 0


def refuse_too_large(run: RunConfig, task: Task, model: TemporalModel) -> None:
    """Raise an error if the negatives, the state or a training step of this run cannot fit in memory."""
    free = available_bytes()
    refuse_negatives(run, task)
    _refuse_state(task, model, free)
    _refuse_step(run, task, model, free)


def refuse_negatives(run: RunConfig, task: Task) -> None:
    """Raise an error if the negatives and candidates that a run is measured on cannot fit in memory.

    The published order lists all pairs of a source and a target, if too few pairs met before some batch.
    """
    free = available_bytes()
    events = max((len(pass_.events) for pass_ in task.passes.values()), default=0)
    listed = min(events, run.evaluate.ranked_events or events) * run.evaluate.candidates * CANDIDATE_BYTES
    if listed > free:
        raise MachineError(
            f"{task.dataset.name}: {run.evaluate.candidates:,} candidates of each event need "
            f"{_gigabytes(listed)}, of which {_gigabytes(free)} are free; lower evaluate.candidates or set "
            "evaluate.ranked_events"
        )
    if run.evaluate.order == "fast":
        return
    kinds = [kind for kind in run.evaluate.negatives if kind != "random"]
    for pass_ in task.passes.values():
        pairs = num_pairs(pass_)
        if pairs <= MOST_PAIRS and pairs * PAIR_BYTES <= free:
            continue
        for kind in kinds:
            if _lists_all_pairs(pass_, kind, run.evaluate.batch_size):
                raise MachineError(
                    f"{task.dataset.name}: {kind} negatives in the published order list all {pairs:,} pairs of a "
                    f"source and a target, {_gigabytes(pairs * PAIR_BYTES)}, of which {_gigabytes(free)} are "
                    "free; set evaluate.order=fast, which draws from the same pairs without listing them"
                )


def num_pairs(pass_: Pass) -> int:
    """The number of pairs of a source and a target among which a pass draws negatives."""
    src, dst, _, _ = pass_.pool.numpy()
    return len(distinct_nodes(src)) * len(distinct_nodes(dst))


def _lists_all_pairs(pass_: Pass, kind: str, batch_size: int) -> bool:
    """Whether some batch has more events than pairs that qualify, so that random pairs fill it up."""
    if not len(pass_.events):
        return False
    after = pass_.last_observed if kind == "inductive" else None
    counts = num_candidates(
        PairIndex(pass_.pool), pass_.events, pass_.pool, last_observed=after, batch_size=batch_size
    )
    sizes = [len(batch) for batch in pass_.events.batches(batch_size)]
    return any(int(count) < size for count, size in zip(counts, sizes, strict=True))


def _refuse_state(task: Task, model: TemporalModel, free: int) -> None:
    needed = COPIES_OF_STATE * model.state.bytes_per_node() * task.dataset.num_nodes
    if needed > free:
        raise MachineError(
            f"{task.dataset.name}: the state of {task.dataset.num_nodes - 1:,} nodes needs {_gigabytes(needed)}, "
            f"of which {_gigabytes(free)} are free; lower model.dim, or choose a model that keeps no state"
        )


def _refuse_weights(run: RunConfig, count: int, free: int) -> None:
    weights = COPIES_OF_WEIGHTS * FLOAT * count
    if weights > free:
        raise MachineError(
            f"{run.model}: {count:,} weights need {_gigabytes(weights)} to be trained, of which "
            f"{_gigabytes(free)} are free; lower model.dim"
        )


def _refuse_step(run: RunConfig, task: Task, model: TemporalModel, free: int) -> None:
    if not model.num_parameters:
        return
    _refuse_weights(run, model.num_parameters, free)
    batch_size = min(run.train.batch_size, len(task.split.train))
    endpoints = 4 * batch_size  # of events and of as many negatives
    width = int(getattr(model.config, "dim", 0)) or 1
    links = endpoints * model.links_read * width * FLOAT * COPIES_OF_LINKS
    if links > free:
        raise MachineError(
            f"{run.model}: a step over {batch_size:,} events reads {endpoints * model.links_read:,} "
            f"interactions, at least {_gigabytes(links)}, of which {_gigabytes(free)} are free; "
            f"lower train.batch_size{_fewer_links(model)}"
        )


def _fewer_links(model: TemporalModel) -> str:
    name = next((name for name in ("neighbors", "length") if hasattr(model.config, name)), None)
    return f" or model.{name}" if name else ""


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"
