"""Small stand-ins for the data of the Temporal Graph Benchmark: as py-tgb loads them, and a copy of wikipedia."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

USERS, PAGES, EVENTS = 12, 9, 400


class Sampler:
    """Like py-tgb's sampler: negatives by event, once they are loaded."""

    def __init__(self) -> None:
        self.eval_set: dict[str, Any] = {}

    def query_batch(
        self, pos_src: Any, pos_dst: Any, pos_timestamp: Any, edge_type: Any = None, split_mode: str = "test"
    ) -> list[list[int]]:
        events = zip(pos_src, pos_dst, pos_timestamp, strict=True)
        return [[int(target) for target in self.eval_set[split_mode][event]] for event in events]


def tgb_like(loaded: bool = True, seed: int = 0) -> SimpleNamespace:
    """A small data set with the attributes of a LinkPropPredDataset: two kinds of nodes, many equal times."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, USERS, EVENTS)
    dst = USERS + (src + rng.integers(0, 3, EVENTS)) % PAGES
    time = np.sort(rng.integers(0, 200, EVENTS))
    first, second = np.quantile(time, [0.7, 0.85])
    data = {
        "sources": src,
        "destinations": dst,
        "timestamps": time,
        "edge_idxs": np.arange(EVENTS),
        "edge_feat": rng.normal(size=(EVENTS, 3)),
        "w": np.ones(EVENTS),
        "edge_label": np.ones(EVENTS),
    }
    masks = {"train": time <= first, "val": (time > first) & (time <= second), "test": time > second}
    sampler = Sampler()
    for part in ("val", "test") if loaded else ():
        sampler.eval_set[part] = {
            (u, v, t): np.setdiff1d(np.arange(USERS, USERS + PAGES), dst[(src == u) & (time == t)]).astype(float)
            for u, v, t in zip(*(column[masks[part]] for column in (src, dst, time)), strict=True)
        }
    return SimpleNamespace(
        name="tgbl-tiny",
        full_data=data,
        negative_sampler=sampler,
        node_feat=None,
        **{f"{part}_mask": mask for part, mask in masks.items()},
    )


def small_wikipedia(folder: Path) -> Path:
    """A folder with a short stream under the name of the copy that `tgb:wiki` is made from."""
    rng = np.random.default_rng(0)
    user, page = rng.integers(0, 20, 400), rng.integers(0, 8, 400)
    rows = [f"{u},{v},{float(i)},0,0.5,{i % 3}" for i, (u, v) in enumerate(zip(user, page, strict=True))]
    head = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features"
    (folder / "wikipedia").mkdir(parents=True)
    (folder / "wikipedia" / "wikipedia.csv").write_text("\n".join([head, *rows]) + "\n")
    return folder
