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

__all__ = [
    "FORMAT_VERSION",
    "FoldImage",
    "RowBlock",
    "SnapshotHeader",
    "SnapshotReader",
    "image_of",
    "write_snapshot",
]

FORMAT_VERSION: Final = 1

PART_BYTES: Final = 1_000_000
"""Size at which a part ends, bytes: large enough that its framing costs nothing."""

PART_BYTES_MAX: Final = 64_000_000
"""Most bytes that are read at once: a part and its last item, which is an event's size at most.
A damaged length must not ask for all memory."""

SUBJECT_BYTES: Final = 120
"""What a subject takes beside its id and owner, bytes, at most."""

_RECENT_BYTES: Final = 24
_HASH_BYTES: Final = 32
_ID_BYTES: Final = 16
_SCHEMA: Final = avro_schema("snapshot", 1).parsed
_HEADER, _SUBJECTS, _WINDOW, _ROWS, _SEAL = (
    f"belog.v1.Snapshot{name}" for name in ("Header", "Subjects", "Window", "Rows", "Seal")
)
_SEAL_BRANCH: Final = 4
_Part = tuple[str, dict[str, Any]]
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


class FoldImage(Struct, frozen=True):
    """A fold at one moment; the fold may go on while this is written."""

    log_id: UUID
    is_replica: bool
    lifecycle_version: int
    next_position: int
    next_idx: int
    last_accepted: int
    created_at: int
    merkle: MerkleRange
    subjects: Mapping[SubjectKind, Mapping[str, SubjectState]]
    window: list[tuple[bytes, int]]


class RowBlock(Struct, frozen=True):
    """Some rows of one table, as whoever keeps tables encodes them."""

    kind: str
    count: int
    rows: bytes


def image_of(fold: Fold) -> FoldImage:
    """Return a fold as it is now. Copies references, about 50 ms for a million subjects.

    Args:
        fold: With its Merkle range kept, of a log that has its first event.

    Raises:
        ValueError: It is of no log yet, or keeps no root.
    """
    if fold.log_id is None or not fold.keeps_root:
        msg = "a snapshot is made of a fold that is of a log and keeps its root"
        raise ValueError(msg)
    return FoldImage(
        fold.log_id,
        fold.is_replica,
        fold.lifecycle.version,
        fold.next_position,
        fold.next_idx,
        fold.last_accepted,
        fold.created_at,
        fold.merkle.copy(),
        {kind: dict(table) for kind, table in fold.subjects.items()},
        fold.window(),
    )


# --- writing


