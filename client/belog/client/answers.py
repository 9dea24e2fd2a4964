"""Events, receipts and partitions' answers out of JSON by the proto3 mapping. Pure."""

from typing import Any, Final, TypeVar, cast
from uuid import UUID

import msgspec
from google.protobuf import json_format
from google.protobuf.message import Message
from msgspec import Struct

from belog.client.problems import Problem, error_from
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import BelogError, Corrupt
from belog.schemas.lifecycle import SubjectKind
from belog.schemas.payload import digest
from belog.schemas.receipts import EventPage, Receipt
from belog.schemas.wire_json import to_json, uuid_text

__all__ = [
    "batch_body",
    "event_to_append",
    "message_of",
    "page_of",
    "receipt_of",
    "results_of",
    "stored_of",
]


class _Appended(Struct, omit_defaults=True):
    """`BuildEvent`, as it is appended."""

    event_id: str
    event_type: str
    subject_kind: str
    subject_id: str
    actor: str
    occurred_at: str
    payload: bytes
    payload_digest: bytes
    caused_by: str | None = None
    expected: str | None = None


def event_to_append(event: Event) -> _Appended:
    """Return the message of an event, for `to_json`; exact, with its digest."""
    return _Appended(
        uuid_text(event.event_id),
        event.event_type,
        event.subject_kind,
        event.subject_id,
        event.actor,
        str(event.occurred_at),
        event.payload,
        event.payload_digest,
        None if event.caused_by is None else uuid_text(event.caused_by),
        None if event.expected is None else str(event.expected),
    )


class _Stored(Struct, gc=False):
    """`BuildEvent`, as it is answered; `body` is not looked at."""

    index: int
    created_at: int
    event_id: UUID
    event_type: str
    subject_kind: str
    subject_id: str
    occurred_at: int = 0
    actor: str = ""
    payload: bytes = b""
    payload_digest: bytes = b""
    caused_by: UUID | None = None
    expected: int | None = None


class _Page(Struct):
    events: list[_Stored] = []
    next_idx: int = 0
    has_more: bool = False


class _Receipt(Struct):
    index: int
    created_at: int
    event_id: UUID
    duplicate: bool = False


class _Result(Struct):
    receipt: _Receipt | None = None
    problem: Problem | None = None


class _Results(Struct):
    results: list[_Result] = []


# Not strict: integers of 64 bits are text in JSON.
_PAGE: Final = msgspec.json.Decoder(_Page, strict=False)
_STORED: Final = msgspec.json.Decoder(_Stored, strict=False)
_RECEIPT: Final = msgspec.json.Decoder(_Receipt, strict=False)
_RESULTS: Final = msgspec.json.Decoder(_Results, strict=False)

T = TypeVar("T")
M = TypeVar("M", bound=Message)


def _decoded(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"the answer is not what this client understands: {error}"
        raise Corrupt(msg, hint="is the URL that of a belog service?") from error


def _stored(given: _Stored) -> StoredEvent:
    if digest(given.payload) != given.payload_digest:
        msg = "the payload of an event is not what its digest says"
        raise Corrupt(msg, index=given.index, subject=f"{given.subject_kind}:{given.subject_id}")
    event = Event(
        given.event_id.bytes,
        given.event_type,
        cast("SubjectKind", given.subject_kind),
        given.subject_id,
        given.actor,
        given.occurred_at,
        given.payload,
        given.payload_digest,
        None if given.caused_by is None else given.caused_by.bytes,
        given.expected,
    )
    return StoredEvent(given.index, given.created_at, event)


def page_of(body: bytes) -> EventPage:
    """Return a page, its events byte for byte what the log holds.

    Raises:
        Corrupt: It is none, or an event's payload is not what its digest says.
    """
    page = _decoded(_PAGE, body)
    return EventPage(tuple(map(_stored, page.events)), page.next_idx, page.has_more)


def stored_of(body: bytes) -> StoredEvent:
    """Return one event; see `page_of`."""
    return _stored(_decoded(_STORED, body))


def _receipt(given: _Receipt) -> Receipt:
    return Receipt(given.index, given.created_at, given.event_id.bytes, given.duplicate)


def receipt_of(body: bytes) -> Receipt:
    """Return the receipt of an event.

    Raises:
        Corrupt: It is none.
    """
    return _receipt(_decoded(_RECEIPT, body))


def results_of(body: bytes, event_ids: list[bytes], url: str) -> list[Receipt | BelogError]:
    """Return the results of a batch, one for each event, in order.

    Raises:
        Corrupt: They are none, or not as many.
    """
    results = _decoded(_RESULTS, body).results
    if len(results) != len(event_ids):
        msg = f"{len(event_ids)} events were sent, {len(results)} results came back"
        raise Corrupt(msg)
    return [
        error_from(result.problem, url=url, event_id=event_id)
        if result.receipt is None
        else _receipt(result.receipt)
        for result, event_id in zip(results, event_ids, strict=True)
    ]


def message_of(body: bytes, kind: type[M]) -> M:
    """Return a message; fields that it has in newer software are left out.

    Raises:
        Corrupt: It is none.
    """
    try:
        return json_format.Parse(body, kind(), ignore_unknown_fields=True)
    except (json_format.Error, ValueError, RecursionError) as error:
        msg = f"the answer is not the {kind.__name__} that this client understands: {error}"
        raise Corrupt(msg, hint="is the URL that of a belog service?") from error


def batch_body(events: list[Event], *, atomic: bool, at: int | None) -> bytes:
    """Return the body that appends a batch."""
    fields: dict[str, Any] = {"events": list(map(event_to_append, events))}
    if atomic:
        fields["atomic"] = True
    if at is not None:
        fields["at"] = str(at)
    return to_json(fields)
