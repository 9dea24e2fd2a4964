"""`EnhancedCatalog`: partitions and builds as they are now, and the flat view of their events."""

import re
import uuid
from collections.abc import AsyncGenerator, Callable
from typing import Final, TypeVar

from google.protobuf.message import Message
from msgspec.structs import replace

from belog.processors.indexes import Where
from belog.processors.rows import BuildRow, PartitionRow
from belog.processors.tables import PAGE_ROWS, PAGE_ROWS_MAX
from belog.query.answers import ActiveBuild, Listing
from belog.query.engine import DEPTH
from belog.query.lineage import DEPTH_MAX
from belog.query.log_events import filter_of
from belog.schemas.checks import check_int
from belog.schemas.errors import BelogError, InvalidFilter, InvalidInput, LimitExceeded
from belog.schemas.filters import EventFilter, glob_regex
from belog.schemas.lifecycle import LIFECYCLE_1
from belog.schemas.limits import FILTER_TERMS_MAX
from belog.schemas.wire_catalog import event_from_partition_event
from belog.service.access import Grant
from belog.service.grpc_api.guard import Context, current_grant, send_start
from belog.service.grpc_api.partition_events import PartitionEvents, query_from_stream
from belog.service.grpc_api.settings import (
    ANSWER_BYTES_MAX,
    PAGE_EVENTS,
    GrpcSettings,
    count_within,
    index_from,
)
from belog.service.instance import Instance
from belog.service.requesting import request as request_partition
from belog.service.wire_answers import (
    active_build_to_wire,
    graph_to_wire,
    partition_to_wire,
    requested_to_wire,
    run_to_wire,
    states_of_statuses,
)
from belog.v1 import catalog_pb2 as pb
from belog.v1.catalog_pb2_grpc import EnhancedCatalogServicer

__all__ = ["ACTIVE_BUILDS_MAX", "EnhancedCatalog"]

ACTIVE_BUILDS_MAX: Final = 1_000
"""Active builds of one answer, over all partitions: as many as a person or a page can do with."""

LOOKS_MAX: Final = 10
"""Pages of rows that are looked through for one page of those that match patterns; then the page is
short and says where to go on, so that none takes long."""


_META: Final = re.compile(r"[*?\[]")


