"""The bytes of a spool's journal: pure, no I/O. All integers are little endian.

A journal is a header and records, appended only. Header (`HEADER`)::

    0   8  magic "BELOGSPL"
    8   2  format version, 1
    10  6  zero
    16  16 generation: another one with each rewriting, so that who reads it begins anew
    32  8  number of the first event that the journal may hold
    40  16 log_id of the log that the events are for, zero while none has answered yet
    56  8  index that this log had at least reached
    64  4  CRC-32 of everything before

Record (`HEAD`, then the body)::

    0   4  CRC-32 of all that follows
    4   4  length of the body, bytes
    8   1  kind
    9   n  body

Bodies: `KEPT` an event: number 8, put_at 8 (microseconds), 1 where it may have been sent from the
first, and its envelope in Avro. `SENT` a marker, durable before events are sent of which that
was not known: numbers of the first and last 8 + 8. `TAKEN` the log has it: number 8, index 8.
`REFUSED` the log never will: number 8. `LOG` the log that answered: log_id 16, next index 8.

Events are numbered from 0 in the order they were kept, and leave in that order: so how far the
spool has come is one number.
"""

from struct import Struct as Layout
from typing import Final
from uuid import UUID
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from belog.schemas.envelope import Event, decode_event, encode_event
from belog.schemas.errors import Corrupt, NewerFormat
from belog.schemas.limits import EVENT_BYTES_MAX

__all__ = [
    "HEADER_BYTES",
    "HEAD_BYTES",
    "Entry",
    "Header",
    "Journal",
    "encode_header",
    "encode_kept",
    "encode_log",
    "encode_refused",
    "encode_sent",
    "encode_taken",
    "entry_at",
    "parse_header",
    "read_on",
]

FORMAT_VERSION: Final = 1
MAGIC: Final = b"BELOGSPL"

HEADER: Final = Layout("<8sH6s16sQ16sQ")
_CRC: Final = Layout("<I")
HEADER_BYTES: Final = HEADER.size + _CRC.size
HEAD: Final = Layout("<IIB")
HEAD_BYTES: Final = HEAD.size
_REST: Final = Layout("<IB")
_KEPT: Final = Layout("<QqB")
_TWO: Final = Layout("<QQ")
_ONE: Final = Layout("<Q")
_LOG: Final = Layout("<16sQ")

KEPT: Final = 1
SENT: Final = 2
TAKEN: Final = 3
REFUSED: Final = 4
LOG: Final = 5

BODY_BYTES_MAX: Final = EVENT_BYTES_MAX + 1_024
"""Longest body, bytes: an event with its number; a greater length is no record."""

_NO_LOG: Final = bytes(16)


class Header(Struct, frozen=True):
    """What the first bytes of a journal say."""

    generation: bytes
    base: int
    """Number of the first event that it may hold."""
    log_id: UUID | None
    next_idx: int


class Entry(Struct, frozen=True):
    """An event that is kept."""

    number: int
    put_at: int
    event: Event


class Journal(Struct, frozen=True, kw_only=True):
    """What a journal says up to a place in it: a fold of its records."""

    generation: bytes
    at: int
    """Place after the last whole record, bytes."""
    next_number: int
    """That the next event will get."""
    done_number: int
    """First event that still has to leave."""
    done_at: int
    """Place at or before the record of that event, bytes."""
    sent_number: int
    """Events below it may have been sent."""
    log_id: UUID | None
    next_idx: int
    """Index that the log had at least reached."""

    @property
    def pending(self) -> int:
        """Events that still have to leave."""
        return self.next_number - self.done_number

    @property
    def pending_bytes(self) -> int:
        """Bytes of the journal from the first of them on."""
        return self.at - self.done_at if self.pending else 0


def encode_header(header: Header) -> bytes:
    """Return the first bytes of a journal."""
    log_id = _NO_LOG if header.log_id is None else header.log_id.bytes
    data = HEADER.pack(
        MAGIC, FORMAT_VERSION, bytes(6), header.generation, header.base, log_id, header.next_idx
    )
    return data + _CRC.pack(crc32(data))


def parse_header(data: bytes) -> Journal | None:
    """Return the state of a journal after its header; None where that was never wholly written.

    Raises:
        Corrupt: It is no spool's journal.
        NewerFormat: Newer software wrote it.
    """
    if len(data) < HEADER_BYTES and data[:8] == MAGIC[: len(data)]:
        return None
    if data[:8] != MAGIC:
        msg = "this is not the journal of a spool"
        raise Corrupt(msg)
    _, version, _, generation, base, log_id, next_idx = HEADER.unpack_from(data)
    if version != FORMAT_VERSION:
        msg = f"the spool has format {version}, this software knows {FORMAT_VERSION}"
        raise NewerFormat(msg, hint="flush it with the software that wrote it")
    if _CRC.unpack_from(data, HEADER.size)[0] != crc32(data[: HEADER.size]):
        msg = "the header of the spool is damaged"
        raise Corrupt(msg)
    return Journal(
        generation=generation,
        at=HEADER_BYTES,
        next_number=base,
        done_number=base,
        done_at=HEADER_BYTES,
        sent_number=base,
        log_id=None if log_id == _NO_LOG else UUID(bytes=log_id),
        next_idx=next_idx,
    )


