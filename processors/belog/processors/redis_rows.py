"""Rows as Redis hashes that a person can read. Pure.

Each field of a row is a field of its hash, those of its parts with the part's name in front
(`attempt_build_id`, `available_at`, `count_failed`). Values are text: integers in decimal, lists as
JSON, what is absent as nothing or as the empty text. A time stands there twice, in microseconds
and, as `…_iso`, for people.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from types import UnionType
from typing import Any, Final, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from belog.processors.rows import ROW_TYPES, Attempt, Availability, BuildCounts, Row, RowKind
from belog.schemas.errors import Corrupt

__all__ = ["hash_of", "iso_time", "row_of"]

ISO_CACHE_SECONDS: Final = 4_096
"""Seconds kept as text: the rows of a batch share few."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PREFIXES: Final[Mapping[type[Struct], str]] = {
    Attempt: "attempt_",
    Availability: "available_",
    BuildCounts: "count_",
}
"""Parts of rows, and what their fields start with."""


@lru_cache(ISO_CACHE_SECONDS)
def _iso_second(seconds: int) -> str:
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return ""
    return moment.isoformat()[:19]


def iso_time(micros: int) -> str:
    """Return a time in microseconds since the epoch as ISO 8601, UTC; empty if no calendar has it.

    >>> iso_time(1_750_000_000_000_000)
    '2025-06-15T15:06:40.000000Z'
    """
    second = _iso_second(micros // 1_000_000)
    return f"{second}.{micros % 1_000_000:06d}Z" if second else ""


def _list_text(value: tuple[str, ...]) -> str:
    return msgspec.json.encode(value).decode()


def _list_of(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


_Spec = tuple[int, str, Callable[[Any], str], bool, Any]
"""Place in the struct, field of the hash, how to write it, whether it is a time, its default."""


class _Reading(Struct, frozen=True):
    """How one field is read back."""

    name: str
    key: str
    from_text: Callable[[str], Any]
    is_required: bool
    default: Any


class _Part(Struct, frozen=True):
    at: int
    """Place in the row."""
    name: str
    struct: type[Struct]
    is_optional: bool
    writing: tuple[_Spec, ...]
    reading: tuple[_Reading, ...]


class _Codec(Struct, frozen=True):
    writing: tuple[_Spec, ...]
    reading: tuple[_Reading, ...]
    parts: tuple[_Part, ...]


_TO_TEXT: Final[Mapping[object, Callable[[Any], str]]] = {int: str, str: str}
_FROM_TEXT: Final[Mapping[object, Callable[[str], Any]]] = {int: int, str: str}


def _codec(struct: type[Struct], prefix: str) -> _Codec:
    writing: list[_Spec] = []
    reading: list[_Reading] = []
    parts: list[_Part] = []
    for at, field in enumerate(msgspec.structs.fields(struct)):
        kind: Any = field.type
        is_optional = isinstance(kind, UnionType)
        if is_optional:
            (kind,) = (t for t in get_args(kind) if t is not type(None))
        if kind in _PREFIXES:
            part = _codec(kind, _PREFIXES[kind])
            parts.append(_Part(at, field.name, kind, is_optional, part.writing, part.reading))
            continue
        key = prefix + field.name
        is_time = field.name.endswith("_at") or field.name == "at"
        default = _NO_DEFAULT if field.required else field.default
        writing.append((at, key, _TO_TEXT.get(kind, _list_text), is_time, default))
        from_text = _FROM_TEXT.get(kind, _list_of)
        reading.append(_Reading(field.name, key, from_text, field.required, field.default))
    return _Codec(tuple(writing), tuple(reading), tuple(parts))


_NO_DEFAULT: Final = object()
_CODECS: Final[Mapping[type[Row], _Codec]] = {cls: _codec(cls, "") for cls in ROW_TYPES.values()}


def hash_of(before: Row | None, after: Row) -> list[str]:
    """Return the fields of a row's hash that change: field, value, field, value, and so on.

    Args:
        before: The row that the hash holds, None for none.
        after: The row that it is to hold.
    """
    codec = _CODECS[type(after)]
    new = astuple(after)
    old = None if before is None else astuple(before)
    out: list[str] = []
    _append(out, codec.writing, old, new)
    for part in codec.parts:
        new_part: Struct | None = new[part.at]
        old_part: Struct | None = None if old is None else old[part.at]
        if new_part is not old_part and new_part is not None:
            old_values = None if old_part is None else astuple(old_part)
            _append(out, part.writing, old_values, astuple(new_part))
    return out


def _append(
    out: list[str],
    writing: tuple[_Spec, ...],
    before: tuple[Any, ...] | None,
    after: tuple[Any, ...],
) -> None:
    for at, key, to_text, is_time, default in writing:
        value = after[at]
        if before is None:
            if value == default:
                continue
        else:
            old = before[at]
            if old is value or old == value:
                continue
        out.append(key)
        if value is None or value == ():
            out.append("")
            if is_time:
                out += (key + "_iso", "")
            continue
        out.append(to_text(value))
        if is_time:
            out += (key + "_iso", iso_time(value))


def row_of(kind: RowKind, fields: Mapping[str, str]) -> Row | None:
    """Return the row that a hash holds, None where it holds nothing.

    Raises:
        Corrupt: Not a hash that `hash_of` gave.
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
        if text or (field.is_required and text is not None):
            values[field.name] = field.from_text(text)
    return values
