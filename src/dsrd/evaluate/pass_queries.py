"""The queries of an evaluation pass: its events, their negatives, and the targets they are ranked among."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dsrd.config import EvaluateConfig
from dsrd.data.dataset import digest_of
from dsrd.data.own_split import Candidates, OtherTargets
from dsrd.evaluate.task import Pass
from dsrd.events import Events, Query
from dsrd.negatives.sampling import NoNegativeError, candidates, draw_negatives
from dsrd.protocol import Protocol
from dsrd.reporter import step


@dataclass(frozen=True)
class PassQueries:
    """The queries of one pass: its events and their negatives."""

    pass_: Pass
    stream: Events  # what the state of an exact model observes along the way
    negatives: Mapping[str, Query]  # by strategy, one negative per event
    metric_batch: int  # events per batch that metrics average over
    ranked: Candidates | None = None  # [R, candidates] wrong targets of the ranked events, NULL where fewer
    ranked_rows: Tensor | None = None  # [R] which events are ranked, ascending; None: all

    @property
    def digest(self) -> str:
        """A digest of the negatives and of the candidates that came with the data."""
        drawn = [part.numpy() for query in self.negatives.values() for part in (query.src, query.dst)]
        supplied = self.pass_.candidates
        if isinstance(supplied, OtherTargets):
            return digest_of(*drawn, *supplied.digested())
        return digest_of(*drawn, *([] if supplied is None else [supplied.numpy()]))


def draw(
    pass_: Pass, protocol: Protocol, config: EvaluateConfig, strategies: Sequence[str] | None = None
) -> PassQueries:
    """Draw the negatives of a pass as the protocol defines them, without kinds of which there are none.

    `strategies` replaces the kinds of negatives in `config`; candidates that came with the data are then left out.
    A `NoNegativeError` if no kind is left.
    """
    metric_batch = protocol.metric_batch(config.batch_size)
    kinds = config.negatives if strategies is None else strategies
    negatives: dict[str, Query] = {}
    for strategy in kinds:
        step(f"{pass_.name}: {strategy} negatives")
        try:
            negatives[strategy] = draw_negatives(
                strategy,  # type: ignore[arg-type]
                pass_.events,
                pass_.pool,
                seed=pass_.seed,
                last_observed=pass_.last_observed,
                batch_size=metric_batch,
                order=config.order,
            )
        except NoNegativeError:
            if strategy == kinds[-1] and not negatives:
                raise
    ranked = pass_.candidates if strategies is None else None
    if ranked is None and config.candidates and len(pass_.events):
        ranked = candidates(pass_.events, pass_.pool, count=config.candidates, seed=pass_.seed)
    stream = pass_.stream if config.known == "all" else pass_.events
    queries = PassQueries(pass_, stream, negatives, metric_batch)
    return queries if ranked is None else ranked_among(queries, ranked, config.ranked_events)


def ranked_among(queries: PassQueries, wrong: Candidates, num_ranked: int) -> PassQueries:
    """The same queries, with the targets of `num_ranked` events ranked too, evenly spaced; 0: of all events.

    `wrong` are the targets that each event of the pass is ranked among.  # [E, candidates]
    """
    num_events = len(queries.pass_.events)
    if not 0 < num_ranked < num_events:
        return replace(queries, ranked=wrong)
    rows = torch.arange(num_ranked) * num_events // num_ranked
    return replace(queries, ranked=wrong[rows], ranked_rows=rows)


def draw_if_possible(pass_: Pass, protocol: Protocol, config: EvaluateConfig) -> PassQueries | None:
    """The queries of a pass; None if it has no events, or events of new nodes with too few pairs for negatives."""
    try:
        return draw(pass_, protocol, config) if len(pass_.events) else None
    except NoNegativeError:
        if pass_.setting == "transductive":  # otherwise all results would be blank, without a reason
            raise
        return None
