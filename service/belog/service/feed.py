"""The live feed of a log: one follower a process, which wakes all who wait.

A waiter costs no thread and reads nothing: it stands in a register under the terms of its filter,
and the follower looks up there whom a new event concerns. The newest events are kept, so that who
is nearly up to date is answered from memory; who is further behind reads the log.
"""

import asyncio
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from copy import copy
from functools import partial
from typing import Final, cast

from msgspec import Struct

from belog.schemas.envelope import StoredEvent
from belog.schemas.errors import BelogError, Closed, Overloaded
from belog.schemas.filters import ALL, EventFilter, Matcher, Terms, terms_of
from belog.service.bridge import Calls
from belog.service.cursors import check_reached
from belog.storage.horizon import VACUUMED
from belog.storage.interface import FOLLOW_WAIT_S, EventLog, EventPage

__all__ = [
    "FEED_PAGE_EVENTS",
    "KEPT_BYTES_MAX",
    "KEPT_EVENTS_MAX",
    "WAITERS_MAX",
    "Feed",
    "RunTerms",
]

LOGGER: Final = logging.getLogger("belog.service.feed")

KEPT_EVENTS_MAX: Final = 20_000
"""Newest events that are kept: some seconds' worth at the highest rate, so that followers answer
from memory while they keep up."""

KEPT_BYTES_MAX: Final = 32_000_000
"""Payload bytes of the kept events: the bound where events are large."""

FEED_PAGE_EVENTS: Final = 1_000
"""Events of one reading: some 5 ms of the loop's time, so that others are not held up."""

WAITERS_MAX: Final = 20_000
"""Waiters at once: four times what one process was measured with; each has some kilobytes."""

RUN_TERMS_KEPT: Final = 100_000
"""Job runs whose first event is remembered, as later ones name neither outputs nor label."""

RETRY_S: Final = 0.5
"""Pause before the log is read again after it could not be reached, seconds."""

RunTerms = Callable[[str], Terms | None]
"""Looks a job run's terms up that began before the feed did; may block."""


class _Entry(Struct, frozen=True, gc=False):
    stored: StoredEvent
    terms: Terms


class _Waiter:
    """One who waits for the next event that matches."""

    __slots__ = ("future", "matcher", "names", "since_idx")

    def __init__(self, since_idx: int, matcher: Matcher, future: "asyncio.Future[int]") -> None:
        self.since_idx = since_idx
        """Earlier events do not count: who read the log may be ahead of the feed."""
        self.matcher = matcher
        self.names = _register_names(matcher.filter)
        self.future = future
        """Gets the index of the event, -1 when the time is over."""


_TERM_FIELDS: Final = (
    "partition_refs",
    "job_run_ids",
    "build_request_ids",
    "task_ids",
    "job_labels",
)
_EVENT_FIELDS: Final = {
    "event_types": "event_type",
    "actors": "actor",
    "subject_kinds": "subject_kind",
}
_ANY: Final = ("", "")
"""Where those stand whose filter names nothing exactly."""


def _register_names(wanted: EventFilter) -> Sequence[tuple[str, str]]:
    """Return the names of the register under which every matching event is looked up."""
    for field in (*_TERM_FIELDS, *_EVENT_FIELDS):
        if terms := cast("tuple[str, ...]", getattr(wanted, field)):
            return [(field, term) for term in dict.fromkeys(terms)]
    return [_ANY]


def _event_names(entry: _Entry) -> Iterable[tuple[str, str]]:
    yield _ANY
    for field in _TERM_FIELDS:
        for term in cast("tuple[str, ...]", getattr(entry.terms, field)):
            yield field, term
    event = entry.stored.event
    for field, attribute in _EVENT_FIELDS.items():
        yield field, cast("str", getattr(event, attribute))


