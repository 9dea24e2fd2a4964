"""A payload of the usual form is one by the long way too, with the same bytes and the same map."""

from typing import Annotated, Any
from uuid import UUID

import cbor2
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Meta

from belog.schemas import payload_forms
from belog.schemas.errors import BelogError, InvalidEvent
from belog.schemas.events import PAYLOADS, new_event
from belog.schemas.payload import (
    KEY_ORDERS_MAX,
    JsonValue,
    canonical_payload,
    decode_payload,
    encode_payload,
    known_payload,
    ordered_keys,
)
from belog.schemas.payload_forms import PayloadForms
from belog.schemas.wire import uuid_from_text
from tests.examples import T0, id_bytes
from tests.strategies import bodies

ID = id_bytes(1)
TYPES = st.sampled_from(sorted(PAYLOADS))
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.text(max_size=4),
    st.sampled_from(["a", "b\n", "é", "\ud800", "", "\x7f", "x" * 23, "x" * 24, "x" * 255]),
    st.sampled_from([256, 257, 1_024, 1_025, 16_384, 16_385]).map(lambda n: "x" * n),
    st.sampled_from([["a"], ["a", ""], [], ["a", 1], ["é"], ["b\n"], [["a"]], ["a"] * 24]),
    st.sampled_from([["a"] * 256, ["a"] * 10_000, ["a"] * 10_001, ["x" * 1_025], ["\ud800"]]),
    st.sampled_from([None, True, 1, 0, -1, 2**63, 1.5, b"a", {}, {"a": "b"}]),
)


def by_the_long_way(event_type: str, body: Any, encoded: bytes | None = None) -> bytes | None:  # noqa: ANN401
    try:
        return new_event(
            event_type, "s", body, event_id=ID, actor="a", occurred_at=T0, encoded=encoded
        ).payload
    except BelogError:
        return None


