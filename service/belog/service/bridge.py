"""Where asynchronous services meet the synchronous log: calls in threads, and appends in groups."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Final, ParamSpec, TypeVar

from belog.producers import Producer
from belog.schemas.envelope import Event
from belog.schemas.errors import BelogError, Closed, Overloaded
from belog.service.observer import AppendTiming, Observer
from belog.storage.interface import Receipt

__all__ = ["CALL_THREADS", "GROUP_EVENTS_MAX", "QUEUED_EVENTS_MAX", "AppendQueue", "Calls"]

CALL_THREADS: Final = 16
"""Threads for blocking calls. They wait for SQLite, Redis or the broker most of their time; more of
them would only contend for the interpreter."""

QUEUED_CALLS_MAX: Final = 2_000
"""Calls that wait for a thread or run. Beyond it an answer would take seconds anyway, so it is
refused at once and may be repeated later."""

QUEUED_EVENTS_MAX: Final = 50_000
"""Events that wait to be appended: a second or two at the highest rate, about 30 MB."""

GROUP_EVENTS_MAX: Final = 2_000
"""Events of one group, over several requests: some 50 ms of work, so that the first of them does
not wait long for the last."""

P = ParamSpec("P")
T = TypeVar("T")
Results = list[Receipt | BelogError]


class Calls:
    """Runs blocking calls in threads, so that the event loop never waits for I/O."""

    def __init__(self, threads: int = CALL_THREADS) -> None:
        """Make the threads as they are needed.

        Args:
            threads: How many at most.
        """
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="belog call")
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """Calls that wait for a thread or run now."""
        return self._waiting

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call in a thread and wait for its result, without blocking the loop.

        A caller who is cancelled does not stop the call: it goes on, and its result is dropped.

        Raises:
            Overloaded: `QUEUED_CALLS_MAX` calls wait already.
        """
        if self._waiting >= QUEUED_CALLS_MAX:
            msg = f"{self._waiting} calls wait for a thread"
            raise Overloaded(msg, hint="try again later, or ask less often")
        loop = asyncio.get_running_loop()
        self._waiting += 1
        # With the task's context: what is logged or traced in the thread belongs to its request.
        running = loop.run_in_executor(
            self._threads, copy_context().run, partial(call, *args, **kwargs)
        )
        running.add_done_callback(self._ended)
        return await running

    def _ended(self, _: object) -> None:
        self._waiting -= 1

    def close(self) -> None:
        """Wait for the calls that run, drop those that have not begun. Idempotent; blocks."""
        self._threads.shutdown(cancel_futures=True)


class _Request:
    """Events of one caller, and the future that gets their results."""

    __slots__ = ("at", "atomic", "events", "future", "queued_at", "taken_at", "written_at")

    def __init__(
        self,
        events: Sequence[Event],
        future: "asyncio.Future[Results]",
        *,
        atomic: bool,
        at: int | None,
    ) -> None:
        self.events = events
        self.future = future
        self.atomic = atomic
        self.at = at
        self.queued_at = self.taken_at = self.written_at = time.monotonic()

    @property
    def is_alone(self) -> bool:
        return self.atomic or self.at is not None


