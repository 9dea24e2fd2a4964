"""Queries that the log answers: events of partitions, audits, live streams."""

import threading
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from belog.processors.rows import PartitionRow
from belog.processors.tables import TableReader
from belog.query.answers import ACCEPTED, Answer, AuditEntry, Count, EventList
from belog.query.log_events import (
    QUERY_EVENTS,
    PartitionEventQuery,
    bounded,
    count_range,
    filter_of,
    read_range,
)
from belog.query.refusals import Refusals
from belog.schemas.envelope import StoredEvent
from belog.schemas.errors import InvalidFilter, LimitExceeded
from belog.schemas.filters import EventFilter
from belog.schemas.lifecycle import SubjectKind
from belog.storage.interface import EventLog

__all__ = ["LATEST_REFS_MAX", "AuditQuery", "LogQueries"]

LATEST_REFS_MAX: Final = 1_000
"""Partitions whose latest events are asked for at once: each is a read of its own."""


class AuditQuery(Struct, frozen=True, kw_only=True):
    """Whose doings are wanted; fields are joined by *and*, terms of one are alternatives."""

    subject_kind: SubjectKind | None = None
    """With `subject_id`: events that concern this subject. Alone: events of this kind."""
    subject_id: str | None = None
    actors: tuple[str, ...] = ()
    event_types: tuple[str, ...] = ()
    created_from: int | None = None
    """At or after, microseconds since the epoch."""
    created_to: int | None = None
    """Before."""