class EnhancedCatalog(EnhancedCatalogServicer):
    """See `belog/v1/catalog.proto`."""

    def __init__(self, instance: Instance, settings: GrpcSettings) -> None:
        """Serve the tables and the log of an instance."""
        self._instance = instance
        self._settings = settings
        self._events = PartitionEvents(instance, settings)

    # --- lists

    async def ListJobGraphRuns(
        self, request: pb.ListJobGraphRunsRequest, context: Context
    ) -> pb.ListJobGraphRunsResponse:
        """Return a page of build requests, the last changed first."""
        for state in request.states:
            if state not in LIFECYCLE_1.states("build"):
                msg = f"{state!r} is no state of a build"
                hint = f"one of {', '.join(LIFECYCLE_1.states('build'))}"
                raise InvalidFilter(msg, hint=hint)
        times = request.time_range
        where = Where(
            states=tuple(request.states),
            partition=request.partition_ref or None,
            client_id=request.client_id or None,
            since_us=times.start if times.HasField("start") else None,
            until_us=times.end if times.HasField("end") else None,
        )
        grant = current_grant()

        def seen(row: BuildRow) -> bool:
            return grant.sees(row.requested_partitions)

        def message(limit: int) -> pb.ListJobGraphRunsResponse:
            queries = self._instance.queries
            page = queries.list_rows(
                BuildRow, where, cursor=request.page_token or None, limit=limit
            )
            return pb.ListJobGraphRunsResponse(
                runs=[run_to_wire(row) for row in page.rows if seen(row)],
                next_page_token=page.next_cursor or "",
                as_of_index=page.as_of,
            )

        return await self._instance.calls.run(_fitting, message, _page_size(request.page_size))

    async def ListPartitions(
        self, request: pb.ListPartitionsRequest, context: Context
    ) -> pb.ListPartitionsResponse:
        """Return a page of partitions, ordered by their refs."""
        matches, prefix = _matching(tuple(request.partition_patterns), current_grant())
        where = Where(
            states=states_of_statuses(request.statuses),
            build_id=request.job_graph_run_id or None,
            id_prefix=prefix,
        )

        def message(limit: int) -> pb.ListPartitionsResponse:
            rows, page = self._matching_rows(where, matches, request.page_token, limit)
            return pb.ListPartitionsResponse(
                partitions=[partition_to_wire(row) for row in rows],
                next_page_token=page.next_cursor or "",
                as_of_index=page.as_of,
            )

        return await self._instance.calls.run(_fitting, message, _page_size(request.page_size))

    def _matching_rows(
        self, where: Where, matches: Callable[[str], bool], token: str, limit: int
    ) -> tuple[list[PartitionRow], Listing[PartitionRow]]:
        """Return rows that match, `limit` at most, with the last page that was looked at."""
        queries = self._instance.queries
        found: list[PartitionRow] = []
        cursor = token or None
        as_of: int | None = None
        for look in range(LOOKS_MAX):
            page = queries.list_rows(
                PartitionRow, where, order="id", cursor=cursor, limit=limit - len(found)
            )
            as_of = page.as_of if as_of is None else as_of
            found.extend(row for row in page.rows if matches(row.ref))
            cursor = page.next_cursor
            if cursor is None or len(found) == limit or look == LOOKS_MAX - 1:
                return found, Listing(page.rows, page.next_cursor, as_of)
        raise AssertionError  # pragma: no cover

    # --- events of partitions

    async def AppendPartitionEvent(
        self, request: pb.AppendPartitionEventRequest, context: Context
    ) -> pb.AppendPartitionEventResponse:
        """Append what a flat partition event means; durable on return."""
        grant = current_grant()
        event = event_from_partition_event(
            request.event,
            actor=grant.actor,
            event_id=uuid.uuid4().bytes,
            occurred_at=self._instance.queries.clock(),
        )
        if request.HasField("expected"):
            check_int("expected", request.expected, -1)
            event = replace(event, expected=request.expected)
        (result,) = await self._instance.append(grant, (event,))
        if isinstance(result, BelogError):
            raise result
        return pb.AppendPartitionEventResponse(
            index=result.index, created_at=result.created_at, duplicate=result.duplicate
        )

    async def GetLatestPartitionEvent(
        self, request: pb.GetLatestPartitionEventRequest, context: Context
    ) -> pb.PartitionEvent:
        """Return a partition's last event, with what is made from the partition."""
        if request.HasField("min_index"):
            index = index_from("min_index", request.min_index)
            await self._instance.reach(index, self._settings.index_wait_s)
        grant = current_grant()
        calls = self._instance.calls
        return await calls.run(self._events.latest, request.partition_ref, grant)

    async def QueryPartitionEvents(
        self, request: pb.PartitionEventQuery, context: Context
    ) -> pb.PartitionEventQueryResult:
        """Return events of partitions, and how many there are."""
        calls = self._instance.calls
        return await calls.run(self._events.query, request, current_grant())

    async def StreamPartitionEvents(
        self, request: pb.EventStreamFilter, context: Context
    ) -> AsyncGenerator[pb.PartitionEvent]:
        """Yield events of partitions for ever; without `since` from the log's end on."""
        instance = self._instance
        wanted = current_grant().narrow(filter_of(query_from_stream(request)))
        if request.HasField("since"):
            cursor = index_from("since", request.since)
        else:
            cursor = await instance.calls.run(instance.log.next_position)
        await send_start(context, instance, cursor)
        limit = min(PAGE_EVENTS, self._settings.page_events_max)
        while True:
            page = await instance.feed.page(
                cursor, wanted, limit=limit, wait_s=self._settings.heartbeat_s
            )
            cursor = page.next_idx
            if page.events:
                for message in await instance.calls.run(self._events.messages, page.events):
                    yield message

    # --- what goes on

    async def RequestPartition(
        self, request: pb.RequestPartitionRequest, context: Context
    ) -> pb.RequestResult:
        """Ask for a partition; see `requesting.request`."""
        wait_s = request.options.timeout_seconds
        if not wait_s >= 0:
            msg = f"timeout_seconds is {wait_s:g}"
            raise InvalidInput(msg, hint="0 to answer at once, or how long to wait")
        answer = await request_partition(
            self._instance,
            current_grant(),
            request.partition_ref,
            request.client_id,
            allow_delegation=request.options.allow_delegation,
            timeout_s=min(wait_s, self._settings.request_wait_s_max),
        )
        return requested_to_wire(answer)

    async def GetActiveBuildStatus(
        self, request: pb.GetActiveBuildStatusRequest, context: Context
    ) -> pb.ActiveBuildStatus:
        """Return who makes a partition and who waits for it; without a partition, of all."""
        calls, grant = self._instance.calls, current_grant()
        if request.partition_ref:
            answer = await calls.run(
                self._instance.queries.active_builds_for_partition, request.partition_ref
            )
            return _active(list(answer.value), answer.as_of)
        return await calls.run(self._all_active, grant)

    def _all_active(self, grant: Grant) -> pb.ActiveBuildStatus:
        found: list[ActiveBuild] = []
        cursor: str | None = None
        as_of: int | None = None
        while True:
            builds, page = self._instance.queries.active_builds(cursor=cursor)
            as_of = page.as_of if as_of is None else as_of
            found.extend(build for build in builds if grant.covers(build.partition))
            cursor = page.next_cursor
            if cursor is None or len(found) > ACTIVE_BUILDS_MAX:
                return _active(found, as_of)

    async def GetDependencyGraph(
        self, request: pb.GetDependencyGraphRequest, context: Context
    ) -> pb.DependencyGraph:
        """Return what a partition is made from and what is made from it."""
        depth = count_within(
            "depth", request.depth, otherwise=DEPTH, limit="DEPTH_MAX", limit_value=DEPTH_MAX
        )
        answer = await self._instance.calls.run(
            self._instance.queries.dependency_graph, request.partition_ref, depth
        )
        return graph_to_wire(answer.value, answer.as_of, current_grant().covers)


