"""Who makes a partition: asked of the log, answered by it.

A partition that is asked for is *available*, or *delegated* to the build that is already making it,
or *building*: the caller's own. Of any number of callers at once exactly one gets the last, because
`v1.partition.requested` is legal only once until the attempt ends. Nothing is locked.
"""

import time
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from belog.producers.producer import Producer
from belog.schemas.errors import Conflict, NotOwner
from belog.schemas.events import PartitionJoined, PartitionRequested
from belog.schemas.fold import SubjectState

__all__ = [
    "Available",
    "Building",
    "Delegated",
    "Requested",
    "request_partition",
    "wait_until_made",
]

ATTEMPTS_MAX: Final = 1_000
"""How often a request is decided anew because another writer was faster. Each time somebody's
attempt began or ended in between; a thousand of them in a row is a fault, not bad luck."""

WAIT_SLICE_S: Final = 1.0
"""Longest single wait for the log to move, seconds."""


class Available(Struct, frozen=True):
    """The partition can be read."""

    ref: str
    index: int
    """Index of the event that made it so."""


class Delegated(Struct, frozen=True):
    """A build that got there first is making it; the caller's build has joined the attempt."""

    ref: str
    build_request_id: str
    """The build that makes it."""
    index: int


class Building(Struct, frozen=True):
    """The caller's build owns a new attempt and has to make it."""

    ref: str
    build_request_id: str
    index: int


Requested = Available | Delegated | Building


def request_partition(
    producer: Producer,
    ref: str,
    *,
    build_request_id: str,
    clients: Sequence[str] = (),
    allow_delegation: bool = True,
) -> Requested:
    """Ask for a partition on behalf of a build request.

    Asking again for an attempt that the build already owns answers `Building` with its index.
    Writes nothing of the build itself: `v1.build.received` is its owner's to append.

    Args:
        producer: Of the log that owns the partition.
        ref: The partition.
        build_request_id: The build that asks, and that will own a new attempt.
        clients: Who is behind the request.
        allow_delegation: Whether joining another build's attempt is wanted.

    Raises:
        NotOwner: Another build is making it, and delegation is not allowed; names the build.
        InvalidEvent: The ref or the build id cannot be.
    """
    # Where nothing stands in the way as far as is known, the append itself finds out: `expected`
    # binds it to what was looked at, and reading the log to its end first would cost a round trip.
    state = producer.known_state("partition", ref)
    owned = producer.lifecycle.owned_states
    if state is not None and (state.state == "available" or state.state in owned):
        state = producer.state("partition", ref)
    for _ in range(ATTEMPTS_MAX):
        answer = _known_answer(producer, ref, state, build_request_id)
        if answer is not None:
            return answer
        under_way = state if state and state.state in producer.lifecycle.owned_states else None
        if under_way is not None and not allow_delegation:
            raise _not_delegated(producer, ref, under_way)
        try:
            if under_way is not None:
                return _join(producer, ref, under_way, build_request_id, clients)
            requested = PartitionRequested(
                build_request_id=build_request_id, requesting_clients=list(clients)
            )
            # Without `expected` it would also be legal over data that another build made meanwhile.
            receipt = producer.append(requested, ref, expected=-1 if state is None else state.index)
            return Building(ref, build_request_id, receipt.index)
        except Conflict:
            # Another writer was faster.
            state = producer.state("partition", ref)
    msg = f"the state of {ref!r} changed {ATTEMPTS_MAX} times while it was asked for"
    raise Conflict(msg, state="", last_index=-1, allowed=(), subject=f"partition:{ref}")


def _known_answer(
    producer: Producer, ref: str, state: SubjectState | None, build_request_id: str
) -> Requested | None:
    """Return the answer that needs nothing to be written, if there is one."""
    if state is None:
        return None
    if state.state == "available":
        return Available(ref, state.index)
    if state.state in producer.lifecycle.owned_states and state.owner == build_request_id:
        return Building(ref, build_request_id, state.index)
    return None


def _join(
    producer: Producer, ref: str, state: SubjectState, build_request_id: str, clients: Sequence[str]
) -> Delegated:
    receipt = producer.append(
        PartitionJoined(build_request_id=build_request_id, requesting_clients=list(clients)),
        ref,
        # Joins the attempt that was looked at, not one that another build began since.
        expected=state.index,
    )
    return Delegated(ref, state.owner or "", receipt.index)


def _not_delegated(producer: Producer, ref: str, state: SubjectState) -> NotOwner:
    return NotOwner(
        f"build {state.owner!r} is making it",
        state=state.state,
        last_index=state.index,
        allowed=producer.lifecycle.allowed("partition", state.state),
        owner=state.owner,
        hint="allow delegation, or wait for its end",
        log=producer.log.name,
        index=state.index,
        subject=f"partition:{ref}",
    )


def wait_until_made(producer: Producer, ref: str, *, timeout_s: float) -> SubjectState | None:
    """Wait until nobody is making a partition any more.

    Returns:
        Its state then (`available`, `failed`, …), or None when the time is over before.
    """
    deadline = time.monotonic() + timeout_s
    owned = producer.lifecycle.owned_states
    while True:
        state = producer.state("partition", ref)
        if state is not None and state.state not in owned:
            return state
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        producer.wait(min(left, WAIT_SLICE_S))
