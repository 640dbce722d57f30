"""Bytes of a model's state as its card declares them: formulas over its settings, by what they count.

    node           per node
    slot of T      per slot of the table T, which doubles when it is full (a hash table: half full)
    rest           once

A formula may name any setting or property of the settings (a list stands for its length), the sizes `edge_dim` and
`node_dim` of the stream, `min` and `max`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsrd.models.base import GraphSpec, TemporalModel
from dsrd.models.card import ModelCard


def formulas(card: ModelCard, preset: str = "default") -> Mapping[str, str]:
    """The formulas of a preset, those of the card if it has none of its own."""
    own = card.presets[preset].keeps if preset in card.presets else None
    return card.keeps if own is None else own


def declared_bytes(formulas: Mapping[str, str], config: Any, graph: GraphSpec) -> dict[str, int]:
    """The value of each formula with these settings, on a stream of these sizes.

    >>> declared_bytes({"node": "4 * max(2, edge_dim) + 8"}, None, GraphSpec(edge_dim=5))
    {'node': 28}
    """
    names = {name: getattr(config, name) for name in dir(config) if not name.startswith("_")}
    values = {name: len(value) if isinstance(value, tuple) else value for name, value in names.items()}
    values |= {"edge_dim": graph.edge_dim, "node_dim": graph.node_dim, "min": min, "max": max, "sum": sum}
    return {part: int(eval(formula, {"__builtins__": {}}, values)) for part, formula in formulas.items()}


def kept_bytes(model: TemporalModel) -> dict[str, int]:
    """What the state takes per node, per slot of each table, and once."""
    per_node, tables, slots = model.state.bytes_per_node(), model.state.bytes_per_slot(), model.state.slots()
    rest = model.state.nbytes() - per_node * model.state.rows
    rest -= sum(size * slots[table] for table, size in tables.items())
    sizes = {"node": per_node, **{f"slot of {table}": size for table, size in tables.items()}, "rest": rest}
    return {part: size for part, size in sizes.items() if size}
