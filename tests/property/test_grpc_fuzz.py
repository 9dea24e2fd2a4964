"""Requests of every rpc, drawn field by field: none may fail the service, and none may hang it."""

import logging
import struct
from collections.abc import Iterator
from typing import Any, Final, cast

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.struct_pb2 import Struct
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from belog.v1 import catalog_pb2
from tests.examples import ALL_TYPES
from tests.grpc_serving import (
    MODULES,
    Served,
    Stubs,
    append,
    build_event,
    request_class,
    serving,
    stubs,
)

CALL_S: Final = 10.0
"""Longest that a call may take, seconds: all waits of this server are short."""

EXAMPLES: Final = 60
"""Requests of one rpc."""

FAULTS: Final = {
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.CANCELLED,
}

METHODS: list[MethodDescriptor] = [
    method
    for module in MODULES
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]

KNOWN: Final = (
    "",
    "a/1",
    "a/2",
    "b1",
    "run-1",
    "load",
    "v1.partition.requested",
    "v1.partition.available",
    "v1.job.running",
    "v1.system.vacuumed",
    "partition",
    "timestamp",
    "status",
    "a/**",
    "[a-",
    "*" * 40 + "x",
    "00000000-0000-0000-0000-000000000001",
    "\x00",
    "\U0001f980" * 300,
)
"""Text that means something to some field, beside what is drawn."""

TEXTS = st.one_of(st.sampled_from(KNOWN), st.text(max_size=20))
SMALL = st.integers(0, 8)
"""Drawn more often than what is refused at once, so that requests get further."""
INT64 = st.one_of(SMALL, SMALL, st.integers(-2, 30), st.sampled_from([2**31, 2**63 - 1, -(2**63)]))
INT32 = st.one_of(SMALL, SMALL, SMALL, st.integers(-2, 30), st.sampled_from([2**31 - 1, -(2**31)]))
BYTES = st.one_of(st.just(b""), st.just(b"\xa0"), st.binary(max_size=12))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=5,
)
BODIES = st.dictionaries(
    st.one_of(st.sampled_from(["build_request_id", "job_run_id", "outputs", "manifest"]), TEXTS),
    JSON,
    max_size=3,
)
SCALARS = {
    FieldDescriptor.TYPE_STRING: TEXTS,
    FieldDescriptor.TYPE_BYTES: BYTES,
    FieldDescriptor.TYPE_INT64: INT64,
    FieldDescriptor.TYPE_INT32: INT32,
    FieldDescriptor.TYPE_ENUM: INT32,
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_DOUBLE: st.floats(),
}


LIKELY_REFS = st.sampled_from(["a/1", "a/2"])
LIKELY: dict[str, st.SearchStrategy[Message]] = {
    "BuildEvent": st.builds(
        build_event,
        st.sampled_from(ALL_TYPES),
        st.sampled_from(["a/1", "a/2", "b1", "run-1"]),
        st.just({"build_request_id": "b1"}) | st.just({}),
    ),
    "PartitionEvent": st.builds(
        catalog_pb2.PartitionEvent,
        partition_ref=LIKELY_REFS,
        status=st.sampled_from(catalog_pb2.PartitionStatus.keys()),
        job_graph_run_id=st.sampled_from(["b1", ""]),
    ),
    "OrderBy": st.builds(catalog_pb2.OrderBy, field=TEXTS, ascending=st.booleans()),
}
"""What gets further than messages whose fields know nothing of each other."""


@st.composite
def messages(draw: st.DrawFn, kind: type[Message]) -> Message:
    """A message with some of its fields."""
    if kind.DESCRIPTOR.name in LIKELY and draw(st.booleans()):
        return draw(LIKELY[kind.DESCRIPTOR.name])
    message = kind()
    known = cast("list[FieldDescriptor]", list(kind.DESCRIPTOR.fields))
    fields = draw(st.lists(st.sampled_from(known), unique_by=lambda field: field.number))
    for field in fields:
        fill(draw, message, field)
    return message


def fill(draw: st.DrawFn, message: Message, field: FieldDescriptor) -> None:
    there: Any = getattr(message, field.name)
    if isinstance(there, Struct):
        there.update(draw(BODIES))
    elif field.message_type is not None and field.message_type.GetOptions().map_entry:
        there.update(draw(st.dictionaries(TEXTS, TEXTS, max_size=2)))
    elif field.message_type is not None:
        made = messages(GetMessageClass(field.message_type))
        if field.is_repeated:
            there.extend(draw(st.lists(made, max_size=3)))
        else:
            there.CopyFrom(draw(made))
            there.SetInParent()
    elif field.is_repeated:
        there.extend(draw(st.lists(SCALARS[field.type], max_size=3)))
    else:
        setattr(message, field.name, draw(SCALARS[field.type]))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(
        tmp_path_factory.mktemp("grpc"),
        wait_s_max=0.01,
        index_wait_s=0.01,
        request_wait_s_max=0.01,
        heartbeat_s=0.05,
    ) as found:
        with stubs(found) as client:
            append(client, "v1.build.received", "b1", requested_partitions=["a/1", "a/2"])
            append(client, "v1.partition.requested", "a/1", build_request_id="b1")
            append(client, "v1.job.scheduled", "run-1", build_request_id="b1", job_label="load")
        yield found


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Stubs]:
    with stubs(served) as found:
        yield found


def code_of(client: Stubs, method: MethodDescriptor, data: bytes) -> grpc.StatusCode:
    """What a call ends with; of a stream, what its first message or its refusal says."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    try:
        if method.server_streaming:
            streamed: Any = client.channel.unary_stream(path)
            stream = streamed(data, timeout=CALL_S)
            try:
                # The metadata come at once, or the call is over.
                stream.initial_metadata()
                if stream.done():
                    next(stream)
            finally:
                stream.cancel()
        else:
            answered: Any = client.channel.unary_unary(path)
            answered(data, timeout=CALL_S)
    except grpc.RpcError as error:
        raised: Any = error
        return cast("grpc.StatusCode", raised.code())
    return grpc.StatusCode.OK


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_no_request_fails_the_service(
    client: Stubs, served: Served, method: MethodDescriptor, caplog: pytest.LogCaptureFixture
) -> None:
    kind = request_class(method)

    @settings(
        max_examples=EXAMPLES,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(messages(kind))
    def every(message: Message) -> None:
        code = code_of(client, method, message.SerializeToString())
        assert code not in FAULTS, f"{code}: {message}"
        # A stream may have failed after it began.
        assert not caplog.records, caplog.text

    caplog.set_level(logging.ERROR)
    every()
    assert served.instance.feed.error is None


@settings(max_examples=EXAMPLES, database=None)
@given(data=st.binary(max_size=30), method=st.sampled_from(METHODS))
def test_bytes_that_are_no_request_are_the_callers_fault(
    client: Stubs, data: bytes, method: MethodDescriptor
) -> None:
    code = code_of(client, method, struct.pack("B", 0xFF) + data)
    assert code == grpc.StatusCode.INVALID_ARGUMENT
