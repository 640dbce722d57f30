"""`State`: the named tensors that events change. Weights are learned; state is what happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from dsrd.errors import DsrdError
from dsrd.events import NULL

Snapshot = dict[str, Tensor]


class State(nn.Module):
    """Tensors by name, with one way to reset, save, restore and grow them all, so that none is forgotten.

    A field declared `per_node` has one row per node id, made when it or a larger id is first written; a node
    without a row yet reads row 0, which nobody ever writes. Rows double, and near the end come to `num_nodes`:
    how many there are depends on the largest id so far, not on how the events came.

    >>> state = State(num_nodes=3)
    >>> state.declare("count", lambda rows: torch.zeros(rows), per_node=True)
    >>> before = state.snapshot()
    >>> rows = state.rows_for(torch.tensor([7]))  # first: it may replace the tensors by larger ones
    >>> state["count"][rows] += 1
    >>> state["count"][state.known(torch.tensor([7, 99]))].tolist()
    [1.0, 0.0]
    >>> state.restore(before)
    >>> float(state["count"].sum())
    0.0
    """

    def __init__(self, num_nodes: int) -> None:
        super().__init__()
        self._num_nodes = max(num_nodes, 1)  # as far as is known
        self._rows = 1
        self._init: dict[str, Callable[[int], Tensor]] = {}
        self._per_node: set[str] = set()
        self._compiled: set[str] = set()

    def declare(
        self, name: str, init: Callable[[int], Tensor], per_node: bool = False, compiled: bool = False
    ) -> None:
        """Add a field; `init(rows)` makes its tensor at rest (`rows` matters to per-node fields only).

        A field that `compiled` loops work on stays in main memory, wherever the weights go.
        """
        self._init[name] = init
        if per_node:
            self._per_node.add(name)
        if compiled:
            self._compiled.add(name)
        self.register_buffer(name, init(self._rows), persistent=False)

    def __getitem__(self, name: str) -> Tensor:
        return self.get_buffer(name)

    def __setitem__(self, name: str, value: Tensor) -> None:
        if name not in self._init:
            raise KeyError(f"state field '{name}' was never declared")
        self._buffers[name] = value

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> State:
        """`.to(device)`, `.double()` and the like: fields that compiled loops work on change their type alone."""
        staying = {name: self[name].to(fn(self[name].new_empty(0)).dtype) for name in self._compiled}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._buffers.update(staying)
        return self

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of what is kept."""
        return tuple(self._init)

    def __len__(self) -> int:
        return len(self._init)

    def reset(self) -> None:
        """Back to rest: every declared init runs again."""
        self._rows = 1
        for name, init in self._init.items():
            self[name] = init(self._rows).to(self[name])

    def snapshot(self) -> Snapshot:
        """Copies of all fields, detached from any gradient."""
        return {name: self[name].detach().clone() for name in self._init}

    def fields_now(self) -> Snapshot:
        """The fields themselves, to be read at once: they change with the state."""
        return {name: self[name].detach() for name in self._init}

    def release(self) -> Snapshot:
        """The fields themselves, not copies, detached from any gradient; the state is at rest afterwards."""
        held = self.fields_now()
        self.reset()
        return held

    def restore(self, snapshot: Mapping[str, Tensor]) -> None:
        """Take up a copy of a snapshot of a state with the same fields."""
        self._checked(snapshot)
        self.reset()  # first: a state of many nodes is large, and need not be there beside its successor
        self.adopt({name: value.detach().clone() for name, value in snapshot.items()})

    def adopt(self, snapshot: Mapping[str, Tensor]) -> None:
        """Take up a snapshot's tensors themselves: whoever gave them must not use them any more."""
        for name, value in self._checked(snapshot).items():
            self[name] = value.to(self[name].device)
        self._rows = max([1, *(len(self[name]) for name in self._per_node)])

    def _checked(self, snapshot: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if set(snapshot) != set(self._init):
            raise DsrdError(
                f"the saved state holds {sorted(snapshot)}, this model keeps {sorted(self._init)}; "
                "load it with the model that wrote it"
            )
        for name, value in snapshot.items():
            if value.shape[1:] != self[name].shape[1:] or value.dtype != self[name].dtype:
                raise DsrdError(
                    f"the saved state's '{name}' is {value.dtype} {tuple(value.shape)}, this model needs "
                    f"{self[name].dtype} {tuple(self[name].shape)}; load it with the settings it was written with"
                )
        return snapshot

    def detach_(self) -> None:
        """Cut the gradient's way into earlier batches."""
        for name in self._init:
            self[name] = self[name].detach()

    def known(self, node: Tensor) -> Tensor:
        """Rows to read for these nodes; the row of nobody for those without one."""
        return torch.where(node < self._rows, node, NULL)

    def rows_for(self, node: Tensor) -> Tensor:
        """Rows to write for these nodes, made first where missing."""
        needed = int(node.max()) + 1 if node.numel() else 0
        if needed > self._rows:
            doubled = 1 << (needed - 1).bit_length()
            # To the full size at once from half of it on: old and new rows are there together for a moment.
            self._grow(self._num_nodes if needed <= self._num_nodes < 2 * doubled else doubled)
        return node

    def nbytes(self) -> int:
        """Memory the state takes now."""
        return sum(self[name].numel() * self[name].element_size() for name in self._init)

    def _grow(self, rows: int) -> None:
        for name in self._per_node:
            have, grown = self[name], self._init[name](rows).to(self[name])
            grown[: len(have)] = have
            self[name] = grown
        self._rows = rows
