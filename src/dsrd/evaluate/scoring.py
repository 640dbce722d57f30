"""Scores of a model over evaluation passes, and the metrics of those scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dsrd.config import EvaluateConfig
from dsrd.data.dataset import digest_of
from dsrd.evaluate import metrics
from dsrd.evaluate.task import Pass, Task
from dsrd.events import NULL, Events, Query, as_tensor
from dsrd.history.past import Past
from dsrd.models import Snapshot, TemporalModel
from dsrd.negatives.sampling import NoNegativeError, candidates, draw_negatives
from dsrd.protocol import Protocol
from dsrd.reporter import step

HITS = (1, 3, 10)
COPIED_BYTES = 1 << 28  # a larger state is rebuilt from its events instead of being copied
AT_ONCE = 20_000  # pairs ranked in one call: a batch with hundreds of candidates per event is too large for one


@dataclass(frozen=True)
class PassQueries:
    """The queries of one pass: its events and their negatives."""

    pass_: Pass
    stream: Events  # what the state of an exact model observes along the way
    negatives: Mapping[str, Query]  # by strategy, one negative per event
    metric_batch: int  # events per batch that metrics average over
    ranked: Tensor | None  # [E, candidates] wrong targets, NULL where a row has fewer

    @property
    def digest(self) -> str:
        """A digest of the negatives and of the candidates that came with the data."""
        drawn = [part.numpy() for query in self.negatives.values() for part in (query.src, query.dst)]
        supplied = [] if self.pass_.candidates is None else [self.pass_.candidates.numpy()]
        return digest_of(*drawn, *supplied)


def draw(
    pass_: Pass, protocol: Protocol, config: EvaluateConfig, strategies: Sequence[str] | None = None
) -> PassQueries:
    """Draw the negatives of a pass as the protocol defines them.

    `strategies` replaces the kinds of negatives in `config`; candidates that came with the data are then left out.
    """
    metric_batch = protocol.metric_batch(config.batch_size)
    negatives: dict[str, Query] = {}
    for strategy in config.negatives if strategies is None else strategies:
        step(f"{pass_.name}: {strategy} negatives")
        negatives[strategy] = draw_negatives(
            strategy,  # type: ignore[arg-type]
            pass_.events,
            pass_.pool,
            seed=pass_.seed,
            last_observed=pass_.last_observed,
            batch_size=metric_batch,
            order=config.order,
        )
    ranked = pass_.candidates if strategies is None else None
    if ranked is None and config.candidates and len(pass_.events):
        ranked = candidates(pass_.events, pass_.pool, count=config.candidates, seed=pass_.seed)
    stream = pass_.stream if config.known == "all" else pass_.events
    return PassQueries(pass_, stream, negatives, metric_batch, ranked)


def draw_if_possible(pass_: Pass, protocol: Protocol, config: EvaluateConfig) -> PassQueries | None:
    """The queries of a pass; None if it has no events, or too few pairs to draw negatives from."""
    try:
        return draw(pass_, protocol, config) if len(pass_.events) else None
    except NoNegativeError:
        return None


@dataclass(frozen=True)
class Scores:
    """Probabilities of one pass: of its events, of their negatives and of the ranked wrong targets."""

    positive: Mapping[str, Tensor]  # by strategy [E]; equal unless the model differs by strategy
    negative: Mapping[str, Tensor]  # by strategy [E]
    ranked: Tensor | None  # [E, candidates] by the model of the first strategy; -inf where there is no candidate


@torch.no_grad()
def score_pass(
    model: TemporalModel,
    queries: PassQueries,
    past: Past,
    protocol: Protocol,
    batch_size: int,
    head: str = "",
) -> Scores:
    """Score a pass from the current state of the model, which observes the events as the protocol defines."""
    events = queries.pass_.events
    model.eval()
    views = {strategy: model.for_negatives(strategy, protocol.name) for strategy in queries.negatives}
    positive = {strategy: torch.empty(len(events)) for strategy in queries.negatives}
    negative = {strategy: torch.empty(len(events)) for strategy in queries.negatives}
    targets = queries.ranked if queries.ranked is not None and queries.ranked.shape[1] else None
    ranked = None if targets is None else torch.empty(targets.shape)
    flushes = protocol.flushes(events, batch_size, exact=model.exact or model.stateless)
    for flush, observed in arriving(events, queries.stream if model.exact else events, flushes):
        now = past.during(observed)
        for start in range(flush.start, flush.stop, batch_size):
            rows = slice(start, min(start + batch_size, flush.stop))
            true = events[rows].query()
            for view, strategies in _strategies_by_model(views):
                batch = [true, *(queries.negatives[strategy][rows] for strategy in strategies)]
                scores = probability(view, Query.cat(*batch), now, head).view(len(batch), -1)
                for strategy, of_negatives in zip(strategies, scores[1:], strict=True):
                    positive[strategy][rows], negative[strategy][rows] = scores[0], of_negatives
            if ranked is not None and targets is not None:
                # by the model that also scored the true pairs they are ranked against
                ranked[rows] = _score_candidates(next(iter(views.values())), true, targets[rows], now, head)
        model.observe(observed.to(model.device), past)
        step(f"{queries.pass_.name}: scoring", flush.stop, len(events))
    return Scores(positive, negative, ranked)


def arriving(events: Events, stream: Events, flushes: Iterable[slice]) -> Iterator[tuple[slice, Events]]:
    """Each piece of `events`, and what the state observes with it from the `stream` they belong to.

    Observed are all events of the stream before the last timestamp of the piece. At that timestamp only the
    events of the piece itself are observed.

    >>> stream = Events.from_numpy([1, 2, 3, 4, 5], [9] * 5, [0.0, 1.0, 1.0, 1.0, 2.0])
    >>> few = stream[as_tensor(np.array([2, 4]))]
    >>> [observed.src.tolist() for _, observed in arriving(few, stream, [slice(0, 1), slice(1, 2)])]
    [[1, 3], [2, 4, 5]]
    """
    order = np.argsort(stream.id.numpy(), kind="stable")
    stream_row = order[np.searchsorted(stream.id.numpy(), events.id.numpy(), sorter=order)]  # [E]
    unobserved, earlier_before = np.ones(len(stream), np.bool_), 0
    for flush in flushes:
        earlier = int(np.searchsorted(stream.time.numpy(), float(events.time[flush.stop - 1])))
        in_flush = stream_row[flush]
        missed = np.flatnonzero(unobserved[earlier_before:earlier]) + earlier_before
        rows = np.union1d(missed, in_flush[unobserved[in_flush]])
        unobserved[rows], earlier_before = False, earlier
        yield flush, stream[as_tensor(rows)]


def probability(model: TemporalModel, query: Query, past: Past, head: str = "") -> Tensor:
    """Sigmoid of the logits in float32: the published metrics rank these values, including their ties.  # [Q]"""
    return torch.sigmoid(model.score(query.to(model.device), past, head).float()).cpu()