def _page_size(value: int) -> int:
    return count_within(
        "page_size", value, otherwise=PAGE_ROWS, limit="PAGE_ROWS_MAX", limit_value=PAGE_ROWS_MAX
    )


def _active(builds: list[ActiveBuild], as_of: int) -> pb.ActiveBuildStatus:
    return pb.ActiveBuildStatus(
        builds=map(active_build_to_wire, builds[:ACTIVE_BUILDS_MAX]),
        as_of_index=as_of,
        truncated=len(builds) > ACTIVE_BUILDS_MAX,
    )


M = TypeVar("M", bound=Message)


def _fitting(make: Callable[[int], M], limit: int) -> M:
    """Return an answer of at most `limit` rows, fewer where it would be too large for clients."""
    while (answer := make(limit)).ByteSize() > ANSWER_BYTES_MAX and limit > 1:
        limit //= 2
    return answer


def _matching(patterns: tuple[str, ...], grant: Grant) -> tuple[Callable[[str], bool], str]:
    """Return whether a ref is wanted and may be seen, and what all such refs begin with."""
    if len(patterns) > FILTER_TERMS_MAX:
        raise LimitExceeded(
            "partition_patterns",
            limit="FILTER_TERMS_MAX",
            limit_value=FILTER_TERMS_MAX,
            value=len(patterns),
        )
    patterns = grant.narrow(EventFilter(partition_patterns=patterns)).partition_patterns
    if not patterns:
        return _any, ""
    expression = re.compile("|".join(f"(?:{glob_regex(p)})" for p in patterns), re.DOTALL)
    first, *others = (_META.split(pattern, maxsplit=1)[0] for pattern in patterns)
    while not all(other.startswith(first) for other in others):
        first = first[:-1]
    return lambda ref: expression.fullmatch(ref) is not None, first


def _any(_ref: str) -> bool:
    return True