class AppendQueue:
    """Appends for many callers at once: what waits together is judged and written together.

    A caller alone pays one hand-over to a thread; a hundred of them share it, and with it one write
    and one wake-up of the loop. Events of one request keep their order and stay together. Belongs
    to one event loop.
    """

    def __init__(
        self,
        producer: Producer,
        observer: Observer | None = None,
        on_written: Callable[[Sequence[Results | Exception]], object] | None = None,
    ) -> None:
        """Append through a producer, which stays the caller's to close.

        Args:
            producer: Of a log that is open.
            observer: Told of each group, in the loop.
            on_written: Told of the outcomes of each group, in the thread that wrote it; must be
                quick and not raise.
        """
        self._producer = producer
        self._on_written = on_written
        self._observer = observer or Observer()
        self._loop = asyncio.get_running_loop()
        self._wakeup = threading.Condition()
        self._queue: deque[_Request] = deque()
        self._queued_events = 0
        self._undecided = 0
        self._is_closed = False
        # One, on logs too that a second could judge for while it waits for its reports: they would
        # take the interpreter from each other, and what is together in a group is cheaper.
        self._thread = threading.Thread(target=self._work, name="belog appender", daemon=True)
        self._thread.start()

    @property
    def queued_events(self) -> int:
        """Events that wait for a thread now."""
        return self._queued_events

    @property
    def is_busy(self) -> bool:
        """Whether any append is under way; for any thread."""
        return self._undecided > 0

    async def append(
        self, events: Sequence[Event], *, atomic: bool = False, at: int | None = None
    ) -> tuple[Results, AppendTiming]:
        """Append events and wait until they are durable, without blocking the loop.

        A caller who is cancelled does not take his events back: they are appended all the same.

        Args:
            events: Made by `new_event`, at most `BATCH_EVENTS_MAX`; each is judged over those
                before it.
            atomic: All or none.
            at: Only if the log's next index is this one.

        Returns:
            A receipt or an error per event, in order; and where the time went.

        Raises:
            Overloaded: Too many events wait already; none of these was taken.
            Closed: The service is stopping; none was taken.
            BelogError: With `atomic` or `at`, why nothing was written.
        """
        future: asyncio.Future[Results] = self._loop.create_future()
        with self._wakeup:
            if self._is_closed:
                msg = "the service is stopping"
                raise Closed(msg, hint="send it again with the same event_id")
            if self._queued_events and self._queued_events + len(events) > QUEUED_EVENTS_MAX:
                msg = f"{self._queued_events} events wait to be appended"
                raise Overloaded(msg, hint="send it again later, or more slowly")
            request = _Request(events, future, atomic=atomic, at=at)
            self._queue.append(request)
            self._queued_events += len(events)
            self._undecided += 1
            self._wakeup.notify()
        results = await future
        timing = AppendTiming(
            request.taken_at - request.queued_at, request.written_at - request.taken_at
        )
        return results, timing

    def close(self, timeout_s: float) -> bool:
        """Take no more, and wait until what was taken is answered. Idempotent; blocks.

        Must not be called from the event loop's thread, which has to hand out the answers.

        Returns:
            Whether all ended in time.
        """
        with self._wakeup:
            self._is_closed = True
            self._wakeup.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # --- the thread's side

    def _work(self) -> None:
        while group := self._next_group():
            taken_at = time.monotonic()
            outcomes = self._outcomes(group)
            written_at = time.monotonic()
            if self._on_written is not None:
                self._on_written(outcomes)
            for request in group:
                request.taken_at, request.written_at = taken_at, written_at
            self._loop.call_soon_threadsafe(self._answer, group, outcomes, written_at - taken_at)

    def _answer(
        self,
        group: Sequence[_Request],
        outcomes: Sequence[Results | Exception],
        seconds: float,
    ) -> None:
        self._undecided -= len(group)
        _answer(group, outcomes)
        self._observer.group_written(sum(len(request.events) for request in group), seconds)

    def _next_group(self) -> list[_Request]:
        """Wait for requests; return those that go together, nothing when closed and empty."""
        with self._wakeup:
            self._wakeup.wait_for(lambda: self._queue or self._is_closed)
            group: list[_Request] = []
            count = 0
            while self._queue:
                following = self._queue[0]
                if group and (
                    following.is_alone or count + len(following.events) > GROUP_EVENTS_MAX
                ):
                    break
                group.append(self._queue.popleft())
                count += len(following.events)
                if following.is_alone:
                    break
            self._queued_events -= count
            return group

    def _outcomes(self, group: Sequence[_Request]) -> Sequence[Results | Exception]:
        first = group[0]
        append = partial(self._producer.append_batch, made_here=True)
        try:
            if len(group) == 1:
                return [append(first.events, atomic=first.atomic, at=first.at)]
            events = [event for request in group for event in request.events]
            results = append(events)
        except Exception as error:  # noqa: BLE001 - handed on to the callers who wait
            return [error] * len(group)
        outcomes: list[Results | Exception] = []
        at = 0
        for request in group:
            outcomes.append(results[at : at + len(request.events)])
            at += len(request.events)
        return outcomes


def _answer(group: Sequence[_Request], outcomes: Sequence[Results | Exception]) -> None:
    for request, outcome in zip(group, outcomes, strict=True):
        if request.future.done():
            continue
        if isinstance(outcome, Exception):
            request.future.set_exception(outcome)
        else:
            request.future.set_result(outcome)