def _strategies_by_model(views: Mapping[str, TemporalModel]) -> list[tuple[TemporalModel, list[str]]]:
    """Strategies with the same model are scored in one call, the true pairs once."""
    groups: dict[int, tuple[TemporalModel, list[str]]] = {}
    for strategy, view in views.items():
        groups.setdefault(id(view), (view, []))[1].append(strategy)
    return list(groups.values())


def _score_candidates(model: TemporalModel, true: Query, targets: Tensor, past: Past, head: str) -> Tensor:
    """Scores of each source with every candidate target.  # [B], [B, candidates] -> [B, candidates]"""
    valid = targets != NULL
    count = valid.sum(dim=1)
    query = Query(true.src.repeat_interleave(count), targets[valid], true.time.repeat_interleave(count))
    scores = torch.full(targets.shape, -torch.inf)
    pieces = [slice(start, start + AT_ONCE) for start in range(0, len(query), AT_ONCE)]
    if pieces:
        scores[valid] = torch.cat([probability(model, query[piece], past, head) for piece in pieces])
    return scores


def measure(queries: PassQueries, scores: Scores) -> dict[str, Any]:
    """AP and AUC in percent by strategy, as batch mean and over the whole split; ranking metrics if requested."""
    results: dict[str, Any] = {}
    for strategy in queries.negatives:
        positive, negative = scores.positive[strategy].numpy(), scores.negative[strategy].numpy()
        ap, auc = metrics.batch_means(positive, negative, queries.metric_batch)
        ap_split, auc_split = metrics.over_split(positive, negative)
        values = {"ap": ap, "auc": auc, "ap_split": ap_split, "auc_split": auc_split}
        results[strategy] = {name: round(100 * value, 4) for name, value in values.items()}
    if scores.ranked is not None:
        first = next(iter(queries.negatives))
        rank = metrics.ranks(scores.positive[first].numpy(), scores.ranked.numpy())
        results["ranking"] = {
            "candidates": scores.ranked.shape[1],
            "mrr": round(100 * metrics.mrr(rank), 4),
            **{f"hits@{k}": round(100 * metrics.hits(rank, k), 4) for k in HITS},
        }
    return results


