"""The evaluation passes as a table: which events are scored, from which state, against which negatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from dsrd.data.split import Split
from dsrd.events import Events

Setting = Literal["transductive", "inductive"]


@dataclass(frozen=True)
class Pass:
    """One run through events: what is scored, from which state, against which negatives."""

    name: str
    part: Literal["val", "test"]
    setting: Setting
    events: Events
    stream: Events  # all events of the same period, including `events`
    pool: Events  # the events whose nodes and pairs become negatives
    seed: int  # of the negatives
    last_observed: float  # pairs up to this time are not inductive negatives
    start: Literal["train", "val"]  # it starts from the state after training, or after validation
    candidates: Tensor | None = None  # [E, m] wrong targets that came with the data, NULL where a row has fewer


def passes(split: Split) -> list[Pass]:
    """The four evaluation passes of the published protocol."""
    trained, validated = float(split.train.time[-1]), float(split.val.time[-1])
    return [
        Pass("val", "val", "transductive", split.val, split.val, split.full, 0, trained, "train"),
        Pass("val/new", "val", "inductive", split.val_new, split.val, split.val_new, 1, trained, "train"),
        Pass("test", "test", "transductive", split.test, split.test, split.full, 2, validated, "val"),
        Pass("test/new", "test", "inductive", split.test_new, split.test, split.test_new, 3, validated, "val"),
    ]
