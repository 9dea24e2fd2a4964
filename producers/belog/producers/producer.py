"""The validating producer: the door through which a graph's events enter a log."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from types import TracebackType
from typing import Final, Protocol, Self
from uuid import UUID

from belog.producers.conditional import ConditionalAppender
from belog.producers.ids import random_uuid
from belog.producers.judging import check_digest
from belog.producers.ordered import OrderedAppender
from belog.producers.pending import Pending
from belog.schemas.envelope import Event
from belog.schemas.errors import BelogError, Closed, LogReplaced, LogTruncated, Unsupported
from belog.schemas.events import Payload, new_event
from belog.schemas.fold import Fold, OnConfirmed, SubjectState
from belog.schemas.lifecycle import Lifecycle, SubjectKind
from belog.schemas.payload import JsonValue
from belog.storage.creation import refuse_replica_append
from belog.storage.interface import (
    ConditionalLog,
    EventLog,
    LogEnd,
    OrderedLog,
    Receipt,
    check_batch,
    fold_log,
)

__all__ = ["BACK_PRESSURE_WAIT_S", "IN_FLIGHT_EVENTS_MAX", "Producer"]

IN_FLIGHT_EVENTS_MAX: Final = 10_000
"""Events submitted and not yet decided. At 300 bytes about 3 MB, and several round trips' worth at
the highest rate, so that the pipe never runs dry."""

BACK_PRESSURE_WAIT_S: Final = 30.0
"""Longest wait of `submit` for room among the events in flight, seconds."""


class _Appender(Protocol):
    @property
    def fold(self) -> Fold: ...
    def submit(self, event: Event) -> Pending: ...
    def append(self, event: Event) -> Receipt: ...
    def append_batch(
        self, events: Sequence[Event], *, atomic: bool, at: int | None
    ) -> list[Receipt | BelogError]: ...
    def refresh(self) -> Fold: ...
    def reading(self) -> AbstractContextManager[Fold]: ...
    def flush(self, timeout_s: float) -> bool: ...
    def close(self) -> None: ...


def _now_us() -> int:
    return time.time_ns() // 1000


def _check_log(log: EventLog, fold: Fold | None) -> None:
    """Refuse a log that takes no producer's events, or is not the one that a fold was made of."""
    identity = log.identify()
    if identity is not None:
        refuse_replica_append(identity, log.name)
    if fold is None or fold.log_id is None:
        return
    if identity is None or identity.log_id != fold.log_id:
        other = "none" if identity is None else str(identity.log_id)
        msg = f"the fold is of log {fold.log_id}, this is {other}"
        hint = "was it recreated, or is the URI another's?"
        raise LogReplaced(msg, log=log.name, hint=hint)
    if (end := log.next_position()) < fold.next_position:
        msg = f"the log ends at {end}, the fold has read up to {fold.next_position}"
        raise LogTruncated(msg, log=log.name, index=end, hint="was it restored from a backup?")