@st.composite
def maps(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """An event type with a body that is as usual but for one thing, in any order."""
    event_type = draw(TYPES)
    body: dict[str, Any] = {}
    names: list[str] = []
    for field in msgspec.structs.fields(PAYLOADS[event_type]):
        names.append(field.name)
        if field.required or draw(st.booleans()):
            body[field.name] = ["a", "b"] if "list" in str(field.type) else "text"
    odd = draw(st.sampled_from(["", "value", "value", "missing", "any"]))
    if odd == "value":
        body[draw(st.sampled_from([*names, "other", ""]))] = draw(VALUES)
    elif odd == "any":
        body = draw(bodies(PAYLOADS[event_type]))
    keys = draw(st.permutations(list(body)))
    if odd == "missing" and keys:
        keys.pop()
    return event_type, {key: body[key] for key in keys}


@given(maps())
@example(("v1.build.received", {"comment": "x" * 300, "requested_partitions": ["a"] * 300}))
@example(("v1.job.scheduled", {"build_request_id": "é" * 200}))
@example(("v1.job.scheduled", {"build_request_id": "b\x85"}))
@example(("v1.build.received", {"comment": "a\ud800"}))
@example(("v1.job.scheduled", {"build_request_id": "b" * 257}))
@example(("v1.build.planning", {}))
def test_what_is_encoded_is_what_the_long_way_makes(case: tuple[str, dict[str, Any]]) -> None:
    event_type, body = case
    data = PayloadForms(PAYLOADS).encoded(event_type, dict(body))
    if data is not None:
        assert data == by_the_long_way(event_type, body)
        assert repr(list(known_payload(data).items())) == repr(list(decode_payload(data).items()))


MUTATIONS = st.tuples(st.integers(0, 400), st.integers(0, 255))


@given(maps(), st.lists(MUTATIONS, max_size=2), st.binary(max_size=2))
@example(("v1.build.planning", {"message": "a"}), [], b"\x00")
@example(("v1.partition.requested", {"build_request_id": "b", "message": "m"}), [], b"")
@example(("v1.partition.requested", {"build_request_id": "b\n"}), [], b"")
@example(("v1.partition.requested", {"build_request_id": "b" * 257}), [], b"")
@example(("v1.job.scheduled", {"inputs": ["a"], "build_request_id": "b"}), [], b"")
@example(
    ("v1.build.received", {"comment": "x" * 300, "requested_partitions": ["a"] * 300}), [], b""
)
def test_bytes_that_are_taken_are_taken_by_the_long_way(
    case: tuple[str, dict[str, Any]], mutations: list[tuple[int, int]], behind: bytes
) -> None:
    event_type, body = case
    try:
        # In the order it has, which may be another than the canonical.
        data = bytearray(cbor2.dumps(body) + behind)
    except UnicodeEncodeError:
        return
    for at, byte in mutations:
        data[at % len(data)] = byte
    whole = bytes(data)
    if PayloadForms(PAYLOADS).is_usual(event_type, whole):
        decoded = decode_payload(whole)
        assert encode_payload(decoded) == whole
        assert by_the_long_way(event_type, decoded, whole) == whole
        assert repr(list(known_payload(whole).items())) == repr(list(decoded.items()))


def pair(key: bytes, value: bytes) -> bytes:
    return b"\xa1" + bytes([0x60 + len(key)]) + key + value


MESSAGES = {
    "longer head": b"\x78\x01x",
    "longest head": b"\x7b\x00\x00\x00\x00\x00\x00\x00\x01x",
    "indefinite": b"\x7f\x61x\xff",
    "two bytes": b"\x62\xc3\xa9",
    "bytes": b"\x41x",
    "list": b"\x81\x61x",
    "null": b"\xf6",
    "empty": b"\x60",
    "behind": b"\x61x\x00",
    "cut off": b"\x62x",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_what_is_not_as_usual_is_left_alone(name: str) -> None:
    forms = PayloadForms(PAYLOADS)
    assert forms.is_usual("v1.build.planning", pair(b"message", b"\x61x"))
    assert not forms.is_usual("v1.build.planning", pair(b"message", MESSAGES[name]))
    assert not forms.is_usual("v9.build.planning", pair(b"message", b"\x61x"))
    assert not forms.is_usual("v1.build.planning", pair(b"other", b"\x61x"))


def test_lists_of_an_indefinite_length_do_not_make_up_for_a_longer_head() -> None:
    forms = PayloadForms(PAYLOADS)
    head = b"\xa1\x74requested_partitions"
    assert forms.is_usual("v1.build.received", head + b"\x99\x01\x2c" + b"\x61a" * 300)
    short = head + b"\x9f" + b"\x78\x01a" + b"\x61a" * 299 + b"\xff"
    assert len(short) == len(head) + 3 + 600
    assert not forms.is_usual("v1.build.received", short)


def test_no_tag_is_taken() -> None:
    forms = PayloadForms(PAYLOADS)
    for tag in range(2**16):
        # A text and references to it, which are shorter than it is, among them.
        for value in (b"\x61x", b"\x00", b"\x81\x61x", b"\x82\x61x\x00"):
            head = cbor2.dumps(tag)
            item = bytes([head[0] | 0xC0]) + head[1:] + value
            assert not forms.is_usual("v1.build.planning", pair(b"message", item))


def test_a_class_that_checks_more_than_its_fields_is_left_alone() -> None:
    class Picky(msgspec.Struct):
        message: str | None = None

        def __post_init__(self) -> None:
            msg = "never"
            raise ValueError(msg)

    data = pair(b"message", b"\x61x")
    assert not PayloadForms({"x": Picky}).is_usual("x", data)
    assert PayloadForms({"x": Picky}).encoded("x", {"message": "x"}) is None


def test_fields_that_take_less_than_any_text_are_left_alone() -> None:
    class Narrow(msgspec.Struct):
        choice: str = "a"
        number: int | None = None
        either: str | int | None = None
        long: Annotated[str, Meta(min_length=2)] | None = None
        short: Annotated[str, Meta(max_length=0)] | None = None
        plain: Annotated[str, Meta(pattern="b")] | None = None

    for name in Narrow.__struct_fields__:
        assert PayloadForms({"x": Narrow}).encoded("x", {name: "a"}) is None


def test_no_more_is_remembered_than_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_forms, "FORMS_MAX", 3)
    forms = PayloadForms(PAYLOADS)
    texts = {"build_request_id": "b", "task_id": "t", "job_label": "j"}
    for keys in (("task_id",), ("job_label",), ("task_id", "job_label"), (), ("task_id",)):
        body: dict[str, JsonValue] = {key: texts[key] for key in ("build_request_id", *keys)}
        assert forms.encoded("v1.job.scheduled", body) == encode_payload(body)
        assert len(vars(forms)["_forms"]["v1.job.scheduled"]) <= 3


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=30), max_size=8, unique=True))
def test_keys_are_in_the_order_of_their_encodings(keys: list[str]) -> None:
    wanted = tuple(sorted(keys, key=cbor2.dumps))
    for _ in range(2):
        assert ordered_keys(tuple(keys)) == wanted


def test_orders_of_keys_are_forgotten_where_there_are_too_many() -> None:
    for number in range(2 * KEY_ORDERS_MAX):
        body = {f"b{number}": "x", "a": "y"}
        data = encode_payload(body)
        assert data == cbor2.dumps(body, canonical=True)
        assert canonical_payload(data) == body
        assert canonical_payload(cbor2.dumps(body)) is None


HEX = "000102030405060708090a0b0c0d0e0f"


@given(
    st.one_of(
        st.uuids().map(str),
        st.text(alphabet="0123456789abcdefABCDEF-{} \t\n_xurniד:\u0661", max_size=40),
        st.tuples(
            st.sampled_from([HEX, str(UUID(HEX)), f"urn:uuid:{UUID(HEX)}", f"{{{HEX}}}"]),
            st.integers(0, 40),
            st.sampled_from([" ", "-", "g", "0", "é", "\u0661", "_", "\x00", ""]),
            st.integers(0, 1),
        ).map(lambda t: t[0][: t[1]] + t[2] + t[0][t[1] + t[3] :]),
    )
)
@example(HEX[:-2] + "  ")
@example(" " + HEX[1:])
@example(HEX + " ")
@example("0 0 " + HEX[4:])
def test_uuids_are_read_as_the_library_does(text: str) -> None:
    try:
        wanted = UUID(text).bytes
    except ValueError:
        with pytest.raises(InvalidEvent, match="event_id is not a UUID"):
            uuid_from_text("event_id", text)
    else:
        assert uuid_from_text("event_id", text) == wanted
