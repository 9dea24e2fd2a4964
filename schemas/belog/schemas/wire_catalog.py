"""Partition events as the catalog's flat `PartitionEvent`, both ways. Pure."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, cast
from uuid import UUID

import msgspec

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import Corrupt, InvalidEvent
from belog.schemas.events import Manifest, new_event
from belog.schemas.filters import NO_TERMS, Terms
from belog.schemas.lifecycle import LIFECYCLE_1
from belog.schemas.payload import JsonValue, decode_payload
from belog.v1 import catalog_pb2 as pb

__all__ = [
    "event_from_partition_event",
    "manifest_to_wire",
    "partition_event",
    "status_of_state",
]

_STATUS: Final[Mapping[str, pb.PartitionStatus]] = MappingProxyType(
    {
        "requested": pb.REQUESTED,
        "scheduled": pb.SCHEDULED,
        "building": pb.BUILDING,
        "available": pb.AVAILABLE,
        "failed": pb.FAILED,
        "stale": pb.STALE,
        "delegated": pb.DELEGATED,
        "removed": pb.REMOVED,
    }
)
_TARGETS: Final[Mapping[str, str | None]] = {
    row.event_type: row.target for row in LIFECYCLE_1.machines["partition"]
}
_NAMES: Final[Mapping[int, str]] = {number: state for state, number in _STATUS.items()}


def status_of_state(state: str) -> pb.PartitionStatus:
    """Return the status of a partition's state; `UNKNOWN` for never seen."""
    return _STATUS.get(state, pb.UNKNOWN)


def partition_event(
    stored: StoredEvent,
    *,
    log_id: UUID,
    storage_backend: str,
    state: str | None = None,
    terms: Terms = NO_TERMS,
    downstream_deps: Iterable[str] = (),
) -> pb.PartitionEvent:
    """Return the catalog's view of a partition's event.

    Args:
        stored: The event; of `subject_kind` "partition".
        log_id: The log that holds it.
        storage_backend: The kind of that log.
        state: The partition's state after it, where the caller knows; without it the status of an
            event that leaves the state as it was is `UNKNOWN`.
        terms: What the event concerns, where the caller knows: names the job.
        downstream_deps: Partitions made from this one, where the caller knows.

    Raises:
        InvalidEvent: The event is not a partition's.
    """
    event = stored.event
    if event.subject_kind != "partition":
        msg = f"{event.event_type} is not an event of a partition"
        raise InvalidEvent(msg, index=stored.index, subject=event.subject)
    try:
        body = decode_payload(event.payload)
    except Corrupt:
        body = {}  # of an unknown type
    after = _TARGETS.get(event.event_type) if state is None else state
    manifest = body.get("manifest")
    metadata = {"index": str(stored.index), "log_id": str(log_id)}
    if target := _text(body, "delegated_to_log"):
        metadata["delegated_to_log"] = target
    message = pb.PartitionEvent(
        partition_event_id=str(UUID(bytes=event.event_id)),
        timestamp=stored.created_at,
        partition_ref=event.subject_id,
        status=status_of_state(after or ""),
        job_graph_run_id=_text(body, "build_request_id"),
        job_run_id=_text(body, "job_run_id"),
        producing_job=_text(body, "job_label") or next(iter(terms.job_labels), ""),
        requesting_clients=_texts(body, "requesting_clients"),
        delegated_to_run_id=_text(body, "delegated_to_build"),
        upstream_deps=_texts(body, "upstream_deps"),
        downstream_deps=downstream_deps,
        failure_reason=_text(body, "reason") if after == "failed" else "",
        storage_backend=storage_backend,
        storage_metadata=metadata,
    )
    if isinstance(manifest, dict) and (typed := _typed(manifest)) is not None:
        message.manifest.CopyFrom(manifest_to_wire(typed))
    return message


def manifest_to_wire(manifest: Manifest) -> pb.PartitionManifest:
    """Return the message of a manifest."""
    return pb.PartitionManifest(**msgspec.to_builtins(manifest))


def event_from_partition_event(
    message: pb.PartitionEvent, *, actor: str, event_id: bytes, occurred_at: int
) -> Event:
    """Return the event that appending a flat partition event means.

    `AVAILABLE` with a `job_graph_run_id` is the end of that build's attempt, without one an
    observation of a partition made elsewhere.

    Args:
        message: What to append; `storage_metadata["delegated_to_log"]` names the other log of a
            `DELEGATED` one.
        actor: Who the client is.
        event_id: Taken where the message has none.
        occurred_at: Taken where the message has no timestamp.

    Raises:
        InvalidEvent: The status is `UNKNOWN`, or a field that the event needs is missing.
        LimitExceeded: A field is larger than its bound.
    """
    state = _NAMES.get(message.status)
    if state is None:
        msg = "the status UNKNOWN cannot be appended"
        raise InvalidEvent(msg, hint="known: " + ", ".join(s.upper() for s in _STATUS))
    name = "observed" if state == "available" and not message.job_graph_run_id else state
    return new_event(
        f"v1.partition.{name}",
        message.partition_ref,
        {k: v for k, v in _fields(message, name).items() if v},
        event_id=_given_id(message.partition_event_id, event_id),
        actor=actor,
        occurred_at=message.timestamp or occurred_at,
    )


def _fields(message: pb.PartitionEvent, name: str) -> dict[str, JsonValue]:
    build: dict[str, JsonValue] = {"build_request_id": message.job_graph_run_id}
    run: dict[str, JsonValue] = {**build, "job_run_id": message.job_run_id}
    upstream: JsonValue = list(message.upstream_deps)
    manifest = cast("JsonValue", _manifest_body(message))
    match name:
        case "requested":
            return {**build, "requesting_clients": list(message.requesting_clients)}
        case "scheduled":
            return {**run, "job_label": message.producing_job, "upstream_deps": upstream}
        case "building":
            return run
        case "available":
            return {**run, "manifest": manifest}
        case "delegated":
            return {
                **build,
                "delegated_to_log": message.storage_metadata.get("delegated_to_log", ""),
                "delegated_to_build": message.delegated_to_run_id,
            }
        case "failed":
            return {**run, "reason": message.failure_reason}
        case "observed":
            return {"manifest": manifest, "upstream_deps": upstream}
        case _:
            return {"reason": message.failure_reason}


def _manifest_body(message: pb.PartitionEvent) -> dict[str, Any] | None:
    if not message.HasField("manifest"):
        return None
    given = message.manifest
    body: dict[str, Any] = {
        "outputs": list(given.outputs),
        "metadata": dict(given.metadata),
        "inputs": [
            {"ref": i.ref, **({"index": i.index} if i.HasField("index") else {})}
            for i in given.inputs
        ],
    }
    for field in msgspec.structs.fields(Manifest):
        if field.name not in body and given.HasField(field.name):
            body[field.name] = getattr(given, field.name)
    return body


def _typed(manifest: dict[str, JsonValue]) -> Manifest | None:
    try:
        return msgspec.convert(manifest, Manifest)
    except msgspec.ValidationError:
        return None  # written by newer or by other software; the event's payload has it all


def _given_id(text: str, otherwise: bytes) -> bytes:
    if not text:
        return otherwise
    try:
        return UUID(text).bytes
    except ValueError as error:
        msg = f"partition_event_id is not a UUID: {text!r:.80}"
        raise InvalidEvent(msg) from error


def _text(body: Mapping[str, JsonValue], name: str) -> str:
    value = body.get(name)
    return value if isinstance(value, str) else ""


def _texts(body: Mapping[str, JsonValue], name: str) -> list[str]:
    value = body.get(name)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
