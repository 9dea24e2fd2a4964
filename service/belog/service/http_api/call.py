"""One request: what was asked, by whom, and how it is answered."""

import asyncio
import gzip
import zlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar, cast

from google.protobuf.message import Message
from starlette.types import Message as Sent
from starlette.types import Receive, Scope, Send

from belog.schemas.errors import BelogError, InvalidInput, LimitExceeded, Overloaded
from belog.schemas.wire import json_to_message
from belog.schemas.wire_json import parse_json
from belog.service.access import Grant
from belog.service.http_api.answers import Answer, problem
from belog.service.http_api.parameters import Query, parse_query, path_text
from belog.service.http_api.route_table import RouteEntry
from belog.service.http_api.settings import (
    BODY_IDLE_S,
    BODY_S_MAX,
    COMPRESS_BYTES_MIN,
    HttpSettings,
)
from belog.service.instance import Instance

__all__ = ["Call", "Disconnected", "Refused", "Slots"]

COMPRESS_LEVEL: Final = 1
"""zlib's fastest: JSON of events shrinks to a fifth at 100 MB/s; slower ones gain little more."""

COMPRESS_INLINE_BYTES_MAX: Final = 65_536
"""Largest answer that is compressed in the loop, bytes: under a millisecond."""

SENT_BYTES_MAX: Final = 262_144
"""Bytes handed to the connection at once; it says when it takes more."""

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class Disconnected(Exception):
    """The client went away."""


