"""Which directed pairs of a stream occurred when."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dsrd.events import Events, Query
from dsrd.negatives.pairs import Ids, PairIndex


class TrueEdges:
    """Which directed pairs occurred when.

    >>> truth = TrueEdges(Events.from_numpy([1, 2], [3, 3], [0.0, 5.0]))
    >>> query = Events.from_numpy([1, 1, 2], [3, 3, 3], [0.0, 5.0, 5.0]).query()
    >>> truth.at(query).tolist(), truth.before(query).tolist()
    ([True, False, True], [False, True, False])
    """

    def __init__(self, events: Events) -> None:
        time = events.time.numpy()
        self._index = PairIndex(events)
        self._first_time = time[np.flatnonzero(np.diff(self._index.distinct))]  # [pairs]
        self._times = time[np.diff(time, prepend=-np.inf) > 0]
        self._codes = self._code(self._index.ids, time)

    def at(self, query: Query) -> NDArray[np.bool_]:
        """Whether the pair occurs exactly at the time of the query, which must be a time of the stream."""
        ids = self._index.find(query.src.numpy(), query.dst.numpy())
        return (ids >= 0) & np.isin(self._code(ids, query.time.numpy()), self._codes)

    def before(self, query: Query) -> NDArray[np.bool_]:
        """Whether the pair occurred at any earlier time."""
        ids = self._index.find(query.src.numpy(), query.dst.numpy())
        return (ids >= 0) & (self._first_time[ids] < query.time.numpy())

    def _code(self, ids: Ids, time: NDArray[np.float64]) -> Ids:
        return ids * len(self._times) + np.searchsorted(self._times, time)
