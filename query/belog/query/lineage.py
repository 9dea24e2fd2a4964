"""The walk over partitions that a dependency graph is made by. Pure: its caller does the looking.

A walk goes up from the root to what it was made from, and down to what is made from it; it does not
turn round, so siblings are not in it. Each partition is met once each way, so circles end it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from belog.processors.indexes import upstream_of
from belog.processors.rows import PartitionRow
from belog.query.answers import Graph, GraphEdge, GraphNode
from belog.schemas.errors import InvalidFilter, LimitExceeded

__all__ = ["DEPTH_MAX", "GRAPH_EDGES_MAX", "GRAPH_NODES_MAX", "Walk", "check_depth"]

GRAPH_NODES_MAX: Final = 1_000
"""Partitions of one graph: more than a page can show, and one list of each from the tables."""

GRAPH_EDGES_MAX: Final = 10_000
"""Edges of one graph."""

DEPTH_MAX: Final = 100
"""Edges from the root outwards; the longest chain in the real graphs looked at is far shorter."""


def check_depth(depth: int) -> None:
    """Refuse a depth out of range.

    Raises:
        InvalidFilter: Below 0.
        LimitExceeded: Over `DEPTH_MAX`.
    """
    if depth < 0:
        msg = f"a depth of {depth} cannot be had"
        raise InvalidFilter(msg)
    if depth > DEPTH_MAX:
        raise LimitExceeded("depth", limit="DEPTH_MAX", limit_value=DEPTH_MAX, value=depth)


class Walk:
    """One walk, level by level. Not thread-safe.

    While `go_on()`: load the rows of `to_load`, give them to `loaded`, ask who depends on each of
    `to_ask`, give that to `dependents`, then `next_level()`.

    Attributes:
        to_load: Partitions whose rows are wanted now.
        to_ask: Partitions of which it is to be found out what was made from them.
        is_truncated: Whether a bound cut it off.
    """

    def __init__(self, root: str, *, depth: int) -> None:
        """Start at a partition.

        Raises:
            InvalidFilter: The depth is below 0.
            LimitExceeded: It is over `DEPTH_MAX`.
        """
        check_depth(depth)
        self.is_truncated = False
        self._root = root
        self._left = depth
        self._rows: dict[str, PartitionRow | None] = {root: None}
        self._up = [root]
        self._down = [root]
        self._seen_up = {root}
        self._seen_down = {root}
        self._next_up: list[str] = []
        self._next_down: list[str] = []
        self.to_load: tuple[str, ...] = (root,)
        self.to_ask: tuple[str, ...] = (root,) if depth else ()

    def go_on(self) -> bool:
        """Whether there is something left to look at."""
        return bool(self.to_load or self.to_ask)

    def loaded(self, rows: Iterable[PartitionRow | None]) -> None:
        """Take the rows of `to_load`, in its order."""
        for ref, row in zip(self.to_load, rows, strict=True):
            self._rows[ref] = row
        if self._left == 0:
            return
        for ref in self._up:
            row = self._rows[ref]
            for dep in () if row is None else upstream_of(row):
                if dep not in self._seen_up and self._meet(dep, None):
                    self._seen_up.add(dep)
                    self._next_up.append(dep)

    def dependents(self, rows: Iterable[PartitionRow], *, is_whole: bool) -> None:
        """Take partitions that are made from one of `to_ask`.

        Args:
            rows: Some or all of them.
            is_whole: Whether that is all of them.
        """
        self.is_truncated |= not is_whole
        for row in rows:
            if row.ref not in self._seen_down and self._meet(row.ref, row):
                self._seen_down.add(row.ref)
                self._next_down.append(row.ref)

    def _meet(self, ref: str, row: PartitionRow | None) -> bool:
        """Take a partition in, if there is room; return whether it is in."""
        if ref in self._rows:
            return True
        if len(self._rows) == GRAPH_NODES_MAX:
            self.is_truncated = True
            return False
        self._rows[ref] = row
        return True

    def next_level(self) -> None:
        """Go one edge further out."""
        self._left -= 1
        self._up, self._next_up = self._next_up, []
        self._down, self._next_down = self._next_down, []
        self.to_load = tuple(self._up)
        self.to_ask = tuple(self._down) if self._left > 0 else ()

    def graph(self) -> Graph:
        """Return what was found."""
        nodes = tuple(_node(ref, row) for ref, row in self._rows.items())
        edges: list[GraphEdge] = []
        for edge in _edges(self._rows):
            if len(edges) == GRAPH_EDGES_MAX:
                self.is_truncated = True
                break
            edges.append(edge)
        return Graph(self._root, nodes, tuple(edges), self.is_truncated)


def _node(ref: str, row: PartitionRow | None) -> GraphNode:
    if row is None:
        return GraphNode(ref, "", None)
    label = None if row.attempt is None else row.attempt.job_label
    if label is None and row.available is not None:
        label = row.available.job_label
    return GraphNode(ref, row.state, row.updated_at, label)


def _edges(rows: Mapping[str, PartitionRow | None]) -> Iterable[GraphEdge]:
    for ref, row in rows.items():
        if row is None:
            continue
        read = row.available.upstream_deps if row.available is not None and row.has_data else ()
        made_from = set(read)
        for dep in upstream_of(row):
            if dep not in rows:
                continue
            yield GraphEdge(ref, dep, "DEPENDS_ON")
            if dep in made_from:
                yield GraphEdge(dep, ref, "PRODUCES")
