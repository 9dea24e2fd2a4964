"""What a client asks of partitions, builds and the rest; each call as steps. Pure.

Answers are the messages of `belog.v1`, as the service defines them.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeVar, cast

from google.protobuf.message import Message
from msgspec import Struct

from belog.client.answers import message_of
from belog.client.calls import ASKED_BY_HEADER, filter_query, get, path_of
from belog.client.steps import (
    Lost,
    Request,
    Response,
    Session,
    Steps,
    exchange,
    raise_refusal,
)
from belog.schemas.errors import Corrupt, NotFound, Unavailable
from belog.schemas.filters import EventFilter
from belog.schemas.wire_json import to_json
from belog.v1 import catalog_pb2, http_pb2

__all__ = [
    "WAIT_SLICE_S",
    "Available",
    "Building",
    "Delegated",
    "PartitionState",
    "Requested",
    "cancel",
    "look",
    "partition",
    "readiness",
    "request_partition",
    "wait",
]

WAIT_SLICE_S: Final = 25.0
"""Longest wait of one request, seconds; who waits longer asks again."""


class Available(Struct, frozen=True):
    """The partition can be read."""

    ref: str
    index: int
    """Of the event that made it so, in the log of that id."""
    log_id: str
    manifest: catalog_pb2.PartitionManifest | None
    """What its maker said of it; None where it said nothing."""


class Delegated(Struct, frozen=True):
    """Another build is making it, here or on another instance."""

    ref: str
    build_request_id: str
    log_id: str
    """Of the log where that build is."""
    index: int
    """What the answer is as of, in that log."""
    estimated_completion: int | None
    """Microseconds since the epoch, from past durations of the job; None without history."""


class Building(Struct, frozen=True):
    """The caller's own build has to make it."""

    ref: str
    build_request_id: str
    started_at: int
    """When the attempt began, microseconds since the epoch."""
    index: int
    """Of the event that began it."""


Requested = Available | Delegated | Building


class PartitionState(Struct, frozen=True):
    """A partition as it is now."""

    ref: str
    state: str
    """Such as "available"; "" for never seen."""
    as_of: int
    """All events below this index are in it."""
    row: catalog_pb2.Partition
    """Everything else that is known."""


M = TypeVar("M", bound=Message)


def look(
    session: Session,
    kind: type[M],
    *segments: str,
    query: Sequence[tuple[str, object]] | Mapping[str, object] = (),
    wait_s: float = 0,
) -> Steps[M]:
    """Ask for any of the service's answers.

    Args:
        session: The client's.
        kind: The message that is answered.
        segments: Of the path, not encoded.
        query: Parameters; None leaves one out, a list gives it several times.
        wait_s: How long the service was asked to wait, seconds.
    """
    given = query.items() if isinstance(query, Mapping) else query
    path = path_of(*segments, query=[pair for name, value in given for pair in _pairs(name, value)])
    answer = yield from get(session, path, wait_s=wait_s)
    return message_of(answer.body, kind)


def _pairs(name: str, value: object) -> list[tuple[str, object]]:
    if value is None:
        return []
    if isinstance(value, (list, tuple)):
        return [(name, item) for item in cast("Sequence[object]", value)]
    if isinstance(value, bool):
        return [(name, "true" if value else "false")]
    return [(name, value)]


def partition(session: Session, ref: str, *, min_index: int | None = None) -> Steps[PartitionState]:
    """Ask for a partition; one that was never seen has the state ""."""
    query = [] if min_index is None else [("min_index", min_index)]
    try:
        answer = yield from get(session, path_of("partitions", ref, query=query))
    except NotFound as error:
        if error.index is None:
            raise  # not the partition is missing, but the route
        row = catalog_pb2.Partition(partition_ref=ref)
        return PartitionState(ref, "", max(error.index, 0), row)
    row = message_of(answer.body, catalog_pb2.Partition)
    as_of = int(answer.headers.get("belog-as-of", row.index + 1))
    state = catalog_pb2.PartitionStatus.Name(row.status).lower()
    return PartitionState(ref, "" if state == "unknown" else state, as_of, row)


