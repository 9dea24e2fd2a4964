"""What all backends do alike: the first event, the clock, and the checks of identity."""

import os
import time
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from belog.schemas.envelope import Event
from belog.schemas.errors import LogReplaced, NotFound, ReplicaRefused
from belog.schemas.events import LogCreated, new_event
from belog.schemas.lifecycle import LIFECYCLE_VERSION_NEWEST
from belog.schemas.replica import REPLICA_HEADER
from belog.storage.interface import CopiedRecord, LogEnd, LogIdentity

__all__ = [
    "CREATOR",
    "check_copied",
    "check_identity",
    "log_created",
    "new_uuid",
    "now_us",
    "refuse_foreign_records",
    "refuse_replica_append",
    "require_end",
]

CREATOR: Final = "belog"
"""Actor of the events that the software itself writes."""


def now_us() -> int:
    """Return the time in microseconds since the epoch, UTC."""
    return time.time_ns() // 1000


def new_uuid() -> UUID:
    """Return a random UUID (RFC 9562, version 4)."""
    return UUID(bytes=os.urandom(16), version=4)


def log_created(log_id: UUID, instance: str, occurred_at: int) -> Event:
    """Return the event that stands at index 0 of a primary log."""
    return new_event(
        LogCreated(
            log_id=str(log_id), instance=instance, lifecycle_version=LIFECYCLE_VERSION_NEWEST
        ),
        str(log_id),
        event_id=new_uuid(),
        actor=CREATOR,
        occurred_at=occurred_at,
    )


def check_identity(
    found: LogIdentity, log_id: UUID | None, *, replica: bool, name: str
) -> LogIdentity:
    """Compare a log that exists with what the caller meant.

    Raises:
        LogReplaced: It is another log, or a replica where a primary was meant or the reverse.
    """
    if log_id is not None and found.log_id != log_id:
        msg = f"the log is {found.log_id}, not {log_id}"
        raise LogReplaced(msg, log=name, hint="was it recreated, or is the URI another's?")
    if found.is_replica != replica:
        is_a = "a replica" if found.is_replica else "a primary log"
        msg = f"the log is {is_a}"
        raise LogReplaced(msg, log=name, hint="open it as what it is, or name another log")
    return found


def refuse_replica_append(identity: LogIdentity, name: str) -> None:
    """Refuse an ordinary append to a replica.

    Raises:
        ReplicaRefused: The log is a replica.
    """
    if identity.is_replica:
        msg = "a replica takes records from its origin's sink only"
        raise ReplicaRefused(msg, log=name, hint="append to the origin")


def require_end(end: LogEnd | None, name: str) -> LogEnd:
    """Return the end of a log that has a first event.

    Raises:
        NotFound: It has none yet.
    """
    if end is None:
        msg = "the log holds no event yet"
        raise NotFound(msg, log=name, hint="initialize it, or start its sink")
    return end


def refuse_foreign_records(
    records: Sequence[CopiedRecord], identity: LogIdentity, name: str
) -> None:
    """Refuse records of a replica for a primary log, and the reverse.

    Raises:
        ReplicaRefused: One of them is of the other kind.
    """
    for record in records:
        if (record.value[: len(REPLICA_HEADER)] == REPLICA_HEADER) != identity.is_replica:
            wanted = "only wrapped" if identity.is_replica else "no wrapped"
            kind = "a replica" if identity.is_replica else "a primary log"
            msg = f"{kind} takes {wanted} records of an origin"
            raise ReplicaRefused(msg, log=name, index=record.index)


def check_copied(records: Sequence[CopiedRecord], after: int) -> None:
    """Refuse records whose indices do not grow from `after` on.

    Raises:
        ValueError: An index is not above the one before it.
    """
    last = after
    for record in records:
        if record.index <= last:
            msg = f"index {record.index} does not come after {last}"
            raise ValueError(msg)
        last = record.index
