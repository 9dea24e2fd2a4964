"""Typed events, state diagrams, the fold, codecs and errors: everything that is pure."""

from belog.schemas.envelope import Event, StoredEvent, decode_event, encode_event
from belog.schemas.errors import BelogError
from belog.schemas.events import new_event
from belog.schemas.filters import ALL, EventFilter
from belog.schemas.fold import Accepted, Duplicate, Fold, Record, Void, judge

__all__ = [
    "ALL",
    "Accepted",
    "BelogError",
    "Duplicate",
    "Event",
    "EventFilter",
    "Fold",
    "Record",
    "StoredEvent",
    "Void",
    "decode_event",
    "encode_event",
    "judge",
    "new_event",
]
