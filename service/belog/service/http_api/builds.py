"""The routes of builds, job runs and tasks."""

from collections.abc import Callable
from typing import TypeVar

from belog.processors.indexes import Order, Where
from belog.processors.rows import BuildRow, JobRunRow, R, TaskRow, task_key
from belog.query.answers import ActiveBuild, BuildSummary, JobMetrics, Listing
from belog.query.cancel import Cancelled
from belog.service.http_api.answers import Answer, json_answer
from belog.service.http_api.call import Call
from belog.service.http_api.lists import listed, rows_limit
from belog.service.http_api.rows import (
    Fields,
    build_fields,
    count_fields,
    job_run_fields,
    task_fields,
    viewed,
    with_numbers,
)
from belog.service.instance import not_found
from belog.service.wire_rows import status_name
from belog.v1 import http_pb2

__all__ = [
    "cancel_build",
    "cancel_job",
    "cancel_task",
    "get_build",
    "get_job",
    "get_job_metrics",
    "get_task",
    "list_active_builds",
    "list_builds",
    "list_job_metrics",
    "list_jobs",
    "list_tasks",
]

T = TypeVar("T")


# --- lists


async def list_builds(call: Call) -> Answer:
    """Answer `GET /builds`."""
    return await listed(
        call,
        "builds",
        _lister(call.instance.repositories.builds.list),
        build_fields,
        lambda row: row.requested_partitions,
    )


async def list_jobs(call: Call) -> Answer:
    """Answer `GET /jobs`."""
    return await listed(
        call,
        "job_runs",
        _lister(call.instance.repositories.jobs.list),
        job_run_fields,
        lambda row: row.outputs,
    )


async def list_tasks(call: Call) -> Answer:
    """Answer `GET /tasks`."""
    return await listed(
        call,
        "tasks",
        _lister(call.instance.repositories.tasks.list),
        task_fields,
        lambda row: row.outputs,
    )


def _lister(
    listing: Callable[..., Listing[R]],
) -> Callable[[Where, Order, str | None, int], Listing[R]]:
    def page(where: Where, order: Order, cursor: str | None, limit: int) -> Listing[R]:
        return listing(where, order=order, cursor=cursor, limit=limit)

    return page


async def list_active_builds(call: Call) -> Answer:
    """Answer `GET /active-builds`."""
    await call.reach()
    ref: str | None = call.query.get("partition_ref")
    cursor: str | None = call.query.get("cursor")
    limit = rows_limit(call)
    queries = call.instance.queries
    if ref is not None:
        call.grant.check_refs((ref,))

    def builds() -> Answer:
        following = None
        if ref is not None:
            found = queries.active_builds_for_partition(ref)
            active, as_of = found.value, found.as_of
        else:
            active, page = queries.active_builds(cursor=cursor, limit=limit)
            following, as_of = page.next_cursor, page.as_of
        covers = call.grant.covers
        return json_answer(
            {
                "builds": [_active_fields(build) for build in active if covers(build.partition)],
                "next_page_token": following or "",
                "as_of_index": str(as_of),
            },
            as_of,
        )

    return await call.instance.calls.run(builds)


def _active_fields(build: ActiveBuild) -> Fields:
    fields: Fields = {
        "partition_ref": build.partition,
        "build_request_id": build.build_id,
        "role": build.role,
        "status": status_name(build.status),
        "requesting_clients": build.requesting_clients,
    }
    if build.build_state is not None:
        fields["build_state"] = build.build_state
    return with_numbers(fields, build, "started_at")


# --- one


async def get_build(call: Call) -> Answer:
    """Answer `GET /builds/{build_request_id}`."""
    await call.reach()
    build_id = call.name("build_request_id")
    queries = call.instance.queries
    found = await call.instance.calls.run(queries.build_request_summary, build_id)
    if found.value is None:
        raise not_found("build request", build_id, found.as_of)
    build = viewed(build_fields, call.query.get("view"))
    return json_answer(_summary_fields(found.value, build), found.as_of)


def _summary_fields(summary: BuildSummary, build: Callable[[BuildRow], Fields]) -> Fields:
    fields: Fields = {
        "build": build(summary.row),
        "requested": count_fields(summary.requested),
        "missing": summary.missing,
        "partitions": count_fields(summary.partitions),
        "job_runs": count_fields(summary.job_runs),
        "tasks": count_fields(summary.tasks),
        "is_partial": summary.is_partial,
    }
    return with_numbers(fields, summary, "duration_us")


