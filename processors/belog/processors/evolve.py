"""The one function that makes rows from accepted events. Pure.

`changed_rows` takes an outcome of the fold and the rows before it, and returns the rows it changes.
It never raises for what a payload holds; see `belog.processors.payload_fields`.
"""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from belog.processors.evolve_partitions import PARTITION_HANDLERS, Handler
from belog.processors.payload_fields import INT_MAX, Body, body_of, count, text, texts
from belog.processors.rows import (
    TASK_RUNS_MAX,
    BuildRow,
    JobRunRow,
    Row,
    RowView,
    SystemRow,
    TaskRow,
    task_key,
)
from belog.schemas.envelope import Event
from belog.schemas.fold import Accepted, Outcome, SubjectState
from belog.schemas.lifecycle import SubjectKind

__all__ = ["changed_rows", "rows_after"]


def changed_rows(view: RowView, outcome: Outcome) -> tuple[Row, ...]:
    """Return the rows that an outcome changes, each as it is afterwards.

    Pure. Nothing for a duplicate, a void record or an event of an unknown type.

    Args:
        view: The rows before it.
        outcome: What the fold found at one position.
    """
    event = outcome.event
    verdict = outcome.verdict
    if event is None or not isinstance(verdict, Accepted):
        return ()
    return rows_after(view, event, verdict.after, outcome.created_at, outcome.body)


def rows_after(
    view: RowView, event: Event, after: SubjectState, created_at: int, body: Body | None = None
) -> tuple[Row, ...]:
    """Return the rows that an accepted event changes, each as it is afterwards.

    Pure. Nothing for an event of an unknown type.

    Args:
        view: The rows before it.
        event: The event.
        after: The state of its subject after it.
        created_at: Its ingest time as readers see it, microseconds.
        body: The decoded payload, where the caller has it already.
    """
    found = _HANDLERS.get(event.event_type)
    if found is None or found[0] != event.subject_kind:
        return ()
    if body is None:
        body = body_of(event)
    # Past this no time is one; a record of another program may name any.
    at = created_at if -INT_MAX <= created_at <= INT_MAX else _nearest(created_at)
    return found[1](view, event, body, after, at)


def _nearest(created_at: int) -> int:
    return INT_MAX if created_at > 0 else -INT_MAX


# --- builds


def _build(
    view: RowView, event: Event, body: Body, after: SubjectState, at: int
) -> tuple[Row, ...]:
    row = view.builds.get(event.subject_id)
    if row is None:
        row = BuildRow(event.subject_id, after.state, after.index, at, after.index, 0)
    row = replace(
        row,
        state=after.state,
        index=after.index,
        updated_at=at,
        version=row.version + 1,
        message=text(body, "message"),
    )
    name = event.event_type
    if name == "v1.build.received":
        row = replace(
            row,
            received_at=at,
            client_id=text(body, "client_id"),
            comment=text(body, "comment"),
            requested_partitions=texts(body, "requested_partitions"),
        )
    elif name == "v1.build.planning":
        row = replace(row, planning_at=at)
    elif name == "v1.build.analysis_completed":
        row = replace(
            row,
            analysis_completed_at=at,
            task_count=count(body, "task_count"),
            partition_count=count(body, "partition_count"),
        )
    elif name == "v1.build.executing":
        row = replace(row, executing_at=at)
    else:
        row = replace(row, ended_at=at, reason=text(body, "reason"))
    return (row,)


# --- job runs and tasks


def _job_run(
    view: RowView, event: Event, body: Body, after: SubjectState, at: int
) -> tuple[Row, ...]:
    before = view.job_runs.get(event.subject_id)
    name = event.event_type
    if name == "v1.job.scheduled":
        row = _planned_run(before, event, body, after, at)
    elif name == "v1.job.running":
        row = _moved_run(before, event, body, after, at)
        row = replace(
            row,
            started_at=row.started_at or at,
            heartbeat_at=at,
            heartbeats=row.heartbeats + (row.started_at is not None),
            worker=text(body, "worker") or row.worker,
        )
    else:
        if name != "v1.job.skipped":
            row = _moved_run(before, event, body, after, at)
        else:
            # Skipped after it was scheduled, it may name no more than the reason.
            moved = _planned_run if before is None else _moved_run
            row = moved(before, event, body, after, at)
            row = replace(row, available_from_build=text(body, "available_from_build"))
        row = replace(
            row, ended_at=at, reason=text(body, "reason"), exit_code=count(body, "exit_code")
        )
    task = _task(view, row, before)
    rows = (row,) if task is None else (row, task)
    build = None
    if before is None and row.build_id is not None:
        build = view.builds.get(row.build_id)
    if build is None:
        return rows
    counts = replace(build.counts, job_runs=build.counts.job_runs + 1)
    return (*rows, replace(build, version=build.version + 1, counts=counts))


