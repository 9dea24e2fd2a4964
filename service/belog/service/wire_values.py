"""Messages of a service as the values that they were made of there. Pure; see `wire_answers`."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeVar, cast
from uuid import UUID

import msgspec
from google.protobuf.message import Message

from belog.processors.indexes import Order, Where
from belog.processors.rows import (
    ROW_TYPES,
    BuildRow,
    JobRunRow,
    PartitionRow,
    R,
    RowKind,
    TaskRow,
)
from belog.query import Cancelled
from belog.query.answers import (
    Activity,
    AuditEntry,
    Cause,
    Dependency,
    EdgeKind,
    Explanation,
    Graph,
    GraphEdge,
    GraphNode,
    JobMetrics,
    Lag,
    Link,
    Rates,
)
from belog.schemas.errors import Corrupt
from belog.storage.interface import Statistics
from belog.v1 import catalog_pb2, http_pb2

__all__ = [
    "LISTS",
    "ROWS",
    "Page",
    "activity_of",
    "cancelled_of",
    "entry_of",
    "explanation_of",
    "graph_of",
    "metrics_of",
    "query_of",
    "row_of",
    "rows_of",
    "statistics_of",
]

T = TypeVar("T")


class Page(Protocol):
    """What messages of lists have in common."""

    next_page_token: str


class _WithRow(Protocol):
    row: str


LISTS: Final[Mapping[type[object], type[Message]]] = {
    PartitionRow: catalog_pb2.ListPartitionsResponse,
    BuildRow: http_pb2.ListBuildsResponse,
    JobRunRow: http_pb2.ListJobRunsResponse,
    TaskRow: http_pb2.ListTasksResponse,
}
"""Messages of pages, by what they are pages of."""

ROWS: Final[Mapping[type[object], type[Message]]] = {
    PartitionRow: catalog_pb2.Partition,
    BuildRow: http_pb2.BuildSummary,
    JobRunRow: http_pb2.JobRun,
    TaskRow: http_pb2.Task,
}
"""Messages of one."""

_NAMES: Final[Mapping[type[object], str]] = {
    PartitionRow: "partitions",
    BuildRow: "builds",
    JobRunRow: "job_runs",
    TaskRow: "tasks",
}


# --- rows


def query_of(where: Where, order: Order) -> Mapping[str, object]:
    """Return conditions as parameters of a list's route; None leaves one out."""
    return {
        "state": where.states,
        "active": where.active,
        "build_request_id": where.build_id,
        "job_label": where.job_label,
        "client_id": where.client_id,
        "partition_ref": where.partition,
        "upstream": where.upstream,
        "prefix": where.id_prefix or None,
        "since_time": where.since_us,
        "until_time": where.until_us,
        "order": order,
    }


def row_of(kind: type[R], message: object) -> R:
    """Return the row that a message was made of.

    Raises:
        Corrupt: It has none, or one of another form.
    """
    held = message.build if isinstance(message, http_pb2.BuildSummary) else message
    try:
        return msgspec.json.decode(cast("_WithRow", held).row, type=kind)
    except msgspec.MsgspecError as error:
        msg = f"the service did not give a row that is understood here: {error}"
        raise Corrupt(msg, hint="is it of another version?") from error


def rows_of(kind: type[R], page: object) -> Sequence[R]:
    """Return the rows of a page; see `row_of`."""
    return [row_of(kind, message) for message in getattr(page, _NAMES[kind])]


def _rows(kind: type[R], messages: Sequence[object]) -> tuple[R, ...]:
    return tuple(row_of(kind, message) for message in messages)


def _given(message: Message, name: str) -> int | None:
    return cast("int", getattr(message, name)) if message.HasField(name) else None


# --- partitions


def _state(status: int) -> str:
    name = catalog_pb2.PartitionStatus.Name(cast("catalog_pb2.PartitionStatus", status)).lower()
    return "" if name == "unknown" else name


