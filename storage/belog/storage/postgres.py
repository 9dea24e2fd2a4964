"""A log in PostgreSQL, for as many processes as the server serves.

Indices are explicit primary keys. A row per log holds the next one; the transaction that inserts
events takes that row's lock, and keeps it until its commit has its place among all others. So there
is never a gap, and no reader sees an index before a lower one. Waiting appends of one process go in
one transaction; those of several share the disk (`belog.storage.postgres_durable`).

The ingest time is the database's clock, never decreasing.

Tables and functions: `sql/postgres/*.sql`. Several logs share a schema (`?log=`), several schemas a
database (`?schema=`).

Source: https://www.postgresql.org/docs/15/transaction-iso.html,
https://www.postgresql.org/docs/15/explicit-locking.html
"""

import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final, cast
from uuid import UUID

from belog.schemas.envelope import Event, StoredEvent, decode_event, encode_event
from belog.schemas.errors import (
    BelogError,
    Corrupt,
    IndexConflict,
    NewerFormat,
    NotFound,
    OutcomeUnknown,
    Unavailable,
    Unsupported,
)
from belog.schemas.filters import ALL, EventFilter, Matcher
from belog.schemas.fold import Record
from belog.schemas.limits import BATCH_EVENTS_MAX, PAGE_EVENTS_MAX
from belog.schemas.replica import REPLICA_HEADER, decode_replica
from belog.storage.commit_group import CommitGroup
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
from belog.storage.postgres_append import Call, append_statement, parameters_of
from belog.storage.postgres_client import Connection, Lost, Pool, connect
from belog.storage.postgres_durable import CROWDED_APPENDS, Durable, commit
from belog.storage.postgres_notify import POLL_S, Listener
from belog.storage.postgres_rows import copied_keys_of
from belog.storage.postgres_schema import FoundLog, check_same, create_log, find_log, upgrade
from belog.storage.postgres_terms import PostgresTerms
from belog.storage.postgres_uri import Target, parse_uri
from belog.storage.postgres_values import ByteaArray, WordArray
from belog.storage.recount import recounted
from belog.storage.selective import TermIndex, event_of, page_of
from belog.storage.touch import check_not_shorter

__all__ = ["GROUP_EVENTS_MAX", "PostgresLog"]

GROUP_EVENTS_MAX: Final = BATCH_EVENTS_MAX
"""Events of one transaction that holds several waiting calls: other processes wait for the lock
as long as for the largest single batch."""

_COPY: Final = """
SELECT {schema}.belog_copy(
    %s, %s, %s, %s::bigint[], %s::bigint[], %b::integer[], %b::bytea[]
)
"""
_REMOVE: Final = "SELECT {schema}.belog_remove(%s, %s::bigint[])"


LOOK_S: Final = 1.0
"""How often a program that has the log open looks whether it is the same still, seconds: a schema
that was made anew gives its first log the number that the old one's had. Two round trips, and who
waits for events learns within that time that none will come any more."""

_Answer = list[Receipt] | BelogError


