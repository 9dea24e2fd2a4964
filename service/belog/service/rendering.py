"""How events, rows and receipts look as JSON and as text. Pure.

JSON here is for people and scripts at a terminal: numbers are numbers, times RFC 3339 in UTC, ids
their usual text, absent values left out. (The services speak Protobuf's JSON mapping instead.)
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, cast
from uuid import UUID

import msgspec

from belog.processors.rows import (
    BuildRow,
    JobRunRow,
    PartitionRow,
    Row,
    RowKind,
    TaskRow,
)
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import BelogError, Conflict, Corrupt, InvalidInput, OutcomeUnknown
from belog.schemas.payload import JsonValue
from belog.storage.interface import Receipt

__all__ = [
    "Json",
    "error_json",
    "event_json",
    "event_line",
    "micros",
    "receipt_json",
    "rfc3339",
    "row_json",
    "row_line",
    "row_titles",
    "struct_json",
    "to_text",
]

Json = dict[str, object]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_FIELDS: Final = frozenset({"at", "start_time", "end_time", "last_updated"})


def rfc3339(micros_utc: int) -> str:
    """Return a time in microseconds since the epoch as RFC 3339 text in UTC.

    >>> rfc3339(0)
    '1970-01-01T00:00:00.000000Z'
    """
    try:
        moment = _EPOCH + timedelta(microseconds=micros_utc)
    except OverflowError:
        return f"{micros_utc} µs"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def micros(text: str) -> int:
    """Return an RFC 3339 or ISO 8601 time with a zone in microseconds since the epoch.

    Raises:
        InvalidInput: It is not of the form, or names no zone.

    >>> micros("1970-01-01T01:00:00+01:00")
    0
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        msg = f"time {text!r} is not ISO 8601"
        raise InvalidInput(msg, hint="for example 2026-01-31T12:00:00Z") from error
    if moment.tzinfo is None:
        msg = f"time {text!r} names no zone"
        raise InvalidInput(msg, hint="end it with Z for UTC, or with an offset such as +01:00")
    return (moment - _EPOCH) // timedelta(microseconds=1)


def to_text(value: object) -> str:
    """Return a value as one line of JSON, without escapes for what a terminal can show."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, UUID):
        return str(value)
    return msgspec.to_builtins(value)


def body_json(event: Event) -> Json:
    """Return the payload as a map; where it cannot be decoded, what is wrong with it."""
    try:
        return cast("Json", event.body())
    except Corrupt as error:
        return {"undecodable": error.message, "bytes": event.payload.hex()}


def event_json(stored: StoredEvent) -> Json:
    """Return a stored event with its decoded payload."""
    event = stored.event
    out: Json = {
        "index": stored.index,
        "created_at": rfc3339(stored.created_at),
        "event_id": str(UUID(bytes=event.event_id)),
        "event_type": event.event_type,
        "subject_kind": event.subject_kind,
        "subject_id": event.subject_id,
        "actor": event.actor,
        "occurred_at": rfc3339(event.occurred_at),
        "payload": body_json(event),
        "payload_digest": event.payload_digest.hex(),
    }
    if event.caused_by is not None:
        out["caused_by"] = str(UUID(bytes=event.caused_by))
    if event.expected is not None:
        out["expected"] = event.expected
    return out


def event_line(stored: StoredEvent) -> str:
    """Return an event as one line for people: index, time, type, subject, actor, payload."""
    event = stored.event
    details = " ".join(
        f"{name}={_short(value)}"
        for name, value in body_json(event).items()
        if value not in ([], {}, None)
    )
    time = rfc3339(stored.created_at)[:-4] + "Z"
    return (
        f"{stored.index:>8}  {time}  {event.event_type:<30}  {event.subject_id}  "
        f"[{event.actor}]  {details}"
    ).rstrip()


def _short(value: object, chars_max: int = 60) -> str:
    text = value if isinstance(value, str) else to_text(value)
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def receipt_json(receipt: Receipt) -> Json:
    """Return a receipt."""
    out: Json = {
        "index": receipt.index,
        "event_id": str(UUID(bytes=receipt.event_id)),
        "duplicate": receipt.duplicate,
    }
    if receipt.created_at:
        out["created_at"] = rfc3339(receipt.created_at)
    return out


def error_json(error: BelogError) -> Json:
    """Return an error with its coordinates."""
    out: Json = {"code": error.code, "message": error.message}
    for name in ("log", "index", "subject"):
        if (value := getattr(error, name)) is not None:
            out[name] = value
    if isinstance(error, Conflict):
        out |= {
            "state": error.state or "never_seen",
            "last_index": error.last_index,
            "allowed": error.allowed,
        }
        if error.owner is not None:
            out["owner"] = error.owner
    if isinstance(error, OutcomeUnknown):
        out["event_id"] = str(UUID(bytes=error.event_id))
    if error.hint:
        out["hint"] = error.hint
    return out


def row_json(row: Row) -> Json:
    """Return a row of a table; times as RFC 3339, manifests as objects, absent values left out."""
    return struct_json(row)


def struct_json(value: msgspec.Struct) -> Json:
    """Return any answer as `row_json` returns rows."""
    return _fields(cast("Mapping[str, object]", msgspec.to_builtins(value)))


def _fields(fields: Mapping[str, object]) -> Json:
    out: Json = {}
    for name, value in fields.items():
        if value is None or value in ([], ()):
            continue
        if isinstance(value, int) and (name in _TIME_FIELDS or name.endswith("_at")):
            out[name] = rfc3339(value)
        elif name == "manifest" and isinstance(value, str):
            out[name] = _manifest(value)
        elif isinstance(value, dict):
            out[name] = _fields(cast("Mapping[str, object]", value))
        elif isinstance(value, list | tuple):
            out[name] = [_item(item) for item in cast("Sequence[object]", value)]
        else:
            out[name] = value
    return out


def _item(value: object) -> object:
    return _fields(cast("Mapping[str, object]", value)) if isinstance(value, dict) else value


def _manifest(text: str) -> object:
    try:
        manifest = cast("JsonValue", json.loads(text))
    except ValueError:
        return text
    return _fields(manifest) if isinstance(manifest, dict) else manifest


def row_line(row: Row) -> Sequence[str]:
    """Return the cells of a row in a list for people; `row_titles` names them."""
    time = rfc3339(row.updated_at)[:19] + "Z"
    if isinstance(row, PartitionRow):
        build = row.attempt.build_id if row.attempt else (row.available and row.available.build_id)
        data = "yes" if row.has_data else "no"
        return row.ref, row.state, data, build or "", str(row.index), time
    if isinstance(row, BuildRow):
        counts = row.counts
        made = f"{counts.available} made, {counts.joined} joined, {counts.failed} failed"
        return row.build_id, row.state, row.client_id or "", made, str(row.index), time
    if isinstance(row, JobRunRow):
        label, build = row.job_label or "", row.build_id or ""
        return row.job_run_id, row.state, label, build, str(row.index), time
    if isinstance(row, TaskRow):
        label = row.job_label or ""
        return row.task_id, row.state, label, row.build_id, str(row.index), time
    return row.log_id, row.state, row.instance or "", "", str(row.index), time


row_titles: Final[Mapping[RowKind, Sequence[str]]] = {
    "partition": ("partition", "state", "data", "build", "index", "updated"),
    "build": ("build", "state", "client", "partitions", "index", "updated"),
    "job_run": ("job run", "state", "label", "build", "index", "updated"),
    "task": ("task", "state", "label", "build", "index", "updated"),
    "system": ("log", "state", "instance", "", "index", "updated"),
}
