"""Appending to logs that only say afterwards where a record landed: order decides.

Over a confirmed fold, which holds a prefix of the log, lies an overlay with the expected effects of
the events in flight. Each event is judged over both and sent. While the delivery reports come in at
the predicted positions, nobody wrote in between, and each confirms its event without reading
anything back. The first report at a later position drops the overlay: from there on the log is
read, the fold judges each record where it stands, and with that the events in flight. Then
predicting starts anew.

A record of our own that turned out void or a duplicate is tombstoned, so that compaction removes
it.
"""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec

from belog.producers.ahead import Ahead
from belog.producers.flight import Flight, Run, is_reported
from belog.producers.ids import AttemptKeys
from belog.producers.judging import check_same, first_receipt, read_back_outcome, verdict_on
from belog.producers.pending import RESULT_WAIT_S, Pending
from belog.schemas.envelope import Event, StoredEvent, encode_event
from belog.schemas.errors import (
    BelogError,
    Closed,
    LogTruncated,
    OutcomeUnknown,
    Overloaded,
    Unavailable,
    Unsupported,
)
from belog.schemas.fold import (
    Accepted,
    Duplicate,
    Fold,
    OnConfirmed,
    Outcome,
    SubjectState,
    Void,
    conflict_of,
)
from belog.schemas.verdict import GOVERNING
from belog.storage.interface import (
    SCAN_RECORDS_MAX,
    OrderedLog,
    Receipt,
    SendReport,
    Serving,
)

__all__ = ["OrderedAppender"]

READ_BACK_WAIT_S: Final = 30.0
"""Longest wait for a record that was reported as written to be readable, seconds: acknowledged by
all in-sync replicas it is visible at once, so this only bounds a broker that went away."""

READ_BACK_SLICE_S: Final = 0.5
"""One wait of these, seconds."""

READ_RETRY_PAUSE_S: Final = 1.0
"""Pause after a log that could not be read, seconds; the log's own call has waited before."""


