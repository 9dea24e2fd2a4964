"""A real server over a log of its own, for gRPC and HTTP, and the stubs of a user's program."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, TypeVar, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from grpc_status import rpc_status

from belog.schemas.payload import JsonValue
from belog.service.access import Access
from belog.service.grpc_api import GrpcServer, GrpcSettings, start_grpc
from belog.service.http_api import make_app
from belog.service.instance import Instance, InstanceSettings
from belog.service.server import HttpListener, Stoppable, listen, serve
from belog.v1 import (
    catalog_pb2,
    catalog_pb2_grpc,
    event_log_pb2,
    event_log_pb2_grpc,
    events_pb2,
    graph_pb2,
    graph_pb2_grpc,
)

T = TypeVar("T")

Untyped: TypeAlias = Any
"""What generated code gives: it has no annotations."""

CALL_S = 30.0
"""Deadline of a test's call where it names none."""

MODULES: tuple[ModuleType, ...] = (graph_pb2, event_log_pb2, catalog_pb2)


class Served:
    """A server on a loop of its own, in a thread; tests are its synchronous clients."""

    def __init__(
        self, instance: InstanceSettings, access: Access | None = None, **limits: float | str
    ) -> None:
        self._settings = instance
        self._access = Access.open() if access is None else access
        self._limits = limits
        self._up: Future[None] = Future()
        self._is_stopped = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self._thread.start()
        try:
            self._up.result(CALL_S)
        except BaseException:
            self._thread.join()
            raise

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            listening = listen(HttpListener(port=0))
            self.http_port: int = listening.getsockname()[1]
            async with Instance(self._settings) as self.instance:
                await serve(
                    self.instance,
                    make_app(self.instance, self._access),
                    listening,
                    others=self._others,
                    stop=self._stop,
                    on_ready=lambda: self._up.set_result(None),
                )
        except BaseException as error:
            if self._up.done():
                raise
            self._up.set_exception(error)

    async def _others(self) -> list[Stoppable]:
        settings = GrpcSettings(**cast("Any", self._limits))
        self.server: GrpcServer = await start_grpc(self.instance, self._access, settings)
        return [self.server]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(CALL_S)

    def stop(self) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"


class Stubs:
    """The generated stubs over one channel."""

    def __init__(self, channel: grpc.Channel) -> None:
        # Generated code has no annotations.
        modules = cast("tuple[Any, ...]", (graph_pb2_grpc, event_log_pb2_grpc, catalog_pb2_grpc))
        self.channel = channel
        self.graph = modules[0].GraphServiceStub(channel)
        self.log = modules[1].EventLogServiceStub(channel)
        self.catalog = modules[2].EnhancedCatalogStub(channel)

    def of(self, service: str) -> Untyped:
        """The stub of a service, by its short name."""
        return {
            "GraphService": self.graph,
            "EventLogService": self.log,
            "EnhancedCatalog": self.catalog,
        }[service]


@contextmanager
def serving(folder: Path, access: Access | None = None, **limits: float | str) -> Iterator[Served]:
    served = Served(InstanceSettings(log_uri=f"sqlite:///{folder / 'log.db'}"), access, **limits)
    try:
        yield served
    finally:
        served.stop()


@contextmanager
def stubs(served: Served, options: Mapping[str, int] | None = None) -> Iterator[Stubs]:
    chosen = [*({} if options is None else options).items()]
    with grpc.insecure_channel(served.address, options=chosen) as channel:
        yield Stubs(channel)


def build_event(
    event_type: str, subject_id: str, body: Mapping[str, JsonValue] | None = None, **fields: Untyped
) -> events_pb2.BuildEvent:
    message = events_pb2.BuildEvent(event_type=event_type, subject_id=subject_id, **fields)
    message.body.update(dict(body or {}))
    return message


def append(stubs: Stubs, event_type: str, subject_id: str, **body: JsonValue) -> int:
    """Append an event; its index."""
    request = event_log_pb2.AppendRequest(event=build_event(event_type, subject_id, body))
    return int(stubs.log.Append(request, timeout=CALL_S).receipt.index)


def refusal(call: Callable[[], object]) -> tuple[grpc.StatusCode, events_pb2.Problem]:
    """What a call is refused with, read as a user's program does."""
    try:
        call()
    except grpc.RpcError as error:
        return refusal_of(error)
    msg = "the call was not refused"
    raise AssertionError(msg)


def refusal_of(error: Untyped) -> tuple[grpc.StatusCode, events_pb2.Problem]:
    status: Any = cast("Any", rpc_status).from_call(error)
    assert status is not None, f"{error.code()} {error.details()}"
    problem = events_pb2.Problem()
    (detail,) = status.details
    assert detail.Unpack(problem)
    assert status.code == error.code().value[0]
    assert status.message == error.details() == problem.message
    return error.code(), problem


def request_class(method: MethodDescriptor) -> type[Message]:
    """The class of a method's request, by its descriptor."""
    (found,) = (
        getattr(module, method.input_type.name)
        for module in MODULES
        if method.input_type.name in module.DESCRIPTOR.message_types_by_name
    )
    return cast("type[Message]", found)