Results = dict[str, dict[str, Any]]
"""Metrics by part (`val`, `test`) and setting (`transductive`, `inductive`)."""


def evaluate(
    model: TemporalModel,
    task: Task,
    protocol: Protocol,
    config: EvaluateConfig,
    trained: Snapshot | None = None,
    *,
    heads: Sequence[str] = ("",),
    parts: Sequence[str] = ("test",),
) -> tuple[dict[str, Results], dict[str, str]]:
    """Run the passes of these parts: metrics by head, part and setting; digests of the negatives by pass.

    `trained` is the state right after training; a model whose state follows from events alone needs none. The
    model is left in that state.
    """
    results: dict[str, Results] = {head: {part: {} for part in parts} for head in heads}
    digests: dict[str, str] = {}
    past = task.full_past.to(model.device)
    for start in ("train", "val"):
        start_state = _StartState(model, task, protocol, config, trained, start)
        for pass_ in task.passes.values():
            if pass_.part not in parts or pass_.start != start:
                continue
            queries = draw_if_possible(pass_, protocol, config)
            digests |= {} if queries is None else {pass_.name: queries.digest}
            for head in heads:
                results[head][pass_.part][pass_.setting] = {}
                if queries is not None:
                    start_state.restore()
                    scores = score_pass(model, queries, past, protocol, config.batch_size, head)
                    results[head][pass_.part][pass_.setting] = measure(queries, scores)
    to_end_of_training(model, task, protocol, trained)
    return results, digests


@dataclass
class _StartState:
    """The state from which the passes after training, or after validation, start."""

    model: TemporalModel
    task: Task
    protocol: Protocol
    config: EvaluateConfig
    trained: Snapshot | None
    start: str
    kept: Snapshot | None = None

    def restore(self) -> None:
        """Put the model into this state. The state is built once and copied. A large one that follows from events
        alone is rebuilt every time, because two copies may not fit into memory."""
        state = self.model.state
        if self.kept is not None:
            state.restore(self.kept)
            return
        to_start(self.model, self.task, self.protocol, self.config, self.trained, self.start)
        if not self.model.state_from_events or state.nbytes() < COPIED_BYTES:
            self.kept = state.snapshot()


def to_start(
    model: TemporalModel,
    task: Task,
    protocol: Protocol,
    config: EvaluateConfig,
    trained: Snapshot | None,
    start: str,
) -> None:
    """Put the model into the state in which a pass starts: after training, or after validation."""
    if observes_all(model, config):
        catch_up(model, task, protocol, config)
    else:
        to_end_of_training(model, task, protocol, trained)
    if start == "val":
        past = task.full_past.to(model.device)
        observe_all(model, task.split.val, past, protocol, config.batch_size)


def to_end_of_training(
    model: TemporalModel, task: Task, protocol: Protocol, trained: Snapshot | None, batch_size: int = 200
) -> None:
    """Put the model into its state right after training: from a snapshot, or by observing the training events."""
    if trained is not None:
        model.state.restore(trained)
    else:
        assert model.state_from_events, "a state that depends on weights needs a snapshot"
        model.state.reset()
        observe_all(model, task.split.train, task.train_past.to(model.device), protocol.lagging(), batch_size)


def observes_all(model: TemporalModel, config: EvaluateConfig) -> bool:
    """Whether the state observes events of withheld nodes too, as neighbour look-ups do."""
    return model.exact and config.known == "all"


def catch_up(model: TemporalModel, task: Task, protocol: Protocol, config: EvaluateConfig) -> None:
    """Let an exact model observe every event before validation: training left out those of withheld nodes."""
    if observes_all(model, config):
        model.eval()
        model.state.reset()
        before = task.split.full[: len(task.split.full) - len(task.split.val) - len(task.split.test)]
        observe_all(model, before, task.full_past.to(model.device), protocol, config.batch_size)


@torch.no_grad()
def observe_all(model: TemporalModel, events: Events, past: Past, protocol: Protocol, batch_size: int) -> None:
    """Observe events in the same pieces as a pass over them."""
    for flush in protocol.flushes(events, batch_size, exact=model.exact or model.stateless):
        model.observe(events[flush].to(model.device), past)
        step("observing", flush.stop, len(events))
