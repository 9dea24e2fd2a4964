"""Rows, answers and errors as the messages of `belog/v1/*.proto`. Pure; gRPC and HTTP share it."""

from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from belog.processors.rows import BuildRow, PartitionRow
from belog.query.answers import ActiveBuild, Graph
from belog.schemas.errors import BelogError, Conflict, InvalidFilter
from belog.schemas.lifecycle import LIFECYCLE_1
from belog.schemas.wire_catalog import status_of_state
from belog.service.upstreams import Available, Building, Delegated, Requested
from belog.service.wire_rows import manifest_values, partition_values
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
    return catalog_pb2.Partition(**partition_values(row))


def manifest_from_json(text: str | None) -> catalog_pb2.PartitionManifest | None:
    """Return the message of a manifest as answers hold it; see `manifest_values`."""
    fields = manifest_values(text)
    return None if fields is None else catalog_pb2.PartitionManifest(**fields)


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
