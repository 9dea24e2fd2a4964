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

__all__ = ["ByteaArray", "IntegerArray", "TextArray", "copy_pairs", "register"]

_HEADER: Final = struct.Struct(">iiIii")
"""Dimensions, whether there are nulls, type of the elements, their number, first subscript."""
_EMPTY: Final = struct.Struct(">iiI")
_LENGTH: Final = struct.Struct(">i")
_NULL: Final = _LENGTH.pack(-1)
_BYTEA: Final = 17
_BYTEA_ARRAY: Final = 1001
_TEXT: Final = 25
_TEXT_ARRAY: Final = 1009
_INTEGER: Final = 23
_INTEGER_ARRAY: Final = 1007
_INTEGER_BYTES: Final = 4

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


def _array(element: int, items: Sequence[bytes | None]) -> bytes:
    if not items:
        return _EMPTY.pack(0, 0, element)
    pack, null = _LENGTH.pack, (_NULL, b"")
    parts = [null if item is None else (pack(len(item)), item) for item in items]
    header = _HEADER.pack(1, 1, element, len(items), 1)
    return b"".join((header, *chain.from_iterable(parts)))


class _ByteaArrayDumper(Dumper):
    format = Format.BINARY
    oid = _BYTEA_ARRAY

    def dump(self, obj: ByteaArray) -> bytes:
        return _array(_BYTEA, obj.items)


class _TextArrayDumper(Dumper):
    format = Format.BINARY
    oid = _TEXT_ARRAY

    def dump(self, obj: TextArray) -> bytes:
        items = [None if item is None else item.encode() for item in obj.items]
        return _array(_TEXT, items)


class _IntegerArrayDumper(Dumper):
    format = Format.BINARY
    oid = _INTEGER_ARRAY

    def dump(self, obj: IntegerArray) -> bytes:
        count = len(obj.items)
        if count == 0:
            return _EMPTY.pack(0, 0, _INTEGER)
        # A length before each item.
        pairs = [_INTEGER_BYTES] * (2 * count)
        pairs[1::2] = obj.items
        return _HEADER.pack(1, 0, _INTEGER, count, 1) + struct.pack(f">{2 * count}i", *pairs)


def register(adapters: AdaptersMap) -> None:
    """Let a connection take the arrays of this module as parameters."""
    adapters.register_dumper(ByteaArray, _ByteaArrayDumper)
    adapters.register_dumper(TextArray, _TextArrayDumper)
    adapters.register_dumper(IntegerArray, _IntegerArrayDumper)


def copy_pairs(pairs: Iterable[tuple[int, int]]) -> bytes:
    """Return the input of a binary COPY into two columns of bigint."""
    pack = _COPY_PAIR.pack
    rows = [pack(2, 8, first, 8, second) for first, second in pairs]
    return b"".join((_COPY_START, *rows, _COPY_END))
