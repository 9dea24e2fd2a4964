"""Traces as a collector gets them: OTLP over HTTP, on the trace of the caller."""

import gzip
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from belog.schemas.errors import Conflict, Unavailable
from belog.service.access import Access
from belog.service.configuration import ObservabilitySection
from belog.service.instance import InstanceSettings
from belog.service.observation import Observation, observed
from belog.service.tracing import Tracing, open_tracing
from belog.v1 import event_log_pb2, event_log_pb2_grpc
from tests.examples import event
from tests.observed_service import in_loop, logging_put_back, watched
from tests.servers.wait import free_port

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"


class Collector:
    """Takes spans as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resource: dict[str, str] = {}
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers["content-encoding"] == "gzip":
                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                collector.take(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self._thread.start()

    def take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            self.resource |= values(resource.resource)
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def named(self, name: str) -> Span:
        (span,) = (span for span in self.spans if span.name == name)
        return span

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


def values(holder: Any) -> dict[str, Any]:  # noqa: ANN401 - a resource or a span
    return {
        item.key: getattr(item.value, item.value.WhichOneof("value")) for item in holder.attributes
    }


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


@contextmanager
def traced(endpoint: str) -> Iterator[Tracing]:
    tracing = open_tracing(endpoint, instance="here")
    try:
        yield tracing
    finally:
        tracing.close()


def settings(folder: Path) -> InstanceSettings:
    return InstanceSettings(log_uri=f"sqlite:///{folder / 'log.db'}")


def test_a_request_goes_on_its_callers_trace_with_what_it_appended(
    collector: Collector, tmp_path: Path
) -> None:
    async def test(tracing: Tracing) -> None:
        async with watched(settings(tmp_path), Observation(tracing=tracing)) as service:
            await service.http.get("/partitions/a", headers={"traceparent": TRACEPARENT})
            await service.http.post("/events", json={}, headers={"traceparent": TRACEPARENT})

    with traced(collector.endpoint) as tracing:
        in_loop(lambda: test(tracing))
    get, post = collector.named("GET /partitions/{ref}"), collector.named("POST /events")
    assert {span.trace_id.hex() for span in (get, post)} == {TRACE}
    assert {span.parent_span_id.hex() for span in (get, post)} == {CALLER}
    assert get.kind == Span.SPAN_KIND_SERVER
    assert values(get)["http.response.status_code"] == 404
    assert collector.resource["service.name"] == "belog"
    assert collector.resource["service.instance.id"] == "here"


def test_a_request_for_a_partition_holds_its_appends(collector: Collector, tmp_path: Path) -> None:
    async def test(tracing: Tracing) -> None:
        async with watched(settings(tmp_path), Observation(tracing=tracing)) as service:
            answer = await service.http.post(
                "/partitions/a/request", headers={"traceparent": TRACEPARENT}
            )
            assert answer.status_code < 300, answer.text

    with traced(collector.endpoint) as tracing:
        in_loop(lambda: test(tracing))
    asking = collector.named("request_partition")
    assert values(asking)["belog.subject"] == "partition:a"
    assert asking.parent_span_id == collector.named("POST /partitions/{ref}/request").span_id
    appends = [span for span in collector.spans if span.name == "append"]
    assert {span.parent_span_id for span in appends} == {asking.span_id}


def test_an_append_has_its_parts(collector: Collector, tmp_path: Path) -> None:
    asked = event("v1.partition.requested", "a", n=1)
    grant = Access.open().authenticate(None)

    async def test(tracing: Tracing) -> None:
        async with watched(settings(tmp_path), Observation(tracing=tracing)) as service:
            # Nobody asked for this one, so it is on no trace.
            await service.instance.append(grant, [event("v1.partition.requested", "b", n=2)])
            with tracing.request("test", {"traceparent": TRACEPARENT}):
                ids.append(tracing.trace_id() or "")
                await service.instance.append(grant, [asked])
                await service.instance.append(grant, [event("v1.partition.requested", "a", n=3)])

    ids: list[str] = []
    with traced(collector.endpoint) as tracing:
        in_loop(lambda: test(tracing))
    assert ids == [TRACE]
    accepted, refused = sorted(
        (span for span in collector.spans if span.name == "append"),
        key=lambda span: span.start_time_unix_nano,
    )
    found = values(accepted)
    assert (found["belog.subject"], found["belog.index"], found["belog.result"]) == (
        "partition:a",
        2,
        "accepted",
    )
    assert len(found["belog.log_id"]) == 36
    assert values(refused)["belog.result"] == "illegal_transition"
    assert {accepted.trace_id.hex(), refused.trace_id.hex()} == {TRACE}
    parts = [s for s in collector.spans if s.parent_span_id == accepted.span_id]
    assert sorted(span.name for span in parts) == ["append.queued", "append.written"]
    for part in parts:
        assert accepted.start_time_unix_nano <= part.start_time_unix_nano + 1_000_000
        assert part.end_time_unix_nano <= accepted.end_time_unix_nano


def test_a_call_goes_on_its_callers_trace(collector: Collector, tmp_path: Path) -> None:
    async def test(tracing: Tracing) -> None:
        async with (
            watched(settings(tmp_path), Observation(tracing=tracing)) as service,
            grpc.aio.insecure_channel(service.grpc_address) as channel,
        ):
            log: Any = event_log_pb2_grpc.EventLogServiceStub(channel)  # type: ignore[no-untyped-call]
            await log.GetStatus(
                event_log_pb2.GetStatusRequest(), metadata=(("traceparent", TRACEPARENT),)
            )

    with traced(collector.endpoint) as tracing:
        in_loop(lambda: test(tracing))
    span = collector.named("belog.v1.EventLogService/GetStatus")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, CALLER)
    assert values(span)["rpc.response.status_code"] == "OK"


def test_a_step_says_how_it_ended(collector: Collector) -> None:
    with traced(collector.endpoint) as tracing:
        observation = Observation(tracing=tracing)
        for n, error in enumerate(
            (None, conflict(), Unavailable("redis://u:pa55w0rd@h is away", log="redis://h"))
        ):
            try:
                with observation.span("request_partition", subject=f"partition:{n}", nothing=None):
                    if error is not None:
                        raise error
            except (Conflict, Unavailable):
                pass
    done, refused, failed = collector.spans
    assert values(done) == {"belog.subject": "partition:0"}
    assert values(refused)["belog.result"] == "conflict"
    assert refused.status.code == refused.status.STATUS_CODE_UNSET
    assert failed.status.code == failed.status.STATUS_CODE_ERROR
    assert failed.status.message == "redis://u:***@h is away"


def conflict() -> Conflict:
    return Conflict("not now", state="", last_index=-1, allowed=())


def test_a_collector_that_is_away_costs_no_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(tracing: Tracing) -> None:
        async with watched(settings(tmp_path), Observation(tracing=tracing)) as service:
            assert (await service.http.get("/status")).status_code == 200

    with caplog.at_level(logging.WARNING), traced(f"http://127.0.0.1:{free_port()}") as tracing:
        in_loop(lambda: test(tracing))
    assert any("opentelemetry" in record.name for record in caplog.records)


def test_what_is_configured_is_what_watches(collector: Collector) -> None:
    section = ObservabilitySection(otlp_endpoint=collector.endpoint, metrics=False)
    with logging_put_back(), observed(section, instance="there") as observation:
        assert observation.metrics is None
        with observation.span("request_partition", subject="partition:a"):
            pass
    assert values(collector.named("request_partition"))["belog.subject"] == "partition:a"
    assert collector.resource["service.instance.id"] == "there"
    with logging_put_back(), observed(ObservabilitySection(), instance="there") as observation:
        assert observation.tracing is None
        assert observation.metrics is not None