def wait(
    session: Session,
    ref: str,
    states: Collection[str],
    *,
    timeout_s: float,
    min_index: int | None = None,
) -> Steps[PartitionState | None]:
    """Wait for a state; see `belog.client.Client.wait`."""
    deadline_s = session.clock() + timeout_s
    wanted = EventFilter(partition_refs=(ref,), subject_kinds=("partition",))
    seen = yield from partition(session, ref, min_index=min_index)
    while seen.state not in states:
        left_s = deadline_s - session.clock()
        if left_s <= 0:
            return None
        wait_s = min(left_s, WAIT_SLICE_S)
        query = [("since", seen.as_of), ("limit", 1), ("wait_s", f"{wait_s:.3f}")]
        path = path_of("events", query=[*query, *filter_query(wanted)])
        answer = yield from get(session, path, wait_s=wait_s)
        next_idx = int(answer.headers.get("belog-as-of", "0"))
        seen = yield from partition(session, ref, min_index=max(next_idx, seen.as_of) - 1)
    return seen


def request_partition(
    session: Session,
    ref: str,
    *,
    client_id: str | None,
    build_request_id: str,
    allow_delegation: bool,
    timeout_s: float,
    asked_by: Sequence[str] = (),
) -> Steps[Requested]:
    """Ask for a partition; see `belog.client.Client.request_partition`."""
    deadline_s = session.clock() + timeout_s
    while True:
        wait_s = max(0.0, min(deadline_s - session.clock(), WAIT_SLICE_S))
        body = {
            "client_id": client_id or "",
            "build_request_id": build_request_id,
            "allow_delegation": allow_delegation,
            "timeout_s": wait_s,
        }
        request = Request(
            method="POST",
            path=path_of("partitions", ref, "request"),
            body=to_json(body),
            timeout_s=session.timeout_s + wait_s,
            headers={ASKED_BY_HEADER: ", ".join(asked_by)} if asked_by else {},
        )
        # Safe to repeat: the build is the caller's, so the second answer is as the first.
        done = yield from exchange(session, request)
        raise_refusal(session, done.response)
        index = int(done.response.headers.get("belog-as-of", "0")) - 1
        answer = _requested(ref, message_of(done.response.body, catalog_pb2.RequestResult), index)
        if not isinstance(answer, Delegated) or deadline_s - session.clock() <= 0:
            return answer


def _requested(ref: str, result: catalog_pb2.RequestResult, index: int) -> Requested:
    match result.WhichOneof("result"):
        case "available":
            there = result.available
            manifest = there.manifest if there.HasField("manifest") else None
            return Available(ref, there.index, there.log_id, manifest)
        case "delegated":
            token = result.delegated
            estimate = (
                token.estimated_completion if token.HasField("estimated_completion") else None
            )
            return Delegated(ref, token.job_graph_run_id, token.log_id, index, estimate)
        case "building":
            mine = result.building
            return Building(ref, mine.job_graph_run_id, mine.started_at, index)
        case _:
            msg = f"the service did not say what becomes of {ref!r}"
            raise Corrupt(msg, hint="is it newer than this client?")


def readiness(session: Session) -> Steps[http_pb2.Health]:
    """Ask whether the service can do its work; it says so with a status of its own if not."""
    came = yield Request(method="GET", path="/readyz", timeout_s=session.timeout_s)
    if isinstance(came, Response) and came.status in {200, 503}:
        return message_of(came.body, http_pb2.Health)
    reason = came.reason if isinstance(came, Lost) else "an answer of another kind"
    msg = f"no word about its readiness from {session.url}: {reason}"
    raise Unavailable(msg, hint="is the service running?")


def cancel(session: Session, kind: type[M], *segments: str, reason: str | None) -> Steps[M]:
    """Call a build, a job run or a task off; safe to repeat."""
    request = Request(
        method="POST",
        path=path_of(*segments, "cancel"),
        body=to_json({} if reason is None else {"reason": reason}),
        timeout_s=session.timeout_s,
    )
    done = yield from exchange(session, request)
    raise_refusal(session, done.response)
    return message_of(done.response.body, kind)
