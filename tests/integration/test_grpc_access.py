"""Who is let in, for every rpc that the descriptors know; and TLS."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from belog.service.access import Access, TokenEntry, hash_token
from belog.service.grpc_api.guard import Guard
from belog.service.grpc_api.rules import RULES
from belog.v1 import catalog_pb2, event_log_pb2, events_pb2, graph_pb2
from tests.grpc_serving import (
    CALL_S,
    MODULES,
    Served,
    Stubs,
    Untyped,
    build_event,
    refusal,
    refusal_of,
    request_class,
    serving,
    stubs,
)

Code = grpc.StatusCode
Metadata = tuple[tuple[str, str], ...]

READ, WRITE, NARROW, ADMIN = (f"belog_{letter * 22}" for letter in "rwna")
TOKENS = [
    TokenEntry(actor="reader", role="read", hash=hash_token(READ)),
    TokenEntry(actor="writer", role="append", hash=hash_token(WRITE)),
    TokenEntry(actor="narrow", role="append", hash=hash_token(NARROW), patterns=("mine/**",)),
    TokenEntry(actor="root", role="admin", hash=hash_token(ADMIN)),
]

METHODS = [
    pytest.param(service.name, method, id=f"{service.name}/{method.name}")
    for module in MODULES
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
"""Every rpc there is, whatever the table of rules says."""


def history() -> Iterator[events_pb2.BuildEvent]:
    """A build of a partition that the narrow grant is for, and the same of another's."""
    for ref in ("mine/a", "other/a"):
        build = {"build_request_id": "b" + ref}
        yield build_event("v1.build.received", "b" + ref, {"requested_partitions": [ref]})
        yield build_event("v1.partition.requested", ref, {**build})
        yield build_event("v1.job.scheduled", "run of " + ref, {**build, "outputs": [ref]})
        yield build_event("v1.job.running", "run of " + ref)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("grpc"), Access(TOKENS), index_wait_s=0.5) as found:
        with stubs(found) as client:
            batch = event_log_pb2.AppendBatchRequest(events=history(), atomic=True)
            client.log.AppendBatch(batch, timeout=CALL_S, metadata=bearer(ADMIN))
            reached = event_log_pb2.GetStatusRequest(min_index=8)
            client.log.GetStatus(reached, timeout=CALL_S, metadata=bearer(ADMIN))
        yield found


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Stubs]:
    with stubs(served) as found:
        yield found


def bearer(token: str | None) -> tuple[tuple[str, str], ...]:
    return () if token is None else (("authorization", f"Bearer {token}"),)


def call(
    client: Stubs, service: str, method: MethodDescriptor, request: Message, metadata: Metadata
) -> Untyped:
    """The answer of an rpc, of a stream the first; a stream that has begun is enough."""
    rpc = getattr(client.of(service), method.name)
    if not method.server_streaming:
        return rpc(request, timeout=CALL_S, metadata=metadata)
    stream = rpc(request, timeout=CALL_S, metadata=metadata)
    try:
        stream.initial_metadata()
        return next(stream) if stream.done() else None
    finally:
        stream.cancel()


def problem_of(
    client: Stubs, service: str, method: MethodDescriptor, request: Message, metadata: Metadata
) -> Code:
    rpc = getattr(client.of(service), method.name)
    made = rpc(request, timeout=CALL_S, metadata=metadata) if method.server_streaming else None
    code, problem = refusal(
        lambda: next(made) if made else rpc(request, timeout=CALL_S, metadata=metadata)
    )
    assert problem.code in {"unauthenticated", "forbidden"}
    return code


@pytest.mark.parametrize(("service", "method"), METHODS)
@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param((), id="missing"),
        pytest.param(bearer("belog_" + "x" * 40), id="wrong"),
        pytest.param((("authorization", f"Basic {ADMIN}"),), id="scheme"),
        pytest.param((("authorization", ADMIN),), id="bare"),
        pytest.param((("authorization", "Bearer "),), id="empty"),
        pytest.param((("authorization", f"Bearer {ADMIN} {ADMIN}"),), id="two"),
    ],
)
def test_nobody_is_let_in_without_a_known_token(
    client: Stubs, service: str, method: MethodDescriptor, metadata: Metadata
) -> None:
    request = request_class(method)()
    code = problem_of(client, service, method, request, metadata)
    assert code == Code.UNAUTHENTICATED


def test_who_has_no_token_is_refused_before_his_request_is_read(client: Stubs) -> None:
    rpc: Any = client.channel.unary_unary("/belog.v1.EventLogService/Append")
    code, _ = refusal(lambda: rpc(b"\xff\xff", timeout=CALL_S))
    assert code == Code.UNAUTHENTICATED


@pytest.mark.parametrize(("service", "method"), METHODS)
def test_a_reader_may_read_and_not_write(
    client: Stubs, service: str, method: MethodDescriptor
) -> None:
    rule = RULES[f"/belog.v1.{service}/{method.name}"]
    request = request_class(method)()
    if rule.role is not None and rule.role.label != "read":
        code = problem_of(client, service, method, request, bearer(READ))
        assert code == Code.PERMISSION_DENIED
        return
    try:
        call(client, service, method, request, bearer(READ))
    except grpc.RpcError as error:
        code, _ = refusal_of(error)
        assert code in {Code.INVALID_ARGUMENT, Code.NOT_FOUND}