class Producer:
    """Appends events that are legal, and says of every event what became of it.

    Keeps its own fold of the log. An event is judged before it is sent; where another writer came
    in between, it is judged again where it landed. An answer is always what the log says: a receipt
    means accepted, a `Conflict` means that it changed nothing, `OutcomeUnknown` that no answer came
    and that a retry with the same event id will tell.

    Thread-safe. Starting reads the log (or the part after a snapshot's fold) once.
    """

    def __init__(
        self,
        log: EventLog,
        *,
        actor: str,
        fold: Fold | None = None,
        clock: Callable[[], int] = _now_us,
        in_flight_max: int = IN_FLIGHT_EVENTS_MAX,
        wait_s: float = BACK_PRESSURE_WAIT_S,
        on_confirmed: OnConfirmed | None = None,
    ) -> None:
        """Catch up with an initialized log.

        Args:
            log: Initialized; stays the caller's to close.
            actor: Who writes; stands in every event made here.
            fold: A fold of this log to start from, such as a snapshot's; owned by the producer from
                now on. None reads the log from its beginning.
            clock: Gives `occurred_at`, microseconds since the epoch, UTC.
            in_flight_max: Events submitted and not yet decided; more wait.
            wait_s: Longest such wait, seconds.
            on_confirmed: Told of own events that landed where they were expected to, some at a
                time; of others not, and of `system` events never. Called in the
                middle of the work, so it must be quick, must not raise, and not call back.

        Raises:
            Unsupported: The log cannot be read.
            ReplicaRefused: It is a replica.
            LogReplaced: The fold is of another log.
            LogTruncated: The log is shorter than the fold.
            NewerFormat: The log needs newer software.
            Unavailable: It cannot be reached.
        """
        self.log = log
        self.actor = actor
        self._clock = clock
        self._closed = False
        _check_log(log, fold)
        fold = fold_log(log, fold or Fold(keeps_root=False))
        self._appender: _Appender
        if isinstance(log, ConditionalLog):
            self._appender = ConditionalAppender(
                log,
                fold,
                in_flight_max=in_flight_max,
                wait_s=wait_s,
                on_confirmed=on_confirmed,
            )
        elif isinstance(log, OrderedLog):
            self._appender = OrderedAppender(
                log,
                fold,
                in_flight_max=in_flight_max,
                wait_s=wait_s,
                on_confirmed=on_confirmed,
            )
        else:
            msg = "this log cannot be read back, so nothing can be judged"
            raise Unsupported(msg, log=log.name, hint="append to it without a producer")

    def acting_as(self, actor: str) -> Self:
        """Return a producer for another actor: over the same fold, open as long as this one is.

        Args:
            actor: Who writes; stands in every event made by it.
        """
        acting = copy(self)
        acting.actor = actor
        return acting

    # --- making events

    def event(
        self,
        payload: Payload | str,
        subject_id: str,
        body: Mapping[str, JsonValue] | None = None,
        *,
        event_id: bytes | UUID | None = None,
        occurred_at: int | None = None,
        subject_kind: SubjectKind | None = None,
        caused_by: bytes | UUID | None = None,
        expected: int | None = None,
    ) -> Event:
        """Make an event of this producer's actor; see `belog.schemas.events.new_event`.

        The id is made at random and the time is now where they are not given.
        """
        return new_event(
            payload,
            subject_id,
            body,
            event_id=random_uuid() if event_id is None else event_id,
            actor=self.actor,
            occurred_at=self._clock() if occurred_at is None else occurred_at,
            subject_kind=subject_kind,
            caused_by=caused_by,
            expected=expected,
        )

    # --- appending

    def append(
        self,
        payload: Payload | str,
        subject_id: str,
        body: Mapping[str, JsonValue] | None = None,
        *,
        event_id: bytes | UUID | None = None,
        occurred_at: int | None = None,
        subject_kind: SubjectKind | None = None,
        caused_by: bytes | UUID | None = None,
        expected: int | None = None,
    ) -> Receipt:
        """Make an event, append it, and wait until it is durable.

        Raises:
            InvalidEvent: The event cannot be in any log.
            Conflict: It is not legal now; the error carries state, index and allowed types.
            OutcomeUnknown: No answer came; append it again with the same `event_id`.
            Unavailable: The log cannot be reached; nothing was written.
        """
        return self.append_event(
            self.event(
                payload,
                subject_id,
                body,
                event_id=event_id,
                occurred_at=occurred_at,
                subject_kind=subject_kind,
                caused_by=caused_by,
                expected=expected,
            )
        )

    def append_event(self, event: Event) -> Receipt:
        """Append an event that was made before, and wait; see `append`."""
        self._check_open()
        check_digest(event)
        return self._appender.append(event)

    def submit_event(self, event: Event) -> Pending:
        """Append an event without waiting for its outcome.

        Events of one thread are judged and land in the order of their calls, each over those before
        it. Blocks only while `in_flight_max` events are undecided.

        Raises:
            InvalidEvent: It cannot be in any log.
            Conflict: It is known already that the event is not legal; nothing was sent.
            Overloaded: There was no room within `wait_s`.
        """
        self._check_open()
        check_digest(event)
        return self._appender.submit(event)

    def append_batch(
        self,
        events: Sequence[Event],
        *,
        atomic: bool = False,
        at: int | None = None,
        made_here: bool = False,
    ) -> list[Receipt | BelogError]:
        """Append events in order and wait.

        Each is judged over those before it in the batch.

        Args:
            events: At most `BATCH_EVENTS_MAX`.
            atomic: All or none, visible together; on logs with conditional appends only.
            at: Append only if the log's next index is this one; on such logs only.
            made_here: `new_event` made all of them, so that their digests need no check.

        Returns:
            A receipt or an error per event, in order.

        Raises:
            BelogError: With `atomic`, the first error; nothing was written.
            IndexConflict: `at` is not the log's next index; nothing was written.
            Unsupported: The log cannot append atomically, or on a condition.
        """
        self._check_open()
        check_batch(events)
        if not made_here:
            for event in events:
                check_digest(event)
        return self._appender.append_batch(events, atomic=atomic, at=at)

    # --- looking

    def state(self, kind: SubjectKind, subject_id: str) -> SubjectState | None:
        """Read on to the log's end and return what is known of a subject, None if never seen."""
        self._check_open()
        return self._appender.refresh().subject(kind, subject_id)

    def known_state(self, kind: SubjectKind, subject_id: str) -> SubjectState | None:
        """Return what the part of the log read so far says of a subject; reads nothing more."""
        return self._appender.fold.subject(kind, subject_id)

    def refresh(self) -> int:
        """Read on to the log's end; return the next index."""
        self._check_open()
        return self._appender.refresh().next_idx

    def end(self) -> LogEnd:
        """Read on to the log's end and return where it is, with the Merkle root.

        Raises:
            Unsupported: The producer was started with a fold that keeps no root.
        """
        self._check_open()
        with self._appender.reading() as fold:
            if not fold.keeps_root or fold.log_id is None:
                msg = "the producer keeps no Merkle root"
                raise Unsupported(msg, log=self.log.name, hint="ask the log for its end")
            return LogEnd(fold.next_idx, fold.merkle.root(), fold.log_id)

    def wait(self, timeout_s: float) -> bool:
        """Wait until the log holds records that were not read yet; return whether it does."""
        self._check_open()
        return self.log.wait(self._appender.fold.next_position, timeout_s)

    @property
    def lifecycle(self) -> Lifecycle:
        """The tables that govern the log as far as it was read."""
        return self._appender.fold.lifecycle

    # --- ending

    def flush(self, timeout_s: float = BACK_PRESSURE_WAIT_S) -> bool:
        """Wait until every submitted event is decided; return whether that was in time."""
        return self._appender.flush(timeout_s)

    def close(self) -> None:
        """Decide what was submitted, then refuse further events. The log stays open. Idempotent."""
        if not self._closed:
            self._closed = True
            self._appender.close()

    def _check_open(self) -> None:
        if self._closed:
            msg = "the producer was closed"
            raise Closed(msg, log=self.log.name)

    def __enter__(self) -> Self:
        """Return the producer itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the producer."""
        self.close()
