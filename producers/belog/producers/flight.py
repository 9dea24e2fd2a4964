"""Events that were sent to an ordered log and are not decided yet."""

from collections.abc import Callable

from belog.producers.pending import Pending
from belog.schemas.envelope import Event
from belog.schemas.fold import SubjectState
from belog.storage.interface import SendReport

__all__ = ["Flight", "Run", "is_reported"]


class Flight(Pending):
    """An event in flight.

    Attributes:
        value: The record.
        key: Its key.
        after: The subject's state once it is accepted.
        position: Where it landed; -1 until that is reported.
    """

    __slots__ = ("after", "key", "position", "value")

    def __init__(self, event: Event, value: bytes, key: bytes, after: SubjectState) -> None:
        """Start in flight.

        Args:
            event: The event.
            value: The record.
            key: Its key.
            after: The subject's state once it is accepted.
        """
        super().__init__(event)
        self.value = value
        self.key = key
        self.after = after
        self.position = -1


def is_reported(pending: Pending) -> bool:
    """Whether the log has said where an event landed, or its outcome is known otherwise."""
    return pending.done() or (isinstance(pending, Flight) and pending.position >= 0)


class Run:
    """Flights of a `Series`: told of together, or one by one as those that were sent alone.

    Attributes:
        flights: In the order of their records, before the first of them is sent.
    """

    def __init__(
        self,
        on_report: Callable[[Flight, SendReport], None],
        on_landed: Callable[[list[Flight], list[int]], None],
    ) -> None:
        """Start without flights.

        Args:
            on_report: Told of one's report.
            on_landed: Told of the ingest times of all, which landed in a row.
        """
        self.flights: list[Flight] = []
        self._on_report = on_report
        self._on_landed = on_landed

    def landed(self, created_at: list[int]) -> None:
        """See `SeriesReports.landed`."""
        self._on_landed(self.flights, created_at)

    def reported(self, number: int, report: SendReport) -> None:
        """See `SeriesReports.reported`."""
        self._on_report(self.flights[number], report)
