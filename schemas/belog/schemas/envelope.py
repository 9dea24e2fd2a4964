"""The envelope of an event, and its Avro single-object encoding.

Layout of a record value: the two bytes `C3 01`, the CRC-64-AVRO fingerprint of the writer's schema
in eight bytes little endian, then the Avro binary encoding of the record. The schemas are the
files in `avro/`; fastavro is the reference. Encoding and decoding of the newest schema have a fast
path, whose bytes a property test holds equal to fastavro's.

Source: Avro 1.12 specification, "Single-object encoding" and "Binary encoding".
"""

import io
import json
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import Any, Final, cast

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form
from msgspec import Struct

from belog.schemas.errors import Corrupt, NewerFormat
from belog.schemas.lifecycle import KINDS, SubjectKind
from belog.schemas.payload import JsonValue, decode_payload

__all__ = [
    "AvroSchema",
    "Event",
    "StoredEvent",
    "WriterSchemas",
    "avro_schema",
    "decode_event",
    "encode_event",
    "envelope_schemas",
    "read_varint",
    "write_varint",
]


class Event(Struct, frozen=True, gc=False):
    """One event as its writer made it: the envelope with its payload bytes.

    Equal events have equal bytes. Made by `belog.schemas.events.new_event`, which checks every
    field; an instance made directly is not checked.
    """

    event_id: bytes
    """UUID, 16 bytes."""
    event_type: str
    subject_kind: SubjectKind
    subject_id: str
    actor: str
    occurred_at: int
    """Microseconds since the epoch, UTC, by the producer's clock."""
    payload: bytes
    """Canonical CBOR."""
    payload_digest: bytes
    """BLAKE3 of `payload`, 32 bytes."""
    caused_by: bytes | None = None
    expected: int | None = None

    @property
    def subject(self) -> str:
        """The subject as `kind:id`."""
        return f"{self.subject_kind}:{self.subject_id}"

    def body(self) -> dict[str, JsonValue]:
        """Decode the payload; a new map on each call."""
        return decode_payload(self.payload)


class StoredEvent(Struct, frozen=True, gc=False):
    """An accepted event at its place in a log."""

    index: int
    created_at: int
    """Ingest time, microseconds since the epoch, UTC; never less than that of a lower index."""
    event: Event


class AvroSchema(Struct, frozen=True):
    """One version of a record schema with what its single-object encoding needs."""

    version: int
    header: bytes
    """`C3 01` and the fingerprint, ten bytes."""
    parsed: Any
    """As fastavro wants it, without logical types: times stay integers."""
    source: str
    """The text of the .avsc file."""


WriterSchemas = Mapping[bytes, AvroSchema]
"""Schemas whose records can be read, by header."""

_MAGIC: Final = b"\xc3\x01"


def avro_schema(name: str, version: int) -> AvroSchema:
    """Load one of the packaged schemas, such as `("envelope", 1)`."""
    path = resources.files("belog.schemas") / "avro" / f"{name}-{version}.avsc"
    source = path.read_text(encoding="utf-8")
    return parse_avro_schema(source, version)


def parse_avro_schema(source: str, version: int) -> AvroSchema:
    """Parse the text of a schema.

    The fingerprint is that of the Parsing Canonical Form, which leaves out documentation and
    logical types, so two programs that differ in these alone read each other.
    """
    bare = _without_logical_types(json.loads(source))
    return AvroSchema(version, single_object_header(bare), fastavro.parse_schema(bare), source)


def single_object_header(schema: dict[str, Any]) -> bytes:
    """Return the ten bytes before a value of a schema (Avro 1.12, "Single-object encoding")."""
    crc = fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO")
    return _MAGIC + int(crc, 16).to_bytes(8, "big")[::-1]


def _without_logical_types(node: object) -> Any:  # noqa: ANN401 - JSON of any shape
    if isinstance(node, dict):
        fields = cast("dict[str, Any]", node)
        return {k: _without_logical_types(v) for k, v in fields.items() if k != "logicalType"}
    if isinstance(node, list):
        return [_without_logical_types(item) for item in cast("list[object]", node)]
    return node


_ENVELOPE: Final = avro_schema("envelope", 1)
_HEADER: Final = _ENVELOPE.header
HEADER_BYTES: Final = len(_HEADER)


def envelope_schemas() -> WriterSchemas:
    """Return the envelope schemas this software reads, by header."""
    return {_ENVELOPE.header: _ENVELOPE}


