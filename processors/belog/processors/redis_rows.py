"""Rows as Redis hashes that a person can read. Pure.

Each field of a row is a field of its hash. Values are text: integers in decimal, lists and parts
(`attempt`, `available`, `counts`) as JSON; what is absent or at its default is not there. A time
stands there twice, in microseconds and, as `…_iso`, for people; that of the data, `available_at`,
stands outside its part too.

`fields_of` says what the script `WRITE` is to spell, `row_of` reads what it spelled.
"""

import json
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Final, get_args

import msgspec
from msgspec import Struct

from belog.processors.rows import (
    ROW_TYPES,
    Attempt,
    Availability,
    BuildCounts,
    BuildRow,
    PartitionRow,
    Row,
    RowKind,
)
from belog.schemas.errors import Corrupt

__all__ = ["fields_of", "row_of"]

_PARTS: Final = frozenset[Any]({Attempt, Availability, BuildCounts})
_to_json: Final = msgspec.json.Encoder().encode


def fields_of(row: Row) -> Row | dict[str, Any]:
    """Return the fields of a row's hash, with the parts as JSON."""
    if type(row) is PartitionRow:
        fields: dict[str, Any] = {
            "ref": row.ref,
            "state": row.state,
            "index": row.index,
            "updated_at": row.updated_at,
            "first_seen": row.first_seen,
            "version": row.version,
        }
        if row.attempt is not None:
            fields["attempt"] = _to_json(row.attempt).decode()
        if row.available is not None:
            fields["available"] = _to_json(row.available).decode()
            fields["available_at"] = row.available.at
        if row.message is not None:
            fields["message"] = row.message
        return fields
    if type(row) is BuildRow:
        built: dict[str, Any] = msgspec.to_builtins(row)
        built["counts"] = _to_json(row.counts).decode()
        return built
    return row


def _list_of(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def _reader(kind: Any) -> Callable[[str], Any]:  # noqa: ANN401 - the type of a field
    if isinstance(kind, UnionType):
        (kind,) = (t for t in get_args(kind) if t is not type(None))
    if kind is str or kind is int:
        return kind
    if kind in _PARTS:
        return msgspec.json.Decoder(kind).decode
    return _list_of


_READERS: Final[Mapping[type[Row], Mapping[str, Callable[[str], Any]]]] = {
    cls: {field.name: _reader(field.type) for field in msgspec.structs.fields(cls)}
    for cls in ROW_TYPES.values()
}


def row_of(kind: RowKind, fields: Mapping[str, str]) -> Row | None:
    """Return the row that a hash holds, None where it holds nothing.

    Raises:
        Corrupt: Not a hash of such a row.
    """
    if not fields:
        return None
    cls: type[Struct] = ROW_TYPES[kind]
    readers = _READERS[ROW_TYPES[kind]]
    try:
        row = cls(**{name: readers[name](text) for name, text in fields.items() if name in readers})
    except (ValueError, TypeError) as error:
        msg = f"a row of kind {kind} cannot be read: {error}"
        raise Corrupt(msg, hint="make the tables anew") from error
    return row if isinstance(row, ROW_TYPES[kind]) else None
