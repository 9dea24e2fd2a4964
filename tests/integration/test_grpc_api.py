"""Every rpc, as a user's program calls it, against a real server over SQLite."""

import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from belog.schemas.filters import EventFilter
from belog.schemas.payload import encode_payload
from belog.schemas.wire import json_to_message, message_to_json, stored_from_wire
from belog.v1 import catalog_pb2, event_log_pb2, graph_pb2
from tests.grpc_serving import (
    CALL_S,
    Served,
    Stubs,
    Untyped,
    append,
    build_event,
    refusal,
    serving,
    stubs,
)

Code = grpc.StatusCode


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("grpc"), index_wait_s=0.5) as found:
        yield found


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Stubs]:
    with stubs(served) as found:
        yield found


@pytest.fixture
def prefix(unique_name: str) -> str:
    """What this test's own partitions and builds begin with; all share one log."""
    return f"{unique_name}/"


def made(client: Stubs, ref: str, build: str, upstream: list[str] | None = None) -> int:
    """Make a partition available; the index of its last event."""
    body = {"build_request_id": build}
    run = f"run of {ref}"
    append(client, "v1.partition.requested", ref, **body, requesting_clients=["alice"])
    append(client, "v1.job.scheduled", run, **body, job_label="load", outputs=[ref])
    append(
        client,
        "v1.partition.scheduled",
        ref,
        **body,
        job_run_id=run,
        job_label="load",
        upstream_deps=[*(upstream or [])],
    )
    append(client, "v1.job.running", run)
    append(client, "v1.partition.building", ref, **body, job_run_id=run)
    inputs = [{"ref": r, "index": 1} for r in upstream or []]
    manifest: Any = {"outputs": [ref], "inputs": inputs, "row_count": 3, "metadata": {"k": "v"}}
    return append(client, "v1.partition.available", ref, **body, job_run_id=run, manifest=manifest)


# --- GraphService


def test_pages_go_on_from_their_cursor_and_a_filtered_one_moves_on(
    client: Stubs, prefix: str
) -> None:
    first = append(client, "v1.partition.observed", prefix + "a")
    last = append(client, "v1.partition.observed", prefix + "b")
    request = graph_pb2.ListEventsRequest(since_idx=first, limit=1)
    page = client.graph.ListEvents(request, timeout=CALL_S)
    assert [(e.index, e.subject_id) for e in page.events] == [(first, prefix + "a")]
    assert (page.next_idx, page.has_more) == (first + 1, True)
    request = graph_pb2.ListEventsRequest(since_idx=page.next_idx)
    request.filter.partition_refs.append(prefix + "never")
    page = client.graph.ListEvents(request, timeout=CALL_S)
    assert (len(page.events), page.next_idx) == (0, last + 1)


def test_a_waiting_page_comes_with_the_event_it_waits_for(client: Stubs, prefix: str) -> None:
    end = client.log.GetStatus(event_log_pb2.GetStatusRequest(), timeout=CALL_S).next_idx
    request = graph_pb2.ListEventsRequest(since_idx=end, wait_ms=60_000)
    request.filter.partition_patterns.append(prefix + "**")
    waiting = client.graph.ListEvents.future(request, timeout=CALL_S)
    append(client, "v1.partition.observed", "elsewhere/" + prefix)
    index = append(client, "v1.partition.observed", prefix + "x/y")
    page = waiting.result()
    assert [event.index for event in page.events] == [index]


def test_who_names_a_partition_twice_waits_like_everybody(client: Stubs, prefix: str) -> None:
    end = client.log.GetStatus(event_log_pb2.GetStatusRequest(), timeout=CALL_S).next_idx
    request = graph_pb2.ListEventsRequest(since_idx=end, wait_ms=100)
    request.filter.partition_refs.extend([prefix, prefix])
    page = client.graph.ListEvents(request, timeout=CALL_S)
    assert (len(page.events), page.next_idx) == (0, end)
    request.wait_ms = 60_000
    waiting = client.graph.ListEvents.future(request, timeout=CALL_S)
    index = append(client, "v1.partition.observed", prefix)
    assert [event.index for event in waiting.result().events] == [index]


