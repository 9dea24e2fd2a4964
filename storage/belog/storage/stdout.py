"""A log that only shows: one JSON line per event on standard output (`stdout:`).

For pipelines and for looking at what a program would write. It has no memory: indices count from 0
in this process, nothing can be read back, and nothing is durable.

A line holds the event by the proto3 JSON mapping: lowerCamelCase names, 64-bit integers as text,
bytes in base64 (standard alphabet, padded), times in RFC 3339 with the microseconds. The payload is
the map that its CBOR holds, under the names it has there, with bytes in base64; integers in it stay
numbers. A payload that cannot be decoded is base64 text.

Source: https://protobuf.dev/programming-guides/json/
"""

import base64
import json
import math
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn, TextIO
from uuid import UUID

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import (
    BelogError,
    Closed,
    Corrupt,
    IndexConflict,
    InvalidUri,
    NotFound,
    Unavailable,
    Unsupported,
)
from belog.schemas.filters import ALL, EventFilter
from belog.schemas.fold import Record
from belog.schemas.limits import PAGE_EVENTS_MAX
from belog.schemas.payload import JsonValue, decode_payload
from belog.storage.creation import check_identity, log_created, new_uuid, now_us
from belog.storage.factory import redacted
from belog.storage.interface import (
    SCAN_RECORDS_MAX,
    Capabilities,
    CopiedRecord,
    EventLog,
    EventPage,
    LogEnd,
    LogIdentity,
    Receipt,
    Statistics,
    VacuumReport,
    check_batch,
)
from belog.storage.snapshots import SnapshotStore

