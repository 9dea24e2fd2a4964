"""How records lie in the rows of `belog_records`. Pure.

The events of one append go into as few rows as a page of the server can hold each: `value` is their
envelopes without anything between, `ends` where each of them ends. A single record is a row without
`ends`. See `sql/postgres/0004_pages.sql`.

A record's keys stand for what it concerns: one for its subject, one for its event id, of 32 bits
each. Equal subjects and ids have equal keys. Different ones may, once in four thousand million
pairs; then a producer reads on and judges again without need, which changes no outcome.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Final
from zlib import crc32

from msgspec import Struct

from belog.schemas.envelope import Event
from belog.schemas.fold import Record
from belog.schemas.lifecycle import KINDS

__all__ = ["Rows", "copied_keys_of", "keys_of", "records_of", "rows_of"]

ROW_BYTES_MAX: Final = 8_000
"""Values and what belongs to them in a row of several records, bytes: with the header of a row it
stays below the 8,160 from which the server would compress it or move it elsewhere."""
_RECORD_BYTES: Final = 12
"""What `ends` and `keys` take for a record."""

SYSTEM_KEY: Final = 1
"""Subject of a record of the log itself: it concerns all."""
_NO_KEYS: Final = (0, 0)
"""Subject and id of a record that is no event: it concerns none."""
_SEEDS: Final[Mapping[str, int]] = {kind: crc32(kind.encode()) for kind in KINDS}
_KIND: Final[Callable[[Event], str]] = attrgetter("subject_kind")
_SUBJECT: Final[Callable[[Event], str]] = attrgetter("subject_id")
_ID: Final[Callable[[Event], bytes]] = attrgetter("event_id")


class Rows(Struct, frozen=True):
    """Events of one append as rows.

    Attributes:
        firsts: How many events lie before each row.
        counts: How many events each row has.
        sizes: How many bytes each row has.
        ends: Of each event: how many bytes of its row's value lie before its end.
    """

    firsts: Sequence[int]
    counts: Sequence[int]
    sizes: Sequence[int]
    ends: Sequence[int]


def rows_of(values: Sequence[bytes]) -> Rows:
    """Lay envelopes into rows, in order."""
    if len(values) == 1:
        return Rows((0,), (1,), (len(values[0]),), (len(values[0]),))
    firsts: list[int] = []
    counts: list[int] = []
    lengths: list[int] = []
    ends: list[int] = []
    sizes = list(map(len, values))
    # What each event and all before it take.
    weights = list(accumulate(map(_RECORD_BYTES.__add__, sizes), initial=0))
    first = 0
    while first < len(values):
        at = max(bisect_right(weights, weights[first] + ROW_BYTES_MAX) - 1, first + 1)
        firsts.append(first)
        counts.append(at - first)
        ends += accumulate(sizes[first:at])
        lengths.append(ends[-1])
        first = at
    return Rows(firsts, counts, lengths, ends)


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


def keys_of(events: Sequence[Event]) -> list[int]:
    """Return two keys for each event, of 32 bits without a sign: of its subject and of its id."""
    kinds = list(map(_KIND, events))
    # Loops in C: this is done for every event that is written.
    subjects = map(str.encode, map(_SUBJECT, events))
    keys = [SYSTEM_KEY] * (2 * len(kinds))
    keys[::2] = map(crc32, subjects, map(_SEEDS.__getitem__, kinds))
    keys[1::2] = map(crc32, map(_ID, events))
    if "system" in kinds:
        for n, kind in enumerate(kinds):
            if kind == "system":
                keys[2 * n] = SYSTEM_KEY
    return keys


def copied_keys_of(events: Iterable[Event | None]) -> list[int]:
    """Return what `keys_of` does, where None is a record that is no event."""
    return [key for event in events for key in (_NO_KEYS if event is None else keys_of([event]))]
