"""The one function that makes rows from accepted events. Pure.

`changed_rows` takes an outcome of the fold and the rows before it, and returns the rows it changes.
It never raises for what a payload holds: the verdict looks at few fields, so the rest may be of any
type, and what is of the wrong one counts as absent. Empty text counts as absent too.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from belog.processors.rows import (
    ATTEMPT_LIST_MAX,
    TASK_RUNS_MAX,
    Attempt,
    Availability,
    BuildRow,
    JobRunRow,
    PartitionRow,
    Row,
    RowView,
    SystemRow,
    TaskRow,
    task_key,
)
from belog.schemas.envelope import Event
from belog.schemas.errors import Corrupt
from belog.schemas.fold import Accepted, Outcome, SubjectState
from belog.schemas.lifecycle import SubjectKind
from belog.schemas.payload import JsonValue, decode_payload

__all__ = ["changed_rows"]

Body = Mapping[str, JsonValue]
_EMPTY: Final[Body] = {}
_EMPTY_MAP: Final = b"\xa0"


def _text(body: Body, name: str) -> str | None:
    value = body.get(name)
    return value if type(value) is str and value else None


def _texts(body: Body, name: str) -> tuple[str, ...]:
    value = body.get(name)
    if type(value) is not list:
        return ()
    return tuple(item for item in value if type(item) is str and item)


def _count(body: Body, name: str) -> int | None:
    value = body.get(name)
    # Larger integers than any store holds are no counts.
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def _json(body: Body, name: str) -> str | None:
    value = body.get(name)
    if type(value) is not dict:
        return None
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        # A CBOR value without a JSON form, in a record of another program.
        return None


def _merged(known: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    new = dict.fromkeys(item for item in more if item not in known)
    return (*known, *new)[:ATTEMPT_LIST_MAX] if new else known


def changed_rows(view: RowView, outcome: Outcome) -> tuple[Row, ...]:
    """Return the rows that an outcome changes, each as it is afterwards.

    Pure. Nothing for a duplicate, a void record or an event of an unknown type.

    Args:
        view: The rows before it.
        outcome: What the fold found at one position.
    """
    event = outcome.event
    verdict = outcome.verdict
    if event is None or type(verdict) is not Accepted:
        return ()
    found = _HANDLERS.get(event.event_type)
    if found is None or found[0] != event.subject_kind:
        return ()
    body: Body | None = outcome.body
    if body is None:
        body = _body(event)
    return found[1](view, event, body, verdict.after, outcome.created_at)


def _body(event: Event) -> Body:
    if event.payload == _EMPTY_MAP:
        return _EMPTY
    try:
        return decode_payload(event.payload)
    except Corrupt:
        return _EMPTY


# --- partitions


def _partition(
    view: RowView, event: Event, body: Body, after: SubjectState, at: int
) -> tuple[Row, ...]:
    before = view.row(PartitionRow, event.subject_id)
    row = PartitionRow(
        event.subject_id if before is None else before.ref,
        after.state,
        after.index,
        at,
        after.index if before is None else before.first_seen,
        1 if before is None else before.version + 1,
        _next_attempt(before, event.event_type, body, after, at),
        _next_available(before, event.event_type, body, after, at),
        _text(body, "message"),
    )
    build = _counted(view, event.event_type, body, before)
    return (row,) if build is None else (row, build)


def _next_attempt(
    before: PartitionRow | None, event_type: str, body: Body, after: SubjectState, at: int
) -> Attempt | None:
    attempt = None if before is None else before.attempt
    if event_type not in _ATTEMPT_TYPES:
        return attempt
    owner = after.owner or ""
    clients = _texts(body, "requesting_clients")
    if event_type == "v1.partition.requested":
        if attempt is None or before is None or before.state not in _ATTEMPT_STATES:
            return Attempt(owner, after.index, at, _merged((), clients))
        # The owner gives the step back: who waits goes on waiting, the job run is off.
        return Attempt(
            attempt.build_id,
            attempt.requested_index,
            attempt.requested_at,
            _merged(attempt.requesting_clients, clients),
            attempt.joined_builds,
        )
    if attempt is None:
        attempt = Attempt(owner, after.index, at)
    if event_type == "v1.partition.joined":
        build_id = _text(body, "build_request_id")
        others = () if build_id is None or build_id == attempt.build_id else (build_id,)
        return replace(
            attempt,
            joined_builds=_merged(attempt.joined_builds, others),
            requesting_clients=_merged(attempt.requesting_clients, clients),
        )
    if event_type == "v1.partition.scheduled":
        return replace(
            attempt,
            job_run_id=_text(body, "job_run_id"),
            task_id=_text(body, "task_id"),
            job_label=_text(body, "job_label"),
            upstream_deps=_texts(body, "upstream_deps"),
        )
    if event_type == "v1.partition.delegated":
        return replace(
            attempt,
            delegated_to_log=_text(body, "delegated_to_log"),
            delegated_to_build=_text(body, "delegated_to_build"),
        )
    job_run_id = _text(body, "job_run_id") or attempt.job_run_id
    if event_type == "v1.partition.failed":
        return replace(attempt, job_run_id=job_run_id, failure_reason=_text(body, "reason"))
    return attempt if job_run_id == attempt.job_run_id else replace(attempt, job_run_id=job_run_id)


def _next_available(
    before: PartitionRow | None, event_type: str, body: Body, after: SubjectState, at: int
) -> Availability | None:
    data = None if before is None else before.available
    if event_type == "v1.partition.available":
        attempt = None if before is None else before.attempt
        return Availability(
            after.index,
            at,
            after.owner or None,
            _text(body, "job_run_id") or (None if attempt is None else attempt.job_run_id),
            None if attempt is None else attempt.job_label,
            () if attempt is None else attempt.upstream_deps,
            None,
            _json(body, "manifest"),
        )
    if event_type == "v1.partition.observed":
        return Availability(
            after.index,
            at,
            upstream_deps=_texts(body, "upstream_deps"),
            source=_text(body, "source"),
            manifest=_json(body, "manifest"),
        )
    if data is None:
        return None
    if event_type == "v1.partition.stale":
        return replace(
            data,
            stale_index=after.index,
            reason=_text(body, "reason"),
            cause_partition=_text(body, "cause_partition"),
        )
    if event_type == "v1.partition.removed" and data.removed_index is None:
        return replace(data, removed_index=after.index, reason=_text(body, "reason"))
    return data


def _counted(
    view: RowView, event_type: str, body: Body, before: PartitionRow | None
) -> BuildRow | None:
    """Return the row of the build that a partition's event names, where it counts there."""
    if event_type not in _COUNTED_TYPES:
        return None
    build_id = body.get("build_request_id")
    build = view.row(BuildRow, build_id) if type(build_id) is str else None
    if build is None:
        return None
    counts = build.counts
    if event_type == "v1.partition.requested":
        if before is not None and before.state in _ATTEMPT_STATES:
            return None
        counts = replace(counts, requested=counts.requested + 1)
    elif event_type == "v1.partition.joined":
        counts = replace(counts, joined=counts.joined + 1)
    elif event_type == "v1.partition.available":
        counts = replace(counts, available=counts.available + 1)
    elif event_type == "v1.partition.failed":
        counts = replace(counts, failed=counts.failed + 1)
    else:
        counts = replace(counts, delegated=counts.delegated + 1)
    return replace(build, version=build.version + 1, counts=counts)