def explanation_of(message: http_pb2.Explanation) -> Explanation:
    """Return why a partition is in its state."""
    row = row_of(PartitionRow, message.partition)
    return Explanation(
        ref=row.ref,
        state=row.state,
        summary=message.summary,
        row=row,
        causes=tuple(
            Cause(
                index=cause.index,
                at=cause.at,
                event_type=cause.event_type,
                subject_kind=cause.subject_kind,
                subject_id=cause.subject_id,
                actor=cause.actor,
                link=cast("Link", cause.link),
                reason=cause.reason or None,
            )
            for cause in message.causes
        ),
        waits_for=tuple(
            Dependency(dependency.partition_ref, _state(dependency.status))
            for dependency in message.waits_for
        ),
    )


def graph_of(root: str, message: catalog_pb2.DependencyGraph) -> Graph:
    """Return a graph around a partition."""
    return Graph(
        root,
        tuple(
            GraphNode(
                node.partition_ref,
                _state(node.status),
                node.last_updated or None,
                node.job_label or None,
            )
            for node in message.nodes
        ),
        tuple(
            GraphEdge(
                edge.source,
                edge.target,
                cast("EdgeKind", catalog_pb2.DependencyEdge.Kind.Name(edge.kind)),
            )
            for edge in message.edges
        ),
        message.truncated,
    )


# --- builds and job runs


def metrics_of(message: http_pb2.JobMetrics) -> JobMetrics:
    """Return how the runs of a job went."""
    return JobMetrics(
        job_label=message.job_label,
        runs=message.runs,
        by_state=_sorted(message.by_state),
        success_rate=message.success_rate if message.HasField("success_rate") else None,
        duration_p50_us=_given(message, "duration_p50_us"),
        duration_p95_us=_given(message, "duration_p95_us"),
        oldest_at=message.oldest_at,
        newest_at=message.newest_at,
        is_partial=message.is_partial,
    )


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def cancelled_of(message: http_pb2.CancelResponse) -> Cancelled:
    """Return what calling off came to."""
    return Cancelled(
        subject_kind=message.subject_kind,
        subject_id=message.subject_id,
        index=message.index,
        was_cancelled=message.was_cancelled,
        job_runs=message.job_runs,
        partitions=message.partitions,
    )


# --- the whole


def activity_of(message: http_pb2.Activity) -> Activity:
    """Return what goes on."""
    counts: dict[RowKind, Mapping[str, int]] = {
        kind: _sorted(message.counts[kind].by_state) for kind in ROW_TYPES if kind in message.counts
    }
    given = message.rates
    return Activity(
        counts=counts,
        running=_rows(JobRunRow, message.running),
        builds=_rows(BuildRow, message.builds),
        failed_partitions=_rows(PartitionRow, message.failed_partitions),
        failed_builds=_rows(BuildRow, message.failed_builds),
        failed_job_runs=_rows(JobRunRow, message.failed_job_runs),
        rates=Rates(**{name: getattr(given, name) for name in Rates.__struct_fields__}),
        lag=Lag(message.lag.records, message.lag.seconds),
    )


def entry_of(message: http_pb2.AuditEntry) -> AuditEntry:
    """Return an entry of an audit."""
    return AuditEntry(
        at=message.at,
        actor=message.actor,
        event_type=message.event_type,
        subject_kind=message.subject_kind,
        subject_id=message.subject_id,
        event_id=UUID(message.event_id).bytes,
        result=message.result,
        index=_given(message, "index"),
        reason=message.reason or None,
    )


def statistics_of(message: http_pb2.LogStatistics) -> Statistics:
    """Return what a log holds."""
    return Statistics(
        events=message.events,
        first_index=_given(message, "first_index"),
        last_index=_given(message, "last_index"),
        first_created_at=_given(message, "first_created_at"),
        last_created_at=_given(message, "last_created_at"),
        bytes=message.bytes,
        by_type=_sorted(message.by_type),
        by_subject_kind=_sorted(message.by_subject_kind),
        void=message.void,
        duplicates=message.duplicates,
        tombstones=message.tombstones,
        gaps=message.gaps,
    )
