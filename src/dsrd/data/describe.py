"""Summary statistics of a data set."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsrd.data.dataset import Dataset

MOST_LABELS = 20
QUANTILES = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "q99": 0.99, "max": 1.0}


def describe(dataset: Dataset) -> dict[str, Any]:
    """Counts, time range and repetition, as plain numbers for JSON.

    `repeat_ratio` is the share of events whose (source, target) pair occurred before; `bipartite` is whether no
    node is both a source and a target, whatever the data set declares.

    >>> data = Dataset.from_arrays("tiny", [1, 1, 2], [2, 2, 3], [0.0, 1.0, 4.0])
    >>> summary = describe(data)
    >>> summary["nodes"], summary["repeat_ratio"], summary["median_gap"], summary["bipartite"]
    (3, 0.3333333333333333, 2.0, False)
    """
    src, dst, time, _ = dataset.events.numpy()
    gaps = np.diff(time)
    out_events, in_events = (np.bincount(ends, minlength=dataset.num_nodes) for ends in (src, dst))
    active = out_events + in_events
    active = active[active > 0]
    pair = np.sort(src * dataset.num_nodes + dst)
    pairs = len(pair[:1]) + int((pair[1:] != pair[:-1]).sum())  # much faster than np.unique, which hashes
    return {
        "name": dataset.name,
        "nodes": len(active),
        "events": len(time),
        "sources": int((out_events > 0).sum()),
        "targets": int((in_events > 0).sum()),
        "pairs": pairs,
        "repeat_ratio": (len(time) - pairs) / len(time) if len(time) else None,
        "self_loops": int((src == dst).sum()),
        "bipartite": not ((out_events > 0) & (in_events > 0)).any(),
        "first_time": float(time[0]) if len(time) else None,
        "last_time": float(time[-1]) if len(time) else None,
        "span": float(time[-1] - time[0]) if len(time) else None,
        "timestamps": 1 + int((gaps > 0).sum()) if len(time) else 0,
        "median_gap": float(np.median(gaps)) if len(gaps) else None,
        "sorted": bool((gaps >= 0).all()),
        "edge_dim": dataset.edge_dim,
        "node_dim": dataset.node_dim,
        "labels": _label_counts(dataset),
        "events_per_node": {name: float(np.quantile(active, q)) for name, q in QUANTILES.items() if len(active)},
        "digest": dataset.digest,
        "notes": list(dataset.notes),
    }


def _label_counts(dataset: Dataset) -> dict[str, int] | None:
    """How often each label occurs; None without labels, or with too many distinct ones to be classes."""
    if dataset.label is None:
        return None
    values, counts = np.unique(dataset.label.numpy(), return_counts=True)
    if len(values) > MOST_LABELS:
        return None
    return {f"{value:g}": int(count) for value, count in zip(values, counts, strict=True)}
