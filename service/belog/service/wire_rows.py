"""Partitions' rows as the fields of their message, for both boundaries. Pure.

gRPC makes the message of them, HTTP its JSON: so both say the same of a row.
"""

from typing import Any, Final

import msgspec

from belog.processors.rows import Attempt, Availability, PartitionRow
from belog.schemas.events import Manifest

__all__ = ["Fields", "manifest_values", "partition_values", "status_name"]

Fields = dict[str, Any]
"""By the names of the .proto file. Fields with presence that are absent are left out."""

_STATUS_NAMES: Final = frozenset(
    {
        *("requested", "scheduled", "building", "available"),
        *("failed", "stale", "delegated", "removed"),
    }
)
_IN_ATTEMPT: Final = frozenset({"requested", "scheduled", "building", "delegated", "failed"})
"""States that the last attempt has led to."""
_GONE: Final = frozenset({"stale", "removed"})
_MANIFEST: Final = msgspec.json.Decoder(Manifest)


def status_name(state: str) -> str:
    """Return the name of a partition's state in `PartitionStatus`."""
    return state.upper() if state in _STATUS_NAMES else "UNKNOWN"


def partition_values(row: PartitionRow) -> Fields:
    """Return the fields of a row's `Partition`."""
    fields: Fields = {
        "partition_ref": row.ref,
        "status": status_name(row.state),
        "index": row.index,
        "updated_at": row.updated_at,
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
    if row.available is not None:
        _add_data(fields, row.available, row.state)
    if row.attempt is not None:
        _add_attempt(fields, row.attempt, row.state)
    return fields


def _add_data(fields: Fields, data: Availability, state: str) -> None:
    fields["available_index"] = data.index
    fields["available_at"] = data.at
    fields["available_from_run"] = data.build_id or ""
    fields["job_label"] = data.job_label or ""
    fields["upstream_deps"] = data.upstream_deps
    if state in _GONE:
        fields["reason"] = data.reason or ""
        fields["cause_partition"] = data.cause_partition or ""
    if (manifest := manifest_values(data.manifest)) is not None:
        fields["manifest"] = manifest


def _add_attempt(fields: Fields, attempt: Attempt, state: str) -> None:
    fields["job_graph_run_id"] = attempt.build_id
    fields["job_run_id"] = attempt.job_run_id or ""
    fields["requesting_clients"] = attempt.requesting_clients
    fields["requested_at"] = attempt.requested_at
    fields["joined_runs"] = attempt.joined_builds
    fields["delegated_to_log"] = attempt.delegated_to_log or ""
    fields["delegated_to_run_id"] = attempt.delegated_to_build or ""
    if state in _IN_ATTEMPT:
        fields["job_label"] = attempt.job_label or fields["job_label"]
        fields["upstream_deps"] = attempt.upstream_deps or fields["upstream_deps"]
    if state == "failed":
        fields["reason"] = attempt.failure_reason or ""


def manifest_values(text: str | None) -> Fields | None:
    """Return the fields of a manifest's `PartitionManifest`.

    Args:
        text: JSON, as rows and answers hold it; None for no manifest.

    Returns:
        None where there is none, or one of newer or other software that is not of the form; its
        event has it all.
    """
    if text is None:
        return None
    try:
        manifest = _MANIFEST.decode(text)
    except msgspec.MsgspecError:
        return None
    return {"outputs": [], "inputs": [], "metadata": {}, **msgspec.to_builtins(manifest)}
