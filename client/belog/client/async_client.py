"""The client of a service for event loops."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from random import Random  # noqa: TID251 - this is a shell: it draws the pauses
from typing import Self, TypeVar, Unpack
from uuid import UUID, uuid4

from belog.client import calls, catalog
from belog.client.calls import FOLLOW_EVENTS, FOLLOW_WAIT_S, FollowSteps
from belog.client.catalog import M, PartitionState, Requested
from belog.client.client import Client
from belog.client.cursors import Cursor, Page, cursor_at
from belog.client.flushing import Flushed
from belog.client.http_transport import AsyncTransport
from belog.client.making import EventOptions, make_event
from belog.client.questions import AsyncQuestions
from belog.client.recording import RECORD_S, Spooled
from belog.client.settings import ClientOptions, settings_of
from belog.client.steps import Came, Pause, Session, Step, Steps
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import BelogError, Closed, InvalidConfiguration
from belog.schemas.events import Payload
from belog.schemas.filters import ALL, EventFilter
from belog.schemas.payload import JsonValue
from belog.schemas.receipts import Receipt
from belog.v1 import event_log_pb2, http_pb2

__all__ = ["AsyncClient"]

T = TypeVar("T")


class AsyncClient(AsyncQuestions):
    """A service, for programs with an event loop; belongs to one. Its methods are `Client`'s.

    A call that is cancelled may have reached the log; append it again with the same event.
    """

    def __init__(self, url: str, **options: Unpack[ClientOptions]) -> None:
        """Connect to nothing yet; see `Client`."""
        settings = settings_of(url, options)
        self.url = settings.url
        self._actor = settings.actor
        self._transport = AsyncTransport(settings)
        self._session = Session(
            url=settings.url,
            retry_s=settings.retry_s,
            timeout_s=settings.timeout_s,
            clock=time.monotonic,
        )
        self._checked = calls.Checked()
        self._jitter = Random()  # noqa: S311 - no secret
        self._is_closed = False
        # What is kept is kept on disk, which blocks: its client lives in threads.
        self._spooling = None if options.get("spool") is None else Client(url, **options)

    # --- appending

    async def append(
        self,
        payload: Payload | str,
        subject_id: str,
        body: Mapping[str, JsonValue] | None = None,
        **options: Unpack[EventOptions],
    ) -> Receipt:
        """See `Client.append`."""
        return await self.append_event(self.make(payload, subject_id, body, **options))

    def make(
        self,
        payload: Payload | str,
        subject_id: str,
        body: Mapping[str, JsonValue] | None = None,
        **options: Unpack[EventOptions],
    ) -> Event:
        """See `Client.make`."""
        return make_event(self._actor, payload, subject_id, body, options)

    async def append_event(self, event: Event) -> Receipt:
        """See `Client.append_event`."""
        return await self._run(calls.append(self._session, event))

    async def append_batch(
        self, events: Sequence[Event], *, atomic: bool = False, at: int | None = None
    ) -> list[Receipt | BelogError]:
        """See `Client.append_batch`."""
        return await self._run(calls.append_batch(self._session, events, atomic=atomic, at=at))

    # --- keeping: with a spool

    async def record(
        self,
        payload: Payload | str,
        subject_id: str,
        body: Mapping[str, JsonValue] | None = None,
        **options: Unpack[EventOptions],
    ) -> Receipt | Spooled:
        """See `Client.record`."""
        return await self.record_event(self.make(payload, subject_id, body, **options))

    async def record_event(self, event: Event, *, wait_s: float = RECORD_S) -> Receipt | Spooled:
        """See `Client.record_event`."""
        return await asyncio.to_thread(self._blocking().record_event, event, wait_s=wait_s)

    async def flush(self, timeout_s: float = RECORD_S) -> Flushed:
        """See `Client.flush`."""
        return await asyncio.to_thread(self._blocking().flush, timeout_s)

    def _blocking(self) -> Client:
        if self._spooling is None:
            msg = "this client has no spool"
            raise InvalidConfiguration(msg, hint="AsyncClient(url, spool=FOLDER)")
        return self._spooling

    # --- reading

    async def events(
        self,
        since: Cursor | int = 0,
        wanted: EventFilter = ALL,
        *,
        limit: int = FOLLOW_EVENTS,
        wait_s: float = 0.0,
    ) -> Page:
        """See `Client.events`."""
        return await self._run(
            calls.page(
                self._session, self._checked, cursor_at(since), wanted, limit=limit, wait_s=wait_s
            )
        )

    async def event(self, which: int | bytes | UUID) -> StoredEvent | None:
        """See `Client.event`."""
        key = which.bytes if isinstance(which, UUID) else which
        return await self._run(calls.find_event(self._session, key))

    def follow_pages(
        self,
        since: Cursor | int = 0,
        wanted: EventFilter = ALL,
        *,
        idle_s: float | None = None,
        patience_s: float | None = None,
        on_trouble: Callable[[BelogError], None] | None = None,
        limit: int = FOLLOW_EVENTS,
        wait_s: float = FOLLOW_WAIT_S,
    ) -> AsyncIterator[Page]:
        """See `Client.follow_pages`."""
        steps = calls.follow(
            self._session,
            cursor_at(since),
            wanted,
            limit=limit,
            wait_s=wait_s,
            idle_s=idle_s,
            patience_s=patience_s,
            on_trouble=on_trouble,
        )
        return self._pages(steps)

    async def follow(
        self,
        since: Cursor | int = 0,
        wanted: EventFilter = ALL,
        *,
        idle_s: float | None = None,
        patience_s: float | None = None,
        on_trouble: Callable[[BelogError], None] | None = None,
    ) -> AsyncIterator[tuple[StoredEvent, Cursor]]:
        """See `Client.follow`."""
        async for page in self.follow_pages(
            since, wanted, idle_s=idle_s, patience_s=patience_s, on_trouble=on_trouble
        ):
            for step in page.steps():
                yield step

    # --- partitions

    async def request_partition(
        self,
        ref: str,
        *,
        client_id: str | None = None,
        build_request_id: str | None = None,
        allow_delegation: bool = True,
        timeout_s: float = 0.0,
        asked_by: Sequence[str] = (),
    ) -> Requested:
        """See `Client.request_partition`."""
        return await self._run(
            catalog.request_partition(
                self._session,
                ref,
                client_id=client_id,
                build_request_id=build_request_id or str(uuid4()),
                allow_delegation=allow_delegation,
                timeout_s=timeout_s,
                asked_by=asked_by,
            )
        )

    async def partition(self, ref: str, *, min_index: int | None = None) -> PartitionState:
        """See `Client.partition`."""
        return await self._run(catalog.partition(self._session, ref, min_index=min_index))

    async def wait(
        self,
        ref: str,
        states: Collection[str] = ("available",),
        *,
        timeout_s: float,
        min_index: int | None = None,
    ) -> PartitionState | None:
        """See `Client.wait`."""
        return await self._run(
            catalog.wait(self._session, ref, states, timeout_s=timeout_s, min_index=min_index)
        )

    # --- the log

    async def status(self, *, min_index: int | None = None) -> event_log_pb2.LogStatus:
        """See `Client.status`."""
        return await self._run(calls.status(self._session, min_index))

    async def readiness(self) -> http_pb2.Health:
        """See `Client.readiness`."""
        return await self._run(catalog.readiness(self._session))

    async def ask(self, kind: type[M], *segments: str, **query: object) -> M:
        """See `Questions.ask`."""
        return await self._run(catalog.look(self._session, kind, *segments, query=query))

    async def call_off(self, kind: type[M], *segments: str, reason: str | None) -> M:
        """See `Questions.call_off`."""
        return await self._run(catalog.cancel(self._session, kind, *segments, reason=reason))

    # --- doing the steps

    async def _run(self, steps: Steps[T]) -> T:
        came: Came = None
        while True:
            try:
                step = steps.send(came)
            except StopIteration as done:
                result: T = done.value
                return result
            came = await self._do(step)

    async def _pages(self, steps: FollowSteps) -> AsyncIterator[Page]:
        came: Came = None
        while True:
            try:
                step = steps.send(came)
            except StopIteration:
                return
            if isinstance(step, Page):
                came = None
                yield step
            else:
                came = await self._do(step)

    async def _do(self, step: Step) -> Came:
        if self._is_closed:
            msg = "the client was closed"
            raise Closed(msg)
        if isinstance(step, Pause):
            await asyncio.sleep(step.pause_s * self._jitter.uniform(0.5, 1.0))
            return None
        return await self._transport.send(step)

    # --- ending

    async def close(self, timeout_s: float = 0.0) -> None:
        """See `Client.close`."""
        if self._spooling is not None:
            await asyncio.to_thread(self._spooling.close, timeout_s)
        self._is_closed = True
        await self._transport.close()

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the client; with a spool, after a try to send what is left."""
        await self.close(RECORD_S)
