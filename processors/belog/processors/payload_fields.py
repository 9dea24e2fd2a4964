"""Payload fields as rows take them: what is of the wrong type counts as absent. Pure.

The verdict looks at few fields of a payload, so the rest may hold anything, in a record of another
program. Empty text counts as absent too.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from belog.schemas.envelope import Event
from belog.schemas.errors import Corrupt
from belog.schemas.payload import JsonValue, known_payload

__all__ = ["INT_MAX", "Body", "body_of", "count", "json_text", "text", "texts"]

INT_MAX: Final = 2**53 - 1
"""Largest integer of a row: what JSON readers and Redis scripts hold exactly."""

Body = Mapping[str, JsonValue]
_EMPTY: Final[Body] = {}
_EMPTY_MAP: Final = b"\xa0"


def text(body: Body, name: str) -> str | None:
    """Return a text field, None where there is none."""
    value = body.get(name)
    return value if type(value) is str and value else None


def texts(body: Body, name: str) -> tuple[str, ...]:
    """Return a list field, without what is no text in it."""
    value = body.get(name)
    if type(value) is not list:
        return ()
    return tuple([item for item in value if type(item) is str and item])


def count(body: Body, name: str) -> int | None:
    """Return an integer field, None where there is none or it is past `INT_MAX`."""
    value = body.get(name)
    return value if type(value) is int and -INT_MAX <= value <= INT_MAX else None


def json_text(body: Body, name: str) -> str | None:
    """Return a map field as JSON, None where there is none or it has no JSON form."""
    value = body.get(name)
    if type(value) is not dict:
        return None
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        # A CBOR value without a JSON form, in a record of another program.
        return None


def body_of(event: Event) -> Body:
    """Decode the payload of an event; one that cannot be decoded is empty."""
    if event.payload == _EMPTY_MAP:
        return _EMPTY
    try:
        return known_payload(event.payload)
    except Corrupt:
        return _EMPTY
