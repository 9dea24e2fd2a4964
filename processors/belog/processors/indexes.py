"""What rows can be found by: their secondary indexes, and the conditions of a list. Pure.

Both kinds of tables keep, for each name that `index_names` gives, the ids of the rows that have it,
ordered by the index of the row's last event. So what an index holds follows from the rows alone.
"""

from typing import Final, Literal

from msgspec import Struct

from belog.processors.rows import (
    BuildRow,
    JobRunRow,
    PartitionRow,
    Row,
    RowKind,
    SystemRow,
    TaskRow,
)
from belog.schemas.errors import InvalidFilter

__all__ = [
    "ANY",
    "DEPS_INDEXED_MAX",
    "Order",
    "Where",
    "decode_cursor",
    "driving_names",
    "index_names",
    "matches",
    "state_index",
    "upstream_of",
]

Order = Literal["recent", "id"]
"""`recent`: the row with the last event first. `id`: by the row's id, as its UTF-8 bytes sort."""

ALL_ROWS: Final = "all"
ACTIVE: Final = "active"

DEPS_INDEXED_MAX: Final = 1_000
"""Upstream partitions by which one partition can be found, the first to be named: a year by its
days fits three times, and one event never moves more entries than that."""

_ACTIVE_STATES: Final = {
    PartitionRow: frozenset({"requested", "scheduled", "building", "delegated"}),
    BuildRow: frozenset({"received", "planning", "analysis_completed", "executing"}),
    JobRunRow: frozenset({"scheduled", "running"}),
    TaskRow: frozenset({"scheduled", "running"}),
    SystemRow: frozenset[str](),
}


class Where(Struct, frozen=True, kw_only=True):
    """Conditions on rows, all of which must hold.

    No row meets a condition that is not for its kind.
    """

    states: tuple[str, ...] = ()
    """One of these."""
    active: bool | None = None
    """True: an attempt is under way (partitions), not ended yet (the others)."""
    build_id: str | None = None
    """Of a partition: the attempt's owner, a build that joined it, or the maker of the data."""
    job_label: str | None = None
    client_id: str | None = None
    partition: str | None = None
    """A ref: that a build asked for, or that is among the outputs of a job run or task."""
    upstream: str | None = None
    """A ref: that a partition's attempt or data was said to be made from."""
    id_prefix: str = ""
    since_us: int | None = None
    """Last event ingested at or after, microseconds since the epoch."""
    until_us: int | None = None
    """Last event ingested before."""


ANY: Final = Where()
"""All rows."""


def is_active(row: Row) -> bool:
    """Whether an attempt, build, job run or task is under way."""
    return row.state in _ACTIVE_STATES[type(row)]


def _builds_of(row: Row) -> tuple[str, ...]:
    if type(row) is PartitionRow:
        attempt, data = row.attempt, row.available
        named: tuple[str, ...] = ()
        if attempt is not None:
            named = (attempt.build_id,)
            if attempt.joined_builds:
                named += attempt.joined_builds
        if data is not None and data.build_id is not None and data.build_id not in named:
            named = (*named, data.build_id)
        return named
    if type(row) is BuildRow:
        return (row.build_id,)
    build_id = row.build_id if type(row) is JobRunRow or type(row) is TaskRow else None
    return () if build_id is None else (build_id,)


def _labels_of(row: Row) -> tuple[str, ...]:
    if type(row) is PartitionRow:
        attempt = None if row.attempt is None else row.attempt.job_label
        data = None if row.available is None else row.available.job_label
        if data is None or data == attempt:
            return () if attempt is None else (attempt,)
        return (data,) if attempt is None else (attempt, data)
    label = row.job_label if type(row) is JobRunRow or type(row) is TaskRow else None
    return () if label is None else (label,)


def upstream_of(row: PartitionRow) -> tuple[str, ...]:
    """Return the partitions that one's attempt and data were said to be made from, each once."""
    planned = () if row.attempt is None else row.attempt.upstream_deps
    read = () if row.available is None else row.available.upstream_deps
    if not read or planned == read:
        if len(planned) < 2 or len(set(planned)) == len(planned):
            return planned
        return tuple(dict.fromkeys(planned))
    return tuple(dict.fromkeys((*planned, *read)))


