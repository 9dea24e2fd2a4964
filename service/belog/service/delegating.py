"""What is to be said here when an upstream makes what somebody asked for here. Pure."""

from typing import Final

from msgspec import Struct

from belog.processors.rows import Attempt
from belog.schemas.envelope import Event
from belog.schemas.events import (
    BuildReceived,
    PartitionDelegated,
    PartitionJoined,
    PartitionRequested,
    Payload,
)
from belog.schemas.fold import SubjectState
from belog.service.instance import ACTOR

__all__ = ["Asked", "asked_upstream", "delegation", "note_of", "received"]

_NOTE: Final = "upstream "


class Asked(Struct, frozen=True, kw_only=True):
    """A request that an upstream was asked, and who makes it there."""

    client_id: str
    build_id: str
    """The build here, which owns a new attempt."""
    is_named: bool
    """The caller named that build; without, he joins by the build that has the attempt."""
    upstream: str
    """How the configuration calls it."""
    log_id: str
    upstream_build: str


def note_of(name: str) -> str:
    """Return the message of events here that an upstream led to."""
    return f"{_NOTE}{name}"


def asked_upstream(event: Event) -> bool:
    """Whether a request was written by an instance that asked an upstream."""
    message = event.body().get("message")
    return event.actor == ACTOR and isinstance(message, str) and message.startswith(_NOTE)


def delegation(
    asked: Asked, here: SubjectState | None, attempt: Attempt | None, *, is_local: bool
) -> tuple[Payload, ...]:
    """Return what the local log has to say next, in order; nothing where it has said so.

    Args:
        asked: The request.
        here: The partition here, where an attempt is under way; None where none is.
        attempt: That attempt.
        is_local: Its build asked the log itself: nobody else moves it.
    """
    note = note_of(asked.upstream)
    owner = asked.build_id if here is None else here.owner or ""
    clients = [asked.client_id]
    delegated = PartitionDelegated(
        build_request_id=owner,
        delegated_to_log=asked.log_id,
        delegated_to_build=asked.upstream_build,
        message=note,
    )
    if here is None:
        first = PartitionRequested(build_request_id=owner, requesting_clients=clients, message=note)
        return first, delegated
    if is_local and (here.state != "requested" or owner != asked.build_id):
        return ()
    if here.state == "requested":
        return (delegated,)
    build = asked.build_id if asked.is_named else owner
    if attempt is None or (
        asked.client_id in attempt.requesting_clients and build in {owner, *attempt.joined_builds}
    ):
        return ()
    return (PartitionJoined(build_request_id=build, requesting_clients=clients, message=note),)


def received(asked: Asked, ref: str) -> BuildReceived:
    """Return that the build is there which owns the new attempt."""
    return BuildReceived(
        requested_partitions=[ref], client_id=asked.client_id, message=note_of(asked.upstream)
    )
