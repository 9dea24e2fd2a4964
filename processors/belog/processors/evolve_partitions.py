"""What an accepted event makes of a partition's row, and of the row of the build it names. Pure."""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec.structs import replace

from belog.processors.payload_fields import Body, json_text, text, texts
from belog.processors.rows import (
    ATTEMPT_LIST_MAX,
    Attempt,
    Availability,
    BuildRow,
    PartitionRow,
    Row,
    RowView,
)
from belog.schemas.envelope import Event
from belog.schemas.fold import SubjectState

__all__ = ["PARTITION_HANDLERS", "Handler"]

Handler = Callable[[RowView, Event, Body, SubjectState, int], tuple[Row, ...]]
"""The rows before, the event, its payload, the subject's state after it, its ingest time → the rows
that change."""

_ATTEMPT_STATES: Final = frozenset({"requested", "scheduled", "building", "delegated"})


def _merged(known: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    new = dict.fromkeys(item for item in more if item not in known)
    return (*known, *new)[:ATTEMPT_LIST_MAX] if new else known


def _partition_row(
    before: PartitionRow | None,
    event: Event,
    body: Body,
    after: SubjectState,
    at: int,
    *,
    attempt: Attempt | None,
    available: Availability | None,
) -> PartitionRow:
    message = text(body, "message")
    index = after.index
    if before is None:
        ref = event.subject_id
        return PartitionRow(ref, after.state, index, at, index, 1, attempt, available, message)
    return PartitionRow(
        before.ref,
        after.state,
        index,
        at,
        before.first_seen,
        before.version + 1,
        attempt,
        available,
        message,
    )


def _naming_build(view: RowView, body: Body) -> BuildRow | None:
    """Return the row of the build that a partition's event names, where there is one."""
    build_id = body.get("build_request_id")
    return view.builds.get(build_id) if type(build_id) is str else None


def _with_counts(row: PartitionRow, build: BuildRow, **counts: int) -> tuple[Row, ...]:
    counted = replace(build.counts, **counts)
    return row, replace(build, version=build.version + 1, counts=counted)


def _attempt_of(before: PartitionRow | None, after: SubjectState, at: int) -> Attempt:
    if before is not None and before.attempt is not None:
        return before.attempt
    return Attempt(after.owner or "", after.index, at)


def _data_of(before: PartitionRow | None) -> Availability | None:
    return None if before is None else before.available


def _requested(
    view: RowView, event: Event, body: Body, after: SubjectState, at: int
) -> tuple[Row, ...]:
    before = view.partitions.get(event.subject_id)
    clients = texts(body, "requesting_clients")
    data = _data_of(before)
    if before is not None and before.state in _ATTEMPT_STATES:
        # The owner gives the step back: who waits goes on waiting, the job run is off.
        old = _attempt_of(before, after, at)
        attempt = Attempt(
            old.build_id,
            old.requested_index,
            old.requested_at,
            _merged(old.requesting_clients, clients),
            old.joined_builds,
        )
        row = _partition_row(before, event, body, after, at, attempt=attempt, available=data)
        return (row,)
    attempt = Attempt(after.owner or "", after.index, at, _merged((), clients) if clients else ())
    row = _partition_row(before, event, body, after, at, attempt=attempt, available=data)
    build = _naming_build(view, body)
    return _with_counts(row, build, requested=build.counts.requested + 1) if build else (row,)


def _joined(
    view: RowView, event: Event, body: Body, after: SubjectState, at: int
) -> tuple[Row, ...]:
    before = view.partitions.get(event.subject_id)
    attempt = _attempt_of(before, after, at)
    build_id = text(body, "build_request_id")
    others = () if build_id is None or build_id == attempt.build_id else (build_id,)
    attempt = replace(
        attempt,
        joined_builds=_merged(attempt.joined_builds, others),
        requesting_clients=_merged(attempt.requesting_clients, texts(body, "requesting_clients")),
    )
    row = _partition_row(
        before, event, body, after, at, attempt=attempt, available=_data_of(before)
    )
    # A client without a build of its own joins under the owner's, which waits for nobody.
    build = _naming_build(view, body) if others else None
    return _with_counts(row, build, joined=build.counts.joined + 1) if build else (row,)


def _scheduled(
    view: RowView, event: Event, body: Body, after: SubjectState, at: int
) -> tuple[Row, ...]:
    before = view.partitions.get(event.subject_id)
    attempt = replace(
        _attempt_of(before, after, at),
        job_run_id=text(body, "job_run_id"),
        task_id=text(body, "task_id"),
        job_label=text(body, "job_label"),
        upstream_deps=texts(body, "upstream_deps"),
    )
    data = _data_of(before)
    return (_partition_row(before, event, body, after, at, attempt=attempt, available=data),)


def _building(
    view: RowView, event: Event, body: Body, after: SubjectState, at: int
) -> tuple[Row, ...]:
    before = view.partitions.get(event.subject_id)
    attempt = _run_by(_attempt_of(before, after, at), body)
    data = _data_of(before)
    return (_partition_row(before, event, body, after, at, attempt=attempt, available=data),)


def _run_by(attempt: Attempt, body: Body) -> Attempt:
    job_run_id = text(body, "job_run_id")
    if job_run_id is None or job_run_id == attempt.job_run_id:
        return attempt
    return replace(attempt, job_run_id=job_run_id)


def _available(
    view: RowView, event: Event, body: Body, after: SubjectState, at: int
) -> tuple[Row, ...]:
    before = view.partitions.get(event.subject_id)
    attempt = _run_by(_attempt_of(before, after, at), body)
    data = Availability(
        after.index,
        at,
        after.owner or None,
        attempt.job_run_id,
        attempt.job_label,
        attempt.upstream_deps,
        None,
        json_text(body, "manifest"),
    )
    row = _partition_row(before, event, body, after, at, attempt=attempt, available=data)
    build = _naming_build(view, body)
    return _with_counts(row, build, available=build.counts.available + 1) if build else (row,)


def _delegated(
    view: RowView, event: Event, body: Body, after: SubjectState, at: int
) -> tuple[Row, ...]:
    before = view.partitions.get(event.subject_id)
    attempt = replace(
        _attempt_of(before, after, at),
        delegated_to_log=text(body, "delegated_to_log"),
        delegated_to_build=text(body, "delegated_to_build"),
    )
    row = _partition_row(
        before, event, body, after, at, attempt=attempt, available=_data_of(before)
    )
    build = _naming_build(view, body)
    return _with_counts(row, build, delegated=build.counts.delegated + 1) if build else (row,)


def _failed(
    view: RowView, event: Event, body: Body, after: SubjectState, at: int
) -> tuple[Row, ...]:
    before = view.partitions.get(event.subject_id)
    attempt = _run_by(_attempt_of(before, after, at), body)
    attempt = replace(attempt, failure_reason=text(body, "reason"))
    row = _partition_row(
        before, event, body, after, at, attempt=attempt, available=_data_of(before)
    )
    build = _naming_build(view, body)
    return _with_counts(row, build, failed=build.counts.failed + 1) if build else (row,)


def _data_changed(
    view: RowView, event: Event, body: Body, after: SubjectState, at: int
) -> tuple[Row, ...]:
    before = view.partitions.get(event.subject_id)
    attempt = None if before is None else before.attempt
    data = _data_of(before)
    if event.event_type == "v1.partition.observed":
        data = Availability(
            after.index,
            at,
            upstream_deps=texts(body, "upstream_deps"),
            source=text(body, "source"),
            manifest=json_text(body, "manifest"),
        )
    elif data is not None and event.event_type == "v1.partition.stale":
        data = replace(
            data,
            stale_index=after.index,
            reason=text(body, "reason"),
            cause_partition=text(body, "cause_partition"),
        )
    elif data is not None and data.removed_index is None:
        data = replace(data, removed_index=after.index, reason=text(body, "reason"))
    return (_partition_row(before, event, body, after, at, attempt=attempt, available=data),)


PARTITION_HANDLERS: Final[Mapping[str, Handler]] = {
    "v1.partition.requested": _requested,
    "v1.partition.joined": _joined,
    "v1.partition.scheduled": _scheduled,
    "v1.partition.building": _building,
    "v1.partition.available": _available,
    "v1.partition.delegated": _delegated,
    "v1.partition.failed": _failed,
    "v1.partition.stale": _data_changed,
    "v1.partition.removed": _data_changed,
    "v1.partition.observed": _data_changed,
}
"""By event type."""
