"""The fast JSON of the hot messages is that of the library, both ways."""

import json
from base64 import b64encode
from typing import Any, cast

import msgspec
import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import (
    BelogError,
    ExpectedMismatch,
    InvalidEvent,
    InvalidInput,
    LimitExceeded,
)
from belog.schemas.wire import (
    DOUBLE_INTEGER_MAX,
    event_from_wire,
    event_to_wire,
    json_to_message,
    page_to_wire,
    stored_to_wire,
)
from belog.schemas.wire_json import (
    append_body,
    event_from_json,
    event_to_json,
    page_to_json,
    problem_to_json,
    receipt_to_json,
    results_to_json,
)
from belog.service.wire_answers import problem_to_wire, receipt_to_wire, result_to_wire
from belog.storage.interface import Receipt
from belog.v1 import event_log_pb2, events_pb2
from tests.examples import T0, id_bytes
from tests.strategies import ANY_BODIES, INT64, TEXT, events

STORED = st.builds(StoredEvent, st.integers(0, 2**63 - 1), INT64, events())
ID = id_bytes(1)


def by_library(message: Message) -> Any:  # noqa: ANN401 - JSON
    return json_format.MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )


@given(STORED)
def test_events_are_written_as_the_library_does(stored: StoredEvent) -> None:
    assert json.loads(event_to_json(stored)) == by_library(stored_to_wire(stored))


@given(st.lists(STORED, max_size=3), INT64, st.booleans())
def test_pages(stored: list[StoredEvent], next_idx: int, has_more: bool) -> None:  # noqa: FBT001
    fast = page_to_json([event_to_json(s) for s in stored], next_idx, has_more=has_more)
    slow = page_to_wire(tuple(stored), next_idx, has_more=has_more)
    assert json.loads(fast) == by_library(slow)


def read_fast(data: bytes) -> Event | type[BelogError]:
    try:
        return event_from_json(data, event_id=lambda: ID, occurred_at=T0, actor="someone")
    except BelogError as error:
        return type(error)


def read_slowly(data: bytes) -> Event | type[BelogError]:
    """By the library alone."""
    try:
        message = json_to_message(msgspec.json.decode(data), events_pb2.BuildEvent)
        message.occurred_at = message.occurred_at or T0
        message.actor = message.actor or "someone"
        return event_from_wire(message, event_id=ID)
    except BelogError as error:
        return type(error)
    except msgspec.DecodeError:
        return InvalidInput


@given(events(), st.booleans(), st.booleans())
def test_events_are_read_as_the_library_does(what: Event, with_body: bool, camel: bool) -> None:  # noqa: FBT001
    message = event_to_wire(what, with_body=with_body)
    plain = json_format.MessageToDict(message, preserving_proto_field_name=not camel)
    data = json.dumps(plain).encode()
    assert read_fast(data) == read_slowly(data)
    if what.occurred_at:
        assert read_fast(data) == what


NUMBERS: st.SearchStrategy[Any] = st.one_of(
    INT64,
    INT64.map(str),
    st.integers(-(2**70), 2**70),
    st.sampled_from(["", "1.0", "1e3", " 1", "+1", "-0", "1_0", "x", "٣"]),
    st.sampled_from([1.0, 1.5, True, None, [], {}]),
)
BASE64: st.SearchStrategy[Any] = st.one_of(
    st.binary(max_size=6).map(lambda b: b64encode(b).decode()),
    st.sampled_from(["oA==", "oA", "_-8=", "o A=", "*", "", None, 5]),
)
TEXTS: st.SearchStrategy[Any] = st.one_of(TEXT, st.none(), st.integers())
BODIES: st.SearchStrategy[Any] = st.one_of(
    st.dictionaries(
        st.sampled_from(["client_id", "requested_partitions", "comment", "other"]),
        st.one_of(
            TEXT,
            st.lists(TEXT, max_size=2),
            st.floats(allow_nan=False, allow_infinity=False),
            st.integers(-(2**80), 2**80),
            st.booleans(),
            st.none(),
        ),
        max_size=3,
    ),
    TEXTS,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "event_type": st.sampled_from(["v1.build.received", "v9.thing.done", "", 3, None]),
            "subject_id": st.one_of(st.just("b1"), TEXTS),
            "subject_kind": st.sampled_from(["build", "partition", "", None, 1]),
            "event_id": st.sampled_from([None, "", "x", "00010203-0405-0607-0809-0a0b0c0d0e0f"]),
            "actor": TEXTS,
            "occurred_at": NUMBERS,
            "occurredAt": NUMBERS,
            "expected": NUMBERS,
            "index": NUMBERS,
            "created_at": NUMBERS,
            "payload": BASE64,
            "payload_digest": BASE64,
            "caused_by": st.sampled_from([None, "", "00010203-0405-0607-0809-0a0b0c0d0e0f"]),
            "body": BODIES,
            "unknown": TEXT,
        },
    )
)
def test_whatever_is_sent_is_read_as_the_library_does(plain: dict[str, Any]) -> None:
    data = json.dumps(plain).encode()
    body: Any = None if plain.get("payload") else plain.get("body")
    values = list(cast("dict[str, Any]", body).values()) if isinstance(body, dict) else []
    if any(type(value) is int and abs(value) > DOUBLE_INTEGER_MAX for value in values):
        # The library would make another number of it, which is not what was sent.
        assert isinstance(read_fast(data), type)
    else:
        assert read_fast(data) == read_slowly(data)