def test_a_stream_misses_nothing_from_its_cursor_on(client: Stubs, prefix: str) -> None:
    before = [append(client, "v1.partition.observed", f"{prefix}{n}") for n in range(5)]
    request = graph_pb2.StreamEventsRequest(since_idx=before[0])
    request.filter.partition_patterns.append(prefix + "*")
    stream = client.graph.StreamEvents(request, timeout=CALL_S)
    events = (event.index for page in stream for event in page.events)
    assert [next(events) for _ in before] == before
    after = [append(client, "v1.partition.observed", f"{prefix}{n}") for n in range(5, 8)]
    assert [next(events) for _ in after] == after
    stream.cancel()


# --- EventLogService


def test_an_event_is_appended_once_however_often_it_is_sent(client: Stubs, prefix: str) -> None:
    event = build_event(
        "v1.partition.observed",
        prefix + "a",
        {"source": "mill"},
        event_id=str(uuid.uuid4()),
        occurred_at=7,
        actor="alice",
    )
    request = event_log_pb2.AppendRequest(event=event)
    first = client.log.Append(request, timeout=CALL_S).receipt
    again = client.log.Append(request, timeout=CALL_S).receipt
    assert (first.event_id, first.duplicate) == (event.event_id, False)
    assert (again.index, again.created_at, again.duplicate) == (first.index, first.created_at, True)
    for which in ({"index": first.index}, {"event_id": event.event_id}):
        found = client.log.GetEvent(event_log_pb2.GetEventRequest(**which), timeout=CALL_S)
        stored = stored_from_wire(found)
        assert (stored.event.actor, stored.event.occurred_at) == ("alice", 7)
        assert stored.event.body() == {"source": "mill"} == dict(found.body)


def test_what_is_missing_of_an_event_is_given_and_a_payload_is_kept_as_it_is(
    client: Stubs, prefix: str
) -> None:
    payload = encode_payload({"source": "x"})
    event = build_event("v1.partition.observed", prefix, payload=payload)
    receipt = client.log.Append(event_log_pb2.AppendRequest(event=event), timeout=CALL_S).receipt
    request = event_log_pb2.GetEventRequest(index=receipt.index)
    found = client.log.GetEvent(request, timeout=CALL_S)
    assert found.payload == payload
    assert found.event_id == receipt.event_id
    assert found.actor == "anonymous"
    assert abs(found.occurred_at - found.created_at) < 10_000_000


def test_a_conflict_says_state_owner_and_what_would_be_legal(client: Stubs, prefix: str) -> None:
    index = append(client, "v1.partition.requested", prefix, build_request_id="mine")
    event = build_event("v1.partition.scheduled", prefix, {"build_request_id": "theirs"})
    request = event_log_pb2.AppendRequest(event=event)
    code, problem = refusal(lambda: client.log.Append(request, timeout=CALL_S))
    assert code == Code.FAILED_PRECONDITION
    assert (problem.code, problem.state, problem.owner) == ("not_owner", "requested", "mine")
    assert (problem.subject, problem.last_index) == (f"partition:{prefix}", index)
    assert "v1.partition.joined" in problem.allowed
    assert problem.hint
    assert not problem.retriable


def test_compare_and_append_tells_where_the_log_is(client: Stubs, prefix: str) -> None:
    end = client.log.GetStatus(event_log_pb2.GetStatusRequest(), timeout=CALL_S).next_idx
    event = build_event("v1.partition.observed", prefix)
    request = event_log_pb2.AppendRequest(event=event, at=end - 1)
    code, problem = refusal(lambda: client.log.Append(request, timeout=CALL_S))
    assert (code, problem.code, problem.index) == (Code.ABORTED, "index_conflict", end)
    assert problem.retriable
    request.at = end
    assert client.log.Append(request, timeout=CALL_S).receipt.index == end


