"""The one door through which events are made: what it lets in, what it refuses, to the byte."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import msgspec
import pytest

from belog.schemas.envelope import Event, decode_event, encode_event
from belog.schemas.errors import InvalidEvent, InvalidInput, LimitExceeded
from belog.schemas.events import (
    PAYLOADS,
    BuildReceived,
    Manifest,
    ManifestInput,
    PartitionAvailable,
    PartitionRequested,
    new_event,
)
from belog.schemas.lifecycle import LIFECYCLE_1, kind_of_type
from belog.schemas.limits import (
    ACTOR_BYTES_MAX,
    BUILD_ID_BYTES_MAX,
    EVENT_BYTES_MAX,
    EVENT_TYPE_BYTES_MAX,
    JOB_RUN_ID_BYTES_MAX,
    LIST_ITEMS_MAX,
    METADATA_ITEMS_MAX,
    REF_BYTES_MAX,
    TEXT_BYTES_MAX,
)
from belog.schemas.payload import DEPTH_MAX, JsonValue, digest
from tests.examples import REQUIRED, T0, id_bytes

GOOD: Mapping[str, Any] = {"event_id": id_bytes(1), "actor": "a", "occurred_at": T0}


def make(
    event_type: str,
    subject: str = "s",
    body: Any = None,  # noqa: ANN401 - some callers get it wrong on purpose
    **changes: Any,  # noqa: ANN401 - as body
) -> Event:
    return new_event(event_type, subject, body, **{**GOOD, **changes})


@pytest.mark.parametrize("event_type", sorted(PAYLOADS))
def test_every_type_is_made_from_a_map_and_from_its_class(event_type: str) -> None:
    body = REQUIRED.get(event_type, {})
    plain = make(event_type, body=body)
    typed = new_event(msgspec.convert(body, PAYLOADS[event_type]), "s", **GOOD)
    assert plain == typed
    assert plain.subject_kind == kind_of_type(event_type)
    assert plain.payload_digest == digest(plain.payload)
    assert plain.body() == body
    assert decode_event(encode_event(plain)) == plain


def test_types_are_those_of_the_lifecycle() -> None:
    assert set(PAYLOADS) == set(LIFECYCLE_1.kinds)
    assert all(kind_of_type(name) == kind for name, kind in LIFECYCLE_1.kinds.items())


def test_typed_payload_keeps_what_it_holds() -> None:
    manifest = Manifest(
        outputs=["a"], inputs=[ManifestInput("b", 3)], size_bytes=1, metadata={"k": "v"}
    )
    payload = PartitionAvailable(build_request_id="b", manifest=manifest, message="done")
    assert new_event(payload, "a", **GOOD).body() == {
        "build_request_id": "b",
        "manifest": {
            "outputs": ["a"],
            "inputs": [{"ref": "b", "index": 3}],
            "size_bytes": 1,
            "metadata": {"k": "v"},
        },
        "message": "done",
    }


def test_ids_are_taken_as_uuids_or_bytes() -> None:
    as_uuid = make("v1.build.planning", event_id=UUID(int=1), caused_by=UUID(int=2))
    as_bytes = make("v1.build.planning", event_id=id_bytes(1), caused_by=id_bytes(2))
    assert as_uuid == as_bytes


def test_unknown_types_are_taken_as_they_are() -> None:
    assert make("v2.build.dreamt", body={"x": [1, {"y": None}]}).subject_kind == "build"
    assert make("v1.comet.seen", subject_kind="system").body() == {}


BAD: Mapping[str, Callable[[], object]] = {
    "type: form": lambda: make("partition.available"),
    "type: upper case": lambda: make("v1.Partition.available"),
    "type: empty": lambda: make(""),
    "type: no text": lambda: make(7),  # type: ignore[arg-type]
    "type: newline": lambda: make("v1.build.planning\n"),
    "type: unknown one of a known kind": lambda: make("v1.partition.exploded"),
    "kind: not told": lambda: make("v1.comet.seen"),
    "kind: unknown": lambda: make("v1.comet.seen", subject_kind="planet"),
    "kind: another": lambda: make("v1.build.planning", subject_kind="partition"),
    "subject: empty": lambda: make("v1.build.planning", ""),
    "subject: control character": lambda: make("v1.build.planning", "a\x00"),
    "subject: C1 control character": lambda: make("v1.build.planning", "a\x85"),
    "subject: surrogate": lambda: make("v1.build.planning", "\ud800"),
    "subject: no text": lambda: make("v1.build.planning", 5),  # type: ignore[arg-type]
    "subject: bytes": lambda: make("v1.build.planning", b"s"),  # type: ignore[arg-type]
    "actor: empty": lambda: make("v1.build.planning", actor=""),
    "actor: None": lambda: make("v1.build.planning", actor=None),
    "actor: newline": lambda: make("v1.build.planning", actor="a\nb"),
    "event_id: short": lambda: make("v1.build.planning", event_id=b"x" * 15),
    "event_id: long": lambda: make("v1.build.planning", event_id=b"x" * 17),
    "event_id: text of 16": lambda: make("v1.build.planning", event_id="x" * 16),
    "event_id: None": lambda: make("v1.build.planning", event_id=None),
    "caused_by: short": lambda: make("v1.build.planning", caused_by=b""),
    "caused_by: text": lambda: make("v1.build.planning", caused_by=str(UUID(int=1))),
    "occurred_at: float": lambda: make("v1.build.planning", occurred_at=1.5),
    "occurred_at: bool": lambda: make("v1.build.planning", occurred_at=True),
    "occurred_at: text": lambda: make("v1.build.planning", occurred_at="now"),
    "occurred_at: over": lambda: make("v1.build.planning", occurred_at=2**63),
    "occurred_at: under": lambda: make("v1.build.planning", occurred_at=-(2**63) - 1),
    "expected: under": lambda: make("v1.build.planning", expected=-2),
    "expected: over": lambda: make("v1.build.planning", expected=2**63),
    "expected: bool": lambda: make("v1.build.planning", expected=False),
    "body: list": lambda: make("v1.build.planning", body=[1]),
    "body: text": lambda: make("v1.comet.seen", body="x", subject_kind="system"),
    "body: unknown field": lambda: make("v1.build.planning", body={"colour": "red"}),
    "body: missing field": lambda: make("v1.partition.requested", body={}),
    "body: wrong type": lambda: make("v1.build.failed", body={"reason": 5}),
    "body: bool as number": lambda: make("v1.job.failed", body={"exit_code": True}),
    "body: negative count": lambda: make("v1.build.analysis_completed", body={"task_count": -1}),
    "body: integer over 64 bits": lambda: make("v1.job.failed", body={"exit_code": 2**63}),
    "body: attempt 0": lambda: make(
        "v1.job.scheduled", body={"build_request_id": "b", "attempt": 0}
    ),
    "body: empty build": lambda: make("v1.partition.requested", body={"build_request_id": ""}),
    "body: empty ref": lambda: make("v1.build.received", body={"requested_partitions": [""]}),
    "body: control character in a ref": lambda: make(
        "v1.build.received", body={"requested_partitions": ["a\tb"]}
    ),
    "body: surrogate in a text": lambda: make("v1.build.failed", body={"reason": "\udfff"}),
    "body: key that is no text": lambda: make("v1.build.failed", body={1: "x"}),
    "body: unknown type's key that is no text": lambda: make("v2.build.dreamt", body={"a": {1: 2}}),
    "body: unknown type's surrogate": lambda: make("v2.build.dreamt", body={"a": "\ud800"}),
    "body: unknown type's surrogate key": lambda: make("v2.build.dreamt", body={"\ud800": [1.5]}),
    "body: unknown type's set": lambda: make("v2.build.dreamt", body={"a": {1, 2}}),
    "body: unknown type's integer": lambda: make("v2.build.dreamt", body={"a": -(2**63) - 1}),
    "body: unknown type's nested integer": lambda: make("v2.build.dreamt", body={"a": [2**64]}),
    "both: payload and body": lambda: new_event(BuildReceived(), "s", {}, **GOOD),
    "typed: wrong type": lambda: new_event(
        PartitionRequested(build_request_id=5),  # type: ignore[arg-type]
        "s",
        **GOOD,
    ),
    "typed: not to be written": lambda: new_event(
        PartitionRequested(build_request_id=object()),  # type: ignore[arg-type]
        "s",
        **GOOD,
    ),
    "typed: bytes": lambda: new_event(
        PartitionRequested(build_request_id=b"b"),  # type: ignore[arg-type]
        "s",
        **GOOD,
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(name: str) -> None:
    with pytest.raises(InvalidEvent):
        BAD[name]()


def nested(depth: int) -> dict[str, JsonValue]:
    body: dict[str, JsonValue] = {}
    for _ in range(depth - 1):
        body = {"a": body}
    return body


def with_field(event_type: str, name: str, value: JsonValue) -> Event:
    return make(event_type, body={**REQUIRED.get(event_type, {}), name: value})


def in_manifest(name: str, value: JsonValue) -> Event:
    return with_field("v1.partition.observed", "manifest", {name: value})


def of_size(size: int) -> Event:
    """An event of an unknown type whose envelope has `size` bytes."""
    fixed = 600_000
    overhead = len(encode_event(make("v2.build.dreamt", body={"a": "x" * fixed}))) - fixed
    return make("v2.build.dreamt", body={"a": "x" * (size - overhead)})


# Two bytes of UTF-8 each, so that a bound on characters would show.
def wide(size: int) -> str:
    return "é" * (size // 2) + "x" * (size % 2)


LIMITS: Mapping[str, tuple[int, Callable[[int], Event]]] = {
    "EVENT_TYPE_BYTES_MAX": (
        EVENT_TYPE_BYTES_MAX,
        lambda n: make("v2.build." + "x" * (n - len("v2.build."))),
    ),
    "ACTOR_BYTES_MAX": (ACTOR_BYTES_MAX, lambda n: make("v1.build.planning", actor=wide(n))),
    "REF_BYTES_MAX": (REF_BYTES_MAX, lambda n: make("v1.partition.stale", wide(n))),
    "REF_BYTES_MAX in a list": (
        REF_BYTES_MAX,
        lambda n: with_field("v1.build.received", "requested_partitions", ["ok", wide(n)]),
    ),
    "REF_BYTES_MAX as cause": (
        REF_BYTES_MAX,
        lambda n: with_field("v1.partition.stale", "cause_partition", wide(n)),
    ),
    "REF_BYTES_MAX in manifest": (REF_BYTES_MAX, lambda n: in_manifest("outputs", [wide(n)])),
    "REF_BYTES_MAX as input": (
        REF_BYTES_MAX,
        lambda n: in_manifest("inputs", [{"ref": wide(n)}]),
    ),
    "BUILD_ID_BYTES_MAX": (BUILD_ID_BYTES_MAX, lambda n: make("v1.build.planning", wide(n))),
    "BUILD_ID_BYTES_MAX in body": (
        BUILD_ID_BYTES_MAX,
        lambda n: with_field("v1.partition.requested", "build_request_id", wide(n)),
    ),
    "JOB_RUN_ID_BYTES_MAX": (JOB_RUN_ID_BYTES_MAX, lambda n: make("v1.job.running", wide(n))),
    "JOB_RUN_ID_BYTES_MAX in body": (
        JOB_RUN_ID_BYTES_MAX,
        lambda n: with_field("v1.partition.building", "job_run_id", wide(n)),
    ),
    "TEXT_BYTES_MAX": (
        TEXT_BYTES_MAX,
        lambda n: with_field("v1.build.failed", "reason", wide(n)),
    ),
    "TEXT_BYTES_MAX as metadata key": (
        TEXT_BYTES_MAX,
        lambda n: in_manifest("metadata", {wide(n): "x"}),
    ),
    "TEXT_BYTES_MAX as metadata value": (
        TEXT_BYTES_MAX,
        lambda n: in_manifest("metadata", {"x": wide(n)}),
    ),
    "LIST_ITEMS_MAX": (
        LIST_ITEMS_MAX,
        lambda n: with_field("v1.build.received", "requested_partitions", ["x"] * n),
    ),
    "LIST_ITEMS_MAX in manifest": (LIST_ITEMS_MAX, lambda n: in_manifest("outputs", ["x"] * n)),
    "METADATA_ITEMS_MAX": (
        METADATA_ITEMS_MAX,
        lambda n: in_manifest("metadata", {str(k): "v" for k in range(n)}),
    ),
    "EVENT_BYTES_MAX": (EVENT_BYTES_MAX, of_size),
}


@pytest.mark.parametrize("name", LIMITS)
def test_each_limit_to_the_byte(name: str) -> None:
    limit, at = LIMITS[name]
    assert isinstance(at(limit), Event)
    with pytest.raises(LimitExceeded) as caught:
        at(limit + 1)
    assert (caught.value.limit, caught.value.limit_value) == (name.split(maxsplit=1)[0], limit)
    assert caught.value.value == limit + 1


def test_event_at_the_size_limit_has_that_size() -> None:
    assert len(encode_event(of_size(EVENT_BYTES_MAX))) == EVENT_BYTES_MAX


def test_depth_that_is_written_can_be_read() -> None:
    body = nested(DEPTH_MAX)
    assert make("v2.build.dreamt", body=body).body() == body
    with pytest.raises(InvalidInput):
        make("v2.build.dreamt", body=nested(DEPTH_MAX + 1))


@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1])
def test_numbers_at_the_edge_of_64_bits(number: int) -> None:
    made = make("v1.job.failed", body={"exit_code": number}, occurred_at=number)
    assert made.body() == {"exit_code": number}
    assert decode_event(encode_event(made)) == made
