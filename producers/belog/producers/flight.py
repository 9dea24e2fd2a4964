"""An event that was sent to an ordered log and is not decided yet."""

from collections.abc import Callable

from belog.producers.pending import Pending
from belog.schemas.envelope import Event
from belog.schemas.fold import SubjectState
from belog.storage.interface import SendReport

__all__ = ["Flight", "is_reported"]


class Flight(Pending):
    """An event in flight.

    Attributes:
        value: The record.
        key: Its key.
        after: The subject's state once it is accepted.
        position: Where it landed; -1 until that is reported.
    """

    __slots__ = ("_on_report", "after", "key", "position", "value")

    def __init__(
        self,
        event: Event,
        value: bytes,
        key: bytes,
        after: SubjectState,
        on_report: "Callable[[Flight, SendReport], None]",
    ) -> None:
        """Start in flight.

        Args:
            event: The event.
            value: The record.
            key: Its key.
            after: The subject's state once it is accepted.
            on_report: Told of the delivery report.
        """
        super().__init__(event)
        self.value = value
        self.key = key
        self.after = after
        self._on_report = on_report
        self.position = -1

    def report(self, report: SendReport) -> None:
        """Take the delivery report."""
        self._on_report(self, report)


def is_reported(pending: Pending) -> bool:
    """Whether the log has said where an event landed, or its outcome is known otherwise."""
    return pending.done() or (isinstance(pending, Flight) and pending.position >= 0)
