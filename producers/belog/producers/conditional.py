"""Appending to logs whose appends can be conditional: judge first, then write on condition.

Appends of several threads are written together: whoever finds no leader at work becomes it, takes
what has queued up, and writes that as one batch; the others wait for their outcome. One append
alone pays nothing for it.
"""

import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec
from msgspec import Struct

from belog.producers.judging import check_same, first_receipt, governed_runs, verdict_on
from belog.producers.pending import Pending
from belog.schemas.envelope import Event, StoredEvent, encode_event
from belog.schemas.errors import (
    BelogError,
    Closed,
    EventIdReused,
    IndexConflict,
    LogTruncated,
    OutcomeUnknown,
    Overloaded,
    Unsupported,
)
from belog.schemas.fold import (
    Accepted,
    Confirmed,
    Duplicate,
    Fold,
    OnConfirmed,
    Overlay,
    SubjectState,
    Void,
    conflict_of,
)
from belog.storage.interface import ConditionalLog, Receipt, fold_log

__all__ = ["GROUP_EVENTS_MAX", "ConditionalAppender"]

GROUP_EVENTS_MAX: Final = 1_000
"""Events written as one group: a few milliseconds of work, so that the first of a group does not
wait long for the last."""

RETRY_WAIT_S: Final = 30.0
"""How long one append goes on after lost comparisons, seconds. Each loss means that another writer
of the same subject won, so the log as a whole moves on."""