class Refused(Exception):
    """A request that is answered before its route is asked."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


class Slots:
    """How many may wait at once."""

    def __init__(self, limit: int) -> None:
        """Let so many in."""
        self.limit = limit
        self.taken = 0

    def take(self) -> None:
        """Take a place, to be given back with `free`.

        Raises:
            Overloaded: All are taken.
        """
        if self.taken >= self.limit:
            msg = f"{self.taken} requests wait already"
            raise Overloaded(msg, hint="ask again later, or without waiting")
        self.taken += 1

    def free(self) -> None:
        """Give a place back."""
        self.taken -= 1


class Call:
    """A request that was let in.

    Attributes:
        instance: The log.
        settings: The bounds.
        slots: Who waits.
        entry: The route.
        grant: What the client may do.
        scope: The connection's scope, by ASGI.
        names: What stands in the path, percent-encoded.
        recheck: Raises where the client may not do this any more.
    """

    __slots__ = (
        "_query",
        "_receive",
        "_send",
        "entry",
        "grant",
        "instance",
        "names",
        "recheck",
        "scope",
        "settings",
        "slots",
    )

    def __init__(
        self,
        instance: Instance,
        settings: HttpSettings,
        slots: Slots,
        *,
        entry: RouteEntry,
        grant: Grant,
        names: Mapping[str, str],
        recheck: Callable[[], object],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Take what the gate found."""
        self.instance = instance
        self.settings = settings
        self.slots = slots
        self.entry = entry
        self.grant = grant
        self.names = names
        self.recheck = recheck
        self.scope = scope
        self._receive = receive
        self._send = send
        self._query: Query | None = None

    # --- what was asked

    @property
    def query(self) -> Query:
        """The parameters that were given.

        Raises:
            InvalidInput: One that the route does not take, or a value that is not of its kind.
        """
        if self._query is None:
            self._query = parse_query(self.entry.parameters, self.scope["query_string"])
        return self._query

    def name(self, name: str) -> str:
        """Return what stands in the path in place of a name.

        Raises:
            InvalidInput: It is not UTF-8.
        """
        return path_text(self.names[name])

    def header(self, name: bytes) -> bytes | None:
        """Return a header, by its name in lower case; the first where there are several."""
        return header_of(self.scope, name)

    def wait_s(self, otherwise: float) -> float:
        """Return the wait that was asked for, within its bound, seconds."""
        asked: float = self.query.get("wait_s", otherwise)
        return min(asked, self.settings.wait_s_max)

    async def body(self) -> bytes:
        """Return the whole body, decompressed.

        Raises:
            LimitExceeded: It is larger than `body_bytes_max`.
            InvalidInput: It is not what its Content-Encoding says.
            Refused: It took too long.
            Disconnected: It was cut off.
        """
        bound = self.settings.body_bytes_max
        declared = self.header(b"content-length")
        if declared is not None and int(declared) > bound:
            raise _too_large(bound, int(declared))
        parts: list[bytes] = []
        size = 0
        clock = asyncio.get_running_loop().time
        last = clock() + BODY_S_MAX
        try:
            async with asyncio.timeout(BODY_IDLE_S) as idle:
                more = True
                while more:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise Disconnected
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > bound:
                        raise _too_large(bound, size)
                    more = message.get("more_body", False)
                    if more:
                        idle.reschedule(min(last, clock() + BODY_IDLE_S))
        except TimeoutError as error:
            msg = "the body did not come in time"
            raise Refused(
                problem(InvalidInput(msg), status=408, code="request_timeout", headers=_CLOSE)
            ) from error
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        encoding = self.header(b"content-encoding")
        if encoding is None:
            return data
        # A few bytes may become many: not in the loop.
        return await self.instance.calls.run(_inflated, data, encoding, bound)

    async def message(self, kind: type[M]) -> M:
        """Return the message that the body holds, an empty one where there is no body.

        Raises:
            InvalidInput: It is not one of that kind; and what `body` raises.
        """
        data = await self.body()
        if not data:
            return kind()
        plain = parse_json(data)
        if not isinstance(plain, dict):
            msg = "the body is not a JSON object"
            raise InvalidInput(msg)
        return json_to_message(cast("dict[str, Any]", plain), kind)

    # --- waiting

    async def reach(self) -> None:
        """Wait for the index that was asked for, if one was.

        Raises:
            Unavailable: The tables did not come that far in time.
        """
        min_index: int | None = self.query.get("min_index")
        if min_index is None:
            return
        wait_s = self.wait_s(self.settings.reach_s)
        await self.while_connected(self.instance.reach(min_index, wait_s))

    async def while_connected(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something for as long as the client is there, in one of the places to wait.

        Raises:
            Disconnected: The client went away; the work was cancelled.
            Overloaded: All places are taken.
        """
        try:
            self.slots.take()
        except Overloaded:
            work.close()
            raise
        task = asyncio.current_task()
        watch = asyncio.ensure_future(_until_disconnected(self._receive))
        left = False

        def leave(_: "asyncio.Future[None]") -> None:
            nonlocal left
            if not watch.cancelled() and task is not None:
                left = True
                task.cancel()

        watch.add_done_callback(leave)
        try:
            return await work
        except asyncio.CancelledError:
            if left:
                raise Disconnected from None
            raise
        finally:
            watch.remove_done_callback(leave)
            watch.cancel()
            self.slots.free()

    # --- answering

    async def answer(self, answer: Answer) -> None:
        """Send a whole answer, compressed where the client takes that and it is worth it."""
        body = answer.body
        headers = [(b"content-type", answer.content_type), *answer.headers]
        headers += self.instance.which
        if answer.as_of is not None:
            headers.append((b"belog-as-of", b"%d" % answer.as_of))
        if len(body) >= COMPRESS_BYTES_MIN:
            headers.append((b"vary", b"accept-encoding"))
            if _takes_gzip(self.header(b"accept-encoding")):
                headers.append((b"content-encoding", b"gzip"))
                if len(body) <= COMPRESS_INLINE_BYTES_MAX:
                    body = gzip.compress(body, COMPRESS_LEVEL)
                else:
                    body = await self.instance.calls.run(gzip.compress, body, COMPRESS_LEVEL)
        await send_whole(self._send, answer.status, headers, body)

    async def begin(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Begin an answer without an end."""
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def go_on(self, data: bytes, *, more: bool = True) -> None:
        """Send a part of it; waits for a client that is slow to take it."""
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


_CLOSE: Final = ((b"connection", b"close"),)


async def send_whole(
    send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    """Send an answer; in pieces, so that a slow client holds no copy of a large one."""
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if len(body) <= SENT_BYTES_MAX:
        await send({"type": "http.response.body", "body": body})
        return
    view = memoryview(body)
    for at in range(0, len(body), SENT_BYTES_MAX):
        end = at + SENT_BYTES_MAX
        part: Sent = {
            "type": "http.response.body",
            "body": bytes(view[at:end]),
            "more_body": end < len(body),
        }
        await send(part)


def header_of(scope: Scope, name: bytes) -> bytes | None:
    """Return a header of a request, by its name in lower case."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _takes_gzip(accepted: bytes | None) -> bool:
    if accepted is None:
        return False
    for item in accepted.lower().split(b","):
        coding, _, rest = item.partition(b";")
        if coding.strip() in {b"gzip", b"*"}:
            return rest.replace(b" ", b"").rstrip(b"0") not in {b"q=", b"q=0."}
    return False


def _too_large(bound: int, size: int) -> Refused:
    error: BelogError = LimitExceeded(
        "the body, in bytes", limit="body_bytes_max", limit_value=bound, value=size
    )
    # What is left of it is not read, so the connection cannot be used again.
    return Refused(problem(error, headers=_CLOSE))


def _inflated(data: bytes, encoding: bytes, bound: int) -> bytes:
    coding = encoding.strip().lower()
    if coding == b"identity":
        return data
    if coding != b"gzip":
        error = InvalidInput("a body is sent as it is, or with Content-Encoding: gzip")
        raise Refused(problem(error, status=415, code="unsupported_encoding"))
    inflating = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        inflated = inflating.decompress(data, bound + 1)
    except zlib.error as error:
        msg = f"the body is not gzip: {error}"
        raise InvalidInput(msg) from error
    if len(inflated) > bound:
        raise _too_large(bound, len(inflated))
    if not inflating.eof or inflating.unused_data:
        msg = "the body is not one whole member of gzip"
        raise InvalidInput(msg)
    return inflated
