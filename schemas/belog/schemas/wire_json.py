"""The hot messages as JSON, by the proto3 mapping, many times faster than the library. Pure.

What is written equals `google.protobuf.json_format` with the field names of the .proto file and
with every field that has no presence written out; what is read is read as it reads it. Property
tests hold both. Anything that is not of the usual form goes through the library, which knows what
to make of it and what to say.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, cast
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import BelogError, Conflict, Corrupt, InvalidEvent, InvalidInput
from belog.schemas.payload import decode_payload
from belog.schemas.wire import event_from_fields, event_from_wire, json_to_message, shown
from belog.v1 import event_log_pb2, events_pb2

__all__ = [
    "AppendBody",
    "append_body",
    "event_from_json",
    "event_to_json",
    "page_to_json",
    "parse_json",
    "problem_to_json",
    "receipt_to_json",
    "results_to_json",
    "to_json",
    "uuid_text",
]

INT64_DIGITS_MAX: Final = 18
"""Digits of a number in text that is in 64 bits whatever it is."""

UUID_CHARS: Final = 36
UUID_DIGITS: Final = 32
"""Of the text form of a UUID."""

_ENCODER: Final = msgspec.json.Encoder()

to_json: Final[Callable[[object], bytes]] = _ENCODER.encode
"""Returns the JSON of plain values."""


def parse_json(data: bytes) -> Any:  # noqa: ANN401 - JSON of any shape
    """Return what JSON bytes hold.

    Raises:
        InvalidInput: They are no JSON (RFC 8259) in UTF-8.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        why = "half of a surrogate pair is no text" if _has_half_pair(data) else str(error)
        msg = f"the body is not JSON: {why}"
        raise InvalidInput(msg) from error


