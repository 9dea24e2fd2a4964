"""Bulk reading of a log into tables: scan, fold, write. For every log, without Faust.

`TableFollower` keeps stored tables up with a log: it catches up in large batches, takes what a tail
gives it, and starts over by itself where the tables were flushed, went back in time, or were made
anew by somebody else. `replay_into` fills tables of this process, also up to a point in time.
"""

import gc
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol
from uuid import UUID

from msgspec import Struct

from belog.processors.memory_tables import MemoryTables
from belog.processors.table_fold import Change, Checkpoint, TableFold
from belog.processors.tables import Stale, TablesStatus, lost_end
from belog.schemas.envelope import HEADER_BYTES, decode_event
from belog.schemas.errors import Corrupt, Diverged, LogReplaced, LogTruncated, Overloaded
from belog.schemas.fold import Fold, Record
from belog.schemas.replica import REPLICA_HEADER, decode_replica
from belog.storage.interface import EventLog, LogIdentity

__all__ = [
    "BATCH_RECORDS",
    "WHOLE_LOG",
    "Beginning",
    "Progress",
    "Stop",
    "TableFollower",
    "TableWriter",
    "Until",
    "replay_into",
]

BATCH_RECORDS: Final = 5_000
"""Records of one batch of a bulk replay: its script takes Redis about 50 ms, during which it serves
nobody else; larger ones are hardly faster."""

RESTARTS_MAX: Final = 10
"""How often in a row the tables may be lost before they are caught up once: somebody deletes them
all the time."""

COLLECTOR_THRESHOLDS: Final = (50_000, 20, 50)
"""Thresholds of Python's cyclic collector during a bulk replay: rows hold no cycles, and with the
usual (700, 10, 10) it looks through them for an eighth of the time."""

Stop = threading.Event
OnProgress = Callable[["Progress"], None]


class Until(Struct, frozen=True, kw_only=True):
    """Where a replay ends: before the first event past any bound."""

    index: int | None = None
    """Apply events below this index."""
    created_us: int | None = None
    """Apply events ingested at or before this time, microseconds since the epoch."""
    occurred_us: int | None = None
    """End before the first event that says it occurred after this time, microseconds since the
    epoch. Events of the log itself (`system`) do not count: a log that a history was imported into
    was made after all of it. The times are the producers' own and need not grow with the index: an
    event behind that first one is not applied, whatever time it names."""

    def excludes(self, record: Record) -> bool:
        """Whether a record lies past a bound; one that is no event lies past none in occurrence."""
        if self == WHOLE_LOG:
            return False
        index, created_at, value = record.position, record.created_at, record.value
        if value is not None and value[:HEADER_BYTES] == REPLICA_HEADER:
            try:
                wrapped = decode_replica(value)
            except Corrupt:
                return False
            index, created_at = wrapped.origin_index, wrapped.origin_created_at
            value = wrapped.envelope
        return (
            (self.index is not None and index >= self.index)
            or (self.created_us is not None and created_at > self.created_us)
            or (self.occurred_us is not None and _occurred_after(value, self.occurred_us))
        )


def _occurred_after(value: bytes | None, time_us: int) -> bool:
    if value is None:
        return False
    try:
        event = decode_event(value)
    except Corrupt:
        return False
    return event.subject_kind != "system" and event.occurred_at > time_us


WHOLE_LOG: Final = Until()


class Progress(Struct, frozen=True):
    """How far a replay is."""

    position: int
    """Position of the next record."""
    end_position: int
    """Where the log ended when it was last asked."""
    records: int
    """Records read by this replay."""
    elapsed_s: float

    @property
    def rate_per_s(self) -> float:
        """Records read per second."""
        return self.records / self.elapsed_s if self.elapsed_s else 0.0


@contextmanager
def _fewer_collections() -> Generator[None]:
    """Let the cyclic collector of this process run less often meanwhile."""
    before = gc.get_threshold()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Scan:
    """The records of a log from a position on, batch by batch, with progress."""

    def __init__(
        self, log: EventLog, until: Until, on_progress: OnProgress | None, stop: Stop | None
    ) -> None:
        self._log = log
        self._until = until
        self._on_progress = on_progress
        self._stop = stop or Stop()
        self._started = time.monotonic()
        self._records = 0
        self._end_position = 0

    def batches(self, position: Callable[[], int]) -> Iterator[list[Record]]:
        """Yield batches from where `position` says, until the log's end, the bound or the stop."""
        while not self._stop.is_set():
            at = position()
            if at >= self._end_position:
                self._end_position = self._log.next_position()
                self._check_end(at)
            records = self._log.scan(at, BATCH_RECORDS)
            if not records:
                return
            wanted = self._within(records)
            self._records += len(wanted)
            if wanted:
                yield wanted
            if self._on_progress is not None:
                self._on_progress(self._progress(position()))
            if len(wanted) < len(records):
                return

    def _within(self, records: list[Record]) -> list[Record]:
        if self._until == WHOLE_LOG:
            return records
        for n, record in enumerate(records):
            if self._until.excludes(record):
                return records[:n]
        return records

    def _progress(self, position: int) -> Progress:
        elapsed_s = time.monotonic() - self._started
        end = max(self._end_position, position)
        return Progress(position, end, self._records, elapsed_s)

    def _check_end(self, position: int) -> None:
        if self._end_position < position:
            msg = f"the log ends at {self._end_position}, and was read up to {position}"
            raise LogTruncated(msg, log=self._log.name, hint="was the log recreated or cut?")


