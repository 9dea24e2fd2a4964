"""One process that serves a log: HTTP and gRPC on one event loop, started and stopped together."""

import asyncio
import contextlib
import errno
import gc
import logging
import math
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Final, Protocol

import uvicorn
from msgspec import Struct

from belog.schemas.errors import BelogError, InvalidInput, Unavailable
from belog.service.http_api.protocol import BoundedProtocol
from belog.service.instance import Instance

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = [
    "BACKLOG",
    "STOP_S",
    "HttpListener",
    "Stoppable",
    "listen",
    "run",
    "serve",
    "settled_collector",
]

LOGGER: Final = logging.getLogger("belog.service.server")

STOP_S: Final = 15.0
"""How long requests that are under way may go on when the service stops, seconds: above an append's
usual answer, below what orchestrators give a process before they kill it (30 s)."""

BACKLOG: Final = 2_048
"""Connections that wait to be accepted: as many clients may come back at once after a restart."""

KEEP_ALIVE_S: Final = 75
"""How long an idle connection is kept, seconds: above the 60 s of common proxies, so that it is
they who close, and no request meets a closing connection."""

CONNECTIONS_MAX: Final = 10_000
"""Connections at once; more are answered with 503. Twice the waiters one process was measured with,
and below the usual limit of open files once that is raised."""


GARBAGE_OBJECTS: Final = 50_000
"""Objects made before garbage in circles is looked for, 700 by default: requests make hundreds that
live for a moment and are in none, and looking through them took a tenth of all time."""


@contextlib.contextmanager
def settled_collector() -> Generator[None]:
    """Let the garbage collector pass over all that is there now, and look at the rest seldom."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class HttpListener(Struct, frozen=True, kw_only=True):
    """Where HTTP is served."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0 for a free one."""
    tls: ssl.SSLContext | None = None


class Stoppable(Protocol):
    """A further server beside HTTP."""

    async def stop(self, grace_s: float) -> None:
        """Take no more calls, end those under way within `grace_s` seconds."""
        ...


class _Server(uvicorn.Server):
    """Leaves signals to `run`: they end all servers of the process, not only this one."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def listen(where: HttpListener) -> socket.socket:
    """Return a socket that listens, so that its port is known before anything answers.

    Raises:
        Unavailable: Another program listens there.
        InvalidInput: The address cannot be had.
    """
    try:
        found = socket.getaddrinfo(
            where.host, where.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        msg = f"{where.host}:{where.port} cannot be listened on: {error.strerror or error}"
        if error.errno == errno.EADDRINUSE:
            hint = "is it running already? name another port with --port"
            raise Unavailable(msg, hint=hint) from error
        raise InvalidInput(msg, hint="name another with --host and --port") from error
    listening.setblocking(False)  # noqa: FBT003 - the socket's own signature
    return listening


def _config(app: "ASGIApp", tls: ssl.SSLContext | None, stop_s: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(stop_s),
        backlog=BACKLOG,
        # The access log names the peer; who stands behind a proxy is not believed.
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX,
        ssl_context_factory=None if tls is None else lambda _config, _default: tls,
    )


async def serve(
    instance: Instance,
    app: "ASGIApp",
    listening: socket.socket,
    *,
    tls: ssl.SSLContext | None = None,
    others: Callable[[], Awaitable[list[Stoppable]]] | None = None,
    stop: asyncio.Event,
    stop_s: float = STOP_S,
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Serve an open instance until told to stop, or until its feed has ended; then end gracefully.

    A service that cannot follow its log any more has nothing true to say, and ends, so that whoever
    looks after it starts it again.

    Gracefully: no new connection, everybody who waits is answered, requests under way may go on
    for `stop_s`. The instance stays the caller's to close, which finishes appends that were taken.

    Args:
        instance: Open, on this loop.
        app: The HTTP application.
        listening: See `listen`; closed at the end.
        tls: For HTTPS.
        others: Starts further servers, once HTTP is about to answer.
        stop: Set to stop.
        stop_s: How long requests under way may go on then, seconds.
        on_ready: Called when requests are answered.

    Raises:
        BelogError: What ended the feed.
    """
    server = _Server(_config(app, tls, stop_s))
    started: list[Stoppable] = []
    running = asyncio.create_task(server.serve(sockets=[listening]))
    stopping = asyncio.create_task(stop.wait())
    ended = asyncio.create_task(instance.feed.ended.wait())
    failure: BelogError | None = None
    try:
        if others is not None:
            started = await others()
        up = asyncio.create_task(server.up.wait())
        await asyncio.wait({running, up}, return_when=asyncio.FIRST_COMPLETED)
        up.cancel()
        if on_ready is not None and server.started:
            on_ready()
        await asyncio.wait({running, stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
        failure = instance.feed.error if instance.feed.ended.is_set() else None
    finally:
        stopping.cancel()
        ended.cancel()
        server.should_exit = True
        # Only after the listener knows: who is sent away would come back here at once.
        instance.stop()
        await asyncio.gather(*(other.stop(stop_s) for other in started))
        await running
    if failure is not None:
        raise failure


def run(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run a service until SIGINT or SIGTERM; a second one ends it without grace.

    Args:
        main: Is given the event that a signal sets, and returns when it has stopped.
    """

    async def until_signalled() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_signal(number: int) -> None:
            if stop.is_set():
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            LOGGER.info("stopping")
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, on_signal, number)
        await main(stop)

    with asyncio.Runner(
        loop_factory=uvicorn.Config("", loop="auto", log_config=None).get_loop_factory()
    ) as runner:
        runner.run(until_signalled())
