"""The storage interface: what every backend of the log offers.

A log is a sequence of records at growing positions. Storage keeps records, orders them, and gives
them back; it does not decide whether an event is legal. That is done by the verdict
(`belog.schemas.fold`), which the producer asks before it appends and every reader of raw records
asks after.

Two families of backends differ in how writers meet:

- `ConditionalLog`: appends can be conditional on what the log holds (SQLite, PostgreSQL, Delta,
files,
  memory). A producer's events are judged before they enter, so no void record exists.
- `OrderedLog`: appends only say where the record landed (Kafka). Records that lost a race are in
the log
  until a tombstone removes them, so `read` judges what it returns.

Everything here is synchronous. Instances are thread-safe. Positions, indices and cursors count from
0.
"""

import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Final, Self
from uuid import UUID

from msgspec import Struct

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import BelogError, Closed, LimitExceeded, Unsupported
from belog.schemas.filters import ALL, EventFilter
from belog.schemas.fold import Fold, Record
from belog.schemas.limits import BATCH_EVENTS_MAX, PAGE_EVENTS_MAX
from belog.schemas.receipts import EventPage, Receipt
from belog.storage.horizon import Removal, Vacuumable, VacuumReport
from belog.storage.sending import OnReport, SendReport, Series, SeriesReports, Serving

__all__ = [
    "FOLLOW_WAIT_S",
    "SCAN_RECORDS_MAX",
    "Capabilities",
    "ConditionalLog",
    "CopiedRecord",
    "EventLog",
    "EventPage",
    "LogEnd",
    "LogIdentity",
    "OrderedLog",
    "Receipt",
    "Removal",
    "SendReport",
    "Series",
    "SeriesReports",
    "Serving",
    "Statistics",
    "VacuumReport",
]

SCAN_RECORDS_MAX: Final = 10_000
"""Records of one raw scan: about 3 MB at the usual size, a few tens of milliseconds to fold."""

