"""Codecs against the libraries they are measured by, and against arbitrary bytes."""

import io
import json
import threading
from typing import Any

import cbor2
import fastavro
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from belog.schemas.envelope import (
    HEADER_BYTES,
    AvroSchema,
    Event,
    avro_schema,
    decode_event,
    encode_event,
    envelope_schemas,
    parse_avro_schema,
    read_varint,
    write_varint,
)
from belog.schemas.errors import Corrupt, NewerFormat
from belog.schemas.events import PAYLOADS, new_event
from belog.schemas.payload import (
    JsonValue,
    canonical_payload,
    decode_payload,
    encode_known_payload,
    encode_payload,
    known_payload,
)
from belog.schemas.replica import ReplicaRecord, decode_replica, encode_replica
from tests.examples import LOG_ID, OTHER_LOG_ID, REQUIRED, T0, created, event, id_bytes
from tests.strategies import ANY_BODIES, INT64, UUIDS, bodies, events

ENVELOPE = avro_schema("envelope", 1)
REPLICA = avro_schema("replica-record", 1)

MARK = b"\xbe\x10 end of item \xff"


def by_fastavro(schema: AvroSchema, fields: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema.parsed, fields)
    return bytes(schema.header + out.getvalue())


def fields_of(what: Event) -> dict[str, Any]:
    return {name: getattr(what, name) for name in what.__struct_fields__}


# --- envelope


@given(events())
def test_encoding_equals_fastavros(what: Event) -> None:
    value = encode_event(what)
    assert value == by_fastavro(ENVELOPE, fields_of(what))
    assert decode_event(value) == what


@given(events())
def test_decoding_equals_fastavros(what: Event) -> None:
    value = by_fastavro(ENVELOPE, fields_of(what))
    read = fastavro.schemaless_reader(io.BytesIO(value[HEADER_BYTES:]), ENVELOPE.parsed, None)
    assert Event(**read) == decode_event(value)  # type: ignore[arg-type]


TIME_EDGES = [
    edge + step for bits in range(63) for edge in (1 << bits, -(1 << bits)) for step in (-1, 0, 1)
]


def test_every_width_of_time_and_length() -> None:
    for at in [*TIME_EDGES, 2**63 - 1, -(2**63)]:
        what = new_event("v1.build.planning", "b", event_id=id_bytes(1), actor="a", occurred_at=at)
        assert encode_event(what) == by_fastavro(ENVELOPE, fields_of(what))
        assert decode_event(encode_event(what)) == what
    for size in (1, 63, 64, 255, 256):
        what = new_event(
            "v1.build.planning", "b" * size, event_id=id_bytes(1), actor="a" * size, occurred_at=T0
        )
        assert decode_event(encode_event(what)) == what
    for size in (8191, 8192, 8193, 70_000):
        what = new_event(
            "v2.build.dreamt",
            "b",
            {"a": "x" * size},
            event_id=id_bytes(1),
            actor="a",
            occurred_at=T0,
        )
        assert encode_event(what) == by_fastavro(ENVELOPE, fields_of(what))
        assert decode_event(encode_event(what)) == what


@given(INT64)
def test_varint(number: int) -> None:
    data = write_varint(number)
    assert read_varint(b"x" + data, 1) == (number, 1 + len(data))
    assert len(data) <= 10


@pytest.mark.parametrize("data", [b"\xff" * 11, b"\xff" * 9 + b"\x02", b"\x80" * 20 + b"\x01"])
def test_varint_over_64_bits(data: bytes) -> None:
    with pytest.raises(ValueError, match="integer"):
        read_varint(data, 0)


def reads_or_says_why(value: bytes) -> None:
    """The decoders' whole promise for bytes of any kind."""
    for decode in (decode_event, decode_payload, decode_replica):
        try:
            decode(value)
        except (Corrupt, NewerFormat):
            continue


@given(st.binary(max_size=300))
@example(b"")
def test_arbitrary_bytes(value: bytes) -> None:
    reads_or_says_why(value)
    reads_or_says_why(ENVELOPE.header + value)
    reads_or_says_why(REPLICA.header + value)