# --- builds


def _build(
    view: RowView, event: Event, body: Body, after: SubjectState, at: int
) -> tuple[Row, ...]:
    row = view.row(BuildRow, event.subject_id)
    if row is None:
        row = BuildRow(event.subject_id, after.state, after.index, at, after.index, 0)
    row = replace(
        row,
        state=after.state,
        index=after.index,
        updated_at=at,
        version=row.version + 1,
        message=_text(body, "message"),
    )
    name = event.event_type
    if name == "v1.build.received":
        row = replace(
            row,
            received_at=at,
            client_id=_text(body, "client_id"),
            comment=_text(body, "comment"),
            requested_partitions=_texts(body, "requested_partitions"),
        )
    elif name == "v1.build.planning":
        row = replace(row, planning_at=at)
    elif name == "v1.build.analysis_completed":
        row = replace(
            row,
            analysis_completed_at=at,
            task_count=_count(body, "task_count"),
            partition_count=_count(body, "partition_count"),
        )
    elif name == "v1.build.executing":
        row = replace(row, executing_at=at)
    else:
        row = replace(row, ended_at=at, reason=_text(body, "reason"))
    return (row,)


# --- job runs and tasks


def _job_run(
    view: RowView, event: Event, body: Body, after: SubjectState, at: int
) -> tuple[Row, ...]:
    before = view.row(JobRunRow, event.subject_id)
    row = before or JobRunRow(event.subject_id, after.state, after.index, at, after.index, 0)
    row = replace(
        row,
        state=after.state,
        index=after.index,
        updated_at=at,
        version=row.version + 1,
        message=_text(body, "message"),
    )
    name = event.event_type
    if name == "v1.job.running":
        row = replace(
            row,
            started_at=row.started_at or at,
            heartbeat_at=at,
            heartbeats=row.heartbeats + (row.started_at is not None),
            worker=_text(body, "worker") or row.worker,
        )
    elif name == "v1.job.scheduled":
        row = _planned(row, body)
    else:
        if name == "v1.job.skipped":
            # Skipped after it was scheduled, it may name no more than the reason.
            row = _planned(row, body) if before is None else row
            row = replace(row, available_from_build=_text(body, "available_from_build"))
        row = replace(
            row, ended_at=at, reason=_text(body, "reason"), exit_code=_count(body, "exit_code")
        )
    task = _task(view, row, before)
    build = None
    if before is None and row.build_id is not None:
        build = view.row(BuildRow, row.build_id)
    if build is not None:
        counts = replace(build.counts, job_runs=build.counts.job_runs + 1)
        build = replace(build, version=build.version + 1, counts=counts)
    return tuple(changed for changed in (row, task, build) if changed is not None)