async def get_job(call: Call) -> Answer:
    """Answer `GET /jobs/{job_run_id}`."""
    return await _row(call, JobRunRow, call.name("job_run_id"), job_run_fields)


async def get_task(call: Call) -> Answer:
    """Answer `GET /tasks/{build_request_id}/{task_id}`."""
    key = task_key(call.name("build_request_id"), call.name("task_id"))
    return await _row(call, TaskRow, key, task_fields)


async def _row(call: Call, kind: type[R], row_id: str, fields: Callable[[R], Fields]) -> Answer:
    await call.reach()
    found = await call.instance.calls.run(call.instance.queries.tables.get, kind, row_id)
    if found.value is None:
        raise not_found(kind.kind.replace("_", " "), row_id, found.applied)
    return json_answer(viewed(fields, call.query.get("view"))(found.value), found.applied)


# --- metrics of jobs


async def get_job_metrics(call: Call) -> Answer:
    """Answer `GET /jobs/labels/{label}/metrics`."""
    await call.reach()
    metrics = call.instance.repositories.jobs.metrics
    since_us: int | None = call.query.get("since_time")
    found = await call.instance.calls.run(metrics, call.name("label"), since_us=since_us)
    return json_answer(_metrics_fields(found.value), found.as_of)


async def list_job_metrics(call: Call) -> Answer:
    """Answer `GET /jobs/labels`."""
    await call.reach()
    metrics = call.instance.repositories.jobs.metrics_of_all
    since_us: int | None = call.query.get("since_time")
    found = await call.instance.calls.run(metrics, since_us=since_us)
    jobs = [_metrics_fields(job) for job in found.value]
    return json_answer({"jobs": jobs, "as_of_index": str(found.as_of)}, found.as_of)


def _metrics_fields(metrics: JobMetrics) -> Fields:
    fields: Fields = {
        "job_label": metrics.job_label,
        "runs": str(metrics.runs),
        "by_state": count_fields(metrics.by_state),
        "oldest_at": str(metrics.oldest_at),
        "newest_at": str(metrics.newest_at),
        "is_partial": metrics.is_partial,
    }
    if metrics.success_rate is not None:
        fields["success_rate"] = metrics.success_rate
    return with_numbers(fields, metrics, "duration_p50_us", "duration_p95_us")


# --- calling off


async def cancel_build(call: Call) -> Answer:
    """Answer `POST /builds/{build_request_id}/cancel`."""
    build_id = call.name("build_request_id")
    cancel = call.instance.repositories.builds.cancel
    return _cancelled(await _cancel(call, cancel, build_id))


async def cancel_job(call: Call) -> Answer:
    """Answer `POST /jobs/{job_run_id}/cancel`."""
    job_run_id = call.name("job_run_id")
    cancel = call.instance.repositories.jobs.cancel
    return _cancelled(await _cancel(call, cancel, job_run_id))


async def cancel_task(call: Call) -> Answer:
    """Answer `POST /tasks/{build_request_id}/{task_id}/cancel`."""
    names = call.name("build_request_id"), call.name("task_id")
    cancel = call.instance.repositories.tasks.cancel
    found = await _cancel(call, cancel, *names)
    as_of = max((one.index + 1 for one in found), default=0)
    return json_answer({"runs": [_cancelled_fields(one) for one in found]}, as_of)


async def _cancel(call: Call, cancel: Callable[..., T], *names: str) -> T:
    asked = await call.message(http_pb2.CancelRequest)
    acting = call.instance.require_producer().acting_as(call.grant.actor)
    return await call.instance.calls.run(cancel, acting, *names, reason=asked.reason or None)


def _cancelled(found: Cancelled) -> Answer:
    return json_answer(_cancelled_fields(found), found.index + 1)


def _cancelled_fields(found: Cancelled) -> Fields:
    return {
        "subject_kind": found.subject_kind,
        "subject_id": found.subject_id,
        "index": str(found.index),
        "was_cancelled": found.was_cancelled,
        "job_runs": found.job_runs,
        "partitions": found.partitions,
    }
