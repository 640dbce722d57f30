"""Packed rows of walks: 8 bits and fewer columns, against rows that are kept in full."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dsrd.compiled import compiled
from dsrd.errors import DsrdError
from dsrd.events import Events
from dsrd.history.past import Past
from dsrd.models import GraphSpec, TemporalModel, create
from dsrd.models.dsrd import DSRDConfig
from dsrd.models.dsrd.walk_rows import LARGEST, ROOM, row_size, store_row, stored_row
from dsrd.models.dsrd.walk_state import Decay, Meeting, NodeRows, extend, write_code
from dsrd.models.state_size import declared_bytes, kept_bytes

COLUMNS = np.array([16, 16, 8, 4])


@compiled
def store_and_load(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, bits: np.ndarray) -> np.ndarray:
    back = np.full_like(values, 5)
    for r in range(len(columns)):
        store_row(rows, 1, r, columns, values[r], bits[r])
    for r in range(len(columns)):
        stored_row(rows[1, r], rows, 1, r, columns, back[r])
    return back


def stored(
    values: np.ndarray, kind: type, bits: np.ndarray, python: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    rows = np.zeros((3, row_size(COLUMNS, kind is np.int8)), kind)
    function = store_and_load.py_func if python else store_and_load
    back = function(rows, COLUMNS, values, bits)
    assert not rows[0].any()
    assert not rows[2].any()
    return rows, back


@pytest.mark.parametrize("kind", [np.float32, np.int16, np.int8])
def test_rows_come_back_up_to_rounding(kind: type) -> None:
    rng = np.random.default_rng(0)
    for scale in (1e-20, 1.0, 1e4):
        values = (rng.normal(size=(4, 16)) * scale).astype(np.float32)
        bits = rng.integers(0, 2**64, 4, dtype=np.uint64)
        rows, back = stored(values, kind, bits)
        in_python, _ = stored(values, kind, bits, python=True)
        assert np.array_equal(rows, in_python)
        largest = np.array([np.abs(row[:n]).max() for row, n in zip(values, COLUMNS, strict=True)])
        step = {np.float32: 0 * largest, np.int16: largest * 2**-7, np.int8: largest / LARGEST * (1 + 2**-7)}[kind]
        for r, n in enumerate(COLUMNS):
            assert (np.abs(back[r, :n] - values[r, :n]) <= step[r]).all()
            assert not back[r, n:].any()


def test_rows_of_next_to_nothing_are_zero() -> None:
    for value in (0.0, 1e-35):
        _, back = stored(np.full((4, 16), value, np.float32), np.int8, np.zeros(4, np.uint64))
        assert not back.any()


def test_rounding_to_8_bits_is_unbiased() -> None:
    """A largest number, and fifteen of 0.4 steps: rounded 4,000 times, their mean is right."""
    values = np.zeros((4, 16), np.float32)
    values[:, 0], values[:, 1:] = LARGEST, 0.4
    rng = np.random.default_rng(1)
    backs = [stored(values, np.int8, rng.integers(0, 2**64, 4, dtype=np.uint64))[1][0] for _ in range(4_000)]
    small = np.stack(backs)[:, 1:]
    assert set(np.unique(small)) == {0.0, 1.0}
    assert np.abs(small.mean(axis=0) - 0.4).max() < 5 * np.sqrt(0.24 / 4_000)


@compiled
def extended(nodes: NodeRows, event: Meeting, decay: Decay, bits: np.uint64) -> None:
    codes = np.empty((2 + ROOM, decay.columns[0]), np.float32)
    write_code(7, codes[0])
    write_code(8, codes[1])
    extend(nodes, event, decay, codes, bits)


def rows_of(values: np.ndarray) -> NodeRows:
    """Two nodes with these S1 and S2.  # [2, 2, ...]"""
    one, two = values.copy()
    return NodeRows(one, two, np.zeros((2, 4, 1), np.float32), np.zeros(2), np.zeros(2, np.int64))


def decay_of(columns: np.ndarray) -> Decay:
    gain = np.sqrt(columns[0] / columns).astype(np.float32)
    return Decay(np.array([0.5, 0.1]), np.ones(1), columns, gain)


