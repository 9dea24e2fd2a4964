"""Snapshots: the fold of a log up to an index, and rows of tables, as one Avro container file.

The parts, each a block of its own: header, subjects …, window, seal, rows …, seal. A seal holds the
BLAKE3 hash of every byte of the file before it, so who needs no rows reads up to the first one and
has checked all that it read. The schema is `avro/snapshot-1.avsc`: columns in place of one record
a subject, since a start has to be many times faster than folding the log. Blocks are not
compressed: the ids and hashes that fill them hardly shrink, and unpacking would cost more than
reading.

Equal folds, rows and times give equal bytes. Memory is bounded by one part, beside what the caller
holds.

Source: Avro 1.12 specification, "Object Container Files".
"""

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate, chain
from typing import Any, BinaryIO, Final, Literal, TypeVar, cast
from uuid import UUID

import fastavro
import msgspec
from blake3 import blake3
from msgspec import Struct

from belog.schemas.envelope import avro_schema, write_varint
from belog.schemas.errors import Corrupt, NewerFormat
from belog.schemas.fold import Fold, SubjectState
from belog.schemas.lifecycle import KINDS, LIFECYCLES, SubjectKind
from belog.schemas.merkle import MerkleRange

__all__ = ["FORMAT_VERSION", "PART_BYTES", "RowBlock", "SnapshotHeader", "SnapshotReader"]

FORMAT_VERSION: Final = 1

PART_BYTES: Final = 1_000_000
"""Size at which a part ends, bytes: large enough that its framing costs nothing."""

PART_BYTES_MAX: Final = 64_000_000
"""Most bytes that are read at once: a part and its last item, which is an event's size at most.
A damaged length must not ask for all memory."""

RECENT_BYTES: Final = 24
"""One remembered event of a subject: its id and its index."""
ID_BYTES: Final = 16
_HASH_BYTES: Final = 32
SCHEMA: Final = avro_schema("snapshot", 1).parsed
HEADER_PART, SUBJECTS_PART, WINDOW_PART, ROWS_PART, SEAL_PART = (
    f"belog.v1.Snapshot{name}" for name in ("Header", "Subjects", "Window", "Rows", "Seal")
)
_SEAL_BRANCH: Final = 4
Part = tuple[str, dict[str, Any]]
T = TypeVar("T")


class SnapshotHeader(Struct, frozen=True, kw_only=True):
    """What a snapshot is of."""

    format_version: int = FORMAT_VERSION
    log_id: bytes
    """UUID, 16 bytes."""
    is_replica: bool
    lifecycle_version: int
    next_position: int
    """Position of the first record that is not in it."""
    next_idx: int
    """Index of the first event that is not in it."""
    last_accepted: int
    created_at: int
    """Ingest time of the last accepted event, microseconds since the epoch, UTC."""
    merkle_size: int
    """Accepted events."""
    merkle_peaks: bytes
    root: bytes
    """Merkle root over the accepted events, 32 bytes."""
    taken_at: int
    """By the taker's clock, microseconds since the epoch, UTC."""
    subject_count: int
    window_count: int
    rows_version: int = 0
    """Version of the table rows, 0 where there are none."""
    row_count: int = 0


class RowBlock(Struct, frozen=True):
    """Some rows of one table, as whoever keeps tables encodes them."""

    kind: str
    count: int
    rows: bytes


_Code = Literal["i", "q"]
"""Signed integers of 32 and of 64 bits."""


def _unpacked(code: _Code, data: bytes) -> "array[int]":
    numbers: array[int] = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