class ConditionalAppender:
    """The writing half of a producer over a `ConditionalLog`. Thread-safe."""

    def __init__(
        self,
        log: ConditionalLog,
        fold: Fold,
        *,
        in_flight_max: int,
        wait_s: float,
        on_confirmed: OnConfirmed | None = None,
    ) -> None:
        """Write to `log`, judging over `fold`, which this object owns from now on."""
        self._log = log
        self._on_confirmed = on_confirmed
        self._fold = fold
        self._in_flight_max = in_flight_max
        self._wait_s = wait_s
        self._queue: deque[Pending] = deque()
        self._state = threading.Condition()
        self._leading = False
        self._closed = False
        self._worker: threading.Thread | None = None

    @property
    def fold(self) -> Fold:
        """What was read and confirmed, to be looked at only."""
        return self._fold

    # --- the writer's side

    def submit(self, event: Event) -> Pending:
        """See `Producer.submit_event`; a thread of the appender's own writes the queue."""
        pending = self._enqueue(event)
        with self._state:
            if self._worker is None or not self._worker.is_alive():
                self._worker = threading.Thread(
                    target=self._work, name=f"belog append {self._log.name}", daemon=True
                )
                self._worker.start()
            self._state.notify_all()
        return pending

    def append(self, event: Event) -> Receipt:
        """Append one event and wait for its outcome."""
        pending = self._enqueue(event)
        while not pending.done() and self._lead():
            self._write_queue()
        return pending.result()

    def append_batch(
        self, events: Sequence[Event], *, atomic: bool, at: int | None
    ) -> list[Receipt | BelogError]:
        """See `Producer.append_batch`; lands after all that was submitted before."""
        with self._alone():
            return self._append_runs(events, atomic=atomic, at=at)

    def refresh(self) -> Fold:
        """Write what was submitted, read on to the log's end; return the fold, to be looked at."""
        with self.reading() as fold:
            return fold

    @contextmanager
    def reading(self) -> Generator[Fold]:
        """As `refresh`; the fold stays as it is for as long as the context lasts."""
        with self._alone():
            yield self._catch_up()

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything is decided that was submitted."""
        with self._state:
            return self._state.wait_for(lambda: not self._queue and not self._leading, timeout_s)

    def close(self) -> None:
        """Write what is queued, then end."""
        with self._state:
            self._closed = True
            self._state.notify_all()
            worker = self._worker
        if worker is not None:
            worker.join()

    # --- the queue

    def _enqueue(self, event: Event) -> Pending:
        pending = Pending(event)
        with self._state:
            if len(self._queue) >= self._in_flight_max and not self._state.wait_for(
                lambda: self._closed or len(self._queue) < self._in_flight_max, self._wait_s
            ):
                msg = f"{self._in_flight_max} events wait to be written, for {self._wait_s} s now"
                raise Overloaded(msg, log=self._log.name, hint="publish more slowly")
            if self._closed:
                msg = "the producer was closed"
                raise Closed(msg, log=self._log.name)
            self._queue.append(pending)
        return pending

    def _lead(self) -> bool:
        """Become the leader once the present one is done; False if nothing is queued then."""
        with self._state:
            if self._leading:
                self._state.wait_for(lambda: not self._leading)
            if not self._queue:
                return False
            self._leading = True
            return True

    def _hand_over(self) -> None:
        with self._state:
            self._leading = False
            self._state.notify_all()

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Lead for as long as the context lasts, after writing what is queued at its start."""
        with self._state:
            self._state.wait_for(lambda: not self._leading)
            self._leading = True
            queued = len(self._queue)
        written: list[Pending] = []
        try:
            while len(written) < queued:
                written += self._write_group()
            yield
        finally:
            self._hand_over()
            for pending in written:
                pending.announce()

    def _work(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(lambda: self._closed or bool(self._queue))
                if not self._queue:
                    return
            if self._lead():
                self._write_queue()

    def _write_queue(self) -> None:
        """Write one group as the leader and hand over."""
        group: list[Pending] = []
        try:
            group = self._write_group()
        finally:
            self._hand_over()
        for pending in group:
            pending.announce()

    def _write_group(self) -> list[Pending]:
        """Write one group as the leader; return it, decided and not yet announced."""
        with self._state:
            count = min(len(self._queue), GROUP_EVENTS_MAX)
            group = [self._queue.popleft() for _ in range(count)]
            self._state.notify_all()
        try:
            outcomes = self._append_runs([pending.event for pending in group])
        except BaseException as fault:
            # An interrupt, or a fault of the software: nobody may be left waiting for its thread.
            for pending in group:
                msg = f"the writing thread was stopped by {fault!r:.200}"
                pending.resolve(self._unknown(msg, pending.event))
            raise
        for pending, outcome in zip(group, outcomes, strict=True):
            pending.decide(outcome)
        return group

    # --- the log's side

    def _catch_up(self) -> Fold:
        return fold_log(self._log, self._fold)

    def _append_runs(
        self, events: Sequence[Event], *, atomic: bool = False, at: int | None = None
    ) -> list[Receipt | BelogError]:
        """Append run after run of events that one lifecycle governs; an outcome for every event."""
        runs = governed_runs(events)
        if (atomic or at is not None) and len(runs) > 1:
            msg = "an event that changes the lifecycle must be the last of such a batch"
            raise Unsupported(msg, log=self._log.name, hint="leave out `atomic` and `at`")
        outcomes: list[Receipt | BelogError] = []
        for run in runs:
            try:
                outcomes += self._append(run, atomic=atomic, at=at)
            except BelogError as error:
                if atomic or at is not None:
                    raise
                unknown = isinstance(error, OutcomeUnknown)
                outcomes += [self._unknown(error.message, e) if unknown else error for e in run]
        return outcomes

    def _unknown(self, message: str, event: Event) -> OutcomeUnknown:
        return OutcomeUnknown(message, event_id=event.event_id, log=self._log.name)

    def _append(
        self, events: Sequence[Event], *, atomic: bool, at: int | None
    ) -> list[Receipt | BelogError]:
        deadline = time.monotonic() + RETRY_WAIT_S
        while True:
            seen_idx = self._catch_up().next_idx
            if at is not None and at != seen_idx:
                msg = f"the log's next index is {seen_idx}, not {at}"
                raise IndexConflict(msg, next_idx=seen_idx, log=self._log.name)
            judged = self._judge(events)
            if atomic and (error := judged.first_error()):
                raise error
            try:
                receipts = self._write(judged.chosen, seen_idx, alone=at is not None)
            except IndexConflict as error:
                if at is not None:
                    raise
                if error.next_idx < seen_idx:
                    msg = f"the log ends at {error.next_idx}, {seen_idx} was read"
                    raise LogTruncated(msg, log=self._log.name) from error
                if time.monotonic() > deadline:
                    raise
                continue
            self._confirm(judged.chosen, receipts)
            return judged.outcomes(receipts)

    def _judge(self, events: Sequence[Event]) -> "_Judged":
        """Judge events one after the other, each over those before it."""
        overlay = Overlay(self._fold)
        first_idx = self._fold.next_idx
        judged = _Judged(events, first_idx, self._log.name)
        for place, event in enumerate(events):
            index = first_idx + len(judged.chosen)
            try:
                verdict = verdict_on(overlay, event, index)
                if isinstance(verdict, Accepted):
                    overlay.add(event, verdict.after)
                    judged.chosen.append(_Chosen(place, event, verdict.after))
                elif isinstance(verdict, Duplicate):
                    if verdict.first_index >= first_idx:
                        twin = judged.chosen[verdict.first_index - first_idx]
                        check_same(event, verdict, StoredEvent(verdict.first_index, 0, twin.event))
                        judged.twins[place] = verdict.first_index - first_idx
                    else:
                        judged.receipts[place] = first_receipt(self._log, event, verdict)
                else:
                    judged.void[place] = verdict
            except BelogError as error:
                if error.retriable:
                    raise
                judged.errors[place] = error
        return judged

    def _write(self, chosen: "Sequence[_Chosen]", seen_idx: int, *, alone: bool) -> list[Receipt]:
        if not chosen:
            return []
        events = [item.event for item in chosen]
        if alone or any(e.expected is not None and e.expected >= seen_idx for e in events):
            # Or one expects the index that an event of this very batch should get: only there is
            # it legal.
            results = self._log.append_batch(events, at=seen_idx, atomic=True)
            return [r for r in results if isinstance(r, Receipt)]
        return self._log.append_unless_touched(events, seen_idx=seen_idx)

    def _confirm(self, chosen: "Sequence[_Chosen]", receipts: Sequence[Receipt]) -> None:
        """Take own events without reading them back, where nobody wrote in between."""
        fold, told = self._fold, self._on_confirmed
        is_wanted = fold.keeps_root or told is not None
        confirmed: list[Confirmed] = []
        for n, (item, receipt) in enumerate(zip(chosen, receipts, strict=True), fold.next_idx):
            event, after = item.event, item.after
            if receipt.index != n or event.subject_kind == "system":
                break
            value = encode_event(event) if is_wanted else b""
            confirmed.append(Confirmed(n, receipt.created_at, value, event, after))
        fold.confirm(confirmed)
        if told is not None and confirmed:
            told(confirmed)


class _Chosen(Struct, frozen=True, gc=False):
    """An event that may be written."""

    place: int
    event: Event
    after: SubjectState


class _Judged:
    """A batch with what is known of each event by its place, before anything is written."""

    def __init__(self, events: Sequence[Event], first_idx: int, log: str) -> None:
        self.events = events
        self.first_idx = first_idx
        self.log = log
        self.chosen: list[_Chosen] = []
        self.receipts: dict[int, Receipt] = {}
        self.errors: dict[int, BelogError] = {}
        self.void: dict[int, Void] = {}
        self.twins: dict[int, int] = {}
        """Places whose event stands in the batch before → its number among the chosen."""

    def first_error(self) -> BelogError | None:
        """Return the error of the first event that has one."""
        errors = {**self.errors, **{place: self._conflict(place, ()) for place in self.void}}
        return errors[min(errors)] if errors else None

    def outcomes(self, written: Sequence[Receipt]) -> list[Receipt | BelogError]:
        """Return receipt or error of every place, once the chosen ones are written."""
        found: dict[int, Receipt | BelogError] = {**self.receipts, **self.errors}
        for item, receipt in zip(self.chosen, written, strict=True):
            found[item.place] = receipt
        for place, number in self.twins.items():
            found[place] = msgspec.structs.replace(written[number], duplicate=True)
        for place in self.void:
            found[place] = self._conflict(place, written)
        for error in self.errors.values():
            if isinstance(error, EventIdReused):
                error.index = error.last_index = self._landed(error.last_index, written)
        return [found[place] for place in range(len(self.events))]

    def _conflict(self, place: int, written: Sequence[Receipt]) -> BelogError:
        void, index = self.void[place], self.first_idx
        if void.last_index >= self.first_idx:
            # Decided by an event of the batch, which may have landed later than predicted.
            last_index = self._landed(void.last_index, written) if written else void.last_index
            void = msgspec.structs.replace(void, last_index=last_index)
            index = last_index + 1
        return conflict_of(self.events[place], void, index=index, log=self.log)

    def _landed(self, index: int, written: Sequence[Receipt]) -> int:
        return index if index < self.first_idx else written[index - self.first_idx].index