def test_each_event_of_a_batch_gets_its_own_result(client: Stubs, prefix: str) -> None:
    good = build_event("v1.partition.observed", prefix + "a")
    illegal = build_event("v1.partition.stale", prefix + "b")
    wrong = build_event("v1.partition.observed", prefix + "c", {"nonsense": 1})
    batch = event_log_pb2.AppendBatchRequest(events=[good, wrong, illegal, good])
    results = client.log.AppendBatch(batch, timeout=CALL_S).results
    assert [r.WhichOneof("result") for r in results] == ["receipt", "problem", "problem", "receipt"]
    assert [r.problem.code for r in results[1:3]] == ["invalid_event", "illegal_transition"]
    assert results[3].receipt.index == results[0].receipt.index + 1
    empty = client.log.AppendBatch(event_log_pb2.AppendBatchRequest(), timeout=CALL_S)
    assert len(empty.results) == 0


@pytest.mark.parametrize("second", ["illegal", "wrong"])
def test_an_atomic_batch_is_all_or_none(client: Stubs, prefix: str, second: str) -> None:
    good = build_event("v1.partition.observed", prefix + "a")
    bad = build_event("v1.partition.stale", prefix + "b")
    if second == "wrong":
        bad = build_event("v1.partition.observed", prefix + "b", {"nonsense": 1})
    batch = event_log_pb2.AppendBatchRequest(events=[good, bad], atomic=True)
    code, _ = refusal(lambda: client.log.AppendBatch(batch, timeout=CALL_S))
    assert code == (Code.FAILED_PRECONDITION if second == "illegal" else Code.INVALID_ARGUMENT)
    request = catalog_pb2.GetLatestPartitionEventRequest(partition_ref=prefix + "a")
    code, _ = refusal(lambda: client.catalog.GetLatestPartitionEvent(request, timeout=CALL_S))
    assert code == Code.NOT_FOUND


def test_a_large_batch_keeps_its_order(client: Stubs, prefix: str) -> None:
    events = [build_event("v1.partition.observed", f"{prefix}{n}") for n in range(300)]
    batch = event_log_pb2.AppendBatchRequest(events=events, atomic=True)
    results = client.log.AppendBatch(batch, timeout=CALL_S).results
    indices = [result.receipt.index for result in results]
    assert indices == list(range(indices[0], indices[0] + 300))


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (event_log_pb2.GetEventRequest(), Code.INVALID_ARGUMENT),
        (event_log_pb2.GetEventRequest(index=-1), Code.INVALID_ARGUMENT),
        (event_log_pb2.GetEventRequest(index=2**62), Code.NOT_FOUND),
        (event_log_pb2.GetEventRequest(event_id="x"), Code.INVALID_ARGUMENT),
        (event_log_pb2.GetEventRequest(event_id=str(uuid.uuid4())), Code.NOT_FOUND),
    ],
)
def test_an_event_that_is_not_there(
    client: Stubs, request_: event_log_pb2.GetEventRequest, code: Code
) -> None:
    found, _ = refusal(lambda: client.log.GetEvent(request_, timeout=CALL_S))
    assert found == code


def test_the_status_says_which_log_and_how_far_its_tables_are(
    served: Served, client: Stubs, prefix: str
) -> None:
    index = append(client, "v1.partition.observed", prefix)
    request = event_log_pb2.GetStatusRequest(min_index=index)
    status = client.log.GetStatus(request, timeout=CALL_S)
    end = served.instance.end()
    assert (status.next_idx, status.root) == (end.next_idx, end.root)
    assert status.log_id == str(end.log_id)
    assert (status.instance, status.is_replica, status.lifecycle_version) == ("local", False, 1)
    assert (status.applied, status.lag_records) == (index + 1, 0)
    request.min_index = index + 1_000_000
    code, problem = refusal(lambda: client.log.GetStatus(request, timeout=CALL_S))
    assert (code, problem.retriable) == (Code.UNAVAILABLE, True)


# --- EnhancedCatalog


