"""Metrics of a service: what is counted, under which names, and what it costs."""

import re
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from belog.schemas.envelope import Event
from belog.schemas.errors import Overloaded, Unavailable
from belog.service.access import Access, Grant, TokenEntry, hash_token
from belog.service.instance import InstanceSettings
from belog.service.metrics import LABELS_MAX, OTHER, CounterTally, HistogramTally
from belog.service.metrics_service import ServiceMetrics
from belog.service.observation import Observation
from belog.service.observer import AppendTiming
from belog.v1 import (
    catalog_pb2,
    catalog_pb2_grpc,
    event_log_pb2,
    event_log_pb2_grpc,
)
from tests.examples import event
from tests.observed_service import in_loop, watched

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

GRANT: Grant = Access.open().authenticate(None)
READ_TOKEN = "belog_" + "r" * 43
APPEND_TOKEN = "belog_" + "a" * 43


def samples_of(page: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def settings(folder: Path, snapshots: Path | None = None) -> InstanceSettings:
    return InstanceSettings(
        log_uri=f"sqlite:///{folder / 'log.db'}",
        snapshots=None if snapshots is None else str(snapshots),
        snapshot_every_events=3,
    )


def asked(n: int, ref: str) -> Event:
    return event("v1.partition.requested", ref, n=n)


def test_appends_are_counted_by_their_results(tmp_path: Path) -> None:
    async def test() -> None:
        async with watched(settings(tmp_path), Observation(ServiceMetrics())) as service:
            once = asked(1, "a")
            await service.instance.append(GRANT, [once])
            await service.instance.append(GRANT, [once, asked(2, "a"), asked(3, "b")])
            await service.instance.reach(2, 20)
            page = samples_of((await service.http.get("/metrics")).text)
        total = "belog_append_events_total"
        assert value(page, total, result="accepted") == 2
        assert value(page, total, result="duplicate") == 1
        assert value(page, total, result="illegal_transition") == 1
        assert value(page, "belog_append_duration_seconds_count") == 2
        assert value(page, "belog_append_duration_seconds_bucket", le="+Inf") == 2
        assert value(page, "belog_append_verdict_seconds_count") == 2
        assert value(page, "belog_append_group_events_sum") == 4
        assert value(page, "belog_ready") == 1
        assert value(page, "belog_log_next_position") == 3
        assert value(page, "belog_tables_applied_index") == 3
        assert value(page, "belog_tables_lag_records") == 0
        assert value(page, "belog_append_queue_events") == 0

    in_loop(test)


def test_requests_are_counted_by_route_and_never_by_path(tmp_path: Path) -> None:
    async def test() -> None:
        async with watched(settings(tmp_path), Observation(ServiceMetrics())) as service:
            for n in range(3):
                await service.http.get(f"/partitions/private%2F{n}")
            await service.http.get("/events", params={"since": "0", "actor": "private"})
            await service.http.get("/private/path")
            await service.http.request("PRIVATE", "/events")
            text = (await service.http.get("/metrics")).text
        page = samples_of(text)
        total = "belog_http_requests_total"
        assert value(page, total, route="/partitions/{ref}", method="GET", status="404") == 3
        assert value(page, total, route="/events", method="GET", status="200") == 1
        assert value(page, total, route="unmatched", method="GET", status="404") == 1
        seconds = "belog_http_request_duration_seconds_count"
        assert value(page, seconds, route="/partitions/{ref}", method="GET") == 3
        assert value(page, "belog_http_requests_in_progress") == 1
        assert "private" not in text.lower()

    in_loop(test)


def test_calls_are_counted_by_method_and_code(tmp_path: Path) -> None:
    async def test() -> None:
        async with watched(settings(tmp_path), Observation(ServiceMetrics())) as service:
            async with grpc.aio.insecure_channel(service.grpc_address) as channel:
                log: Any = event_log_pb2_grpc.EventLogServiceStub(channel)  # type: ignore[no-untyped-call]
                await log.GetStatus(event_log_pb2.GetStatusRequest())
                catalog: Any = catalog_pb2_grpc.EnhancedCatalogStub(channel)  # type: ignore[no-untyped-call]
                stream = catalog.StreamPartitionEvents(catalog_pb2.EventStreamFilter())
                # It tells what comes after it has begun.
                await stream.initial_metadata()
                await service.instance.append(GRANT, [asked(1, "a")])
                assert (await stream.read()).partition_ref == "a"
                during = samples_of((await service.http.get("/metrics")).text)
                stream.cancel()
                unknown: Any = channel.unary_unary("/belog.v1.Nothing/Private")
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await unknown(b"")
                assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
            text = (await service.http.get("/metrics")).text
            # The service hears of a cancelled call in its own time.
            while value(samples_of(text), "belog_streams", transport="grpc"):
                text = (await service.http.get("/metrics")).text
        assert value(during, "belog_streams", transport="grpc") == 1
        page = samples_of(text)
        total = "belog_grpc_calls_total"
        status = "belog.v1.EventLogService/GetStatus"
        assert value(page, total, method=status, code="OK") == 1
        assert value(page, "belog_grpc_call_duration_seconds_count", method=status) == 1
        assert value(page, total, method="unknown", code="UNIMPLEMENTED") == 1
        cancelled = "belog.v1.EnhancedCatalog/StreamPartitionEvents"
        assert value(page, total, method=cancelled, code="CANCELLED") == 1
        assert "Private" not in text

    in_loop(test)


def test_metrics_need_a_token_where_there_are_any_and_name_no_actor(tmp_path: Path) -> None:
    access = Access([TokenEntry(actor="alice", role="read", hash=hash_token(READ_TOKEN))])

    async def test() -> None:
        async with watched(settings(tmp_path), Observation(ServiceMetrics()), access) as service:
            assert (await service.http.get("/metrics")).status_code == 401
            headers = {"authorization": f"Bearer {READ_TOKEN}"}
            answer = await service.http.get("/metrics", headers=headers)
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/plain")
            accept = "application/openmetrics-text;version=1.0.0"
            answer = await service.http.get("/metrics", headers=headers | {"accept": accept})
            assert answer.headers["content-type"].startswith("application/openmetrics-text")
            assert "alice" not in answer.text

    in_loop(test)


def test_without_metrics_there_is_no_such_route(tmp_path: Path) -> None:
    async def test() -> None:
        async with watched(settings(tmp_path), Observation(None)) as service:
            await service.instance.append(GRANT, [asked(1, "a")])
            assert (await service.http.get("/metrics")).status_code == 404

    in_loop(test)


def test_the_newest_snapshot_has_its_time(tmp_path: Path) -> None:
    async def test() -> None:
        folder = tmp_path / "snapshots"
        options = settings(tmp_path, folder)
        async with watched(options, Observation(ServiceMetrics())) as service:
            none = samples_of((await service.http.get("/metrics")).text)
            for n in range(3):
                await service.instance.append(GRANT, [asked(n, f"p{n}")])
            await service.instance.reach(3, 10)
            page: Samples = {}
            taken = ("belog_snapshots_total", frozenset({("outcome", "taken")}))
            # Counted a moment after the file is there.
            while not page.get(("belog_snapshot_next_index", frozenset())) or not page.get(taken):
                page = samples_of((await service.http.get("/metrics")).text)
        assert value(none, "belog_snapshot_timestamp_seconds") == 0
        (file,) = folder.iterdir()
        assert value(page, "belog_snapshot_timestamp_seconds") == file.stat().st_mtime
        assert value(page, "belog_snapshots_total", outcome="taken") == 1

    in_loop(test)


def test_errors_are_counted_once_by_where_they_came_from() -> None:
    metrics = ServiceMetrics()
    observation = Observation(metrics)
    refused = Overloaded("too many")
    events = [asked(1, "a")]
    # Raised: the boundary that answers it counts it.
    observation.appended(events, [refused], 0.001)
    observation.answered({"error": refused})
    away = Unavailable("away", log="kafka://h/t")
    observation.appended(events, [away], 0.001, AppendTiming(0, 0))
    page = samples_of(metrics.render()[0].decode())
    total = "belog_errors_total"
    assert value(page, total, component="service", code="overloaded") == 1
    assert value(page, total, component="log", code="unavailable") == 1
    assert value(page, "belog_append_events_total", result="overloaded") == 1


def test_a_tally_cannot_grow_without_bound() -> None:
    counter = CounterTally("x", "x", ["label"])
    histogram = HistogramTally("y_seconds", "y", ["label"])
    for n in range(LABELS_MAX + 10):
        counter.add((str(n),))
        histogram.observe(0.1, (str(n),))
    for tally, suffix in ((counter, "_total"), (histogram, "_count")):
        (family,) = tally.collect()
        counted = {s.labels["label"]: s.value for s in family.samples if s.name.endswith(suffix)}
        assert len(counted) == LABELS_MAX + 1
        assert counted[OTHER] == 10


def test_buckets_hold_what_is_at_most_their_bound() -> None:
    histogram = HistogramTally("y_seconds", "y", bounds=(1, 2))
    for seconds in (0.5, 1, 1.5, 2, 3):
        histogram.observe(seconds)
    (family,) = histogram.collect()
    found = {(s.name, s.labels.get("le")): s.value for s in family.samples}
    assert found == {
        ("y_seconds_bucket", "1"): 2,
        ("y_seconds_bucket", "2"): 4,
        ("y_seconds_bucket", "+Inf"): 5,
        ("y_seconds_count", None): 5,
        ("y_seconds_sum", None): 8,
    }


def test_names_follow_the_conventions() -> None:
    names = ServiceMetrics().names()
    own = {name for name in names if name.startswith("belog_")}
    assert own
    assert [name for name in own if not re.fullmatch(r"[a-z][a-z0-9_]*", name)] == []
    assert [name for name in own if name.endswith(("_ms", "_count", "_sum", "_bucket"))] == []
