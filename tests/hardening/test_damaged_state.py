"""Saved states with damage of every kind: refused by name, or harmless; never read out of bounds."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from conformance.conftest import build, make_stream, variants
from dsrd.data.dataset import Dataset
from dsrd.errors import DsrdError
from dsrd.history.past import Past
from dsrd.models import TemporalModel
from support.forked import exit_code_of

OBSERVED, ASKED = 200, 30

Damage = Callable[[Tensor], Tensor]


def with_entry(value: float) -> Damage:
    def damaged(field: Tensor) -> Tensor:
        field = field.clone()
        field.view(-1)[field.numel() // 2] = value
        return field

    return damaged


def everywhere(value: float) -> Damage:
    return lambda field: torch.full_like(field, value)


DAMAGE: dict[str, Damage] = {
    "emptied": lambda field: field[:0],
    "truncated": lambda field: field[: len(field) // 2],
    "longer": lambda field: torch.cat([field, field[:1]]),
    "scalar": lambda field: field.reshape(-1)[0],
    "deeper": lambda field: field.unsqueeze(-1),
    "of another type": lambda field: field.to(torch.float16),
}
IN_FLOATS = {"nan": with_entry(float("nan"))}
IN_INTEGERS = {str(value): with_entry(value) for value in (-1, -(2**31), 2**31 - 1)} | {
    f"all {value}": everywhere(value) for value in (-3, 1, 2**31 - 1)
}
IN_RANGE = {"all 1"}  # nobody can tell: only the checksum of the file
NO_INDEX = {"count"}  # numbers of events of a pair: nothing is looked up by them


OTHER_ROWS = {"truncated", "longer"}  # of a field that no other has to agree with: again, only the checksum


def damaged_states(model: TemporalModel) -> Iterator[tuple[str, dict[str, Tensor], bool]]:
    """What was done, the damaged state, and whether it may be read without noticing."""
    state, per_node = model.state.snapshot(), model.state._per_node
    for name, field in state.items():
        kinds = DAMAGE | (
            IN_FLOATS if field.is_floating_point() else {} if field.dtype == torch.bool else IN_INTEGERS
        )
        for kind, damage in kinds.items():
            changed = damage(field)
            if changed.shape != field.shape or changed.dtype != field.dtype or not torch.equal(changed, field):
                lonely = kind in OTHER_ROWS and per_node == {name}
                yield f"{name} {kind}", {**state, name: changed}, lonely or name in NO_INDEX or kind in IN_RANGE
        yield f"{name} missing", {other: value for other, value in state.items() if other != name}, False


def answers(model: TemporalModel, state: dict[str, Tensor], stream: Dataset) -> list[Tensor]:
    """Scores from a state, before and after it observes more events."""
    past = Past(stream.events, edge_x=stream.edge_x, node_x=stream.node_x)
    later = stream.events[OBSERVED : OBSERVED + ASKED]
    model.state.restore(state)
    scores = []
    with torch.no_grad():
        for _ in range(2):
            scores.append(model.score(stream.events[-ASKED:].query(), past))
            model.observe(later, past)
    return scores


def refusal(model: TemporalModel, state: dict[str, Tensor], num_events: int) -> str:
    """The error of one line with which a state is refused; empty if it is not."""
    try:
        model.state.verify(state, num_events)
    except DsrdError as error:
        return str(error).splitlines()[0]
    return ""


def check_every_damage(variant: str) -> None:
    stream = make_stream()
    model = build(variant, stream).eval()
    past = Past(stream.events, edge_x=stream.edge_x, node_x=stream.node_x)
    for batch in stream.events[:OBSERVED].batches(50):
        model.observe(batch, past)
    state = model.state.snapshot()
    states = list(damaged_states(model))
    expected = answers(model, state, stream)
    for what, damaged, harmless in states:
        if refusal(model, damaged, len(stream.events)):
            continue
        given = answers(model, damaged, stream)
        assert harmless or all(map(torch.equal, given, expected)), f"{what}: other answers, and no error"
    assert not refusal(model, state, len(stream.events))


@pytest.mark.parametrize("variant", [name for name in variants() if len(build(name, make_stream()).state)])
def test_a_damaged_state_is_refused_or_harmless(variant: str):
    """In a process of its own: a read out of bounds must not end the tests."""

    def child() -> int:
        try:
            check_every_damage(variant)
        except BaseException:
            traceback.print_exc()
            return 1
        return 0

    assert exit_code_of(child) == 0


def test_a_state_with_rows_for_some_fields_only_is_refused():
    model = build("pint", make_stream())
    state = model.state.snapshot()
    for restore in (model.state.restore, model.state.adopt):
        with pytest.raises(DsrdError, match="the saved state's 'walk_start' is"):
            restore({**state, "walk_start": state["walk_start"][:0]})