class LogQueries:
    """See the module's docstring. Thread-safe."""

    def __init__(self, tables: TableReader, log: EventLog, refusals: Refusals | None) -> None:
        """Ask this log; the tables give the bounds of a search."""
        self._tables = tables
        self._log = log
        self._refusals = refusals

    def latest(self, ref: str) -> Answer[StoredEvent | None]:
        """Return the last event of a partition, of a type known here; None for one never seen.

        One look at the tables and one read at an index.
        """
        found = self.latest_of((ref,))
        return Answer(found.value[0], found.as_of)

    def latest_of(self, refs: Sequence[str]) -> Answer[tuple[StoredEvent | None, ...]]:
        """Return the last events of partitions, in the order of the refs; see `latest`.

        Raises:
            LimitExceeded: More than `LATEST_REFS_MAX`.
        """
        if len(refs) > LATEST_REFS_MAX:
            name = "LATEST_REFS_MAX"
            raise LimitExceeded(
                "partitions", limit=name, limit_value=LATEST_REFS_MAX, value=len(refs)
            )
        found = self._tables.get_many(PartitionRow, refs)
        events = tuple(None if row is None else self._log.get(row.index) for row in found.value)
        return Answer(events, found.applied)

    def query(
        self,
        query: PartitionEventQuery,
        *,
        newest_first: bool = False,
        offset: int = 0,
        limit: int = QUERY_EVENTS,
    ) -> EventList:
        """Return events of partitions, by index in either order.

        A search for states of given partitions begins at the first event that a row knows of.

        Args:
            query: Which.
            newest_first: Descending.
            offset: Matching events to pass over, up to `OFFSET_EVENTS_MAX`.
            limit: Most events, 1 to `PAGE_EVENTS_MAX`.

        Raises:
            InvalidFilter: A state that is none; an offset or limit below its least.
            LimitExceeded: Offset, limit or terms over their bounds.
            Gone: `since_idx` is given and lies behind the vacuum horizon.
        """
        wanted = filter_of(query)
        return read_range(
            self._log,
            wanted,
            self._range(query),
            offset=offset,
            limit=limit,
            newest_first=newest_first,
            from_horizon=query.since_idx == 0,
        )

    def count(self, query: PartitionEventQuery, *, as_of: int | None = None) -> Answer[Count]:
        """Return how many events a query matches, counted up to `COUNT_EVENTS_MAX`.

        Args:
            query: Which.
            as_of: Count as of an earlier answer, so that both agree; None for as of now.
        """
        wanted = filter_of(query)
        low, high = self._range(query)
        high = high if as_of is None else min(as_of, high)
        counted = count_range(self._log, wanted, (low, high), from_horizon=query.since_idx == 0)
        return Answer(counted, high)

    def _range(self, query: PartitionEventQuery) -> tuple[int, int]:
        # Rows know nothing of events of unknown types, and no such event leads to a state.
        if not query.partition_refs or not query.states:
            return bounded(query, None, self._tables.applied())
        found = self._tables.get_many(PartitionRow, query.partition_refs)
        firsts = [None if row is None else row.first_seen for row in found.value]
        known = [index for index in firsts if index is not None]
        first = min(known) if len(known) == len(firsts) else None
        return bounded(query, first, found.applied)

    def stream(
        self, query: PartitionEventQuery, *, stop: threading.Event | None = None
    ) -> Iterator[StoredEvent]:
        """Yield events of partitions from `query.since_idx` on, then live ones, none missed.

        Blocks between events; ends soon after `stop` is set or the log is closed. Comes from the
        log itself, so an event may be there before it is in the tables.
        """
        return self._log.follow(query.since_idx, filter_of(query), stop=stop)

    def audit(
        self,
        query: AuditQuery,
        *,
        newest_first: bool = True,
        offset: int = 0,
        limit: int = QUERY_EVENTS,
    ) -> Answer[tuple[AuditEntry, ...]]:
        """Return who did what, when, with what result, by time.

        Accepted events come from the log, refused attempts from what a service remembers.

        Args:
            query: Whose.
            newest_first: Descending.
            offset: Entries to pass over, up to `OFFSET_EVENTS_MAX`.
            limit: Most entries, 1 to `PAGE_EVENTS_MAX`.

        Raises:
            InvalidFilter: A subject without its kind; an offset or limit below its least.
            LimitExceeded: Offset or limit over their bounds.
        """
        wanted = _audit_filter(query)
        refused = () if self._refusals is None else self._refusals.entries()
        refused = tuple(entry for entry in refused if _is_wanted(entry, query))
        end = self._tables.applied()
        # Refused ones come in between, so the offset counts them too.
        skipped = 0 if refused else offset
        events = read_range(
            self._log,
            wanted,
            (0, end),
            offset=skipped,
            limit=limit + offset - skipped,
            newest_first=newest_first,
            from_horizon=True,
        )
        entries = sorted(
            (*map(_entry, events.events), *refused),
            key=lambda entry: (entry.at, -1 if entry.index is None else entry.index),
            reverse=newest_first,
        )
        start = offset - skipped
        return Answer(tuple(entries[start : start + limit]), end)


def _audit_filter(query: AuditQuery) -> EventFilter:
    kind, subject = query.subject_kind, query.subject_id
    if subject is not None and kind is None:
        msg = "a subject was given without its kind"
        raise InvalidFilter(msg)
    named = () if subject is None else (subject,)
    return EventFilter(
        partition_refs=named if kind == "partition" else (),
        build_request_ids=named if kind == "build" else (),
        job_run_ids=named if kind == "job_run" else (),
        subject_kinds=(kind,) if kind is not None and (not named or kind == "system") else (),
        actors=query.actors,
        event_types=query.event_types,
        created_from=query.created_from,
        created_to=query.created_to,
    )


def _is_wanted(entry: AuditEntry, query: AuditQuery) -> bool:
    return (
        query.subject_kind in {None, entry.subject_kind}
        and query.subject_id in {None, entry.subject_id}
        and (not query.actors or entry.actor in query.actors)
        and (not query.event_types or entry.event_type in query.event_types)
        and (query.created_from is None or entry.at >= query.created_from)
        and (query.created_to is None or entry.at < query.created_to)
    )


def _entry(stored: StoredEvent) -> AuditEntry:
    event = stored.event
    return AuditEntry(
        at=stored.created_at,
        actor=event.actor,
        event_type=event.event_type,
        subject_kind=event.subject_kind,
        subject_id=event.subject_id,
        event_id=event.event_id,
        result=ACCEPTED,
        index=stored.index,
    )
