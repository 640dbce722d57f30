"""`State`: the named tensors that events change. Weights are learned from data; state is a summary of past events.

The contract between a model, its state and the rest of the library:

* A model declares every tensor that `observe` changes, once, with a function that makes its initial value.
* Only `observe` writes. `score` and mode switches such as `eval()` never do.
* Reset, snapshot, restore and growth are written here, for all fields. So no model can forget one of them.
* State is not in `state_dict()`, and no optimizer changes it.
* Row 0 of a per-node field belongs to no node and keeps its initial value. Unseen nodes read it.
* A field has the shape of its initial value, except for the rows of per-node fields, all of which have as many as
  each other, and for the columns of a table, which are as long as each other. `verify` also looks at the values of
  a saved state: compiled code does not check what it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from dsrd.errors import DsrdError
from dsrd.events import NULL

Snapshot = dict[str, Tensor]
Ids = Literal["nodes", "events"]
Fault = str | None
"""What is wrong, or None."""


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
        self._table: dict[str, str] = {}  # the table that a field is a column of
        self._holds: dict[str, Ids] = {}
        self._enlarge: dict[str, Callable[[Tensor, int], Tensor]] = {}
        self._rules: list[Callable[[Mapping[str, Tensor]], Fault]] = []

    def declare(
        self,
        name: str,
        init: Callable[[int], Tensor],
        per_node: bool = False,
        compiled: bool = False,
        table: str = "",
        holds: Ids | None = None,
        grow: Callable[[Tensor, int], Tensor] | None = None,
    ) -> None:
        """Add a field; `init(rows)` makes its initial tensor (only per-node fields use `rows`).

        A `compiled` field is read by compiled code and stays in main memory on whatever device the weights are.
        Fields of one `table` have rows of their own, as many as each other. A field that `holds` ids of nodes or
        of events holds no other numbers. `grow(field, rows)` enlarges a per-node field that need not be copied.
        """
        self._init[name] = init
        if per_node:
            self._per_node.add(name)
        if compiled:
            self._compiled.add(name)
        if table:
            self._table[name] = table
        if holds:
            self._holds[name] = holds
        if grow:
            self._enlarge[name] = grow
        self.register_buffer(name, init(self._rows), persistent=False)

    def require(self, rule: Callable[[Mapping[str, Tensor]], Fault]) -> None:
        """Add a rule that every saved state must keep: it says what is wrong with the fields, or None."""
        self._rules.append(rule)

    def __getitem__(self, name: str) -> Tensor:
        field = self._buffers.get(name)  # several times faster than `get_buffer`, which looks for dots in the name
        return self.get_buffer(name) if field is None else field

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

    def verify(self, snapshot: Mapping[str, Tensor], num_events: int | None = None) -> None:
        """Refuse a snapshot that is no state of this model: wrong shapes, NaN, ids out of range, broken tables.

        For snapshots that come from a file. `num_events` is the number of events that ids may refer to.
        """
        fields = self._checked(snapshot)
        rows = max([1, *(len(fields[name]) for name in self._per_node)])
        limits = {"nodes": rows, "events": None if num_events is None else num_events + 1}
        faults = [_not_a_number(name, value) for name, value in fields.items()]
        faults += [_out_of_range(name, fields[name], limits[holds]) for name, holds in self._holds.items()]
        fault = next(filter(None, faults), None) or next(
            filter(None, (rule(fields) for rule in self._rules)), None
        )
        if fault:
            raise DsrdError(f"the saved state's {fault}; it is damaged, train again")

    def _checked(self, snapshot: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if set(snapshot) != set(self._init):
            raise DsrdError(
                f"the saved state holds {sorted(snapshot)}, this model keeps {sorted(self._init)}; "
                "load it with the model that wrote it"
            )
        rows: dict[str, int] = {}
        for name, value in snapshot.items():
            needed = list(self[name].shape)
            group = "nodes" if name in self._per_node else self._table.get(name)
            if group is not None and value.dim():
                needed[0] = max(1, rows.setdefault(group, len(value)))
            if list(value.shape) != needed or value.dtype != self[name].dtype:
                raise DsrdError(
                    f"the saved state's '{name}' is {value.dtype} {tuple(value.shape)}, this model needs "
                    f"{self[name].dtype} {tuple(needed)}; load it with the settings it was written with"
                )
        return snapshot

    def detach_(self) -> None:
        """Detach all fields: gradients do not flow into earlier batches."""
        for name in self._init:
            if self[name].requires_grad:
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

    def bytes_per_node(self) -> int:
        """Bytes of a node's rows in all per-node fields."""
        return sum(self[name][:1].nbytes for name in self._per_node)

    @property
    def rows(self) -> int:
        """Rows of per-node fields."""
        return self._rows

    def slots(self) -> dict[str, int]:
        """The slots of each table."""
        return {table: len(self[name]) for name, table in self._table.items()}

    def bytes_per_slot(self) -> dict[str, int]:
        """Bytes of a slot in all columns of each table."""
        tables: dict[str, int] = {}
        for name, table in self._table.items():
            tables[table] = tables.get(table, 0) + self[name][:1].nbytes
        return tables

    def nbytes(self) -> int:
        """Memory of all fields, in bytes."""
        return sum(self[name].numel() * self[name].element_size() for name in self._init)

    def _grow(self, rows: int) -> None:
        for name in self._per_node:
            self[name] = self._enlarge.get(name, partial(self._copied, name))(self[name], rows)
        self._rows = rows

    def _copied(self, name: str, old: Tensor, rows: int) -> Tensor:
        larger = self._init[name](rows).to(old)
        larger[: len(old)] = old
        return larger


def _not_a_number(name: str, value: Tensor) -> Fault:
    if value.is_floating_point() and bool(torch.isnan(value).any()):
        return f"'{name}' has entries that are not numbers"
    return None


def _out_of_range(name: str, value: Tensor, limit: int | None) -> Fault:
    """`limit` is the first number that is too large; None: unknown."""
    if value.numel() and (int(value.min()) < 0 or (limit is not None and int(value.max()) >= limit)):
        return f"'{name}' has ids that do not exist"
    return None