def state_index(state: str) -> str:
    """Return the name of the index of the rows in a state."""
    return "state:" + state


def index_names(row: Row) -> tuple[str, ...]:
    """Return the names of the indexes that a row is in, each once."""
    names = [ALL_ROWS, "state:" + row.state]
    if row.state in _ACTIVE_STATES[type(row)]:
        names.append(ACTIVE)
    if type(row) is PartitionRow:
        # Of one or two each: a loop takes half the time of what makes a list first.
        add = names.append
        for build_id in _builds_of(row):
            add("build:" + build_id)
        for label in _labels_of(row):
            add("label:" + label)
        for ref in upstream_of(row)[:DEPS_INDEXED_MAX]:
            add("dep:" + ref)
    elif type(row) is JobRunRow or type(row) is TaskRow:
        if row.build_id is not None:
            names.append("build:" + row.build_id)
        if row.job_label is not None:
            names.append("label:" + row.job_label)
    elif type(row) is BuildRow and row.client_id is not None:
        names.append("client:" + row.client_id)
    return tuple(names)


def driving_names(kind: RowKind, where: Where) -> tuple[str, ...]:
    """Return indexes that together hold every row that meets the conditions, no row twice."""
    if where.upstream is not None and kind == "partition":
        return ("dep:" + where.upstream,)
    if where.build_id is not None and kind != "build":
        return ("build:" + where.build_id,)
    if where.job_label is not None:
        return ("label:" + where.job_label,)
    if where.client_id is not None and kind == "build":
        return ("client:" + where.client_id,)
    if where.states:
        return tuple("state:" + state for state in dict.fromkeys(where.states))
    return (ACTIVE,) if where.active else (ALL_ROWS,)


def matches(row: Row, where: Where) -> bool:
    """Whether a row meets all conditions."""
    if where is ANY:
        return True
    if where.states and row.state not in where.states:
        return False
    if where.active is not None and where.active != is_active(row):
        return False
    if where.since_us is not None and row.updated_at < where.since_us:
        return False
    if where.until_us is not None and row.updated_at >= where.until_us:
        return False
    if where.build_id is not None and where.build_id not in _builds_of(row):
        return False
    if where.job_label is not None and where.job_label not in _labels_of(row):
        return False
    if where.client_id is not None and where.client_id not in _clients_of(row):
        return False
    if where.partition is not None and where.partition not in _partitions_of(row):
        return False
    if where.upstream is not None and (
        type(row) is not PartitionRow or where.upstream not in upstream_of(row)
    ):
        return False
    return row.row_id.startswith(where.id_prefix)


def _clients_of(row: Row) -> tuple[str, ...]:
    if type(row) is BuildRow:
        return () if row.client_id is None else (row.client_id,)
    if type(row) is PartitionRow and row.attempt is not None:
        return row.attempt.requesting_clients
    return ()


def _partitions_of(row: Row) -> tuple[str, ...]:
    if type(row) is BuildRow:
        return row.requested_partitions
    if type(row) is JobRunRow or type(row) is TaskRow:
        return row.outputs
    return (row.ref,) if type(row) is PartitionRow else ()


def encode_cursor(order: Order, row: Row) -> str:
    """Return where a list goes on after a row."""
    return f"r{row.index}" if order == "recent" else f"i{row.row_id}"


def decode_cursor(order: Order, cursor: str | None) -> str | None:
    """Return the index or id after which a list goes on, as text; None for its beginning.

    Raises:
        InvalidFilter: Not a cursor of that order.
    """
    if cursor is None:
        return None
    rest = cursor[1:]
    # An index has at most 19 digits; a longer one is no cursor of ours.
    if order == "recent" and cursor[:1] == "r" and rest.isascii() and rest.isdigit():
        if len(rest) < 20:
            return rest
    elif order == "id" and cursor[:1] == "i" and rest:
        return rest
    msg = f"cursor {cursor[:40]!r} is not one of a list in the order {order!r}"
    hint = "pass next_page_token (next_cursor, in Python) of the page before, with the same order"
    raise InvalidFilter(msg, hint=hint)