def _has_half_pair(data: bytes) -> bool:
    """Whether that alone keeps it from being JSON; msgspec takes it for a text that was cut off."""
    try:
        json.dumps(json.loads(data), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        pass
    return False


def uuid_text(data: bytes) -> str:
    """Return the text form of the 16 bytes of a UUID.

    >>> uuid_text(bytes(range(16)))
    '00010203-0405-0607-0809-0a0b0c0d0e0f'
    """
    digits = data.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


# --- events, written


class _Written(Struct, gc=False):
    """`BuildEvent`; 64-bit integers as text, in the order of the .proto file."""

    index: str
    created_at: str
    event_id: str
    event_type: str
    subject_kind: str
    subject_id: str
    actor: str
    occurred_at: str
    payload: bytes
    payload_digest: bytes
    caused_by: str | UnsetType = UNSET
    expected: str | UnsetType = UNSET
    body: Any = UNSET


def event_to_json(stored: StoredEvent) -> bytes:
    """Return the JSON of an event that is in a log, with its `body` where that can be read."""
    event = stored.event
    body: Any
    try:
        body = decode_payload(event.payload)
    except Corrupt:
        body = UNSET  # of an unknown type: the bytes say all there is to say
    else:
        for value in body.values():
            if type(value) is not str:
                body = shown(body)
                break
    return _ENCODER.encode(
        _Written(
            str(stored.index),
            str(stored.created_at),
            uuid_text(event.event_id),
            event.event_type,
            event.subject_kind,
            event.subject_id,
            event.actor,
            str(event.occurred_at),
            event.payload,
            event.payload_digest,
            UNSET if event.caused_by is None else uuid_text(event.caused_by),
            UNSET if event.expected is None else str(event.expected),
            body,
        )
    )


def page_to_json(events: Sequence[bytes], next_idx: int, *, has_more: bool) -> bytes:
    """Return the JSON of an `EventPage`.

    Args:
        events: From `event_to_json`, in index order.
        next_idx: What to pass as `since_idx` for what follows.
        has_more: Whether there is more already.
    """
    more = b"true" if has_more else b"false"
    return b'{"events":[%b],"next_idx":"%d","has_more":%b}' % (b",".join(events), next_idx, more)


# --- events, read


class _Given(Struct, forbid_unknown_fields=True, gc=False):
    """`BuildEvent` in an event to append; null means absent."""

    event_type: str | None = None
    subject_id: str | None = None
    event_id: str | None = None
    occurred_at: str | int | None = None
    body: dict[str, Any] | None = None
    subject_kind: str | None = None
    actor: str | None = None
    payload: bytes | None = None
    payload_digest: bytes | None = None
    caused_by: str | None = None
    expected: str | int | None = None
    index: str | int | None = None
    created_at: str | int | None = None


class _GivenCamel(_Given, rename="camel", gc=False):
    """The same with the names of the mapping."""


class _Batch(Struct, forbid_unknown_fields=True):
    events: list[Raw]
    atomic: bool | None = None
    at: str | int | None = None


_GIVEN: Final = msgspec.json.Decoder(_Given)
_GIVEN_CAMEL: Final = msgspec.json.Decoder(_GivenCamel)
_BATCH: Final = msgspec.json.Decoder(_Batch)
_UNUSUAL: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class AppendBody(Struct, frozen=True):
    """What a client wants to append."""

    events: Sequence[Raw | bytes]
    """JSON of each, for `event_from_json`."""
    is_batch: bool
    atomic: bool = False
    at: int | None = None


def append_body(data: bytes) -> AppendBody:
    """Return what a body asks to append: a `BuildEvent`, or an `AppendBatchRequest`.

    Looks at no event yet.

    Raises:
        InvalidInput: It is no JSON object, or a batch with an unknown field.
    """
    try:
        batch = _BATCH.decode(data)
        at = None if batch.at is None else _int64(batch.at)
        return AppendBody(batch.events, is_batch=True, atomic=bool(batch.atomic), at=at)
    except (*_UNUSUAL, _Unusual):
        pass
    plain = parse_json(data)
    if not isinstance(plain, dict):
        msg = "the body is not a JSON object"
        raise InvalidInput(msg, hint='send an event, or {"events": […]}')
    fields = cast("dict[str, Any]", plain)
    if "events" not in fields:
        return AppendBody((data,), is_batch=False)
    events = fields.pop("events")
    request = json_to_message(fields, event_log_pb2.AppendBatchRequest)
    if not isinstance(events, list):
        msg = "events is not a list"
        raise InvalidInput(msg)
    return AppendBody(
        [to_json(event) for event in cast("list[object]", events)],
        is_batch=True,
        atomic=request.atomic,
        at=request.at if request.HasField("at") else None,
    )


def event_from_json(
    data: Raw | bytes,
    *,
    event_id: Callable[[], bytes],
    occurred_at: int,
    actor: str | None = None,
) -> Event:
    """Return the event that a client wants to append, checked as `event_from_wire` does.

    Args:
        data: JSON of a `BuildEvent`.
        event_id: Gives one where it has none.
        occurred_at: Taken where it has none, or 0; microseconds since the epoch, UTC.
        actor: Taken where it has none.

    Raises:
        InvalidEvent: See `event_from_wire`; or an unknown field, a value of another type than the
            field's, no JSON.
        LimitExceeded: A field or the whole is larger than its bound.
    """
    for decoder in (_GIVEN, _GIVEN_CAMEL):
        try:
            given = decoder.decode(data)
            at = _int64(given.occurred_at)
            expected = None if given.expected is None else _int64(given.expected)
            _int64(given.index)
            _int64(given.created_at)
        except (*_UNUSUAL, _Unusual):
            continue
        return event_from_fields(
            event_type=given.event_type or "",
            subject_kind=given.subject_kind or "",
            subject_id=given.subject_id or "",
            actor=given.actor or actor or "",
            occurred_at=at or occurred_at,
            body=given.body,
            payload=given.payload or b"",
            payload_digest=given.payload_digest or b"",
            event_id=_uuid(given.event_id) if given.event_id else event_id(),
            caused_by=given.caused_by,
            expected=expected,
        )
    return _unusual_event(bytes(data), event_id, occurred_at, actor)


def _unusual_event(
    data: bytes, event_id: Callable[[], bytes], occurred_at: int, actor: str | None
) -> Event:
    plain = parse_json(data)
    if not isinstance(plain, dict):
        msg = "an event is a JSON object"
        raise InvalidEvent(msg)
    message = json_to_message(cast("dict[str, Any]", plain), events_pb2.BuildEvent)
    message.occurred_at = message.occurred_at or occurred_at
    message.actor = message.actor or actor or ""
    return event_from_wire(message, event_id=event_id())


class _Unusual(Exception):
    """A value that the fast path leaves to the library."""


def _int64(value: str | int | None) -> int:
    if value is None:
        return 0
    if type(value) is int:
        if not -(2**63) <= value < 2**63:
            raise _Unusual
        return value
    text = cast("str", value)
    digits = text[1:] if text[:1] == "-" else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > INT64_DIGITS_MAX:
        raise _Unusual
    return int(text)


def _uuid(text: str) -> bytes:
    if len(text) == UUID_CHARS and text[8] == text[13] == text[18] == text[23] == "-":
        digits = text.replace("-", "")
        if len(digits) == UUID_DIGITS and digits.isalnum() and digits.isascii():
            try:
                return bytes.fromhex(digits)
            except ValueError:
                pass  # which the library says
    try:
        return UUID(text).bytes
    except ValueError as error:
        msg = f"event_id is not a UUID: {text!r:.80}"
        raise InvalidEvent(msg) from error


# --- receipts and problems


class _Problem(Struct, gc=False):
    """`Problem`."""

    code: str
    message: str
    hint: str
    subject: str
    state: str
    allowed: tuple[str, ...]
    owner: str
    retriable: bool
    index: str | UnsetType = UNSET
    last_index: str | UnsetType = UNSET


def receipt_to_json(index: int, created_at: int, event_id: bytes, *, duplicate: bool) -> bytes:
    """Return the JSON of a `Receipt`."""
    given = b"true" if duplicate else b"false"
    digits = event_id.hex().encode()
    return (b'{"index":"%d","created_at":"%d","event_id":"%b-%b-%b-%b-%b","duplicate":%b}') % (
        index,
        created_at,
        digits[:8],
        digits[8:12],
        digits[12:16],
        digits[16:20],
        digits[20:],
        given,
    )


def problem_to_json(error: BelogError) -> bytes:
    """Return the JSON of the `Problem` of an error."""
    conflict = error if isinstance(error, Conflict) else None
    fields = _Problem(
        code=error.code,
        message=error.message,
        hint=error.hint,
        subject=error.subject or "",
        state="" if conflict is None else conflict.state,
        allowed=() if conflict is None else conflict.allowed,
        owner="" if conflict is None else conflict.owner or "",
        retriable=error.retriable,
        index=UNSET if error.index is None else str(error.index),
        last_index=UNSET if conflict is None else str(conflict.last_index),
    )
    return _ENCODER.encode(fields)


def results_to_json(results: Sequence[tuple[str, bytes]]) -> bytes:
    """Return the JSON of an `AppendBatchResponse`.

    Args:
        results: `receipt` or `problem`, and the JSON of it.
    """
    items = [b'{"%b":%b}' % (name.encode(), data) for name, data in results]
    return b'{"results":[%b]}' % b",".join(items)