def _record(kind: int, body: bytes) -> bytes:
    rest = _REST.pack(len(body), kind) + body
    return _CRC.pack(crc32(rest)) + rest


def encode_kept(number: int, put_at: int, event: Event, *, may_be_sent: bool) -> bytes:
    """Return the record of an event."""
    return _record(KEPT, _KEPT.pack(number, put_at, may_be_sent) + encode_event(event))


def encode_sent(first: int, last: int) -> bytes:
    """Return the marker that events may have been sent."""
    return _record(SENT, _TWO.pack(first, last))


def encode_taken(number: int, index: int) -> bytes:
    """Return the record that the log has an event."""
    return _record(TAKEN, _TWO.pack(number, index))


def encode_refused(number: int) -> bytes:
    """Return the record that the log will never have an event."""
    return _record(REFUSED, _ONE.pack(number))


def encode_log(log_id: UUID, next_idx: int) -> bytes:
    """Return the record of the log that answered."""
    return _record(LOG, _LOG.pack(log_id.bytes, next_idx))


def _whole(data: bytes, at: int) -> tuple[int, int, int] | None:
    """Return kind, start and end of the body of a record that is whole, else None."""
    if at + HEAD_BYTES > len(data):
        return None
    crc, length, kind = HEAD.unpack_from(data, at)
    end = at + HEAD_BYTES + length
    if length > BODY_BYTES_MAX or end > len(data) or crc32(data[at + 4 : end]) != crc:
        return None
    return kind, at + HEAD_BYTES, end


def read_on(journal: Journal, data: bytes) -> tuple[Journal, dict[int, int | None]]:
    """Fold the records that follow.

    Args:
        journal: What was read before.
        data: The bytes from `journal.at` on.

    Returns:
        The state after the last whole record, and what became of events: their index, or None
        where the log refused them.

    Raises:
        Corrupt: Whole records follow on bytes that are none: that is damage, and no torn tail.
    """
    base, at = journal.at, 0
    outcomes: dict[int, int | None] = {}
    while (found := _whole(data, at)) is not None:
        kind, start, end = found
        journal = _step(journal, kind, data[start:end], base + at, outcomes)
        at = end
    if at < len(data) and _any_whole(data, at + 1):
        msg = f"the journal is damaged at byte {base + at}, and goes on after it"
        raise Corrupt(msg, hint="keep the file: what follows can still be sent by hand")
    return replace(journal, at=base + at), outcomes


def _step(
    journal: Journal, kind: int, body: bytes, place: int, outcomes: dict[int, int | None]
) -> Journal:
    match kind:
        case 1:  # KEPT
            number, _, may_be_sent = _KEPT.unpack_from(body)
            return replace(
                journal,
                next_number=number + 1,
                sent_number=number + 1 if may_be_sent else journal.sent_number,
                done_at=journal.done_at if journal.pending else place,
            )
        case 2:  # SENT
            return replace(journal, sent_number=max(journal.sent_number, _TWO.unpack(body)[1] + 1))
        case 3:  # TAKEN
            number, index = _TWO.unpack(body)
            outcomes[number] = index
            next_idx = max(journal.next_idx, index + 1)
            return replace(journal, done_number=number + 1, next_idx=next_idx)
        case 4:  # REFUSED
            (number,) = _ONE.unpack(body)
            outcomes[number] = None
            return replace(journal, done_number=number + 1)
        case 5:  # LOG
            log_id, next_idx = _LOG.unpack(body)
            next_idx = max(journal.next_idx, next_idx)
            return replace(journal, log_id=UUID(bytes=log_id), next_idx=next_idx)
        case _:
            msg = f"the journal holds a record of the unknown kind {kind}"
            raise NewerFormat(msg, hint="flush it with the software that wrote it")


def _any_whole(data: bytes, at: int) -> bool:
    """Whether a whole record begins anywhere from a place on."""
    return any(
        data[start + 8] in {KEPT, SENT, TAKEN, REFUSED, LOG} and _whole(data, start) is not None
        for start in range(at, len(data) - HEAD_BYTES)
    )


def entry_at(data: bytes, at: int) -> tuple[Entry | None, int] | None:
    """Return the event at a place, None in its stead for another record, and the next place.

    Returns:
        None where no whole record begins there.
    """
    found = _whole(data, at)
    if found is None:
        return None
    kind, start, end = found
    if kind != KEPT:
        return None, end
    number, put_at, _ = _KEPT.unpack_from(data, start)
    return Entry(number, put_at, decode_event(data[start + _KEPT.size : end])), end