class _HashingWriter:
    """Passes bytes on and hashes them."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hash = blake3()

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return self._stream.write(data)

    def flush(self) -> None:
        """Nothing is held back here."""

    def seekable(self) -> bool:
        return False

    def digest(self) -> bytes:
        return self._hash.digest()


def write_snapshot(
    stream: BinaryIO,
    image: FoldImage,
    rows: Iterable[RowBlock] = (),
    *,
    taken_at: int,
    rows_version: int = 0,
    row_count: int = 0,
) -> tuple[SnapshotHeader, bytes]:
    """Write a snapshot; flushing and syncing is the caller's.

    Args:
        stream: Where to, at its beginning.
        image: The fold.
        rows: Table rows as of the same moment, in blocks of about `PART_BYTES`.
        taken_at: Microseconds since the epoch, UTC.
        rows_version: The rows' version, from 1; 0 for no rows.
        row_count: How many rows all blocks hold.

    Returns:
        The header, and the content digest: that of the last seal.
    """
    header = SnapshotHeader(
        log_id=image.log_id.bytes,
        is_replica=image.is_replica,
        lifecycle_version=image.lifecycle_version,
        next_position=image.next_position,
        next_idx=image.next_idx,
        last_accepted=image.last_accepted,
        created_at=image.created_at,
        merkle_size=image.merkle.size,
        merkle_peaks=b"".join(image.merkle.peaks),
        root=image.merkle.root(),
        taken_at=taken_at,
        subject_count=sum(map(len, image.subjects.values())),
        window_count=len(image.window),
        rows_version=rows_version,
        row_count=row_count,
    )
    fields = msgspec.structs.asdict(header)
    out = _HashingWriter(stream)
    seals: list[bytes] = []

    def seal() -> Iterator[_Part]:
        # Asked for when all blocks before are written.
        seals.append(out.digest())
        yield _SEAL, {"digest": seals[-1]}

    parts = chain([(_HEADER, fields)], _state_parts(image), seal(), map(_row_part, rows), seal())
    fastavro.writer(  # pyright: ignore[reportUnknownMemberType] - untyped
        cast("BinaryIO", out),
        _SCHEMA,
        parts,
        codec="null",
        # Every part is longer than that, so each becomes a block of its own.
        sync_interval=1,
        sync_marker=blake3(msgspec.msgpack.encode(header)).digest(_ID_BYTES),
    )
    return header, seals[-1]


def _row_part(block: RowBlock) -> _Part:
    return _ROWS, {"kind": block.kind, "count": block.count, "rows": block.rows}


def _state_parts(image: FoldImage) -> Iterator[_Part]:
    for kind, table in image.subjects.items():
        ids: list[str] = []
        states: list[SubjectState] = []
        size = 0
        for subject_id, state in table.items():
            ids.append(subject_id)
            states.append(state)
            size += len(subject_id) + len(state.owner or "") + SUBJECT_BYTES
            if size >= PART_BYTES:
                yield _subjects_part(kind, ids, states)
                ids, states, size = [], [], 0
        if ids:
            yield _subjects_part(kind, ids, states)
    if image.window:
        ids_of_events, indices = zip(*image.window, strict=True)
        yield (
            _WINDOW,
            {
                "count": len(indices),
                "ids": b"".join(ids_of_events),
                "indices": _packed("q", indices),
            },
        )


def _subjects_part(kind: SubjectKind, ids: list[str], states: list[SubjectState]) -> _Part:
    names: dict[str, int] = {}
    owners: dict[str | None, int] = {None: 0}
    state_at = bytes([names.setdefault(s.state, len(names)) for s in states])
    owner_at = [owners.setdefault(s.owner, len(owners)) for s in states]
    fields = {
        "kind": kind,
        "count": len(ids),
        "ids": "\n".join(ids),
        "states": list(names),
        "state_at": state_at,
        "owners": list(owners)[1:],
        "owner_at": _packed("i", owner_at),
        "indices": _packed("q", [s.index for s in states]),
        "recent_counts": bytes([len(s.recent) // _RECENT_BYTES for s in states]),
        "recent": b"".join([s.recent for s in states]),
    }
    return _SUBJECTS, fields


_Code = Literal["i", "q"]
"""Signed integers of 32 and of 64 bits."""


def _packed(code: _Code, numbers: Iterable[int]) -> bytes:
    packed: array[int] = array(code, numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _unpacked(code: _Code, data: bytes) -> "array[int]":
    numbers: array[int] = array(code)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


# --- reading


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
        if name == _HEADER and isinstance(version, int) and version > FORMAT_VERSION:
            msg = f"the snapshot has format version {version}, known is {FORMAT_VERSION}"
            raise NewerFormat(msg, hint="rebuild from the log, or use a newer belog")
        if name != _HEADER or version != FORMAT_VERSION:
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

    def _next(self) -> _Part:
        """Return the next part; unless it is a seal, its bytes are hashed."""
        block = _decoded(lambda: next(self._blocks, None))
        if block is None:
            raise Corrupt("the snapshot is cut off")
        parts = _decoded(lambda: cast("list[_Part]", list(block)))
        if len(parts) != 1:
            raise Corrupt("a block of the snapshot holds not one part")
        name, fields = parts[0]
        if name != _SEAL:
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
        if fields["digest"] != digest or self._source.pending()[:-_ID_BYTES] != expected:
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
            if name == _SUBJECTS:
                _decoded(partial(_add_subjects, fold, fields))
            elif name == _WINDOW:
                window += _decoded(partial(_window_of, fields))
            elif name == _SEAL:
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
            if name == _SEAL:
                break
            if name != _ROWS:
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
    ends = [*accumulate(map(_RECENT_BYTES.__mul__, fields["recent_counts"]))]
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
    starts = range(0, len(ids), _ID_BYTES)
    events = [ids[at : at + _ID_BYTES] for at in starts]
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
