"""Events of the log in either order, with an offset and a limit; and live.

All are as of an index, so that a count and its pages agree. What they cost is what the log's `read`
costs: where the log keeps an index of what events concern (SQLite, PostgreSQL), about the events
that match in the range; elsewhere every event of the range is looked at, at some 10 µs each.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from belog.query.answers import Count, EventList
from belog.schemas.envelope import StoredEvent
from belog.schemas.errors import Gone, InvalidFilter, LimitExceeded
from belog.schemas.filters import EventFilter
from belog.schemas.lifecycle import LIFECYCLE_1
from belog.schemas.limits import PAGE_EVENTS_MAX
from belog.storage.interface import EventLog

__all__ = [
    "COUNT_EVENTS_MAX",
    "OFFSET_EVENTS_MAX",
    "QUERY_EVENTS",
    "PartitionEventQuery",
    "count_range",
    "filter_of",
    "read_range",
    "types_of_states",
]

QUERY_EVENTS: Final = 100
"""Events of one answer when nothing is said."""

OFFSET_EVENTS_MAX: Final = 100_000
"""Events that may be passed over: they are read to be counted. Who goes deeper uses the index of
the last event seen as a bound."""

COUNT_EVENTS_MAX: Final = 100_000
"""Events counted one by one, about a second; from there on "at least"."""

FIRST_WINDOW_INDICES: Final = 1_024
"""Indices looked at first when going backwards."""

WINDOW_GROWTH: Final = 4
"""How much wider each next window backwards is: at most a third more is read than needed, in few
steps also where little matches."""

PAGE_EVENTS_MIN: Final = 64
"""Least events asked for at once, so that a page costs more than its overhead."""


class PartitionEventQuery(Struct, frozen=True, kw_only=True):
    """Which events of partitions; terms of one field are alternatives, fields are joined by *and*.

    Events of partitions themselves only, not of builds or job runs that concern them.
    """

    partition_refs: tuple[str, ...] = ()
    partition_patterns: tuple[str, ...] = ()
    """Globs, as in event filters."""
    states: tuple[str, ...] = ()
    """Events that led to one of these states. `joined` leads to none."""
    build_ids: tuple[str, ...] = ()
    created_from: int | None = None
    """Ingested at or after, microseconds since the epoch."""
    created_to: int | None = None
    """Ingested before."""
    since_idx: int = 0
    """First index wanted; 0 for the first that is still there."""


def types_of_states(states: tuple[str, ...]) -> tuple[str, ...]:
    """Return the event types that lead a partition to one of some states.

    >>> types_of_states(("available",))
    ('v1.partition.available', 'v1.partition.observed')

    Raises:
        InvalidFilter: There is no such state.
    """
    known = LIFECYCLE_1.states("partition")
    for state in states:
        if state not in known:
            msg = f"{state!r} is no state of a partition"
            raise InvalidFilter(msg, hint=f"one of {', '.join(known)}")
    rows = LIFECYCLE_1.machines["partition"]
    return tuple(row.event_type for row in rows if row.target in states)


def filter_of(query: PartitionEventQuery) -> EventFilter:
    """Return the filter of the log that a query means.

    Raises:
        InvalidFilter: A state that is none.
    """
    return EventFilter(
        partition_refs=query.partition_refs,
        partition_patterns=query.partition_patterns,
        build_request_ids=query.build_ids,
        event_types=types_of_states(query.states),
        subject_kinds=("partition",),
        created_from=query.created_from,
        created_to=query.created_to,
    )


def read_range(
    log: EventLog,
    wanted: EventFilter,
    indices: tuple[int, int],
    *,
    offset: int = 0,
    limit: int = QUERY_EVENTS,
    newest_first: bool = False,
    from_horizon: bool = False,
) -> EventList:
    """Return events of a range of indices.

    Args:
        log: The log.
        wanted: Which events.
        indices: First index, and the one after the last; the answer is as of the latter.
        offset: Matching events to pass over, up to `OFFSET_EVENTS_MAX`.
        limit: Most events to return, 1 to `PAGE_EVENTS_MAX`.
        newest_first: Descending order.
        from_horizon: Leave out what lies behind the vacuum horizon, instead of an error.

    Raises:
        LimitExceeded: Offset or limit over their bounds.
        InvalidFilter: One of them below its least; a filter that cannot be.
        Gone: The range begins behind the vacuum horizon, and that is not left out.
    """
    _check_window(offset, limit)
    needed = offset + limit + 1
    found: list[StoredEvent] = []
    if newest_first:
        found.extend(_backwards(log, wanted, indices, needed, from_horizon=from_horizon))
    else:
        for stored in _forwards(log, wanted, indices, needed, from_horizon=from_horizon):
            found.append(stored)
            if len(found) == needed:
                break
    events = tuple(found[offset : offset + limit])
    return EventList(events, len(found) == needed, indices[1])


def count_range(
    log: EventLog,
    wanted: EventFilter,
    indices: tuple[int, int],
    *,
    from_horizon: bool = False,
) -> Count:
    """Count events of a range of indices, up to `COUNT_EVENTS_MAX`; see `read_range`."""
    count = 0
    for _ in _forwards(log, wanted, indices, PAGE_EVENTS_MAX, from_horizon=from_horizon):
        count += 1
        if count == COUNT_EVENTS_MAX:
            return Count(count, is_exact=False)
    return Count(count, is_exact=True)


def _check_window(offset: int, limit: int) -> None:
    if offset < 0 or limit < 1:
        msg = f"offset {offset} must be at least 0 and limit {limit} at least 1"
        raise InvalidFilter(msg)
    bounds: Mapping[str, tuple[int, int]] = {
        "OFFSET_EVENTS_MAX": (OFFSET_EVENTS_MAX, offset),
        "PAGE_EVENTS_MAX": (PAGE_EVENTS_MAX, limit),
    }
    for name, (bound, value) in bounds.items():
        if value > bound:
            raise LimitExceeded("events", limit=name, limit_value=bound, value=value)


def _forwards(
    log: EventLog,
    wanted: EventFilter,
    indices: tuple[int, int],
    needed: int,
    *,
    from_horizon: bool,
) -> Iterator[StoredEvent]:
    cursor, high = indices
    limit = min(max(needed, PAGE_EVENTS_MIN), PAGE_EVENTS_MAX)
    while cursor < high:
        try:
            page = log.read(cursor, wanted, limit)
        except Gone as gone:
            if not from_horizon or gone.horizon <= cursor:
                raise
            cursor = gone.horizon
            continue
        for stored in page.events:
            if stored.index >= high:
                return
            yield stored
        if not page.has_more:
            return
        cursor = page.next_idx


def _backwards(
    log: EventLog,
    wanted: EventFilter,
    indices: tuple[int, int],
    needed: int,
    *,
    from_horizon: bool,
) -> Iterator[StoredEvent]:
    """Yield at most `needed` events, the last first: windows that grow, each read forwards."""
    low, high = indices
    width = FIRST_WINDOW_INDICES
    while low < high and needed:
        start = max(low, high - width)
        found = _forwards(log, wanted, (start, high), needed, from_horizon=from_horizon)
        last = deque(found, maxlen=needed)
        yield from reversed(last)
        needed -= len(last)
        high, width = start, width * WINDOW_GROWTH


def bounded(query: PartitionEventQuery, first_seen: int | None, as_of: int) -> tuple[int, int]:
    """Return the range of indices in which a query's events can be.

    Args:
        query: The query.
        first_seen: The least index of its partitions' rows, None where one has no row.
        as_of: What the answer is as of.
    """
    low = query.since_idx if first_seen is None else max(query.since_idx, first_seen)
    return low, as_of