def test_a_partition_is_listed_with_its_attempt_and_its_data(client: Stubs, prefix: str) -> None:
    ref = prefix + "a"
    index = made(client, ref, prefix + "b1")
    last = append(client, "v1.partition.requested", ref, build_request_id=prefix + "b2")
    wait(client, last)
    request = catalog_pb2.ListPartitionsRequest(partition_patterns=[prefix + "*"])
    (row,) = client.catalog.ListPartitions(request, timeout=CALL_S).partitions
    assert (row.partition_ref, row.status, row.index) == (ref, catalog_pb2.REQUESTED, last)
    assert row.job_graph_run_id == prefix + "b2"
    assert (row.available_index, row.available_from_run) == (index, prefix + "b1")
    assert (row.manifest.row_count, dict(row.manifest.metadata)) == (3, {"k": "v"})


def wait(client: Stubs, index: int) -> None:
    client.log.GetStatus(event_log_pb2.GetStatusRequest(min_index=index), timeout=CALL_S)


def test_pages_of_partitions_hold_each_once_and_only_those_that_match(
    client: Stubs, prefix: str
) -> None:
    for n in range(7):
        wait(client, append(client, "v1.partition.observed", f"{prefix}{n % 2}/{n}"))
    found: list[str] = []
    request = catalog_pb2.ListPartitionsRequest(
        partition_patterns=[prefix + "1/*", prefix + "0/4"],
        statuses=[catalog_pb2.AVAILABLE, catalog_pb2.FAILED],
        page_size=2,
    )
    while True:
        page = client.catalog.ListPartitions(request, timeout=CALL_S)
        assert len(page.partitions) <= 2
        found += [row.partition_ref for row in page.partitions]
        request.page_token = page.next_page_token
        if not page.next_page_token:
            break
    assert found == [prefix + name for name in ("0/4", "1/1", "1/3", "1/5")]


def test_builds_are_listed_the_last_changed_first(client: Stubs, prefix: str) -> None:
    names = [f"{prefix}b{n}" for n in range(3)]
    for name in names:
        append(
            client,
            "v1.build.received",
            name,
            requested_partitions=[prefix + "a"],
            client_id=prefix,
        )
    last = append(client, "v1.build.cancelled", names[0], reason="enough")
    wait(client, last)
    request = catalog_pb2.ListJobGraphRunsRequest(client_id=prefix, page_size=2)
    page = client.catalog.ListJobGraphRuns(request, timeout=CALL_S)
    assert [run.job_graph_run_id for run in page.runs] == [names[0], names[2]]
    assert (page.runs[0].state, page.runs[0].reason, page.runs[0].index) == (
        "cancelled",
        "enough",
        last,
    )
    request.page_token = page.next_page_token
    page = client.catalog.ListJobGraphRuns(request, timeout=CALL_S)
    assert [run.job_graph_run_id for run in page.runs] == [names[1]]
    assert not page.next_page_token
    request = catalog_pb2.ListJobGraphRunsRequest(
        partition_ref=prefix + "a", states=["received"], client_id=prefix
    )
    assert len(client.catalog.ListJobGraphRuns(request, timeout=CALL_S).runs) == 2
    request.states[:] = ["nonsense"]
    code, _ = refusal(lambda: client.catalog.ListJobGraphRuns(request, timeout=CALL_S))
    assert code == Code.INVALID_ARGUMENT


def test_a_flat_event_is_appended_and_read_back_with_all_it_says(
    client: Stubs, prefix: str
) -> None:
    ref = prefix + "a"
    event = catalog_pb2.PartitionEvent(
        partition_event_id=str(uuid.uuid4()),
        partition_ref=ref,
        status=catalog_pb2.REQUESTED,
        job_graph_run_id="b",
        requesting_clients=["alice", "bob"],
    )
    request = catalog_pb2.AppendPartitionEventRequest(event=event, expected=-1)
    done = client.catalog.AppendPartitionEvent(request, timeout=CALL_S)
    again = client.catalog.AppendPartitionEvent(request, timeout=CALL_S)
    assert (again.index, again.duplicate, done.duplicate) == (done.index, True, False)
    latest = catalog_pb2.GetLatestPartitionEventRequest(partition_ref=ref, min_index=done.index)
    found = client.catalog.GetLatestPartitionEvent(latest, timeout=CALL_S)
    assert found.storage_metadata["index"] == str(done.index)
    assert found.storage_backend == "sqlite"
    for name in ("partition_event_id", "partition_ref", "status", "job_graph_run_id"):
        assert getattr(found, name) == getattr(event, name)
    assert [*found.requesting_clients] == ["alice", "bob"]
    event.partition_event_id = ""
    event.status = catalog_pb2.FAILED
    request.event.CopyFrom(event)
    code, problem = refusal(lambda: client.catalog.AppendPartitionEvent(request, timeout=CALL_S))
    assert (code, problem.code) == (Code.FAILED_PRECONDITION, "expected_mismatch")