def _planned(row: JobRunRow, body: Body) -> JobRunRow:
    attempt = _count(body, "attempt")
    return replace(
        row,
        build_id=_text(body, "build_request_id"),
        task_id=_text(body, "task_id"),
        job_label=_text(body, "job_label"),
        inputs=_texts(body, "inputs"),
        outputs=_texts(body, "outputs"),
        attempt=1 if attempt is None else attempt,
    )


def _task(view: RowView, run: JobRunRow, before: JobRunRow | None) -> TaskRow | None:
    """Return the task of a job run, unless a newer run speaks for it."""
    if run.build_id is None or run.task_id is None:
        return None
    task = view.row(TaskRow, task_key(run.build_id, run.task_id))
    if task is None:
        task = TaskRow(
            run.build_id, run.task_id, run.state, run.index, run.updated_at, run.index, 0
        )
    elif before is not None and task.runs[-1:] != (run.job_run_id,):
        return None
    task = replace(
        task, state=run.state, index=run.index, updated_at=run.updated_at, version=task.version + 1
    )
    if before is not None:
        return task
    return replace(
        task,
        job_label=run.job_label or task.job_label,
        outputs=run.outputs or task.outputs,
        inputs=run.inputs or task.inputs,
        runs=(*task.runs, run.job_run_id)[-TASK_RUNS_MAX:],
        run_count=task.run_count + 1,
    )


# --- the log itself


def _system(
    view: RowView, event: Event, body: Body, after: SubjectState, at: int
) -> tuple[Row, ...]:
    row = view.row(SystemRow, event.subject_id)
    if row is None:
        row = SystemRow(event.subject_id, after.state, after.index, at, after.index, 0)
    row = replace(
        row,
        state=after.state,
        index=after.index,
        updated_at=at,
        version=row.version + 1,
        message=_text(body, "message"),
    )
    name = event.event_type
    if name == "v1.system.log_created":
        row = replace(row, instance=_text(body, "instance"))
    if name in {"v1.system.log_created", "v1.system.lifecycle_adopted"}:
        row = replace(row, lifecycle_version=_count(body, "lifecycle_version"))
    elif name == "v1.system.snapshot_taken":
        row = replace(
            row,
            snapshot_count=row.snapshot_count + 1,
            snapshot_index=_count(body, "index"),
            snapshot_location=_text(body, "location"),
            snapshot_at=at,
        )
    else:
        row = replace(
            row,
            vacuum_horizon=_count(body, "horizon"),
            vacuum_snapshot=_text(body, "snapshot"),
            removed_count=row.removed_count + (_count(body, "removed_count") or 0),
        )
    return (row,)


_Handler = Callable[[RowView, Event, Body, SubjectState, int], tuple[Row, ...]]

_ATTEMPT_STATES: Final = frozenset({"requested", "scheduled", "building", "delegated"})
_ATTEMPT_TYPES: Final = frozenset(
    f"v1.partition.{name}"
    for name in (
        "requested",
        "joined",
        "scheduled",
        "building",
        "available",
        "delegated",
        "failed",
    )
)
_COUNTED_TYPES: Final = _ATTEMPT_TYPES - {"v1.partition.scheduled", "v1.partition.building"}


def _handlers(
    kind: SubjectKind, prefix: str, handler: _Handler, names: str
) -> dict[str, tuple[SubjectKind, _Handler]]:
    return {f"v1.{prefix}.{name}": (kind, handler) for name in names.split()}


_HANDLERS: Final[Mapping[str, tuple[SubjectKind, _Handler]]] = {
    **_handlers(
        "partition",
        "partition",
        _partition,
        "requested joined scheduled building available delegated failed stale removed observed",
    ),
    **_handlers(
        "build",
        "build",
        _build,
        "received planning analysis_completed executing completed failed cancelled",
    ),
    **_handlers("job_run", "job", _job_run, "scheduled skipped running completed failed cancelled"),
    **_handlers(
        "system", "system", _system, "log_created lifecycle_adopted snapshot_taken vacuumed"
    ),
}
