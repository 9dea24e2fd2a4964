"""The typed events of lifecycle version 1, and the one door through which events are made.

`new_event` takes a typed payload, or a type's name with a plain map, checks everything that can be
checked without a log, and returns the envelope. What a payload may not hold is refused here, before
anything is written; what is read from a log is never refused for its payload, so that older
software keeps newer fields.
"""

import re
from collections.abc import Mapping
from typing import Final, cast
from uuid import UUID

import msgspec

from belog.schemas.checks import check_id, check_int, check_subject_id, check_value, uuid_bytes
from belog.schemas.envelope import Event, encode_event
from belog.schemas.errors import InvalidEvent, LimitExceeded
from belog.schemas.lifecycle import KINDS, SubjectKind, kind_of_type
from belog.schemas.limits import ACTOR_BYTES_MAX, EVENT_BYTES_MAX, EVENT_TYPE_BYTES_MAX
from belog.schemas.payload import JsonValue, digest, encode_known_payload
from belog.schemas.typed_payloads import (
    PAYLOADS,
    BuildAnalysisCompleted,
    BuildCancelled,
    BuildCompleted,
    BuildExecuting,
    BuildFailed,
    BuildPlanning,
    BuildReceived,
    JobCancelled,
    JobCompleted,
    JobFailed,
    JobRunning,
    JobScheduled,
    JobSkipped,
    LifecycleAdopted,
    LogCreated,
    Manifest,
    ManifestInput,
    PartitionAvailable,
    PartitionBuilding,
    PartitionDelegated,
    PartitionFailed,
    PartitionJoined,
    PartitionObserved,
    PartitionRemoved,
    PartitionRequested,
    PartitionScheduled,
    PartitionStale,
    Payload,
    SnapshotTaken,
    Vacuumed,
)

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
    "event_of_payload",
    "new_event",
]

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
    return event_of_payload(
        event_type,
        subject_id,
        data,
        event_id,
        actor,
        occurred_at=occurred_at,
        subject_kind=subject_kind,
        caused_by=caused_by,
        expected=expected,
    )


def event_of_payload(
    event_type: str,
    subject_id: str,
    data: bytes,
    event_id: bytes | UUID,
    actor: str,
    *,
    occurred_at: int,
    subject_kind: str | None,
    caused_by: bytes | UUID | None,
    expected: int | None,
) -> Event:
    """Make an event as `new_event` does, of a type and a payload that were checked.

    Args:
        event_type: A known one, or of the form of one.
        subject_id: See `new_event`, as the others.
        data: Canonical CBOR of a payload that the type can have.
        event_id: UUID.
        actor: Who writes.
        occurred_at: Microseconds since the epoch, UTC.
        subject_kind: Needed only where the type's name does not tell it.
        caused_by: Id of the event that led to this one.
        expected: Index of the subject's last accepted event, -1 for none.

    Raises:
        InvalidEvent: Another field is off.
        LimitExceeded: A field or the whole is larger than its bound.
    """
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


def _kind(event_type: str, given: str | None) -> SubjectKind:
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
        return msgspec.convert(body if type(body) is dict else dict(body), cls)
    except msgspec.ValidationError as error:
        msg = f"payload of {cls.event_type}: {error}"
        raise InvalidEvent(msg) from error


def _checked_body(cls: type[Payload], body: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    plain = _builtins(_typed(cls, body))
    for name, value in plain.items():
        check_value(name, value)
    return plain