@given(st.integers(2**53 - 3, 2**70), st.sampled_from([1, -1]), st.booleans())
def test_integers_are_kept_or_refused(magnitude: int, sign: int, is_nested: bool) -> None:  # noqa: FBT001
    number = sign * magnitude
    event = {
        "event_type": "v9.thing.done",
        "subject_kind": "build",
        "subject_id": "b",
        "body": {"n": [{"m": number}] if is_nested else number},
    }
    # The second form goes by the library.
    for plain in (event, event | {"occurred_at": 7.0}):
        read = read_fast(json.dumps(plain).encode())
        if magnitude > DOUBLE_INTEGER_MAX:
            assert read is InvalidEvent
        else:
            assert isinstance(read, Event)
            assert read.body() == event["body"]


@given(ANY_BODIES.map(lambda body: {k: v for k, v in body.items() if isinstance(v, str)}))
def test_bodies_of_unknown_types_are_read(body: dict[str, str]) -> None:
    event = {
        "event_type": "v9.thing.done",
        "subject_kind": "build",
        "subject_id": "b",
        "body": body,
    }
    read = read_fast(json.dumps(event).encode())
    assert isinstance(read, Event)
    assert read.body() == body


RECEIPTS = st.builds(
    Receipt, st.integers(0, 2**63 - 1), INT64, st.binary(min_size=16, max_size=16), st.booleans()
)


@given(RECEIPTS, st.text(st.characters(codec="utf-8"), max_size=9))
def test_receipts_are_written_as_the_library_does(receipt: Receipt, text: str) -> None:
    assert json.loads(receipt_to_json(receipt)) == by_library(receipt_to_wire(receipt))
    results: list[Receipt | BelogError] = [InvalidEvent(text, hint=text), receipt]
    slow = event_log_pb2.AppendBatchResponse(results=map(result_to_wire, results))
    assert json.loads(results_to_json(results)) == by_library(slow)


def test_results_are_written_as_the_library_does() -> None:
    receipt = Receipt(5, T0, ID, duplicate=True)
    errors = [
        ExpectedMismatch(
            "moved", state="", last_index=-1, allowed=("a", "b"), owner="o", index=0, hint="h"
        ),
        LimitExceeded("events", limit="X", limit_value=1, value=2),
        InvalidEvent("no", subject="build:b"),
    ]
    for error in errors:
        assert json.loads(problem_to_json(error)) == by_library(problem_to_wire(error))
    fast = receipt_to_json(receipt)
    assert json.loads(fast) == by_library(receipt_to_wire(receipt))
    slow = event_log_pb2.AppendBatchResponse(
        results=[result_to_wire(receipt), *map(result_to_wire, errors)]
    )
    assert json.loads(results_to_json([receipt, *errors])) == by_library(slow)
    assert results_to_json([]) == b'{"results":[]}'


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b'{"events":[{},{}],"atomic":true,"at":"7"}', (2, True, True, 7)),
        (b'{"events":[],"at":7}', (0, True, False, 7)),
        (b'{"events":[{}],"at":7.0,"atomic":null}', (1, True, False, 7)),
        (b'{"event_type":"x"}', (1, False, False, None)),
        (b"{}", (1, False, False, None)),
    ],
)
def test_bodies_of_appends(data: bytes, wanted: tuple[int, bool, bool, int | None]) -> None:
    body = append_body(data)
    assert (len(body.events), body.is_batch, body.atomic, body.at) == wanted


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nothing",
        b"[]",
        b"7",
        b'{"events":7}',
        b'{"events":[],"more":1}',
        b'{"events":[],"at":"x"}',
        b'{"events":[],"atomic":"yes"}',
        b'\xff{"events":[]}',
        b"[" * 100_000,
        b'{"events":[],"at":99999999999999999999}',
    ],
)
def test_what_is_no_append_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        append_body(data)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (rb'{"subject_id":"\ud800"}', "half of a surrogate pair"),
        (rb'{"subject_id":"\ud83d\ude00"', "truncated"),
        (b'{"subjectid":"a"}', r"no field 'subjectid'; it has index, created_at, event_id,"),
    ],
)
def test_what_is_off_is_named_as_the_caller_knows_it(data: bytes, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        event_from_json(data, event_id=lambda: bytes(16), occurred_at=1)
