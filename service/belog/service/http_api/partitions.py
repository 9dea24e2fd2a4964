"""The routes of partitions."""

import re
from collections.abc import Callable, Sequence
from typing import Final

from google.protobuf import json_format

from belog.client.calls import ASKED_BY_HEADER
from belog.processors.indexes import Order, Where
from belog.processors.rows import PartitionRow
from belog.query.answers import Explanation, Graph, Listing
from belog.query.log_events import QUERY_EVENTS, PartitionEventQuery, read_range
from belog.schemas.errors import InvalidInput
from belog.schemas.filters import EventFilter, glob_regex
from belog.schemas.wire_json import event_to_json, to_json
from belog.service.access import Grant
from belog.service.circles import asked_by
from belog.service.http_api.answers import Answer, json_answer
from belog.service.http_api.call import Call
from belog.service.http_api.events import limit_of, page_answer
from belog.service.http_api.lists import listed
from belog.service.http_api.rows import Fields, partition_fields, viewed
from belog.service.instance import not_found
from belog.service.requesting import request
from belog.service.wire_answers import requested_to_wire
from belog.service.wire_rows import status_name
from belog.v1 import http_pb2

__all__ = [
    "explain_partition",
    "get_graph",
    "get_partition",
    "list_partition_events",
    "list_partitions",
    "request_partition",
]

DEPTH: Final = 10
"""Depth of a graph when nothing is said."""


async def get_partition(call: Call) -> Answer:
    """Answer `GET /partitions/{ref}`."""
    await call.reach()
    ref = call.name("ref")
    found = await call.instance.calls.run(call.instance.queries.tables.get, PartitionRow, ref)
    if found.value is None:
        raise not_found("partition", ref, found.applied)
    fields = viewed(partition_fields, call.query.get("view"))
    return Answer(to_json(fields(found.value)), found.applied)


async def list_partitions(call: Call) -> Answer:
    """Answer `GET /partitions`."""
    refs: Sequence[str] | None = call.query.get("ref")
    if refs is not None:
        return await _by_ref(call, tuple(dict.fromkeys(refs)))
    repository = call.instance.repositories.partitions
    matches = _matcher(call.query.get("pattern", ()))

    def listing(
        where: Where, order: Order, cursor: str | None, limit: int
    ) -> Listing[PartitionRow]:
        found = repository.list(where, order=order, cursor=cursor, limit=limit)
        if matches is None:
            return found
        rows = tuple(row for row in found.rows if matches(row.ref))
        return Listing(rows, found.next_cursor, found.as_of)

    return await listed(call, "partitions", listing, partition_fields, lambda row: (row.ref,))


def _matcher(patterns: Sequence[str]) -> Callable[[str], object] | None:
    if not patterns:
        return None
    # Each is refused as a filter would refuse it.
    return re.compile("|".join(f"(?:{glob_regex(p)})" for p in patterns), re.DOTALL).fullmatch


async def _by_ref(call: Call, refs: Sequence[str]) -> Answer:
    if call.query.keys() - {"ref", "view", "min_index", "wait_s"}:
        msg = "ref names partitions exactly, no other condition can stand beside it"
        raise InvalidInput(msg)
    call.grant.check_refs(refs)
    await call.reach()
    fields = viewed(partition_fields, call.query.get("view"))

    def statuses() -> Answer:
        found = call.instance.queries.latest_partition_statuses(refs)
        return json_answer(
            {
                "partitions": [fields(row) for row in found.value if row is not None],
                "next_page_token": "",
                "as_of_index": str(found.as_of),
            },
            found.as_of,
        )

    return await call.instance.calls.run(statuses)


