"""The bytes of a file log: pure, no I/O. All integers are little endian.

A log is a folder::

    00000000000000000000.seg    a segment: header, then records; named for the lowest index in it
    00000000000000000000.idx    its sparse index; may be missing, is made again
    end                         how far the log is durable: what readers of other processes go by
    lock                        held (flock) by the writing process; holds its pid as text

Segment header (`HEADER`, then the name, then the checksum)::

    0   8  magic  "BELOGSEG"
    8   2  format version, 1
    10  2  flags: bit 0 the log is a replica
    12  4  length of the whole header, bytes
    16  16 log_id
    32  8  first index that the segment may hold
    40  8  first index of the segment before, 2^64 - 1 for none
    48  8  length of the segment before, bytes, 0 for none
    56  2  length of the instance's name, bytes
    58  n  the instance's name, UTF-8
    ..  4  CRC-32 of everything before

In every version the first 16 bytes mean this, and the header ends with its CRC-32.

Record (`HEAD`, then the value)::

    0   4  CRC-32 of all that follows, value included
    4   4  bits 0-29 length of the value, bytes; bit 30: a filler, see below; bit 31: the next
           record belongs to the same batch
    8   4  distance to the start of the group that was synced in one piece, bytes
    12  8  index
    20  8  created_at, microseconds since the epoch, signed
    28  n  value

A filler stands in a closed segment where a vacuum removed records: the index and time of the last
of them, and zeros to where that one ended. Readers pass over it.

A batch whose last record (bit 31 clear) is missing was never acknowledged and is cut off whole, so
batches are all or none. The distance tells a torn tail from damage: a group is written only after
the one before it was synced. So if what follows a flaw belongs to a group that began after the
flaw, the flaw was durable once and is damage; otherwise all of it is one group that was cut short.

Sparse index (`INDEX_ENTRY`, repeated): index 8, offset 8, CRC-32 of both 4. `end` (`END`): log_id
16, first index of the newest segment 8, durable length of that segment 8, next index 8, CRC-32 4.

CRC-32 is that of zlib (IEEE 802.3): it finds every error burst of up to 32 bits, the standard
library has it in C, and it is there to find damage, not forgery (payloads carry BLAKE3 digests).
"""

from collections.abc import Iterator, Sequence
from struct import Struct as Layout
from typing import Final
from uuid import UUID
from zlib import crc32

from msgspec import Struct

from belog.schemas.errors import Corrupt, NewerFormat
from belog.schemas.fold import Record

__all__ = [
    "END_BYTES",
    "HEADER_BYTES_MAX",
    "HEAD_BYTES",
    "INSTANCE_BYTES_MAX",
    "RECORD_BYTES_MAX",
    "VALUE_BYTES_MAX",
    "EndMark",
    "Frame",
    "IndexEntry",
    "SegmentHeader",
    "Tail",
    "Walk",
    "decode_end",
    "decode_header",
    "decode_index",
    "encode_end",
    "encode_filler",
    "encode_header",
    "encode_index_entry",
    "encode_records",
    "find_tail",
    "frames",
    "walk",
]

FORMAT_VERSION: Final = 1
MAGIC: Final = b"BELOGSEG"
NO_SEGMENT: Final = 2**64 - 1

HEADER: Final = Layout("<8sHHI16sQQQH")
HEAD: Final = Layout("<IIIQq")
INDEX_ENTRY: Final = Layout("<QQI")
END: Final = Layout("<16sQQQI")
_CRC: Final = Layout("<I")
_REPLICA: Final = 1
_MORE: Final = 1 << 31
_FILLER: Final = 1 << 30
_LENGTH: Final = _FILLER - 1
_HEAD_REST: Final = Layout("<IIQq")

END_BYTES: Final = END.size
HEAD_BYTES: Final = HEAD.size
INSTANCE_BYTES_MAX: Final = 1_024
"""Name of the creating instance, bytes of UTF-8: four times an actor, which it may be named for."""
HEADER_BYTES_MAX: Final = HEADER.size + INSTANCE_BYTES_MAX + _CRC.size
VALUE_BYTES_MAX: Final = 2 * 1024 * 1024
"""One record value, bytes: above Kafka's default limit of a message (1,048,588), so that any
record of such a topic can be migrated; a length over it is damage."""
RECORD_BYTES_MAX: Final = HEAD.size + VALUE_BYTES_MAX


class SegmentHeader(Struct, frozen=True):
    """What the first bytes of a segment say."""

    log_id: UUID
    instance: str
    is_replica: bool
    first_index: int
    previous_first_index: int | None
    previous_bytes: int