@pytest.mark.parametrize("ends", [(0, 1), (1, 1)])
def test_packed_rows_are_extended_as_others_are(ends: tuple[int, int]) -> None:
    """At each rate as in a state of that width: fewer columns are a shorter code."""
    event = Meeting(*ends, 0, (-1, -1), 2.0, True)
    columns, values = np.array([16, 8]), np.random.default_rng(2).normal(size=(2, 2, 24)).astype(np.float32)
    packed = rows_of(values)
    extended(packed, event, decay_of(columns), np.uint64(3))
    for r, part in enumerate((slice(0, 16), slice(16, 24))):
        plain = rows_of(np.repeat(values[:, :, None, part], 2, axis=2))  # at both rates; one is compared
        extended(plain, event, decay_of(np.full(2, columns[r])), np.uint64(3))
        assert np.allclose(packed.step1[:, part], plain.step1[:, r], rtol=1e-6)
        assert np.allclose(packed.step2[:, part], plain.step2[:, r], rtol=1e-6)


def model_of(**settings: object) -> TemporalModel:
    torch.manual_seed(0)
    small = {"dim": 8, "heads": 2, "neighbors": 3, "code_dim": 64, "scales": (0.1, 1.0), "count_scales": (1.0,)}
    model = create("dsrd", GraphSpec(num_nodes=9), DSRDConfig(**{**small, **settings})).eval()
    model.calibrate(stream())
    return model


def stream(count: int = 200) -> Events:
    rng = np.random.default_rng(2)
    return Events.from_numpy(rng.integers(1, 9, count), rng.integers(1, 9, count), np.arange(count) / 10)


def read_in_batches(model: TemporalModel, size: int) -> torch.Tensor:
    past, readings = Past(stream()), []
    for batch in stream().batches(size):
        with torch.no_grad():
            readings.append(model.body.read(batch.query(), past.during(batch), model.state).pair)
        model.observe(batch, past)
    return torch.cat(readings)


@pytest.mark.slow  # compiles everything anew for 8 bits
def test_reads_in_8_bits_are_close_and_do_not_depend_on_the_batch_size() -> None:
    full, results = read_in_batches(model_of(), 200), []
    for size in (1, 7, 200):
        model = model_of(precision="int8")
        results.append((read_in_batches(model, size), model.state.snapshot()))
    for reads, state in results[1:]:
        assert torch.equal(reads, results[0][0])
        assert torch.equal(state["step1"], results[0][1]["step1"])
        assert torch.equal(state["step2"], results[0][1]["step2"])
    model.state.verify(model.state.snapshot())
    damaged = model.state.snapshot()
    damaged["step2"][3, 64] = 127  # the first byte of a step
    with pytest.raises(DsrdError, match="steps that are not numbers"):
        model.state.verify(damaged)
    error = (results[0][0] - full).abs().mean(dim=0) / full.abs().mean(dim=0).clamp(min=1e-3)
    assert 0 < error.max() < 0.05


def test_rows_on_disk_are_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when memory is given back after every batch, and when a state was restored into memory."""
    monkeypatch.setattr("dsrd.models.dsrd.rows_on_disk.BYTES", 1)
    here, there = model_of(), model_of(rows_on_disk=True)
    assert torch.equal(read_in_batches(here, 7), read_in_batches(there, 7))
    there.state.restore(there.state.snapshot())
    later = Events.from_numpy([3, 700], [4, 2], [30.0, 31.0])  # a new node: rows are added
    for model in (here, there):
        model.observe(later, Past(later))
    for name in here.state.fields:
        assert torch.equal(here.state[name], there.state[name]), name


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("slow_code_dim", [0, 16])
def test_bytes_are_as_declared(precision: str, slow_code_dim: int) -> None:
    model = model_of(precision=precision, slow_code_dim=slow_code_dim)
    declared = declared_bytes(model.card.keeps, model.config, model.graph)
    assert kept_bytes(model) == declared


def test_slow_scales_are_at_most_as_wide_as_others() -> None:
    assert DSRDConfig(slow_code_dim=32).columns == (128, 128, 128, 32, 32, 32)
    with pytest.raises(DsrdError, match=r"model\.slow_code_dim=200: give at most model\.code_dim=128"):
        create("dsrd", GraphSpec(num_nodes=3), DSRDConfig(slow_code_dim=200))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_fewer_columns_at_slow_scales(precision: str) -> None:
    """Noisier reads of the same quantity: those that rest on exact counts stay, products stay right on average."""
    full, narrow = (
        read_in_batches(model_of(code_dim=2048), 50),
        model_of(code_dim=2048, slow_code_dim=512, precision=precision),
    )
    reads = read_in_batches(narrow, 50)
    assert torch.equal(reads, read_in_batches(model_of(code_dim=2048, slow_code_dim=512, precision=precision), 7))
    assert torch.equal(reads[:, 12:], full[:, 12:])
    assert torch.allclose(reads[:, :12].mean(dim=0), full[:, :12].mean(dim=0), rtol=0.1, atol=0.05)