def test_the_latest_event_names_its_job_and_what_is_made_from_the_partition(
    client: Stubs, prefix: str
) -> None:
    up, down = prefix + "up", prefix + "down"
    made(client, up, prefix + "b")
    wait(client, made(client, down, prefix + "b", [up]))
    request = catalog_pb2.GetLatestPartitionEventRequest(partition_ref=up)
    found = client.catalog.GetLatestPartitionEvent(request, timeout=CALL_S)
    assert (found.status, found.producing_job) == (catalog_pb2.AVAILABLE, "load")
    assert [*found.downstream_deps] == [down]
    assert found.manifest.row_count == 3


def query(client: Stubs, **fields: Untyped) -> catalog_pb2.PartitionEventQueryResult:
    request = catalog_pb2.PartitionEventQuery(**fields)
    found: catalog_pb2.PartitionEventQueryResult = client.catalog.QueryPartitionEvents(
        request, timeout=CALL_S
    )
    return found


def test_events_are_queried_in_each_order_with_their_count(client: Stubs, prefix: str) -> None:
    refs = [prefix + "b", prefix + "a"]
    for ref in refs:
        wait(client, made(client, ref, prefix + "build"))
    everything = query(client, partition_refs=refs)
    assert everything.total_count == 8
    indices = [int(e.storage_metadata["index"]) for e in everything.events]
    assert indices == sorted(indices)
    assert {e.producing_job for e in everything.events if e.job_run_id} == {"load"}

    newest = query(client, partition_refs=refs, limit=3, offset=1, order_by={"field": "timestamp"})
    assert [int(e.storage_metadata["index"]) for e in newest.events] == indices[-2:-5:-1]
    assert newest.total_count == 8

    by_ref = query(
        client, partition_refs=refs, order_by={"field": "partition_ref", "ascending": True}
    )
    assert [e.partition_ref for e in by_ref.events] == [refs[1]] * 4 + [refs[0]] * 4
    by_status = query(client, partition_refs=refs, limit=3, order_by={"field": "status"})
    assert [e.status for e in by_status.events] == [4, 4, 3]

    some = query(
        client,
        job_graph_run_ids=[prefix + "build"],
        statuses=[catalog_pb2.AVAILABLE],
        time_range={"start": everything.events[4].timestamp},
    )
    assert [(e.partition_ref, e.status) for e in some.events] == [(refs[1], 4)]
    beyond = query(client, partition_refs=refs, offset=100)
    assert (len(beyond.events), beyond.total_count) == (0, 8)


@pytest.mark.parametrize(
    "fields",
    [
        {"order_by": {"field": "colour"}},
        {"statuses": [0]},
        {"statuses": [99]},
        {"offset": -1},
        {"limit": -1},
    ],
)
def test_a_query_that_cannot_be(client: Stubs, fields: dict[str, Any]) -> None:
    code, _ = refusal(lambda: query(client, **fields))
    assert code == Code.INVALID_ARGUMENT


@pytest.mark.parametrize("fields", [{"limit": 10_001}, {"offset": 100_001}])
def test_a_query_over_a_bound(client: Stubs, fields: dict[str, Any]) -> None:
    code, problem = refusal(lambda: query(client, **fields))
    assert (code, problem.code) == (Code.RESOURCE_EXHAUSTED, "limit_exceeded")