class IndexEntry(Struct, frozen=True):
    """Where in its segment a record starts."""

    index: int
    """The lowest that the record at `offset` may have: one above that of the record before."""
    offset: int


class EndMark(Struct, frozen=True):
    """How far a log is durable."""

    log_id: UUID
    segment: int
    """First index of the newest segment."""
    offset: int
    """Its durable length, bytes."""
    next_idx: int


class Walk(Struct, frozen=True):
    """What a run through records found."""

    records: list[Record]
    at: int
    """Position in the block after the last whole record."""
    after: int
    """Index of that record."""
    flaw: str
    """Why the record at `at` is not one; empty where the block ends before it does."""


class Frame(Struct, frozen=True):
    """Where a record or a filler stands."""

    start: int
    end: int
    index: int
    created_at: int
    is_filler: bool


class Tail(Struct, frozen=True):
    """Where the records of a segment end."""

    end: int
    """Position after the last whole batch."""
    last: Record | None
    """The last record of that batch; None where there was no batch."""
    flaw: str
    """Why it does not go on; empty where nothing follows."""
    is_damage: bool
    """Whether what follows was durable once."""


def encode_header(header: SegmentHeader) -> bytes:
    """Return the first bytes of a segment."""
    name = header.instance.encode()
    previous = header.previous_first_index
    head = HEADER.pack(
        MAGIC,
        FORMAT_VERSION,
        _REPLICA if header.is_replica else 0,
        HEADER.size + len(name) + _CRC.size,
        header.log_id.bytes,
        header.first_index,
        NO_SEGMENT if previous is None else previous,
        header.previous_bytes,
        len(name),
    )
    return head + name + _CRC.pack(crc32(head + name))


def decode_header(data: bytes) -> tuple[SegmentHeader, int]:
    """Read the first bytes of a segment.

    Returns:
        The header, and its length in bytes.

    Raises:
        Corrupt: Cut off, or not what was written.
        NewerFormat: Whole, and of a newer version.
    """
    if len(data) < HEADER.size:
        msg = "the header of the segment is cut off"
        raise Corrupt(msg)
    magic, version, flags, size, log_id, first, previous, previous_bytes, name_bytes = (
        HEADER.unpack_from(data)
    )
    body = data[: size - _CRC.size] if HEADER.size < size <= len(data) else b""
    if magic != MAGIC or not body or _CRC.pack(crc32(body)) != data[size - _CRC.size : size]:
        msg = "the header of the segment is damaged"
        raise Corrupt(msg)
    if version > FORMAT_VERSION:
        msg = f"the segment has format version {version}, known is {FORMAT_VERSION}"
        raise NewerFormat(msg, hint="open it with a newer belog")
    name = body[HEADER.size : HEADER.size + name_bytes].decode()
    header = SegmentHeader(
        UUID(bytes=log_id),
        name,
        bool(flags & _REPLICA),
        first,
        None if previous == NO_SEGMENT else previous,
        previous_bytes,
    )
    return header, size


def encode_records(records: Sequence[tuple[int, int, bytes]], group_bytes: int) -> list[bytes]:
    """Return one batch as pieces to be joined: a head and a value for each record.

    Args:
        records: Index, created_at and value of each.
        group_bytes: Length of what stands before the batch in its group.
    """
    pieces: list[bytes] = []
    back = group_bytes
    last = len(records) - 1
    for n, (index, created_at, value) in enumerate(records):
        length = len(value)
        rest = _HEAD_REST.pack(length if n == last else length | _MORE, back, index, created_at)
        pieces.append(_CRC.pack(crc32(value, crc32(rest))) + rest)
        pieces.append(value)
        back += HEAD.size + length
    return pieces


def walk(block: bytes, at: int, since: int, limit: int, after: int) -> Walk:
    """Read whole records from a position of a block on.

    Args:
        block: Bytes of a segment.
        at: Where a record starts.
        since: Records of lower indices are passed over.
        limit: Most records to return.
        after: What the first record's index has to be above, -1 for nothing. Indices may skip.
    """
    records: list[Record] = []
    view = memoryview(block)
    size = len(block)
    unpack, head = HEAD.unpack_from, HEAD.size
    flaw = ""
    while len(records) < limit and at + head <= size:
        crc, word, _, index, created_at = unpack(block, at)
        end = at + head + (word & _LENGTH)
        if end > size:
            flaw = "its length is impossible" if end - at > RECORD_BYTES_MAX else ""
            break
        if crc32(view[at + 4 : end]) != crc:
            flaw = "its checksum is wrong"
            break
        if index <= after:
            flaw = f"its index is {index} after {after}"
            break
        if index >= since and not word & _FILLER:
            records.append(Record(index, created_at, block[at + head : end]))
        after = index
        at = end
    return Walk(records, at, after, flaw)


