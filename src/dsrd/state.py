"""`State`: the named tensors that events change. Weights are learned from data; state is a summary of past events.

The contract between a model, its state and the rest of the library:

* A model declares every tensor that `observe` changes, once, with a function that makes its initial value.
* Only `observe` writes. `score` and mode switches such as `eval()` never do.
* Reset, snapshot, restore and growth are written here, for all fields. So no model can forget one of them.
* State is not in `state_dict()`, and no optimizer changes it.
* Row 0 of a per-node field belongs to no node and keeps its initial value. Unseen nodes read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from dsrd.errors import DsrdError
from dsrd.events import NULL

Snapshot = dict[str, Tensor]


class State(nn.Module):
    """Tensors by name, with one way to reset, save, restore and grow them all.

    A field declared `per_node` has one row per node id. Rows are added when a larger id is first written, and a
    node without a row reads row 0. The number of rows doubles, but does not exceed `num_nodes` while that is
    enough. It depends only on the largest id so far, not on the order or the batches of the events.

    >>> state = State(num_nodes=3)
    >>> state.declare("count", lambda rows: torch.zeros(rows), per_node=True)
    >>> before = state.snapshot()
    >>> rows = state.rows_for(torch.tensor([7]))  # before reading fields: it may replace them by larger ones
    >>> state["count"][rows] += 1
    >>> state["count"][state.known(torch.tensor([7, 99]))].tolist()
    [1.0, 0.0]
    >>> state.restore(before)
    >>> float(state["count"].sum())
    0.0
    """

    def __init__(self, num_nodes: int) -> None:
        super().__init__()
        self._num_nodes = max(num_nodes, 1)  # expected; more may come
        self._rows = 1
        self._init: dict[str, Callable[[int], Tensor]] = {}
        self._per_node: set[str] = set()
        self._compiled: set[str] = set()

    def declare(
        self, name: str, init: Callable[[int], Tensor], per_node: bool = False, compiled: bool = False
    ) -> None:
        """Add a field; `init(rows)` makes its initial tensor (only per-node fields use `rows`).

        A `compiled` field is read by compiled code and stays in main memory on whatever device the weights are.
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
        """`.to(device)`, `.double()` and the like: compiled fields change their type, but not their device."""
        converted = {name: self[name].to(fn(self[name].new_empty(0)).dtype) for name in self._compiled}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._buffers.update(converted)
        return self

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of all fields."""
        return tuple(self._init)

    def __len__(self) -> int:
        return len(self._init)

    def reset(self) -> None:
        """Give every field its initial value again."""
        self._rows = 1
        for name, init in self._init.items():
            self[name] = init(self._rows).to(self[name])

    def snapshot(self) -> Snapshot:
        """Copies of all fields, detached from the gradient."""
        return {name: self[name].detach().clone() for name in self._init}

    def fields_now(self) -> Snapshot:
        """The fields themselves, detached; read them at once, because they change with the state."""
        return {name: self[name].detach() for name in self._init}

    def release(self) -> Snapshot:
        """Give the fields away without a copy, detached from the gradient; then reset the state."""
        fields = self.fields_now()
        self.reset()
        return fields

    def restore(self, snapshot: Mapping[str, Tensor]) -> None:
        """Copy a snapshot of a state with the same fields into this one."""
        self._checked(snapshot)
        self.reset()  # frees memory first: with many nodes, the old and the new state may not fit together
        self.adopt({name: value.detach().clone() for name, value in snapshot.items()})

    def adopt(self, snapshot: Mapping[str, Tensor]) -> None:
        """Use a snapshot's tensors as the fields, without a copy; the caller must not use them any more."""
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
        """Detach all fields: gradients do not flow into earlier batches."""
        for name in self._init:
            self[name] = self[name].detach()

    def known(self, node: Tensor) -> Tensor:
        """The rows to read for these nodes; row 0 for nodes without a row."""
        return torch.where(node < self._rows, node, NULL)

    def rows_for(self, node: Tensor) -> Tensor:
        """The rows to write for these nodes; adds rows that are missing."""
        needed = int(node.max()) + 1 if node.numel() else 0
        if needed > self._rows:
            doubled = 1 << (needed - 1).bit_length()
            # From half of the expected size on, grow to all of it: a copy needs old and new rows in memory.
            self._grow(self._num_nodes if needed <= self._num_nodes < 2 * doubled else doubled)
        return node

    def nbytes(self) -> int:
        """Memory of all fields, in bytes."""
        return sum(self[name].numel() * self[name].element_size() for name in self._init)

    def _grow(self, rows: int) -> None:
        for name in self._per_node:
            old, larger = self[name], self._init[name](rows).to(self[name])
            larger[: len(old)] = old
            self[name] = larger
        self._rows = rows
