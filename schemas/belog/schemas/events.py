"""The typed events of lifecycle version 1, and the one door through which events are made.

Each class below is the payload of one event type. `new_event` takes one of them, or a type's name
with a plain map, checks everything that can be checked without a log, and returns the envelope.
What a payload may not hold is refused here, before anything is written; what is read from a log is
never refused for its payload, so that older software keeps newer fields.
"""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, cast
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from belog.schemas.checks import check_id, check_int, check_subject_id, check_value, uuid_bytes
from belog.schemas.envelope import Event, encode_event
from belog.schemas.errors import InvalidEvent, LimitExceeded
from belog.schemas.lifecycle import KINDS, SubjectKind, kind_of_type
from belog.schemas.limits import ACTOR_BYTES_MAX, EVENT_BYTES_MAX, EVENT_TYPE_BYTES_MAX
from belog.schemas.payload import JsonValue, digest, encode_known_payload

__all__ = [
    "PAYLOADS",
    "BuildAnalysisCompleted",
    "BuildCancelled",
    "BuildCompleted",
    "BuildExecuting",
    "BuildFailed",
    "BuildPlanning",
    "BuildReceived",
    "JobCancelled",
    "JobCompleted",
    "JobFailed",
    "JobRunning",
    "JobScheduled",
    "JobSkipped",
    "LifecycleAdopted",
    "LogCreated",
    "Manifest",
    "ManifestInput",
    "PartitionAvailable",
    "PartitionBuilding",
    "PartitionDelegated",
    "PartitionFailed",
    "PartitionJoined",
    "PartitionObserved",
    "PartitionRemoved",
    "PartitionRequested",
    "PartitionScheduled",
    "PartitionStale",
    "Payload",
    "SnapshotTaken",
    "Vacuumed",
    "new_event",
]

Ref = Annotated[str, Meta(min_length=1, description="partition ref")]
BuildId = Annotated[str, Meta(min_length=1, description="build request id")]
JobRunId = Annotated[str, Meta(min_length=1, description="job run id")]
Count = Annotated[int, Meta(ge=0)]
Micros = Annotated[int, Meta(description="microseconds since the epoch, UTC")]


