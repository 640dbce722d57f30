"""How surprising pairs are, in bits: minus log2 of their probability, read from the scores of a model.

A model with an intensity has two factors, log(S p(u | t)) and log(D p(v | u, t)), for S sources and D targets of
training. Both are learned by noise-contrastive estimation, which makes them normalised by themselves: no sum over
all nodes is needed.

Of any other model, the scores of a source with all possible targets are the logits of its choice:
p(v | u, t) = exp s(u, v, t) / sum over targets w of exp s(u, w, t). The sum covers the target itself, the latest
partners of the source, which make up most of it, and a weighted sample of all other targets.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dsrd.events import NULL, Query
from dsrd.history.past import Past
from dsrd.models import TemporalModel
from dsrd.models.base import with_null_partner
from dsrd.nn.distinct import distinct

Ids = NDArray[np.int64]

PARTNERS = 30  # latest partners of the source that enter the sum exactly
SAMPLED = 100  # other targets in the sample; with fewer targets than that, the sum is exact
SCORED_AT_ONCE = 2_600  # pairs: a source with all targets in its sum takes over a hundred


class BitsReader:
    """Reads the score and the bits of pairs from a model.

    `targets` gives the targets that a source chooses among at a time; all pairs of one call have the same ones.
    """

    def __init__(self, targets: Callable[[float], Ids], head: str) -> None:
        self._targets, self._head = targets, head

    def __call__(self, model: TemporalModel, query: Query, past: Past) -> Tensor:
        """The score by the head, bits of the source (0 without an intensity), bits of the partner.  # [Q, 3]"""
        if model.has_intensity:
            factors = read_factors(model, query, past)  # [Q, 2]
            return torch.cat([head_score(factors, self._head)[:, None], factor_bits(model, factors)], dim=1)
        targets = self._targets(float(query.time[0]))
        score, partner_bits = _chosen_among(model, query, past, targets, self._head)
        return torch.stack([score, torch.zeros_like(score), partner_bits], dim=1)


def read_factors(model: TemporalModel, query: Query, past: Past, head: str = "partner") -> Tensor:
    """log(S p(source | t)) and log(D p(target | source, t)); without an intensity 0 and the score.  # [Q, 2]"""
    query = query.to(model.device)
    if not model.has_intensity:
        score = model.score(query, past, head)
        return torch.stack([torch.zeros_like(score), score], dim=1).double().cpu()
    src, time, where = distinct(query.src, query.time)
    activity = model.activity(with_null_partner(src, time), past)[where]
    return torch.stack([activity, model.score(query, past, "partner")], dim=1).double().cpu()


def head_score(factors: Tensor, head: str) -> Tensor:
    """The score by a head: the head `pair` is the sum of both factors.  # [Q, 2] -> [Q]"""
    return factors.sum(dim=1) if head == "pair" else factors[:, 1]


def factor_bits(model: TemporalModel, factors: Tensor) -> Tensor:
    """Bits of the source and bits of the partner, at least 0: no probability is above 1.  # [Q, 2] -> [Q, 2]"""
    num_choices = [float(getattr(model, name)) for name in ("num_sources", "num_targets")]
    nats = torch.tensor(num_choices, dtype=torch.float64).log() - factors
    return nats.clamp(min=0) / math.log(2)


def choice_bits(model: TemporalModel, factors: Tensor, total: Tensor) -> Tensor:
    """Bits of the source, 0 without an intensity, and of its choice, given the log sum over all targets.

    # [Q, 2], [Q] -> [Q, 2]
    """
    partner_bits = (total - factors[:, 1]) / math.log(2)
    source_bits = factor_bits(model, factors)[:, 0] if model.has_intensity else torch.zeros_like(partner_bits)
    return torch.stack([source_bits, partner_bits], dim=1)


def _chosen_among(
    model: TemporalModel, query: Query, past: Past, targets: Ids, head: str
) -> tuple[Tensor, Tensor]:
    """The score of each pair and -log2 p(target | source, time).  # [B], [B]"""
    own = read_factors(model, query, past, head)[:, 1]  # [B]
    src, time, where = distinct(query.src, query.time)  # [G], [G], [B]
    exact = _latest_targets(past, src, time, targets)  # [G, PARTNERS]
    others = np.broadcast_to(_sample(targets), (len(src), min(len(targets), SAMPLED)))
    others = np.where((others[:, :, None] == exact[:, None, :]).any(axis=2), NULL, others)  # [G, S]
    candidates = torch.from_numpy(np.concatenate([exact, others], axis=1))  # [G, C]
    logit = _score_all(model, past, src, time, candidates, head)[where]  # [B, C]
    # the pair's own target enters the sum once, with its own score
    counted = (candidates[where] != NULL) & (candidates[where] != query.dst[:, None])
    logit = logit.masked_fill(~counted, -math.inf)
    exactly, sampled = counted[:, : exact.shape[1]].sum(dim=1), counted[:, exact.shape[1] :].sum(dim=1)  # [B]
    is_target = torch.from_numpy(np.isin(query.dst.numpy(), targets)).long()
    rest = len(targets) - is_target - exactly  # [B] targets that the sample represents
    logit[:, exact.shape[1] :] += (rest.clamp(min=1) / sampled.clamp(min=1)).log()[:, None]
    total = torch.logsumexp(torch.cat([own[:, None], logit], dim=1), dim=1)
    return own, (total - own) / math.log(2)


def _score_all(
    model: TemporalModel, past: Past, src: Tensor, time: Tensor, candidates: Tensor, head: str
) -> Tensor:
    """Scores of each source with each of its candidates.  # [G], [G], [G, C] -> [G, C]"""
    scores = torch.full(candidates.shape, -math.inf, dtype=torch.float64)
    valid = candidates != NULL
    count = valid.sum(dim=1)
    pairs = Query(src.repeat_interleave(count), candidates[valid], time.repeat_interleave(count))
    pieces = [slice(start, start + SCORED_AT_ONCE) for start in range(0, len(pairs), SCORED_AT_ONCE)]
    if pieces:
        scores[valid] = torch.cat([read_factors(model, pairs[piece], past, head)[:, 1] for piece in pieces])
    return scores


def _sample(targets: Ids) -> Ids:
    if len(targets) <= SAMPLED:
        return targets
    return np.sort(np.random.default_rng(0).choice(targets, SAMPLED, replace=False))


def _latest_targets(past: Past, src: Tensor, time: Tensor, targets: Ids) -> Ids:
    """The latest partners of each source that are targets, each once; NULL fills the rest.  # [G, PARTNERS]"""
    partner = past.recent(src, time, PARTNERS).node.cpu().numpy()
    order = np.argsort(partner, axis=1, kind="stable")
    ascending = np.take_along_axis(partner, order, axis=1)
    repeated = np.zeros(partner.shape, dtype=np.bool_)
    np.put_along_axis(repeated, order[:, 1:], ascending[:, 1:] == ascending[:, :-1], axis=1)
    return np.where(~repeated & np.isin(partner, targets), partner, NULL)
