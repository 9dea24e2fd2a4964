"""The record of a replica: another log's accepted event with its place there.

Avro single-object encoding like the envelope, of the schema `avro/replica-record-1.avsc`.
"""

from typing import Final

from msgspec import Struct

from belog.schemas.envelope import HEADER_BYTES, avro_schema, read_varint, write_varint
from belog.schemas.errors import Corrupt

__all__ = ["REPLICA_HEADER", "ReplicaEncoder", "ReplicaRecord", "decode_replica", "encode_replica"]

_SCHEMA: Final = avro_schema("replica-record", 1)
REPLICA_HEADER: Final = _SCHEMA.header


class ReplicaRecord(Struct, frozen=True, gc=False):
    """An accepted event of another log, kept as it stands there."""

    origin_log_id: bytes
    """UUID, 16 bytes."""
    origin_index: int
    prev_origin_index: int
    """Index of the accepted event before this one, -1 for none."""
    origin_created_at: int
    envelope: bytes
    """The origin's record value, byte for byte."""


def encode_replica(record: ReplicaRecord) -> bytes:
    """Return the record value that wraps an origin's event."""
    return b"".join(
        (
            REPLICA_HEADER,
            record.origin_log_id,
            write_varint(record.origin_index),
            write_varint(record.prev_origin_index),
            write_varint(record.origin_created_at),
            write_varint(len(record.envelope)),
            record.envelope,
        )
    )


class ReplicaEncoder:
    """Wraps a log's accepted events one after the other, as `encode_replica` does, but faster.

    An event's index is the next one's `prev_origin_index`, and events that were ingested together
    have one time: their encodings are kept. Not thread-safe.
    """

    __slots__ = ("_created_at", "_prev_part", "_start", "_time_part")

    def __init__(self, origin_log_id: bytes, prev_origin_index: int) -> None:
        """Start behind an accepted event, or with -1 at the log's beginning."""
        self._start = REPLICA_HEADER + origin_log_id
        self._prev_part = write_varint(prev_origin_index)
        self._created_at = 0
        self._time_part = write_varint(0)

    def encode(self, origin_index: int, origin_created_at: int, envelope: bytes) -> bytes:
        """Return the record value that wraps the next accepted event."""
        index_part = write_varint(origin_index)
        if origin_created_at != self._created_at:
            self._created_at = origin_created_at
            self._time_part = write_varint(origin_created_at)
        size_part = write_varint(len(envelope))
        value = b"".join(
            (self._start, index_part, self._prev_part, self._time_part, size_part, envelope)
        )
        self._prev_part = index_part
        return value


def decode_replica(value: bytes) -> ReplicaRecord:
    """Read a record value.

    Raises:
        Corrupt: Not a replica record.
    """
    if value[:HEADER_BYTES] != REPLICA_HEADER:
        msg = "record is not one of a replica"
        raise Corrupt(msg)
    try:
        origin_index, at = read_varint(value, HEADER_BYTES + 16)
        prev_origin_index, at = read_varint(value, at)
        origin_created_at, at = read_varint(value, at)
        size, at = read_varint(value, at)
    except (IndexError, ValueError) as error:
        msg = f"record of a replica is cut off: {error}"
        raise Corrupt(msg) from error
    if size < 0 or at + size != len(value):
        msg = "record of a replica has another length than it says"
        raise Corrupt(msg)
    return ReplicaRecord(
        value[HEADER_BYTES : HEADER_BYTES + 16],
        origin_index,
        prev_origin_index,
        origin_created_at,
        value[at:],
    )