FOLLOW_WAIT_S: Final = 0.5
"""Longest single wait of a follower, seconds, before it looks whether it should stop."""


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a backend can do; tests and callers ask these, never its name."""

    conditional_append: bool
    """`at` and `seen_idx` are honoured."""
    explicit_index: bool
    """`copy_records` keeps the indices it is given."""
    readable: bool = True
    durable: bool = True
    """What was acknowledged survives the process and a power cut."""
    shared: bool = True
    """Several processes may have the log open at once."""
    single_writer: bool = False
    """Of these only one may write, from its first append until it closes the log."""
    vacuum: bool = False


class LogIdentity(Struct, frozen=True):
    """Which log this is."""

    log_id: UUID
    instance: str
    """Name of the instance that created it."""
    is_replica: bool


class LogEnd(Struct, frozen=True):
    """Where a log ends."""

    next_idx: int
    root: bytes
    """Merkle root over the accepted events below `next_idx`, 32 bytes."""
    log_id: UUID


class CopiedRecord(Struct, frozen=True, gc=False):
    """A record with its place and time, for replicas and migration."""

    index: int
    created_at: int
    value: bytes


class Statistics(Struct, frozen=True, kw_only=True):
    """What a log holds."""

    events: int
    first_index: int | None
    last_index: int | None
    first_created_at: int | None
    last_created_at: int | None
    bytes: int
    """Sum of the record values."""
    by_type: Mapping[str, int]
    by_subject_kind: Mapping[str, int]
    void: int = 0
    duplicates: int = 0
    tombstones: int = 0
    gaps: int = 0
    """Positions below the end that hold no record."""


class EventLog(Vacuumable):
    """One log.

    Attributes:
        name: The log's URI without secrets; what errors and logs show.
        capabilities: What this backend can do.
    """

    name: str
    capabilities: Capabilities

    # --- life

    @abstractmethod
    def initialize(
        self,
        *,
        instance: str = "local",
        log_id: UUID | None = None,
        replica: bool = False,
        empty: bool = False,
    ) -> LogIdentity:
        """Open the log, creating it where it is not there yet. Idempotent; blocks.

        A new primary log gets its `log_created` event at index 0; a new replica stays empty, its
        first record comes from its origin's sink.

        Args:
            instance: Name of the creating instance, for a new log.
            log_id: For a new log its identity, made at random when None. For a log that exists
                the identity it must have.
            replica: Whether a new log is a replica; for a log that exists, what it must be.
            empty: Leave a new primary log without its first event, for a migration that copies all
                of them. Without effect on a log that exists.

        Raises:
            LogReplaced: The log exists with another identity.
            Misconfigured: A setting of the server breaks a promise of the log.
            NewerFormat: The store was written by newer software.
            Unavailable: The server or file cannot be reached.
        """

    def identify(self) -> LogIdentity | None:
        """Return which log is there, None where there is none yet. Creates and changes nothing.

        For whoever must not create a log by naming it, or does not know whether it is a replica.
        May be called before `initialize`. Blocks for a round trip.

        Raises:
            InvalidUri: There is something else.
            NewerFormat: The store was written by newer software.
            Unavailable: The server or file cannot be reached.
            Unsupported: The backend cannot be read.
        """
        msg = "this log does not say which one it is before it is initialized"
        raise Unsupported(msg, log=self.name)

    @abstractmethod
    def close(self) -> None:
        """Release everything; waiting readers end. Idempotent."""

    # --- raw records

    @abstractmethod
    def next_position(self) -> int:
        """Return the position that the next record will get. Blocks for at most a round trip."""

    @abstractmethod
    def scan(self, since_position: int, limit: int = SCAN_RECORDS_MAX) -> list[Record]:
        """Return records in position order from `since_position` on, those that are there now.

        Void records and tombstones are among them; removed ones are not. An empty list means that
        there is none at or after `since_position`.

        Args:
            since_position: First position wanted.
            limit: Most records to return, 1 to `SCAN_RECORDS_MAX`.

        Raises:
            Gone: Some are missing, behind the vacuum horizon.
        """

    @abstractmethod
    def wait(self, position: int, timeout_s: float) -> bool:
        """Block until the log holds a record at or after `position`, or until the time is over.

        Returns:
            Whether it does.
        """

    # --- events

    def append(self, event: Event, *, at: int | None = None) -> Receipt:
        """Append one event; see `append_batch`, whose error for the event is raised."""
        (result,) = self.append_batch([event], at=at)
        if isinstance(result, BelogError):
            raise result
        return result

    @abstractmethod
    def append_batch(
        self, events: Sequence[Event], *, at: int | None = None, atomic: bool = False
    ) -> list[Receipt | BelogError]:
        """Append events in order; does not judge them (`belog.producers` does).

        On return the events are durable. Events of one call get consecutive indices where the
        backend is conditional.

        Args:
            events: At most `BATCH_EVENTS_MAX`.
            at: Append only if the log's next index is this one.
            atomic: All or none become visible, together.

        Returns:
            One receipt or error per event, in order.

        Raises:
            IndexConflict: `at` is not the log's next index; nothing was written.
            Unsupported: The backend cannot honour `at` or `atomic`.
        """

    @abstractmethod
    def copy_records(self, records: Sequence[CopiedRecord], *, after: int) -> None:
        """Append records that have their index and ingest time already, for replicas and migration.

        Atomic where the backend is conditional: all or none.

        Args:
            records: With growing indices, all above `after`.
            after: Index of the last record the log must hold now, -1 for none.

        Raises:
            IndexConflict: The log's last record is another one; nothing was written.
        """

    @abstractmethod
    def read(
        self, since_idx: int = 0, wanted: EventFilter = ALL, limit: int = PAGE_EVENTS_MAX
    ) -> EventPage:
        """Return accepted events in index order from `since_idx` on. Does not wait for more.

        A filter applies to every event that concerns its subjects: a job run's event concerns its
        outputs, a build request's arrival the partitions it asks for.

        Args:
            since_idx: First index wanted; 0 is the beginning.
            wanted: Which events.
            limit: Most events to return, 1 to `PAGE_EVENTS_MAX`.

        Raises:
            Gone: `since_idx` lies behind the vacuum horizon.
        """

    @abstractmethod
    def get(self, index: int) -> StoredEvent | None:
        """Return the accepted event at an index, or None."""

    @abstractmethod
    def get_by_id(self, event_id: bytes) -> StoredEvent | None:
        """Return the first accepted event with an id, or None."""

    @abstractmethod
    def end(self) -> LogEnd:
        """Return where the log ends now. The first call folds the log, later ones what is new."""

    def follow(
        self,
        since_idx: int = 0,
        wanted: EventFilter = ALL,
        *,
        stop: threading.Event | None = None,
    ) -> Iterator[StoredEvent]:
        """Yield accepted events from `since_idx` on, then live ones, in order, none missed.

        Ends within `FOLLOW_WAIT_S` when the log is closed or `stop` is set.
        """
        cursor = since_idx
        while stop is None or not stop.is_set():
            try:
                page = self.read(cursor, wanted)
                yield from page.events
                cursor = page.next_idx
                if not page.has_more:
                    self.wait_for_index(cursor, FOLLOW_WAIT_S)
            except Closed:
                return

    def wait_for_index(self, index: int, timeout_s: float) -> bool:
        """Block until the log holds a record at or after `index`, or until the time is over."""
        return self.wait(index, timeout_s)

    @abstractmethod
    def statistics(self) -> Statistics:
        """Count what the log holds. Reads it whole on backends without an index."""

    def __enter__(self) -> Self:
        """Return the log itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the log."""
        self.close()


class ConditionalLog(EventLog):
    """A log whose appends can be conditional on what it holds."""

    @abstractmethod
    def append_unless_touched(self, events: Sequence[Event], *, seen_idx: int) -> list[Receipt]:
        """Append events that were judged against the log below `seen_idx`. Atomic and durable.

        Succeeds where no record at or after `seen_idx` could change a verdict on one of them: none
        has the same subject or event id, and none is of the log itself (`system`). So writers
        of different subjects do not get in each other's way.

        Raises:
            IndexConflict: Such a record is there, or there are too many to look through, or the
                log ends before `seen_idx`; nothing was written. Read on to its `next_idx`, judge
                again, and retry; where that lies before `seen_idx`, the log was cut or replaced.
        """


class OrderedLog(EventLog):
    """A log that only says afterwards where a record landed."""

    @abstractmethod
    def send(self, key: bytes, value: bytes, on_report: OnReport) -> None:
        """Hand a record over for sending, in call order. Does not block.

        `on_report` is called once, from a thread of the log's own, in the order of the positions.

        Args:
            key: 16 bytes, unique to this attempt; compaction keeps one record a key.
            value: The encoded event.
            on_report: Called with the outcome.

        Raises:
            Overloaded: The send buffer is full; wait for reports and try again.
            Closed: The log was closed.
        """

    def series(self, first: int, reports: SeriesReports) -> Series:
        """Return what sends records in a row and is told of them together where they land so.

        The same records with the same keys in the same order as by `send`, for less.

        Args:
            first: Position that the first record is expected to get.
            reports: Is told.
        """
        return Series(self.send, first, reports)

    def serving(self) -> AbstractContextManager[Serving]:
        """Offer this thread for calling back with reports while the context lasts.

        A thread that sends and then waits for the answer saves the hand-over from the log's own
        thread by taking it itself. One thread at a time serves; for others, and on logs that have
        nothing to serve, the offer is not taken, and reports come from the log's thread.
        """
        return nullcontext(Serving())

    @abstractmethod
    def tombstone(self, keys: Sequence[bytes]) -> None:
        """Write tombstones, so that compaction removes the records with these keys. Blocks."""


def check_batch(events: Sequence[object]) -> None:
    """Refuse a batch over its bound.

    Raises:
        LimitExceeded: More than `BATCH_EVENTS_MAX` events.
    """
    if len(events) > BATCH_EVENTS_MAX:
        raise LimitExceeded(
            "batch",
            limit="BATCH_EVENTS_MAX",
            limit_value=BATCH_EVENTS_MAX,
            value=len(events),
        )


def check_page(limit: int, since_idx: int) -> None:
    """Refuse a page size or cursor out of range.

    Raises:
        LimitExceeded: `limit` is over `PAGE_EVENTS_MAX`.
        ValueError: `limit` is below 1 or `since_idx` below 0.
    """
    if limit > PAGE_EVENTS_MAX:
        raise LimitExceeded(
            "page", limit="PAGE_EVENTS_MAX", limit_value=PAGE_EVENTS_MAX, value=limit
        )
    if limit < 1 or since_idx < 0:
        msg = f"limit {limit} must be at least 1 and since_idx {since_idx} at least 0"
        raise ValueError(msg)


def fold_log(log: EventLog, fold: Fold, *, until_position: int | None = None) -> Fold:
    """Apply all records of a log that a fold has not seen yet; return the fold."""
    while until_position is None or fold.next_position < until_position:
        limit = SCAN_RECORDS_MAX
        if until_position is not None:
            limit = min(limit, until_position - fold.next_position)
        records = log.scan(fold.next_position, limit)
        if not records:
            break
        for record in records:
            if until_position is not None and record.position >= until_position:
                return fold
            fold.apply(record)
    return fold
