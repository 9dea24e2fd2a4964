"""Events, filters and pages as Protobuf messages, and as JSON by the proto3 mapping. Pure.

The messages are those of `belog/v1/*.proto`. An event keeps its payload byte for byte in `payload`;
`body` beside it is for people and for programs without CBOR, and is not exact: a double holds 53
bits of an integer. What comes from a boundary is checked here as `new_event` checks it.
"""

import base64
import math
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import Struct

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import Corrupt, InvalidEvent, InvalidFilter, InvalidInput
from belog.schemas.events import PAYLOADS, event_of_payload, new_event
from belog.schemas.filters import EventFilter
from belog.schemas.lifecycle import SubjectKind
from belog.schemas.payload import (
    JsonValue,
    canonical_payload,
    decode_payload,
    digest,
    encode_payload,
)
from belog.schemas.payload_forms import PayloadForms
from belog.v1 import events_pb2 as pb

__all__ = [
    "DOUBLE_INTEGER_MAX",
    "EventFields",
    "event_from_fields",
    "event_from_wire",
    "event_to_wire",
    "filter_from_wire",
    "filter_to_wire",
    "json_to_message",
    "meant",
    "message_from_bytes",
    "message_to_json",
    "page_from_wire",
    "page_to_wire",
    "shown",
    "stored_from_wire",
    "stored_to_wire",
    "uuid_from_text",
]

DOUBLE_INTEGER_MAX: Final = 2**53
"""Largest integer up to which a double holds every one."""

UUID_DIGITS: Final = 32
UUID_BYTES: Final = 16
"""Of a UUID."""

M = TypeVar("M", bound=Message)

# --- events


