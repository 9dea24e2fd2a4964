"""How records lie in the rows of `belog_records`. Pure.

The events of one append go into as few rows as a page of the server can hold each: `value` is their
envelopes without anything between, `ends` where each of them ends. A single record is a row without
`ends`. See `sql/postgres/0004_pages.sql`.

A record's keys stand for what it concerns: one for its subject, one for its event id, of 32 bits
each. Equal subjects and ids have equal keys. Different ones may, once in four thousand million
pairs; then a producer reads on and judges again without need, which changes no outcome.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Final
from zlib import crc32

from msgspec import Struct

from belog.schemas.envelope import Event
from belog.schemas.fold import Record
from belog.schemas.lifecycle import KINDS

__all__ = ["Rows", "keys_of", "records_of", "rows_of"]

ROW_BYTES_MAX: Final = 8_000
"""Values and what belongs to them in a row of several records, bytes: with the header of a row it
stays below the 8,160 from which the server would compress it or move it elsewhere."""
_RECORD_BYTES: Final = 12
"""What `ends` and `keys` take for a record."""

SYSTEM_KEY: Final = 1
"""Subject of a record of the log itself: it concerns all."""
_NO_KEY: Final = 0
"""Subject and id of a record that is no event: it concerns none."""
_SEEDS: Final[Mapping[str, int]] = {kind: crc32(kind.encode()) for kind in KINDS}
_SIGN: Final = 1 << 31
"""A checksum less this is an integer as PostgreSQL has it."""


class Rows(Struct, frozen=True):
    """Events of one append as rows.

    Attributes:
        values: Of each row.
        firsts: How many events lie before each row.
        counts: How many events each row has.
        ends: Of each event: how many bytes of its row's value lie before its end.
    """

    values: Sequence[bytes]
    firsts: Sequence[int]
    counts: Sequence[int]
    ends: Sequence[int]


def rows_of(values: Sequence[bytes]) -> Rows:
    """Lay envelopes into rows, in order."""
    if len(values) == 1:
        return Rows(values, (0,), (1,), (len(values[0]),))
    rows: list[bytes] = []
    firsts: list[int] = []
    counts: list[int] = []
    ends: list[int] = []
    # Where the events would end if all of them were one row, and where the row at hand has to.
    offsets = list(accumulate(map(len, values), initial=0))
    first = 0
    while first < len(values):
        start = offsets[first]
        at = first + 1
        while (
            at < len(values)
            and offsets[at + 1] - start + (at + 1 - first) * _RECORD_BYTES <= ROW_BYTES_MAX
        ):
            at += 1
        rows.append(b"".join(values[first:at]))
        firsts.append(first)
        counts.append(at - first)
        ends += [end - start for end in offsets[first + 1 : at + 1]]
        first = at
    return Rows(rows, firsts, counts, ends)


def records_of(
    rows: Iterable[tuple[int, int, Sequence[int] | None, bytes, object]], since: int, limit: int
) -> list[Record]:
    """Return the records that rows hold, from an index on.

    Args:
        rows: Index of the first record, ingest time, ends, value, and what is not looked at; in
            order.
        since: The first index wanted.
        limit: How many records at most.
    """
    records: list[Record] = []
    for index, created_at, ends, value, _ in rows:
        if ends is None:
            if index >= since:
                records.append(Record(index, created_at, value))
            continue
        start = 0
        for position, end in enumerate(ends, index):
            if position >= since:
                records.append(Record(position, created_at, value[start:end]))
            start = end
    del records[limit:]
    return records


def keys_of(events: Iterable[Event | None]) -> list[int]:
    """Return two keys for each event: of its subject and of its id. None is no event."""
    keys: list[int] = []
    for event in events:
        if event is None:
            keys += (_NO_KEY, _NO_KEY)
            continue
        kind = event.subject_kind
        if kind == "system":
            subject = SYSTEM_KEY
        else:
            subject = crc32(event.subject_id.encode(), _SEEDS[kind]) - _SIGN
        keys += (subject, crc32(event.event_id) - _SIGN)
    return keys
