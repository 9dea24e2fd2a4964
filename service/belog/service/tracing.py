"""Traces by OpenTelemetry, sent as OTLP over HTTP. The one adapter of its packages.

Imported only where traces are configured, so that nothing is paid otherwise (`belog[otel]`). The
provider is this object's own: nothing of OpenTelemetry's global state is set. Sampling, headers and
attributes of the resource are taken from the environment variables that its specification names
(`OTEL_TRACES_SAMPLER`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_RESOURCE_ATTRIBUTES`).

A request's span goes on the trace that its caller names in `traceparent`. Spans of appends are made
when an append is answered, from the times it took, so that none is open while events wait.
"""

import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final
from urllib.parse import urlsplit
from uuid import UUID

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from belog.schemas.envelope import Event
from belog.schemas.errors import BelogError
from belog.service.observer import AppendTiming
from belog.service.structured_logs import without_secrets
from belog.storage.interface import Receipt

__all__ = ["FLUSH_S", "SPANS_QUEUED_MAX", "RequestSpan", "Tracing", "open_tracing"]

SPANS_QUEUED_MAX: Final = 4_096
"""Spans that wait to be sent: a second's worth at a thousand requests; further ones are dropped."""

SEND_EVERY_S: Final = 1.0
"""How long a span waits at most before it is sent, seconds."""

SEND_TIMEOUT_S: Final = 5.0
"""How long one sending may take, retries among them, seconds."""

FLUSH_S: Final = 3.0
"""How long the end of a process waits for the last spans to be sent, seconds."""

NANOS: Final = 1_000_000_000
"""Nanoseconds of a second."""

_PROPAGATOR: Final = TraceContextTextMapPropagator()


class RequestSpan:
    """The span of a request under way."""

    __slots__ = ("_span",)

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def end(self, name: str, *, is_error: bool, **attributes: str | int) -> None:
        """Say what came of it; to be called before its context ends.

        Args:
            name: What it is called: of a small set.
            is_error: Whether the service failed.
            attributes: By OpenTelemetry's conventions, with `__` in place of `.`.
        """
        span = self._span
        if span.is_recording():
            span.update_name(name)
            for key, value in attributes.items():
                span.set_attribute(key.replace("__", "."), value)
            if is_error:
                span.set_status(Status(StatusCode.ERROR))


class Tracing:
    """Makes spans and sends them. Thread-safe."""

    def __init__(self, exporter: SpanExporter, *, instance: str) -> None:
        """Send to an exporter, which is this object's own from then on.

        Args:
            exporter: Where spans go.
            instance: Name of this instance.
        """
        named = {"service.name": "belog", "service.version": version("belog")}
        resource = Resource.create({**named, "service.instance.id": instance})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(
            BatchSpanProcessor(
                exporter,
                max_queue_size=SPANS_QUEUED_MAX,
                schedule_delay_millis=SEND_EVERY_S * 1_000,
            )
        )
        self._tracer = self._provider.get_tracer("belog.service", version("belog"))

    def trace_id(self) -> str | None:
        """Return the trace that the present code belongs to, in hexadecimal; None for none."""
        context = trace.get_current_span().get_span_context()
        return f"{context.trace_id:032x}" if context.is_valid else None

    @contextmanager
    def request(self, name: str, carrier: Mapping[str, str]) -> Generator[RequestSpan]:
        """Give the span of a request, on the trace of its caller, for as long as it lasts.

        Args:
            name: What it is called until more is known.
            carrier: Its headers by name in lower case; `traceparent` and `tracestate` are read.
        """
        context = _PROPAGATOR.extract(carrier)
        with self._tracer.start_as_current_span(
            name, context, kind=SpanKind.SERVER, record_exception=False
        ) as span:
            yield RequestSpan(span)

    @contextmanager
    def span(self, name: str, fields: Mapping[str, str | int | None]) -> Generator[None]:
        """Make the code within a span of the present request; see `Observer.span`."""
        attributes = {f"belog.{key}": value for key, value in fields.items() if value is not None}
        with self._tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield
            except BelogError as error:
                span.set_attribute("belog.result", error.code)
                if not error.deterministic:
                    span.set_status(Status(StatusCode.ERROR, without_secrets(error.message)))
                raise

    def appended(
        self,
        log_id: str,
        events: Sequence[Event],
        results: Sequence[Receipt | BelogError],
        seconds: float,
        timing: AppendTiming | None,
    ) -> None:
        """Make the spans of an append that was answered just now; see `Observer.appended`."""
        if not trace.get_current_span().is_recording():
            return
        ended = time.time_ns()
        span = self._tracer.start_span(
            "append",
            attributes={"belog.log_id": log_id, **_append_attributes(events, results)},
            start_time=ended - int(seconds * NANOS),
        )
        if any(isinstance(r, BelogError) and not r.deterministic for r in results):
            span.set_status(Status(StatusCode.ERROR))
        if timing is not None:
            within = trace.set_span_in_context(span)
            written = ended - int(timing.written_s * NANOS)
            queued = written - int(timing.queued_s * NANOS)
            waiting = self._tracer.start_span("append.queued", within, start_time=queued)
            waiting.end(written)
            judging = self._tracer.start_span("append.written", within, start_time=written)
            judging.end(ended)
        span.end(ended)

    def close(self) -> None:
        """Send what waits, for `FLUSH_S` at most; blocks. Idempotent."""
        self._provider.force_flush(int(FLUSH_S * 1_000))
        self._provider.shutdown()


def _append_attributes(
    events: Sequence[Event], results: Sequence[Receipt | BelogError]
) -> dict[str, str | int]:
    if len(events) != 1:
        attributes: dict[str, str | int] = {"belog.events": len(events)}
        for name, count in Counter(map(_result, results)).items():
            attributes[f"belog.results.{name}"] = count
        return attributes
    event, result = events[0], results[0]
    found: dict[str, str | int] = {
        "belog.subject": event.subject,
        "belog.event_type": event.event_type,
        "belog.event_id": str(UUID(bytes=event.event_id)),
        "belog.result": _result(result),
    }
    if result.index is not None:
        found["belog.index"] = result.index
    return found


def _result(result: Receipt | BelogError) -> str:
    if isinstance(result, BelogError):
        return result.code
    return "duplicate" if result.duplicate else "accepted"


def open_tracing(endpoint: str, *, instance: str) -> Tracing:
    """Return tracing that sends to a collector; connects when the first spans are sent.

    A collector that is away costs spans and a log line, nothing else.

    Args:
        endpoint: `http://host:4318`, or with the path where it takes traces.
        instance: Name of this instance.
    """
    path = urlsplit(endpoint).path.rstrip("/")
    url = endpoint if path else f"{endpoint.rstrip('/')}/v1/traces"
    return Tracing(OTLPSpanExporter(endpoint=url, timeout=SEND_TIMEOUT_S), instance=instance)
