"""How surprising events are, in bits: minus log2 of the probability that the source chooses this target.

The scores of a source with all possible targets are the logits of that choice:
p(v | u, t) = exp s(u, v, t) / sum over targets w of exp s(u, w, t). A score trained against uniformly random
targets is such a logit. The sum covers the target itself, the latest partners of the source, which make up most of
it, and a weighted sample of all other targets.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.data.growing import Arrival
from dsrd.estimator.online import ONLINE, OnlineModel
from dsrd.evaluate.scoring import arriving
from dsrd.events import NULL, Events, Query
from dsrd.history.past import Past
from dsrd.models import TemporalModel
from dsrd.reporter import step

PARTNERS = 30  # latest partners of the source that enter the sum exactly
SAMPLED = 100  # other targets in the sample; with fewer targets than that, the sum is exact
RECENT = 200  # latest events that a percentile compares with
AT_ONCE = 20  # events scored in one call: each needs the scores of more than a hundred pairs


def surprises(online: OnlineModel, arrival: Arrival, head: str = "") -> Tensor:
    """Bits of each upcoming event given everything before it; the model does not change.  # [E]"""
    targets = online.targets(online.after_last)
    with online.with_upcoming(arrival) as (model, past):
        return _bits_of_events(model, past, arrival.events, targets, head)


def recent_surprises(online: OnlineModel, head: str = "") -> Tensor:
    """Bits of the latest events of the stream, each given what came before it.  # [up to RECENT]"""
    events = online.stream.dataset().events
    start = max(0, len(events) - RECENT)
    start = int(torch.searchsorted(events.time, events.time[start]))  # do not split a timestamp
    targets = np.unique(events.dst[: max(start, 1)].numpy())
    past = online.past
    with online.state_preserved() as model:
        model.state.reset()
        online.observe_rows(slice(0, start))
        return _bits_of_events(model, past, events[start:], targets, head)


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
    """Score every event before observing it, in pieces that end between timestamps.  # [E]"""
    bits = torch.empty(len(events))
    flushes = ONLINE.flushes(events, 200, exact=model.exact or model.stateless)
    sample = _sample(targets)
    for flush, observed in arriving(events, events, flushes):
        now = past.during(observed)
        for start in range(flush.start, flush.stop, AT_ONCE):
            rows = slice(start, min(start + AT_ONCE, flush.stop))
            bits[rows] = _bits(model, now, events[rows].query(), targets, sample, head)
        model.observe(observed.to(model.device), past)
        step("surprise", flush.stop, len(events))
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
    exact = _exact_targets(past, query, targets)  # [B, 1 + PARTNERS], the event's target first
    others = np.broadcast_to(sample, (len(query), len(sample)))
    others = np.where((others[:, :, None] == exact[:, None, :]).any(axis=2), NULL, others)  # [B, S]
    candidates = torch.from_numpy(np.concatenate([exact, others], axis=1))  # [B, C]
    valid = candidates != NULL
    count = valid.sum(dim=1)
    pairs = Query(query.src.repeat_interleave(count), candidates[valid], query.time.repeat_interleave(count))
    logit = torch.full(candidates.shape, -math.inf, dtype=torch.float64)
    logit[valid] = model.score(pairs.to(model.device), past, head).double().cpu()
    num_rest = len(targets) - np.isin(exact, targets).sum(axis=1)  # [B] targets that the sample represents
    num_sampled = (others != NULL).sum(axis=1)  # [B]
    weight = torch.from_numpy(np.log(np.maximum(num_rest, 1) / np.maximum(num_sampled, 1)))  # of each sampled one
    logit[:, exact.shape[1] :] += weight[:, None]
    nats = torch.logsumexp(logit, dim=1) - logit[:, 0]
    return (nats / math.log(2)).float()


def _exact_targets(past: Past, query: Query, targets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The target, then the latest partners of the source that are targets, each once; NULL fills the rest.
    # [B, 1 + PARTNERS]"""
    partner = past.recent(query.src, query.time, PARTNERS).node.cpu().numpy()
    listed = np.concatenate([query.dst.numpy()[:, None], partner], axis=1)
    order = np.argsort(listed, axis=1, kind="stable")
    ascending = np.take_along_axis(listed, order, axis=1)
    repeated = np.zeros(listed.shape, dtype=np.bool_)
    np.put_along_axis(repeated, order[:, 1:], ascending[:, 1:] == ascending[:, :-1], axis=1)
    keep = ~repeated & np.isin(listed, targets)
    keep[:, 0] = True  # the target belongs to the sum even if it was never a target before
    return np.where(keep, listed, NULL)
