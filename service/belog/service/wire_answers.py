"""Rows, answers and errors as the messages of `belog/v1/*.proto`. Pure; gRPC and HTTP share it."""

from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

import msgspec

from belog.processors.rows import Attempt, Availability, BuildRow, PartitionRow
from belog.query.answers import ActiveBuild, Graph
from belog.schemas.errors import BelogError, Conflict, InvalidFilter
from belog.schemas.events import Manifest
from belog.schemas.lifecycle import LIFECYCLE_1
from belog.schemas.wire_catalog import manifest_to_wire, status_of_state
from belog.service.upstreams import Available, Building, Delegated, Requested
from belog.storage.interface import Receipt
from belog.v1 import catalog_pb2, event_log_pb2, events_pb2

__all__ = [
    "active_build_to_wire",
    "graph_to_wire",
    "manifest_from_json",
    "partition_to_wire",
    "problem_to_wire",
    "receipt_to_wire",
    "requested_to_wire",
    "result_to_wire",
    "run_to_wire",
    "states_of_statuses",
]

Covers = Callable[[str], bool]
"""Whether a reader may see a partition."""

_STATES: Final[dict[int, str]] = {
    status_of_state(state): state for state in LIFECYCLE_1.states("partition")
}

_IN_ATTEMPT: Final = frozenset({"requested", "scheduled", "building", "delegated", "failed"})
"""States that the last attempt has led to."""


def problem_to_wire(error: BelogError) -> events_pb2.Problem:
    """Return the message of an error, with its coordinates."""
    message = events_pb2.Problem(
        code=error.code,
        message=error.message,
        hint=error.hint,
        subject=error.subject or "",
        retriable=error.retriable,
    )
    if error.index is not None:
        message.index = error.index
    if isinstance(error, Conflict):
        message.state = error.state
        message.last_index = error.last_index
        message.allowed.extend(error.allowed)
        message.owner = error.owner or ""
    return message


def receipt_to_wire(receipt: Receipt) -> events_pb2.Receipt:
    """Return the message of a receipt."""
    return events_pb2.Receipt(
        index=receipt.index,
        created_at=receipt.created_at,
        event_id=str(UUID(bytes=receipt.event_id)),
        duplicate=receipt.duplicate,
    )


def result_to_wire(result: Receipt | BelogError) -> event_log_pb2.AppendResult:
    """Return the message of what became of one event of a batch."""
    if isinstance(result, BelogError):
        return event_log_pb2.AppendResult(problem=problem_to_wire(result))
    return event_log_pb2.AppendResult(receipt=receipt_to_wire(result))


def states_of_statuses(statuses: Iterable[int]) -> tuple[str, ...]:
    """Return the states that are asked for by their statuses.

    Raises:
        InvalidFilter: `UNKNOWN`, or a number that no status has.
    """
    found: list[str] = []
    for status in statuses:
        state = _STATES.get(status)
        if state is None:
            msg = f"status {status} is none that a partition can be in"
            known = ", ".join(name.upper() for name in _STATES.values())
            raise InvalidFilter(msg, hint=f"one of {known}")
        found.append(state)
    return tuple(found)


# --- rows


def partition_to_wire(row: PartitionRow) -> catalog_pb2.Partition:
    """Return the message of a partition as it is now."""
    message = catalog_pb2.Partition(
        partition_ref=row.ref,
        status=status_of_state(row.state),
        index=row.index,
        updated_at=row.updated_at,
        has_data=row.has_data,
        message=row.message or "",
    )
    if row.available is not None:
        _add_data(message, row.available, is_gone=row.state in {"stale", "removed"})
    if row.attempt is not None:
        _add_attempt(message, row.attempt, row.state)
    return message


def _add_data(message: catalog_pb2.Partition, data: Availability, *, is_gone: bool) -> None:
    message.available_index = data.index
    message.available_at = data.at
    message.available_from_run = data.build_id or ""
    message.job_label = data.job_label or ""
    message.upstream_deps.extend(data.upstream_deps)
    if is_gone:
        message.reason = data.reason or ""
        message.cause_partition = data.cause_partition or ""
    if (manifest := manifest_from_json(data.manifest)) is not None:
        message.manifest.CopyFrom(manifest)