class _HashingReader:
    """Hashes what was read, but for what came since the last `accept`."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hash = blake3()
        self._pending: list[bytes] = []

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= PART_BYTES_MAX:
            msg = f"a part of {size} bytes cannot be"
            raise Corrupt(msg)
        data = self._stream.read(size)
        self._pending.append(data)
        return data

    def tell(self) -> int:
        return self._stream.tell()

    def pending(self) -> bytes:
        return b"".join(self._pending)

    def accept(self) -> None:
        for data in self._pending:
            self._hash.update(data)
        self._pending.clear()

    def digest(self) -> bytes:
        return self._hash.digest()


class SnapshotReader:
    """Reads a snapshot, part by part. Not thread-safe.

    `fold` first, then `rows` if they are wanted. What these return has been checked by the file's
    digest; the header alone has not.

    Attributes:
        header: What the snapshot is of.
        digest: The content digest, 32 bytes, once `rows` was read to its end; empty before.
    """

    def __init__(self, stream: BinaryIO) -> None:
        """Read the header.

        Args:
            stream: A file opened for reading, at its beginning; the caller's to close.

        Raises:
            Corrupt: It is no snapshot, or the beginning is damaged.
            NewerFormat: It was written by newer software.
        """
        self.digest = b""
        self._source = _HashingReader(stream)
        self._blocks = iter(self._open())
        name, fields = self._next()
        version = fields.get("format_version")
        if name == HEADER_PART and isinstance(version, int) and version > FORMAT_VERSION:
            msg = f"the snapshot has format version {version}, known is {FORMAT_VERSION}"
            raise NewerFormat(msg, hint="rebuild from the log, or use a newer belog")
        if name != HEADER_PART or version != FORMAT_VERSION:
            raise Corrupt("the file is no snapshot")
        self.header = _decoded(lambda: msgspec.convert(fields, SnapshotHeader, strict=False))
        self._check_header()

    def _open(self) -> Iterable[Any]:
        return _decoded(
            lambda: cast(
                "Iterable[Any]",
                fastavro.block_reader(  # pyright: ignore[reportUnknownMemberType]
                    cast("BinaryIO", self._source), return_record_name=True
                ),
            )
        )

    def _next(self) -> Part:
        """Return the next part; unless it is a seal, its bytes are hashed."""
        block = _decoded(lambda: next(self._blocks, None))
        if block is None:
            raise Corrupt("the snapshot is cut off")
        parts = _decoded(lambda: cast("list[Part]", list(block)))
        if len(parts) != 1:
            raise Corrupt("a block of the snapshot holds not one part")
        name, fields = parts[0]
        if name != SEAL_PART:
            self._source.accept()
        return name, fields

    def _check_header(self) -> None:
        header = self.header
        if header.lifecycle_version not in LIFECYCLES:
            msg = f"the snapshot is of lifecycle version {header.lifecycle_version}"
            raise NewerFormat(msg, hint="read this log with a newer belog")

    def _check_seal(self, fields: Mapping[str, Any]) -> bytes:
        digest = self._source.digest()
        expected = b"\x02\x42" + write_varint(_SEAL_BRANCH) + digest
        # The block as it must be, byte for byte, and the container's mark after it.
        if fields["digest"] != digest or self._source.pending()[:-ID_BYTES] != expected:
            raise Corrupt("the snapshot is damaged: its digest is another")
        self._source.accept()
        return digest

    def fold(self, *, keeps_root: bool = True) -> Fold:
        """Return the fold; it goes on as if it had never stopped.

        Args:
            keeps_root: Whether the fold goes on keeping the Merkle range.

        Raises:
            Corrupt: The snapshot is damaged or cut off.
        """
        header = self.header
        fold = Fold(keeps_root=keeps_root)
        window: list[tuple[bytes, int]] = []
        while True:
            name, fields = self._next()
            if name == SUBJECTS_PART:
                _decoded(partial(_add_subjects, fold, fields))
            elif name == WINDOW_PART:
                window += _decoded(partial(_window_of, fields))
            elif name == SEAL_PART:
                break
            else:
                raise Corrupt("the snapshot's parts are out of order")
        _decoded(lambda: self._check_seal(fields))
        if (sum(map(len, fold.subjects.values())), len(window)) != (
            header.subject_count,
            header.window_count,
        ):
            raise Corrupt("the snapshot holds other counts than its header says")
        _decoded(lambda: _set_header(fold, header))
        fold.restore_window(window)
        return fold

    def rows(self) -> Iterator[RowBlock]:
        """Yield the blocks of rows; call after `fold`. Checked only once the last one was taken.

        Raises:
            Corrupt: The snapshot is damaged or cut off; forget the blocks that were given.
        """
        count = 0
        while True:
            name, fields = self._next()
            if name == SEAL_PART:
                break
            if name != ROWS_PART:
                raise Corrupt("the snapshot's parts are out of order")
            block = _decoded(partial(msgspec.convert, fields, RowBlock))
            count += block.count
            yield block
        digest = _decoded(lambda: self._check_seal(fields))
        if count != self.header.row_count:
            raise Corrupt("the snapshot holds another number of rows than its header says")
        if self._source.read(1):
            raise Corrupt("the snapshot goes on after its end")
        self.digest = digest


def _decoded(decode: Callable[[], T]) -> T:
    try:
        return decode()
    except (Corrupt, OSError):
        raise
    except Exception as error:  # whatever damaged bytes lead the decoders into
        msg = f"the snapshot is damaged: {error!r:.200}"
        raise Corrupt(msg) from error


def _add_subjects(fold: Fold, fields: Mapping[str, Any]) -> None:
    kind: SubjectKind = fields["kind"]
    if kind not in KINDS:
        msg = f"there is no subject kind {kind!r}"
        raise Corrupt(msg)
    states = map(fields["states"].__getitem__, fields["state_at"])
    owners = map([None, *fields["owners"]].__getitem__, _unpacked("i", fields["owner_at"]))
    ends = [*accumulate(map(RECENT_BYTES.__mul__, fields["recent_counts"]))]
    recent: bytes = fields["recent"]
    recents = [recent[a:b] for a, b in zip(chain((0,), ends), ends, strict=False)]
    made = map(SubjectState, states, _unpacked("q", fields["indices"]), owners, recents)
    table = fold.subjects[kind]
    before = len(table)
    table.update(zip(fields["ids"].split("\n"), made, strict=True))
    if len(table) - before != fields["count"] or (ends and ends[-1] != len(recent)):
        raise Corrupt("a part of the snapshot holds another count than it says")


def _window_of(fields: Mapping[str, Any]) -> list[tuple[bytes, int]]:
    ids: bytes = fields["ids"]
    starts = range(0, len(ids), ID_BYTES)
    events = [ids[at : at + ID_BYTES] for at in starts]
    return list(zip(events, _unpacked("q", fields["indices"]), strict=True))


def _set_header(fold: Fold, header: SnapshotHeader) -> None:
    peaks = header.merkle_peaks
    fold.log_id = UUID(bytes=header.log_id)
    fold.is_replica = header.is_replica
    fold.lifecycle = LIFECYCLES[header.lifecycle_version]
    fold.next_position = header.next_position
    fold.next_idx = header.next_idx
    fold.last_accepted = header.last_accepted
    fold.created_at = header.created_at
    fold.merkle = MerkleRange(
        header.merkle_size,
        [peaks[at : at + _HASH_BYTES] for at in range(0, len(peaks), _HASH_BYTES)],
    )
    if fold.merkle.root() != header.root:
        raise Corrupt("the snapshot's root is not that of its Merkle range")
