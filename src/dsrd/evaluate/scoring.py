"""Scores of a model over evaluation passes, and the metrics of those scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dsrd import faults
from dsrd.config import EvaluateConfig
from dsrd.errors import DsrdError
from dsrd.evaluate import metrics
from dsrd.evaluate.pass_queries import PassQueries, draw_if_possible
from dsrd.evaluate.readings import HEADS_OF_LAW, LAW, NegativesLaw, likelihood_ratio
from dsrd.evaluate.task import Task
from dsrd.events import NULL, Events, Query, as_tensor
from dsrd.history.past import Past
from dsrd.models import Snapshot, TemporalModel
from dsrd.processes import ALONE, Processes
from dsrd.protocol import Protocol
from dsrd.reporter import step

HITS = (1, 3, 10)
COPIED_BYTES = 1 << 28  # a larger state is rebuilt from its events instead of being copied
MANY = 64  # candidates of an event from which on a model that can reads each source once for all of them
AT_ONCE = 20_000  # pairs ranked in one call: a batch with hundreds of candidates per event is too large for one


@dataclass(frozen=True)
class Scores:
    """Scores of one pass: of its events, of their negatives and of the ranked wrong targets."""

    positive: Mapping[str, Tensor]  # by strategy [E]; equal unless the model differs by strategy
    negative: Mapping[str, Tensor]  # by strategy [E]
    ranked: Tensor | None  # [R, candidates] by the model of the first strategy; -inf where there is no candidate

    def probabilities(self) -> Scores:
        """Sigmoids of logits in float32: the published metrics rank these values, including their ties."""
        positive = {strategy: torch.sigmoid(logits) for strategy, logits in self.positive.items()}
        negative = {strategy: torch.sigmoid(logits) for strategy, logits in self.negative.items()}
        if self.ranked is None:
            return Scores(positive, negative, ranked=None)
        return Scores(positive, negative, torch.where(self.ranked.isneginf(), self.ranked, self.ranked.sigmoid()))


@torch.no_grad()
def score_pass(
    model: TemporalModel,
    queries: PassQueries,
    past: Past,
    protocol: Protocol,
    batch_size: int,
    head: str = "",
    processes: Processes = ALONE,
) -> Scores:
    """Logits of a pass from the current state of the model, which observes the events as the protocol defines.

    Of several `processes`, each scores a share of every batch, and all get all scores.
    """
    events = queries.pass_.events
    model.eval()
    views = {strategy: model.for_negatives(strategy, protocol.name) for strategy in queries.negatives}
    positive = {strategy: torch.zeros(len(events)) for strategy in queries.negatives}
    negative = {strategy: torch.zeros(len(events)) for strategy in queries.negatives}
    targets = queries.ranked if queries.ranked is not None and queries.ranked.shape[1] else None
    ranked = None if targets is None else torch.zeros(targets.shape)
    ranked_rows = torch.arange(len(events)) if queries.ranked_rows is None else queries.ranked_rows
    for rows, now in scored_batches(model, queries.pass_.name, events, queries.stream, past, protocol, batch_size):
        true = events[rows].query()
        for view, strategies in _strategies_by_model(views):
            batch = [true, *(queries.negatives[strategy][rows] for strategy in strategies)]
            query = Query.cat(*batch)
            own, logits = processes.share(len(query)), torch.zeros(len(query))
            logits[own] = logits_of(view, query[own], now, head)
            scores = logits.view(len(batch), -1)
            for strategy, of_negatives in zip(strategies, scores[1:], strict=True):
                positive[strategy][rows], negative[strategy][rows] = scores[0], of_negatives
        if ranked is not None and targets is not None:
            # by the model that also scored the true pairs they are ranked against
            view = next(iter(views.values()))
            first, stop = np.searchsorted(ranked_rows.numpy(), [rows.start, rows.stop]).tolist()
            own = processes.share(stop - first)
            own_ranked = slice(first + own.start, first + own.stop)
            true = events[ranked_rows[own_ranked]].query()
            ranked[own_ranked] = score_candidates(view, true, targets[own_ranked], now, head)
    for shares in (*positive.values(), *negative.values(), *([] if ranked is None else [ranked])):
        processes.sum_(shares)  # a share is zero where another process has the scores
    return Scores(positive, negative, ranked)


def scored_batches(
    model: TemporalModel,
    name: str,
    events: Events,
    stream: Events,
    past: Past,
    protocol: Protocol,
    batch_size: int,
) -> Iterator[tuple[slice, Past]]:
    """Rows of `events` to score next, and the past to score them with; the model observes what has been scored.

    An exact model observes all events of `stream` on the way.
    """
    flushes = protocol.flushes(events, batch_size, exact=model.exact or model.stateless)
    for flush, observed in arriving(events, stream if model.exact else events, flushes):
        now = past.during(observed)
        for start in range(flush.start, flush.stop, batch_size):
            yield slice(start, min(start + batch_size, flush.stop)), now
        model.observe(observed.to(model.device), past)
        step(f"{name}: scoring", flush.stop, len(events))


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
    """Sigmoid of the logits in float32.  # [Q]"""
    return torch.sigmoid(logits_of(model, query, past, head))


