"""The HTTP application of one log: the table of routes, and what each of them does."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from fastapi import FastAPI
from starlette.routing import Route

from belog.service.access import Access
from belog.service.http_api import builds, events, pages, partitions, service_routes, stream
from belog.service.http_api.call import Slots
from belog.service.http_api.gate import Endpoint, Gate, Handler
from belog.service.http_api.route_table import RouteEntry, RouteTable
from belog.service.http_api.routes import ROUTES
from belog.service.http_api.settings import HttpSettings
from belog.service.instance import Instance

__all__ = ["HANDLERS", "add_route", "make_app"]

HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    ("POST", "/events"): events.append_events,
    ("GET", "/events"): events.list_events,
    ("GET", "/events/stream"): stream.stream_events,
    ("GET", "/events/{index}"): events.get_event,
    ("GET", "/partitions"): partitions.list_partitions,
    ("GET", "/partitions/{ref}"): partitions.get_partition,
    ("GET", "/partitions/{ref}/events"): partitions.list_partition_events,
    ("POST", "/partitions/{ref}/request"): partitions.request_partition,
    ("GET", "/partitions/{ref}/explain"): partitions.explain_partition,
    ("GET", "/partitions/{ref}/graph"): partitions.get_graph,
    ("GET", "/builds"): builds.list_builds,
    ("GET", "/builds/{build_request_id}"): builds.get_build,
    ("POST", "/builds/{build_request_id}/cancel"): builds.cancel_build,
    ("GET", "/jobs"): builds.list_jobs,
    ("GET", "/jobs/labels"): builds.list_job_metrics,
    ("GET", "/jobs/labels/{label}/metrics"): builds.get_job_metrics,
    ("GET", "/jobs/{job_run_id}"): builds.get_job,
    ("POST", "/jobs/{job_run_id}/cancel"): builds.cancel_job,
    ("GET", "/tasks"): builds.list_tasks,
    ("GET", "/tasks/{build_request_id}/{task_id}"): builds.get_task,
    ("POST", "/tasks/{build_request_id}/{task_id}/cancel"): builds.cancel_task,
    ("GET", "/active-builds"): builds.list_active_builds,
    ("GET", "/activity"): service_routes.get_activity,
    ("GET", "/statistics"): service_routes.get_statistics,
    ("GET", "/audit"): service_routes.audit,
    ("GET", "/status"): service_routes.get_status,
    ("GET", "/healthz"): service_routes.get_health,
    ("GET", "/readyz"): service_routes.get_readiness,
    ("GET", "/openapi.json"): pages.get_openapi,
    ("GET", "/docs"): pages.get_docs,
}
"""What each route of the table does."""


def make_app(instance: Instance, access: Access, settings: HttpSettings | None = None) -> FastAPI:
    """Return the application; it serves an instance that is open by the time of the first request.

    Args:
        instance: Whose log it is; stays the caller's.
        access: Who may do what.
        settings: The bounds.

    Further routes are added with `add_route`; the paths of the table are taken.
    """
    settings = settings or HttpSettings()
    app = FastAPI(title=settings.title, openapi_url=None, docs_url=None, redoc_url=None)
    app.router.redirect_slashes = False
    # The framework's own document would know nothing of these routes.
    app.openapi = partial(pages.openapi_document, app)  # type: ignore[method-assign]
    table = RouteTable(())
    app.state.table = table
    app.state.written = events.Written()
    app.state.openapi = None
    app.state.slots = slots = Slots(settings.waiters_max)
    app.add_middleware(
        Gate,
        instance=instance,
        access=access,
        settings=settings,
        table=table,
        slots=slots,
    )
    # Paths without names first: the router takes the first that fits.
    for entry in sorted(ROUTES, key=lambda entry: "{" in entry.path):
        add_route(app, entry, HANDLERS[entry.method, entry.path])
    return app


def add_route(app: FastAPI, entry: RouteEntry, handler: Handler) -> None:
    """Let one more route in; before the application is used.

    Args:
        app: From `make_app`.
        entry: Who may call it, and what OpenAPI says of it.
        handler: What it does.

    Raises:
        InvalidInput: It is there already.
    """
    # An application and not a function, so that the framework adds nothing around it.
    endpoint = Endpoint(handler)
    app.state.table.add(entry, endpoint)
    app.router.routes.append(Route(entry.path, endpoint, methods=[entry.method]))
