"""Scores of a model over the passes of a protocol, and the metrics of those scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dsrd.config import EvaluateConfig
from dsrd.data.dataset import digest_of
from dsrd.evaluate import metrics
from dsrd.evaluate.protocol import Pass, Protocol, arriving
from dsrd.evaluate.task import Task
from dsrd.events import NULL, Events, Query
from dsrd.history.past import Past
from dsrd.models import Snapshot, TemporalModel
from dsrd.negatives.sampling import NoNegativeError, candidates, draw_negatives
from dsrd.reporter import Progress as Progress  # imported from here by what calls the evaluator
from dsrd.reporter import silent as silent

HITS = (1, 3, 10)
COPIED_BYTES = 1 << 28  # a larger state is made again from its events instead of being copied
AT_ONCE = 20_000  # pairs ranked in one call: hundreds of candidates for every event of a batch are too many


@dataclass(frozen=True)
class Drawn:
    """The negatives of one pass, by strategy, and the batches its metrics average over."""

    events: Pass
    meanwhile: Events  # what the state of an exact model takes in on the way
    against: Mapping[str, Query]  # one negative per event
    batch: int
    ranked: Tensor | None  # [E, candidates] wrong targets, NULL where a row has fewer

    @property
    def digest(self) -> str:
        drawn = [part.numpy() for query in self.against.values() for part in (query.src, query.dst)]
        brought = [] if self.events.candidates is None else [self.events.candidates.numpy()]
        return digest_of(*drawn, *brought)


def draw(
    each: Pass,
    rules: Protocol,
    config: EvaluateConfig,
    strategies: Sequence[str] | None = None,
    progress: Progress = silent,
) -> Drawn:
    """Draw a pass's negatives as the protocol wants them; if `strategies` are named, those and nothing else
    that came with the data.
    """
    batch = rules.metric_batch(config.batch_size)
    against: dict[str, Query] = {}
    for strategy in config.negatives if strategies is None else strategies:
        progress(f"{each.name}: {strategy} negatives", 0, 0)
        against[strategy] = draw_negatives(
            strategy,  # type: ignore[arg-type]
            each.events,
            each.pool,
            seed=each.seed,
            last_observed=each.last_observed,
            batch_size=batch,
            order=config.order,
        )
    ranked = each.candidates if strategies is None else None
    if ranked is None and config.candidates and len(each.events):
        ranked = candidates(each.events, each.pool, count=config.candidates, seed=each.seed)
    meanwhile = each.meanwhile if config.known == "all" else each.events
    return Drawn(each, meanwhile, against, batch, ranked)


@dataclass(frozen=True)
class Scores:
    """Probabilities of one pass: of what happened, of what did not, and of wrong targets."""

    positive: Mapping[str, Tensor]  # by strategy [E] (equal unless the model differs by strategy)
    negative: Mapping[str, Tensor]  # by strategy [E]
    ranked: Tensor | None  # [E, candidates] of the first strategy's model; -inf where there is no candidate


@torch.no_grad()
def score_pass(
    model: TemporalModel,
    drawn: Drawn,
    past: Past,
    rules: Protocol,
    batch_size: int,
    progress: Progress = silent,
    head: str = "",
) -> Scores:
    """Score a pass from the model's present state, observing its events as the protocol has them seen."""
    events = drawn.events.events
    model.eval()
    views = {strategy: model.for_negatives(strategy, rules.name) for strategy in drawn.against}
    width = 0 if drawn.ranked is None else drawn.ranked.shape[1]
    positive = {strategy: torch.empty(len(events)) for strategy in drawn.against}
    negative = {strategy: torch.empty(len(events)) for strategy in drawn.against}
    ranked = torch.empty(len(events), width) if width else None
    flushes = rules.flushes(events, batch_size, exact=model.exact or model.stateless)
    for flush, arrived in arriving(events, drawn.meanwhile if model.exact else events, flushes):
        now = past.during(arrived)
        for start in range(flush.start, flush.stop, batch_size):
            rows = slice(start, min(start + batch_size, flush.stop))
            true = events[rows].query()
            for view, strategies in _shared(views):
                queries = [true, *(drawn.against[strategy][rows] for strategy in strategies)]
                found = probability(view, Query.cat(*queries), now, head).view(len(queries), -1)
                for strategy, wrong in zip(strategies, found[1:], strict=True):
                    positive[strategy][rows], negative[strategy][rows] = found[0], wrong
            if ranked is not None and drawn.ranked is not None:
                # by the model whose scores of the true pairs they are ranked against
                ranked[rows] = _one_against_many(next(iter(views.values())), true, drawn.ranked[rows], now, head)
        model.observe(arrived.to(model.device), past)
        progress(f"{drawn.events.name}: scoring", flush.stop, len(events))
    return Scores(positive, negative, ranked)


def probability(model: TemporalModel, query: Query, past: Past, head: str = "") -> Tensor:
    """float32 sigmoid of the logits: the published metrics rank these, ties and all."""
    return torch.sigmoid(model.score(query.to(model.device), past, head).float()).cpu()


def _shared(views: Mapping[str, TemporalModel]) -> list[tuple[TemporalModel, list[str]]]:
    """Strategies that ask the same model are scored in one call, the true pairs once."""
    groups: dict[int, tuple[TemporalModel, list[str]]] = {}
    for strategy, view in views.items():
        groups.setdefault(id(view), (view, []))[1].append(strategy)
    return list(groups.values())


