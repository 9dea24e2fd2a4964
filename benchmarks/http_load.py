"""Clients of the HTTP service that cost little: bytes are made before the clock starts."""

import asyncio
import sys
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import cast

import msgspec
import uvloop

from belog.schemas.envelope import Event
from belog.schemas.wire import event_to_wire, message_to_json
from belog.schemas.wire_json import to_json

__all__ = ["Client", "Load", "Outcome", "event_json", "main", "post_request"]


def event_json(event: Event) -> bytes:
    """Return an event as a client sends it."""
    return to_json(message_to_json(event_to_wire(event)))


def post_request(body: bytes, path: str = "/events") -> bytes:
    """Return a request as it goes over the wire."""
    return (
        b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n" % (path.encode(), len(body))
    ) + body


class Client(asyncio.Protocol):
    """One keep-alive connection that sends its requests one after the other."""

    def __init__(self, requests: Iterable[bytes], done: "asyncio.Future[int]") -> None:
        """Send these requests; `done` gets the number of answers that were no 200."""
        self._requests = iter(requests)
        self._done = done
        self._buffer = b""
        self._bad = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first."""
        # Not one by its class, where the loop has transports of its own.
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def _send(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            self._done.set_result(self._bad)
        else:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Send the next when an answer is whole."""
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(rest) < length:
            return
        self._bad += b" 200 " not in head[:16]
        self._buffer = rest[length:]
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Say that it was cut off."""
        if not self._done.done():
            self._done.set_exception(exc or ConnectionError("cut off"))


class Load(msgspec.Struct, frozen=True):
    """What one run of clients does."""

    port: int
    clients: Sequence[Sequence[bytes]]
    """Bodies, by client."""
    path: str = "/events"


class Outcome(msgspec.Struct, frozen=True):
    """What came of it."""

    seconds: float
    bad: int
    """Answers that were no 200."""


async def drive(load: Load) -> Outcome:
    """Run the clients, and take the time from the first request to the last answer."""
    loop = asyncio.get_running_loop()
    requests = [[post_request(body, load.path) for body in bodies] for bodies in load.clients]
    futures: list[asyncio.Future[int]] = [loop.create_future() for _ in requests]
    started = time.perf_counter()
    await asyncio.gather(
        *(
            loop.create_connection(partial(Client, c, f), "127.0.0.1", load.port)
            for c, f in zip(requests, futures, strict=True)
        )
    )
    bad = await asyncio.gather(*futures)
    return Outcome(time.perf_counter() - started, sum(bad))


def main() -> None:
    """Read a `Load` from standard input, write its `Outcome`."""
    load = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Load)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(drive(load))))


if __name__ == "__main__":
    main()