async def list_partition_events(call: Call) -> Answer:
    """Answer `GET /partitions/{ref}/events`: all that concern it, or with states its own."""
    query = call.query
    await call.reach()
    ref, limit = call.name("ref"), limit_of(call, QUERY_EVENTS)
    offset: int = query.get("offset", 0)
    since: int = query.get("since", 0)
    descending = query.get("order") == "descending"
    states = tuple(query.get("state", ()))
    times = {name: query[name] for name in ("created_from", "created_to") if name in query}
    instance = call.instance

    def events() -> Answer:
        if states:
            asked = PartitionEventQuery(
                partition_refs=(ref,), states=states, since_idx=since, **times
            )
            found = instance.queries.events.query(
                asked, newest_first=descending, offset=offset, limit=limit
            )
        else:
            end = instance.queries.tables.applied()
            wanted = EventFilter(partition_refs=(ref,), **times)
            found = read_range(
                instance.log,
                wanted,
                (since, max(since, end)),
                offset=offset,
                limit=limit,
                newest_first=descending,
                from_horizon=since == 0,
            )
        written = [event_to_json(stored) for stored in found.events]
        last = found.events[-1].index + 1 if found.events and not descending else found.as_of
        next_idx = last if found.has_more else found.as_of
        return page_answer(written, next_idx, has_more=found.has_more)

    return await instance.calls.run(events)


# --- explaining


async def explain_partition(call: Call) -> Answer:
    """Answer `GET /partitions/{ref}/explain`."""
    await call.reach()
    ref = call.name("ref")
    found = await call.instance.calls.run(call.instance.queries.explain, ref)
    if found.value is None:
        raise not_found("partition", ref, found.as_of)
    partition = viewed(partition_fields, call.query.get("view"))(found.value.row)
    return json_answer(_explanation(found.value, partition, found.as_of, call.grant), found.as_of)


def _explanation(
    explanation: Explanation, partition: Fields, as_of: int, grant: Grant
) -> dict[str, object]:
    return {
        "partition": partition,
        # In words it may name partitions that a restricted client is not for.
        "summary": explanation.state if grant.is_restricted else explanation.summary,
        "causes": [
            {
                "index": str(cause.index),
                "at": str(cause.at),
                "event_type": cause.event_type,
                "subject_kind": cause.subject_kind,
                "subject_id": cause.subject_id,
                "actor": cause.actor,
                "link": cause.link,
                "reason": cause.reason or "",
            }
            for cause in explanation.causes
            if cause.subject_kind != "partition" or grant.covers(cause.subject_id)
        ],
        "waits_for": [
            {"partition_ref": dependency.ref, "status": status_name(dependency.state)}
            for dependency in explanation.waits_for
            if grant.covers(dependency.ref)
        ],
        "as_of_index": str(as_of),
    }


async def get_graph(call: Call) -> Answer:
    """Answer `GET /partitions/{ref}/graph`."""
    await call.reach()
    ref = call.name("ref")
    depth: int = call.query.get("depth", DEPTH)
    found = await call.instance.calls.run(call.instance.queries.dependency_graph, ref, depth)
    return json_answer(_graph(found.value, found.as_of, call.grant), found.as_of)


def _graph(graph: Graph, as_of: int, grant: Grant) -> dict[str, object]:
    covers = grant.covers
    return {
        "nodes": [
            {
                "partition_ref": node.ref,
                "status": status_name(node.status),
                "last_updated": str(node.last_updated or 0),
                "job_label": node.job_label or "",
            }
            for node in graph.nodes
            if covers(node.ref)
        ],
        "edges": [
            {"source": edge.source, "target": edge.target, "kind": edge.kind}
            for edge in graph.edges
            if covers(edge.source) and covers(edge.target)
        ],
        "as_of_index": str(as_of),
        "truncated": graph.is_truncated,
    }


# --- requesting


async def request_partition(call: Call) -> Answer:
    """Answer `POST /partitions/{ref}/request`."""
    asked = await call.message(http_pb2.HttpRequestPartition)
    timeout_s = asked.timeout_s
    if not 0 <= timeout_s < float("inf"):
        msg = f"timeout_s is no number of seconds: {timeout_s}"
        raise InvalidInput(msg)
    asking = request(
        call.instance,
        call.grant,
        call.name("ref"),
        asked.client_id,
        allow_delegation=asked.allow_delegation or not asked.HasField("allow_delegation"),
        timeout_s=min(timeout_s, call.settings.wait_s_max),
        build_request_id=asked.build_request_id or None,
        asked_by=asked_by(call.header(ASKED_BY_HEADER.encode())),
    )
    # One who waits for others may be forgotten when he goes; one who does not is answered at once.
    answer = await (call.while_connected(asking) if timeout_s else asking)
    plain = json_format.MessageToDict(
        requested_to_wire(answer),
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )
    return json_answer(plain, answer.index + 1)
