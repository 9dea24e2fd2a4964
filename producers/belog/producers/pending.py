"""One event on its way into the log, and the future its writer holds."""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from belog.schemas.envelope import Event
from belog.schemas.errors import BelogError, Unavailable
from belog.storage.interface import Receipt

__all__ = ["RESULT_WAIT_S", "Pending"]

RESULT_WAIT_S: Final = 150.0
"""Longest wait for an outcome, seconds: above the log's own delivery limit (120 s with Kafka's
defaults), so that the log's answer comes first."""

LOGGER: Final = logging.getLogger("belog.producers")
LOGGER.addHandler(logging.NullHandler())


class Pending:
    """The outcome of one append, now or later. Thread-safe.

    A leaner `concurrent.futures.Future`: it cannot be cancelled (an event that was sent cannot be
    called back) and makes its lock only when somebody waits, since most are resolved before.
    """

    __slots__ = ("_callbacks", "_error", "_lock", "_receipt", "_waiter", "event")

    _shared_lock: Final = threading.Lock()

    def __init__(self, event: Event) -> None:
        """Start without an outcome."""
        self.event = event
        self._receipt: Receipt | None = None
        self._error: BelogError | None = None
        self._waiter: threading.Event | None = None
        self._callbacks: list[Callable[[Pending], None]] | None = None

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._receipt is not None or self._error is not None

    def result(self, timeout_s: float = RESULT_WAIT_S) -> Receipt:
        """Wait for the outcome and return the receipt.

        Raises:
            Conflict: The event is not legal where it landed; nothing changed.
            OutcomeUnknown: No answer came; append it again with the same `event_id`.
            Unavailable: It is not decided yet when the time is over; it may still be.
            BelogError: What else kept it out of the log.
        """
        error = self.exception(timeout_s)
        if error is not None:
            raise error
        if self._receipt is None:
            msg = "resolved without a receipt"
            raise AssertionError(msg)
        return self._receipt

    def exception(self, timeout_s: float = RESULT_WAIT_S) -> BelogError | None:
        """Wait for the outcome and return the error, None where there is a receipt.

        Raises:
            Unavailable: It is not decided yet when the time is over.
        """
        if not self.done() and not self._wait(timeout_s):
            msg = f"not decided within {timeout_s} s"
            raise Unavailable(msg, hint="wait on, or append it again with the same event_id")
        return self._error

    def outcome(self, timeout_s: float = RESULT_WAIT_S) -> Receipt | BelogError:
        """Wait for the outcome and return it; what `result` raises is returned, too."""
        known = self._receipt or self._error
        if known is not None:
            return known
        try:
            return self.exception(timeout_s) or self.result()
        except BelogError as error:
            return error

    def _wait(self, timeout_s: float) -> bool:
        with self._shared_lock:
            if self.done():
                return True
            if self._waiter is None:
                self._waiter = threading.Event()
        return self._waiter.wait(timeout_s)

    def on_done(self, callback: Callable[["Pending"], None]) -> None:
        """Call back once with this object when the outcome is known; now, if it is.

        Called from whichever thread learns the outcome; it must not block. What it raises in such
        a thread is logged, since other writers wait for that thread; what it raises here and now is
        the caller's.
        """
        with self._shared_lock:
            if not self.done():
                self._callbacks = [*(self._callbacks or ()), callback]
                return
        callback(self)

    def resolve(self, outcome: Receipt | BelogError) -> None:
        """Set the outcome, once, and tell those who wait; a second one is ignored."""
        if self.decide(outcome):
            self.announce()

    def decide(self, outcome: Receipt | BelogError) -> bool:
        """Set the outcome without telling anybody yet; return whether it is the first.

        For who holds a lock that a callback may want: `announce` follows when it is free.
        """
        with self._shared_lock:
            if self.done():
                return False
            if isinstance(outcome, Receipt):
                self._receipt = outcome
            else:
                self._error = outcome
            return True

    @classmethod
    def decide_all(cls, pendings: Sequence["Pending"], receipts: Sequence[Receipt]) -> None:
        """Set the outcomes of several as `decide` does, at once."""
        with cls._shared_lock:
            for pending, receipt in zip(pendings, receipts, strict=True):
                if not pending.done():
                    pending._receipt = receipt  # noqa: SLF001 - of this class

    def announce(self) -> None:
        """Tell those who wait; once, by who has decided."""
        # Without the lock: who comes after the decision sees that it is done.
        if self._waiter is not None:
            self._waiter.set()
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            try:
                callback(self)
            except Exception:
                LOGGER.exception("a callback of the event at hand failed")