def _one_against_many(model: TemporalModel, true: Query, wrong: Tensor, past: Past, head: str) -> Tensor:
    there = wrong != NULL  # [B, candidates]
    count = there.sum(dim=1)
    query = Query(true.src.repeat_interleave(count), wrong[there], true.time.repeat_interleave(count))
    found = torch.full(wrong.shape, -torch.inf)
    pieces = [slice(start, start + AT_ONCE) for start in range(0, len(query), AT_ONCE)]
    if pieces:
        found[there] = torch.cat([probability(model, query[piece], past, head) for piece in pieces])
    return found


def measure(drawn: Drawn, scores: Scores) -> dict[str, Any]:
    """AP and AUC in percent by strategy, as batch mean and over the whole split; ranking metrics if asked for."""
    results: dict[str, Any] = {}
    for strategy in drawn.against:
        positive, negative = scores.positive[strategy].numpy(), scores.negative[strategy].numpy()
        ap, auc = metrics.batch_means(positive, negative, drawn.batch)
        ap_split, auc_split = metrics.over_split(positive, negative)
        named = {"ap": ap, "auc": auc, "ap_split": ap_split, "auc_split": auc_split}
        results[strategy] = {name: round(100 * value, 4) for name, value in named.items()}
    if scores.ranked is not None:
        first = next(iter(drawn.against))
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
    rules: Protocol,
    config: EvaluateConfig,
    trained: Snapshot | None = None,
    *,
    heads: Sequence[str] = ("",),
    parts: Sequence[str] = ("test",),
    progress: Progress = silent,
) -> tuple[dict[str, Results], dict[str, str]]:
    """Run the passes of these parts: metrics by head, part and setting; digests of the negatives.

    `trained` is the state right after training, in which the model is left; a model whose state follows from
    events alone needs none.
    """
    found: dict[str, Results] = {head: {part: {} for part in parts} for head in heads}
    digests: dict[str, str] = {}
    past = task.full_past.to(model.device)
    for start in ("train", "val"):
        begin = _Start(model, task, rules, config, trained, start, progress)
        for each in task.passes.values():
            if each.part not in parts or each.start != start:
                continue
            drawn = _drawn(each, rules, config, progress)
            digests |= {} if drawn is None else {each.name: drawn.digest}
            for head in heads:
                found[head][each.part][each.setting] = {}
                if drawn is not None:
                    begin.take_up()
                    scores = score_pass(model, drawn, past, rules, config.batch_size, progress, head)
                    found[head][each.part][each.setting] = measure(drawn, scores)
    to_end_of_training(model, task, rules, trained)
    return found, digests


@dataclass
class _Start:
    """The state that the passes after training, or after validation, begin with."""

    model: TemporalModel
    task: Task
    rules: Protocol
    config: EvaluateConfig
    trained: Snapshot | None
    start: str
    progress: Progress
    kept: Snapshot | None = None

    def take_up(self) -> None:
        """Bring the model into this state. It is made once and copied; a large one that events alone make is
        made again every time, because two of them may not fit into memory."""
        state = self.model.state
        if self.kept is not None:
            state.restore(self.kept)
            return
        self._make()
        if not self.model.state_from_events or state.nbytes() < COPIED_BYTES:
            self.kept = state.snapshot()

    def _make(self) -> None:
        if knows_all(self.model, self.config):
            catch_up(self.model, self.task, self.rules, self.config, self.progress)
        else:
            to_end_of_training(self.model, self.task, self.rules, self.trained)
        if self.start == "val":
            past = self.task.full_past.to(self.model.device)
            observe_all(self.model, self.task.split.val, past, self.rules, self.config.batch_size, self.progress)


def _drawn(each: Pass, rules: Protocol, config: EvaluateConfig, progress: Progress) -> Drawn | None:
    """A pass's negatives; None if it has no events, or so few that no other pair is left to draw."""
    try:
        return draw(each, rules, config, progress=progress) if len(each.events) else None
    except NoNegativeError:
        return None


def to_end_of_training(
    model: TemporalModel, task: Task, rules: Protocol, trained: Snapshot | None, batch_size: int = 200
) -> None:
    """Put the model into the state right after training, as it was kept or by observing the training events."""
    if trained is not None:
        model.state.restore(trained)
    else:
        assert model.state_from_events, "a state that depends on weights has to be kept"
        model.state.reset()
        observe_all(model, task.split.train, task.train_past.to(model.device), rules.lagging(), batch_size)


def knows_all(model: TemporalModel, config: EvaluateConfig) -> bool:
    """Whether the state takes in events of withheld nodes too, as neighbour look-ups do."""
    return model.exact and config.known == "all"


def catch_up(
    model: TemporalModel, task: Task, rules: Protocol, config: EvaluateConfig, progress: Progress = silent
) -> None:
    """Give an exact model the state of every event before validation: training withheld some nodes' events."""
    if knows_all(model, config):
        model.eval()
        model.state.reset()
        before = task.split.full[: len(task.split.full) - len(task.split.val) - len(task.split.test)]
        observe_all(model, before, task.full_past.to(model.device), rules, config.batch_size, progress)


@torch.no_grad()
def observe_all(
    model: TemporalModel,
    events: Events,
    past: Past,
    rules: Protocol,
    batch_size: int,
    progress: Progress = silent,
) -> None:
    """Take in events in the pieces a pass over them would use."""
    for flush in rules.flushes(events, batch_size, exact=model.exact or model.stateless):
        model.observe(events[flush].to(model.device), past)
        progress("observing", flush.stop, len(events))