def logits_of(model: TemporalModel, query: Query, past: Past, head: str = "") -> Tensor:
    """The scores of a head in float32, in main memory.  # [Q]"""
    return model.score(query.to(model.device), past, head).float().cpu()


def _strategies_by_model(views: Mapping[str, TemporalModel]) -> list[tuple[TemporalModel, list[str]]]:
    """Strategies with the same model are scored in one call, the true pairs once."""
    groups: dict[int, tuple[TemporalModel, list[str]]] = {}
    for strategy, view in views.items():
        groups.setdefault(id(view), (view, []))[1].append(strategy)
    return list(groups.values())


def score_candidates(model: TemporalModel, true: Query, targets: Tensor, past: Past, head: str) -> Tensor:
    """Scores of each source with every candidate target.  # [B], [B, candidates] -> [B, candidates]"""
    valid = targets != NULL
    if model.shares_source and targets.shape[1] >= MANY:
        return _score_by_source(model, true, targets, past, head)
    count = valid.sum(dim=1)
    query = Query(true.src.repeat_interleave(count), targets[valid], true.time.repeat_interleave(count))
    scores = torch.full(targets.shape, -torch.inf)
    pieces = [slice(start, start + AT_ONCE) for start in range(0, len(query), AT_ONCE)]
    if pieces:
        logits = torch.cat([logits_of(model, query[piece], past, head) for piece in pieces])
        scores[valid] = logits.clamp(min=torch.finfo(torch.float32).min)  # -inf says that there is no candidate
    return scores


def _score_by_source(model: TemporalModel, true: Query, targets: Tensor, past: Past, head: str) -> Tensor:
    """The same, one source after the other."""
    scores = torch.full(targets.shape, -torch.inf)
    for row, (source, time) in enumerate(zip(true.src.tolist(), true.time.tolist(), strict=True)):
        valid = targets[row] != NULL
        logits = model.score_many(source, targets[row][valid], time, past, head)
        scores[row, valid] = logits.clamp(min=torch.finfo(torch.float32).min)
    return scores


def measure(queries: PassQueries, scores: Scores) -> dict[str, Any]:
    """AP and AUC in percent by strategy, as batch mean and over the whole split; ranking metrics if requested."""
    results: dict[str, Any] = {}
    for strategy in queries.negatives:
        positive, negative = scores.positive[strategy].numpy(), scores.negative[strategy].numpy()
        results[strategy] = column(positive, negative, queries.metric_batch)
    if scores.ranked is not None:
        first = next(iter(queries.negatives))
        rows = slice(None) if queries.ranked_rows is None else queries.ranked_rows
        rank = metrics.ranks(scores.positive[first][rows].numpy(), scores.ranked.numpy())
        results["ranking"] = {"candidates": scores.ranked.shape[1], **ranking(rank)}
        results["ranking"] |= {} if queries.ranked_rows is None else {"events": len(rank)}
    return results


def column(positive: metrics.Floats, negative: metrics.Floats, metric_batch: int) -> dict[str, float]:
    """AP and AUC in percent of events and their negatives [E], as batch mean and over the whole split."""
    ap, auc = metrics.batch_means(positive, negative, metric_batch)
    ap_split, auc_split = metrics.over_split(positive, negative)
    values = {"ap": ap, "auc": auc, "ap_split": ap_split, "auc_split": auc_split}
    return {name: round(100 * value, 4) for name, value in values.items()}