def frames(data: bytes, at: int) -> Iterator[Frame]:
    """Yield where each record and filler of a closed segment stands, from an offset to its end.

    Raises:
        Corrupt: What is there is not what was written.
    """
    view = memoryview(data)
    while at < len(data):
        if at + HEAD.size > len(data):
            msg = f"the segment is cut off at offset {at}"
            raise Corrupt(msg)
        crc, word, _, index, created_at = HEAD.unpack_from(data, at)
        end = at + HEAD.size + (word & _LENGTH)
        if end > len(data) or crc32(view[at + 4 : end]) != crc:
            msg = f"the segment is damaged at offset {at}"
            raise Corrupt(msg)
        yield Frame(at, end, index, created_at, bool(word & _FILLER))
        at = end


def encode_filler(index: int, created_at: int, size: int) -> bytes:
    """Return the head of a filler; zeros follow it.

    Args:
        index: That of the last record it stands for.
        created_at: That record's, too.
        size: Its whole length, bytes.
    """
    length = size - HEAD.size
    rest = _HEAD_REST.pack(length | _FILLER, 0, index, created_at)
    return _CRC.pack(crc32(bytes(length), crc32(rest))) + rest


def find_tail(block: bytes, at: int, after: int) -> Tail:
    """Find where the records of a segment end, and what kind of end it is.

    Args:
        block: The segment's last bytes.
        at: Where a batch starts.
        after: What the first record's index has to be above, -1 for nothing.
    """
    end, last = at, None
    size = len(block)
    flaw = ""
    while at < size:
        found = walk(block, at, 0, 1, after)
        if not found.records:
            flaw = found.flaw or "it is cut off"
            break
        after = found.records[0].position
        (word,) = _CRC.unpack_from(block, at + 4)
        at = found.at
        if not word & _MORE:
            end, last = at, found.records[0]
    if end < size and not flaw:
        flaw = "its batch is cut off"
    return Tail(end, last, flaw, bool(flaw) and _durable_after(block, at))


def _durable_after(block: bytes, flaw_at: int) -> bool:
    """Whether a record after a flaw belongs to a group that began after the flaw."""
    at = flaw_at + 1
    size = len(block)
    view = memoryview(block)
    while at + HEAD.size < size:
        crc, word, back, _, _ = HEAD.unpack_from(block, at)
        end = at + HEAD.size + (word & _LENGTH)
        # Lengths first: nearly every position that is no record fails there, without a checksum.
        if end <= size and word & _LENGTH <= VALUE_BYTES_MAX and crc32(view[at + 4 : end]) == crc:
            if at - back > flaw_at:
                return True
            at = end
        else:
            at += 1
    return False


def encode_index_entry(entry: IndexEntry) -> bytes:
    """Return one entry of a sparse index."""
    data = INDEX_ENTRY.pack(entry.index, entry.offset, 0)[:16]
    return data + _CRC.pack(crc32(data))


def decode_index(data: bytes) -> list[IndexEntry]:
    """Return the entries of a sparse index up to the first that is not whole."""
    entries: list[IndexEntry] = []
    for at in range(0, len(data) - INDEX_ENTRY.size + 1, INDEX_ENTRY.size):
        index, offset, crc = INDEX_ENTRY.unpack_from(data, at)
        if crc32(data[at : at + 16]) != crc:
            break
        if entries and (index <= entries[-1].index or offset <= entries[-1].offset):
            break
        entries.append(IndexEntry(index, offset))
    return entries


def encode_end(mark: EndMark) -> bytes:
    """Return the content of `end`."""
    data = END.pack(mark.log_id.bytes, mark.segment, mark.offset, mark.next_idx, 0)[:-4]
    return data + _CRC.pack(crc32(data))


def decode_end(data: bytes) -> EndMark | None:
    """Read `end`; None where it is not whole."""
    if len(data) != END.size or _CRC.pack(crc32(data[:-4])) != data[-4:]:
        return None
    log_id, segment, offset, next_idx, _ = END.unpack(data)
    return EndMark(UUID(bytes=log_id), segment, offset, next_idx)
