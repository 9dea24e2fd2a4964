"""Rows of the tables as messages of the API, as plain values for JSON. Pure.

Each function returns what `google.protobuf.json_format` makes of the message that its docstring
names, with fields at their default written out; a test compares them.
"""

from collections.abc import Callable, Mapping

import msgspec

from belog.processors.rows import BuildRow, JobRunRow, PartitionRow, R, TaskRow
from belog.service.wire_rows import Fields, partition_values

__all__ = [
    "Fields",
    "build_fields",
    "count_fields",
    "job_run_fields",
    "partition_fields",
    "task_fields",
    "viewed",
]


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
    fields = partition_values(row)
    if "manifest" in fields:
        manifest = _as_json(fields["manifest"])
        manifest["inputs"] = [_as_json(given) for given in manifest["inputs"]]
        fields["manifest"] = manifest
    return _as_json(fields)


def _as_json(fields: Fields) -> Fields:
    """Return fields with 64-bit integers as text."""
    return {name: str(value) if type(value) is int else value for name, value in fields.items()}


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