class Feed:
    """Pages of a log as they come, for any number of waiters. Belongs to one event loop.

    Attributes:
        end: Index up to which everything was seen.
        error: Why the feed ended by itself, None while it goes on.
        ended: Set when it has ended by an error, and not because it was stopped.
        failing: The error that it waits out now, with the monotonic time in seconds since which;
            None while the log can be read.
    """

    def __init__(
        self,
        log: EventLog,
        calls: Calls,
        *,
        start_idx: int,
        run_terms: RunTerms,
        has_positions: bool = True,
        read_next: Callable[[int], EventPage] | None = None,
        wait_next: Callable[[int], object] | None = None,
        on_error: Callable[[BelogError], None] | None = None,
    ) -> None:
        """Follow a log from an index on, in a thread of the feed's own.

        Args:
            log: Open; stays the caller's to close, after the feed.
            calls: Where reads of the log run.
            start_idx: First index that the feed looks at; who wants earlier ones reads the log.
            run_terms: Looks up job runs that began before.
            has_positions: Whether an index is a position of the log; in a replica it is not.
            read_next: Reads the page that begins at an index, in the feed's thread; None to read
                the log. What it does beside is done before anybody is woken.
            wait_next: Waits until there may be an event at an index, for `FOLLOW_WAIT_S` at most;
                None to ask the log.
            on_error: Called in the feed's thread with each error that it waits out or ends by.
        """
        self.end = start_idx
        self.error: BelogError | None = None
        self.ended = asyncio.Event()
        self.failing: tuple[BelogError, float] | None = None
        self._log = log
        self._calls = calls
        self._run_terms = run_terms
        self._has_positions = has_positions
        self._read = read_next or partial(log.read, limit=FEED_PAGE_EVENTS)
        self._wait_next = wait_next or partial(log.wait_for_index, timeout_s=FOLLOW_WAIT_S)
        self._page: EventPage | None = None
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._kept: deque[_Entry] = deque()
        self._kept_bytes = 0
        self._kept_since = start_idx
        self._register: dict[tuple[str, str], set[_Waiter]] = {}
        self._waiters = 0
        self._runs: OrderedDict[str, Terms] = OrderedDict()
        self._thread = threading.Thread(target=self._run, name="belog feed", daemon=True)
        self._thread.start()

    @property
    def waiters(self) -> int:
        """How many wait now."""
        return self._waiters

    @property
    def is_running(self) -> bool:
        """Whether the follower's thread lives; without `error` it only ends by a defect."""
        return self._thread.is_alive()

    # --- the readers' side, in the loop

    async def page(
        self, since_idx: int, wanted: EventFilter = ALL, *, limit: int, wait_s: float = 0
    ) -> EventPage:
        """Return the next page, at once or as soon as there is an event, at the latest in time.

        A page without events carries the cursor on: none between matched.

        Args:
            since_idx: First index wanted.
            wanted: Which events.
            limit: Most events of the page, 1 to `PAGE_EVENTS_MAX`.
            wait_s: Longest wait, seconds; 0 for none.

        Raises:
            Gone: `since_idx` lies behind the vacuum horizon.
            Overloaded: `WAITERS_MAX` wait already.
            Closed: The service is stopping; the cursor stays good.
            BelogError: What ended the feed.
        """
        matcher = Matcher(wanted)
        cursor = since_idx
        while cursor < self._kept_since or cursor > self.end:
            page = await self._calls.run(self._log.read, cursor, wanted, limit)
            if cursor > self.end and not page.events and self._has_positions:
                await self._calls.run(check_reached, self._log, cursor)
            if page.events or page.has_more or not wait_s:
                return page
            cursor = page.next_idx
            if cursor >= self.end:
                break
        page = self._from_kept(cursor, matcher, limit)
        if page.events or not wait_s:
            return page
        index = await self._wait(page.next_idx, matcher, wait_s)
        if index is None:
            # Something may have come between the end of the time and now.
            index = page.next_idx
        if index < self._kept_since:
            return await self._calls.run(self._log.read, index, wanted, limit)
        return self._from_kept(index, matcher, limit)

    async def pages(
        self, since_idx: int, wanted: EventFilter = ALL, *, heartbeat_s: float, limit: int
    ) -> AsyncIterator[EventPage]:
        """Yield pages for ever, in order, none missed; an empty one after each silent heartbeat.

        A slow taker holds up nobody: he is read for when he asks for his next page.

        Args:
            since_idx: First index wanted.
            wanted: Which events.
            heartbeat_s: Longest time between two pages, seconds.
            limit: Most events of a page.

        Raises:
            Gone: The cursor lies behind the vacuum horizon.
            Closed: The service is stopping.
        """
        cursor = since_idx
        while True:
            page = await self.page(cursor, wanted, limit=limit, wait_s=heartbeat_s)
            cursor = page.next_idx
            yield page

    async def wait_for(self, index: int, timeout_s: float) -> bool:
        """Wait until the event at an index was seen, or until the time is over.

        Returns:
            Whether it was.
        """
        if self.end > index:
            return True
        loop = self._loop
        deadline = loop.time() + timeout_s
        matcher = Matcher(ALL)
        while self.end <= index and (left := deadline - loop.time()) > 0:
            await self._wait(self.end, matcher, left)
        return self.end > index

    def _from_kept(self, cursor: int, matcher: Matcher, limit: int) -> EventPage:
        events: list[StoredEvent] = []
        # From the newest backwards to the cursor: who keeps up is answered in a few steps.
        fresh: list[_Entry] = []
        for entry in reversed(self._kept):
            if entry.stored.index < cursor:
                break
            fresh.append(entry)
        for entry in reversed(fresh):
            if matcher.matches(entry.stored, entry.terms):
                events.append(entry.stored)
                if len(events) == limit:
                    next_idx = entry.stored.index + 1
                    return EventPage(tuple(events), next_idx, has_more=next_idx < self.end)
        return EventPage(tuple(events), max(self.end, cursor), has_more=False)

    async def _wait(self, seen_idx: int, matcher: Matcher, wait_s: float) -> int | None:
        """Wait for a match at or after `seen_idx`; return its index, None when time is over."""
        if self.error is not None:
            # One of his own: what is raised gathers where it came by.
            raise copy(self.error)
        if self._waiters >= WAITERS_MAX:
            msg = f"{self._waiters} wait for events already"
            raise Overloaded(msg, hint="ask again later, or without waiting")
        waiter = _Waiter(seen_idx, matcher, self._loop.create_future())
        for name in waiter.names:
            self._register.setdefault(name, set()).add(waiter)
        self._waiters += 1
        timer = self._loop.call_later(wait_s, _time_over, waiter.future)
        try:
            index = await waiter.future
        finally:
            timer.cancel()
            self._forget(waiter)
        return None if index < 0 else index

    def _forget(self, waiter: _Waiter) -> None:
        self._waiters -= 1
        for name in waiter.names:
            standing = self._register[name]
            standing.discard(waiter)
            if not standing:
                del self._register[name]

    def _publish(self, entries: Sequence[_Entry], end: int, taken: threading.Event) -> None:
        for entry in entries:
            self._kept.append(entry)
            self._kept_bytes += len(entry.stored.event.payload)
            self._wake(entry)
            if entry.stored.event.event_type == VACUUMED:
                # What was removed must not be given out from here.
                self._kept.clear()
                self._kept_bytes, self._kept_since = 0, entry.stored.index + 1
        self.end = end
        while len(self._kept) > KEPT_EVENTS_MAX or self._kept_bytes > KEPT_BYTES_MAX:
            gone = self._kept.popleft()
            self._kept_bytes -= len(gone.stored.event.payload)
            self._kept_since = gone.stored.index + 1
        taken.set()

    def _wake(self, entry: _Entry) -> None:
        register = self._register
        if not register:
            return
        for name in _event_names(entry):
            for waiter in register.get(name, ()):
                if (
                    not waiter.future.done()
                    and entry.stored.index >= waiter.since_idx
                    and waiter.matcher.matches(entry.stored, entry.terms)
                ):
                    waiter.future.set_result(entry.stored.index)

    def _end(self, error: BelogError) -> None:
        self._fail(error)
        self.ended.set()

    def _fail(self, error: BelogError) -> None:
        self.error = error
        for standing in list(self._register.values()):
            for waiter in standing:
                if not waiter.future.done():
                    waiter.future.set_exception(copy(error))

    # --- the follower's side, in its thread

    def _run(self) -> None:
        try:
            self._follow()
        except Exception as fault:
            # Nobody may be left waiting for this thread.
            LOGGER.exception("the feed was stopped by a fault")
            error = BelogError(f"the feed was stopped by {fault!r:.200}", log=self._log.name)
            self._loop.call_soon_threadsafe(self._end, error)

    def _follow(self) -> None:
        cursor = self.end
        while not self._stop.is_set():
            try:
                cursor = self._step(cursor)
                self.failing = None
            except BelogError as error:
                if self._stop.is_set():
                    return
                if self._on_error is not None:
                    self._on_error(error)
                if not error.retriable or isinstance(error, Closed):
                    LOGGER.exception("the feed ends at index %d", cursor)
                    self._loop.call_soon_threadsafe(self._end, error)
                    return
                since = time.monotonic() if self.failing is None else self.failing[1]
                self.failing = error, since
                LOGGER.warning("the log cannot be read, trying again: %s", error)
                self._stop.wait(RETRY_S)

    def _step(self, cursor: int) -> int:
        # What was read and not handed over, because a look-up failed, is not read again.
        page = self._page or self._read(cursor)
        self._page = page
        if page.next_idx > cursor:
            entries = [_Entry(stored, self._terms(stored)) for stored in page.events]
            taken = threading.Event()
            self._loop.call_soon_threadsafe(self._publish, entries, page.next_idx, taken)
            # The follower never runs ahead of a busy loop by more than this page.
            while not taken.wait(FOLLOW_WAIT_S):
                if self._stop.is_set():
                    return cursor
        self._page = None
        if not page.has_more:
            self._wait_next(page.next_idx)
        return page.next_idx

    def _terms(self, stored: StoredEvent) -> Terms:
        event = stored.event
        terms = terms_of(event, self._terms_of_run)
        if event.subject_kind == "job_run" and event.subject_id not in self._runs:
            self._remember(event.subject_id, terms)
        return terms

    def _terms_of_run(self, job_run_id: str) -> Terms | None:
        known = self._runs.get(job_run_id)
        if known is None:
            known = self._run_terms(job_run_id)
            if known is not None:
                self._remember(job_run_id, known)
        return known

    def _remember(self, job_run_id: str, terms: Terms) -> None:
        self._runs[job_run_id] = terms
        if len(self._runs) > RUN_TERMS_KEPT:
            self._runs.popitem(last=False)

    # --- ending

    def stop(self) -> None:
        """Answer all who wait with `Closed`, and read no more. Idempotent; for the loop's thread.

        The follower's thread ends by itself within `FOLLOW_WAIT_S`; `join` waits for it.
        """
        self._stop.set()
        if self.error is None:
            msg = "the service is stopping"
            self._fail(Closed(msg, hint="ask another one, from the same cursor"))

    def join(self) -> None:
        """Wait until the follower's thread has ended; blocks, not for the loop's thread."""
        self._thread.join()


def _time_over(future: "asyncio.Future[int]") -> None:
    if not future.done():
        future.set_result(-1)
