"""Watches HTTP requests as pure ASGI: metrics, a span and a line in the access log for each."""

import logging
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from belog.service.http_api.answers import Answer
from belog.service.http_api.call import Call
from belog.service.http_api.gate import Handler
from belog.service.http_api.route_table import Reach, RouteEntry
from belog.service.metrics import OTHER
from belog.service.metrics_service import ServiceMetrics
from belog.service.observation import Observation
from belog.service.structured_logs import request_fields

if TYPE_CHECKING:
    from belog.service.tracing import RequestSpan

__all__ = ["ACCESS_LOGGER", "METRICS_ROUTE", "UNMATCHED", "HttpObserver", "metrics_handler"]

ACCESS_LOGGER: Final = logging.getLogger("belog.access")

UNMATCHED: Final = "unmatched"
"""The route of requests that meet none."""

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked every few seconds by programs: logged for who looks closely only."""

CLIENT_LEFT: Final = 499
"""The status counted where the client went before it was answered; as nginx has it."""

FAILED: Final = 500
"""The status counted where the application ended without an answer."""

_TRACE_HEADERS: Final = frozenset({b"traceparent", b"tracestate"})
_NO_STORE: Final = ((b"cache-control", b"no-store"),)
_NO_SPAN: Final = nullcontext()


METRICS_ROUTE: Final = RouteEntry(
    method="GET",
    path="/metrics",
    reach=Reach.LOG,
    summary="Metrics, as Prometheus reads them",
    media_type="text/plain",
    tag="service",
)
"""Where there are tokens, Prometheus needs one too, of the role `read`."""


def metrics_handler(metrics: ServiceMetrics) -> Handler:
    """Return what answers `METRICS_ROUTE`; for `add_route`."""

    async def get_metrics(call: Call) -> Answer:
        accept = (call.header(b"accept") or b"").decode("latin-1")
        body, content_type = await metrics.page(accept)
        return Answer(body, content_type=content_type.encode(), headers=_NO_STORE)

    return get_metrics


class HttpObserver:
    """An ASGI application around another one. Belongs to one event loop.

    The application says by `bind` which `route` (its template) and which `actor` a request has.
    Nothing of a path, a query or a header is kept but these and `traceparent`.
    """

    def __init__(self, app: ASGIApp, observation: Observation) -> None:
        """Watch an application."""
        self._app = app
        self._observation = observation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and take note of how it ended."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        metrics = self._observation.metrics
        started = time.perf_counter()
        request = _Request(send, metrics)
        if metrics is not None:
            metrics.http_in_progress += 1
        with request_fields() as fields, self._span(scope) as span:
            try:
                await self._app(scope, receive, request)
            except Exception:
                request.status = request.status or FAILED
                raise
            finally:
                seconds = time.perf_counter() - started
                if metrics is not None:
                    metrics.http_in_progress -= 1
                    metrics.streams["http"] -= request.is_stream
                self._observation.answered(fields)
                route = str(fields.get("route", UNMATCHED))
                self._ended(scope, request.status or CLIENT_LEFT, route, span, seconds)
                if metrics is not None:
                    timed = None if request.is_stream else seconds
                    status = request.status or CLIENT_LEFT
                    metrics.http_answered(route, _method(scope), status, timed)

    def _span(self, scope: Scope) -> "AbstractContextManager[RequestSpan | None]":
        tracing = self._observation.tracing
        if tracing is None:
            return _NO_SPAN
        carrier = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in _TRACE_HEADERS
        }
        return tracing.request(_method(scope), carrier)

    def _ended(
        self, scope: Scope, status: int, route: str, span: "RequestSpan | None", seconds: float
    ) -> None:
        method = _method(scope)
        if span is not None:
            span.end(
                f"{method} {route}",
                is_error=status >= FAILED,
                http__request__method=method,
                http__route=route,
                http__response__status_code=status,
            )
        level = logging.DEBUG if route in _PROBES else logging.INFO
        if ACCESS_LOGGER.isEnabledFor(level):
            client: tuple[str, int] | None = scope.get("client")
            fields = {
                "route": route,
                "method": method,
                "status": status,
                "duration_s": round(seconds, 6),
                "client": None if client is None else client[0],
            }
            ACCESS_LOGGER.log(level, "%s %s %d", method, route, status, extra={"fields": fields})


class _Request:
    """What is seen of an answer on its way out."""

    __slots__ = ("_metrics", "_send", "is_stream", "status")

    def __init__(self, send: Send, metrics: ServiceMetrics | None) -> None:
        self._send = send
        self._metrics = metrics
        self.status = 0
        self.is_stream = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
            headers: Iterable[tuple[bytes, bytes]] = message.get("headers", ())
            for name, value in headers:
                if name == b"content-type" and value.startswith(b"text/event-stream"):
                    self.is_stream = True
                    if self._metrics is not None:
                        self._metrics.streams["http"] += 1
        await self._send(message)


def _method(scope: Scope) -> str:
    method = str(scope["method"])
    return method if method in _METHODS else OTHER
