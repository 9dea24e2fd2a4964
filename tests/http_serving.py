"""A real HTTP server over a log of its own, for tests; they are its synchronous clients."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
from msgspec.structs import replace

from belog.schemas.payload import JsonValue
from belog.service.access import Access, TokenEntry, hash_token
from belog.service.http_api import HttpSettings, make_app
from belog.service.instance import Instance, InstanceSettings
from belog.service.server import HttpListener, listen, serve

T = TypeVar("T")

UP_S = 30.0
"""How long a server may take to start or to stop."""

TOKENS = {
    name: f"belog_token_of_the_{name}_for_tests" for name in ("reader", "writer", "admin", "lake")
}
"""`lake` may append, and is for `lake/**` only."""


def access() -> Access:
    """Access with one token of each kind."""
    return Access(
        TokenEntry(
            actor=name,
            role={"reader": "read", "admin": "admin"}.get(name, "append"),  # type: ignore[arg-type]
            hash=hash_token(token),
            patterns=("lake/**",) if name == "lake" else (),
        )
        for name, token in TOKENS.items()
    )


def bearer(name: str) -> dict[str, str]:
    """The header with the token of someone."""
    return {"authorization": f"Bearer {TOKENS[name]}"}


class Served:
    """A server on a loop of its own, in a thread."""

    def __init__(
        self, uri: str, *, who: Access | None = None, settings: HttpSettings | None = None
    ) -> None:
        self._uri = uri
        self._who = Access.open() if who is None else who
        self._settings = settings or HttpSettings()
        self._up: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self._thread.start()
        try:
            self._up.result(UP_S)
        except BaseException:
            self._thread.join()
            raise
        self.client = httpx.Client(base_url=self.url, timeout=UP_S)

    async def _main(self) -> None:
        listening = listen(HttpListener(port=0))
        self.port: int = listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            async with Instance(InstanceSettings(log_uri=self._uri)) as self.instance:
                self.app = make_app(self.instance, self._who, self._settings)
                await serve(
                    self.instance,
                    self.app,
                    listening,
                    stop=self._stop,
                    on_ready=lambda: self._up.set_result(None),
                )
        except BaseException as error:
            if self._up.done():
                raise
            self._up.set_exception(error)

    def within(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run something on the server's loop."""
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(UP_S)

    @property
    def waiting(self) -> int:
        """Requests that wait now."""
        return int(self.app.state.slots.taken)

    def append(
        self, event_type: str, subject_id: str, /, **body: JsonValue | Sequence[str]
    ) -> httpx.Response:
        """Append one event."""
        event = {"event_type": event_type, "subject_id": subject_id, "body": body}
        return self.client.post("/events", json=event)

    def settle(self) -> None:
        """Wait until the tables hold all that was written."""
        end = int(self.client.get("/status").json()["next_idx"])
        wait = {"min_index": end - 1, "wait_s": UP_S}
        assert self.client.get("/status", params=wait).status_code == 200

    def connect(self) -> socket.socket:
        """A connection of one's own, for what no client would send."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=UP_S)
        connection.settimeout(UP_S)
        return connection

    def begin_stop(self) -> None:
        """Tell it to stop; `close` waits for it."""
        self._loop.call_soon_threadsafe(self._stop.set)

    def close(self) -> None:
        self.client.close()
        if self._thread.is_alive():
            self.begin_stop()
            self._thread.join(UP_S)
            assert not self._thread.is_alive(), "the server does not stop"


@contextmanager
def served(
    where: Path, *, who: Access | None = None, settings: HttpSettings | None = None
) -> Iterator[Served]:
    """Serve a SQLite log in a folder."""
    server = Served(f"sqlite:///{where / 'log.db'}", who=who, settings=settings)
    try:
        yield server
    finally:
        server.close()


def lowered(**limits: Any) -> HttpSettings:  # noqa: ANN401 - of the settings' types
    """Settings with other limits."""
    return replace(HttpSettings(), **limits)
