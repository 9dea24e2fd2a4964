"""Deadlines, cut-off and slow clients, limits, health, reflection, TLS, and a service's end."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from belog.schemas.errors import Unavailable
from belog.schemas.filters import ALL, EventFilter
from belog.schemas.payload import encode_payload
from belog.service.access import Access
from belog.service.grpc_api import GrpcSettings, start_grpc
from belog.service.grpc_api.settings import ANSWER_BYTES_MAX
from belog.service.instance import Instance, InstanceSettings
from belog.storage import EventPage
from belog.v1 import catalog_pb2, event_log_pb2, graph_pb2
from tests.grpc_serving import (
    CALL_S,
    MODULES,
    Served,
    Stubs,
    Untyped,
    build_event,
    refusal,
    serving,
    stubs,
)
from tests.servers import eventually

Code = grpc.StatusCode

STREAMS_MAX = 3
MESSAGE_BYTES_MAX = 1_000_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(
        tmp_path_factory.mktemp("grpc"),
        streams_max=STREAMS_MAX,
        message_bytes_max=MESSAGE_BYTES_MAX,
        heartbeat_s=0.2,
        wait_s_max=0.3,
        page_events_max=50,
        batch_events_max=20,
    ) as found:
        yield found


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Stubs]:
    with stubs(served) as found:
        yield found


def end_of(client: Stubs) -> int:
    status = client.log.GetStatus(event_log_pb2.GetStatusRequest(), timeout=CALL_S)
    return int(status.next_idx)


def is_idle(served: Served) -> bool:
    """Whether nothing is held for anybody."""
    return served.instance.feed.waiters == 0 and served.server.guard.streams == 0


# --- deadlines and cut-off clients


def test_a_wait_ends_with_its_deadline_and_is_forgotten(tmp_path: Path) -> None:
    with serving(tmp_path) as served, stubs(served) as client:
        request = graph_pb2.ListEventsRequest(since_idx=end_of(client), wait_ms=60_000)
        with pytest.raises(grpc.RpcError) as ended:
            client.graph.ListEvents(request, timeout=0.3)
        error: Any = ended.value
        assert error.code() == Code.DEADLINE_EXCEEDED
        eventually(lambda: is_idle(served))


def test_a_longer_wait_than_the_servers_is_cut(client: Stubs) -> None:
    end = end_of(client)
    request = graph_pb2.ListEventsRequest(since_idx=end, wait_ms=2**31 - 1)
    page = client.graph.ListEvents(request, timeout=CALL_S)
    assert (len(page.events), page.next_idx, page.has_more) == (0, end, False)


@pytest.mark.parametrize("kind", ["events", "partition events", "wait"])
def test_who_is_cut_off_is_forgotten_at_once(served: Served, client: Stubs, kind: str) -> None:
    end = end_of(client)
    call: Untyped
    if kind == "events":
        call = client.graph.StreamEvents(graph_pb2.StreamEventsRequest(since_idx=end))
        call.initial_metadata()
    elif kind == "partition events":
        call = client.catalog.StreamPartitionEvents(catalog_pb2.EventStreamFilter())
        call.initial_metadata()
    else:
        request = graph_pb2.ListEventsRequest(since_idx=end, wait_ms=60_000)
        call = client.graph.ListEvents.future(request)
    eventually(lambda: served.instance.feed.waiters == 1)
    call.cancel()
    eventually(lambda: is_idle(served))


def test_a_silent_stream_carries_its_cursor_on(client: Stubs) -> None:
    end = end_of(client)
    request = graph_pb2.StreamEventsRequest(since_idx=0)
    request.filter.partition_refs.append("never")
    stream = client.graph.StreamEvents(request, timeout=CALL_S)
    pages = [next(stream), next(stream)]
    assert [(len(page.events), page.next_idx) for page in pages] == [(0, end), (0, end)]
    stream.cancel()


# --- slow clients


def test_who_reads_slowly_holds_nothing_up_and_nothing_in_memory(
    served: Served, client: Stubs, unique_name: str
) -> None:
    """400 events of 15 kB, 12 MB with their bodies: far more than the buffers of a connection."""
    first = end_of(client)
    body = {"message": "x" * 15_000}
    for n in range(20):
        events = [
            build_event("v1.partition.observed", f"{unique_name}/{n}/{m}", body) for m in range(20)
        ]
        client.log.AppendBatch(event_log_pb2.AppendBatchRequest(events=events), timeout=CALL_S)
    read = 0
    pages = served.instance.feed.page

    async def counted(
        since_idx: int, wanted: EventFilter = ALL, *, limit: int, wait_s: float = 0
    ) -> EventPage:
        nonlocal read
        page = await pages(since_idx, wanted, limit=limit, wait_s=wait_s)
        read += len(page.events)
        return page

    served.instance.feed.page = counted  # type: ignore[method-assign]
    try:
        with stubs(served) as slow:
            stream = slow.graph.StreamEvents(
                graph_pb2.StreamEventsRequest(since_idx=first), timeout=CALL_S
            )
            got = [event.index for event in next(stream).events]
            # Others are served meanwhile, and the stream is read for no further.
            for _ in range(20):
                assert end_of(client) == first + 400
            held = read
            assert held < 300
            while len(got) < 400:
                got += [event.index for event in next(stream).events]
            assert got == list(range(first, first + 400))
            stream.cancel()
    finally:
        served.instance.feed.page = pages  # type: ignore[method-assign]
    eventually(lambda: is_idle(served))


def test_a_page_fits_into_what_clients_take(client: Stubs, unique_name: str) -> None:
    first = end_of(client)
    body = {"message": "x" * 16_000, "source": "y" * 16_000}
    events = [build_event("v1.partition.observed", f"{unique_name}/{n}", body) for n in range(20)]
    for _ in range(4):
        for event in events:
            event.subject_id += "-"
        batch = event_log_pb2.AppendBatchRequest(events=events, atomic=True)
        client.log.AppendBatch(batch, timeout=CALL_S)
    found: list[int] = []
    request = graph_pb2.ListEventsRequest(since_idx=first, limit=50)
    sizes: list[int] = []
    while len(found) < 80:
        page = client.graph.ListEvents(request, timeout=CALL_S)
        sizes.append(page.ByteSize())
        found += [event.index for event in page.events]
        assert page.has_more == (len(found) < 80)
        request.since_idx = page.next_idx
    assert found == list(range(first, first + 80))
    assert max(sizes) <= ANSWER_BYTES_MAX


def test_a_body_that_would_not_fit_is_left_out(client: Stubs) -> None:
    numbers = 300_000
    payload = encode_payload({"numbers": [1] * numbers})
    event = build_event("v9.partition.large", "a", payload=payload)
    request = event_log_pb2.AppendRequest(event=event)
    index = client.log.Append(request, timeout=CALL_S).receipt.index
    found = client.log.GetEvent(event_log_pb2.GetEventRequest(index=index), timeout=CALL_S)
    assert (found.payload, found.HasField("body")) == (payload, False)
    page = client.graph.ListEvents(graph_pb2.ListEventsRequest(since_idx=index), timeout=CALL_S)
    assert [*page.events] == [found]


# --- limits


def test_an_oversize_request_is_refused_and_the_connection_goes_on(client: Stubs) -> None:
    event = build_event("v1.partition.observed", "a", payload=b"x" * MESSAGE_BYTES_MAX)
    with pytest.raises(grpc.RpcError) as refused:
        client.log.Append(event_log_pb2.AppendRequest(event=event), timeout=CALL_S)
    error: Any = refused.value
    assert error.code() == Code.RESOURCE_EXHAUSTED
    end_of(client)


def test_a_stream_too_many_is_refused(served: Served, client: Stubs) -> None:
    streams = [
        client.graph.StreamEvents(graph_pb2.StreamEventsRequest(), timeout=CALL_S)
        for _ in range(STREAMS_MAX)
    ]
    for stream in streams:
        stream.initial_metadata()
    more = client.catalog.StreamPartitionEvents(catalog_pb2.EventStreamFilter(), timeout=CALL_S)
    code, problem = refusal(lambda: next(more))
    assert (code, problem.code, problem.retriable) == (Code.RESOURCE_EXHAUSTED, "overloaded", True)
    for stream in streams:
        stream.cancel()
    eventually(lambda: is_idle(served))


def test_pages_and_batches_have_bounds(client: Stubs) -> None:
    page = graph_pb2.ListEventsRequest(limit=51)
    code, problem = refusal(lambda: client.graph.ListEvents(page, timeout=CALL_S))
    assert (code, problem.code) == (Code.RESOURCE_EXHAUSTED, "limit_exceeded")
    assert "page_events_max = 50" in problem.message
    batch = event_log_pb2.AppendBatchRequest(events=[build_event("x", "y")] * 21)
    code, problem = refusal(lambda: client.log.AppendBatch(batch, timeout=CALL_S))
    assert (code, problem.code) == (Code.RESOURCE_EXHAUSTED, "limit_exceeded")
    rows = catalog_pb2.ListPartitionsRequest(page_size=1_001)
    code, _ = refusal(lambda: client.catalog.ListPartitions(rows, timeout=CALL_S))
    assert code == Code.RESOURCE_EXHAUSTED
    depth = catalog_pb2.GetDependencyGraphRequest(partition_ref="a", depth=101)
    code, _ = refusal(lambda: client.catalog.GetDependencyGraph(depth, timeout=CALL_S))
    assert code == Code.RESOURCE_EXHAUSTED


def test_a_call_too_many_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path, rpcs_max=4) as served, stubs(served) as client:
        end = end_of(client)
        request = graph_pb2.ListEventsRequest(since_idx=end, wait_ms=60_000)
        calls = [client.graph.ListEvents.future(request, timeout=CALL_S) for _ in range(4)]
        eventually(lambda: served.instance.feed.waiters == 4)
        with pytest.raises(grpc.RpcError) as refused:
            end_of(client)
        error: Any = refused.value
        assert error.code() == Code.RESOURCE_EXHAUSTED
        for call in calls:
            call.cancel()
        eventually(lambda: is_idle(served))
        end_of(client)


# --- health, reflection, life


def health_of(channel: grpc.Channel, service: str = "") -> int:
    stub: Any = health_pb2_grpc
    request = health_pb2.HealthCheckRequest(service=service)
    return int(stub.HealthStub(channel).Check(request, timeout=CALL_S).status)


SERVICES = [
    service.full_name
    for module in MODULES
    for service in module.DESCRIPTOR.services_by_name.values()
]


def test_health_follows_readiness(tmp_path: Path) -> None:
    serving_, not_serving = 1, 2
    with serving(tmp_path) as served, stubs(served) as client:
        for name in ("", *SERVICES):
            assert health_of(client.channel, name) == serving_
        with pytest.raises(grpc.RpcError) as unknown:
            health_of(client.channel, "belog.v1.Nothing")
        error: Any = unknown.value
        assert error.code() == Code.NOT_FOUND
        watch = cast_stub(client.channel).Watch(health_pb2.HealthCheckRequest(), timeout=CALL_S)
        assert next(watch).status == serving_
        served.loop.call_soon_threadsafe(served.instance.stop)
        assert next(watch).status == not_serving
        for name in SERVICES:
            assert health_of(client.channel, name) == not_serving
        watch.cancel()


def cast_stub(channel: grpc.Channel) -> Untyped:
    stub: Any = health_pb2_grpc
    return stub.HealthStub(channel)


def test_reflection_knows_every_service_and_its_messages(client: Stubs) -> None:
    known: Any = ProtoReflectionDescriptorDatabase(client.channel)
    assert set(known.get_services()) == {
        *SERVICES,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    for name in SERVICES:
        file = known.FindFileContainingSymbol(name)
        assert name.rpartition(".")[2] in [service.name for service in file.service]
    file = known.FindFileContainingSymbol("belog.v1.Problem")
    assert "Receipt" in [message.name for message in file.message_type]


def test_the_end_of_a_service_answers_all_who_wait_and_finishes_what_was_taken(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as served, stubs(served) as client:
        end = end_of(client)
        page = client.graph.ListEvents.future(
            graph_pb2.ListEventsRequest(since_idx=end, wait_ms=60_000), timeout=CALL_S
        )
        stream = client.graph.StreamEvents(
            graph_pb2.StreamEventsRequest(since_idx=end), timeout=CALL_S
        )
        stream.initial_metadata()
        eventually(lambda: served.instance.feed.waiters == 2)
        served.stop()
        for call in (page.result, lambda: next(stream)):
            code, problem = refusal(call)
            assert (code, problem.code) == (Code.UNAVAILABLE, "closed")


def test_a_port_that_is_taken_is_an_error_that_names_it(served: Served, tmp_path: Path) -> None:
    async def taken() -> None:
        async with Instance(InstanceSettings(log_uri=f"sqlite:///{tmp_path / 'l.db'}")) as other:
            settings = GrpcSettings(port=served.server.port)
            with pytest.raises(Unavailable, match=str(served.server.port)):
                await start_grpc(other, Access.open(), settings)

    asyncio.run(taken())


def test_mutual_tls_lets_in_who_has_a_certificate(tmp_path: Path) -> None:
    ca, strange = trustme.CA(), trustme.CA()
    server, mine, other = (
        issuer.issue_cert(name)
        for issuer, name in ((ca, "localhost"), (ca, "me@belog.example"), (strange, "x@y.example"))
    )

    def pair(cert: trustme.LeafCert) -> tuple[bytes, bytes]:
        return cert.private_key_pem.bytes(), cert.cert_chain_pems[0].bytes()

    credentials = grpc.ssl_server_credentials(
        [pair(server)], root_certificates=ca.cert_pem.bytes(), require_client_auth=True
    )
    limits: Any = {"credentials": credentials}
    with serving(tmp_path, **limits) as served:
        port = served.server.port

        def status(*keys: bytes) -> event_log_pb2.LogStatus:
            chosen = grpc.ssl_channel_credentials(ca.cert_pem.bytes(), *keys)
            with grpc.secure_channel(f"localhost:{port}", chosen) as channel:
                found: event_log_pb2.LogStatus = Stubs(channel).log.GetStatus(
                    event_log_pb2.GetStatusRequest(), timeout=5
                )
                return found

        assert status(*pair(mine)).next_idx == 1
        for keys in ((), pair(other)):
            with pytest.raises(grpc.RpcError) as refused:
                status(*keys)
            error: Any = refused.value
            assert error.code() == Code.UNAVAILABLE