class OrderedAppender:
    """The writing half of a producer over an `OrderedLog`. Thread-safe."""

    def __init__(
        self,
        log: OrderedLog,
        fold: Fold,
        *,
        in_flight_max: int,
        wait_s: float,
        on_confirmed: OnConfirmed | None = None,
    ) -> None:
        """Write to `log`, judging over `fold`, which this object owns from now on."""
        self._log = log
        self._ahead = Ahead(fold, on_confirmed)
        self._in_flight_max = in_flight_max
        self._wait_s = wait_s
        self._keys = AttemptKeys()
        self._lock = threading.Condition()
        self._own = threading.local()
        """Of the calling thread: its offer to take reports."""
        self._reported = 0
        self._unreported = 0
        self._adrift = False
        self._to_end = False
        self._reads_done = 0
        self._useless: list[bytes] = []
        """Keys of own records that changed nothing and are not tombstoned yet."""
        self._unreadable: BelogError | None = None
        """Why the last attempt to read on failed."""
        self._failure: BelogError | None = None
        self._closed = False
        self._reader = threading.Thread(
            target=self._run_reader, name=f"belog judge {log.name}", daemon=True
        )
        self._reader.start()

    @property
    def fold(self) -> Fold:
        """What was read and confirmed, to be looked at only."""
        return self._ahead.fold

    # --- the writer's side

    def submit(self, event: Event) -> Pending:
        """See `Producer.submit_event`."""
        current = False
        while True:
            with self._lock:
                self._wait_for_room()
                verdict = self._ahead.verdict(event, self._ahead.next_position)
                if isinstance(verdict, Accepted):
                    if self._send(event, verdict.after):
                        return self._ahead.flights[-1]
                    continue
                twin = self._ahead.twin(event)
                if twin is not None:
                    return self._twin(event, twin)
                index = self._ahead.fold.next_idx
                if isinstance(verdict, Void):
                    if current:
                        # Not by what is in flight, which may never come to be.
                        verdict = verdict_on(self._ahead.fold, event, index)
                    if not (current and isinstance(verdict, Void)):
                        # It may be legal over what others wrote since.
                        self._read_to_end()
                        current = True
                        continue
            if isinstance(verdict, Duplicate):
                pending = Pending(event)
                pending.resolve(first_receipt(self._log, event, verdict))
                return pending
            raise conflict_of(event, verdict, index=index, log=self._log.name)

    def append(self, event: Event) -> Receipt:
        """Append one event and wait for its outcome."""
        with self._serving() as reports:
            pending = self.submit(event)
            reports.until(lambda: is_reported(pending), RESULT_WAIT_S)
        return pending.result()

    def append_batch(
        self, events: Sequence[Event], *, atomic: bool, at: int | None
    ) -> list[Receipt | BelogError]:
        """See `Producer.append_batch`."""
        if at is not None:
            msg = "this log says only afterwards where a record landed"
            raise Unsupported(msg, log=self._log.name, hint="set the event's `expected` instead")
        if atomic and len(events) > 1:
            msg = "this log appends record by record, not several at once"
            raise Unsupported(msg, log=self._log.name, hint="leave out atomic")
        sent: list[Pending | BelogError] = []
        with self._serving() as reports:
            while len(sent) < len(events):
                if len(events) > 1:
                    sent += self._submit_run(events, len(sent))
                if len(sent) == len(events):
                    break
                try:
                    sent.append(self.submit(events[len(sent)]))
                except BelogError as error:
                    sent.append(error)
            # In the order of their reports, so the last of them is the last to be decided.
            last = next((s for s in reversed(sent) if isinstance(s, Pending)), None)
            if last is not None:
                reports.until(lambda: is_reported(last), RESULT_WAIT_S)
        return [s if isinstance(s, BelogError) else s.outcome() for s in sent]

    def _submit_run(self, events: Sequence[Event], start: int) -> list[Flight]:
        """Send events from a place of a batch on, together, as long as each can be sent at once."""
        ahead = self._ahead
        with self._lock:
            if self._adrift or self._closed:
                return []
            run = Run(self.on_report, self._on_landed)
            room = self._in_flight_max - len(ahead.flights)
            try:
                series = self._log.series(ahead.next_position, run)
            except BelogError:
                return []  # `submit` raises it again
            flights = run.flights = ahead.add_run(events[start : start + room], self._keys)
            try:
                # In a row once all are judged: the client sends what it has as soon as it can.
                for flight in flights:
                    series.send(flight.key, flight.value)
            except BelogError:
                pass  # as above
            finally:
                if series.sent < len(flights):
                    ahead.withdraw(flights[series.sent :])
                    del flights[series.sent :]
                self._unreported += series.sent
                series.end()
        return flights

    def refresh(self) -> Fold:
        """Read on to the log's end; return the fold, to be looked at only."""
        with self.reading() as fold:
            return fold

    @contextmanager
    def reading(self) -> Generator[Fold]:
        """Read on to the log's end; the fold stays there for as long as the context lasts."""
        with self._lock:
            self._wait_for_room()
            self._read_to_end()
            yield self._ahead.fold

    def flush(self, timeout_s: float) -> bool:
        """Wait until nothing is in flight."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._ahead.flights, timeout_s)

    def close(self) -> None:
        """Let what is in flight be decided, then end; what is not by then is unknown."""
        self.flush(self._wait_s)
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._reader.join()
        self._abandon("the producer was closed before an answer came")

    @contextmanager
    def _serving(self) -> Generator[Serving]:
        """Let this thread take the log's reports while it has nothing else to wait for."""
        with self._log.serving() as reports:
            self._own.reports = reports
            try:
                yield reports
            finally:
                self._own.reports = None

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait, with the lock held, for what reports may bring; others take them meanwhile."""
        reports = getattr(self._own, "reports", None)
        if reports is not None:
            reports.release()
        return self._lock.wait_for(condition, timeout_s)

    def _wait_for_room(self) -> None:
        """Wait, with the lock held, until an event may be judged and sent."""
        if not self._adrift and not self._closed and self._has_room():
            return
        ready = self._wait(
            lambda: (
                self._closed or self._failure is not None or (not self._adrift and self._has_room())
            ),
            self._wait_s,
        )
        if self._failure is not None:
            raise self._failure
        if self._closed:
            msg = "the producer was closed"
            raise Closed(msg, log=self._log.name)
        if not ready and self._adrift:
            why = "it does not answer" if self._unreadable is None else self._unreadable.message
            msg = f"the log could not be read on for {self._wait_s} s: {why}"
            raise Unavailable(
                msg, log=self._log.name, hint="is the broker there?"
            ) from self._unreadable
        if not ready:
            msg = f"{len(self._ahead.flights)} events are undecided, for {self._wait_s} s now"
            raise Overloaded(
                msg, log=self._log.name, hint="is the broker there? publish more slowly"
            )

    def _has_room(self) -> bool:
        return len(self._ahead.flights) < self._in_flight_max

    def _send(self, event: Event, after: SubjectState) -> bool:
        """Send an accepted event; False where the log had no room and a report came meanwhile."""
        flight = Flight(event, encode_event(event), self._keys.next(), after)
        try:
            self._log.send(flight.key, flight.value, partial(self.on_report, flight))
        except Overloaded:
            reported = self._reported
            if not self._wait(lambda: self._reported != reported, self._wait_s):
                raise
            return False
        self._ahead.add(flight)
        self._unreported += 1
        if event.event_type in GOVERNING:
            # Which tables govern what follows is known when its record was read.
            self._adrift = True
        return True

    def _twin(self, event: Event, flight: Flight) -> Pending:
        """Let an event whose id is in flight have the outcome of that one."""
        check_same(event, Duplicate(flight.after.index), StoredEvent(-1, 0, flight.event))
        pending = Pending(event)

        def follow(first: Pending) -> None:
            error = first.exception()
            pending.resolve(error or msgspec.structs.replace(first.result(), duplicate=True))

        flight.on_done(follow)
        return pending

    def _read_to_end(self) -> None:
        """Have the log read to its end, with the lock held; returns when that is done."""
        self._adrift = True
        self._to_end = True
        self._lock.notify_all()
        # Counted, because another thread may have set the next read going before this one wakes.
        wanted = self._reads_done + 1
        done = self._wait(
            lambda: self._reads_done >= wanted or self._failure is not None or self._closed,
            self._wait_s,
        )
        if self._failure is not None:
            raise self._failure
        if self._reads_done < wanted:
            why = "the producer was closed" if done else f"not within {self._wait_s} s"
            msg = f"the log could not be read to its end: {why}"
            raise Unavailable(msg, log=self._log.name, hint="is the broker there?")

    # --- the log's side

    def on_report(self, flight: Flight, report: SendReport) -> None:
        """Take a delivery report; called in the order of the positions."""
        outcome: Receipt | BelogError | None = None
        failure: BelogError | None = None
        with self._lock:
            self._reported += 1
            self._unreported -= 1
            if flight.done():
                return  # given up before
            flight.position = report.position
            expected = self._ahead.fold.next_position
            if report.error is not None:
                # What follows it in flight was judged as if it had landed.
                outcome = report.error
                self._ahead.remove(flight)
                self._adrift = True
                self._to_end = True
            elif report.position < expected:
                failure = self._failure = LogTruncated(
                    f"a record landed at {report.position}, {expected} was read before",
                    log=self._log.name,
                    hint="the log was replaced or truncated; compare its log_id",
                )
                self._adrift = True
            elif self._adrift or report.position > expected or not self._ahead.is_next([flight]):
                self._adrift = True
            else:
                outcome = self._ahead.confirm(flight, report)
            if outcome is not None:
                flight.decide(outcome)
            undecided = len(self._ahead.flights)
            if self._adrift or undecided in (0, self._in_flight_max - 1):
                self._lock.notify_all()
        if failure is not None:
            self._fail(failure)
        if outcome is not None:
            flight.announce()

    def _on_landed(self, flights: list[Flight], times: list[int]) -> None:
        """Take the reports of a run at once, which landed in a row where it was expected to."""
        with self._lock:
            is_next = not self._adrift and self._ahead.is_next(flights)
            if is_next:
                self._reported += len(flights)
                self._unreported -= len(flights)
                self._ahead.confirm_all(flights, times)
                self._lock.notify_all()
        for flight, created_at in zip(flights, times, strict=True):
            if is_next:
                flight.announce()
            else:
                self.on_report(flight, SendReport(flight.after.index, created_at))

    def _fail(self, error: BelogError) -> None:
        """Stop for good: nothing more can be promised."""
        with self._lock:
            self._failure = self._failure or error
            # Keeps the quick way of a send closed, so that it need not look for the failure.
            self._adrift = True
            flights = self._forget_flights()
        for flight in flights:
            flight.resolve(error)

    def _abandon(self, why: str) -> None:
        """Answer for what is in flight that nobody will know."""
        with self._lock:
            flights = self._forget_flights()
        for flight in flights:
            landed = f"written at {flight.position}, but " if flight.position >= 0 else ""
            msg = landed + why
            flight.resolve(OutcomeUnknown(msg, event_id=flight.event.event_id, log=self._log.name))

    def _forget_flights(self) -> list[Flight]:
        flights = self._ahead.forget()
        self._lock.notify_all()
        return flights

    def _run_reader(self) -> None:
        try:
            self._read_when_adrift()
        except BaseException as fault:
            # A fault of the software: nobody may be left waiting for this thread.
            self._fail(BelogError(f"judging stopped by {fault!r:.200}", log=self._log.name))
            raise

    def _read_when_adrift(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(
                    lambda: (
                        self._closed
                        or self._failure is not None
                        or (self._adrift and self._unreported == 0)
                    )
                )
                if self._closed or self._failure is not None:
                    return
                flights = {flight.position: flight for flight in self._ahead.flights}
                to_end = self._to_end
            try:
                self._read_back(flights, to_end=to_end)
            except BelogError as error:
                self._give_up(error)
                continue
            with self._lock:
                self._ahead.predict_anew()
                self._adrift = self._to_end = False
                self._unreadable = None
                self._reads_done += 1
                self._lock.notify_all()

    def _read_back(self, flights: dict[int, Flight], *, to_end: bool) -> None:
        """Read the log until every flight is decided; only this thread moves the fold meanwhile."""
        target = max(flights, default=-1)
        if to_end:
            target = max(target, self._log.next_position() - 1)
        self._read_until(target, flights)
        if self._useless:
            self._log.tombstone(self._useless)
            self._useless = []
            # Past the tombstones, or the next prediction would miss by as many.
            self._read_until(self._log.next_position() - 1, {})

    def _read_until(self, target: int, flights: dict[int, Flight]) -> None:
        """Apply records up to `target`, and decide the flights among them."""
        deadline = time.monotonic() + READ_BACK_WAIT_S
        while self._ahead.fold.next_position <= target:
            records = self._log.scan(self._ahead.fold.next_position, SCAN_RECORDS_MAX)
            for record in records:
                outcome = self._ahead.fold.apply(record)
                flight = flights.pop(record.position, None)
                if flight is not None and not self._settle(flight, outcome):
                    self._useless.append(flight.key)
            if records:
                continue
            if self._log.next_position() > target:
                # The end was reached, and what stood up to here is gone: nothing is left to judge.
                for flight in flights.values():
                    self._settle(flight, None)
                return
            if time.monotonic() > deadline:
                msg = f"the record at {target} cannot be read back"
                raise Unavailable(msg, log=self._log.name)
            self._log.wait(self._ahead.fold.next_position, READ_BACK_SLICE_S)

    def _settle(self, flight: Flight, outcome: Outcome | None) -> bool:
        """Resolve a flight by the verdict where it landed; return whether its record counts."""
        answer = read_back_outcome(self._log, flight.event, outcome)
        with self._lock:
            flight.decide(answer)
            self._ahead.remove(flight)
            self._lock.notify_all()
        flight.announce()
        return outcome is None or isinstance(outcome.verdict, Accepted)

    def _give_up(self, error: BelogError) -> None:
        """Answer for flights whose records could not be read back; try again later, or stop."""
        if not error.retriable:
            self._fail(error)
            return
        with self._lock:
            self._to_end = True
            self._unreadable = error
        self._abandon(f"it could not be read back: {error.message}")
        # Still adrift: tried again, after a pause, until the log answers.
        with self._lock:
            self._lock.wait_for(lambda: self._closed, READ_RETRY_PAUSE_S)