__all__ = ["StdoutLog", "event_line", "payload_json", "rfc3339"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(micros: int) -> str:
    """Return a time as RFC 3339 text with microseconds.

    >>> rfc3339(0)
    '1970-01-01T00:00:00.000000Z'

    A time outside the years 1 to 9999 has no such text and comes as its number of microseconds.
    """
    try:
        moment = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return str(micros)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def payload_json(payload: bytes) -> str:
    """Return a payload as JSON text; base64 text where it is not a map in CBOR."""
    try:
        body: JsonValue = decode_payload(payload)
    except Corrupt:
        body = payload
    return json.dumps(_plain(body), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _plain(value: JsonValue) -> object:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        # As the proto3 JSON mapping spells them; JSON itself has no such numbers.
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def event_line(index: int, created_at: int, event: Event) -> str:
    """Return one event as a line of JSON, without the line's end."""
    fields: dict[str, object] = {
        "index": str(index),
        "createdAt": rfc3339(created_at),
        "eventId": str(UUID(bytes=event.event_id)),
        "eventType": event.event_type,
        "subjectKind": event.subject_kind,
        "subjectId": event.subject_id,
        "actor": event.actor,
        "occurredAt": rfc3339(event.occurred_at),
        "payloadDigest": base64.b64encode(event.payload_digest).decode(),
    }
    if event.caused_by is not None:
        fields["causedBy"] = str(UUID(bytes=event.caused_by))
    if event.expected is not None:
        fields["expected"] = str(event.expected)
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    return f'{text[:-1]},"payload":{payload_json(event.payload)}}}'


class StdoutLog(EventLog):
    """See the module's docstring. Thread-safe: lines never mix."""

    capabilities = Capabilities(
        conditional_append=True,
        explicit_index=False,
        readable=False,
        durable=False,
        shared=False,
    )

    def __init__(self, stream: TextIO | None = None, *, clock: Callable[[], int] = now_us) -> None:
        """Make a log that starts at index 0.

        Args:
            stream: Where lines go; the standard output of the moment of the append when None.
            clock: Gives the ingest time, microseconds since the epoch.
        """
        self.name = "stdout:"
        self._stream = stream
        self._clock = clock
        self._lock = threading.Lock()
        self._identity: LogIdentity | None = None
        self._next_idx = 0
        self._created_at = 0
        self._closed = False

    def initialize(
        self,
        *,
        instance: str = "local",
        log_id: UUID | None = None,
        replica: bool = False,
        empty: bool = False,
    ) -> LogIdentity:
        """See `EventLog.initialize`; the first call writes the log_created event.

        Raises:
            Unsupported: A replica, or a copy: who writes it has to read where it ends.
        """
        if replica or empty:
            self._refuse()
        with self._lock:
            self._check_open()
            if self._identity is None:
                identity = LogIdentity(log_id or new_uuid(), instance, is_replica=False)
                self._write([log_created(identity.log_id, instance, self._clock())])
                self._identity = identity
            return check_identity(self._identity, log_id, replica=False, name=self.name)

    def identify(self) -> LogIdentity | None:
        """See `EventLog.identify`."""
        return self._identity

    def close(self) -> None:
        """See `EventLog.close`; the stream stays open."""
        with self._lock:
            self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            msg = "the log was closed"
            raise Closed(msg, log=self.name)

    def next_position(self) -> int:
        """See `EventLog.next_position`."""
        self._check_open()
        return self._next_idx

    def append_batch(
        self, events: Sequence[Event], *, at: int | None = None, atomic: bool = False
    ) -> list[Receipt | BelogError]:
        """See `EventLog.append_batch`.

        One write and one flush per call. Not durable, and atomic only as far as nobody of this
        process writes in between.

        Raises:
            Unavailable: The stream is closed or its reader is gone.
        """
        del atomic
        check_batch(events)
        with self._lock:
            self._check_open()
            if self._identity is None:
                msg = "the log was not initialized"
                raise NotFound(msg, log=self.name, hint="call initialize() first")
            if at is not None and at != self._next_idx:
                msg = f"the log's next index is {self._next_idx}, not {at}"
                raise IndexConflict(msg, next_idx=self._next_idx, log=self.name)
            return [*self._write(events)]

    def _write(self, events: Sequence[Event]) -> list[Receipt]:
        created_at = max(self._clock(), self._created_at)
        first = self._next_idx
        lines = [event_line(first + n, created_at, event) for n, event in enumerate(events)]
        stream = self._stream or sys.stdout
        try:
            stream.write("".join(f"{line}\n" for line in lines))
            stream.flush()
        except (OSError, ValueError) as error:
            msg = f"the output cannot be written: {error}"
            raise Unavailable(msg, log=self.name) from error
        self._next_idx += len(events)
        self._created_at = created_at
        return [Receipt(first + n, created_at, event.event_id) for n, event in enumerate(events)]

    # --- what it cannot do

    def _refuse(self) -> NoReturn:
        msg = "a log on standard output cannot be read"
        hint = "use it to show events; for a log that is kept name sqlite:///path or file:///path"
        raise Unsupported(msg, log=self.name, hint=hint)

    def scan(self, since_position: int, limit: int = SCAN_RECORDS_MAX) -> list[Record]:
        """Refuse with `Unsupported`."""
        del since_position, limit
        self._refuse()

    def wait(self, position: int, timeout_s: float) -> bool:
        """Refuse with `Unsupported`."""
        del position, timeout_s
        self._refuse()

    def copy_records(self, records: Sequence[CopiedRecord], *, after: int) -> None:
        """Refuse with `Unsupported`: indices cannot be kept."""
        del records, after
        self._refuse()

    def read(
        self, since_idx: int = 0, wanted: EventFilter = ALL, limit: int = PAGE_EVENTS_MAX
    ) -> EventPage:
        """Refuse with `Unsupported`."""
        del since_idx, wanted, limit
        self._refuse()

    def get(self, index: int) -> StoredEvent | None:
        """Refuse with `Unsupported`."""
        del index
        self._refuse()

    def get_by_id(self, event_id: bytes) -> StoredEvent | None:
        """Refuse with `Unsupported`."""
        del event_id
        self._refuse()

    def end(self) -> LogEnd:
        """Refuse with `Unsupported`."""
        self._refuse()

    def statistics(self) -> Statistics:
        """Refuse with `Unsupported`."""
        self._refuse()

    def vacuum(
        self, before: int, *, dry_run: bool = True, snapshots: SnapshotStore | None = None
    ) -> VacuumReport:
        """Refuse with `Unsupported`."""
        del before, dry_run, snapshots
        self._refuse()


def from_uri(uri: str) -> StdoutLog:
    """See `belog.storage.factory`."""
    if uri != "stdout:":
        msg = f"the log on standard output is named stdout:, not {redacted(uri)!r}"
        raise InvalidUri(msg)
    return StdoutLog()