def test_events_of_partitions_stream_from_an_index_or_live_only(client: Stubs, prefix: str) -> None:
    ref = prefix + "a"
    first = append(client, "v1.partition.requested", ref, build_request_id="b")
    request = catalog_pb2.EventStreamFilter(
        partition_refs=[ref], statuses=[catalog_pb2.REQUESTED, catalog_pb2.FAILED], since=first
    )
    since = client.catalog.StreamPartitionEvents(request, timeout=CALL_S)
    request.ClearField("since")
    live = client.catalog.StreamPartitionEvents(request, timeout=CALL_S)
    assert dict(live.initial_metadata())["belog-since"] == str(first + 1)
    append(client, "v1.partition.joined", ref, build_request_id="c")
    failed = append(client, "v1.partition.failed", ref, build_request_id="b", reason="no")
    got = [next(since), next(since)]
    assert [int(e.storage_metadata["index"]) for e in got] == [first, failed]
    assert next(live) == got[1]
    assert (got[1].status, got[1].failure_reason) == (catalog_pb2.FAILED, "no")
    since.cancel()
    live.cancel()


def test_active_builds_of_a_partition_and_of_all(client: Stubs, prefix: str) -> None:
    ref = prefix + "a"
    append(client, "v1.build.received", prefix + "third", requested_partitions=[ref])
    append(
        client,
        "v1.partition.requested",
        ref,
        build_request_id=prefix + "first",
        requesting_clients=["alice"],
    )
    last = append(
        client,
        "v1.partition.joined",
        ref,
        build_request_id=prefix + "second",
        requesting_clients=["bob"],
    )
    wait(client, last)
    request = catalog_pb2.GetActiveBuildStatusRequest(partition_ref=ref)
    answer = client.catalog.GetActiveBuildStatus(request, timeout=CALL_S)
    names = [build.job_graph_run_id for build in answer.builds]
    assert names == [prefix + name for name in ("first", "second", "third")]
    assert [*answer.builds[0].requesting_clients] == ["alice", "bob"]
    assert answer.builds[0].status == catalog_pb2.REQUESTED
    assert answer.builds[0].started_at > 0
    request = catalog_pb2.GetActiveBuildStatusRequest()
    answer = client.catalog.GetActiveBuildStatus(request, timeout=CALL_S)
    mine = [b.job_graph_run_id for b in answer.builds if b.partition_ref == ref]
    assert mine == names[:2]
    assert not answer.truncated


def test_a_graph_goes_both_ways(client: Stubs, prefix: str) -> None:
    a, b, c = (prefix + name for name in "abc")
    made(client, a, prefix)
    made(client, b, prefix, [a])
    wait(client, made(client, c, prefix, [b]))
    request = catalog_pb2.GetDependencyGraphRequest(partition_ref=b)
    graph = client.catalog.GetDependencyGraph(request, timeout=CALL_S)
    assert graph.nodes[0].partition_ref == b
    assert {node.partition_ref for node in graph.nodes} == {a, b, c}
    kinds = catalog_pb2.DependencyEdge
    edges = {(edge.source, edge.target, edge.kind) for edge in graph.edges}
    assert {(b, a, kinds.DEPENDS_ON), (a, b, kinds.PRODUCES)} <= edges
    request.depth = -1
    code, _ = refusal(lambda: client.catalog.GetDependencyGraph(request, timeout=CALL_S))
    assert code == Code.INVALID_ARGUMENT


def ask(client: Stubs, ref: str, **options: Untyped) -> catalog_pb2.RequestResult:
    request = catalog_pb2.RequestPartitionRequest(
        partition_ref=ref, client_id="carol", options=options
    )
    found: catalog_pb2.RequestResult = client.catalog.RequestPartition(request, timeout=CALL_S)
    return found


def test_of_all_who_ask_at_once_one_is_to_make_it(client: Stubs, prefix: str) -> None:
    request = catalog_pb2.RequestPartitionRequest(
        partition_ref=prefix, options={"allow_delegation": True}
    )
    calls = [client.catalog.RequestPartition.future(request, timeout=CALL_S) for _ in range(30)]
    answers = [call.result() for call in calls]
    kinds = Counter(answer.WhichOneof("result") for answer in answers)
    assert kinds == {"building": 1, "delegated": 29}
    builds = {getattr(a, a.WhichOneof("result")).job_graph_run_id for a in answers}
    assert len(builds) == 1


