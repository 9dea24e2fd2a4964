"""The rows of a Delta log: which columns there are, and what stands in them. Pure.

=================  =============  ==============================================================
column             type           what
=================  =============  ==============================================================
index              int64          the record's index; never null
created_at         timestamp µs   ingest time, UTC; never null
value              binary         the record's bytes: the truth, all else is for analysts
day                date           of created_at, UTC; the partition column
event_id           string         UUID
event_type         string
subject_kind       string
subject_id         string
actor              string
occurred_at        timestamp µs   UTC; null outside the years 1 to 9999
caused_by          string         UUID or null
expected           int64          or null
payload            binary         canonical CBOR
digest             binary         BLAKE3 of the payload
payload_json       string         the payload as JSON, bytes in base64
=================  =============  ==============================================================

In a replica the columns are those of the origin's event, `index` is the origin's. A record that is
no event has nulls in the columns for analysts.
"""

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from belog.schemas.envelope import Event, decode_event
from belog.schemas.errors import Corrupt, LimitExceeded, NewerFormat
from belog.schemas.replica import REPLICA_HEADER, decode_replica
from belog.storage.stdout import payload_json

__all__ = ["COLUMNS", "DAY_US", "check_created_at", "columns_of"]

COLUMNS: Final = (
    "index",
    "created_at",
    "value",
    "day",
    "event_id",
    "event_type",
    "subject_kind",
    "subject_id",
    "actor",
    "occurred_at",
    "caused_by",
    "expected",
    "payload",
    "digest",
    "payload_json",
)

DAY_US: Final = 86_400_000_000
_YEAR_1_US: Final = -62_135_596_800_000_000
_YEAR_10000_US: Final = 253_402_300_800_000_000


def check_created_at(values: Iterable[int]) -> None:
    """Refuse ingest times that have no date of four digits, and so no partition.

    Raises:
        LimitExceeded: A time before the year 1 or after the year 9999.
    """
    for created_at in values:
        if not _YEAR_1_US <= created_at < _YEAR_10000_US:
            raise LimitExceeded(
                "created_at of a record",
                limit="_YEAR_10000_US",
                limit_value=_YEAR_10000_US,
                value=created_at,
            )


def columns_of(records: Sequence[tuple[int, int, bytes]]) -> dict[str, list[object]]:
    """Return the columns of records given as index, created_at and value."""
    columns: dict[str, list[object]] = {name: [] for name in COLUMNS}
    appends = [columns[name].append for name in COLUMNS]
    for index, created_at, value in records:
        row = (index, created_at, value, created_at // DAY_US, *_event_cells(value))
        for append, cell in zip(appends, row, strict=True):
            append(cell)
    return columns


_NO_EVENT: Final = (None,) * 11


def _event_cells(value: bytes) -> tuple[object, ...]:
    try:
        if value.startswith(REPLICA_HEADER):
            value = decode_replica(value).envelope
        event: Event = decode_event(value)
    except (Corrupt, NewerFormat):
        return _NO_EVENT
    in_range = _YEAR_1_US <= event.occurred_at < _YEAR_10000_US
    return (
        str(UUID(bytes=event.event_id)),
        event.event_type,
        event.subject_kind,
        event.subject_id,
        event.actor,
        event.occurred_at if in_range else None,
        None if event.caused_by is None else str(UUID(bytes=event.caused_by)),
        event.expected,
        event.payload,
        event.payload_digest,
        payload_json(event.payload),
    )
