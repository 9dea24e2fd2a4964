"""Commands' questions, answered by a service."""

import time
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Self, Unpack, cast
from uuid import uuid4

from belog.client import Available, Client, Delegated
from belog.client.making import EventOptions
from belog.client.settings import ClientOptions
from belog.processors.indexes import Order, Where
from belog.processors.replay import WHOLE_LOG, Until
from belog.processors.rows import BuildRow, JobRunRow, PartitionRow, R, TaskRow
from belog.processors.tables import PAGE_ROWS_MAX
from belog.query import AuditQuery, Cancelled
from belog.query.answers import Activity, Answer, AuditEntry, Explanation, Graph, JobMetrics
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import (
    BelogError,
    Conflict,
    Gone,
    InvalidFilter,
    InvalidInput,
    Unavailable,
)
from belog.schemas.filters import EventFilter
from belog.schemas.lifecycle import LIFECYCLE_1
from belog.schemas.payload import JsonValue
from belog.schemas.receipts import EventPage, Receipt
from belog.service import wire_values as values
from belog.service.sources import Asked, Asking, InState, Standing, end_of_attempt
from belog.service.terminal import note
from belog.storage.interface import Statistics
from belog.v1 import catalog_pb2, http_pb2

__all__ = ["ServiceSource"]

PAGE_EVENTS: Final = 1_000
"""Events of one page: about 1 MB, and no more than services allow by default."""

WAIT_SLICE_S: Final = 25.0
"""Longest wait of one request, seconds: below the half minute after which some proxies cut idle
connections off."""

RETRY_S: Final = 8.0
"""How long a command goes on while the service is away, seconds: a restart fits, and who has
mistyped the URL hears of it soon."""

_PATHS: Final[Mapping[type[object], str]] = {
    PartitionRow: "partitions",
    BuildRow: "builds",
    JobRunRow: "jobs",
    TaskRow: "tasks",
}


