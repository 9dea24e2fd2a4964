"""A log in one SQLite file: the embedded default.

WAL mode with `synchronous=FULL`: an append is on disk when it returns, and readers do not wait for
writers. Indices are explicit primary keys, so there is never a gap, and no reader can see one event
before an earlier one. Several processes may have the file open at once; writers take turns on
SQLite's write lock.

Table `belog_meta` names the format and the log, table `belog_records` holds
`idx INTEGER PRIMARY KEY, created_at INTEGER, value BLOB`.

Source: https://www.sqlite.org/wal.html, https://www.sqlite.org/pragma.html#pragma_synchronous
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from itertools import count, repeat
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from uuid import UUID

from belog.schemas.envelope import Event, StoredEvent, encode_event
from belog.schemas.errors import (
    BelogError,
    Closed,
    IndexConflict,
    InvalidUri,
    NotFound,
    Unsupported,
)
from belog.schemas.filters import ALL, EventFilter, Matcher
from belog.schemas.fold import Record
from belog.schemas.limits import PAGE_EVENTS_MAX
from belog.storage.creation import (
    check_copied,
    check_identity,
    new_uuid,
    now_us,
    refuse_foreign_records,
    refuse_replica_append,
    require_end,
)
from belog.storage.factory import redacted
from belog.storage.horizon import steps_of
from belog.storage.interface import (
    SCAN_RECORDS_MAX,
    Capabilities,
    ConditionalLog,
    CopiedRecord,
    EventPage,
    LogEnd,
    LogIdentity,
    Receipt,
    Removal,
    Statistics,
    check_batch,
    check_page,
)
from belog.storage.judged import JudgedView
from belog.storage.open_file import OpenFile
from belog.storage.recount import recounted
from belog.storage.selective import TermIndex, event_of, page_of
from belog.storage.sqlite_file import INSERT, META, create, identity_in, meaning_of, tables_of
from belog.storage.sqlite_readers import ReaderConnections
from belog.storage.sqlite_terms import SqliteTerms
from belog.storage.touch import TOUCH_RECORDS_MAX, check_not_shorter, touches

__all__ = ["SqliteLog"]

LOCK_WAIT_S: Final = 30.0
"""Longest wait for another process's write transaction, seconds: hundreds of the longest
batches."""
POLL_S: Final = 0.01
"""How often a waiting reader looks for another process's commit, seconds: `PRAGMA data_version`
costs about 2 µs, and 10 ms is far below what "within seconds" allows."""
WAL_PAGES_MAX: Final = 256
"""Pages that commits leave in the write-ahead log before one of them moves all into the database,
1 MiB: SQLite's own bound is 1,000. A commit that lengthens the log's file waits half as long again
for the disk as one that writes over what was moved, so appends are fast from this many pages on.
Below 128 the syncs of the database itself cost more than that."""

_LAST: Final = "SELECT idx, created_at FROM belog_records ORDER BY idx DESC LIMIT 1"
_SCAN: Final = (
    "SELECT idx, created_at, value FROM belog_records WHERE idx >= ? ORDER BY idx LIMIT ?"
)


class SqliteLog(ConditionalLog):
    """See the module's docstring. Thread-safe: one connection writes, each reader has one."""

    capabilities = Capabilities(conditional_append=True, explicit_index=True, vacuum=True)

    def __init__(self, path: Path | str, *, clock: Callable[[], int] = now_us) -> None:
        """Name a file; nothing is opened or created before `initialize`.

        Args:
            path: The database file.
            clock: Gives the ingest time, microseconds since the epoch.
        """
        self.path = Path(path)
        self.name = f"sqlite:///{self.path}"
        self._clock = clock
        self._write_lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._file = OpenFile(os.path.abspath(path), self.name)  # noqa: PTH100 - text
        self._readers = ReaderConnections(self._connect_reader)
        self._committed = threading.Condition()
        self._identity: LogIdentity | None = None
        self._closed = False
        self._view = JudgedView(self.scan, self.name)
        self._terms = TermIndex(SqliteTerms(self.name, self._reading, self._writing))

    # --- life

    def initialize(
        self,
        *,
        instance: str = "local",
        log_id: UUID | None = None,
        replica: bool = False,
        empty: bool = False,
    ) -> LogIdentity:
        """See `EventLog.initialize`.

        Raises:
            InvalidUri: The file is there and is something else, or its folder is not there.
        """
        with self._write_lock:
            self._check_open()
            if self._identity is None:
                if not self.path.parent.is_dir():
                    msg = f"the folder of {self.path} does not exist"
                    raise InvalidUri(msg, log=self.name, hint="create it first")
                self._writer = self._writer or self._connect()
                self._file.remember()
                wanted = LogIdentity(log_id or new_uuid(), instance, replica)
                try:
                    self._identity = self._open_or_create(
                        self._writer, wanted, empty=empty or replica
                    )
                except sqlite3.Error as error:
                    raise self._unavailable(error) from error
            check_identity(self._identity, log_id, replica=replica, name=self.name)
            return self._identity

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(
                self.path, timeout=LOCK_WAIT_S, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._unavailable(error) from error
        try:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES_MAX}")
            # Read before anything is written: a file that is something else stays as it is.
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            connection.close()
            raise self._unavailable(error) from error
        return connection

    def _connect_reader(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            # A thread that comes late must not be given another log than the others read.
            self._file.check()
        except BaseException:
            connection.close()
            raise
        return connection

    def _unavailable(self, error: sqlite3.Error) -> BelogError:
        return meaning_of(error, self.path, self.name)

    def _open_or_create(
        self, connection: sqlite3.Connection, wanted: LogIdentity, *, empty: bool
    ) -> LogIdentity:
        tables = tables_of(connection)
        if META not in tables:
            if tables:
                msg = f"{self.path} is a database of another program"
                raise InvalidUri(msg, log=self.name, hint="name a new file")
            connection.execute("PRAGMA journal_mode=WAL")
            with self._transaction(connection):
                # Another process may have been faster between the look and the lock.
                if META not in tables_of(connection):
                    create(connection, wanted, None if empty else self._clock())
        return identity_in(connection, self.name)

    def identify(self) -> LogIdentity | None:
        """See `EventLog.identify`."""
        self._check_open()
        if self._identity is not None:
            return self._identity
        if not self.path.exists():
            return None
        connection = self._connect()
        try:
            tables = tables_of(connection)
            if META in tables:
                return identity_in(connection, self.name)
        except sqlite3.Error as error:
            raise self._unavailable(error) from error
        finally:
            connection.close()
        if tables:
            msg = f"{self.path} is a database of another program"
            raise InvalidUri(msg, log=self.name)
        return None

    def close(self) -> None:
        """See `EventLog.close`."""
        with self._write_lock:
            self._closed = True
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        self._readers.close()
        with self._committed:
            self._committed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            msg = "the log was closed"
            raise Closed(msg, log=self.name)

    # --- raw records

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Connection]:
        self._check_open()
        if self._identity is None:
            msg = "the log was not initialized"
            raise NotFound(msg, log=self.name, hint="call initialize() first")
        self._file.check_at_times()
        try:
            with self._readers.use(self._check_open) as connection:
                yield connection
        except sqlite3.Error as error:
            self._check_open()
            raise self._unavailable(error) from error

    def _fetch(self, sql: str, parameters: Sequence[object]) -> list[tuple[int, int, bytes]]:
        # As `_reading`, spelled out: nested context managers cost more than the query at the end
        # of a log, which a producer asks before each append.
        if self._closed or self._identity is None:
            with self._reading() as connection:
                return connection.execute(sql, parameters).fetchall()
        self._file.check_at_times()
        reader = self._readers.own(self._check_open)
        try:
            with reader.lock:
                self._check_open()
                return reader.connection.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            self._check_open()
            raise self._unavailable(error) from error

    def next_position(self) -> int:
        """See `EventLog.next_position`."""
        rows = self._fetch(_LAST, ())
        return rows[0][0] + 1 if rows else 0

    def scan(self, since_position: int, limit: int = SCAN_RECORDS_MAX) -> list[Record]:
        """See `EventLog.scan`."""
        return self._checked(since_position, self.scan_raw(since_position, limit))

    def scan_raw(self, since_position: int, limit: int) -> list[Record]:
        """See `Vacuumable.scan_raw`."""
        return [Record(*row) for row in self._fetch(_SCAN, (since_position, limit))]

    def wait(self, position: int, timeout_s: float) -> bool:
        """See `EventLog.wait`."""
        deadline = time.monotonic() + timeout_s
        seen_version = -1
        while True:
            (version,) = self._fetch("PRAGMA data_version", ())[0][:1]
            # Commits through this object's own writer also show: the reader is another connection.
            if version != seen_version:
                seen_version = version
                if self.next_position() > position:
                    return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            with self._committed:
                self._committed.wait(min(POLL_S, left))
            self._check_open()

    # --- events

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Generator[None]:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise self._unavailable(error) from error
        try:
            yield
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back(connection)
            raise self._unavailable(error) from error
        except BaseException:
            self._roll_back(connection)
            raise

    @staticmethod
    def _roll_back(connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        with self._write_lock:
            self._check_open()
            if self._writer is None or self._identity is None:
                msg = "the log was not initialized"
                raise NotFound(msg, log=self.name, hint="call initialize() first")
            # As `_transaction`, spelled out: a tenth of what an append costs but for the disk.
            writer = self._writer
            try:
                writer.execute("BEGIN IMMEDIATE")
                self._file.check()
                yield writer
                writer.execute("COMMIT")
            except sqlite3.Error as error:
                self._roll_back(writer)
                raise self._unavailable(error) from error
            except BaseException:
                self._roll_back(writer)
                raise
        with self._committed:
            self._committed.notify_all()

    def append_batch(
        self,
        events: Sequence[Event],
        *,
        at: int | None = None,
        atomic: bool = False,  # noqa: ARG002 - it always is
    ) -> list[Receipt | BelogError]:
        """See `EventLog.append_batch`; always atomic."""
        check_batch(events)
        values = [encode_event(event) for event in events]
        with self._writing() as connection:
            next_idx, last_created_at = self._last(connection)
            if at is not None and at != next_idx:
                msg = f"the log's next index is {next_idx}, not {at}"
                raise IndexConflict(msg, next_idx=next_idx, log=self.name)
            return [*self._insert(connection, events, values, next_idx, last_created_at)]

    def append_unless_touched(self, events: Sequence[Event], *, seen_idx: int) -> list[Receipt]:
        """See `ConditionalLog.append_unless_touched`."""
        check_batch(events)
        values = [encode_event(event) for event in events]
        with self._writing() as connection:
            next_idx, last_created_at = self._last(connection)
            check_not_shorter(next_idx, seen_idx, self.name)
            if next_idx > seen_idx:
                between = connection.execute(_SCAN, (seen_idx, TOUCH_RECORDS_MAX + 1)).fetchall()
                if len(between) > TOUCH_RECORDS_MAX or touches((r[2] for r in between), events):
                    msg = "a record in between concerns one of the events"
                    raise IndexConflict(msg, next_idx=next_idx, log=self.name)
            return self._insert(connection, events, values, next_idx, last_created_at)

    def _last(self, connection: sqlite3.Connection) -> tuple[int, int]:
        if self._identity is not None:
            refuse_replica_append(self._identity, self.name)
        row = connection.execute(_LAST).fetchone()
        return (row[0] + 1, row[1]) if row else (0, 0)

    def _insert(
        self,
        connection: sqlite3.Connection,
        events: Sequence[Event],
        values: Sequence[bytes],
        next_idx: int,
        last_created_at: int,
    ) -> list[Receipt]:
        created_at = max(self._clock(), last_created_at)
        if len(values) == 1:
            connection.execute(INSERT, (next_idx, created_at, values[0]))
            return [Receipt(next_idx, created_at, events[0].event_id)]
        connection.executemany(INSERT, zip(count(next_idx), repeat(created_at), values))
        return [Receipt(idx, created_at, e.event_id) for idx, e in enumerate(events, next_idx)]

    def copy_records(self, records: Sequence[CopiedRecord], *, after: int) -> None:
        """See `EventLog.copy_records`."""
        check_copied(records, after)
        if self._identity is not None:
            refuse_foreign_records(records, self._identity, self.name)
        with self._writing() as connection:
            row = connection.execute(_LAST).fetchone()
            last = row[0] if row else -1
            if last != after:
                msg = f"the log's last index is {last}, not {after}"
                raise IndexConflict(msg, next_idx=last + 1, log=self.name)
            connection.executemany(INSERT, [(r.index, r.created_at, r.value) for r in records])

    def remove(self, removals: Sequence[Removal]) -> None:
        """See `Vacuumable.remove`; each step is atomic."""
        for step in steps_of(removals):
            with self._writing() as connection:
                positions = [(removal.position,) for removal in step]
                connection.executemany("DELETE FROM belog_records WHERE idx = ?", positions)

    def read(
        self, since_idx: int = 0, wanted: EventFilter = ALL, limit: int = PAGE_EVENTS_MAX
    ) -> EventPage:
        """See `EventLog.read`.

        A filter costs what it returns, by an index that filtered reads extend with what is new
        (`belog.storage.selective`), but for a pattern that matches more than `PATTERN_NAMES_MAX`
        partitions and for kinds and occurred times alone, which are found by a scan. Where the file
        cannot be written, and on replicas, it is a scan after one pass over the log.
        """
        check_page(limit, since_idx)
        matcher = Matcher(wanted)
        if self._identity is None or self._identity.is_replica:
            return self._view.read(since_idx, wanted, limit)
        if not matcher.matches_all:
            try:
                page_of_index = self._terms.read(since_idx, wanted, limit)
                return self._checked_page(since_idx, page_of_index, self._terms.vacuums)
            except Unsupported:
                return self._view.read(since_idx, wanted, limit)
        return page_of(self.scan(since_idx, limit + 1), since_idx, limit)

    def get(self, index: int) -> StoredEvent | None:
        """See `EventLog.get`."""
        if self._identity is None or self._identity.is_replica:
            return self._view.get(index)
        records = self.scan(index, 1)
        event = event_of(records[0]) if records and records[0].position == index else None
        return None if event is None else StoredEvent(index, records[0].created_at, event)

    def get_by_id(self, event_id: bytes) -> StoredEvent | None:
        """See `EventLog.get_by_id`; by the same index as filtered reads."""
        if self._identity is None or self._identity.is_replica:
            return self._view.get_by_id(event_id)
        try:
            return self._terms.get_by_id(event_id)
        except Unsupported:
            return self._view.get_by_id(event_id)

    def end(self) -> LogEnd:
        """See `EventLog.end`."""
        return require_end(self._view.end(), self.name)

    def statistics(self) -> Statistics:
        """See `EventLog.statistics`; by the counts that the index keeps."""
        if self._identity is None or self._identity.is_replica:
            return self._view.statistics()
        try:
            return recounted(self, self._terms.statistics())
        except Unsupported:
            return recounted(self, self._view.statistics())


def from_uri(uri: str) -> SqliteLog:
    """See `belog.storage.factory`: `sqlite:///relative/path` or `sqlite:////absolute/path`."""
    parts = urlsplit(uri)
    path = unquote(parts.path)[1:]
    three_slashes = uri[:10].lower() == "sqlite:///"
    if not three_slashes or not path or parts.query or parts.fragment:
        msg = f"SQLite log URI {redacted(uri)!r} is not of the form sqlite:///path"
        raise InvalidUri(msg, hint="three slashes for a relative path, four for an absolute one")
    return SqliteLog(path)
