"""A log with a local index of it: selective reads over a log that cannot be searched.

`IndexedLog` is the log itself in everything but `read`, `get`, `get_by_id` and `end`, which are
answered from an index in a SQLite file (`belog.storage.index_file`). What they cost on a topic:

==============  =================================  =================================================
call            without an index                   with one
==============  =================================  =================================================
first call      folds the log: reads all of it     folds the index, and reads what is new in the log
`read`, filter  reads the log from `since_idx` on  what it returns, and one question where the log
                until the page is full             ends
`read`          the records of the page            the same, from the file
`get`           moves a consumer, milliseconds     a look into the file, no network, for what the
                                                   index covers
`get_by_id`     reads the log, but for its last    a look into the file
                65,536 events
==============  =================================  =================================================

An event that is new costs some 20 µs more once, when the next read takes it into the index, and a
write to the disk for each such read. An answer is never ahead of the log; `read` and `end` first
take in what the log holds, so they are not behind it either, and `next_idx` says how far they
reach. `as_of` says how far the index is.

A replica is passed through without an index, and so is a log that was vacuumed before it had one.
What is behind the horizon of a log that was vacuumed later is asked of the log.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final
from uuid import UUID

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import BelogError, Closed, Gone
from belog.schemas.filters import ALL, EventFilter
from belog.schemas.fold import Fold, Record
from belog.schemas.limits import PAGE_EVENTS_MAX
from belog.storage.creation import require_end
from belog.storage.horizon import Horizon, Removal
from belog.storage.index_file import IndexFile
from belog.storage.interface import (
    SCAN_RECORDS_MAX,
    CopiedRecord,
    EventPage,
    LogEnd,
    LogIdentity,
    OrderedLog,
    Receipt,
    SendReport,
    Series,
    SeriesReports,
    Serving,
    Statistics,
)

__all__ = ["IndexedLog"]

LOGGER: Final = logging.getLogger("belog.index")


class IndexedLog(OrderedLog):
    """See the module's docstring. Thread-safe."""

    def __init__(self, log: OrderedLog, path: Path | str) -> None:
        """Take a log that is this object's own from now on; the index is opened by the first read.

        Args:
            log: The log.
            path: The index; made where it is not there.
        """
        self.name = log.name
        self.capabilities = log.capabilities
        self._log = log
        self._path = Path(path)
        self._identity: LogIdentity | None = None
        self._lock = threading.Lock()
        self._index: IndexFile | None = None
        self._is_vacuumed = False
        """Whether the log was vacuumed before there was an index of it."""
        self._closed = False

    # --- the index

    @property
    def as_of(self) -> int:
        """Index below which the index covers the log; 0 where there is none."""
        index = self._index
        return 0 if index is None else index.covered

    def refresh(self, on_progress: Callable[[int, int], None] | None = None) -> int:
        """Take in what the log holds now; return `as_of`. Blocks.

        Args:
            on_progress: Called after each batch with the position reached and the log's end.

        Raises:
            InvalidUri: The index's path is of something else.
            LogTruncated: The index holds more than the log.
            Unavailable: The log or the index cannot be reached.
        """
        with self._lock:
            index = self._refreshed(on_progress)
            return 0 if index is None else index.covered

    def verify_index(self) -> None:
        """Compare the Merkle root of the index with the log's at equal index. Reads both whole.

        Raises:
            Diverged: They differ.
            Gone: The log was vacuumed.
        """
        with self._lock:
            index = self._opened()
            if index is not None:
                index.verify()

    def _opened(self) -> IndexFile | None:
        """Return the index, None where there can be none; the lock is held."""
        if self._closed:
            msg = "the log was closed"
            raise Closed(msg, log=self.name)
        if self._identity is None or self._identity.is_replica or self._is_vacuumed:
            return None
        if self._index is None:
            self._index = IndexFile(self._log, self._path, self._identity.log_id)
        return self._index

    def _refreshed(self, on_progress: Callable[[int, int], None] | None = None) -> IndexFile | None:
        index = self._opened()
        if index is not None:
            try:
                index.refresh(on_progress)
            except Gone as error:
                LOGGER.warning("%s is read without an index: %s", self.name, error)
                self._is_vacuumed = True
                return None
        return index

    # --- answered from the index

    def read(
        self, since_idx: int = 0, wanted: EventFilter = ALL, limit: int = PAGE_EVENTS_MAX
    ) -> EventPage:
        """See `EventLog.read`; costs as the module says."""
        with self._lock:
            index = self._refreshed()
            as_of = 0 if index is None else index.covered
        if index is None or since_idx < index.horizon:
            return self._log.read(since_idx, wanted, limit)
        page = index.store.read(since_idx, wanted, limit)
        if page.has_more:
            return page
        # What stands behind the last event changes nothing: pass over it, as the log does.
        return EventPage(page.events, max(page.next_idx, as_of), has_more=False)

    def get(self, index: int) -> StoredEvent | None:
        """See `EventLog.get`; asks the log only for what the index does not cover yet."""
        with self._lock:
            file = self._opened()
            if file is not None and index >= file.covered:
                file = self._refreshed()
        if file is None or index < file.horizon:
            return self._log.get(index)
        return file.store.get(index)

    def get_by_id(self, event_id: bytes) -> StoredEvent | None:
        """See `EventLog.get_by_id`; asks the log only where the index does not know the id."""
        with self._lock:
            file = self._opened()
            found = None if file is None else file.store.get_by_id(event_id)
            if file is not None and found is None:
                file = self._refreshed()
                found = None if file is None else file.store.get_by_id(event_id)
        if file is None:
            return self._log.get_by_id(event_id)
        if found is not None and found.index < file.horizon:
            return self._log.get(found.index)
        return found

    def end(self) -> LogEnd:
        """See `EventLog.end`."""
        with self._lock:
            index = self._refreshed()
            end = None
            if index is not None and (log_id := index.fold.log_id) is not None:
                end = LogEnd(index.fold.next_idx, index.fold.merkle.root(), log_id)
        return self._log.end() if index is None else require_end(end, self.name)

    # --- passed on

    def initialize(
        self,
        *,
        instance: str = "local",
        log_id: UUID | None = None,
        replica: bool = False,
        empty: bool = False,
    ) -> LogIdentity:
        """See `EventLog.initialize`."""
        self._identity = self._log.initialize(
            instance=instance, log_id=log_id, replica=replica, empty=empty
        )
        return self._identity

    def identify(self) -> LogIdentity | None:
        """See `EventLog.identify`."""
        return self._log.identify()

    def close(self) -> None:
        """See `EventLog.close`."""
        self._closed = True
        # First the log, so that a read which fills the index ends.
        self._log.close()
        with self._lock:
            if self._index is not None:
                self._index.close()

    def next_position(self) -> int:
        """See `EventLog.next_position`."""
        return self._log.next_position()

    def scan(self, since_position: int, limit: int = SCAN_RECORDS_MAX) -> list[Record]:
        """See `EventLog.scan`."""
        return self._log.scan(since_position, limit)

    def wait(self, position: int, timeout_s: float) -> bool:
        """See `EventLog.wait`."""
        return self._log.wait(position, timeout_s)

    def wait_for_index(self, index: int, timeout_s: float) -> bool:
        """See `EventLog.wait_for_index`."""
        return self._log.wait_for_index(index, timeout_s)

    def send(self, key: bytes, value: bytes, on_report: Callable[[SendReport], None]) -> None:
        """See `OrderedLog.send`."""
        self._log.send(key, value, on_report)

    def series(self, first: int, reports: SeriesReports) -> Series:
        """See `OrderedLog.series`."""
        return self._log.series(first, reports)

    def serving(self) -> AbstractContextManager[Serving]:
        """See `OrderedLog.serving`."""
        return self._log.serving()

    def tombstone(self, keys: Sequence[bytes]) -> None:
        """See `OrderedLog.tombstone`."""
        self._log.tombstone(keys)

    def append_batch(
        self, events: Sequence[Event], *, at: int | None = None, atomic: bool = False
    ) -> list[Receipt | BelogError]:
        """See `EventLog.append_batch`."""
        return self._log.append_batch(events, at=at, atomic=atomic)

    def copy_records(self, records: Sequence[CopiedRecord], *, after: int) -> None:
        """See `EventLog.copy_records`."""
        self._log.copy_records(records, after=after)

    def statistics(self) -> Statistics:
        """See `EventLog.statistics`; reads the log, because the index holds no void records."""
        return self._log.statistics()

    def scan_raw(self, since_position: int, limit: int) -> list[Record]:
        """See `EventLog.scan_raw`."""
        return self._log.scan_raw(since_position, limit)

    def horizon(self) -> Horizon | None:
        """See `EventLog.horizon`."""
        return self._log.horizon()

    def remove(self, removals: Sequence[Removal]) -> None:
        """See `EventLog.remove`; the index keeps what is removed and does not show it."""
        self._log.remove(removals)

    def use_snapshots(self, source: Callable[[], Fold | None]) -> None:
        """See `EventLog.use_snapshots`."""
        self._log.use_snapshots(source)