_READABLE: Final = envelope_schemas()
_KIND_BYTES: Final[Mapping[str, bytes]] = {k: bytes((i << 1,)) for i, k in enumerate(KINDS)}
_KIND_AT: Final[Mapping[int, SubjectKind]] = {i << 1: k for i, k in enumerate(KINDS)}
_VARINT_1: Final = tuple(bytes((n << 1,)) for n in range(64))
_VARINT_2_END: Final = 8192
_VARINT_2: Final = tuple(
    bytes((((n << 1) & 0x7F) | 0x80, (n << 1) >> 7)) if n > 63 else _VARINT_1[n]
    for n in range(_VARINT_2_END)
)
_GROUPS: Final = tuple(bytes((n | 0x80,)) for n in range(128))
_PAIRS: Final = tuple(low + high for high in _GROUPS for low in _GROUPS)
"""Two groups of seven bits, the lower first, that others follow."""
_PAIR_BITS: Final = 14
_PAIR_MASK: Final = (1 << _PAIR_BITS) - 1
_LOW_BITS: Final = 2 * _PAIR_BITS
TEXTS_CACHED_MAX: Final = 512
"""Event types and actors that are kept as written: all that one process meets at a time."""
HIGHS_CACHED_MAX: Final = 64
"""Upper halves of times that are kept as written: each stands for 134 seconds."""
_NULL: Final = b"\x00"
_SOME: Final = b"\x02"


def write_varint(number: int) -> bytes:
    """Return an integer of 64 bits in Avro's zig-zag variable-length form, 1 to 10 bytes."""
    if 0 <= number < _VARINT_2_END:
        return _VARINT_2[number]
    return _write_groups((number << 1) ^ (number >> 63))


def _write_groups(rest: int) -> bytes:
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_write_high: Final = lru_cache(maxsize=HIGHS_CACHED_MAX)(_write_groups)


@lru_cache(maxsize=TEXTS_CACHED_MAX)
def _write_text(text: str) -> bytes:
    data = text.encode()
    return write_varint(len(data)) + data