class ServiceSource:
    """See `belog.service.sources.Source`. To be closed."""

    def __init__(self, url: str, options: ClientOptions) -> None:
        """Connect to nothing yet.

        Raises:
            InvalidUri: The URL is none of a service.
            InvalidConfiguration: The token cannot be sent.
        """
        self._url = url
        self._options = options
        options = ClientOptions(retry_s=RETRY_S) | options
        self._service = Client(url, **options)

    def __enter__(self) -> Self:
        """Return the source itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        self._service.close()

    # --- rows

    def rows(
        self, kind: type[R], where: Where, *, order: Order, limit: int, until: Until
    ) -> tuple[Sequence[R], bool]:
        """See `Source.rows`."""
        if until != WHOLE_LOG:
            msg = "a service shows the log as it is now"
            raise InvalidInput(msg, hint="a bound needs the log itself: --log URI")
        found: list[R] = []
        query = values.query_of(where, order)
        cursor: str | None = None
        while len(found) < limit:
            room = min(limit - len(found), PAGE_ROWS_MAX)
            page = self._service.ask(
                values.LISTS[kind], _PATHS[kind], **query, cursor=cursor, limit=room, view="row"
            )
            found.extend(values.rows_of(kind, page))
            cursor = cast("values.Page", page).next_page_token or None
            if cursor is None:
                break
        return found, cursor is not None

    def row(self, kind: type[R], *key: str) -> R:
        """See `Source.row`."""
        message = self._service.ask(values.ROWS[kind], _PATHS[kind], *key, view="row")
        return values.row_of(kind, message)

    # --- events

    def history(self, wanted: EventFilter) -> tuple[Sequence[StoredEvent], int]:
        """See `Source.history`."""
        found: list[StoredEvent] = []
        cursor = horizon = 0
        while True:
            try:
                page = self.page(cursor, wanted, PAGE_EVENTS)
            except Gone as error:
                # Raised by the first page alone: what follows lies past the horizon.
                if cursor >= error.horizon:
                    raise
                cursor = horizon = error.horizon
                continue
            found.extend(page.events)
            cursor = page.next_idx
            if not page.has_more:
                return found, horizon

    def page(self, since: int, wanted: EventFilter, limit: int) -> EventPage:
        """See `Source.page`."""
        page = self._service.events(since, wanted, limit=min(limit, PAGE_EVENTS))
        return EventPage(page.events, page.cursor.next_idx, page.has_more)

    def follow(self, since: int, wanted: EventFilter) -> Iterator[StoredEvent]:
        """See `Source.follow`; goes on over restarts and outages of the service."""
        told = ""

        def on_trouble(error: BelogError) -> None:
            nonlocal told
            if error.message != told:
                told = error.message
                note(f"waiting: {error}")

        for stored, _ in self._service.follow(since, wanted, on_trouble=on_trouble):
            yield stored

    # --- partitions

    def wait(self, ref: str, states: Sequence[str], timeout_s: float) -> Answer[InState]:
        """See `Source.wait`."""
        known = LIFECYCLE_1.states("partition")
        for state in states:
            if state not in known:
                msg = f"{state!r} is no state of a partition"
                raise InvalidFilter(msg, hint=f"one of {', '.join(known)}")
        deadline = time.monotonic() + timeout_s
        seen = self._service.partition(ref)
        if seen.state == "failed" and seen.state not in states:
            # It may have been asked for again, and the tables do not show it yet.
            end = self._service.status().next_idx
            seen = self._service.partition(ref, min_index=end - 1)
        while seen.state not in states:
            if seen.state == "failed":
                raise self._failed(ref, seen.row.index)
            after = self._change(ref, seen.as_of, deadline)
            if after is None:
                msg = f"{ref!r} is {seen.state or 'never seen'} after {timeout_s:g} s, "
                msg += f"not {' or '.join(states)}"
                raise Unavailable(msg, log=self._url, subject=f"partition:{ref}")
            seen = self._service.partition(ref, min_index=after - 1)
        return Answer(InState(seen.state, seen.row.index), seen.as_of)

    def _failed(self, ref: str, index: int) -> Conflict:
        row = self.row(PartitionRow, ref)
        reason = None if row.attempt is None else row.attempt.failure_reason
        return Conflict(
            f"the attempt failed{': ' + reason if reason else ''}",
            state="failed",
            last_index=index,
            allowed=LIFECYCLE_1.allowed("partition", "failed"),
            hint="belog partition explain says why, belog partition request begins anew",
            log=self._url,
            index=index,
            subject=f"partition:{ref}",
        )

    def _change(self, ref: str, since: int, deadline: float) -> int | None:
        """Wait until something happens to a partition; None when the time is over before.

        Returns:
            The index that tables have to be as of to show it.
        """
        own = EventFilter(partition_refs=(ref,), subject_kinds=("partition",))
        cursor = since
        while (left := deadline - time.monotonic()) > 0:
            wait_s = min(left, WAIT_SLICE_S)
            page = self._service.events(cursor, own, limit=1, wait_s=wait_s)
            if page.events:
                return page.cursor.next_idx
            cursor = page.cursor.next_idx
        return None

    def request(self, asking: Asking, *, actor: str | None, instance: str) -> Asked:
        """See `Source.request`."""
        del actor, instance
        if len(asking.clients) > 1:
            msg = "a service is told of one client at a time"
            raise InvalidInput(msg, hint="ask once for each --client")
        ref, build_id = asking.ref, asking.build_id or str(uuid4())
        answer = self._service.request_partition(
            ref,
            client_id=asking.clients[0] if asking.clients else None,
            build_request_id=build_id,
            allow_delegation=asking.delegation,
        )
        name = type(answer).__name__.lower()
        if isinstance(answer, Available):
            return Asked(answer=name, ref=ref, index=answer.index)
        maker, state, index = answer.build_request_id, None, answer.index
        if asking.timeout_s and isinstance(answer, Delegated):
            ended = self._end(ref, asking.timeout_s)
            state, index = end_of_attempt(ref, ended, asking.timeout_s, log=self._url)
        return Asked(answer=name, ref=ref, build_request_id=maker, index=index, state=state)

    def _end(self, ref: str, timeout_s: float) -> tuple[str, int] | None:
        ends: Collection[str] = {
            state
            for state in LIFECYCLE_1.states("partition")
            if state not in LIFECYCLE_1.owned_states
        }
        found = self._service.wait(ref, ends, timeout_s=timeout_s)
        return None if found is None else (found.state, found.row.index)

    def explain(self, ref: str) -> Answer[Explanation]:
        """See `Source.explain`."""
        found = self._service.ask(http_pb2.Explanation, "partitions", ref, "explain", view="row")
        return Answer(values.explanation_of(found), found.as_of_index)

    def graph(self, ref: str, depth: int) -> Answer[Graph]:
        """See `Source.graph`."""
        found = self._service.ask(
            catalog_pb2.DependencyGraph, "partitions", ref, "graph", depth=depth
        )
        return Answer(values.graph_of(ref, found), found.as_of_index)

    # --- builds, job runs, tasks

    def metrics(self, label: str | None, since_us: int | None) -> Sequence[JobMetrics]:
        """See `Source.metrics`."""
        if label is None:
            every = self._service.ask(
                http_pb2.ListJobMetricsResponse, "jobs", "labels", since_time=since_us
            )
            return [values.metrics_of(found) for found in every.jobs]
        one = self._service.ask(
            http_pb2.JobMetrics, "jobs", "labels", label, "metrics", since_time=since_us
        )
        return (values.metrics_of(one),)

    def cancel(
        self, kind: type[R], *key: str, reason: str | None, actor: str | None
    ) -> Sequence[Cancelled]:
        """See `Source.cancel`."""
        del actor
        path = (_PATHS[kind], *key)
        if len(key) > 1:
            every = self._service.call_off(http_pb2.CancelTaskResponse, *path, reason=reason)
            return [values.cancelled_of(found) for found in every.runs]
        one = self._service.call_off(http_pb2.CancelResponse, *path, reason=reason)
        return (values.cancelled_of(one),)

    # --- the whole

    def activity(self, window_s: float) -> Answer[Activity]:
        """See `Source.activity`."""
        found = self._service.ask(
            http_pb2.Activity, "activity", window_s=f"{window_s:.6f}", view="row"
        )
        return Answer(values.activity_of(found), found.as_of_index)

    def audit(self, query: AuditQuery, *, newest_first: bool, limit: int) -> Sequence[AuditEntry]:
        """See `Source.audit`."""
        found = self._service.ask(
            http_pb2.AuditResponse,
            "audit",
            subject_kind=query.subject_kind,
            subject_id=query.subject_id,
            actor=query.actors,
            event_type=query.event_types,
            created_from=query.created_from,
            created_to=query.created_to,
            order="descending" if newest_first else "ascending",
            limit=limit,
        )
        return [values.entry_of(entry) for entry in found.entries]

    def statistics(self) -> Statistics:
        """See `Source.statistics`."""
        return values.statistics_of(self._service.ask(http_pb2.LogStatistics, "statistics"))

    def standing(self, *, root: bool, ready: bool) -> Standing:
        """See `Source.standing`; the tables are the service's."""
        if ready:
            health = self._service.readiness()
            if not health.ok:
                reasons = "; ".join(health.reasons)
                raise Unavailable(f"the service is not ready: {reasons}", log=self._url)
        found = self._service.status()
        return Standing(
            log=self._service.url,
            log_id=found.log_id,
            instance=found.instance,
            replica=found.is_replica,
            next_position=found.next_position,
            next_idx=found.next_idx if root else None,
            root=found.root.hex() if root else None,
            tables=self._service.url,
            applied=found.applied,
            lag_records=found.lag_records,
            applied_created_at=found.applied_created_at,
        )

    # --- writing

    @contextmanager
    def appender(self, actor: str | None, instance: str) -> Generator["_Appender"]:
        """See `Source.appender`."""
        del instance
        with Client(self._url, **self._options | ClientOptions(actor=actor)) as client:
            yield _Appender(client)


class _Appender:
    def __init__(self, client: Client) -> None:
        self._client = client

    def make(
        self,
        payload: str,
        subject_id: str,
        body: Mapping[str, JsonValue],
        **options: Unpack[EventOptions],
    ) -> Event:
        return self._client.make(payload, subject_id, body, **options)

    def append(self, event: Event) -> Receipt:
        return self._client.append_event(event)

    def append_batch(self, events: Sequence[Event]) -> Sequence[Receipt | BelogError]:
        return self._client.append_batch(events)
