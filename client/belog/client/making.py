"""Events of a client: checked here, before they are sent."""

import time
from collections.abc import Mapping
from typing import Final, TypedDict
from uuid import UUID, uuid4

from msgspec.structs import replace

from belog.schemas.envelope import Event
from belog.schemas.events import Payload, new_event
from belog.schemas.lifecycle import SubjectKind
from belog.schemas.payload import JsonValue

__all__ = ["EventOptions", "make_event"]

_SOMEBODY: Final = "-"
"""Stands in for the actor while an event is checked that the service will sign."""


class EventOptions(TypedDict, total=False):
    """What may be said of an event beside its payload; see `belog.schemas.events.new_event`."""

    event_id: bytes | UUID | None
    """Made at random where it is not given."""
    occurred_at: int | None
    """Microseconds since the epoch, UTC; now where it is not given."""
    subject_kind: SubjectKind | None
    caused_by: bytes | UUID | None
    expected: int | None


def make_event(
    actor: str,
    payload: Payload | str,
    subject_id: str,
    body: Mapping[str, JsonValue] | None,
    options: EventOptions,
) -> Event:
    """Make an event.

    Args:
        actor: Who writes; empty where the service knows.
        payload: A typed payload, or the name of an event type.
        subject_id: Build request id, partition ref or job run id.
        body: With a type's name: the payload as a map.
        options: The rest.

    Raises:
        InvalidEvent: The event cannot be in any log.
        LimitExceeded: A field or the whole is larger than its bound.
    """
    event_id = options.get("event_id")
    occurred_at = options.get("occurred_at")
    event = new_event(
        payload,
        subject_id,
        body,
        event_id=uuid4() if event_id is None else event_id,
        actor=actor or _SOMEBODY,
        occurred_at=time.time_ns() // 1000 if occurred_at is None else occurred_at,
        subject_kind=options.get("subject_kind"),
        caused_by=options.get("caused_by"),
        expected=options.get("expected"),
    )
    return event if actor else replace(event, actor="")