class Payload(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What every payload may carry. A field at its default is not written."""

    event_type: ClassVar[str] = ""

    message: str | None = None
    """Text for people."""


class ManifestInput(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A partition that was read, and the index of the log at which it was."""

    ref: Ref
    index: int | None = None


class Manifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What was made, from what, when and where."""

    outputs: list[Ref] = []
    inputs: list[ManifestInput] = []
    start_time: Micros | None = None
    end_time: Micros | None = None
    task_id: str | None = None
    uri: str | None = None
    size_bytes: Count | None = None
    row_count: Count | None = None
    content_digest: str | None = None
    metadata: dict[str, str] = {}


class BuildReceived(Payload, frozen=True, kw_only=True):
    """A build request arrived."""

    event_type = "v1.build.received"
    requested_partitions: list[Ref] = []
    client_id: str | None = None
    comment: str | None = None


class BuildPlanning(Payload, frozen=True, kw_only=True):
    """The graph works out what to run."""

    event_type = "v1.build.planning"


class BuildAnalysisCompleted(Payload, frozen=True, kw_only=True):
    """The plan stands."""

    event_type = "v1.build.analysis_completed"
    task_count: Count | None = None
    partition_count: Count | None = None


class BuildExecuting(Payload, frozen=True, kw_only=True):
    """The first job was started."""

    event_type = "v1.build.executing"


class BuildCompleted(Payload, frozen=True, kw_only=True):
    """All requested partitions are there."""

    event_type = "v1.build.completed"


class BuildFailed(Payload, frozen=True, kw_only=True):
    """The build ended without all it was asked for."""

    event_type = "v1.build.failed"
    reason: str | None = None


class BuildCancelled(Payload, frozen=True, kw_only=True):
    """The build was called off."""

    event_type = "v1.build.cancelled"
    reason: str | None = None


class JobScheduled(Payload, frozen=True, kw_only=True):
    """A job run is to be started; a retry of a task is a run of its own."""

    event_type = "v1.job.scheduled"
    build_request_id: BuildId
    task_id: str | None = None
    job_label: str | None = None
    outputs: list[Ref] = []
    inputs: list[Ref] = []
    attempt: Annotated[int, Meta(ge=1)] = 1


class JobSkipped(Payload, frozen=True, kw_only=True):
    """The run was not needed: an earlier build already made its outputs."""

    event_type = "v1.job.skipped"
    build_request_id: BuildId
    task_id: str | None = None
    job_label: str | None = None
    outputs: list[Ref] = []
    inputs: list[Ref] = []
    attempt: Annotated[int, Meta(ge=1)] = 1
    reason: str | None = None
    available_from_build: BuildId | None = None


class JobRunning(Payload, frozen=True, kw_only=True):
    """The run started; each further one is a heartbeat."""

    event_type = "v1.job.running"
    worker: str | None = None


class JobCompleted(Payload, frozen=True, kw_only=True):
    """The run ended well."""

    event_type = "v1.job.completed"


class JobFailed(Payload, frozen=True, kw_only=True):
    """The run ended badly."""

    event_type = "v1.job.failed"
    reason: str | None = None
    exit_code: int | None = None


class JobCancelled(Payload, frozen=True, kw_only=True):
    """The run was called off."""

    event_type = "v1.job.cancelled"
    reason: str | None = None


class PartitionRequested(Payload, frozen=True, kw_only=True):
    """A build starts an attempt at a partition and owns it; or gives a step of it back."""

    event_type = "v1.partition.requested"
    build_request_id: BuildId
    requesting_clients: list[str] = []


class PartitionJoined(Payload, frozen=True, kw_only=True):
    """Another build waits for the attempt under way."""

    event_type = "v1.partition.joined"
    build_request_id: BuildId
    requesting_clients: list[str] = []


class PartitionScheduled(Payload, frozen=True, kw_only=True):
    """A job run was chosen that will make the partition."""

    event_type = "v1.partition.scheduled"
    build_request_id: BuildId
    job_run_id: JobRunId | None = None
    task_id: str | None = None
    job_label: str | None = None
    upstream_deps: list[Ref] = []


class PartitionBuilding(Payload, frozen=True, kw_only=True):
    """The job run writes the partition."""

    event_type = "v1.partition.building"
    build_request_id: BuildId
    job_run_id: JobRunId | None = None


class PartitionAvailable(Payload, frozen=True, kw_only=True):
    """The partition can be read."""

    event_type = "v1.partition.available"
    build_request_id: BuildId
    job_run_id: JobRunId | None = None
    manifest: Manifest | None = None


class PartitionDelegated(Payload, frozen=True, kw_only=True):
    """Another instance makes it."""

    event_type = "v1.partition.delegated"
    build_request_id: BuildId
    delegated_to_log: str
    delegated_to_build: BuildId | None = None


class PartitionFailed(Payload, frozen=True, kw_only=True):
    """The attempt ended badly."""

    event_type = "v1.partition.failed"
    build_request_id: BuildId
    job_run_id: JobRunId | None = None
    reason: str | None = None


class PartitionStale(Payload, frozen=True, kw_only=True):
    """What is there is older than what it was made from."""

    event_type = "v1.partition.stale"
    reason: str | None = None
    cause_partition: Ref | None = None


class PartitionRemoved(Payload, frozen=True, kw_only=True):
    """The data is gone."""

    event_type = "v1.partition.removed"
    reason: str | None = None


class PartitionObserved(Payload, frozen=True, kw_only=True):
    """A partition made outside any graph here was found."""

    event_type = "v1.partition.observed"
    manifest: Manifest | None = None
    source: str | None = None
    upstream_deps: list[Ref] = []


class LogCreated(Payload, frozen=True, kw_only=True):
    """Record 0 of every log."""

    event_type = "v1.system.log_created"
    log_id: str
    instance: str
    lifecycle_version: Annotated[int, Meta(ge=1)]


class LifecycleAdopted(Payload, frozen=True, kw_only=True):
    """From the next index on another lifecycle governs."""

    event_type = "v1.system.lifecycle_adopted"
    lifecycle_version: Annotated[int, Meta(ge=1)]


class SnapshotTaken(Payload, frozen=True, kw_only=True):
    """A snapshot of everything below an index exists."""

    event_type = "v1.system.snapshot_taken"
    index: Count
    location: str
    content_digest: str | None = None


class Vacuumed(Payload, frozen=True, kw_only=True):
    """Superseded events below the horizon were removed."""

    event_type = "v1.system.vacuumed"
    horizon: Count
    removed_count: Count
    snapshot: str


PAYLOADS: Final[Mapping[str, type[Payload]]] = {
    cls.event_type: cls for cls in Payload.__subclasses__()
}
"""Payload class of every event type of lifecycle version 1."""

_KIND_OF_TYPE: Final[Mapping[str, SubjectKind]] = {
    name: kind for name in PAYLOADS if (kind := kind_of_type(name))
}
_TYPE: Final = re.compile(r"v[0-9]+(\.[a-z][a-z0-9_]*)+")


def new_event(
    payload: Payload | str,
    subject_id: str,
    body: Mapping[str, JsonValue] | None = None,
    *,
    event_id: bytes | UUID,
    actor: str,
    occurred_at: int,
    subject_kind: SubjectKind | None = None,
    caused_by: bytes | UUID | None = None,
    expected: int | None = None,
    encoded: bytes | None = None,
) -> Event:
    """Make an event.

    Args:
        payload: A typed payload, or the name of an event type.
        subject_id: Build request id, partition ref, job run id, or for `system` the log id.
        body: With a type's name: the payload as a map. Checked against the typed payload where the
            type is known, taken as it is otherwise.
        event_id: UUID; the same event keeps it over all retries.
        actor: Who writes.
        occurred_at: Microseconds since the epoch, UTC.
        subject_kind: Needed only where the type's name does not tell it.
        caused_by: Id of the event that led to this one.
        expected: Index of the subject's last accepted event, -1 for none, None to not compare.
        encoded: The canonical CBOR of `body`, where the caller has it and made sure of it.

    Raises:
        InvalidEvent: A field of the wrong type, an unknown payload field, an id with a control
            character.
        LimitExceeded: A field or the whole is larger than its bound.
    """
    if encoded is None:
        event_type, body = _type_and_body(payload, body)
        data = encode_known_payload(body)
    else:
        event_type, data = _checked_type(payload, body), encoded
    kind = _kind(event_type, subject_kind)
    check_subject_id(kind, subject_id)
    check_id("actor", actor, "ACTOR_BYTES_MAX", ACTOR_BYTES_MAX)
    check_int("occurred_at", occurred_at, -(2**63))
    if expected is not None:
        check_int("expected", expected, -1)
    event = Event(
        uuid_bytes("event_id", event_id),
        event_type,
        kind,
        subject_id,
        actor,
        occurred_at,
        data,
        digest(data),
        None if caused_by is None else uuid_bytes("caused_by", caused_by),
        expected,
    )
    if len(data) > EVENT_BYTES_MAX // 2 and (size := len(encode_event(event))) > EVENT_BYTES_MAX:
        raise LimitExceeded(
            "event", limit="EVENT_BYTES_MAX", limit_value=EVENT_BYTES_MAX, value=size
        )
    return event


def _type_and_body(
    payload: Payload | str, body: Mapping[str, JsonValue] | None
) -> tuple[str, Mapping[str, JsonValue]]:
    if isinstance(payload, Payload):
        if body is not None:
            msg = "a typed payload and a body were both given"
            raise InvalidEvent(msg)
        return payload.event_type, _checked_body(type(payload), _builtins(payload))
    _check_type(payload)
    plain = _map({} if body is None else body)
    cls = PAYLOADS.get(payload)
    return payload, plain if cls is None else _checked_body(cls, plain)


def _checked_type(payload: Payload | str, body: Mapping[str, JsonValue] | None) -> str:
    """Check a type and a body as they are."""
    if isinstance(payload, Payload) or body is None:
        msg = "what is encoded already is given by the name of its type, and with its body"
        raise InvalidEvent(msg)
    cls = PAYLOADS.get(payload)
    if cls is None:
        _check_type(payload)
    else:
        _typed(cls, body)
        for name, value in body.items():
            check_value(name, value)
    return payload


def _map(given: object) -> Mapping[str, JsonValue]:
    if not isinstance(given, Mapping):
        msg = f"the body is not a map but {type(given).__name__}"
        raise InvalidEvent(msg)
    return cast("Mapping[str, JsonValue]", given)


def _builtins(payload: Payload) -> dict[str, JsonValue]:
    try:
        return cast("dict[str, JsonValue]", msgspec.to_builtins(payload, builtin_types=(bytes,)))
    except (TypeError, ValueError, OverflowError) as error:
        msg = f"payload of {payload.event_type}: {error}"
        raise InvalidEvent(msg) from error


def _check_type(event_type: object) -> None:
    if not isinstance(event_type, str):
        msg = f"the event type is not text but {type(event_type).__name__}"
        raise InvalidEvent(msg)
    if event_type in PAYLOADS:
        return
    if len(event_type) > EVENT_TYPE_BYTES_MAX:
        raise LimitExceeded(
            "event type",
            limit="EVENT_TYPE_BYTES_MAX",
            limit_value=EVENT_TYPE_BYTES_MAX,
            value=len(event_type),
        )
    if not _TYPE.fullmatch(event_type):
        msg = f"event type {event_type!r} is not of the form v1.kind.name"
        raise InvalidEvent(msg)
    if event_type.split(".")[:2] in _KNOWN_PREFIXES:
        msg = f"event type {event_type!r} is not one of this version"
        raise InvalidEvent(msg, hint="known: " + ", ".join(sorted(PAYLOADS)))


_KNOWN_PREFIXES: Final = [["v1", kind] for kind in ("build", "job", "partition", "system")]


def _kind(event_type: str, given: SubjectKind | None) -> SubjectKind:
    known = _KIND_OF_TYPE.get(event_type)
    if known is not None and (given is None or given == known):
        return known
    named = kind_of_type(event_type)
    if given is not None and given not in KINDS:
        msg = f"subject_kind {given!r} is none of {', '.join(KINDS)}"
        raise InvalidEvent(msg)
    kind = given or named
    if kind is None:
        msg = f"event type {event_type!r} does not tell its subject_kind"
        raise InvalidEvent(msg, hint="give subject_kind")
    if named is not None and kind != named and event_type in PAYLOADS:
        msg = f"{event_type} is an event of {named}, not of {kind}"
        raise InvalidEvent(msg)
    return kind


def _typed(cls: type[Payload], body: Mapping[str, JsonValue]) -> Payload:
    try:
        return msgspec.convert(dict(body), cls)
    except msgspec.ValidationError as error:
        msg = f"payload of {cls.event_type}: {error}"
        raise InvalidEvent(msg) from error


def _checked_body(cls: type[Payload], body: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    plain = _builtins(_typed(cls, body))
    for name, value in plain.items():
        check_value(name, value)
    return plain
