"""The blocking client of a service."""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from random import Random  # noqa: TID251 - this is a shell: it draws the pauses
from typing import Self, TypeVar, Unpack
from uuid import UUID, uuid4

from belog.client import calls, catalog
from belog.client.calls import FOLLOW_EVENTS, FOLLOW_WAIT_S, FollowSteps
from belog.client.catalog import M, PartitionState, Requested
from belog.client.cursors import Cursor, Page, cursor_at
from belog.client.flushing import Flushed
from belog.client.http_transport import Transport
from belog.client.making import EventOptions, make_event
from belog.client.questions import Questions
from belog.client.recording import RECORD_S, Recorder, Spooled
from belog.client.settings import ClientOptions, sender_options, settings_of
from belog.client.spool import Spool
from belog.client.steps import Came, Pause, Session, Step, Steps
from belog.schemas.envelope import Event, StoredEvent
from belog.schemas.errors import BelogError, Closed, InvalidConfiguration
from belog.schemas.events import Payload
from belog.schemas.filters import ALL, EventFilter
from belog.schemas.payload import JsonValue
from belog.schemas.receipts import Receipt
from belog.v1 import event_log_pb2, http_pb2

__all__ = ["Client"]

T = TypeVar("T")


class Client(Questions):
    """A service, for programs that block. Thread-safe.

    Every call is tried again while the service is away or overloaded, for `retry_s`; what cannot be
    told then is said to be unknown. Errors are those of `belog.schemas.errors`, as the service
    raised them. `AsyncClient` has the same methods.
    """

    def __init__(self, url: str, **options: Unpack[ClientOptions]) -> None:
        """Connect to nothing yet.

        Args:
            url: Of the service, such as `http://host:8000`.
            options: See `belog.client.settings.ClientOptions`.

        Raises:
            InvalidUri: It is none of a service.
            InvalidConfiguration: An option cannot be used.
            Unavailable: The folder of the spool cannot be written.
        """
        settings = settings_of(url, options)
        self.url = settings.url
        self._actor = settings.actor
        self._transport = Transport(settings)
        self._session = Session(
            url=settings.url,
            retry_s=settings.retry_s,
            timeout_s=settings.timeout_s,
            clock=time.monotonic,
        )
        self._checked = calls.Checked()
        self._jitter = Random()  # noqa: S311 - no secret
        self._closing = threading.Event()
        self._recorder: Recorder | None = None
        if (folder := options.get("spool")) is not None:
            spool = Spool(folder)
            sender = Client(url, **sender_options(options))
            self._recorder = Recorder(spool, sender, options.get("on_conflict"))
            self._sender = sender

    # --- appending

    def append(
        self,
        payload: Payload | str,
        subject_id: str,
        body: Mapping[str, JsonValue] | None = None,
        **options: Unpack[EventOptions],
    ) -> Receipt:
        """Make an event, append it, and wait until it is durable.

        Args:
            payload: A typed payload, or the name of an event type.
            subject_id: Build request id, partition ref or job run id.
            body: With a type's name: the payload as a map.
            options: `event_id`, `occurred_at`, `subject_kind`, `caused_by`, `expected`.

        Raises:
            InvalidEvent: The event cannot be in any log.
            Conflict: It is not legal now; the error carries state, index and allowed types.
            Forbidden: The token is not for this.
            OutcomeUnknown: No answer came in time; append it again with the same `event_id`.
            Unavailable: The service cannot be reached; nothing was written.
        """
        return self.append_event(self.make(payload, subject_id, body, **options))

    def make(
        self,
        payload: Payload | str,
        subject_id: str,
        body: Mapping[str, JsonValue] | None = None,
        **options: Unpack[EventOptions],
    ) -> Event:
        """Make an event, to append it later; see `append`."""
        return make_event(self._actor, payload, subject_id, body, options)

    def append_event(self, event: Event) -> Receipt:
        """Append an event that was made before, and wait; see `append`."""
        return self._run(calls.append(self._session, event))

    def append_batch(
        self, events: Sequence[Event], *, atomic: bool = False, at: int | None = None
    ) -> list[Receipt | BelogError]:
        """Append events in order and wait; each is judged over those before it.

        Args:
            events: At most `BATCH_EVENTS_MAX`.
            atomic: All or none; on logs with conditional appends only.
            at: Append only if the log's next index is this one; on such logs only. Not to be used
                where an answer may be lost: the repetition meets a log that moved on.

        Returns:
            A receipt or an error per event, in order.

        Raises:
            BelogError: With `atomic`, the first error; nothing was written.
            IndexConflict: `at` is not the log's next index; nothing was written.
            OutcomeUnknown: No answer came in time; append the same batch again.
            Unavailable: The service cannot be reached; nothing was written.
        """
        return self._run(calls.append_batch(self._session, events, atomic=atomic, at=at))

    # --- keeping: with a spool

    def record(
        self,
        payload: Payload | str,
        subject_id: str,
        body: Mapping[str, JsonValue] | None = None,
        **options: Unpack[EventOptions],
    ) -> Receipt | Spooled:
        """Make an event and keep it, durably; append it now if the log is there, else later.

        Needs `spool`. All that is recorded in one folder reaches the log in the order it was
        recorded, each event once.

        Returns:
            The receipt, or that it is kept: then a refusal is told to `on_conflict` alone.

        Raises:
            InvalidEvent: The event cannot be in any log.
            Conflict: It is not legal now.
            Overloaded: The spool is full.
            Unavailable: The disk cannot be written.
            InvalidConfiguration: There is no spool.
        """
        return self.record_event(self.make(payload, subject_id, body, **options))

    def record_event(self, event: Event, *, wait_s: float = RECORD_S) -> Receipt | Spooled:
        """Keep an event that was made before; see `record`.

        Args:
            event: The event.
            wait_s: Longest wait for the log's answer, seconds.
        """
        return self._spooling().record(event, wait_s=wait_s)

    def flush(self, timeout_s: float = RECORD_S) -> Flushed:
        """Wait until everything that was recorded is in the log, or the time is over.

        Returns:
            How many are left, and why.
        """
        return self._spooling().flush(timeout_s)

    def _spooling(self) -> Recorder:
        if self._recorder is None:
            msg = "this client has no spool"
            raise InvalidConfiguration(msg, hint="Client(url, spool=FOLDER)")
        return self._recorder

    # --- reading

    def events(
        self,
        since: Cursor | int = 0,
        wanted: EventFilter = ALL,
        *,
        limit: int = FOLLOW_EVENTS,
        wait_s: float = 0.0,
    ) -> Page:
        """Read a page of events, at once or as soon as there is one.

        Args:
            since: Where to begin: the `cursor` of the page before, or an index.
            wanted: Which events.
            limit: Most of them.
            wait_s: Longest wait while there is none, seconds; bounded by the service.

        Raises:
            Gone: `since` lies behind the vacuum horizon.
            LogReplaced: The log is another one than the cursor's.
            LogTruncated: It is shorter than the cursor.
            Unavailable: The service cannot be reached.
        """
        return self._run(
            calls.page(
                self._session, self._checked, cursor_at(since), wanted, limit=limit, wait_s=wait_s
            )
        )

    def event(self, which: int | bytes | UUID) -> StoredEvent | None:
        """Return one event by its index or its id, None where there is none."""
        key = which.bytes if isinstance(which, UUID) else which
        return self._run(calls.find_event(self._session, key))

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
    ) -> Iterator[Page]:
        """Give pages as they come, for ever; in order, none missed, none twice.

        Goes on over restarts and outages of the service from its cursor. A page without events
        carries the cursor on.

        Args:
            since: Where to begin.
            wanted: Which events.
            idle_s: End when nothing came for so long, seconds; 0 at the log's end; None never.
            patience_s: Raise when the service is away for so long, seconds; None never.
            on_trouble: Told of each error that is passed over.
            limit: Most events of a page.
            wait_s: Longest wait of one request, seconds.

        Raises:
            LogReplaced: The log is another one than the cursor's, or has another history.
            LogTruncated: It is shorter than the cursor.
            Gone: The cursor lies behind the vacuum horizon.
            Closed: The client was closed.
        """
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

    def follow(
        self,
        since: Cursor | int = 0,
        wanted: EventFilter = ALL,
        *,
        idle_s: float | None = None,
        patience_s: float | None = None,
        on_trouble: Callable[[BelogError], None] | None = None,
    ) -> Iterator[tuple[StoredEvent, Cursor]]:
        """Give events as they come, each with where to go on after it; see `follow_pages`."""
        for page in self.follow_pages(
            since, wanted, idle_s=idle_s, patience_s=patience_s, on_trouble=on_trouble
        ):
            yield from page.steps()

    # --- partitions

    def request_partition(
        self,
        ref: str,
        *,
        client_id: str | None = None,
        build_request_id: str | None = None,
        allow_delegation: bool = True,
        timeout_s: float = 0.0,
        asked_by: Sequence[str] = (),
    ) -> Requested:
        """Ask for a partition: it is there, or another build makes it, or the caller has to.

        Of any number of callers at once exactly one gets `Building`. The request names a build, so
        one whose answer was lost is repeated without harm.

        Args:
            ref: The partition.
            client_id: Who is behind the request; the token's actor where None.
            build_request_id: The caller's build; a new one where None.
            allow_delegation: Whether an attempt of another build may be the answer.
            timeout_s: How long to wait for the outcome of such an attempt, seconds.
            asked_by: For an instance that asks for others: the logs whose instances passed the
                request on, oldest first, so that a circle of them ends.

        Raises:
            NotOwner: Another build is making it, and delegation is not allowed; names the build.
            Conflict: The attempt that was waited for failed.
        """
        return self._run(
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

    def partition(self, ref: str, *, min_index: int | None = None) -> PartitionState:
        """Return a partition as it is now; one that was never seen has the state "".

        Args:
            ref: The partition.
            min_index: Answer once the tables hold the event at this index.
        """
        return self._run(catalog.partition(self._session, ref, min_index=min_index))

    def wait(
        self,
        ref: str,
        states: Collection[str] = ("available",),
        *,
        timeout_s: float,
        min_index: int | None = None,
    ) -> PartitionState | None:
        """Wait until a partition is in one of some states.

        Args:
            ref: The partition.
            states: Such as `("available", "failed")`.
            timeout_s: Longest wait, seconds.
            min_index: Do not look at what it was before the event at this index.

        Returns:
            The partition then, None when the time is over before.
        """
        return self._run(
            catalog.wait(self._session, ref, states, timeout_s=timeout_s, min_index=min_index)
        )

    # --- the log

    def status(self, *, min_index: int | None = None) -> event_log_pb2.LogStatus:
        """Return where the log ends, which one it is, and how far its tables are."""
        return self._run(calls.status(self._session, min_index))

    def readiness(self) -> http_pb2.Health:
        """Return whether the service can do its work, and why not."""
        return self._run(catalog.readiness(self._session))

    def ask(self, kind: type[M], *segments: str, **query: object) -> M:
        """See `Questions.ask`."""
        return self._run(catalog.look(self._session, kind, *segments, query=query))

    def call_off(self, kind: type[M], *segments: str, reason: str | None) -> M:
        """See `Questions.call_off`."""
        return self._run(catalog.cancel(self._session, kind, *segments, reason=reason))

    # --- doing the steps

    def _run(self, steps: Steps[T]) -> T:
        came: Came = None
        while True:
            try:
                step = steps.send(came)
            except StopIteration as done:
                result: T = done.value
                return result
            came = self._do(step)

    def _pages(self, steps: FollowSteps) -> Iterator[Page]:
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
                came = self._do(step)

    def _do(self, step: Step) -> Came:
        if self._closing.is_set():
            msg = "the client was closed"
            raise Closed(msg)
        if isinstance(step, Pause):
            self._closing.wait(step.pause_s * self._jitter.uniform(0.5, 1.0))
            return None
        came = self._transport.send(step)
        if self._closing.is_set():
            # Closed meanwhile: what this request held open was still in use then.
            self._transport.close()
        return came

    # --- ending

    def close(self, timeout_s: float = 0.0) -> None:
        """Close all connections. Idempotent.

        Who follows in another thread gets `Closed` as soon as his request is answered.

        Args:
            timeout_s: With a spool: how long to try to send what is left, seconds. The rest stays
                on disk, for the next client with the same folder or `belog spool flush`.
        """
        if self._recorder is not None:
            self._recorder.close(timeout_s)
            self._recorder.spool.close()
            self._sender.close()
        self._closing.set()
        self._transport.close()

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client; with a spool, after a try to send what is left."""
        self.close(RECORD_S)