class PostgresLog(ConditionalLog):
    """See the module's docstring. Thread-safe."""

    capabilities = Capabilities(conditional_append=True, explicit_index=True, vacuum=True)

    def __init__(self, uri: str) -> None:
        """Name a log; nothing is opened or created before `initialize`.

        Args:
            uri: What libpq takes, and `schema` and `log` (default `belog` and `main`).

        Raises:
            InvalidUri: It is malformed.
        """
        self._target: Target = parse_uri(uri)
        self.name = self._target.name
        self._pool = Pool(self._target)
        self._lock = threading.Lock()
        self._found: FoundLog | None = None
        self._next_look_s = 0.0
        self._channel = _channel(self._target)
        self._listener = Listener(lambda: connect(self._target), self._channel)
        self._group: CommitGroup[Call, list[Receipt]] = CommitGroup(self._commit)
        self._view = JudgedView(self.scan, self.name)
        self._durable = Durable(self._target)
        self._crowded = 0
        self._append_sql = append_statement(self._target)
        self._store = PostgresTerms(self._target, self._pool, self._durable, self._number)
        self._terms = TermIndex(self._store)

    # --- life

    def initialize(
        self,
        *,
        instance: str = "local",
        log_id: UUID | None = None,
        replica: bool = False,
        empty: bool = False,
    ) -> LogIdentity:
        """See `EventLog.initialize`; makes or upgrades the schema, too.

        The role needs the schema, or the right to create it.

        Raises:
            InvalidConfiguration: User, password or database are refused.
            InvalidUri: The schema holds tables of the same name that are something else.
            Unsupported: The role may not do what there is to do.
        """
        with self._lock:
            self._pool.check_open()
            if self._found is None:
                identity = LogIdentity(log_id or new_uuid(), instance, replica)
                try:
                    with self._pool.connection() as connection:
                        self._found = self._open_or_create(
                            connection, identity, empty=empty or replica
                        )
                except Lost as lost:
                    raise self._unavailable(lost) from lost
            found = self._found.identity
            return check_identity(found, log_id, replica=replica, name=self.name)

    def _open_or_create(
        self, connection: Connection, identity: LogIdentity, *, empty: bool
    ) -> FoundLog:
        upgrade(connection, self._target)
        found = find_log(connection, self._target)
        if found is not None:
            return found
        with connection.transaction():
            found = create_log(connection, self._target, identity)
            if found is not None and not empty:
                event = log_created(identity.log_id, identity.instance, now_us())
                call = Call([event], [encode_event(event)], None, None)
                self._run_calls(connection, found.number, [call], defer=None)
        if found is None:
            found = find_log(connection, self._target)
        if found is None:
            msg = "the log vanished while it was opened"
            raise NotFound(msg, log=self.name)
        return found

    def identify(self) -> LogIdentity | None:
        """See `EventLog.identify`."""
        self._pool.check_open()
        if self._found is not None:
            return self._found.identity
        try:
            with self._pool.connection() as connection:
                found = find_log(connection, self._target)
        except Lost as lost:
            raise self._unavailable(lost) from lost
        return None if found is None else found.identity

    def close(self) -> None:
        """See `EventLog.close`."""
        self._pool.close()
        self._listener.close()

    def _unavailable(self, lost: Lost) -> Unavailable:
        return Unavailable(f"the connection broke: {lost}", log=self.name)

    def _opened(self) -> FoundLog:
        self._pool.check_open()
        if self._found is None:
            msg = "the log was not initialized"
            raise NotFound(msg, log=self.name, hint="call initialize() first")
        return self._found

    def _check_same(self) -> None:
        """Look at times whether the log is the one that was opened; see `LOOK_S`.

        Raises:
            LogReplaced: It is another one.
            NotFound: It is not there any more.
        """
        found, now_s = self._opened(), time.monotonic()
        if now_s >= self._next_look_s:
            there = self._pool.repeat(lambda connection: find_log(connection, self._target))
            check_same(found, there, self.name)
            # Only after a look that was good: the error has to come again.
            self._next_look_s = now_s + LOOK_S

    def _number(self) -> int:
        return self._opened().number

    def _is_judged(self) -> bool:
        return self._opened().identity.is_replica

    # --- raw records

    def next_position(self) -> int:
        """See `EventLog.next_position`."""
        self._check_same()
        number = self._number()
        next_idx = self._pool.repeat(lambda connection: self._durable.next_idx(connection, number))
        self._listener.note(next_idx)
        return next_idx

    def scan(self, since_position: int, limit: int = SCAN_RECORDS_MAX) -> list[Record]:
        """See `EventLog.scan`."""
        return self._checked(since_position, self.scan_raw(since_position, limit))

    def scan_raw(self, since_position: int, limit: int) -> list[Record]:
        """See `Vacuumable.scan_raw`."""
        self._check_same()
        return self._store.records(since_position, limit)

    def wait(self, position: int, timeout_s: float) -> bool:
        """See `EventLog.wait`; woken by NOTIFY, and by a look every `POLL_S`."""
        deadline = time.monotonic() + timeout_s
        while self.next_position() <= position:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            if self._listener.wait(position, min(POLL_S, left_s)):
                self._pool.check_open()
                return True
        return True

    # --- appending

    def append_batch(
        self, events: Sequence[Event], *, at: int | None = None, atomic: bool = False
    ) -> list[Receipt | BelogError]:
        """See `EventLog.append_batch`; always atomic.

        Where the connection broke before the answer came, each result is an `OutcomeUnknown`.
        """
        del atomic
        try:
            return [*self._append(events, at=at, seen_idx=None)]
        except OutcomeUnknown as error:
            return [
                OutcomeUnknown(error.message, event_id=event.event_id, log=self.name)
                for event in events
            ]

    def append_unless_touched(self, events: Sequence[Event], *, seen_idx: int) -> list[Receipt]:
        """See `ConditionalLog.append_unless_touched`; one round trip.

        Raises:
            OutcomeUnknown: The connection broke before the answer came; it names the first event.
        """
        return self._append(events, at=None, seen_idx=seen_idx)

    def _append(
        self, events: Sequence[Event], *, at: int | None, seen_idx: int | None
    ) -> list[Receipt]:
        check_batch(events)
        refuse_replica_append(self._opened().identity, self.name)
        values = [encode_event(event) for event in events]
        call = Call(events, values, at, seen_idx)
        return self._group.submit(call, sum(map(len, values)))

    def _commit(self, calls: Sequence[Call]) -> list[_Answer]:
        """Commit waiting calls, in order; called by one thread at a time."""
        answers: list[_Answer] = []
        for chunk in _chunks(calls):
            answers += self._commit_chunk(chunk)
        return answers

    def _commit_chunk(self, calls: Sequence[Call]) -> list[_Answer]:
        number = self._number()
        try:
            self._check_same()
            with self._pool.connection(patient=True) as connection:
                return self._run_calls(connection, number, calls, defer=self._crowded > 0)
        except Lost as lost:
            msg = f"the connection broke before the answer came: {lost}"
            return [
                OutcomeUnknown(msg, event_id=call.events[0].event_id, log=self.name)
                if call.events
                else self._unavailable(lost)
                for call in calls
            ]
        except BelogError as error:
            return [error] * len(calls)

    def _run_calls(
        self, connection: Connection, number: int, calls: Sequence[Call], *, defer: bool | None
    ) -> list[_Answer]:
        """Commit calls, and return when that is durable, or at once in a transaction."""
        parameters = parameters_of(number, self._channel, calls, defer=defer)
        answer = commit(connection, self._append_sql, parameters)
        _, is_crowded, stamp = answer[:3]
        firsts, ends = answer[3::2], cast("list[int]", answer[4::2])
        self._crowded = CROWDED_APPENDS if is_crowded else max(self._crowded - 1, 0)
        if defer is not None:
            self._durable.note(ends[-1])
        self._listener.note(ends[-1])
        return [
            self._answer(call, first_idx, next_idx, stamp or 0)
            for call, first_idx, next_idx in zip(calls, firsts, ends, strict=True)
        ]

    def _answer(self, call: Call, first_idx: int | None, next_idx: int, created_at: int) -> _Answer:
        if first_idx is None:
            try:
                check_not_shorter(next_idx, call.seen_idx or 0, self.name)
            except IndexConflict as error:
                return error
            if call.at is not None:
                msg = f"the log's next index is {next_idx}, not {call.at}"
            else:
                msg = "a record in between concerns one of the events"
            return IndexConflict(msg, next_idx=next_idx, log=self.name)
        return [
            Receipt(first_idx + n, created_at, event.event_id)
            for n, event in enumerate(call.events)
        ]

    def copy_records(self, records: Sequence[CopiedRecord], *, after: int) -> None:
        """See `EventLog.copy_records`; ingest times that go back become the highest before.

        Raises:
            Unavailable: Also where the connection broke before the answer came: ask for the end
                of the log and go on from there.
        """
        check_copied(records, after)
        refuse_foreign_records(records, self._opened().identity, self.name)
        number = self._number()
        parameters = [
            number,
            self._channel,
            after,
            [record.index for record in records],
            [record.created_at for record in records],
            WordArray(copied_keys_of(_copied_event(record) for record in records)),
            ByteaArray([record.value for record in records]),
        ]
        try:
            with self._pool.connection(patient=True) as connection:
                row = connection.execute(self._target.sql(_COPY), parameters).fetchone()
        except Lost as lost:
            raise self._unavailable(lost) from lost
        last = cast("int", row[0]) if row else -1
        if last != after:
            msg = f"the log's last index is {last}, not {after}"
            raise IndexConflict(msg, next_idx=last + 1, log=self.name)

    def remove(self, removals: Sequence[Removal]) -> None:
        """See `Vacuumable.remove`; each step is atomic."""
        sql = self._target.sql(_REMOVE)
        for step in steps_of(removals):
            parameters = [self._number(), [removal.position for removal in step]]
            try:
                with self._pool.connection(patient=True) as connection:
                    connection.execute(sql, parameters)
            except Lost as lost:
                raise self._unavailable(lost) from lost

    # --- events

    def read(
        self, since_idx: int = 0, wanted: EventFilter = ALL, limit: int = PAGE_EVENTS_MAX
    ) -> EventPage:
        """See `EventLog.read`.

        A filter costs what it returns, by an index that filtered reads extend with what is new
        (`belog.storage.selective`), but for a pattern that matches more than `PATTERN_NAMES_MAX`
        partitions and for kinds and occurred times alone, which are found by a scan. For a role
        that cannot write, and on replicas, it is a scan after one pass over the log.
        """
        check_page(limit, since_idx)
        matcher = Matcher(wanted)
        if self._is_judged():
            return self._view.read(since_idx, wanted, limit)
        self._check_same()
        if not matcher.matches_all:
            try:
                page_of_index = self._terms.read(since_idx, wanted, limit)
                return self._checked_page(since_idx, page_of_index, self._terms.vacuums)
            except Unsupported:
                return self._view.read(since_idx, wanted, limit)
        return page_of(self.scan(since_idx, limit + 1), since_idx, limit)

    def get(self, index: int) -> StoredEvent | None:
        """See `EventLog.get`."""
        if self._is_judged():
            return self._view.get(index)
        records = self.scan(index, 1)
        event = event_of(records[0]) if records and records[0].position == index else None
        return None if event is None else StoredEvent(index, records[0].created_at, event)

    def get_by_id(self, event_id: bytes) -> StoredEvent | None:
        """See `EventLog.get_by_id`; by the same index as filtered reads."""
        if self._is_judged():
            return self._view.get_by_id(event_id)
        self._check_same()
        try:
            return self._terms.get_by_id(event_id)
        except Unsupported:
            return self._view.get_by_id(event_id)

    def end(self) -> LogEnd:
        """See `EventLog.end`."""
        return require_end(self._view.end(), self.name)

    def statistics(self) -> Statistics:
        """See `EventLog.statistics`; by the counts that the index keeps."""
        if self._is_judged():
            return self._view.statistics()
        self._check_same()
        try:
            return recounted(self, self._terms.statistics())
        except Unsupported:
            return recounted(self, self._view.statistics())


def _channel(target: Target) -> str:
    key = f"{target.schema}/{target.log}".encode()
    return f"belog_{hashlib.sha256(key).hexdigest()[:40]}"


def _copied_event(record: CopiedRecord) -> Event | None:
    """Return the event that a record holds; None where it holds none."""
    value = record.value
    try:
        if value[: len(REPLICA_HEADER)] == REPLICA_HEADER:
            value = decode_replica(value).envelope
        return decode_event(value)
    except (Corrupt, NewerFormat):
        return None


def _chunks(calls: Sequence[Call]) -> Iterator[list[Call]]:
    chunk: list[Call] = []
    events = 0
    for call in calls:
        if chunk and events + len(call.events) > GROUP_EVENTS_MAX:
            yield chunk
            chunk, events = [], 0
        chunk.append(call)
        events += len(call.events)
    yield chunk


def from_uri(uri: str) -> PostgresLog:
    """See `belog.storage.factory`: `postgresql://user@host:port/database?schema=…&log=…`."""
    return PostgresLog(uri)
