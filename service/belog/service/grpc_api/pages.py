"""Pages of events as messages that a client with usual limits takes."""

from collections.abc import Collection, Sequence
from typing import Final

from belog.schemas.envelope import StoredEvent
from belog.schemas.errors import Corrupt
from belog.schemas.payload import JsonValue, decode_payload
from belog.schemas.wire import stored_to_wire
from belog.service.bridge import Calls
from belog.service.grpc_api.settings import ANSWER_BYTES_MAX
from belog.storage.interface import EventPage
from belog.v1 import events_pb2 as pb

__all__ = ["event_message", "page_message"]

INLINE_BYTES_MAX: Final = 64 * 1024
"""Payload bytes that are made into messages by the event loop itself, some milliseconds; more go
to a thread."""

BODY_VALUES_MAX: Final = 50_000
"""Values of a payload from which on it is left without a body: lists of `LIST_ITEMS_MAX` items with
some fields each. Each value is an object of its own, so small numbers grow tenfold."""


async def page_message(calls: Calls, page: EventPage) -> pb.EventPage:
    """Return the message of a page, cut where it would be larger than `ANSWER_BYTES_MAX`.

    A page that is cut says where it ends, as if it had been asked for with that limit.
    """
    if _payload_bytes(page.events) > INLINE_BYTES_MAX:
        return await calls.run(_page, page)
    return _page(page)


async def event_message(calls: Calls, stored: StoredEvent) -> pb.BuildEvent:
    """Return the message of one event; without its body where that would make it too large."""
    if len(stored.event.payload) > INLINE_BYTES_MAX:
        return await calls.run(_event, stored)
    return _event(stored)


def _payload_bytes(events: Sequence[StoredEvent]) -> int:
    return sum(len(stored.event.payload) for stored in events)


def _event(stored: StoredEvent) -> pb.BuildEvent:
    message = stored_to_wire(stored, with_body=not _has_many_values(stored.event.payload))
    if message.ByteSize() > ANSWER_BYTES_MAX:
        message.ClearField("body")
    return message


def _has_many_values(payload: bytes) -> bool:
    if len(payload) <= BODY_VALUES_MAX:
        return False  # each takes a byte or more
    try:
        waiting: list[JsonValue] = [decode_payload(payload)]
    except Corrupt:
        return True
    count = 0
    while waiting:
        value = waiting.pop()
        inner = value.values() if isinstance(value, dict) else value
        if isinstance(inner, str | bytes) or not isinstance(inner, Collection):
            continue
        count += len(inner)
        if count > BODY_VALUES_MAX:
            return True
        waiting.extend(inner)
    return False


def _page(page: EventPage) -> pb.EventPage:
    messages: list[pb.BuildEvent] = []
    size = 0
    for stored in page.events:
        message = _event(stored)
        size += message.ByteSize() + 8
        if messages and size > ANSWER_BYTES_MAX:
            return pb.EventPage(events=messages, next_idx=stored.index, has_more=True)
        messages.append(message)
    return pb.EventPage(events=messages, next_idx=page.next_idx, has_more=page.has_more)
