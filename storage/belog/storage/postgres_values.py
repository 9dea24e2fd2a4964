"""Arrays in PostgreSQL's binary form, made in one piece.

A list of some hundred events costs psycopg more to convert, item by item, than the server to
insert.

Source: PostgreSQL 15, src/backend/utils/adt/arrayfuncs.c, `array_recv`; docs, "COPY", binary
format.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from msgspec import Struct
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

__all__ = [
    "BIGINT",
    "BIGINT_ARRAY",
    "BOOLEAN",
    "BYTEA",
    "INTEGER",
    "INTEGER_ARRAY",
    "TEXT",
    "ByteaArray",
    "IntegerArray",
    "TextArray",
    "WordArray",
    "bigint_array",
    "bigints_of",
    "copy_pairs",
    "integer_array",
    "register",
    "word_array",
]

_HEADER: Final = struct.Struct(">iiIii")
"""Dimensions, whether there are nulls, type of the elements, their number, first subscript."""
_EMPTY: Final = struct.Struct(">iiI")
_LENGTH: Final = struct.Struct(">i")
_NULL: Final = _LENGTH.pack(-1)
BYTEA: Final = 17
BYTEA_ARRAY: Final = 1001
TEXT: Final = 25
TEXT_ARRAY: Final = 1009
INTEGER: Final = 23
INTEGER_ARRAY: Final = 1007
_INTEGER_BYTES: Final = 4
BIGINT: Final = 20
BIGINT_ARRAY: Final = 1016
BOOLEAN: Final = 16
_BIGINT_ITEM: Final = struct.Struct(">iq")
_ARRAY_HEAD_BYTES: Final = _HEADER.size

_COPY_START: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_PAIR: Final = struct.Struct(">hiqiq")
_COPY_END: Final = b"\xff\xff"


class ByteaArray(Struct, frozen=True):
    """A `bytea[]` parameter."""

    items: Sequence[bytes | None]


class TextArray(Struct, frozen=True):
    """A `text[]` parameter."""

    items: Sequence[str | None]


class IntegerArray(Struct, frozen=True):
    """An `integer[]` parameter."""

    items: Sequence[int]


class WordArray(Struct, frozen=True):
    """An `integer[]` parameter of 32 bits each, without a sign here and with one there."""

    items: Sequence[int]


def _array(element: int, items: Sequence[bytes | None]) -> bytes:
    if not items:
        return _EMPTY.pack(0, 0, element)
    pack, null = _LENGTH.pack, (_NULL, b"")
    parts = [null if item is None else (pack(len(item)), item) for item in items]
    header = _HEADER.pack(1, 1, element, len(items), 1)
    return b"".join((header, *chain.from_iterable(parts)))


def integer_array(items: Sequence[int]) -> bytes:
    """Return an `integer[]` in binary form."""
    return _integers(items, "i")


def word_array(items: Sequence[int]) -> bytes:
    """Return an `integer[]` in binary form, of the same bits as integers without a sign."""
    return _integers(items, "I")


def _integers(items: Sequence[int], form: str) -> bytes:
    count = len(items)
    if count == 0:
        return _EMPTY.pack(0, 0, INTEGER)
    # A length before each item.
    pairs = [_INTEGER_BYTES] * (2 * count)
    pairs[1::2] = items
    return _HEADER.pack(1, 0, INTEGER, count, 1) + struct.pack(f">{2 * count}{form}", *pairs)


def bigint_array(items: Sequence[int | None]) -> bytes:
    """Return a `bigint[]` in binary form."""
    return _array(BIGINT, [None if i is None else i.to_bytes(8, "big", signed=True) for i in items])


def bigints_of(data: bytes) -> list[int | None]:
    """Return what is in a `bigint[]` in binary form, of one dimension at most."""
    items: list[int | None] = []
    at = _ARRAY_HEAD_BYTES
    while at < len(data):
        if data[at] & 0x80:
            items.append(None)
            at += _LENGTH.size
        else:
            items.append(_BIGINT_ITEM.unpack_from(data, at)[1])
            at += _BIGINT_ITEM.size
    return items


class _ByteaArrayDumper(Dumper):
    format = Format.BINARY
    oid = BYTEA_ARRAY

    def dump(self, obj: ByteaArray) -> bytes:
        return _array(BYTEA, obj.items)


class _TextArrayDumper(Dumper):
    format = Format.BINARY
    oid = TEXT_ARRAY

    def dump(self, obj: TextArray) -> bytes:
        items = [None if item is None else item.encode() for item in obj.items]
        return _array(TEXT, items)


class _IntegerArrayDumper(Dumper):
    format = Format.BINARY
    oid = INTEGER_ARRAY

    def dump(self, obj: IntegerArray) -> bytes:
        return integer_array(obj.items)


class _WordArrayDumper(Dumper):
    format = Format.BINARY
    oid = INTEGER_ARRAY

    def dump(self, obj: WordArray) -> bytes:
        return word_array(obj.items)


def register(adapters: AdaptersMap) -> None:
    """Let a connection take the arrays of this module as parameters."""
    adapters.register_dumper(ByteaArray, _ByteaArrayDumper)
    adapters.register_dumper(TextArray, _TextArrayDumper)
    adapters.register_dumper(IntegerArray, _IntegerArrayDumper)
    adapters.register_dumper(WordArray, _WordArrayDumper)


def copy_pairs(pairs: Iterable[tuple[int, int]]) -> bytes:
    """Return the input of a binary COPY into two columns of bigint."""
    pack = _COPY_PAIR.pack
    rows = [pack(2, 8, first, 8, second) for first, second in pairs]
    return b"".join((_COPY_START, *rows, _COPY_END))
