"""Clients of the HTTP service in this process: connections that send bytes made before."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

import uvloop

from benchmarks.http_load import Client, post_request

__all__ = ["Waiters", "get_request", "post_request", "seconds_for"]

READ_BYTES: Final = 65_536


def get_request(path: str) -> bytes:
    """Return a request as it goes over the wire."""
    return f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()


def seconds_for(port: int, clients: Sequence[Sequence[bytes]]) -> float:
    """Let each client send its requests one after the other, all clients at once.

    Args:
        port: Of the service.
        clients: Requests, by client.

    Returns:
        Seconds from the first request to the last answer.

    Raises:
        AssertionError: An answer was no 200.
    """

    async def drive() -> float:
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[int]] = [loop.create_future() for _ in clients]
        started = time.perf_counter()
        await asyncio.gather(
            *(
                loop.create_connection(lambda c=c, f=f: Client(c, f), "127.0.0.1", port)  # type: ignore[misc]
                for c, f in zip(clients, futures, strict=True)
            )
        )
        bad = sum(await asyncio.gather(*futures))
        assert bad == 0, f"{bad} answers were no 200"
        return time.perf_counter() - started

    return uvloop.run(drive())


class Waiters:
    """Long polls, one a connection, whose answers are taken with their time."""

    def __init__(self, port: int) -> None:
        """Of a service's port; `connect` opens the connections."""
        self._port = port
        self._streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def connect(self, count: int) -> None:
        """Open so many connections; in groups, as the system's backlog is bounded."""
        while len(self._streams) < count:
            group = min(count - len(self._streams), 100)
            self._streams += await asyncio.gather(
                *(asyncio.open_connection("127.0.0.1", self._port) for _ in range(group))
            )

    async def close(self) -> None:
        """Close them."""
        for _, writer in self._streams:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in self._streams))
        self._streams.clear()

    def send(self, request: bytes) -> "asyncio.Task[tuple[float, bytes]]":
        """Send a request on the first connection; return who waits for its answer."""
        reader, writer = self._streams[0]
        return asyncio.create_task(_answered(reader, writer, request))

    def ask(self, path_of: Callable[[int], str]) -> list["asyncio.Task[tuple[float, bytes]]"]:
        """Send a long poll on each connection; return who waits for the answers.

        Args:
            path_of: The path that the n-th connection asks.
        """
        return [
            asyncio.create_task(_answered(reader, writer, get_request(path_of(n))))
            for n, (reader, writer) in enumerate(self._streams)
        ]


async def _answered(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> tuple[float, bytes]:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    at = time.perf_counter()
    assert b" 200 " in head[:16], head
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return at, await reader.readexactly(length)
