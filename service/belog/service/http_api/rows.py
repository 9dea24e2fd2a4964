"""Rows of the tables as messages of the API. Pure."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from belog.processors.rows import PartitionRow
from belog.schemas.events import Manifest

__all__ = ["STATUS_NAMES", "manifest_fields", "partition_fields", "status_name"]

Fields = dict[str, Any]

STATUS_NAMES: Final[Mapping[str, str]] = {
    name: name.upper()
    for name in (
        *("requested", "scheduled", "building", "available"),
        *("failed", "stale", "delegated", "removed"),
    )
}
"""Names of `PartitionStatus`, by state."""


def status_name(state: str) -> str:
    """Return the name of a partition's state in `PartitionStatus`."""
    return STATUS_NAMES.get(state, "UNKNOWN")


def partition_fields(row: PartitionRow) -> Fields:
    """Return the `Partition` of a row."""
    attempt, data = row.attempt, row.available
    fields: Fields = {
        "partition_ref": row.ref,
        "status": status_name(row.state),
        "index": str(row.index),
        "updated_at": str(row.updated_at),
        "job_graph_run_id": "" if attempt is None else attempt.build_id,
        "job_run_id": "" if attempt is None else attempt.job_run_id or "",
        "requesting_clients": () if attempt is None else attempt.requesting_clients,
        "available_from_run": "" if data is None else data.build_id or "",
        "reason": _reason(row),
    }
    if data is not None:
        fields["available_index"] = str(data.index)
        if data.manifest is not None and (manifest := manifest_fields(data.manifest)) is not None:
            fields["manifest"] = manifest
    return fields


def _reason(row: PartitionRow) -> str:
    if row.state == "failed" and row.attempt is not None:
        return row.attempt.failure_reason or ""
    if row.state in {"stale", "removed"} and row.available is not None:
        return row.available.reason or ""
    return ""


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
    for name in ("start_time", "end_time", "size_bytes", "row_count"):
        if (number := getattr(given, name)) is not None:
            fields[name] = str(number)
    for name in ("task_id", "uri", "content_digest"):
        if (text := getattr(given, name)) is not None:
            fields[name] = text
    return fields
