"""A log in the memory of one process: for tests, and for looking at what others hold."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from uuid import UUID

from belog.schemas.envelope import Event, StoredEvent, encode_event
from belog.schemas.errors import (
    BelogError,
    Closed,
    IndexConflict,
    InvalidUri,
    NotFound,
)
from belog.schemas.filters import ALL, EventFilter
from belog.schemas.fold import Record
from belog.schemas.limits import PAGE_EVENTS_MAX
from belog.storage.creation import (
    check_copied,
    check_identity,
    log_created,
    new_uuid,
    now_us,
    refuse_foreign_records,
    refuse_replica_append,
    require_end,
)
from belog.storage.factory import redacted
from belog.storage.interface import (
    SCAN_RECORDS_MAX,
    Capabilities,
    ConditionalLog,
    CopiedRecord,
    EventPage,
    LogEnd,
    LogIdentity,
    Receipt,
    Statistics,
    check_batch,
)
from belog.storage.judged import JudgedView
from belog.storage.touch import TOUCH_RECORDS_MAX, check_not_shorter, touches

__all__ = ["MemoryLog"]


class MemoryLog(ConditionalLog):
    """See the module's docstring. Thread-safe; nothing outlives the object."""

    capabilities = Capabilities(
        conditional_append=True, explicit_index=True, durable=False, shared=False
    )

    def __init__(self, name: str = "memory:", *, clock: Callable[[], int] = now_us) -> None:
        """Make an empty log.

        Args:
            name: What errors show.
            clock: Gives the ingest time, microseconds since the epoch.
        """
        self.name = name
        self._clock = clock
        self._records: list[Record] = []
        self._changed = threading.Condition()
        self._identity: LogIdentity | None = None
        self._closed = False
        self._view = JudgedView(self.scan, name)

    def initialize(
        self,
        *,
        instance: str = "local",
        log_id: UUID | None = None,
        replica: bool = False,
        empty: bool = False,
    ) -> LogIdentity:
        """See `EventLog.initialize`."""
        with self._changed:
            self._check_open()
            if self._identity is None:
                identity = LogIdentity(log_id or new_uuid(), instance, replica)
                if not (replica or empty):
                    event = log_created(identity.log_id, instance, self._clock())
                    self._put([encode_event(event)])
                self._identity = identity
            check_identity(self._identity, log_id, replica=replica, name=self.name)
            return self._identity

    def identify(self) -> LogIdentity | None:
        """See `EventLog.identify`."""
        self._check_open()
        return self._identity

    def close(self) -> None:
        """See `EventLog.close`; what the log held is gone."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            msg = "the log was closed"
            raise Closed(msg, log=self.name)

    def next_position(self) -> int:
        """See `EventLog.next_position`."""
        self._check_open()
        return self._next()

    def _next(self) -> int:
        return self._records[-1].position + 1 if self._records else 0

    def scan(self, since_position: int, limit: int = SCAN_RECORDS_MAX) -> list[Record]:
        """See `EventLog.scan`."""
        self._check_open()
        start = since_position
        if self._next() != len(self._records):
            start = bisect_left(self._records, since_position, key=lambda r: r.position)
        return self._records[start : start + limit]

    def wait(self, position: int, timeout_s: float) -> bool:
        """See `EventLog.wait`."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._next() > position, timeout_s)
            self._check_open()
            return self._next() > position

    def append_batch(
        self,
        events: Sequence[Event],
        *,
        at: int | None = None,
        atomic: bool = False,  # noqa: ARG002 - it always is
    ) -> list[Receipt | BelogError]:
        """See `EventLog.append_batch`; always atomic."""
        check_batch(events)
        with self._changed:
            self._check_writable()
            if at is not None and at != self._next():
                msg = f"the log's next index is {self._next()}, not {at}"
                raise IndexConflict(msg, next_idx=self._next(), log=self.name)
            return [*self._append(events)]

    def append_unless_touched(self, events: Sequence[Event], *, seen_idx: int) -> list[Receipt]:
        """See `ConditionalLog.append_unless_touched`."""
        check_batch(events)
        with self._changed:
            self._check_writable()
            check_not_shorter(self._next(), seen_idx, self.name)
            between = self.scan(seen_idx, TOUCH_RECORDS_MAX + 1)
            if len(between) > TOUCH_RECORDS_MAX or touches((r.value for r in between), events):
                msg = "a record in between concerns one of the events"
                raise IndexConflict(msg, next_idx=self._next(), log=self.name)
            return self._append(events)

    def _check_writable(self) -> None:
        refuse_replica_append(self._check_initialized(), self.name)

    def _check_initialized(self) -> LogIdentity:
        self._check_open()
        if self._identity is None:
            msg = "the log was not initialized"
            raise NotFound(msg, log=self.name, hint="call initialize() first")
        return self._identity

    def _append(self, events: Sequence[Event]) -> list[Receipt]:
        first = self._next()
        created_at = self._put([encode_event(event) for event in events])
        return [Receipt(first + n, created_at, event.event_id) for n, event in enumerate(events)]

    def _put(self, values: Sequence[bytes]) -> int:
        created_at = self._clock()
        if self._records:
            created_at = max(created_at, self._records[-1].created_at)
        first = self._next()
        self._records.extend(Record(first + n, created_at, v) for n, v in enumerate(values))
        self._changed.notify_all()
        return created_at

    def copy_records(self, records: Sequence[CopiedRecord], *, after: int) -> None:
        """See `EventLog.copy_records`."""
        check_copied(records, after)
        with self._changed:
            refuse_foreign_records(records, self._check_initialized(), self.name)
            if after != self._next() - 1:
                msg = f"the log's last index is {self._next() - 1}, not {after}"
                raise IndexConflict(msg, next_idx=self._next(), log=self.name)
            self._records.extend(Record(r.index, r.created_at, r.value) for r in records)
            self._changed.notify_all()

    def read(
        self, since_idx: int = 0, wanted: EventFilter = ALL, limit: int = PAGE_EVENTS_MAX
    ) -> EventPage:
        """See `EventLog.read`."""
        return self._view.read(since_idx, wanted, limit)

    def get(self, index: int) -> StoredEvent | None:
        """See `EventLog.get`."""
        return self._view.get(index)

    def get_by_id(self, event_id: bytes) -> StoredEvent | None:
        """See `EventLog.get_by_id`."""
        return self._view.get_by_id(event_id)

    def end(self) -> LogEnd:
        """See `EventLog.end`."""
        return require_end(self._view.end(), self.name)

    def statistics(self) -> Statistics:
        """See `EventLog.statistics`."""
        return self._view.statistics()


def from_uri(uri: str) -> MemoryLog:
    """See `belog.storage.factory`; each call is a log of its own."""
    if uri != "memory:":
        msg = f"a log in memory is named memory:, not {redacted(uri)!r}"
        raise InvalidUri(msg)
    return MemoryLog()