def replay_into(
    log: EventLog,
    tables: MemoryTables,
    *,
    until: Until = WHOLE_LOG,
    on_progress: OnProgress | None = None,
    stop: Stop | None = None,
) -> int:
    """Apply what the log holds to tables of this process. Goes on from where they are.

    Args:
        log: An opened log.
        tables: The tables.
        until: Where to end.
        on_progress: Called after each batch.
        stop: Set by another thread to end early, after the batch under way.

    Returns:
        The index of the first event that is not applied.

    Raises:
        LogTruncated: The log is shorter than what was applied.
        NewerFormat: A record needs newer software; everything before it was applied.
    """
    scan = _Scan(log, until, on_progress, stop)
    with _fewer_collections():
        for records in scan.batches(lambda: tables.status().position):
            tables.apply(records)
    return tables.applied()


class TableWriter(Protocol):
    """Stored tables, as who writes them sees them; see `belog.processors.redis_writer`."""

    name: str

    @property
    def generation(self) -> str:
        """The tables that are written."""
        ...

    def status(self) -> TablesStatus:
        """Return how far the tables are."""
        ...

    def start(self, log_id: str) -> TablesStatus:
        """Make the tables ready for a log."""
        ...

    def clear(self, log_id: str, seen: TablesStatus) -> bool:
        """Start empty tables, unless somebody else has."""
        ...

    def remove_old(self) -> int:
        """Remove what tables made anew left behind."""
        ...

    def write(self, change: Change) -> Stale | None:
        """Hand a batch over."""
        ...

    def flush(self) -> Stale | None:
        """Wait until all batches are written."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


class Beginning(Protocol):
    """Where a follower begins that does not read the whole log; see `belog.processors.periodic`."""

    def fold(self) -> TableFold:
        """Return the fold of the newest snapshot, an empty one where there is none."""
        ...

    def load(self, fold: TableFold, seen: TablesStatus) -> bool:
        """Put a fold's rows in the place of the stored tables, unless they have moved on."""
        ...

    def passed(self, fold: TableFold) -> None:
        """Take note of how far a follower is; only to be looked at, and not kept."""
        ...

    def close(self) -> None:
        """End what goes on beside the follower; idempotent."""
        ...


