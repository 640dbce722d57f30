"""Noise of a known law, for learning probabilities: sources and targets that did not act.

Noise-contrastive estimation tells events from noise. If noise with the log intensity `log n` is drawn beside each
event, the best logit is log p - log n: adding log n back gives log p itself. Two kinds are mixed for each factor:

    source    one uniform among the S training sources, one that of a uniformly chosen earlier event
              S n(u)    = 1 + S (earlier events of u) / (earlier events)
    target    one uniform among the D training targets, and for every second event, on average, an earlier partner
              of the source, uniform among these
              D n(v|u)  = 1 + D / 2 [u, v have met] / (partners that u has met)

"Earlier" means before the first timestamp of the batch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsrd.events import Events, Query, as_tensor
from dsrd.negatives.pairs import Ids, PairIndex, distinct_nodes

MET_SHARE = 0.5  # earlier partners drawn per event


class Noise:
    """The earlier sources and pairs of a training stream, to draw from and to count.

    >>> stream = Events.from_numpy([1, 2, 1, 2], [5, 5, 6, 6], [0, 1, 2, 3])
    >>> noise = Noise(stream)
    >>> noise.source_intensity(np.array([1, 2]), start=3).tolist()  # S n(u): u = 1 has two events of three
    [2.333333333333333, 1.6666666666666665]
    >>> noise.target_intensity(np.array([1, 2]), np.array([5, 6]), start=3).tolist()  # 2 and 6 have not met
    [1.5, 1.0]
    """

    def __init__(self, pool: Events) -> None:
        src, dst, time, _ = pool.numpy()
        self.sources, self.targets, self._src, self._time = distinct_nodes(src), distinct_nodes(dst), src, time
        self._index = index = PairIndex(pool)
        pair_src, self._pair_dst = index.pairs()
        self._by_source = np.argsort(pair_src, kind="stable")  # [pairs]: of one source by first meeting
        self._pair_key = pair_src[self._by_source] * (len(index) + 1) + self._by_source
        codes = pair_src << 32 | self._pair_dst
        self._code_order = np.argsort(codes)
        self._codes = codes[self._code_order]
        self._event_key = np.sort(src * (len(src) + 1) + np.arange(len(src)))

    def start(self, batch: Events) -> int:
        """The number of events before the first timestamp of the batch."""
        return int(np.searchsorted(self._time, float(batch.time[0])))

    def uniform_sources(self, count: int, rng: np.random.RandomState) -> Ids:
        """Sources of the stream, each alike."""
        return self.sources[rng.randint(0, len(self.sources), count)]

    def active_sources(self, count: int, start: int, rng: np.random.RandomState) -> Ids:
        """Sources of uniformly chosen earlier events; none if there are no earlier events."""
        return self._src[rng.randint(0, start, count)] if start else self._src[:0]

    def met_targets(self, src: Ids, start: int, rng: np.random.RandomState) -> Ids:
        """For each source one of the targets it has met, each alike; -1 if there is none."""
        first, count = self._met(src, start)
        chosen = first + (rng.random_sample(len(src)) * count).astype(np.int64)
        pair = self._by_source[np.minimum(chosen, len(self._by_source) - 1)]
        return np.where(count > 0, self._pair_dst[pair], -1)

    def source_intensity(self, src: Ids, start: int) -> NDArray[np.float64]:
        """S n(u) of each source."""
        if not start:
            return np.ones(len(src))
        width = len(self._src) + 1
        first, stop = (np.searchsorted(self._event_key, src * width + at) for at in (0, start))
        return np.asarray(1 + len(self.sources) * (stop - first) / start, np.float64)

    def target_intensity(self, src: Ids, dst: Ids, start: int, uniform: int = 1) -> NDArray[np.float64]:
        """D n(v | u) of each pair, with that many uniform targets per event."""
        at = np.minimum(np.searchsorted(self._codes, src << 32 | dst), len(self._codes) - 1)
        known = self._codes[at] == (src << 32 | dst)
        met = known & (self._code_order[at] < self._index.distinct[start])
        _, count = self._met(src, start)
        return np.asarray(uniform + MET_SHARE * len(self.targets) * met / np.maximum(count, 1), np.float64)

    def _met(self, src: Ids, start: int) -> tuple[Ids, Ids]:
        """Where the pairs of each source are in `_by_source`, and how many of them have met."""
        width, seen = len(self._index) + 1, self._index.distinct[start]
        first = np.searchsorted(self._pair_key, src * width)
        return first, np.searchsorted(self._pair_key, src * width + seen) - first


def with_times(src: Ids, dst: Ids, batch: Events) -> Query:
    """Pairs at times spread evenly over the batch."""
    rows = np.arange(len(src)) * len(batch) // max(len(src), 1)
    return Query(as_tensor(src), as_tensor(dst), batch.time[as_tensor(rows)])
