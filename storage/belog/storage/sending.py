"""What a writer of an ordered log gets to know of the records it sent. No I/O."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from msgspec import Struct

from belog.schemas.errors import BelogError

__all__ = ["OnReport", "SendReport", "Series", "SeriesReports", "Serving"]


class SendReport(Struct, frozen=True):
    """What became of a record sent to an ordered log."""

    position: int
    """-1 where it is not known."""
    created_at: int
    error: BelogError | None = None
    """`OutcomeUnknown` where it may have been written, anything else where it surely was not."""


OnReport = Callable[[SendReport], None]


class Serving:
    """A thread's offer to take reports. Used by that thread alone."""

    def until(self, done: Callable[[], bool], timeout_s: float) -> None:
        """Call back with reports until something holds or the time is over, if that falls to us."""

    def release(self) -> None:
        """Leave reports to the log's own thread from here on, before waiting for anything else."""


class SeriesReports(Protocol):
    """Who is told what became of a series; called by whichever thread takes the log's reports."""

    def landed(self, created_at: list[int]) -> None:
        """All landed in a row from the expected position on; their ingest times, microseconds."""

    def reported(self, number: int, report: SendReport) -> None:
        """The record of this number, from 0 on, has a report of its own."""


class Series:
    """Records sent one after the other, which are reported together where they land in a row.

    To be told of each record costs more than to judge it. As long as each lands where it was
    expected to, nobody needs to know before the last has. With the first that does not, what was
    held back is reported record by record, and so is all that follows. One thread sends; reports
    may be taken by another.
    """

    __slots__ = ("_end", "_first", "_is_whole", "_once", "_reports", "_send", "_times", "sent")

    def __init__(
        self, send: Callable[[bytes, bytes, OnReport], None], first: int, reports: SeriesReports
    ) -> None:
        """Start one.

        Args:
            send: Sends one record.
            first: Position that the first is expected to get.
            reports: Is told.
        """
        self._send = send
        self._first = first
        self._reports = reports
        self._times: list[int] = []
        self._end = -1
        self._is_whole = True
        self._once = threading.Lock()
        self.sent = 0
        """How many were handed over."""

    def send(self, key: bytes, value: bytes) -> None:
        """Hand over the next record; see `OrderedLog.send` for the errors."""
        self._send(key, value, partial(self.take, self.sent))
        self.sent += 1

    def end(self) -> None:
        """Say that no more will come: until then nobody is told of those that landed in a row."""
        self._end = self.sent
        if self._is_whole and len(self._times) == self._end:
            self._land()

    def take(self, number: int, report: SendReport) -> None:
        """Take the report of the record of a number.

        Those that were not sent in time may be reported before others that were, so the next
        report need not be that of the next record.
        """
        times = self._times
        if self._is_whole:
            is_next = number == len(times) and report.position == self._first + number
            if is_next and report.error is None:
                times.append(report.created_at)
                if len(times) == self._end:
                    self._land()
                return
            self._is_whole = False
            for before, created_at in enumerate(times):
                self._reports.reported(before, SendReport(self._first + before, created_at))
        self._reports.reported(number, report)

    def _land(self) -> None:
        # The thread that ends it and the one that takes the last report may both see that it is so.
        if self._times and self._once.acquire(blocking=False):
            self._reports.landed(self._times)