def test_a_request_is_answered_by_what_became_of_the_attempt(client: Stubs, prefix: str) -> None:
    mine = ask(client, prefix, allow_delegation=True).building
    assert mine.partition_ref == prefix
    code, problem = refusal(lambda: ask(client, prefix))
    assert (code, problem.code) == (Code.FAILED_PRECONDITION, "not_owner")
    assert problem.owner == mine.job_graph_run_id

    request = catalog_pb2.RequestPartitionRequest(
        partition_ref=prefix, options={"allow_delegation": True, "timeout_seconds": 30}
    )
    waiting = client.catalog.RequestPartition.future(request, timeout=CALL_S)
    build = {"build_request_id": mine.job_graph_run_id}
    for name in ("scheduled", "building"):
        append(client, f"v1.partition.{name}", prefix, **build)
    manifest: Any = {"row_count": 3}
    index = append(client, "v1.partition.available", prefix, **build, manifest=manifest)
    answer = waiting.result().available
    assert (answer.index, answer.manifest.row_count) == (index, 3)
    status = client.log.GetStatus(event_log_pb2.GetStatusRequest(), timeout=CALL_S)
    assert answer.log_id == status.log_id
    assert ask(client, prefix).available == answer


@pytest.mark.parametrize("timeout_seconds", [-1.0, float("nan"), float("-inf")])
def test_a_request_that_cannot_be_waited_for(
    client: Stubs, prefix: str, timeout_seconds: float
) -> None:
    code, _ = refusal(lambda: ask(client, prefix, timeout_seconds=timeout_seconds))
    assert code == Code.INVALID_ARGUMENT


# --- what all have in common


def test_every_answer_says_which_log_it_is_from(client: Stubs, prefix: str) -> None:
    append(client, "v1.partition.observed", prefix)
    request = event_log_pb2.GetStatusRequest()
    status, call = client.log.GetStatus.with_call(request, timeout=CALL_S)
    told = dict(call.trailing_metadata())
    assert told["belog-log-id"] == status.log_id
    stream = client.graph.StreamEvents(graph_pb2.StreamEventsRequest(), timeout=CALL_S)
    begun = dict(stream.initial_metadata())
    assert (begun["belog-log-id"], begun["belog-since"]) == (status.log_id, "0")
    assert begun["belog-process"] == told["belog-process"]
    stream.cancel()


def test_answers_are_the_same_through_json_and_back(client: Stubs, prefix: str) -> None:
    made(client, prefix + "a", prefix)
    pattern = EventFilter(partition_patterns=(prefix + "*",)).partition_patterns
    request = graph_pb2.ListEventsRequest(since_idx=0)
    request.filter.partition_patterns.extend(pattern)
    page = client.graph.ListEvents(request, timeout=CALL_S)
    assert page.events
    assert json_to_message(message_to_json(page), type(page)) == page


def test_a_request_that_is_none_is_the_callers_fault(client: Stubs) -> None:
    call: Any = client.channel.unary_unary("/belog.v1.GraphService/ListEvents")
    code, problem = refusal(lambda: call(b"\xff\xff\xff", timeout=CALL_S))
    assert (code, problem.code) == (Code.INVALID_ARGUMENT, "invalid")


def test_a_problem_that_would_not_fit_is_cut(client: Stubs) -> None:
    ref = "é" * 500
    append(client, "v1.partition.observed", ref)
    event = build_event("v1.partition.scheduled", ref, {"build_request_id": "ü" * 120})
    request = event_log_pb2.AppendRequest(event=event)
    code, problem = refusal(lambda: client.log.Append(request, timeout=CALL_S))
    assert (code, problem.code) == (Code.FAILED_PRECONDITION, "illegal_transition")
    request.event.event_type = "v1.partition." + "x" * 5_000
    code, problem = refusal(lambda: client.log.Append(request, timeout=CALL_S))
    assert code in {Code.INVALID_ARGUMENT, Code.RESOURCE_EXHAUSTED}
