"""Snapshots with the rows of the tables: taken of a `TableFold`, and tables started from them.

Rows are MessagePack, an array of maps by field name for each block. Their version is that of the
tables (`TABLE_SCHEMA_VERSION`): a program that makes other rows from the same log does not read
them, and makes its tables from the log anew.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Final, cast

import msgspec
from msgspec import Struct

from belog.processors.rows import ROW_TYPES, Row, RowKind
from belog.processors.table_fold import TABLE_SCHEMA_VERSION, TableFold
from belog.schemas.errors import Corrupt, NewerFormat, Unsupported
from belog.schemas.snapshot import (
    PART_BYTES,
    RowBlock,
    SnapshotHeader,
    SnapshotReader,
)
from belog.schemas.snapshot_writer import FoldImage, image_of, write_snapshot
from belog.storage.interface import EventLog, LogIdentity
from belog.storage.snapshots import SnapshotFile, SnapshotStore, checked_against

__all__ = [
    "TablesImage",
    "TakenSnapshot",
    "image_of_tables",
    "read_tables",
    "restore_tables",
    "save_tables",
]

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODERS: Final[Mapping[RowKind, Any]] = {
    kind: msgspec.msgpack.Decoder(list[cls])  # type: ignore[valid-type]
    for kind, cls in ROW_TYPES.items()
}


class TablesImage(Struct, frozen=True):
    """A `TableFold` at one moment; it may go on while this is written."""

    fold: FoldImage
    rows: Mapping[RowKind, Sequence[Row]]

    @property
    def row_count(self) -> int:
        """Rows of all tables."""
        return sum(map(len, self.rows.values()))


class TakenSnapshot(Struct, frozen=True):
    """A snapshot that is on disk."""

    file: SnapshotFile
    header: SnapshotHeader
    digest: bytes
    """Content digest, 32 bytes."""


def image_of_tables(tables: TableFold) -> TablesImage:
    """Return tables as they are now. Copies references only.

    Raises:
        ValueError: The fold keeps no root, or is of no log yet.
    """
    rows: dict[RowKind, Sequence[Row]] = {
        kind: list(tables.rows_of(kind).values()) for kind in ROW_TYPES
    }
    return TablesImage(image_of(tables.fold), rows)


def save_tables(store: SnapshotStore, image: TablesImage, *, taken_at: int) -> TakenSnapshot:
    """Take a snapshot. Durable on return; the log is not told (`v1.system.snapshot_taken`).

    Args:
        store: Where to keep it.
        image: The tables.
        taken_at: Microseconds since the epoch, UTC.

    Raises:
        Unavailable: It cannot be written; nothing changed.
    """

    def write(stream: BinaryIO) -> tuple[SnapshotHeader, bytes]:
        return write_snapshot(
            stream,
            image.fold,
            _blocks(image.rows),
            taken_at=taken_at,
            rows_version=TABLE_SCHEMA_VERSION,
            row_count=image.row_count,
        )

    fold = image.fold
    file, (header, digest) = store.save(
        fold.log_id, fold.next_idx, write, is_replica=fold.is_replica
    )
    return TakenSnapshot(file, header, digest)


def _blocks(tables: Mapping[RowKind, Sequence[Row]]) -> Iterator[RowBlock]:
    for kind, rows in tables.items():
        encoded: list[bytes] = []
        size = 0
        for row in rows:
            data = _ENCODER.encode(row)
            encoded.append(data)
            size += len(data)
            if size >= PART_BYTES:
                yield _block(kind, encoded)
                encoded, size = [], 0
        if encoded:
            yield _block(kind, encoded)


def _block(kind: RowKind, encoded: Sequence[bytes]) -> RowBlock:
    count = len(encoded)
    # MessagePack's array with a count of 32 bits, around what is encoded already.
    return RowBlock(kind, count, b"\xdd" + count.to_bytes(4, "big") + b"".join(encoded))


def read_tables(reader: SnapshotReader, *, keeps_root: bool = True) -> TableFold:
    """Return the fold of a snapshot with its rows, all checked.

    Raises:
        Corrupt: The snapshot is damaged.
        NewerFormat: Its rows were made by newer software.
        Unsupported: It holds no rows, or those of older software.
    """
    version = reader.header.rows_version
    if version != TABLE_SCHEMA_VERSION:
        what = f"table rows of version {version}" if version else "no table rows"
        msg = f"the snapshot holds {what}, and version {TABLE_SCHEMA_VERSION} is wanted"
        kind = NewerFormat if version > TABLE_SCHEMA_VERSION else Unsupported
        raise kind(msg, hint="the tables are made from the log; then take a new snapshot")
    fold = reader.fold(keeps_root=keeps_root)
    rows: list[Row] = []
    for block in reader.rows():
        rows += _decoded(block)
    return TableFold(fold, rows)


def _decoded(block: RowBlock) -> list[Row]:
    decoder = _DECODERS.get(cast("RowKind", block.kind))
    if decoder is None:
        msg = f"there are no rows of kind {block.kind!r}"
        raise Corrupt(msg)
    try:
        rows = cast("list[Row]", decoder.decode(block.rows))
    except msgspec.MsgspecError as error:
        msg = f"rows of the snapshot cannot be read: {error}"
        raise Corrupt(msg) from error
    if len(rows) != block.count:
        msg = f"a part of the snapshot holds {len(rows)} rows, not {block.count}"
        raise Corrupt(msg)
    return rows


def restore_tables(
    log: EventLog,
    identity: LogIdentity,
    store: SnapshotStore,
    *,
    keeps_root: bool = True,
    next_idx_max: int | None = None,
    created_us_max: int | None = None,
    oldest_from: int | None = None,
) -> tuple[SnapshotFile, TableFold] | None:
    """Return the newest snapshot of a log with its tables, to go on from; None for none.

    Args:
        log: Initialized.
        identity: What opening it said.
        store: Where its snapshots are.
        keeps_root: As for `Fold`.
        next_idx_max: As for `SnapshotStore.newest_valid`.
        created_us_max: As there.
        oldest_from: As there.

    Raises:
        Unavailable: The folder or the log cannot be read.
    """

    def read(reader: SnapshotReader) -> TableFold:
        tables = read_tables(reader, keeps_root=keeps_root)
        checked_against(log, tables.fold)
        return tables

    return store.newest_valid(
        identity.log_id,
        read,
        is_replica=identity.is_replica,
        next_idx_max=next_idx_max,
        created_us_max=created_us_max,
        oldest_from=oldest_from,
    )