def ranking(rank: metrics.Floats) -> dict[str, float]:
    """MRR and Hits@k in percent."""
    hits = {f"hits@{k}": round(100 * metrics.hits(rank, k), 4) for k in HITS}
    return {"mrr": round(100 * metrics.mrr(rank), 4), **hits}


def by_law(queries: PassQueries, scores: Mapping[str, Scores]) -> Scores:
    """The logits of the heads, by name, as likelihood ratios against the law of each kind of negatives.

    Without the ranking: its candidates keep the source, and the head `partner` ranks them already.
    """
    law = NegativesLaw(queries.pass_, queries.metric_batch)
    positive: dict[str, Tensor] = {}
    negative: dict[str, Tensor] = {}
    for strategy, wrong in queries.negatives.items():
        head = scores[HEADS_OF_LAW[strategy]]
        true = law.log_probability(strategy, queries.pass_.events.query())
        positive[strategy] = likelihood_ratio(head.positive[strategy], true)
        negative[strategy] = likelihood_ratio(head.negative[strategy], law.log_probability(strategy, wrong))
    return Scores(positive, negative, ranked=None)


def measured_heads(model: TemporalModel, config: EvaluateConfig) -> tuple[str, ...]:
    """The heads to measure: the one in `config`, or all; an error if the model cannot be read as `config` says."""
    if config.reading == LAW and not model.has_intensity:
        raise DsrdError(f"evaluate.reading=law: {type(model).__name__} has no intensity; leave it at plain")
    if config.reading == LAW and config.head:
        raise DsrdError(f"evaluate.head={config.head}: evaluate.reading=law needs all; leave one of the two out")
    return (model.head_called(config.head),) if config.head else model.heads


def labels_of(model: TemporalModel, heads: Sequence[str], config: EvaluateConfig) -> tuple[str, ...]:
    """The names that results are kept under: the heads, and `law` where it can be read; the main one first."""
    if not (model.has_intensity and set(HEADS_OF_LAW.values()) <= set(heads)):
        return tuple(heads)
    return (LAW, *heads) if config.reading == LAW else (*heads, LAW)


def measure_heads(
    model: TemporalModel,
    queries: PassQueries,
    past: Past,
    protocol: Protocol,
    config: EvaluateConfig,
    heads: Sequence[str],
    restore: Callable[[], None],
) -> dict[str, dict[str, Any]]:
    """Metrics of a pass by label (see `labels_of`); `restore` puts the model into the state it starts from."""
    scores: dict[str, Scores] = {}
    for head in heads:
        restore()
        # an intensity differs from its partner factor by a constant for each source and time: it ranks alike
        ranked_already = model.has_intensity and head != heads[0]
        asked = replace(queries, ranked=None) if ranked_already else queries
        scores[head] = score_pass(model, asked, past, protocol, config.batch_size, head)
    labels = labels_of(model, heads, config)
    read = {label: by_law(queries, scores) if label == LAW else scores[label].probabilities() for label in labels}
    return {label: measure(queries, values) for label, values in read.items()}


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
    """Run the passes of these parts: metrics by label, part and setting; digests of the negatives by pass.

    The labels are the heads, and `law` where the model's intensity can be read against the law of the negatives.
    `trained` is the state right after training; a model whose state follows from events alone needs none. The
    model is left in that state.
    """
    labels = labels_of(model, heads, config)
    results: dict[str, Results] = {label: {part: {} for part in parts} for label in labels}
    digests: dict[str, str] = {}
    past = task.full_past.to(model.device)
    for start in ("train", "val"):
        start_state = StartState(model, task, protocol, config, trained, start)
        for pass_ in task.passes.values():
            if pass_.part not in parts or pass_.start != start:
                continue
            queries = draw_if_possible(pass_, protocol, config)
            measured: dict[str, dict[str, Any]] = {}
            if queries is not None:
                digests[pass_.name] = queries.digest
                measured = measure_heads(model, queries, past, protocol, config, heads, start_state.restore)
            for label in labels:
                results[label][pass_.part][pass_.setting] = measured.get(label, {})
    to_end_of_training(model, task, protocol, trained)
    return results, digests


@dataclass
class StartState:
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
        faults.point("observing")
        model.observe(events[flush].to(model.device), past)
        step("observing", flush.stop, len(events))
