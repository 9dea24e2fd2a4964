"""Protobuf messages and their JSON: nothing is lost on the way there and back."""

import json
from typing import Any, Literal
from uuid import UUID

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import InvalidEvent, InvalidFilter, InvalidInput, LimitExceeded
from belog.schemas.events import new_event
from belog.schemas.filters import EventFilter
from belog.schemas.lifecycle import LIFECYCLE_1
from belog.schemas.limits import LIST_ITEMS_MAX
from belog.schemas.payload import JsonValue, digest, encode_payload
from belog.schemas.wire import (
    event_from_wire,
    event_to_wire,
    filter_from_wire,
    filter_to_wire,
    json_to_message,
    message_from_bytes,
    message_to_json,
    page_from_wire,
    page_to_wire,
    stored_from_wire,
    stored_to_wire,
)
from belog.schemas.wire_catalog import (
    event_from_partition_event,
    partition_event,
    status_of_state,
)
from belog.v1 import catalog_pb2, event_log_pb2, events_pb2, graph_pb2
from tests.examples import LOG_ID, REQUIRED, T0, event, id_bytes
from tests.golden import MANIFEST
from tests.strategies import ANY_BODIES, IDS, INT64, KINDS, TEXT, events

STORED = st.builds(StoredEvent, st.integers(0, 2**63 - 1), INT64, events())


def through_json(message: Message) -> Any:  # noqa: ANN401 - of the message's class
    text = json.dumps(message_to_json(message), allow_nan=False)
    return json_to_message(json.loads(text), type(message))


def through_bytes(message: Message) -> Any:  # noqa: ANN401 - of the message's class
    return message_from_bytes(message.SerializeToString(), type(message))


@given(STORED)
def test_stored_events_survive_exactly(stored: StoredEvent) -> None:
    for with_body in (False, True):
        message = stored_to_wire(stored, with_body=with_body)
        assert stored_from_wire(message) == stored
        assert stored_from_wire(through_bytes(message)) == stored
        assert stored_from_wire(through_json(message)) == stored


@given(events())
def test_events_to_append_survive_exactly(what: Event) -> None:
    assert event_from_wire(event_to_wire(what)) == what
    assert event_from_wire(through_json(event_to_wire(what, with_body=True))) == what
    assert event_from_wire(event_to_wire(what), actor=what.actor) == what


@given(st.lists(STORED, max_size=4), INT64, st.booleans())
def test_pages(stored: list[StoredEvent], next_idx: int, has_more: bool) -> None:  # noqa: FBT001
    message = page_to_wire(tuple(stored), next_idx, has_more=has_more)
    wanted = (tuple(stored), next_idx, has_more)
    assert page_from_wire(through_json(message)) == wanted
    assert page_from_wire(through_bytes(message)) == wanted


LISTS = st.lists(TEXT, max_size=3).map(tuple)
FILTERS = st.builds(
    EventFilter,
    **{name: LISTS for name in EventFilter.__struct_fields__ if not name.endswith(("from", "to"))},
    **{
        name: st.none() | INT64
        for name in EventFilter.__struct_fields__
        if name.endswith(("from", "to"))
    },
)


@given(FILTERS)
def test_filters(wanted: EventFilter) -> None:
    message = filter_to_wire(wanted)
    assert filter_from_wire(message) == wanted
    assert filter_from_wire(through_json(message)) == wanted
    assert filter_from_wire(through_bytes(message)) == wanted


def test_every_field_of_a_filter_has_a_number() -> None:
    numbers = {f.name: f.number for f in events_pb2.EventFilter.DESCRIPTOR.fields}
    assert set(numbers) == set(EventFilter.__struct_fields__)
    assert list(numbers.items())[:6] == [
        ("partition_refs", 1),
        ("partition_patterns", 2),
        ("job_labels", 3),
        ("job_run_ids", 4),
        ("build_request_ids", 5),
        ("task_ids", 6),
    ]


