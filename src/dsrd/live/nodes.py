"""`Nodes`: names and ids of the nodes of a stream that grows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dsrd.data.dataset import Names
from dsrd.errors import DsrdError

Name = tuple[str, bool]
"""A node by name, and whether it is a target of a stream whose sources and targets are different nodes."""

MOST_SKIPPED = 10_000  # numbers a new node may be ahead of the largest known one: each takes memory


class Nodes:
    """Ids by name and names by id. New names get the next ids, in order of appearance.

    In a stream without names the ids are the names, as text.

    >>> nodes = Nodes(Names(["", "ann"]), num_nodes=2)
    >>> new = nodes.missing([("ann", False), ("bob", True), ("bob", False)])
    >>> new
    [('bob', False)]
    >>> nodes.add(new)
    >>> nodes.find("bob"), nodes.name(2), nodes.find("eve")
    (2, 'bob', None)
    """

    def __init__(self, names: Names | None, num_nodes: int) -> None:
        self.numbered = names is None
        self.two_kinds = names is not None and names.is_target is not None
        self._known = names
        self._name = [] if names is None else names.array.to_pylist()
        self._ids: tuple[dict[str, int], dict[str, int]] = ({}, {})  # of sources, or of all nodes; of targets
        is_target = names.is_target if names is not None and names.is_target is not None else None
        for node in range(len(self._name) - 1, 0, -1):  # backwards: the first of two equal names wins
            self._ids[0 if is_target is None else int(is_target[node])][self._name[node]] = node
        self._added: list[Name] = []
        self.count = max(num_nodes, len(self._name))
        """The next id of a stream with names; one more than the largest id, padding included."""

    def side(self, target: bool) -> bool:
        """Whether a name in the column of targets belongs to another node than in the column of sources."""
        return target and self.two_kinds

    def find(self, name: str, *, target: bool = False) -> int | None:
        """The node of that name, or None if the stream does not know it."""
        if self.numbered:
            known = name.isdecimal() and len(name) < 19 and 1 <= int(name) < self.count
            return int(name) if known else None
        return self._ids[self.side(target)].get(name)

    def name(self, node: int) -> str:
        """The name of a node, or its id as text."""
        return str(node) if self.numbered else str(self._name[node])

    def missing(self, names: Iterable[Name]) -> list[Name]:
        """Those of these names that no node has yet, each once, in order; `add` gives them ids."""
        if self.numbered:
            return []
        sides, two_kinds = self._ids, self.two_kinds
        new: dict[Name, None] = {}
        for name, target in names:
            side = target and two_kinds
            if name not in sides[side]:
                new[name, side] = None
        return list(new)

    def add(self, names: Sequence[Name]) -> None:
        """Give each of these new names the next id."""
        for name, target in names:
            self._ids[target][name] = self.count
            self._name.append(name)
            self.count += 1
        self._added += names

    def forget(self, count: int, names: Sequence[Name]) -> None:
        """Take back the newest names, so that there are `count` nodes again."""
        for name, target in names:
            del self._ids[target][name]
        if names:
            del self._name[-len(names) :], self._added[-len(names) :]
        self.count = count

    @property
    def sources(self) -> Mapping[str, int]:
        """Ids of nodes in the column of sources, by name."""
        return self._ids[0]

    @property
    def targets(self) -> Mapping[str, int]:
        """Ids of nodes in the column of targets, by name."""
        return self._ids[self.two_kinds]

    def grow(self, largest: int) -> None:
        """In a stream without names: ids up to `largest` are known from now on."""
        self.count = max(self.count, largest + 1)

    def number(self, name: str) -> int:
        """A node of a stream without names, known or new."""
        if not (name.isdecimal() and len(name) < 19 and int(name)):
            raise DsrdError(f"node '{name}' is no number; the nodes of this stream are numbered from 1")
        node = int(name)
        if node >= self.count + MOST_SKIPPED:
            raise DsrdError(f"node {node} is far above the {self.count - 1:,} nodes known; number without gaps")
        return node

    def names(self) -> Names | None:
        """All names as the column of a data set."""
        return None if self._known is None else self._known.with_more(self._added)

    def suggestions(self, name: str, *, target: bool = False) -> list[str]:
        """At most five known names that are similar to `name`."""
        names = self.names()
        return [] if names is None else names.suggestions(name, target=target)

    def starting_with(self, text: str, most: int) -> list[tuple[str, int]]:
        """At most `most` nodes whose name contains `text`, those that begin with it first; for a search box."""
        wanted = text.strip().lower()
        if self.numbered:
            node = self.find(text.strip())
            return [] if node is None else [(self.name(node), node)]
        begin: list[tuple[str, int]] = []
        inside: list[tuple[str, int]] = []
        for node in range(1, len(self._name)):
            name = str(self._name[node])
            lower = name.lower()
            if lower.startswith(wanted):
                begin.append((name, node))
                if len(begin) >= most:
                    break
            elif wanted in lower and len(inside) < most:
                inside.append((name, node))
        return (begin + inside)[:most]
