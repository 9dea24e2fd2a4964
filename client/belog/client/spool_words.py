"""What a spool says of itself and of its events. Pure."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from belog.client.problems import Problem, error_from
from belog.schemas.envelope import Event
from belog.schemas.errors import BelogError, Conflict
from belog.schemas.wire import event_to_wire, message_to_json

__all__ = ["Left", "Refusal", "SpoolStatus", "refusal_of"]


class SpoolStatus(Struct, frozen=True, kw_only=True):
    """What is in a spool."""

    pending: int
    """Events that still have to be sent."""
    pending_bytes: int
    oldest_at: int | None
    """When the first of them was kept, microseconds since the epoch, UTC."""
    conflicts: int
    """Events that the log refused, ever."""
    log_id: UUID | None
    """The log that they are for; None while none has answered yet."""
    next_idx: int
    """Index that this log had at least reached."""


class Left(Struct, frozen=True, kw_only=True):
    """What became of an event that is no more in the spool."""

    was_refused: bool
    index: int | None
    """Where it is in the log; None where it was refused, or where that is not known here any more.
    """


class Refusal(Struct, frozen=True, kw_only=True):
    """An event that the log refused, as it is recorded."""

    number: int
    at: int
    """When, microseconds since the epoch, UTC."""
    code: str
    message: str
    event: Mapping[str, Any]
    """By the proto3 JSON mapping of `BuildEvent`."""
    hint: str = ""
    index: int | None = None
    subject: str = ""
    state: str = ""
    last_index: int = -1
    allowed: tuple[str, ...] = ()
    owner: str = ""

    def error(self) -> BelogError:
        """Return the error that refused it."""
        problem = msgspec.convert(msgspec.to_builtins(self), Problem)
        return error_from(problem, url="")


def refusal_of(number: int, at: int, event: Event, error: BelogError) -> Refusal:
    """Return what is recorded of an event that the log refused.

    Args:
        number: Of the event.
        at: When that was found, microseconds since the epoch, UTC.
        event: The event.
        error: Why.
    """
    refusal = Refusal(
        number=number,
        at=at,
        code=error.code,
        message=error.message,
        event=message_to_json(event_to_wire(event, with_body=True)),
        hint=error.hint,
        index=error.index,
        subject=event.subject,
    )
    if not isinstance(error, Conflict):
        return refusal
    return msgspec.structs.replace(
        refusal,
        state=error.state,
        last_index=error.last_index,
        allowed=error.allowed,
        owner=error.owner or "",
    )
