"""The record of a replica: another log's accepted event with its place there.

Avro single-object encoding like the envelope, of the schema `avro/replica-record-1.avsc`.
"""

from typing import Final

from msgspec import Struct

from belog.schemas.envelope import HEADER_BYTES, avro_schema, read_varint, write_varint
from belog.schemas.errors import Corrupt

__all__ = ["REPLICA_HEADER", "ReplicaRecord", "decode_replica", "encode_replica"]

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
