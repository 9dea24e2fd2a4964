"""Events that are kept before they are sent, so that a build goes on while the log is away."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from belog.client.flushing import Flushed, SentTo, flush
from belog.client.spool import Spool
from belog.client.spool_codec import Entry
from belog.client.spool_words import Left
from belog.schemas.envelope import Event
from belog.schemas.errors import BelogError, Closed
from belog.schemas.receipts import Receipt

__all__ = ["AWAY_PAUSE_S", "RECORD_S", "TAKEN_S", "OnConflict", "Recorder", "Spooled"]

LOGGER: Final = logging.getLogger("belog.client")

RECORD_S: Final = 5.0
"""How long `record` waits for the log's answer, seconds, before it leaves the event to the spool;
only the first event that meets a log that is away waits."""

AWAY_PAUSE_S: Final = 2.0
"""Pause between tries while the log is away, seconds."""

MEET_S: Final = 5.0
"""How long it is taken for granted that the log is still the same one while all goes well, seconds:
a service that was given another log is longer away than that."""

TAKEN_S: Final = 0.05
"""Pause before it is looked again whether another process has done with sending, seconds."""

OnConflict = Callable[[Event, BelogError], None]


class Spooled(Struct, frozen=True):
    """The event is on disk, and will be sent; nothing is known of it in the log."""

    event_id: bytes
    number: int
    """Its place among all events of the spool."""


class Recorder:
    """Keeps events and sends them from a thread, in order. Thread-safe.

    Attributes:
        spool: Where they are kept.
        error: Why the last try to send did not send all; None while all is well.
    """

    def __init__(self, spool: Spool, log: SentTo, on_conflict: OnConflict | None = None) -> None:
        """Begin to send what is there.

        Args:
            spool: Stays the caller's to close.
            log: Where to. Its own retries should be short: the thread tries again by itself.
            on_conflict: Told of refused events that nobody waits for; called in the thread.
        """
        self.spool = spool
        self.error: BelogError | None = None
        self._log = log
        self._on_conflict = on_conflict
        self._changed = threading.Condition()
        self._outcomes: dict[int, Receipt | BelogError] = {}
        self._awaited: set[int] = set()
        self._is_closed = False
        self._met_s = float("-inf")
        self._is_wanted = spool.pending > 0
        self._thread = threading.Thread(target=self._run, name="belog spool", daemon=True)
        self._thread.start()

    def record(self, event: Event, *, wait_s: float = RECORD_S) -> Receipt | Spooled:
        """Keep an event, and wait a while for the log to take it. Durable on return.

        Returns:
            The log's receipt, or that the event is on disk: then what becomes of it is told to
            `on_conflict` alone.

        Raises:
            Conflict: It is not legal now. It is gone from the spool.
            Overloaded: The spool is full.
            Unavailable: The disk cannot be written.
        """
        with self._changed:
            self._check_open()
            is_well = self.error is None
            # The order of numbers is the order of calls, so that a thread's events stay in order.
            number = self.spool.put(event, may_be_sent=is_well, is_awaited=is_well)
            if not is_well:
                return Spooled(event.event_id, number)
            self._awaited.add(number)
            self._is_wanted = True
            self._changed.notify_all()
            try:
                self._changed.wait_for(
                    lambda: number in self._outcomes or self.error is not None or self._is_closed,
                    wait_s,
                )
                result = self._outcomes.pop(number, None)
            finally:
                self._awaited.discard(number)
                self.spool.forget(number)
        if isinstance(result, BelogError):
            raise result
        return Spooled(event.event_id, number) if result is None else result

    def flush(self, timeout_s: float) -> Flushed:
        """Wait until the spool is empty, or the time is over.

        Returns:
            What is left, and why; `sent` and `refused` are 0: they went in the background.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            self._is_wanted = True
            self._changed.notify_all()
            while (left := self.spool.pending) and (wait_s := deadline - time.monotonic()) > 0:
                self._changed.wait(min(wait_s, TAKEN_S))
        return Flushed(sent=0, refused=0, left=left, error=self.error if left else None)

    def close(self, timeout_s: float = 0.0) -> None:
        """Try to send what is left, for a while, then stop; the rest stays on disk. Idempotent.

        Args:
            timeout_s: Longest wait, seconds.
        """
        if not self._is_closed and timeout_s:
            self.flush(timeout_s)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()

    def _check_open(self) -> None:
        if self._is_closed:
            msg = "the client was closed"
            raise Closed(msg)

    # --- the thread

    def _run(self) -> None:
        while self._next():
            try:
                now_s = time.monotonic()
                is_met = self.error is None and now_s - self._met_s < MEET_S
                done = flush(self.spool, self._log, on_outcome=self._left, is_met=is_met)
                error, taken = done.error, not done.is_ours
                self._met_s = self._met_s if is_met or error or taken else now_s
                if taken:
                    self._see_what_others_sent()
            except BelogError as stopped:
                error, taken = stopped, False
            except Exception as fault:  # noqa: BLE001 - shown by `error`; the thread goes on
                error, taken = BelogError(f"sending failed: {fault!r}"), False
            self._ended(error, taken=taken)

    def _next(self) -> bool:
        """Wait until there is something to send; return whether to go on."""
        with self._changed:
            if self.error is None:
                self._changed.wait_for(lambda: self._is_wanted or self._is_closed)
            else:
                self._changed.wait_for(lambda: self._is_closed, AWAY_PAUSE_S)
            self._is_wanted = False
            return not self._is_closed

    def _ended(self, error: BelogError | None, *, taken: bool) -> None:
        with self._changed:
            if error is not None and (self.error is None or self.error.code != error.code):
                LOGGER.warning("events are kept in %s: %s", self.spool.folder, error)
            elif error is None and self.error is not None:
                LOGGER.warning("events of %s are sent again", self.spool.folder)
            self.error = error
            self._changed.notify_all()
            if taken:
                # Another process sends, perhaps what is awaited here.
                self._changed.wait_for(lambda: self._is_closed, TAKEN_S)
                self._is_wanted = True

    def _see_what_others_sent(self) -> None:
        with self._changed:
            awaited = sorted(self._awaited)
        for number in awaited:
            left = self.spool.outcome_of(number)
            result = None if left is None else self._result_of(number, left)
            with self._changed:
                if result is not None and number in self._awaited:
                    self._outcomes[number] = result
                    self._changed.notify_all()

    def _result_of(self, number: int, left: Left) -> Receipt | BelogError | None:
        """Return what became of an event that another process sent; None: that is not known."""
        if left.index is not None:
            stored = self._log.event(left.index)
            if stored is None:
                return None
            return Receipt(stored.index, stored.created_at, stored.event.event_id)
        for refusal in reversed(self.spool.conflicts()):
            if refusal.number == number:
                return refusal.error()
        return None

    def _left(self, entry: Entry, result: Receipt | BelogError) -> None:
        with self._changed:
            if entry.number in self._awaited:
                self._outcomes[entry.number] = result
                self._changed.notify_all()
                return
        if isinstance(result, BelogError) and self._on_conflict is not None:
            self._on_conflict(entry.event, result)
