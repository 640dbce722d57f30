"""How surprising events are, each given everything before it, and how that compares with recent events."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.data.growing import Arrival
from dsrd.estimator.bits import BitsReader
from dsrd.estimator.online import AT_ONCE, ONLINE, OnlineModel
from dsrd.evaluate.scoring import arriving
from dsrd.events import Events
from dsrd.history.past import Past
from dsrd.models import TemporalModel
from dsrd.reporter import step

RECENT = 200  # latest events that a percentile compares with


def surprises(online: OnlineModel, arrival: Arrival, head: str = "") -> Tensor:
    """Bits of the source and of the partner of each upcoming event; the model does not change.  # [E, 2]"""
    targets = online.targets(online.after_last)
    with online.with_upcoming(arrival) as (model, past):
        return _bits_of_events(model, past, arrival.events, targets, head)


def recent_surprises(online: OnlineModel, head: str = "") -> Tensor:
    """Bits, in total, of the latest events of the stream, each given what came before it.  # [up to RECENT]"""
    events = online.stream.dataset().events
    start = max(0, len(events) - RECENT)
    start = int(torch.searchsorted(events.time, events.time[start]))  # do not split a timestamp
    targets = np.unique(events.dst[: max(start, 1)].numpy())
    past = online.past
    with online.state_preserved() as model:
        model.state.reset()
        online.observe_rows(slice(0, start))
        return _bits_of_events(model, past, events[start:], targets, head).sum(dim=1)


def percentiles(bits: Tensor, recent: Tensor) -> NDArray[np.float64]:
    """The share of recent events that were less surprising, in percent; ties count half.  # [E], [R] -> [E]

    >>> percentiles(torch.tensor([3.0, 9.0]), torch.tensor([1.0, 2.0, 3.0, 4.0])).tolist()
    [62.5, 100.0]
    """
    below, upto = (
        torch.searchsorted(recent.sort().values, bits.contiguous(), right=right).double()
        for right in (False, True)
    )
    return (50 * (below + upto) / max(len(recent), 1)).numpy()


@torch.no_grad()
def _bits_of_events(
    model: TemporalModel, past: Past, events: Events, targets: NDArray[np.int64], head: str
) -> Tensor:
    """Read every event before observing it, in pieces that end between timestamps.  # [E, 2] float32"""
    bits = torch.empty(len(events), 2)
    read = BitsReader(lambda _: targets, head)
    flushes = ONLINE.flushes(events, 200, exact=model.exact or model.stateless)
    for flush, observed in arriving(events, events, flushes):
        now = past.during(observed)
        for start in range(flush.start, flush.stop, AT_ONCE):
            rows = slice(start, min(start + AT_ONCE, flush.stop))
            bits[rows] = read(model, events[rows].query(), now)[:, 1:].float()
        model.observe(observed.to(model.device), past)
        step("surprise", flush.stop, len(events))
    return bits