@given(events(), st.data())
def test_mutated_records(what: Event, data: st.DataObject) -> None:
    value = bytearray(encode_event(what))
    for _ in range(data.draw(st.integers(1, 4))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    reads_or_says_why(bytes(value))


@given(events(), st.data())
def test_cut_off_or_longer_records_are_corrupt(what: Event, data: st.DataObject) -> None:
    value = encode_event(what)
    cut = value[: data.draw(st.integers(0, len(value) - 1))]
    for wrong in (cut, value + data.draw(st.binary(min_size=1, max_size=3))):
        with pytest.raises(Corrupt):
            decode_event(wrong)


def test_every_cut_and_every_byte_of_one_record() -> None:
    value = encode_event(event("v1.partition.requested", n=1, expected=70_000, actor="é" * 70))
    for size in range(len(value)):
        with pytest.raises(Corrupt):
            decode_event(value[:size])
    for at in range(len(value)):
        for byte in range(256):
            reads_or_says_why(value[:at] + bytes((byte,)) + value[at + 1 :])


# --- evolution

OLDER = json.loads(ENVELOPE.source)
OLDER["fields"] = [f for f in OLDER["fields"] if f["name"] not in {"caused_by", "expected"}]
NEWER = json.loads(ENVELOPE.source)
NEWER["fields"].insert(3, {"name": "tenant", "type": "string", "default": ""})
NEWER["fields"].append({"name": "trace", "type": ["null", "bytes"], "default": None})


@given(events())
def test_older_envelopes_are_read_with_defaults(what: Event) -> None:
    older = parse_avro_schema(json.dumps(OLDER), 0)
    plain = Event(*(getattr(what, name) for name in what.__struct_fields__[:8]))
    value = by_fastavro(older, fields_of(what))
    with pytest.raises(NewerFormat):
        decode_event(value)
    known = {**envelope_schemas(), older.header: older}
    assert decode_event(value, known) == plain
    assert decode_event(encode_event(what), known) == what
    for wrong in (value[:-1], value + b"x", value[:HEADER_BYTES]):
        with pytest.raises(Corrupt):
            decode_event(wrong, known)


@given(events())
def test_newer_envelopes_stop_unless_their_schema_is_known(what: Event) -> None:
    newer = parse_avro_schema(json.dumps(NEWER), 2)
    value = by_fastavro(newer, {**fields_of(what), "tenant": "t", "trace": b"x"})
    with pytest.raises(NewerFormat, match="not known here"):
        decode_event(value)
    assert decode_event(value, {newer.header: newer}) == what


@given(events(), st.binary(max_size=400))
def test_records_of_a_resolved_schema_raise_nothing_else(what: Event, junk: bytes) -> None:
    older = parse_avro_schema(json.dumps(OLDER), 0)
    known = {older.header: older}
    value = by_fastavro(older, fields_of(what))
    for wrong in (older.header + junk, value[: len(value) // 2] + junk):
        try:
            decode_event(wrong, known)
        except Corrupt:
            continue


# --- replica records


@given(UUIDS, INT64, INT64, INT64, st.binary(max_size=400))
def test_replica_record_equals_fastavros(
    log_id: bytes, index: int, previous: int, at: int, envelope: bytes
) -> None:
    record = ReplicaRecord(log_id, index, previous, at, envelope)
    value = encode_replica(record)
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    assert value == by_fastavro(REPLICA, fields)
    assert decode_replica(value) == record
    for wrong in (value[:-1], value + b"x"):
        with pytest.raises(Corrupt):
            decode_replica(wrong)


def test_headers_differ() -> None:
    assert ENVELOPE.header != REPLICA.header
    assert encode_event(created(LOG_ID)) != encode_event(created(OTHER_LOG_ID))


# --- payload


@given(ANY_BODIES)
def test_cbor_equals_the_librarys_canonical_mode(body: dict[str, Any]) -> None:
    data = encode_payload(body)
    assert data == cbor2.dumps(body, canonical=True)
    # Compared as bytes: NaN is not equal to itself.
    assert encode_payload(decode_payload(data)) == data


@given(st.sampled_from(sorted(PAYLOADS)).flatmap(lambda name: bodies(PAYLOADS[name])))
def test_typed_bodies_too_and_in_any_order(body: dict[str, Any]) -> None:
    data = encode_payload(body)
    assert data == cbor2.dumps(body, canonical=True)
    assert data == encode_payload(dict(reversed(body.items())))
    assert decode_payload(data) == body


@given(ANY_BODIES)
def test_a_known_payload_is_what_its_bytes_hold(body: dict[str, Any]) -> None:
    data = encode_known_payload(body)
    assert data == encode_payload(body)
    known, decoded = known_payload(data), decode_payload(data)
    # By bytes too, as 1 equals 1.0 and NaN nothing.
    assert repr(list(known.items())) == repr(list(decoded.items()))


MUTATIONS = st.tuples(st.integers(0, 200), st.integers(0, 255))


@given(ANY_BODIES, st.lists(MUTATIONS, max_size=3), st.binary(max_size=2))
@example({"b": 1, "a": "x"}, [(1, 0x61)], b"")  # one key twice
@example({"a": 1}, [], b"\x00")
def test_a_canonical_payload_is_one_and_read_as_ever(
    body: dict[str, Any], mutations: list[tuple[int, int]], behind: bytes
) -> None:
    data = bytearray(encode_payload(body) + behind)
    for at, byte in mutations:
        data[at % len(data)] = byte
    found = canonical_payload(bytes(data))
    if found is not None:
        assert repr(list(found.items())) == repr(list(decode_payload(bytes(data)).items()))
        assert encode_payload(found) == data


@pytest.mark.parametrize("name", sorted(PAYLOADS))
def test_typed_bodies_are_canonical_at_first_sight(name: str) -> None:
    body = REQUIRED.get(name, {"message": "m"})
    assert canonical_payload(encode_payload(body)) == body
    # Keys in another order, a text in a longer form, an indefinite length.
    assert canonical_payload(b"\xa2\x61b\x01\x61a\x01") is None
    assert canonical_payload(b"\xa1\x61a\x78\x01x") is None
    assert canonical_payload(b"\xbf\x61a\x01\xff") is None


def test_a_known_payload_does_not_change_with_its_makers_lists() -> None:
    refs: list[JsonValue] = ["a", "b"]
    body: dict[str, JsonValue] = {"outputs": refs}
    data = encode_known_payload(body)
    refs.append("c")
    body["outputs"] = 1
    assert known_payload(data) == {"outputs": ["a", "b"]} == decode_payload(data)


@given(st.binary(min_size=1, max_size=40))
def test_bytes_after_a_payload_are_refused_whatever_they_are(after: bytes) -> None:
    for payload in ({}, {"a": "b"}, {"mark": MARK}):
        for behind in (after, cbor2.dumps(MARK), cbor2.dumps(MARK) + after, after + MARK):
            with pytest.raises(Corrupt):
                decode_payload(encode_payload(payload) + behind)


def test_a_payload_may_hold_the_mark_by_which_its_end_is_found() -> None:
    payloads: list[dict[str, JsonValue]] = [
        {"a": MARK},
        {"a": MARK + b"x", "b": {"c": [MARK]}},
    ]
    for payload in payloads:
        assert decode_payload(encode_payload(payload)) == payload


@pytest.mark.parametrize(
    "hexed",
    [
        pytest.param("", id="nothing"),
        pytest.param("01", id="no map"),
        pytest.param("80", id="a list"),
        pytest.param("a10102", id="key that is no text"),
        pytest.param("a1616101ff", id="bytes after its end"),
        pytest.param("a161", id="cut off"),
        pytest.param("bf616101ff", id="indefinite map"),
        pytest.param("a161619f01ff", id="indefinite list"),
        pytest.param("a161617f6161ff", id="indefinite text"),
        pytest.param("a161615f4161ff", id="indefinite bytes"),
        pytest.param("a2616101616102", id="repeated key"),
        pytest.param("a16161a2616201616202", id="repeated key within"),
        pytest.param("a16161a10102", id="key within that is no text"),
        pytest.param("a16161a1416101", id="key within of bytes"),
        pytest.param("a16161c074323032302d30312d30315430303a30303a30305a", id="tag: time"),
        pytest.param("a16161c11a00000000", id="tag: epoch"),
        pytest.param("a16161c24101", id="tag: big number"),
        pytest.param("a16161d81c80", id="tag: shared value"),
        pytest.param("a16161d81d00", id="tag: reference"),
        pytest.param("a16161d9010080", id="tag: string references"),
        pytest.param("a16161d9010280", id="tag: set"),
        pytest.param("a16161d9d9f701", id="tag: self-described"),
        pytest.param("a16161d9303901", id="tag: unknown"),
        pytest.param("d9d9f7a0", id="tag around the map"),
        pytest.param("a16161f7", id="undefined"),
        pytest.param("a16161f0", id="simple value"),
        pytest.param("a16161f8ff", id="simple value of two bytes"),
        pytest.param("a161611bffffffffffffffff", id="integer over 64 bits"),
        pytest.param("a161613bffffffffffffffff", id="integer under 64 bits"),
        pytest.param("a1616161ff", id="text that is not UTF-8"),
        pytest.param("a161615bffffffffffffffff", id="length beyond any memory"),
        pytest.param("a161619bffffffffffffffff", id="count beyond any memory"),
        pytest.param("a16161" + "81" * 40 + "01", id="nested too deep"),
        pytest.param("81" * 100_000, id="nested far too deep"),
    ],
)
def test_payload_that_is_refused(hexed: str) -> None:
    with pytest.raises(Corrupt):
        decode_payload(bytes.fromhex(hexed))


def test_payload_need_not_be_canonical_to_be_read() -> None:
    assert decode_payload(bytes.fromhex("a26162180161611900 02".replace(" ", ""))) == {
        "b": 1,
        "a": 2,
    }


def test_decoding_is_not_disturbed_by_what_failed_before_or_runs_beside() -> None:
    good = encode_payload({"a": ["x" * 50, {"b": 1.5}]})
    bad = [good[:-1], b"\xa1", b"\x81" * 40, good + b"x", bytes.fromhex("a16161c101")]
    wrong: list[object] = []

    def decode() -> None:
        for n in range(300):
            with pytest.raises(Corrupt):
                decode_payload(bad[n % len(bad)])
            if decode_payload(good) != {"a": ["x" * 50, {"b": 1.5}]}:
                wrong.append(n)

    threads = [threading.Thread(target=decode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
