"""Judged reads over raw records, for backends that cannot ask an index.

Keeps a fold of the log, the positions of its void and duplicate records, and what each job run
concerns, all filled by one pass over the log and by what is new afterwards. Reading a page then
costs a scan of the page's own records.
"""

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final

from belog.schemas.envelope import StoredEvent, decode_event
from belog.schemas.errors import Gone
from belog.schemas.filters import NO_TERMS, EventFilter, Matcher, Terms, terms_of
from belog.schemas.fold import Accepted, Duplicate, Fold, Outcome, Record
from belog.schemas.replica import REPLICA_HEADER, decode_replica
from belog.storage.interface import (
    SCAN_RECORDS_MAX,
    EventPage,
    LogEnd,
    Statistics,
    check_page,
)

__all__ = ["PAGE_SCAN_RECORDS_MAX", "JudgedView"]

PAGE_SCAN_RECORDS_MAX: Final = 100_000
"""Records looked at for one page, so that a filter which matches nothing answers within about a
second; the page then says `has_more` and where to go on."""

Scan = Callable[[int, int], list[Record]]


class JudgedView:
    """What one process knows of a log it reads. Thread-safe; every call may block for scans."""

    def __init__(self, scan: Scan, name: str, fold: Fold | None = None) -> None:
        """Start with nothing read, or with the fold of a snapshot.

        Args:
            scan: The log's raw scan.
            name: The log's name for errors.
            fold: Where to start; the view does not reach below it.
        """
        self._scan = scan
        self._name = name
        self._lock = threading.Lock()
        self._rejected: set[int] = set()
        self._jobs: dict[str, Terms] = {}
        self._indices = array("q")
        self._positions = array("q")
        self._counts: dict[str, int] = {"void": 0, "duplicates": 0, "tombstones": 0, "bytes": 0}
        self._by_type: dict[str, int] = {}
        self._by_kind: dict[str, int] = {}
        self._first: tuple[int, int] | None = None
        # Where the given time lies below the running maximum, and that maximum: one entry for
        # each stretch of records that came while a clock was behind.
        self._late_positions = array("q")
        self._late_times = array("q")
        self.fold = fold or Fold()
        self._start_idx = self.fold.next_idx
        self.source: Callable[[], Fold | None] | None = None
        """Where to start if the log was vacuumed; see `EventLog.use_snapshots`."""

    def catch_up(self) -> Fold:
        """Apply what the log holds now; return the fold, which only this view may change."""
        with self._lock:
            self._catch_up()
            return self.fold

    def _catch_up(self) -> None:
        while True:
            records = self._next_records()
            for record in records:
                self._note(record, self.fold.apply(record))
            if len(records) < SCAN_RECORDS_MAX:
                return

    def _next_records(self) -> list[Record]:
        try:
            return self._scan(self.fold.next_position, SCAN_RECORDS_MAX)
        except Gone:
            fold = None if self.source is None else self.source()
            if fold is None:
                raise
            self.fold = fold
            self._start_idx = fold.next_idx
            return self._scan(fold.next_position, SCAN_RECORDS_MAX)

    def _check_reach(self, index: int) -> None:
        if index < self._start_idx:
            msg = f"events before index {self._start_idx} cannot be judged, {index} is wanted"
            raise Gone(msg, horizon=self._start_idx, log=self._name)

    def _note(self, record: Record, outcome: Outcome | None) -> None:
        if outcome is None or outcome.event is None or not isinstance(outcome.verdict, Accepted):
            self._rejected.add(record.position)
            kind = "tombstones"
            if outcome is not None:
                kind = "duplicates" if isinstance(outcome.verdict, Duplicate) else "void"
            self._counts[kind] += 1
            return
        event = outcome.event
        if event.subject_kind == "job_run" and event.subject_id not in self._jobs:
            self._jobs[event.subject_id] = terms_of(event, self._jobs.get, outcome.body)
        if self.fold.is_replica:
            self._indices.append(outcome.index)
            self._positions.append(record.position)
        self._counts["bytes"] += len(record.value or b"")
        self._by_type[event.event_type] = self._by_type.get(event.event_type, 0) + 1
        self._by_kind[event.subject_kind] = self._by_kind.get(event.subject_kind, 0) + 1
        if self._first is None:
            self._first = outcome.index, outcome.created_at
        late = self._late_times
        if outcome.created_at > _given_time(record) and (
            not late or late[-1] != outcome.created_at
        ):
            self._late_positions.append(record.position)
            late.append(outcome.created_at)

    def _time_of(self, position: int, given: int) -> int:
        """Return the running maximum of the ingest time at an accepted record."""
        if not self._late_times:
            return given
        at = bisect_right(self._late_positions, position)
        return max(given, self._late_times[at - 1]) if at else given

    def was_accepted(self, position: int) -> bool:
        """Whether an accepted event stands at a position that was read."""
        with self._lock:
            return position < self.fold.next_position and position not in self._rejected

    def position_of(self, index: int) -> int:
        """Return the position of the first record whose index is at or after `index`."""
        if not self.fold.is_replica:
            return index
        at = bisect_left(self._indices, index)
        return self._positions[at] if at < len(self._positions) else self.fold.next_position

    def read(self, since_idx: int, wanted: EventFilter, limit: int) -> EventPage:
        """Return a page of accepted events; see `EventLog.read`."""
        check_page(limit, since_idx)
        matcher = Matcher(wanted)
        with self._lock:
            self._catch_up()
            self._check_reach(since_idx)
            return self._read(max(since_idx, 0), matcher, limit)

    def _read(self, since_idx: int, matcher: Matcher, limit: int) -> EventPage:
        end = self.fold.next_position
        position = self.position_of(since_idx)
        found: list[StoredEvent] = []
        looked_at = 0
        next_idx = since_idx
        while position < end and len(found) < limit:
            # A page that stops early must have moved on, or its reader would ask for ever.
            moved_on = next_idx > since_idx or not self.fold.is_replica
            if looked_at >= PAGE_SCAN_RECORDS_MAX and moved_on:
                break
            records = self._scan(position, min(SCAN_RECORDS_MAX, max(limit, 100)))
            if not records:
                position = end
                break
            for record in records:
                if record.position >= end or len(found) == limit:
                    break
                looked_at += 1
                position = record.position + 1
                stored = self._stored(record)
                if stored is None:
                    continue
                next_idx = stored.index + 1
                terms = terms_of(stored.event, self._jobs.get) if matcher.needs_terms else NO_TERMS
                if matcher.matches(stored, terms):
                    found.append(stored)
            else:
                continue
            break
        if position >= end:
            next_idx = max(self.fold.next_idx, since_idx)
        elif not self.fold.is_replica:
            next_idx = max(position, since_idx)
        return EventPage(tuple(found), next_idx, position < end)

    def _stored(self, record: Record) -> StoredEvent | None:
        value = record.value
        if value is None or record.position in self._rejected:
            return None
        if value[:10] == REPLICA_HEADER:
            wrapped = decode_replica(value)
            event = decode_event(wrapped.envelope)
            created_at = self._time_of(record.position, wrapped.origin_created_at)
            return StoredEvent(wrapped.origin_index, created_at, event)
        created_at = self._time_of(record.position, record.created_at)
        return StoredEvent(record.position, created_at, decode_event(value))

    def get(self, index: int) -> StoredEvent | None:
        """Return the accepted event at an index, or None."""
        with self._lock:
            self._catch_up()
            if not 0 <= index < self.fold.next_idx:
                return None
            self._check_reach(index)
            records = self._scan(self.position_of(index), 1)
            stored = self._stored(records[0]) if records else None
            return stored if stored is not None and stored.index == index else None

    def get_by_id(self, event_id: bytes) -> StoredEvent | None:
        """Return the first accepted event with an id, or None; scans the log past the window."""
        with self._lock:
            self._catch_up()
            index = self.fold.first_index(event_id)
        if index is not None:
            return self.get(index)
        cursor = self._start_idx
        while True:
            page = self.read(cursor, EventFilter(), SCAN_RECORDS_MAX)
            for stored in page.events:
                if stored.event.event_id == event_id:
                    return stored
            if not page.has_more:
                return None
            cursor = page.next_idx

    def end(self) -> LogEnd | None:
        """Return where the log ends, None where it holds no log_created event."""
        fold = self.catch_up()
        if fold.log_id is None:
            return None
        return LogEnd(fold.next_idx, fold.merkle.root(), fold.log_id)

    def statistics(self) -> Statistics:
        """Count what the log holds."""
        fold = self.catch_up()
        with self._lock:
            first = self._first or (None, None)
            events = sum(self._by_type.values())
            seen = events + len(self._rejected)
            return Statistics(
                events=events,
                first_index=first[0],
                last_index=fold.last_accepted if events else None,
                first_created_at=first[1],
                last_created_at=fold.created_at if events else None,
                bytes=self._counts["bytes"],
                by_type=dict(self._by_type),
                by_subject_kind=dict(self._by_kind),
                void=self._counts["void"],
                duplicates=self._counts["duplicates"],
                tombstones=self._counts["tombstones"],
                gaps=fold.next_position - seen,
            )


def _given_time(record: Record) -> int:
    """Return the ingest time that a record itself gives; a replica's names the origin's."""
    value = record.value or b""
    if value[:10] == REPLICA_HEADER:
        return decode_replica(value).origin_created_at
    return record.created_at
