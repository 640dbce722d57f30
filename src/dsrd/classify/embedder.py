"""Embeddings of the nodes that a task asks about, computed while a model runs through the stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dsrd.classify.task import PARTS, NodeTask
from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.models import TemporalModel
from dsrd.nn.distinct import distinct
from dsrd.protocol import Protocol, aligned
from dsrd.reporter import step


@dataclass(frozen=True)
class NodeEmbedder:
    """Runs a model through a stream and embeds the node of each question at its time."""

    model: TemporalModel
    task: NodeTask
    past: Past  # of all events; it returns those before each question
    protocol: Protocol
    batch_size: int

    def batches(self, part: str, lags: bool = False) -> Iterator[tuple[slice, Past]]:
        """Batches of the questions of a part, each with the history it may read.

        The model observes the events between the batches. With `lags`, its state may miss the events just before
        a question. Nothing leaks, and a model whose state cannot be brought forward need not observe a stream of
        distinct times one event at a time.
        """
        model, start = self.model, self.task.rows[part].start
        events = self.task.dataset.events[self.task.rows[part]]
        exact = model.exact or model.stateless  # its embeddings use everything before a question, observed or not
        same_time = self.task.visible == "same-time"
        for piece in self._pieces(events, exact, lags):
            past = self.past.during(events[piece])
            if same_time and not exact:
                self._observe(events[piece])  # a piece is one timestamp, whose events are visible
                past = self.past
            questions = self.task.between(start + piece.start, start + piece.stop)
            for first in range(questions.start, questions.stop, self.batch_size):
                yield slice(first, min(first + self.batch_size, questions.stop)), past
            if exact or not same_time:
                self._observe(events[piece])

    def _pieces(self, events: Events, exact: bool, lags: bool) -> Iterator[slice]:
        if self.task.visible == "same-time":
            return aligned(events, self.batch_size if exact else 1)
        protocol = self.protocol.lagging() if lags else self.protocol
        return protocol.flushes(events, self.batch_size, exact)

    def _observe(self, events: Events) -> None:
        self.model.observe(events.to(self.model.device), self.past)
        self.model.state.detach_()

    def embed(self, questions: slice, past: Past) -> Tensor:
        """The embedding of the node of each question.  # [B, dim]"""
        columns = (self.task.node, self.task.partner, self.task.time)
        node, partner, time = (column[questions].to(self.model.device) for column in columns)
        if self.task.visible == "target":
            return self.model.embed_event(Query(node, partner, time), past).float()
        node, time, where = distinct(node, time)  # a source may have several events at the same time
        return self.model.embed(node, time, past)[where].float()

    @torch.no_grad()
    def dim(self) -> int:
        """The width of the embeddings; an error for a model without any."""
        return self.embed(slice(0, 1), self.past).shape[1]

    def embed_all(self) -> Tensor:
        """The embeddings of all questions, from an empty state.  # [n, dim]"""
        self.model.state.reset()
        return self.embed_parts(PARTS)

    @torch.no_grad()
    def embed_parts(self, parts: Sequence[str]) -> Tensor:
        """The embeddings of all questions of these parts, starting from the current state.  # [n, dim]"""
        self.model.eval()
        vectors = [torch.empty(0, 0)]
        for part in parts:
            for questions, past in self.batches(part):
                vectors.append(self.embed(questions, past).cpu())
                step("embedding", questions.stop, len(self.task.node))
        return torch.cat(vectors[1:] or vectors)
