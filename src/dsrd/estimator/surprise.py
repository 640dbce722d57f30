"""How unexpected events are, in bits: minus the logarithm of the chance that the source turns to this target.

The scores of a source with every possible target, taken as logits of which one it is, give that chance:
p(v | u, t) = exp s(u, v, t) / sum over targets w of exp s(u, w, t). A score learned against uniformly random
targets is such a logit. The sum runs over the target itself, the source's latest partners, who hold most of it,
and a sample of all others that stands for the rest.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.data.growing import Arrival
from dsrd.estimator.online import RULES, OnlineModel
from dsrd.evaluate.protocol import arriving
from dsrd.evaluate.scoring import Progress, silent
from dsrd.events import NULL, Events, Query
from dsrd.history.past import Past
from dsrd.models import TemporalModel

PARTNERS = 30  # latest partners of the source that are counted exactly
SAMPLED = 100  # other targets that stand for the rest; with fewer targets than that, all are counted
RECENT = 200  # events that a percentile compares with
AT_ONCE = 20  # events scored in one call: each asks about more than a hundred pairs


def surprises(online: OnlineModel, arrival: Arrival, head: str = "", progress: Progress = silent) -> Tensor:
    """Bits of each of the events to come, knowing everything before it; the model stays as it is.  # [E]"""
    targets = online.targets(online.after_last)
    with online.ahead(arrival) as (model, past):
        return _walked(model, past, arrival.events, targets, head, progress)


def recent_surprises(online: OnlineModel, head: str = "", progress: Progress = silent) -> Tensor:
    """Bits of the latest events of the stream, each knowing what came before it.  # [up to RECENT]"""
    events = online.stream.dataset().events
    start = max(0, len(events) - RECENT)
    start = int(torch.searchsorted(events.time, events.time[start]))  # a timestamp is not cut in two
    targets = np.unique(events.dst[: max(start, 1)].numpy())
    past = online.past
    with online.set_aside() as model:
        model.state.reset()
        online.observe_rows(slice(0, start), progress)
        return _walked(model, past, events[start:], targets, head, progress)


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
def _walked(
    model: TemporalModel,
    past: Past,
    events: Events,
    targets: NDArray[np.int64],
    head: str,
    progress: Progress,
) -> Tensor:
    """Ask about every event before observing it, in pieces that end between timestamps."""
    bits = torch.empty(len(events))
    flushes = RULES.flushes(events, 200, exact=model.exact or model.stateless)
    sample = _sample(targets)
    for flush, arrived in arriving(events, events, flushes):
        now = past.during(arrived)
        for start in range(flush.start, flush.stop, AT_ONCE):
            rows = slice(start, min(start + AT_ONCE, flush.stop))
            bits[rows] = _bits(model, now, events[rows].query(), targets, sample, head)
        model.observe(arrived.to(model.device), past)
        progress("surprise", flush.stop, len(events))
    return bits


def _sample(targets: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(targets) <= SAMPLED:
        return targets
    return np.sort(np.random.default_rng(0).choice(targets, SAMPLED, replace=False))


def _bits(
    model: TemporalModel,
    past: Past,
    query: Query,
    targets: NDArray[np.int64],
    sample: NDArray[np.int64],
    head: str,
) -> Tensor:
    """-log2 p(target | source, time) of each pair.  # [B]"""
    counted = _counted_exactly(past, query, targets)  # [B, 1 + PARTNERS], the target first, NULL for nobody
    others = np.broadcast_to(sample, (len(query), len(sample)))
    others = np.where((others[:, :, None] == counted[:, None, :]).any(axis=2), NULL, others)  # [B, S]
    candidates = torch.from_numpy(np.concatenate([counted, others], axis=1))  # [B, C]
    there = candidates != NULL
    count = there.sum(dim=1)
    asked = Query(query.src.repeat_interleave(count), candidates[there], query.time.repeat_interleave(count))
    logit = torch.full(candidates.shape, -math.inf, dtype=torch.float64)
    logit[there] = model.score(asked.to(model.device), past, head).double().cpu()
    width = counted.shape[1]
    exact = np.isin(counted, targets).sum(axis=1)  # targets among those counted exactly
    rest, drawn = len(targets) - exact, (others != NULL).sum(axis=1)
    stands_for = torch.from_numpy(np.log(np.maximum(rest, 1) / np.maximum(drawn, 1)))  # of each sampled one
    logit[:, width:] += stands_for[:, None]
    nats = torch.logsumexp(logit, dim=1) - logit[:, 0]
    return (nats / math.log(2)).float()


def _counted_exactly(past: Past, query: Query, targets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The target, then the source's latest partners that are targets, each once.  # [B, 1 + PARTNERS]"""
    partner = past.recent(query.src, query.time, PARTNERS).node.cpu().numpy()
    listed = np.concatenate([query.dst.numpy()[:, None], partner], axis=1)
    order = np.argsort(listed, axis=1, kind="stable")
    ascending = np.take_along_axis(listed, order, axis=1)
    again = np.zeros(listed.shape, dtype=np.bool_)
    np.put_along_axis(again, order[:, 1:], ascending[:, 1:] == ascending[:, :-1], axis=1)
    keep = ~again & np.isin(listed, targets)
    keep[:, 0] = True  # the target counts, also if it never was one before
    return np.where(keep, listed, NULL)