OUTSIDE: dict[str, list[Any]] = {
    "ListEvents": [
        graph_pb2.ListEventsRequest(filter=events_pb2.EventFilter(partition_refs=["other/a"])),
        graph_pb2.ListEventsRequest(filter=events_pb2.EventFilter(partition_patterns=["**"])),
    ],
    "StreamEvents": [
        graph_pb2.StreamEventsRequest(filter=events_pb2.EventFilter(partition_refs=["other/a"])),
        graph_pb2.StreamEventsRequest(filter=events_pb2.EventFilter(partition_patterns=["o*"])),
    ],
    "Append": [
        event_log_pb2.AppendRequest(event=build_event("v1.partition.observed", "other/b")),
        event_log_pb2.AppendRequest(event=build_event("v1.job.completed", "run of other/a")),
        event_log_pb2.AppendRequest(
            event=build_event("v1.partition.observed", "mine/b", actor="root")
        ),
    ],
    "AppendBatch": [
        event_log_pb2.AppendBatchRequest(
            events=[build_event("v1.partition.observed", "other/b")], atomic=True
        ),
    ],
    "GetEvent": [event_log_pb2.GetEventRequest(index=n) for n in (0, 5, 6, 8)],
    "GetStatus": [],
    "ListJobGraphRuns": [catalog_pb2.ListJobGraphRunsRequest(partition_ref="other/a")],
    "ListPartitions": [catalog_pb2.ListPartitionsRequest(partition_patterns=["other/*"])],
    "AppendPartitionEvent": [
        catalog_pb2.AppendPartitionEventRequest(
            event=catalog_pb2.PartitionEvent(partition_ref="other/b", status="AVAILABLE")
        )
    ],
    "GetLatestPartitionEvent": [
        catalog_pb2.GetLatestPartitionEventRequest(partition_ref="other/a")
    ],
    "QueryPartitionEvents": [catalog_pb2.PartitionEventQuery(partition_refs=["other/a"])],
    "StreamPartitionEvents": [catalog_pb2.EventStreamFilter(partition_refs=["other/a"])],
    "RequestPartition": [catalog_pb2.RequestPartitionRequest(partition_ref="other/b")],
    "GetActiveBuildStatus": [catalog_pb2.GetActiveBuildStatusRequest(partition_ref="other/a")],
    "GetDependencyGraph": [catalog_pb2.GetDependencyGraphRequest(partition_ref="other/a")],
}
"""Requests of every rpc about partitions of others; an rpc that is not here fails its test."""


@pytest.mark.parametrize(("service", "method"), METHODS)
def test_partitions_outside_a_grant_are_refused(
    client: Stubs, service: str, method: MethodDescriptor
) -> None:
    for request in OUTSIDE[method.name]:
        code = problem_of(client, service, method, request, bearer(NARROW))
        assert code == Code.PERMISSION_DENIED, request


def test_what_is_of_others_is_left_out_of_every_answer(client: Stubs) -> None:
    metadata = bearer(NARROW)

    def ask(rpc: Untyped, request: Message) -> Untyped:
        return rpc(request, timeout=CALL_S, metadata=metadata)

    catalog = client.catalog
    page = ask(client.graph.ListEvents, graph_pb2.ListEventsRequest())
    assert [event.index for event in page.events] == [1, 2, 3, 4]
    assert page.next_idx == 9
    rows = ask(catalog.ListPartitions, catalog_pb2.ListPartitionsRequest()).partitions
    assert [row.partition_ref for row in rows] == ["mine/a"]
    runs = ask(catalog.ListJobGraphRuns, catalog_pb2.ListJobGraphRunsRequest()).runs
    assert [run.job_graph_run_id for run in runs] == ["bmine/a"]
    found = ask(catalog.QueryPartitionEvents, catalog_pb2.PartitionEventQuery())
    assert [event.partition_ref for event in found.events] == ["mine/a"]
    assert found.total_count == 1
    builds = ask(catalog.GetActiveBuildStatus, catalog_pb2.GetActiveBuildStatusRequest()).builds
    assert [build.partition_ref for build in builds] == ["mine/a"]
    assert ask(client.log.GetEvent, event_log_pb2.GetEventRequest(index=4)).index == 4
    stream = catalog.StreamPartitionEvents(
        catalog_pb2.EventStreamFilter(since=0), timeout=CALL_S, metadata=metadata
    )
    assert next(stream).partition_ref == "mine/a"
    stream.cancel()


def test_a_batch_goes_on_past_an_event_of_others(client: Stubs) -> None:
    events = [
        build_event("v1.partition.observed", "other/c"),
        build_event("v1.partition.observed", "mine/c"),
    ]
    request = event_log_pb2.AppendBatchRequest(events=events)
    results = client.log.AppendBatch(request, timeout=CALL_S, metadata=bearer(NARROW)).results
    assert [result.WhichOneof("result") for result in results] == ["problem", "receipt"]
    assert results[0].problem.code == "forbidden"
    got = event_log_pb2.GetEventRequest(index=results[1].receipt.index)
    event = client.log.GetEvent(got, timeout=CALL_S, metadata=bearer(NARROW))
    assert event.actor == "narrow"


def test_an_rpc_without_a_rule_is_refused(client: Stubs, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {name: rule for name, rule in RULES.items() if not name.endswith("/GetStatus")}
    monkeypatch.setattr(f"{Guard.__module__}.RULES", rules)
    request = event_log_pb2.GetStatusRequest()
    code, _ = refusal(lambda: client.log.GetStatus(request, timeout=CALL_S, metadata=bearer(ADMIN)))
    assert code == Code.PERMISSION_DENIED