def _add_attempt(message: catalog_pb2.Partition, attempt: Attempt, state: str) -> None:
    message.job_graph_run_id = attempt.build_id
    message.job_run_id = attempt.job_run_id or ""
    message.requesting_clients.extend(attempt.requesting_clients)
    message.requested_at = attempt.requested_at
    message.joined_runs.extend(attempt.joined_builds)
    message.delegated_to_log = attempt.delegated_to_log or ""
    message.delegated_to_run_id = attempt.delegated_to_build or ""
    if state in _IN_ATTEMPT:
        message.job_label = attempt.job_label or message.job_label
        if attempt.upstream_deps:
            message.upstream_deps[:] = attempt.upstream_deps
    if state == "failed":
        message.reason = attempt.failure_reason or ""


def manifest_from_json(text: str | None) -> catalog_pb2.PartitionManifest | None:
    """Return the message of a manifest as rows and answers hold it.

    Args:
        text: JSON; None for no manifest.

    Returns:
        None where there is none, or one of newer or other software that is not of the form.
    """
    if text is None:
        return None
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except msgspec.ValidationError:
        return None
    return manifest_to_wire(manifest)


def run_to_wire(row: BuildRow) -> catalog_pb2.JobGraphRun:
    """Return the message of a build request."""
    return catalog_pb2.JobGraphRun(
        job_graph_run_id=row.build_id,
        state=row.state,
        requested_partitions=row.requested_partitions,
        client_id=row.client_id or "",
        received_at=row.received_at or 0,
        updated_at=row.updated_at,
        index=row.index,
        reason=row.reason or "",
    )


def requested_to_wire(answer: Requested) -> catalog_pb2.RequestResult:
    """Return the message of how a partition can be had."""
    match answer:
        case Available():
            return catalog_pb2.RequestResult(
                available=catalog_pb2.PartitionLocation(
                    partition_ref=answer.ref,
                    manifest=manifest_from_json(answer.manifest),
                    index=answer.index,
                    log_id=answer.log_id,
                )
            )
        case Delegated():
            return catalog_pb2.RequestResult(
                delegated=catalog_pb2.DelegationToken(
                    partition_ref=answer.ref,
                    job_graph_run_id=answer.build_request_id,
                    log_id=answer.log_id,
                    estimated_completion=answer.estimated_completion,
                )
            )
        case Building():
            return catalog_pb2.RequestResult(
                building=catalog_pb2.BuildToken(
                    partition_ref=answer.ref,
                    job_graph_run_id=answer.build_request_id,
                    started_at=answer.started_at,
                )
            )


def active_build_to_wire(build: ActiveBuild) -> catalog_pb2.ActiveBuild:
    """Return the message of a build with an interest in a partition."""
    return catalog_pb2.ActiveBuild(
        partition_ref=build.partition,
        job_graph_run_id=build.build_id,
        status=status_of_state(build.status),
        requesting_clients=build.requesting_clients,
        started_at=build.started_at or 0,
    )


def graph_to_wire(graph: Graph, as_of: int, covers: Covers) -> catalog_pb2.DependencyGraph:
    """Return the message of a graph.

    Args:
        graph: The graph.
        as_of: The index that it is as of.
        covers: Partitions that it does not cover are left out, and their edges with them.
    """
    return catalog_pb2.DependencyGraph(
        nodes=[
            catalog_pb2.DependencyNode(
                partition_ref=node.ref,
                status=status_of_state(node.status),
                last_updated=node.last_updated or 0,
                job_label=node.job_label or "",
            )
            for node in graph.nodes
            if covers(node.ref)
        ],
        edges=[
            catalog_pb2.DependencyEdge(
                source=edge.source,
                target=edge.target,
                kind=edge.kind,
            )
            for edge in graph.edges
            if covers(edge.source) and covers(edge.target)
        ],
        as_of_index=as_of,
        truncated=graph.is_truncated,
    )
