"""The gRPC server: its services with health and reflection, started and stopped."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, cast

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from belog.schemas.errors import BelogError, Unavailable
from belog.service.grpc_api.catalog import EnhancedCatalog
from belog.service.grpc_api.event_log import EventLogService
from belog.service.grpc_api.graph import GraphService
from belog.service.grpc_api.guard import Authenticator, Guard, which_log
from belog.service.grpc_api.settings import (
    CLIENT_PING_S,
    KEEPALIVE_S,
    KEEPALIVE_TIMEOUT_S,
    GrpcSettings,
)
from belog.service.instance import Instance
from belog.v1 import (
    catalog_pb2,
    catalog_pb2_grpc,
    event_log_pb2,
    event_log_pb2_grpc,
    graph_pb2,
    graph_pb2_grpc,
)

__all__ = ["SERVICES", "GrpcServer", "start_grpc"]

LOGGER: Final = logging.getLogger("belog.service.grpc")

SERVICES: Final[tuple[str, ...]] = tuple(
    file.DESCRIPTOR.services_by_name[name].full_name
    for file, name in (
        (graph_pb2, "GraphService"),
        (event_log_pb2, "EventLogService"),
        (catalog_pb2, "EnhancedCatalog"),
    )
)
"""Full names of the services of a log."""

READINESS_EVERY_S: Final = 1.0
"""How often readiness is looked at for `grpc.health.v1`, seconds: two round trips each."""


def _options(settings: GrpcSettings) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", settings.message_bytes_max),
        ("grpc.max_concurrent_streams", settings.connection_streams_max),
        ("grpc.keepalive_time_ms", int(KEEPALIVE_S * 1_000)),
        ("grpc.keepalive_timeout_ms", int(KEEPALIVE_TIMEOUT_S * 1_000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", int(CLIENT_PING_S * 1_000)),
        # Two processes on one port would each get some of the calls.
        ("grpc.so_reuseport", 0),
    ]


class GrpcServer:
    """A server that answers. Belongs to one event loop.

    Attributes:
        port: The port that it is bound to.
        guard: What stands before its rpcs.
    """

    def __init__(
        self, server: grpc.aio.Server, port: int, guard: Guard, following: asyncio.Task[None]
    ) -> None:
        """Hold what `start_grpc` has started."""
        self.port = port
        self.guard = guard
        self._server = server
        self._following = following

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, and end those under way within `grace_s` seconds. Idempotent.

        Who waits for events is answered by `Instance.stop`, which comes before.
        """
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        await self._server.stop(grace_s)


async def start_grpc(
    instance: Instance,
    access: Authenticator,
    settings: GrpcSettings,
    *,
    watching: Sequence[grpc.aio.ServerInterceptor] = (),
) -> GrpcServer:
    """Serve an open instance over gRPC; it answers on return.

    Args:
        instance: Open, on this loop; stays the caller's to stop and to close.
        access: Whose tokens are good for what.
        settings: Where, and the limits.
        watching: Interceptors that see every call before anybody else.

    Raises:
        Unavailable: Another program listens there.
    """
    guard = Guard(access, streams_max=settings.streams_max, metadata=which_log(instance))
    server = grpc.aio.server(
        interceptors=(*watching, guard),
        options=_options(settings),
        maximum_concurrent_rpcs=settings.rpcs_max,
    )
    # Generated code has no annotations.
    graph, event_log, catalog, probes, mirror, checks = cast(
        "tuple[Any, ...]",
        (graph_pb2_grpc, event_log_pb2_grpc, catalog_pb2_grpc, health_pb2_grpc, reflection, health),
    )
    graph.add_GraphServiceServicer_to_server(GraphService(instance, settings), server)
    event_log.add_EventLogServiceServicer_to_server(EventLogService(instance, settings), server)
    catalog.add_EnhancedCatalogServicer_to_server(EnhancedCatalog(instance, settings), server)
    health_servicer = checks.aio.HealthServicer()
    probes.add_HealthServicer_to_server(health_servicer, server)
    names = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
    mirror.enable_server_reflection(names, server)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"{host}:{settings.port}"
    try:
        if settings.credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, settings.credentials)
    except RuntimeError as error:
        msg = f"{address} cannot be listened on"
        # The host is HTTP's too, which could be had.
        hint = "is it running already? name another port with --grpc-port"
        raise Unavailable(msg, hint=hint) from error
    await _tell(health_servicer, instance)
    await server.start()
    following = asyncio.create_task(_follow_readiness(health_servicer, instance))
    return GrpcServer(server, port, guard, following)


async def _follow_readiness(servicer: Any, instance: Instance) -> None:  # noqa: ANN401 - untyped
    """Keep the health of all services what the instance's readiness is, until cancelled."""
    try:
        while True:
            await asyncio.sleep(READINESS_EVERY_S)
            await _tell(servicer, instance)
    finally:
        await servicer.enter_graceful_shutdown()


async def _tell(servicer: Any, instance: Instance) -> None:  # noqa: ANN401 - untyped
    try:
        is_ready = (await instance.calls.run(instance.readiness)).is_ready
    except BelogError:
        LOGGER.exception("readiness cannot be told")
        is_ready = False
    states = health_pb2.HealthCheckResponse
    for name in ("", *SERVICES):
        await servicer.set(name, states.SERVING if is_ready else states.NOT_SERVING)
