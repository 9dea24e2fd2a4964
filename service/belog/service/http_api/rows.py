"""Rows of the tables as messages of the API, as plain values for JSON. Pure.

Each function returns what `google.protobuf.json_format` makes of the message that its docstring
names, with fields at their default written out; a test compares them.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from belog.processors.rows import BuildRow, JobRunRow, PartitionRow, R, TaskRow
from belog.schemas.events import Manifest

__all__ = [
    "Fields",
    "build_fields",
    "count_fields",
    "job_run_fields",
    "manifest_fields",
    "partition_fields",
    "status_name",
    "task_fields",
    "viewed",
]

Fields = dict[str, Any]

_STATUS_NAMES: Final[Mapping[str, str]] = {
    name: name.upper()
    for name in (
        *("requested", "scheduled", "building", "available"),
        *("failed", "stale", "delegated", "removed"),
    )
}
_IN_ATTEMPT: Final = frozenset({"requested", "scheduled", "building", "delegated", "failed"})


def status_name(state: str) -> str:
    """Return the name of a partition's state in `PartitionStatus`."""
    return _STATUS_NAMES.get(state, "UNKNOWN")


def count_fields(counts: Mapping[str, int]) -> Mapping[str, str]:
    """Return numbers by name, as a map of 64-bit integers."""
    return {name: str(count) for name, count in counts.items()}


def with_numbers(fields: Fields, row: object, *names: str) -> Fields:
    """Add the 64-bit integers of a row that are there."""
    for name in names:
        if (number := getattr(row, name)) is not None:
            fields[name] = str(number)
    return fields


def viewed(fields: Callable[[R], Fields], view: str | None) -> Callable[[R], Fields]:
    """Return what makes messages of rows as they were asked for.

    Args:
        fields: Makes the message.
        view: `row` for the row as the tables keep it as well; None for the message alone.
    """
    if view is None:
        return fields
    return lambda row: {**fields(row), "row": msgspec.json.encode(row).decode()}


def partition_fields(row: PartitionRow) -> Fields:
    """Return the `Partition` of a row."""
    attempt, data = row.attempt, row.available
    fields: Fields = {
        "partition_ref": row.ref,
        "status": status_name(row.state),
        "index": str(row.index),
        "updated_at": str(row.updated_at),
        "job_graph_run_id": "",
        "job_run_id": "",
        "requesting_clients": (),
        "available_from_run": "",
        "reason": "",
        "has_data": row.has_data,
        "job_label": "",
        "upstream_deps": (),
        "joined_runs": (),
        "delegated_to_log": "",
        "delegated_to_run_id": "",
        "cause_partition": "",
        "message": row.message or "",
    }
    if data is not None:
        fields["available_index"] = str(data.index)
        fields["available_at"] = str(data.at)
        fields["available_from_run"] = data.build_id or ""
        fields["job_label"] = data.job_label or ""
        fields["upstream_deps"] = data.upstream_deps
        if row.state in {"stale", "removed"}:
            fields["reason"] = data.reason or ""
            fields["cause_partition"] = data.cause_partition or ""
        if data.manifest is not None and (manifest := manifest_fields(data.manifest)) is not None:
            fields["manifest"] = manifest
    if attempt is not None:
        fields["job_graph_run_id"] = attempt.build_id
        fields["job_run_id"] = attempt.job_run_id or ""
        fields["requesting_clients"] = attempt.requesting_clients
        fields["requested_at"] = str(attempt.requested_at)
        fields["joined_runs"] = attempt.joined_builds
        fields["delegated_to_log"] = attempt.delegated_to_log or ""
        fields["delegated_to_run_id"] = attempt.delegated_to_build or ""
        if row.state in _IN_ATTEMPT:
            fields["job_label"] = attempt.job_label or fields["job_label"]
            fields["upstream_deps"] = attempt.upstream_deps or fields["upstream_deps"]
        if row.state == "failed":
            fields["reason"] = attempt.failure_reason or ""
    return fields


_MANIFEST: Final = msgspec.json.Decoder(Manifest)


def manifest_fields(manifest: str) -> Fields | None:
    """Return the `PartitionManifest` of a manifest as the tables keep it.

    Returns:
        None for one of newer or other software that is not of the form; its event has it all.
    """
    try:
        given = _MANIFEST.decode(manifest)
    except msgspec.MsgspecError:
        return None
    fields: Fields = {
        "outputs": given.outputs,
        "inputs": [
            {"ref": i.ref} if i.index is None else {"ref": i.ref, "index": str(i.index)}
            for i in given.inputs
        ],
        "metadata": given.metadata,
    }
    with_numbers(fields, given, "start_time", "end_time", "size_bytes", "row_count")
    for name in ("task_id", "uri", "content_digest"):
        if (text := getattr(given, name)) is not None:
            fields[name] = text
    return fields


def build_fields(row: BuildRow) -> Fields:
    """Return the `Build` of a row."""
    counts = row.counts
    fields: Fields = {
        "build_request_id": row.build_id,
        "state": row.state,
        "index": str(row.index),
        "updated_at": str(row.updated_at),
        "client_id": row.client_id or "",
        "comment": row.comment or "",
        "requested_partitions": row.requested_partitions,
        "reason": row.reason or "",
        "message": row.message or "",
        "counts": {name: str(getattr(counts, name)) for name in counts.__struct_fields__},
    }
    return with_numbers(
        fields,
        row,
        *("received_at", "planning_at", "analysis_completed_at", "executing_at", "ended_at"),
        *("task_count", "partition_count"),
    )


def job_run_fields(row: JobRunRow) -> Fields:
    """Return the `JobRun` of a row."""
    fields: Fields = {
        "job_run_id": row.job_run_id,
        "state": row.state,
        "index": str(row.index),
        "updated_at": str(row.updated_at),
        "build_request_id": row.build_id or "",
        "task_id": row.task_id or "",
        "job_label": row.job_label or "",
        "attempt": str(row.attempt),
        "inputs": row.inputs,
        "outputs": row.outputs,
        "worker": row.worker or "",
        "reason": row.reason or "",
        "available_from_build": row.available_from_build or "",
        "message": row.message or "",
    }
    return with_numbers(fields, row, "heartbeat_at", "started_at", "ended_at", "exit_code")


def task_fields(row: TaskRow) -> Fields:
    """Return the `Task` of a row."""
    return {
        "build_request_id": row.build_id,
        "task_id": row.task_id,
        "state": row.state,
        "index": str(row.index),
        "updated_at": str(row.updated_at),
        "job_label": row.job_label or "",
        "inputs": row.inputs,
        "outputs": row.outputs,
        "runs": row.runs,
        "run_count": str(row.run_count),
    }
