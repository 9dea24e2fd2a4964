"""Commands' questions, answered by a log and its tables themselves."""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar, Unpack
from uuid import UUID

from belog.processors.factory import open_tables as reader_of
from belog.processors.indexes import Order, Where
from belog.processors.replay import Until
from belog.processors.rows import BuildRow, JobRunRow, R, TaskRow, task_key
from belog.processors.tables import PAGE_ROWS_MAX, TableReader
from belog.producers import Producer
from belog.producers.coordination import (
    Available,
    Building,
    Delegated,
    request_partition,
    wait_until_made,
)
from belog.producers.ids import random_uuid
from belog.query import AuditQuery, Cancelled, Repositories
from belog.query.answers import Activity, Answer, AuditEntry, Explanation, Graph, JobMetrics
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import BelogError, Conflict, Gone, LogReplaced, Unavailable
from belog.schemas.events import BuildReceived
from belog.schemas.filters import EventFilter
from belog.schemas.limits import PAGE_EVENTS_MAX
from belog.schemas.payload import JsonValue
from belog.schemas.receipts import EventPage, Receipt
from belog.service.cursors import check_reached
from belog.service.opening import check_same_log, existing_log, open_tables, writable_log
from belog.service.querying import open_queries, producer_of
from belog.service.snapshots import folder_of
from belog.service.sources import Asked, Asking, InState, Standing, end_of_attempt, not_there
from belog.storage import EventLog, open_log
from belog.storage.factory import redacted
from belog.storage.interface import Statistics

if TYPE_CHECKING:
    from belog.client.making import EventOptions

__all__ = ["LogSource"]

ACTOR: Final = "cli"
"""Who writes where nobody is named."""

READY_WAIT_S: Final = 5.0
"""How long `status --ready` gives the tables to reach the log's end, seconds: a worker takes some
milliseconds, and one that is taking over from another some seconds more."""

READY_PAUSE_S: Final = 0.1
"""Between two looks meanwhile, seconds."""


P = ParamSpec("P")
T = TypeVar("T")


