"""`GraphService`: the feed of events by cursor."""

from collections.abc import AsyncGenerator

from belog.schemas.errors import InvalidInput
from belog.schemas.wire import filter_from_wire
from belog.service.grpc_api.guard import Context, current_grant, send_start
from belog.service.grpc_api.pages import page_message
from belog.service.grpc_api.settings import PAGE_EVENTS, GrpcSettings, count_within, index_from
from belog.service.instance import Instance
from belog.v1 import events_pb2, graph_pb2
from belog.v1.graph_pb2_grpc import GraphServiceServicer

__all__ = ["GraphService"]


class GraphService(GraphServiceServicer):
    """See `belog/v1/graph.proto`."""

    def __init__(self, instance: Instance, settings: GrpcSettings) -> None:
        """Serve the feed of an instance."""
        self._instance = instance
        self._settings = settings

    async def ListEvents(
        self, request: graph_pb2.ListEventsRequest, context: Context
    ) -> events_pb2.EventPage:
        """Return a page, at once or as soon as there is an event; a deadline ends the wait."""
        if request.wait_ms < 0:
            msg = f"wait_ms is {request.wait_ms}, below 0"
            raise InvalidInput(msg)
        page = await self._instance.feed.page(
            index_from("since_idx", request.since_idx),
            current_grant().narrow(filter_from_wire(request.filter)),
            limit=count_within(
                "limit",
                request.limit,
                otherwise=PAGE_EVENTS,
                limit="page_events_max",
                limit_value=self._settings.page_events_max,
            ),
            wait_s=min(request.wait_ms / 1_000, self._settings.wait_s_max),
        )
        return await page_message(self._instance.calls, page)

    async def StreamEvents(
        self, request: graph_pb2.StreamEventsRequest, context: Context
    ) -> AsyncGenerator[events_pb2.EventPage]:
        """Yield pages for ever; a slow reader is read for when he has taken the one before."""
        cursor = index_from("since_idx", request.since_idx)
        wanted = current_grant().narrow(filter_from_wire(request.filter))
        limit = min(PAGE_EVENTS, self._settings.page_events_max)
        await send_start(context, self._instance, cursor)
        while True:
            page = await self._instance.feed.page(
                cursor, wanted, limit=limit, wait_s=self._settings.heartbeat_s
            )
            message = await page_message(self._instance.calls, page)
            cursor = message.next_idx
            yield message
