"""Arrays and histories in mapped files."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
import torch

from dsrd import mapped
from dsrd.errors import MachineError
from dsrd.events import Events
from dsrd.history.live import Live


def test_what_was_released_comes_back() -> None:
    array = mapped.mapped_zeros((5_000, 100), np.int64)
    array[:] = np.arange(500_000).reshape(5_000, 100)
    mapped.release(array, np.arange(5_000) % 1_000 > 5)
    mapped.release(array)
    assert np.array_equal(array.reshape(-1), np.arange(500_000))
    larger = mapped.grown(array, 6_000)
    assert np.array_equal(larger[:5_000].reshape(-1), np.arange(500_000))
    assert not larger[5_000:].any()


@pytest.mark.parametrize("row_bytes", [100, mmap.PAGESIZE // 2, 3 * mmap.PAGESIZE])
def test_pages_rest_if_all_their_rows_do(row_bytes: int) -> None:
    resting = np.random.default_rng(0).random(700) < 0.98
    pages = {page for first, stop in mapped.resting_pages(resting, row_bytes) for page in range(first, stop)}
    for page in range(700 * row_bytes // mmap.PAGESIZE):
        first, stop = page * mmap.PAGESIZE // row_bytes, ((page + 1) * mmap.PAGESIZE - 1) // row_bytes
        assert (page in pages) == bool(resting[first : stop + 1].all())


def test_a_file_that_does_not_fit_is_refused() -> None:
    with pytest.raises(MachineError, match="set TMPDIR to a folder with room"):
        mapped.mapped_zeros((1 << 60,), np.int64)


def test_a_history_on_disk_gives_the_same_answers() -> None:
    """Few nodes and many events: blocks move and files grow; memory is given back after every batch."""
    rng = np.random.default_rng(0)
    stream = Events.from_numpy(rng.integers(1, 9, 3_000), rng.integers(1, 300, 3_000), np.arange(3_000.0))
    here, there = Live(stream[:10]), Live(stream[:10], on_disk=True)
    for batch in stream[10:].batches(97):
        for past in (here, there):
            past.append(batch)
        there.release()
        node, time = torch.arange(300), torch.full((300,), float(batch.time[-1]))
        one, other = here.recent(node, time, 20), there.recent(node, time, 20)
        assert torch.equal(one.event, other.event)
        assert torch.equal(one.node, other.node)
    for name in ("node", "event", "time", "outgoing"):
        assert mapped.is_mapped(getattr(there.index, name))