def _moved_run(
    before: JobRunRow | None, event: Event, body: Body, after: SubjectState, at: int
) -> JobRunRow:
    index, message = after.index, text(body, "message")
    if before is None:
        return JobRunRow(event.subject_id, after.state, index, at, index, 1, message=message)
    return replace(
        before,
        state=after.state,
        index=index,
        updated_at=at,
        version=before.version + 1,
        message=message,
    )


def _planned_run(
    before: JobRunRow | None, event: Event, body: Body, after: SubjectState, at: int
) -> JobRunRow:
    attempt = count(body, "attempt")
    return replace(
        _moved_run(before, event, body, after, at),
        build_id=text(body, "build_request_id"),
        task_id=text(body, "task_id"),
        job_label=text(body, "job_label"),
        inputs=texts(body, "inputs"),
        outputs=texts(body, "outputs"),
        attempt=1 if attempt is None else attempt,
    )


def _task(view: RowView, run: JobRunRow, before: JobRunRow | None) -> TaskRow | None:
    """Return the task of a job run, unless a newer run speaks for it."""
    build_id, task_id = run.build_id, run.task_id
    if build_id is None or task_id is None:
        return None
    state, index, at = run.state, run.index, run.updated_at
    task = view.tasks.get(task_key(build_id, task_id))
    if before is not None:
        if task is None:
            return TaskRow(build_id, task_id, state, index, at, index, 1)
        if task.runs[-1:] != (run.job_run_id,):
            return None
        return replace(task, state=state, index=index, updated_at=at, version=task.version + 1)
    runs = (run.job_run_id,)
    if task is None:
        return TaskRow(
            build_id,
            task_id,
            state,
            index,
            at,
            index,
            1,
            job_label=run.job_label,
            outputs=run.outputs,
            inputs=run.inputs,
            runs=runs,
            run_count=1,
        )
    return replace(
        task,
        state=state,
        index=index,
        updated_at=at,
        version=task.version + 1,
        job_label=run.job_label or task.job_label,
        outputs=run.outputs or task.outputs,
        inputs=run.inputs or task.inputs,
        runs=(*task.runs, *runs)[-TASK_RUNS_MAX:],
        run_count=task.run_count + 1,
    )


# --- the log itself


def _system(
    view: RowView, event: Event, body: Body, after: SubjectState, at: int
) -> tuple[Row, ...]:
    row = view.systems.get(event.subject_id)
    if row is None:
        row = SystemRow(event.subject_id, after.state, after.index, at, after.index, 0)
    row = replace(
        row,
        state=after.state,
        index=after.index,
        updated_at=at,
        version=row.version + 1,
        message=text(body, "message"),
    )
    name = event.event_type
    if name == "v1.system.log_created":
        row = replace(row, instance=text(body, "instance"))
    if name in {"v1.system.log_created", "v1.system.lifecycle_adopted"}:
        row = replace(row, lifecycle_version=count(body, "lifecycle_version"))
    elif name == "v1.system.snapshot_taken":
        row = replace(
            row,
            snapshot_count=row.snapshot_count + 1,
            snapshot_index=count(body, "index"),
            snapshot_location=text(body, "location"),
            snapshot_at=at,
        )
    else:
        row = replace(
            row,
            vacuum_horizon=count(body, "horizon"),
            vacuum_snapshot=text(body, "snapshot"),
            removed_count=row.removed_count + (count(body, "removed_count") or 0),
        )
    return (row,)


def _handlers(
    kind: SubjectKind, prefix: str, handler: Handler, names: str
) -> dict[str, tuple[SubjectKind, Handler]]:
    return {f"v1.{prefix}.{name}": (kind, handler) for name in names.split()}


_HANDLERS: Final[Mapping[str, tuple[SubjectKind, Handler]]] = {
    **{name: ("partition", handler) for name, handler in PARTITION_HANDLERS.items()},
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
