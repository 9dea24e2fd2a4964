"""What HTTP answers in JSON and what gRPC answers in messages are the same, both ways."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import pytest
from google.protobuf.message import Message

from belog.schemas.payload import encode_payload
from belog.schemas.wire import json_to_message, message_to_json
from belog.v1 import catalog_pb2, event_log_pb2, events_pb2, graph_pb2
from tests.grpc_serving import CALL_S, Served, Stubs, append, build_event, serving, stubs

M = TypeVar("M", bound=Message)

REF = "lake://día/part=1/*?%2F #"
"""A partition that has to be written otherwise in a path."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("grpc")) as found:
        yield found


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Stubs]:
    """With a history of every kind of event, values that JSON does not hold among them."""
    with stubs(served) as found:
        build: dict[str, Any] = {"build_request_id": "b"}
        run: dict[str, Any] = {**build, "job_run_id": "r"}
        append(found, "v1.build.received", "b", requested_partitions=[REF], client_id="carol")
        append(found, "v1.partition.requested", REF, **build, requesting_clients=["carol"])
        append(found, "v1.partition.joined", REF, build_request_id="c", requesting_clients=["d"])
        append(found, "v1.job.scheduled", "r", **build, job_label="load", outputs=[REF], attempt=1)
        append(found, "v1.partition.scheduled", REF, **run, job_label="load", upstream_deps=["up"])
        append(found, "v1.job.running", "r", worker="w")
        append(found, "v1.partition.building", REF, **run)
        manifest: Any = {
            "outputs": [REF],
            "inputs": [{"ref": "up", "index": 1}, {"ref": "other"}],
            "row_count": 3,
            "uri": "s3://x",
            "metadata": {"k": "v"},
        }
        append(found, "v1.partition.available", REF, **run, manifest=manifest)
        append(found, "v1.partition.stale", REF, reason="old", cause_partition="up")
        append(found, "v1.partition.requested", "failing", **build)
        append(found, "v1.partition.failed", "failing", **build, reason="no")
        append(found, "v1.partition.requested", "away", **build)
        append(
            found,
            "v1.partition.delegated",
            "away",
            **build,
            delegated_to_log="00000000-0000-0000-0000-000000000001",
            delegated_to_build="theirs",
        )
        odd = encode_payload({"big": 2**60, "bytes": b"\x00\xff", "f": 0.5, "n": None, "s": "ü"})
        event = build_event("v7.partition.odd", "up", payload=odd, occurred_at=-5)
        event.caused_by = "00000000-0000-0000-0000-00000000000f"
        last = found.log.Append(event_log_pb2.AppendRequest(event=event), timeout=CALL_S)
        request = event_log_pb2.GetStatusRequest(min_index=last.receipt.index)
        found.log.GetStatus(request, timeout=CALL_S)
        yield found


def get(served: Served, path: str, **query: int | str | list[str]) -> Mapping[str, Any]:
    return parsed(httpx.get(url(served, path), params=query, timeout=CALL_S))


def post(served: Served, path: str, message: Message) -> Mapping[str, Any]:
    plain = message_to_json(message)
    return parsed(httpx.post(url(served, path), json=plain, timeout=CALL_S))


def url(served: Served, path: str) -> str:
    return f"http://127.0.0.1:{served.http_port}{path}"


def parsed(answer: httpx.Response) -> Mapping[str, Any]:
    answer.raise_for_status()
    found: Mapping[str, Any] = answer.json()
    return found


def same(plain: Mapping[str, Any], message: Message) -> None:
    """HTTP's JSON read as a message is gRPC's, and gRPC's message written as JSON is HTTP's.

    HTTP writes out fields at their default, which the mapping allows and reads as absent.
    """
    assert json_to_message(plain, type(message)) == message
    assert _subset(message_to_json(message), plain)


def _subset(written: object, plain: object) -> bool:
    """Whether JSON holds all that the mapping writes, whatever defaults beside it."""
    if isinstance(written, dict) and isinstance(plain, dict):
        return all(name in plain and _subset(written[name], plain[name]) for name in written)
    if isinstance(written, list) and isinstance(plain, list):
        return len(written) == len(plain) and all(map(_subset, written, plain))
    return written == plain


def test_pages_of_events(served: Served, client: Stubs) -> None:
    page = client.graph.ListEvents(graph_pb2.ListEventsRequest(), timeout=CALL_S)
    assert len(page.events) == 15
    same(get(served, "/events", since=0), page)
    request = graph_pb2.ListEventsRequest(since_idx=2, limit=3)
    request.filter.partition_refs.append(REF)
    request.filter.event_types.extend(["v1.partition.requested", "v1.partition.stale"])
    page = client.graph.ListEvents(request, timeout=CALL_S)
    assert len(page.events) == 2
    types = [*request.filter.event_types]
    same(get(served, "/events", since=2, limit=3, partition_ref=REF, event_type=types), page)


def test_single_events(served: Served, client: Stubs) -> None:
    for index in range(15):
        request = event_log_pb2.GetEventRequest(index=index)
        event = client.log.GetEvent(request, timeout=CALL_S)
        same(get(served, f"/events/{index}"), event)


def test_partitions(served: Served, client: Stubs) -> None:
    request = catalog_pb2.ListPartitionsRequest()
    listed = client.catalog.ListPartitions(request, timeout=CALL_S)
    assert len(listed.partitions) == 3
    same(get(served, "/partitions", order="id"), listed)
    for partition in listed.partitions:
        path = f"/partitions/{quote(partition.partition_ref, safe='')}"
        same(get(served, path), partition)


def test_graphs(served: Served, client: Stubs) -> None:
    request = catalog_pb2.GetDependencyGraphRequest(partition_ref=REF)
    graph = client.catalog.GetDependencyGraph(request, timeout=CALL_S)
    assert len(graph.nodes) >= 2
    same(get(served, f"/partitions/{quote(REF, safe='')}/graph"), graph)


def test_the_status(served: Served, client: Stubs) -> None:
    status = client.log.GetStatus(event_log_pb2.GetStatusRequest(), timeout=CALL_S)
    same(get(served, "/status"), status)


@pytest.mark.parametrize("first", ["http", "grpc"])
def test_one_event_through_both_doors_is_one_event(
    served: Served, client: Stubs, first: str
) -> None:
    event = build_event(
        "v1.partition.observed",
        f"both {first}",
        {"source": "x", "upstream_deps": ["y"]},
        event_id=f"00000000-0000-0000-0000-0000000000{'a1' if first == 'http' else 'a2'}",
    )
    request = event_log_pb2.AppendRequest(event=event)

    def by_grpc() -> events_pb2.Receipt:
        found: events_pb2.Receipt = client.log.Append(request, timeout=CALL_S).receipt
        return found

    def by_http() -> events_pb2.Receipt:
        answer = post(served, "/events", event)
        return json_to_message(answer, events_pb2.Receipt)

    doors = [by_http, by_grpc] if first == "http" else [by_grpc, by_http]
    receipts = [door() for door in doors]
    assert [receipt.duplicate for receipt in receipts] == [False, True]
    receipts[1].duplicate = False
    assert receipts[0] == receipts[1]
