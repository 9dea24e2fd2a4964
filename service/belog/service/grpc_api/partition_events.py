"""Events of partitions in the catalog's flat view, from the tables and the log. Calls block."""

from collections.abc import Sequence
from typing import Final, Literal

from belog.processors.indexes import Where
from belog.processors.rows import JobRunRow, PartitionRow
from belog.processors.tables import PAGE_ROWS_MAX
from belog.query.answers import EventList
from belog.query.log_events import OFFSET_EVENTS_MAX, QUERY_EVENTS, PartitionEventQuery
from belog.schemas.envelope import StoredEvent
from belog.schemas.errors import InvalidFilter, LimitExceeded, NotFound
from belog.schemas.filters import Terms
from belog.schemas.limits import PAGE_EVENTS_MAX
from belog.schemas.wire_catalog import partition_event
from belog.service.access import Grant
from belog.service.grpc_api.settings import ANSWER_BYTES_MAX, GrpcSettings, count_within
from belog.service.instance import Instance
from belog.service.wire_answers import states_of_statuses
from belog.v1 import catalog_pb2 as pb

__all__ = ["SORTED_EVENTS_MAX", "PartitionEvents", "query_from_stream"]

SORTED_EVENTS_MAX: Final = PAGE_EVENTS_MAX
"""Most matching events of a query that is ordered by something else than time: all are read."""

OrderField = Literal["timestamp", "partition_ref", "status"]


def query_from_stream(message: pb.EventStreamFilter) -> PartitionEventQuery:
    """Return the query that a stream's filter means.

    Raises:
        InvalidFilter: A status that is none.
    """
    return PartitionEventQuery(
        partition_refs=tuple(message.partition_refs), states=states_of_statuses(message.statuses)
    )


class PartitionEvents:
    """Thread-safe."""

    def __init__(self, instance: Instance, settings: GrpcSettings) -> None:
        """Look things up in an instance's tables and log."""
        self._instance = instance
        self._settings = settings
        self._backend = instance.log.name.partition(":")[0]

    # --- one

    def latest(self, ref: str, grant: Grant) -> pb.PartitionEvent:
        """Return a partition's last event.

        Args:
            ref: The partition.
            grant: Partitions that it does not cover are left out of `downstream_deps`.

        Raises:
            NotFound: It was never seen.
        """
        queries = self._instance.queries
        answer = queries.latest_partition_status(ref)
        row = answer.value
        stored = None if row is None else self._instance.log.get(row.index)
        if row is None or stored is None:
            msg = f"there is no partition {ref!r}"
            raise NotFound(msg, index=answer.as_of, hint="the tables are as of that index")
        below = queries.list_rows(PartitionRow, Where(upstream=ref), limit=PAGE_ROWS_MAX)
        label = None if row.attempt is None else row.attempt.job_label
        return partition_event(
            stored,
            log_id=self._instance.identity.log_id,
            storage_backend=self._backend,
            state=row.state,
            terms=Terms(job_labels=() if label is None else (label,)),
            downstream_deps=sorted(row.ref for row in below.rows if grant.covers(row.ref)),
        )

    # --- many

    def messages(self, events: Sequence[StoredEvent]) -> list[pb.PartitionEvent]:
        """Return events in the flat view, with the labels of their jobs where they are known."""
        log_id = self._instance.identity.log_id
        found = [
            partition_event(stored, log_id=log_id, storage_backend=self._backend)
            for stored in events
        ]
        unnamed = [m for m in found if m.job_run_id and not m.producing_job]
        if unnamed:
            runs = self._instance.queries.by_id(JobRunRow, [m.job_run_id for m in unnamed])
            for message in unnamed:
                run = runs.get(message.job_run_id)
                message.producing_job = "" if run is None else run.job_label or ""
        return found

    def query(self, message: pb.PartitionEventQuery, grant: Grant) -> pb.PartitionEventQueryResult:
        """Return events in the order that is asked for, and how many match.

        Raises:
            InvalidFilter: A status that is none, an order that there is not, a negative offset.
            LimitExceeded: Offset, limit or terms over their bounds; or another order than by time,
                and more than `SORTED_EVENTS_MAX` match.
        """
        query = _query(message, grant)
        limit = count_within(
            "limit",
            message.limit,
            otherwise=QUERY_EVENTS,
            limit="page_events_max",
            limit_value=self._settings.page_events_max,
        )
        if not 0 <= message.offset <= OFFSET_EVENTS_MAX:
            _refuse_offset(message.offset)
        field, ascending = _order(message)
        events = self._instance.queries.events
        if field == "timestamp":
            # The ingest time never falls as the index grows.
            listed = events.query(
                query, newest_first=not ascending, offset=message.offset, limit=limit
            )
            total = self._total(query, listed, message.offset)
            found = self.messages(listed.events)
        else:
            listed = events.query(query, limit=SORTED_EVENTS_MAX)
            if listed.has_more:
                raise LimitExceeded(
                    f"events to be ordered by {field}",
                    limit="SORTED_EVENTS_MAX",
                    limit_value=SORTED_EVENTS_MAX,
                    value=SORTED_EVENTS_MAX + 1,
                )
            total = len(listed.events)
            found = self.messages(listed.events)
            found.sort(key=lambda event: getattr(event, field), reverse=not ascending)
            found = found[message.offset : message.offset + limit]
        return pb.PartitionEventQueryResult(
            events=_cut(found), total_count=total, as_of_index=listed.as_of
        )

    def _total(self, query: PartitionEventQuery, listed: EventList, offset: int) -> int:
        if not listed.has_more and (listed.events or not offset):
            return offset + len(listed.events)
        return self._instance.queries.events.count(query, as_of=listed.as_of).value.value


def _query(message: pb.PartitionEventQuery, grant: Grant) -> PartitionEventQuery:
    times = message.time_range
    return PartitionEventQuery(
        partition_refs=tuple(message.partition_refs),
        partition_patterns=() if message.partition_refs else grant.patterns,
        states=states_of_statuses(message.statuses),
        build_ids=tuple(message.job_graph_run_ids),
        created_from=times.start if times.HasField("start") else None,
        created_to=times.end if times.HasField("end") else None,
    )


def _order(message: pb.PartitionEventQuery) -> tuple[OrderField, bool]:
    if not message.HasField("order_by"):
        return "timestamp", True
    match message.order_by.field:
        case "" | "timestamp":
            return "timestamp", message.order_by.ascending
        case "partition_ref" | "status" as field:
            return field, message.order_by.ascending
        case other:
            msg = f"events cannot be ordered by {other!r:.80}"
            raise InvalidFilter(msg, hint="by timestamp, partition_ref or status")


def _refuse_offset(offset: int) -> None:
    if offset < 0:
        msg = f"offset is {offset}, below 0"
        raise InvalidFilter(msg)
    raise LimitExceeded(
        "offset", limit="OFFSET_EVENTS_MAX", limit_value=OFFSET_EVENTS_MAX, value=offset
    )


def _cut(events: Sequence[pb.PartitionEvent]) -> Sequence[pb.PartitionEvent]:
    """Return as many of the first events as a client with usual limits takes, at least one."""
    size = 0
    for n, event in enumerate(events):
        size += event.ByteSize() + 8
        if n and size > ANSWER_BYTES_MAX:
            return events[:n]
    return events
