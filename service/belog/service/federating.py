"""What is to be said here of a partition that another instance owns. Pure.

The local log holds a delegated attempt for every partition that somebody here asked for and that
the upstream makes. Where the upstream's partition is now decides what follows, not each of its
events by itself: so it does not matter which of them were seen, in which order or how often.
"""

from typing import Final
from uuid import UUID

from msgspec import Struct

from belog.schemas.events import (
    Manifest,
    PartitionAvailable,
    PartitionDelegated,
    PartitionFailed,
    PartitionObserved,
    PartitionRemoved,
    PartitionStale,
    Payload,
)
from belog.schemas.lifecycle import LIFECYCLE_1

__all__ = ["MIRRORED", "Here", "There", "mirrored"]

MIRRORED: Final = tuple(
    f"v1.partition.{name}" for name in ("available", "observed", "failed", "stale", "removed")
)
"""Types of the upstream's events after which there may be something to say here."""


class Here(Struct, frozen=True):
    """A partition in the local log."""

    state: str
    index: int
    """Of its last event."""
    owner: str | None
    """The local build that its attempt belongs to."""


class There(Struct, frozen=True, kw_only=True):
    """The same one upstream."""

    ref: str
    log_id: UUID
    name: str
    """What the configuration calls that instance."""
    state: str
    index: int
    """Of its last event."""
    build_id: str
    """That owns its attempt."""
    manifest: Manifest | None
    reason: str | None


def mirrored(here: Here, there: There) -> tuple[Payload, ...]:
    """Return what the local log has to say next, in order; nothing where it has said so.

    - A delegated attempt ends as the upstream's did; what was removed there counts as failed.
    - What is available here becomes stale or removed with the upstream's.
    - What failed, became stale or was removed here is observed when it is available there again.
    """
    note = f"at index {there.index} of upstream {there.name}, log {there.log_id}"
    owner = here.owner or ""
    match here.state, there.state:
        case "delegated", "available":
            return (_available(owner, there, note),)
        case "delegated", "stale":
            return (_available(owner, there, note), PartitionStale(reason=there.reason))
        case "delegated", "failed" | "removed":
            reason = there.reason or f"{there.state} upstream"
            return (PartitionFailed(build_request_id=owner, reason=reason, message=note),)
        case "requested", state if state in LIFECYCLE_1.owned_states:
            # Whoever wrote the request died before he could say who makes it.
            return (
                PartitionDelegated(
                    build_request_id=owner,
                    delegated_to_log=str(there.log_id),
                    delegated_to_build=there.build_id or None,
                    message=f"upstream {there.name}",
                ),
            )
        case "available", "stale":
            return (PartitionStale(reason=there.reason, message=note),)
        case "available" | "stale", "removed":
            return (PartitionRemoved(reason=there.reason, message=note),)
        case "failed" | "stale" | "removed", "available":
            return (
                PartitionObserved(manifest=there.manifest, source=str(there.log_id), message=note),
            )
        case _:
            return ()


def _available(owner: str, there: There, note: str) -> PartitionAvailable:
    return PartitionAvailable(build_request_id=owner, manifest=there.manifest, message=note)
