"""Cursors of lists: opaque text that only goes on with the list that it came from. Pure."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

import msgspec
from msgspec import Struct

from belog.processors.indexes import Order, Where
from belog.processors.rows import RowKind
from belog.schemas.errors import InvalidFilter
from belog.schemas.payload import digest

__all__ = ["CURSOR_CHARS_MAX", "decode_cursor", "encode_cursor"]

CURSOR_CHARS_MAX: Final = 4_096
"""Longest cursor that is looked at: a ref of 1,024 bytes in Base64 with all else, twice over."""

_DIGEST_BYTES: Final = 6
"""Enough that no two lists are mixed up by mistake; a cursor is no secret and guards nothing."""


class _Cursor(Struct, array_like=True, forbid_unknown_fields=True):
    version: int
    list_digest: bytes
    place: str


_VERSION: Final = 1
_DECODER: Final = msgspec.msgpack.Decoder(_Cursor)


def _digest_of(kind: RowKind, where: Where, order: Order) -> bytes:
    return digest(msgspec.msgpack.encode((kind, order, where)))[:_DIGEST_BYTES]


def encode_cursor(kind: RowKind, where: Where, order: Order, place: str) -> str:
    """Return the opaque form of a place in a list.

    Args:
        kind: Kind of the list's rows.
        where: Its conditions.
        order: Its order.
        place: The cursor of the tables.
    """
    cursor = _Cursor(_VERSION, _digest_of(kind, where, order), place)
    return urlsafe_b64encode(msgspec.msgpack.encode(cursor)).rstrip(b"=").decode()


def decode_cursor(kind: RowKind, where: Where, order: Order, cursor: str | None) -> str | None:
    """Return the place in a list that a cursor stands for, None for its beginning.

    Raises:
        InvalidFilter: It is no cursor, or one of a list with other conditions.
    """
    if cursor is None:
        return None
    hint = "pass next_cursor of the page before, with the same conditions and order"
    try:
        padded = cursor[:CURSOR_CHARS_MAX].encode("ascii") + b"=" * (
            -len(cursor[:CURSOR_CHARS_MAX]) % 4
        )
        decoded = _DECODER.decode(urlsafe_b64decode(padded))
    except (ValueError, msgspec.MsgspecError) as error:
        msg = f"{cursor[:40]!r} is no cursor of a list"
        raise InvalidFilter(msg, hint=hint) from error
    if decoded.version != _VERSION or decoded.list_digest != _digest_of(kind, where, order):
        msg = "the cursor is one of another list"
        raise InvalidFilter(msg, hint=hint)
    return decoded.place