class TableFollower:
    """Keeps stored tables up with a log. Not thread-safe.

    The position is that of the tables: what they hold already is folded again, for the verdicts,
    and not written again.

    Attributes:
        log_id: The log's identity.
        restarts: How often the tables were found lost since the start.
    """

    def __init__(
        self,
        log: EventLog,
        writer: TableWriter,
        identity: LogIdentity,
        *,
        beginning: Beginning | None = None,
    ) -> None:
        """Follow an opened log; call `start` first.

        Args:
            log: The log.
            writer: The tables; this object's own from then on.
            identity: What opening the log said.
            beginning: Where to begin; None for the log's beginning.
        """
        self.log_id: UUID = identity.log_id
        self.restarts = 0
        self._log = log
        self._writer = writer
        self._beginning = beginning
        self._fold = TableFold(Fold(keeps_root=False))
        self._from = Checkpoint(0, 0)
        # The tables found, until the fold is where they are and they prove to be of this log.
        self._unproved: TablesStatus | None = None

    @property
    def position(self) -> int:
        """Position of the next record to take."""
        return self._fold.fold.next_position

    @property
    def next_idx(self) -> int:
        """Index of the next event to take."""
        return self._fold.fold.next_idx

    def start(self) -> Checkpoint:
        """Make the tables ready, and begin with the newest snapshot, or with an empty fold.

        Tables that lack what the snapshot holds are loaded from it.

        Returns:
            Where the tables are.

        Raises:
            LogTruncated: The tables are ahead of the log.
            Overloaded: Others wrote or lost the tables all the time.
            Unavailable: Redis, the log or the snapshots cannot be reached.
            As `TableWriter.start`.
        """
        beginning = self._beginning
        self._fold = TableFold(Fold(keeps_root=False)) if beginning is None else beginning.fold()
        for _ in range(RESTARTS_MAX):
            status = self._look()
            if beginning is None or self.position <= status.position:
                return self._from
            beginning.load(self._fold, status)
        msg = f"the tables were written or lost {RESTARTS_MAX} times while they were loaded"
        raise Overloaded(msg, log=self._writer.name, hint="who else deletes keys there?")

    def _look(self) -> TablesStatus:
        status = self._writer.start(str(self.log_id))
        end_position = self._log.next_position()
        if status.position > end_position:
            raise lost_end(self._log, end_position, status)
        self._from = Checkpoint(status.position, status.applied)
        self._unproved = status if status.position else None
        return status

    def rebuild(self) -> None:
        """Throw the tables away, so that they are made anew from where this object begins.

        In place of `start`, also where the tables are ahead of a log that lost its end.

        Raises:
            As `start`, but for that.
        """
        with suppress(LogTruncated):
            self.start()
        self._writer.clear(str(self.log_id), self._writer.status())
        self.start()

    def catch_up(
        self,
        *,
        until: Until = WHOLE_LOG,
        on_progress: OnProgress | None = None,
        stop: Stop | None = None,
    ) -> int:
        """Write what the log holds now; see `replay_into`. Returns when it is in the tables.

        Raises:
            Diverged: The tables hold other events than the log, where it lost its end and grew.
            Overloaded: The tables were lost `RESTARTS_MAX` times meanwhile.
            LogReplaced: Somebody else put another log's tables in their place.
        """
        for _ in range(RESTARTS_MAX):
            before = self.restarts
            scan = _Scan(self._log, until, on_progress, stop)
            with _fewer_collections():
                for records in scan.batches(lambda: self.position):
                    self._write(self._fold.apply(self._proved(records)))
                    self._passed()
                self._flush()
            if self.restarts == before:
                self._writer.remove_old()
                return self.next_idx
        msg = f"the tables were lost {RESTARTS_MAX} times while they were made"
        raise Overloaded(msg, log=self._writer.name, hint="who else deletes keys there?")

    def take(self, records: Sequence[Record]) -> None:
        """Write records of the log's tail; what is missing before them is read from the log.

        Returns when they are in the tables.

        Raises:
            As `catch_up`.
        """
        restarts = self.restarts
        if records and records[0].position == self.position:
            self._write(self._fold.apply(records))
            self._flush()
            self._passed()
        if self.restarts != restarts or (records and records[-1].position >= self.position):
            self.catch_up()

    def stand_by(self) -> int:
        """Fold what another worker has written, and write nothing; a takeover is short then.

        Returns:
            Position up to which the log is folded.

        Raises:
            As `start`, where the tables are not those of before.
        """
        status = self._writer.status()
        if status.generation != self._writer.generation or status.position < self._from.position:
            self._restart(Stale(status))
            return self.position
        self._from = Checkpoint(status.position, status.applied)
        while self.position < self._from.position:
            limit = min(BATCH_RECORDS, self._from.position - self.position)
            records = self._log.scan(self.position, limit)
            below = [r for r in records if r.position < self._from.position]
            if not below:
                break
            self._fold.apply(below)
        if self._unproved is not None and self.position >= self._unproved.position:
            self._require_same(status)
        return self.position

    def check(self) -> None:
        """Look whether the tables are still there; if not, make them anew.

        Raises:
            As `catch_up`.
        """
        status = self._writer.status()
        if status.generation != self._writer.generation or status.position < self.position:
            self._restart(Stale(status))
            self.catch_up()

    def _proved(self, records: list[Record]) -> list[Record]:
        """Fold what the tables hold, and compare; return the records that they do not hold.

        A log that lost its end and grew past it again has other events where the tables are.
        """
        tables = self._unproved
        if tables is None:
            return records
        beyond = [record for record in records if record.position >= tables.position]
        if held := records[: len(records) - len(beyond)]:
            self._fold.apply(held)
            if self.position <= held[-1].position:
                return []  # one that needs newer software, which the next call says
        if beyond or self.position >= tables.position:
            self._require_same(tables)
        return beyond

    def _require_same(self, tables: TablesStatus) -> None:
        """Compare by the time that the log gave its last event: no other event there has it."""
        fold = self._fold.fold
        if fold.created_at != tables.created_at:
            msg = f"below index {tables.applied} the tables hold other events than the log"
            hint = "did it lose its end and grow again? make the tables anew (belog replay)"
            raise Diverged(msg, log=self._log.name, index=tables.applied, hint=hint)
        self._unproved = None

    def _write(self, change: Change) -> None:
        start, end = change.start.position, change.end.position
        if end <= self._from.position or start == end:
            return
        rest = change.rest(self._from) if start < self._from.position else change
        if stale := self._writer.write(rest):
            self._restart(stale)

    def _passed(self) -> None:
        if self._beginning is not None:
            self._beginning.passed(self._fold)

    def _flush(self) -> None:
        if stale := self._writer.flush():
            self._restart(stale)

    def _restart(self, stale: Stale) -> None:
        found = stale.status.log_id
        if found is not None and found != str(self.log_id):
            msg = f"the tables are now of log {found}, not of {self.log_id}"
            hint = "two logs must not share a prefix"
            raise LogReplaced(msg, log=self._writer.name, hint=hint)
        self.restarts += 1
        self.start()

    def close(self) -> None:
        """Release the tables; idempotent."""
        if self._beginning is not None:
            self._beginning.close()
        self._writer.close()
