"""A TCP proxy on the loopback that cuts, delays, throttles and holds what passes it.

It knows no protocol: Redis, PostgreSQL and HTTP are reached through it by its port. Kafka's clients
go where the broker says that it is, so a broker behind a proxy must advertise the proxy's port:
`advertised(proxy)` is the setting for `Broker.create`. Start the proxy first, it waits for nobody.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar, get_args

from tests.servers import free_port

__all__ = ["Conditions", "Direction", "How", "Proxy", "advertised"]

T = TypeVar("T")

Direction = Literal["up", "down"]
"""`up` is from the client to the server."""

How = Literal["rst", "fin"]
"""How a connection ends: at once and with what was on its way lost, or in order."""

CHUNK_BYTES: Final = 16_384
"""Most that is taken at once: small beside a throttled second."""

QUEUE_CHUNKS_MAX: Final = 256
"""Most chunks a direction keeps while they are delayed (4 MiB); more is left with the sender."""

CONNECT_S: Final = 5.0
"""How long the server may take to accept."""

CALL_S: Final = 10.0
"""How long a change of conditions may take; it is a few steps of the loop."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What happens to the bytes that pass; the same for all connections."""

    delay_s: float = 0.0
    """Each chunk arrives so much later, in each direction, seconds."""
    rate_bytes_per_s: float | None = None
    """Bound of each direction of each connection; None for none."""
    held: frozenset[Direction] = frozenset()
    """Directions in which nothing flows. Connections stay, and new ones come; what is held flows
    once it is let go, as after a cut of a network that was shorter than TCP's patience."""


CLEAR: Final = Conditions()


def advertised(proxy: "Proxy") -> dict[str, str]:
    """Return the broker setting that makes every client of a broker go through *proxy*.

    The broker's own port still takes the first connection of a client that is given it, and sends
    it to the proxy for everything else.
    """
    return {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}


@dataclass(eq=False)
class _Link:
    """One connection: both ends."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def end(self, how: How) -> None:
        for writer in (self.client, self.server):
            if how == "fin":
                writer.close()
                continue
            sock: socket.socket = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                # To linger for no time: the kernel sends a reset instead of an end.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        for task in self.tasks:
            task.cancel()


class Proxy:
    """Forwards connections to a port of 127.0.0.1, under conditions that can be changed.

    Its port stays the same until `close`, and so does the target; the server may come and go. A
    client of a server that is not there is accepted and then reset. Methods may be called from any
    thread; each returns when it has taken effect.
    """

    def __init__(self, target_port: int | None = None, *, port: int | None = None) -> None:
        """Take *port* or a free one; nothing listens yet. The target may be given by `point_to`."""
        self._port = port or free_port()
        self.accepted = 0
        """Connections accepted so far."""
        self.bytes_passed: dict[Direction, int] = dict.fromkeys(get_args(Direction), 0)
        self._target_port = target_port
        self._conditions = CLEAR
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> Self:
        """Listen."""
        self._thread.start()
        self._call(self._listen())
        return self

    def close(self) -> None:
        """End every connection and stop listening. May be called again."""
        if self._loop.is_closed():
            return
        if self._thread.is_alive():
            self._call(self._refuse("rst"))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CALL_S)
        self._loop.close()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()

    @classmethod
    def open(cls, listen_port: int, upstream_port: int) -> Self:
        """Return a started proxy: the `GateOpener` of a deployment."""
        return cls(upstream_port, port=listen_port).start()

    @property
    def port(self) -> int:
        """Where clients connect to, on 127.0.0.1."""
        return self._port

    @property
    def conditions(self) -> Conditions:
        """What holds now."""
        return self._conditions

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._links)

    def point_to(self, target_port: int) -> None:
        """Send connections that are accepted from now on to *target_port*."""
        self._target_port = target_port

    def cut(self, how: How = "rst") -> int:
        """End every open connection and return how many; new ones are accepted."""
        return self._call(self._cut(how))

    def refuse(self, how: How = "rst") -> None:
        """End every open connection, and listen no more: clients are refused until `heal`."""
        self._call(self._refuse(how))

    def delay(self, delay_s: float) -> None:
        """Let everything arrive *delay_s* later, each way."""
        self._set(replace(self._conditions, delay_s=delay_s))

    def throttle(self, rate_bytes_per_s: float) -> None:
        """Let no connection carry more than so many bytes a second, each way."""
        self._set(replace(self._conditions, rate_bytes_per_s=rate_bytes_per_s))

    def hold(self, *directions: Direction) -> None:
        """Let nothing flow in *directions*, by default in both; connections stay as they are."""
        held = frozenset(directions or get_args(Direction))
        self._set(replace(self._conditions, held=held))

    def heal(self) -> None:
        """Let everything flow, and listen again."""
        self._set(CLEAR)
        self._call(self._listen())

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S)

    def _set(self, conditions: Conditions) -> None:
        async def change() -> None:
            self._conditions = conditions
            before, self._changed = self._changed, asyncio.Event()
            before.set()

        self._call(change())

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(
                self._accept, "127.0.0.1", self.port, limit=CHUNK_BYTES
            )

    async def _cut(self, how: How) -> int:
        links = list(self._links)
        for link in links:
            link.end(how)
        tasks = [task for link in links for task in link.tasks]
        await asyncio.gather(*tasks, return_exceptions=True)
        self._links.difference_update(links)
        return len(links)

    async def _refuse(self, how: How) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._cut(how)

    async def _accept(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            coming = asyncio.open_connection("127.0.0.1", self._target_port, limit=CHUNK_BYTES)
            answers, server = await asyncio.wait_for(coming, CONNECT_S)
        except (OSError, TimeoutError):
            _Link(client, client).end("rst")
            return
        link = _Link(client, server)
        if self._server is None:  # refused meanwhile
            link.end("rst")
            return
        self._links.add(link)
        link.tasks = {
            asyncio.create_task(self._pump(reader, server, "up")),
            asyncio.create_task(self._pump(answers, client, "down")),
        }
        try:
            await asyncio.gather(*link.tasks)
        except (OSError, asyncio.CancelledError):
            # One end is gone at once, so the other goes at once, too.
            link.end("rst")
        finally:
            self._links.discard(link)
            client.close()
            server.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Direction
    ) -> None:
        """Carry one direction until its sender ends it."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(QUEUE_CHUNKS_MAX)
        giving = asyncio.create_task(self._give(queue, writer, way))
        taking = asyncio.create_task(self._take(reader, queue))
        try:
            await asyncio.gather(taking, giving)
        finally:
            taking.cancel()
            giving.cancel()

    async def _take(
        self, reader: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        data = b"."
        while data:
            data = await reader.read(CHUNK_BYTES)
            await queue.put((self._loop.time(), data))

    async def _give(
        self,
        queue: asyncio.Queue[tuple[float, bytes]],
        writer: asyncio.StreamWriter,
        way: Direction,
    ) -> None:
        free_at = 0.0
        while True:
            taken_at, data = await queue.get()
            await self._until_it_may_pass(way, taken_at, free_at)
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            await writer.drain()
            self.bytes_passed[way] += len(data)
            if rate := self._conditions.rate_bytes_per_s:
                free_at = self._loop.time() + len(data) / rate

    async def _until_it_may_pass(self, way: Direction, taken_at: float, free_at: float) -> None:
        while True:
            now, changed = self._conditions, self._changed
            due = max(taken_at + now.delay_s, free_at if now.rate_bytes_per_s else 0.0)
            left_s = None if way in now.held else due - self._loop.time()
            if left_s is not None and left_s <= 0:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), left_s)
