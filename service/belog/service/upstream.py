"""Another instance that owns partitions: asked for them, and followed.

It is followed from a cursor that stands in the local log, in events
`v1.federation.cursor_moved` of the subject `upstream NAME`; so the cursor is where the reactions
are. A reaction's id is made of the upstream's event, and names the local event that it was decided
on, so a crash at any point neither loses nor repeats one.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from copy import copy
from typing import Final
from uuid import UUID, uuid4

from belog.client import AsyncClient, Cursor, Page, reaction_id
from belog.client import Available as ClientAvailable
from belog.client import Building as ClientBuilding
from belog.client import Delegated as ClientDelegated
from belog.processors.indexes import Where
from belog.processors.rows import Attempt, PartitionRow
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import (
    BelogError,
    Conflict,
    Gone,
    LogReplaced,
    Unavailable,
    WrongLog,
)
from belog.schemas.events import Payload, new_event
from belog.schemas.filters import EventFilter, Matcher, Terms
from belog.schemas.fold import SubjectState
from belog.service.access import Grant, Role
from belog.service.circles import passed_on
from belog.service.delegating import Asked, asked_upstream, delegation, note_of, received
from belog.service.federating import MIRRORED, Here, mirrored
from belog.service.instance import ACTOR, Instance
from belog.service.upstream_answers import (
    ASK_RETRY_S,
    ENDS,
    NO_EVENT,
    UpstreamSettings,
    available,
    client_options,
    ended_upstream,
    not_delegated,
    there_of,
)
from belog.service.upstreams import Available, Delegated

__all__ = ["CURSOR_MOVED", "Upstream"]

LOGGER: Final = logging.getLogger("belog.service.federation")

CURSOR_MOVED: Final = "v1.federation.cursor_moved"

AGAIN_S: Final = 5.0
"""Pause after following ended by an error that may pass, seconds, such as an unknown token or a
log that was replaced, which may be put back."""

CURSOR_EVENTS: Final = 1_000
"""Upstream events after which the cursor is written where nothing was reacted to: so many are read
again after a crash, which takes less than a second."""

REACH_S: Final = 10.0
"""How long the local tables may take to hold what was just written, seconds."""

DELEGATED_ROWS: Final = 1_000
"""Delegated partitions that are looked through at once."""

ATTEMPTS_MAX: Final = 100
"""How often a delegation is decided anew because another writer was faster."""

_GRANT: Final = Grant(actor=ACTOR, role=Role.ADMIN)

_ANEW: Final = "give the upstream another name in the configuration"


class Upstream:
    """One other instance. Belongs to the event loop of the local one.

    Attributes:
        name: As it is configured.
        error: Why it is not followed now; None while it is.
    """

    def __init__(self, instance: Instance, settings: UpstreamSettings) -> None:
        """Connect to nothing yet.

        Raises:
            InvalidUri: The URL is none of a service.
            InvalidFilter: A pattern cannot be evaluated.
        """
        self.name = settings.name
        self.error: BelogError | None = None
        self._instance = instance
        self._patterns = settings.patterns
        self._matcher = Matcher(EventFilter(partition_patterns=settings.patterns))
        self._client = AsyncClient(settings.url, **client_options(settings))
        self._cursor = Cursor()
        self._saved_idx = 0
        self._owned = instance.require_producer().lifecycle.owned_states
        self._started = asyncio.Event()
        self._asking: dict[
            tuple[str, tuple[str, ...]], asyncio.Task[ClientAvailable | ClientDelegated]
        ] = {}

    def owns(self, ref: str) -> bool:
        """Whether a partition is one of its patterns'."""
        return self._matcher.matches(NO_EVENT, Terms((ref,)))

    # --- asking

    async def request(
        self,
        ref: str,
        client_id: str,
        *,
        build_request_id: str | None,
        allow_delegation: bool,
        timeout_s: float,
        asked_by: Sequence[str],
    ) -> Available | Delegated:
        """Ask it for a partition; see `belog.service.upstreams.Upstream.request`.

        An attempt that is under way there, or that this request begins there, is a delegated
        attempt here, durably before the answer is given.
        """
        chain = passed_on(ref, asked_by, str(self._instance.identity.log_id), self.name)
        await self._check_log()
        if not allow_delegation:
            return await self._there_already(ref)
        answer: ClientAvailable | ClientDelegated | None = await self._under_way_there(ref)
        if answer is None:
            answer = await self._ask_together(ref, client_id, chain)
        if isinstance(answer, ClientAvailable):
            return available(ref, answer.index, answer.log_id, answer.manifest)
        await self._delegate(answer, client_id, build_request_id)
        if timeout_s:
            found = await self._client.wait(
                ref, ENDS, timeout_s=timeout_s, min_index=max(answer.index, 0)
            )
            if found is not None and found.state == "available":
                log_id, manifest = str(self._cursor.log_id), found.row.manifest
                return available(ref, found.row.available_index, log_id, manifest)
            if found is not None:
                raise ended_upstream(found)
        estimate = answer.estimated_completion
        return Delegated(ref, answer.build_request_id, answer.log_id, answer.index, estimate)

    async def _there_already(self, ref: str) -> Available:
        """Return what is there; nothing is begun for one who lets nobody else make it."""
        end = (await self._client.status()).next_idx
        found = await self._client.partition(ref, min_index=end - 1)
        if found.state == "available":
            row, log_id = found.row, str(self._cursor.log_id)
            return available(ref, row.available_index, log_id, row.manifest)
        raise not_delegated(found, self.name, is_under_way=found.state in self._owned)

    async def is_made_here(self, ref: str, build_request_id: str | None) -> bool:
        """See `belog.service.upstreams.Upstream.is_made_here`."""
        here = await self._state(ref)
        if here is None:
            return False
        if here.state == "requested" and here.owner == build_request_id:
            return False
        return await self._is_local(ref, here)

    async def _is_local(self, ref: str, here: SubjectState) -> bool:
        """Whether an attempt is under way here that no instance of this log asked an upstream for.

        It is of somebody who asked the log itself: its own build alone moves it.
        """
        if here.state == "delegated" or here.state not in self._owned:
            return False
        if here.state != "requested":
            return True
        attempt = await self._attempt(ref, here)
        if attempt is None:
            return False
        stored = await self._instance.calls.run(self._instance.log.get, attempt.requested_index)
        return stored is None or not asked_upstream(stored.event)

    async def _attempt(self, ref: str, here: SubjectState) -> Attempt | None:
        await self._instance.reach(here.index, REACH_S)
        tables = self._instance.queries.tables
        row = (await self._instance.calls.run(tables.get, PartitionRow, ref)).value
        return None if row is None else row.attempt

    async def _under_way_there(self, ref: str) -> ClientDelegated | None:
        """Return who makes what is delegated already; None: it has to be asked for.

        Asking again would join the attempt with another build each time.
        """
        here = await self._state(ref)
        if here is None or here.state != "delegated":
            return None
        found = await self._client.partition(ref)
        if found.state not in self._owned:
            return None
        owner = found.row.job_graph_run_id
        return ClientDelegated(ref, owner, str(self._cursor.log_id), found.row.index, None)

    async def _check_log(self) -> None:
        """Refuse to ask a log that is not the one that is followed.

        Raises:
            WrongLog: It was replaced, or restored from an older backup.
            Unavailable: It was never reached.
        """
        if isinstance(self.error, WrongLog):
            raise copy(self.error)
        try:
            async with asyncio.timeout(ASK_RETRY_S):
                await self._started.wait()
        except TimeoutError as timeout:
            msg = f"upstream {self.name} was not reached yet: {self.error or 'no answer'}"
            raise Unavailable(msg, hint="is it running, and is its URL right?") from timeout
        try:
            await self._client.events(self._cursor, limit=1)
        except WrongLog as error:
            self._failed(error)
            raise
        except Gone:
            return  # its log is the same, and was vacuumed

    async def _ask_together(
        self, ref: str, client_id: str, chain: tuple[str, ...]
    ) -> ClientAvailable | ClientDelegated:
        """Ask once for all who ask at the same time by the same way.

        By another way the request may be one's own come back: joined, it would wait for itself.
        """
        key = ref, chain
        task = self._asking.get(key)
        if task is None:
            task = asyncio.ensure_future(self._ask(ref, client_id, chain))
            self._asking[key] = task
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        return await asyncio.shield(task)

    async def _ask(
        self, ref: str, client_id: str, chain: tuple[str, ...]
    ) -> ClientAvailable | ClientDelegated:
        answer = await self._client.request_partition(ref, client_id=client_id, asked_by=chain)
        if isinstance(answer, ClientBuilding):
            # The build is there now, and for the upstream's own graph to work off.
            log_id = str(self._cursor.log_id)
            return ClientDelegated(ref, answer.build_request_id, log_id, answer.index, None)
        return answer

    async def _delegate(
        self, answer: ClientDelegated, client_id: str, build_id: str | None
    ) -> None:
        """Have a delegated attempt here for what is under way there."""
        asked = Asked(
            client_id=client_id,
            build_id=build_id or str(uuid4()),
            is_named=build_id is not None,
            upstream=self.name,
            log_id=answer.log_id,
            upstream_build=answer.build_request_id,
        )
        for _ in range(ATTEMPTS_MAX):
            events = await self._delegation(answer.ref, asked)
            if not events or await self._append(events):
                await self._receive(answer.ref, asked, events)
                break
        # It may have ended there before it was delegated here, and nobody would notice.
        await self._settle(answer.ref, answer.index)

    async def _delegation(self, ref: str, asked: Asked) -> list[Event]:
        here = await self._state(ref)
        if here is None or here.state not in self._owned:
            payloads = delegation(asked, None, None, is_local=False)
        else:
            is_local = await self._is_local(ref, here)
            payloads = delegation(asked, here, await self._attempt(ref, here), is_local=is_local)
        expected = -1 if here is None else here.index
        return [
            self._event(payload, ref, expected=None if n else expected)
            for n, payload in enumerate(payloads)
        ]

    async def _receive(self, ref: str, asked: Asked, events: Sequence[Event]) -> None:
        """Say that the build is there that owns the attempt here, unless that was said."""
        producer = self._instance.require_producer()
        here = producer.known_state("partition", ref)
        build = producer.known_state("build", asked.build_id)
        if here is None or here.owner != asked.build_id or build is not None:
            return
        cause = events[0].event_id if events else None
        await self._append([self._event(received(asked, ref), asked.build_id, caused_by=cause)])

    # --- following

    async def follow(self) -> None:
        """React to what happens there until cancelled.

        While its log is another, or lacks what was read, nothing is reacted to; it is looked again
        every `AGAIN_S`, and gone on where the cursor fits.
        """
        while True:
            try:
                await self._begin()
                pages = self._client.follow_pages(
                    self._cursor, self._wanted(), on_trouble=self._troubled
                )
                async for page in pages:
                    await self._react(page)
                    self._recovered()
            except Gone as gone:
                LOGGER.warning("upstream %s was vacuumed, going on at its end: %s", self.name, gone)
                self._cursor = Cursor(log_id=self._cursor.log_id)
            except BelogError as error:
                self._failed(error)
                if isinstance(error, WrongLog) and self._cursor.last_index is None:
                    return  # grown meanwhile, a restored log could not be told from the right one
                await asyncio.sleep(AGAIN_S)

    def _wanted(self) -> EventFilter:
        return EventFilter(
            partition_patterns=self._patterns, subject_kinds=("partition",), event_types=MIRRORED
        )

    async def _begin(self) -> None:
        """Find the cursor, and catch up with what is delegated."""
        stored = await self._instance.calls.run(self._stored_cursor)
        if self._cursor.log_id is None and stored is not None:
            self._cursor = stored
        if self._cursor.next_idx:
            # Also looks whether it is still the same log.
            await self._client.events(self._cursor, self._wanted(), limit=1)
        status = await self._client.status()
        if self._cursor.log_id not in {None, UUID(status.log_id)}:
            msg = f"upstream {self.name} had log {self._cursor.log_id}, it has {status.log_id} now"
            raise LogReplaced(msg, hint=f"to begin anew with it, {_ANEW}")
        if not self._cursor.next_idx:
            # What happened before anybody here asked is of no concern.
            newest = await self._client.event(status.next_idx - 1)
            start = Cursor(status.next_idx, UUID(status.log_id))
            self._cursor = start if newest is None else start.after(newest)
            await self._save([])
        self._started.set()
        self._recovered()
        async for ref in self._under_way():
            await self._settle(ref, status.next_idx - 1)

    def _stored_cursor(self) -> Cursor | None:
        """Return the cursor that the local log holds; blocks."""
        state = self._instance.require_producer().state("system", self._subject)
        stored = None if state is None else self._instance.log.get(state.index)
        text = None if stored is None else stored.event.body().get("cursor")
        return Cursor.parse(text) if isinstance(text, str) else None

    @property
    def _subject(self) -> str:
        return note_of(self.name)

    async def _under_way(self) -> AsyncIterator[str]:
        """Give the partitions of this upstream that are delegated, or were to be."""
        tables = self._instance.queries.tables
        where = Where(states=("delegated", "requested"))
        cursor: str | None = None
        while True:
            page = await self._instance.calls.run(
                tables.list_rows,
                PartitionRow,
                where,
                order="id",
                cursor=cursor,
                limit=DELEGATED_ROWS,
            )
            for row in page.rows:
                if self.owns(row.ref):
                    yield row.ref
            if page.next_cursor is None:
                return
            cursor = page.next_cursor

    async def _react(self, page: Page) -> None:
        newest: dict[str, StoredEvent] = {stored.event.subject_id: stored for stored in page.events}
        has_said = False
        for ref, stored in newest.items():
            has_said |= await self._settle(ref, stored.index, cause=stored.event.event_id)
        self._cursor = page.cursor
        if has_said or self._cursor.next_idx - self._saved_idx >= CURSOR_EVENTS:
            await self._save([])

    async def _settle(self, ref: str, index: int, *, cause: bytes | None = None) -> bool:
        """Say here what became of a partition there.

        Args:
            ref: The partition.
            index: In the upstream's log; what it is answered by is at least as new.
            cause: The upstream's event that led to this.

        Returns:
            Whether something was said.
        """
        # Looked at first: what is read there afterwards is newer than the delegation.
        here = await self._state(ref)
        if here is None or (here.state == "requested" and await self._is_local(ref, here)):
            return False
        found = await self._client.partition(ref, min_index=index)
        there = there_of(found, self._cursor.log_id or UUID(int=0), self.name)
        payloads = mirrored(Here(here.state, here.index, here.owner), there)
        events = [
            self._event(
                payload,
                ref,
                expected=here.index if n == 0 else None,
                event_id=reaction_id(
                    there.log_id, there.index, f"{payload.event_type} {here.owner or ''}"
                ),
                caused_by=cause,
            )
            for n, payload in enumerate(payloads)
        ]
        return bool(events) and await self._append(events)

    # --- writing here

    async def _state(self, ref: str) -> SubjectState | None:
        producer = self._instance.require_producer()
        return await self._instance.calls.run(producer.state, "partition", ref)

    def _event(
        self,
        payload: Payload,
        ref: str,
        *,
        expected: int | None = None,
        event_id: UUID | None = None,
        caused_by: bytes | None = None,
    ) -> Event:
        return new_event(
            payload,
            ref,
            event_id=event_id or uuid4(),
            actor=ACTOR,
            occurred_at=self._instance.queries.clock(),
            expected=expected,
            caused_by=caused_by,
        )

    async def _append(self, events: Sequence[Event]) -> bool:
        """Append events; return whether the first is in the log."""
        atomic = self._instance.log.capabilities.conditional_append and len(events) > 1
        try:
            results = await self._instance.append(_GRANT, events, atomic=atomic)
        except Conflict as error:
            LOGGER.info("somebody else was faster: %s", error)
            return False
        for result in results:
            if isinstance(result, BelogError) and not isinstance(result, Conflict):
                raise result
        return not isinstance(results[0], BelogError)

    async def _save(self, events: Sequence[Event]) -> None:
        moved = new_event(
            CURSOR_MOVED,
            self._subject,
            {"cursor": str(self._cursor), "log_id": str(self._cursor.log_id)},
            event_id=uuid4(),
            actor=ACTOR,
            occurred_at=self._instance.queries.clock(),
            subject_kind="system",
        )
        for result in await self._instance.append(_GRANT, [*events, moved]):
            if isinstance(result, BelogError):
                raise result
        self._saved_idx = self._cursor.next_idx

    # --- how it goes

    def _troubled(self, error: BelogError) -> None:
        if self.error is None:
            LOGGER.warning("upstream %s cannot be followed now: %s", self.name, error)
        self.error = error

    def _failed(self, error: BelogError) -> None:
        if type(self.error) is not type(error):
            LOGGER.error("upstream %s is not followed: %s", self.name, error)
        self.error = error

    def _recovered(self) -> None:
        if self.error is not None:
            LOGGER.warning("upstream %s is followed again", self.name)
        self.error = None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
