"""Rows as Redis hashes that a person can read: what the script `WRITE` spells, read back. Pure.

Each field of a row is a field of its hash, those of its parts with the part's name in front
(`attempt_build_id`, `available_at`, `count_failed`). Values are text: integers in decimal, lists as
JSON; what is absent or at its default is not there. A time stands there twice, in microseconds and,
as `…_iso`, for people.
"""

import json
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Final, get_args

import msgspec
from msgspec import Struct

from belog.processors.rows import ROW_TYPES, Attempt, Availability, BuildCounts, Row, RowKind
from belog.schemas.errors import Corrupt

__all__ = ["row_of"]

_PREFIXES: Final[Mapping[type[Struct], str]] = {
    Attempt: "attempt_",
    Availability: "available_",
    BuildCounts: "count_",
}
"""Parts of rows, and what their fields start with; `WRITE` has the same."""


def _list_of(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


class _Reading(Struct, frozen=True):
    """How one field is read back."""

    name: str
    key: str
    from_text: Callable[[str], Any]


class _Part(Struct, frozen=True):
    name: str
    struct: type[Struct]
    is_optional: bool
    reading: tuple[_Reading, ...]


class _Codec(Struct, frozen=True):
    reading: tuple[_Reading, ...]
    parts: tuple[_Part, ...]


_FROM_TEXT: Final[Mapping[object, Callable[[str], Any]]] = {int: int, str: str}


def _codec(struct: type[Struct], prefix: str) -> _Codec:
    reading: list[_Reading] = []
    parts: list[_Part] = []
    for field in msgspec.structs.fields(struct):
        kind: Any = field.type
        is_optional = isinstance(kind, UnionType)
        if is_optional:
            (kind,) = (t for t in get_args(kind) if t is not type(None))
        if kind in _PREFIXES:
            part = _codec(kind, _PREFIXES[kind])
            parts.append(_Part(field.name, kind, is_optional, part.reading))
            continue
        from_text = _FROM_TEXT.get(kind, _list_of)
        reading.append(_Reading(field.name, prefix + field.name, from_text))
    return _Codec(tuple(reading), tuple(parts))


_CODECS: Final[Mapping[type[Row], _Codec]] = {cls: _codec(cls, "") for cls in ROW_TYPES.values()}


def row_of(kind: RowKind, fields: Mapping[str, str]) -> Row | None:
    """Return the row that a hash holds, None where it holds nothing.

    Raises:
        Corrupt: Not a hash of such a row.
    """
    if not fields:
        return None
    cls = ROW_TYPES[kind]
    codec = _CODECS[cls]
    try:
        values = _values(codec.reading, fields)
        for part in codec.parts:
            if not part.is_optional or part.reading[0].key in fields:
                values[part.name] = part.struct(**_values(part.reading, fields))
        return cls(**values)
    except (ValueError, TypeError) as error:
        msg = f"a row of kind {kind} cannot be read: {error}"
        raise Corrupt(msg, hint="make the tables anew") from error


def _values(reading: tuple[_Reading, ...], texts: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in reading:
        text = texts.get(field.key)
        if text is not None:
            values[field.name] = field.from_text(text)
    return values