class EventFields(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """What a `BuildEvent` to append says; None where it says nothing."""

    event_type: str | None = None
    subject_id: str | None = None
    event_id: str | None = None
    occurred_at: str | int | None = None
    body: dict[str, Any] | None = None
    """As parsed JSON; counts where `payload` is empty."""
    subject_kind: str | None = None
    actor: str | None = None
    payload: bytes | None = None
    payload_digest: bytes | None = None
    caused_by: str | None = None
    expected: str | int | None = None
    index: str | int | None = None
    created_at: str | int | None = None


def stored_to_wire(stored: StoredEvent, *, with_body: bool = True) -> pb.BuildEvent:
    """Return the message of an event that is in a log.

    Args:
        stored: The event.
        with_body: Whether `body` is filled where the payload can be read; costs more than the
            rest.
    """
    message = event_to_wire(stored.event, with_body=with_body)
    message.index = stored.index
    message.created_at = stored.created_at
    return message


def event_to_wire(event: Event, *, with_body: bool = False) -> pb.BuildEvent:
    """Return the message of an event that is not in a log yet, to append it elsewhere."""
    message = pb.BuildEvent(
        event_id=str(UUID(bytes=event.event_id)),
        event_type=event.event_type,
        subject_kind=event.subject_kind,
        subject_id=event.subject_id,
        actor=event.actor,
        occurred_at=event.occurred_at,
        payload=event.payload,
        payload_digest=event.payload_digest,
    )
    if event.caused_by is not None:
        message.caused_by = str(UUID(bytes=event.caused_by))
    if event.expected is not None:
        message.expected = event.expected
    if with_body:
        try:
            body = decode_payload(event.payload)
        except Corrupt:
            return message  # of an unknown type: the bytes say all there is to say
        # Said to be there also where it is empty, so that it can be read without asking.
        message.body.SetInParent()
        message.body.update(shown(body))
    return message


def stored_from_wire(message: pb.BuildEvent) -> StoredEvent:
    """Return the event of a log's answer, byte for byte what the log holds.

    Raises:
        InvalidEvent: No index or ingest time, an id that is no UUID, or a payload that is not
            what its digest says.
    """
    if not message.HasField("index") or not message.HasField("created_at"):
        msg = "an event of a log has an index and a created_at"
        raise InvalidEvent(msg)
    if digest(message.payload) != message.payload_digest:
        msg = "payload_digest is not that of the payload"
        raise InvalidEvent(msg, index=message.index)
    event = Event(
        uuid_from_text("event_id", message.event_id),
        message.event_type,
        cast("SubjectKind", message.subject_kind),
        message.subject_id,
        message.actor,
        message.occurred_at,
        message.payload,
        message.payload_digest,
        uuid_from_text("caused_by", message.caused_by) if message.HasField("caused_by") else None,
        message.expected if message.HasField("expected") else None,
    )
    return StoredEvent(message.index, message.created_at, event)


def event_from_wire(
    message: pb.BuildEvent, *, actor: str | None = None, event_id: bytes | None = None
) -> Event:
    """Return the event that a client wants to append, checked as `new_event` does.

    Args:
        message: `payload` counts where it is not empty, `body` otherwise. `index` and `created_at`
            are the log's to give and are not looked at.
        actor: Who the client is; where given, a message that names another is refused.
        event_id: Taken where the message has none.

    Raises:
        InvalidEvent: A field that no event may have; a payload that is not canonical CBOR or not
            what its digest says; another actor.
        LimitExceeded: A field or the whole is larger than its bound.
    """
    if actor is not None and message.actor not in {"", actor}:
        msg = f"the event names {message.actor!r} as its actor, its writer is {actor!r}"
        raise InvalidEvent(msg, hint="leave actor empty")
    fields = EventFields(
        event_type=message.event_type,
        subject_id=message.subject_id,
        body=None if message.payload else _plain(message.body),
        subject_kind=message.subject_kind,
        payload=message.payload,
        payload_digest=message.payload_digest,
        caused_by=message.caused_by if message.HasField("caused_by") else None,
        expected=message.expected if message.HasField("expected") else None,
    )
    return event_from_fields(
        fields,
        event_id
        if event_id is not None and not message.event_id
        else uuid_from_text("event_id", message.event_id),
        message.actor if actor is None else actor,
        message.occurred_at,
    )


_FORMS: Final = PayloadForms(PAYLOADS)


def event_from_fields(fields: EventFields, event_id: bytes, actor: str, occurred_at: int) -> Event:
    """Return the event that the fields of a message make; see `event_from_wire`.

    Args:
        fields: `expected` is a number; those of the following arguments are not looked at. Its
            body is not to be changed afterwards.
        event_id: UUID, 16 bytes.
        actor: Who writes.
        occurred_at: Microseconds since the epoch, UTC.

    Raises:
        InvalidEvent: See `event_from_wire`.
        LimitExceeded: A field or the whole is larger than its bound.
    """
    event_type = fields.event_type or ""
    payload = fields.payload
    caused_by = fields.caused_by
    expected = fields.expected
    data: bytes | None
    if payload:
        data = payload if _FORMS.is_usual(event_type, payload) else None
    else:
        data = _FORMS.encoded(event_type, fields.body or {})
    if data is None or isinstance(expected, str):
        event = _unusual(fields, event_id=event_id, actor=actor, occurred_at=occurred_at)
    else:
        event = event_of_payload(
            event_type,
            fields.subject_id or "",
            data,
            event_id,
            actor,
            occurred_at=occurred_at,
            subject_kind=fields.subject_kind or None,
            caused_by=None if caused_by is None else uuid_from_text("caused_by", caused_by),
            expected=expected,
        )
    digest_given = fields.payload_digest
    if digest_given and digest_given != event.payload_digest:
        msg = "payload_digest is not that of the payload"
        raise InvalidEvent(msg)
    return event


def _unusual(fields: EventFields, *, event_id: bytes, actor: str, occurred_at: int) -> Event:
    """Make an event of whatever was given."""
    if fields.payload:
        # With its fields at their defaults written out or not: what was signed stays what it was.
        given = _canonical(fields.payload)
    else:
        given = {name: meant(value) for name, value in (fields.body or {}).items()}
    caused_by = fields.caused_by
    return new_event(
        fields.event_type or "",
        fields.subject_id or "",
        given,
        event_id=event_id,
        actor=actor,
        occurred_at=occurred_at,
        subject_kind=cast("SubjectKind | None", fields.subject_kind or None),
        caused_by=None if caused_by is None else uuid_from_text("caused_by", caused_by),
        expected=cast("int | None", fields.expected),
        encoded=fields.payload or None,
    )


def _canonical(payload: bytes) -> dict[str, JsonValue]:
    """Return the map of a payload that a client encoded; raises `InvalidEvent`."""
    plain = canonical_payload(payload)
    if plain is not None:
        return plain
    try:
        given = decode_payload(payload)
    except Corrupt as error:
        raise InvalidEvent(error.message) from error
    if encode_payload(given) != payload:
        msg = "payload is not canonical CBOR"
        raise InvalidEvent(msg, hint="encode it by RFC 8949, section 4.2.1, or send body")
    return given


def _plain(struct: Struct) -> dict[str, Any]:
    try:
        return json_format.MessageToDict(struct)
    except (json_format.Error, ValueError, RecursionError) as error:
        msg = f"body cannot be read: {error}"
        raise InvalidEvent(msg) from error


def uuid_from_text(name: str, text: str) -> bytes:
    """Return the 16 bytes of a UUID in its text form, or in one of those that `UUID` reads.

    Raises:
        InvalidEvent: It is none; `name` is the field's.
    """
    digits = text.replace("-", "")
    if len(digits) == UUID_DIGITS:
        try:
            data = bytes.fromhex(digits)
        except ValueError:
            pass  # which the library says
        else:
            # Fewer where there is white space, which is passed over.
            if len(data) == UUID_BYTES:
                return data
    try:
        return UUID(text).bytes
    except ValueError as error:
        msg = f"{name} is not a UUID: {text!r:.80}"
        raise InvalidEvent(msg) from error


def shown(value: JsonValue) -> Any:  # noqa: ANN401 - what Struct takes
    """Return a value of a payload as `google.protobuf.Struct` can hold it, and JSON show it."""
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and not -DOUBLE_INTEGER_MAX <= value <= DOUBLE_INTEGER_MAX:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        # The words of the proto3 mapping for fields of type double.
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def meant(value: object) -> JsonValue:
    """Return a value of a `Struct` as a payload holds it: whole numbers as integers.

    Raises:
        InvalidEvent: An integer beyond `DOUBLE_INTEGER_MAX`, which others would read as another.
    """
    if isinstance(value, dict):
        return {key: meant(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [meant(item) for item in cast("list[object]", value)]
    if type(value) is int and abs(value) > DOUBLE_INTEGER_MAX:
        msg = f"body has an integer beyond 2^53, which JSON does not keep exactly: {value!r:.30}"
        raise InvalidEvent(msg, hint="send payload as CBOR, or the number as text")
    if isinstance(value, float) and value.is_integer() and abs(value) <= DOUBLE_INTEGER_MAX:
        return int(value)
    return cast("JsonValue", value)


# --- filters and pages

_FILTER_LISTS: Final = (
    "partition_refs",
    "partition_patterns",
    "job_labels",
    "job_run_ids",
    "build_request_ids",
    "task_ids",
    "event_types",
    "subject_kinds",
    "actors",
)
_BYTES_FIELDS: Final = frozenset({"payload", "payload_digest", "payloadDigest"})
_FILTER_TIMES: Final = ("created_from", "created_to", "occurred_from", "occurred_to")


def filter_to_wire(wanted: EventFilter) -> pb.EventFilter:
    """Return the message of a filter."""
    return pb.EventFilter(**msgspec.to_builtins(wanted))


def filter_from_wire(message: pb.EventFilter) -> EventFilter:
    """Return the filter of a message; `Matcher` checks whether it can be evaluated."""
    fields: dict[str, Any] = {name: tuple(getattr(message, name)) for name in _FILTER_LISTS}
    for name in _FILTER_TIMES:
        if message.HasField(name):
            fields[name] = getattr(message, name)
    return EventFilter(**fields)


def page_to_wire(
    events: tuple[StoredEvent, ...], next_idx: int, *, has_more: bool, with_body: bool = True
) -> pb.EventPage:
    """Return the message of a page.

    Args:
        events: In index order.
        next_idx: What to pass as `since_idx` for what follows.
        has_more: Whether there is more already.
        with_body: See `stored_to_wire`.
    """
    messages = [stored_to_wire(stored, with_body=with_body) for stored in events]
    return pb.EventPage(events=messages, next_idx=next_idx, has_more=has_more)


def page_from_wire(message: pb.EventPage) -> tuple[tuple[StoredEvent, ...], int, bool]:
    """Return the events, `next_idx` and `has_more` of a page.

    Raises:
        InvalidEvent: See `stored_from_wire`.
    """
    events = tuple(stored_from_wire(event) for event in message.events)
    return events, message.next_idx, message.has_more


# --- bytes and JSON


def message_to_json(message: Message) -> dict[str, Any]:
    """Return a message by the proto3 JSON mapping, with the field names of the .proto file.

    64-bit integers are strings of digits, bytes are base64, absent fields and those at their
    default are left out.
    """
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def json_to_message(plain: Mapping[str, Any], kind: type[M]) -> M:
    """Return the message that parsed JSON holds; field names as written or in lowerCamelCase.

    Raises:
        InvalidInput: An unknown field, or a value of another type than the field's; `InvalidEvent`
            and `InvalidFilter` where an event or a filter was meant.
    """
    try:
        _check_base64(plain)
        return json_format.ParseDict(dict(plain), kind())
    except _UNREADABLE as error:
        raise _refusal(kind)(f"{kind.__name__}: {_said(error)}") from error


_NO_FIELD: Final = re.compile(
    r'Message type "[\w.]*?(\w+)" has no field named "(.*)" at .*\n.*: "\[(.*)\]"', re.DOTALL
)


def _said(error: Exception) -> str:
    """Return an error's text, with the names of fields as they are written in the .proto file."""
    found = _NO_FIELD.search(str(error))
    if found is None:
        return str(error)
    message, name, fields = found.groups()
    known = re.sub(r"[A-Z]", lambda upper: f"_{upper[0].lower()}", fields.replace("'", ""))
    return f"{message} has no field {name!r:.80}; it has {known}"


_UNREADABLE: Final = (
    json_format.Error,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)
"""What the library raises for JSON that is not of the message's form."""

_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")


def _check_base64(plain: object) -> None:
    """Refuse bytes that the library would read by passing over what is no base64."""
    if isinstance(plain, list):
        for item in cast("list[object]", plain):
            _check_base64(item)
    elif isinstance(plain, Mapping):
        for name, value in cast("Mapping[str, object]", plain).items():
            if name in _BYTES_FIELDS and isinstance(value, str) and not _BASE64.fullmatch(value):
                msg = f"{name} is not base64"
                raise ValueError(msg)
            if name != "body":
                _check_base64(value)


def message_from_bytes(data: bytes, kind: type[M]) -> M:
    """Return the message that Protobuf bytes hold.

    Raises:
        InvalidInput: The bytes hold none; its subclasses as in `json_to_message`.
    """
    message = kind()
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise _refusal(kind)(f"{kind.__name__}: {error}") from error
    return message


def _refusal(kind: type[Message]) -> type[InvalidInput]:
    if kind is pb.BuildEvent:
        return InvalidEvent
    return InvalidFilter if kind is pb.EventFilter else InvalidInput
