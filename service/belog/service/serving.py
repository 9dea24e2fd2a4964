"""Puts a service together out of its configuration: the log, who may use it, HTTP and gRPC."""

import asyncio
from collections.abc import Awaitable, Callable

from belog.service.binding import check_binding, check_upstreams, own_hosts
from belog.service.configuration import Configuration
from belog.service.dashboard import PAGES, page_handler
from belog.service.federation import federated
from belog.service.grpc_api.server import start_grpc
from belog.service.grpc_api.settings import GrpcSettings
from belog.service.http_api.app import add_route, make_app
from belog.service.http_api.settings import HttpSettings
from belog.service.instance import DEFAULT_LOG, Instance, InstanceSettings
from belog.service.observation import Observation, observed
from belog.service.observing_grpc import GrpcObserver
from belog.service.observing_http import METRICS_ROUTE, HttpObserver, metrics_handler
from belog.service.server import HttpListener, Stoppable, listen, run, serve, settled_collector
from belog.service.tls import server_context
from belog.service.tls_grpc import server_credentials
from belog.service.tokens import LiveAccess
from belog.service.uris import log_uri_of, tables_uri_of

__all__ = ["instance_settings", "serve_configured"]


def instance_settings(configuration: Configuration) -> InstanceSettings:
    """Return what a configuration says of the instance."""
    return InstanceSettings(
        log_uri=log_uri_of(configuration) or DEFAULT_LOG,
        tables_uri=tables_uri_of(configuration),
        instance=configuration.log.instance,
        snapshots=configuration.snapshots.uri,
        snapshot_every_events=configuration.snapshots.every_events or None,
        snapshots_kept=configuration.snapshots.kept,
    )


def serve_configured(configuration: Configuration, *, say: Callable[[str], None]) -> None:
    """Serve what is configured until SIGINT or SIGTERM; blocks.

    Args:
        configuration: Everything.
        say: Told where the service answers, and what its operator should know.

    Raises:
        InvalidConfiguration: It is open to everyone, and other machines would reach it; or a file
            of tokens or TLS cannot be used.
        InvalidInput: The address cannot be had.
        Unavailable: Another program has it.
        BelogError: The log or its tables cannot be opened.
    """
    access = LiveAccess(configuration.access)
    warning = check_binding(configuration.server, is_open=access.is_open)
    tls = server_context(configuration.tls)
    server = configuration.server
    where = HttpListener(host=server.host, port=server.port, tls=tls)
    # Before a log is made for a service that cannot run.
    check_upstreams(configuration.federation)

    async def main(stop: asyncio.Event) -> None:
        listening = listen(where)
        port = listening.getsockname()[1]
        try:
            async with (
                Instance(instance_settings(configuration), observation) as instance,
                federated(instance, configuration.federation),
            ):
                observation.watch(instance)
                app = make_app(instance, access, _http_settings(configuration))
                if observation.metrics is not None:
                    add_route(app, METRICS_ROUTE, metrics_handler(observation.metrics))
                for page in PAGES:
                    add_route(app, page.route, page_handler(page))
                grpc_ports: list[int] = []
                others = _grpc_starter(configuration, instance, access, observation, grpc_ports)
                with settled_collector():
                    await serve(
                        instance,
                        HttpObserver(app, observation),
                        listening,
                        tls=tls,
                        others=others,
                        stop=stop,
                        stop_s=server.drain_s,
                        on_ready=lambda: _announce(say, instance, where, port, grpc_ports, warning),
                    )
        finally:
            listening.close()

    with observed(configuration.observability, instance=configuration.log.instance) as observation:
        run(main)


def _announce(  # noqa: PLR0917 - private, one caller
    say: Callable[[str], None],
    instance: Instance,
    where: HttpListener,
    port: int,
    grpc_ports: list[int],
    warning: str | None,
) -> None:
    host = f"[{where.host}]" if ":" in where.host else where.host
    scheme = "http" if where.tls is None else "https"
    say(f"serving {instance.log.name} ({instance.identity.log_id})")
    say(f"HTTP at {scheme}://{host}:{port}  (a dashboard, and pages about the API at /docs)")
    for grpc_port in grpc_ports:
        say(f"gRPC at {host}:{grpc_port}")
    if warning is not None:
        say(warning)


def _http_settings(configuration: Configuration) -> HttpSettings:
    server = configuration.server
    return HttpSettings(
        wait_s_max=server.wait_s_max,
        waiters_max=server.waiters_max,
        page_events_max=server.page_events_max,
        batch_events_max=server.batch_events_max,
        body_bytes_max=server.body_bytes_max,
        hosts=own_hosts(server),
    )


def _grpc_starter(
    configuration: Configuration,
    instance: Instance,
    access: LiveAccess,
    observation: Observation,
    ports: list[int],
) -> Callable[[], Awaitable[list[Stoppable]]] | None:
    server = configuration.server
    wanted = server.grpc_port
    if wanted is None:
        return None

    async def start() -> list[Stoppable]:
        settings = GrpcSettings(
            host=server.host,
            port=wanted,
            credentials=server_credentials(configuration.tls),
            wait_s_max=server.wait_s_max,
            batch_events_max=server.batch_events_max,
            message_bytes_max=server.body_bytes_max,
        )
        watching = (GrpcObserver(observation),)
        started = await start_grpc(instance, access, settings, watching=watching)
        ports.append(started.port)
        return [started]

    return start