def encode_event(event: Event) -> bytes:
    """Return the record value of an event in the newest envelope schema."""
    subject_id = event.subject_id.encode()
    subject_size = len(subject_id)
    payload = event.payload
    payload_size = len(payload)
    caused_by = event.caused_by
    expected = event.expected
    # What write_varint returns, without its calls, which would cost as much as all else: a time in
    # two pairs of groups and the rest, which changes seldom; a length from the table.
    time = event.occurred_at << 1
    if time >> _LOW_BITS > 0:
        low = _PAIRS[time & _PAIR_MASK]
        middle = _PAIRS[time >> _PAIR_BITS & _PAIR_MASK]
        high = _write_high(time >> _LOW_BITS)
    else:
        low, middle, high = write_varint(event.occurred_at), b"", b""
    return b"".join(
        (
            _HEADER,
            event.event_id,
            _write_text(event.event_type),
            _KIND_BYTES[event.subject_kind],
            _VARINT_2[subject_size] if subject_size < _VARINT_2_END else write_varint(subject_size),
            subject_id,
            _write_text(event.actor),
            low,
            middle,
            high,
            _VARINT_2[payload_size] if payload_size < _VARINT_2_END else write_varint(payload_size),
            payload,
            event.payload_digest,
            _NULL if caused_by is None else _SOME + caused_by,
            _NULL if expected is None else _SOME + write_varint(expected),
        )
    )


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a zig-zag integer.

    Returns:
        The integer, and the position after it.

    Raises:
        IndexError: The data ends within it.
        ValueError: It does not fit 64 bits.
    """
    byte = data[at]
    at += 1
    number = byte & 0x7F
    shift = 7
    while byte & 0x80:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            msg = "integer is longer than ten bytes"
            raise ValueError(msg)
    if number >> 64:
        msg = "integer does not fit 64 bits"
        raise ValueError(msg)
    return (number >> 1) ^ -(number & 1), at


def decode_event(value: bytes, schemas: WriterSchemas = _READABLE) -> Event:
    """Read a record value.

    Raises:
        Corrupt: Not an envelope: another magic, cut off, text that is not UTF-8, bytes after
            its end.
        NewerFormat: An Avro single object whose schema this software does not know.
    """
    if value[:HEADER_BYTES] == _HEADER:
        try:
            return _decode_newest(value)
        except (IndexError, ValueError, KeyError) as error:
            msg = f"record is not an envelope: {error}"
            raise Corrupt(msg) from error
    if value[:2] != _MAGIC or len(value) < HEADER_BYTES:
        msg = "record is not an envelope: it does not start as an Avro single object"
        raise Corrupt(msg)
    schema = schemas.get(value[:HEADER_BYTES])
    if schema is None:
        msg = f"record has an envelope schema that is not known here: {value[2:HEADER_BYTES].hex()}"
        raise NewerFormat(msg, hint="read this log with a newer belog")
    return _decode_resolved(value, schema)


def _read_length(value: bytes, at: int) -> tuple[int, int]:
    size, at = read_varint(value, at)
    if size < 0:
        msg = "a length is negative"
        raise ValueError(msg)
    return size, at


def _decode_newest(value: bytes) -> Event:
    # Lengths are nearly always below 64: one byte with its lowest and highest bit clear. A length
    # that points past the end is met by an IndexError of the byte that should follow.
    event_id = value[10:26]
    size = value[26]
    at = 27
    if size & 0x81:
        size, at = _read_length(value, 26)
    else:
        size >>= 1
    end = at + size
    event_type = value[at:end].decode()
    kind = _KIND_AT[value[end]]
    at = end + 2
    size = value[end + 1]
    if size & 0x81:
        size, at = _read_length(value, end + 1)
    else:
        size >>= 1
    end = at + size
    subject_id = value[at:end].decode()
    size = value[end]
    at = end + 1
    if size & 0x81:
        size, at = _read_length(value, end)
    else:
        size >>= 1
    end = at + size
    actor = value[at:end].decode()
    rest = int.from_bytes(value[end : end + 8], "little")
    if rest & 0x8080808080808080 == 0x0080808080808080:
        # Eight bytes, as all times of this century take: fold eight groups of seven bits at once.
        rest &= 0x7F7F7F7F7F7F7F7F
        rest = (rest & 0x007F007F007F007F) | (rest & 0x7F007F007F007F00) >> 1
        rest = (rest & 0x00003FFF00003FFF) | (rest & 0x3FFF00003FFF0000) >> 2
        rest = (rest & 0x0FFFFFFF) | (rest & 0x0FFFFFFF00000000) >> 4
        occurred_at = (rest >> 1) ^ -(rest & 1)
        at = end + 8
    else:
        occurred_at, at = read_varint(value, end)
    # The payload's length is nearly always 64 to 8,191: two bytes, only the second's top bit clear.
    size = value[at]
    if size & 0x81 == 0x80 and (more := value[at + 1]) < 0x80:
        size = (size & 0x7F | more << 7) >> 1
        at += 2
    else:
        size, at = _read_length(value, at)
    end = at + size
    payload = value[at:end]
    at = end + 32
    payload_digest = value[end:at]
    if value[at:] == b"\x00\x00":
        caused_by = expected = None
    else:
        caused_by, expected = _decode_tail(value, at)
    return Event(
        event_id,
        event_type,
        kind,
        subject_id,
        actor,
        occurred_at,
        payload,
        payload_digest,
        caused_by,
        expected,
    )


def _decode_tail(value: bytes, at: int) -> tuple[bytes | None, int | None]:
    caused_by: bytes | None = None
    expected: int | None = None
    branch, at = read_varint(value, at)
    if branch == 1:
        caused_by = value[at : at + 16]
        at += 16
    elif branch:
        msg = "a union has no such branch"
        raise ValueError(msg)
    branch, at = read_varint(value, at)
    if branch == 1:
        expected, at = read_varint(value, at)
    elif branch:
        msg = "a union has no such branch"
        raise ValueError(msg)
    if at != len(value):
        msg = "bytes after its end, or cut off"
        raise ValueError(msg)
    return caused_by, expected


def _decode_resolved(value: bytes, schema: AvroSchema) -> Event:
    stream = io.BytesIO(value)
    stream.seek(HEADER_BYTES)
    try:
        fields = fastavro.schemaless_reader(  # pyright: ignore[reportUnknownMemberType] - untyped
            stream, schema.parsed, _ENVELOPE.parsed
        )
    except Exception as error:  # fastavro raises whatever the bytes lead it into
        msg = f"record is not an envelope of schema version {schema.version}: {error}"
        raise Corrupt(msg) from error
    if stream.read(1):
        msg = "record has bytes after its end"
        raise Corrupt(msg)
    return Event(**cast("dict[str, Any]", fields))