def test_numbers_that_clients_rely_on() -> None:
    page = {f.name: f.number for f in events_pb2.EventPage.DESCRIPTOR.fields}
    assert page == {"events": 1, "next_idx": 2, "has_more": 3}
    flat = [f.name for f in catalog_pb2.PartitionEvent.DESCRIPTOR.fields]
    assert [f.number for f in catalog_pb2.PartitionEvent.DESCRIPTOR.fields] == list(range(1, 16))
    assert flat == [
        "partition_event_id",
        "timestamp",
        "partition_ref",
        "status",
        "job_graph_run_id",
        "job_run_id",
        "producing_job",
        "requesting_clients",
        "delegated_to_run_id",
        "upstream_deps",
        "downstream_deps",
        "manifest",
        "failure_reason",
        "storage_backend",
        "storage_metadata",
    ]
    assert dict(catalog_pb2.PartitionStatus.items()) == {
        "UNKNOWN": 0,
        "REQUESTED": 1,
        "SCHEDULED": 2,
        "BUILDING": 3,
        "AVAILABLE": 4,
        "FAILED": 5,
        "STALE": 6,
        "DELEGATED": 7,
        "REMOVED": 8,
    }


def test_services_have_their_methods() -> None:
    services = {
        service.full_name: [method.name for method in service.methods]
        for module in (graph_pb2, event_log_pb2, catalog_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
    }
    assert services == {
        "belog.v1.GraphService": ["ListEvents", "StreamEvents"],
        "belog.v1.EventLogService": ["Append", "AppendBatch", "GetEvent", "GetStatus"],
        "belog.v1.EnhancedCatalog": [
            "ListJobGraphRuns",
            "ListPartitions",
            "AppendPartitionEvent",
            "GetLatestPartitionEvent",
            "QueryPartitionEvents",
            "StreamPartitionEvents",
            "RequestPartition",
            "GetActiveBuildStatus",
            "GetDependencyGraph",
        ],
    }


# --- JSON as clients see it


def test_json_by_the_proto3_mapping() -> None:
    what = event("v1.job.failed", "run-1", {"exit_code": 2**60, "reason": "é"}, n=1, expected=0)
    plain = message_to_json(stored_to_wire(StoredEvent(0, T0, what)))
    assert plain["index"] == "0"
    assert plain["created_at"] == str(T0)
    assert plain["occurred_at"] == str(T0 + 1)
    assert plain["expected"] == "0"
    assert plain["event_id"] == "00000000-0000-0000-0000-000000000001"
    assert plain["body"] == {"exit_code": str(2**60), "reason": "é"}
    assert "caused_by" not in plain
    # Integers are taken as numbers and as text, and names in lowerCamelCase too.
    message = json_to_message({"nextIdx": 5, "has_more": True}, events_pb2.EventPage)
    assert message == json_to_message({"next_idx": "5", "hasMore": True}, events_pb2.EventPage)


def test_body_shows_what_a_struct_cannot_hold() -> None:
    body: dict[str, JsonValue] = {
        "bytes": b"\x00\xff",
        "big": 2**53 + 1,
        "whole": 2**53,
        "none": None,
        "odd": [float("nan"), float("inf"), float("-inf"), True, 1.5],
    }
    what = new_event("v2.build.dreamt", "b", body, event_id=id_bytes(1), actor="a", occurred_at=T0)
    message = stored_to_wire(StoredEvent(1, T0, what))
    assert message_to_json(message)["body"] == {
        "bytes": "AP8=",
        "big": "9007199254740993",
        "whole": 2.0**53,
        "none": None,
        "odd": ["NaN", "Infinity", "-Infinity", True, 1.5],
    }
    assert stored_from_wire(message).event.payload == what.payload


def test_event_from_a_body_alone() -> None:
    plain = {
        "event_id": str(UUID(int=1)),
        "event_type": "v1.partition.available",
        "subject_id": "r",
        "occurred_at": T0,
        "body": {"build_request_id": "b", "manifest": MANIFEST},
    }
    message = json_to_message(json.loads(json.dumps(plain)), events_pb2.BuildEvent)
    body: dict[str, JsonValue] = {"build_request_id": "b", "manifest": MANIFEST}
    assert event_from_wire(message, actor="me") == new_event(
        "v1.partition.available",
        "r",
        body,
        event_id=id_bytes(1),
        actor="me",
        occurred_at=T0,
    )


@given(ANY_BODIES)
def test_any_body_is_taken_or_refused(body: dict[str, Any]) -> None:
    message = event_to_wire(event("v2.build.dreamt", "b", {}, n=1))
    message.payload = b""
    message.payload_digest = b""
    try:
        message.body.update(body)
    except (ValueError, TypeError):
        return  # bytes have no place in a Struct
    try:
        event_from_wire(message)
    except InvalidEvent:
        return


def good(**changes: Any) -> events_pb2.BuildEvent:  # noqa: ANN401 - any field
    message = event_to_wire(event("v1.partition.requested", n=1))
    for name, value in changes.items():
        setattr(message, name, value)
    return message


BAD = {
    "event_id": good(event_id="7"),
    "no event_id": good(event_id=""),
    "caused_by": good(caused_by="x"),
    "event_type": good(event_type="v1.partition.exploded"),
    "subject_kind": good(subject_kind="build"),
    "subject_id": good(subject_id=""),
    "expected": good(expected=-2),
    "payload of garbage": good(payload=b"\xff"),
    "payload that is no map": good(payload=b"\x01"),
    "payload that is not canonical": good(payload=bytes.fromhex("a1616118 01".replace(" ", ""))),
    "payload that its type does not take": good(payload=encode_payload({"colour": "red"})),
    "digest": good(payload_digest=b"x" * 32),
}


@pytest.mark.parametrize("name", BAD)
def test_event_refused(name: str) -> None:
    with pytest.raises(InvalidEvent):
        event_from_wire(BAD[name])


def test_actor_is_who_the_client_is() -> None:
    with pytest.raises(InvalidEvent, match="actor"):
        event_from_wire(good(), actor="somebody else")
    assert event_from_wire(good(actor=""), actor="me").actor == "me"
    made = event_from_wire(good(event_id=""), event_id=id_bytes(5))
    assert made.event_id == id_bytes(5)


def test_a_default_that_was_written_out_keeps_its_bytes() -> None:
    payload = encode_payload({"build_request_id": "b", "attempt": 1})
    message = event_to_wire(event("v1.job.scheduled", "run", n=1))
    message.payload, message.payload_digest = payload, digest(payload)
    made = event_from_wire(message)
    assert (made.payload, made.payload_digest) == (payload, digest(payload))


def test_limits_hold_here_too() -> None:
    message = event_to_wire(event("v1.build.received", "b", n=1))
    message.payload = encode_payload({"requested_partitions": ["r"] * (LIST_ITEMS_MAX + 1)})
    message.payload_digest = b""
    with pytest.raises(LimitExceeded):
        event_from_wire(message)


def test_stored_event_must_be_whole() -> None:
    message = stored_to_wire(StoredEvent(0, 0, event("v1.build.planning", "b", n=1)))
    names: tuple[Literal["index", "created_at"], ...] = ("index", "created_at")
    for name in names:
        less = events_pb2.BuildEvent()
        less.CopyFrom(message)
        less.ClearField(name)
        with pytest.raises(InvalidEvent):
            stored_from_wire(less)
    message.payload += b"x"
    with pytest.raises(InvalidEvent):
        stored_from_wire(message)


@pytest.mark.parametrize(
    ("plain", "kind", "error"),
    [
        ({"colour": 1}, events_pb2.BuildEvent, InvalidEvent),
        ({"index": "x"}, events_pb2.BuildEvent, InvalidEvent),
        ({"index": 2**63}, events_pb2.BuildEvent, InvalidEvent),
        ({"payload": "?"}, events_pb2.BuildEvent, InvalidEvent),
        ({"events": [{"payloadDigest": "AP8=!"}]}, events_pb2.EventPage, InvalidInput),
        ({"actors": "a"}, events_pb2.EventFilter, InvalidFilter),
        ({"actors": [1]}, events_pb2.EventFilter, InvalidFilter),
        ({"limit": 2**40}, graph_pb2.ListEventsRequest, InvalidInput),
        ({"event": "x"}, event_log_pb2.AppendRequest, InvalidInput),
    ],
)
def test_json_refused(
    plain: dict[str, Any], kind: type[Message], error: type[InvalidInput]
) -> None:
    with pytest.raises(error):
        json_to_message(plain, kind)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_and_json(data: bytes) -> None:
    for kind in (events_pb2.BuildEvent, events_pb2.EventFilter, catalog_pb2.PartitionEvent):
        try:
            message_from_bytes(data, kind)
        except InvalidInput:
            continue


# --- the catalog's view


@given(events().filter(lambda e: e.subject_kind == "partition"), st.integers(0, 2**63 - 1))
def test_every_partition_event_has_a_flat_view(what: Event, index: int) -> None:
    flat = partition_event(
        StoredEvent(index, T0, what), log_id=LOG_ID, storage_backend="sqlite", downstream_deps=["d"]
    )
    assert flat.partition_ref == what.subject_id
    assert UUID(flat.partition_event_id).bytes == what.event_id
    assert flat.storage_metadata["index"] == str(index)
    assert flat.storage_metadata["log_id"] == str(LOG_ID)
    assert through_json(flat) == flat


def flat_of(name: str, **body: Any) -> catalog_pb2.PartitionEvent:  # noqa: ANN401 - any field
    event_type = f"v1.partition.{name}"
    what = event(event_type, "r", {**REQUIRED.get(event_type, {}), **body}, n=1)
    return partition_event(StoredEvent(7, T0, what), log_id=LOG_ID, storage_backend="kafka")


@pytest.mark.parametrize(
    "row", LIFECYCLE_1.machines["partition"], ids=lambda row: str(row.event_type)
)
def test_status_is_the_state_after_the_event(row: Any) -> None:  # noqa: ANN401 - a Row
    flat = flat_of(row.event_type.rpartition(".")[2])
    expected = catalog_pb2.UNKNOWN if row.target is None else status_of_state(row.target)
    assert flat.status == expected
    if row.target is not None:
        assert catalog_pb2.PartitionStatus.Name(flat.status) == row.target.upper()


def test_flat_view_keeps_the_manifest_and_the_reason() -> None:
    flat = flat_of("available", job_run_id="j", manifest=MANIFEST)
    assert (flat.job_run_id, flat.manifest.size_bytes) == ("j", 2**40)
    assert flat.manifest.HasField("row_count")
    assert not flat.manifest.inputs[1].HasField("index")
    assert flat_of("failed", reason="boom").failure_reason == "boom"
    with pytest.raises(InvalidEvent):
        partition_event(
            StoredEvent(1, T0, event("v1.build.planning", "b", n=1)),
            log_id=LOG_ID,
            storage_backend="x",
        )


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("requested", {"requesting_clients": ["c"]}),
        ("scheduled", {"job_run_id": "j", "job_label": "l", "upstream_deps": ["u"]}),
        ("building", {"job_run_id": "j"}),
        ("available", {"job_run_id": "j", "manifest": MANIFEST}),
        ("delegated", {"delegated_to_build": "b2"}),
        ("failed", {"job_run_id": "j", "reason": "boom"}),
        ("observed", {"manifest": MANIFEST, "upstream_deps": ["u"]}),
        ("removed", {}),
        ("stale", {}),
    ],
)
def test_flat_events_are_appended_as_what_they_mean(name: str, body: dict[str, Any]) -> None:
    event_type = f"v1.partition.{name}"
    given_body = {**REQUIRED.get(event_type, {}), **body}
    what = event(event_type, "r", given_body, n=1)
    flat = partition_event(
        StoredEvent(7, what.occurred_at, what), log_id=LOG_ID, storage_backend="kafka"
    )
    again = event_from_partition_event(
        flat, actor="tester", event_id=id_bytes(9), occurred_at=T0 + 9
    )
    assert again == what


def test_unknown_status_cannot_be_appended() -> None:
    flat = catalog_pb2.PartitionEvent(partition_ref="r")
    with pytest.raises(InvalidEvent, match="UNKNOWN"):
        event_from_partition_event(flat, actor="a", event_id=id_bytes(1), occurred_at=T0)


@given(IDS, st.sampled_from(KINDS))
def test_kinds_are_words(subject: str, kind: Any) -> None:  # noqa: ANN401 - a SubjectKind
    what = new_event(
        "v7.x.y", subject, event_id=id_bytes(1), actor="a", occurred_at=0, subject_kind=kind
    )
    assert event_to_wire(what).subject_kind == kind