def _from_snapshots(
    read: Callable[Concatenate["LogSource", P], T],
) -> Callable[Concatenate["LogSource", P], T]:
    """Let a vacuumed log be asked again from the snapshot that it names; for what only reads."""

    @wraps(read)
    def asked(source: "LogSource", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return source.from_snapshots(lambda: read(source, *args, **kwargs))

    return asked


class LogSource:
    """See `belog.service.sources.Source`. Opens what a call needs, and closes it after it."""

    def __init__(self, log: str, tables: str | None, snapshots: str | None) -> None:
        """Name what is asked.

        Args:
            log: URI of the log.
            tables: URI of its tables; None and `memory:` for ones made here and now.
            snapshots: Where reading starts from; None for the log's beginning, or where that was
                vacuumed, for the snapshot that the log names, if it is on this machine.
        """
        self._log = log
        self._kept_tables = None if tables == "memory:" else tables
        self._tables = tables or "memory:"
        self._snapshots = snapshots

    def from_snapshots(self, call: Callable[[], T]) -> T:
        """Call, and of a vacuumed log once more with the snapshots that it names."""
        try:
            return call()
        except Gone as error:
            if not self._may_begin_with(error):
                raise
            return call()

    def _may_begin_with(self, error: Gone) -> bool:
        """Whether to ask again, from now on with the snapshots that a vacuumed log names."""
        folder = None if self._snapshots is not None else folder_of(error.snapshot)
        if folder is None:
            return False
        self._snapshots = folder
        return True

    def _entered(
        self, stack: ExitStack, door: Callable[[str | None], AbstractContextManager[T]]
    ) -> T:
        """Enter what starts from snapshots."""
        return self.from_snapshots(lambda: stack.enter_context(door(self._snapshots)))

    # --- rows

    @_from_snapshots
    def rows(
        self, kind: type[R], where: Where, *, order: Order, limit: int, until: Until
    ) -> tuple[Sequence[R], bool]:
        """See `Source.rows`."""
        found: list[R] = []
        cursor: str | None = None
        with open_tables(self._log, self._tables, self._snapshots, until) as reader:
            while len(found) < limit:
                room = min(limit - len(found), PAGE_ROWS_MAX)
                page = reader.list_rows(kind, where, order=order, cursor=cursor, limit=room)
                found.extend(page.rows)
                cursor = page.next_cursor
                if cursor is None:
                    break
        return found, cursor is not None

    @_from_snapshots
    def row(self, kind: type[R], *key: str) -> R:
        """See `Source.row`."""
        row_id = task_key(key[0], key[1]) if kind is TaskRow else key[0]
        with open_tables(self._log, self._tables, self._snapshots) as reader:
            answer = reader.get(kind, row_id)
        if answer.value is None:
            raise not_there(kind.kind, row_id, answer.applied)
        return answer.value

    # --- events

    @_from_snapshots
    def history(self, wanted: EventFilter) -> tuple[Sequence[StoredEvent], int]:
        """See `Source.history`."""
        with existing_log(self._log, self._snapshots) as opened:
            found: list[StoredEvent] = []
            horizon = opened.horizon()
            cursor = first = 0 if horizon is None else horizon.index
            while True:
                page = opened.read(cursor, wanted, PAGE_EVENTS_MAX)
                found.extend(page.events)
                cursor = page.next_idx
                if not page.has_more:
                    return found, first

    @_from_snapshots
    def page(self, since: int, wanted: EventFilter, limit: int) -> EventPage:
        """See `Source.page`."""
        with existing_log(self._log, self._snapshots) as opened:
            found = opened.read(since, wanted, limit)
            if since and not found.events and not found.has_more:
                _check_reached(opened, since)
            return found

    def follow(self, since: int, wanted: EventFilter) -> Iterator[StoredEvent]:
        """See `Source.follow`."""
        is_begun = False
        try:
            with existing_log(self._log, self._snapshots) as opened:
                if since:
                    _check_reached(opened, since)
                for stored in opened.follow(since, wanted):
                    is_begun = True
                    yield stored
        except Gone as error:
            if is_begun or not self._may_begin_with(error):
                raise
            yield from self.follow(since, wanted)

    # --- partitions

    @_from_snapshots
    def wait(self, ref: str, states: Sequence[str], timeout_s: float) -> Answer[InState]:
        """See `Source.wait`."""
        with open_queries(self._log, self._tables, self._snapshots) as queries:
            found = queries.wait_for_state(ref, states, timeout_s=timeout_s)
        return Answer(InState(found.value.state, found.value.index), found.as_of)

    def request(self, asking: Asking, *, actor: str | None, instance: str) -> Asked:
        """See `Source.request`."""
        ref, build_id = asking.ref, asking.build_id or str(UUID(bytes=random_uuid()))
        writer = actor or ACTOR
        with writable_log(self._log, instance) as opened, ExitStack() as stack:
            producer = self._entered(stack, lambda start: producer_of(opened, writer, start))
            answer = request_partition(
                producer,
                ref,
                build_request_id=build_id,
                clients=asking.clients,
                allow_delegation=asking.delegation,
            )
            name = type(answer).__name__.lower()
            if isinstance(answer, Available):
                return Asked(answer=name, ref=ref, index=answer.index)
            if isinstance(answer, Building):
                asked_by = asking.clients[0] if asking.clients else writer
                received = BuildReceived(requested_partitions=[ref], client_id=asked_by)
                try:
                    producer.append(received, build_id)
                except Conflict:
                    if asking.build_id is None:
                        raise
                    # Its owner has said so himself.
            maker, state, index = answer.build_request_id, None, answer.index
            if asking.timeout_s and isinstance(answer, Delegated):
                after = wait_until_made(producer, ref, timeout_s=asking.timeout_s)
                ended = None if after is None else (after.state, after.index)
                state, index = end_of_attempt(ref, ended, asking.timeout_s, log=opened.name)
        return Asked(answer=name, ref=ref, build_request_id=maker, index=index, state=state)

    @_from_snapshots
    def explain(self, ref: str) -> Answer[Explanation]:
        """See `Source.explain`."""
        with open_queries(self._log, self._tables, self._snapshots) as queries:
            found = queries.explain(ref)
        if found.value is None:
            raise not_there("partition", ref, found.as_of)
        return Answer(found.value, found.as_of)

    @_from_snapshots
    def graph(self, ref: str, depth: int) -> Answer[Graph]:
        """See `Source.graph`."""
        with open_queries(self._log, self._tables, self._snapshots) as queries:
            return queries.dependency_graph(ref, depth)

    # --- builds, job runs, tasks

    @_from_snapshots
    def metrics(self, label: str | None, since_us: int | None) -> Sequence[JobMetrics]:
        """See `Source.metrics`."""
        with open_queries(self._log, self._tables, self._snapshots) as queries:
            jobs = Repositories(queries).jobs
            if label is None:
                return jobs.metrics_of_all(since_us=since_us).value
            return (jobs.metrics(label, since_us=since_us).value,)

    def cancel(
        self, kind: type[R], *key: str, reason: str | None, actor: str | None
    ) -> Sequence[Cancelled]:
        """See `Source.cancel`."""
        writer = actor or ACTOR
        with ExitStack() as stack:
            queries = self._entered(stack, partial(open_queries, self._log, self._tables))
            producer = self._entered(stack, lambda start: producer_of(queries.log, writer, start))
            doors = Repositories(queries)
            if kind is BuildRow:
                return (doors.builds.cancel(producer, key[0], reason=reason),)
            if kind is JobRunRow:
                return (doors.jobs.cancel(producer, key[0], reason=reason),)
            return doors.tasks.cancel(producer, key[0], key[1], reason=reason)

    # --- the whole

    @_from_snapshots
    def activity(self, window_s: float) -> Answer[Activity]:
        """See `Source.activity`."""
        with open_queries(self._log, self._tables, self._snapshots) as queries:
            return queries.activity_summary(window_s)

    @_from_snapshots
    def audit(self, query: AuditQuery, *, newest_first: bool, limit: int) -> Sequence[AuditEntry]:
        """See `Source.audit`."""
        with open_queries(self._log, self._tables, self._snapshots) as queries:
            return queries.events.audit(query, newest_first=newest_first, limit=limit).value

    @_from_snapshots
    def statistics(self) -> Statistics:
        """See `Source.statistics`."""
        with existing_log(self._log, self._snapshots) as opened:
            return opened.statistics()

    @_from_snapshots
    def standing(self, *, root: bool, ready: bool) -> Standing:
        """See `Source.standing`."""
        if ready and _is_unwritten(self._log):
            _check_no_tables(self._kept_tables, self._log)
            return Standing(log=redacted(self._log), log_id=None)
        with existing_log(self._log, self._snapshots) as opened:
            identity = opened.identify()
            end = opened.end() if root else None
            next_position = opened.next_position()
            name, applied, lag, at = None, 0, 0, 0
            if self._kept_tables is not None:
                with reader_of(self._kept_tables) as reader:
                    check_same_log(reader, opened)
                    if ready:
                        _require_following(opened, reader)
                    state = reader.status()
                name, applied, at = reader.name, state.applied, state.created_at
                lag = max(opened.next_position() - state.position, 0)
            return Standing(
                log=opened.name,
                log_id=str(identity.log_id) if identity else None,
                instance=identity.instance if identity else None,
                replica=identity.is_replica if identity else None,
                next_position=next_position,
                next_idx=None if end is None else end.next_idx,
                root=None if end is None else end.root.hex(),
                tables=name,
                applied=applied,
                lag_records=lag,
                applied_created_at=at,
            )

    # --- writing

    @contextmanager
    def appender(self, actor: str | None, instance: str) -> Generator["_Appender"]:
        """See `Source.appender`."""
        writer = actor or ACTOR
        with writable_log(self._log, instance) as opened, ExitStack() as stack:
            yield _Appender(self._entered(stack, lambda start: producer_of(opened, writer, start)))


class _Appender:
    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def make(
        self,
        payload: str,
        subject_id: str,
        body: Mapping[str, JsonValue],
        **options: Unpack["EventOptions"],
    ) -> Event:
        return self._producer.event(payload, subject_id, body, **options)

    def append(self, event: Event) -> Receipt:
        return self._producer.append_event(event)

    def append_batch(self, events: Sequence[Event]) -> Sequence[Receipt | BelogError]:
        return self._producer.append_batch(events)


def _check_reached(log: EventLog, cursor: int) -> None:
    identity = log.identify()
    # In a replica an index is no position.
    if identity is not None and not identity.is_replica:
        check_reached(log, cursor)


def _is_unwritten(uri: str) -> bool:
    with open_log(uri) as log:
        return log.identify() is None


def _check_no_tables(tables: str | None, log: str) -> None:
    """Refuse a log without any event whose tables are of one: it was made anew.

    Raises:
        LogReplaced: There are such tables.
    """
    if tables is None:
        return
    with reader_of(tables) as reader:
        found = reader.status().log_id
    if found is not None:
        msg = f"the tables at {reader.name} are of log {found}, and there is no log yet"
        hint = "was the topic made anew? then make the tables anew, too"
        raise LogReplaced(msg, log=redacted(log), hint=hint)


def _require_following(log: EventLog, tables: TableReader) -> None:
    """Refuse tables that do not reach the present end of the log within `READY_WAIT_S`."""
    end = log.next_position()
    deadline = time.monotonic() + READY_WAIT_S
    while (position := tables.status().position) < end:
        if time.monotonic() > deadline:
            msg = f"the tables stand at {position}, the log ends at {end}"
            raise Unavailable(msg, log=log.name, hint="is a worker running? see its log")
        time.sleep(READY_PAUSE_S)
