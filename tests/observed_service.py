"""A real service on 127.0.0.1 that is watched, in the test's own event loop."""

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
from msgspec import Struct

from belog.service.access import Access
from belog.service.grpc_api import GrpcSettings, start_grpc
from belog.service.http_api.app import add_route, make_app
from belog.service.instance import Instance, InstanceSettings
from belog.service.observation import Observation
from belog.service.observing_grpc import GrpcObserver
from belog.service.observing_http import METRICS_ROUTE, HttpObserver, metrics_handler
from belog.service.server import HttpListener, Stoppable, listen, serve

LIMIT_S = 60.0
"""How long a test's part in the loop may take."""


class Watched(Struct):
    """What answers, and who asks."""

    instance: Instance
    observation: Observation
    http: httpx.AsyncClient
    grpc_address: str


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test's coroutine."""
    asyncio.run(asyncio.wait_for(test(), LIMIT_S))


@asynccontextmanager
async def watched(
    settings: InstanceSettings, observation: Observation, access: Access | None = None
) -> AsyncIterator[Watched]:
    """Serve a log over HTTP and gRPC, as `belog serve` does."""
    access = access or Access.open()
    listening = listen(HttpListener(port=0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    stop, ready = asyncio.Event(), asyncio.Event()
    ports: list[int] = []
    async with Instance(settings, observation) as instance:
        observation.watch(instance)
        app = make_app(instance, access)
        if observation.metrics is not None:
            add_route(app, METRICS_ROUTE, metrics_handler(observation.metrics))

        async def others() -> list[Stoppable]:
            started = await start_grpc(
                instance, access, GrpcSettings(port=0), watching=(GrpcObserver(observation),)
            )
            ports.append(started.port)
            return [started]

        serving = asyncio.create_task(
            serve(
                instance,
                HttpObserver(app, observation),
                listening,
                others=others,
                stop=stop,
                on_ready=ready.set,
            )
        )
        try:
            up = asyncio.create_task(ready.wait())
            await asyncio.wait({up, serving}, return_when=asyncio.FIRST_COMPLETED)
            assert ready.is_set(), serving.exception()
            async with httpx.AsyncClient(base_url=url, timeout=30) as client:
                yield Watched(instance, observation, client, f"127.0.0.1:{ports[0]}")
        finally:
            stop.set()
            await serving


@contextmanager
def logging_put_back() -> Iterator[None]:
    """Put logging back to what it was, for whoever configures it as a command does."""
    root, own = logging.getLogger(), logging.getLogger("belog")
    handlers, levels = root.handlers[:], (root.level, own.level)
    hooks = sys.excepthook, threading.excepthook
    # The handlers of whoever runs the tests stay his: configuring would close them.
    root.handlers[:] = []
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        own.setLevel(levels[1])
        sys.excepthook, threading.excepthook = hooks
